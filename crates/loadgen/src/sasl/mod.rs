//! SASL, the client's side: PLAIN (RFC 4616), SCRAM and SCRAM-PLUS (RFC 5802, RFC 7677; SHA-512 as registered with IANA),
//! ANONYMOUS (RFC 4505) and EXTERNAL (RFC 4422 appendix A), as RFC 6120 section 6 uses them.
//!
//! An [`ClientExchange`] lives for one login. What is derived from a password is kept in [`ScramKeyCache`], so that the second login with
//! the same salt costs a few HMACs and no key derivation. Nothing here knows XML: messages go in and come out as bytes,
//! [`to_base64`] and [`from_base64`] wrap them. Written apart from the server's `sasl`: a shared mistake would hide itself.
//!
//! SASL2 and FAST (XEP-0388, XEP-0484) are in the engine. Left out: DIGEST-MD5, authorization identities other than as given.
//!
//! Trap: a server that makes a new salt for every login (ejabberd with plain-text passwords does) makes every login a full
//! key derivation, 1 ms and more; then the client's CPU is the limit, and only PLAIN avoids it.

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

/// Why a login cannot go on. The server's `<failure/>` is not among them: the caller sees it first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaslError {
    /// User name, password, authorization identity or nonce has characters that the mechanism cannot carry.
    Credentials,
    /// The mechanism needs channel binding and there is none, or has no place for it.
    Binding,
    /// Not base64.
    Base64,
    /// A message that breaks the mechanism's syntax; says which part.
    Syntax(&'static str),
    /// The server's nonce does not begin with the client's.
    Nonce,
    /// More iterations than [`ScramKeyCache::MOST_ITERATIONS`], or none.
    Iterations,
    /// The server does not know the password, or somebody sits in between.
    Signature,
    /// SCRAM's own error message (RFC 5802 section 7, `e=`).
    Refused(String),
    /// A message that does not belong here, such as success before the server has proved itself.
    Unexpected,
}

impl std::fmt::Display for SaslError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Credentials => to.write_str("name or password cannot be sent with this mechanism"),
            Self::Binding => to.write_str("channel binding is not available for this mechanism"),
            Self::Base64 => to.write_str("the server's message is not base64"),
            Self::Syntax(part) => write!(to, "the server's message has a wrong {part}"),
            Self::Nonce => to.write_str("the server repeats another nonce"),
            Self::Iterations => to.write_str("the server's iteration count is out of bounds"),
            Self::Signature => to.write_str("the server's signature is wrong"),
            Self::Refused(why) => write!(to, "the server refuses: {why}"),
            Self::Unexpected => to.write_str("the server's message is out of order"),
        }
    }
}

impl std::error::Error for SaslError {}

/// One login. Box it and drop it when the login is over.
#[derive(Debug)]
pub struct ClientExchange {
    state: ClientExchangeState,
}

#[derive(Debug)]
enum ClientExchangeState {
    /// SCRAM: the server's first message is due.
    First(scram::AwaitingServerFirst),
    /// SCRAM: the server's signature is due.
    Last(scram::AwaitingServerFinal),
    /// Only success is due.
    Done,
}

impl ClientExchange {
    /// Begins a login; returns the initial response, raw. It may be empty, which XMPP writes as `=`.
    ///
    /// `user` is the local part (authentication identity), `authzid` usually absent. `nonce` must be new for each login
    /// and printable ASCII without a comma; only SCRAM uses it. For ANONYMOUS `user` is the trace (may be empty), for
    /// EXTERNAL only `authzid` counts.
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
            // RFC 4505 section 2: a trace of at most 255 characters.
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

    /// What must be derived before this challenge (raw) can be answered without a derivation.
    pub fn missing(&self, data: &[u8], keys: &ScramKeyCache) -> Option<KeyDerivation> {
        match &self.state {
            ClientExchangeState::First(first) => first.missing(data, keys),
            ClientExchangeState::Last(_) | ClientExchangeState::Done => None,
        }
    }

    /// Answers a challenge (both raw). Derives what `keys` does not hold: see [`ClientExchange::missing`].
    ///
    /// # Errors
    /// Everything but Credentials, Binding and Base64; the login must be aborted then (RFC 6120 section 6.4.4).
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

    /// Checks what came with success (raw; empty when there was nothing).
    ///
    /// # Errors
    /// Signature, Refused, Syntax; Unexpected when the server has not proved that it knows the password.
    pub fn success(&mut self, data: &[u8]) -> Result<(), SaslError> {
        match std::mem::replace(&mut self.state, ClientExchangeState::Done) {
            ClientExchangeState::First(_) => Err(SaslError::Unexpected),
            ClientExchangeState::Last(_) if data.is_empty() => Err(SaslError::Unexpected),
            ClientExchangeState::Last(last) => last.verify(data),
            ClientExchangeState::Done => Ok(()),
        }
    }
}

/// RFC 4616 section 2: authorization identity, NUL, user, NUL, password; nothing may be empty but the first.
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
