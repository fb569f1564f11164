//! Departure of this node: what is due for other nodes (`due_presence`) is sent before it leaves the cluster, because nobody else has it.
//!
//! A node that does not take it in time is notified that it has missed something. It withdraws the presence of all contacts and requests it again,
//! so that it does not show sessions that have ended here. Errors for senders there are lost.

use std::sync::Arc;

use cluster::{Envelope, EnvelopeClass, NodeId, RefusalReason};
use throng_core::Node;

use crate::ClusteredNode;
use crate::envelope_kinds::RESYNC;

/// What other nodes did not take in time.
#[derive(Debug, Default)]
pub struct DiscardedItems {
    /// The nodes that withdraw the presence of all contacts and request it again.
    pub nodes: Vec<NodeId>,
    /// Number of errors for senders there, who take their messages for delivered.
    pub errors: usize,
}

/// Sends what is due for other nodes, as far as there is room, and returns how much is left. A node that is about to leave the cluster calls
/// it until that is 0.
pub fn send_due_items(node: &Arc<Node>) -> usize {
    let Some(node) = ClusteredNode::of(node) else { return 0 };
    node.send_all_due();
    node.state.due_errors.count() + node.state.due_presence.count()
}

/// Discards what is left of that, and notifies the nodes that have not taken it.
pub fn discard_due_items(node: &Arc<Node>) -> DiscardedItems {
    let Some(node) = ClusteredNode::of(node) else { return DiscardedItems::default() };
    let due_errors = &node.state.due_errors;
    let errors = due_errors.nodes().into_iter().map(|to| due_errors.take_all(to).len()).sum();
    let nodes = node.state.due_presence.nodes();
    for to in &nodes {
        node.state.due_presence.forget_node(*to);
        if node.send_empty(*to, RESYNC) == Err(RefusalReason::QueueFull) {
            // Such envelopes have room of their own.
            let (class, own) = (EnvelopeClass::BestEffort, node.cluster.node());
            let _ = node.cluster.deliver(*to, Envelope::new(RESYNC, class, own, Vec::new(), Vec::new()));
        }
    }
    DiscardedItems { nodes, errors }
}
