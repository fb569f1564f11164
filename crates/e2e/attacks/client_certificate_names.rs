//! Client certificate that is valid for other names.
//!
//! Done: certificates of a trusted authority with wildcards, domains, full addresses, names with NUL, other
//! spellings and addresses of other domains; EXTERNAL with and without an authorization identity.
//!
//! Rule: XEP-0178, section 2, RFC 6120, section 13.7.1.4; Openfire read the common name from other fields
//! (CVE-2025-59154) and accepted wildcards (JM-1394); NUL in names: CVE-2009-2408 and its class.
//!
//! Right: an identity is exactly one bare address of the stream's domain. For anything else EXTERNAL is not offered
//! or fails.

use sasl::Mechanism;
use testkit::server::{ClientAuthority, TestServerConfig, TlsClientSettings};

use crate::support::ClientTransport;

//= https://www.rfc-editor.org/rfc/rfc6120#section-13.7.2.2.1
//= type=test
//# the server MUST NOT use the represented JID (if any) as the validated identity of the client but instead MUST
//# validate the identity of the client using other means in accordance with local service policies
#[tokio::test]
async fn only_an_exact_bare_address_is_an_identity() {
    let authority = ClientAuthority::new();
    let server =
        TestServerConfig { client_authority: Some(authority.pem()), ..ClientTransport::Tcp.setup() }.start();
    server.create_user("juliet").await;
    server.create_user("mallory").await;
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
        let mut client = server.connect();
        client.open().await;
        let tls =
            TlsClientSettings { identity: Some(authority.issue(&[name])), ..TlsClientSettings::default() };
        client.start_tls(&tls).await;
        client.open().await;
        client.auth(Mechanism::External, &sasl::client::external(authzid)).await;
        let answer = client.element().await;
        assert_eq!(answer.name(), "failure", "{name:?} {authzid:?}: {}", answer.0);
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-13.7.2.2.2
//= type=test
//# If the client certificate is certified by a Certificate Authority not known to the server, the server MUST
//# proceed as under Case #1, Sub-Case #3.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.7.2.2.3
//= type=test
//# If the client certificate is self-signed, the server MUST proceed as under Case #1, Sub-Case #3.
#[tokio::test]
async fn a_certificate_of_an_untrusted_authority_is_refused() {
    let (ours, theirs) = (ClientAuthority::new(), ClientAuthority::new());
    let server =
        TestServerConfig { client_authority: Some(ours.pem()), ..ClientTransport::Tcp.setup() }.start();
    server.create_user("juliet").await;
    let mut client = server.connect();
    client.open().await;
    let tls = TlsClientSettings {
        identity: Some(theirs.issue(&["juliet@example.com"])),
        ..TlsClientSettings::default()
    };
    client.start_tls(&tls).await;
    let (_, features) = client.open().await;
    assert!(!features.has("EXTERNAL"), "{}", features.0);
    client.auth(Mechanism::External, b"").await;
    assert_eq!(client.element().await.name(), "failure");
}
