//! Logins with SASL: PLAIN (RFC 4616), SCRAM and SCRAM-PLUS (RFC 5802, RFC 7677; SHA-512 as registered with IANA),
//! ANONYMOUS (RFC 4505) and EXTERNAL (RFC 4422, appendix A), as used by RFC 6120, section 6.
//!
//! A [`ClientExchange`] lives for one login. SCRAM itself and the cache of derived keys are [`sasl::client`], so that
//! another login with the same salt costs a few HMACs and no key derivation. This module is independent of XML:
//! messages are bytes, which [`to_base64`] and [`from_base64`] encode and decode.
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
mod text;

#[cfg(test)]
mod tests;

use sasl::Mechanism;
use sasl::client::{self, ClientError, Gs2, KeyDerivation, ScramClient, ScramKeyCache};

pub use mechanism::{MechanismChoice, can_bind, choose, parse_mechanism};
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
    /// A message of SCRAM that cannot be accepted.
    Scram(ClientError),
    /// An out-of-place message, such as success before the server has proved itself.
    Unexpected,
}

impl std::fmt::Display for SaslError {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Credentials => to.write_str("the name or password cannot be used with this mechanism"),
            Self::Binding => to.write_str("channel binding is not available for this mechanism"),
            Self::Base64 => to.write_str("the server's message is not base64"),
            Self::Scram(error) => error.fmt(to),
            Self::Unexpected => to.write_str("the server's message is out of order"),
        }
    }
}

impl std::error::Error for SaslError {}

impl From<ClientError> for SaslError {
    fn from(error: ClientError) -> SaslError {
        match error {
            // The server's own error text, at most one line.
            ClientError::Server(reason) => {
                Self::Scram(ClientError::Server(reason.chars().take(80).collect()))
            }
            error => Self::Scram(error),
        }
    }
}

/// State of one login. Box it and drop it when the login is over.
#[derive(Debug)]
pub struct ClientExchange {
    state: ClientExchangeState,
}

#[derive(Debug)]
enum ClientExchangeState {
    /// SCRAM: waits for the server's first message.
    First(Box<ScramClient>),
    /// SCRAM: waits for the server's signature.
    Last(Box<ScramClient>),
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
        mechanism: Mechanism,
        user: &str,
        password: &str,
        authzid: Option<&str>,
        binding: Gs2,
        nonce: &str,
    ) -> Result<(ClientExchange, Vec<u8>), SaslError> {
        if mechanism.is_plus() != matches!(binding, Gs2::Bound { .. }) {
            return Err(SaslError::Binding);
        }
        let (state, initial) = match mechanism {
            Mechanism::Plain => (ClientExchangeState::Done, plain(user, password, authzid)?),
            Mechanism::External => (ClientExchangeState::Done, client::external(authzid)),
            // RFC 4505, section 2: a trace has at most 255 characters.
            Mechanism::Anonymous if user.chars().count() > 255 => return Err(SaslError::Credentials),
            Mechanism::Anonymous => (ClientExchangeState::Done, client::anonymous(user)),
            // The password of the account is its token.
            Mechanism::OauthBearer => (ClientExchangeState::Done, client::oauth_bearer(authzid, password)),
            scram => {
                let hash = scram.hash().ok_or(SaslError::Credentials)?;
                // `printable` of the grammar: visible ASCII without the comma.
                let printable = nonce.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',');
                let usable = |text: &str| sasl::prepare(text).is_ok_and(|text| !text.is_empty());
                let authzid_is_sound = authzid.is_none_or(|name| !name.is_empty() && !name.contains('\0'));
                if nonce.is_empty() || !printable || !usable(user) || !usable(password) || !authzid_is_sound {
                    return Err(SaslError::Credentials);
                }
                let mut client = ScramClient::new(hash, binding, user, password).with_nonce(nonce);
                if let Some(authzid) = authzid {
                    client = client.with_authzid(authzid);
                }
                let initial = client.client_first();
                (ClientExchangeState::First(Box::new(client)), initial)
            }
        };
        Ok((ClientExchange { state }, initial))
    }

    /// Derivation needed to answer this raw challenge without deriving in place.
    pub fn missing(&self, data: &[u8], keys: &ScramKeyCache) -> Option<KeyDerivation> {
        match &self.state {
            ClientExchangeState::First(client) => client.missing_key(data, keys),
            ClientExchangeState::Last(_) | ClientExchangeState::Done => None,
        }
    }

    /// Answers a challenge (both raw). Derives a key that `keys` lacks: see [`ClientExchange::missing`].
    ///
    /// # Errors
    /// Scram or Unexpected; the login must then be aborted (RFC 6120, section 6.4.4).
    pub fn challenge(&mut self, data: &[u8], keys: &mut ScramKeyCache) -> Result<Vec<u8>, SaslError> {
        match std::mem::replace(&mut self.state, ClientExchangeState::Done) {
            ClientExchangeState::First(mut client) => {
                let answer = client.client_final(data, Some(keys))?;
                self.state = ClientExchangeState::Last(client);
                Ok(answer)
            }
            // A server without "additional data with success" sends its signature as a challenge.
            ClientExchangeState::Last(client) => Ok(client.verify(data).map(|()| Vec::new())?),
            ClientExchangeState::Done => Err(SaslError::Unexpected),
        }
    }

    /// Verifies the data sent with success (raw; empty if there was none).
    ///
    /// # Errors
    /// Scram; Unexpected if the server has not proved that it knows the password.
    pub fn success(&mut self, data: &[u8]) -> Result<(), SaslError> {
        match std::mem::replace(&mut self.state, ClientExchangeState::Done) {
            ClientExchangeState::First(_) => Err(SaslError::Unexpected),
            ClientExchangeState::Last(_) if data.is_empty() => Err(SaslError::Unexpected),
            ClientExchangeState::Last(client) => Ok(client.verify(data)?),
            ClientExchangeState::Done => Ok(()),
        }
    }
}

/// RFC 4616, section 2: authorization identity, NUL, user, NUL, password; only the first may be empty.
fn plain(user: &str, password: &str, authzid: Option<&str>) -> Result<Vec<u8>, SaslError> {
    let has_nul = [authzid.unwrap_or_default(), user, password].iter().any(|part| part.contains('\0'));
    if has_nul || user.is_empty() || password.is_empty() {
        return Err(SaslError::Credentials);
    }
    Ok(client::plain(authzid, user, password))
}
