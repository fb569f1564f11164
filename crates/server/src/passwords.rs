//! Password key derivation by the crate `sasl`, off the routing threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::Secret;
use base::spawn::BoxFuture;
use sasl::Credentials;
use throng_core::Passwords;
use tokio::runtime::Handle;

/// Derives keys; the number of iterations for new ones may change.
pub(crate) struct ScramKeyDeriver {
    iterations: AtomicU32,
    /// Whose threads derive them.
    threads: Handle,
}

impl ScramKeyDeriver {
    pub(crate) fn new(iterations: u32, threads: Handle) -> Arc<ScramKeyDeriver> {
        Arc::new(ScramKeyDeriver { iterations: AtomicU32::new(iterations), threads })
    }

    /// Iterations of new keys.
    pub(crate) fn iterations(&self) -> u32 {
        self.iterations.load(Ordering::Relaxed)
    }

    pub(crate) fn set_iterations(&self, iterations: u32) {
        self.iterations.store(iterations, Ordering::Relaxed);
    }
}

impl Passwords for ScramKeyDeriver {
    fn derive(&self, password: Secret) -> BoxFuture<'static, Result<Vec<u8>, String>> {
        let (iterations, threads) = (self.iterations(), self.threads.clone());
        Box::pin(async move {
            if password.is_empty() {
                return Err("the password is empty".to_owned());
            }
            let work = threads.spawn_blocking(move || {
                let text = password.expose_str().map_err(|_| "the password is not valid text".to_owned())?;
                let salt = base::id::random_bytes::<{ sasl::SALT_BYTES }>();
                let keys = Credentials::derive(text, iterations, &salt);
                keys.map(|k| k.encode()).map_err(|e| format!("the password cannot be used: {e}"))
            });
            work.await.unwrap_or_else(|_| Err("the password could not be derived".to_owned()))
        })
    }

    fn verify(&self, stored: Vec<u8>, password: Secret) -> BoxFuture<'static, bool> {
        let threads = self.threads.clone();
        Box::pin(async move {
            let work = threads.spawn_blocking(move || {
                let keys = Credentials::decode(&stored).ok();
                let text = password.expose_str().ok();
                keys.zip(text).is_some_and(|(keys, text)| keys.verify_password(text))
            });
            work.await.unwrap_or(false)
        })
    }
}
