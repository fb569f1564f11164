//! Tests of stanzas on a bound stream: RFC 6120, section 8, and the whole of section 9.1.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use sasl::Mechanism;
use stanza::StreamCondition;
use testkit::server::{
    ReceivedElement, STREAM_HEADER, StreamClient, TestServer, TestServerConfig, TlsClientSettings,
    run_until_idle,
};
use throng_streams::{NegotiationPolicy, TlsPolicy};

async fn lovers() -> (TestServer, StreamClient, StreamClient) {
    let server = TestServer::new();
    server.create_user("juliet").await;
    server.create_user("romeo").await;
    let juliet = server.login("juliet", "balcony").await;
    let romeo = server.login("romeo", "orchard").await;
    (server, juliet, romeo)
}

/// Sends one stanza and returns the answer.
async fn ask(client: &mut StreamClient, stanza: &str) -> ReceivedElement {
    client.send(stanza).await;
    client.element().await
}

fn error(seen: &ReceivedElement) -> (String, String) {
    assert_eq!(seen.attr("type").as_deref(), Some("error"), "{}", seen.0);
    (seen.condition().unwrap_or_default(), seen.error_type().unwrap_or_default())
}

fn pair(condition: &str, kind: &str) -> (String, String) {
    (condition.to_owned(), kind.to_owned())
}

