//! Tests of stream management: XEP-0198 (1.6.3), in memory, over TCP and TLS, with connections that break.
//!
//! The feature that configures the limits is in a crate above this one, so the tests define a small one.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod disconnects;

use std::cell::RefCell;

use feature_api::feature::{Feature, FeatureBuilder};
use sasl::Mechanism;
use stanza::{StanzaCondition, StanzaError, StanzaKindSet, StreamCondition};
use testkit::server::{
    PASSWORD, ReceivedElement, StreamClient, TestServer, TestServerConfig, TlsClientSettings, run_until,
    run_until_idle,
};
use throng_core::effect::Effects;
use throng_core::hooks::{Flow, HandlerOutcome, Interest, OutgoingCtx, Phase, StopReason};
use throng_core::receipt::{ReceiptIssuer, receipt_pair};
use throng_core::session::outstanding::MAX_OUTSTANDING_STANZAS;
use throng_core::session::stream_management::ACK_RETRY_SECONDS;
use throng_core::session::{StreamManagementConfig, ToRewrite, flags};
use throng_core::{NodeLimits, SharedStanza};
use tokio::sync::Semaphore;

static SM: Feature = Feature {
    name: "sm",
    build: |builder: &mut FeatureBuilder<'_>| {
        let management = StreamManagementConfig {
            resume_seconds: 300,
            unacked_bytes: 20_000,
            location: "[2001:db8::1]:5222".into(),
        };
        builder.provide(management);
    },
    ..Feature::EMPTY
};

/// Enables acknowledgements without resumption.
static ONLY_ACKS: Feature = Feature {
    name: "acks",
    build: |builder: &mut FeatureBuilder<'_>| {
        let management =
            StreamManagementConfig { resume_seconds: 0, unacked_bytes: 20_000, location: String::new() };
        builder.provide(management);
    },
    ..Feature::EMPTY
};

/// Messages that contain `slow` wait until the test opens the gate.
static SLOW: Feature = Feature {
    name: "slow",
    build: |builder: &mut FeatureBuilder<'_>| {
        builder.outgoing(
            Phase::Police,
            Interest::kinds(StanzaKindSet::MESSAGES),
            |ctx: &mut OutgoingCtx<'_>| {
                if !String::from_utf8_lossy(ctx.stanza.bytes()).contains("slow") {
                    return Flow::Next;
                }
                Flow::Wait(Box::pin(async {
                    GATE.with(|gate| gate.clone()).acquire().await.expect("a gate").forget();
                    HandlerOutcome { flow: Flow::Stop(StopReason::Consumed), effects: Effects::default() }
                }))
            },
        );
    },
    ..Feature::EMPTY
};

/// Messages that contain `unsafe` get a receipt, which the test settles.
static RECEIPTS: Feature = Feature {
    name: "receipts",
    build: |builder: &mut FeatureBuilder<'_>| {
        builder.outgoing(
            Phase::Archive,
            Interest::kinds(StanzaKindSet::MESSAGES),
            |ctx: &mut OutgoingCtx<'_>| {
                if !String::from_utf8_lossy(ctx.stanza.bytes()).contains("unsafe") {
                    return Flow::Next;
                }
                let (issuer, receipt) = receipt_pair();
                ISSUERS.with_borrow_mut(|issuers| issuers.push(Some(issuer)));
                ctx.effects.receipt(ctx.stanza, receipt);
                Flow::Stop(StopReason::Consumed)
            },
        );
    },
    ..Feature::EMPTY
};

/// Settles the receipt of the message with this number.
fn settle(number: usize, outcome: Result<(), StanzaCondition>) {
    let issuer = ISSUERS.with_borrow_mut(|issuers| issuers[number].take()).expect("an open receipt");
    issuer.settle(outcome.map_err(StanzaError::new));
}

fn receipts() -> usize {
    ISSUERS.with_borrow(Vec::len)
}

thread_local! {
    static ISSUERS: RefCell<Vec<Option<ReceiptIssuer>>> = const { RefCell::new(Vec::new()) };
    static GATE: std::sync::Arc<Semaphore> = std::sync::Arc::new(Semaphore::new(0));
}

const NS: &str = "xmlns='urn:xmpp:sm:3'";

async fn start(change: impl FnOnce(&mut TestServerConfig)) -> TestServer {
    let mut setup = TestServerConfig { features: vec![&SM, &SLOW, &RECEIPTS], ..TestServerConfig::default() };
    change(&mut setup);
    let server = setup.start();
    server.create_user("juliet").await;
    server.create_user("romeo").await;
    server
}

fn failed(condition: &str) -> String {
    format!("<failed {NS}><{condition} xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></failed>")
}

