//! Bounded cache of the subscribers of PubSub nodes, for the member of the cluster that owns the nodes.
//!
//! A publication asks for the subscribers of its node again and again. They stay here as chunks
//! ([`crate::number_chunk`]), in about one and a half octets for each of a million scattered ones, and a change rewrites one
//! chunk. The nodes that were used last stay.
//!
//! # Pitfalls
//!
//! The cache knows only the changes that are reported to it, in the order in which they were stored: the owner calls
//! [`SubscriptionCache::apply`] after each, and [`SubscriptionCache::forget`] after one that failed with the kind `InDoubt` and for nodes
//! that it does not own any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::lock::LeafMutex;

use crate::number_chunk::{NumberChunk, changed, divide, intersect};
use crate::{AddressId, NodeNumber, StoreError, SubscriptionSets};

/// Chunks of one read.
const CHUNKS_AT_ONCE: u32 = 128;

/// Changes of a node that are kept while it is loaded. After more, what was loaded is not kept.
const MAX_KEPT_CHANGES: usize = 4096;

/// Octets of an entry besides its chunks.
const ENTRY_OCTETS: usize = 200;

/// Octets of a chunk besides its code.
const CHUNK_OCTETS: usize = size_of::<NumberChunk>() + 16;

/// The subscribers of a node at one time.
#[derive(Clone, Debug, Default)]
pub struct NodeSubscribers {
    chunks: Vec<NumberChunk>,
    count: u64,
    octets: usize,
}

impl NodeSubscribers {
    fn new(chunks: Vec<NumberChunk>) -> NodeSubscribers {
        let count = chunks.iter().map(|chunk| u64::from(chunk.count())).sum();
        let octets = chunks.iter().map(|chunk| chunk.as_bytes().len() + CHUNK_OCTETS).sum::<usize>();
        NodeSubscribers { chunks, count, octets: octets + ENTRY_OCTETS }
    }

    /// Count of the subscribers.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether an address is one of them.
    pub fn contains(&self, subscriber: AddressId) -> bool {
        let number = subscriber.get();
        let at = self.chunks.partition_point(|chunk| chunk.last() < number);
        self.chunks.get(at).is_some_and(|chunk| chunk.contains(number))
    }

    /// Appends those that are in an ascending list.
    pub fn intersect(&self, list: &[u32], into: &mut Vec<u32>) {
        intersect(&self.chunks, list, into);
    }

    /// The chunks, in ascending order.
    pub fn chunks(&self) -> &[NumberChunk] {
        &self.chunks
    }

    fn apply(&mut self, subscriber: AddressId, is_added: bool) {
        if self.contains(subscriber) == is_added {
            return;
        }
        let number = subscriber.get();
        // The chunk with the number, or the last one that begins below it.
        let at = self.chunks.partition_point(|chunk| chunk.first() <= number).saturating_sub(1);
        let (members, growth) = changed(self.chunks.get(at), &[(number, is_added)]);
        let after = NodeSubscribers::new(divide(&members, growth));
        let end = self.chunks.len().min(at + 1);
        let before = NodeSubscribers::new(self.chunks.splice(at..end, after.chunks).collect());
        self.count = (self.count + after.count).saturating_sub(before.count);
        self.octets = (self.octets + after.octets).saturating_sub(before.octets);
    }
}

/// A node that is being loaded.
#[derive(Default)]
struct NodeLoad {
    callers: usize,
    /// What has changed since the first one began.
    changes: Vec<(AddressId, bool)>,
    /// What is loaded cannot be kept.
    is_outdated: bool,
}

#[derive(Default)]
struct CacheState {
    /// With the number of its last use.
    nodes: HashMap<NodeNumber, (u64, Arc<NodeSubscribers>)>,
    uses: BTreeMap<u64, NodeNumber>,
    last_use: u64,
    octets: usize,
    loads: HashMap<NodeNumber, NodeLoad>,
}

impl CacheState {
    fn remove(&mut self, node: NodeNumber) {
        if let Some((number, subscribers)) = self.nodes.remove(&node) {
            self.uses.remove(&number);
            self.octets = self.octets.saturating_sub(subscribers.octets);
        }
    }

