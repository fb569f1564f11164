//! SASL client: SCRAM, PLAIN, EXTERNAL and ANONYMOUS, for the load generator, tests and tools.
//!
//! SCRAM is RFC 5802, sections 3 and 5. Unknown attributes of the server are ignored, `m=` is an error. The `h=` of
//! XEP-0474 is checked where the caller states which offer it saw. [`ScramKeyCache`] keeps derived keys, and
//! [`KeyDerivation`] moves the derivation to another thread.
//!
//! Not implemented: choice of mechanism, pinning, and the minimum of iterations of RFC 7677, section 4, so that tests
//! can be fast.
//!
//! # Pitfalls
//!
//! Client and server share `hash.rs` and `saslprep.rs`, so a mistake there cancels out between them. The vectors of the
//! RFCs (`tests/it/vectors.rs`) and a SCRAM server that the load generator's tests implement on their own are against
//! that.
//!
//! Without [`ScramKeyCache`] every login costs the PBKDF2 that the server is spared, 2 to 6 ms with the default
//! iterations. A bench without it measures its own client.

mod key_cache;

use std::num::NonZeroU32;

use base::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hash::{KeyBytes, ScramHash};
use crate::mechanism::Mechanism;
use crate::saslprep::{PrepError, prepare};
use crate::scram_message::escape;

pub use key_cache::{DerivedKey, KeyDerivation, ScramKeyCache};

/// Channel binding flag of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gs2 {
    /// `n`: the client does not support channel binding.
    None,
    /// `y`: the client supports it, but the server did not offer it.
    NotOffered,
    /// `p=`: bound, with this type and data.
    Bound {
        /// Name of the channel binding, such as `tls-exporter`.
        name: String,
        /// Its data.
        data: Vec<u8>,
    },
}

/// Reason for which the client aborts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server's message breaks the grammar of RFC 5802, section 7; names the part.
    #[error("the server's message has an invalid {0}")]
    Malformed(&'static str),
    /// The server requires a mandatory extension.
    #[error("the server requires an unsupported extension")]
    Extension,
    /// The server's nonce does not begin with the client's, or adds nothing.
    #[error("the server's nonce does not extend the client's")]
    Nonce,
    /// The number of iterations is zero or too high.
    #[error("the server requests {0} iterations, which is not acceptable")]
    Iterations(u32),
    /// SASLprep rejects the user name or password.
    #[error(transparent)]
    Prep(#[from] PrepError),
    /// The server offered something other than what the client saw, or does not report its offer.
    #[error("the mechanism list was modified in transit")]
    Downgrade,
    /// The server did not prove that it knows the password.
    #[error("the server's signature is invalid")]
    Signature,
    /// The server sent `e=`.
    #[error("the server reports {0}")]
    Server(String),
}

/// Server-first-message.
struct ServerFirst<'m> {
    text: &'m str,
    nonce: &'m str,
    salt: Vec<u8>,
    iterations: NonZeroU32,
    /// Value of `h=`.
    announced: Option<&'m str>,
}

/// A SCRAM client.
#[derive(Clone, Debug)]
pub struct ScramClient {
    hash: ScramHash,
    gs2: Gs2,
    authzid: Option<String>,
    username: String,
    password: Secret,
    nonce: String,
    /// Required value of `h=`.
    announced: Option<String>,
    expected: Option<KeyBytes>,
}

impl ScramClient {
    /// Creates a client with a random nonce.
    pub fn new(hash: ScramHash, gs2: Gs2, username: &str, password: &str) -> ScramClient {
        ScramClient {
            hash,
            gs2,
            authzid: None,
            username: username.to_owned(),
            password: Secret::from(password),
            nonce: crate::nonce(),
            announced: None,
            expected: None,
        }
    }

    /// Sets the nonce.
    #[must_use]
    pub fn with_nonce(mut self, nonce: &str) -> ScramClient {
        nonce.clone_into(&mut self.nonce);
        self
    }

    /// Requests to act as `authzid`.
    #[must_use]
    pub fn with_authzid(mut self, authzid: &str) -> ScramClient {
        self.authzid = Some(authzid.to_owned());
        self
    }

