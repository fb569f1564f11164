//! PubSub nodes (XEP-0060): configuration, affiliations, items and subscriptions of each node.
//!
//! A node is named by an address: that of the service (of an account, for personal eventing) with the node's name as its
//! resource (XEP-0060 1.30.0, section 4.6.1). A node is read when it is used; nothing is read at the start.
//!
//! Plain subscriptions (a bare address without options) are a set, and never read as a whole; *special* ones (with options,
//! of a full address, several of one address, not yet approved) are few and are read with their node.
//!
//! # Pitfalls
//!
//! Nothing here says which member of a cluster uses a node. Two that write the same node overwrite each other.

use jid::{Jid, JidRef};

use crate::{AddressId, StoreFuture};

/// Count of nodes at which counting ends.
pub const MAX_NODE_COUNT: u64 = 10_000;

/// A node without affiliations, subscriptions and items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PubSubNodeRecord {
    /// Bare address of the user who has created it.
    pub creator: Jid,
    /// When it was created, in milliseconds since 1970.
    pub created: u64,
    /// Name for people; may be empty.
    pub title: String,
    /// Whether it is listed.
    pub is_listed: bool,
    /// Configuration.
    pub config: Vec<u8>,
}

/// An item without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PubSubItemHead {
    /// Rises with each publication of the node.
    pub seq: u64,
    /// The number of the first publication of an item with this id, which this one has replaced: its creation.
    pub first_seq: u64,
    /// Unique in the node. At most 1023 bytes.
    pub id: Box<str>,
    /// Address of the publisher.
    pub publisher: Jid,
    /// When it was published, in milliseconds since 1970.
    pub published: u64,
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PubSubItem {
    /// Everything but the payload.
    pub head: PubSubItemHead,
    /// The payload element; may be empty.
    pub payload: Vec<u8>,
}

/// A subscription that is more than a bare address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecialSubscription {
    /// The subscribed address.
    pub jid: Jid,
    /// Distinguishes several subscriptions of one address. At most 64 bytes.
    pub subid: Box<str>,
    /// State and options.
    pub state: Vec<u8>,
}

/// A node without plain subscriptions and payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPubSubNode {
    /// Its number, never given twice.
    pub number: u32,
    /// The node.
    pub record: PubSubNodeRecord,
    /// Affiliations by bare address, as numbers of the owner of the node's state.
    pub affiliations: Vec<(Jid, u8)>,
    /// Special subscriptions.
    pub special: Vec<SpecialSubscription>,
    /// Its items, oldest first.
    pub items: Vec<PubSubItemHead>,
}

/// A change of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PubSubChange {
    /// Inserts or replaces the record. Everything else needs one: without it, it has no effect.
    Put(PubSubNodeRecord),
    /// Removes the node with everything that it has.
    Remove,
    /// Sets the affiliation of a bare address, or removes it.
    Affiliate(Jid, Option<u8>),
    /// Adds a plain subscription of a bare address, if there is none.
    Subscribe(Jid),
    /// Removes a plain subscription.
    Unsubscribe(Jid),
    /// Inserts or replaces a special subscription.
    PutSpecial(SpecialSubscription),
    /// Removes the special subscription with this address and id.
    RemoveSpecial(Jid, Box<str>),
    /// Adds an item; one with the same id is removed.
    PutItem(PubSubItem),
    /// Removes the item with this id.
    RemoveItem(Box<str>),
    /// Removes all items.
    RemoveItems,
}

/// A node of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPubSubNode {
    /// Its address: service and name.
    pub jid: Jid,
    /// Name for people; may be empty.
    pub title: String,
}

/// A node of a list, with its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PubSubNodeOfService {
    /// Its address: service and name.
    pub jid: Jid,
    /// The node.
    pub record: PubSubNodeRecord,
}

/// What one entity has at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntitySubscription {
    /// The node.
    pub node: Jid,
    /// `None`: a plain one.
    pub special: Option<SpecialSubscription>,
}

/// Which of these sizes fit into this number of bytes together, and at least one: the first ones, or with `from_end` the last ones.
pub fn items_that_fit(sizes: &[u64], bytes: u64, from_end: bool) -> std::ops::Range<usize> {
    let mut total = 0_u64;
    let mut fits = |size: &&u64| {
        total = total.saturating_add(**size);
        total <= bytes
    };
    let least = sizes.len().min(1);
    if from_end {
        let count = sizes.iter().rev().take_while(&mut fits).count().max(least);
        sizes.len() - count..sizes.len()
    } else {
        0..sizes.iter().take_while(&mut fits).count().max(least)
    }
}

