//! Tests of input that must not lead to a login, and of the condition sent to the client (RFC 6120, section 6.5).

use sasl::client;

use super::*;

#[test]
fn wrong_passwords_and_missing_accounts_look_alike() {
    let fixture = SaslFixture::new();
    for hash in ScramHash::ALL {
        for gs2 in [Gs2::None, exporter()] {
            let mut wrong = ScramClient::new(hash, gs2.clone(), "user", "pencil ");
            let mut nobody = ScramClient::new(hash, gs2, "nobody", "pencil");
            let mechanism = wrong.mechanism();
            assert_eq!(fixture.scram(mechanism, &mut wrong), failed(FailureReason::InvalidProof));
            assert_eq!(fixture.scram(mechanism, &mut nobody), failed(FailureReason::InvalidProof));
        }
    }
    for (username, password) in
        [("user", "pencil "), ("nobody", "pencil"), ("user", "\u{7}"), ("user", "p\u{378}")]
    {
        let mut exchange = fixture.exchange(Mechanism::Plain);
        let step = exchange.step(Some(&client::plain(None, username, password)));
        assert_eq!(fixture.answer(&mut exchange, step), ExchangeStep::Failed(Failure::NotAuthorized));
        assert_eq!(exchange.reason(), Some(FailureReason::InvalidProof));
    }
}

/// To a guesser, an account that does not exist looks like any other, and always the same.
#[test]
fn the_challenge_does_not_tell_whether_there_is_an_account() {
    let fixture = SaslFixture::new();
    let shown = |fixture: &SaslFixture, hash, account: &str, found: Option<&Credentials>| {
        let mut exchange = fixture.exchange(Mechanism::scram(hash, false));
        exchange.step(Some(b"n,,n=x,r=clientnonce"));
        let ExchangeStep::Challenge(challenge) = exchange.credentials(found, &fixture.decoy, account) else {
            panic!()
        };
        let challenge = String::from_utf8(challenge).unwrap();
        let (nonce, rest) = challenge.split_once(",s=").unwrap();
        assert!(nonce.starts_with("r=clientnonce") && nonce.len() == "r=clientnonce".len() + 24);
        rest.to_owned()
    };
    let real = shown(&fixture, ScramHash::Sha256, "user@a", Some(&fixture.stored));
    let first = shown(&fixture, ScramHash::Sha256, "nobody@a", None);
    assert_eq!(first, shown(&fixture, ScramHash::Sha256, "nobody@a", None), "stable");
    assert_eq!(
        first,
        shown(&fixture, ScramHash::Sha1, "nobody@a", None),
        "as real ones, the same for every hash"
    );
    assert_eq!(real.len(), first.len());
    assert_eq!(real.rsplit_once(',').unwrap().1, first.rsplit_once(',').unwrap().1, "iterations");
    assert_ne!(first, shown(&fixture, ScramHash::Sha256, "nobody@b", None), "another on another domain");
    let other = SaslFixture { decoy: Decoy::new(&Secret::new(*b"other"), ITERATIONS), ..SaslFixture::new() };
    assert_ne!(
        first,
        shown(&other, ScramHash::Sha256, "nobody@a", None),
        "not to be computed without the secret"
    );
}

#[test]
fn an_account_without_keys_for_the_hash_is_as_a_missing_one() {
    let mut fixture = SaslFixture::new();
    fixture.stored.sha256 = None;
    let mut client = user(Gs2::None);
    assert_eq!(fixture.scram(client.mechanism(), &mut client), failed(FailureReason::InvalidProof));
    let mut client = ScramClient::new(ScramHash::Sha512, Gs2::None, "user", "pencil");
    assert!(matches!(fixture.scram(client.mechanism(), &mut client).step, ExchangeStep::Done { .. }));
}

#[test]
fn a_removed_channel_binding_offer_is_detected() {
    let fixture = SaslFixture::new();
    for mechanism in [Mechanism::ScramSha256, Mechanism::ScramSha256Plus] {
        let ended = fixture.scram(mechanism, &mut user(Gs2::NotOffered));
        assert_eq!(ended, failed(FailureReason::ServerDoesSupportChannelBinding));
        assert_eq!(ended.step, ExchangeStep::Failed(Failure::NotAuthorized));
    }
}

