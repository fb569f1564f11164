//! Everything that must not become a login, and what the client is told of it (RFC 6120 section 6.5).

use super::*;
use sasl::client;

#[test]
fn wrong_passwords_and_missing_accounts_look_alike() {
    let world = World::new();
    for hash in Hash::ALL {
        for gs2 in [Gs2::None, exporter()] {
            let mut wrong = Scram::new(hash, gs2.clone(), "user", "pencil ");
            let mut nobody = Scram::new(hash, gs2, "nobody", "pencil");
            let mechanism = wrong.mechanism();
            assert_eq!(world.scram(mechanism, &mut wrong), failed(Reason::InvalidProof));
            assert_eq!(world.scram(mechanism, &mut nobody), failed(Reason::InvalidProof));
        }
    }
    for (username, password) in
        [("user", "pencil "), ("nobody", "pencil"), ("user", "\u{7}"), ("user", "p\u{378}")]
    {
        let mut exchange = world.exchange(Mechanism::Plain);
        let step = exchange.step(Some(&client::plain(None, username, password)));
        assert_eq!(world.answer(&mut exchange, step), Step::Failed(Failure::NotAuthorized));
        assert_eq!(exchange.reason(), Some(Reason::InvalidProof));
    }
}

/// What a guesser sees of an account that does not exist: as that of any other, and always the same.
#[test]
fn the_challenge_does_not_tell_whether_there_is_an_account() {
    let world = World::new();
    let shown = |world: &World, hash, account: &str, found: Option<&Credentials>| {
        let mut exchange = world.exchange(Mechanism::scram(hash, false));
        exchange.step(Some(b"n,,n=x,r=clientnonce"));
        let Step::Challenge(challenge) = exchange.credentials(found, &world.decoy, account) else { panic!() };
        let challenge = String::from_utf8(challenge).unwrap();
        let (nonce, rest) = challenge.split_once(",s=").unwrap();
        assert!(nonce.starts_with("r=clientnonce") && nonce.len() == "r=clientnonce".len() + 24);
        rest.to_owned()
    };
    let real = shown(&world, Hash::Sha256, "user@a", Some(&world.stored));
    let first = shown(&world, Hash::Sha256, "nobody@a", None);
    assert_eq!(first, shown(&world, Hash::Sha256, "nobody@a", None), "stable");
    assert_eq!(first, shown(&world, Hash::Sha1, "nobody@a", None), "as real ones, the same for every hash");
    assert_eq!(real.len(), first.len());
    assert_eq!(real.rsplit_once(',').unwrap().1, first.rsplit_once(',').unwrap().1, "iterations");
    assert_ne!(first, shown(&world, Hash::Sha256, "nobody@b", None), "another on another domain");
    let other = World { decoy: Decoy::new(&Secret::new(*b"other"), ITERATIONS), ..World::new() };
    assert_ne!(first, shown(&other, Hash::Sha256, "nobody@a", None), "not to be computed without the secret");
}

#[test]
fn an_account_without_keys_for_the_hash_is_as_a_missing_one() {
    let mut world = World::new();
    world.stored.sha256 = None;
    let mut client = user(Gs2::None);
    assert_eq!(world.scram(client.mechanism(), &mut client), failed(Reason::InvalidProof));
    let mut client = Scram::new(Hash::Sha512, Gs2::None, "user", "pencil");
    assert!(matches!(world.scram(client.mechanism(), &mut client).step, Step::Done { .. }));
}

#[test]
fn a_removed_offer_of_binding_is_noticed() {
    let world = World::new();
    for mechanism in [Mechanism::ScramSha256, Mechanism::ScramSha256Plus] {
        let ended = world.scram(mechanism, &mut user(Gs2::NotOffered));
        assert_eq!(ended, failed(Reason::ServerDoesSupportChannelBinding));
        assert_eq!(ended.step, Step::Failed(Failure::NotAuthorized));
    }
}

#[test]
fn flag_and_mechanism_must_agree() {
    let world = World::new();
    for (mechanism, gs2) in [
        (Mechanism::ScramSha256Plus, Gs2::None),
        (Mechanism::ScramSha256, exporter()),
        (Mechanism::ScramSha256, bound("tls-unique", b"x")),
    ] {
        assert_eq!(world.scram(mechanism, &mut user(gs2)), failed(Reason::ChannelBindingNotSupported));
    }
    let not_offered = World { offered_plus: false, ..World::new() };
    let ended = not_offered.scram(Mechanism::ScramSha256Plus, &mut user(Gs2::NotOffered));
    assert_eq!(ended, failed(Reason::ChannelBindingNotSupported));
}

