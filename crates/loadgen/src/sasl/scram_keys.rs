//! Cache of keys derived from passwords, for the next login with the same salt (RFC 5802, section 3, `Hi`).
//!
//! An entry costs about 130 bytes with SHA-1 and is found by a hash of mechanism, iterations, salt and password,
//! without the user: one salt for all users (as in a load test's import) is one entry. There are two generations: when
//! the newer one is full, the older one is dropped. Memory is thus bounded ([`ScramKeyCache::ENTRIES`]: about 4 MB with
//! SHA-1, 7 MB with SHA-512), and entries in use are kept.
//!
//! A [`KeyDerivation`] is the expensive part, which can run on another thread: before it answers a challenge the engine
//! asks which derivation is missing ([`super::ClientExchange::missing`]), and inserts the result.
//!
//! Not implemented: sharing between workers.
//!
//! # Pitfalls
//!
//! If each login has a different salt, nothing is ever found; every login then costs a key derivation, as the counters
//! show.

use std::num::NonZeroU32;

use hashbrown::HashMap;
use ring::{digest, hmac, pbkdf2};

use super::SaslError;
use super::mechanism::ClientScramHash;

impl ClientScramHash {
    pub(super) fn mac(self) -> hmac::Algorithm {
        match self {
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }

    pub(super) fn digest(self) -> &'static digest::Algorithm {
        self.mac().digest_algorithm()
    }

    fn derivation(self) -> pbkdf2::Algorithm {
        match self {
            Self::Sha1 => pbkdf2::PBKDF2_HMAC_SHA1,
            Self::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            Self::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        }
    }
}

/// A pending key derivation.
pub struct KeyDerivation {
    hash: ClientScramHash,
    password: Box<str>,
    salt: Box<[u8]>,
    count: NonZeroU32,
    place: [u8; 16],
}

impl KeyDerivation {
    /// Derivation for a salt known before the server sends it; `None` if the password or the iteration count is
    /// unusable.
    pub fn new(hash: ClientScramHash, password: &str, salt: &[u8], iterations: u32) -> Option<KeyDerivation> {
        let password = super::text::prepare(password).ok()?;
        Self::of(hash, &password, salt, iterations)
    }

    fn of(hash: ClientScramHash, password: &str, salt: &[u8], iterations: u32) -> Option<KeyDerivation> {
        let count =
            NonZeroU32::new(iterations).filter(|count| count.get() <= ScramKeyCache::MOST_ITERATIONS)?;
        let place = place(hash, password, salt, iterations);
        Some(KeyDerivation { hash, password: password.into(), salt: salt.into(), count, place })
    }

    /// Derives the key: a millisecond of CPU or more.
    pub fn derive(&self) -> DerivedKey {
        DerivedKey { place: self.place, pair: derive(self.hash, &self.password, &self.salt, self.count) }
    }

    /// Cache key; equal for two derivations of one key.
    pub(crate) fn place(&self) -> [u8; 16] {
        self.place
    }

    /// Hash function, salt and iteration count of the account.
    pub fn salt(&self) -> (ClientScramHash, &[u8], u32) {
        (self.hash, &self.salt, self.count.get())
    }
}

impl std::fmt::Debug for KeyDerivation {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Derivation").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// Result of a [`KeyDerivation`], for [`ScramKeyCache::put`].
pub struct DerivedKey {
    place: [u8; 16],
    pair: KeyPairBytes,
}

impl DerivedKey {
    /// See [`KeyDerivation::place`].
    pub(crate) fn place(&self) -> [u8; 16] {
        self.place
    }
}

impl std::fmt::Debug for DerivedKey {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.write_str("Derived")
    }
}

/// ClientKey followed by ServerKey.
type KeyPairBytes = Box<[u8]>;

/// The cache; one per worker.
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
    /// Maximum iteration count: 10 million block the worker for some seconds.
    pub const MOST_ITERATIONS: u32 = 10_000_000;

    /// Creates an empty cache.
    pub fn new() -> ScramKeyCache {
        ScramKeyCache::default()
    }

    /// Number of logins that found their keys, and of those that had to derive them.
    pub fn counts(&self) -> (u64, u64) {
        (self.found, self.derived)
    }

    /// Derivation that [`ScramKeyCache::get`] needs; `None` if the key is cached, or the iteration count is refused.
    pub(super) fn missing(
        &self,
        hash: ClientScramHash,
        password: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Option<KeyDerivation> {
        let derivation = KeyDerivation::of(hash, password, salt, iterations)?;
        let there = self.newer.contains_key(&derivation.place) || self.older.contains_key(&derivation.place);
        (!there).then_some(derivation)
    }

    /// Inserts a key derived elsewhere.
    pub fn put(&mut self, derived: DerivedKey) {
        self.derived += 1;
        self.keep(derived.place, derived.pair);
    }

    fn keep(&mut self, place: [u8; 16], pair: KeyPairBytes) {
        if self.newer.len() >= Self::ENTRIES / 2 {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(place, pair);
    }

    /// ClientKey and ServerKey for a prepared password.
    pub(super) fn get(
        &mut self,
        hash: ClientScramHash,
        password: &str,
        salt: &[u8],
        iterations: u32,
    ) -> Result<(&[u8], &[u8]), SaslError> {
        let count = NonZeroU32::new(iterations).filter(|count| count.get() <= Self::MOST_ITERATIONS);
        let count = count.ok_or(SaslError::Iterations)?;
        let place = place(hash, password, salt, iterations);
        if self.newer.contains_key(&place) {
            self.found += 1;
        } else {
            let pair = match self.older.remove(&place) {
                Some(pair) => {
                    self.found += 1;
                    pair
                }
                None => {
                    self.derived += 1;
                    derive(hash, password, salt, count)
                }
            };
            self.keep(place, pair);
        }
        let pair = self.newer.get(&place).map(AsRef::as_ref).unwrap_or_default();
        pair.split_at_checked(hash.digest().output_len()).ok_or(SaslError::Unexpected)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.newer.len() + self.older.len()
    }
}

impl std::fmt::Debug for ScramKeyCache {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The contents are as good as passwords.
        to.debug_struct("Keys")
            .field("entries", &(self.newer.len() + self.older.len()))
            .finish_non_exhaustive()
    }
}

/// Cache key: half of a SHA-256, so that salts and passwords need not be stored.
fn place(hash: ClientScramHash, password: &str, salt: &[u8], iterations: u32) -> [u8; 16] {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(&[hash as u8]);
    context.update(&iterations.to_be_bytes());
    context.update(&(salt.len() as u64).to_be_bytes());
    context.update(salt);
    context.update(password.as_bytes());
    let mut place = [0; 16];
    for (to, from) in place.iter_mut().zip(context.finish().as_ref()) {
        *to = *from;
    }
    place
}

fn derive(hash: ClientScramHash, password: &str, salt: &[u8], count: NonZeroU32) -> KeyPairBytes {
    let mut salted = vec![0; hash.digest().output_len()];
    pbkdf2::derive(hash.derivation(), count, salt, password.as_bytes(), &mut salted);
    let salted = hmac::Key::new(hash.mac(), &salted);
    let client = hmac::sign(&salted, b"Client Key");
    let server = hmac::sign(&salted, b"Server Key");
    [client.as_ref(), server.as_ref()].concat().into()
}
