//! Stanzas for an item of a service, such as a room, on their way to the node that owns it.
//!
//! Every node computes the owner from the members that it sees (`cluster/src/owner.rs`). The stanzas of one sender arrive in
//! order, because all of them are envelopes of a reliable class on one link.
//!
//! # Pitfalls
//!
//! The owner does not pass a stanza on, also if it sees another owner: two nodes that disagree would send it to each other.

use cluster::{Envelope, HandoverResult, NodeId, PeerViolation, Recipient};
use jid::JidRef;
use stanza::StanzaCondition;
use throng_core::domains::Domain;
use throng_core::router::peer_routing::envelope_class;
use throng_core::router::{RoutingWork, StanzaOrigin};
use throng_core::{Effects, SharedStanza};

use super::home::read_stanza;
use super::inbox::settle;
use crate::ClusteredNode;
use crate::envelope_kinds::SERVICE_STANZA;

impl ClusteredNode<'_> {
    /// Sends a stanza to the owner of the item with this hash; false if that is this node.
    pub(super) fn forward_service_stanza(
        &self,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        owner_hash: u64,
    ) -> bool {
        let (owner, own) = (self.cluster.owner(owner_hash), self.cluster.node());
        if owner == own {
            return false;
        }
        let recipients = vec![Recipient::Address(to.to_jid())];
        let envelope = Envelope::new(SERVICE_STANZA, envelope_class(stanza), own, recipients, stanza.bytes());
        if let Err(refused) = self.cluster.deliver(owner, envelope) {
            tracing::debug!(node = %owner, %refused, "a stanza for a service was not passed on");
            self.return_stanza(stanza);
        }
        true
    }

    /// Handles a stanza for an item that this node owns.
    pub(super) fn receive_service_stanza(&self, from: NodeId, envelope: &Envelope) {
        let read = read_stanza(envelope).and_then(|(stanza, sender)| {
            let to = stanza.recipient()?;
            Some((stanza, sender, to))
        });
        let Some((stanza, sender, to)) = read else {
            self.note_violation(from, PeerViolation::Payload);
            return settle(self, from, envelope, HandoverResult::Refused);
        };
        let service = self.domains().find(to.domain()).clone();
        let Domain::Service(host, service) = service else {
            return settle(self, from, envelope, HandoverResult::Refused);
        };
        let mut work = RoutingWork::of(StanzaOrigin::Peer);
        self.handle_service_stanza((&host, &service), stanza, sender.as_ref(), to.as_ref(), &mut work);
        self.perform_effects_spawned(work);
        settle(self, from, envelope, HandoverResult::Safe);
    }

    /// The owner is gone, or does not have the service: the sender gets an error.
    pub(super) fn return_service_stanza(&self, envelope: &Envelope) {
        if let Some((stanza, _)) = read_stanza(envelope) {
            self.return_stanza(&stanza);
        }
    }

    fn return_stanza(&self, stanza: &SharedStanza) {
        let Some((sender, to)) = stanza.sender().zip(stanza.recipient()) else { return };
        let condition = StanzaCondition::RemoteServerTimeout;
        let report = self.undelivered_report(stanza, sender.as_ref(), to.as_ref(), condition);
        self.perform(Effects(report.into_iter().collect()));
    }
}
