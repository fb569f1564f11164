//! A certificate that stands for more than one's own name.
//!
//! Done: certificates of a trusted authority with wildcards, domains, full addresses, names with a NUL, other spellings
//! and addresses of other domains; EXTERNAL with and without an authorization identity.
//!
//! Rule: XEP-0178 section 2, RFC 6120 section 13.7.1.4; Openfire took the common name out of other fields
//! (CVE-2025-59154) and trusted wildcards (JM-1394); NUL in names: CVE-2009-2408 and its class.
//!
//! Right: an identity is one bare address of the stream's domain, whole and exact. Anything else is not offered EXTERNAL
//! or fails.

use sasl::Mechanism;
use testkit::wire::{Authority, Setup, TlsClient};

use crate::support::Way;

#[tokio::test]
async fn only_a_whole_address_is_an_identity() {
    let authority = Authority::new();
    let wire = Setup { client_authority: Some(authority.pem()), ..Way::Tcp.setup() }.start();
    wire.user("juliet").await;
    wire.user("mallory").await;
    for (name, authzid) in [
        ("*@example.com", Some("juliet@example.com")),
        ("*", Some("juliet@example.com")),
        ("example.com", Some("juliet@example.com")),
        ("@example.com", Some("juliet@example.com")),
        ("mallory@example.com", Some("juliet@example.com")),
        ("mallory@example.com", Some("juliet")),
        ("juliet@example.com\0@evil.example", None),
        ("juliet@example.com\0", None),
        ("juliet@example.com/balcony", None),
        ("juliet@*.com", None),
        ("juliet@example.com.evil.example", None),
        ("juliet@evil.example", None),
        ("juliet", None),
        ("CN=juliet@example.com", None),
        ("xmpp:juliet@example.com", None),
        ("mallory@example.com,juliet@example.com", None),
        ("mallory@example.com juliet@example.com", None),
    ] {
        let mut client = wire.connect();
        client.open().await;
        let tls = TlsClient { identity: Some(authority.issue(&[name])), ..TlsClient::default() };
        client.start_tls(&tls).await;
        client.open().await;
        client.auth(Mechanism::External, &sasl::client::external(authzid)).await;
        let answer = client.element().await;
        assert_eq!(answer.name(), "failure", "{name:?} {authzid:?}: {}", answer.0);
    }
}

#[tokio::test]
async fn a_certificate_of_somebody_elses_authority_is_worth_nothing() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let wire = Setup { client_authority: Some(ours.pem()), ..Way::Tcp.setup() }.start();
    wire.user("juliet").await;
    let mut client = wire.connect();
    client.open().await;
    let tls = TlsClient { identity: Some(theirs.issue(&["juliet@example.com"])), ..TlsClient::default() };
    client.start_tls(&tls).await;
    let (_, features) = client.open().await;
    assert!(!features.has("EXTERNAL"), "{}", features.0);
    client.auth(Mechanism::External, b"").await;
    assert_eq!(client.element().await.name(), "failure");
}
