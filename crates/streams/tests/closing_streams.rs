//! Tests of streams that end, or are not read, while stanzas of their clients are not safe yet: XEP-0198 (1.6.3), sections
//! 4, 5 and 7.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use feature_api::feature::{Feature, FeatureBuilder};
use sasl::Mechanism;
use stanza::{PresenceType, StanzaCondition, StanzaError, StanzaKind, StanzaKindSet, StreamCondition};
use testkit::server::{PASSWORD, StreamClient, TestServer, TestServerConfig, run_until_idle};
use throng_core::hooks::{Flow, Interest, OutgoingCtx, Phase, StopReason};
use throng_core::receipt::{ReceiptIssuer, receipt_pair};
use throng_core::session::outstanding::MAX_OUTSTANDING_STANZAS;
use throng_core::session::{StreamManagementConfig, ToRewrite};
use throng_core::{Session, SharedStanza};

const NS: &str = "xmlns='urn:xmpp:sm:3'";
/// A message with a receipt, which the test settles.
const UNSAFE: &str = "<message to='romeo@example.com' type='chat'><body>unsafe</body></message>";
const TO_JULIET: &str = "<message to='juliet@example.com/balcony' type='headline'><body>x</body></message>";

/// A stanza that ends the stream (RFC 6120, section 8.1.2.1).
const FORGED: &str = "<message from='romeo@example.com' to='juliet@example.com'/>";

static FEATURE: Feature = Feature {
    name: "receipts",
    build: |builder: &mut FeatureBuilder<'_>| {
        let location = String::new();
        builder.provide(StreamManagementConfig { resume_seconds: 300, unacked_bytes: 20_000, location });
        builder.outgoing(
            Phase::Archive,
            Interest::kinds(StanzaKindSet::MESSAGES),
            |ctx: &mut OutgoingCtx<'_>| {
                if !String::from_utf8_lossy(ctx.stanza.bytes()).contains("unsafe") {
                    return Flow::Next;
                }
                let (issuer, receipt) = receipt_pair();
                ISSUERS.with_borrow_mut(|issuers| issuers.push(issuer));
                ctx.effects.receipt(ctx.stanza, receipt);
                Flow::Stop(StopReason::Consumed)
            },
        );
        builder.outgoing(
            Phase::Archive,
            Interest::kinds(StanzaKindSet::PRESENCE),
            |ctx: &mut OutgoingCtx<'_>| {
                PRESENCE.with_borrow_mut(|presence| presence.push(ctx.stanza.kind()));
                if PRESENCE_PANICS.get() {
                    std::panic::panic_any(PanicsWhenDropped);
                }
                Flow::Next
            },
        );
    },
    ..Feature::EMPTY
};

thread_local! {
    static PRESENCE_PANICS: Cell<bool> = const { Cell::new(false) };
    static PRESENCE: RefCell<Vec<StanzaKind>> = const { RefCell::new(Vec::new()) };
    static ISSUERS: RefCell<Vec<ReceiptIssuer>> = const { RefCell::new(Vec::new()) };
}

/// Payload of a panic that the chain does not catch.
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        panic!("a test");
    }
}

/// Fulfils the open receipts.
async fn settle_all() {
    ISSUERS.take().into_iter().for_each(|issuer| issuer.settle(Ok(())));
    run_until_idle().await;
}

/// A server, juliet with a stream that can be resumed, and its identifier.
async fn start() -> (TestServer, StreamClient, String) {
    let server = TestServerConfig { features: vec![&FEATURE], ..TestServerConfig::default() }.start();
    server.create_user("juliet").await;
    server.create_user("romeo").await;
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send(format!("<enable {NS} resume='true'/>")).await;
    let id = juliet.element().await.attr("id").expect("an identifier");
    (server, juliet, id)
}

fn session(server: &TestServer) -> Option<Arc<Session>> {
    server.node.routing_table.find(server.address("juliet").as_ref())?.session("balcony")
}

/// A connection that requests the session of a stream.
async fn request_resumption(server: &TestServer, id: &str) -> StreamClient {
    let mut client = server.connect();
    client.open().await;
    client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
    client.open().await;
    client.send(format!("<resume {NS} previd='{id}' h='0'/>")).await;
    run_until_idle().await;
    client
}

fn not_found(h: u32) -> String {
    format!("<failed {NS} h='{h}'><item-not-found xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></failed>")
}