#[test]
fn flag_and_mechanism_must_agree() {
    let fixture = SaslFixture::new();
    for (mechanism, gs2) in [
        (Mechanism::ScramSha256Plus, Gs2::None),
        (Mechanism::ScramSha256, exporter()),
        (Mechanism::ScramSha256, bound("tls-unique", b"x")),
    ] {
        assert_eq!(
            fixture.scram(mechanism, &mut user(gs2)),
            failed(FailureReason::ChannelBindingNotSupported)
        );
    }
    let not_offered = SaslFixture { offered_plus: false, ..SaslFixture::new() };
    let ended = not_offered.scram(Mechanism::ScramSha256Plus, &mut user(Gs2::NotOffered));
    assert_eq!(ended, failed(FailureReason::ChannelBindingNotSupported));
}

#[test]
fn another_channel_or_type_fails() {
    let fixture = SaslFixture::new();
    let plus = Mechanism::ScramSha256Plus;
    for name in ["tls-unique", "tls-server-end-point-2", "TLS-EXPORTER"] {
        assert_eq!(
            fixture.scram(plus, &mut user(bound(name, &[7; 32]))),
            failed(FailureReason::UnsupportedChannelBindingType)
        );
    }
    for (name, data) in [
        ("tls-exporter", &[8; 32][..]),
        ("tls-exporter", &[7; 31]),
        ("tls-exporter", &[]),
        ("tls-exporter", &[9; 32]),
        ("tls-server-end-point", &[7; 32]),
    ] {
        assert_eq!(
            fixture.scram(plus, &mut user(bound(name, data))),
            failed(FailureReason::ChannelBindingsDontMatch)
        );
    }
    let fixture = SaslFixture {
        binding: ChannelBindingData { exporter: None, ..fixture.binding },
        ..SaslFixture::new()
    };
    assert_eq!(
        fixture.scram(plus, &mut user(exporter())),
        failed(FailureReason::UnsupportedChannelBindingType)
    );
}

#[test]
fn plus_on_a_stream_without_tls_is_an_invalid_mechanism() {
    let fixture = SaslFixture { binding: ChannelBindingData::default(), ..SaslFixture::new() };
    let ended = fixture.scram(Mechanism::ScramSha256Plus, &mut user(exporter()));
    assert_eq!(ended.step, ExchangeStep::Failed(Failure::InvalidMechanism));
}

#[test]
fn the_header_cannot_be_changed_afterwards() {
    let fixture = SaslFixture::new();
    // "y,," for "n,,", and another authzid.
    for header in ["eSws", "bixhPXgs", "biwsAA==", "biws="] {
        let ended = fixture.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| {
            last.replace("c=biws,", &format!("c={header},")).into_bytes()
        });
        assert_eq!(ended, failed(FailureReason::ChannelBindingsDontMatch), "{header}");
    }
}

#[test]
fn the_nonce_must_be_returned_unchanged() {
    let fixture = SaslFixture::new();
    let tampers: [fn(String) -> String; 4] = [
        |last| last.replacen(",p=", "x,p=", 1),
        |last| last.replacen("r=", "r=x", 1),
        |last| {
            let (head, proof) = last.split_once(",p=").unwrap();
            format!("{},p={proof}", &head[..head.len() - 1])
        },
        |last| {
            let proof = last.split_once(",p=").unwrap().1;
            format!("c=biws,r=x,p={proof}")
        },
    ];
    for tamper in tampers {
        let ended = fixture
            .scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| tamper(last).into_bytes());
        assert_eq!(ended, failed(FailureReason::NonceMismatch));
    }
}

