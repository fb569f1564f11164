//! Minimal SASL client: SCRAM, PLAIN, EXTERNAL and ANONYMOUS, for tests, benches and tools.
//!
//! SCRAM is RFC 5802, sections 3 and 5. Unknown attributes of the server are ignored, `m=` is an error. The `h=` of
//! XEP-0474 is checked where the caller states which offer it saw.
//!
//! Not implemented: choice of mechanism, pinning, and the minimum of iterations of RFC 7677, section 4, so that tests
//! can be fast. The load generator has a client of its own, so that both sides cannot share a mistake.
//!
//! # Pitfalls
//!
//! Without [`DerivedKeyCache`] every login costs the PBKDF2 that the server is spared, 2 to 6 ms with the default
//! iterations. A bench without it measures its own client.

use std::collections::HashMap;
use std::num::NonZeroU32;

use base::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::hash::{KeyBytes, ScramHash};
use crate::mechanism::Mechanism;
use crate::saslprep::{PrepError, prepare};
use crate::scram_message::escape;

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
    /// The server's message breaks the grammar of RFC 5802, section 7.
    #[error("the server's message is malformed")]
    Malformed,
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

/// Cache of derived keys, so that logins with the same password, salt and iterations derive once. Bounded; cleared when
/// full.
#[derive(Debug, Default)]
pub struct DerivedKeyCache(HashMap<Vec<u8>, (KeyBytes, KeyBytes)>);

impl DerivedKeyCache {
    /// Maximum number of entries.
    pub const CAPACITY: usize = 1024;

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
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

    /// The client-final-message, for `<response/>`.
    ///
    /// # Errors
    /// If the challenge is malformed, not an answer to [`ScramClient::client_first`], or the password cannot be
    /// prepared.
    pub fn client_final(
        &mut self,
        challenge: &[u8],
        cache: Option<&mut DerivedKeyCache>,
    ) -> Result<Vec<u8>, ClientError> {
        let challenge = std::str::from_utf8(challenge).map_err(|_| ClientError::Malformed)?;
        let mut attributes = challenge.split(',');
        if challenge.starts_with("m=") {
            return Err(ClientError::Extension);
        }
        let mut value = |name: &str| -> Result<&str, ClientError> {
            attributes.next().and_then(|attribute| attribute.strip_prefix(name)).ok_or(ClientError::Malformed)
        };
        let (nonce, salt, iterations) = (value("r=")?, value("s=")?, value("i=")?);
        let mut announced = None;
        for attribute in attributes {
            match attribute.split_once('=') {
                Some(("m", _)) => return Err(ClientError::Extension),
                Some(("h", value)) => announced = Some(value),
                _ => {}
            }
        }
        if self.announced.is_some() && self.announced.as_deref() != announced {
            return Err(ClientError::Downgrade);
        }
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err(ClientError::Nonce);
        }
        let salt = STANDARD.decode(salt).map_err(|_| ClientError::Malformed)?;
        let iterations: u32 = iterations.parse().map_err(|_| ClientError::Malformed)?;
        let checked = NonZeroU32::new(iterations)
            .filter(|_| iterations <= crate::MAX_ITERATIONS)
            .ok_or(ClientError::Iterations(iterations))?;
        let (client_key, server_key) = self.keys(&salt, checked, cache)?;

        let data: &[u8] = if let Gs2::Bound { data, .. } = &self.gs2 { data } else { &[] };
        let binding = STANDARD.encode([self.header().as_bytes(), data].concat());
        let without_proof = format!("c={binding},r={nonce}");
        let auth_message = format!("{},{challenge},{without_proof}", self.bare());
        let stored_key = self.hash.digest(client_key.expose());
        let signature = self.hash.hmac(stored_key.expose(), &[auth_message.as_bytes()]);
        self.expected = Some(self.hash.hmac(server_key.expose(), &[auth_message.as_bytes()]));
        let proof = STANDARD.encode(client_key.xor(signature.expose()).expose());
        Ok(format!("{without_proof},p={proof}").into_bytes())
    }

    /// ClientKey and ServerKey.
    fn keys(
        &self,
        salt: &[u8],
        iterations: NonZeroU32,
        cache: Option<&mut DerivedKeyCache>,
    ) -> Result<(KeyBytes, KeyBytes), ClientError> {
        let password = self.password.expose_str().map_err(|_| PrepError)?;
        let password = prepare(password)?;
        let derive = || {
            let salted = self.hash.salted_password(password.as_bytes(), salt, iterations);
            let key = |name: &[u8]| self.hash.hmac(salted.expose(), &[name]);
            (key(b"Client Key"), key(b"Server Key"))
        };
        let Some(cache) = cache else { return Ok(derive()) };
        // Length prefixes, so that no two inputs have the same encoding.
        let size = [self.hash.output_len() as u32, iterations.get(), salt.len() as u32].map(u32::to_be_bytes);
        let name = ScramHash::Sha256.digest(&[size.as_flattened(), salt, password.as_bytes()].concat());
        if cache.0.len() >= DerivedKeyCache::CAPACITY {
            cache.0.clear();
        }
        Ok(cache.0.entry(name.expose().to_vec()).or_insert_with(derive).clone())
    }

    /// Verifies the server's proof in the additional data of `<success/>`.
    ///
    /// # Errors
    /// If it is not the signature of a server with the right keys, or came before [`ScramClient::client_final`].
    pub fn verify(&self, additional: &[u8]) -> Result<(), ClientError> {
        let text = std::str::from_utf8(additional).map_err(|_| ClientError::Malformed)?;
        let first = text.split(',').next().unwrap_or_default();
        if let Some(error) = first.strip_prefix("e=") {
            return Err(ClientError::Server(error.to_owned()));
        }
        let signature = first.strip_prefix("v=").ok_or(ClientError::Malformed)?;
        let signature = STANDARD.decode(signature).map_err(|_| ClientError::Malformed)?;
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
    let checked = NonZeroU32::new(iterations)
        .filter(|_| iterations <= crate::MAX_ITERATIONS)
        .ok_or(ClientError::Iterations(iterations))?;
    Ok(hash.salted_password(prepare(password)?.as_bytes(), salt, checked).expose().to_vec())
}

/// The only message of EXTERNAL.
pub fn external(authzid: Option<&str>) -> Vec<u8> {
    authzid.unwrap_or_default().as_bytes().to_vec()
}

/// The only message of ANONYMOUS.
pub fn anonymous(trace: &str) -> Vec<u8> {
    trace.as_bytes().to_vec()
}
