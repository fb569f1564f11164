//! Cache of the blocklists of accounts that are not connected, and the only way to change a list: XEP-0191 1.3.
//!
//! A connected account holds its list ([`Account::blocks`]). For other accounts the store must be
//! queried, and a message to an absent user must not cost a query each time; so results are cached, within
//! [`MAX_ENTRIES`] and [`MAX_BYTES`].
//!
//! Other nodes reload a list that was changed here (crate `peers`); a change is complete when those with sessions of the account have
//! done so.
//!
//! # Pitfalls
//!
//! A list must only be changed by [`Views::update_blocklist`]. A direct write to the store leaves sessions and
//! this cache with the old list.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use cluster::AddressHasher;
use jid::{Jid, JidRef};
use store::{BlocklistOutcome, StoreError, Unblock};
use throng_core::Blocklist;
use throng_core::account::Account;
use throng_core::server_error::ServerError;

use crate::account_views::Views;

/// Maximum number of cached lists.
const MAX_ENTRIES: usize = 65_536;
/// Maximum bytes of cached lists.
const MAX_BYTES: usize = 16 * 1024 * 1024;
const SHARDS: usize = 16;
/// Maximum number of reloads of a view when changes of one account overtake one another.
const MAX_RELOADS: usize = 4;

/// Cached lists of accounts that are not connected.
pub(crate) struct BlocklistCache {
    hasher: AddressHasher,
    shards: [LeafMutex<Shard>; SHARDS],
    /// Incremented by each change, in stripes: a list that was read before a change must not be cached after
    /// it.
    changes: [AtomicU32; 256],
}

#[derive(Default)]
struct Shard {
    /// By bare address; `None` is an empty list, as most accounts have.
    lists: HashMap<Box<str>, Option<Arc<Blocklist>>>,
    bytes: usize,
}

impl BlocklistCache {
    pub(crate) fn new(hasher: AddressHasher) -> BlocklistCache {
        BlocklistCache { hasher, shards: Default::default(), changes: [const { AtomicU32::new(0) }; 256] }
    }

    fn shard(&self, owner: JidRef<'_>) -> &LeafMutex<Shard> {
        &self.shards[(self.hasher.hash(owner) >> 52) as usize % SHARDS]
    }

    fn change_count(&self, owner: JidRef<'_>) -> &AtomicU32 {
        &self.changes[(self.hasher.hash(owner) >> 28) as usize % 256]
    }

    /// The cached list of an account.
    pub(crate) fn get(&self, owner: JidRef<'_>) -> Option<Option<Arc<Blocklist>>> {
        self.shard(owner).lock().lists.get(owner.bare().as_str()).cloned()
    }

    /// Caches a list that was read, unless it changed meanwhile.
    fn insert(&self, owner: JidRef<'_>, list: Option<Arc<Blocklist>>, before: u32) {
        let size = list.as_ref().map_or(0, |list| list.bytes());
        let mut shard = self.shard(owner).lock();
        if self.change_count(owner).load(Ordering::Acquire) != before {
            return;
        }
        // Rare, and cheaper than tracking the last use.
        if shard.lists.len() >= MAX_ENTRIES / SHARDS || shard.bytes + size > MAX_BYTES / SHARDS {
            *shard = Shard::default();
        }
        shard.bytes += size;
        let old = shard.lists.insert(owner.bare().as_str().into(), list);
        shard.bytes -= old.flatten().map_or(0, |list| list.bytes());
    }

    /// Records a durable change; returns the number of changes.
    pub(crate) fn record_change(&self, owner: JidRef<'_>) -> u32 {
        let mut shard = self.shard(owner).lock();
        let count = self.change_count(owner).fetch_add(1, Ordering::AcqRel).wrapping_add(1);
        if let Some(old) = shard.lists.remove(owner.bare().as_str()) {
            shard.bytes -= old.map_or(0, |list| list.bytes());
        }
        count
    }
}

