//! SCRAM server: RFC 5802 with SHA-1, RFC 7677 with SHA-256, and the same with SHA-512.
//!
//! Two states. [`AwaitingCredentials`] lasts from the client's first message until the caller has found the
//! credentials; [`AwaitingProof`] from the challenge until the proof. The whole exchange costs two HMACs and a hash
//! over the messages, three HMACs for the decoy, and no PBKDF2.
//!
//! XEP-0474 (0.5.0) adds `,h=…` to the challenge; clients that do not support it ignore it.
//!
//! Not implemented: `e=` (see `failure.rs`).
//!
//! # Pitfalls
//!
//! The decoy is computed for every account, existing or not, so that both take the same time.

use base::secret::constant_time_eq;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::channel_binding::ChannelBindingData;
use crate::credentials::{Credentials, ScramKeys};
use crate::decoy::Decoy;
use crate::downgrade_protection;
use crate::failure::FailureReason;
use crate::hash::{KeyBytes, ScramHash};
use crate::mechanism::{Mechanism, MechanismSet};
use crate::saslprep::prepare;
use crate::scram_message::{CbindFlag, client_final, client_first, is_nonce};

/// Longest client-first-message in bytes: a localpart (1023), a bare address as authzid (2047) and a nonce.
pub const MAX_CLIENT_FIRST: usize = 4096;
/// Longest client-final-message in bytes: it repeats the header in base 64.
pub const MAX_CLIENT_FINAL: usize = 8192;
/// Longest client nonce in bytes; clients use 16 to 64.
const MAX_NONCE: usize = 1024;

/// Parameters that negotiation fixed before the exchange.
pub(crate) struct ScramParams<'a> {
    pub(crate) hash: ScramHash,
    /// The mechanism is `-PLUS`.
    pub(crate) plus: bool,
    /// Any `-PLUS` was offered.
    pub(crate) offered_plus: bool,
    /// Mechanisms that the challenge repeats.
    pub(crate) announced: Option<MechanismSet>,
    pub(crate) binding: &'a ChannelBindingData,
    pub(crate) nonce: &'a str,
}

/// State after the client's first message.
pub(crate) struct AwaitingCredentials {
    hash: ScramHash,
    /// Prepared with SASLprep.
    pub(crate) username: String,
    authzid: Option<String>,
    /// `client-first-message-bare`.
    bare: String,
    /// The client's nonce followed by ours.
    nonce: String,
    /// Required value of `c=`: header and channel data in base 64.
    binding: String,
    /// `h=` of XEP-0474.
    announced: Option<String>,
}

/// State after the challenge.
pub(crate) struct AwaitingProof {
    hash: ScramHash,
    username: String,
    authzid: Option<String>,
    nonce: String,
    binding: String,
    /// AuthMessage up to the last comma before the client-final-message.
    auth_message: String,
    stored_key: KeyBytes,
    server_key: KeyBytes,
    /// False: the keys are a decoy's.
    account_exists: bool,
}

/// Result of a correct proof.
pub(crate) struct ScramSuccess {
    pub(crate) username: String,
    pub(crate) authzid: Option<String>,
    /// `v=`, the server's own proof.
    pub(crate) additional: Vec<u8>,
}

impl AwaitingCredentials {
    /// Handles the client's first message.
    pub(crate) fn new(terms: &ScramParams<'_>, message: &[u8]) -> Result<AwaitingCredentials, FailureReason> {
        if message.len() > MAX_CLIENT_FIRST {
            return Err(FailureReason::TooLong);
        }
        let first = client_first(message)?;
        if first.nonce.len() > MAX_NONCE {
            return Err(FailureReason::TooLong);
        }
        let data = channel_data(terms, first.flag)?;
        let username = prepare(&first.username)
            .ok()
            .filter(|name| !name.is_empty())
            .ok_or(FailureReason::InvalidUsernameEncoding)?
            .into_owned();
        Ok(AwaitingCredentials {
            hash: terms.hash,
            username,
            authzid: first.authzid,
            bare: first.bare.to_owned(),
            nonce: [first.nonce, terms.nonce].concat(),
            binding: STANDARD.encode([first.header.as_bytes(), data].concat()),
            announced: terms.announced.map(|offered| announced(terms, offered)),
        })
    }

