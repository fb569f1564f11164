//! Hashed token mechanisms: draft-schmaus-kitten-sasl-ht-09 with SHA-256, used by XEP-0484.
//!
//! One message in each direction. The client sends its user name and `HMAC(token, "Initiator" || cb-data)`, the server
//! answers `HMAC(token, "Responder" || cb-data)`. The token is text; its bytes are the key.
//!
//! Not implemented: UNIQ (tls-unique, undefined for TLS 1.3), other hashes, the key/value pairs of later drafts.
//!
//! # Pitfalls
//!
//! Only a recorded EXPR message is worthless to an attacker: its data differs for each connection. ENDP and NONE send
//! the same bytes every time, so TLS must keep the message secret.

use crate::channel_binding::{ChannelBindingData, TLS_EXPORTER, TLS_SERVER_END_POINT};
use crate::failure::FailureReason;
use crate::hash::{KeyBytes, ScramHash};
use crate::saslprep::prepare;

/// Longest initial message in bytes: a localpart (1023), a separator, a hash; with room for an address.
pub const MAX_INITIATOR_MESSAGE: usize = 4096;
/// Length of a proof in bytes.
pub const PROOF_BYTES: usize = 32;

/// Mechanism that proves a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HtMechanism {
    /// HT-SHA-256-EXPR: bound to tls-exporter.
    Exporter,
    /// HT-SHA-256-ENDP: bound to tls-server-end-point.
    EndPoint,
    /// HT-SHA-256-NONE: not bound.
    Unbound,
}

impl HtMechanism {
    /// All mechanisms, strongest first.
    pub const ALL: [HtMechanism; 3] = [HtMechanism::Exporter, HtMechanism::EndPoint, HtMechanism::Unbound];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            HtMechanism::Exporter => "HT-SHA-256-EXPR",
            HtMechanism::EndPoint => "HT-SHA-256-ENDP",
            HtMechanism::Unbound => "HT-SHA-256-NONE",
        }
    }

    /// Mechanism with this name.
    pub fn from_name(name: &str) -> Option<HtMechanism> {
        HtMechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name)
    }

    /// Channel binding data that the proof covers; `None` where the stream does not have it: do not offer it there.
    pub fn binding_data(self, binding: &ChannelBindingData) -> Option<&[u8]> {
        match self {
            HtMechanism::Exporter => binding.get(TLS_EXPORTER),
            HtMechanism::EndPoint => binding.get(TLS_SERVER_END_POINT),
            HtMechanism::Unbound => Some(&[]),
        }
    }

    /// Identifier in a stored blob.
    pub(crate) const fn stored_id(self) -> u8 {
        match self {
            HtMechanism::Exporter => 1,
            HtMechanism::EndPoint => 2,
            HtMechanism::Unbound => 3,
        }
    }
}

/// `initiator-msg`.
#[derive(Debug, PartialEq, Eq)]
pub struct InitiatorMessage {
    /// User name of the client, after SASLprep.
    pub username: String,
    /// The client's proof.
    pub proof: [u8; PROOF_BYTES],
}

/// Parses the client's message.
///
/// # Errors
/// [`FailureReason::TooLong`], [`FailureReason::InvalidEncoding`], [`FailureReason::InvalidUsernameEncoding`].
pub fn parse(message: &[u8]) -> Result<InitiatorMessage, FailureReason> {
    if message.len() > MAX_INITIATOR_MESSAGE {
        return Err(FailureReason::TooLong);
    }
    let end = message.iter().position(|byte| *byte == 0).ok_or(FailureReason::InvalidEncoding)?;
    let proof = message[end + 1..].try_into().map_err(|_| FailureReason::InvalidEncoding)?;
    let name = std::str::from_utf8(&message[..end]).map_err(|_| FailureReason::InvalidEncoding)?;
    let prepared = prepare(name).ok().filter(|name| !name.is_empty());
    let username = prepared.ok_or(FailureReason::InvalidUsernameEncoding)?.into_owned();
    Ok(InitiatorMessage { username, proof })
}

/// Computes the client's proof.
pub fn initiator_proof(token: &str, data: &[u8]) -> KeyBytes {
    ScramHash::Sha256.hmac(token.as_bytes(), &[b"Initiator", data])
}

/// Computes the server's proof.
pub fn responder_proof(token: &str, data: &[u8]) -> KeyBytes {
    ScramHash::Sha256.hmac(token.as_bytes(), &[b"Responder", data])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_parses_to_its_mechanism() {
        for mechanism in HtMechanism::ALL {
            assert_eq!(HtMechanism::from_name(mechanism.name()), Some(mechanism));
            assert_eq!(crate::Mechanism::from_name(mechanism.name()), None, "a list of its own");
        }
        assert_eq!(HtMechanism::from_name("HT-SHA-256-UNIQ"), None);
        let none = ChannelBindingData::default();
        let offered: Vec<_> =
            HtMechanism::ALL.into_iter().filter(|m| m.binding_data(&none).is_some()).collect();
        assert_eq!(offered, [HtMechanism::Unbound]);
    }

    #[test]
    fn messages_are_parsed_or_refused() {
        let message = [&b"juliet\0"[..], &[7; 32]].concat();
        assert_eq!(parse(&message).unwrap(), InitiatorMessage { username: "juliet".into(), proof: [7; 32] });
        // A proof may contain any byte, zero included.
        assert!(parse(&[&b"juliet\0"[..], &[0; 32]].concat()).is_ok());
        for (message, reason) in [
            (Vec::new(), FailureReason::InvalidEncoding),
            (b"juliet".to_vec(), FailureReason::InvalidEncoding),
            ([&b"juliet\0"[..], &[7; 31]].concat(), FailureReason::InvalidEncoding),
            ([&b"juliet\0"[..], &[7; 33]].concat(), FailureReason::InvalidEncoding),
            ([&b"\xff\0"[..], &[7; 32]].concat(), FailureReason::InvalidEncoding),
            ([&b"\0"[..], &[7; 32]].concat(), FailureReason::InvalidUsernameEncoding),
            ([&b"a\x07b\0"[..], &[7; 32]].concat(), FailureReason::InvalidUsernameEncoding),
            (vec![b'a'; MAX_INITIATOR_MESSAGE + 1], FailureReason::TooLong),
        ] {
            assert_eq!(parse(&message).unwrap_err(), reason, "{message:?}");
        }
    }

    /// RFC 4231, section 4.3, has the same HMAC; the labels and the order are the draft's.
    #[test]
    fn proofs_are_hmacs_over_label_and_data() {
        let alone = ScramHash::Sha256.hmac(b"token", &[b"Initiatordata"]);
        assert_eq!(initiator_proof("token", b"data"), alone);
        assert_eq!(responder_proof("token", b""), ScramHash::Sha256.hmac(b"token", &[b"Responder"]));
        assert_ne!(initiator_proof("token", b""), responder_proof("token", b""));
    }
}
