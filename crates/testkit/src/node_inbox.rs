//! Inbox of a test node: passes everything to the engine's inbox, counts envelopes, and does not keep the node in memory.
//!
//! The network of a test owns the inboxes and the nodes own the network, so an inbox that owned its node would never be
//! freed; the simulation starts thousands of nodes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use cluster::{Claim, Envelope, Inbox, MembershipChange, NodeId, PeerViolation, Ticket};
use peers::ClusterInbox;
use throng_core::Node;

/// Inbox of a test node.
pub(crate) struct NodeInbox {
    node: Weak<Node>,
    envelopes: Arc<AtomicU64>,
}

impl NodeInbox {
    /// Connects a node to its cluster; `envelopes` counts what arrives.
    pub(crate) fn attach(node: &Arc<Node>, envelopes: Arc<AtomicU64>) {
        node.cluster.attach(Arc::new(NodeInbox { node: Arc::downgrade(node), envelopes }));
    }

    fn engine(&self) -> Option<ClusterInbox> {
        self.node.upgrade().map(ClusterInbox)
    }
}

impl Inbox for NodeInbox {
    fn on_envelope(&self, from: NodeId, envelope: Envelope) {
        self.envelopes.fetch_add(1, Ordering::Relaxed);
        if let Some(engine) = self.engine() {
            engine.on_envelope(from, envelope);
        }
    }

    fn on_receipts(&self, from: NodeId, up_to: Ticket, later: &[Ticket]) {
        if let Some(engine) = self.engine() {
            engine.on_receipts(from, up_to, later);
        }
    }

    fn on_refused(&self, from: NodeId, envelope: Envelope) {
        if let Some(engine) = self.engine() {
            engine.on_refused(from, envelope);
        }
    }

    fn on_undelivered(&self, to: NodeId, envelope: Envelope) {
        if let Some(engine) = self.engine() {
            engine.on_undelivered(to, envelope);
        }
    }

    fn on_claim(&self, from: NodeId, claim: Claim) {
        if let Some(engine) = self.engine() {
            engine.on_claim(from, claim);
        }
    }

    fn on_claims_of_joined(&self, from: NodeId, claims: Vec<Claim>) {
        if let Some(engine) = self.engine() {
            engine.on_claims_of_joined(from, claims);
        }
    }

    fn on_membership_change(&self, change: MembershipChange) {
        if let Some(engine) = self.engine() {
            engine.on_membership_change(change);
        }
    }

    fn on_violation(&self, from: NodeId, violation: PeerViolation) {
        if let Some(engine) = self.engine() {
            engine.on_violation(from, violation);
        }
    }
}
