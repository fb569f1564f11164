//! Inbox of a test node: passes everything to the engine's inbox and does not keep the node in memory.
//!
//! The network of a test owns the inboxes and the nodes own the network, so an inbox that owned its node would never be
//! freed; the simulation starts thousands of nodes.

use std::sync::{Arc, Weak};

use cluster::{Envelope, Inbox, MembershipChange, NodeId};
use throng_core::Node;
use throng_core::router::ClusterInbox;

/// Inbox of a test node.
pub(crate) struct NodeInbox(Weak<Node>);

impl NodeInbox {
    /// Connects a node to its cluster.
    pub(crate) fn attach(node: &Arc<Node>) {
        node.cluster.attach(Arc::new(NodeInbox(Arc::downgrade(node))));
    }

    fn engine(&self) -> Option<ClusterInbox> {
        self.0.upgrade().map(ClusterInbox)
    }
}

impl Inbox for NodeInbox {
    fn on_envelope(&self, from: NodeId, envelope: Envelope) {
        if let Some(engine) = self.engine() {
            engine.on_envelope(from, envelope);
        }
    }

    fn on_undelivered(&self, to: NodeId, envelope: Envelope) {
        if let Some(engine) = self.engine() {
            engine.on_undelivered(to, envelope);
        }
    }

    fn on_membership_change(&self, change: MembershipChange) {
        if let Some(engine) = self.engine() {
            engine.on_membership_change(change);
        }
    }
}