/// Enables resumption; returns the identifier.
async fn enable(client: &mut StreamClient) -> String {
    client.send(format!("<enable {NS} resume='true'/>")).await;
    let enabled = client.element().await;
    assert_eq!(
        (enabled.name(), enabled.attr("resume")),
        ("enabled".into(), Some("true".into())),
        "{enabled:?}"
    );
    enabled.attr("id").expect("an identifier")
}

async fn authenticated(server: &TestServer, user: &str) -> StreamClient {
    let mut client = server.connect();
    client.open().await;
    client.authenticate(Mechanism::ScramSha1, user, PASSWORD).await.unwrap();
    client.open().await;
    client
}

async fn resume(client: &mut StreamClient, id: &str, h: u32) -> ReceivedElement {
    client.send(format!("<resume {NS} previd='{id}' h='{h}'/>")).await;
    client.element().await
}

fn number(seen: &ReceivedElement, name: &str) -> u32 {
    seen.attr(name).and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {name}: {}", seen.0))
}

//= https://xmpp.org/extensions/xep-0198.html#enable
//= type=test
//# Upon receiving the enable request, the server MUST reply with an <enabled/> element or a <failed/> element
//# qualified by the 'urn:xmpp:sm:3' namespace.
//= https://xmpp.org/extensions/xep-0198.html#enable
//= type=test
//# If the server allows session resumption, it MUST include a 'resume' attribute set to a value of "true" or "1".
//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# If the server will allow the stream to be resumed, it MUST include a 'resume' attribute set to "true" or "1" on
//# the <enabled/> element and MUST include an 'id' attribute that specifies an identifier for the stream.
//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# The SM-ID SHOULD NOT be longer than 4000 bytes.
#[tokio::test]
async fn section_3_enabled_contains_location_and_timeout() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send(format!("<enable {NS} resume='1' max='60'/>")).await;
    let enabled = juliet.element().await;
    assert_eq!(enabled.attr("max").as_deref(), Some("60"));
    assert_eq!(enabled.attr("location").as_deref(), Some("[2001:db8::1]:5222"));
    assert!(enabled.attr("id").is_some_and(|id| id.len() < 4000));
    for (max, granted) in [("1000000", "300"), ("0", "300"), ("-1", "300"), ("x", "300")] {
        let mut other = server.login("romeo", "").await;
        other.send(format!("<enable {NS} resume='true' max='{max}'/>")).await;
        assert_eq!(other.element().await.attr("max").as_deref(), Some(granted), "{max}");
    }
}

#[tokio::test]
async fn the_order_of_negotiation_is_enforced() {
    let server = start(|_| {}).await;
    let mut client = server.connect();
    client.open().await;
    for element in ["enable", "resume", "r", "a"] {
        client.send(format!("<{element} {NS}/>")).await;
        client.expect(&failed("unexpected-request")).await;
    }
    client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
    client.open().await;
    client.send(format!("<enable {NS}/>")).await;
    client.expect(&failed("unexpected-request")).await;
    for (element, condition) in [
        ("previd='x' h='0'", "item-not-found"),
        ("previd='00000000000000000000000000000000:balcony' h='0'", "item-not-found"),
        ("previd='x'", "bad-request"),
        ("h='1'", "bad-request"),
        ("previd='x' h='-1'", "bad-request"),
    ] {
        client.send(format!("<resume {NS} {element}/>")).await;
        client.expect(&failed(condition)).await;
    }
    client.bind("balcony").await.unwrap();
    for element in ["resume", "r", "a h='0'"] {
        client.send(format!("<{element} {NS}/>")).await;
        client.expect(&failed("unexpected-request")).await;
    }
    client.send(format!("<enable {NS}/>")).await;
    client.expect(&format!("<enabled {NS}/>")).await;
    client.send(format!("<enable {NS} resume='true'/>")).await;
    client.expect(&failed("unexpected-request")).await;
    client.send(format!("<enabled {NS}/>")).await;
    assert_eq!(client.element().await.name(), "a");
    client.expect_stream_error(StreamCondition::UnsupportedStanzaType).await;
}

