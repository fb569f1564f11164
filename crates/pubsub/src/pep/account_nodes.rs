//! Which nodes accounts have: read from the store for all contacts of a login at once, and kept for accounts whose nodes this
//! node of the cluster owns.
//!
//! # Pitfalls
//!
//! A node that was just created may not be in the store, because changes are written in the background: recent changes are
//! applied to what is read.

use std::collections::VecDeque;
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
/// Recent changes that are kept, of all accounts and of one.
const MAX_CHANGES: usize = 65_536;
const MAX_ACCOUNT_CHANGES: usize = 2_048;

/// An account: the keyed hash of its bare address, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccountKey {
    pub(crate) hash: u64,
    pub(crate) id: AddressId,
}

/// A node that was created or removed.
struct RecentChange {
    exists: bool,
    /// Its number among all changes.
    turn: u64,
}

/// The recent changes of an account.
#[derive(Default)]
struct AccountChanges {
    nodes: HashMap<Jid, RecentChange>,
    /// The last change that is or was here.
    last: u64,
}

/// A change in the order of all of them.
struct ChangeTurn {
    second: u32,
    turn: u64,
    hash: u64,
    node: Jid,
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
    /// By hash of the account. A hash alone decides nothing: the addresses of the nodes are compared.
    recent: HashMap<u64, AccountChanges>,
    /// Oldest first. A later change of the same node has a turn of its own.
    order: VecDeque<ChangeTurn>,
    /// Number of the last change: what was read before a change of the same account must not be kept.
    turn: u64,
    /// Number of the last change that was forgotten.
    forgotten: u64,
}

/// The nodes of accounts.
#[derive(Default)]
pub(crate) struct AccountNodesCache(LeafMutex<AccountNodesState>);

impl AccountNodesCache {
    /// A node was created or removed here.
    pub(crate) fn changed(&self, node: &Node, key: &Jid, exists: bool) {
        let (hash, second) = (node.routing_table.hash(key.as_ref()), node.seconds());
        let mut state = self.0.lock();
        state.current.remove(&hash);
        state.previous.remove(&hash);
        state.change(hash, key, exists, second);
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
        let turn = {
            let mut state = self.0.lock();
            for account in accounts {
                match state.find(account) {
                    Some(nodes) => found.extend(nodes.iter().cloned()),
                    None => missing.push(*account),
                }
            }
            state.turn
        };
        if missing.is_empty() {
            return Ok(found);
        }
        let ids = missing.iter().map(|account| account.id).collect();
        let mut read: HashMap<AddressId, HashSet<Jid>> = HashMap::new();
        for (id, one) in node.stores.pubsub.of_services(ids).await? {
            read.entry(id).or_default().insert(one);
        }
        for (account, changes) in self.recent(&missing) {
            // All changes of a hash are of one account, unless two accounts have the same: each is asked for once.
            let mut known: HashMap<Jid, Option<AddressId>> = HashMap::new();
            for (one, exists) in changes {
                let of = one.bare().to_jid();
                let id = match known.get(&of) {
                    Some(id) => *id,
                    None => {
                        let id = node.stores.addresses.find(&of).await?;
                        known.insert(of, id);
                        id
                    }
                };
                if id != Some(account.id) {
                    continue;
                }
                let of_account = read.entry(account.id).or_default();
                if exists {
                    of_account.insert(one);
                } else {
                    of_account.remove(&one);
                }
            }
        }
        let mut state = self.0.lock();
        for account in missing {
            let nodes: Arc<[Jid]> = read.remove(&account.id).unwrap_or_default().into_iter().collect();
            found.extend(nodes.iter().cloned());
            if state.is_unchanged(account.hash, turn) {
                state.insert(account, nodes);
            }
        }
        Ok(found)
    }

    fn recent(&self, accounts: &[AccountKey]) -> Vec<(AccountKey, Vec<(Jid, bool)>)> {
        let state = self.0.lock();
        let mut all = Vec::new();
        if state.recent.is_empty() {
            return all;
        }
        for account in accounts {
            if let Some(changes) = state.recent.get(&account.hash) {
                let of_account = changes.nodes.iter().map(|(jid, change)| (jid.clone(), change.exists));
                all.push((*account, of_account.collect()));
            }
        }
        all
    }
}

impl AccountNodesState {
    /// Remembers a change. Each costs the same, however many there are.
    fn change(&mut self, hash: u64, key: &Jid, exists: bool, second: u32) {
        self.turn += 1;
        let turn = self.turn;
        let of_account = self.recent.entry(hash).or_default();
        of_account.last = turn;
        of_account.nodes.insert(key.clone(), RecentChange { exists, turn });
        // Of an account with more changes than the limit, the store has the earlier ones: they are written in their order.
        if of_account.nodes.len() > MAX_ACCOUNT_CHANGES {
            // Half of them at once, so that each costs the same.
            let mut turns: Vec<u64> = of_account.nodes.values().map(|change| change.turn).collect();
            let (_, middle, _) = turns.select_nth_unstable(MAX_ACCOUNT_CHANGES / 2);
            of_account.nodes.retain(|_, change| change.turn >= *middle);
        }
        self.order.push_back(ChangeTurn { second, turn, hash, node: key.clone() });
        while self.order.len() > MAX_CHANGES
            || self.order.front().is_some_and(|one| one.second + WRITE_SECONDS < second)
        {
            let Some(ChangeTurn { turn, hash, node, .. }) = self.order.pop_front() else { break };
            self.forgotten = turn;
            let Some(of_account) = self.recent.get_mut(&hash) else { continue };
            if of_account.nodes.get(&node).is_some_and(|change| change.turn == turn) {
                of_account.nodes.remove(&node);
            }
            if of_account.nodes.is_empty() {
                self.recent.remove(&hash);
            }
        }
    }

    /// Whether no node of an account was created or removed since a change of any.
    fn is_unchanged(&self, hash: u64, turn: u64) -> bool {
        self.forgotten <= turn && self.recent.get(&hash).is_none_or(|changes| changes.last <= turn)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(account: u64, name: u64) -> Jid {
        Jid::parse(&format!("u{account}@example.org/n{name}")).unwrap()
    }

    #[test]
    fn recent_changes_are_bounded_for_all_and_for_each_account() {
        let mut state = AccountNodesState::default();
        for name in 0..10_000 {
            state.change(1, &node(1, name % 5_000), name % 2 == 0, 100);
        }
        assert!(state.recent[&1].nodes.len() <= MAX_ACCOUNT_CHANGES, "{}", state.recent[&1].nodes.len());
        for name in 0..100_000 {
            state.change(2 + name % 10_000, &node(2, name), true, 100);
        }
        let kept: usize = state.recent.values().map(|changes| changes.nodes.len()).sum();
        assert!(kept <= MAX_CHANGES && state.order.len() <= MAX_CHANGES, "{kept}");
        state.change(7, &node(7, 7), true, 100 + WRITE_SECONDS + 1);
        assert_eq!((state.recent.len(), state.order.len()), (1, 1), "old ones are in the store");
    }

    #[test]
    fn a_change_concerns_its_account_only() {
        let mut state = AccountNodesState::default();
        state.change(1, &node(1, 1), true, 100);
        let turn = state.turn;
        state.change(2, &node(2, 1), true, 100);
        assert!(state.is_unchanged(1, turn) && !state.is_unchanged(2, turn));
        assert!(state.is_unchanged(3, turn));
        state.change(1, &node(1, 1), false, 100);
        assert!(!state.is_unchanged(1, turn));
    }
}
