//! Server side of PLAIN (RFC 4616) and SCRAM-SHA-1 (RFC 5802), implemented independently.

use std::num::NonZeroU32;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac, pbkdf2};

const ROUNDS: u32 = 4_096;
const SALT: &[u8] = b"0123456789abcdef";

/// A SCRAM exchange between its first and last message.
pub(crate) struct ScramServer {
    pub(crate) user: String,
    bare: String,
    first: String,
    gs2: String,
    nonce: String,
}

/// Result of a client's SASL message.
pub(crate) enum SaslOutcome {
    Challenge(ScramServer, String),
    Success(String, String),
    Failure(&'static str),
}

pub(crate) fn decode(text: &str) -> Vec<u8> {
    if text == "=" { Vec::new() } else { STANDARD.decode(text.trim()).unwrap_or_default() }
}

pub(crate) fn password(user: &str) -> String {
    format!("p{}", user.trim_start_matches('u'))
}

pub(crate) fn plain(message: &[u8], known: impl Fn(&str) -> bool) -> SaslOutcome {
    let fields: Vec<&[u8]> = message.split(|byte| *byte == 0).collect();
    let [_, user, given] = fields.as_slice() else { return SaslOutcome::Failure("malformed-request") };
    let user = String::from_utf8_lossy(user).into_owned();
    if known(&user) && password(&user).as_bytes() == *given {
        SaslOutcome::Success(user, String::new())
    } else {
        SaslOutcome::Failure("not-authorized")
    }
}

pub(crate) fn scram_first(message: &[u8], known: impl Fn(&str) -> bool) -> SaslOutcome {
    let message = String::from_utf8_lossy(message).into_owned();
    let mut parts = message.splitn(3, ',');
    let (Some(flag), Some(authzid), Some(bare)) = (parts.next(), parts.next(), parts.next()) else {
        return SaslOutcome::Failure("malformed-request");
    };
    let field = |name: &str| bare.split(',').find_map(|field| field.strip_prefix(name));
    let (Some(user), Some(nonce)) = (field("n="), field("r=")) else {
        return SaslOutcome::Failure("malformed-request");
    };
    if !matches!(flag, "n" | "y") || !known(user) {
        return SaslOutcome::Failure("not-authorized");
    }
    let nonce = format!("{nonce}server{}", nonce.len());
    let first = format!("r={nonce},s={},i={ROUNDS}", STANDARD.encode(SALT));
    let scram = ScramServer {
        user: user.to_owned(),
        bare: bare.to_owned(),
        first: first.clone(),
        gs2: format!("{flag},{authzid},"),
        nonce,
    };
    SaslOutcome::Challenge(scram, first)
}

pub(crate) fn scram_final(scram: &ScramServer, message: &[u8], wrong_signature: bool) -> SaslOutcome {
    let message = String::from_utf8_lossy(message).into_owned();
    let Some((without_proof, proof)) = message.split_once(",p=") else {
        return SaslOutcome::Failure("malformed-request");
    };
    let expected = format!("c={},r={}", STANDARD.encode(&scram.gs2), scram.nonce);
    if without_proof != expected {
        return SaslOutcome::Failure("malformed-request");
    }
    let mut salted = [0_u8; 20];
    let rounds = NonZeroU32::new(ROUNDS).unwrap_or(NonZeroU32::MIN);
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA1, rounds, SALT, password(&scram.user).as_bytes(), &mut salted);
    let mac = |key: &[u8], data: &[u8]| {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
        hmac::sign(&key, data).as_ref().to_vec()
    };
    let client_key = mac(&salted, b"Client Key");
    let stored = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &client_key);
    let auth = format!("{},{},{without_proof}", scram.bare, scram.first);
    let signature = mac(stored.as_ref(), auth.as_bytes());
    let right: Vec<u8> = client_key.iter().zip(&signature).map(|(key, sign)| key ^ sign).collect();
    if decode(proof) != right {
        return SaslOutcome::Failure("not-authorized");
    }
    let mut verifier = mac(&mac(&salted, b"Server Key"), auth.as_bytes());
    if wrong_signature {
        verifier[0] ^= 1;
    }
    SaslOutcome::Success(scram.user.clone(), format!("v={}", STANDARD.encode(verifier)))
}
