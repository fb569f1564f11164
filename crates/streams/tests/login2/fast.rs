//! Tests of XEP-0484 (0.2.0): the whole life of tokens, and invalid tokens.

use sasl::HtMechanism;

use super::*;

const DAY: u64 = 86_400_000;

pub(super) fn want(mechanism: HtMechanism) -> String {
    format!("{PHONE}<request-token xmlns='urn:xmpp:fast:0' mechanism='{}'/>", mechanism.name())
}

pub(super) fn token(success: &ReceivedElement) -> Option<String> {
    let (_, rest) = success.0.split_once("<token xmlns='urn:xmpp:fast:0'")?;
    let (_, rest) = rest.split_once(" token='")?;
    Some(rest.split('\'').next().unwrap().to_owned())
}

/// Logs in with the password and returns the issued token.
pub(super) async fn issue(server: &TestServer, mechanism: HtMechanism) -> String {
    let (mut client, _) = encrypted(server).await;
    client.send(plain("juliet", PASSWORD, &want(mechanism))).await;
    token(&succeeds(&mut client).await.0).expect("a token")
}

fn proof(client: &StreamClient, user: &str, mechanism: HtMechanism, token: &str) -> Vec<u8> {
    let data = match mechanism {
        HtMechanism::Exporter => client.binding("tls-exporter"),
        HtMechanism::EndPoint => client.binding("tls-server-end-point"),
        HtMechanism::Unbound => &[],
    };
    sasl::client::hashed_token(user, token, data)
}

pub(super) async fn use_token(client: &mut StreamClient, mechanism: HtMechanism, token: &str, more: &str) {
    let proof = proof(client, "juliet", mechanism, token);
    let fast = if more.contains("<fast") { "" } else { "<fast xmlns='urn:xmpp:fast:0'/>" };
    client.send(authenticate(mechanism.name(), &proof, &format!("{PHONE}{fast}{more}"))).await;
}

/// Logs in with a token; returns `<success/>`, or the condition of the failure.
pub(super) async fn login(
    server: &TestServer,
    mechanism: HtMechanism,
    token: &str,
    more: &str,
) -> Result<ReceivedElement, String> {
    let (mut client, _) = encrypted(server).await;
    use_token(&mut client, mechanism, token, more).await;
    let answer = client.element().await;
    if answer.name() == "success" { Ok(answer) } else { Err(answer.condition().unwrap()) }
}

#[tokio::test]
async fn a_reconnect_needs_one_round_trip_one_lookup_and_no_write() {
    let server = node().await;
    for mechanism in HtMechanism::ALL {
        let token = issue(&server, mechanism).await;
        login(&server, mechanism, &token, BIND).await.unwrap();
        let mut client = server.connect();
        client.open().await;
        client.start_tls(&TlsClientSettings::default()).await;
        server.store_calls();
        client.restart();
        let request = authenticate(
            mechanism.name(),
            &proof(&client, "juliet", mechanism, &token),
            &format!("{PHONE}<fast xmlns='urn:xmpp:fast:0'/>{BIND}"),
        );
        client.send(format!("{}{request}", testkit::server::STREAM_HEADER)).await;
        client.header().await;
        assert_eq!(client.element().await.name(), "features");
        let (success, _) = succeeds(&mut client).await;
        assert!(identity(&success).contains("/AwesomeXMPP/") && token_is_absent(&success));
        // The server proves that it has the token, too.
        let data = encoding::decode_sasl2(&success.all("additional-data").concat()).unwrap();
        let bound_to = match mechanism {
            HtMechanism::Exporter => client.binding("tls-exporter").to_vec(),
            HtMechanism::EndPoint => client.binding("tls-server-end-point").to_vec(),
            HtMechanism::Unbound => vec![],
        };
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, token.as_bytes());
        ring::hmac::verify(&key, &[b"Responder", &bound_to[..]].concat(), &data).expect("the server's proof");
        assert_eq!(server.store_calls(), ["logins.secrets", "logins.login"], "{mechanism:?}");
    }
}

fn token_is_absent(success: &ReceivedElement) -> bool {
    token(success).is_none()
}