impl Views<'_> {
    /// See [`throng_core::account_views::AccountViews::load_has_blocked`].
    ///
    /// # Errors
    /// If the store does not answer.
    pub(crate) async fn load_has_blocked(
        &self,
        owner: JidRef<'_>,
        other: JidRef<'_>,
    ) -> Result<bool, StoreError> {
        let before = self.state.blocklists.change_count(owner).load(Ordering::Acquire);
        let list = self.stores.blocklists.blocklist(owner.bare()).await?;
        let list = Blocklist::new(&list).map(Arc::new);
        let covers = list.as_ref().is_some_and(|list| list.matches(other));
        self.state.blocklists.insert(owner, list, before);
        Ok(covers)
    }

    /// Changes the list of an account in the store and in every cached view, as
    /// [`store::Blocklists::update_blocklist`]. The future is ready when the other nodes with sessions of the account have read it.
    ///
    /// # Errors
    /// If the store does not answer; nothing was changed then.
    pub(crate) async fn update_blocklist(
        &self,
        owner: &Jid,
        add: Vec<Jid>,
        remove: Unblock,
        limit: u32,
    ) -> Result<(BlocklistOutcome, BoxFuture<'static, ()>), StoreError> {
        let changes = self.state.blocklists.change_count(owner.as_ref());
        let before = changes.load(Ordering::Acquire);
        let outcome = self.stores.blocklists.update_blocklist(owner.as_ref(), add, remove, limit).await?;
        let mut read_elsewhere: BoxFuture<'static, ()> = Box::pin(std::future::ready(()));
        let BlocklistOutcome::Changed(change) = &outcome else { return Ok((outcome, read_elsewhere)) };
        let seen = self.state.blocklists.record_change(owner.as_ref());
        // Before the account is looked up: a login that read the old list is either found here or sees the
        // changed epoch.
        self.advance_roster_epoch(owner.as_ref());
        if let Some(peers) = self.peers() {
            read_elsewhere = peers.announce_blocklist(self, owner.as_ref());
        }
        if let Some(account) = self.routing_table.find(owner.as_ref()) {
            // Concurrent changes may be answered in either order. A caller that was not alone reads the result from
            // the store.
            let list = (seen == before.wrapping_add(1)).then(|| change.list.clone());
            if let Err(error) = self.set_blocklist(&account, list, seen).await {
                tracing::warn!(account = %owner, %error, "cannot read a blocklist again after concurrent changes");
                set_if_unchanged(&account, &change.list, changes, None);
            }
        }
        Ok((outcome, read_elsewhere))
    }

    /// Sets the list of a connected account: to `list` if nothing has changed since `seen`, else as the store has it. Changes of
    /// some other accounts count as well, and their tasks do not set this list.
    pub(crate) async fn set_blocklist(
        &self,
        account: &Account,
        mut list: Option<Vec<Jid>>,
        mut seen: u32,
    ) -> Result<(), StoreError> {
        let changes = self.state.blocklists.change_count(account.jid.as_ref());
        for round in 1..=MAX_RELOADS {
            let now = match list.take() {
                Some(list) => list,
                None => self.stores.blocklists.blocklist(account.jid.as_ref()).await?,
            };
            if set_if_unchanged(account, &now, changes, (round < MAX_RELOADS).then_some(seen)) {
                break;
            }
            seen = changes.load(Ordering::Acquire);
        }
        Ok(())
    }

    /// Another node has changed the list of a connected account. If it cannot be read, the sessions of the account end: they must
    /// not receive what the user has blocked.
    pub(crate) async fn reload_blocklist(&self, account: &Arc<Account>) {
        let before = account.blocked();
        if let Err(error) = self.reread_blocklist(account).await {
            tracing::warn!(account = %account.jid, %error, "cannot read a blocklist again; ending its sessions");
            self.end_sessions(account.jid.as_ref(), &ServerError::from(error).stream());
            return;
        }
        self.exchange_presence_after_block(account, before).await;
    }

    /// Contacts that another node has blocked or unblocked receive presence of the sessions here, or none any more.
    pub(crate) async fn exchange_presence_after_block(
        &self,
        account: &Arc<Account>,
        before: Option<Arc<Blocklist>>,
    ) {
        if let Some(peers) = self.peers() {
            let lists = (before, account.blocked());
            peers.exchange_presence_after_block(self, account, lists, true).await;
        }
    }

    /// Reads the list of a connected account again, after changes may have been missed.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) async fn reread_blocklist(&self, account: &Account) -> Result<(), StoreError> {
        let seen = self.state.blocklists.record_change(account.jid.as_ref());
        self.set_blocklist(account, None, seen).await
    }

    /// Number of changes of an account's list, modulo 2^32, and of some other accounts' lists.
    pub(crate) fn blocklist_changes(&self, owner: JidRef<'_>) -> u32 {
        self.state.blocklists.change_count(owner).load(Ordering::Acquire)
    }
}

/// Sets the view of a connected account, unless there have been other changes than `seen`: of this account, or of one that shares
/// its counter.
fn set_if_unchanged(account: &Account, list: &[Jid], changes: &AtomicU32, seen: Option<u32>) -> bool {
    account.with(|state| {
        let last = seen.is_none_or(|seen| changes.load(Ordering::Acquire) == seen);
        if last {
            account.set_blocked(state, list);
        }
        last
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    fn list(text: &str) -> Option<Arc<Blocklist>> {
        Blocklist::new(&[jid(text)]).map(Arc::new)
    }

    #[test]
    fn a_cached_blocklist_is_valid_until_it_changes() {
        let known = BlocklistCache::new(AddressHasher::new([1; 16]));
        let (a, b) = (jid("a@x/res"), jid("b@x"));
        assert!(known.get(a.as_ref()).is_none());
        known.insert(a.as_ref(), None, 0);
        known.insert(b.as_ref(), list("c@x"), 0);
        assert!(known.get(jid("a@x").as_ref()).is_some_and(|list| list.is_none()));
        assert!(known.get(b.as_ref()).flatten().unwrap().matches(jid("c@x/y").as_ref()));
        let count = known.record_change(b.as_ref());
        assert!(known.get(b.as_ref()).is_none() && known.shards.iter().all(|s| s.lock().bytes == 0));
        // Read before the change, thus not cached.
        known.insert(b.as_ref(), list("c@x"), count - 1);
        assert!(known.get(b.as_ref()).is_none());
        known.insert(b.as_ref(), list("c@x"), count);
        known.insert(b.as_ref(), list("c@x"), count);
        assert!(known.get(b.as_ref()).is_some());
    }

    #[test]
    fn the_cache_is_bounded_for_many_accounts_and_long_lists() {
        let known = BlocklistCache::new(AddressHasher::new([1; 16]));
        for n in 0..2 * MAX_ENTRIES {
            known.insert(jid(&format!("user{n}@x")).as_ref(), None, 0);
        }
        let count = |known: &BlocklistCache| known.shards.iter().map(|s| s.lock().lists.len()).sum::<usize>();
        assert!(count(&known) <= MAX_ENTRIES && count(&known) > MAX_ENTRIES / 4, "{}", count(&known));
        let long: Vec<Jid> = (0..1000).map(|n| jid(&format!("{n}@{}", "x".repeat(50)))).collect();
        let long = Blocklist::new(&long).map(Arc::new);
        for n in 0..2000 {
            known.insert(jid(&format!("user{n}@y")).as_ref(), long.clone(), 0);
            assert!(known.shards.iter().map(|s| s.lock().bytes).sum::<usize>() <= MAX_BYTES);
        }
    }
}
