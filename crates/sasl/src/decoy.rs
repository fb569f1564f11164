//! Decoy credentials for accounts that do not exist, so that the answer to a guess does not reveal which accounts
//! exist.
//!
//! RFC 6120, section 6.5.10, forbids distinguishing a wrong password from a missing account, and SCRAM sends salt and
//! iterations before the client's proof. So a missing account gets a salt too: always the same one, derived from a
//! secret of the server (RFC 5802, section 9, leaves it to implementations).
//!
//! Not implemented: varying iterations and salts. Accounts stored with iterations or a length of the salt other than the
//! decoy's are recognisable as existing; store them again at the next PLAIN login or accept it.
//!
//! # Pitfalls
//!
//! Derive from the *account*, normalised, with its domain, not from the client's text. Otherwise `Juliet` and `juliet`
//! get different salts if and only if there is no such account.

use std::num::NonZeroU32;

use base::Secret;

use crate::credentials::{Credentials, MAX_ITERATIONS, SALT_BYTES, ScramKeys};
use crate::hash::{KeyBytes, ScramHash};

/// Generator of decoy credentials. Create one at startup and store its secret in the database, so that decoys survive a
/// restart and are the same on every node.
#[derive(Clone, Debug)]
pub struct Decoy {
    secret: KeyBytes,
    iterations: NonZeroU32,
    salt_bytes: usize,
}

impl Decoy {
    /// `secret`: at least 16 random bytes, the same on every node. `iterations`: those of new accounts; clamped to 1 to
    /// [`MAX_ITERATIONS`].
    pub fn new(secret: &Secret, iterations: u32) -> Decoy {
        // Hashed, so that the secret may have other uses and any length.
        let secret = ScramHash::Sha512.hmac(secret.expose(), &[b"throng sasl decoy"]);
        Decoy { secret, iterations: clamp(iterations), salt_bytes: SALT_BYTES }
    }

    /// The same for accounts whose keys were made by another program. The salt has 1 to 64 bytes.
    #[must_use]
    pub fn with_parameters(&self, salt_bytes: usize, iterations: u32) -> Decoy {
        let salt_bytes = salt_bytes.clamp(1, ScramHash::Sha512.output_len());
        Decoy { secret: self.secret.clone(), iterations: clamp(iterations), salt_bytes }
    }

    /// Keys for `account` that match no proof. The salt is the same for every hash, as in real credentials.
    pub fn keys(&self, hash: ScramHash, account: &str) -> ScramKeys {
        let part = |what: &[u8], len: usize| {
            let bytes = ScramHash::Sha512.hmac(self.secret.expose(), &[what, b"\0", account.as_bytes()]);
            KeyBytes::from_slice(&bytes.expose()[..len])
        };
        ScramKeys {
            salt: part(b"salt", self.salt_bytes).expose().into(),
            iterations: self.iterations,
            stored_key: part(b"stored", hash.output_len()),
            server_key: part(b"server", hash.output_len()),
        }
    }

    /// [`Decoy::keys`] for every hash. For PLAIN: verifying a password takes as long as with real credentials.
    pub fn credentials(&self, account: &str) -> Credentials {
        let mut credentials = Credentials::default();
        for hash in ScramHash::ALL {
            *credentials.keys_mut(hash) = Some(self.keys(hash, account));
        }
        credentials
    }
}

fn clamp(iterations: u32) -> NonZeroU32 {
    NonZeroU32::new(iterations.min(MAX_ITERATIONS)).unwrap_or(NonZeroU32::MIN)
}
