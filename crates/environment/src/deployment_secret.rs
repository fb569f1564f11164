//! The secret of the deployment, kept in the database and the same on all nodes: the source of keys for signatures that
//! survive a restart.
//!
//! # Pitfalls
//!
//! Each use takes a key of its own: a signature of one purpose must not be valid for another.

use ring::hmac;

/// The secret.
pub struct DeploymentSecret(hmac::Key);

impl DeploymentSecret {
    /// From bytes that no client can know.
    pub fn new(secret: &[u8]) -> DeploymentSecret {
        DeploymentSecret(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The key of a purpose: a name, with the domain if the key is that of a domain.
    pub fn key(&self, purpose: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.0, purpose.as_bytes()).as_ref())
    }
}

impl std::fmt::Debug for DeploymentSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DeploymentSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_has_its_key() {
        let secret = DeploymentSecret::new(b"secret");
        let tag =
            |secret: &DeploymentSecret, purpose| hmac::sign(&secret.key(purpose), b"x").as_ref().to_vec();
        assert_eq!(tag(&secret, "a"), tag(&DeploymentSecret::new(b"secret"), "a"), "after a restart");
        assert_ne!(tag(&secret, "a"), tag(&secret, "b"));
        assert_ne!(tag(&secret, "a"), tag(&DeploymentSecret::new(b"other"), "a"));
    }
}
