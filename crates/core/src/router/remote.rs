//! Accounts whose sessions are on other nodes: one envelope for each node that the cluster locates.

use std::sync::Arc;

use cluster::{AddressLocation, Envelope, Inbox, Member, MembershipChange, NodeId};
use jid::JidRef;

use super::RoutingWork;
use crate::node::Node;
use crate::shared_stanza::{QueueClass, SharedStanza};

/// The kind of envelope that carries a stanza.
const KIND_STANZA: u8 = 1;

impl Node {
    /// Sends a stanza to the nodes that have sessions of the recipient. True if any accepted it.
    pub(crate) fn forward_to_cluster(&self, stanza: &SharedStanza, to: JidRef<'_>) -> bool {
        let own = self.cluster.node();
        let class = match stanza.class() {
            QueueClass::Control => cluster::EnvelopeClass::Control,
            QueueClass::Message => cluster::EnvelopeClass::Message,
            QueueClass::Presence => cluster::EnvelopeClass::Presence,
        };
        let place = self.cluster.locate(self.routing_table.hash(to));
        let mut taken = false;
        for node in other_nodes(&place, own) {
            let envelope = Envelope::new(KIND_STANZA, class, own, vec![to.to_jid()], stanza.bytes());
            taken |= self.cluster.deliver(node, envelope).is_ok();
        }
        taken
    }
}

fn other_nodes(place: &AddressLocation, own: NodeId) -> Vec<NodeId> {
    place.other_nodes(own).collect()
}

/// Receives envelopes from other nodes.
#[derive(Debug)]
pub struct ClusterInbox(pub Arc<Node>);

impl Inbox for ClusterInbox {
    fn on_envelope(&self, _from: NodeId, envelope: Envelope) {
        if envelope.header.kind != KIND_STANZA {
            return;
        }
        let Some(stanza) = SharedStanza::parse(&envelope.bytes) else { return };
        let Some(from) = stanza.head().from(stanza.bytes()).and_then(|f| jid::Jid::parse(&f).ok()) else {
            return;
        };
        let mut work = RoutingWork::default();
        for to in &envelope.recipients {
            self.0.incoming(stanza.clone(), from.as_ref(), to.as_ref(), 0, &mut work);
        }
        self.0.run_effects_spawned(work);
    }

    fn on_undelivered(&self, _to: NodeId, envelope: Envelope) {
        let Some(stanza) = SharedStanza::parse(&envelope.bytes) else { return };
        let Some(from) = stanza.head().from(stanza.bytes()).and_then(|f| jid::Jid::parse(&f).ok()) else {
            return;
        };
        let mut work = RoutingWork::default();
        for to in &envelope.recipients {
            self.0.undelivered(stanza.clone(), from.as_ref(), to.as_ref(), 0, &mut work);
        }
        self.0.run_effects_spawned(work);
    }

    fn on_membership_change(&self, change: MembershipChange) {
        match change {
            MembershipChange::Joined(Member { node, epoch, version }) => {
                tracing::info!(%node, epoch, version, "a node joined the cluster");
            }
            MembershipChange::Left(node) => tracing::info!(%node, "a node left the cluster"),
        }
    }
}
