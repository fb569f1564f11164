//! Small values of the server itself: the secret behind decoy salts, the mark of the first start.
//!
//! No specification. Keys are compared byte by byte. Not for anything that belongs to an account.
use crate::StoreFuture;

/// A small key-value table; keys up to 255 bytes, values up to 64 kB (`TooLarge` otherwise).
pub trait ServerKv: Send + Sync {
    /// The value, if any.
    fn get(&self, key: &str) -> StoreFuture<'_, Option<Vec<u8>>>;

    /// Sets or replaces the value.
    fn put(&self, key: &str, value: &[u8]) -> StoreFuture<'_, ()>;

    /// Sets the value unless there is one, and answers the one in force. Several nodes that start at once agree.
    fn put_if_absent(&self, key: &str, value: &[u8]) -> StoreFuture<'_, Vec<u8>>;
}

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 255;
/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 65_536;

/// Refuses what is over the limits; every backend calls it first.
pub fn check_sizes(key: &str, value: &[u8]) -> Result<(), crate::StoreError> {
    if key.len() > MAX_KEY_BYTES || value.len() > MAX_VALUE_BYTES {
        return Err(crate::StoreError::new(crate::StoreErrorKind::TooLarge, "the setting is too large"));
    }
    Ok(())
}
