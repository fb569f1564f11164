//! Stored credentials of an account: salt, iterations, StoredKey and ServerKey for each hash (RFC 5802, section 3), as
//! one versioned blob.
//!
//! Layout of version 1, numbers big-endian:
//!
//! ```text
//! u8 version = 1 | u8 entries | entries in ascending order of hash:
//!   u8 hash (1 SHA-1, 2 SHA-256, 3 SHA-512) | u32 iterations | u8 salt length | salt | StoredKey | ServerKey
//! ```
//!
//! Three entries with a salt of 16 bytes are 300 bytes.
//!
//! Cost: [`Credentials::derive`] runs PBKDF2 once for each hash. With [`DEFAULT_ITERATIONS`] on an AMD EPYC core with
//! SHA extensions: 2 ms of CPU time for SHA-256, 4 to 5 for SHA-1, 5 to 6 for SHA-512, so 12 ms for new credentials.
//! [`Credentials::verify_password`] runs one, 2 ms (`cargo run --release -p throng-sasl --example cost`). Both belong
//! on a thread for blocking work ([`base::Spawner::spawn_blocking`]), not on one that serves sockets.
//!
//! Not implemented: storing the password itself in any reversible form.
//!
//! # Pitfalls
//!
//! With the ServerKey an attacker can impersonate the server; with the StoredKey and one recorded login, the client.
//! The blob is a secret, though less critical than a password.

use std::num::NonZeroU32;

use crate::hash::{KeyBytes, ScramHash};
use crate::saslprep::{PrepError, prepare};

/// Iterations for new passwords. RFC 7677, section 4, requires at least 4096. Every client, phones included, computes
/// them at each login that is not cached.
pub const DEFAULT_ITERATIONS: u32 = 10_000;

/// Limit on iterations for deriving and for decoding a blob: 2 to 6 seconds of computing for one hash.
pub const MAX_ITERATIONS: u32 = 10_000_000;

/// Length of the salts of [`Credentials::create`].
pub const SALT_BYTES: usize = 16;

const VERSION: u8 = 1;

/// SCRAM keys of a password for one hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScramKeys {
    /// 1 to 255 bytes.
    pub salt: Box<[u8]>,
    /// At most [`MAX_ITERATIONS`].
    pub iterations: NonZeroU32,
    /// H(ClientKey): verifies the client's proof.
    pub stored_key: KeyBytes,
    /// Makes the server's proof.
    pub server_key: KeyBytes,
}

/// Stored credentials of a password. Fields are `None` where the hash was not derived; such an account cannot use the
/// mechanisms of that hash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// For SCRAM-SHA-1.
    pub sha1: Option<ScramKeys>,
    /// For SCRAM-SHA-256.
    pub sha256: Option<ScramKeys>,
    /// For SCRAM-SHA-512.
    pub sha512: Option<ScramKeys>,
}

/// Reason for which credentials could not be derived or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// The password has prohibited characters.
    #[error("the password {0}")]
    Prep(#[from] PrepError),
    /// The password is empty, or empty after preparation.
    #[error("the password is empty")]
    Empty,
    /// Zero iterations or more than [`MAX_ITERATIONS`].
    #[error("iterations must be 1 to {MAX_ITERATIONS}")]
    Iterations,
    /// The salt is empty or longer than 255 bytes.
    #[error("the salt must have 1 to 255 bytes")]
    Salt,
    /// The blob has a version that this program does not support.
    #[error("stored credentials have version {0}; only version {VERSION} is supported")]
    Version(u8),
    /// The blob is corrupt.
    #[error("stored credentials are corrupt")]
    Corrupt,
}

impl ScramKeys {
    /// Derives the keys for one hash from a prepared password.
    fn derive(hash: ScramHash, prepared: &str, salt: &[u8], iterations: NonZeroU32) -> ScramKeys {
        ScramKeys::from_salted(
            hash,
            &hash.salted_password(prepared.as_bytes(), salt, iterations),
            salt,
            iterations,
        )
    }

    /// Derives the keys from a SaltedPassword.
    fn from_salted(hash: ScramHash, salted: &KeyBytes, salt: &[u8], iterations: NonZeroU32) -> ScramKeys {
        let client_key = hash.hmac(salted.expose(), &[b"Client Key"]);
        ScramKeys {
            salt: salt.into(),
            iterations,
            stored_key: hash.digest(client_key.expose()),
            server_key: hash.hmac(salted.expose(), &[b"Server Key"]),
        }
    }
}

