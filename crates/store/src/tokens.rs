//! Tokens for quick logins (XEP-0484 FAST) and whatever else must die with a password: one opaque value for each account.
//!
//! It comes with [`crate::Login`] and is changed by a closure inside the transaction, so that two logins at once cannot
//! both use a token up. [`crate::Accounts::set_credentials`] empties it in the same transaction;
//! [`crate::Accounts::upgrade_credentials`] leaves it. What the bytes mean is decided above.
//!
//! The trap for the next person: what a closure told others while it ran is true only when the call has answered.
use std::panic::AssertUnwindSafe;

use jid::JidRef;

use crate::{StoreError, StoreErrorKind, StoreFuture};

/// The largest value, in bytes (`TooLarge` otherwise).
pub const MAX_TOKENS_BYTES: usize = 65_536;

/// Decides on the value, inside the transaction: nothing leaves it, empty clears it. Must be quick and must not call the
/// store.
pub type TokensUpdateFn = Box<dyn FnOnce(&[u8]) -> Option<Vec<u8>> + Send>;

/// The tokens of accounts.
pub trait LoginTokens: Send + Sync {
    /// Reads the value, asks `change`, stores its answer, all in one transaction. False when there is no such account;
    /// `change` is not called then.
    fn update_tokens(&self, owner: JidRef<'_>, change: TokensUpdateFn) -> StoreFuture<'_, bool>;
}

/// Runs the closure for a backend. A panic in it is an error of that one call.
///
/// # Errors
/// `Internal` when it panics, `TooLarge` when its answer is.
pub fn run_update(change: TokensUpdateFn, before: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    let after = std::panic::catch_unwind(AssertUnwindSafe(|| change(before))).map_err(|_| {
        StoreError::new(StoreErrorKind::Internal, "a change of tokens panicked; nothing was stored")
    })?;
    if after.as_ref().is_some_and(|after| after.len() > MAX_TOKENS_BYTES) {
        return Err(StoreError::new(StoreErrorKind::TooLarge, "the tokens are too large"));
    }
    Ok(after)
}
