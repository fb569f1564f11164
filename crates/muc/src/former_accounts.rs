//! Addresses whose accounts were removed: another account with the same address is another user, with another occupant id
//! (XEP-0421 1.0.1, section 4.1).
//!
//! # Pitfalls
//!
//! They are in memory as keyed hashes of 64 bits, 20 bytes each, and all of them are read before the first room.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};

use base::lock::LeafRwLock;
use jid::{Jid, JidRef};
use store::{FormerAccount, StoreError};
use throng_core::Node;

/// Addresses that are read at a time.
const PAGE: u32 = 10_000;

/// How many accounts with an address were removed.
#[derive(Default)]
pub(crate) struct FormerAccounts {
    removals: LeafRwLock<BTreeMap<u64, u32>>,
    key: RandomState,
    is_read: AtomicBool,
}

impl FormerAccounts {
    /// The number of accounts that had this address before.
    pub(crate) fn removals(&self, user: JidRef<'_>) -> u32 {
        let hash = self.key.hash_one(user.bare().as_str());
        self.removals.read().get(&hash).copied().unwrap_or_default()
    }

    fn add(&self, page: &[FormerAccount]) {
        let mut removals = self.removals.write();
        for one in page {
            removals.insert(self.key.hash_one(one.user.as_str()), one.times);
        }
    }

    /// Reads all addresses, if they were not read before.
    pub(crate) async fn read(&self, node: &Node) -> Result<(), StoreError> {
        if self.is_read.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut after = None;
        loop {
            let page = node.stores.rooms.former_accounts(after, PAGE).await?;
            self.add(&page);
            match page.into_iter().next_back() {
                Some(last) => after = Some(last.user),
                None => break,
            }
        }
        self.is_read.store(true, Ordering::Release);
        Ok(())
    }

    /// An account was removed.
    pub(crate) async fn read_one(&self, node: &Node, user: &Jid) -> Result<(), StoreError> {
        let times = node.stores.rooms.removals(user.as_ref()).await?;
        self.add(&[FormerAccount { user: user.clone(), times }]);
        Ok(())
    }

    /// Accounts may have been removed.
    pub(crate) fn expire(&self) {
        self.is_read.store(false, Ordering::Release);
    }
}
