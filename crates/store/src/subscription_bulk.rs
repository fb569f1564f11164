//! Bulk creation of plain subscriptions: a number of subscribers for each of many nodes, as `throng pubsub bulk` and the benches
//! make them.
//!
//! Which subscribers a node has follows from the numbers alone: the range of subscribers is divided into as many parts as the node
//! has subscribers, and a mixed number chooses one of each part. So the subscriptions are made again for each pass, and nothing
//! is kept: the first pass writes the sets of the nodes, in their order, and each of the others the sets of a range of
//! subscribers, as large as the memory allows.
//!
//! # Pitfalls
//!
//! Subscriptions are on one side only until all passes are done. After an interruption the same bulk is run again.

use crate::subscription_sets::SidedSet;
use crate::{StoreError, StoreErrorKind, Stores, SubscriptionSide};

/// Subscriptions to create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkSubscriptions {
    /// Number of the first node.
    pub first_node: u32,
    /// Count of the nodes, whose numbers follow each other.
    pub nodes: u32,
    /// Number of the first subscriber's address, at least 1.
    pub first_subscriber: u32,
    /// Count of the subscribers, whose numbers follow each other.
    pub subscribers: u32,
    /// Subscribers of each node.
    pub each: u32,
}

/// How far a bulk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BulkProgress {
    /// The side that is written.
    pub side: SubscriptionSide,
    /// Sets of that side that are written.
    pub done: u32,
    /// All sets of that side.
    pub total: u32,
}

/// Members that are written at a time.
const MEMBERS_AT_ONCE: usize = 1 << 20;

/// Sets that are written at a time.
const SETS_AT_ONCE: usize = 4096;

/// A number that looks random and follows from another one.
const fn mixed(number: u64) -> u64 {
    let number = (number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let number = (number ^ number >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    number ^ number >> 32
}

impl BulkSubscriptions {
    /// Checks that the numbers are possible.
    ///
    /// # Errors
    /// `Setup` with one sentence.
    pub fn check(&self) -> Result<(), StoreError> {
        let is_possible = self.each <= self.subscribers
            && self.first_subscriber > 0
            && self.first_subscriber.checked_add(self.subscribers).is_some()
            && self.first_node.checked_add(self.nodes).is_some();
        if is_possible {
            return Ok(());
        }
        let message = "a node cannot have more subscribers than there are, and numbers have 32 bits";
        Err(StoreError::new(StoreErrorKind::Setup, message))
    }

    /// Count of all subscriptions.
    pub fn total(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.each)
    }

    /// First subscriber of a part, counted from 0.
    fn part(&self, part: u32) -> u32 {
        let first = u64::from(part) * u64::from(self.subscribers) / u64::from(self.each.max(1));
        u32::try_from(first).unwrap_or(u32::MAX)
    }

    /// The part that has a subscriber, counted from 0.
    fn part_of(&self, subscriber: u32) -> u32 {
        let part = (u64::from(subscriber) * u64::from(self.each) + u64::from(self.each) - 1)
            / u64::from(self.subscribers.max(1));
        u32::try_from(part).unwrap_or(u32::MAX)
    }

    /// The subscriber of a node in a part, counted from 0.
    #[inline]
    fn chosen(&self, node: u32, part: u32, (begin, end): (u32, u32)) -> u32 {
        let random = mixed(u64::from(node) << 32 | u64::from(part)) >> 32;
        begin + u32::try_from((random * u64::from(end - begin)) >> 32).unwrap_or(0)
    }

    /// Subscribers of a node, in ascending order.
    pub fn subscribers_of(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.each).map(move |part| {
            let range = (self.part(part), self.part(part + 1));
            self.first_subscriber + self.chosen(node, part, range)
        })
    }

    /// Whether a subscriber is one of a node.
    pub fn has(&self, node: u32, subscriber: u32) -> bool {
        self.subscribers_of(node).any(|one| one == subscriber)
    }

    /// Nodes of the subscribers of a range, counted from 0: one set for each that has any.
    fn nodes_of(&self, (begin, end): (u32, u32)) -> Vec<SidedSet> {
        let mut sets: Vec<SidedSet> = (begin..end)
            .map(|subscriber| SidedSet { number: self.first_subscriber + subscriber, members: Vec::new() })
            .collect();
        // Part by part: all choices of a part are near each other.
        for part in self.part_of(begin)..self.each.min(self.part_of(end - 1).saturating_add(1)) {
            let range = (self.part(part), self.part(part + 1));
            for node in self.first_node..self.first_node + self.nodes {
                let subscriber = self.chosen(node, part, range);
                if let Some(set) = subscriber.checked_sub(begin).and_then(|at| sets.get_mut(at as usize)) {
                    set.members.push(node);
                }
            }
        }
        sets
    }
}