#[test]
fn another_channel_or_type_fails() {
    let world = World::new();
    let plus = Mechanism::ScramSha256Plus;
    for name in ["tls-unique", "tls-server-end-point-2", "TLS-EXPORTER"] {
        assert_eq!(
            world.scram(plus, &mut user(bound(name, &[7; 32]))),
            failed(Reason::UnsupportedChannelBindingType)
        );
    }
    for (name, data) in [
        ("tls-exporter", &[8; 32][..]),
        ("tls-exporter", &[7; 31]),
        ("tls-exporter", &[]),
        ("tls-exporter", &[9; 32]),
        ("tls-server-end-point", &[7; 32]),
    ] {
        assert_eq!(world.scram(plus, &mut user(bound(name, data))), failed(Reason::ChannelBindingsDontMatch));
    }
    let world = World { binding: Binding { exporter: None, ..world.binding }, ..World::new() };
    assert_eq!(world.scram(plus, &mut user(exporter())), failed(Reason::UnsupportedChannelBindingType));
}

#[test]
fn plus_on_a_stream_without_tls_is_an_invalid_mechanism() {
    let world = World { binding: Binding::default(), ..World::new() };
    let ended = world.scram(Mechanism::ScramSha256Plus, &mut user(exporter()));
    assert_eq!(ended.step, Step::Failed(Failure::InvalidMechanism));
}

#[test]
fn the_header_cannot_be_changed_afterwards() {
    let world = World::new();
    // "y,," for "n,,", and another authzid.
    for header in ["eSws", "bixhPXgs", "biwsAA==", "biws="] {
        let ended = world.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| {
            last.replace("c=biws,", &format!("c={header},")).into_bytes()
        });
        assert_eq!(ended, failed(Reason::ChannelBindingsDontMatch), "{header}");
    }
}

#[test]
fn the_nonce_must_come_back_whole() {
    let world = World::new();
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
        let ended =
            world.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| tamper(last).into_bytes());
        assert_eq!(ended, failed(Reason::NonceMismatch));
    }
}

#[test]
fn a_proof_of_another_conversation_is_worth_nothing() {
    let world = World::new();
    let mut kept = Vec::new();
    let first = world.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None).with_nonce("same"), |last| {
        kept = last.clone().into_bytes();
        last.into_bytes()
    });
    assert!(matches!(first.step, Step::Done { .. }));
    let replayed =
        world.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None).with_nonce("same"), |_| kept);
    assert_eq!(replayed, failed(Reason::NonceMismatch));
}

#[test]
fn every_wrong_byte_of_a_proof_is_noticed() {
    let world = World::new();
    for at in 0..32 {
        let ended = world.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| {
            use base64::Engine as _;
            use base64::engine::general_purpose::STANDARD;
            let (head, proof) = last.split_once(",p=").unwrap();
            let mut proof = STANDARD.decode(proof).unwrap();
            proof[at] ^= 1;
            format!("{head},p={}", STANDARD.encode(proof)).into_bytes()
        });
        assert_eq!(ended, failed(Reason::InvalidProof), "byte {at}");
    }
}

#[test]
fn malformed_final_messages() {
    let world = World::new();
    type Tamper = fn(String) -> String;
    let tampers: [(Tamper, Reason); 7] = [
        (|_| String::new(), Reason::InvalidEncoding),
        (|last| last.replace(",p=", ",q="), Reason::InvalidEncoding),
        (|last| last.replace("c=", "C="), Reason::InvalidEncoding),
        (|last| last + "=", Reason::InvalidEncoding),
        (|last| format!("{},p=c2hvcnQ=", last.split_once(",p=").unwrap().0), Reason::InvalidEncoding),
        (|last| last.replace(",p=", ",m=x,p="), Reason::ExtensionsNotSupported),
        (
            |last| last.replace(",p=", &format!(",x={},p=", "y".repeat(sasl::MAX_CLIENT_FINAL))),
            Reason::TooLong,
        ),
    ];
    for (tamper, reason) in tampers {
        let ended =
            world.scram_with(Mechanism::ScramSha256, &mut user(Gs2::None), |last| tamper(last).into_bytes());
        assert_eq!(ended, failed(reason));
        assert_eq!(ended.step, Step::Failed(Failure::MalformedRequest));
    }
}

