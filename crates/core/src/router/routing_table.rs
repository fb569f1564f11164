//! The routing table: accounts that have a resource connected to this node.
//!
//! Sharded by the keyed hash of the bare address. An entry is one shared pointer; an account owns its sessions.
//! Roster views and the cluster's address directory use the same 64-bit hash.
//!
//! # Pitfalls
//!
//! A hash only finds candidates: every look-up must also compare the address or its id.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::lock::{RankedRwLock, rank};
use cluster::AddressHasher;
use hashbrown::HashTable;
use jid::JidRef;
use store::AddressId;

use crate::account::Account;
use crate::session::Session;

const SHARDS: usize = 64;

type AccountShard = RankedRwLock<HashTable<Arc<Account>>, { rank::ROUTING_TABLE }>;

/// Accounts that have a resource connected to this node.
pub struct RoutingTable {
    hasher: AddressHasher,
    shards: Box<[AccountShard]>,
    sessions: AtomicUsize,
}

impl RoutingTable {
    /// An empty table. `hasher` holds the secret of the deployment.
    pub fn new(hasher: AddressHasher) -> RoutingTable {
        let shards = (0..SHARDS).map(|_| RankedRwLock::default()).collect();
        RoutingTable { hasher, shards, sessions: AtomicUsize::new(0) }
    }

    /// Keyed hash of a bare address, the same on all nodes; the resource is ignored.
    pub fn hash(&self, jid: JidRef<'_>) -> u64 {
        self.hasher.hash(jid)
    }

    /// The keyed hash of a name that is no address.
    pub fn hash_name(&self, name: &str) -> u64 {
        self.hasher.hash_name(name)
    }

    /// The account with this bare address, if it is connected here; the resource is ignored.
    pub fn find(&self, jid: JidRef<'_>) -> Option<Arc<Account>> {
        self.find_with_hash(self.hash(jid), jid)
    }

    /// Like [`RoutingTable::find`], for a caller that knows the hash.
    pub fn find_with_hash(&self, hash: u64, jid: JidRef<'_>) -> Option<Arc<Account>> {
        let bare = jid.bare();
        self.shard(hash).read().find(hash, |a| a.jid.as_ref().as_str() == bare.as_str()).cloned()
    }

    /// The account with this id, if it is connected here.
    pub fn find_by_id(&self, hash: u64, id: AddressId) -> Option<Arc<Account>> {
        self.shard(hash).read().find(hash, |a| a.id == id).cloned()
    }

    /// Number of sessions.
    pub fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Number of shards, for work over all accounts that must yield between shards.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Shard of the account with this address.
    pub fn shard_index(&self, jid: JidRef<'_>) -> usize {
        Self::shard_of(self.hash(jid))
    }

    fn shard_of(hash: u64) -> usize {
        (hash >> 40) as usize % SHARDS
    }

    /// Calls `f` for every account of one shard, which is locked meanwhile: `f` must be fast.
    pub fn for_each_in_shard(&self, part: usize, mut f: impl FnMut(&Arc<Account>)) {
        if let Some(shard) = self.shards.get(part) {
            shard.read().iter().for_each(&mut f);
        }
    }

    /// Number of accounts with a session.
    pub fn accounts(&self) -> usize {
        self.shards.iter().map(|s| s.read().len()).sum()
    }

    /// Finds or creates the account and lets `bind` add a session, atomically with other binds and unbinds.
    pub(crate) fn bind<T>(
        &self,
        jid: JidRef<'_>,
        make: impl FnOnce() -> Arc<Account>,
        bind: impl FnOnce(&Arc<Account>, bool) -> Result<Arc<Session>, T>,
    ) -> Result<Arc<Session>, T> {
        let hash = self.hash(jid);
        let mut shard = self.shard(hash).write();
        let found = shard.find(hash, |a| a.jid.as_ref().as_str() == jid.bare().as_str()).cloned();
        let (account, fresh) = match found {
            Some(account) => (account, false),
            None => (make(), true),
        };
        let session = bind(&account, fresh)?;
        if fresh {
            shard.insert_unique(hash, account, |a| a.hash);
        }
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Ok(session)
    }

    /// Removes a session, and its account if that was the last one; `after` learns whether it was, atomically with other
    /// binds and unbinds.
    pub(crate) fn unbind(&self, session: &Arc<Session>, after: impl FnOnce(&Arc<Account>, bool)) {
        let account = &session.account;
        let mut shard = self.shard(account.hash).write();
        let (removed, empty) = account.with(|state| {
            let before = state.sessions.len();
            state.sessions.retain(|s| !Arc::ptr_eq(s, session));
            (state.sessions.len() < before, state.sessions.is_empty())
        });
        if removed {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
        }
        if empty && let Ok(entry) = shard.find_entry(account.hash, |a| Arc::ptr_eq(a, account)) {
            entry.remove();
            if shard.capacity() > 64 && shard.len() * 8 < shard.capacity() {
                shard.shrink_to_fit(|a| a.hash);
            }
            return after(account, true);
        }
        if removed {
            after(account, false);
        }
    }

    /// Calls `f` for every account; its shard is locked meanwhile: `f` must be fast.
    pub fn for_each(&self, mut f: impl FnMut(&Arc<Account>)) {
        for shard in &self.shards {
            for account in shard.read().iter() {
                f(account);
            }
        }
    }

    fn shard(&self, hash: u64) -> &AccountShard {
        // The inner table uses the low and the highest bits, so the shard uses some between them.
        &self.shards[Self::shard_of(hash)]
    }
}
