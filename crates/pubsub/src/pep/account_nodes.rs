//! Which nodes accounts have: read from the store for all contacts of a login at once, and kept for accounts whose nodes this
//! node of the cluster owns.
//!
//! # Pitfalls
//!
//! A node that was just created may not be in the store, because changes are written in the background: recent changes are
//! applied to what is read.

use std::sync::Arc;

use base::lock::LeafMutex;
use hashbrown::{HashMap, HashSet};
use jid::Jid;
use store::{AddressId, StoreError};
use throng_core::Node;

/// Accounts of one generation of the cache; there are two.
const MAX_GENERATION: usize = 50_000;
/// Seconds for which a change may not be in the store.
const WRITE_SECONDS: u32 = 120;
/// Recent changes from which on old ones are removed.
const MANY_CHANGES: usize = 1_024;
/// Recent changes that are kept.
const MAX_CHANGES: usize = 65_536;

/// An account: the keyed hash of its bare address, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccountKey {
    pub(crate) hash: u64,
    pub(crate) id: AddressId,
}

/// A node that was created or removed.
struct RecentChange {
    node: Jid,
    exists: bool,
    second: u32,
}

/// The nodes of an account.
struct CachedNodes {
    id: AddressId,
    nodes: Arc<[Jid]>,
}

#[derive(Default)]
struct AccountNodesState {
    /// By hash of the account.
    current: HashMap<u64, CachedNodes>,
    previous: HashMap<u64, CachedNodes>,
    /// By hash of the account.
    recent: HashMap<u64, Vec<RecentChange>>,
    changes: usize,
    /// Rises with each change: what was read before must not be kept.
    epoch: u64,
}

/// The nodes of accounts.
#[derive(Default)]
pub(crate) struct AccountNodesCache(LeafMutex<AccountNodesState>);

impl AccountNodesCache {
    /// A node was created or removed here.
    pub(crate) fn changed(&self, node: &Node, key: &Jid, exists: bool) {
        let (hash, second) = (node.routing_table.hash(key.as_ref()), node.seconds());
        let mut state = self.0.lock();
        state.epoch += 1;
        state.current.remove(&hash);
        state.previous.remove(&hash);
        if state.changes >= MANY_CHANGES {
            let age = if state.changes >= MAX_CHANGES { 2 } else { WRITE_SECONDS };
            state.recent.retain(|_, changes| {
                changes.retain(|one| one.second + age >= second);
                !changes.is_empty()
            });
            state.changes = state.recent.values().map(Vec::len).sum();
        }
        let of_account = state.recent.entry(hash).or_default();
        let before = of_account.len();
        of_account.retain(|one| one.node != *key);
        of_account.push(RecentChange { node: key.clone(), exists, second });
        let after = of_account.len();
        state.changes = state.changes + after - before;
    }

    /// Forgets accounts whose nodes another node of the cluster owns.
    pub(crate) fn retain(&self, is_own: impl Fn(u64) -> bool) {
        let mut state = self.0.lock();
        state.current.retain(|hash, _| is_own(*hash));
        state.previous.retain(|hash, _| is_own(*hash));
    }

    /// The nodes of these accounts, of which this node of the cluster owns the nodes.
    pub(crate) async fn nodes(
        &self,
        node: &Arc<Node>,
        accounts: &[AccountKey],
    ) -> Result<Vec<Jid>, StoreError> {
        let mut found: Vec<Jid> = Vec::new();
        let mut missing: Vec<AccountKey> = Vec::new();
        let epoch = {
            let mut state = self.0.lock();
            for account in accounts {
                match state.find(account) {
                    Some(nodes) => found.extend(nodes.iter().cloned()),
                    None => missing.push(*account),
                }
            }
            state.epoch
        };
        if missing.is_empty() {
            return Ok(found);
        }
        let ids = missing.iter().map(|account| account.id).collect();
        let mut read: HashMap<AddressId, HashSet<Jid>> = HashMap::new();
        for (id, one) in node.stores.pubsub.of_services(ids).await? {
            read.entry(id).or_default().insert(one);
        }
        for (account, one, exists) in self.recent(&missing) {
            // A hash alone decides nothing.
            if node.stores.addresses.find(&one.bare().to_jid()).await? == Some(account.id) {
                let of_account = read.entry(account.id).or_default();
                if exists {
                    of_account.insert(one);
                } else {
                    of_account.remove(&one);
                }
            }
        }
        let mut state = self.0.lock();
        let is_current = state.epoch == epoch;
        for account in missing {
            let nodes: Arc<[Jid]> = read.remove(&account.id).unwrap_or_default().into_iter().collect();
            found.extend(nodes.iter().cloned());
            if is_current {
                state.insert(account, nodes);
            }
        }
        Ok(found)
    }

    fn recent(&self, accounts: &[AccountKey]) -> Vec<(AccountKey, Jid, bool)> {
        let state = self.0.lock();
        let mut all = Vec::new();
        if state.recent.is_empty() {
            return all;
        }
        for account in accounts {
            for change in state.recent.get(&account.hash).into_iter().flatten() {
                all.push((*account, change.node.clone(), change.exists));
            }
        }
        all
    }
}

impl AccountNodesState {
    fn find(&mut self, account: &AccountKey) -> Option<Arc<[Jid]>> {
        if let Some(found) = self.current.get(&account.hash) {
            return (found.id == account.id).then(|| found.nodes.clone());
        }
        let found = self.previous.remove(&account.hash).filter(|one| one.id == account.id)?;
        let nodes = found.nodes.clone();
        self.insert(*account, found.nodes);
        Some(nodes)
    }

    fn insert(&mut self, account: AccountKey, nodes: Arc<[Jid]>) {
        if self.current.len() >= MAX_GENERATION {
            self.previous = std::mem::take(&mut self.current);
        }
        self.current.insert(account.hash, CachedNodes { id: account.id, nodes });
    }
}
