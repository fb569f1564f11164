//! The server secret, kept in the database and the same on all nodes: the source of keys for signatures that
//! survive a restart.
//!
//! # Pitfalls
//!
//! Each use takes a key of its own: a signature of one purpose must not be valid for another.

use ring::hmac;

/// The secret.
pub struct ServerSecret(hmac::Key);

impl ServerSecret {
    /// From bytes that no client can know.
    pub fn new(secret: &[u8]) -> ServerSecret {
        ServerSecret(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    /// The key of a purpose: a name, with the domain if the key is that of a domain.
    pub fn key(&self, purpose: &str) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&self.0, purpose.as_bytes()).as_ref())
    }
}

impl std::fmt::Debug for ServerSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_has_its_key() {
        let secret = ServerSecret::new(b"secret");
        let tag = |secret: &ServerSecret, purpose| hmac::sign(&secret.key(purpose), b"x").as_ref().to_vec();
        assert_eq!(tag(&secret, "a"), tag(&ServerSecret::new(b"secret"), "a"), "after a restart");
        assert_ne!(tag(&secret, "a"), tag(&secret, "b"));
        assert_ne!(tag(&secret, "a"), tag(&ServerSecret::new(b"other"), "a"));
    }
}
