//! Tests with two workers in one run: messages between their users, and echoes if their clocks differ.

use loadgen::measure::{Counter, Timing};
use loadgen::plan::{AckMode, Destination, PlanStep as Do};

use crate::messages::agree;
use crate::support::driver::{RunOutcome, TestRunConfig, run_with};
use crate::support::plans::{
    acked, available, barrier, every, login, meanwhile, message, online, plan, reflected, say, stay, then,
    think, times, wait_for,
};
use crate::support::script::{ServerAction, ServerCounts, ServerEvent, ServerScript, ServerStep};
use crate::support::server::ScriptedServer;

/// The server signals all users when all twenty are present, since a barrier of the plan covers one worker only.
fn all_at_once(script: ServerScript) -> ServerScript {
    let go = "<message from='load.test'><body>go</body></message>";
    script.once(|truth, _| truth.available == 20, ServerEvent::Send(0..20, go.to_owned()))
}

fn ready() -> Vec<Do> {
    vec![login(), available(), reflected(), wait_for("message", 10_000)]
}

/// Twenty users of two workers exchange a thousand messages, all between the workers.
fn between(script: ServerScript, clocks: [u16; 2]) -> (RunOutcome, ServerCounts) {
    let server = ScriptedServer::start(all_at_once(script));
    let steps = then(ready(), [times(50, vec![message(Destination::Ring(1))]), stay()]);
    let outcome = run_with(
        plan(&server, 20, steps),
        &server,
        TestRunConfig::two(clocks).until(|truth| truth.messages == 1_000 && !truth.busy),
    );
    let truth = server.truth();
    assert_eq!((truth.messages, truth.wrong.len()), (1_000, 0));
    assert!(truth.pairs.keys().all(|(from, to)| (from + to) % 2 == 1), "{:?}", truth.pairs);
    (outcome, truth)
}

#[test]
fn messages_between_workers_are_accounted_by_the_receiver() {
    let (outcome, truth) = between(ServerScript::default(), [0, 0]);
    agree(&outcome, &truth);
    assert_eq!((outcome.lost, outcome.waiting, truth.echoes), (0, 0, 0));
    let arrived: u32 = outcome.finals[0].arrived.iter().map(|(_, count)| count).sum();
    assert_eq!((arrived, outcome.finals.len()), (500, 2));
    // Each worker reports its own users only.
    for last in &outcome.finals {
        let first = last.arrived[0].0 % 2;
        assert!(last.arrived.iter().all(|(user, _)| user % 2 == first), "{:?}", last.arrived);
        assert!(last.sent.iter().all(|(user, _)| user % 2 != first), "{:?}", last.sent);
    }
}

#[test]
fn errors_between_workers_are_counted_once() {
    let script = ServerScript::acting(|step, n| match (step, n % 20) {
        (ServerStep::Message, 3) => ServerAction::Nothing,
        (ServerStep::Message, 5) => ServerAction::Twice,
        (ServerStep::Message, 9) => ServerAction::Refuse,
        _ => ServerAction::Well,
    });
    let (outcome, truth) = between(script, [0, 0]);
    agree(&outcome, &truth);
    assert_eq!((truth.dropped, truth.duplicated, truth.refused), (50, 50, 50));
    assert_eq!((outcome.lost, outcome.waiting), (50, 0));
}

#[test]
fn between_different_clocks_an_echo_measures_the_round_trip() {
    let slow =
        |step, _| if step == ServerStep::Message { ServerAction::Late(50) } else { ServerAction::Well };
    let (outcome, truth) = between(ServerScript::acting(slow), [0, 1]);
    assert_eq!((truth.forwarded, truth.echoes), (1_000, 1_000));
    assert_eq!((outcome.count(Counter::MessagesDelivered), outcome.lost + outcome.waiting), (1_000, 0));
    // One-way times are unknown and must not be reported.
    assert_eq!(outcome.timing(Timing::Message).count, 0);
    crate::login::slow(outcome.timing(Timing::Echo), 1_000, 50);
    assert_eq!(outcome.count(Counter::StanzasOut), truth.stanzas_in);
}

#[test]
fn users_of_the_other_worker_can_be_waited_for_and_found() {
    let server = ScriptedServer::start(ServerScript::default());
    let steps = then(
        online(),
        [
            times(5, vec![acked(Destination::Ring(1), AckMode::Delivery)]),
            think(1_500.0),
            barrier(),
            meanwhile(300.0, vec![every(5.0, message(Destination::Online))]),
            say("done"),
            stay(),
        ],
    );
    let outcome = run_with(
        plan(&server, 20, steps),
        &server,
        TestRunConfig::two([0, 0]).until(|truth| truth.done() == 20),
    );
    let truth = server.truth();
    // Users that arrived before those of the other worker also waited for their messages to leave the store.
    assert_eq!((outcome.count(Counter::Timeouts), truth.echoes), (0, 100));
    // One-way times are known, so echoes are not measured.
    assert_eq!(outcome.timing(Timing::Echo).count, 0);
    assert_eq!(
        (outcome.count(Counter::MessagesDelivered), outcome.lost + outcome.waiting),
        (truth.messages, 0)
    );
    // After a second each worker knows the users of the other.
    let across = truth.pairs.iter().filter(|((from, to), _)| (from + to) % 2 == 1 && (from + 1) % 20 != *to);
    assert!(across.count() > 50);
}
