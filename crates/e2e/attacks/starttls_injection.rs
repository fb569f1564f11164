//! STARTTLS command injection.
//!
//! Done: a man in the middle sends elements after `<starttls/>` in the same packet: a stream header, a login, a
//! stanza, a second `<starttls/>`.
//!
//! Rule: RFC 6120, section 5.4.3.3 (data received before TLS is discarded); the class of CVE-2011-0411 (found in
//! Postfix first).
//!
//! Right: none of them is answered inside TLS, and the client's own login is the first to be processed.

use sasl::Mechanism;
use testkit::server::{ReceivedEvent, STREAM_HEADER, TlsClientSettings};

use crate::support::start_server;

const STARTTLS: &str = "<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>";

#[tokio::test]
async fn plaintext_pipelined_after_starttls_is_discarded() {
    for injected in [
        format!(
            "{STREAM_HEADER}<iq type='set' id='evil'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>"
        ),
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>AGV2aWwAZXZpbA==</auth>".to_owned(),
        STARTTLS.to_owned(),
        "<message to='juliet@example.com'><body>evil</body></message>".to_owned(),
        "<iq type='set' id='evil'><query xmlns='jabber:iq:register'>".to_owned(),
        " \n".to_owned(),
    ] {
        let server = start_server();
        server.create_user("romeo").await;
        let mut client = server.connect();
        client.open().await;
        client.send(format!("{STARTTLS}{injected}")).await;
        // The server may end the stream immediately; it must not keep the injected input.
        let ReceivedEvent::Element(answer) = client.receive().await else { continue };
        if answer.name() != "proceed" || client.handshake(&TlsClientSettings::default()).await.is_err() {
            continue;
        }
        let (_, features) = client.open().await;
        assert!(features.has("PLAIN") && !features.has("starttls"), "{injected}: {}", features.0);
        client.finish_login(Mechanism::Plain, "romeo", "orchard").await;
        assert_eq!(client.sync().await, [], "{injected}");
    }
}
