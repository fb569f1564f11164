//! Last activity: when an account was last online and its last status (XEP-0012 2.0, section 4; last login of
//! XEP-0133).
//!
//! Thousands of clients log out in the same second when a network fails, so callers do not wait for writes: they are
//! batched, only the newest per account is written, and they reach the disk within about a second. `kill -9` loses that
//! second; an orderly shutdown loses nothing.
//!
//! # Pitfalls
//!
//! `set` never fails and never waits. If more than [`MAX_PENDING_ACCOUNTS`] accounts have pending writes, further ones
//! are dropped. A caller with many must [`LastSeen::flush`] in between.

use jid::JidRef;

use crate::{AddressId, StoreFuture};

/// Maximum number of accounts with a pending write.
pub const MAX_PENDING_ACCOUNTS: usize = 65_536;

/// Maximum stored length of a status text in bytes; longer ones are truncated.
pub const MAX_STATUS_BYTES: usize = 1024;

/// Last activity of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastActivity {
    /// Seconds since 1970.
    pub at: u64,
    /// The status text of the last unavailable presence.
    pub status: Option<String>,
}

impl LastActivity {
    /// The stored form: the status truncated to [`MAX_STATUS_BYTES`].
    #[must_use]
    pub fn with_truncated_status(mut self) -> LastActivity {
        if let Some(status) = &mut self.status {
            status.truncate(status.floor_char_boundary(MAX_STATUS_BYTES));
        }
        self
    }
}

storage_need! {
    /// Last activity of accounts. Removed with the account.
    pub trait LastSeen in last_seen {
        /// The last activity; `None` if it was never set.
        fn get(&self, owner: JidRef<'_>) -> StoreFuture<'_, Option<LastActivity>>;

        /// Waits until everything that was set before is on the disk. Fails if something was not written; what can be
        /// repeated stays queued. For imports, which would fill the queue.
        fn flush(&self) -> StoreFuture<'_, ()>;
    }
    queue {
        /// Replaces the last activity; `get` returns it immediately. Does nothing if the account does not exist.
        fn set(&self, owner: AddressId, seen: LastActivity);
    }
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
