//! SASL client: PLAIN (RFC 4616), SCRAM and SCRAM-PLUS (RFC 5802, RFC 7677; SHA-512 as registered with IANA),
//! ANONYMOUS (RFC 4505) and EXTERNAL (RFC 4422, appendix A), as used by RFC 6120, section 6.
//!
//! A [`ClientExchange`] lives for one login. Keys derived from passwords are kept in [`ScramKeyCache`], so that another
//! login with the same salt costs a few HMACs and no key derivation. This module is independent of XML: messages are
//! bytes, which [`to_base64`] and [`from_base64`] encode and decode. It shares no code with the server's `sasl`, since
//! a bug in both would go unnoticed.
//!
//! SASL2 and FAST (XEP-0388, XEP-0484) are in the engine.
//!
//! Not implemented: DIGEST-MD5, authorization identities other than as given.
//!
//! # Pitfalls
//!
//! A server that creates a new salt for every login (as ejabberd does with plaintext passwords) makes every login a
//! full key derivation, 1 ms or more; the client's CPU is then the limit, and only PLAIN avoids it.

mod mechanism;
mod scram;
mod scram_keys;
mod text;

#[cfg(test)]
mod tests;

pub use mechanism::{
    ClientMechanism, ClientScramHash, MechanismChoice, ScramChannelBinding, can_bind, choose,
};
pub use scram_keys::{DerivedKey, KeyDerivation, ScramKeyCache};
pub use text::{from_base64, to_base64};

/// Reason for which a login cannot continue. The server's `<failure/>` is not included: the caller sees it first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslError {
    /// User name, password, authorization identity or nonce contains characters that the mechanism cannot carry.
    Credentials,
    /// The mechanism requires channel binding and there is none, or does not support it.
    Binding,
    /// Not base64.
    Base64,
    /// A message that violates the mechanism's syntax; names the part.
    Syntax(&'static str),
    /// The server's nonce does not start with the client's.
    Nonce,
    /// The iteration count is above [`ScramKeyCache::MOST_ITERATIONS`], or 0.
    Iterations,
    /// The server does not know the password, or there is a man in the middle.
    Signature,
    /// SCRAM's own error message (RFC 5802, section 7, `e=`).
    Refused(String),
    /// An out-of-place message, such as success before the server has proved itself.
    Unexpected,
}

impl std::fmt::Display for SaslError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Credentials => to.write_str("the name or password cannot be used with this mechanism"),
            Self::Binding => to.write_str("channel binding is not available for this mechanism"),
            Self::Base64 => to.write_str("the server's message is not base64"),
            Self::Syntax(part) => write!(to, "the server's message has an invalid {part}"),
            Self::Nonce => to.write_str("the server returned a different nonce"),
            Self::Iterations => to.write_str("the server's iteration count is out of bounds"),
            Self::Signature => to.write_str("the server's signature is invalid"),
            Self::Refused(why) => write!(to, "the server refuses: {why}"),
            Self::Unexpected => to.write_str("the server's message is out of order"),
        }
    }
}

impl std::error::Error for SaslError {}

/// State of one login. Box it and drop it when the login is over.
#[derive(Debug)]
pub struct ClientExchange {
    state: ClientExchangeState,
}

#[derive(Debug)]
enum ClientExchangeState {
    /// SCRAM: waits for the server's first message.
    First(scram::AwaitingServerFirst),
    /// SCRAM: waits for the server's signature.
    Last(scram::AwaitingServerFinal),
    /// Waits for success only.
    Done,
}