#[test]
fn a_proof_of_another_exchange_is_rejected() {
    let fixture = SaslFixture::new();
    let mut earlier_message = Vec::new();
    let first = fixture.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None).with_nonce("same"), |last| {
        earlier_message = last.clone().into_bytes();
        last.into_bytes()
    });
    assert!(matches!(first.step, ExchangeStep::Done { .. }));
    let replayed =
        fixture
            .scram_with(Mechanism::ScramSha256, &mut user(Gs2::None).with_nonce("same"), |_| earlier_message);
    assert_eq!(replayed, failed(FailureReason::NonceMismatch));
}

#[test]
fn every_altered_byte_of_a_proof_is_detected() {
    let fixture = SaslFixture::new();
    for at in 0..32 {
        let ended = fixture.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| {
            use base64::Engine as _;
            use base64::engine::general_purpose::STANDARD;
            let (head, proof) = last.split_once(",p=").unwrap();
            let mut proof = STANDARD.decode(proof).unwrap();
            proof[at] ^= 1;
            format!("{head},p={}", STANDARD.encode(proof)).into_bytes()
        });
        assert_eq!(ended, failed(FailureReason::InvalidProof), "byte {at}");
    }
}

#[test]
fn malformed_final_messages_are_refused() {
    let fixture = SaslFixture::new();
    type Tamper = fn(String) -> String;
    let tampers: [(Tamper, FailureReason); 7] = [
        (|_| String::new(), FailureReason::InvalidEncoding),
        (|last| last.replace(",p=", ",q="), FailureReason::InvalidEncoding),
        (|last| last.replace("c=", "C="), FailureReason::InvalidEncoding),
        (|last| last + "=", FailureReason::InvalidEncoding),
        (|last| format!("{},p=c2hvcnQ=", last.split_once(",p=").unwrap().0), FailureReason::InvalidEncoding),
        (|last| last.replace(",p=", ",m=x,p="), FailureReason::ExtensionsNotSupported),
        (
            |last| last.replace(",p=", &format!(",x={},p=", "y".repeat(sasl::MAX_CLIENT_FINAL))),
            FailureReason::TooLong,
        ),
    ];
    for (tamper, reason) in tampers {
        let ended = fixture
            .scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| tamper(last).into_bytes());
        assert_eq!(ended, failed(reason));
        assert_eq!(ended.step, ExchangeStep::Failed(Failure::MalformedRequest));
    }
}

#[test]
fn malformed_first_messages_are_refused() {
    let fixture = SaslFixture::new();
    let long_nonce = format!("n,,n=u,r={}", "x".repeat(1025));
    let long = format!("n,,n={},r=x", "u".repeat(sasl::MAX_CLIENT_FIRST));
    for (message, reason) in [
        (&b""[..], FailureReason::InvalidEncoding),
        (b"n,,n=u", FailureReason::InvalidEncoding),
        (b"n,,m=1,n=u,r=x", FailureReason::ExtensionsNotSupported),
        (b"n,,n=u=2X,r=x", FailureReason::InvalidUsernameEncoding),
        (b"n,,n=\x07,r=x", FailureReason::InvalidUsernameEncoding),
        (b"n,,n=\xc2\xad,r=x", FailureReason::InvalidUsernameEncoding),
        (long_nonce.as_bytes(), FailureReason::TooLong),
        (long.as_bytes(), FailureReason::TooLong),
    ] {
        let mut exchange = fixture.exchange(Mechanism::ScramSha1);
        assert_eq!(exchange.step(Some(message)), ExchangeStep::Failed(reason.failure()));
        assert_eq!((exchange.reason(), exchange.is_finished()), (Some(reason), true));
    }
}

#[test]
fn external_is_refused_as_required_by_xep_0178() {
    let fixture = SaslFixture::new();
    let run = |answer: Result<String, Failure>| {
        let mut exchange = fixture.exchange(Mechanism::External);
        assert!(matches!(
            exchange.step(Some(b"x@example.org")),
            ExchangeStep::NeedCertificate { authzid: Some(_) }
        ));
        exchange.certificate(answer)
    };
    for failure in [Failure::InvalidAuthzid, Failure::NotAuthorized] {
        assert_eq!(run(Err(failure)), ExchangeStep::Failed(failure));
    }
    let mut exchange = fixture.exchange(Mechanism::External);
    assert_eq!(exchange.step(Some(b"a\0b")), ExchangeStep::Failed(Failure::MalformedRequest));
}

