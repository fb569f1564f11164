//! What features need of passwords without knowing a mechanism: keys to store, and whether a password is right.
//!
//! The crate `sasl` has the mechanisms; the program puts the two together. Both calls cost milliseconds by design and run
//! away from the routing threads.
//!
//! The trap: what comes back is opaque and may change its form with the software; it goes to the store and nowhere else.

use std::sync::Arc;

use base::Secret;
use base::spawn::BoxFuture;

/// Derives and checks stored keys.
pub trait Passwords: Send + Sync {
    /// Keys to store for this password, or one sentence that says why it cannot be one (RFC 8265).
    fn derive(&self, password: Secret) -> BoxFuture<'static, Result<Vec<u8>, String>>;
    /// Whether the password belongs to the stored keys.
    fn verify(&self, stored: Vec<u8>, password: Secret) -> BoxFuture<'static, bool>;
}

/// Keeps passwords as they are: for tests of features.
#[derive(Debug, Default)]
pub struct PlainPasswords;

impl Passwords for PlainPasswords {
    fn derive(&self, password: Secret) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let empty = password.expose().is_empty();
        let bytes = password.expose().to_vec();
        Box::pin(async move { if empty { Err("the password is empty".to_owned()) } else { Ok(bytes) } })
    }
    fn verify(&self, stored: Vec<u8>, password: Secret) -> BoxFuture<'static, bool> {
        Box::pin(async move { stored == password.expose() })
    }
}

impl PlainPasswords {
    /// Shared.
    pub fn shared() -> Arc<dyn Passwords> {
        Arc::new(PlainPasswords)
    }
}
