//! Tests of XEP-0124 rules without an example: order, holding, replays, broken connections, timeouts, pause, versions.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Waker;

use throng_net::Transport;
use throng_net::bosh::RequestSource;

use crate::harness::*;

const EMPTY: &str = "<body xmlns='http://jabber.org/protocol/httpbind'/>";

/// Section 14.2.
#[test]
fn payloads_reach_the_stream_in_the_order_of_the_ids() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6'");
    let rid = open.rid;
    let mut second = open.post_rid(rid + 2, "", "<message id='2'/>");
    assert_eq!(open.server.drain_events(), [], "the first one is missing");
    assert!(second.waits());
    let mut first = open.post_rid(rid + 1, "", "<message id='1'/>");
    assert_eq!(open.server.drain_events(), [element("<message id='1'/>"), element("<message id='2'/>")]);
    assert_eq!(first.text(), EMPTY);
    assert!(second.waits());
    assert_eq!(harness.sessions.counts().reordered, 1);
}

/// Section 12: an empty request overtaken by a newer one on the other connection was sent when nothing was held.
#[test]
fn an_overtaken_empty_request_is_not_too_frequent() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6'");
    let rid = open.rid;
    let mut second = open.post_rid(rid + 2, "", "<message id='2'/>");
    let mut first = open.post_rid(rid + 1, "", "");
    assert_eq!(open.server.drain_events(), [element("<message id='2'/>")]);
    assert_eq!(first.text(), EMPTY);
    assert!(second.waits());
}

/// Section 14.2: responses follow the order of the ids, too.
#[test]
fn answers_go_to_the_oldest_request() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='2' ver='1.6'");
    assert_eq!(value(&open.created, "requests"), Some("3"));
    let mut first = open.post("<message/>");
    let mut second = open.post("<message/>");
    open.server.drain_events();
    assert!(first.waits() && second.waits(), "two are held");
    open.server.send("<presence id='1'/>");
    assert_eq!(payload(&first.text()), "<presence xmlns='jabber:client' id='1'/>");
    open.server.send("<presence id='2'/>");
    assert_eq!(payload(&second.text()), "<presence xmlns='jabber:client' id='2'/>");
}

/// Section 7: output caused by a request is sent on the oldest request, which saves a round trip.
#[test]
fn a_new_request_answers_the_previous_one_with_its_response() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut post = open.post("<iq type='get' id='1'/>");
    assert_eq!(open.server.read().len(), 1);
    open.server.send("<iq type='result' id='1'/>");
    assert_eq!(payload(&open.held().text()), "<iq xmlns='jabber:client' type='result' id='1'/>");
    assert!(post.waits());
}

/// Section 7: no longer than `wait`, given that the sweep runs once a second.
#[test]
fn a_request_is_held_for_wait_seconds_at_most() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='10' hold='1' ver='1.6'");
    let mut post = open.post("");
    harness.advance(9);
    assert!(post.waits());
    harness.advance(1);
    assert_eq!(post.text(), EMPTY);
    assert_eq!(post.flag.count(), 1, "it was woken once");
}

/// Section 10.
#[test]
fn a_session_without_a_request_ends_after_the_inactivity() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    harness.advance(60);
    assert_eq!(open.held().text(), EMPTY);
    harness.advance(59);
    assert!(open.is_alive());
    harness.advance(2);
    assert!(!open.is_alive());
    assert_eq!(open.server.drain_events(), [BoshServerEvent::Eof], "as a lost connection");
    assert_eq!(terminated(&open.post("").text()), "item-not-found");
    assert!(harness.sessions.counts().ended().any(|ended| ended == ("inactivity", 1)));
}

