//! Small values of accounts, each under a key: private XML storage (XEP-0049 1.2) and what features remember about an
//! account, such as which message of the day it has seen.
//!
//! Keys are chosen by features and start with the namespace, so that they cannot meet. They are compared byte by byte.
//!
//! The trap for the next person: the limits of a `put` count everything that the account keeps here, whoever put it. A
//! feature whose value must always find room gives larger limits than XEP-0049 does.
use jid::JidRef;

use crate::{StoreError, StoreErrorKind, StoreFuture};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// How much an account may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountKvLimits {
    /// Keys.
    pub entries: u32,
    /// Bytes of all keys and values together.
    pub bytes: u32,
}

/// How a `put` ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// It is stored durably.
    Done,
    /// The account would keep more than it may; nothing was changed.
    Full,
    /// There is no such account.
    NoAccount,
}

/// Small values of accounts. All of them go with the account.
pub trait AccountKv: Send + Sync {
    /// The value, if any.
    fn get(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, Option<Vec<u8>>>;

    /// Sets or replaces values, all or none; of two with the same key the later one counts. An account that is over the
    /// limits already may still replace values by smaller ones. Keys over [`MAX_KEY_BYTES`] fail with `TooLarge`.
    fn put(
        &self,
        owner: JidRef<'_>,
        values: Vec<(String, Vec<u8>)>,
        limits: AccountKvLimits,
    ) -> StoreFuture<'_, PutOutcome>;

    /// Removes a value; answers whether there was one.
    fn remove(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, bool>;
}

/// Refuses keys that are too long; every backend calls it first.
///
/// # Errors
/// `TooLarge`.
pub fn check_key_lengths(values: &[(String, Vec<u8>)]) -> Result<(), StoreError> {
    if values.iter().any(|(key, _)| key.len() > MAX_KEY_BYTES) {
        return Err(StoreError::new(StoreErrorKind::TooLarge, "the key of a private value is too long"));
    }
    Ok(())
}

/// Whether an account stays within its limits when it keeps `after` instead of `before`; both are entries and bytes.
pub fn is_within_limits(before: (usize, usize), after: (usize, usize), limits: AccountKvLimits) -> bool {
    (after.0 <= limits.entries as usize || after.0 <= before.0)
        && (after.1 <= limits.bytes as usize || after.1 <= before.1)
}
