//! Tests of opening and closing streams: RFC 6120, sections 4.2 to 4.4 and 4.7 to 4.9, in the order of the sections.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use stanza::StreamCondition;
use testkit::server::{ReceivedEvent, STREAM_HEADER, TestServer, TestServerConfig};

/// A stream header with these attributes in place of the usual ones.
fn header(attributes: &str) -> String {
    format!(
        "<stream:stream {attributes} xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
    )
}

#[tokio::test]
async fn section_4_2_a_header_is_answered_with_a_header_and_features() {
    let server = TestServer::new();
    let mut client = server.connect();
    client.send(header("from='juliet@example.com' to='example.com' version='1.0' xml:lang='en'")).await;
    let answer = client.header().await;
    assert_eq!(answer.name(), "stream");
    assert_eq!(answer.attr("from").as_deref(), Some("example.com"));
    assert_eq!(answer.attr("version").as_deref(), Some("1.0"));
    assert!(answer.has("xmlns='jabber:client'"));
    assert_eq!(client.element().await.name(), "features");
}

#[tokio::test]
async fn section_4_3_2_features_before_and_after_authentication() {
    let server = TestServer::new();
    server.create_user("juliet").await;
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert_eq!(features.children(), ["starttls", "mechanisms"]);
    client.authenticate(sasl::Mechanism::ScramSha256, "juliet", testkit::server::PASSWORD).await.unwrap();
    let (_, features) = client.open().await;
    assert_eq!(features.children()[0], "bind");
    assert!(!features.has("mechanisms") && !features.has("starttls"));
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.4
//= type=test
//# If the parties are using either two streams over a single TCP connection or two streams over two TCP
//# connections, the entity that sends the closing stream tag MUST behave as follows:
#[tokio::test]
async fn section_4_4_a_closing_tag_is_answered_before_the_connection_ends() {
    let server = TestServer::new();
    let mut client = server.connect();
    client.open().await;
    client.send("</stream:stream>").await;
    assert_eq!(client.receive().await, ReceivedEvent::Close);
    assert_eq!(client.receive().await, ReceivedEvent::Eof);
}

#[tokio::test]
async fn section_4_4_a_header_and_a_closing_tag_in_one_packet() {
    let server = TestServer::new();
    let mut client = server.connect();
    client.send(format!("{STREAM_HEADER}</stream:stream>")).await;
    client.header().await;
    client.element().await;
    client.expect_end().await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.7.1
//= type=test
//# Because a server is a "public entity" on the XMPP network, it MUST include the 'from' attribute after the
//# confidentiality and integrity of the stream are protected via TLS or an equivalent security layer.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.7.1
//= type=test
//# For response stream headers in both client-to-server and server-to-server communication, the receiving entity
//# MUST include the 'from' attribute and MUST set its value to one of the receiving entity's FQDNs
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: stream-attribute-response-from. Description: Include a 'from' attribute in the response stream header.
//# Section: Section 4.7.1. Roles: Client N/A, Server MUST.
#[tokio::test]
async fn section_4_7_1_from_is_the_requested_domain() {
    let server =
        TestServerConfig { domains: vec!["example.com", "example.net"], ..TestServerConfig::default() }
            .start();
    let mut client = server.connect();
    let (answer, _) = client.open_with(&header("to='EXAMPLE.net' version='1.0'")).await;
    assert_eq!(answer.attr("from").as_deref(), Some("example.net"));
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.7.1
//= type=test
//# Interoperability Note: It is possible that implementations based on [RFC3920] will not include the 'from'
//# address on any stream headers (even ones whose confidentiality and integrity are protected); an entity SHOULD be
//# liberal in accepting such stream headers.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.7.2
//= type=test
//# if the client included a 'from' attribute in the initial stream header then the server MUST include a 'to'
//# attribute in the response stream header and MUST set its value to the bare JID specified in the 'from' attribute
//# of the initial stream header.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.7.2
//= type=test
//# If the client did not include a 'from' attribute in the initial stream header then the server MUST NOT include a
//# 'to' attribute in the response stream header.
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: stream-attribute-response-to. Description: Include a 'to' attribute in the response stream header.
//# Section: Section 4.7.2. Roles: Client N/A, Server SHOULD.
#[tokio::test]
async fn section_4_7_2_to_is_the_bare_address_of_from() {
    let server = TestServer::new();
    for (from, expected) in [
        ("from='juliet@example.com'", Some("juliet@example.com")),
        ("from='juliet@example.com/balcony'", Some("juliet@example.com")),
        ("", None),
        // Not a valid address, so there is nothing to send back.
        ("from='@@'", None),
    ] {
        let mut client = server.connect();
        let (answer, _) = client.open_with(&header(&format!("to='example.com' version='1.0' {from}"))).await;
        assert_eq!(answer.attr("to").as_deref(), expected, "{from}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.7.2
//= type=test
//# Interoperability Note: It is possible that implementations based on [RFC3920] will not include the 'to' address
//# on stream headers; an entity SHOULD be liberal in accepting such stream headers.
#[tokio::test]
async fn section_4_7_2_without_to_the_only_domain_is_used() {
    let server = TestServer::new();
    let mut client = server.connect();
    let (answer, _) = client.open_with(&header("version='1.0'")).await;
    assert_eq!(answer.attr("from").as_deref(), Some("example.com"));
}

#[tokio::test]
async fn section_4_9_3_7_without_to_among_several_domains() {
    let server =
        TestServerConfig { domains: vec!["example.com", "example.net"], ..TestServerConfig::default() }
            .start();
    let mut client = server.connect();
    client.send(header("version='1.0'")).await;
    client.expect_stream_error(StreamCondition::ImproperAddressing).await;
}

#[tokio::test]
async fn section_4_7_3_ids_differ_and_a_clients_id_is_ignored() {
    let server = TestServer::new();
    let mut ids = std::collections::HashSet::new();
    for _ in 0..100 {
        let mut client = server.connect();
        let (answer, _) = client.open_with(&header("to='example.com' version='1.0' id='mine'")).await;
        let id = answer.attr("id").unwrap();
        assert!(id.len() >= 16 && id != "mine", "{id}");
        assert!(ids.insert(id));
    }
}

#[tokio::test]
async fn section_4_7_4_the_language_is_a_supported_one() {
    let server = TestServer::new();
    for (requested, answered) in [
        ("", "en"),
        ("xml:lang='en-GB'", "en-GB"),
        ("xml:lang='EN'", "EN"),
        ("xml:lang='de'", "en"),
        ("xml:lang='english'", "en"),
    ] {
        let mut client = server.connect();
        let (answer, _) =
            client.open_with(&header(&format!("to='example.com' version='1.0' {requested}"))).await;
        assert_eq!(answer.attr("xml:lang").as_deref(), Some(answered), "{requested}");
    }
}

#[tokio::test]
async fn section_4_7_5_the_answer_is_version_1_0_and_lower_versions_are_refused() {
    let server = TestServer::new();
    for version in ["1.0", "1.1", "1.13", "2.0", "01.0"] {
        let mut client = server.connect();
        let (answer, _) = client.open_with(&header(&format!("to='example.com' version='{version}'"))).await;
        assert_eq!(answer.attr("version").as_deref(), Some("1.0"), "the lower of both, for {version}");
    }
    for version in ["", "version='0.9'", "version='one'", "version='1'", "version=''", "version='-1.0'"] {
        let mut client = server.connect();
        client.send(header(&format!("to='example.com' {version}"))).await;
        client.expect_stream_error(StreamCondition::UnsupportedVersion).await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.8.1
//= type=test
//# The root <stream/> element ("stream header") MUST be qualified by the namespace
//# 'http://etherx.jabber.org/streams' (the "stream namespace").
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.8.1
//= type=test
//# If this rule is violated, the entity that receives the offending stream header MUST close the stream with a
//# stream error, which SHOULD be <invalid-namespace/>
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: xml-namespace-streams-declaration. Description: Ensure that there is a namespace declaration for the
//# 'http://etherx.jabber.org/streams' namespace. Section: Section 4.8.1. Roles: Client MUST, Server MUST.
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: xml-namespace-streams-prefix. Description: Ensure that all elements qualified by the
//# 'http://etherx.jabber.org/streams' namespace are prefixed by the prefix (if any) defined in the namespace
//# declaration. Section: Section 4.8.1. Roles: Client MUST, Server MUST.
#[tokio::test]
async fn section_4_8_1_a_wrong_stream_namespace_is_an_error() {
    let server = TestServer::new();
    for header in [
        "<stream:stream to='example.com' version='1.0' xmlns='jabber:client' xmlns:stream='urn:wrong'>",
        "<stream to='example.com' version='1.0' xmlns='jabber:client'>",
        "<stream to='example.com' version='1.0'>",
    ] {
        let mut client = server.connect();
        client.send(header).await;
        client.expect_stream_error(StreamCondition::InvalidNamespace).await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.8.2
//= type=test
//# If so, (1) the content namespace MUST be other than the stream namespace, and (2) the content namespace MUST be
//# the same for the initial stream and the response stream so that both streams are qualified consistently.
#[tokio::test]
async fn section_4_8_3_a_wrong_content_namespace_is_an_error() {
    let server = TestServer::new();
    for ns in ["xmlns='jabber:server'", "xmlns='http://etherx.jabber.org/streams'", ""] {
        let mut client = server.connect();
        client
            .send(format!(
                "<stream:stream to='example.com' version='1.0' {ns} xmlns:stream='http://etherx.jabber.org/streams'>"
            ))
            .await;
        client.expect_stream_error(StreamCondition::InvalidNamespace).await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.8.3
//= type=test
//# If an entity receives a first-level child element qualified by a content namespace it does not support, it MUST
//# close the stream with an <invalid-namespace/> stream error (Section 4.9.3.10).
#[tokio::test]
async fn section_4_8_3_a_stanza_in_another_content_namespace() {
    let server = TestServer::new();
    server.create_user("juliet").await;
    let mut client = server.login("juliet", "balcony").await;
    client.send("<message xmlns='jabber:server' to='juliet@example.com'/>").await;
    client.expect_stream_error(StreamCondition::InvalidNamespace).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.8.5
//= type=test
//# If an entity receives a stream header with a stream namespace prefix it does not accept, it MUST close the
//# stream with a stream error, which SHOULD be <bad-namespace-prefix/>
#[tokio::test]
async fn section_4_8_5_another_prefix_for_the_stream_namespace() {
    let server = TestServer::new();
    let mut client = server.connect();
    let (_, features) = client
        .open_with("<s:stream to='example.com' version='1.0' xmlns='jabber:client' xmlns:s='http://etherx.jabber.org/streams'>")
        .await;
    assert_eq!(features.children(), ["starttls", "mechanisms"]);
    client.send("</s:stream>").await;
    client.expect_end().await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.1.1
//= type=test
//# The entity that receives the stream error then SHALL close the stream as explained under Section 4.4.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.2
//= type=test
//# if an entity receives a stream error condition that it does not understand then it MUST treat the unknown
//# condition as equivalent to <undefined-condition/>
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.2
//= type=test
//# It MUST NOT be interpreted programmatically by an application.
#[tokio::test]
async fn section_4_9_1_1_an_error_of_the_client_closes_the_stream() {
    let server = TestServer::new();
    server.create_user("juliet").await;
    let error =
        "<stream:error><undefined-condition xmlns='urn:ietf:params:xml:ns:xmpp-streams'/></stream:error>";
    let mut early = server.connect();
    early.open().await;
    let mut bound = server.login("juliet", "balcony").await;
    for client in [&mut early, &mut bound] {
        client.send(error).await;
        client.expect_end().await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9
//= type=test
//# The error child SHALL be sent by a compliant entity if it perceives that a stream-level error has occurred.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.1.1
//= type=test
//# Therefore, if an error occurs at the level of the stream, the entity that detects the error MUST send an
//# <error/> element with an appropriate child element specifying the error condition and then immediately close the
//# stream as described under Section 4.4.
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.1.2
//= type=test
//# If the error is triggered by the initial stream header, the receiving entity MUST still send the opening
//# <stream> tag, include the <error/> element as a child of the stream element
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: stream-error-generate. Description: Generate a stream error (followed by a closing stream tag and
//# termination of the TCP connection) upon detecting a stream-related error condition. Section: Section 4.9. Roles:
//# Client MUST, Server MUST.
#[tokio::test]
async fn section_4_9_1_2_an_error_in_the_header_is_preceded_by_a_header() {
    let server = TestServer::new();
    let mut client = server.connect();
    client
        .send("<stream:stream to='example.com' version='1.0' xmlns='jabber:client' xmlns:stream='urn:wrong'>")
        .await;
    let answer = client.header().await;
    assert_eq!(answer.attr("from").as_deref(), Some("example.com"));
    assert!(answer.attr("id").is_some());
    client.expect_stream_error(StreamCondition::InvalidNamespace).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.1.3
//= type=test
//# the value of the 'from' attribute returned by the receiving entity in the stream header sent before closing the
//# stream MUST be either an authoritative FQDN for the receiving entity or the empty string.
#[tokio::test]
async fn section_4_9_1_3_an_unknown_host_is_answered_from_a_known_one() {
    let server = TestServer::new();
    for to in ["unknown.example", "juliet@example.com", "example.com/resource"] {
        let mut client = server.connect();
        client.send(header(&format!("to='{to}' version='1.0'"))).await;
        assert_eq!(client.header().await.attr("from").as_deref(), Some("example.com"));
        client.expect_stream_error(StreamCondition::HostUnknown).await;
    }
    let mut client = server.connect();
    client.send(header("to='not a domain' version='1.0'")).await;
    client.expect_stream_error(StreamCondition::ImproperAddressing).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.2
//= type=test
//# MAY contain a <text/> child element containing XML character data that describes the error in more detail; this
//# element MUST be qualified by the 'urn:ietf:params:xml:ns:xmpp-streams' namespace and SHOULD possess an 'xml
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.2
//= type=test
//# If included, it MUST be used only to provide descriptive or diagnostic information that supplements the meaning
//# of a defined condition or application-specific condition.
//= https://www.rfc-editor.org/rfc/rfc6120#section-8.1.5
//= type=test
//# A stanza SHOULD possess an 'xml:lang' attribute (as defined in Section 2.12 of [XML]) if the stanza contains XML
//# character data that is intended to be presented to a human user
//= https://www.rfc-editor.org/rfc/rfc6120#section-12
//= type=test
//# As specified under Section 8.1.5, an XML stanza SHOULD include an 'xml:lang' attribute if the stanza contains
//# XML character data that is intended to be presented to a human user.
#[tokio::test]
async fn section_4_9_2_an_error_has_a_text_in_a_language() {
    let server = TestServer::new();
    let mut client = server.connect();
    client.send(header("to='unknown.example' version='1.0'")).await;
    let error = client.expect_stream_error(StreamCondition::HostUnknown).await;
    assert_eq!(error.children(), ["host-unknown", "text"]);
    assert!(error.has("xml:lang='en'") && error.has("unknown.example"), "{}", error.0);
}

#[tokio::test]
async fn section_4_9_3_1_a_root_other_than_stream_is_bad_format() {
    let server = TestServer::new();
    let mut client = server.connect();
    client
        .send("<stream:flow to='example.com' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>")
        .await;
    client.expect_stream_error(StreamCondition::BadFormat).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.8.5
//= type=test
//# If an entity receives a stream header with a stream namespace prefix it does not accept, it MUST close the
//# stream with a stream error, which SHOULD be <bad-namespace-prefix/>
#[tokio::test]
async fn section_4_9_3_2_a_missing_prefix_declaration_is_bad_namespace_prefix() {
    let server = TestServer::new();
    let mut client = server.connect();
    client.send("<stream:stream to='example.com' version='1.0' xmlns='jabber:client'>").await;
    client.expect_stream_error(StreamCondition::BadNamespacePrefix).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.9.3.1
//= type=test
//# However, the more specific errors are RECOMMENDED.
#[tokio::test]
async fn section_4_9_3_13_no_xml_at_all() {
    let server = TestServer::new();
    for garbage in ["GET / HTTP/1.1\r\n\r\n", "hello", "< stream>", "</stream:stream>"] {
        let mut client = server.connect();
        client.send(garbage).await;
        client.expect_stream_error(StreamCondition::NotWellFormed).await;
    }
}

#[tokio::test]
async fn section_4_9_3_20_shutdown_closes_every_stream() {
    let server = TestServer::new();
    server.create_user("juliet").await;
    let mut silent = server.connect();
    let mut open = server.connect();
    open.open().await;
    let mut bound = server.login("juliet", "balcony").await;
    server.node.outboxes.close_all(&StreamCondition::SystemShutdown.into());
    for client in [&mut silent, &mut open, &mut bound] {
        client.expect_stream_error(StreamCondition::SystemShutdown).await;
    }
    drop((silent, open, bound));
    testkit::server::run_until_idle().await;
    assert_eq!(
        (server.node.outboxes.len(), server.connection_limiter.counts().connections),
        (0, 0),
        "nothing is left"
    );
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-11.5
//= type=test
//# Applications MUST follow the rules provided in [XML] regarding the format of the XML declaration and the
//# circumstances under which the XML declaration is included.
//= https://www.rfc-editor.org/rfc/rfc6120#section-11.6
//= type=test
//# it MUST close the stream with a stream error, which SHOULD be <unsupported-encoding/>
#[tokio::test]
async fn section_11_5_an_xml_declaration_may_be_absent_and_must_be_right() {
    let server = TestServer::new();
    let plain = header("to='example.com' version='1.0'");
    for start in [
        "",
        "<?xml version='1.0'?>",
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
        "<?xml version='1.0' encoding='utf-8'?>",
    ] {
        let mut client = server.connect();
        client.open_with(&format!("{start}{plain}")).await;
    }
    for (start, condition) in [
        ("<?xml version='1.0' encoding='ISO-8859-1'?>", StreamCondition::UnsupportedEncoding),
        ("<?xml version='1.1'?>", StreamCondition::InvalidXml),
        ("<!DOCTYPE stream><?xml version='1.0'?>", StreamCondition::RestrictedXml),
        ("<!-- hello -->", StreamCondition::RestrictedXml),
    ] {
        let mut client = server.connect();
        client.send(format!("{start}{plain}")).await;
        client.expect_stream_error(condition).await;
    }
}