#[test]
fn a_held_request_is_activity_unless_its_connection_broke() {
    let harness = BoshHarness::with(|s| s.max_wait_seconds = 600);
    let mut open = harness.open_with("wait='600' hold='1' ver='1.6'");
    let post = open.post("");
    harness.advance(300);
    assert!(open.is_alive());
    drop(post);
    harness.advance(59);
    assert!(open.is_alive());
    harness.advance(2);
    assert!(!open.is_alive());
    // Also if the request would have been answered in the meantime.
    let mut open = harness.open_with("wait='30' hold='1' ver='1.6'");
    drop(open.post(""));
    harness.advance(61);
    assert!(!open.is_alive());
}

/// Section 14.3: a broken connection loses nothing, neither before the response nor after it.
#[test]
fn output_queued_during_a_broken_connection_is_sent_with_the_resent_request() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.held = None;
    assert!(!open.server.stream.accepts_output(), "nobody would hear it");
    let mut again = open.post_rid(open.rid, "", "");
    assert!(again.waits());
    assert!(open.server.stream.accepts_output());
    open.server.send("<message id='1'/>");
    assert_eq!(payload(&again.text()), "<message xmlns='jabber:client' id='1'/>");
    // The response is lost under way.
    let mut again = open.post_rid(open.rid, "", "");
    assert_eq!(payload(&again.text()), "<message xmlns='jabber:client' id='1'/>");
    assert!(open.is_alive());
}

#[test]
fn a_client_that_continues_after_a_broken_request_gets_the_response_later() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.held = None;
    let lost = open.rid;
    let mut next = open.post("<message/>");
    open.server.drain_events();
    open.server.send("<presence/>");
    assert_eq!(payload(&next.text()), "<presence xmlns='jabber:client'/>", "not into the void");
    assert_eq!(open.post_rid(lost, "", "").text(), EMPTY);
}

#[test]
fn payloads_of_a_resent_request_are_not_read_twice() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut post = open.post("<message id='1'/>");
    let mut again = open.post_rid(open.rid, "", "<message id='1'/>");
    assert_eq!(open.server.drain_events(), [element("<message id='1'/>")]);
    assert_eq!(value(&post.text(), "type"), Some("error"));
    assert!(again.waits());
    open.server.send("<presence/>");
    assert!(!again.waits());
    // The same for a request out of order.
    let rid = open.rid;
    let mut early = open.post_rid(rid + 2, "", "<message id='3'/>");
    let mut again = open.post_rid(rid + 2, "", "<message id='3'/>");
    assert_eq!(value(&early.text(), "type"), Some("error"));
    let _between = open.post_rid(rid + 1, "", "<message id='2'/>");
    assert_eq!(open.server.drain_events(), [element("<message id='2'/>"), element("<message id='3'/>")]);
    assert!(again.waits());
}

/// Section 17.3: a gap that is never filled.
#[test]
fn a_request_without_its_predecessor_must_be_resent() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='10' hold='1' ver='1.6'");
    let rid = open.rid;
    let mut early = open.post_rid(rid + 2, "", "<message id='2'/>");
    harness.advance(10);
    assert_eq!(early.text(), "<body type='error' xmlns='http://jabber.org/protocol/httpbind'/>");
    let _first = open.post_rid(rid + 1, "", "<message id='1'/>");
    let _second = open.post_rid(rid + 2, "", "<message id='2'/>");
    assert_eq!(open.server.drain_events(), [element("<message id='1'/>"), element("<message id='2'/>")]);
}

/// Section 8.2: acknowledged responses are not cached.
#[test]
fn acknowledged_responses_are_discarded() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6' ack='1'");
    let mut post = open.post("");
    open.server.send("<message/>");
    post.text();
    let rid = open.rid;
    assert_eq!(payload(&open.post_rid(rid, "", "").text()), "<message xmlns='jabber:client'/>");
    // Without the attribute all responses are acknowledged.
    let _held = open.post("");
    assert_eq!(terminated(&open.post_rid(rid, "", "").text()), "item-not-found");
}

