//! Requests at a node that does not have the session, between two tables without a network. Whole clusters are in
//! `e2e/tests/several_nodes/bosh.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use throng_net::bosh::{
    BoshForwarder, BoshSessionTable, BoshSettings, ForwardedRequest, ForwardingError, HeldForwardedRequest,
    RequestSource,
};

use crate::harness::*;

/// What passes between the tables of a test.
struct DirectLink {
    forwarded: AtomicUsize,
    is_busy: AtomicBool,
    /// Responses arrive damaged.
    is_damaged: AtomicBool,
    max_response_bytes: AtomicUsize,
}

/// Reaches one other table.
struct DirectForwarder {
    tag: u32,
    other: (u32, Weak<BoshSessionTable>),
    link: Arc<DirectLink>,
}

impl BoshForwarder for DirectForwarder {
    fn own_tag(&self) -> u32 {
        self.tag
    }

    fn max_request_bytes(&self) -> usize {
        100_000
    }

    fn max_response_bytes(&self) -> usize {
        self.link.max_response_bytes.load(SeqCst)
    }

    fn forward(
        &self,
        tag: u32,
        client: u64,
        request: &[u8],
        seconds: u32,
    ) -> Result<Box<dyn ForwardedRequest>, ForwardingError> {
        assert_eq!(seconds, 70, "the time of a held request and a margin");
        assert_ne!(client, 0, "a number of the address");
        if tag != self.other.0 {
            return Err(ForwardingError::NoSession);
        }
        if self.link.is_busy.load(SeqCst) {
            return Err(ForwardingError::Retry);
        }
        self.link.forwarded.fetch_add(1, SeqCst);
        let mut held = self.other.1.upgrade().unwrap().take_forwarded(request.to_vec());
        held.handle();
        Ok(Box::new(DirectRequest { held, is_damaged: self.link.is_damaged.load(SeqCst) }))
    }

    fn close(&self) {}
}

struct DirectRequest {
    held: HeldForwardedRequest,
    is_damaged: bool,
}

impl ForwardedRequest for DirectRequest {
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, ForwardingError>> {
        self.held.poll_response(cx).map(|response| match self.is_damaged {
            true => Ok(b"?".to_vec()),
            false => Ok([&response.head[..], &response.body].concat()),
        })
    }

    fn response_sent(&mut self) {
        self.held.response_sent();
    }
}

/// Two nodes; the sessions of the tests are at the first one.
struct TwoNodes {
    holder: BoshHarness,
    other: BoshHarness,
    link: Arc<DirectLink>,
}

fn two_nodes() -> TwoNodes {
    two_nodes_with(|_| {})
}

/// `change`: the settings of the first node.
fn two_nodes_with(change: impl FnOnce(&mut BoshSettings)) -> TwoNodes {
    let (holder, other) = (BoshHarness::with(change), BoshHarness::new());
    let link = Arc::new(DirectLink {
        forwarded: AtomicUsize::new(0),
        is_busy: AtomicBool::new(false),
        is_damaged: AtomicBool::new(false),
        max_response_bytes: AtomicUsize::new(1 << 20),
    });
    let connect = |harness: &BoshHarness, tag, (other_tag, other): (u32, &BoshHarness)| {
        let other = (other_tag, Arc::downgrade(&other.sessions));
        harness.sessions.set_forwarder(Arc::new(DirectForwarder { tag, other, link: link.clone() }));
    };
    connect(&holder, 1, (2, &other));
    connect(&other, 2, (1, &holder));
    TwoNodes { holder, other, link }
}

impl TwoNodes {
    fn forwarded(&self) -> usize {
        self.link.forwarded.load(SeqCst)
    }

    /// The next request of the session, at the other node.
    fn post(&self, open: &mut OpenSession<'_>, payload: &str) -> PostedRequest {
        open.rid += 1;
        self.other.post(&open.body(open.rid, "", payload))
    }
}

/// An identifier with the tag of a node.
fn forged(tag: u32, number: u32, is_legacy: bool) -> String {
    format!("{number:08x}{tag:08x}{:016x}", u64::from(is_legacy))
}

fn empty(sid: &str) -> String {
    format!("<body rid='{RID}' sid='{sid}' xmlns='{NS}'/>")
}

#[test]
fn a_session_is_used_through_both_nodes_in_turn() {
    let nodes = two_nodes();
    let mut open = nodes.holder.open();
    for number in 0..20 {
        let text = format!("<message xmlns='jabber:client' id='{number}'/>");
        let mut next = if number % 2 == 0 { nodes.post(&mut open, &text) } else { open.post(&text) };
        assert_eq!(open.server.read(), [element(&text)]);
        assert!(next.waits(), "{number}");
        open.server.send(&text);
        assert!(open.held.replace(next).unwrap().text().contains(&text));
    }
    assert_eq!(nodes.forwarded(), 10);
    let counts = nodes.other.sessions.counts();
    assert_eq!((counts.forwarded, counts.unknown_session, counts.sessions), (10, 0, 0));
}

