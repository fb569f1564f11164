//! Records of slices and of the leases of nodes in the store.

use std::sync::Arc;

use cluster::NodeId;
use store::WriteFence;
use store::lease::LeaseSlot;
use throng_core::Node;

use super::{SliceLease, TERMS};

/// The owner of a slice, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SliceRecord {
    /// Rises with each change.
    pub(super) fence: u64,
    /// Fencing number of the node's lease.
    pub(super) incarnation: u64,
    pub(super) holder: Option<NodeId>,
}

impl SliceRecord {
    pub(super) fn encode(&self) -> Vec<u8> {
        let holder = self.holder.as_ref().map_or("", |node| node.as_str());
        [&self.fence.to_be_bytes()[..], &self.incarnation.to_be_bytes(), holder.as_bytes()].concat()
    }

    pub(super) fn decode(octets: &[u8]) -> Option<SliceRecord> {
        let (fence, rest) = octets.split_first_chunk()?;
        let (incarnation, holder) = rest.split_first_chunk()?;
        let holder = match holder {
            [] => None,
            name => Some(NodeId::new(std::str::from_utf8(name).ok()?)?),
        };
        let (fence, incarnation) = (u64::from_be_bytes(*fence), u64::from_be_bytes(*incarnation));
        Some(SliceRecord { fence, incarnation, holder })
    }
}

/// Key of the record of a slice.
pub(super) fn slice_key(slice: u8) -> String {
    format!("item-slice {slice:03}")
}

/// The right that a record gives.
pub(super) fn slice_lease(slice: u8, record: &SliceRecord) -> SliceLease {
    let fence = WriteFence { key: slice_key(slice).into(), value: record.encode().into() };
    SliceLease { number: record.fence, fence }
}

/// The lease of a node, to be taken by this node.
pub(super) fn node_lease(node: &Arc<Node>, of: NodeId) -> LeaseSlot {
    LeaseSlot {
        store: node.stores.server_kv.clone(),
        clock: node.clock.clone(),
        key: format!("item-owner {of}"),
        node: node.cluster.node().as_str().into(),
        terms: TERMS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_anything_else_is_none() {
        for holder in [None, NodeId::new("node-1")] {
            let record = SliceRecord { fence: 7, incarnation: u64::MAX, holder };
            assert_eq!(SliceRecord::decode(&record.encode()), Some(record));
        }
        for wrong in [&b""[..], &[0; 15], &[0xff; 17]] {
            assert_eq!(SliceRecord::decode(wrong), None, "{wrong:?}");
        }
    }
}
