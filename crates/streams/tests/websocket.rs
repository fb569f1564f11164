//! Tests of streams over WebSocket as clients see them: RFC 7395, sections 3.3 to 3.10. All scenarios also run over
//! WebSocket; this file has what differs from TCP.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use feature_api::feature::{Feature, FeatureBuilder};
use sasl::Mechanism;
use stanza::StreamCondition;
use testkit::server::{PASSWORD, STREAM_HEADER, StreamClient, TestServer, TestServerConfig, run_until_idle};
use throng_core::session::StreamManagementConfig;
use throng_streams::TlsPolicy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

static SM: Feature = Feature {
    name: "sm",
    build: |builder: &mut FeatureBuilder<'_>| {
        let management =
            StreamManagementConfig { resume_seconds: 300, unacked_bytes: 20_000, location: String::new() };
        builder.provide(management);
    },
    ..Feature::EMPTY
};

const FRAMED_OPEN: &str =
    "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='example.com' version='1.0'/>";
const CLOSE: &str = "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>";

async fn start(setup: TestServerConfig) -> TestServer {
    let server = TestServerConfig { features: vec![&SM], ..setup }.start();
    server.create_user("juliet").await;
    server.create_user("romeo").await;
    server
}

/// A short client frame.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    [&[first, 0x80 | payload.len() as u8, 0, 0, 0, 0][..], payload].concat()
}

/// Frames that the server sent until it closed the connection: first bytes and payloads.
async fn rest(pipe: &mut net::Pipe) -> Vec<(u8, String)> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes).await.unwrap();
    let (mut frames, mut rest) = (Vec::new(), &bytes[..]);
    while let [first, length, after @ ..] = rest {
        let (length, after) = match length {
            126 => (usize::from(u16::from_be_bytes([after[0], after[1]])), &after[2..]),
            short => (usize::from(*short), after),
        };
        let (payload, after) = after.split_at(length);
        let text = match first {
            0x88 => u16::from_be_bytes(payload.try_into().unwrap()).to_string(),
            _ => String::from_utf8(payload.to_vec()).unwrap(),
        };
        frames.push((*first, text));
        rest = after;
    }
    frames
}

#[tokio::test]
async fn starttls_is_neither_offered_nor_accepted() {
    let server = start(TestServerConfig::default()).await;
    let mut client = server.connect_websocket();
    let (_, features) = client.open().await;
    assert!(!features.has("starttls"), "{features:?}");
    assert!(features.has(">SCRAM-SHA-256<") && !features.has(">PLAIN<") && !features.has("urn:xmpp:sasl:2"));
    client.send("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>").await;
    client.expect("<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>").await;
    client.expect_end().await;
    // Encryption below the WebSocket counts as TLS.
    let server = start(TestServerConfig { websocket: true, ..TestServerConfig::default() }).await;
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(!features.has("starttls") && features.has(">PLAIN<"));
    client.authenticate(Mechanism::Plain, "juliet", PASSWORD).await.unwrap();
}

#[tokio::test]
async fn where_tls_is_required_a_plain_websocket_cannot_log_in() {
    let mut setup = TestServerConfig::default();
    setup.policy.tls = TlsPolicy::Required;
    let server = start(setup).await;
    let mut client = server.connect_websocket();
    client.send(STREAM_HEADER).await;
    let error = client.expect_stream_error(StreamCondition::PolicyViolation).await;
    assert!(error.has("wss"), "{error:?}");
    let mut setup = TestServerConfig { websocket: true, ..TestServerConfig::default() };
    setup.policy.tls = TlsPolicy::Required;
    start(setup).await.login("juliet", "page").await;
}

#[tokio::test]
async fn messages_cross_between_websocket_and_tcp() {
    let server = start(TestServerConfig::default()).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.connect_websocket();
    juliet.login("juliet", "balcony").await;
    juliet
        .send("<message xmlns='jabber:client' to='romeo@example.com/orchard'><body>Ay me!</body></message>")
        .await;
    // On TCP the stream header has declared it (RFC 6120, section 4.8.2).
    let expected = "<message from='juliet@example.com/balcony' to='romeo@example.com/orchard'><body>Ay me!</body></message>";
    assert_eq!(romeo.element().await.0, expected);
    romeo.send("<message to='juliet@example.com/balcony'><body>She speaks</body></message>").await;
    assert_eq!(juliet.element().await.all("body"), ["She speaks"]);
}