#[test]
fn section_14_3_a_response_that_was_lost_at_one_node_is_sent_by_the_other() {
    let nodes = two_nodes();
    let mut open = nodes.holder.open();
    open.held = None;
    let mut lost = nodes.post(&mut open, "");
    open.server.send("<message/>");
    assert!(lost.fetch());
    drop(lost);
    let again = open.body(open.rid, "", "");
    for harness in [&nodes.other, &nodes.holder] {
        assert!(harness.post(&again).text().contains("<message"));
    }
    assert_eq!(open.server.read(), [], "the payload is read once");
}

#[test]
fn a_connection_that_breaks_at_the_other_node_is_broken_for_the_session() {
    let nodes = two_nodes();
    let mut open = nodes.holder.open();
    drop(open.held.take());
    let waiting = nodes.post(&mut open, "");
    assert_eq!(nodes.holder.sessions.counts().held, 1);
    drop(waiting);
    assert_eq!(nodes.holder.sessions.counts().held, 0);
    nodes.holder.advance(61);
    assert!(!open.is_alive(), "inactive, although the other node had a request");
}

#[test]
fn a_request_for_no_session_gets_item_not_found_and_is_never_forwarded_twice() {
    let nodes = two_nodes();
    for (tag, forwarded) in [(1, 1), (2, 1), (3, 1)] {
        let answer = nodes.other.post(&empty(&forged(tag, 7, false))).answer();
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(text.contains("type='terminate'") && text.contains("item-not-found"), "{text}");
        assert_eq!((answer.status, nodes.forwarded()), (200, forwarded), "{tag}");
    }
    assert_eq!(nodes.other.post(&empty(&forged(1, 7, true))).answer().status, 404);
    assert_eq!(nodes.other.sessions.counts().unknown_session, 4);
}

#[test]
fn section_17_3_a_request_that_cannot_be_forwarded_now_gets_a_recoverable_error() {
    let nodes = two_nodes();
    let mut open = nodes.holder.open();
    nodes.link.is_busy.store(true, SeqCst);
    let mut refused = nodes.post(&mut open, "<message/>");
    assert!(refused.text().contains("type='error'"));
    nodes.link.is_busy.store(false, SeqCst);
    let again = open.body(open.rid, "", "<message/>");
    assert!(nodes.other.post(&again).waits());
    assert_eq!(open.server.read(), [element("<message/>")]);
    nodes.other.sessions.close_all();
    assert!(
        nodes.post(&mut open, "").text().contains("type='error'"),
        "it shuts down; the session is not there"
    );
}

#[test]
fn section_19_1_a_secure_session_is_not_used_over_an_unencrypted_connection_elsewhere() {
    let nodes = two_nodes();
    let secure = RequestSource { secure: true, ..nodes.holder.origin() };
    let create = format!("<body to='example.com' ver='1.6' rid='{RID}' xmlns='{NS}'/>");
    let mut post = nodes.holder.post_from(secure.clone(), create.as_bytes());
    let mut server = nodes.holder.server();
    server.read();
    server.send(WELCOME);
    let created = post.text();
    let sid = value(&created, "sid").unwrap();
    let next = format!("<body rid='{}' sid='{sid}' xmlns='{NS}'/>", RID + 1);
    assert!(nodes.other.post(&next).answer().close);
    assert!(nodes.other.post_from(secure, next.as_bytes()).waits(), "the session goes on");
}

#[test]
fn invented_identifiers_of_one_address_cause_a_limited_number_of_requests_to_the_other_node() {
    let nodes = two_nodes();
    let ask = |number| nodes.other.post(&empty(&forged(1, number, false))).text();
    let refused = (0..2000).filter(|number| ask(*number).contains("type='error'")).count();
    assert_eq!((nodes.forwarded(), refused), (1024, 976));
    let mut open = nodes.holder.open();
    let elsewhere = RequestSource { peer: "198.51.100.1:1".parse().unwrap(), ..nodes.other.origin() };
    open.rid += 1;
    let body = open.body(open.rid, "", "");
    let mut held = nodes.other.post_from(elsewhere, body.as_bytes());
    assert!(held.waits(), "another address");
    // Its session is known from now on, also at the limited address.
    open.server.send("<message/>");
    assert!(held.text().contains("<message"));
    assert!(nodes.post(&mut open, "").waits());
}

