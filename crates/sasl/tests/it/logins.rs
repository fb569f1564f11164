//! Tests of successful logins, for every mechanism, and of the messages that the client receives.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sasl::client;

use super::*;

fn done(username: &str, authzid: Option<&str>) -> ExchangeStep {
    ExchangeStep::Done { username: username.into(), authzid: authzid.map(str::to_owned), additional: None }
}

#[test]
fn every_scram_mechanism_with_every_valid_channel_binding_flag() {
    let mut fixture = SaslFixture::new();
    let end_point = bound(sasl::channel_binding::TLS_SERVER_END_POINT, &[9; 32]);
    for hash in ScramHash::ALL {
        for (gs2, offered_plus) in [
            (exporter(), true),
            (end_point.clone(), true),
            (Gs2::None, true),
            (Gs2::None, false),
            (Gs2::NotOffered, false),
        ] {
            fixture.offered_plus = offered_plus;
            let mut client = ScramClient::new(hash, gs2.clone(), "user", "pencil");
            let ended = fixture.scram(client.mechanism(), &mut client);
            let ExchangeStep::Done { username, authzid: None, additional: Some(proof) } = ended.step else {
                panic!("{hash:?} {gs2:?}: {ended:?}")
            };
            assert_eq!((username.as_str(), ended.reason), ("user", None));
            assert_eq!(client.verify(&proof), Ok(()));
        }
    }
}