//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# If the server does not support session resumption, it MUST return a <failed/> element, which SHOULD include an
//# error condition of <feature-not-implemented/>.
#[tokio::test]
async fn resumption_and_the_module_can_be_switched_off() {
    let server = start(|setup| setup.features = vec![&ONLY_ACKS]).await;
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send(format!("<enable {NS} resume='true'/>")).await;
    juliet.expect(&format!("<enabled {NS}/>")).await;
    let mut romeo = authenticated(&server, "romeo").await;
    romeo.send(format!("<resume {NS} previd='x' h='0'/>")).await;
    romeo.expect(&failed("feature-not-implemented")).await;
    let server = start(|setup| setup.features = vec![]).await;
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send(format!("<enable {NS}/>")).await;
    juliet.expect_stream_error(StreamCondition::UnsupportedStanzaType).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.2
//= type=test
//# MAY contain a child element for an application-specific error condition; this element MUST be qualified by an
//# application-defined namespace, and its structure is defined by that namespace
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.3.21
//= type=test
//# The error condition is not one of those defined by the other conditions in this list; this error condition
//# SHOULD NOT be used except in conjunction with an application-specific condition.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.4
//= type=test
//# The application-specific element SHOULD supplement or further qualify a defined element.
//= https://xmpp.org/extensions/xep-0198.html#acking
//= type=test
//# An <a/> element MUST possess an 'h' attribute.
//= https://xmpp.org/extensions/xep-0198.html#errors
//= type=test
//# the local entity SHOULD generate an undefined-condition stream error that includes a <handled-count-too-high/>
//# element
#[tokio::test]
async fn section_6_an_excessive_or_missing_count_ends_the_stream() {
    for (element, condition, more) in [
        ("<a xmlns='urn:xmpp:sm:3' h='1'/>", StreamCondition::UndefinedCondition, "h='1' send-count='0'"),
        ("<a xmlns='urn:xmpp:sm:3' h='4294967295'/>", StreamCondition::UndefinedCondition, "send-count='0'"),
        ("<a xmlns='urn:xmpp:sm:3'/>", StreamCondition::BadFormat, ""),
        ("<a xmlns='urn:xmpp:sm:3' h='x'/>", StreamCondition::BadFormat, ""),
    ] {
        let server = start(|_| {}).await;
        let mut juliet = server.login("juliet", "balcony").await;
        let id = enable(&mut juliet).await;
        juliet.send(element).await;
        assert_eq!(juliet.element().await.name(), "a");
        let error = juliet.expect_stream_error(condition).await;
        assert!(error.has(more), "{error:?}");
        assert!(more.is_empty() || error.has("<handled-count-too-high xmlns='urn:xmpp:sm:3'"));
        // A protocol violation ends the session.
        run_until_idle().await;
        assert_eq!(server.node.routing_table.sessions(), 0);
        let mut again = authenticated(&server, "juliet").await;
        assert_eq!(resume(&mut again, &id, 0).await.condition().as_deref(), Some("item-not-found"));
    }
}

//= https://xmpp.org/extensions/xep-0198.html#acking
//= type=test
//# When an <r/> element ("request") is received, the recipient MUST acknowledge it by sending an <a/> element to
//# the sender containing a value of 'h' that is equal to the number of stanzas handled by the recipient of the <r/>
//# element.
//= https://xmpp.org/extensions/xep-0198.html#acking
//= type=test
//# The response SHOULD be sent as soon as possible after receiving the <r/> element, and MUST NOT be withheld for
//# any condition other than a timeout.
#[tokio::test]
async fn a_count_too_high_in_resume_ends_only_the_new_stream() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    let mut attacker = authenticated(&server, "juliet").await;
    attacker.send(format!("<resume {NS} previd='{id}' h='1'/>")).await;
    let error = attacker.expect_stream_error(StreamCondition::UndefinedCondition).await;
    assert!(error.has("<handled-count-too-high "));
    juliet.send("<message to='romeo@example.com' type='headline'/>").await;
    juliet.send(format!("<r {NS}/>")).await;
    juliet.expect(&format!("<a {NS} h='1'/>")).await;
}

//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# it MUST return a <failed/> element, which SHOULD include an error condition of <item-not-found/>.
#[tokio::test]
async fn the_resumption_id_of_another_account_is_not_found() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    // Romeo has the same resource, with a stream of his own.
    let mut romeo = server.login("romeo", "balcony").await;
    enable(&mut romeo).await;
    let mut attacker = authenticated(&server, "romeo").await;
    assert_eq!(resume(&mut attacker, &id, 0).await.0.replace('"', "'"), failed("item-not-found"));
    // A wrong token for the right resource.
    let wrong = id.replace(|c: char| c.is_ascii_hexdigit(), "0");
    let mut own = authenticated(&server, "juliet").await;
    assert_eq!(resume(&mut own, &wrong, 0).await.condition().as_deref(), Some("item-not-found"));
    // Nothing is revealed about a stream that has ended.
    drop(juliet);
    run_until_idle().await;
    server.advance(301).await;
    let mut attacker = authenticated(&server, "romeo").await;
    let mut own = authenticated(&server, "juliet").await;
    assert_eq!(resume(&mut attacker, &id, 0).await.attr("h"), None);
    assert_eq!(resume(&mut own, &id, 0).await.attr("h").as_deref(), Some("0"));
}