#[test]
fn a_pause_carries_no_payload_and_the_next_request_ends_it() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut pause = open.post_with("pause='120'", "<presence/>");
    assert_eq!((open.held().text(), pause.text()), (EMPTY.into(), EMPTY.into()));
    assert_eq!(open.server.drain_events(), [element("<presence/>")]);
    assert!(!open.server.stream.accepts_output(), "what comes now is for the next request");
    harness.advance(100);
    let mut next = open.post("");
    assert!(open.server.stream.accepts_output());
    open.server.send("<message/>");
    assert_eq!(payload(&next.text()), "<message xmlns='jabber:client'/>");
    harness.advance(61);
    assert!(!open.is_alive(), "the inactivity is the usual one again");
}

#[test]
fn a_pause_may_be_one_request_more_and_may_be_short() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let mut second = open.post("<message/>");
    let mut pause = open.post_with("pause='5'", "");
    assert_eq!((second.text(), pause.text()), (EMPTY.into(), EMPTY.into()));
    harness.advance(6);
    assert!(!open.is_alive(), "sooner than the inactivity, as the client asked");
}

#[test]
fn a_pause_that_is_too_long_or_not_offered_is_no_pause() {
    for (limit, requested) in [(120, "121"), (0, "1")] {
        let harness = BoshHarness::with(|s| s.max_pause_seconds = limit);
        let mut open = harness.open_with("wait='60' hold='1' ver='1.6'");
        assert_eq!(value(&open.created, "maxpause").is_some(), limit > 0);
        assert!(open.post_with(&format!("pause='{requested}'"), "").waits());
    }
}

#[test]
fn requested_limits_are_capped() {
    let harness = BoshHarness::with(|s| (s.max_wait_seconds, s.max_hold, s.polling_seconds) = (30, 2, 0));
    let open = harness.open_with("wait='3600' hold='255' ver='1.99'");
    for (name, expect) in [("wait", "30"), ("hold", "2"), ("requests", "3"), ("ver", "1.11")] {
        assert_eq!(value(&open.created, name), Some(expect), "{name}");
    }
    assert_eq!(value(&open.created, "polling"), None, "any");
    let open = harness.open_with("ver='1.6'");
    assert_eq!((value(&open.created, "wait"), value(&open.created, "hold")), (Some("30"), Some("1")));
}

#[test]
fn without_a_polling_interval_polling_is_not_limited() {
    let harness = BoshHarness::with(|s| s.polling_seconds = 0);
    let mut open = harness.open_with("wait='0' hold='0' ver='1.6'");
    assert!((0..50).all(|_| open.post("").text() == EMPTY));
}

/// Section 12: a poll is answered once the stream has read its payloads.
#[test]
fn a_poll_gets_the_answer_to_its_own_payload() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='0' hold='0' ver='1.6'");
    assert_eq!(value(&open.created, "requests"), Some("1"));
    let mut post = open.post("<iq id='1'/>");
    assert!(post.waits());
    assert_eq!(open.server.read().len(), 1);
    open.server.send("<iq id='1' type='result'/>");
    assert_eq!(payload(&post.text()), "<iq xmlns='jabber:client' id='1' type='result'/>");
    // A busy stream delays it by at most about a second.
    let mut post = open.post("<iq id='2'/>");
    harness.advance(1);
    assert_eq!(post.text(), EMPTY);
}

/// Section 17.1: clients that do not send their version.
#[test]
fn clients_without_a_version_get_http_errors() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1'");
    assert_eq!(value(&open.created, "ver"), None);
    let mut far = open.post_rid(open.rid + 9, "", "");
    assert_eq!(far.answer().status, 404);
    assert_eq!(open.post("").answer().status, 404, "also when the session is long gone");
    let mut open = harness.open_with("wait='60' hold='1'");
    let _held = [open.post("<message/>"), open.post("<message/>")];
    assert_eq!(open.post("<message/>").answer().status, 403);
    let mut open = harness.open_with("wait='60' hold='1'");
    assert_eq!(open.post("</message>").answer().status, 400);
    assert_eq!(harness.post(&format!("<body to='a' rid='x' xmlns='{NS}'/>")).answer().status, 400);
    assert_eq!(harness.post(&format!("<body to='a' rid='x' ver='1.6' xmlns='{NS}'/>")).answer().status, 200);
}

