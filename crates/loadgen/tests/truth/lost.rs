//! Tests of sessions that end unexpectedly, and of those resumed by stream management (XEP-0198).

use loadgen::measure::{Counter, Gauge, Timing};
use loadgen::plan::{AckMode, Destination, PlanStep as Do};

use crate::messages::agree;
use crate::support::driver::{run, until};
use crate::support::each;
use crate::support::plans::{
    acked, available, done, every, login, meanwhile, message, online, plan, reflected, stay, then, times,
};
use crate::support::script::{CloseMode, ServerAction, ServerEvent, ServerScript, ServerStep};
use crate::support::server::ScriptedServer;

#[test]
fn lost_sessions_are_exactly_those_that_the_server_ended() {
    each(
        [
            (CloseMode::Fin, "lost:closed"),
            (CloseMode::Reset, "lost:reset"),
            (CloseMode::Error("conflict"), "lost:closed"),
        ],
        |(how, kind)| {
            let script = ServerScript::default()
                .once(|truth, _| truth.available == 20, ServerEvent::Close(3..10, how));
            let server = ScriptedServer::start(script);
            let outcome = until(plan(&server, 20, then(online(), [stay()])), &server, |truth| {
                truth.closed == 7 && truth.open == 13
            });
            let truth = server.truth();
            assert_eq!(truth.closed, 7);
            assert_eq!(
                (outcome.count(Counter::SessionsLost), outcome.error(kind)),
                (7, 7),
                "{:?}",
                outcome.errors
            );
            assert_eq!(
                outcome.error("stream:conflict"),
                if how == CloseMode::Error("conflict") { 7 } else { 0 }
            );
            assert_eq!((outcome.count(Counter::Logins), outcome.count(Counter::LoginErrors)), (20, 0));
            assert_eq!((outcome.count(Counter::UsersFinished), truth.ended), (13, 13));
            assert_eq!(outcome.timing(Timing::Session).count, 13);
            // The last snapshot before the end of the run has the users that remain.
            let (_, last) = outcome.snapshots.iter().rev().nth(1).expect("a second before the last report");
            assert_eq!(
                (last.gauges[Gauge::Online as usize], last.gauges[Gauge::Connected as usize]),
                (13, 13)
            );
        },
    );
}

#[test]
fn messages_to_disconnected_users_are_stored_and_not_lost() {
    let script = ServerScript::default()
        .once(|truth, _| truth.forwarded > 100, ServerEvent::Close(5..10, CloseMode::Fin));
    let server = ScriptedServer::start(script);
    let busy = meanwhile(600.0, vec![every(20.0, message(Destination::Ring(1)))]);
    let outcome =
        until(plan(&server, 20, then(then(online(), [busy]), done())), &server, |truth| truth.done() >= 15);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert_eq!(outcome.count(Counter::SessionsLost), 5);
    assert!(truth.stored > 0);
    // Messages that the five users sent after their disconnection to a user who stayed are lost; that can only be user
    // 10.
    let to_ten =
        outcome.finals[0].arrived.iter().find(|(user, _)| *user == 10).expect("user 10 got something");
    let sent_to_ten =
        outcome.finals[0].sent.iter().find(|(user, _)| *user == 10).expect("user 10 was sent something");
    assert_eq!(outcome.lost, u64::from(sent_to_ten.1 - to_ten.1));
}

#[test]
fn a_disconnect_step_is_not_a_lost_session() {
    let server = ScriptedServer::start(ServerScript::default());
    let steps = vec![login(), Do::Cut, login(), Do::Disconnect, login()];
    let outcome = run(plan(&server, 10, steps), &server);
    let truth = server.truth();
    assert_eq!((outcome.count(Counter::Logins), truth.logins, truth.connections), (30, 30, 30));
    assert_eq!((outcome.count(Counter::SessionsLost), outcome.error("cut-by-plan")), (0, 10));
    assert_eq!((truth.ended, outcome.count(Counter::UsersFinished)), (20, 10));
    assert_eq!(outcome.timing(Timing::Login).count, 30);
    assert_eq!(outcome.gauge(Gauge::Online), 0);
}

fn managed(resume: bool) -> Vec<Do> {
    vec![login(), Do::StreamManagement { resume }, available(), reflected(), crate::support::plans::barrier()]
}

