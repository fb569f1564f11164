//! Tests of timings: delays of the server are lower bounds of the measurements, and nothing due is left out.

use loadgen::measure::{Counter, Gauge, Timing};
use loadgen::plan::{Destination, PlanStep as Do, PresenceKind};

use crate::login::slow;
use crate::messages::agree;
use crate::support::driver::{run, until};
use crate::support::plans::{
    barrier, done, every, login, meanwhile, message, online, plan, stay, text, then, times,
};
use crate::support::script::{PresenceVisibility, ServerAction, ServerEvent, ServerScript, ServerStep};
use crate::support::server::ScriptedServer;

/// Guards against coordinated omission: a closed-loop generator waits with the server and sees one slow answer where a
/// hundred were due.
#[test]
fn a_server_pause_of_one_second_delays_everything_due_in_it() {
    let script = ServerScript::default().once(|_, since| since > 300_000, ServerEvent::Stall(1_000));
    let server = ScriptedServer::start(script);
    let busy = meanwhile(2_000.0, vec![every(10.0, message(Destination::Partner))]);
    let outcome =
        until(plan(&server, 2, then(then(online(), [busy]), done())), &server, |truth| truth.done() == 2);
    agree(&outcome, &server.truth());
    let sent = outcome.count(Counter::MessagesSent);
    // The first comes within 10 ms, so each of the two users has 200 in 2 s, however late the server is.
    assert!((398..=402).contains(&sent), "{sent}");
    for ms in [100, 300, 500, 700, 900] {
        let late = outcome.at_least(Timing::Message, ms);
        let due = 2 * (1_000 - ms) / 10;
        assert!(late + 8 >= due, "{late} are {ms} ms late, and {due} were due in time for that");
    }
    let late = outcome.at_least(Timing::Message, 100);
    assert!(late < sent, "messages before and after it were quick: {late} of {sent}");
    assert!(outcome.timing(Timing::Message).max >= 980_000);
}

#[test]
fn delivery_takes_as_long_as_the_server_needs() {
    let script = ServerScript::acting(|step, n| match step {
        ServerStep::Message if n % 10 == 0 => ServerAction::Late(400),
        ServerStep::Message => ServerAction::Late(100),
        _ => ServerAction::Well,
    });
    let server = ScriptedServer::start(script);
    let steps = then(online(), [times(20, vec![message(Destination::Myself)]), stay()]);
    let outcome = until(plan(&server, 10, steps), &server, |truth| truth.messages == 200);
    let truth = server.truth();
    // Slow messages of a user arrive after faster ones, so they are out of order too.
    assert_eq!((truth.messages, truth.forwarded, outcome.count(Counter::MessagesDelivered)), (200, 200, 200));
    assert_eq!((outcome.lost, outcome.count(Counter::MessagesDuplicate)), (0, 0));
    slow(outcome.timing(Timing::Message), 200, 100);
    assert!(outcome.at_least(Timing::Message, 400) >= 20);
    assert!(outcome.timing(Timing::Message).p99 >= 399_000);
}

#[test]
fn answers_beyond_the_limit_are_not_acceptable() {
    let script = ServerScript::acting(|step, n| {
        if step == ServerStep::Ping && n < 3 { ServerAction::Late(1_700) } else { ServerAction::Well }
    });
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, 10, then(online(), [Do::Ping { to: None }, stay()]));
    plan.options.acceptable_ms = 1_500;
    let outcome = until(plan, &server, |truth| truth.pings == 10 && truth.iq_answers == 20);
    agree(&outcome, &server.truth());
    assert_eq!((outcome.count(Counter::Unacceptable), outcome.timing(Timing::Ping).count), (3, 10));
    // Each user: two features, SASL, bind, the whole login, presence, ping.
    assert_eq!(outcome.count(Counter::Acceptable), 10 * 7 - 3);
    let (_, last) = outcome.snapshots.iter().rev().nth(1).expect("a second before the last report");
    assert_eq!((last.gauges[Gauge::Online as usize], last.gauges[Gauge::Acceptable as usize]), (10, 7));
}