#[test]
fn malformed_first_messages() {
    let world = World::new();
    let long_nonce = format!("n,,n=u,r={}", "x".repeat(1025));
    let long = format!("n,,n={},r=x", "u".repeat(sasl::MAX_CLIENT_FIRST));
    for (message, reason) in [
        (&b""[..], Reason::InvalidEncoding),
        (b"n,,n=u", Reason::InvalidEncoding),
        (b"n,,m=1,n=u,r=x", Reason::ExtensionsNotSupported),
        (b"n,,n=u=2X,r=x", Reason::InvalidUsernameEncoding),
        (b"n,,n=\x07,r=x", Reason::InvalidUsernameEncoding),
        (b"n,,n=\xc2\xad,r=x", Reason::InvalidUsernameEncoding),
        (long_nonce.as_bytes(), Reason::TooLong),
        (long.as_bytes(), Reason::TooLong),
    ] {
        let mut exchange = world.exchange(Mechanism::ScramSha1);
        assert_eq!(exchange.step(Some(message)), Step::Failed(reason.failure()));
        assert_eq!((exchange.reason(), exchange.is_over()), (Some(reason), true));
    }
}

#[test]
fn external_is_refused_as_xep_0178_says() {
    let world = World::new();
    let run = |answer: Result<String, Failure>| {
        let mut exchange = world.exchange(Mechanism::External);
        assert!(matches!(exchange.step(Some(b"x@example.org")), Step::NeedCertificate { authzid: Some(_) }));
        exchange.certificate(answer)
    };
    for failure in [Failure::InvalidAuthzid, Failure::NotAuthorized] {
        assert_eq!(run(Err(failure)), Step::Failed(failure));
    }
    let mut exchange = world.exchange(Mechanism::External);
    assert_eq!(exchange.step(Some(b"a\0b")), Step::Failed(Failure::MalformedRequest));
}

#[test]
fn the_caller_can_end_it_at_any_point_with_any_condition() {
    let world = World::new();
    for failure in Failure::ALL {
        let mut exchange = world.exchange(Mechanism::ScramSha256);
        exchange.step(Some(&user(Gs2::None).first()));
        assert_eq!(exchange.fail(failure), Step::Failed(failure));
        assert!(exchange.is_over());
        let next = exchange.credentials(Some(&world.stored), &world.decoy, "user");
        assert_eq!(next, Step::Failed(Failure::MalformedRequest), "over is over");
    }
    let names: std::collections::HashSet<&str> =
        Failure::ALL.iter().map(|failure| failure.condition()).collect();
    assert_eq!(names.len(), 11);
}

/// Answers and messages that were not asked for never lead on, and never to a login.
#[test]
fn nothing_works_out_of_turn() {
    let world = World::new();
    type Call = fn(&mut Exchange, &World) -> Step;
    let calls: [(&str, Call); 5] = [
        ("no message", |exchange, _| exchange.step(None)),
        ("message", |exchange, _| exchange.step(Some(b"n,,n=user,r=x"))),
        ("credentials", |exchange, world| exchange.credentials(Some(&world.stored), &world.decoy, "user")),
        ("password", |exchange, _| exchange.password_checked(true)),
        ("certificate", |exchange, _| exchange.certificate(Ok("user".into()))),
    ];
    for mechanism in Mechanism::ALL {
        let first = match mechanism {
            Mechanism::Plain => client::plain(None, "user", "pencil"),
            Mechanism::External | Mechanism::Anonymous => vec![],
            _ if mechanism.is_plus() => user(exporter()).first(),
            _ => user(Gs2::None).first(),
        };
        let expected = match mechanism {
            Mechanism::Plain => "password",
            Mechanism::External => "certificate",
            Mechanism::Anonymous => "",
            _ => "credentials",
        };
        for (name, call) in calls {
            // As the second call.
            let mut exchange = world.exchange(mechanism);
            exchange.step(Some(&first));
            let step = call(&mut exchange, &world);
            assert_eq!(
                step == Step::Failed(Failure::MalformedRequest),
                name != expected,
                "{mechanism} {name}"
            );
            // As the first call.
            if !name.ends_with("message") {
                let step = call(&mut world.exchange(mechanism), &world);
                assert_eq!(step, Step::Failed(Failure::MalformedRequest), "{mechanism} {name}");
            }
        }
        if mechanism != Mechanism::Anonymous {
            let mut exchange = world.exchange(mechanism);
            assert_eq!(exchange.step(None), Step::Challenge(vec![]));
            assert_eq!(
                exchange.step(None),
                Step::Failed(Failure::MalformedRequest),
                "{mechanism}: asked only once"
            );
        }
    }
}

#[test]
fn a_nonce_that_can_be_guessed_or_misread_never_leads_to_a_login() {
    for nonce in ["", "short", "0123456789abcde", "0123456789,abcdef", "0123456789 abcdef", "0123456789abcdé"]
    {
        let mut exchange = Exchange::new(Mechanism::ScramSha256, false, Binding::default(), nonce.into());
        assert_eq!(
            exchange.step(Some(b"n,,n=user,r=x")),
            Step::Failed(Failure::TemporaryAuthFailure),
            "{nonce:?}"
        );
    }
    assert!(sasl::nonce().len() >= 16 && sasl::nonce() != sasl::nonce());
}
