//! Tests of responses that the kernel has not taken: their bytes count, in order, until they are sent or acknowledged.
//! Until then they can be requested again, and there are few of them.

use std::sync::Arc;
use std::task::Waker;

use crate::harness::*;

fn unflushed(open: &OpenSession<'_>) -> usize {
    open.server.stream.unflushed()
}

#[test]
fn a_response_is_unflushed_until_the_kernel_has_taken_it_which_wakes_the_stream() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    assert_eq!(unflushed(&open), 0, "those of the login were sent");
    for waits_for_it in [true, false] {
        open.server.send("<message/>");
        let flag = Arc::new(CountingWaker::default());
        assert!(open.server.next_with(&Waker::from(flag.clone())).is_none());
        assert!(!waits_for_it || unflushed(&open) >= "<message/>".len());
        assert!(open.held().fetch());
        assert!(!waits_for_it || unflushed(&open) >= "<message/>".len());
        assert_eq!((open.server.stream.unsent(), flag.count()), (0, 0));
        open.held().send();
        assert_eq!(flag.count(), usize::from(waits_for_it));
        assert_eq!(unflushed(&open), 0);
        open.held = Some(open.post(""));
    }
}

#[test]
fn a_response_that_was_lost_with_its_connection_is_unflushed_until_it_was_sent_again() {
    let harness = BoshHarness::new();
    for fetched in [false, true] {
        let mut open = harness.open();
        open.server.send("<message/>");
        assert!(!fetched || open.held().fetch());
        open.held = None;
        assert!(unflushed(&open) > 0);
        // Lost once more.
        drop(open.post_rid(open.rid, "", ""));
        assert!(unflushed(&open) > 0);
        let mut again = open.post_rid(open.rid, "", "");
        assert!(again.fetch() && unflushed(&open) > 0);
        assert_eq!(payload(&again.text()), "<message xmlns='jabber:client'/>");
        assert_eq!(unflushed(&open), 0);
    }
}

#[test]
fn a_response_that_was_lost_is_unflushed_when_the_session_has_ended() {
    let harness = BoshHarness::new();
    for connected in [false, true] {
        let mut open = harness.open();
        open.server.send("<message/>");
        let mut lost = open.held.take().unwrap();
        lost.fetch();
        let lost = connected.then_some(lost);
        harness.advance(62);
        assert_eq!(open.server.read(), [BoshServerEvent::Eof]);
        assert!(unflushed(&open) > 0);
        drop(lost);
        assert!(unflushed(&open) > 0);
    }
}

#[test]
fn responses_are_confirmed_in_order_although_another_connection_is_faster() {
    let harness = BoshHarness::new();
    let mut open = harness.open_with("wait='60' hold='2' ver='1.6'");
    let (mut first, mut second) = (open.post("<presence/>"), open.post("<presence/>"));
    open.server.drain_events();
    open.server.send("<message id='1'/>");
    let of_first = unflushed(&open);
    open.server.send("<message id='2'/>");
    assert!(first.fetch() && second.fetch());
    second.send();
    assert_eq!(unflushed(&open), 2 * of_first, "what was sent follows what was not");
    first.send();
    assert_eq!(unflushed(&open), 0);
}

#[test]
fn a_client_that_goes_on_without_a_lost_response_loses_its_session_which_keeps_the_messages() {
    let harness = BoshHarness::new();
    for fetched in [false, true] {
        let mut open = harness.open();
        open.server.send("<message/>");
        let mut lost = open.held.take().unwrap();
        assert!(!fetched || lost.fetch());
        drop(lost);
        let mut answers = Vec::new();
        for _ in 0..5 {
            let mut post = open.post("<presence/>");
            open.server.drain_events();
            open.server.send("<message/>");
            assert!(unflushed(&open) > 0);
            answers.push(post.text());
        }
        let ended = answers.pop().unwrap();
        assert_eq!(terminated(&ended), "item-not-found", "{fetched}");
        assert!(answers.iter().all(|answer| value(answer, "type").is_none()), "{answers:?}");
        assert_eq!(open.server.read(), [BoshServerEvent::Eof]);
        assert!(unflushed(&open) > 0, "nobody has it");
        assert!(!open.is_alive());
    }
}

