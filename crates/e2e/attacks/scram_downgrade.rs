//! SCRAM downgrade.
//!
//! Done: the client claims that the server offered no channel binding (`y`) although it did; uses data of another
//! binding type or of another connection; answers with another nonce; omits the binding in its last message.
//!
//! Rule: RFC 5802, sections 5.1 and 6, RFC 9266; XEP-0474. Without these checks a man in the middle can remove the
//! stronger mechanisms, as the Terrapin attack did for SSH (CVE-2023-48795).
//!
//! Right: each such login fails.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sasl::client::{Gs2, ScramClient};
use sasl::{Mechanism, ScramHash};
use testkit::server::{PASSWORD, StreamClient, TestServer, TlsClientSettings};

use crate::support::start_server;

/// Modification of the client's last message.
type Change = Box<dyn Fn(String) -> String>;

async fn encrypted(server: &TestServer) -> StreamClient {
    let mut client = server.connect();
    client.open().await;
    client.start_tls(&TlsClientSettings::default()).await;
    let (_, features) = client.open().await;
    assert!(features.has("SCRAM-SHA-256-PLUS"), "{}", features.0);
    client
}

/// A complete exchange; returns the server's final element.
async fn end(
    client: &mut StreamClient,
    mechanism: Mechanism,
    gs2: Gs2,
    change: impl Fn(String) -> String,
) -> String {
    let mut scram = ScramClient::new(ScramHash::Sha256, gs2, "romeo", PASSWORD);
    client.auth(mechanism, &scram.client_first()).await;
    let challenge = client.element().await;
    if challenge.name() != "challenge" {
        return challenge.name();
    }
    let data = sasl::encoding::decode_response(&challenge.text()).unwrap();
    let last = change(String::from_utf8(scram.client_final(&data, None).unwrap()).unwrap());
    let last = sasl::encoding::encode_additional_data(Some(last.as_bytes()));
    client.send(format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{last}</response>")).await;
    client.element().await.name()
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-13.8.1
//= type=test
//# Even if TLS is used, implementations SHOULD also enforce channel binding as described under Section 13.9.4.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.9.4
//= type=test
//# To mitigate this attack, the parties SHOULD protect the channel using TLS before attempting SASL negotiation and
//# either perform full certificate validation as described under Section 13.7.2.1 or use a SASL mechanism that
//# provides channel bindings
#[tokio::test]
async fn a_removed_or_foreign_channel_binding_is_refused() {
    let server = start_server();
    server.create_user("romeo").await;
    let other_binding = encrypted(&server).await.binding("tls-exporter").to_vec();
    let bound = |name: &str, data: &[u8]| Gs2::Bound { name: name.to_owned(), data: data.to_vec() };
    let plus = Mechanism::ScramSha256Plus;
    let mut client = encrypted(&server).await;
    let (own, end_point) =
        (client.binding("tls-exporter").to_vec(), client.binding("tls-server-end-point").to_vec());
    for (gs2, mechanism, what) in [
        (Gs2::NotOffered, Mechanism::ScramSha256, "the flag y where binding is offered"),
        (Gs2::None, plus, "the flag n with -PLUS"),
        (Gs2::NotOffered, plus, "the flag y with -PLUS"),
        (bound("tls-exporter", &own), Mechanism::ScramSha256, "the flag p without -PLUS"),
        (bound("tls-exporter", &other_binding), plus, "the data of another connection"),
        (bound("tls-exporter", &end_point), plus, "the data of another type"),
        (bound("tls-server-end-point", &own), plus, "the data of another type"),
        (bound("tls-unique", &own), plus, "a type that TLS 1.3 does not have"),
        (bound("tls-exporter", b""), plus, "no data"),
        (bound("", &own), plus, "no type"),
    ] {
        let mut client = encrypted(&server).await;
        let seen = end(&mut client, mechanism, gs2, |last| last).await;
        assert_eq!(seen, "failure", "{what}");
    }
    assert_eq!(end(&mut client, plus, bound("tls-exporter", &own), |last| last).await, "success");
}

#[tokio::test]
async fn an_altered_final_message_is_refused() {
    let server = start_server();
    server.create_user("romeo").await;
    let none = BASE64_STANDARD.encode("n,,");
    let changes: [(&str, Change); 6] = [
        ("another nonce", Box::new(|last: String| last.replacen("r=", "r=x", 1))),
        (
            "the nonce of the client alone",
            Box::new(|last: String| {
                let nonce = last.split(",r=").nth(1).unwrap().split(',').next().unwrap().to_owned();
                last.replace(&nonce, &nonce[..10])
            }),
        ),
        ("no binding", Box::new(move |last: String| last.replace(&format!("c={none},"), ""))),
        ("another binding", Box::new(|last: String| last.replacen("c=biws", "c=eSws", 1))),
        ("an extension that is mandatory", Box::new(|last: String| format!("m=x,{last}"))),
        ("a proof of nothing", Box::new(|last: String| format!("{},p=", last.split(",p=").next().unwrap()))),
    ];
    for (what, change) in changes {
        let mut client = encrypted(&server).await;
        let seen = end(&mut client, Mechanism::ScramSha256, Gs2::None, change).await;
        assert_eq!(seen, "failure", "{what}");
    }
}
