//! The shapes of imported keys, by domain, in the store. A node that is started afterwards gives accounts that do not exist the same
//! shapes ([`sasl::Decoy`]): otherwise everybody could tell by the number of iterations which accounts were imported, and so
//! exist.

use sasl::{Credentials, KeyShape, KeyShapes};
use store::server_kv::MAX_KEY_BYTES;
use store::{StoreError, Stores};

use super::{ImportError, ImportRun};

/// The key in [`store::ServerKv`]; `None` for a domain whose name is too long for one.
fn setting(domain: &str) -> Option<String> {
    Some(format!("scram key shapes {domain}")).filter(|key| key.len() <= MAX_KEY_BYTES)
}

/// The shapes of keys that imports have brought to a domain.
///
/// # Errors
/// Those of the store.
pub async fn key_shapes(stores: &Stores, domain: &str) -> Result<KeyShapes, StoreError> {
    let Some(key) = setting(domain) else { return Ok(KeyShapes::default()) };
    let stored = stores.server_kv.get(&key).await?;
    Ok(stored.map(|stored| KeyShapes::decode(&stored)).unwrap_or_default())
}

impl ImportRun<'_> {
    /// Counts the keys of an account of this import.
    pub(super) fn count_keys(&mut self, domain: &str, credentials: &[u8]) {
        let shape = Credentials::decode(credentials).ok().and_then(|keys| KeyShape::of(&keys));
        if let Some(shape) = shape {
            self.key_shapes.entry(domain.to_owned()).or_default().count(shape);
        }
    }

    /// Stores what was counted, with what earlier imports have stored.
    pub(super) async fn store_key_shapes(&mut self) -> Result<(), ImportError> {
        for (domain, mut shapes) in std::mem::take(&mut self.key_shapes) {
            let Some(key) = setting(&domain).filter(|_| !self.options.dry_run) else { continue };
            let before = key_shapes(self.stores, &domain).await?;
            shapes.merge(&before);
            if shapes != before {
                self.stores.server_kv.put(&key, &shapes.encode()).await?;
            }
        }
        Ok(())
    }
}
