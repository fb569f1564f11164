//! SCRAM keys in the forms of other servers, so that nobody has to change a password.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sasl::{Credentials, ScramHash};

/// The hash of a mechanism name (XEP-0227, section 4.3), also with `-PLUS`.
pub fn hash_of_mechanism(name: &str) -> Option<ScramHash> {
    let name = name.strip_suffix("-PLUS").unwrap_or(name);
    ScramHash::ALL.into_iter().find(|hash| hash.scram_name().eq_ignore_ascii_case(name))
}

/// The hash whose output has this length.
pub fn hash_of_length(bytes: usize) -> Option<ScramHash> {
    ScramHash::ALL.into_iter().find(|hash| hash.output_len() == bytes)
}

/// Adds keys in base64.
///
/// COMPAT(ejabberd, all versions until 26.03): its XEP-0227 export encodes values that its database holds in base64 once
/// more. Keys whose decoded form is base64 of the right length are decoded twice, and then so is the salt.
///
/// # Errors
/// One sentence.
pub fn add_base64(
    credentials: &mut Credentials,
    hash: ScramHash,
    salt: &str,
    iterations: u32,
    stored_key: &str,
    server_key: &str,
) -> Result<(), String> {
    let wrong = || format!("the keys for {} are not base64", hash.scram_name());
    let [mut salt, mut stored, mut server] = [salt, stored_key, server_key].map(decode);
    if stored.as_ref().is_some_and(|key| key.len() != hash.output_len()) {
        let again = |value: &Option<Vec<u8>>| decode(std::str::from_utf8(value.as_deref()?).ok()?);
        let twice = [again(&salt), again(&stored), again(&server)];
        if twice[1].as_ref().is_some_and(|key| key.len() == hash.output_len()) {
            [salt, stored, server] = twice;
        }
    }
    let (salt, stored, server) =
        (salt.ok_or_else(wrong)?, stored.ok_or_else(wrong)?, server.ok_or_else(wrong)?);
    add(credentials, hash, &salt, iterations, &stored, &server)
}

/// Adds keys in hexadecimal digits with a salt in plain text, as Prosody stores them. Their length is that of the hash.
///
/// # Errors
/// One sentence.
pub fn add_hex(
    credentials: &mut Credentials,
    salt: &[u8],
    iterations: u32,
    stored_key: &str,
    server_key: &str,
) -> Result<(), String> {
    let (Some(stored), Some(server)) = (decode_hex(stored_key), decode_hex(server_key)) else {
        return Err("the keys are not hexadecimal digits".to_owned());
    };
    let hash = hash_of_length(stored.len()).ok_or("the keys have a length that no hash has")?;
    add(credentials, hash, salt, iterations, &stored, &server)
}

/// Adds keys as bytes.
pub(crate) fn add(
    credentials: &mut Credentials,
    hash: ScramHash,
    salt: &[u8],
    iterations: u32,
    stored: &[u8],
    server: &[u8],
) -> Result<(), String> {
    let name = hash.scram_name();
    credentials
        .add_keys(hash, salt, iterations, stored, server)
        .map_err(|error| format!("the keys for {name} cannot be used: {error}"))
}

/// Base64 with white space ignored.
fn decode(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    BASE64_STANDARD.decode(text).ok()
}

fn decode_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let digits = text.as_bytes().chunks(2).map(std::str::from_utf8);
    digits.map(|pair| u8::from_str_radix(pair.ok()?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of XEP-0227, section 4.3.
    const SALT: &str = "TmFDbE5hQ2xOYUNsTmFDbE5hQ2xOYUNsTmFDbE5hQ2xOYUNsTmFDbE5hQ2wK";
    const SERVER: &str = "0pXWGK0GZJ6TR73AIUN3ITYtA1g=";
    const STORED: &str = "Q6qT/SbybblGCZz8e8eSfCJOQic=";

    fn twice(text: &str) -> String {
        BASE64_STANDARD.encode(text)
    }

    #[test]
    fn keys_encoded_once_and_twice_are_the_same() {
        let mut once = Credentials::default();
        add_base64(&mut once, ScramHash::Sha1, SALT, 100_000, STORED, SERVER).unwrap();
        assert_eq!(once.sha1.as_ref().unwrap().salt.len(), 45);
        let mut again = Credentials::default();
        add_base64(&mut again, ScramHash::Sha1, &twice(SALT), 100_000, &twice(STORED), &twice(SERVER))
            .unwrap();
        assert_eq!(once, again);
    }

    #[test]
    fn hexadecimal_keys_state_their_hash_by_length() {
        let derived = Credentials::derive("secret", 4096, b"6e7-salt").unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for hash in ScramHash::ALL {
            let keys = derived.keys(hash).unwrap();
            let mut read = Credentials::default();
            let (stored, server) = (hex(keys.stored_key.expose()), hex(keys.server_key.expose()));
            add_hex(&mut read, b"6e7-salt", 4096, &stored, &server).unwrap();
            assert_eq!(read.keys(hash), derived.keys(hash));
            assert!(read.verify_password("secret"));
        }
    }

    #[test]
    fn wrong_keys_are_refused_with_a_reason() {
        let mut credentials = Credentials::default();
        for (salt, iterations, stored) in
            [("!", 1, STORED), (SALT, 0, STORED), (SALT, 1, "YQ=="), ("", 1, STORED)]
        {
            assert!(add_base64(&mut credentials, ScramHash::Sha1, salt, iterations, stored, SERVER).is_err());
        }
        assert!(add_hex(&mut credentials, b"s", 1, "abc", "abc").is_err());
        assert!(add_hex(&mut credentials, b"s", 1, "abcd", "abcd").is_err());
        assert!(add_hex(&mut credentials, b"s", 1, "é1", "é1").is_err());
        assert_eq!(credentials, Credentials::default());
        assert_eq!(hash_of_mechanism("SCRAM-SHA-256-PLUS"), Some(ScramHash::Sha256));
        assert_eq!(hash_of_mechanism("PLAIN"), None);
    }
}