    fn insert(&mut self, node: NodeNumber, subscribers: Arc<NodeSubscribers>, max_octets: usize) {
        self.remove(node);
        self.octets += subscribers.octets;
        self.last_use += 1;
        self.uses.insert(self.last_use, node);
        self.nodes.insert(node, (self.last_use, subscribers));
        while self.octets > max_octets
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.remove(oldest);
        }
    }

    fn find(&mut self, node: NodeNumber) -> Option<Arc<NodeSubscribers>> {
        let (number, subscribers) = self.nodes.get_mut(&node)?;
        self.uses.remove(number);
        self.last_use += 1;
        *number = self.last_use;
        self.uses.insert(self.last_use, node);
        Some(subscribers.clone())
    }
}

/// A call that loads a node; dropped when it ends, also early.
struct LoadGuard<'a> {
    cache: &'a SubscriptionCache,
    node: NodeNumber,
}

impl LoadGuard<'_> {
    /// What was loaded with the changes since then, which is kept if it can be.
    fn finish(self, mut loaded: NodeSubscribers) -> Arc<NodeSubscribers> {
        let mut state = self.cache.state.lock();
        let load = state.loads.get(&self.node);
        for (subscriber, is_added) in load.map(|load| load.changes.as_slice()).unwrap_or_default() {
            loaded.apply(*subscriber, *is_added);
        }
        let is_outdated = load.is_none_or(|load| load.is_outdated);
        let loaded = Arc::new(loaded);
        if !is_outdated {
            state.insert(self.node, loaded.clone(), self.cache.max_octets);
        }
        drop(state);
        loaded
    }
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.cache.state.lock();
        if let Some(load) = state.loads.get_mut(&self.node) {
            load.callers -= 1;
            if load.callers == 0 {
                state.loads.remove(&self.node);
            }
        }
    }
}

/// Subscribers of the nodes that were used last.
pub struct SubscriptionCache {
    state: LeafMutex<CacheState>,
    max_octets: usize,
}

impl SubscriptionCache {
    /// An empty cache of about this size.
    pub fn new(max_octets: usize) -> SubscriptionCache {
        SubscriptionCache { state: LeafMutex::default(), max_octets }
    }

    /// The subscribers of a node, from the store if they are not here. A result that was loaded while subscriptions changed has
    /// these changes.
    pub async fn subscribers(
        &self,
        store: &dyn SubscriptionSets,
        node: NodeNumber,
    ) -> Result<Arc<NodeSubscribers>, StoreError> {
        {
            let mut state = self.state.lock();
            if let Some(found) = state.find(node) {
                return Ok(found);
            }
            state.loads.entry(node).or_default().callers += 1;
        }
        let guard = LoadGuard { cache: self, node };
        let mut chunks: Vec<NumberChunk> = Vec::new();
        loop {
            let after = chunks.last().and_then(|chunk| AddressId::new(chunk.last()));
            let mut some = store.chunks(node, after, CHUNKS_AT_ONCE).await?;
            if some.is_empty() {
                return Ok(guard.finish(NodeSubscribers::new(chunks)));
            }
            chunks.append(&mut some);
        }
    }

    /// Applies a change that is stored.
    pub fn apply(&self, node: NodeNumber, subscriber: AddressId, is_added: bool) {
        let mut state = self.state.lock();
        if let Some(load) = state.loads.get_mut(&node) {
            if load.changes.len() < MAX_KEPT_CHANGES {
                load.changes.push((subscriber, is_added));
            } else {
                load.is_outdated = true;
            }
        }
        let Some(mut subscribers) = state.find(node) else { return };
        state.remove(node);
        Arc::make_mut(&mut subscribers).apply(subscriber, is_added);
        state.insert(node, subscribers, self.max_octets);
    }

    /// Removes a node.
    pub fn forget(&self, node: NodeNumber) {
        let mut state = self.state.lock();
        state.remove(node);
        if let Some(load) = state.loads.get_mut(&node) {
            load.is_outdated = true;
        }
    }

