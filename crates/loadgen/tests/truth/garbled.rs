//! Tests with servers that send non-XMPP data, oddly split or oddly formed XMPP, or that do not read.

use loadgen::measure::{Counter, Gauge, Timing};
use loadgen::plan::{AckMode, Destination, MessageBody, MessageKind, PlanStep as Do};

use crate::messages::agree;
use crate::support::driver::{RunOutcome, TestRunConfig, run, run_with, until};
use crate::support::plans::{done, every, login, meanwhile, message, online, plan, stay, then, times};
use crate::support::script::{
    PresenceVisibility, ServerAction, ServerCounts, ServerEvent, ServerScript, ServerStep,
};
use crate::support::server::ScriptedServer;

/// Ten users are online, and each of the first ones receives one of these byte strings.
fn sent(bytes: &[Vec<u8>], when: fn(&ServerCounts) -> bool) -> RunOutcome {
    let mut script = ServerScript::default();
    for (user, bytes) in (0..).zip(bytes) {
        script = script
            .once(|truth, _| truth.available == 10, ServerEvent::SendBytes(user..user + 1, bytes.clone()));
    }
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, 10, then(online(), [stay()]));
    plan.options.drain_ms = 300;
    run_with(plan, &server, TestRunConfig::alone().until(when))
}

#[test]
fn invalid_xml_ends_the_session_with_its_own_error() {
    let garbage: [&[u8]; 7] = [
        b"\x00\xff\xfe garbage \x80<<<>>>",
        b"<message><body>x</message></message>",
        b"</stream:other>",
        b"<message to=x/>",
        b"<message><body>\xc3\x28</body></message>",
        b"<message id='1' id='2'/>",
        b"<!DOCTYPE lol [<!ENTITY a 'b'>]><message/>",
    ];
    let outcome = sent(&garbage.map(<[u8]>::to_vec), |truth| truth.events_performed == 7 && truth.open == 3);
    assert_eq!(outcome.error("garbled"), 7, "{:?} {:?}", outcome.errors, outcome.log);
    assert_eq!((outcome.count(Counter::SessionsLost), outcome.count(Counter::UsersFinished)), (7, 3));
    assert_eq!(
        outcome.log.iter().filter(|line| line.contains("invalid XMPP")).count(),
        7,
        "{:?}",
        outcome.log
    );
}

#[test]
fn unusual_valid_xml_is_accepted() {
    let odd: [&[u8]; 5] = [
        b" \n \n",
        b"<message from='load.test'><body>&#x1F600; &lt;&amp;</body><x xmlns='urn:other'><y/></x></message>",
        b"<presence type='nonsense' from='load.test'/><iq/><message type='nonsense'/>",
        b"<iq type='result' id='nobody-asked'/><iq type='error' id='Qff'/>",
        b"<a xmlns='urn:other'/><r xmlns='urn:xmpp:sm:3'/><a xmlns='urn:xmpp:sm:3' h='77'/>",
    ];
    let outcome = sent(&odd.map(<[u8]>::to_vec), |truth| truth.events_performed == 5 && !truth.busy);
    assert!(outcome.errors.is_empty(), "{:?} {:?}", outcome.errors, outcome.log);
    assert_eq!((outcome.count(Counter::SessionsLost), outcome.count(Counter::UsersFinished)), (0, 10));
    assert_eq!(outcome.count(Counter::MessagesForeign), 2);
}

#[test]
fn elements_have_a_limit_that_rosters_of_thousands_stay_below() {
    let element = |size: usize| {
        let mut element = b"<message from='load.test'><body>".to_vec();
        element.resize(size, b'x');
        element.extend_from_slice(b"</body></message>");
        element
    };
    let outcome = sent(&[element(3 << 20), element(17 << 20)], |truth| {
        truth.events_performed == 2 && truth.open == 9 && !truth.busy
    });
    assert_eq!(
        (outcome.error("garbled"), outcome.count(Counter::SessionsLost)),
        (1, 1),
        "{:?}",
        outcome.errors
    );
    assert_eq!(outcome.count(Counter::MessagesForeign), 1);
}

#[test]
fn garbage_in_a_login_is_a_failed_login() {
    let script = ServerScript::acting(|step, n| {
        if step == ServerStep::Features && n < 4 {
            ServerAction::Bytes(b"HTTP/1.1 400 Bad\r\n\r\n".to_vec())
        } else {
            ServerAction::Well
        }
    });
    let server = ScriptedServer::start(script);
    let mut plan = plan(&server, 10, vec![login()]);
    plan.options.keep_going = true;
    plan.options.drain_ms = 0;
    let outcome = run(plan, &server);
    assert_eq!(
        (outcome.error("garbled"), outcome.count(Counter::LoginErrors)),
        (4, 4),
        "{:?}",
        outcome.errors
    );
    assert_eq!((outcome.count(Counter::Logins), outcome.count(Counter::SessionsLost)), (6, 0));
}