//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# If the server can resume the former stream, it MUST return a <resumed/> element, which MUST include a 'previd'
//# attribute set to the SM-ID of the former stream and MUST also include an 'h' attribute set to the sequence
//# number of the last handled stanza sent over the former stream from the client to the server
#[tokio::test]
async fn a_stanza_counts_as_handled_after_it_is_queued_or_stored() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    juliet.send("<message id='1' to='romeo@example.com' type='headline'/><message id='slow'/>").await;
    juliet.send(format!("<r {NS}/>")).await;
    run_until_idle().await;
    juliet.expect(&format!("<a {NS} h='1'/>")).await;
    // Broken while the second stanza is being handled: resumption waits for it.
    drop(juliet);
    run_until_idle().await;
    let mut again = authenticated(&server, "juliet").await;
    again.send(format!("<resume {NS} previd='{id}' h='0'/>")).await;
    run_until_idle().await;
    assert_eq!(again.try_receive().await, None);
    GATE.with(|gate| gate.add_permits(1));
    again.expect(&format!("<resumed {NS} previd='{id}' h='2'/>")).await;
}

const UNSAFE: &str = "<message to='romeo@example.com' id='unsafe'/>";
const HEADLINE: &str = "<message to='romeo@example.com' type='headline'/>";

//= https://xmpp.org/extensions/xep-0198.html#acking
//= type=test
//# The response SHOULD be sent as soon as possible after receiving the <r/> element, and MUST NOT be withheld for
//# any condition other than a timeout.
#[tokio::test]
async fn section_4_a_request_is_answered_at_once_and_later_counts_are_announced_in_order() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    enable(&mut juliet).await;
    let from = receipts();
    juliet.send(format!("{HEADLINE}{UNSAFE}{UNSAFE}{HEADLINE}<r {NS}/>")).await;
    juliet.expect(&format!("<a {NS} h='1'/>")).await;
    settle(from + 1, Ok(()));
    run_until_idle().await;
    assert_eq!(juliet.try_receive().await, None, "the first one is not safe");
    settle(from, Ok(()));
    juliet.expect(&format!("<a {NS} h='4'/>")).await;
    // What needs no receipt is not announced.
    juliet.send(HEADLINE).await;
    run_until_idle().await;
    assert_eq!(juliet.try_receive().await, None);
    juliet.send(format!("<r {NS}/>")).await;
    juliet.expect(&format!("<a {NS} h='5'/>")).await;
}

#[tokio::test]
async fn a_receipt_that_fails_or_is_dropped_sends_the_sender_an_error_and_counts() {
    for managed in [true, false] {
        let server = start(|_| {}).await;
        let mut juliet = server.login("juliet", "balcony").await;
        if managed {
            enable(&mut juliet).await;
        }
        let from = receipts();
        juliet.send(format!("{UNSAFE}{UNSAFE}")).await;
        run_until_idle().await;
        settle(from, Err(StanzaCondition::ResourceConstraint));
        let (mut errors, mut counts) = (Vec::new(), Vec::new());
        for round in 1..=2 {
            if round == 2 {
                drop(ISSUERS.with_borrow_mut(|issuers| issuers[from + 1].take()));
            }
            while errors.len() < round || managed && counts.len() < round {
                let element = juliet.element().await;
                match element.name().as_str() {
                    "a" => counts.push(number(&element, "h")),
                    "r" => {}
                    _ => errors.push(element.condition().expect("an error")),
                }
            }
        }
        assert_eq!(errors, ["resource-constraint", "internal-server-error"]);
        assert_eq!(counts, if managed { vec![1, 2] } else { vec![] });
    }
}

#[tokio::test]
async fn while_a_stanza_waits_acknowledgements_and_pings_are_handled_and_other_stanzas_are_held() {
    let server = start(|_| {}).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    enable(&mut juliet).await;
    romeo.send("<message to='juliet@example.com/balcony' id='1'/>").await;
    assert_eq!(juliet.element().await.name(), "message");
    assert_eq!(juliet.element().await.name(), "r");
    juliet.send("<message id='slow'/><message to='romeo@example.com/orchard' id='held'/>").await;
    juliet.send(format!("<a {NS} h='1'/><iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>")).await;
    assert_eq!(juliet.element().await.attr("id").as_deref(), Some("p"));
    let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
    assert_eq!(juliet.element().await.name(), "r");
    juliet.send(format!("<a {NS} h='2'/><r {NS}/>")).await;
    juliet.expect(&format!("<a {NS} h='0'/>")).await;
    assert_eq!(
        account.session("balcony").unwrap().outbox.unacked_bytes(),
        0,
        "both acknowledgements were read"
    );
    assert_eq!(romeo.try_receive().await, None);
    GATE.with(|gate| gate.add_permits(1));
    assert_eq!(romeo.element().await.attr("id").as_deref(), Some("held"));
    juliet.expect(&format!("<a {NS} h='1'/>")).await;
    juliet.expect(&format!("<a {NS} h='3'/>")).await;
}

