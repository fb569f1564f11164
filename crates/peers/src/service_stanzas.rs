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
use throng_core::router::peer_routing::envelope_class;
use throng_core::{Effects, SharedStanza};

use super::home::read_stanza;
use super::inbox::settle;
use crate::ClusteredNode;
use crate::envelope_kinds::SERVICE_STANZA;

impl ClusteredNode<'_> {
    /// Sends a stanza to the owner of its recipient; false if there is no room in the queue to it.
    pub(super) fn forward_service_stanza(
        &self,
        owner: NodeId,
        stanza: &SharedStanza,
        to: JidRef<'_>,
    ) -> bool {
        let recipients = vec![Recipient::Address(to.to_jid())];
        let (class, own) = (envelope_class(stanza), self.cluster.node());
        let envelope = Envelope::new(SERVICE_STANZA, class, own, recipients, stanza.bytes());
        self.cluster.deliver(owner, envelope).is_ok()
    }

    /// Handles a stanza for an item that this node owns.
    pub(super) fn receive_service_stanza(&self, from: NodeId, envelope: &Envelope) {
        let read = read_stanza(envelope).and_then(|(stanza, sender)| {
            let to = stanza.recipient()?;
            Some((stanza, sender, to))
        });
        let result = match read {
            Some((stanza, sender, to)) => {
                let is_handled = self.handle_forwarded_service_stanza(stanza, sender.as_ref(), to.as_ref());
                if is_handled { HandoverResult::Safe } else { HandoverResult::Refused }
            }
            None => {
                self.note_violation(from, PeerViolation::Payload);
                HandoverResult::Refused
            }
        };
        settle(self, from, envelope, result);
    }

    /// The owner is gone, or does not have the service: the sender gets an error.
    pub(super) fn return_service_stanza(&self, envelope: &Envelope) {
        let Some((stanza, sender)) = read_stanza(envelope) else { return };
        let Some(to) = stanza.recipient() else { return };
        let condition = StanzaCondition::RemoteServerTimeout;
        let report = self.undelivered_report(&stanza, sender.as_ref(), to.as_ref(), condition);
        self.perform(Effects(report.into_iter().collect()));
    }
}