#[tokio::test]
async fn section_7_a_stream_that_its_client_has_closed_is_not_resumable_if_its_connection_breaks() {
    let (server, mut juliet, id) = start().await;
    juliet.send(format!("{UNSAFE}</stream:stream>")).await;
    run_until_idle().await;
    drop(juliet);
    // Writing to her fails.
    let bound = session(&server).expect("a session");
    let response = SharedStanza::parse(b"<iq type='result' id='1'/>").unwrap();
    assert!(server.node.enqueue(&bound, response, ToRewrite::None));
    run_until_idle().await;
    assert!(session(&server).is_none(), "she is offline");
    settle_all().await;
    request_resumption(&server, &id).await.expect(&not_found(1)).await;
}

#[tokio::test]
async fn section_7_a_request_to_resume_a_stream_that_is_being_closed_fails_with_its_final_count() {
    let (server, mut juliet, id) = start().await;
    juliet.send(format!("{UNSAFE}</stream:stream>")).await;
    run_until_idle().await;
    let mut again = request_resumption(&server, &id).await;
    assert_eq!(again.try_receive().await, None, "the count is not known");
    settle_all().await;
    let text = juliet.read_to_end().await;
    assert!(
        text.contains("h='1'") && text.ends_with("</stream:stream>") && !text.contains("conflict"),
        "{text}"
    );
    again.expect(&not_found(1)).await;
}

#[tokio::test]
async fn a_stream_that_the_server_closes_ends_with_a_count_that_includes_what_becomes_safe() {
    let (server, mut juliet, _) = start().await;
    juliet.send(UNSAFE.repeat(2)).await;
    run_until_idle().await;
    server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into());
    run_until_idle().await;
    juliet.send(UNSAFE).await;
    assert_eq!(juliet.try_receive().await, None);
    settle_all().await;
    let text = juliet.read_to_end().await;
    assert!(text.contains("h='2'") && text.contains("<system-shutdown "), "{text}");
    assert!(session(&server).is_none());
}

#[tokio::test]
async fn a_stream_does_not_wait_long_for_receipts_when_it_is_closed() {
    for (end, seconds) in [("", 3), ("</stream:stream>", 15), (FORGED, 3)] {
        let (server, mut juliet, id) = start().await;
        juliet.send(UNSAFE.repeat(2)).await;
        run_until_idle().await;
        if end.is_empty() {
            server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into());
        } else {
            juliet.send(end).await;
        }
        run_until_idle().await;
        server.advance(seconds - 1).await;
        assert!(session(&server).is_some());
        server.advance(1).await;
        let text = juliet.read_to_end().await;
        assert!(text.contains("h='0'") && text.ends_with("</stream:stream>"), "{text}");
        assert!(session(&server).is_none());
        settle_all().await;
        request_resumption(&server, &id).await.expect(&not_found(2)).await;
    }
}

#[tokio::test]
async fn section_5_the_count_of_a_detached_session_that_ends_includes_what_becomes_safe_later() {
    let (server, mut juliet, id) = start().await;
    juliet.send(UNSAFE.repeat(2)).await;
    run_until_idle().await;
    drop(juliet);
    run_until_idle().await;
    session(&server).expect("detached").outbox.close(StreamCondition::NotAuthorized.into());
    run_until_idle().await;
    assert!(session(&server).is_none());
    settle_all().await;
    request_resumption(&server, &id).await.expect(&not_found(2)).await;
}

#[tokio::test]
async fn a_client_whose_stream_is_not_read_is_not_disconnected_for_its_silence() {
    let (server, mut juliet, _) = start().await;
    let mut romeo = server.login("romeo", "orchard").await;
    romeo.send(TO_JULIET).await;
    assert_eq!(juliet.element().await.name(), "message");
    assert_eq!(juliet.element().await.name(), "r");
    // More than may be unfinished: her acknowledgement is not read.
    juliet.send(UNSAFE.repeat(4 * MAX_OUTSTANDING_STANZAS)).await;
    juliet.send(format!("<a {NS} h='1'/>")).await;
    run_until_idle().await;
    let limits = server.node.limits();
    for seconds in [limits.ping_timeout_seconds + 1, limits.idle_ping_seconds, limits.ping_timeout_seconds] {
        server.advance(seconds).await;
        run_until_idle().await;
    }
    let bound = session(&server).expect("a session");
    assert!(!bound.outbox.is_detached() && bound.outbox.unacked_bytes() > 0);
    while bound.outbox.handled_count() < 4 * MAX_OUTSTANDING_STANZAS as u32 {
        settle_all().await;
    }
    assert!(!bound.outbox.is_detached() && bound.outbox.unacked_bytes() == 0, "her acknowledgement was read");
    // Silence has a meaning again.
    romeo.send(TO_JULIET).await;
    run_until_idle().await;
    server.advance(limits.ping_timeout_seconds).await;
    assert!(bound.outbox.is_detached());
}