impl Credentials {
    /// Adds the keys derived from the client's SaltedPassword (XEP-0480, section 3). Cheap: the client did the work.
    /// False if `salted` does not have the length of the hash, or `iterations` or `salt` are out of range.
    ///
    /// # Pitfalls
    ///
    /// Nothing proves that it was derived from the password. Accept it only from a client that has just proved the
    /// password.
    pub fn add_salted(&mut self, hash: ScramHash, salt: &[u8], iterations: u32, salted: &[u8]) -> bool {
        let Some(iterations) = checked_iterations(iterations) else { return false };
        if salted.len() != hash.output_len() || !(1..=255).contains(&salt.len()) {
            return false;
        }
        *self.keys_mut(hash) =
            Some(ScramKeys::from_salted(hash, &KeyBytes::from_slice(salted), salt, iterations));
        true
    }

    /// Adds keys that another server derived from the password, such as those of an import.
    ///
    /// # Errors
    /// [`CredentialsError::Iterations`] or [`CredentialsError::Salt`] out of range, [`CredentialsError::Corrupt`] if a key
    /// does not have the length of the hash.
    pub fn add_keys(
        &mut self,
        hash: ScramHash,
        salt: &[u8],
        iterations: u32,
        stored_key: &[u8],
        server_key: &[u8],
    ) -> Result<(), CredentialsError> {
        let iterations = checked_iterations(iterations).ok_or(CredentialsError::Iterations)?;
        if !(1..=255).contains(&salt.len()) {
            return Err(CredentialsError::Salt);
        }
        if stored_key.len() != hash.output_len() || server_key.len() != hash.output_len() {
            return Err(CredentialsError::Corrupt);
        }
        *self.keys_mut(hash) = Some(ScramKeys {
            salt: salt.into(),
            iterations,
            stored_key: KeyBytes::from_slice(stored_key),
            server_key: KeyBytes::from_slice(server_key),
        });
        Ok(())
    }

    /// Derives credentials with a random salt and [`DEFAULT_ITERATIONS`]. Slow; see the module.
    ///
    /// # Errors
    /// If the password is empty or SASLprep rejects it.
    pub fn create(password: &str) -> Result<Credentials, CredentialsError> {
        Credentials::derive(password, DEFAULT_ITERATIONS, &base::id::random_bytes::<SALT_BYTES>())
    }

    /// Derives credentials for all three hashes, with the same salt. Slow; see the module.
    ///
    /// # Errors
    /// If the password is empty or SASLprep rejects it, or `iterations` or `salt` are out of range.
    pub fn derive(password: &str, iterations: u32, salt: &[u8]) -> Result<Credentials, CredentialsError> {
        Credentials::derive_for(&ScramHash::ALL, password, iterations, salt)
    }

    /// As [`Credentials::derive`], but only for `hashes`.
    ///
    /// # Errors
    /// As [`Credentials::derive`].
    pub fn derive_for(
        hashes: &[ScramHash],
        password: &str,
        iterations: u32,
        salt: &[u8],
    ) -> Result<Credentials, CredentialsError> {
        let prepared = zeroize::Zeroizing::new(prepare(password)?.into_owned());
        let iterations = checked_iterations(iterations).ok_or(CredentialsError::Iterations)?;
        match (prepared.is_empty(), salt.len()) {
            (true, _) => return Err(CredentialsError::Empty),
            (false, 1..=255) => {}
            (false, _) => return Err(CredentialsError::Salt),
        }
        let mut credentials = Credentials::default();
        for hash in hashes {
            *credentials.keys_mut(*hash) = Some(ScramKeys::derive(*hash, &prepared, salt, iterations));
        }
        Ok(credentials)
    }

    /// Stable credentials that match no password, for an account that does not exist. [`crate::Decoy`] does the same
    /// with configurable iterations.
    pub fn fake(server_secret: &base::Secret, account: &str) -> Credentials {
        crate::Decoy::new(server_secret, DEFAULT_ITERATIONS).credentials(account)
    }

