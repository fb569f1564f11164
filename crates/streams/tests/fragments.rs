//! Tests of fragmented input: RFC 6120, section 4, promises nothing about packets. Every split of a whole session has
//! the same result, and a session that is cut off anywhere leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use net::Pipe;
use testkit::server::{
    PASSWORD, PIPE_BYTES, ReceivedElement, ReceivedEvent, STREAM_HEADER, TestServer, TestServerConfig,
    TlsClientSettings, run_until, run_until_idle,
};
use throng_streams::NegotiationPolicy;
use tokio::io::AsyncWriteExt;

async fn start() -> TestServer {
    let setup = TestServerConfig::default();
    let policy = NegotiationPolicy { allow_plain_without_tls: true, ..setup.policy.clone() };
    let server = TestServerConfig { policy, ..setup }.start();
    server.create_user("juliet").await;
    server
}

/// A whole session in one write: login, resource, a message to itself that uses all of XML's syntax, the end.
fn session() -> String {
    let plain = sasl::encoding::encode_challenge(&sasl::client::plain(None, "juliet", PASSWORD));
    format!(
        "{STREAM_HEADER}<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{plain}</auth>{STREAM_HEADER}\
         <iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><resource>x</resource></bind></iq> \
         <message to='juliet@example.com/x' id='1'><body a=\"&lt;'>\">é&amp;<![CDATA[</message>]]>&#x10FFFF;</body></message>\
         </stream:stream>"
    )
}

/// The server's answers, without the parts that vary.
async fn answers(client: &mut testkit::server::StreamClient) -> Vec<String> {
    let mut received = Vec::new();
    loop {
        match client.receive().await {
            ReceivedEvent::Header(_) => received.push("header".to_owned()),
            ReceivedEvent::Element(ReceivedElement(text)) => {
                // A new document follows.
                if text.starts_with("<success") {
                    client.restart();
                }
                received.push(text);
            }
            ReceivedEvent::Close => received.push("close".to_owned()),
            ReceivedEvent::Eof => return received,
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8
//= type=test
//# Security Warning: A server MUST NOT process a partial stanza and MUST NOT attach meaning to the transmission
//# timing of any part of a stanza (before receipt of the closing tag).
#[tokio::test]
async fn a_stream_split_at_any_byte_is_the_same() {
    let server = start().await;
    let text = session();
    let mut client = server.connect();
    client.send(&text).await;
    let whole = answers(&mut client).await;
    assert_eq!(whole.len(), 8, "{whole:#?}");
    assert!(whole[6].contains("<![CDATA[</message>]]>") && whole[7] == "close");
    for cut in 1..text.len() {
        let mut client = server.connect();
        let (first, second) = text.as_bytes().split_at(cut);
        client.send(first).await;
        run_until_idle().await;
        client.send(second).await;
        assert_eq!(answers(&mut client).await, whole, "cut at {cut}");
    }
}

#[tokio::test]
async fn a_session_sent_byte_by_byte_works() {
    let server = start().await;
    let text = session();
    let mut client = server.connect();
    client.send(&text).await;
    let whole = answers(&mut client).await;
    let mut client = server.connect();
    for byte in text.bytes() {
        client.send([byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(answers(&mut client).await, whole);
}

#[tokio::test]
async fn a_session_through_a_pipe_of_one_byte_works() {
    let server = start().await;
    for _ in 0..2 {
        let mut client = server.connect_with(1);
        client.login("juliet", "x").await;
        client.send("<message to='juliet@example.com/x' id='1'><body>é</body></message>").await;
        assert_eq!(client.element().await.all("body"), ["é"]);
        client.send("</stream:stream>").await;
        client.expect_end().await;
    }
}

#[tokio::test]
async fn tls_through_small_pipes_works() {
    let server = start().await;
    for capacity in [1, 7, 100] {
        let mut client = server.connect_with(capacity);
        client.open().await;
        client.start_tls(&TlsClientSettings::default()).await;
        client.open().await;
        client.finish_login(sasl::Mechanism::ScramSha1Plus, "juliet", "x").await;
        client.sync().await;
    }
}

/// Feeds the other end of a connection with a part of the input, then drops it.
async fn truncated(server: &TestServer, bytes: &[u8], half_close: bool) {
    let (connection, mut pipe): (_, Pipe) = server.connection(PIPE_BYTES);
    tokio::runtime::Handle::current().spawn(connection);
    assert!(pipe.write_all(bytes).await.is_ok());
    run_until_idle().await;
    if half_close {
        pipe.close();
        let mut client = server.client_over(pipe);
        client.read_to_end().await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8
//= type=test
//# Security Warning: A server MUST NOT process a partial stanza and MUST NOT attach meaning to the transmission
//# timing of any part of a stanza (before receipt of the closing tag).
#[tokio::test]
async fn a_connection_lost_at_any_byte_leaves_no_state() {
    let server = start().await;
    let text = session();
    for half_close in [false, true] {
        for cut in 0..text.len() {
            truncated(&server, &text.as_bytes()[..cut], half_close).await;
            run_until(|| server.node.outboxes.is_empty()).await;
            assert_eq!(
                (server.node.routing_table.sessions(), server.connection_limiter.counts().connections),
                (0, 0),
                "cut at {cut}"
            );
        }
    }
}

#[tokio::test]
async fn a_large_stanza_in_small_pieces_arrives_whole() {
    let server = start().await;
    let mut client = server.connect();
    client.login("juliet", "x").await;
    let body = "0123456789".repeat(20_000);
    let stanza = format!("<message to='juliet@example.com/x'><body>{body}</body></message>");
    for size in [1000, 4096, 65_537] {
        for piece in stanza.as_bytes().chunks(size) {
            client.send(piece).await;
            run_until_idle().await;
        }
        assert_eq!(client.element().await.all("body"), [body.as_str()]);
    }
}