/// Section 9.1, step by step: the examples are sent as they are, and the output has the meaning of the examples.
#[tokio::test]
async fn section_9_1_the_complete_example() {
    let setup =
        TestServerConfig { domains: vec!["im.example.com", "example.net"], ..TestServerConfig::default() };
    let policy = NegotiationPolicy { tls: TlsPolicy::Required, ..setup.policy.clone() };
    let server = TestServerConfig { policy, ..setup }.start();
    server.create_user("juliet").await;
    server.create_user("romeo@example.net").await;
    let mut romeo = server.connect();
    romeo.open_with(&STREAM_HEADER.replace("example.com", "example.net")).await;
    romeo.start_tls(&TlsClientSettings::default()).await;
    romeo.open_with(&STREAM_HEADER.replace("example.com", "example.net")).await;
    romeo.authenticate(Mechanism::ScramSha1, "romeo", testkit::server::PASSWORD).await.unwrap();
    romeo.open_with(&STREAM_HEADER.replace("example.com", "example.net")).await;
    romeo.bind("orchard").await.unwrap();

    // Section 9.1.1: TLS.
    let header = "<stream:stream from='juliet@im.example.com' to='im.example.com' version='1.0' xml:lang='en' \
                  xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";
    let mut juliet = server.connect();
    let (answer, features) = juliet.open_with(header).await;
    for (name, value) in
        [("from", "im.example.com"), ("to", "juliet@im.example.com"), ("version", "1.0"), ("xml:lang", "en")]
    {
        assert_eq!(answer.attr(name).as_deref(), Some(value));
    }
    testkit::assert_same(
        &[&features.0],
        &[
            "<stream:features><starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'><required/></starttls></stream:features>",
        ],
    );
    juliet.start_tls(&TlsClientSettings::default()).await;

    // Section 9.1.2: SASL.
    let (_, features) = juliet.open_with(header).await;
    for name in ["SCRAM-SHA-1-PLUS", "SCRAM-SHA-1", "PLAIN"] {
        assert!(features.all("mechanism").contains(&name.to_owned()));
    }
    juliet.authenticate(Mechanism::ScramSha1, "juliet", testkit::server::PASSWORD).await.unwrap();
    let (_, features) = juliet.open_with(header).await;
    assert!(features.has("<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>"));

    // Section 9.1.3: resource binding.
    juliet
        .send(
            "<iq id='yhc13a95' type='set'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
             <resource>balcony</resource></bind></iq>",
        )
        .await;
    juliet
        .expect(
            "<iq id='yhc13a95' type='result'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>\
             <jid>juliet@im.example.com/balcony</jid></bind></iq>",
        )
        .await;

    // Section 9.1.4: stanza exchange.
    juliet
        .send(
            "<message from='juliet@im.example.com/balcony' id='ju2ba41c' to='romeo@example.net/orchard' type='chat' \
             xml:lang='en'><body>Art thou not Romeo, and a Montague?</body></message>",
        )
        .await;
    romeo
        .expect(
            "<message from='juliet@im.example.com/balcony' id='ju2ba41c' to='romeo@example.net/orchard' type='chat' \
             xml:lang='en'><body>Art thou not Romeo, and a Montague?</body></message>",
        )
        .await;
    romeo
        .send(
            "<message from='romeo@example.net/orchard' id='ju2ba41c' to='juliet@im.example.com/balcony' type='chat' \
             xml:lang='en'><body>Neither, fair saint, if either thee dislike.</body></message>",
        )
        .await;
    assert_eq!(juliet.element().await.all("body"), ["Neither, fair saint, if either thee dislike."]);

    // Section 9.1.5: close.
    juliet.send("</stream:stream>").await;
    juliet.expect_end().await;
    assert_eq!(server.node.routing_table.sessions(), 1);
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.2
//= type=test
//# Before processing the request, the user's server MUST check the syntax of the JID contained in the 'to'
//# attribute (however, it is known that some existing implementations do not perform this check).
//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.3
//= type=test
//# Before processing the inbound presence subscription request, the contact's server SHOULD check the syntax of the
//# JID contained in the 'to' attribute.
#[tokio::test]
async fn section_8_1_1_1_to_a_malformed_address() {
    let (_wire, mut juliet, _romeo) = lovers().await;
    for stanza in [
        "<message to='@@' id='1'/>",
        "<iq to='a b@c' id='1' type='get'><x xmlns='u:x'/></iq>",
        "<presence to='' id='1'/>",
    ] {
        let answer = ask(&mut juliet, stanza).await;
        assert_eq!(error(&answer), pair("jid-malformed", "modify"), "{stanza}");
        assert_eq!(answer.attr("id").as_deref(), Some("1"));
    }
    juliet.sync().await;
}

#[tokio::test]
async fn section_8_1_2_1_the_server_stamps_from() {
    let (_wire, mut juliet, mut romeo) = lovers().await;
    for from in [
        "",
        "from='juliet@example.com'",
        "from='juliet@example.com/balcony'",
        "from='JULIET@example.com/balcony'",
        // Another resource of the account: the one a client would have bound, had it not resumed.
        "from='juliet@example.com/chamber'",
    ] {
        juliet.send(format!("<message {from} to='romeo@example.com/orchard'/>")).await;
        assert_eq!(
            romeo.element().await.attr("from").as_deref(),
            Some("juliet@example.com/balcony"),
            "{from}"
        );
    }
}

#[tokio::test]
async fn section_4_9_3_9_a_foreign_from_ends_the_stream() {
    let (server, _, mut romeo) = lovers().await;
    for from in [
        "romeo@example.com",
        "romeo@example.com/orchard",
        "example.com",
        "juliet@example.net/balcony",
        "@@",
        "",
    ] {
        let mut juliet = server.login("juliet", "balcony").await;
        juliet
            .send(format!(
                "<message from='{from}' to='romeo@example.com/orchard'><body>forged</body></message>"
            ))
            .await;
        juliet.expect_stream_error(StreamCondition::InvalidFrom).await;
    }
    assert_eq!(romeo.sync().await, [], "none of it arrived");
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.1.3
//= type=test
//# If the generated stanza includes an 'id' attribute then it is REQUIRED for the response or error stanza to also
//# include an 'id' attribute
//= https://www.rfc-editor.org/rfc/rfc6120#section-8.2.3
//= type=test
//# The response MUST preserve the 'id' attribute of the request (or be empty if the generated stanza did not
//# include an 'id' attribute).
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: stanza-attribute-id. Description: Support the common 'id' attribute for all stanza kinds. Section:
//# Section 8.1.3. Roles: Client MUST, Server MUST.
#[tokio::test]
async fn section_8_1_3_ids_are_returned_unchanged() {
    let (_wire, mut juliet, _romeo) = lovers().await;
    for id in ["a", "&lt;&apos;&quot;&amp;", "ünïcode", " ", "x"] {
        juliet.send(format!("<iq type='get' id='{id}'><x xmlns='u:x'/></iq>")).await;
        let expected = format!("<a id='{id}'/>");
        assert_eq!(juliet.element().await.attr("id"), ReceivedElement(expected).attr("id"));
    }
}

#[tokio::test]
async fn section_8_1_5_languages_are_passed_on() {
    let (_wire, mut juliet, mut romeo) = lovers().await;
    juliet
        .send("<message to='romeo@example.com/orchard' xml:lang='cs'><body xml:lang='de'>x</body></message>")
        .await;
    let seen = romeo.element().await;
    assert_eq!(seen.attr("xml:lang").as_deref(), Some("cs"));
    assert!(seen.has("<body xml:lang='de'>"));
}

#[tokio::test]
async fn section_8_2_3_required_parts_of_an_iq() {
    let (server, mut juliet, mut romeo) = lovers().await;
    for stanza in [
        "<iq type='get'><x xmlns='u:x'/></iq>",
        "<iq id='1'><x xmlns='u:x'/></iq>",
        "<iq id='1' type='ask'><x xmlns='u:x'/></iq>",
        "<iq id='1' type='get'/>",
        "<iq id='1' type='set'><x xmlns='u:x'/><y xmlns='u:y'/></iq>",
        "<iq id='1' type='get' to='romeo@example.com/orchard'/>",
    ] {
        assert_eq!(error(&ask(&mut juliet, stanza).await), pair("bad-request", "modify"), "{stanza}");
    }
    assert_eq!(romeo.sync().await, []);
    // A result is never answered, so one with two children is dropped.
    juliet
        .send("<iq id='1' type='result' to='romeo@example.com/orchard'><x xmlns='u:x'/><y xmlns='u:y'/></iq>")
        .await;
    assert_eq!(juliet.sync().await, []);
    assert_eq!(romeo.sync().await, []);
    // A request that no feature handles, and one that the recipient may handle.
    let answer = ask(&mut juliet, "<iq type='get' id='7'><x xmlns='u:x'/></iq>").await;
    assert_eq!(error(&answer), pair("service-unavailable", "cancel"));
    let mut chamber = server.login("juliet", "chamber").await;
    juliet.send("<iq type='get' id='8' to='juliet@example.com/chamber'><x xmlns='u:x'/></iq>").await;
    assert_eq!(chamber.element().await.attr("id").as_deref(), Some("8"));
    chamber.send("<iq type='result' id='8' to='juliet@example.com/balcony'/>").await;
    assert_eq!(juliet.element().await.attr("type").as_deref(), Some("result"));
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.2.3
//= type=test
//# An entity that receives a stanza of type "result" or "error" MUST NOT respond to the stanza by sending a further
//# IQ response of type "result" or "error"
//= https://www.rfc-editor.org/rfc/rfc6120#section-8.3.1
//= type=test
//# An entity that receives an error stanza MUST NOT respond to the stanza with a further error stanza; this helps
//# to prevent looping.
//= https://www.rfc-editor.org/rfc/rfc6120#section-10.3.3
//= type=test
//# If the IQ stanza is of type "error" or "result", the server MUST handle the error or result in accordance with
//# the payload of the associated IQ stanza or type "get" or "set"
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: stanza-error-reply. Description: Do not reply to a stanza of type "error" with another stanza of type
//# "error". Section: Section 8.3. Roles: Client MUST, Server MUST.
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.1.6
//= type=test
//# Implementation Note: There is no error case for client processing of roster pushes; if the server receives an IQ
//# of type "error" in response to a roster push then it SHOULD ignore the error.
#[tokio::test]
async fn section_8_3_1_an_error_is_never_answered() {
    let (_wire, mut juliet, _romeo) = lovers().await;
    for stanza in [
        "<message type='error' to='nobody@example.com/x'/>",
        "<message type='error' to='@@'/>",
        "<iq type='error' id='1' to='nobody@example.com/x'/>",
        "<iq type='result' id='1' to='nobody@example.com/x'/>",
        "<iq type='result' id='1'/>",
        "<presence type='error' to='nobody@example.com/x'/>",
    ] {
        juliet.send(stanza).await;
        assert_eq!(juliet.sync().await, [], "{stanza}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.4
//= type=test
//# Routing entities (typically servers) SHOULD try to maintain prefixes when serializing XML stanzas for processing
//= https://www.rfc-editor.org/rfc/rfc6120#section-8.4
//= type=test
//# If a recipient receives a stanza that contains an element or attribute it does not understand, it MUST NOT
//# attempt to process that XML data and instead MUST proceed as follows.
//= https://www.rfc-editor.org/rfc/rfc6120#section-8.4
//= type=test
//# it MUST route the stanza unmodified to a remote server or deliver the stanza unmodified to a connected client
//# associated with a local account.
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: stanza-extension. Description: Correctly process XML data qualified by an unsupported XML namespace,
//# where "correctly process" means to ignore that portion of the stanza in the case of a message or presence stanza
//# and return an error in the case of an IQ stanza (for the intended recipient), and to route or deliver the stanza
//# (for a routing entity such as a server). Section: Section 8.4. Roles: Client MUST, Server MUST.
//= https://www.rfc-editor.org/rfc/rfc6121#section-5.2.5
//= type=test
//# The value of the <thread/> element is not human-readable and MUST be treated as opaque by entities; no semantic
//# meaning can be derived from it, and only exact comparisons can be made against it.
#[tokio::test]
async fn section_8_4_unknown_attributes_and_children_are_passed_on() {
    let (_wire, mut juliet, mut romeo) = lovers().await;
    let inner = "<x xmlns='urn:example:extended' a=\"1\"><y>&#xE9;<![CDATA[<&]]></y></x><body>hi</body>";
    juliet.send(format!("<message to='romeo@example.com/orchard' other='1'>{inner}</message>")).await;
    let seen = romeo.element().await;
    assert!(seen.has(inner), "{}", seen.0);
    assert_eq!(seen.attr("other").as_deref(), Some("1"));
}

#[tokio::test]
async fn section_4_8_5_prefixes_of_the_header_do_not_leak() {
    let server = TestServer::new();
    server.create_user("juliet").await;
    server.create_user("romeo").await;
    let mut juliet = server.connect();
    juliet.open().await;
    juliet.authenticate(Mechanism::ScramSha1, "juliet", testkit::server::PASSWORD).await.unwrap();
    let header = STREAM_HEADER.replace("xmlns='", "xmlns:foo='urn:example:foo' xmlns='");
    juliet.open_with(&header).await;
    juliet.bind("balcony").await.unwrap();
    let mut romeo = server.login("romeo", "orchard").await;
    juliet
        .send("<message to='romeo@example.com/orchard'><foo:bar foo:a='1'><foo:c/></foo:bar></message>")
        .await;
    romeo
        .expect(
            "<message from='juliet@example.com/balcony' to='romeo@example.com/orchard'>\
             <f:bar xmlns:f='urn:example:foo' f:a='1'><f:c/></f:bar></message>",
        )
        .await;
    // The stanza itself may have a prefix, too.
    juliet.send("<c:message xmlns:c='jabber:client' to='romeo@example.com/orchard'><c:body>x</c:body></c:message>").await;
    romeo
        .expect("<message from='juliet@example.com/balcony' to='romeo@example.com/orchard'><body>x</body></message>")
        .await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.8.4
//= type=test
//# However, an XMPP server MUST NOT route or deliver data received over an input stream if that data is
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.8.4
//= type=test
//# Upon receiving arbitrary first-level XML elements over an input stream, a server MUST either ignore the data or
//# close the stream with a stream error
#[tokio::test]
async fn section_4_8_4_arbitrary_elements_end_the_stream() {
    let (server, _, _) = lovers().await;
    for element in [
        "<foo/>",
        "<foo xmlns='urn:x'/>",
        "<stream:features/>",
        "<r xmlns='urn:xmpp:sm:3'/>",
        "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>",
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'/>",
    ] {
        let mut juliet = server.login("juliet", "balcony").await;
        juliet.send(element).await;
        juliet.expect_stream_error(StreamCondition::UnsupportedStanzaType).await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-10.1
//= type=test
//# An XMPP server MUST ensure in-order processing of the stanzas and other XML elements it receives over a given
//# input stream from a connected client or remote server.
//= https://www.rfc-editor.org/rfc/rfc6120#section-10.1
//= type=test
//# The server MUST ensure that it delivers stanzas addressed to the intended recipient in the order it receives
//# them over the input stream from the sending client
#[tokio::test]
async fn section_10_1_stanzas_are_delivered_in_order() {
    let (_wire, mut juliet, mut romeo) = lovers().await;
    let mut all = String::new();
    for n in 0..500 {
        all.push_str(&format!("<message to='romeo@example.com/orchard' id='{n}'/>"));
    }
    juliet.send(all).await;
    for n in 0..500 {
        assert_eq!(romeo.element().await.attr("id"), Some(n.to_string()));
    }
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-8.1
//= type=test
//# a server SHOULD return an error if the originating entity is in the user's roster
//= https://www.rfc-editor.org/rfc/rfc6121#section-8.5.1
//= type=test
//# For an IQ stanza, the server MUST return a <service-unavailable/> stanza error to the sender.
//= https://www.rfc-editor.org/rfc/rfc6121#section-8.5.1
//= type=test
//# For a message stanza, the server MUST either (a) silently ignore the message or (b) return a
//# <service-unavailable/> stanza error to the sender.
#[tokio::test]
async fn section_10_5_stanzas_to_unknown_recipients_are_answered() {
    let (_wire, mut juliet, _romeo) = lovers().await;
    let answer =
        ask(&mut juliet, "<message to='nobody@example.com' type='chat' id='1'><body>x</body></message>")
            .await;
    assert_eq!(error(&answer).0, "service-unavailable");
    let answer =
        ask(&mut juliet, "<iq to='nobody@example.com/x' type='get' id='2'><x xmlns='u:x'/></iq>").await;
    assert_eq!(error(&answer).0, "service-unavailable");
    let answer =
        ask(&mut juliet, "<message to='juliet@elsewhere.example' id='3'><body>x</body></message>").await;
    assert_eq!(error(&answer), pair("remote-server-not-found", "cancel"));
}

#[tokio::test]
async fn whitespace_between_stanzas_is_ignored() {
    let (_wire, mut juliet, mut romeo) = lovers().await;
    juliet.send(" \n\t <message to='romeo@example.com/orchard' id='1'/> \r\n <message to='romeo@example.com/orchard' id='2'/>  ").await;
    for id in ["1", "2"] {
        assert_eq!(romeo.element().await.attr("id").as_deref(), Some(id));
    }
}

#[tokio::test]
async fn a_message_to_oneself_is_delivered() {
    let (_wire, mut juliet, _romeo) = lovers().await;
    let seen =
        ask(&mut juliet, "<message to='juliet@example.com/balcony' id='1'><body>x</body></message>").await;
    assert_eq!(seen.attr("from"), seen.attr("to"));
    run_until_idle().await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-10.3
//= type=test
//# If the stanza possesses no 'to' attribute, the server MUST handle it directly on behalf of the entity that sent
//# it
//= https://www.rfc-editor.org/rfc/rfc6120#section-10.3.1
//= type=test
//# If the server receives a message stanza with no 'to' attribute, it MUST treat the message as if the 'to' address
//# were the bare JID <localpart@domainpart> of the sending entity.
#[tokio::test]
async fn section_10_3_1_a_message_without_to_is_for_the_senders_account() {
    let (_wire, mut juliet, _romeo) = lovers().await;
    // No resource has sent presence, so it bounces, with its original address.
    let answer = ask(&mut juliet, "<message id='1' type='chat'><body>x</body></message>").await;
    assert_eq!(error(&answer), pair("service-unavailable", "cancel"));
    assert_eq!(answer.attr("from").as_deref(), Some("juliet@example.com"));
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-8.4
//= type=test
//# then depending on the XMPP application it MUST either ignore the entire stanza or return a stanza error
//= https://www.rfc-editor.org/rfc/rfc6120#section-10.5.1
//= type=test
//# If the JID contained in the 'to' attribute is of the form <domainpart>, then the server MUST either (a) handle
//# the stanza as appropriate for the stanza kind or
//= https://www.rfc-editor.org/rfc/rfc6120#section-10.5.2
//= type=test
//# If the JID contained in the 'to' attribute is of the form <domainpart/resourcepart>, then the server MUST either
//# (a) handle the stanza as appropriate for the stanza kind or
#[tokio::test]
async fn section_10_5_1_a_stanza_for_the_server_is_answered_or_dropped() {
    let (_wire, mut juliet, mut romeo) = lovers().await;
    for to in ["example.com", "example.com/resource"] {
        let message = format!("<message to='{to}' id='1'><body>x</body></message>");
        assert_eq!(error(&ask(&mut juliet, &message).await), pair("service-unavailable", "cancel"));
        let request = format!("<iq to='{to}' type='get' id='2'><x xmlns='u:x'/></iq>");
        assert_eq!(error(&ask(&mut juliet, &request).await), pair("service-unavailable", "cancel"));
        juliet.send(format!("<presence to='{to}'/><message to='{to}' type='error'/>")).await;
        assert_eq!(juliet.sync().await, [], "{to}");
    }
    assert_eq!(romeo.sync().await, []);
}
