//! Requests for information about connections: answers, and connections that do not answer.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use testkit::TestNode;
use throng_access::session_info::{
    SessionInfo, SessionInfoFuture, TIMEOUT_SECONDS, answer_session_info, request_session_info,
};

fn poll(future: &mut SessionInfoFuture) -> Poll<Vec<Option<SessionInfo>>> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn info(port: u16) -> SessionInfo {
    SessionInfo { peer: ([192, 0, 2, 1], port).into(), transport: "tls", secure: true, idle_seconds: Some(7) }
}

#[test]
fn the_answers_have_the_order_of_the_sessions() {
    let engine = TestNode::new(&[]);
    engine.create_user("juliet");
    let (balcony, chamber) = (engine.connect("juliet", "balcony"), engine.connect("juliet", "chamber"));
    let sessions = [balcony.session.clone(), chamber.session.clone()];
    let mut answers = request_session_info(&engine.node, &sessions);
    assert!(sessions.iter().all(|session| session.outbox.info_requested()));
    answer_session_info(&engine.node, &chamber.session.outbox, Some(info(2)));
    assert_eq!(poll(&mut answers), Poll::Pending);
    answer_session_info(&engine.node, &balcony.session.outbox, Some(info(1)));
    assert_eq!(poll(&mut answers), Poll::Ready(vec![Some(info(1)), Some(info(2))]));
    answer_session_info(&engine.node, &balcony.session.outbox, Some(info(3)));
}

#[test]
fn a_connection_that_does_not_answer_is_signalled_again_and_then_counts_as_missing() {
    let engine = TestNode::new(&[]);
    engine.create_user("juliet");
    let juliet = engine.connect("juliet", "balcony");
    let mut answers = request_session_info(&engine.node, std::slice::from_ref(&juliet.session));
    assert!(juliet.session.outbox.info_requested());
    engine.advance(1);
    assert!(juliet.session.outbox.info_requested(), "signalled again");
    assert_eq!(poll(&mut answers), Poll::Pending);
    engine.advance(TIMEOUT_SECONDS - 1);
    assert_eq!(poll(&mut answers), Poll::Ready(vec![None]));
}
