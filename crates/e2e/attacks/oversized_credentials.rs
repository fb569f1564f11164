//! Expensive names, nonces and passwords.
//!
//! Done: user names, nonces, passwords and authorization identities of the maximum length, of characters that
//! normalisation expands or reorders; SCRAM messages with numbers, extensions and proofs of any size; malformed
//! base 64.
//!
//! Rule: RFC 5802, section 7, RFC 4013, RFC 8265, section 8; unauthenticated clients could use much memory of
//! Prosody (CVE-2021-32918).
//!
//! Right: one failure for each, by length and before normalisation, and the stream continues.

use sasl::Mechanism;
use testkit::server::{PASSWORD, TlsClientSettings};

use crate::support::start_server;

#[tokio::test]
async fn oversized_or_malformed_credentials_only_fail() {
    let mut wire_limits = crate::support::ClientTransport::Tcp.setup();
    wire_limits.limits.auth_attempts = 100;
    wire_limits.limits.login_failures_per_address = 1_000;
    wire_limits.limits.login_accounts_per_address = 1_000;
    let server = wire_limits.start();
    server.create_user("romeo").await;
    let mut client = server.connect();
    client.open().await;
    client.start_tls(&TlsClientSettings::default()).await;
    client.open().await;
    // A character that NFKC expands to eighteen, one that canonical ordering must sort, one that case folding
    // lengthens.
    let expanding = "\u{fdfa}".repeat(2_500);
    let unordered = format!("a{}", "\u{315}\u{300}\u{5ae}\u{1d16d}".repeat(700));
    let folding = "\u{1fb7}".repeat(2_000);
    let long = "x".repeat(9_000);
    let mut messages: Vec<(Mechanism, String)> = Vec::new();
    for text in [&expanding, &unordered, &folding, &long] {
        messages.push((Mechanism::Plain, format!("\0{text}\0x")));
        messages.push((Mechanism::Plain, format!("\0romeo\0{text}")));
        messages.push((Mechanism::Plain, format!("{text}\0romeo\0x")));
        messages.push((Mechanism::ScramSha256, format!("n,,n={text},r=abcdefghijklmnop")));
        messages.push((Mechanism::ScramSha256, format!("n,a={text},n=romeo,r=abcdefghijklmnop")));
    }
    for text in [
        format!("n,,n=romeo,r={}", "r".repeat(9_000)),
        "n,,n=romeo,r=".to_owned(),
        "n,,n=,r=abcdefghijklmnop".to_owned(),
        "n,,n=romeo".to_owned(),
        format!("n,,n=romeo,r=abcdefghijklmnop{}", ",x=y".repeat(2_000)),
        format!("p={},,n=romeo,r=abcdefghijklmnop", "t".repeat(5_000)),
        "q,,n=romeo,r=abcdefghijklmnop".to_owned(),
        ",".repeat(9_000),
        "n,,n=ro=3Dmeo=2Cx=,r=abcdefghijklmnop".to_owned(),
        "n,,n=ro=2cmeo,r=abcdefghijklmnop".to_owned(),
    ] {
        messages.push((Mechanism::ScramSha256, text));
    }
    for (mechanism, message) in messages {
        client.auth(mechanism, message.as_bytes()).await;
        let answer = client.element().await;
        let short: String = message.chars().take(40).collect();
        assert!(answer.0.len() < 1_000, "{short:?}: {} bytes of an answer", answer.0.len());
        if answer.name() == "challenge" {
            client.send("<abort xmlns='urn:ietf:params:xml:ns:xmpp-sasl'/>").await;
            assert_eq!(client.element().await.name(), "failure", "{short:?}");
            continue;
        }
        assert_eq!(answer.name(), "failure", "{short:?}: {}", answer.0);
    }
    client.authenticate(Mechanism::ScramSha256, "romeo", PASSWORD).await.expect("the stream goes on");
}

#[tokio::test]
async fn no_final_sasl_message_crashes_the_server() {
    let server = start_server();
    server.create_user("romeo").await;
    for last in [
        format!("c=biws,r=x,p={}", "A".repeat(9_000)),
        "c=biws".to_owned(),
        "p=".to_owned(),
        String::new(),
        format!("c={},r=x,p=AAAA", "A".repeat(9_000)),
        "c=biws,r=x,p=====".to_owned(),
        "\0\0\0".to_owned(),
        "c=biws,r=x,p=AAAA,p=AAAA".to_owned(),
    ] {
        let mut client = server.connect();
        client.open().await;
        client.auth(Mechanism::ScramSha1, b"n,,n=romeo,r=abcdefghijklmnop").await;
        assert_eq!(client.element().await.name(), "challenge");
        let text = sasl::encoding::encode_additional_data(Some(last.as_bytes()));
        client.send(format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{text}</response>")).await;
        assert_eq!(client.element().await.name(), "failure");
    }
}