#[tokio::test]
async fn section_3_3_a_token_has_an_expiry() {
    let server = node().await;
    let (mut client, _) = encrypted(&server).await;
    client.send(plain("juliet", PASSWORD, &want(HtMechanism::Unbound))).await;
    let (success, _) = succeeds(&mut client).await;
    // The clock of tests begins with 2026; 21 days.
    assert!(success.has("<token xmlns='urn:xmpp:fast:0' expiry='2026-01-22T00:00:0"), "{}", success.0);
    // No token is issued if not requested, without an id, for a mechanism that is not offered, or before success.
    for more in [
        PHONE.to_owned(),
        want(HtMechanism::Unbound).replace(PHONE, ""),
        want(HtMechanism::Unbound).replace("HT-SHA-256-NONE", "HT-SHA-256-UNIQ"),
    ] {
        let (mut client, _) = encrypted(&server).await;
        client.send(plain("juliet", PASSWORD, &more)).await;
        assert!(token_is_absent(&succeeds(&mut client).await.0), "{more}");
    }
    let (mut client, _) = encrypted(&server).await;
    client.send(plain("juliet", "wrong", &want(HtMechanism::Unbound))).await;
    let failure = client.element().await;
    assert!(failure.name() == "failure" && !failure.has("<token"));
}

#[tokio::test]
async fn scram_gets_a_token_as_well() {
    let server = node().await;
    let (mut client, features) = encrypted(&server).await;
    let success =
        scram(&mut client, Mechanism::ScramSha256Plus, &features, &want(HtMechanism::Exporter)).await;
    login(&server, HtMechanism::Exporter, &token(&success).unwrap(), "").await.unwrap();
}

#[tokio::test]
async fn a_replayed_token_is_refused() {
    let server = node().await;
    let token = issue(&server, HtMechanism::Exporter).await;
    let (mut client, _) = encrypted(&server).await;
    let recorded = proof(&client, "juliet", HtMechanism::Exporter, &token);
    let again = authenticate(
        "HT-SHA-256-EXPR",
        &recorded,
        &format!("{PHONE}<fast xmlns='urn:xmpp:fast:0' count='1'/>"),
    );
    client.send(&again).await;
    succeeds(&mut client).await;
    // The same bytes on the next connection.
    let (mut client, _) = encrypted(&server).await;
    assert_eq!(fails(&mut client, &again).await, "not-authorized");
    // A replaced token of a mechanism whose bytes are always the same.
    let old = issue(&server, HtMechanism::Unbound).await;
    login(&server, HtMechanism::Unbound, &old, "").await.unwrap();
    let new = issue(&server, HtMechanism::Unbound).await;
    login(&server, HtMechanism::Unbound, &new, "").await.unwrap();
    assert_eq!(login(&server, HtMechanism::Unbound, &old, "").await.unwrap_err(), "not-authorized");
    login(&server, HtMechanism::Unbound, &new, "").await.unwrap();
}

#[tokio::test]
async fn section_3_4_a_token_is_bound_to_mechanism_client_and_account() {
    let server = node().await;
    server.create_user("romeo").await;
    let token = issue(&server, HtMechanism::Exporter).await;
    for mechanism in [HtMechanism::EndPoint, HtMechanism::Unbound] {
        assert_eq!(login(&server, mechanism, &token, "").await.unwrap_err(), "not-authorized");
    }
    let (mut client, _) = encrypted(&server).await;
    let mine = proof(&client, "juliet", HtMechanism::Exporter, &token);
    let fast = "<fast xmlns='urn:xmpp:fast:0'/>";
    let other = PHONE.replace("d4565fa7", "e4565fa7");
    let from_another = authenticate("HT-SHA-256-EXPR", &mine, &format!("{other}{fast}"));
    assert_eq!(fails(&mut client, &from_another).await, "not-authorized");
    for user in ["romeo", "nobody"] {
        let theirs = proof(&client, user, HtMechanism::Exporter, &token);
        let request = authenticate("HT-SHA-256-EXPR", &theirs, &format!("{PHONE}{fast}"));
        assert_eq!(fails(&mut client, &request).await, "not-authorized", "{user}");
    }
    use_token(&mut client, HtMechanism::Exporter, &token, "").await;
    succeeds(&mut client).await;
}

