//! When an account was last there, and what it said as it went (XEP-0012 2.0 section 4, last login of XEP-0133).
//!
//! Thousands log out in a second when a network goes, so writes are not waited for: they are gathered, the newest of each
//! account counts, and they are on the disk within about a second. `kill -9` loses what was set in that second; an orderly
//! close loses nothing.
//!
//! The trap for the next person: `set` never fails and never waits. When more than [`MAX_PENDING_ACCOUNTS`] accounts wait to be
//! written, further ones are dropped.
use jid::JidRef;

use crate::{AddressId, StoreFuture};

/// Accounts that may wait to be written.
pub const MAX_PENDING_ACCOUNTS: usize = 65_536;

/// The longest status text that is kept, in bytes; longer ones are cut.
pub const MAX_STATUS_BYTES: usize = 1024;

/// When an account was last there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastActivity {
    /// In seconds since 1970.
    pub at: u64,
    /// The status text of the last unavailable presence.
    pub status: Option<String>,
}

impl LastActivity {
    /// As it is kept: the status cut to [`MAX_STATUS_BYTES`].
    #[must_use]
    pub fn with_truncated_status(mut self) -> LastActivity {
        if let Some(status) = &mut self.status {
            status.truncate(status.floor_char_boundary(MAX_STATUS_BYTES));
        }
        self
    }
}

/// When accounts were last there. It goes with the account.
pub trait LastSeen: Send + Sync {
    /// Replaces what is known about an account; `get` answers it at once. Nothing happens when there is no such account.
    fn set(&self, owner: AddressId, seen: LastActivity);

    /// What is known about an account; nothing when it never was set.
    fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<LastActivity>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_cut_between_characters() {
        let seen = |status: String| {
            LastActivity { at: 1, status: Some(status) }.with_truncated_status().status.unwrap().len()
        };
        assert_eq!(seen("x".repeat(2000)), 1024);
        assert_eq!(seen("日".repeat(2000)), 1023);
        assert_eq!(seen("x".into()), 1);
    }
}
