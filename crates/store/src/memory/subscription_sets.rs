//! Plain subscriptions of PubSub nodes, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::{MemoryState, MemoryStore, ready};
use crate::number_chunk::{Growth, NumberChunk, divide};
use crate::subscription_sets::{SidedSet, check_pairs, check_sets};
use crate::{
    AddressId, NodeNumber, StoreError, StoreFuture, SubscriptionSetChange, SubscriptionSets, SubscriptionSide,
};

/// Sets of both sides.
#[derive(Default)]
pub(super) struct SubscriptionEntries {
    subscribers: BTreeMap<u32, BTreeSet<u32>>,
    nodes: BTreeMap<u32, BTreeSet<u32>>,
}

impl SubscriptionEntries {
    fn side(&self, side: SubscriptionSide) -> &BTreeMap<u32, BTreeSet<u32>> {
        match side {
            SubscriptionSide::Subscribers => &self.subscribers,
            SubscriptionSide::Nodes => &self.nodes,
        }
    }

    fn side_mut(&mut self, side: SubscriptionSide) -> &mut BTreeMap<u32, BTreeSet<u32>> {
        match side {
            SubscriptionSide::Subscribers => &mut self.subscribers,
            SubscriptionSide::Nodes => &mut self.nodes,
        }
    }

    pub(super) fn count(&self, side: SubscriptionSide, number: u32) -> u64 {
        self.side(side).get(&number).map_or(0, |set| set.len() as u64)
    }

    /// Members of a set above a number.
    pub(super) fn after(
        &self,
        side: SubscriptionSide,
        number: u32,
        after: Option<u32>,
    ) -> impl Iterator<Item = u32> + '_ {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let set = self.side(side).get(&number).into_iter();
        set.flat_map(move |set| set.range((begin, Bound::Unbounded)).copied())
    }

    pub(super) fn add(&mut self, node: u32, subscriber: u32) -> bool {
        self.nodes.entry(subscriber).or_default().insert(node);
        self.subscribers.entry(node).or_default().insert(subscriber)
    }

    pub(super) fn remove(&mut self, node: u32, subscriber: u32) -> bool {
        self.remove_member(SubscriptionSide::Nodes, subscriber, node);
        self.remove_member(SubscriptionSide::Subscribers, node, subscriber)
    }

    pub(super) fn contains(&self, node: u32, subscriber: u32) -> bool {
        self.subscribers.get(&node).is_some_and(|set| set.contains(&subscriber))
    }

    fn remove_member(&mut self, side: SubscriptionSide, number: u32, member: u32) -> bool {
        let sets = self.side_mut(side);
        let Some(set) = sets.get_mut(&number) else { return false };
        let was_there = set.remove(&member);
        if set.is_empty() {
            sets.remove(&number);
        }
        was_there
    }

    pub(super) fn remove_set(&mut self, side: SubscriptionSide, number: u32) -> u64 {
        let members = self.side_mut(side).remove(&number).unwrap_or_default();
        for member in &members {
            self.remove_member(side.opposite(), *member, number);
        }
        members.len() as u64
    }
}

impl MemoryStore {
    fn with_subscriptions<'a, T: Send + 'a>(
        &self,
        work: impl FnOnce(&mut SubscriptionEntries) -> Result<T, StoreError>,
    ) -> StoreFuture<'a, T> {
        let mut state = self.state.lock();
        let MemoryState { subscriptions, .. } = &mut *state;
        ready(work(subscriptions))
    }
}

impl SubscriptionSets for MemoryStore {
    fn subscribe(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool> {
        self.with_subscriptions(|sets| Ok(sets.add(node.0, subscriber.get())))
    }

    fn unsubscribe(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool> {
        self.with_subscriptions(|sets| Ok(sets.remove(node.0, subscriber.get())))
    }

    fn add_many(&self, pairs: Vec<(NodeNumber, AddressId)>) -> StoreFuture<'_, u64> {
        self.with_subscriptions(|sets| {
            check_pairs(pairs.len())?;
            Ok(pairs
                .into_iter()
                .map(|(node, subscriber)| u64::from(sets.add(node.0, subscriber.get())))
                .sum())
        })
    }

    fn change_many(&self, changes: Vec<SubscriptionSetChange>) -> StoreFuture<'_, u64> {
        self.with_subscriptions(|sets| {
            check_pairs(changes.len())?;
            let change = |one: SubscriptionSetChange| match one.is_added {
                true => sets.add(one.node.0, one.subscriber.get()),
                false => sets.remove(one.node.0, one.subscriber.get()),
            };
            Ok(changes.into_iter().map(change).map(u64::from).sum())
        })
    }

    fn contains(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool> {
        self.with_subscriptions(|sets| Ok(sets.contains(node.0, subscriber.get())))
    }

    fn count_subscribers(&self, node: NodeNumber) -> StoreFuture<'_, u64> {
        self.with_subscriptions(|sets| Ok(sets.count(SubscriptionSide::Subscribers, node.0)))
    }

    fn count_nodes(&self, subscriber: AddressId) -> StoreFuture<'_, u64> {
        self.with_subscriptions(|sets| Ok(sets.count(SubscriptionSide::Nodes, subscriber.get())))
    }

    fn subscribers(
        &self,
        node: NodeNumber,
        after: Option<AddressId>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<AddressId>> {
        self.with_subscriptions(|sets| {
            let members = sets.after(SubscriptionSide::Subscribers, node.0, after.map(AddressId::get));
            Ok(members.filter_map(AddressId::new).take(limit as usize).collect())
        })
    }

    fn nodes(
        &self,
        subscriber: AddressId,
        after: Option<NodeNumber>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<NodeNumber>> {
        self.with_subscriptions(|sets| {
            let members = sets.after(SubscriptionSide::Nodes, subscriber.get(), after.map(|after| after.0));
            Ok(members.map(NodeNumber).take(limit as usize).collect())
        })
    }

    fn chunks(
        &self,
        node: NodeNumber,
        after: Option<AddressId>,
        limit: u32,
    ) -> StoreFuture<'_, Vec<NumberChunk>> {
        self.with_subscriptions(|sets| {
            let members = sets.after(SubscriptionSide::Subscribers, node.0, after.map(AddressId::get));
            let mut chunks = divide(&members.collect::<Vec<u32>>(), Growth::AtEnd);
            chunks.truncate(limit as usize);
            Ok(chunks)
        })
    }

    fn remove_node(&self, node: NodeNumber) -> StoreFuture<'_, u64> {
        self.with_subscriptions(|sets| Ok(sets.remove_set(SubscriptionSide::Subscribers, node.0)))
    }

    fn remove_subscriber(&self, subscriber: AddressId) -> StoreFuture<'_, u64> {
        self.with_subscriptions(|sets| Ok(sets.remove_set(SubscriptionSide::Nodes, subscriber.get())))
    }

    fn add_sided(&self, side: SubscriptionSide, sets: Vec<SidedSet>) -> StoreFuture<'_, ()> {
        self.with_subscriptions(|entries| {
            check_sets(side, &sets)?;
            for set in sets.into_iter().filter(|set| !set.members.is_empty()) {
                entries.side_mut(side).entry(set.number).or_default().extend(set.members);
            }
            Ok(())
        })
    }
}
