//! SCRAM, the server's side: RFC 5802 with SHA-1, RFC 7677 with SHA-256, and the same with SHA-512.
//!
//! Two steps. [`Waiting`] is after the client's first message, until the caller has found the credentials;
//! [`Proof`] is after the challenge, until the proof. The whole exchange costs two HMACs and a hash over the
//! messages, three HMACs for the decoy, and no PBKDF2.
//!
//! XEP-0474 (0.5.0) adds `,h=…` to the challenge; clients that know nothing of it ignore it.
//!
//! Left out: `e=` (see `failure.rs`).
//!
//! Trap: the decoy is computed for every account, known or not, so that both take the same time.

use crate::binding::Binding;
use crate::credentials::{Credentials, Keys};
use crate::decoy::Decoy;
use crate::downgrade;
use crate::failure::Reason;
use crate::hash::{Hash, Key};
use crate::mechanism::{Mechanism, MechanismSet};
use crate::prep::prepare;
use crate::scram_message::{Flag, client_final, client_first, is_nonce};
use base::secret::constant_time_eq;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest client-first-message in bytes: a localpart (1023), a bare address as authzid (2047) and a nonce.
pub const MAX_CLIENT_FIRST: usize = 4096;
/// Longest client-final-message in bytes: it repeats the header in base 64.
pub const MAX_CLIENT_FINAL: usize = 8192;
/// Longest nonce of a client in bytes; they use 16 to 64.
const MAX_NONCE: usize = 1024;

/// What the negotiation around the exchange decided.
pub(crate) struct Terms<'a> {
    pub(crate) hash: Hash,
    /// The mechanism is `-PLUS`.
    pub(crate) plus: bool,
    /// Any `-PLUS` was offered.
    pub(crate) offered_plus: bool,
    /// What the challenge repeats.
    pub(crate) announced: Option<MechanismSet>,
    pub(crate) binding: &'a Binding,
    pub(crate) nonce: &'a str,
}

/// After the client's first message.
pub(crate) struct Waiting {
    hash: Hash,
    /// Prepared with SASLprep.
    pub(crate) username: String,
    authzid: Option<String>,
    /// `client-first-message-bare`.
    bare: String,
    /// The client's nonce and ours.
    nonce: String,
    /// What `c=` must be: header and channel data in base 64.
    binding: String,
    /// `h=` of XEP-0474.
    announced: Option<String>,
}

/// After the challenge.
pub(crate) struct Proof {
    hash: Hash,
    username: String,
    authzid: Option<String>,
    nonce: String,
    binding: String,
    /// AuthMessage as far as it is known, with its last comma.
    auth_message: String,
    stored_key: Key,
    server_key: Key,
    /// False: the keys are a decoy's.
    known: bool,
}

/// What a good proof earns.
pub(crate) struct Success {
    pub(crate) username: String,
    pub(crate) authzid: Option<String>,
    /// `v=`, the server's own proof.
    pub(crate) additional: Vec<u8>,
}

impl Waiting {
    /// Takes the client's first message.
    pub(crate) fn new(terms: &Terms<'_>, message: &[u8]) -> Result<Waiting, Reason> {
        if message.len() > MAX_CLIENT_FIRST {
            return Err(Reason::TooLong);
        }
        let first = client_first(message)?;
        if first.nonce.len() > MAX_NONCE {
            return Err(Reason::TooLong);
        }
        let data = channel_data(terms, first.flag)?;
        let username = prepare(&first.username)
            .ok()
            .filter(|name| !name.is_empty())
            .ok_or(Reason::InvalidUsernameEncoding)?
            .into_owned();
        Ok(Waiting {
            hash: terms.hash,
            username,
            authzid: first.authzid,
            bare: first.bare.to_owned(),
            nonce: [first.nonce, terms.nonce].concat(),
            binding: STANDARD.encode([first.header.as_bytes(), data].concat()),
            announced: terms.announced.map(|offered| announced(terms, offered)),
        })
    }