#[test]
fn an_authzid_is_unescaped() {
    let fixture = SaslFixture::new();
    for gs2 in [Gs2::None, exporter()] {
        let mut client = user(gs2).with_authzid("a,b=c@example.org");
        match fixture.scram(client.mechanism(), &mut client).step {
            ExchangeStep::Done { authzid, .. } => assert_eq!(authzid.as_deref(), Some("a,b=c@example.org")),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_missing_initial_response_is_requested() {
    let fixture = SaslFixture::new();
    let mut client = user(Gs2::None);
    for (mechanism, message) in [
        (Mechanism::ScramSha256, client.client_first()),
        (Mechanism::Plain, client::plain(None, "user", "pencil")),
        (Mechanism::External, client::external(None)),
    ] {
        let mut exchange = fixture.exchange(mechanism);
        assert_eq!(exchange.step(None), ExchangeStep::Challenge(vec![]), "{mechanism}");
        let step = exchange.step(Some(&message));
        match fixture.answer(&mut exchange, step) {
            ExchangeStep::Challenge(challenge) => {
                let last = client.client_final(&challenge, None).unwrap();
                assert!(matches!(exchange.step(Some(&last)), ExchangeStep::Done { .. }));
            }
            step => assert_eq!(step, done("user", None), "{mechanism}"),
        }
    }
}

#[test]
fn plain_external_and_anonymous_log_in() {
    let fixture = SaslFixture::new();
    let run = |mechanism, message: Option<Vec<u8>>| {
        let mut exchange = fixture.exchange(mechanism);
        let step = exchange.step(message.as_deref());
        let step = fixture.answer(&mut exchange, step);
        assert!(exchange.is_finished());
        step
    };
    assert_eq!(run(Mechanism::Plain, Some(client::plain(None, "user", "pencil"))), done("user", None));
    let other = client::plain(Some("a@example.org"), "user", "pencil");
    assert_eq!(run(Mechanism::Plain, Some(other)), done("user", Some("a@example.org")));
    assert_eq!(run(Mechanism::External, Some(client::external(None))), done("user", None));
    let named = client::external(Some("user@example.org"));
    assert_eq!(run(Mechanism::External, Some(named)), done("user", Some("user@example.org")));
    assert_eq!(run(Mechanism::Anonymous, None), done("", None));
    assert_eq!(run(Mechanism::Anonymous, Some(client::anonymous("sirhc"))), done("", None));
    assert_eq!(run(Mechanism::Anonymous, Some(vec![])), done("", None));
}

/// RFC 4013: the two spellings are the same password and the same name.
#[test]
fn spellings_that_saslprep_maps_to_the_same_name_log_in() {
    let fixture = SaslFixture {
        stored: Credentials::derive("I\u{ad}X \u{a0}\u{2168}", ITERATIONS, b"salt").unwrap(),
        ..SaslFixture::new()
    };
    let mut client = ScramClient::new(ScramHash::Sha1, Gs2::None, "u\u{ad}ser", "IX  IX");
    assert!(matches!(fixture.scram(client.mechanism(), &mut client).step, ExchangeStep::Done { .. }));
    let mut exchange = fixture.exchange(Mechanism::Plain);
    let step = exchange.step(Some(&client::plain(None, "\u{ff55}ser", "IX \u{3000}IX")));
    assert_eq!(fixture.answer(&mut exchange, step), done("user", None));
}

#[test]
fn unknown_extensions_are_ignored_and_signed() {
    let fixture = SaslFixture::new();
    let mut exchange = fixture.exchange(Mechanism::ScramSha256);
    let step = exchange.step(Some(b"n,,n=user,r=clientnonce,x=y=z,Z=\xc3\xa9"));
    assert!(matches!(fixture.answer(&mut exchange, step), ExchangeStep::Challenge(_)));
    // An extension inserted in transit breaks the proof.
    let tampered = fixture.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| {
        last.replace(",p=", ",x=1,p=").into_bytes()
    });
    assert_eq!(tampered, failed(FailureReason::InvalidProof));
}

#[test]
fn derived_keys_are_cached_and_bounded() {
    let mut keys = ScramKeyCache::new();
    let once = |keys: &mut ScramKeyCache, password: &str, salt: u32, hash: ScramHash| {
        let mut client = ScramClient::new(hash, Gs2::None, "u", password).with_nonce("n");
        let first = format!("r=nX,s={},i=1", STANDARD.encode(salt.to_be_bytes()));
        client.client_final(first.as_bytes(), Some(keys)).unwrap()
    };
    let first = once(&mut keys, "p", 0, ScramHash::Sha1);
    assert_eq!(first, once(&mut keys, "p", 0, ScramHash::Sha1));
    assert_eq!(keys.counts(), (1, 1));
    assert_ne!(first, once(&mut keys, "q", 0, ScramHash::Sha1));
    once(&mut keys, "p", 0, ScramHash::Sha256);
    once(&mut keys, "p", 1, ScramHash::Sha1);
    assert_eq!(keys.counts(), (1, 4), "password, hash and salt all count");
    for salt in 2..60_000 {
        once(&mut keys, "p", salt, ScramHash::Sha1);
        // A key that is used again is not evicted.
        if salt % 1_000 == 0 {
            once(&mut keys, "p", 0, ScramHash::Sha1);
        }
        assert!(keys.len() <= ScramKeyCache::ENTRIES);
    }
    let (found, _) = keys.counts();
    once(&mut keys, "p", 0, ScramHash::Sha1);
    assert_eq!(keys.counts().0, found + 1);
    once(&mut keys, "p", 5, ScramHash::Sha1);
    assert_eq!(keys.counts().0, found + 1, "an unused key is evicted");
}

#[test]
fn a_key_that_is_derived_elsewhere_is_not_derived_again() {
    let mut keys = ScramKeyCache::new();
    let mut client = user(Gs2::None).with_nonce("abc");
    let challenge = b"r=abcdef,s=c2FsdA==,i=1";
    let derivation = client.missing_key(challenge, &keys).unwrap();
    assert_eq!(derivation.parameters(), (ScramHash::Sha256, &b"salt"[..], 1));
    keys.put(derivation.derive());
    assert!(client.missing_key(challenge, &keys).is_none());
    let last = client.clone().client_final(challenge, Some(&mut keys)).unwrap();
    assert_eq!(keys.counts(), (1, 1));
    assert_eq!(client.client_final(challenge, None).unwrap(), last);
    assert!(
        client.missing_key(b"r=abcdef,s=c2FsdA==,i=0", &keys).is_none(),
        "a refused challenge needs no key"
    );
}

#[test]
fn the_client_refuses_servers_that_cheat() {
    use client::ClientError::{Extension, Iterations, Malformed, Nonce, Server, Signature};
    let fresh = || user(Gs2::None).with_nonce("abc");
    for (challenge, error) in [
        ("r=abcdef,s=c2FsdA==,i=1", None),
        ("r=abcdef,s=c2FsdA==,i=1,h=later", None),
        ("r=abc,s=c2FsdA==,i=1", Some(Nonce)),
        ("r=abdef,s=c2FsdA==,i=1", Some(Nonce)),
        ("r=abcdef,s=c2FsdA==,i=0", Some(Iterations(0))),
        ("r=abcdef,s=c2FsdA==,i=4294967295", Some(Iterations(u32::MAX))),
        ("r=abcdef,s=c2FsdA==,i=99999999999", Some(Iterations(u32::MAX))),
        ("r=abcdef,s=c2FsdA==,i=-1", Some(Malformed("iteration count"))),
        ("r=abcdef,s=c2FsdA==,i=+1", Some(Malformed("iteration count"))),
        ("r=abcdef,s=c2FsdA==,i=", Some(Malformed("iteration count"))),
        ("r=abcdef,s=c2FsdA==", Some(Malformed("iteration count"))),
        ("r=abcdef,s=?,i=1", Some(Malformed("salt"))),
        ("r=abcdef,s=,i=1", Some(Malformed("salt"))),
        ("r=abcdef,i=1,s=c2FsdA==", Some(Malformed("salt"))),
        ("r=abcdef", Some(Malformed("salt"))),
        ("", Some(Malformed("nonce"))),
        ("s=c2FsdA==,i=1,r=abcdef", Some(Malformed("nonce"))),
        ("e=other-error", Some(Server("other-error".into()))),
        ("m=1,r=abcdef,s=c2FsdA==,i=1", Some(Extension)),
        ("r=abcdef,s=c2FsdA==,i=1,m=1", Some(Extension)),
    ] {
        assert_eq!(fresh().client_final(challenge.as_bytes(), None).err(), error, "{challenge}");
    }
    let mut client = fresh();
    assert_eq!(client.verify(b"v=AAAA"), Err(Signature), "before the final message");
    client.client_final(b"r=abcdef,s=c2FsdA==,i=1", None).unwrap();
    assert_eq!(client.verify(b"v=AAAA"), Err(Signature));
    assert_eq!(client.verify(b"x"), Err(Malformed("signature")));
    assert_eq!(client.verify(b"v=?"), Err(Malformed("signature")));
    assert_eq!(client.verify(b"e=other-error"), Err(Server("other-error".into())));
}

#[test]
fn a_valid_bearer_token_logs_in() {
    let fixture = SaslFixture::new();
    let mut exchange = fixture.exchange(Mechanism::OauthBearer);
    let step = exchange.step(Some(&client::oauth_bearer(Some("user@example.org"), "t0ken")));
    let needed = ExchangeStep::NeedTokenCheck {
        authzid: Some("user@example.org".to_owned()),
        token: base::Secret::from("t0ken"),
    };
    assert_eq!(step, needed);
    assert_eq!(fixture.answer(&mut exchange, step), done("user", Some("user@example.org")));
    assert!(exchange.is_finished());
}

#[test]
fn rfc_7628_section_3_2_2_a_refused_token_gets_an_error_before_the_failure() {
    let fixture = SaslFixture::new();
    for answer in [&b"\x01"[..], b"", b"n,,\x01auth=Bearer t0ken\x01\x01"] {
        let mut exchange = fixture.exchange(Mechanism::OauthBearer);
        let step = exchange.step(Some(&client::oauth_bearer(None, "other")));
        let step = fixture.answer(&mut exchange, step);
        assert_eq!(step, ExchangeStep::Challenge(br#"{"status":"invalid_token"}"#.to_vec()));
        assert!(!exchange.is_finished());
        assert_eq!(exchange.step(Some(answer)), ExchangeStep::Failed(sasl::Failure::NotAuthorized));
        assert_eq!(exchange.reason(), Some(sasl::FailureReason::InvalidToken));
    }
}

#[test]
fn rfc_7628_section_4_3_an_empty_authorization_gets_the_error_without_a_check() {
    let fixture = SaslFixture::new();
    let mut exchange = fixture.exchange(Mechanism::OauthBearer);
    let step = exchange.step(Some(b"n,a=user@example.org,\x01host=example.org\x01auth=\x01\x01"));
    assert_eq!(step, ExchangeStep::Challenge(br#"{"status":"invalid_token"}"#.to_vec()));
    assert_eq!(exchange.step(Some(b"\x01")), ExchangeStep::Failed(sasl::Failure::NotAuthorized));
    assert_eq!(exchange.reason(), Some(sasl::FailureReason::InvalidToken));
}
