//! The plain subscribers of a PubSub node at one time, in memory as the chunks of the store ([`crate::number_chunk`]): about one and
//! a half octets for each of a million scattered ones.
//!
//! # Pitfalls
//!
//! It does not change. Its user keeps later changes beside it, and reads it again when they are many.

use crate::number_chunk::{NumberChunk, intersect};
use crate::{AddressId, NodeNumber, StoreError, SubscriptionSets};

/// Chunks of one read.
const CHUNKS_AT_ONCE: u32 = 128;

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
    /// Those of ascending chunks.
    pub fn new(chunks: Vec<NumberChunk>) -> NodeSubscribers {
        let count = chunks.iter().map(|chunk| u64::from(chunk.count())).sum();
        let octets = chunks.iter().map(|chunk| chunk.as_bytes().len() + CHUNK_OCTETS).sum();
        NodeSubscribers { chunks, count, octets }
    }

    /// Reads those of a node.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn read(store: &dyn SubscriptionSets, node: NodeNumber) -> Result<NodeSubscribers, StoreError> {
        let mut chunks: Vec<NumberChunk> = Vec::new();
        loop {
            let after = chunks.last().and_then(|chunk| AddressId::new(chunk.last()));
            let mut some = store.chunks(node, after, CHUNKS_AT_ONCE).await?;
            if some.is_empty() {
                return Ok(NodeSubscribers::new(chunks));
            }
            chunks.append(&mut some);
        }
    }

    /// Count of the subscribers.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Octets in memory, about.
    pub fn octets(&self) -> usize {
        self.octets
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::block_on_ready;
    use crate::memory::MemoryStore;
    use base::ManualClock;
    use std::sync::Arc;

    #[test]
    fn all_subscribers_are_read_and_found() {
        let store = MemoryStore::new(Arc::new(ManualClock::default()));
        let id = |number| AddressId::new(number).unwrap();
        let members: Vec<u32> = (0..300_000).map(|number| 1 + number * 37).collect();
        for number in &members {
            block_on_ready(store.subscribe(NodeNumber(1), id(*number))).unwrap();
        }
        let found = block_on_ready(NodeSubscribers::read(&store, NodeNumber(1))).unwrap();
        assert_eq!(found.count(), 300_000);
        assert!(found.chunks().len() > CHUNKS_AT_ONCE as usize, "several reads");
        assert!(found.octets() < 600_000, "{}", found.octets());
        assert!(found.contains(id(1)) && found.contains(id(38)) && !found.contains(id(39)));
        let (wanted, mut both) = ([1, 2, 38, 39, u32::MAX], Vec::new());
        found.intersect(&wanted, &mut both);
        assert_eq!(both, [1, 38]);
        let none = block_on_ready(NodeSubscribers::read(&store, NodeNumber(2))).unwrap();
        assert_eq!((none.count(), none.contains(id(1))), (0, false));
    }
}
