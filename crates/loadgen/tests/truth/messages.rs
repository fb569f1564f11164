//! Tests of message accounting: sent, delivered, lost, duplicated, reordered, refused, waiting, delayed.

use loadgen::measure::{Counter, Gauge, Timing};
use loadgen::plan::{AckMode, Destination};

use crate::support::driver::{RunOutcome, until};
use crate::support::each;
use crate::support::plans::{acked, done, message, online, plan, say, stay, then, times};
use crate::support::script::{OfflinePolicy, ServerAction, ServerCounts, ServerScript, ServerStep};
use crate::support::server::ScriptedServer;

/// Asserts the counts on which both sides must agree whatever happens to messages.
pub(crate) fn agree(outcome: &RunOutcome, truth: &ServerCounts) {
    agree_on_stanzas(outcome, truth);
    let pairs = [
        (Counter::Connections, truth.connections),
        (Counter::BytesOut, truth.bytes_in),
        (Counter::BytesIn, truth.bytes_out),
    ];
    for (counter, expected) in pairs {
        assert_eq!(outcome.count(counter), expected, "{}", counter.name());
    }
}

/// Like `agree`, without the counts below the stanza layer.
pub(crate) fn agree_on_stanzas(outcome: &RunOutcome, truth: &ServerCounts) {
    assert_eq!(truth.wrong, Vec::<String>::new());
    let pairs = [
        (Counter::Logins, truth.logins),
        (Counter::MessagesSent, truth.messages + truth.discarded_messages),
        (Counter::MessagesElsewhere, truth.elsewhere),
        (Counter::MessagesDelivered, truth.forwarded),
        (Counter::MessagesDelayed, truth.fetched),
        (Counter::MessagesDuplicate, truth.duplicated),
        (Counter::MessagesReordered, truth.swapped),
        (Counter::MessagesRefused, truth.refused),
        (Counter::PresenceSent, truth.presences_in),
        (Counter::PresenceReceived, truth.presences_out),
        (Counter::IqErrors, truth.iq_errors),
        (Counter::StanzasOut, truth.stanzas_in + truth.discarded),
        (Counter::StanzasIn, truth.stanzas_out),
    ];
    for (counter, expected) in pairs {
        assert_eq!(outcome.count(counter), expected, "{}", counter.name());
    }
    let left = truth.stored - truth.fetched + truth.dropped + truth.held + truth.discarded_messages;
    assert_eq!(outcome.lost + outcome.waiting, left);
    assert_eq!(outcome.gauge(Gauge::UnderWay), left as i64);
    assert_eq!(outcome.timing(Timing::Message).count, truth.forwarded - truth.fetched);
    assert_eq!(outcome.timing(Timing::MessageStored).count, truth.fetched);
    for gauge in [Gauge::Users, Gauge::Connected, Gauge::Online, Gauge::Acceptable] {
        assert_eq!(outcome.gauge(gauge), 0, "{}", gauge.name());
    }
}

fn exchange(script: ServerScript, users: u32, count: u32) -> (RunOutcome, ServerCounts) {
    let server = ScriptedServer::start(script);
    let steps = then(online(), [times(count, vec![message(Destination::Partner)])]);
    let outcome = until(plan(&server, users, then(steps, done())), &server, |truth| {
        truth.done() as u64 == truth.logins && truth.done() > 0
    });
    let truth = server.truth();
    assert_eq!(truth.messages, u64::from(users * count));
    agree(&outcome, &truth);
    (outcome, truth)
}

#[test]
fn a_correct_server_loses_nothing() {
    let (outcome, truth) = exchange(ServerScript::default(), 20, 50);
    assert_eq!((truth.forwarded, outcome.lost, outcome.waiting), (1_000, 0, 0));
    assert_eq!(outcome.count(Counter::MessagesToOnline), 1_000);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn dropped_duplicated_reordered_and_refused_messages_are_counted() {
    type Expected = fn(&ServerCounts) -> [u64; 4];
    let cases: [(u32, u32, u64, ServerAction, Expected); 4] = [
        (20, 50, 7, ServerAction::Nothing, |truth| [truth.dropped, 143, 0, 0]),
        (20, 50, 9, ServerAction::Twice, |truth| [0, 0, truth.duplicated, 112]),
        (2, 100, 10, ServerAction::Hold, |truth| [truth.held, truth.held, truth.swapped + truth.held, 20]),
        (20, 20, 4, ServerAction::Refuse, |truth| [0, 0, truth.refused, 100]),
    ];
    each(cases, |(users, count, every, act, expected)| {
        let wrong = act.clone();
        let script = ServerScript::acting(move |step, n| {
            if step == ServerStep::Message && n % every == 0 { wrong.clone() } else { ServerAction::Well }
        });
        let (outcome, truth) = exchange(script, users, count);
        // Dropped messages (and held ones without a successor) are lost, and nothing else is; `exchange` has compared
        // the rest.
        let [dropped, lost, mistreated, times] = expected(&truth);
        assert_eq!((outcome.lost, outcome.waiting), (dropped, 0), "{act:?}");
        assert_eq!((dropped, mistreated), (lost, times), "{act:?}");
    });
}

/// Whether a server stores or discards them is invisible from outside; neither counts as loss.
#[test]
fn messages_for_offline_users_are_stored() {
    each([OfflinePolicy::Store, OfflinePolicy::Drop], |absent| {
        let server = ScriptedServer::start(ServerScript { absent, ..ServerScript::default() });
        // Users 0 to 9 log in; all twenty accounts are addressed.
        let mut plan = plan(&server, 20, then(online(), [message(Destination::Ring(10)), stay()]));
        plan.phases[0].max_users = Some(10);
        let outcome = until(plan, &server, |truth| truth.messages == 10);
        let truth = server.truth();
        assert_eq!((truth.messages, truth.stored + truth.dropped), (10, 10));
        agree(&outcome, &truth);
        assert_eq!((outcome.lost, outcome.waiting), (0, 10));
        assert_eq!(outcome.count(Counter::MessagesToOnline), 0);
    });
}

#[test]
fn messages_for_offline_users_can_bounce() {
    let server =
        ScriptedServer::start(ServerScript { absent: OfflinePolicy::Refuse, ..ServerScript::default() });
    let mut plan = plan(&server, 20, then(online(), [acked(Destination::Offline, AckMode::None), stay()]));
    plan.phases[0].max_users = Some(10);
    let outcome = until(plan, &server, |truth| truth.messages == 10);
    let truth = server.truth();
    assert_eq!((truth.messages, truth.refused), (10, 10));
    agree(&outcome, &truth);
    assert_eq!((outcome.lost, outcome.waiting), (0, 0));
}

#[test]
fn waiting_for_a_delivery_ends_with_delivery_or_refusal() {
    let script = ServerScript::acting(|step, n| match (step, n % 4) {
        (ServerStep::Message, 1) => ServerAction::Refuse,
        (ServerStep::Message, 2) => ServerAction::Late(50),
        _ => ServerAction::Well,
    });
    let server = ScriptedServer::start(script);
    let steps =
        then(online(), [times(8, vec![acked(Destination::Partner, AckMode::Delivery)]), say("done"), stay()]);
    let outcome = until(plan(&server, 10, steps), &server, |truth| truth.done() == 10);
    let truth = server.truth();
    assert_eq!((truth.messages, truth.refused, truth.forwarded), (80, 20, 60));
    agree(&outcome, &truth);
    assert_eq!(outcome.count(Counter::Timeouts), 0);
}