#[test]
fn fragmentation_makes_no_difference() {
    let script = ServerScript {
        contacts: 20,
        mechanisms: vec!["SCRAM-SHA-1"],
        ..ServerScript::acting(|step, n| match step {
            ServerStep::Features
            | ServerStep::Challenge
            | ServerStep::Success
            | ServerStep::Bind
            | ServerStep::Reflection => ServerAction::Pieces(17 + n as usize % 7),
            ServerStep::Roster => ServerAction::Pieces(97),
            // A message of another sender precedes each numbered one in the same packet.
            ServerStep::Message => {
                ServerAction::After("<message from='x@other.test'><body>hi</body></message>".to_owned())
            }
            _ => ServerAction::Well,
        })
    };
    let server = ScriptedServer::start(script);
    let steps = then(vec![login(), Do::Roster], online().into_iter().skip(1));
    let steps = then(steps, [times(10, vec![message(Destination::Partner)]), stay()]);
    let outcome = until(plan(&server, 10, steps), &server, |truth| truth.messages == 100);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert_eq!((truth.messages, outcome.lost, outcome.count(Counter::MessagesForeign)), (100, 0, 100));
    assert_eq!(outcome.timing(Timing::Roster).count, 10);
    assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
}

#[test]
fn stanzas_may_use_prefixes_of_the_stream_header() {
    let script = ServerScript {
        seen: PresenceVisibility::ByAll,
        ..ServerScript::acting(|step, n| match step {
            ServerStep::Message | ServerStep::Reflection | ServerStep::Presence | ServerStep::Ping
                if n % 2 == 0 =>
            {
                ServerAction::Prefixed
            }
            _ => ServerAction::Well,
        })
    };
    let server = ScriptedServer::start(script);
    let steps =
        then(online(), [Do::Ping { to: None }, times(10, vec![message(Destination::Partner)]), stay()]);
    let outcome = until(plan(&server, 10, steps), &server, |truth| truth.messages == 100);
    let truth = server.truth();
    agree(&outcome, &truth);
    assert_eq!((truth.messages, outcome.lost), (100, 0));
    assert_eq!((outcome.timing(Timing::Ping).count, outcome.timing(Timing::PresenceEcho).count), (10, 10));
}

/// With a server that replaces ids every message looks lost, and the run shows foreign messages.
#[test]
fn messages_with_replaced_ids_are_foreign() {
    let script = ServerScript::acting(|step, _| {
        if step == ServerStep::Message { ServerAction::Renamed } else { ServerAction::Well }
    });
    let server = ScriptedServer::start(script);
    let steps = then(online(), [times(5, vec![message(Destination::Partner)]), stay()]);
    let outcome = until(plan(&server, 10, steps), &server, |truth| truth.messages == 50);
    assert_eq!((outcome.count(Counter::MessagesSent), outcome.count(Counter::MessagesDelivered)), (50, 0));
    assert_eq!((outcome.count(Counter::MessagesForeign), outcome.lost), (50, 50));
    assert_eq!(outcome.gauge(Gauge::UnderWay), 50);
}

#[test]
fn sends_to_a_server_that_does_not_read_are_skipped() {
    const SIZE: u64 = 8_192;
    let script = ServerScript { receive_buffer: Some(4_096), ..ServerScript::default() };
    let script = script
        .once(|truth, _| truth.available == 4, ServerEvent::StopReading(0..2))
        .once(|truth, _| truth.done() == 2, ServerEvent::ReadOn(0..2));
    let server = ScriptedServer::start(script);
    let large = Do::Message {
        to: Destination::Partner,
        body: MessageBody::Size(SIZE as u32),
        kind: MessageKind::Chat,
        ack: AckMode::None,
    };
    let mut plan =
        plan(&server, 4, then(then(online(), [meanwhile(900.0, vec![every(4.0, large)])]), done()));
    plan.options.send_buffer = Some(16_384);
    let outcome = until(plan, &server, |truth| truth.events_performed == 2 && !truth.busy);
    let (sent, skipped) = (outcome.count(Counter::MessagesSent), outcome.count(Counter::Skipped));
    // All four had 225 messages due in 0.9 s, sent or skipped, and two final messages.
    assert!((4 * 224..=4 * 226 + 2).contains(&(sent + skipped)), "{sent} and {skipped}");
    assert!(skipped > 2 * 100, "{skipped}");
    // Messages neither on the wire nor skipped are queued here, with a limit for each of the two users: without it
    // there would be 100 messages more, since the kernel's buffers take about ten of them.
    assert!(sent < 2 * 226 + 2 * 100, "{sent}");
    // Everything that was sent arrives in the end.
    agree(&outcome, &server.truth());
    assert_eq!((outcome.lost, outcome.count(Counter::SessionsLost)), (0, 0));
}