#[test]
fn presence_is_measured_at_online_recipients() {
    // One user of each pair sees the other arrive: 45 of the first 45, which are not forwarded.
    let script = ServerScript {
        seen: PresenceVisibility::ByAll,
        ..ServerScript::acting(|step, n| {
            if step == ServerStep::Presence && n < 45 { ServerAction::Nothing } else { ServerAction::Well }
        })
    };
    let server = ScriptedServer::start(script);
    let change = Do::Presence {
        kind: PresenceKind::Available,
        to: None,
        show: Some(text("away")),
        status: Some(text("<b>")),
    };
    let steps = then(online(), [times(3, vec![change]), barrier(), stay()]);
    let outcome = until(plan(&server, 10, steps), &server, |truth| truth.presences_in == 40);
    let truth = server.truth();
    assert_eq!((truth.broadcasts, truth.reflections), (270, 40));
    assert_eq!(outcome.timing(Timing::Presence).count, truth.broadcasts);
    assert_eq!(outcome.timing(Timing::PresenceEcho).count, truth.reflections);
    assert_eq!((outcome.count(Counter::PresenceSent), truth.presences_in), (40, 40));
    assert_eq!(outcome.count(Counter::PresenceReceived), truth.presences_out);
}

#[test]
fn stored_messages_are_measured_separately() {
    // The odd users arrive only after the even ones have sent them messages.
    let server = ScriptedServer::start(ServerScript::default());
    let mut plan = plan(&server, 10, then(vec![login()], [crate::support::plans::available(), stay()]));
    plan.sessions[0].steps.insert(2, message(Destination::Partner));
    plan.phases[0].batch = 1;
    plan.phases[0].rate = 20.0;
    let outcome = until(plan, &server, |truth| truth.messages == 10 && truth.fetched == 5);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert_eq!((truth.messages, truth.fetched), (10, 5));
    assert_eq!((outcome.count(Counter::MessagesDelayed), outcome.lost + outcome.waiting), (5, 0));
    slow(outcome.timing(Timing::MessageStored), 5, 0);
}

#[test]
fn requests_of_the_server_are_answered_during_the_run() {
    let ask = "<iq type='get' id='a&amp;1' from='load.test'><ping xmlns='urn:xmpp:ping'/></iq>\
        <iq type=\"set\" id=\"b\"><query xmlns='jabber:iq:roster'><item jid='x@load.test'/></query></iq>\
        <iq type='get' id='c'><query xmlns='jabber:iq:version'/></iq>";
    let script = ServerScript::default()
        .once(|truth, _| truth.available == 10, ServerEvent::Send(0..10, ask.to_owned()));
    let server = ScriptedServer::start(script);
    let outcome = until(plan(&server, 10, then(online(), [stay()])), &server, |truth| {
        truth.iqs_answered + truth.iqs_refused == 30
    });
    let truth = server.truth();
    agree(&outcome, &truth);
    assert_eq!((truth.iqs_answered, truth.iqs_refused), (20, 10));
    assert_eq!(outcome.count(Counter::IqAnswered), truth.iq_answers);
}

#[test]
fn users_arrive_by_the_clock_however_slow_the_logins_are() {
    let script = ServerScript::acting(|step, _| {
        if step == ServerStep::Success { ServerAction::Late(900) } else { ServerAction::Well }
    });
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, 60, vec![login(), barrier()]);
    plan.phases[0].batch = 1;
    plan.phases[0].rate = 100.0;
    let outcome = run(plan, &server);
    // No user logs in before 0.9 s, and by then all have arrived.
    let (_, first) = &outcome.snapshots[0];
    assert_eq!(
        (first.counters[Counter::UsersStarted as usize], first.gauges[Gauge::Users as usize]),
        (60, 60)
    );
    assert_eq!((outcome.count(Counter::Logins), outcome.error("no-free-user")), (60, 0));
    slow(outcome.timing(Timing::Login), 60, 900);
    assert_eq!(outcome.highest[Gauge::Users as usize], 60);
}

#[test]
fn without_stamps_messages_are_sent_but_not_tracked() {
    let server = ScriptedServer::start(ServerScript::default());
    let mut plan = plan(&server, 10, then(online(), [times(5, vec![message(Destination::Partner)]), stay()]));
    plan.options.stamps = false;
    let outcome = until(plan, &server, |truth| truth.elsewhere == 50);
    let truth = server.truth();
    assert_eq!((truth.messages, truth.elsewhere), (0, 50));
    assert_eq!((outcome.count(Counter::MessagesSent), outcome.count(Counter::MessagesElsewhere)), (0, 50));
    assert_eq!((outcome.count(Counter::MessagesForeign), outcome.timing(Timing::Message).count), (50, 0));
    assert_eq!((outcome.lost, outcome.waiting, outcome.gauge(Gauge::UnderWay)), (0, 0, 0));
}