#[test]
fn the_caller_can_end_an_exchange_at_any_point() {
    let fixture = SaslFixture::new();
    for failure in Failure::ALL {
        let mut exchange = fixture.exchange(Mechanism::ScramSha256);
        exchange.step(Some(&user(Gs2::None).client_first()));
        assert_eq!(exchange.fail(failure), ExchangeStep::Failed(failure));
        assert!(exchange.is_finished());
        let next = exchange.credentials(Some(&fixture.stored), &fixture.decoy, "user");
        assert_eq!(next, ExchangeStep::Failed(Failure::MalformedRequest), "over is over");
    }
    let names: std::collections::HashSet<&str> =
        Failure::ALL.iter().map(|failure| failure.condition()).collect();
    assert_eq!(names.len(), 11);
}

/// Unexpected answers and messages never continue the exchange, and never log in.
#[test]
fn unexpected_messages_and_calls_are_refused() {
    let fixture = SaslFixture::new();
    type Call = fn(&mut Exchange, &SaslFixture) -> ExchangeStep;
    let calls: [(&str, Call); 6] = [
        ("no message", |exchange, _| exchange.step(None)),
        ("message", |exchange, _| exchange.step(Some(b"n,,n=user,r=x"))),
        ("credentials", |exchange, fixture| {
            exchange.credentials(Some(&fixture.stored), &fixture.decoy, "user")
        }),
        ("password", |exchange, _| exchange.password_checked(true)),
        ("certificate", |exchange, _| exchange.certificate(Ok("user".into()))),
        ("token", |exchange, _| exchange.token_checked(Some("user".into()))),
    ];
    for mechanism in Mechanism::ALL {
        let first = match mechanism {
            Mechanism::Plain => client::plain(None, "user", "pencil"),
            Mechanism::External | Mechanism::Anonymous => vec![],
            Mechanism::OauthBearer => client::oauth_bearer(None, "t0ken"),
            _ if mechanism.is_plus() => user(exporter()).client_first(),
            _ => user(Gs2::None).client_first(),
        };
        let expected = match mechanism {
            Mechanism::Plain => "password",
            Mechanism::External => "certificate",
            Mechanism::OauthBearer => "token",
            Mechanism::Anonymous => "",
            _ => "credentials",
        };
        for (name, call) in calls {
            // As the second call.
            let mut exchange = fixture.exchange(mechanism);
            exchange.step(Some(&first));
            let step = call(&mut exchange, &fixture);
            assert_eq!(
                step == ExchangeStep::Failed(Failure::MalformedRequest),
                name != expected,
                "{mechanism} {name}"
            );
            // As the first call.
            if !name.ends_with("message") {
                let step = call(&mut fixture.exchange(mechanism), &fixture);
                assert_eq!(step, ExchangeStep::Failed(Failure::MalformedRequest), "{mechanism} {name}");
            }
        }
        if mechanism != Mechanism::Anonymous {
            let mut exchange = fixture.exchange(mechanism);
            assert_eq!(exchange.step(None), ExchangeStep::Challenge(vec![]));
            assert_eq!(
                exchange.step(None),
                ExchangeStep::Failed(Failure::MalformedRequest),
                "{mechanism}: asked only once"
            );
        }
    }
}

#[test]
fn a_nonce_that_can_be_guessed_or_misread_never_leads_to_a_login() {
    for nonce in ["", "short", "0123456789abcde", "0123456789,abcdef", "0123456789 abcdef", "0123456789abcdé"]
    {
        let mut exchange =
            Exchange::new(Mechanism::ScramSha256, false, ChannelBindingData::default(), nonce.into());
        assert_eq!(
            exchange.step(Some(b"n,,n=user,r=x")),
            ExchangeStep::Failed(Failure::TemporaryAuthFailure),
            "{nonce:?}"
        );
    }
    assert!(sasl::nonce().len() >= 16 && sasl::nonce() != sasl::nonce());
}
