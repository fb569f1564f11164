//! Password change and removal of another account.
//!
//! Done: a user sends registration requests that name another user, another domain, a full address or the
//! administrator, or that are addressed to another account; removes another account; registers an existing name,
//! before, after and during a login.
//!
//! Rule: XEP-0077, sections 3.2, 3.3 and 11; CVE-2015-7707 (Openfire: users could make themselves administrators).
//!
//! Right: every request is refused, and no password changes.

use feature_api::feature::OptionValue;
use sasl::Mechanism;
use testkit::server::{PASSWORD, TestServerConfig, TlsClientSettings};

use crate::support::{ClientTransport, ask};

#[tokio::test]
async fn only_the_owner_changes_password_and_account() {
    let options = vec![("registration", "open", OptionValue::Bool(true))];
    let server = TestServerConfig {
        domains: vec!["example.com", "other.example"],
        options,
        ..ClientTransport::Tcp.setup()
    }
    .start();
    for user in ["mallory", "juliet", "boss", "mallory@other.example"] {
        server.create_user(user).await;
    }
    server.node.set_admins([server.address("boss")]);
    let mut mallory = server.connect();
    mallory.open().await;
    mallory.start_tls(&TlsClientSettings::default()).await;
    mallory.open().await;
    let query = |inner: &str| format!("<query xmlns='jabber:iq:register'>{inner}</query>");
    let fields = |name: &str| query(&format!("<username>{name}</username><password>C4lliope+co</password>"));
    for name in ["juliet", "JULIET", "boss", "juliet@example.com", "jul&#105;et"] {
        mallory.send(format!("<iq type='set' id='r'>{}</iq>", fields(name))).await;
        let answer = mallory.element().await;
        assert_eq!(answer.attr("type").as_deref(), Some("error"), "{name}: {}", answer.0);
    }
    mallory.finish_login(Mechanism::ScramSha256, "mallory", "x").await;
    for (to, inner) in [
        ("", fields("juliet")),
        ("", fields("boss")),
        ("", fields("juliet@example.com")),
        ("", fields("mallory@other.example")),
        ("", fields("mallory@example.com/x")),
        ("", fields("new")),
        ("to='juliet@example.com'", fields("juliet")),
        ("to='juliet@example.com'", fields("mallory")),
        ("to='juliet@example.com'", query("<remove/>")),
        ("to='example.com'", fields("juliet")),
        ("to='other.example'", fields("mallory")),
        ("to='other.example'", fields("new")),
        ("to='other.example'", query("<remove/>")),
        ("", query("<remove/><username>juliet</username>")),
    ] {
        let answer = ask(&mut mallory, "r", &format!("<iq type='set' {to} id='r'>{inner}</iq>")).await;
        assert_eq!(answer.attr("type").as_deref(), Some("error"), "{to} {inner}: {}", answer.0);
        // Section 3.3. Another account's address does not handle registration and responds as to any unknown request.
        assert!(to.contains('@') || !answer.has("C4lliope"), "a password comes back: {}", answer.0);
    }
    for user in ["mallory", "juliet", "boss"] {
        let mut client = server.connect();
        client.open().await;
        client.authenticate(Mechanism::ScramSha1, user, PASSWORD).await.expect(user);
    }
    assert!(!server.stores.accounts.exists(server.address("new").as_ref()).await.unwrap());
}