impl ClientExchange {
    /// Starts a login; returns the raw initial response. It may be empty, which XMPP writes as `=`.
    ///
    /// `user` is the local part (authentication identity), `authzid` is usually absent. `nonce` must be new for each
    /// login and printable ASCII without a comma; only SCRAM uses it. For ANONYMOUS `user` is the trace (may be empty),
    /// for EXTERNAL only `authzid` is used.
    ///
    /// # Errors
    /// Credentials or Binding.
    pub fn begin(
        mechanism: ClientMechanism,
        user: &str,
        password: &str,
        authzid: Option<&str>,
        binding: ScramChannelBinding,
        nonce: &str,
    ) -> Result<(ClientExchange, Vec<u8>), SaslError> {
        if mechanism.is_plus() != binding.is_used() {
            return Err(SaslError::Binding);
        }
        let (state, initial) = match mechanism {
            ClientMechanism::Plain => (ClientExchangeState::Done, plain(user, password, authzid)?),
            ClientMechanism::External => {
                (ClientExchangeState::Done, authzid.unwrap_or_default().as_bytes().to_vec())
            }
            // RFC 4505, section 2: a trace has at most 255 characters.
            ClientMechanism::Anonymous if user.chars().count() > 255 => return Err(SaslError::Credentials),
            ClientMechanism::Anonymous => (ClientExchangeState::Done, user.as_bytes().to_vec()),
            ClientMechanism::Scram(hash, _) => {
                let (first, initial) =
                    scram::AwaitingServerFirst::begin(hash, user, password, authzid, &binding, nonce)?;
                (ClientExchangeState::First(first), initial)
            }
        };
        Ok((ClientExchange { state }, initial))
    }

    /// Derivation needed to answer this raw challenge without deriving in place.
    pub fn missing(&self, data: &[u8], keys: &ScramKeyCache) -> Option<KeyDerivation> {
        match &self.state {
            ClientExchangeState::First(first) => first.missing(data, keys),
            ClientExchangeState::Last(_) | ClientExchangeState::Done => None,
        }
    }

    /// Answers a challenge (both raw). Derives a key that `keys` lacks: see [`ClientExchange::missing`].
    ///
    /// # Errors
    /// All except Credentials, Binding and Base64; the login must then be aborted (RFC 6120, section 6.4.4).
    pub fn challenge(&mut self, data: &[u8], keys: &mut ScramKeyCache) -> Result<Vec<u8>, SaslError> {
        match std::mem::replace(&mut self.state, ClientExchangeState::Done) {
            ClientExchangeState::First(first) => {
                let (last, answer) = first.answer(data, keys)?;
                self.state = ClientExchangeState::Last(last);
                Ok(answer)
            }
            // A server without "additional data with success" sends its signature as a challenge.
            ClientExchangeState::Last(last) => last.verify(data).map(|()| Vec::new()),
            ClientExchangeState::Done => Err(SaslError::Unexpected),
        }
    }

    /// Verifies the data sent with success (raw; empty if there was none).
    ///
    /// # Errors
    /// Signature, Refused, Syntax; Unexpected if the server has not proved that it knows the password.
    pub fn success(&mut self, data: &[u8]) -> Result<(), SaslError> {
        match std::mem::replace(&mut self.state, ClientExchangeState::Done) {
            ClientExchangeState::First(_) => Err(SaslError::Unexpected),
            ClientExchangeState::Last(_) if data.is_empty() => Err(SaslError::Unexpected),
            ClientExchangeState::Last(last) => last.verify(data),
            ClientExchangeState::Done => Ok(()),
        }
    }
}

/// RFC 4616, section 2: authorization identity, NUL, user, NUL, password; only the first may be empty.
fn plain(user: &str, password: &str, authzid: Option<&str>) -> Result<Vec<u8>, SaslError> {
    let authzid = authzid.unwrap_or_default();
    let has_nul = [authzid, user, password].iter().any(|part| part.contains('\0'));
    if has_nul || user.is_empty() || password.is_empty() {
        return Err(SaslError::Credentials);
    }
    let mut message = Vec::with_capacity(authzid.len() + user.len() + password.len() + 2);
    message.extend(authzid.as_bytes());
    message.push(0);
    message.extend(user.as_bytes());
    message.push(0);
    message.extend(password.as_bytes());
    Ok(message)
}
