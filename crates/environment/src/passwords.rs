//! Password operations that are independent of a mechanism: deriving stored keys and verifying a password.
//!
//! The mechanisms are in the crate `sasl`; the program connects the two. Both calls take milliseconds by design
//! and do not run on the routing threads.
//!
//! # Pitfalls
//!
//! Derived keys are opaque and their form may change with the software; they must only be stored.

use std::sync::Arc;

use base::Secret;
use base::spawn::BoxFuture;

/// Derives and verifies stored keys.
pub trait Passwords: Send + Sync {
    /// Keys to store for this password, or one sentence that states why it is invalid (RFC 8265).
    fn derive(&self, password: Secret) -> BoxFuture<'static, Result<Vec<u8>, String>>;
    /// Whether the password matches the stored keys.
    fn verify(&self, stored: Vec<u8>, password: Secret) -> BoxFuture<'static, bool>;
}

/// Stores passwords as plain text: for tests of features.
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
    /// A shared instance.
    pub fn shared() -> Arc<dyn Passwords> {
        Arc::new(PlainPasswords)
    }
}
