//! Stanzas for an item of a service, such as a room, on their way to the node that owns it; requests to an account whose nodes of
//! PubSub another node owns travel in the same way.
//!
//! The owner of a slice is decided by `slices`; a node that does not own the slice computes the owner from the members that it sees.
//! The stanzas of one sender arrive in order, because all of them are envelopes of a reliable class on one link.
//!
//! # Pitfalls
//!
//! A node that is not the owner passes a stanza on once more only: two nodes that disagree would send it to each other. While a slice
//! moves, a stanza that was passed on twice may arrive after a later one of its sender.

use cluster::{Envelope, HandoverResult, NodeId, PeerViolation, Recipient, slice_of};
use jid::{Jid, JidRef};
use stanza::{StanzaCondition, StanzaKind};
use throng_core::domains::Domain;
use throng_core::receipt::Receipt;
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
        work: &mut RoutingWork,
    ) -> bool {
        let Some(owner) = self.slice_route(slice_of(owner_hash)) else { return false };
        // The item stores a message before its sender's stream counts it.
        let needs_receipt = work.origin.awaits_receipts() && matches!(stanza.kind(), StanzaKind::Message(_));
        match self.send_service_stanza(stanza, to, owner, 0, needs_receipt) {
            Some(receipt) => work.attach(stanza.clone(), receipt),
            None => self.return_stanza(stanza),
        }
        true
    }

    /// Sends a stanza to the owner of its recipient. `hops`: envelopes that have carried it. Returns its receipt, if it needs one;
    /// `None` if that node does not take it.
    pub(super) fn send_service_stanza(
        &self,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        owner: NodeId,
        hops: u8,
        needs_receipt: bool,
    ) -> Option<Option<Receipt>> {
        let own = self.cluster.node();
        let recipients = vec![Recipient::Address(to.to_jid())];
        let mut envelope =
            Envelope::new(SERVICE_STANZA, envelope_class(stanza), own, recipients, stanza.bytes());
        envelope.header.hops += hops;
        match self.hand_over(owner, envelope, None, needs_receipt) {
            Ok(receipt) => Some(receipt),
            Err(refused) => {
                tracing::debug!(node = %owner, %refused, "a stanza for a service was not passed on");
                None
            }
        }
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
        let hops = envelope.header.hops;
        if hops < Envelope::MAX_HOPS
            && let Some(owner) = self.route_to_item(&stanza, &to)
            && owner != from
        {
            let needs_receipt = matches!(stanza.kind(), StanzaKind::Message(_));
            if let Some(receipt) = self.send_service_stanza(&stanza, to.as_ref(), owner, hops, needs_receipt)
            {
                let mut work = RoutingWork::of(StanzaOrigin::Peer);
                work.attach(stanza, receipt);
                return self.settle_after_work(from, envelope.clone(), work);
            }
        }
        match self.handle_item_stanza(stanza, &sender, &to) {
            Some(work) => self.settle_after_work(from, envelope.clone(), work),
            None => settle(self, from, envelope, HandoverResult::Refused),
        }
    }

    /// The other node that must own the item of a stanza.
    fn route_to_item(&self, stanza: &SharedStanza, to: &Jid) -> Option<NodeId> {
        let hash = match self.domains().find(to.domain()).clone() {
            Domain::Service(_, service) => service.owner_hash(self, stanza, to.as_ref())?,
            Domain::Accounts(_) => self.routing_table.hash(to.as_ref()),
            _ => return None,
        };
        self.slice_route(slice_of(hash))
    }

    /// Handles a stanza for an item here; `None` without the service.
    fn handle_item_stanza(&self, stanza: SharedStanza, sender: &Jid, to: &Jid) -> Option<RoutingWork> {
        let domain = self.domains().find(to.domain()).clone();
        let mut work = RoutingWork::of(StanzaOrigin::Peer);
        match domain {
            Domain::Service(host, service) => {
                let service = (&host, &service);
                self.handle_service_stanza(service, stanza, sender.as_ref(), to.as_ref(), &mut work);
            }
            Domain::Accounts(host) => {
                self.answer_for_account(&host, &stanza, sender.as_ref(), to.as_ref(), &mut work);
            }
            _ => return None,
        }
        Some(work)
    }

    /// The owner is gone, or does not have the service: presence goes to the next owner, and the sender of anything else gets an
    /// error, because the owner may have handled it.
    pub(super) fn return_service_stanza(&self, by: NodeId, envelope: &Envelope) {
        let handover = self.returned_handover(by, envelope, None);
        self.return_or_reroute(envelope);
        // Its sender has an error, or the next owner has it.
        if let Some(handover) = handover {
            handover.settle();
        }
    }

    fn return_or_reroute(&self, envelope: &Envelope) {
        let Some((stanza, sender)) = read_stanza(envelope) else { return };
        let to = stanza.recipient();
        if let (StanzaKind::Presence(_), Some(to)) = (stanza.kind(), to)
            && envelope.header.hops < Envelope::MAX_HOPS
        {
            match self.route_to_item(&stanza, &to) {
                None => {
                    if let Some(work) = self.handle_item_stanza(stanza.clone(), &sender, &to) {
                        return self.perform_effects_spawned(work);
                    }
                }
                Some(owner) if self.send_service_stanza(&stanza, to.as_ref(), owner, 1, false).is_some() => {
                    return;
                }
                Some(_) => {}
            }
        }
        self.return_stanza(&stanza);
    }

    fn return_stanza(&self, stanza: &SharedStanza) {
        let Some((sender, to)) = stanza.sender().zip(stanza.recipient()) else { return };
        let condition = StanzaCondition::RemoteServerTimeout;
        let report = self.undelivered_report(stanza, sender.as_ref(), to.as_ref(), condition);
        self.perform(Effects(report.into_iter().collect()));
    }
}