    /// Makes the challenge from the stored credentials, or from the decoy for `account` if there are none for this
    /// hash.
    pub(crate) fn challenge(
        self,
        found: Option<&Credentials>,
        decoy: &Decoy,
        account: &str,
    ) -> (AwaitingProof, Vec<u8>) {
        let decoy = decoy.keys(self.hash, account);
        let found = found.and_then(|credentials| credentials.keys(self.hash));
        let ScramKeys { salt, iterations, stored_key, server_key } = found.unwrap_or(&decoy);
        let mut challenge = format!("r={},s={},i={iterations}", self.nonce, STANDARD.encode(salt));
        if let Some(announced) = &self.announced {
            challenge.push_str(",h=");
            challenge.push_str(announced);
        }
        let proof = AwaitingProof {
            hash: self.hash,
            username: self.username,
            authzid: self.authzid,
            nonce: self.nonce,
            binding: self.binding,
            auth_message: format!("{},{challenge},", self.bare),
            stored_key: stored_key.clone(),
            server_key: server_key.clone(),
            account_exists: found.is_some(),
        };
        (proof, challenge.into_bytes())
    }
}

impl AwaitingProof {
    /// Verifies the client's final message.
    pub(crate) fn check(self, message: &[u8]) -> Result<ScramSuccess, FailureReason> {
        if message.len() > MAX_CLIENT_FINAL {
            return Err(FailureReason::TooLong);
        }
        let last = client_final(message)?;
        let proof = decode_proof(self.hash, last.proof).ok_or(FailureReason::InvalidEncoding)?;
        if last.nonce != self.nonce {
            return Err(FailureReason::NonceMismatch);
        }
        if !constant_time_eq(last.binding.as_bytes(), self.binding.as_bytes()) {
            return Err(FailureReason::ChannelBindingsDontMatch);
        }
        let auth_message: [&[u8]; 2] = [self.auth_message.as_bytes(), last.without_proof.as_bytes()];
        // ClientProof is ClientKey XOR ClientSignature, so another XOR restores the ClientKey (RFC 5802, section 3).
        let client_key = self.hash.hmac(self.stored_key.expose(), &auth_message).xor(&proof);
        let proof_valid = self.hash.digest(client_key.expose()) == self.stored_key;
        if !(proof_valid & self.account_exists) {
            return Err(FailureReason::InvalidProof);
        }
        let signature = self.hash.hmac(self.server_key.expose(), &auth_message);
        Ok(ScramSuccess {
            username: self.username,
            authzid: self.authzid,
            additional: format!("v={}", STANDARD.encode(signature.expose())).into_bytes(),
        })
    }
}

/// Channel binding data for the flag; RFC 5802, section 6, defines which flags go with which mechanism.
fn channel_data<'a>(terms: &ScramParams<'a>, flag: CbindFlag<'_>) -> Result<&'a [u8], FailureReason> {
    match (flag, terms.plus) {
        (CbindFlag::Bound(name), true) => {
            terms.binding.get(name).ok_or(FailureReason::UnsupportedChannelBindingType)
        }
        // The client supports binding and saw no offer of it, but there was one: it was removed in transit.
        (CbindFlag::NotOffered, _) if terms.offered_plus => {
            Err(FailureReason::ServerDoesSupportChannelBinding)
        }
        (CbindFlag::Unsupported | CbindFlag::NotOffered, false) => Ok(&[]),
        (CbindFlag::Unsupported | CbindFlag::NotOffered, true) | (CbindFlag::Bound(_), false) => {
            Err(FailureReason::ChannelBindingNotSupported)
        }
    }
}

fn announced(terms: &ScramParams<'_>, offered: MechanismSet) -> String {
    let bindings = offered.has_plus().then(|| terms.binding.types());
    downgrade_protection::hash_attribute(terms.hash, offered.iter().map(Mechanism::name), bindings)
}

fn decode_proof(hash: ScramHash, text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok().filter(|proof| proof.len() == hash.output_len())
}

/// Whether the caller's nonce can be sent: visible ASCII without comma, and too long to be guessed.
pub(crate) fn is_server_nonce(nonce: &str) -> bool {
    nonce.len() >= 16 && is_nonce(nonce)
}