async fn enabled(client: &mut StreamClient) -> String {
    client.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
    client.element().await.attr("id").expect("an identifier")
}

/// RFC 7395, section 3.10: the same stream on another connection, on any transport.
#[tokio::test]
async fn a_session_moves_from_tcp_to_websocket_and_back() {
    let server = start(TestServerConfig::default()).await;
    let mut romeo = server.login("romeo", "orchard").await;
    let mut juliet = server.login("juliet", "balcony").await;
    let id = enabled(&mut juliet).await;
    for (turn, websocket) in [(0, true), (1, true), (2, false)] {
        drop(juliet);
        run_until_idle().await;
        romeo.send(format!("<message to='juliet@example.com/balcony' id='m{turn}'><body/></message>")).await;
        romeo.sync().await;
        juliet = if websocket { server.connect_websocket() } else { server.connect() };
        juliet.open().await;
        juliet.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
        juliet.open().await;
        juliet.send(format!("<resume xmlns='urn:xmpp:sm:3' previd='{id}' h='{turn}'/>")).await;
        assert_eq!(juliet.element().await.name(), "resumed");
        assert_eq!(juliet.element().await.attr("id"), Some(format!("m{turn}")));
    }
}

/// RFC 7395, section 3.6: without `<close/>` the session is detached if resumption is enabled, otherwise it ends.
#[tokio::test]
async fn the_closing_handshake_alone_is_a_lost_connection() {
    let server = start(TestServerConfig::default()).await;
    let mut pipe = server.connect_frames();
    pipe.write_all(&frame(0x81, FRAMED_OPEN.as_bytes())).await.unwrap();
    run_until_idle().await;
    pipe.write_all(&frame(0x88, b"\x03\xe9bye")).await.unwrap();
    let frames = rest(&mut pipe).await;
    assert_eq!(frames.last(), Some(&(0x88, "1001".to_owned())), "{frames:?}");
    run_until_idle().await;
    assert_eq!(server.connection_limiter.counts().connections, 0, "the connection is over");
}

#[tokio::test]
async fn an_error_is_a_message_after_the_header_and_the_close_code_follows() {
    for (bytes, condition, code) in [
        (b"\x81\x04<m/>".to_vec(), "bad-format", "1002"),
        (frame(0x82, b"<m/>"), "bad-format", "1003"),
        (frame(0x81, b"<m>\xff</m>"), "not-well-formed", "1007"),
        (frame(0x81, b"<m/><m/>"), "not-well-formed", "1000"),
        (frame(0x81, b"<m/>"), "invalid-xml", "1000"),
        (vec![0x81, 0xFE, 0xFF, 0xFF, 0, 0, 0, 0], "policy-violation", "1009"),
        (frame(0x81, FRAMED_OPEN.replace("xmpp-framing", "xmpp-x").as_bytes()), "invalid-namespace", "1000"),
        (frame(0x81, FRAMED_OPEN.replace("example.com", "elsewhere").as_bytes()), "host-unknown", "1000"),
    ] {
        let server = start(TestServerConfig::default()).await;
        let mut pipe = server.connect_frames();
        pipe.write_all(&bytes).await.unwrap();
        let frames = rest(&mut pipe).await;
        let [(0x81, open), (0x81, error), (0x81, close), (0x88, end)] = &frames[..] else {
            panic!("{condition}: {frames:?}")
        };
        assert!(open.starts_with("<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' id='"), "{open}");
        assert!(error.contains(&format!("<{condition} ")), "{condition}: {error}");
        assert!(
            error.starts_with("<stream:error xmlns:stream='http://etherx.jabber.org/streams'>"),
            "{error}"
        );
        assert_eq!((close.as_str(), end.as_str()), (CLOSE, code), "{condition}");
    }
}

/// RFC 7395, section 3.6, and RFC 6455, section 7.4.1, for a server that shuts down.
#[tokio::test]
async fn the_server_closes_the_stream_and_then_the_websocket() {
    let server = start(TestServerConfig::default()).await;
    let mut pipe = server.connect_frames();
    pipe.write_all(&frame(0x81, FRAMED_OPEN.as_bytes())).await.unwrap();
    run_until_idle().await;
    server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into());
    let frames = rest(&mut pipe).await;
    let [.., (0x81, error), (0x81, close), (0x88, code)] = &frames[..] else { panic!("{frames:?}") };
    assert!(error.contains("<system-shutdown "), "{error}");
    assert_eq!((close.as_str(), code.as_str()), (CLOSE, "1001"));
}
