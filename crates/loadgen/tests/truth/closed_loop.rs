//! Tests of closed loops: arrivals bounded by concurrency, presence that waits for its deliveries, batches of an
//! activity, full addresses.

use loadgen::measure::{Counter, Gauge, Timing};
use loadgen::plan::{Destination, PlanStep as Do};

use crate::messages::agree;
use crate::support::driver::{run, until};
use crate::support::plans::{
    available, barrier, done, every, login, meanwhile, message, online, plan, stay, text, then,
};
use crate::support::script::{PresenceVisibility, ServerAction, ServerScript, ServerStep};
use crate::support::server::ScriptedServer;

#[test]
fn users_arrive_when_others_reach_their_first_pause() {
    // Each login takes 40 ms in the server, and one user is admitted at a time.
    let script = ServerScript::acting(|step, _| {
        if step == ServerStep::Bind { ServerAction::Late(40) } else { ServerAction::Well }
    });
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, 10, then(vec![login(), Do::Think(loadgen::plan::TimeSpan::Fixed(1.0))], []));
    plan.phases[0].rate = 0.0;
    plan.phases[0].concurrency = Some(1);
    let outcome = run(plan, &server);
    agree(&outcome, &server.truth());
    assert_eq!((outcome.count(Counter::UsersStarted), outcome.count(Counter::UsersFinished)), (10, 10));
    let logins = outcome.timing(Timing::Login);
    // With two logins in parallel, the run would have taken less than ten logins in sequence.
    assert!(logins.count == 10 && outcome.took >= 10 * 40_000, "{logins:?} in {} µs", outcome.took);
}

#[test]
fn a_failed_user_is_replaced_by_the_next() {
    let script = ServerScript { accounts: 0, ..ServerScript::default() };
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, 5, vec![login()]);
    plan.options.keep_going = true;
    plan.phases[0].rate = 0.0;
    plan.phases[0].concurrency = Some(1);
    let outcome = run(plan, &server);
    assert_eq!((outcome.count(Counter::UsersStarted), outcome.count(Counter::LoginErrors)), (5, 5));
}

#[test]
fn presence_waits_until_the_given_number_have_it() {
    let server =
        ScriptedServer::start(ServerScript { seen: PresenceVisibility::ByAll, ..ServerScript::default() });
    let change = |users| Do::Delivered { presence: Box::new(available()), users };
    // Five users wait for the four others, three times.
    let steps = then(vec![login(), available(), barrier()], [change(4), change(4), change(4)]);
    let outcome = until(plan(&server, 5, then(steps, done())), &server, |truth| truth.done() == 5);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert_eq!((truth.presences_in, outcome.count(Counter::Timeouts)), (20, 0));
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn presence_that_does_not_arrive_ends_the_wait_with_the_time_limit() {
    let server = ScriptedServer::start(ServerScript::default());
    let change = Do::Delivered { presence: Box::new(available()), users: 1 };
    let mut plan = plan(&server, 1, then(vec![login(), change], done()));
    plan.options.answer_timeout_ms = 100;
    let outcome = until(plan, &server, |truth| truth.done() == 1);
    assert_eq!(outcome.count(Counter::Timeouts), 1);
}

#[test]
fn an_activity_sends_in_batches() {
    let server = ScriptedServer::start(ServerScript::default());
    let mut activity = every(100.0, message(Destination::Partner));
    activity.batch = 5;
    let steps = then(online(), [meanwhile(1_000.0, vec![activity])]);
    let outcome = until(plan(&server, 2, then(steps, done())), &server, |truth| truth.done() == 2);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert!(truth.messages.is_multiple_of(5) && (90..=110).contains(&truth.messages), "{}", truth.messages);
}

#[test]
fn messages_to_full_addresses_are_counted_for_their_users() {
    let server = ScriptedServer::start(ServerScript::default());
    let to = || Destination::Full(Box::new(Destination::Partner), text("here"));
    let bounce = Do::Bounce { in_flight: 2, duration_ms: None, size: 20, one_sided: true, to: to() };
    let login = Do::Login { mechanisms: Vec::new(), resource: Some(text("here")) };
    let steps = vec![login, available(), barrier(), message(to()), bounce, stay()];
    let outcome = until(plan(&server, 4, steps), &server, |truth| truth.messages > 100);
    let truth = server.truth();
    agree(&outcome, &truth);
    // Two pairs, in which one user each starts with two messages.
    assert!(outcome.highest[Gauge::UnderWay as usize] <= 4 + 4, "{:?}", outcome.highest);
    assert!(outcome.count(Counter::MessagesSent) > 100 && outcome.count(Counter::MessagesElsewhere) == 0);
}