storage_need! {
    /// PubSub nodes by their addresses: the service, and the name as resource.
    pub trait PubSub in pubsub {
        /// The node, if there is one.
        fn load(&self, node: JidRef<'_>) -> StoreFuture<'_, Option<StoredPubSubNode>>;

        /// The record of a node, if there is one, and the affiliation of an entity with it.
        fn record(&self, node: JidRef<'_>, entity: JidRef<'_>) -> StoreFuture<'_, Option<(PubSubNodeRecord, Option<u8>)>>;

        /// The newest items of a node, oldest first.
        fn newest_items(&self, node: JidRef<'_>, limit: u32) -> StoreFuture<'_, Vec<PubSubItemHead>>;

        /// Applies changes to one node: all of them, in their order, or none.
        fn apply(&self, node: JidRef<'_>, changes: Vec<PubSubChange>) -> StoreFuture<'_, ()>;

        /// The items with these numbers that exist, oldest first.
        fn items(&self, node: JidRef<'_>, seqs: Vec<u64>) -> StoreFuture<'_, Vec<PubSubItem>>;

        /// The same, as many as have at most this number of bytes of payload together, and at least one: those that come first,
        /// or with `from_end` those that come last.
        fn items_within(&self, node: JidRef<'_>, seqs: Vec<u64>, bytes: u64, from_end: bool) -> StoreFuture<'_, Vec<PubSubItem>>;

        /// The number of a node, if there is one.
        fn number(&self, node: JidRef<'_>) -> StoreFuture<'_, Option<u32>>;

        /// The addresses of the nodes with these numbers, in no particular order; unknown numbers are omitted.
        fn resolve(&self, numbers: Vec<u32>) -> StoreFuture<'_, Vec<(u32, Jid)>>;

        /// Listed nodes of a service, in an order that does not change, after one of them. Empty if there is no such node.
        fn list(&self, service: JidRef<'_>, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedPubSubNode>>;

        /// The same, other nodes included.
        fn list_all(&self, service: JidRef<'_>, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedPubSubNode>>;

        /// The same, with their records.
        fn records(&self, service: JidRef<'_>, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<PubSubNodeOfService>>;

        /// All nodes of several services, each with the number of its service's address, in no particular order. For accounts,
        /// which have few nodes.
        fn of_services(&self, services: Vec<AddressId>) -> StoreFuture<'_, Vec<(AddressId, Jid)>>;

        /// Number of listed nodes of a service, at most [`MAX_NODE_COUNT`].
        fn count(&self, service: JidRef<'_>) -> StoreFuture<'_, u64>;

        /// Number of nodes that a user has created, at most `most`.
        fn count_created(&self, creator: JidRef<'_>, most: u32) -> StoreFuture<'_, u64>;

        /// Nodes of a service at which an entity has an affiliation, in an order that does not change, after one of them.
        /// Empty if there is no such node.
        fn affiliations_of(&self, entity: JidRef<'_>, service: JidRef<'_>, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<(Jid, u8)>>;

        /// Nodes of all services at which an entity has an affiliation, or it or a resource of it has a subscription, by their
        /// numbers above `after`, in ascending order. Empty: there are no more.
        fn nodes_of_entity(&self, entity: JidRef<'_>, after: u32, limit: u32) -> StoreFuture<'_, Vec<(u32, Jid)>>;

        /// Whether a bare address has a plain subscription.
        fn is_subscribed(&self, node: JidRef<'_>, subscriber: JidRef<'_>) -> StoreFuture<'_, bool>;

        /// Bare addresses with plain subscriptions, in an order that does not change, after one of them. Empty if it has none.
        fn subscribers(&self, node: JidRef<'_>, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<Jid>>;

        /// Number of plain subscriptions of a node.
        fn count_subscribers(&self, node: JidRef<'_>) -> StoreFuture<'_, u64>;

        /// Nodes of a service to which an entity, or a resource of it, is subscribed, in an order that does not change, after
        /// one of them; at most `limit` nodes, each with all its subscriptions. Empty if there is no such node.
        fn subscriptions_of(&self, entity: JidRef<'_>, service: JidRef<'_>, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<EntitySubscription>>;

        /// Number of nodes to which an entity is subscribed, plain and special subscriptions counted separately; at most `most`
        /// of each.
        fn count_subscriptions(&self, entity: JidRef<'_>, most: u32) -> StoreFuture<'_, u64>;
    }
}