/// XEP-0124, section 14.3. The client goes on with its other connection while this one is stalled.
#[test]
fn a_response_that_was_not_sent_can_be_requested_again_after_any_number_of_others() {
    let harness = BoshHarness::new();
    for acks in ["", "ack='1'"] {
        let mut open = harness.open_with(&format!("wait='60' hold='1' ver='1.6' {acks}"));
        let mut stalled = open.post("");
        let lost = open.rid;
        let ack = if acks.is_empty() { String::new() } else { format!("ack='{}'", lost - 1) };
        open.server.send("<message/>");
        assert!(stalled.fetch());
        for _ in 0..20 {
            let mut post = open.post_with(&ack, "<presence/>");
            open.server.drain_events();
            open.server.send("<message/>");
            post.text();
        }
        assert!(unflushed(&open) > 0);
        drop(stalled);
        // The client has not noticed.
        open.post_with(&ack, "<presence/>").fetch();
        open.server.drain_events();
        assert!(unflushed(&open) > 0);
        let mut again = open.post_rid(lost, &ack, "");
        assert_eq!(payload(&again.text()), "<message xmlns='jabber:client'/>", "{acks}");
        assert_eq!(unflushed(&open), 0);
        assert!(open.is_alive());
    }
}

#[test]
fn output_is_not_accepted_while_much_of_it_follows_a_slow_response() {
    const LIMIT: usize = 32 * 1024;
    let harness = BoshHarness::with(|settings| settings.requests_per_second = 0);
    for bytes in [0, 1000] {
        let message = format!("<message>{}</message>", "m".repeat(bytes));
        let mut open = harness.open();
        open.server.send(&message);
        let mut slow = open.held.take().unwrap();
        assert!(slow.fetch());
        let mut responses = 0;
        loop {
            let mut post = open.post("<presence/>");
            open.server.read();
            if !open.server.stream.accepts_output() {
                // It is answered in time all the same.
                open.server.drain_events();
                open.held = Some(post);
                break;
            }
            open.server.send(&message);
            assert!(post.text().contains("<message"));
            responses += 1;
            assert!(responses < 200 && unflushed(&open) < LIMIT + 1100, "{responses}");
        }
        assert!(responses > 20, "{responses}");
        // Output that the stream queues itself waits in the stream.
        open.server.send("<a/>");
        assert!(!open.held().fetch());
        let flag = Arc::new(CountingWaker::default());
        assert!(open.server.next_with(&Waker::from(flag.clone())).is_none());
        assert!(
            !open.server.flush_with(&Waker::from(flag.clone())).unwrap() || open.server.stream.unsent() > 0
        );
        slow.send();
        assert_eq!(flag.count(), 1);
        assert!(open.server.stream.accepts_output());
        open.server.flush().unwrap();
        assert!(open.held().text().contains("<a"));
        assert_eq!(unflushed(&open), 0);
    }
}

#[test]
fn a_request_gets_its_response_although_the_connection_of_its_retransmission_breaks() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.server.send("<message/>");
    // The connection of the first is stalled, so it has not fetched its response.
    let mut again = open.post_rid(open.rid, "", "");
    assert!(again.fetch());
    drop(again);
    assert!(unflushed(&open) > 0);
    assert_eq!(payload(&open.held().text()), "<message xmlns='jabber:client'/>");
    assert_eq!(unflushed(&open), 0);
}

#[test]
fn a_request_whose_retransmission_was_sent_leaves_nothing_when_its_connection_breaks() {
    let harness = BoshHarness::new();
    let mut open = harness.open();
    open.server.send("<message/>");
    assert_eq!(payload(&open.post_rid(open.rid, "", "").text()), "<message xmlns='jabber:client'/>");
    open.held = None;
    assert_eq!(unflushed(&open), 0);
}

/// XEP-0124, section 9.
#[test]
fn a_response_that_the_client_acknowledges_is_confirmed() {
    let harness = BoshHarness::new();
    for attributes in ["", "ack"] {
        let mut open = harness.open_with("wait='60' hold='1' ver='1.6' ack='1'");
        open.held = Some(open.post(""));
        let lost = open.rid;
        open.server.send("<message/>");
        open.held().fetch();
        let held = open.held.take();
        assert!(unflushed(&open) > 0);
        let ack = if attributes.is_empty() { String::new() } else { format!("ack='{lost}'") };
        let _next = open.post_with(&ack, "");
        assert_eq!(unflushed(&open), 0);
        drop(held);
        assert_eq!(unflushed(&open), 0);
    }
}
