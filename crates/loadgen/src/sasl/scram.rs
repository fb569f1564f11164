//! Client messages of SCRAM (RFC 5802, sections 3, 5 and 7), for each hash function, with and without channel binding.
//!
//! Names and passwords are prepared with SASLprep, `,` and `=` in names are escaped. The order of the server's
//! attributes is fixed by the RFC's grammar and checked; extensions at the end are ignored, mandatory ones (`m=`)
//! refused.
//!
//! Not implemented: XEP-0474 (downgrade protection).
//!
//! # Pitfalls
//!
//! The client's messages are part of the signed data. They are kept as sent, never built a second time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::{digest, hmac};
use subtle::ConstantTimeEq;

use super::SaslError;
use super::mechanism::{ClientScramHash, ScramChannelBinding};
use super::scram_keys::{KeyDerivation, ScramKeyCache};
use super::text::{escape, prepare};

/// State that waits for the server's first message.
#[derive(Debug)]
pub(super) struct AwaitingServerFirst {
    hash: ClientScramHash,
    /// client-first-message-bare; ends with the nonce.
    bare: Box<str>,
    nonce_length: usize,
    password: Box<str>,
    /// `c=` with the header and the binding data in base64.
    channel: Box<str>,
}

/// State that waits for the server's last message.
#[derive(Debug)]
pub(super) struct AwaitingServerFinal {
    signature: Box<[u8]>,
}

impl AwaitingServerFirst {
    pub(super) fn begin(
        hash: ClientScramHash,
        user: &str,
        password: &str,
        authzid: Option<&str>,
        binding: &ScramChannelBinding,
        nonce: &str,
    ) -> Result<(AwaitingServerFirst, Vec<u8>), SaslError> {
        // `printable` of the grammar: visible ASCII without the comma.
        if nonce.is_empty() || !nonce.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',') {
            return Err(SaslError::Credentials);
        }
        let mut message = String::with_capacity(64 + user.len() + nonce.len());
        message.push_str(binding.flag());
        message.push(',');
        if let Some(authzid) = authzid {
            if authzid.is_empty() || authzid.contains('\0') {
                return Err(SaslError::Credentials);
            }
            message.push_str("a=");
            escape(authzid, &mut message);
        }
        message.push(',');
        let header = message.len();
        message.push_str("n=");
        escape(&prepare(user)?, &mut message);
        message.push_str(",r=");
        message.push_str(nonce);

        let (head, bare) = message.split_at(header);
        let mut channel = String::from("c=");
        STANDARD.encode_string([head.as_bytes(), binding.data()].concat(), &mut channel);
        let first = AwaitingServerFirst {
            hash,
            bare: bare.into(),
            nonce_length: nonce.len(),
            password: prepare(password)?.into(),
            channel: channel.into(),
        };
        Ok((first, message.into_bytes()))
    }

    /// Derivation needed for the response; `None` if the key is cached or the message cannot be answered at all.
    pub(super) fn missing(&self, data: &[u8], keys: &ScramKeyCache) -> Option<KeyDerivation> {
        let message = std::str::from_utf8(data).ok()?;
        let (_, salt, iterations) = self.read(message).ok()?;
        keys.missing(self.hash, &self.password, &salt, iterations)
    }

    /// Parses nonce, salt and iteration count of server-first-message.
    fn read<'m>(&self, message: &'m str) -> Result<(&'m str, Vec<u8>, u32), SaslError> {
        if let Some(why) = message.strip_prefix("e=") {
            return Err(refused(why));
        }
        let mut parts = message.split(',');
        let nonce = attribute(&mut parts, "r=", "nonce")?;
        let salt = attribute(&mut parts, "s=", "salt")?;
        let iterations = attribute(&mut parts, "i=", "iteration count")?;
        let own = self.bare.len().checked_sub(self.nonce_length).and_then(|start| self.bare.get(start..));
        match own.and_then(|own| nonce.strip_prefix(own)) {
            Some(added) if !added.is_empty() => {}
            _ => return Err(SaslError::Nonce),
        }
        let salt = STANDARD.decode(salt).map_err(|_| SaslError::Syntax("salt"))?;
        if salt.is_empty() {
            return Err(SaslError::Syntax("salt"));
        }
        if iterations.is_empty() || !iterations.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(SaslError::Syntax("iteration count"));
        }
        let iterations = iterations.parse().map_err(|_| SaslError::Iterations)?;
        Ok((nonce, salt, iterations))
    }

    /// Parses server-first-message and builds client-final-message.
    pub(super) fn answer(
        self,
        data: &[u8],
        keys: &mut ScramKeyCache,
    ) -> Result<(AwaitingServerFinal, Vec<u8>), SaslError> {
        let message = std::str::from_utf8(data).map_err(|_| SaslError::Syntax("encoding"))?;
        let (nonce, salt, iterations) = self.read(message)?;
        let mut answer = String::with_capacity(self.channel.len() + nonce.len() + 96);
        answer.push_str(&self.channel);
        answer.push_str(",r=");
        answer.push_str(nonce);
        let (client_key, server_key) = keys.get(self.hash, &self.password, &salt, iterations)?;
        let sign = |key: &[u8]| {
            let mut context = hmac::Context::with_key(&hmac::Key::new(self.hash.mac(), key));
            for part in [&self.bare, ",", message, ",", &answer] {
                context.update(part.as_bytes());
            }
            context.sign()
        };
        let stored_key = digest::digest(self.hash.digest(), client_key);
        let signature = sign(stored_key.as_ref());
        let proof: smallvec::SmallVec<[u8; 64]> =
            client_key.iter().zip(signature.as_ref()).map(|(key, signature)| key ^ signature).collect();
        let last = AwaitingServerFinal { signature: sign(server_key).as_ref().into() };
        answer.push_str(",p=");
        STANDARD.encode_string(proof, &mut answer);
        Ok((last, answer.into_bytes()))
    }
}

impl AwaitingServerFinal {
    /// Verifies server-final-message.
    pub(super) fn verify(&self, data: &[u8]) -> Result<(), SaslError> {
        let message = std::str::from_utf8(data).map_err(|_| SaslError::Syntax("encoding"))?;
        let first = message.split(',').next().unwrap_or_default();
        if let Some(why) = first.strip_prefix("e=") {
            return Err(refused(why));
        }
        let signature = first.strip_prefix("v=").ok_or(SaslError::Syntax("signature"))?;
        let signature = STANDARD.decode(signature).map_err(|_| SaslError::Syntax("signature"))?;
        if bool::from(signature.as_slice().ct_eq(&self.signature)) {
            Ok(())
        } else {
            Err(SaslError::Signature)
        }
    }
}

/// Value of the next attribute, which must be this one.
fn attribute<'a>(
    parts: &mut std::str::Split<'a, char>,
    name: &str,
    what: &'static str,
) -> Result<&'a str, SaslError> {
    parts.next().and_then(|part| part.strip_prefix(name)).ok_or(SaslError::Syntax(what))
}

/// The server's own error text, at most one line.
fn refused(why: &str) -> SaslError {
    SaslError::Refused(why.chars().take(80).collect())
}