#[tokio::test]
async fn without_stream_management_the_server_answers_requests_after_earlier_messages_are_safe() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let from = receipts();
    juliet
        .send(format!("{UNSAFE}<iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq><message id='slow'/>"))
        .await;
    run_until_idle().await;
    assert_eq!(juliet.try_receive().await, None);
    settle(from, Err(StanzaCondition::ServiceUnavailable));
    assert_eq!(juliet.element().await.condition().as_deref(), Some("service-unavailable"));
    assert_eq!(juliet.element().await.attr("id").as_deref(), Some("p"));
    GATE.with(|gate| gate.add_permits(1));
}

#[tokio::test]
async fn a_closed_stream_waits_for_its_receipts() {
    for managed in [true, false] {
        let server = start(|_| {}).await;
        let mut juliet = server.login("juliet", "balcony").await;
        if managed {
            enable(&mut juliet).await;
        }
        let from = receipts();
        juliet.send(format!("{UNSAFE}</stream:stream>")).await;
        run_until_idle().await;
        assert_eq!(juliet.try_receive().await, None);
        settle(from, Err(StanzaCondition::ServiceUnavailable));
        let text = juliet.read_to_end().await;
        assert!(text.contains("<service-unavailable ") && text.ends_with("</stream:stream>"), "{text}");
        assert_eq!(text.contains("h='1'"), managed, "{text}");
    }
}

#[tokio::test]
async fn a_resumption_waits_for_receipts() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    let from = receipts();
    juliet.send(format!("{UNSAFE}{HEADLINE}")).await;
    run_until_idle().await;
    drop(juliet);
    run_until_idle().await;
    let mut again = authenticated(&server, "juliet").await;
    again.send(format!("<resume {NS} previd='{id}' h='0'/>")).await;
    run_until_idle().await;
    assert_eq!(again.try_receive().await, None);
    settle(from, Ok(()));
    again.expect(&format!("<resumed {NS} previd='{id}' h='2'/>")).await;
}

#[tokio::test]
async fn outstanding_receipts_are_bounded_and_hold_back_the_stream() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    enable(&mut juliet).await;
    let from = receipts();
    juliet.send(UNSAFE.repeat(MAX_OUTSTANDING_STANZAS + 2)).await;
    run_until_idle().await;
    assert_eq!(receipts() - from, MAX_OUTSTANDING_STANZAS);
    juliet.send(format!("<r {NS}/>")).await;
    juliet.expect(&format!("<a {NS} h='0'/>")).await;
    settle(from, Ok(()));
    juliet.expect(&format!("<a {NS} h='1'/>")).await;
    run_until_idle().await;
    assert_eq!(receipts() - from, MAX_OUTSTANDING_STANZAS + 1);
}

//= https://xmpp.org/extensions/xep-0198.html#resumption
//= type=test
//# If the former stream is resumed and the server still has the stream for the previously-identified session open
//# at this time, the server SHOULD send a 'conflict' stream error and close that stream.
#[tokio::test]
async fn a_live_stream_is_taken_over_after_its_pending_stanza() {
    let server = start(|_| {}).await;
    let mut old = server.login("juliet", "balcony").await;
    let id = enable(&mut old).await;
    old.send("<message id='slow'/><message to='romeo@example.com' type='headline'/>").await;
    run_until_idle().await;
    let mut new = authenticated(&server, "juliet").await;
    new.send(format!("<resume {NS} previd='{id}' h='0'/>")).await;
    // A second request to resume replaces the first.
    let mut newest = authenticated(&server, "juliet").await;
    newest.send(format!("<resume {NS} previd='{id}' h='0'/>")).await;
    assert_eq!(new.element().await.condition().as_deref(), Some("item-not-found"));
    GATE.with(|gate| gate.add_permits(1));
    newest.expect(&format!("<resumed {NS} previd='{id}' h='1'/>")).await;
    old.expect_stream_error(StreamCondition::Conflict).await;
    // The connection that came too late may still bind.
    new.bind("other").await.unwrap();
    assert_eq!(server.node.routing_table.sessions(), 2);
    drop((old, new, newest));
    run_until_idle().await;
    // The session without stream management has ended, the other is detached.
    assert_eq!((server.node.routing_table.sessions(), server.node.outboxes.len()), (1, 1));
}

