//! Tests of several targets, and of users that return after a failure with an account of their messages.

use loadgen::measure::{Counter, Gauge, Timing};
use loadgen::plan::{AckMode, Destination, PlanStep as Do};

use crate::support::driver::{run, until};
use crate::support::plans::{
    acked, available, done, every, login, meanwhile, message, online, plan, reflected, stay, then,
};
use crate::support::script::{CloseMode, ServerAction, ServerEvent, ServerScript, ServerStep};
use crate::support::server::ScriptedServer;

fn managed() -> Vec<Do> {
    vec![login(), Do::StreamManagement { resume: true }, available(), reflected()]
}

#[test]
fn users_are_spread_evenly_and_deliveries_are_distinguished() {
    let (first, second) =
        (ScriptedServer::start(ServerScript::default()), ScriptedServer::start(ServerScript::default()));
    let steps = then(online(), [acked(Destination::Myself, AckMode::Delivery)]);
    let mut plan = plan(&first, 40, steps);
    plan.target.addresses.push(second.address);
    let outcome = run(plan, &first);
    assert_eq!((first.truth().logins, second.truth().logins), (20, 20));
    let count = |timing| outcome.timing(timing).count;
    assert_eq!(
        (count(Timing::Message), count(Timing::MessageSameNode), count(Timing::MessageCrossNode)),
        (40, 40, 0)
    );
    // With one target there is nothing to distinguish.
    let alone = run(
        crate::support::plans::plan(
            &first,
            10,
            then(online(), [acked(Destination::Myself, AckMode::Delivery)]),
        ),
        &first,
    );
    assert_eq!((alone.timing(Timing::Message).count, alone.timing(Timing::MessageSameNode).count), (10, 0));
}

/// The server acknowledges six messages that it drops, and ends the connections of five users, whose streams it does not
/// resume.
#[test]
fn every_message_of_a_run_with_failures_is_accounted_for() {
    let no = "<failed xmlns='urn:xmpp:sm:3'/>";
    let script = ServerScript::acting(move |step, n| match step {
        ServerStep::Resumed => ServerAction::Instead(no.to_owned()),
        ServerStep::Message if (700..706).contains(&n) => ServerAction::Nothing,
        // Users return after some time, in which the others send them messages.
        ServerStep::Success if n >= 20 => ServerAction::Late(50),
        _ => ServerAction::Well,
    });
    let script = script.once(|truth, _| truth.forwarded > 150, ServerEvent::Close(4..9, CloseMode::Reset));
    let server = ScriptedServer::start(script);
    let busy = meanwhile(900.0, vec![every(20.0, message(Destination::Ring(1)))]);
    let mut plan = plan(&server, 20, then(then(managed(), [busy]), done()));
    plan.options.failover = true;
    let outcome = until(plan, &server, |truth| truth.done() >= 20);
    let truth = server.truth();
    assert_eq!(truth.wrong, Vec::<String>::new());
    assert_eq!((truth.closed, outcome.count(Counter::SessionsReplaced)), (5, 5), "{:?}", outcome.errors);
    assert_eq!((outcome.count(Counter::SessionsLost), outcome.count(Counter::LoginErrors)), (5, 0));
    assert_eq!((outcome.count(Counter::Logins), outcome.count(Counter::UsersFinished)), (25, 20));
    // Users whose resumption is refused bind on the same stream.
    assert_eq!(outcome.count(Counter::Connections), 25);
    let last = &outcome.finals[0];
    let sent = outcome.count(Counter::MessagesSent);
    assert_eq!(last.numbered.iter().map(|count| u64::from(*count)).sum::<u64>(), sent);
    let missing: Vec<u32> =
        last.missing[0].iter().flat_map(|(from, to)| *from..last.numbered[0].min(*to)).collect();
    assert_eq!((missing.len(), truth.dropped), (6, 6));
    assert!(
        last.unacknowledged.iter().all(|(_, number)| !missing.contains(number)),
        "{:?}",
        last.unacknowledged
    );
    assert_eq!(outcome.count(Counter::MessagesDelivered), sent - 6);
    assert_eq!(outcome.lost, 6, "users that return count as online");
    assert_eq!((last.away, last.incomplete), (0, false));
    let repeated = outcome.count(Counter::MessagesResent);
    // Resets discard what the server has not read. Those messages are unacknowledged and therefore repeated.
    let unread = (sent + repeated).checked_sub(truth.messages + truth.discarded_messages);
    assert!(unread.is_some_and(|unread| unread <= repeated), "{unread:?} unread, {repeated} repeated");
    assert_eq!(outcome.count(Counter::MessagesDuplicate), outcome.count(Counter::DuplicateUnknownId));
    assert!(outcome.count(Counter::MessagesDuplicate) <= repeated);
    assert_eq!(outcome.gauge(Gauge::Online), 0);
}

#[test]
fn users_of_a_server_that_fails_continue_at_the_other() {
    let script = ServerScript::default()
        .once(|truth, _| truth.available == 10, ServerEvent::Close(0..20, CloseMode::Reset));
    let (first, second) = (ScriptedServer::start(script), ScriptedServer::start(ServerScript::default()));
    let mut plan = plan(&second, 20, then(managed(), [stay()]));
    plan.target.addresses.push(first.address);
    plan.options.failover = true;
    let outcome = until(plan, &second, |truth| truth.available == 20);
    // The streams are unknown to the other server.
    assert_eq!((outcome.error("sm:not-resumed"), outcome.count(Counter::SessionsReplaced)), (10, 10));
    assert_eq!((first.truth().logins, second.truth().logins), (10, 20));
    assert_eq!((outcome.count(Counter::UsersFinished), outcome.finals[0].away), (20, 0));
}