#[test]
fn the_limits_of_the_holder_apply() {
    let nodes = two_nodes_with(|settings| settings.body_bytes = 1000);
    let mut open = nodes.holder.open();
    let long = format!("<message id='{}'/>", "x".repeat(1000));
    assert!(nodes.post(&mut open, &long).text().contains("policy-violation"));
    assert_eq!(open.server.read(), []);
}

#[test]
fn refused_requests_count_for_the_rate_of_their_session() {
    let nodes = two_nodes_with(|settings| (settings.body_bytes, settings.requests_per_second) = (1000, 1));
    let mut open = nodes.holder.open();
    let long = open.body(open.rid + 1, "", &format!("<message id='{}'/>", "x".repeat(1000)));
    for _ in 0..5 {
        assert!(nodes.other.post(&long).text().contains("policy-violation"));
        assert!(open.is_alive());
    }
    assert_eq!(terminated(&nodes.post(&mut open, "").text()), "policy-violation");
    assert!(!open.is_alive());
}

#[test]
fn requests_that_the_holder_does_not_count_are_limited_where_they_arrive() {
    let nodes = two_nodes();
    let secure = RequestSource { secure: true, ..nodes.holder.origin() };
    let create = format!("<body to='example.com' ver='1.6' rid='{RID}' xmlns='{NS}'/>");
    let mut post = nodes.holder.post_from(secure, create.as_bytes());
    let mut server = nodes.holder.server();
    server.read();
    server.send(WELCOME);
    let created = post.text();
    let next = format!("<body rid='{}' sid='{}' xmlns='{NS}'/>", RID + 1, value(&created, "sid").unwrap());
    for _ in 0..2000 {
        nodes.other.post(&next).answer();
    }
    assert_eq!(nodes.forwarded(), 501, "the first one, and the burst of a session");
    assert_eq!(nodes.holder.sessions.counts().sessions, 1);
}

#[test]
fn a_request_that_is_too_large_to_be_forwarded_ends_with_an_error_that_is_final() {
    let nodes = two_nodes();
    let mut open = nodes.holder.open();
    let long = format!("<message id='{}'/>", "x".repeat(100_000));
    assert_eq!(terminated(&nodes.post(&mut open, &long).text()), "policy-violation");
    assert_eq!(nodes.forwarded(), 0);
}

#[test]
fn a_response_that_is_too_large_to_be_sent_to_another_node_ends_the_session() {
    let nodes = two_nodes();
    let mut open = nodes.holder.open();
    drop(open.held.take());
    let mut next = nodes.post(&mut open, "");
    nodes.link.max_response_bytes.store(1000, SeqCst);
    open.rid -= 1;
    let mut again = nodes.post(&mut open, "");
    open.server.send(&format!("<message id='{}'/>", "x".repeat(1000)));
    assert!(next.text().contains("type='error'"), "the request was repeated");
    assert_eq!(terminated(&again.text()), "policy-violation");
    assert!(!open.is_alive());
}

#[test]
fn payloads_are_read_when_the_request_is_handled_and_never_those_of_a_repeated_one() {
    let nodes = two_nodes();
    let mut open = nodes.holder.open();
    open.rid += 1;
    let take = |rid| {
        let body = open.body(rid, "", "<message/>");
        let sid = u128::from_str_radix(&open.sid, 16).unwrap().to_be_bytes();
        nodes.holder.sessions.take_forwarded([&[0][..], &sid, body.as_bytes()].concat())
    };
    let cx = &mut Context::from_waker(Waker::noop());
    let mut held = take(open.rid);
    assert_eq!(held.place(), Some((u128::from_str_radix(&open.sid, 16).unwrap(), open.rid, 6)));
    let mut repeated = take(open.rid - 1);
    let response = repeated.poll_response(cx);
    assert!(response.is_pending(), "it is held, and known without its payloads");
    assert_eq!(open.server.read(), []);
    held.handle();
    assert_eq!(open.server.read(), [element("<message/>")]);
    open.server.flush().unwrap();
    assert!(repeated.poll_response(cx).is_ready());
    repeated.handle();
    assert_eq!(open.server.read(), [], "it has none that matter");
}

#[test]
fn a_damaged_response_confirms_nothing() {
    for is_damaged in [false, true] {
        let nodes = two_nodes();
        let mut open = nodes.holder.open();
        drop(open.held.take());
        nodes.link.is_damaged.store(is_damaged, SeqCst);
        let mut next = nodes.post(&mut open, "");
        open.server.send("<message/>");
        assert!(open.server.stream.unflushed() > 0);
        let text = next.text();
        assert_eq!(text.contains("item-not-found"), is_damaged, "{text}");
        assert_eq!(open.server.stream.unflushed() > 0, is_damaged);
    }
}
