//! Tests of BOSH and WebSocket: the same counts as over TCP, whatever a gateway does to connections and answers.

use loadgen::measure::{Counter, Timing};
use loadgen::plan::{AckMode, Destination, LoadPlan, PlanStep as Do, StreamTransport, TransportSecurity};

use crate::messages::agree_on_stanzas;
use crate::support::driver::{RunOutcome, run, until};
use crate::support::each;
use crate::support::gateway::{Gateway, GatewayCounts, GatewayFaults};
use crate::support::plans::{acked, done, login, online, plan, then, times};
use crate::support::script::{LegacySessionOffer, ServerCounts, ServerScript};
use crate::support::server::ScriptedServer;

const BOTH: [StreamTransport; 2] = [StreamTransport::Bosh, StreamTransport::WebSocket];

/// Creates a plan for the gateway in front of a server.
fn through(
    mut plan: LoadPlan,
    gateway: &Gateway,
    transport: StreamTransport,
    faults: GatewayFaults,
) -> LoadPlan {
    plan.target.addresses = vec![gateway.address];
    plan.target.web.transport = transport;
    plan.target.security = if faults.tls { TransportSecurity::Direct } else { TransportSecurity::None };
    plan
}

/// Every user sends `count` messages to a partner.
fn exchange(
    transport: StreamTransport,
    faults: GatewayFaults,
    users: u32,
    count: u32,
) -> (RunOutcome, ServerCounts, GatewayCounts) {
    let server = ScriptedServer::start(ServerScript {
        mechanisms: vec!["PLAIN", "SCRAM-SHA-1"],
        ..ServerScript::default()
    });
    let gateway = Gateway::start(server.address, faults);
    // One after the other, because they would share one request otherwise.
    let steps = then(online(), [times(count, vec![acked(Destination::Partner, AckMode::Delivery)])]);
    let plan = through(plan(&server, users, then(steps, done())), &gateway, transport, faults);
    let outcome = until(plan, &server, |truth| truth.done() as u64 == truth.logins && truth.done() > 0);
    assert_eq!(outcome.refused, None);
    let truth = server.truth();
    assert_eq!(truth.messages, u64::from(users * count), "{faults:?} {:?}", outcome.errors);
    agree_on_stanzas(&outcome, &truth);
    assert_eq!((truth.forwarded, outcome.lost, outcome.waiting), (truth.messages, 0, 0));
    assert_eq!(outcome.count(Counter::UsersFinished), u64::from(users));
    let seen = gateway.seen();
    assert_eq!(outcome.count(Counter::Connections), seen.connections);
    (outcome, truth, seen)
}

#[test]
fn a_correct_server_loses_nothing_over_bosh_and_websocket() {
    each(BOTH, |transport| {
        each([false, true], |tls| {
            let (outcome, _, seen) =
                exchange(transport, GatewayFaults { tls, ..GatewayFaults::default() }, 10, 20);
            assert!(outcome.errors.is_empty(), "{:?}", outcome.errors);
            assert_eq!(outcome.count(Counter::SessionsLost), 0);
            assert_eq!(outcome.timing(Timing::Initiate).count, 10);
            assert_eq!(outcome.timing(Timing::Features).count, 10);
            assert_eq!(outcome.timing(Timing::Connect).count, 10);
            assert_eq!(outcome.timing(Timing::Tls).count, if tls { 10 } else { 0 });
            assert_eq!(outcome.timing(Timing::Login).count, 10);
            if transport == StreamTransport::Bosh {
                assert_eq!((seen.created, seen.terminated, seen.repeated), (10, 10, 0));
                assert_eq!(outcome.count(Counter::HttpRequests), seen.requests);
                assert_eq!(outcome.count(Counter::HttpPolls), seen.empty);
                assert!(seen.connections <= 20 && seen.most_sockets == 2, "{seen:?}");
            } else {
                assert_eq!((seen.connections, seen.closes), (10, 10));
            }
        });
    });
}

#[test]
fn a_login_over_bosh_needs_one_socket() {
    let server = ScriptedServer::start(ServerScript::default());
    let gateway = Gateway::start(server.address, GatewayFaults::default());
    let plan = plan(&server, 10, then(vec![login(), Do::Roster], [crate::support::plans::available()]));
    let outcome = run(through(plan, &gateway, StreamTransport::Bosh, GatewayFaults::default()), &server);
    assert_eq!(outcome.count(Counter::Logins), 10);
    let seen = gateway.seen_after_terminated(10);
    assert_eq!((seen.created, seen.terminated), (10, 10));
}

