//! Tests of the credentials blob: round trips, and detection of damage.

use std::collections::HashMap;
use std::sync::Arc;

use sasl::{
    CredentialsError, DEFAULT_ITERATIONS, KeyShape, KeyShapes, MAX_ITERATIONS, SALT_BYTES, ScramKeys,
};

use super::*;

#[test]
fn credentials_round_trip_through_their_encoding() {
    let all = SaslFixture::new().stored;
    assert_eq!(all.encode().len(), 300, "as the module says");
    for drop in 0..8 {
        let keep = |bit: u8, keys: &Option<ScramKeys>| keys.clone().filter(|_| drop & bit == 0);
        let some = Credentials {
            sha1: keep(1, &all.sha1),
            sha256: keep(2, &all.sha256),
            sha512: keep(4, &all.sha512),
        };
        assert_eq!(Credentials::decode(&some.encode()), Ok(some));
    }
}

/// Databases rely on the layout: these bytes must stay readable.
#[test]
fn the_encoding_of_version_1_is_stable() {
    let credentials =
        Credentials::derive_for(&[ScramHash::Sha1], "pencil", 4096, b"A%\xc2G\xe4:\xb1\xe9<m\xffv").unwrap();
    let hex: String = credentials.encode().iter().map(|byte| format!("{byte:02x}")).collect();
    // StoredKey and ServerKey of the example in RFC 5802, section 5.
    assert_eq!(
        hex,
        "01010100001000\
         0c4125c247e43ab1e93c6dff76\
         e9d94660c39d65c38fbad91c358f14da0eef2bd6\
         0fe09258b3ac852ba502cc62ba903eaacdbf7d31"
    );
}

#[test]
fn damaged_credentials_are_detected() {
    let good = SaslFixture::new().stored.encode();
    for len in 0..good.len() {
        assert_eq!(Credentials::decode(&good[..len]), Err(CredentialsError::Corrupt), "cut at {len}");
    }
    let change = |at: usize, value: u8| {
        let mut blob = good.clone();
        blob[at] = value;
        Credentials::decode(&blob)
    };
    assert_eq!(change(0, 0), Err(CredentialsError::Version(0)));
    assert_eq!(change(0, 2), Err(CredentialsError::Version(2)));
    for (at, value) in [(1, 2), (1, 4), (1, 0), (2, 0), (2, 2), (2, 4), (3, 0xff), (6, 0), (7, 0), (7, 255)] {
        assert_eq!(change(at, value), Err(CredentialsError::Corrupt), "{value} at {at}");
    }
    assert_eq!(Credentials::decode(&[good.as_slice(), b"x"].concat()), Err(CredentialsError::Corrupt));
    let twice = [&[1, 2], &good[2..64], &good[2..64]].concat();
    assert_eq!(Credentials::decode(&twice), Err(CredentialsError::Corrupt));
}

#[test]
fn passwords_are_verified_with_any_stored_hash() {
    let all = SaslFixture::new().stored;
    for hash in ScramHash::ALL {
        let one = Credentials::derive_for(&[hash], "pencil", ITERATIONS, b"salt").unwrap();
        assert!(one.verify_password("pencil") && !one.verify_password("Pencil"));
    }
    assert!(all.verify_password("pencil"));
    for wrong in ["", "pencil ", "PENCIL", "\u{7}", "pencil\0"] {
        assert!(!all.verify_password(wrong), "{wrong:?}");
    }
    assert!(!Credentials::default().verify_password("pencil"));
}

#[test]
fn credentials_with_one_foreign_key_match_no_password() {
    let derive =
        |password| Credentials::derive_for(&[ScramHash::Sha256], password, ITERATIONS, b"salt").unwrap();
    let foreign = derive("other").sha256.unwrap();
    let mut stored = derive("pencil");
    stored.sha256.as_mut().unwrap().stored_key = foreign.stored_key;
    assert!(!stored.verify_password("pencil") && !stored.verify_password("other"));
    let mut stored = derive("pencil");
    stored.sha256.as_mut().unwrap().server_key = foreign.server_key;
    assert!(!stored.verify_password("pencil") && !stored.verify_password("other"));
}

#[test]
fn decoy_credentials_match_no_password_and_round_trip() {
    let decoy = Credentials::fake(&Secret::new(*b"secret"), "nobody@example.org");
    assert_eq!(decoy, Credentials::fake(&Secret::new(*b"secret"), "nobody@example.org"));
    assert_ne!(decoy, Credentials::fake(&Secret::new(*b"secret"), "other@example.org"));
    let keys = decoy.sha256.as_ref().unwrap();
    assert_eq!((keys.iterations.get(), keys.salt.len()), (DEFAULT_ITERATIONS, SALT_BYTES));
    assert!(!decoy.verify_password("") && !decoy.verify_password("pencil"));
    assert_eq!(Credentials::decode(&decoy.encode()), Ok(decoy));
    for iterations in [0, u32::MAX] {
        let keys = Decoy::new(&Secret::new(*b"s"), iterations).keys(ScramHash::Sha1, "a");
        assert!((1..=MAX_ITERATIONS).contains(&keys.iterations.get()));
    }
}

/// Keys as another server wrote them: for one hash, with a salt and iterations of its own.
fn imported(name: &str) -> Credentials {
    let salt = format!("{name:*<36}");
    Credentials::derive_for(&[ScramHash::Sha1], "pencil", 3, salt.as_bytes()).unwrap()
}