#[tokio::test]
async fn unsuitable_token_requests_are_refused() {
    let server = juliet(|setup| setup.limits.auth_attempts = 10).await;
    let token = issue(&server, HtMechanism::Unbound).await;
    let (mut client, _) = encrypted(&server).await;
    let proof = proof(&client, "juliet", HtMechanism::Unbound, &token);
    let fast = "<fast xmlns='urn:xmpp:fast:0'/>";
    let none = "HT-SHA-256-NONE";
    for (request, condition) in [
        (authenticate(none, &proof, PHONE), "malformed-request"),
        (authenticate(none, &proof, fast), "malformed-request"),
        (
            format!("<authenticate {SASL2} mechanism='{none}'>{PHONE}{fast}</authenticate>"),
            "malformed-request",
        ),
        (authenticate(none, b"juliet", &format!("{PHONE}{fast}")), "malformed-request"),
        (authenticate(none, &proof[..38], &format!("{PHONE}{fast}")), "malformed-request"),
        (authenticate("HT-SHA-256-UNIQ", &proof, &format!("{PHONE}{fast}")), "invalid-mechanism"),
        (authenticate("SCRAM-SHA-1", &proof, &format!("{PHONE}{fast}")), "malformed-request"),
    ] {
        assert_eq!(fails(&mut client, &request).await, condition, "{request}");
    }
    // RFC 6120 has none of these mechanisms.
    let text = encoding::encode_challenge(&proof);
    client
        .send(format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='{none}'>{text}</auth>"))
        .await;
    assert_eq!(client.element().await.condition().unwrap(), "invalid-mechanism");
    use_token(&mut client, HtMechanism::Unbound, &token, "").await;
    succeeds(&mut client).await;
    // Not without TLS: there is nothing to bind to, and an attacker could read everything.
    let mut client = server.connect();
    client.open().await;
    let request = authenticate(none, &proof, &format!("{PHONE}{fast}"));
    assert_eq!(fails(&mut client, &request).await, "invalid-mechanism");
}

#[tokio::test]
async fn section_3_5_a_used_token_is_rotated() {
    let server = node().await;
    let first = issue(&server, HtMechanism::Exporter).await;
    server.clock.advance(DAY - 1000);
    assert!(token_is_absent(&login(&server, HtMechanism::Exporter, &first, "").await.unwrap()));
    server.clock.advance(1000);
    server.store_calls();
    let lost = token(&login(&server, HtMechanism::Exporter, &first, "").await.unwrap()).expect("a newer one");
    assert_eq!(server.store_calls(), ["logins.secrets", "tokens.update_tokens"]);
    // The connection broke before it arrived: the old token is still valid, and another new one is issued.
    let second =
        token(&login(&server, HtMechanism::Exporter, &first, "").await.unwrap()).expect("a newer one");
    assert_ne!(lost, second);
    assert!(token_is_absent(&login(&server, HtMechanism::Exporter, &second, "").await.unwrap()));
    for old in [&first, &lost] {
        assert_eq!(login(&server, HtMechanism::Exporter, old, "").await.unwrap_err(), "not-authorized");
    }
    login(&server, HtMechanism::Exporter, &second, "").await.unwrap();
}

#[tokio::test]
async fn an_expired_token_is_reported_to_its_owner_only() {
    let server = node().await;
    let token = issue(&server, HtMechanism::Exporter).await;
    server.clock.advance(21 * DAY);
    assert_eq!(login(&server, HtMechanism::Exporter, &token, "").await.unwrap_err(), "credentials-expired");
    assert_eq!(login(&server, HtMechanism::Exporter, "guess", "").await.unwrap_err(), "not-authorized");
}

#[tokio::test]
async fn section_3_6_a_client_invalidates_its_token() {
    let server = node().await;
    for value in ["true", "1"] {
        let token = issue(&server, HtMechanism::Exporter).await;
        server.clock.advance(2 * DAY);
        let out = format!("<fast xmlns='urn:xmpp:fast:0' invalidate='{value}'/>");
        let success = login(&server, HtMechanism::Exporter, &token, &out).await.unwrap();
        assert!(token_is_absent(&success), "not even if it is due");
        assert_eq!(login(&server, HtMechanism::Exporter, &token, "").await.unwrap_err(), "not-authorized");
    }
    // Unless a new token is requested.
    let token_1 = issue(&server, HtMechanism::Exporter).await;
    let more = "<fast xmlns='urn:xmpp:fast:0' invalidate='true'/>\
                <request-token xmlns='urn:xmpp:fast:0' mechanism='HT-SHA-256-NONE'/>";
    let token_2 = token(&login(&server, HtMechanism::Exporter, &token_1, more).await.unwrap()).unwrap();
    login(&server, HtMechanism::Unbound, &token_2, "").await.unwrap();
    // A token that the store could not remove is not reported as removed.
    let (mut client, _) = encrypted(&server).await;
    let proof = proof(&client, "juliet", HtMechanism::Unbound, &token_2);
    let out = format!("{PHONE}<fast xmlns='urn:xmpp:fast:0' invalidate='true'/>");
    server.set_store_failing(true);
    client.send(authenticate("HT-SHA-256-NONE", &proof, &out)).await;
    assert_eq!(failure(&mut client).await, "temporary-auth-failure");
}

#[tokio::test]
async fn a_new_password_and_a_removed_account_end_all_tokens() {
    let server = node().await;
    let juliet = server.address("juliet");
    let token = issue(&server, HtMechanism::Exporter).await;
    let new = sasl::Credentials::derive("another", 64, b"salt").unwrap().encode();
    server.stores.accounts.set_credentials(juliet.as_ref(), &new).await.unwrap();
    assert_eq!(login(&server, HtMechanism::Exporter, &token, "").await.unwrap_err(), "not-authorized");
    server.stores.accounts.remove(juliet.as_ref()).await.unwrap();
    server.create_user("juliet").await;
    let token = issue(&server, HtMechanism::Exporter).await;
    server.stores.accounts.remove(juliet.as_ref()).await.unwrap();
    assert_eq!(login(&server, HtMechanism::Exporter, &token, "").await.unwrap_err(), "not-authorized");
    server.create_user("juliet").await;
    assert_eq!(login(&server, HtMechanism::Exporter, &token, "").await.unwrap_err(), "not-authorized");
}

#[tokio::test]
async fn a_disabled_account_cannot_log_in_with_its_token() {
    let server = node().await;
    let token = issue(&server, HtMechanism::Exporter).await;
    server.stores.accounts.set_disabled(server.address("juliet").as_ref(), true).await.unwrap();
    assert_eq!(login(&server, HtMechanism::Exporter, &token, "").await.unwrap_err(), "account-disabled");
    assert_eq!(login(&server, HtMechanism::Exporter, "guess", "").await.unwrap_err(), "not-authorized");
}

#[tokio::test]
async fn clients_with_tokens_are_bounded() {
    let server = node().await;
    let first = issue(&server, HtMechanism::Unbound).await;
    for number in 0..5 {
        server.clock.advance(1000);
        let (mut client, _) = encrypted(&server).await;
        let other = want(HtMechanism::Unbound).replace("d4565fa7", &format!("{number}4565fa7"));
        client.send(plain("juliet", PASSWORD, &other)).await;
        assert!(token(&succeeds(&mut client).await.0).is_some());
    }
    assert_eq!(login(&server, HtMechanism::Unbound, &first, "").await.unwrap_err(), "not-authorized");
    let found = server.stores.logins.secrets(server.address("juliet").as_ref()).await.unwrap().unwrap();
    assert_eq!(sasl::FastTokens::decode(&found.tokens).unwrap().clients(), 3);
}

#[tokio::test]
async fn a_token_does_not_become_a_password() {
    let server = node().await;
    let stored = sasl::Credentials::derive_for(&[ScramHash::Sha1], PASSWORD, 64, b"salt").unwrap().encode();
    server.stores.accounts.set_credentials(server.address("juliet").as_ref(), &stored).await.unwrap();
    let token = issue(&server, HtMechanism::Exporter).await;
    let upgrade = "<upgrade xmlns='urn:xmpp:sasl:upgrade:0'>UPGR-SCRAM-SHA-256</upgrade>";
    let success = login(&server, HtMechanism::Exporter, &token, upgrade).await.unwrap();
    assert_eq!(identity(&success), "juliet@example.com");
}

#[tokio::test]
async fn a_proof_that_misses_the_store_deadline_does_not_delay_the_login() {
    let server = node().await;
    let token = issue(&server, HtMechanism::Unbound).await;
    let (mut client, _) = encrypted(&server).await;
    server.set_proofs_late(true);
    use_token(&mut client, HtMechanism::Unbound, &token, BIND).await;
    run_until_idle().await;
    let answer = client.try_receive().await.expect("an answer while the store still holds the proof");
    let ReceivedEvent::Element(answer) = answer else { panic!("no element") };
    assert_eq!(answer.condition().as_deref(), Some("temporary-auth-failure"));
    server.set_proofs_late(false);
    use_token(&mut client, HtMechanism::Unbound, &token, BIND).await;
    succeeds(&mut client).await;
}

#[tokio::test]
async fn the_store_fails_before_and_after_the_proof() {
    let server = node().await;
    let token_1 = issue(&server, HtMechanism::Exporter).await;
    server.set_store_failing(true);
    assert_eq!(
        login(&server, HtMechanism::Exporter, &token_1, "").await.unwrap_err(),
        "temporary-auth-failure"
    );
    server.set_store_failing(false);
    // Corrupt tokens count as none, and are replaced.
    let juliet = server.address("juliet");
    server
        .stores
        .tokens
        .update_tokens(juliet.as_ref(), None, Box::new(|_| Some(vec![9, 9, 9])))
        .await
        .unwrap();
    assert_eq!(login(&server, HtMechanism::Exporter, &token_1, "").await.unwrap_err(), "not-authorized");
    let token_2 = issue(&server, HtMechanism::Exporter).await;
    login(&server, HtMechanism::Exporter, &token_2, "").await.unwrap();
}
