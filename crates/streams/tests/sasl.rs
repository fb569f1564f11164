//! Tests of SASL on streams: RFC 6120, sections 6 and 13.8; XEP-0178 (1.2); XEP-0440 (0.4.1). The mechanisms are tested
//! in their own crate.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use sasl::{Credentials, Mechanism};
use stanza::StreamCondition;
use testkit::server::{
    ClientAuthority, PASSWORD, StreamClient, TestServer, TestServerConfig, TlsClientSettings,
};
use throng_core::NodeLimits;
use throng_streams::{NegotiationPolicy, TlsPolicy};

const SASL: &str = "xmlns='urn:ietf:params:xml:ns:xmpp-sasl'";

async fn juliet(change: impl FnOnce(&mut TestServerConfig)) -> TestServer {
    let mut setup = TestServerConfig::default();
    change(&mut setup);
    let server = setup.start();
    server.create_user("juliet").await;
    server
}

async fn encrypted(
    server: &TestServer,
    tls: TlsClientSettings,
) -> (StreamClient, testkit::server::ReceivedElement) {
    let mut client = server.connect();
    client.open().await;
    client.start_tls(&tls).await;
    let (_, features) = client.open().await;
    (client, features)
}

/// Sends raw SASL and returns the condition of the failure.
async fn fails(client: &mut StreamClient, element: &str) -> String {
    client.send(element).await;
    let failure = client.element().await;
    assert_eq!(failure.name(), "failure", "{}", failure.0);
    assert!(failure.has("urn:ietf:params:xml:ns:xmpp-sasl"));
    failure.condition().unwrap()
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.3.3
//= type=test
//# Any entity that will act as a SASL client or a SASL server MUST maintain an ordered list of its preferred SASL
//# mechanisms according to the client or server
//= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.1
//= type=test
//# The stream features SHOULD include an advertisement for support of SASL negotiation, i.e., a <mechanisms/>
//# element qualified by the 'urn:ietf:params:xml:ns:xmpp-sasl' namespace.
//= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.1
//= type=test
//# The <mechanisms/> element MUST contain one <mechanism/> child element for each authentication mechanism the
//# receiving entity offers to the initiating entity.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.9.4
//= type=test
//# If a SASL mechanism provides a channel binding (e.g., this is true of [SCRAM]), then XMPP entities using that
//# mechanism SHOULD prefer the channel binding variant (e.g., preferring "SCRAM-SHA-1-PLUS" over "SCRAM-SHA-1").
#[tokio::test]
async fn section_6_3_3_mechanisms_in_order_of_strength() {
    let server = juliet(|_| {}).await;
    let (_, features) = server.connect().open().await;
    assert_eq!(features.all("mechanism"), ["SCRAM-SHA-512", "SCRAM-SHA-256", "SCRAM-SHA-1"]);
    let (_, features) = encrypted(&server, TlsClientSettings::default()).await;
    assert_eq!(
        features.all("mechanism"),
        [
            "SCRAM-SHA-512-PLUS",
            "SCRAM-SHA-256-PLUS",
            "SCRAM-SHA-1-PLUS",
            "SCRAM-SHA-512",
            "SCRAM-SHA-256",
            "SCRAM-SHA-1",
            "PLAIN"
        ]
    );
}

#[tokio::test]
async fn xep_0440_the_channel_binding_types_are_announced() {
    let server = juliet(|_| {}).await;
    let (_, features) = encrypted(&server, TlsClientSettings::default()).await;
    assert!(features.has("urn:xmpp:sasl-cb:0"));
    assert!(features.has("type='tls-exporter'") && features.has("type='tls-server-end-point'"));
    // RFC 9266, section 3: not with TLS 1.2 (no extended master secret is requested there).
    let (_, features) =
        encrypted(&server, TlsClientSettings { tls12: true, ..TlsClientSettings::default() }).await;
    assert!(features.has("type='tls-server-end-point'"));
}

#[tokio::test]
async fn every_mechanism_logs_in_over_tls() {
    let server = juliet(|_| {}).await;
    for mechanism in Mechanism::ALL {
        if matches!(mechanism, Mechanism::External | Mechanism::Anonymous | Mechanism::OauthBearer) {
            continue;
        }
        let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
        client.finish_login(mechanism, "juliet", mechanism.name()).await;
        assert_eq!(client.jid, format!("juliet@example.com/{}", mechanism.name()));
        let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
        let failed = client.authenticate(mechanism, "juliet", "wrong").await;
        assert_eq!(failed, Err("not-authorized".to_owned()), "{mechanism:?}");
    }
}

#[tokio::test]
async fn plus_binds_to_the_certificate_too() {
    let server = juliet(|_| {}).await;
    let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
    client.scram(Mechanism::ScramSha256Plus, "tls-server-end-point", "juliet", PASSWORD).await.unwrap();
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.3.10
//= type=test
//# For the sake of protocol efficiency, it is REQUIRED for clients and servers to support these methods and
//# RECOMMENDED to use them
#[tokio::test]
async fn section_6_4_2_no_initial_response() {
    let server = juliet(|_| {}).await;
    let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
    client.send(format!("<auth {SASL} mechanism='PLAIN'/>")).await;
    let challenge = client.element().await;
    assert_eq!((challenge.name().as_str(), challenge.text().as_str()), ("challenge", ""));
    client.send(format!("<response {SASL}>AGp1bGlldAByMG0zMG15cjBtMzA=</response>")).await;
    assert_eq!(client.element().await.name(), "success");
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.3.10
//= type=test
//# For the sake of protocol efficiency, it is REQUIRED for clients and servers to support these methods and
//# RECOMMENDED to use them
#[tokio::test]
async fn section_6_4_2_a_zero_length_initial_response_is_an_equals_sign() {
    let server = juliet(|setup| setup.policy.allow_anonymous = true).await;
    let mut client = server.connect();
    client.open().await;
    client.send(format!("<auth {SASL} mechanism='ANONYMOUS'>=</auth>")).await;
    assert_eq!(client.element().await.name(), "success");
    // For SCRAM an empty message is malformed.
    let mut client = server.connect();
    client.open().await;
    assert_eq!(
        fails(&mut client, &format!("<auth {SASL} mechanism='SCRAM-SHA-1'>=</auth>")).await,
        "malformed-request"
    );
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.2
//= type=test
//# the receiving entity MUST discard the ongoing handshake and MUST process a new handshake for the subsequently
//# requested SASL mechanism.
#[tokio::test]
async fn section_6_4_2_another_auth_replaces_the_handshake_and_counts() {
    let server = juliet(|_| {}).await;
    let mut client = server.connect();
    client.open().await;
    let first = sasl::client::ScramClient::new(sasl::ScramHash::Sha1, sasl::client::Gs2::None, "juliet", "x")
        .client_first();
    for _ in 0..server.node.limits().auth_attempts - 1 {
        client.auth(Mechanism::ScramSha1, &first).await;
        assert_eq!(client.element().await.name(), "challenge");
    }
    client.authenticate(Mechanism::ScramSha256, "juliet", PASSWORD).await.unwrap();
    let mut client = server.connect();
    client.open().await;
    for _ in 0..server.node.limits().auth_attempts {
        client.auth(Mechanism::ScramSha1, &first).await;
        assert_eq!(client.element().await.name(), "challenge");
    }
    client.auth(Mechanism::ScramSha1, &first).await;
    client.expect_stream_error(StreamCondition::PolicyViolation).await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.4
//= type=test
//# Upon receiving an <abort/> element, the receiving entity MUST return a <failure/> element qualified by the
//# 'urn:ietf:params:xml:ns:xmpp-sasl' namespace and containing an <aborted/> child element.
#[tokio::test]
async fn section_6_4_4_an_aborted_exchange_fails_with_aborted() {
    let server = juliet(|_| {}).await;
    let mut client = server.connect();
    client.open().await;
    client.auth(Mechanism::ScramSha1, b"n,,n=juliet,r=abcdefghijklmnop").await;
    client.element().await;
    assert_eq!(fails(&mut client, &format!("<abort {SASL}/>")).await, "aborted");
    client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.5
//= type=test
//# Where appropriate for the chosen SASL mechanism, the receiving entity SHOULD allow a configurable but reasonable
//# number of retries
//= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.5
//= type=test
//# If the initiating entity exceeds the number of retries, the receiving entity MUST close the stream with a stream
//# error, which SHOULD be <policy-violation/>
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.9.4
//= type=test
//# Because all password-based authentication mechanisms are susceptible to password guessing attacks, XMPP servers
//# MUST limit the number of retries allowed during SASL authentication
#[tokio::test]
async fn section_6_4_5_retries_are_allowed_and_limited() {
    let server = juliet(|_| {}).await;
    let limit = server.node.limits().auth_attempts;
    assert!((2..=5).contains(&limit), "the RFC names 2 to 5");
    let mut client = server.connect();
    client.open().await;
    for _ in 1..limit {
        assert_eq!(
            client.authenticate(Mechanism::ScramSha1, "juliet", "wrong").await,
            Err("not-authorized".into())
        );
    }
    client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();

    let mut client = server.connect();
    client.open().await;
    for _ in 0..limit {
        assert_eq!(
            client.authenticate(Mechanism::ScramSha1, "juliet", "wrong").await,
            Err("not-authorized".into())
        );
    }
    client.expect_stream_error(StreamCondition::PolicyViolation).await;
}

#[tokio::test]
async fn attempts_before_tls_are_counted_after_it() {
    let limits = NodeLimits { auth_attempts: 2, ..NodeLimits::default() };
    let server = juliet(|setup| setup.limits = limits).await;
    let mut client = server.connect();
    client.open().await;
    client.authenticate(Mechanism::ScramSha1, "juliet", "wrong").await.unwrap_err();
    client.start_tls(&TlsClientSettings::default()).await;
    client.open().await;
    client.authenticate(Mechanism::ScramSha1, "juliet", "wrong").await.unwrap_err();
    client.expect_stream_error(StreamCondition::PolicyViolation).await;
}

#[tokio::test]
async fn section_6_4_6_success_begins_a_new_stream() {
    let server = juliet(|_| {}).await;
    let mut client = server.connect();
    let (before, _) = client.open().await;
    client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
    let (after, features) = client.open().await;
    assert_ne!(before.attr("id"), after.attr("id"));
    assert!(features.has("urn:ietf:params:xml:ns:xmpp-bind"));
    // The header may come in one packet with what follows.
    let mut client = server.connect();
    client.open().await;
    client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
    client.restart();
    client
        .send(format!(
            "{}<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>",
            testkit::server::STREAM_HEADER
        ))
        .await;
    client.header().await;
    client.element().await;
    assert_eq!(client.element().await.attr("id").as_deref(), Some("b"));
}

#[tokio::test]
async fn section_6_4_6_the_old_stream_ends_with_success() {
    let server = juliet(|_| {}).await;
    for (rest, condition) in [
        ("<presence>", StreamCondition::BadFormat),
        ("<presence/>", StreamCondition::InvalidXml),
        ("</stream:stream>", StreamCondition::NotWellFormed),
    ] {
        let mut client = server.connect();
        client.open().await;
        client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap();
        client.restart();
        client.send(rest).await;
        client.expect_stream_error(condition).await;
    }
}

#[tokio::test]
async fn section_6_5_2_account_disabled_is_reported_only_after_the_right_password() {
    let server = juliet(|_| {}).await;
    server.stores.accounts.set_disabled(server.address("juliet").as_ref(), true).await.unwrap();
    let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
    for mechanism in [Mechanism::ScramSha1, Mechanism::Plain] {
        assert_eq!(client.authenticate(mechanism, "juliet", "wrong").await, Err("not-authorized".into()));
        assert_eq!(client.authenticate(mechanism, "juliet", PASSWORD).await, Err("account-disabled".into()));
    }
}

#[tokio::test]
async fn section_6_5_4_plain_without_tls_fails_with_encryption_required() {
    let server = juliet(|_| {}).await;
    let mut client = server.connect();
    client.open().await;
    let plain = format!("<auth {SASL} mechanism='PLAIN'>AGp1bGlldAByMG0zMG15cjBtMzA=</auth>");
    assert_eq!(fails(&mut client, &plain).await, "encryption-required");
    // Where TLS is unavailable, the mechanism is unknown.
    let server = juliet(|setup| setup.policy.tls = TlsPolicy::Off).await;
    let mut client = server.connect();
    client.open().await;
    assert_eq!(fails(&mut client, &plain).await, "invalid-mechanism");
}

#[tokio::test]
async fn plain_without_tls_if_the_listener_permits_it() {
    let server = juliet(|setup| {
        setup.policy =
            NegotiationPolicy { tls: TlsPolicy::Off, allow_plain_without_tls: true, ..setup.policy.clone() };
    })
    .await;
    let mut client = server.connect();
    let (_, features) = client.open().await;
    assert!(features.all("mechanism").contains(&"PLAIN".to_owned()));
    client.finish_login(Mechanism::Plain, "juliet", "balcony").await;
}

#[tokio::test]
async fn section_6_5_5_bad_base64_fails_with_incorrect_encoding() {
    let server = juliet(|setup| setup.limits.auth_attempts = 100).await;
    let mut client = server.connect();
    client.open().await;
    // Section 13.9.1: foreign characters, padding in the middle, bits after the end.
    for bad in ["%%%", "biws bj1q", "=AAA", "BBBB=CCC", "YQ=", "YR==", "YWI\nYWI="] {
        let auth = format!("<auth {SASL} mechanism='SCRAM-SHA-1'>{bad}</auth>");
        assert_eq!(fails(&mut client, &auth).await, "incorrect-encoding", "{bad}");
        client.auth(Mechanism::ScramSha1, b"n,,n=juliet,r=abcdefghijklmnop").await;
        assert_eq!(client.element().await.name(), "challenge");
        let response = format!("<response {SASL}>{bad}</response>");
        assert_eq!(fails(&mut client, &response).await, "incorrect-encoding", "{bad}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.3.6
//= type=test
//# The client's bare JID (<localpart@domainpart>) MUST be the authorization identity (as defined by [SASL])
//= https://www.rfc-editor.org/rfc/rfc6120#section-6.3.8
//= type=test
//# In the case of client-to-server communication, the value of an authorization identity MUST be a bare JID
//# (<localpart@domainpart>) rather than a full JID (<localpart@domainpart/resourcepart>).
//= https://www.rfc-editor.org/rfc/rfc6120#section-6.3.8
//= type=test
//# the receiving entity MUST return an <invalid-authzid/> SASL error as described under Section 6.5.6.
#[tokio::test]
async fn section_6_5_6_a_foreign_authzid_fails_with_invalid_authzid() {
    let server = juliet(|_| {}).await;
    server.create_user("romeo").await;
    let plain = |authzid: &str| sasl::client::plain(Some(authzid), "juliet", PASSWORD);
    for (authzid, expected) in [
        ("romeo@example.com", "invalid-authzid"),
        ("juliet@example.net", "invalid-authzid"),
        ("@@", "invalid-authzid"),
        ("juliet@example.com", ""),
    ] {
        let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
        client.auth(Mechanism::Plain, &plain(authzid)).await;
        let answer = client.element().await;
        assert_eq!(answer.condition().unwrap_or_default(), expected, "{authzid}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.5
//= type=test
//# The receiving entity reports failure of the handshake for this authentication mechanism by sending a <failure/>
//# element qualified by the 'urn:ietf:params:xml:ns:xmpp-sasl' namespace (the particular cause of failure MUST be
//# communicated in an appropriate child element of the <failure/> element as defined under Section 6.5).
//= https://www.rfc-editor.org/rfc/rfc6120#section-6.5
//= type=test
//# The "defined-condition" MUST be one of the SASL-related error conditions defined in the following sections.
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: sasl-errors. Description: Support SASL errors during the negotiation process. Section: Section 6.5.
//# Roles: Client MUST, Server MUST.
#[tokio::test]
async fn section_6_5_7_an_unknown_mechanism_fails_with_invalid_mechanism() {
    let server = juliet(|_| {}).await;
    let mut client = server.connect();
    client.open().await;
    for mechanism in ["", "mechanism=''", "mechanism='CRAM-MD5'", "mechanism='scram-sha-1'"] {
        assert_eq!(
            fails(&mut client, &format!("<auth {SASL} {mechanism}>=</auth>")).await,
            "invalid-mechanism"
        );
    }
    let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
    for mechanism in ["EXTERNAL", "ANONYMOUS"] {
        let auth = format!("<auth {SASL} mechanism='{mechanism}'>=</auth>");
        assert_eq!(fails(&mut client, &auth).await, "invalid-mechanism", "not offered: {mechanism}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.5
//= type=test
//# The "defined-condition" MUST be one of the SASL-related error conditions defined in the following sections.
//= https://www.rfc-editor.org/rfc/rfc6120#section-15
//= type=test
//# Feature: sasl-errors. Description: Support SASL errors during the negotiation process. Section: Section 6.5.
//# Roles: Client MUST, Server MUST.
#[tokio::test]
async fn section_6_5_8_unexpected_elements_fail_with_malformed_request() {
    let server = juliet(|setup| setup.limits.auth_attempts = 100).await;
    let mut client = server.connect();
    client.open().await;
    let long = sasl::encoding::encode_challenge(&[b'a'; 9_000]);
    for (element, text) in [("response", "biws"), ("auth", "YQ=="), ("auth", "biws"), ("auth", long.as_str())]
    {
        let sent = format!("<{element} {SASL} mechanism='SCRAM-SHA-1'>{text}</{element}>");
        assert_eq!(fails(&mut client, &sent).await, "malformed-request", "{element} {text}");
    }
    for element in ["challenge", "success", "failure", "mechanisms"] {
        let mut client = server.connect();
        client.open().await;
        client.send(format!("<{element} {SASL}/>")).await;
        client.expect_stream_error(StreamCondition::UnsupportedStanzaType).await;
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-6.4.5
//= type=test
//# The receiving entity reports failure of the handshake for this authentication mechanism by sending a <failure/>
//# element qualified by the 'urn:ietf:params:xml:ns:xmpp-sasl' namespace (the particular cause of failure MUST be
//# communicated in an appropriate child element of the <failure/> element as defined under Section 6.5).
#[tokio::test]
async fn section_6_5_10_unknown_accounts_are_indistinguishable() {
    let server = juliet(|_| {}).await;
    let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
    let mut challenges = Vec::new();
    for user in ["nobody", "nobody", "juliet"] {
        let mut scram =
            sasl::client::ScramClient::new(sasl::ScramHash::Sha1, sasl::client::Gs2::None, user, "wrong");
        client.auth(Mechanism::ScramSha1, &scram.client_first()).await;
        let challenge = sasl::encoding::decode_response(&client.element().await.text()).unwrap();
        let text = String::from_utf8(challenge.clone()).unwrap();
        challenges.push(text.split_once(",s=").unwrap().1.to_owned());
        let last = scram.client_final(&challenge, None).unwrap();
        let response = sasl::encoding::encode_challenge(&last);
        let condition = fails(&mut client, &format!("<response {SASL}>{response}</response>")).await;
        assert_eq!(condition, "not-authorized");
    }
    assert_eq!(challenges[0], challenges[1], "salt and iterations of a user who does not exist never change");
    assert_eq!(client.authenticate(Mechanism::Plain, "nobody", "x").await, Err("not-authorized".into()));
}

#[tokio::test]
async fn user_names_that_are_no_addresses_fail_like_others() {
    let server = juliet(|setup| setup.limits.auth_attempts = 100).await;
    let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
    let long = "x".repeat(2000);
    for user in ["a@b", "a/b", "a b", "\u{10FFFF}", &long] {
        for mechanism in [Mechanism::ScramSha1, Mechanism::Plain] {
            let failed = client.authenticate(mechanism, user, "x").await.unwrap_err();
            assert!(failed == "not-authorized" || failed == "malformed-request", "{user:?}: {failed}");
        }
    }
}

#[tokio::test]
async fn section_6_5_11_temporary_failure_if_the_store_fails() {
    let server = juliet(|_| {}).await;
    let (mut client, _) = encrypted(&server, TlsClientSettings::default()).await;
    server.set_store_failing(true);
    for mechanism in [Mechanism::ScramSha1, Mechanism::Plain] {
        assert_eq!(
            client.authenticate(mechanism, "juliet", PASSWORD).await,
            Err("temporary-auth-failure".into())
        );
    }
    server.set_store_failing(false);
    client.finish_login(Mechanism::ScramSha1, "juliet", "balcony").await;
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.3.6
//= type=test
//# The client's bare JID (<localpart@domainpart>) MUST be the authorization identity (as defined by [SASL])
//= https://www.rfc-editor.org/rfc/rfc6120#section-4.3.6
//= type=test
//# The server MUST ensure that the resulting JID (including localpart
//= https://www.rfc-editor.org/rfc/rfc6120#section-C
//= type=test
//# An XMPP server implementation or administrative function MUST ensure that any JID assigned during account
//# provisioning
#[tokio::test]
async fn names_and_passwords_are_prepared() {
    let server = juliet(|_| {}).await;
    server.create_user_with_password("nurse", "I\u{AD}X").await;
    let mut client = server.connect();
    client.open().await;
    // RFC 4013, section 3: soft hyphens are removed. RFC 7622 folds the case of the name.
    client.authenticate(Mechanism::ScramSha1, "NURSE", "IX").await.unwrap();
    client.open().await;
    assert_eq!(client.bind("x").await.unwrap(), "nurse@example.com/x");
}

#[tokio::test]
async fn anonymous_users_have_unique_addresses() {
    let server = juliet(|setup| setup.policy.allow_anonymous = true).await;
    let mut seen = std::collections::HashSet::new();
    for _ in 0..3 {
        let mut client = server.connect();
        let (_, features) = client.open().await;
        assert_eq!(features.all("mechanism").last().map(String::as_str), Some("ANONYMOUS"));
        client.finish_login(Mechanism::Anonymous, "", "here").await;
        assert!(client.jid.ends_with("@example.com/here"));
        client.sync().await;
        assert!(seen.insert(client.jid.clone()));
    }
    assert_eq!(server.store_calls(), Vec::<&str>::new(), "the store is not called for them");
}

#[tokio::test]
async fn xep_0178_a_client_certificate_logs_in() {
    let authority = ClientAuthority::new();
    let server = juliet(|setup| setup.client_authority = Some(authority.pem())).await;
    server.create_user("romeo").await;
    let shows = |addresses: &[&str]| TlsClientSettings {
        identity: Some(authority.issue(addresses)),
        ..TlsClientSettings::default()
    };
    for old in [false, true] {
        let tls = TlsClientSettings { tls12: old, ..shows(&["juliet@example.com"]) };
        let (mut client, features) = encrypted(&server, tls).await;
        assert_eq!(features.all("mechanism")[0], "EXTERNAL", "section 6.3.4: first");
        client.finish_login(Mechanism::External, "", "balcony").await;
        assert_eq!(client.jid, "juliet@example.com/balcony");
    }
    // Without a certificate that names an account of this host, EXTERNAL is not offered.
    for tls in [TlsClientSettings::default(), shows(&["juliet@example.net"]), shows(&[])] {
        let (_, features) = encrypted(&server, tls).await;
        assert!(!features.all("mechanism").contains(&"EXTERNAL".to_owned()));
    }
    // Two identities: the client selects one.
    let (mut client, _) = encrypted(&server, shows(&["juliet@example.com", "romeo@example.com"])).await;
    for (authzid, condition) in [
        (None, "invalid-authzid"),
        (Some("nurse@example.com"), "invalid-authzid"),
        (Some("romeo@example.com"), ""),
    ] {
        client.auth(Mechanism::External, &sasl::client::external(authzid)).await;
        assert_eq!(client.element().await.condition().unwrap_or_default(), condition, "{authzid:?}");
    }
    client.open().await;
    assert_eq!(client.bind("x").await.unwrap(), "romeo@example.com/x");
    // Certificates for an account that does not exist, and for one that is disabled.
    let (mut client, _) = encrypted(&server, shows(&["nobody@example.com"])).await;
    assert_eq!(client.authenticate(Mechanism::External, "", "").await, Err("not-authorized".into()));
    server.stores.accounts.set_disabled(server.address("juliet").as_ref(), true).await.unwrap();
    let (mut client, _) = encrypted(&server, shows(&["juliet@example.com"])).await;
    assert_eq!(client.authenticate(Mechanism::External, "", "").await, Err("account-disabled".into()));
    assert_eq!(
        client.authenticate(Mechanism::ScramSha1, "romeo", PASSWORD).await,
        Ok(()),
        "others are still possible"
    );
}

#[tokio::test]
async fn a_changed_password_takes_effect_immediately() {
    let server = juliet(|_| {}).await;
    let stored = Credentials::derive("new", 64, b"another salt 123").unwrap().encode();
    server.stores.accounts.set_credentials(server.address("juliet").as_ref(), &stored).await.unwrap();
    let mut client = server.connect();
    client.open().await;
    client.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.unwrap_err();
    client.authenticate(Mechanism::ScramSha1, "juliet", "new").await.unwrap();
}
