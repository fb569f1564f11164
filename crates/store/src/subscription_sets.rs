//! Plain subscriptions of PubSub nodes (XEP-0060) as two kinds of sets of numbers: the subscribers of each node, and the nodes of
//! each subscriber.
//!
//! The subscriptions of a [node that is stored](crate::pubsub) have its number. Its changes are stored either together with others of
//! the node, or here, which costs less.
//!
//! A subscriber is the number of a bare address in the dictionary ([`crate::address_dictionary`]); a node has a number that
//! its owner assigns and never uses again. Both kinds of sets are stored in chunks ([`crate::number_chunk`]), so that a billion
//! subscriptions take a few gigabytes, and a page of either costs what it returns.
//!
//! Not implemented: subscriptions with options, of full addresses, or several of one address; these are rows elsewhere.
//!
//! # Pitfalls
//!
//! Nothing here says whether a node exists. Subscriptions of a number stay until they are removed.

use crate::number_chunk::NumberChunk;
use crate::{AddressId, StoreError, StoreErrorKind, StoreFuture};

/// Subscriptions of one call of [`SubscriptionSets::add_many`] or [`SubscriptionSets::change_many`], at most.
pub const MAX_PAIRS: usize = 10_000;

/// Number of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeNumber(pub u32);

/// A change of one subscription.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SubscriptionSetChange {
    /// The node.
    pub node: NodeNumber,
    /// The subscriber.
    pub subscriber: AddressId,
    /// Whether it is added or removed.
    pub is_added: bool,
}

/// Which of the two kinds of sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubscriptionSide {
    /// Sets of subscribers, by node.
    Subscribers,
    /// Sets of nodes, by subscriber.
    Nodes,
}

impl SubscriptionSide {
    /// The kind in which a subscription is the other way round.
    #[must_use = "the value itself is not changed"]
    pub const fn opposite(self) -> SubscriptionSide {
        match self {
            SubscriptionSide::Subscribers => SubscriptionSide::Nodes,
            SubscriptionSide::Nodes => SubscriptionSide::Subscribers,
        }
    }
}

/// A set of one side: the number of its node or subscriber, and its members, ascending and each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidedSet {
    /// Number of the node or the subscriber.
    pub number: u32,
    /// Numbers of subscribers or nodes.
    pub members: Vec<u32>,
}

/// Checks the members of sets: ascending, each once, and each a number of the dictionary where it is a subscriber.
pub fn check_sets(side: SubscriptionSide, sets: &[SidedSet]) -> Result<(), StoreError> {
    let is_ascending = |set: &SidedSet| set.members.is_sorted_by(|one, next| one < next);
    let is_address = |number: u32| AddressId::new(number).is_some();
    let are_addresses = match side {
        SubscriptionSide::Nodes => sets.iter().all(|set| is_address(set.number)),
        SubscriptionSide::Subscribers => {
            sets.iter().all(|set| set.members.first().is_none_or(|first| is_address(*first)))
        }
    };
    if are_addresses && sets.iter().all(is_ascending) {
        return Ok(());
    }
    let message = "the members of a set of subscriptions must ascend, and be numbers of addresses";
    Err(StoreError::new(StoreErrorKind::Internal, message))
}

/// Checks the count of pairs of one call.
pub fn check_pairs(pairs: usize) -> Result<(), StoreError> {
    if pairs <= MAX_PAIRS {
        return Ok(());
    }
    let message = format!("at most {MAX_PAIRS} subscriptions can be changed by one call");
    Err(StoreError::new(StoreErrorKind::TooLarge, message))
}

storage_need! {
    /// Plain subscriptions. A subscription is on both sides or on none, except where a method says otherwise.
    ///
    /// Any number of nodes of a cluster may call all methods at the same time.
    pub trait SubscriptionSets in subscription_sets {
        /// Adds a subscription; returns whether there was none. It is durable.
        fn subscribe(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool>;

        /// Removes a subscription; returns whether there was one. It is durable.
        fn unsubscribe(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool>;

        /// Adds all these subscriptions, at most [`MAX_PAIRS`], or none; returns how many there were not before.
        fn add_many(&self, pairs: Vec<(NodeNumber, AddressId)>) -> StoreFuture<'_, u64>;

        /// Adds or removes all these subscriptions in their order, at most [`MAX_PAIRS`], or none; returns how many changes had an effect.
        /// They are durable, and written together with those of other callers.
        fn change_many(&self, changes: Vec<SubscriptionSetChange>) -> StoreFuture<'_, u64>;

        /// Whether there is a subscription.
        fn contains(&self, node: NodeNumber, subscriber: AddressId) -> StoreFuture<'_, bool>;

        /// Number of subscribers of a node.
        fn count_subscribers(&self, node: NodeNumber) -> StoreFuture<'_, u64>;

        /// Number of nodes of a subscriber.
        fn count_nodes(&self, subscriber: AddressId) -> StoreFuture<'_, u64>;

        /// Subscribers of a node above a number, in ascending order, at most `limit`.
        fn subscribers(&self, node: NodeNumber, after: Option<AddressId>, limit: u32) -> StoreFuture<'_, Vec<AddressId>>;

        /// Nodes of a subscriber above a number, in ascending order, at most `limit`.
        fn nodes(&self, subscriber: AddressId, after: Option<NodeNumber>, limit: u32) -> StoreFuture<'_, Vec<NodeNumber>>;

        /// Subscribers of a node above a number, in ascending order, as chunks of at most a kilobyte, at most `limit`. Empty: there
        /// are no more. The last number of the last chunk continues.
        /// [`crate::number_chunk::intersect`] finds those in a list.
        fn chunks(&self, node: NodeNumber, after: Option<AddressId>, limit: u32) -> StoreFuture<'_, Vec<NumberChunk>>;

        /// Removes all subscriptions of a node; returns how many. They are removed in several steps: after an error, and when
        /// subscriptions are added at the same time, some remain until the next call.
        fn remove_node(&self, node: NodeNumber) -> StoreFuture<'_, u64>;

        /// The same for a subscriber.
        fn remove_subscriber(&self, subscriber: AddressId) -> StoreFuture<'_, u64>;

        /// Adds members to sets of one side only, which costs much less than both; [`crate::subscription_bulk`] then adds the
        /// same subscriptions to the other side. All of them, or none; without effect on members that are there.
        fn add_sided(&self, side: SubscriptionSide, sets: Vec<SidedSet>) -> StoreFuture<'_, ()>;
    }
}
