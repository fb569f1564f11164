//! Requests at a node that does not have the session, between two tables without a network. Whole clusters are in
//! `e2e/tests/several_nodes/bosh.rs`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use throng_net::bosh::{
    BoshForwarder, BoshSessionTable, ForwardedRequest, ForwardingError, HeldForwardedRequest, RequestSource,
};

use crate::harness::*;

/// Reaches one other table.
struct DirectForwarder {
    tag: u32,
    other: (u32, Weak<BoshSessionTable>),
    forwarded: Arc<AtomicUsize>,
    is_busy: Arc<AtomicBool>,
}

impl BoshForwarder for DirectForwarder {
    fn own_tag(&self) -> u32 {
        self.tag
    }

    fn forward(
        &self,
        tag: u32,
        request: &[u8],
        seconds: u32,
    ) -> Result<Box<dyn ForwardedRequest>, ForwardingError> {
        assert_eq!(seconds, 70, "the time of a held request and a margin");
        if tag != self.other.0 {
            return Err(ForwardingError::NoSession);
        }
        if self.is_busy.load(SeqCst) {
            return Err(ForwardingError::Retry);
        }
        self.forwarded.fetch_add(1, SeqCst);
        Ok(Box::new(DirectRequest(self.other.1.upgrade().unwrap().handle_forwarded(request))))
    }

    fn close(&self) {}
}

struct DirectRequest(HeldForwardedRequest);

impl ForwardedRequest for DirectRequest {
    fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, ForwardingError>> {
        self.0.poll_response(cx).map(|(octets, _)| Ok(octets))
    }

    fn response_sent(&mut self) {
        self.0.response_sent();
    }
}

/// Two nodes; the sessions of the tests are at the first one.
struct TwoNodes {
    holder: BoshHarness,
    other: BoshHarness,
    forwarded: Arc<AtomicUsize>,
    is_busy: Arc<AtomicBool>,
}

fn two_nodes() -> TwoNodes {
    let (holder, other) = (BoshHarness::new(), BoshHarness::new());
    let (forwarded, is_busy) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let connect = |harness: &BoshHarness, tag, (other_tag, other): (u32, &BoshHarness)| {
        harness.sessions.set_forwarder(Arc::new(DirectForwarder {
            tag,
            other: (other_tag, Arc::downgrade(&other.sessions)),
            forwarded: forwarded.clone(),
            is_busy: is_busy.clone(),
        }));
    };
    connect(&holder, 1, (2, &other));
    connect(&other, 2, (1, &holder));
    TwoNodes { holder, other, forwarded, is_busy }
}

impl TwoNodes {
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
    assert_eq!(nodes.forwarded.load(SeqCst), 10);
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
        assert_eq!((answer.status, nodes.forwarded.load(SeqCst)), (200, forwarded), "{tag}");
    }
    assert_eq!(nodes.other.post(&empty(&forged(1, 7, true))).answer().status, 404);
    assert_eq!(nodes.other.sessions.counts().unknown_session, 4);
}

#[test]
fn section_17_3_a_request_that_cannot_be_forwarded_now_gets_a_recoverable_error() {
    let nodes = two_nodes();
    let mut open = nodes.holder.open();
    nodes.is_busy.store(true, SeqCst);
    let mut refused = nodes.post(&mut open, "<message/>");
    assert!(refused.text().contains("type='error'"));
    nodes.is_busy.store(false, SeqCst);
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
    assert_eq!((nodes.forwarded.load(SeqCst), refused), (1024, 976));
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
    let (holder, other) = (BoshHarness::with(|settings| settings.body_bytes = 1000), BoshHarness::new());
    let forwarder = DirectForwarder {
        tag: 2,
        other: (1, Arc::downgrade(&holder.sessions)),
        forwarded: Arc::default(),
        is_busy: Arc::default(),
    };
    other.sessions.set_forwarder(Arc::new(forwarder));
    let target = Arc::downgrade(&other.sessions);
    let (forwarded, is_busy) = (Arc::default(), Arc::default());
    holder.sessions.set_forwarder(Arc::new(DirectForwarder {
        tag: 1,
        other: (2, target),
        forwarded,
        is_busy,
    }));
    let mut open = holder.open();
    open.rid += 1;
    let body = open.body(open.rid, "", &format!("<message id='{}'/>", "x".repeat(1000)));
    assert!(other.post(&body).text().contains("policy-violation"));
    assert_eq!(open.server.read(), []);
}
