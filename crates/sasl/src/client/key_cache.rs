//! Cache of keys derived from passwords, for the next login with the same salt (RFC 5802, section 3, `Hi`).
//!
//! An entry costs about 130 bytes with SHA-1 and is found by a hash of mechanism, iterations, salt and password,
//! without the user: one salt for all users (as in a load test's import) is one entry. There are two generations: when
//! the newer one is full, the older one is dropped. Memory is thus bounded ([`ScramKeyCache::ENTRIES`]: about 4 MB with
//! SHA-1, 7 MB with SHA-512), and entries in use are kept.
//!
//! A [`KeyDerivation`] is the expensive part, which can run on another thread: ask
//! [`ScramClient::missing_key`](super::ScramClient::missing_key) before the challenge is answered, and insert the
//! result.
//!
//! Not implemented: sharing between threads.
//!
//! # Pitfalls
//!
//! If each login has a different salt, nothing is ever found; every login then costs a key derivation, as the counters
//! show.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;

use zeroize::Zeroizing;

use super::ClientError;
use crate::hash::ScramHash;
use crate::saslprep::prepare;

/// ClientKey followed by ServerKey.
type KeyPairBytes = Zeroizing<Box<[u8]>>;

/// The iteration count, unless it is 0 or above [`crate::MAX_ITERATIONS`], which blocks a thread for some seconds.
pub(super) fn checked_iterations(iterations: u32) -> Result<NonZeroU32, ClientError> {
    NonZeroU32::new(iterations)
        .filter(|_| iterations <= crate::MAX_ITERATIONS)
        .ok_or(ClientError::Iterations(iterations))
}

/// A pending key derivation.
pub struct KeyDerivation {
    hash: ScramHash,
    password: Zeroizing<String>,
    salt: Box<[u8]>,
    iterations: NonZeroU32,
    cache_key: [u8; 16],
}

impl KeyDerivation {
    /// Derivation for a salt, which may be known before the server sends it.
    ///
    /// # Errors
    /// If the password or the iteration count is unusable.
    pub fn new(
        hash: ScramHash,
        password: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Result<KeyDerivation, ClientError> {
        let (password, iterations) = (prepare(password)?, checked_iterations(iterations)?);
        // Half of a SHA-256, so that salts and passwords need not be stored. Lengths first, so that no two inputs have
        // the same encoding.
        let size =
            [hash.output_len() as u64, iterations.get().into(), salt.len() as u64].map(u64::to_be_bytes);
        let input = Zeroizing::new([size.as_flattened(), salt, password.as_bytes()].concat());
        let digest = ScramHash::Sha256.digest(&input);
        let cache_key = std::array::from_fn(|at| digest.expose()[at]);
        let password = Zeroizing::new(password.into_owned());
        Ok(KeyDerivation { hash, password, salt: salt.into(), iterations, cache_key })
    }

    /// Derives the keys: a millisecond of CPU or more.
    pub fn derive(&self) -> DerivedKey {
        let salted = self.hash.salted_password(self.password.as_bytes(), &self.salt, self.iterations);
        let client = self.hash.hmac(salted.expose(), &[b"Client Key"]);
        let server = self.hash.hmac(salted.expose(), &[b"Server Key"]);
        let keys = [client.expose(), server.expose()].concat().into_boxed_slice();
        DerivedKey { cache_key: self.cache_key, keys: Zeroizing::new(keys) }
    }

    /// Equal for two derivations of the same keys.
    pub fn cache_key(&self) -> [u8; 16] {
        self.cache_key
    }

    /// Hash function, salt and iteration count of the account.
    pub fn parameters(&self) -> (ScramHash, &[u8], u32) {
        (self.hash, &self.salt, self.iterations.get())
    }
}

impl fmt::Debug for KeyDerivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyDerivation").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// Result of a [`KeyDerivation`], for [`ScramKeyCache::put`].
pub struct DerivedKey {
    cache_key: [u8; 16],
    keys: KeyPairBytes,
}

impl DerivedKey {
    /// See [`KeyDerivation::cache_key`].
    pub fn cache_key(&self) -> [u8; 16] {
        self.cache_key
    }

    pub(super) fn keys(&self) -> &[u8] {
        &self.keys
    }
}

impl fmt::Debug for DerivedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivedKey(***)")
    }
}

/// Cache of derived keys, for one thread.
#[derive(Default)]
pub struct ScramKeyCache {
    newer: HashMap<[u8; 16], KeyPairBytes>,
    older: HashMap<[u8; 16], KeyPairBytes>,
    found: u64,
    derived: u64,
}

impl ScramKeyCache {
    /// Maximum number of entries of both generations.
    pub const ENTRIES: usize = 32_768;

    /// Creates an empty cache.
    pub fn new() -> ScramKeyCache {
        ScramKeyCache::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.newer.is_empty() && self.older.is_empty()
    }

    /// Number of logins that found their keys, and of keys that were derived.
    pub fn counts(&self) -> (u64, u64) {
        (self.found, self.derived)
    }

    pub(super) fn contains(&self, derivation: &KeyDerivation) -> bool {
        self.newer.contains_key(&derivation.cache_key) || self.older.contains_key(&derivation.cache_key)
    }

    /// Inserts a key derived elsewhere.
    pub fn put(&mut self, derived: DerivedKey) {
        self.derived += 1;
        self.insert(derived.cache_key, derived.keys);
    }

    fn insert(&mut self, cache_key: [u8; 16], keys: KeyPairBytes) {
        if self.newer.len() >= Self::ENTRIES / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(cache_key, keys);
    }

    /// ClientKey and ServerKey.
    pub(super) fn get_or_derive(&mut self, derivation: &KeyDerivation) -> &[u8] {
        let cache_key = derivation.cache_key;
        if self.newer.contains_key(&cache_key) {
            self.found += 1;
        } else {
            match self.older.remove(&cache_key) {
                Some(keys) => {
                    self.found += 1;
                    self.insert(cache_key, keys);
                }
                None => self.put(derivation.derive()),
            }
        }
        self.newer.get(&cache_key).map(|keys| &***keys).unwrap_or_default()
    }
}

impl fmt::Debug for ScramKeyCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The contents are as good as passwords.
        f.debug_struct("ScramKeyCache").field("entries", &self.len()).finish_non_exhaustive()
    }
}