#[test]
fn a_message_that_waits_for_its_acknowledgement_ends_with_it() {
    let server = ScriptedServer::start(ServerScript::default());
    let managed = vec![login(), Do::StreamManagement { resume: false }];
    let steps = then(
        managed,
        [times(5, vec![message(Destination::Ring(1)), acked(Destination::Ring(1), AckMode::Acknowledged)])],
    );
    let outcome = run(plan(&server, 4, steps), &server);
    let truth = server.truth();
    assert_eq!(truth.wrong, Vec::<String>::new());
    assert_eq!((outcome.count(Counter::MessagesSent), outcome.count(Counter::StanzasAcknowledged)), (40, 40));
    assert_eq!((outcome.count(Counter::Timeouts), outcome.error("sm:not-enabled")), (0, 0));
    // Ten stanzas of each user: five requests, and none beside that of the eighth stanza, which waits as well.
    assert_eq!(outcome.timing(Timing::SmAck).count, 20);
}

#[test]
fn an_acknowledgement_needs_stream_management() {
    let server = ScriptedServer::start(ServerScript::default());
    let steps = vec![login(), acked(Destination::Ring(1), AckMode::Acknowledged)];
    let outcome = run(plan(&server, 4, steps), &server);
    assert_eq!((outcome.error("sm:not-enabled"), outcome.count(Counter::Timeouts)), (4, 0));
}

#[test]
fn a_stream_that_is_resumed_loses_nothing() {
    each([CloseMode::Fin, CloseMode::Reset], |how| {
        let script = ServerScript::default()
            .once(|truth, _| truth.forwarded > 100, ServerEvent::Close(4..9, how))
            .once(|truth, _| truth.forwarded > 300 && truth.resumed == 5, ServerEvent::Close(7..12, how));
        let server = ScriptedServer::start(script);
        let busy = meanwhile(700.0, vec![every(20.0, message(Destination::Online))]);
        let outcome = until(plan(&server, 20, then(then(managed(true), [busy]), done())), &server, |truth| {
            truth.done() == 20 && truth.resumed == 10
        });
        let truth = server.truth();
        assert_eq!(truth.wrong, Vec::<String>::new());
        assert_eq!((truth.closed, truth.resumed), (10, 10), "{:?}", outcome.errors);
        assert_eq!((outcome.count(Counter::SessionsResumed), outcome.error("lost:resuming")), (10, 10));
        assert_eq!((outcome.count(Counter::SessionsLost), outcome.count(Counter::Logins)), (0, 20));
        assert_eq!(outcome.timing(Timing::SmResume).count, 10);
        assert_eq!(
            (outcome.count(Counter::MessagesSent), outcome.lost, outcome.waiting),
            (truth.messages, 0, 0)
        );
        assert_eq!(
            (outcome.count(Counter::MessagesDelivered), truth.forwarded),
            (truth.messages, truth.messages)
        );
        assert_eq!(outcome.count(Counter::MessagesDuplicate), 0);
        assert_eq!(outcome.count(Counter::MessagesReordered), 0);
        assert_eq!((outcome.gauge(Gauge::UnderWay), outcome.gauge(Gauge::Online)), (0, 0));
        assert_eq!(outcome.count(Counter::UsersFinished), 20);
        assert!(truth.acks_asked > 0);
    });
}

#[test]
fn a_stream_that_cannot_be_resumed_is_a_lost_session() {
    let no = "<failed xmlns='urn:xmpp:sm:3'/>";
    let script = ServerScript::acting(move |step, _| {
        if step == ServerStep::Resumed { ServerAction::Instead(no.to_owned()) } else { ServerAction::Well }
    });
    let server = ScriptedServer::start(
        script.once(|truth, _| truth.available == 20, ServerEvent::Close(0..6, CloseMode::Fin)),
    );
    let outcome = until(plan(&server, 20, then(managed(true), [stay()])), &server, |truth| {
        truth.connections == 26 && truth.open == 14
    });
    assert_eq!((outcome.count(Counter::SessionsLost), outcome.error("sm:not-resumed")), (6, 6));
    assert_eq!((outcome.count(Counter::SessionsResumed), server.truth().resumed), (0, 0));
    assert_eq!(outcome.count(Counter::UsersFinished), 14);
}

