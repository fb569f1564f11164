//! Decoy credentials for accounts that do not exist, so that the answer to a guess does not reveal which accounts
//! exist.
//!
//! RFC 6120, section 6.5.10, forbids distinguishing a wrong password from a missing account, and SCRAM sends salt and
//! iterations before the client's proof. So a missing account gets a salt too: always the same one, derived from a
//! secret of the server (RFC 5802, section 9, leaves it to implementations).
//!
//! Accounts that were imported from another server have salts of other lengths and other numbers of iterations. So a decoy
//! has one of the shapes that are known of its domain ([`KeyShapes`]), chosen by the same secret and about as often as
//! accounts have it, or else that of new accounts.
//!
//! Not implemented: shapes of accounts from before a change of the configured iterations.
//!
//! # Pitfalls
//!
//! Derive from the *account*, normalised, with its domain, not from the client's text. Otherwise `Juliet` and `juliet`
//! get different salts if and only if there is no such account.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use base::Secret;

use crate::credentials::{Credentials, MAX_ITERATIONS, SALT_BYTES, ScramKeys};
use crate::hash::{KeyBytes, ScramHash};
use crate::key_shape::{KeyShape, KeyShapes};

/// Generator of decoy credentials. Create one at startup and store its secret in the database, so that decoys survive a
/// restart and are the same on every node.
#[derive(Clone, Debug)]
pub struct Decoy {
    secret: KeyBytes,
    iterations: NonZeroU32,
    salt_bytes: usize,
    /// By domain.
    shapes: Arc<HashMap<String, KeyShapes>>,
}

impl Decoy {
    /// `secret`: at least 16 random bytes, the same on every node. `iterations`: those of new accounts; clamped to 1 to
    /// [`MAX_ITERATIONS`].
    pub fn new(secret: &Secret, iterations: u32) -> Decoy {
        // Hashed, so that the secret may have other uses and any length.
        let secret = ScramHash::Sha512.hmac(secret.expose(), &[b"throng sasl decoy"]);
        Decoy { secret, iterations: clamp(iterations), salt_bytes: SALT_BYTES, shapes: Arc::default() }
    }

    /// The same with the shapes of the keys of accounts, by domain.
    #[must_use]
    pub fn with_shapes(self, shapes: Arc<HashMap<String, KeyShapes>>) -> Decoy {
        Decoy { shapes, ..self }
    }

    /// The same for accounts whose keys were made by another program. The salt has 1 to 64 bytes.
    #[must_use]
    pub fn with_parameters(&self, salt_bytes: usize, iterations: u32) -> Decoy {
        let salt_bytes = salt_bytes.clamp(1, ScramHash::Sha512.output_len());
        let secret = self.secret.clone();
        Decoy { secret, iterations: clamp(iterations), salt_bytes, shapes: Arc::default() }
    }

    /// Keys for `account` that match no proof. The salt is the same for every hash, as in real credentials; those of hashes
    /// without imported keys have another one.
    pub fn keys(&self, hash: ScramHash, account: &str) -> ScramKeys {
        let shape = self.shape(account);
        let imported = shape.and_then(|shape| shape.part(hash));
        let of_none = shape.is_some() && imported.is_none();
        let salt = self.part(if of_none { b"other salt" } else { b"salt" }, account);
        let random = salt.expose().first_chunk().copied().unwrap_or([0; 64]);
        let (salt, iterations) = match imported {
            Some((form, iterations)) => (form.salt(&random), iterations),
            None => (random.split_at(self.salt_bytes.min(random.len())).0.into(), self.iterations),
        };
        let key = |what: &[u8]| KeyBytes::from_slice(&self.part(what, account).expose()[..hash.output_len()]);
        ScramKeys { salt, iterations, stored_key: key(b"stored"), server_key: key(b"server") }
    }

    /// [`Decoy::keys`] for the hashes of its shape. For PLAIN: verifying a password takes as long as with real credentials.
    pub fn credentials(&self, account: &str) -> Credentials {
        let shape = self.shape(account);
        let mut credentials = Credentials::default();
        for hash in ScramHash::ALL {
            if shape.is_none_or(|shape| shape.part(hash).is_some()) {
                *credentials.keys_mut(hash) = Some(self.keys(hash, account));
            }
        }
        credentials
    }

    /// The stored keys of an account and true, or the decoy's and false for one without any. An account that was imported
    /// without a password has no keys, and comparing with none takes no time.
    pub fn stored_or_decoy(&self, stored: Option<Credentials>, account: &str) -> (Credentials, bool) {
        match stored.filter(|stored| KeyShape::of(stored).is_some()) {
            Some(stored) => (stored, true),
            None => (self.credentials(account), false),
        }
    }

    fn part(&self, what: &[u8], account: &str) -> KeyBytes {
        ScramHash::Sha512.hmac(self.secret.expose(), &[what, b"\0", account.as_bytes()])
    }

    /// The shape of an account that does not exist; `None` for that of new accounts.
    fn shape(&self, account: &str) -> Option<&KeyShape> {
        let (_, domain) = account.rsplit_once('@')?;
        let shapes = self.shapes.get(domain).filter(|shapes| !shapes.is_empty())?;
        let imported: u64 = shapes.iter().map(|(_, accounts)| u64::from(*accounts)).sum();
        // How many accounts are new is not known.
        let new = (imported / 8).max(1);
        let random = self.part(b"shape", account);
        let random = random.expose().first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        let mut chosen = random % (imported + new);
        for (shape, accounts) in shapes.iter() {
            match chosen.checked_sub(u64::from(*accounts)) {
                Some(rest) => chosen = rest,
                None => return Some(shape),
            }
        }
        None
    }
}

fn clamp(iterations: u32) -> NonZeroU32 {
    NonZeroU32::new(iterations.min(MAX_ITERATIONS)).unwrap_or(NonZeroU32::MIN)
}