#[tokio::test]
async fn a_cancelled_takeover_leaves_the_session_unchanged() {
    let server = start(|_| {}).await;
    let mut old = server.login("juliet", "balcony").await;
    let id = enable(&mut old).await;
    old.send("<message id='slow'/>").await;
    run_until_idle().await;
    let mut new = authenticated(&server, "juliet").await;
    new.send(format!("<resume {NS} previd='{id}' h='0'/>")).await;
    let seconds = server.node.limits().negotiation_timeout_seconds;
    server.advance(seconds).await;
    new.expect_stream_error(StreamCondition::ConnectionTimeout).await;
    drop(new);
    GATE.with(|gate| gate.add_permits(1));
    run_until_idle().await;
    old.send(format!("<r {NS}/>")).await;
    old.expect(&format!("<a {NS} h='1'/>")).await;
    // The same with a detached session.
    drop(old);
    run_until_idle().await;
    let mut new = authenticated(&server, "juliet").await;
    new.send(format!("<resume {NS} previd='{id}' h='0'/>")).await;
    drop(new);
    run_until_idle().await;
    assert_eq!((server.node.routing_table.sessions(), server.node.outboxes.len()), (1, 1));
    let mut last = authenticated(&server, "juliet").await;
    assert_eq!(resume(&mut last, &id, 0).await.name(), "resumed");
}

#[tokio::test]
async fn a_session_goes_from_tcp_to_tls_and_back() {
    let server = start(|_| {}).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.connect_tcp().await;
    juliet.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    for round in 0..3 {
        drop(juliet);
        romeo.send(format!("<message to='juliet@example.com/balcony' id='{round}'/>")).await;
        romeo.sync().await;
        if round == 1 {
            juliet = server.connect_tcp().await;
        } else {
            juliet = server.connect_direct().await;
            juliet.handshake(&TlsClientSettings::default()).await.unwrap();
        }
        juliet.open().await;
        juliet.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
        juliet.open().await;
        assert_eq!(resume(&mut juliet, &id, round).await.name(), "resumed");
        assert_eq!(juliet.element().await.attr("id"), Some(round.to_string()));
        assert_eq!(juliet.element().await.name(), "r");
    }
    assert_eq!(
        (server.connection_limiter.counts().connections, server.connection_limiter.counts().unauthenticated),
        (2, 0)
    );
}

//= https://xmpp.org/extensions/xep-0198.html#closure
//= type=test
//# If the stream is not cleanly closed then the server SHOULD consider the stream to be unfinished (even if the
//# client closes its TCP connection to the server) and SHOULD maintain the session on behalf of the client for a
//# limited amount of time.
#[tokio::test]
async fn a_session_that_is_not_resumed_ends_at_its_timeout_and_with_the_node() {
    let server = start(|_| {}).await;
    for (how, seconds) in [("time", 300), ("request", 0), ("shutdown", 0), ("close", 0)] {
        let mut juliet = server.login("juliet", "balcony").await;
        let id = enable(&mut juliet).await;
        if how == "close" {
            juliet.send("</stream:stream>").await;
            assert_eq!(juliet.element().await.name(), "a");
            juliet.expect_end().await;
        }
        drop(juliet);
        run_until_idle().await;
        if how != "close" {
            assert_eq!((server.node.routing_table.sessions(), server.node.outboxes.len()), (1, 1), "{how}");
        }
        match how {
            "time" => {
                server.advance(seconds - 1).await;
                assert_eq!(server.node.routing_table.sessions(), 1);
                server.advance(1).await;
            }
            "request" => {
                let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
                account.session("balcony").unwrap().outbox.close(StreamCondition::NotAuthorized.into());
            }
            "shutdown" => server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into()),
            _ => {}
        }
        run_until_idle().await;
        assert_eq!((server.node.routing_table.sessions(), server.node.outboxes.len()), (0, 0), "{how}");
        let mut again = authenticated(&server, "juliet").await;
        let answer = resume(&mut again, &id, 0).await;
        assert_eq!(
            (answer.condition().as_deref(), number(&answer, "h")),
            (Some("item-not-found"), 0),
            "{how}"
        );
        again.bind("balcony").await.unwrap();
    }
}

#[tokio::test]
async fn a_peer_that_does_not_acknowledge_is_lost_and_may_resume() {
    let server = start(|_| {}).await;
    let timeout_seconds = server.node.limits().ping_timeout_seconds;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    romeo.send("<message to='juliet@example.com/balcony' id='1'/>").await;
    romeo.sync().await;
    assert_eq!(juliet.element().await.name(), "message");
    assert_eq!(juliet.element().await.name(), "r");
    // Sending a stanza is not an acknowledgement.
    server.advance(timeout_seconds - 1).await;
    juliet.send("<message to='romeo@example.com' type='headline'/>").await;
    run_until_idle().await;
    server.advance(1).await;
    juliet.expect_stream_error(StreamCondition::ConnectionTimeout).await;
    assert_eq!(server.node.routing_table.sessions(), 2);
    let mut again = authenticated(&server, "juliet").await;
    assert_eq!(number(&resume(&mut again, &id, 0).await, "h"), 1);
    assert_eq!(again.element().await.attr("id").as_deref(), Some("1"));
    assert_eq!(again.element().await.name(), "r");
    again.send(format!("<a {NS} h='1'/>")).await;
    run_until_idle().await;
    server.advance(timeout_seconds + 1).await;
    // An acknowledgement ends the wait: no more requests until the connection is idle for long.
    again.send(format!("<r {NS}/>")).await;
    again.expect(&format!("<a {NS} h='1'/>")).await;
}