/// Section 19.1.
#[test]
fn an_encrypted_session_stays_encrypted() {
    let harness = BoshHarness::new();
    let secure = RequestSource { secure: true, ..harness.origin() };
    let mut post = harness.post_from(
        secure.clone(),
        format!("<body to='example.com' rid='7' ver='1.6' wait='60' hold='1' xmlns='{NS}'/>").as_bytes(),
    );
    let mut server = harness.server();
    let info = server.stream.info();
    assert!(info.secure && info.transport == Transport::Bosh && !info.transport.has_starttls());
    server.drain_events();
    server.send(WELCOME);
    let sid = value(&post.text(), "sid").unwrap().to_owned();
    let body = format!("<body rid='8' sid='{sid}' xmlns='{NS}'/>");
    assert!(harness.post(&body).answer().close, "the connection is closed, the session goes on");
    assert!(harness.post_from(secure, body.as_bytes()).waits());
}

#[test]
fn the_content_type_is_the_clients() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6' content='text/html; charset=utf-8'");
    let content = |post: &mut PostedRequest| post.answer().content_type.unwrap();
    let mut post = open.post("");
    open.server.send("<message/>");
    assert_eq!(&*content(&mut post), "text/html; charset=utf-8");
    assert_eq!(&*content(&mut open.post_rid(open.rid, "", "")), "text/html; charset=utf-8");
    assert_eq!(&*content(&mut open.post_rid(open.rid + 9, "", "")), "text/html; charset=utf-8");
    for bad in ["text/html&#xA;X-Evil: 1", "text", &"a/".repeat(200), "text/h\u{e9}"] {
        let body = format!("<body to='a' rid='7' ver='1.6' content='{bad}' xmlns='{NS}'/>");
        assert_eq!(terminated(&harness.post(&body).text()), "bad-request", "{bad}");
    }
}

#[test]
fn a_restart_remembers_the_domain() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    let _post = open.post_with("x:restart='1' xmlns:x='urn:xmpp:xbosh'", "");
    let [BoshServerEvent::Open(tag)] = &open.server.drain_events()[..] else { panic!("no header") };
    assert!(tag.contains(" to='example.com'"), "{tag}");
}

/// XEP-0206, section 2: payloads depend on the wrapper in several ways.
#[test]
fn namespaces_of_the_wrapper_are_those_of_the_payloads() {
    let harness = BoshHarness::new();
    for (attributes, sent, expect) in [
        ("", "<message to='a'><body>x</body></message>", "<message to='a'><body>x</body></message>"),
        (
            "xmlns:p='urn:p'",
            "<message><p:x p:y='1'/></message>",
            "<message><x xmlns='urn:p' xmlns:p='urn:p' p:y='1'/></message>",
        ),
        ("xmlns:c='jabber:client'", "<c:message><c:body/></c:message>", "<message><body/></message>"),
        ("xmlns:xmpp='urn:xmpp:xbosh'", "<iq/>", "<iq/>"),
        ("xmlns:stream='http://etherx.jabber.org/streams'", "<stream:error/>", "<stream:error/>"),
        (
            "xmlns:s='http://etherx.jabber.org/streams'",
            "<s:error/>",
            "<error xmlns='http://etherx.jabber.org/streams'/>",
        ),
    ] {
        let mut open = harness.open();
        let _post = open.post_with(attributes, sent);
        assert_eq!(open.server.drain_events(), [element(expect)], "{attributes}");
    }
    let mut open = harness.open();
    open.rid += 1;
    let body = format!(
        "<?xml version='1.0' encoding='utf-8'?>\n<b:body rid='{}' sid='{}' xmlns:b='{NS}' xmlns='jabber:client'>\n<iq/> \
         </b:body >\n",
        open.rid, open.sid
    );
    let _post = harness.post(&body);
    assert_eq!(open.server.drain_events(), [element("<iq/>")]);
}