    /// Requires that the server offered exactly these mechanisms, and these channel bindings if they were listed
    /// (XEP-0474, section 5.2).
    #[must_use]
    pub fn require_offer(mut self, mechanisms: &[&str], bindings: Option<&[&str]>) -> ScramClient {
        let bindings = bindings.map(|names| names.iter().copied());
        self.announced = Some(crate::downgrade_protection::hash_attribute(
            self.hash,
            mechanisms.iter().copied(),
            bindings,
        ));
        self
    }

    /// Mechanism to name in `<auth/>`.
    pub const fn mechanism(&self) -> Mechanism {
        Mechanism::scram(self.hash, matches!(self.gs2, Gs2::Bound { .. }))
    }

    fn header(&self) -> String {
        let authzid =
            self.authzid.as_deref().map_or(String::new(), |authzid| format!("a={}", escape(authzid)));
        match &self.gs2 {
            Gs2::None => format!("n,{authzid},"),
            Gs2::NotOffered => format!("y,{authzid},"),
            Gs2::Bound { name, .. } => format!("p={name},{authzid},"),
        }
    }

    fn bare(&self) -> String {
        // A name that SASLprep rejects is sent unchanged; the server refuses it.
        let name = prepare(&self.username).unwrap_or(self.username.as_str().into());
        format!("n={},r={}", escape(&name), self.nonce)
    }

    /// The client-first-message, for `<auth/>`.
    pub fn client_first(&self) -> Vec<u8> {
        [self.header(), self.bare()].concat().into_bytes()
    }

    /// Parses the server-first-message and checks that it answers [`ScramClient::client_first`].
    fn server_first<'m>(&self, challenge: &'m [u8]) -> Result<ServerFirst<'m>, ClientError> {
        let text = std::str::from_utf8(challenge).map_err(|_| ClientError::Malformed("encoding"))?;
        if text.starts_with("m=") {
            return Err(ClientError::Extension);
        }
        if let Some(error) = text.strip_prefix("e=") {
            return Err(ClientError::Server(error.to_owned()));
        }
        let mut attributes = text.split(',');
        let mut value = |name: &str, what| {
            let attribute = attributes.next().and_then(|attribute| attribute.strip_prefix(name));
            attribute.ok_or(ClientError::Malformed(what))
        };
        let (nonce, salt) = (value("r=", "nonce")?, value("s=", "salt")?);
        let iterations = value("i=", "iteration count")?;
        let mut announced = None;
        for attribute in attributes {
            match attribute.split_once('=') {
                Some(("m", _)) => return Err(ClientError::Extension),
                Some(("h", value)) => announced = Some(value),
                _ => {}
            }
        }
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(ClientError::Nonce);
        }
        let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty());
        let salt = salt.ok_or(ClientError::Malformed("salt"))?;
        if iterations.is_empty() || !iterations.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ClientError::Malformed("iteration count"));
        }
        let iterations = key_cache::checked_iterations(iterations.parse().unwrap_or(u32::MAX))?;
        Ok(ServerFirst { text, nonce, salt, iterations, announced })
    }

    /// Derivation that [`ScramClient::client_final`] would need for this challenge; `None` if `cache` has the key or
    /// the challenge cannot be answered.
    pub fn missing_key(&self, challenge: &[u8], cache: &ScramKeyCache) -> Option<KeyDerivation> {
        let first = self.server_first(challenge).ok()?;
        let password = self.password.expose_str().ok()?;
        let derivation = KeyDerivation::new(self.hash, password, &first.salt, first.iterations.get()).ok()?;
        (!cache.contains(&derivation)).then_some(derivation)
    }

    /// The client-final-message, for `<response/>`. Derives the keys unless `cache` has them.
    ///
    /// # Errors
    /// If the challenge is malformed, not an answer to [`ScramClient::client_first`], or the password cannot be
    /// prepared.
    pub fn client_final(
        &mut self,
        challenge: &[u8],
        cache: Option<&mut ScramKeyCache>,
    ) -> Result<Vec<u8>, ClientError> {
        let first = self.server_first(challenge)?;
        if self.announced.is_some() && self.announced.as_deref() != first.announced {
            return Err(ClientError::Downgrade);
        }
        let password = self.password.expose_str().map_err(|_| PrepError)?;
        let derivation = KeyDerivation::new(self.hash, password, &first.salt, first.iterations.get())?;
        let derived;
        let keys = match cache {
            Some(cache) => cache.get_or_derive(&derivation),
            None => {
                derived = derivation.derive();
                derived.keys()
            }
        };
        let (client_key, server_key) = keys.split_at_checked(self.hash.output_len()).unwrap_or_default();

        let data: &[u8] = if let Gs2::Bound { data, .. } = &self.gs2 { data } else { &[] };
        let binding = STANDARD.encode([self.header().as_bytes(), data].concat());
        let without_proof = format!("c={binding},r={}", first.nonce);
        let auth_message = format!("{},{},{without_proof}", self.bare(), first.text);
        let stored_key = self.hash.digest(client_key);
        let signature = self.hash.hmac(stored_key.expose(), &[auth_message.as_bytes()]);
        self.expected = Some(self.hash.hmac(server_key, &[auth_message.as_bytes()]));
        let proof = STANDARD.encode(KeyBytes::from_slice(client_key).xor(signature.expose()).expose());
        Ok(format!("{without_proof},p={proof}").into_bytes())
    }

    /// Verifies the server's proof in the additional data of `<success/>`.
    ///
    /// # Errors
    /// If it is not the signature of a server with the right keys, or came before [`ScramClient::client_final`].
    pub fn verify(&self, additional: &[u8]) -> Result<(), ClientError> {
        let text = std::str::from_utf8(additional).map_err(|_| ClientError::Malformed("encoding"))?;
        let first = text.split(',').next().unwrap_or_default();
        if let Some(error) = first.strip_prefix("e=") {
            return Err(ClientError::Server(error.to_owned()));
        }
        let signature = first.strip_prefix("v=").and_then(|signature| STANDARD.decode(signature).ok());
        let signature = signature.ok_or(ClientError::Malformed("signature"))?;
        match &self.expected {
            Some(expected) if base::secret::constant_time_eq(expected.expose(), &signature) => Ok(()),
            _ => Err(ClientError::Signature),
        }
    }
}

