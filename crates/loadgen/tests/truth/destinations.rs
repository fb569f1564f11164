//! Tests of message destinations: every kind, as received by the server.

use std::collections::BTreeSet;

use loadgen::measure::Counter;
use loadgen::plan::{AckMode, Destination, PlanStep as Do, TemplatePart, TextTemplate};

use crate::messages::agree;
use crate::support::driver::{RunOutcome, run, until};
use crate::support::each;
use crate::support::plans::{acked, done, login, message, online, plan, stay, then, times};
use crate::support::script::{ServerCounts, ServerScript};
use crate::support::server::ScriptedServer;

/// `users` of twice as many accounts are online, have a roster of three contacts, and send `count` messages each.
fn sent(users: u32, count: u32, to: Destination) -> (RunOutcome, ServerCounts) {
    let server =
        ScriptedServer::start(ServerScript { contacts: 3, accounts: 2 * users, ..ServerScript::default() });
    let steps = then(vec![login(), Do::Roster], online().into_iter().skip(1));
    let mut plan = plan(&server, 2 * users, then(steps, then(vec![times(count, vec![message(to)])], done())));
    plan.phases[0].max_users = Some(users);
    let outcome = until(plan, &server, |truth| truth.done() == 10);
    let truth = server.truth();
    agree(&outcome, &truth);
    (outcome, truth)
}

/// Asserts that each user sent all its messages to the same expected user.
fn to_one(users: u32, count: u32, to: Destination, expected: impl Fn(u32) -> u32) {
    let (_, truth) = sent(users, count, to);
    let found: Vec<_> = truth.pairs.into_iter().collect();
    let expected: Vec<_> = (0..users).map(|user| ((user, expected(user)), u64::from(count))).collect();
    assert_eq!(found, expected);
}

#[test]
fn rule_based_destinations_reach_the_computed_user() {
    let literal = |text: &str| TemplatePart::Literal(text.to_owned());
    let own = TextTemplate(vec![literal("u"), TemplatePart::Number, literal("@load.test")]);
    type Rule = fn(u32) -> u32;
    let rules: [(Destination, Rule); 6] = [
        (Destination::Ring(3), |user| (user + 3) % 20),
        (Destination::Ring(-3), |user| (user + 17) % 20),
        (Destination::Partner, |user| user ^ 1),
        (Destination::Myself, |user| user),
        (Destination::First, |_| 0),
        (Destination::Jid(own), |user| user),
    ];
    each(rules, |(to, expected)| to_one(10, 3, to, expected));
}

#[test]
fn random_and_contact_destinations() {
    fn distance(from: u32, to: u32) -> u32 {
        (to + 20 - from) % 20
    }
    type Check = fn(&RunOutcome, &ServerCounts);
    let kinds: [(Destination, Check); 5] = [
        (Destination::Online, |outcome, truth| {
            assert!(truth.pairs.keys().all(|(from, to)| from != to && *to < 10), "{:?}", truth.pairs);
            assert!(truth.pairs.len() > 60, "most of the 90 pairs come up: {}", truth.pairs.len());
            assert_eq!(outcome.count(Counter::MessagesToOnline), 500);
        }),
        (Destination::Offline, |outcome, truth| {
            assert!(truth.pairs.keys().all(|(_, to)| (10..20).contains(to)), "{:?}", truth.pairs);
            assert_eq!((outcome.count(Counter::MessagesToOnline), truth.stored), (0, 500));
        }),
        (Destination::Random, |_, truth| {
            let all: BTreeSet<u32> = truth.pairs.keys().map(|(_, to)| *to).collect();
            assert_eq!(all, (0..20).collect());
        }),
        (Destination::Contact, |_, truth| {
            assert!(truth.pairs.keys().all(|(from, to)| (1..=3).contains(&distance(*from, *to))));
            assert!(truth.pairs.len() > 25, "nearly all of the 30 pairs come up: {}", truth.pairs.len());
        }),
        (Destination::OnlineContact, |outcome, truth| {
            let right = |from, to| (1..=3).contains(&distance(from, to)) && to < 10;
            assert!(truth.pairs.keys().all(|(from, to)| right(*from, *to)), "{:?}", truth.pairs);
            // User 9 has the contacts 10 to 12, none of which is online.
            assert_eq!((outcome.error("no-online-contact"), truth.messages), (50, 450));
        }),
    ];
    each(kinds, |(to, check)| {
        let (outcome, truth) = sent(10, 50, to);
        check(&outcome, &truth);
    });
}

#[test]
fn unique_destinations_use_each_account_once() {
    let (_, truth) = sent(10, 4, Destination::Unique);
    let mut counts = [0; 20];
    truth.pairs.iter().for_each(|((_, to), count)| counts[*to as usize] += count);
    assert_eq!(counts, [2; 20]);
}

#[test]
fn the_same_destination_can_be_used_again() {
    let server = ScriptedServer::start(ServerScript::default());
    let steps = then(
        online(),
        [message(Destination::Online), times(4, vec![message(Destination::Previous)]), stay()],
    );
    let outcome = until(plan(&server, 10, steps), &server, |truth| truth.messages == 50);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert_eq!((truth.pairs.len(), truth.messages), (10, 50));
    assert!(truth.pairs.values().all(|count| *count == 5), "{:?}", truth.pairs);
}

#[test]
fn destinations_by_address() {
    let somebody = Destination::Jid(TextTemplate::literal("somebody@other.test"));
    each([somebody, Destination::Server], |to| {
        let (outcome, truth) = sent(10, 3, to);
        assert_eq!((truth.messages, truth.elsewhere, outcome.count(Counter::MessagesElsewhere)), (0, 30, 30));
    });
}

#[test]
fn a_missing_destination_is_an_error_and_sends_no_message() {
    let server = ScriptedServer::start(ServerScript::default());
    let steps = vec![login(), acked(Destination::Online, AckMode::Delivery), message(Destination::Previous)];
    let outcome = run(plan(&server, 1, steps), &server);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert_eq!((outcome.error("nobody-online"), outcome.error("no-previous-destination")), (1, 1));
    assert_eq!((truth.messages, outcome.count(Counter::UsersFinished)), (0, 1));
}