#[tokio::test]
async fn a_peer_busy_with_a_large_message_gets_one_ack_request_until_it_makes_progress() {
    let server = start(|_| {}).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    enable(&mut juliet).await;
    let body = "x".repeat(30_000);
    romeo
        .send(format!("<message to='juliet@example.com/balcony' id='1'><body>{body}</body></message>"))
        .await;
    romeo.sync().await;
    assert_eq!(juliet.element().await.name(), "message");
    // She answers each request immediately, and truthfully: the message is not handled yet.
    assert_eq!(juliet.element().await.name(), "r");
    for _ in 0..200 {
        juliet.send(format!("<a {NS} h='0'/>")).await;
    }
    juliet.send(format!("<r {NS}/>")).await;
    juliet.expect(&format!("<a {NS} h='0'/>")).await;
    // Nothing more is sent to her until she acknowledges; requests are repeated, but not often.
    romeo.send("<message to='juliet@example.com/balcony' id='2'/>").await;
    romeo.sync().await;
    for _ in 0..3 {
        server.advance(ACK_RETRY_SECONDS).await;
        assert_eq!(juliet.element().await.name(), "r");
        juliet.send(format!("<a {NS} h='0'/>")).await;
        run_until_idle().await;
    }
    juliet.send(format!("<a {NS} h='1'/>")).await;
    assert_eq!(juliet.element().await.attr("id").as_deref(), Some("2"));
    assert_eq!(juliet.element().await.name(), "r");
    // A client that does not answer is lost as before.
    server.advance(server.node.limits().ping_timeout_seconds).await;
    juliet.expect_stream_error(StreamCondition::ConnectionTimeout).await;
}

#[tokio::test]
async fn unacked_stanzas_are_bounded_and_do_not_affect_other_sessions() {
    let server = start(|setup| {
        setup.limits = NodeLimits { queue_message_bytes: 30_000, ..NodeLimits::default() };
    })
    .await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    let body = "x".repeat(1000);
    let chat = |id: u32| {
        let to = "juliet@example.com/balcony";
        format!("<message to='{to}' type='chat' id='{id}'><body>{body}</body></message>")
    };
    let mut refused = Vec::new();
    for id in 0..100 {
        romeo.send(chat(id)).await;
        refused.extend(romeo.sync().await);
    }
    assert!(refused.len() > 40);
    assert!(refused.iter().all(|r| r.condition().as_deref() == Some("service-unavailable")));
    let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
    let outbox = account.session("balcony").unwrap().outbox.clone();
    assert!(outbox.unacked_bytes() <= 20_000 + 1300, "{}", outbox.unacked_bytes());
    assert!(outbox.queued_bytes() <= 30_000);
    // With acknowledgements the rest arrives, in order.
    let (mut got, mut next) = (0, 0);
    while got < 100 - refused.len() {
        let seen = juliet.element().await;
        match seen.name().as_str() {
            "r" => juliet.send(format!("<a {NS} h='{got}'/>")).await,
            _ => {
                let id = number(&seen, "id");
                assert!(id >= next);
                (got, next) = (got + 1, id + 1);
            }
        }
    }
    juliet.send(format!("<a {NS} h='{got}'/>")).await;
    run_until_idle().await;
    // A detached session has the same bounds, and exceeding them does not end it: stanzas without room bounce, since
    // there is no offline storage here.
    drop(juliet);
    run_until_idle().await;
    let mut refused = Vec::new();
    for id in 0..60 {
        romeo.send(chat(id)).await;
        refused.extend(romeo.sync().await);
    }
    assert!((40..60).contains(&refused.len()), "{}", refused.len());
    let ids: Vec<u32> = refused.iter().map(|r| number(r, "id")).collect();
    assert!(ids.is_sorted() && ids[0] > 0, "{ids:?}");
    run_until_idle().await;
    let waiting = server.node.backlog.bytes();
    assert!((10_000..=15_000).contains(&waiting), "one sender has half of the queue: {waiting}");
    let mut again = authenticated(&server, "juliet").await;
    resume(&mut again, &id, u32::try_from(got).unwrap()).await;
    for id in 0..ids[0] {
        assert_eq!(number(&again.element().await, "id"), id);
    }
    run_until_idle().await;
    assert_eq!(server.node.backlog.bytes(), 0);
}