/// The only message of PLAIN.
pub fn plain(authzid: Option<&str>, username: &str, password: &str) -> Vec<u8> {
    [authzid.unwrap_or_default(), "\0", username, "\0", password].concat().into_bytes()
}

/// The only client message of the HT mechanisms (see [`crate::hashed_token`]); `data` is the channel binding data.
pub fn hashed_token(username: &str, token: &str, data: &[u8]) -> Vec<u8> {
    [username.as_bytes(), b"\0", crate::hashed_token::initiator_proof(token, data).expose()].concat()
}

/// The `<hash/>` of XEP-0480, section 3: SaltedPassword.
///
/// # Errors
/// If SASLprep rejects the password or the number of iterations is out of range.
pub fn salted_password(
    hash: ScramHash,
    password: &str,
    salt: &[u8],
    iterations: u32,
) -> Result<Vec<u8>, ClientError> {
    let checked = key_cache::checked_iterations(iterations)?;
    Ok(hash.salted_password(prepare(password)?.as_bytes(), salt, checked).expose().to_vec())
}

/// The only message of EXTERNAL.
pub fn external(authzid: Option<&str>) -> Vec<u8> {
    authzid.unwrap_or_default().as_bytes().to_vec()
}

/// The only message of OAUTHBEARER, unless the token is refused (RFC 7628, section 3.1). `authzid` must not contain `,` or `=`.
pub fn oauth_bearer(authzid: Option<&str>, token: &str) -> Vec<u8> {
    let authzid = authzid.map_or_else(String::new, |authzid| format!("a={authzid}"));
    format!("n,{authzid},\x01auth=Bearer {token}\x01\x01").into_bytes()
}

/// The only message of ANONYMOUS.
pub fn anonymous(trace: &str) -> Vec<u8> {
    trace.as_bytes().to_vec()
}