    /// Makes the challenge from the credentials found, or from the decoy for `account` if there are none for this
    /// hash.
    pub(crate) fn challenge(
        self,
        found: Option<&Credentials>,
        decoy: &Decoy,
        account: &str,
    ) -> (Proof, Vec<u8>) {
        let decoy = decoy.keys(self.hash, account);
        let found = found.and_then(|credentials| credentials.keys(self.hash));
        let Keys { salt, iterations, stored_key, server_key } = found.unwrap_or(&decoy);
        let mut challenge = format!("r={},s={},i={iterations}", self.nonce, STANDARD.encode(salt));
        if let Some(announced) = &self.announced {
            challenge.push_str(",h=");
            challenge.push_str(announced);
        }
        let proof = Proof {
            hash: self.hash,
            username: self.username,
            authzid: self.authzid,
            nonce: self.nonce,
            binding: self.binding,
            auth_message: format!("{},{challenge},", self.bare),
            stored_key: stored_key.clone(),
            server_key: server_key.clone(),
            known: found.is_some(),
        };
        (proof, challenge.into_bytes())
    }
}

impl Proof {
    /// Takes the client's final message.
    pub(crate) fn check(self, message: &[u8]) -> Result<Success, Reason> {
        if message.len() > MAX_CLIENT_FINAL {
            return Err(Reason::TooLong);
        }
        let last = client_final(message)?;
        let proof = decode_proof(self.hash, last.proof).ok_or(Reason::InvalidEncoding)?;
        if last.nonce != self.nonce {
            return Err(Reason::NonceMismatch);
        }
        if !constant_time_eq(last.binding.as_bytes(), self.binding.as_bytes()) {
            return Err(Reason::ChannelBindingsDontMatch);
        }
        let auth_message: [&[u8]; 2] = [self.auth_message.as_bytes(), last.without_proof.as_bytes()];
        // ClientProof is ClientKey XOR ClientSignature, so XOR gives the ClientKey back (RFC 5802 section 3).
        let client_key = self.hash.hmac(self.stored_key.expose(), &auth_message).xor(&proof);
        let right = self.hash.digest(client_key.expose()) == self.stored_key;
        if !(right & self.known) {
            return Err(Reason::InvalidProof);
        }
        let signature = self.hash.hmac(self.server_key.expose(), &auth_message);
        Ok(Success {
            username: self.username,
            authzid: self.authzid,
            additional: format!("v={}", STANDARD.encode(signature.expose())).into_bytes(),
        })
    }
}

/// The channel's data that the flag asks for; RFC 5802 section 6 says which flags go with which mechanism.
fn channel_data<'a>(terms: &Terms<'a>, flag: Flag<'_>) -> Result<&'a [u8], Reason> {
    match (flag, terms.plus) {
        (Flag::Bound(name), true) => terms.binding.get(name).ok_or(Reason::UnsupportedChannelBindingType),
        // The client would have bound and saw no offer, but there was one: it was removed on the way.
        (Flag::NotOffered, _) if terms.offered_plus => Err(Reason::ServerDoesSupportChannelBinding),
        (Flag::No | Flag::NotOffered, false) => Ok(&[]),
        (Flag::No | Flag::NotOffered, true) | (Flag::Bound(_), false) => {
            Err(Reason::ChannelBindingNotSupported)
        }
    }
}

fn announced(terms: &Terms<'_>, offered: MechanismSet) -> String {
    let bindings = offered.has_plus().then(|| terms.binding.types());
    downgrade::attribute(terms.hash, offered.iter().map(Mechanism::name), bindings)
}

fn decode_proof(hash: Hash, text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok().filter(|proof| proof.len() == hash.bytes())
}

/// Whether the caller's nonce can be sent: visible ASCII without comma, and long enough not to be guessed.
pub(crate) fn is_server_nonce(nonce: &str) -> bool {
    nonce.len() >= 16 && is_nonce(nonce)
}
