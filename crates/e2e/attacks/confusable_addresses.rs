//! User names that look like another user's.
//!
//! Done: accounts are registered under spellings of an existing name: other case, full width, characters that
//! normalisation removes or folds, right-to-left overrides, white space, the domain in another case, with a
//! trailing dot, in Punycode; then the spellings are used to log in and to send.
//!
//! Rule: RFC 7622, sections 3.2 and 3.3, RFC 8265; RFC 6120, section 13.13; name confusion allowed account takeover
//! at Spotify (2013) and in room names of Openfire (OF-2190).
//!
//! Right: a spelling is refused or is the same account; there is never a second account whose name normalises to
//! the first one's.

use feature_api::feature::OptionValue;
use testkit::server::{PASSWORD, TestServerConfig};

use crate::support::ClientTransport;

//= https://www.rfc-editor.org/rfc/rfc6120#section-C
//= type=test
//# An XMPP server implementation or administrative function MUST ensure that any JID assigned during account
//# provisioning
#[tokio::test]
async fn a_registered_name_is_reserved_in_every_spelling() {
    let options = vec![
        ("registration", "open", OptionValue::Bool(true)),
        ("registration", "allow_without_tls", OptionValue::Bool(true)),
        ("registration", "accounts_per_hour_per_address", OptionValue::Int(100_000)),
    ];
    let server = TestServerConfig { options, ..ClientTransport::Tcp.setup() }.start();
    server.create_user("juliet").await;
    server.create_user("stra\u{df}e").await;
    server.create_user("k\u{e9}vin").await;
    for name in [
        "Juliet",
        "JULIET",
        "\u{ff4a}uliet",
        "\u{24d9}uliet",
        "jul\u{ad}iet",
        "jul\u{200b}iet",
        "jul\u{200d}iet",
        "jul\u{2060}iet",
        "\u{202e}juliet",
        "juliet\u{202c}",
        "\u{feff}juliet",
        "juliet ",
        " juliet",
        "juliet\u{a0}",
        "juliet\u{3000}",
        "ju\tliet",
        "juliet\n",
        "juliet@example.com",
        "juliet/x",
        "\u{1d4bf}uliet",
        "\u{2c7c}uliet",
        "ju\u{2113}iet",
        "ke\u{301}vin",
        "KE\u{301}VIN",
        "\u{212a}\u{e9}vin",
        "stra\u{1e9e}e",
        "",
        "\u{0}",
        "a\u{378}",
        "\u{e000}",
        "juliet\u{034f}",
        "ⅉuliet",
        "juliet\u{fe0f}",
    ] {
        let mut client = server.connect_from(&format!("10.0.{}.1", name.len()));
        client.open().await;
        let escaped = name.replace('\0', "");
        client
            .send(format!(
                "<iq type='set' id='r'><query xmlns='jabber:iq:register'><username>{escaped}</username><password>C4lliope+co</password></query></iq>"
            ))
            .await;
        let answer = client.element().await;
        if answer.attr("type").as_deref() == Some("error") {
            continue;
        }
        // Accepted: the address is then a different account whose name does not normalise to the first.
        let made = jid::Jid::from_parts(Some(name), "example.com", None).expect("an address");
        assert!(
            !["juliet@example.com", "kévin@example.com", "straße@example.com"].contains(&made.as_str()),
            "{name:?}"
        );
        panic!("{name:?} was registered as {made}");
    }
    // The password of the existing account is still the only valid one.
    let mut client = server.connect();
    client.open().await;
    assert!(client.authenticate(sasl::Mechanism::ScramSha1, "JULIET", "C4lliope+co").await.is_err());
    client.authenticate(sasl::Mechanism::ScramSha1, "JULIET", PASSWORD).await.unwrap();
}

#[tokio::test]
async fn every_spelling_of_a_domain_is_the_same_domain_or_invalid() {
    let server = ClientTransport::Tcp.start();
    for user in ["romeo", "juliet"] {
        server.create_user(user).await;
    }
    let mut romeo = server.login("romeo", "x").await;
    let mut juliet = server.login("juliet", "x").await;
    for (domain, ours) in [
        ("EXAMPLE.com", true),
        ("example.com.", true),
        ("ex\u{ff41}mple.com", true),
        ("example\u{3002}com", true),
        ("example.com..", false),
        ("exa\u{43c}ple.com", false),
        ("example.com\u{2024}", false),
        ("xn--example.com", false),
        (".example.com", false),
        ("example.com:5222", false),
        ("[example.com]", false),
    ] {
        romeo
            .send(format!(
                "<message to='juliet@{domain}/x' type='headline' id='{domain}'><body>x</body></message>"
            ))
            .await;
        for answer in romeo.sync().await {
            assert_eq!(answer.attr("type").as_deref(), Some("error"), "{domain}: {}", answer.0);
        }
        let came = juliet.sync().await.len();
        assert!(came == 1 && ours || came == 0, "{domain}: {came}");
    }
}