/// The final body is stored for a later request.
#[test]
fn a_stream_that_ends_between_two_requests_reports_it_in_the_next() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.server.send("<presence/>");
    open.held().text();
    open.server.queue("<message/><stream:error><conflict xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error></stream:stream>");
    open.server.shutdown();
    let rid = open.rid;
    assert_eq!(payload(&open.post_rid(rid, "", "").text()), "<presence xmlns='jabber:client'/>");
    let text = open.post("").text();
    assert_eq!(terminated(&text), "remote-stream-error");
    assert!(payload(&text).starts_with("<message xmlns='jabber:client'/><stream:error>"));
    assert!(!open.is_alive());
    assert_eq!(terminated(&open.post("").text()), "item-not-found");
}

#[test]
fn an_unfetched_final_response_is_dropped() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.held = None;
    open.server.queue("</stream:stream>");
    open.server.shutdown();
    harness.advance(59);
    assert!(open.is_alive());
    harness.advance(2);
    assert!(!open.is_alive());
}

#[test]
fn a_stream_that_is_dropped_ends_the_session() {
    let harness = BoshHarness::new();
    let OpenSession { server, mut held, .. } = harness.open();
    drop(server);
    assert_eq!(terminated(&held.as_mut().unwrap().text()), "remote-connection-failed");
    assert_eq!(harness.sessions.counts().sessions, 0);
}

/// The layer above keeps its output while no request waits, and the next request wakes it.
#[test]
fn output_waits_for_a_request_which_wakes_the_stream() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6'");
    let task = Arc::new(CountingWaker::default());
    let waker = Waker::from(task.clone());
    assert!(open.server.next_with(&waker).is_none());
    let mut idle = open.post("");
    assert_eq!(task.count(), 0, "an empty request is none of the stream's business");
    idle.poll();
    drop(idle);
    assert!(!open.server.stream.accepts_output());
    let mut post = open.post("");
    assert_eq!(task.count(), 1, "somebody waits now");
    assert!(open.server.stream.accepts_output());
    // Output queued nevertheless leaves with the next request.
    open.server.send("<message id='1'/>");
    post.text();
    open.server.queue("<message id='2'/>");
    assert!(open.server.flush().unwrap() && open.server.stream.unsent() > 0);
    assert!(open.server.next_with(&waker).is_none());
    let mut post = open.post("");
    assert_eq!(task.count(), 2);
    open.server.flush().unwrap();
    assert_eq!(payload(&post.text()), "<message xmlns='jabber:client' id='2'/>");
    assert!(open.server.stream.unsent() == 0 && open.server.stream.is_idle());
}

#[test]
fn a_client_without_requests_blocks_the_stream() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='1' ver='1.6'");
    let mut sent = 0;
    while open.server.flush().unwrap() {
        open.server.queue("<message><body>0123456789</body></message>");
        sent += 1;
        assert!(open.server.stream.unsent() < 10_000);
    }
    let mut post = open.post("");
    assert!(open.server.flush().unwrap());
    assert_eq!(payload(&post.text()).matches("<message").count(), sent);
}

#[test]
fn a_stopping_node_answers_all_held_requests() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    harness.sessions.close_all();
    assert_eq!(terminated(&open.held().text()), "system-shutdown");
    assert_eq!(open.server.drain_events(), [BoshServerEvent::Eof]);
    let mut late = harness.post(&format!("<body to='example.com' rid='7' ver='1.6' xmlns='{NS}'/>"));
    assert_eq!(terminated(&late.text()), "system-shutdown");
}

#[test]
fn a_refused_session_gets_the_reason() {
    let harness = BoshHarness::new();
    harness.admits.store(false, SeqCst);
    let mut post = harness.post(&format!("<body to='example.com' rid='7' ver='1.6' xmlns='{NS}'/>"));
    assert_eq!(terminated(&post.text()), "policy-violation");
    assert_eq!((harness.sessions.counts().sessions, harness.sessions.counts().refused), (0, 1));
}
