//! Tests of STARTTLS and direct TLS: RFC 6120, section 5; XEP-0368 (1.1), section 3.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use sasl::Mechanism;
use stanza::StreamCondition;
use testkit::server::{
    ReceivedEvent, STREAM_HEADER, StreamClient, TestServer, TestServerConfig, TlsClientSettings,
};
use throng_streams::{NegotiationPolicy, TlsPolicy};

const STARTTLS: &str = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";
const FAILURE: &str = "<failure xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";

fn with(tls: TlsPolicy) -> TestServer {
    let setup = TestServerConfig::default();
    TestServerConfig { policy: NegotiationPolicy { tls, ..setup.policy.clone() }, ..setup }.start()
}

#[tokio::test]
async fn section_5_3_1_required_tls_is_the_only_feature() {
    let server = with(TlsPolicy::Required);
    let mut client = server.connect();
    let (_, features) = client.open().await;
    testkit::assert_same(
        &[&features.0],
        &[
            "<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls></stream:features>",
        ],
    );
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.3.4
//= type=test
//# it MUST NOT advertise that mechanism in its list of available SASL mechanisms before TLS negotiation has been
//# completed.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.8.3
//= type=test
//# A server MUST NOT offer SASL PLAIN if the confidentiality and integrity of the stream are not protected via TLS
//# or an equivalent security layer.
#[tokio::test]
async fn section_5_3_1_optional_tls_is_offered_with_mechanisms() {
    let server = with(TlsPolicy::Optional);
    let (_, features) = server.connect().open().await;
    assert_eq!(features.children(), ["starttls", "mechanisms"]);
    assert!(!features.has("<required/>"));
    assert!(!features.has("PLAIN"), "section 13.8.3: not without TLS");
}

#[tokio::test]
async fn section_5_3_1_no_tls_is_not_offered() {
    let server = with(TlsPolicy::Off);
    assert_eq!(server.connect().open().await.1.children(), ["mechanisms"]);
    let setup = TestServerConfig { certificates: false, ..TestServerConfig::default() };
    assert_eq!(setup.start().connect().open().await.1.children(), ["mechanisms"]);
}

/// Asserts what follows the encrypted header: new id, no STARTTLS, mechanisms with channel binding, a login.
async fn goes_on_encrypted(server: &TestServer, mut client: StreamClient, old_id: Option<String>) {
    let (header, features) = client.open().await;
    assert_ne!(header.attr("id"), old_id, "section 5.4.3.3: a new stream ID");
    assert_eq!(features.children(), ["mechanisms", "sasl-channel-binding"]);
    client.finish_login(Mechanism::ScramSha256Plus, "juliet", "balcony").await;
    assert_eq!(client.jid, "juliet@example.com/balcony");
    client.sync().await;
    client.send("</stream:stream>").await;
    client.expect_end().await;
    assert_eq!(server.node.routing_table.sessions(), 0);
}

#[tokio::test]
async fn section_5_4_starttls_leads_to_an_encrypted_login() {
    for old in [false, true] {
        for over_tcp in [false, true] {
            let server = with(TlsPolicy::Required);
            server.create_user("juliet").await;
            let mut client = if over_tcp { server.connect_tcp().await } else { server.connect() };
            let (header, _) = client.open().await;
            client.start_tls(&TlsClientSettings { tls12: old, ..TlsClientSettings::default() }).await;
            if old {
                // TLS 1.2: tls-server-end-point only, so the test binds to that.
                let (_, features) = client.open().await;
                assert!(features.has("tls-server-end-point"));
                client
                    .scram(
                        Mechanism::ScramSha1Plus,
                        "tls-server-end-point",
                        "juliet",
                        testkit::server::PASSWORD,
                    )
                    .await
                    .unwrap();
                client.open().await;
                client.bind("balcony").await.unwrap();
            } else {
                goes_on_encrypted(&server, client, header.attr("id")).await;
            }
        }
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-5.4.2.2
//= type=test
//# If the failure case occurs, the receiving entity MUST return a <failure/> element qualified by the 'urn:ietf
#[tokio::test]
async fn section_5_4_2_2_where_tls_is_not_offered_it_fails() {
    for server in [
        with(TlsPolicy::Off),
        TestServerConfig { certificates: false, ..TestServerConfig::default() }.start(),
    ] {
        let mut client = server.connect();
        client.open().await;
        client.send(STARTTLS).await;
        client.expect(FAILURE).await;
        client.expect_end().await;
    }
}

#[tokio::test]
async fn section_5_4_2_2_a_second_starttls_fails() {
    let server = with(TlsPolicy::Optional);
    let mut client = server.connect();
    client.open().await;
    client.start_tls(&TlsClientSettings::default()).await;
    client.open().await;
    client.send(STARTTLS).await;
    client.expect(FAILURE).await;
    client.expect_end().await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-5.3.1
//= type=test
//# the parties MUST consider TLS as mandatory-to-negotiate.
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: tls-mtn. Description: Consider TLS as mandatory-to-negotiate if STARTTLS is the only feature advertised
//# or if the STARTTLS feature advertisement includes an empty <required/> element. Section: Section 5.3.1. Roles:
//# Client MUST, Server MUST.
#[tokio::test]
async fn section_5_3_4_other_elements_before_required_tls() {
    let server = with(TlsPolicy::Required);
    let mut client = server.connect();
    client.open().await;
    client.auth(Mechanism::Plain, b"\0juliet\0r0m30myr0m30").await;
    let failure = client.element().await;
    assert_eq!(
        (failure.name().as_str(), failure.condition().as_deref()),
        ("failure", Some("encryption-required"))
    );
    client.send("<message to='juliet@example.com'/>").await;
    client.expect_stream_error(StreamCondition::NotAuthorized).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-5.3.3
//= type=test
//# During STARTTLS negotiation, the entities MUST NOT send any whitespace as separators between XML elements
//= https://www.rfc-editor.org/rfc/rfc6120#section-5.4.2.3
//= type=test
//# The receiving entity MUST consider the TLS negotiation to have begun immediately after sending the closing '>'
//# character of the <proceed/> element to the initiating entity.
//= https://www.rfc-editor.org/rfc/rfc6120#section-5.4.3.1
//= type=test
//# The entities MUST NOT send any further XML data until the TLS negotiation is complete.
#[tokio::test]
async fn section_5_4_3_1_plaintext_after_starttls_is_never_trusted() {
    let server = with(TlsPolicy::Required);
    server.create_user("juliet").await;
    for injected in
        [STREAM_HEADER, "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='ANONYMOUS'/>", " "]
    {
        let mut client = server.connect();
        client.open().await;
        client.send(format!("{STARTTLS}{injected}")).await;
        // Closed without an error: an injecting attacker learns nothing, and no TLS follows.
        assert!(!client.read_to_end().await.contains("proceed"), "{injected}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-5.4.3.2
//= type=test
//# If the TLS negotiation results in failure, the receiving entity MUST terminate the TCP connection.
//= https://www.rfc-editor.org/rfc/rfc6120#section-5.4.3.2
//= type=test
//# The receiving entity MUST NOT send a closing </stream> tag before terminating the TCP connection (since the
//# failure has occurred at the TLS layer, not the XMPP layer as described under Section 13.3).
#[tokio::test]
async fn section_5_4_3_2_a_failed_handshake_ends_without_a_closing_tag() {
    let server = with(TlsPolicy::Required);
    for over_tcp in [false, true] {
        let mut client = if over_tcp { server.connect_tcp().await } else { server.connect() };
        client.open().await;
        client.send(STARTTLS).await;
        client.expect("<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>").await;
        client.send("this is no ClientHello, and long enough to be taken for a record").await;
        let rest = client.read_to_end().await;
        assert!(!rest.contains("stream"), "{rest:?}");
        assert!(rest.starts_with('\u{15}'), "an alert (RFC 8446 section 6): {rest:?}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-5.3.4
//= type=test
//# If the initiating entity chooses to use TLS, STARTTLS negotiation MUST be completed before proceeding to SASL
//# negotiation
//= https://www.rfc-editor.org/rfc/rfc6120#section-5.4.3.3
//= type=test
//# The receiving entity MUST discard any information transmitted in layers above TCP that it obtained from the
//# initiating entity in an insecure manner before TLS took effect
#[tokio::test]
async fn section_5_4_3_3_information_received_in_plaintext_is_discarded() {
    let server =
        TestServerConfig { domains: vec!["example.com", "example.net"], ..TestServerConfig::default() }
            .start();
    server.create_user("juliet").await;
    // An exchange that began in plaintext cannot be completed under TLS, even if it is correct.
    let mut client = server.connect();
    client.open().await;
    let mut scram = sasl::client::ScramClient::new(
        sasl::ScramHash::Sha1,
        sasl::client::Gs2::None,
        "juliet",
        testkit::server::PASSWORD,
    );
    client.auth(Mechanism::ScramSha1, &scram.client_first()).await;
    let challenge = sasl::encoding::decode_response(&client.element().await.text()).unwrap();
    let last = sasl::encoding::encode_challenge(&scram.client_final(&challenge, None).unwrap());
    client.start_tls(&TlsClientSettings::default()).await;
    client.open().await;
    client.send(format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{last}</response>")).await;
    assert_eq!(client.element().await.condition().as_deref(), Some("malformed-request"));
    // The domain may differ from the plaintext header's, and so may the language.
    let mut client = server.connect();
    client.open_with(&STREAM_HEADER.replace("to='example.com'", "to='example.net' xml:lang='en-GB'")).await;
    client.start_tls(&TlsClientSettings::default()).await;
    let (header, _) = client.open().await;
    assert_eq!(header.attr("from").as_deref(), Some("example.com"));
    assert_eq!(header.attr("xml:lang").as_deref(), Some("en"));
}

#[tokio::test]
async fn an_unfinished_handshake_ends_at_the_negotiation_timeout() {
    let server = with(TlsPolicy::Required);
    let mut client = server.connect();
    client.open().await;
    client.send(STARTTLS).await;
    client.expect("<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>").await;
    client.send(b"\x16\x03\x01").await;
    server.advance(server.node.limits().negotiation_timeout_seconds).await;
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test]
async fn xep_0368_direct_tls_logs_in() {
    let server = with(TlsPolicy::Required);
    server.create_user("juliet").await;
    for alpn in [vec![], vec!["xmpp-client"], vec!["h2", "xmpp-client"]] {
        let mut client = server.connect_direct().await;
        client.handshake(&TlsClientSettings { alpn, ..TlsClientSettings::default() }).await.unwrap();
        goes_on_encrypted(&server, client, None).await;
    }
    let mut wrong = server.connect_direct().await;
    let refused =
        wrong.handshake(&TlsClientSettings { alpn: vec!["h2"], ..TlsClientSettings::default() }).await;
    assert!(refused.unwrap_err().to_string().contains("NoApplicationProtocol"));
}

#[tokio::test]
async fn xep_0368_plaintext_on_a_tls_port_gets_a_tls_alert() {
    let server = with(TlsPolicy::Required);
    let mut client = server.connect_direct().await;
    client.send(STREAM_HEADER).await;
    let rest = client.read_to_end().await;
    assert!(rest.starts_with('\u{15}') && !rest.contains("stream"), "{rest:?}");
}

#[tokio::test]
async fn an_unknown_element_in_the_tls_namespace_ends_the_stream() {
    let server = with(TlsPolicy::Required);
    for name in ["proceed", "failure", "start"] {
        let mut client = server.connect();
        client.open().await;
        client.send(format!("<{name} xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>")).await;
        client.expect_stream_error(StreamCondition::UnsupportedStanzaType).await;
    }
}

#[tokio::test]
async fn a_client_that_closes_instead_of_a_handshake_leaves_no_state() {
    let server = with(TlsPolicy::Required);
    let mut client = server.connect();
    client.open().await;
    client.send(STARTTLS).await;
    client.element().await;
    client.half_close().await;
    assert_eq!(client.receive().await, ReceivedEvent::Eof);
    testkit::server::run_until_idle().await;
    assert_eq!(server.node.outboxes.len(), 0);
}
