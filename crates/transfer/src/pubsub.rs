//! PubSub nodes (XEP-0060) of services and of accounts (XEP-0163) of a source.
//!
//! Not implemented: which nodes are in a collection; the collections themselves are imported.

use jid::Jid;

/// A part of a node. The node itself is before its other parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PubSubRecord {
    /// The node.
    Node(SourcePubSubNode),
    /// What one entity has at it.
    State(SourcePubSubState),
    /// An item.
    Item(SourcePubSubItem),
}

/// The name of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PubSubNodeName {
    /// The service, or the account.
    pub service: Jid,
    /// The name.
    pub node: String,
}

/// Values of the fields of a form, by names such as `pubsub#title`.
pub type FormFields = Vec<(String, Vec<String>)>;

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePubSubNode {
    /// Its name.
    pub name: PubSubNodeName,
    /// Its owners, of whom the first has created it; without one it is the account.
    pub owners: Vec<Jid>,
    /// Values of its configuration.
    pub config: FormFields,
}

/// What one entity has at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePubSubState {
    /// The node.
    pub name: PubSubNodeName,
    /// The entity.
    pub jid: Jid,
    /// Affiliation; empty for none.
    pub affiliation: String,
    /// Its subscriptions.
    pub subscriptions: Vec<SourceSubscription>,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSubscription {
    /// Its identifier; may be empty.
    pub subid: String,
    /// An owner must approve it.
    pub is_pending: bool,
    /// Values of its options.
    pub options: FormFields,
}

/// An item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePubSubItem {
    /// The node.
    pub name: PubSubNodeName,
    /// Its id.
    pub id: String,
    /// Rises with each publication of the node.
    pub seq: u64,
    /// Its publisher; without one it is an owner.
    pub publisher: Option<Jid>,
    /// When it was published, in milliseconds since 1970.
    pub published: Option<u64>,
    /// The payload as a standalone document; may be empty.
    pub payload: Vec<u8>,
}

impl PubSubRecord {
    /// The node that it belongs to.
    pub fn name(&self) -> &PubSubNodeName {
        match self {
            PubSubRecord::Node(node) => &node.name,
            PubSubRecord::State(state) => &state.name,
            PubSubRecord::Item(item) => &item.name,
        }
    }
}

/// The number of an item that was published at this time, in microseconds since 1970. Items of one moment differ.
pub fn item_seq(micros: u64, id: &str) -> u64 {
    let hash = id.bytes().fold(0_u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    // Up to the year 2041 it fits into 63 bits.
    (micros.min((1 << 51) - 1) << 12) | (hash & 0xfff)
}