    /// Keys for `hash`, if they were derived.
    pub fn keys(&self, hash: ScramHash) -> Option<&ScramKeys> {
        match hash {
            ScramHash::Sha1 => self.sha1.as_ref(),
            ScramHash::Sha256 => self.sha256.as_ref(),
            ScramHash::Sha512 => self.sha512.as_ref(),
        }
    }

    pub(crate) fn keys_mut(&mut self, hash: ScramHash) -> &mut Option<ScramKeys> {
        match hash {
            ScramHash::Sha1 => &mut self.sha1,
            ScramHash::Sha256 => &mut self.sha256,
            ScramHash::Sha512 => &mut self.sha512,
        }
    }

    /// Whether the credentials were derived from `password`. One PBKDF2, for the hash that ring computes fastest. Slow;
    /// see the module. False for text that SASLprep rejects.
    ///
    /// For an account that does not exist, call this on the credentials of a [`crate::Decoy`]: it takes as long and
    /// never returns true.
    pub fn verify_password(&self, password: &str) -> bool {
        let Ok(prepared) = prepare(password) else { return false };
        let fastest = [ScramHash::Sha256, ScramHash::Sha1, ScramHash::Sha512];
        let Some((hash, keys)) = fastest.iter().find_map(|hash| Some((*hash, self.keys(*hash)?))) else {
            return false;
        };
        let tried = ScramKeys::derive(hash, &prepared, &keys.salt, keys.iterations);
        // Both, so that a blob with only one matching key does not verify.
        (tried.stored_key == keys.stored_key) & (tried.server_key == keys.server_key)
    }

    /// Encodes the blob. See the module for its layout.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION, 0];
        for hash in ScramHash::ALL {
            let Some(keys) = self.keys(hash) else { continue };
            // Fields are public, so a caller may have set a salt that is too long for a blob.
            let salt = &keys.salt[..keys.salt.len().min(255)];
            out[1] += 1;
            out.push(hash_id(hash));
            out.extend_from_slice(&keys.iterations.get().to_be_bytes());
            out.push(salt.len() as u8);
            out.extend_from_slice(salt);
            out.extend_from_slice(keys.stored_key.expose());
            out.extend_from_slice(keys.server_key.expose());
        }
        out
    }

    /// Decodes a blob.
    ///
    /// # Errors
    /// If the version is unknown or the blob is corrupt: truncated, too long, unknown or duplicate hashes, numbers out
    /// of range.
    pub fn decode(blob: &[u8]) -> Result<Credentials, CredentialsError> {
        let (version, rest) = blob.split_first().ok_or(CredentialsError::Corrupt)?;
        if *version != VERSION {
            return Err(CredentialsError::Version(*version));
        }
        Credentials::decode_entries(rest).ok_or(CredentialsError::Corrupt)
    }

    fn decode_entries(blob: &[u8]) -> Option<Credentials> {
        let (entries, mut rest) = blob.split_first()?;
        let mut credentials = Credentials::default();
        let mut last = 0;
        for _ in 0..*entries {
            let [which, i0, i1, i2, i3, salt_len] = take(&mut rest, 6)?.try_into().ok()?;
            if which <= last {
                return None;
            }
            last = which;
            let hash = ScramHash::ALL.into_iter().find(|hash| hash_id(*hash) == which)?;
            let iterations = checked_iterations(u32::from_be_bytes([i0, i1, i2, i3]))?;
            let salt = take(&mut rest, usize::from(salt_len)).filter(|salt| !salt.is_empty())?;
            let stored_key = KeyBytes::from_slice(take(&mut rest, hash.output_len())?);
            let server_key = KeyBytes::from_slice(take(&mut rest, hash.output_len())?);
            *credentials.keys_mut(hash) =
                Some(ScramKeys { salt: salt.into(), iterations, stored_key, server_key });
        }
        rest.is_empty().then_some(credentials)
    }
}

fn checked_iterations(iterations: u32) -> Option<NonZeroU32> {
    NonZeroU32::new(iterations).filter(|iterations| iterations.get() <= MAX_ITERATIONS)
}

const fn hash_id(hash: ScramHash) -> u8 {
    match hash {
        ScramHash::Sha1 => 1,
        ScramHash::Sha256 => 2,
        ScramHash::Sha512 => 3,
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}
