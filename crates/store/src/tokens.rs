//! Login tokens (XEP-0484, FAST) and other data that a password change must invalidate: one opaque value per account.
//!
//! The value is part of [`crate::AccountSecrets`] and updated by a closure inside the transaction, so that two
//! concurrent logins cannot both consume a token. [`crate::Accounts::set_credentials`] clears it in the same
//! transaction; [`crate::Accounts::upgrade_credentials`] leaves it. Its format is defined by the caller.
//!
//! # Pitfalls
//!
//! Results that a closure passes to its caller are valid only once the call has returned successfully.

use std::panic::AssertUnwindSafe;

use jid::JidRef;

use crate::{StoreError, StoreErrorKind, StoreFuture};

/// Maximum size in bytes (`TooLarge` otherwise).
pub const MAX_TOKENS_BYTES: usize = 65_536;

/// Decides on the value inside the transaction: `None` leaves it, empty clears it. Must be fast and must not call the
/// store.
pub type TokensUpdateFn = Box<dyn FnOnce(&[u8]) -> Option<Vec<u8>> + Send>;

/// Result of [`LoginTokens::update_tokens`]. Only after `Applied` was the closure called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokensUpdateOutcome {
    /// The closure's result is stored.
    Applied,
    /// The account is disabled.
    Disabled,
    /// The account does not exist, or has credentials of another revision.
    Revoked,
}

storage_need! {
    /// Login tokens of accounts.
    pub trait LoginTokens in tokens {
        /// Reads the value, calls `change` and stores its result, in one transaction.
        ///
        /// A login names the `revision` of the credentials that it proved ([`crate::AccountSecrets::revision`]): nothing is
        /// changed if the account is disabled or has other credentials. Otherwise a proof with an old password would yield
        /// a token that outlives it. `None` changes the tokens of any existing account.
        fn update_tokens(&self, owner: JidRef<'_>, revision: Option<u64>, change: TokensUpdateFn) -> StoreFuture<'_, TokensUpdateOutcome>;
    }
}

/// Runs the closure for a backend. A panic in it is an error of that one call.
///
/// # Errors
/// `Internal` if it panics, `TooLarge` if its result is too large.
pub fn run_update(change: TokensUpdateFn, before: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let after = std::panic::catch_unwind(AssertUnwindSafe(|| change(before))).map_err(|_| {
        StoreError::new(StoreErrorKind::Internal, "a change of tokens panicked; nothing was stored")
    })?;
    if after.as_ref().is_some_and(|after| after.len() > MAX_TOKENS_BYTES) {
        return Err(StoreError::new(StoreErrorKind::TooLarge, "the tokens are too large"));
    }
    Ok(after)
}