/// Creates subscriptions; returns their count. Besides what is being written, at most about `memory` octets are used. `report` is
/// called after each write.
///
/// # Errors
/// `Setup` if the numbers are impossible, and those of the store.
pub async fn add_bulk(
    stores: &Stores,
    bulk: &BulkSubscriptions,
    memory: usize,
    report: &mut (dyn FnMut(BulkProgress) + Send),
) -> Result<u64, StoreError> {
    bulk.check()?;
    if bulk.total() == 0 {
        return Ok(0);
    }
    let side = SubscriptionSide::Subscribers;
    let (mut sets, mut members) = (Vec::new(), 0);
    for done in 1..=bulk.nodes {
        let number = bulk.first_node + (done - 1);
        let set = SidedSet { number, members: bulk.subscribers_of(number).collect() };
        members += set.members.len();
        sets.push(set);
        if members >= MEMBERS_AT_ONCE || sets.len() >= SETS_AT_ONCE || done == bulk.nodes {
            stores.subscription_sets.add_sided(side, std::mem::take(&mut sets)).await?;
            members = 0;
            report(BulkProgress { side, done, total: bulk.nodes });
        }
    }
    let side = SubscriptionSide::Nodes;
    let at_once = range_length(bulk, memory);
    let mut begin = 0;
    while begin < bulk.subscribers {
        let end = bulk.subscribers.min(begin.saturating_add(at_once));
        let mut sets = bulk.nodes_of((begin, end)).into_iter().peekable();
        while sets.peek().is_some() {
            let mut some: Vec<SidedSet> = Vec::new();
            let mut members = 0;
            while let Some(set) = sets.next_if(|_| members < MEMBERS_AT_ONCE && some.len() < SETS_AT_ONCE) {
                members += set.members.len();
                some.push(set);
            }
            let done = some.last().map_or(end, |set| set.number - bulk.first_subscriber + 1);
            stores.subscription_sets.add_sided(side, some).await?;
            report(BulkProgress { side, done, total: bulk.subscribers });
        }
        begin = end;
    }
    Ok(bulk.total())
}

/// Count of subscribers whose sets fit into the memory.
fn range_length(bulk: &BulkSubscriptions, memory: usize) -> u32 {
    // A vector of numbers may be twice as long as its contents.
    let of_one = bulk.total() / u64::from(bulk.subscribers.max(1)) * 8 + 64;
    u32::try_from(memory as u64 / of_one).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_the_same_subscriptions() {
        for (subscribers, each) in [(1000, 10), (1000, 333), (7, 7), (10, 9), (100, 1), (3, 2)] {
            let bulk =
                BulkSubscriptions { first_node: 5, nodes: 20, first_subscriber: 100, subscribers, each };
            let mut pairs = Vec::new();
            for node in 5..25 {
                let of_node: Vec<u32> = bulk.subscribers_of(node).collect();
                assert_eq!(of_node.len(), each as usize);
                assert!(of_node.is_sorted_by(|one, next| one < next), "each once");
                assert!(of_node.iter().all(|one| (100..100 + subscribers).contains(one)));
                pairs.extend(of_node.into_iter().map(|one| (one, node)));
            }
            pairs.sort_unstable();
            let mut other = Vec::new();
            for begin in (0..subscribers).step_by(3) {
                for set in bulk.nodes_of((begin, subscribers.min(begin + 3))) {
                    other.extend(set.members.into_iter().map(|node| (set.number, node)));
                }
            }
            other.sort_unstable();
            assert_eq!(other, pairs, "{subscribers} {each}");
        }
    }

    #[test]
    fn impossible_numbers_are_refused() {
        let bulk =
            BulkSubscriptions { first_node: 0, nodes: 1, first_subscriber: 1, subscribers: 5, each: 5 };
        assert!(bulk.check().is_ok());
        for bulk in [
            BulkSubscriptions { each: 6, ..bulk },
            BulkSubscriptions { first_subscriber: 0, ..bulk },
            BulkSubscriptions { first_subscriber: u32::MAX, ..bulk },
            BulkSubscriptions { first_node: u32::MAX, nodes: 2, ..bulk },
        ] {
            assert_eq!(bulk.check().unwrap_err().kind, StoreErrorKind::Setup);
        }
    }
}
