//! Credentials for accounts that do not exist, so that the answer to a guess does not tell.
//!
//! RFC 6120 section 6.5.10 forbids to tell a wrong password from a missing account, and SCRAM shows salt and
//! iterations before it asks for a proof. So a missing account gets a salt too: always the same one, derived from
//! a secret of the server (RFC 5802 section 9 leaves it to implementations).
//!
//! Left out: iterations that vary. If accounts have been stored with other iterations than the decoy's, those
//! are known to exist; store them anew at the next PLAIN login or accept it.
//!
//! Trap: derive from the *account*, normalised, with its domain, and not from the text that the client sent.
//! Otherwise `Juliet` and `juliet` get different salts if and only if there is no such account.

use crate::credentials::{Credentials, MAX_ITERATIONS, SALT_BYTES, ScramKeys};
use crate::hash::{KeyBytes, ScramHash};
use base::Secret;
use std::num::NonZeroU32;

/// Makes decoys. Keep one for the life of the server and its secret in the database, so that decoys survive
/// a restart and are the same on every node.
#[derive(Clone, Debug)]
pub struct Decoy {
    secret: KeyBytes,
    iterations: NonZeroU32,
}

impl Decoy {
    /// `secret`: at least 16 random bytes, the same on every node. `iterations`: those of new accounts; brought
    /// into 1 to [`MAX_ITERATIONS`].
    #[must_use]
    pub fn new(secret: &Secret, iterations: u32) -> Decoy {
        let iterations = NonZeroU32::new(iterations.min(MAX_ITERATIONS)).unwrap_or(NonZeroU32::MIN);
        // Hashed, so that the secret may be used for more than this and have any length.
        Decoy { secret: ScramHash::Sha512.hmac(secret.expose(), &[b"throng sasl decoy"]), iterations }
    }

    /// Keys for `account` that no proof fits. The salt is the same for every hash, as in real credentials.
    #[must_use]
    pub fn keys(&self, hash: ScramHash, account: &str) -> ScramKeys {
        let part = |what: &[u8], len: usize| {
            let bytes = ScramHash::Sha512.hmac(self.secret.expose(), &[what, b"\0", account.as_bytes()]);
            KeyBytes::from_slice(&bytes.expose()[..len])
        };
        ScramKeys {
            salt: part(b"salt", SALT_BYTES).expose().into(),
            iterations: self.iterations,
            stored_key: part(b"stored", hash.output_len()),
            server_key: part(b"server", hash.output_len()),
        }
    }

    /// [`Decoy::keys`] for every hash. For PLAIN: asking them a password takes as long as asking real ones.
    #[must_use]
    pub fn credentials(&self, account: &str) -> Credentials {
        let mut credentials = Credentials::default();
        for hash in ScramHash::ALL {
            *credentials.keys_mut(hash) = Some(self.keys(hash, account));
        }
        credentials
    }
}
