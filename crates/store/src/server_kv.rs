//! Key-value storage of the server: the secret for decoy salts, the marker of the first start.
//!
//! No specification. Keys are compared byte by byte. Data of accounts does not belong here.

use crate::StoreFuture;

storage_need! {
    /// A small key-value table: keys up to 255 bytes, values up to 64 kB (`TooLarge` otherwise).
    pub trait ServerKv in server_kv {
        /// The value, if any.
        fn get(&self, key: &str) -> StoreFuture<'_, Option<Vec<u8>>>;

        /// Inserts or replaces the value.
        fn put(&self, key: &str, value: &[u8]) -> StoreFuture<'_, ()>;

        /// Inserts the value unless there is one; returns the stored one. Several nodes that start simultaneously agree.
        fn put_if_absent(&self, key: &str, value: &[u8]) -> StoreFuture<'_, Vec<u8>>;

        /// Sets the value if the stored one equals `expected`, or if there is none and `expected` is `None`; returns whether
        /// it did. Of several concurrent calls with one expectation, one succeeds.
        fn compare_and_set(&self, key: &str, expected: Option<&[u8]>, value: &[u8]) -> StoreFuture<'_, bool>;
    }
}

/// Maximum key length in bytes.
pub const MAX_KEY_BYTES: usize = 255;
/// Maximum value length in bytes.
pub const MAX_VALUE_BYTES: usize = 65_536;

/// Rejects a key or value above its limit; every backend calls it first.
pub fn check_sizes(key: &str, value: &[u8]) -> Result<(), crate::StoreError> {
    if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
        return Err(crate::StoreError::new(crate::StoreErrorKind::TooLarge, "the value is too large"));
    }
    Ok(())
}
