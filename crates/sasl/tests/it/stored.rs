//! Tests of the credentials blob: round trips, and detection of damage.

use sasl::{CredentialsError, DEFAULT_ITERATIONS, MAX_ITERATIONS, SALT_BYTES, ScramKeys};

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
