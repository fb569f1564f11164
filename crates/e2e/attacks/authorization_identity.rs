//! Authentication as one user, session of another.
//!
//! Done: a user authenticates and requests another user's session: by the authorization identity of PLAIN and of
//! SCRAM, in SASL and in SASL2, by a user name that contains NUL, a comma or `a=`, and by `from` of the stream.
//!
//! Rule: RFC 4422, section 3.4.1, RFC 4616, section 2, RFC 6120, section 6.3.8; ejabberd opened the session of the
//! other user after such a PLAIN message (release 26.07).
//!
//! Right: the login fails, and no session of the other user is ever opened.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sasl::client::{Gs2, ScramClient};
use sasl::{Mechanism, ScramHash};
use testkit::server::{PASSWORD, STREAM_HEADER, TestServer, TlsClientSettings};

use crate::support::ClientTransport;

async fn server() -> TestServer {
    let server = ClientTransport::Tcp.start();
    server.create_user("mallory").await;
    server.create_user_with_password("juliet", "another password").await;
    server
}

#[tokio::test]
async fn plain_cannot_assume_the_identity_of_another_user() {
    let server = server().await;
    let p = PASSWORD;
    for message in [
        format!("juliet@example.com\0mallory\0{p}"),
        format!("juliet\0mallory\0{p}"),
        format!("juliet@example.com/balcony\0mallory\0{p}"),
        format!("\0mallory\0{p}\0juliet"),
        format!("\0juliet\0mallory\0{p}"),
        format!("mallory@example.com\0juliet\0{p}"),
        format!("\0juliet@example.com\0{p}"),
        format!("\0mallory@example.com\0{p}\0"),
        format!("example.com\0mallory\0{p}"),
        format!("\0\0mallory\0{p}"),
        format!("\0mallory,a=juliet\0{p}"),
        format!("\0mallory\n\0{p}"),
    ] {
        let mut client = server.connect();
        client.open().await;
        client.start_tls(&TlsClientSettings::default()).await;
        client.open().await;
        client.auth(Mechanism::Plain, message.as_bytes()).await;
        let answer = client.element().await;
        assert_eq!(answer.name(), "failure", "{message:?}: {}", answer.0);
    }
}

#[tokio::test]
async fn scram_cannot_assume_the_identity_of_another_user() {
    let server = server().await;
    for authzid in [
        "juliet@example.com",
        "juliet",
        "example.com",
        "mallory@example.com/x",
        "",
        "\u{202e}juliet@example.com",
    ] {
        let mut client = server.connect();
        client.open().await;
        let mut scram =
            ScramClient::new(ScramHash::Sha1, Gs2::None, "mallory", PASSWORD).with_authzid(authzid);
        client.auth(Mechanism::ScramSha1, &scram.client_first()).await;
        let mut answer = client.element().await;
        if answer.name() == "challenge" {
            let challenge = sasl::encoding::decode_response(&answer.text()).unwrap();
            let last =
                sasl::encoding::encode_additional_data(Some(&scram.client_final(&challenge, None).unwrap()));
            client
                .send(format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{last}</response>"))
                .await;
            answer = client.element().await;
        }
        assert_eq!(answer.name(), "failure", "{authzid}: {}", answer.0);
    }
}

#[tokio::test]
async fn scram_messages_with_a_second_identity_are_refused() {
    let server = server().await;
    for first in [
        "n,,n=juliet,n=mallory,r=fyko+d2lbbFgONRv9qkxdawL",
        "n,,n=mallory,a=juliet,r=fyko+d2lbbFgONRv9qkxdawL",
        "n,n=juliet,n=mallory,r=fyko+d2lbbFgONRv9qkxdawL",
        "n,,m=x,n=mallory,r=fyko+d2lbbFgONRv9qkxdawL",
        "n,,n=mall\0ory,r=fyko+d2lbbFgONRv9qkxdawL",
        "n,,n=mallory=00,r=fyko+d2lbbFgONRv9qkxdawL",
        "n,a=a,a=b,n=mallory,r=fyko+d2lbbFgONRv9qkxdawL",
    ] {
        let mut client = server.connect();
        client.open().await;
        client.auth(Mechanism::ScramSha1, first.as_bytes()).await;
        let answer = client.element().await;
        assert_eq!(answer.name(), "failure", "{first:?}: {}", answer.0);
    }
}

#[tokio::test]
async fn sasl2_ignores_the_from_of_the_stream_header() {
    let server = server().await;
    let mut client = server.connect();
    let header = STREAM_HEADER.replace("to='example.com'", "to='example.com' from='juliet@example.com'");
    client.open().await;
    client.start_tls(&TlsClientSettings::default()).await;
    client.open_with(&header).await;
    let message = BASE64_STANDARD.encode(format!("\0mallory\0{PASSWORD}"));
    client
        .send(format!(
            "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'><initial-response>{message}</initial-response>\
             <bind xmlns='urn:xmpp:bind:0'><tag>x</tag></bind></authenticate>"
        ))
        .await;
    let answer = client.element().await;
    // The stream's `from` is only a hint; the session belongs to the authenticated user.
    assert!(!answer.has("juliet"), "{}", answer.0);
}