#[tokio::test]
async fn a_full_account_evicts_its_oldest_detached_session() {
    let server =
        start(|setup| setup.limits = NodeLimits { sessions_per_account: 3, ..NodeLimits::default() }).await;
    let mut ids = Vec::new();
    for resource in ["a", "b", "c", "d"] {
        let mut juliet = server.login("juliet", resource).await;
        ids.push(enable(&mut juliet).await);
        drop(juliet);
        run_until_idle().await;
    }
    assert_eq!((server.node.routing_table.sessions(), server.node.outboxes.len()), (3, 3));
    for (id, found) in ids.iter().zip(["failed", "resumed", "resumed", "resumed"]) {
        assert_eq!(resume(&mut authenticated(&server, "juliet").await, id, 0).await.name(), found);
    }
}

#[tokio::test]
async fn a_resumed_stream_is_active_again() {
    let server = start(|_| {}).await;
    let mut juliet = server.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
    let session = account.session("balcony").unwrap();
    session.flags.set(flags::INACTIVE | flags::CARBONS);
    drop(juliet);
    run_until_idle().await;
    assert!(session.flags.has(flags::INACTIVE | flags::STREAM_MANAGEMENT));
    let mut juliet = authenticated(&server, "juliet").await;
    assert_eq!(resume(&mut juliet, &id, 0).await.name(), "resumed");
    assert!(
        !session.flags.has(flags::INACTIVE) && session.flags.has(flags::CARBONS | flags::STREAM_MANAGEMENT)
    );
    assert_eq!(server.node.metrics.sessions_resumed.get(), 1);
}

#[tokio::test]
async fn a_storm_of_resumptions_queries_the_store_once_each() {
    let server = start(|_| {}).await;
    let mut ids = Vec::new();
    for n in 0..20 {
        let mut client = server.login("juliet", &format!("r{n}")).await;
        ids.push(enable(&mut client).await);
    }
    run_until_idle().await;
    server.store_calls();
    let mut waiting = Vec::new();
    for id in &ids {
        let mut client = authenticated(&server, "juliet").await;
        client.send(format!("<resume {NS} previd='{id}' h='0'/>")).await;
        waiting.push(client);
    }
    for client in &mut waiting {
        assert_eq!(client.element().await.name(), "resumed");
    }
    let calls = server.store_calls();
    assert_eq!(calls.len(), ids.len(), "a login each and nothing else: {calls:?}");
}

#[tokio::test]
async fn a_broken_socket_is_handled_like_a_broken_pipe() {
    let server = start(|_| {}).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.connect_tcp().await;
    juliet.login("juliet", "balcony").await;
    let id = enable(&mut juliet).await;
    romeo.send("<message to='juliet@example.com/balcony' type='chat' id='0'/>").await;
    romeo.sync().await;
    drop(juliet);
    run_until(|| server.node.metrics.sessions_detached.get() == 1).await;
    romeo.send("<message to='juliet@example.com/balcony' type='chat' id='1'/>").await;
    romeo.sync().await;
    let mut again = authenticated(&server, "juliet").await;
    assert_eq!(resume(&mut again, &id, 0).await.name(), "resumed");
    for id in ["0", "1"] {
        assert_eq!(again.element().await.attr("id").as_deref(), Some(id));
    }
}

#[tokio::test]
async fn section_5_a_stream_that_lost_presence_while_detached_cannot_be_resumed() {
    for lost in [false, true] {
        let server = start(|_| {}).await;
        let mut juliet = server.login("juliet", "balcony").await;
        let id = enable(&mut juliet).await;
        let account = server.node.routing_table.find(server.address("juliet").as_ref()).unwrap();
        let session = account.session("balcony").unwrap();
        drop(juliet);
        run_until_idle().await;
        let status = "x".repeat(4_000);
        for n in 0..if lost { 200 } else { 4 } {
            let presence =
                format!("<presence from='friend{n}@example.com/1'><status>{status}</status></presence>");
            // As a broadcast to subscribers.
            server.node.enqueue(&session, SharedStanza::parse(presence.as_bytes()).unwrap(), ToRewrite::Bare);
        }
        run_until_idle().await;
        assert_eq!(server.node.routing_table.sessions(), usize::from(!lost));
        let mut again = authenticated(&server, "juliet").await;
        let answer = resume(&mut again, &id, 0).await;
        if lost {
            assert_eq!(answer.condition().as_deref(), Some("item-not-found"));
            continue;
        }
        assert_eq!(answer.name(), "resumed");
        let mut friends = 0;
        while friends < 4 {
            friends += u32::from(again.element().await.name() == "presence");
        }
    }
}