#[test]
fn without_resumption_a_managed_stream_is_lost_like_any_other() {
    let script = ServerScript::default()
        .once(|truth, _| truth.available == 20, ServerEvent::Close(0..6, CloseMode::Fin));
    let server = ScriptedServer::start(script);
    let outcome = until(plan(&server, 20, then(managed(false), [stay()])), &server, |truth| {
        truth.closed == 6 && truth.open == 14
    });
    assert_eq!((outcome.count(Counter::SessionsLost), outcome.error("lost:closed")), (6, 6));
    assert_eq!(server.truth().wrong, Vec::<String>::new());
}

#[test]
fn a_session_continues_if_stream_management_is_refused() {
    let no = "<failed xmlns='urn:xmpp:sm:3'/>";
    let script = ServerScript::acting(move |step, n| {
        if step == ServerStep::Enabled && n < 4 {
            ServerAction::Instead(no.to_owned())
        } else {
            ServerAction::Well
        }
    });
    let server = ScriptedServer::start(script);
    let outcome = run(plan(&server, 10, managed(true)), &server);
    agree(&outcome, &server.truth());
    assert_eq!((outcome.error("sm:refused"), outcome.timing(Timing::SmEnable).count), (4, 6));
    assert_eq!(outcome.count(Counter::UsersFinished), 10);
}

#[test]
fn missing_responses_are_counted_and_the_session_continues() {
    let script = ServerScript::acting(|step, n| {
        if (step == ServerStep::Roster && n < 3) || (step == ServerStep::Ping && n < 2) {
            ServerAction::Nothing
        } else {
            ServerAction::Well
        }
    });
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, 10, vec![login(), Do::Roster, Do::Ping { to: None }]);
    plan.options.answer_timeout_ms = 300;
    let outcome = run(plan, &server);
    assert_eq!((outcome.count(Counter::Timeouts), outcome.error("timeout")), (5, 5));
    assert_eq!((outcome.timing(Timing::Roster).count, outcome.timing(Timing::Ping).count), (7, 8));
    assert_eq!((outcome.count(Counter::IqSent), server.truth().iqs_in), (30, 30));
    assert_eq!((outcome.count(Counter::IqAnswered), server.truth().iq_answers), (25, 25));
    assert_eq!(outcome.count(Counter::UsersFinished), 10);
}

/// The session is lost; a failed login within the resumption is not a failed login of a user.
#[test]
fn a_resumption_that_fails_at_the_login_is_a_lost_session() {
    let no = "<failure xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><temporary-auth-failure/></failure>";
    let script = ServerScript::acting(move |step, n| {
        if step == ServerStep::Success && n >= 20 {
            ServerAction::Instead(no.to_owned())
        } else {
            ServerAction::Well
        }
    });
    let server = ScriptedServer::start(
        script.once(|truth, _| truth.available == 20, ServerEvent::Close(0..6, CloseMode::Fin)),
    );
    let outcome = until(plan(&server, 20, then(managed(true), [stay()])), &server, |truth| {
        truth.connections == 26 && truth.open == 14
    });
    assert_eq!((outcome.count(Counter::SessionsLost), outcome.count(Counter::LoginErrors)), (6, 0));
    assert_eq!(
        (outcome.error("lost:resuming"), outcome.error("sm:not-resumed")),
        (6, 6),
        "{:?}",
        outcome.errors
    );
    assert_eq!((outcome.gauge(Gauge::Users), outcome.count(Counter::UsersFinished)), (0, 14));
}

#[test]
fn a_stopped_run_ends_gracefully() {
    let server = ScriptedServer::start(ServerScript::default());
    let bounce = Do::Bounce {
        in_flight: 1,
        duration_ms: None,
        size: 20,
        one_sided: false,
        to: loadgen::plan::Destination::Partner,
    };
    let outcome = until(plan(&server, 10, then(online(), [bounce])), &server, |truth| truth.messages > 50);
    agree(&outcome, &server.truth());
    assert_eq!((outcome.lost, outcome.count(Counter::SessionsLost), &outcome.refused), (0, 0, &None));
    assert_eq!(outcome.count(Counter::UsersFinished), 10);
}
