//! Key-value storage per account: private XML storage (XEP-0049 1.2) and small state of features, such as the last
//! message of the day that an account has seen.
//!
//! Features choose the keys and start them with a namespace, so that they cannot collide. Keys are compared byte by
//! byte.
//!
//! # Pitfalls
//!
//! The limits of a `put` cover all values of the account, whichever feature stored them. A feature that bounds its own
//! value passes [`AccountKvLimits::UNLIMITED`].

use jid::JidRef;

use crate::{StoreError, StoreErrorKind, StoreFuture};

/// Maximum key length in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// Limits of one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountKvLimits {
    /// Number of keys.
    pub entries: u32,
    /// Total bytes of keys and values.
    pub bytes: u32,
}

impl AccountKvLimits {
    /// For a feature with a fixed number of values that has checked their size: what other features store must not
    /// prevent its `put`.
    pub const UNLIMITED: AccountKvLimits = AccountKvLimits { entries: u32::MAX, bytes: u32::MAX };
}

/// Result of a `put`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// It is stored durably.
    Done,
    /// The account would exceed its limits; nothing was changed.
    Full,
    /// There is no such account.
    NoAccount,
}

storage_need! {
    /// Key-value storage per account. Removed with the account.
    pub trait AccountKv in account_kv {
        /// The value, if any.
        fn get(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, Option<Vec<u8>>>;

        /// All values, ordered by key; empty for an account that does not exist. For exports: an account may hold as many
        /// bytes as the limits of its features admit.
        fn entries(&self, owner: JidRef<'_>) -> StoreFuture<'_, Vec<(String, Vec<u8>)>>;

        /// Inserts or replaces values, all or none; of duplicate keys the last one counts. An account already over its
        /// limits may still replace values by smaller ones. Keys over [`MAX_KEY_BYTES`] fail with `TooLarge`.
        fn put(&self, owner: JidRef<'_>, values: Vec<(String, Vec<u8>)>, limits: AccountKvLimits) -> StoreFuture<'_, PutOutcome>;

        /// Inserts or replaces a value like `put`, if the stored one is `before`. `None`: it is another one, and nothing was changed.
        fn replace(&self, owner: JidRef<'_>, key: &str, before: Option<Vec<u8>>, value: Vec<u8>, limits: AccountKvLimits) -> StoreFuture<'_, Option<PutOutcome>>;

        /// Removes a value; returns whether there was one.
        fn remove(&self, owner: JidRef<'_>, key: &str) -> StoreFuture<'_, bool>;
    }
}

/// Rejects keys that are too long; every backend calls it first.
///
/// # Errors
/// `TooLarge`.
pub fn check_key_lengths(values: &[(String, Vec<u8>)]) -> Result<(), StoreError> {
    if values.iter().any(|(key, _)| key.len() > MAX_KEY_BYTES) {
        return Err(StoreError::new(
            StoreErrorKind::TooLarge,
            "the name and namespace of the private value are too long",
        ));
    }
    Ok(())
}

/// Whether an account that replaces `before` with `after` stays within its limits; both are (entries, bytes).
pub fn is_within_limits(before: (usize, usize), after: (usize, usize), limits: AccountKvLimits) -> bool {
    (after.0 <= limits.entries as usize || after.0 <= before.0)
        && (after.1 <= limits.bytes as usize || after.1 <= before.1)
}