    /// Octets of what it has, about.
    pub fn octets(&self) -> usize {
        self.state.lock().octets
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::block_on_ready;
    use crate::memory::MemoryStore;
    use base::ManualClock;

    const NODE: NodeNumber = NodeNumber(1);

    fn id(number: u32) -> AddressId {
        AddressId::new(number).unwrap()
    }

    fn store(count: u32) -> MemoryStore {
        let store = MemoryStore::new(Arc::new(ManualClock::default()));
        for number in 0..count {
            block_on_ready(store.subscribe(NODE, id(1 + number * 37))).unwrap();
        }
        store
    }

    fn members(subscribers: &NodeSubscribers) -> Vec<u32> {
        subscribers.chunks().iter().flat_map(NumberChunk::to_vec).collect()
    }

    #[test]
    fn changes_are_applied_to_what_was_loaded() {
        let (store, cache) = (store(3000), SubscriptionCache::new(1 << 20));
        let loaded = block_on_ready(cache.subscribers(&store, NODE)).unwrap();
        assert_eq!(loaded.count(), 3000);
        let changes = (0..2000).map(|number| (1 + number * 31 % 120_000, number % 3 != 0));
        for (number, is_added) in changes.chain([(u32::MAX, true)]) {
            match is_added {
                true => block_on_ready(store.subscribe(NODE, id(number))).unwrap(),
                false => block_on_ready(store.unsubscribe(NODE, id(number))).unwrap(),
            };
            cache.apply(NODE, id(number), is_added);
        }
        let cached = block_on_ready(cache.subscribers(&store, NODE)).unwrap();
        let fresh = block_on_ready(SubscriptionCache::new(0).subscribers(&store, NODE)).unwrap();
        assert_eq!(members(&cached), members(&fresh));
        assert_eq!(cached.count(), fresh.count());
        assert_eq!(cached.octets, NodeSubscribers::new(cached.chunks.clone()).octets);
        assert_eq!(cache.octets(), cached.octets);
        assert_eq!(loaded.count(), 3000, "a result does not change");
        let mut found = Vec::new();
        cached.intersect(&members(&fresh), &mut found);
        assert_eq!(found, members(&fresh));
    }

    #[test]
    fn the_last_subscriber_is_removed_and_the_first_one_added() {
        let (store, cache) = (store(1), SubscriptionCache::new(1 << 20));
        block_on_ready(cache.subscribers(&store, NODE)).unwrap();
        cache.apply(NODE, id(1), false);
        assert_eq!(block_on_ready(cache.subscribers(&store, NODE)).unwrap().count(), 0, "from the cache");
        cache.apply(NODE, id(5), true);
        assert!(block_on_ready(cache.subscribers(&store, NODE)).unwrap().contains(id(5)));
        cache.forget(NODE);
        assert!(block_on_ready(cache.subscribers(&store, NODE)).unwrap().contains(id(1)), "from the store");
    }

    #[test]
    fn nodes_that_were_not_used_give_way() {
        let store = store(1);
        let cache = SubscriptionCache::new(10 * 400);
        for node in 0..100 {
            block_on_ready(cache.subscribers(&store, NodeNumber(node))).unwrap();
            block_on_ready(cache.subscribers(&store, NODE)).unwrap();
        }
        assert!(cache.octets() <= 4000, "{}", cache.octets());
        let state = cache.state.lock();
        assert!(state.nodes.contains_key(&NODE) && state.nodes.contains_key(&NodeNumber(99)));
        assert!(!state.nodes.contains_key(&NodeNumber(50)));
        assert_eq!(state.nodes.len(), state.uses.len());
        assert!(state.loads.is_empty());
    }

    #[test]
    fn changes_during_a_load_are_in_its_result() {
        let cache = SubscriptionCache::new(1 << 20);
        let begin = || {
            cache.state.lock().loads.entry(NODE).or_default().callers += 1;
            LoadGuard { cache: &cache, node: NODE }
        };
        let loaded = || NodeSubscribers::new(divide(&[1, 2, 3], crate::number_chunk::Growth::Anywhere));
        let (first, second) = (begin(), begin());
        cache.apply(NODE, id(2), false);
        cache.apply(NODE, id(9), true);
        assert_eq!(members(&first.finish(loaded())), [1, 3, 9]);
        cache.apply(NODE, id(10), true);
        assert_eq!(members(&second.finish(loaded())), [1, 3, 9, 10]);
        assert!(cache.state.lock().loads.is_empty());
        let outdated = begin();
        cache.forget(NODE);
        outdated.finish(loaded());
        assert!(cache.state.lock().nodes.is_empty(), "what was forgotten is not kept");
        drop(begin());
        assert!(cache.state.lock().loads.is_empty(), "a load that was given up");
    }
}
