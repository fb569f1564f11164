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

/// The address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PubSubNodeAddress {
    /// The service, or the account.
    pub service: Jid,
    /// Its name there.
    pub name: String,
}

/// Values of the fields of a form, by names such as `pubsub#title`.
pub type FormFields = Vec<(String, Vec<String>)>;

/// A PubSub node of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePubSubNode {
    /// Its address.
    pub address: PubSubNodeAddress,
    /// Its owners, of whom the first has created it; without one it is the account.
    pub owners: Vec<Jid>,
    /// Values of its configuration.
    pub config: FormFields,
}

/// What one entity has at a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePubSubState {
    /// The node.
    pub node: PubSubNodeAddress,
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
    pub node: PubSubNodeAddress,
    /// Its id.
    pub id: String,
    /// Rises with each publication of the node. The import chooses the next free number if another item has it.
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
    pub fn node(&self) -> &PubSubNodeAddress {
        match self {
            PubSubRecord::Node(node) => &node.address,
            PubSubRecord::State(state) => &state.node,
            PubSubRecord::Item(item) => &item.node,
        }
    }
}

/// Bits of a number below the time: items of one moment differ.
const HASH_BITS: u32 = 11;
/// The latest time, in microseconds since 1970: in the year 2112. Later publications need numbers as well.
const MAX_MICROS: u64 = (1 << 52) - (1 << 20);
/// Numbers of items without a time, which are below those of the first week of 1970.
const UNTIMED_BITS: u32 = 50;

/// The number of an item that was published at this time, in microseconds since 1970; without a time it is before the others. Two
/// items can have the same number.
pub fn item_seq(micros: Option<u64>, id: &str) -> u64 {
    // FNV-1a.
    let hash = id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    match micros {
        Some(micros) => (micros.min(MAX_MICROS) << HASH_BITS) | (hash & ((1 << HASH_BITS) - 1)),
        None => hash & ((1 << UNTIMED_BITS) - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_time_and_fit_into_63_bits() {
        let now = 1_700_000_000_000_000;
        assert!(item_seq(Some(now), "z") < item_seq(Some(now + 1), "a"));
        assert!(item_seq(None, "z") < item_seq(Some(now), "a"));
        assert!(item_seq(Some(u64::MAX), "z") < (1 << 63) - (1 << 30));
        let untimed: std::collections::HashSet<u64> =
            (0..10_000).map(|number| item_seq(None, &number.to_string())).collect();
        assert_eq!(untimed.len(), 10_000);
    }
}