#[test]
fn gateways_with_faults_lose_nothing() {
    let bosh = |faults| (StreamTransport::Bosh, faults);
    let well = GatewayFaults::default();
    let cases = [
        bosh(GatewayFaults { chunked: true, ..well }),
        bosh(GatewayFaults { features_later: true, ..well }),
        bosh(GatewayFaults { close_every: Some(3), ..well }),
        bosh(GatewayFaults { close_every: Some(1), chunked: true, ..well }),
        bosh(GatewayFaults { swap: 4, ..well }),
        (StreamTransport::WebSocket, GatewayFaults { fragments: true, ..well }),
        (StreamTransport::WebSocket, GatewayFaults { fragments: true, tls: true, ..well }),
    ];
    each(cases, |(transport, faults)| {
        let (outcome, _, seen) = exchange(transport, faults, 6, 15);
        assert!(outcome.errors.is_empty(), "{faults:?} {:?}", outcome.errors);
        assert!(!faults.fragments || seen.pongs > 90, "{seen:?}");
    });
}

#[test]
fn requests_of_a_broken_connection_are_resent_with_the_same_rid() {
    // A connection that breaks before the session exists is not retried; the 13th request comes later.
    let (outcome, _, seen) = exchange(
        StreamTransport::Bosh,
        GatewayFaults { break_every: Some(13), ..GatewayFaults::default() },
        2,
        40,
    );
    assert!(seen.repeated > 3, "{seen:?}");
    assert_eq!(outcome.count(Counter::HttpAgain), seen.repeated);
    assert_eq!(outcome.error("bosh:broken-connection"), seen.repeated);
    assert_eq!(outcome.count(Counter::SessionsLost), 0);
}

#[test]
fn sessions_unknown_to_the_server_are_lost_with_a_reason() {
    each([true, false], |by_status| {
        let faults = GatewayFaults { forget_every: Some((57, by_status)), ..GatewayFaults::default() };
        let server = ScriptedServer::start(ServerScript::default());
        let gateway = Gateway::start(server.address, faults);
        let steps = then(vec![login()], [times(60, vec![Do::Ping { to: None }])]);
        let plan = through(plan(&server, 4, steps), &gateway, StreamTransport::Bosh, faults);
        let outcome = run(plan, &server);
        assert!(outcome.error("bosh:item-not-found") >= 1, "{:?}", outcome.errors);
        assert_eq!(outcome.count(Counter::SessionsLost), outcome.error("bosh:item-not-found"));
        drop(gateway.seen());
    });
}

#[test]
fn bosh_steps_have_lengths_and_failures() {
    each(BOTH, |transport| {
        let server = ScriptedServer::start(ServerScript {
            old_session: LegacySessionOffer::Required,
            contacts: 3,
            ..ServerScript::default()
        });
        let gateway = Gateway::start(server.address, GatewayFaults::default());
        let steps = then(vec![login(), Do::Roster], online().into_iter().skip(1));
        let outcome =
            run(through(plan(&server, 5, steps), &gateway, transport, GatewayFaults::default()), &server);
        for (counter, least) in [
            (Counter::InitiateBytes, 100),
            (Counter::AuthenticateBytes, 50),
            (Counter::BindBytes, 80),
            (Counter::SessionBytes, 20),
            (Counter::RosterBytes, 200),
            (Counter::PresenceBytes, 40),
        ] {
            let mean = outcome.count(counter) / 5;
            assert!((least..2_000).contains(&mean), "{transport:?} {}: {mean}", counter.name());
        }
        for counter in [Counter::InitiateErrors, Counter::AuthenticateErrors, Counter::BindErrors] {
            assert_eq!(outcome.count(counter), 0);
        }
        assert_eq!(outcome.timing(Timing::OpenSession).count, 5);
        // These accounts do not exist.
        let mut wrong = plan(&server, 3, vec![login()]);
        wrong.options.keep_going = true;
        if let loadgen::plan::AccountSource::Pattern { password, .. } = &mut wrong.accounts.source {
            "wrong".clone_into(password);
        }
        let outcome = run(through(wrong, &gateway, transport, GatewayFaults::default()), &server);
        assert_eq!((outcome.count(Counter::AuthenticateErrors), outcome.count(Counter::LoginErrors)), (3, 3));
    });
}

#[test]
fn an_unsupported_transport_is_reported_at_the_first_login() {
    // The scripted server itself does not speak HTTP.
    each(BOTH, |transport| {
        let server = ScriptedServer::start(ServerScript::default());
        let mut one = plan(&server, 1, vec![login()]);
        one.target.web.transport = transport;
        one.options.answer_timeout_ms = 500;
        one.options.drain_ms = 0;
        let outcome = run(one, &server);
        assert!(
            outcome.refused.is_some_and(|why| why.starts_with("the first login, of u0@load.test, failed"))
        );
    });
    let server = ScriptedServer::start(ServerScript::default());
    let faults = GatewayFaults { refuse_upgrade: true, ..GatewayFaults::default() };
    let gateway = Gateway::start(server.address, faults);
    let one = through(plan(&server, 1, vec![login()]), &gateway, StreamTransport::WebSocket, faults);
    let refused = run(one, &server).refused.unwrap_or_default();
    assert!(refused.contains("Sec-WebSocket-Accept is invalid"), "{refused}");
}
