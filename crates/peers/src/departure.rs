//! Departure of this node: what is due for other nodes (`due_presence`) is sent before it leaves the cluster, because nobody else has it.
//!
//! A node that does not take it in time is notified that it has missed something, and exchanges everything again when this one has left:
//! so the presence of sessions that have ended here is withdrawn there.

use std::sync::Arc;

use cluster::{Envelope, EnvelopeClass, NodeId, RefusalReason};
use throng_core::Node;

use crate::ClusteredNode;
use crate::envelope_kinds::RESYNC;

/// Sends what is due for other nodes, as far as there is room, and returns how much is left. A node that is about to leave the cluster calls
/// it until that is 0.
pub fn send_due_items(node: &Arc<Node>) -> usize {
    let Some(node) = ClusteredNode::of(node) else { return 0 };
    node.send_all_due();
    node.state.due_errors.count() + node.state.due_presence.count()
}

/// Discards what is left of that. Returns the nodes that have not taken it, which are notified.
pub fn discard_due_items(node: &Arc<Node>) -> Vec<NodeId> {
    let Some(node) = ClusteredNode::of(node) else { return Vec::new() };
    node.state.due_errors.nodes().into_iter().for_each(|to| node.state.due_errors.forget_node(to));
    let nodes = node.state.due_presence.nodes();
    for to in &nodes {
        node.state.due_presence.forget_node(*to);
        if node.send_empty(*to, RESYNC) == Err(RefusalReason::QueueFull) {
            // Such envelopes have room of their own.
            let (class, own) = (EnvelopeClass::BestEffort, node.cluster.node());
            let _ = node.cluster.deliver(*to, Envelope::new(RESYNC, class, own, Vec::new(), Vec::new()));
        }
    }
    nodes
}