#[tokio::test]
async fn a_stream_that_ends_while_its_input_is_paused_does_not_wait_longer_for_receipts() {
    let (server, mut juliet, _) = start().await;
    juliet.send(UNSAFE.repeat(MAX_OUTSTANDING_STANZAS)).await;
    // Held, and more than may be held.
    juliet.send(format!("{FORGED}{}", TO_JULIET.repeat(1000))).await;
    run_until_idle().await;
    let first = ISSUERS.with_borrow_mut(|issuers| issuers.remove(0));
    first.settle(Ok(()));
    run_until_idle().await;
    server.advance(2).await;
    assert!(session(&server).is_some());
    server.advance(1).await;
    let text = juliet.read_to_end().await;
    assert!(text.contains("h='1'") && text.contains("<invalid-from "), "{text}");
    assert!(session(&server).is_none());
    settle_all().await;
}

#[tokio::test]
async fn a_stream_that_is_closed_and_not_read_does_not_wait_longer_for_receipts() {
    let (server, ..) = start().await;
    let mut juliet = server.connect_with(1024);
    juliet.login("juliet", "balcony").await;
    juliet.send(format!("{UNSAFE}</stream:stream>")).await;
    run_until_idle().await;
    let bound = session(&server).expect("a session");
    let response = format!("<iq type='result' id='1'><x>{}</x></iq>", "x".repeat(4000));
    assert!(server.node.enqueue(&bound, SharedStanza::parse(response.as_bytes()).unwrap(), ToRewrite::None));
    run_until_idle().await;
    server.advance(14).await;
    assert!(session(&server).is_some());
    server.advance(1).await;
    assert!(session(&server).is_none());
    settle_all().await;
}

#[tokio::test]
async fn a_client_that_has_closed_its_stream_gets_errors_and_no_messages_while_it_waits_for_receipts() {
    let (server, ..) = start().await;
    for managed in [false, true] {
        let mut romeo = server.login("romeo", "orchard").await;
        let mut juliet = server.login("juliet", "balcony").await;
        if managed {
            juliet.send(format!("<enable {NS}/>")).await;
            juliet.element().await;
        }
        juliet.send(format!("{}</stream:stream>", UNSAFE.repeat(2))).await;
        run_until_idle().await;
        let late = "<message to='juliet@example.com/balcony' type='chat' id='1'><body>late</body></message>";
        romeo.send(late).await;
        run_until_idle().await;
        assert_eq!(romeo.try_receive().await, None, "her session is there");
        let first = ISSUERS.with_borrow_mut(|issuers| issuers.remove(0));
        first.settle(Err(StanzaError::new(StanzaCondition::ResourceConstraint)));
        settle_all().await;
        let text = juliet.read_to_end().await;
        assert!(text.contains("<resource-constraint ") && !text.contains("late"), "{text}");
        let returned = romeo.element().await;
        assert_eq!(returned.attr("type").as_deref(), Some("error"), "it is rerouted, and nothing stores it");
    }
}

#[tokio::test]
async fn rfc_6121_section_4_5_2_a_client_that_closes_its_stream_is_unavailable_before_its_receipts_are_fulfilled()
 {
    for end in ["</stream:stream>", FORGED] {
        let (server, mut juliet, _) = start().await;
        PRESENCE.take();
        let bound = session(&server).expect("a session");
        bound.set_available(SharedStanza::parse(b"<presence/>").unwrap(), 0);
        juliet.send(format!("{UNSAFE}{end}")).await;
        run_until_idle().await;
        assert_eq!(PRESENCE.take(), [StanzaKind::Presence(PresenceType::Unavailable)]);
        assert!(session(&server).is_some());
        settle_all().await;
        let text = juliet.read_to_end().await;
        assert!(text.contains("h='1'") && text.ends_with("</stream:stream>"), "{text}");
    }
}

#[tokio::test]
async fn a_closing_stream_ends_in_time_with_an_error_if_its_unavailable_presence_causes_a_panic() {
    for end in ["</stream:stream>", FORGED] {
        let (server, mut juliet, _) = start().await;
        PRESENCE.take();
        let bound = session(&server).expect("a session");
        bound.set_available(SharedStanza::parse(b"<presence/>").unwrap(), 0);
        PRESENCE_PANICS.set(true);
        juliet.send(format!("{UNSAFE}{end}")).await;
        run_until_idle().await;
        assert_eq!(PRESENCE.take(), [StanzaKind::Presence(PresenceType::Unavailable)], "once");
        server.advance(3).await;
        PRESENCE_PANICS.set(false);
        let text = juliet.read_to_end().await;
        assert!(text.contains("<internal-server-error ") && text.ends_with("</stream:stream>"), "{text}");
        assert!(session(&server).is_none());
        settle_all().await;
    }
}