/// What a client sees of keys.
fn seen(keys: &ScramKeys) -> (usize, u32) {
    (keys.salt.len(), keys.iterations.get())
}

#[test]
fn missing_accounts_look_like_imported_ones_of_their_domain() {
    let mut shapes = KeyShapes::default();
    for number in 0..80 {
        shapes.count(KeyShape::of(&imported(&format!("u{number}"))).unwrap());
    }
    let shapes = Arc::new(HashMap::from([("example.org".to_owned(), shapes)]));
    let decoy = Decoy::new(&Secret::new(*b"secret"), 2).with_shapes(shapes);
    let (mut foreign, mut usual) = (0, 0);
    for number in 0..200 {
        let account = format!("missing{number}@example.org");
        let [sha1, sha256, sha512] = ScramHash::ALL.map(|hash| decoy.keys(hash, &account));
        assert_eq!(decoy.keys(ScramHash::Sha1, &account), sha1, "always the same");
        assert_eq!(
            (seen(&sha256), &sha256.salt),
            ((SALT_BYTES, 2), &sha512.salt),
            "nobody has imported keys"
        );
        let credentials = decoy.credentials(&account);
        assert!(!credentials.verify_password("pencil"));
        match seen(&sha1) {
            (36, 3) => {
                foreign += 1;
                assert!(!sha1.salt.starts_with(&sha256.salt), "the salts are independent");
                // The password of an imported account is compared with its only keys.
                assert_eq!(credentials.sha1.as_ref(), Some(&sha1));
                assert!(credentials.sha256.is_none() && credentials.sha512.is_none());
            }
            (SALT_BYTES, 2) => {
                usual += 1;
                assert_eq!(sha1.salt, sha256.salt);
                assert!(credentials.sha512.is_some());
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(foreign > 150 && usual > 5, "{foreign} {usual}");
    let elsewhere = decoy.keys(ScramHash::Sha1, "missing@other.example");
    assert_eq!(seen(&elsewhere), (SALT_BYTES, 2), "the domain has no imported accounts");
    let provided = decoy.with_parameters(20, 5).keys(ScramHash::Sha1, "missing@example.org");
    assert_eq!(seen(&provided), (20, 5));
}

#[test]
fn the_password_of_an_account_without_keys_is_compared_with_a_decoy() {
    let decoy = Decoy::new(&Secret::new(*b"secret"), 2);
    let expected = (decoy.credentials("nobody@example.org"), false);
    for stored in [None, Some(Credentials::default())] {
        assert_eq!(decoy.stored_or_decoy(stored, "nobody@example.org"), expected);
    }
    let stored = imported("juliet");
    assert_eq!(decoy.stored_or_decoy(Some(stored.clone()), "juliet@example.org"), (stored, true));
}

#[test]
fn unencodable_credentials_are_refused() {
    let derive = |password: &str, iterations, salt: &[u8]| {
        Credentials::derive_for(&[ScramHash::Sha256], password, iterations, salt).map(drop)
    };
    assert_eq!(derive("p", 1, b"s"), Ok(()));
    assert_eq!(derive("p", 1, &[0; 255]), Ok(()));
    assert_eq!(derive("", 1, b"s"), Err(CredentialsError::Empty));
    assert_eq!(derive("\u{ad}", 1, b"s"), Err(CredentialsError::Empty));
    assert!(matches!(derive("\u{7}", 1, b"s"), Err(CredentialsError::Prep(_))));
    assert_eq!(derive("p", 0, b"s"), Err(CredentialsError::Iterations));
    assert_eq!(derive("p", MAX_ITERATIONS + 1, b"s"), Err(CredentialsError::Iterations));
    assert_eq!(derive("p", 1, b""), Err(CredentialsError::Salt));
    assert_eq!(derive("p", 1, &[0; 256]), Err(CredentialsError::Salt));
}

#[test]
fn new_credentials_have_a_unique_salt_and_print_no_secret() {
    let one = Credentials::create("pencil").unwrap();
    assert_ne!(one.sha1.as_ref().unwrap().salt, Credentials::create("pencil").unwrap().sha1.unwrap().salt);
    let keys = one.sha512.as_ref().unwrap();
    assert_eq!((keys.salt.len(), keys.iterations.get()), (SALT_BYTES, DEFAULT_ITERATIONS));
    let shown = format!("{:?}", ScramKeys { salt: [1].into(), ..keys.clone() });
    assert_eq!(shown, "ScramKeys { salt: [1], iterations: 10000, stored_key: ***, server_key: *** }");
}

#[test]
fn keys_of_another_server_verify_the_password_and_are_checked() {
    let derived = Credentials::derive("pencil", 4096, b"salt").unwrap();
    let mut added = Credentials::default();
    for hash in ScramHash::ALL {
        let keys = derived.keys(hash).unwrap();
        let (stored, server) = (keys.stored_key.expose(), keys.server_key.expose());
        added.add_keys(hash, b"salt", 4096, stored, server).unwrap();
        let mut other = Credentials::default();
        assert_eq!(other.add_keys(hash, b"", 4096, stored, server), Err(CredentialsError::Salt));
        assert_eq!(other.add_keys(hash, b"salt", 0, stored, server), Err(CredentialsError::Iterations));
        assert_eq!(other.add_keys(hash, b"salt", 1, &stored[1..], server), Err(CredentialsError::Corrupt));
        assert_eq!(other, Credentials::default());
    }
    assert_eq!(added, derived);
    assert!(added.verify_password("pencil") && !added.verify_password("pen"));
}
