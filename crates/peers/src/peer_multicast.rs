//! Multicasts from other nodes: delivery to each recipient here, and recipients that were returned.

use std::sync::Arc;

use base::lock::LeafMutex;
use cluster::{Envelope, EnvelopeClass, HandoverResult, NodeId, PeerViolation, Recipient};
use jid::Jid;
use throng_core::StanzaSource;
use throng_core::router::lanes::{CompletionShare, LaneCompletion, LaneStage, LaneStanza};
use throng_core::router::multicast::LocalOutcome;
use throng_core::router::{HandedOver, RoutingWork};
use throng_core::shared_stanza::{QueueClass, SharedStanza};

use super::home::read_stanza;
use super::inbox::settle;
use crate::{ClusteredNode, OwnedClusteredNode};

/// The settlement of an envelope whose recipients are handled in several lanes; it is sent when this is dropped.
struct PendingSettlement {
    node: OwnedClusteredNode,
    from: NodeId,
    envelope: Envelope,
    /// Positions of the recipients that this node does not have.
    refused: LeafMutex<Vec<u16>>,
}

impl PendingSettlement {
    fn new(node: OwnedClusteredNode, from: NodeId, envelope: Envelope) -> PendingSettlement {
        PendingSettlement { node, from, envelope, refused: LeafMutex::default() }
    }

    /// This node does not have the recipient at this position.
    fn refuse(&self, position: u16) {
        self.refused.lock().push(position);
    }
}

impl Drop for PendingSettlement {
    fn drop(&mut self) {
        let mut refused = std::mem::take(&mut *self.refused.lock());
        refused.sort_unstable();
        let result = HandoverResult::of(self.envelope.recipients.len(), refused);
        settle(&self.node.view(), self.from, &self.envelope, result);
    }
}

/// Held by the copy of the recipient at this position until it is safe; otherwise the recipient is refused.
struct SettlementShare {
    settlement: Arc<PendingSettlement>,
    position: u16,
    is_safe: bool,
}

impl LaneCompletion for SettlementShare {
    /// No sender waits for the messages of a multicast.
    fn tracks_delivery(&self) -> bool {
        false
    }

    fn routed(&mut self) {}

    fn complete(mut self: Box<Self>) {
        self.is_safe = true;
    }
}

impl Drop for SettlementShare {
    fn drop(&mut self) {
        if !self.is_safe {
            self.settlement.refuse(self.position);
        }
    }
}

impl ClusteredNode<'_> {
    /// A multicast of another node for recipients here.
    pub(super) fn receive_multicast(&self, from: NodeId, envelope: Envelope) {
        let read = read_stanza(&envelope).filter(|(stanza, _)| stanza.head().to(stanza.bytes()).is_none());
        let Some((stanza, sender)) = read else {
            self.note_violation(from, PeerViolation::Payload);
            return settle(self, from, &envelope, HandoverResult::Refused);
        };
        if stanza.class() == QueueClass::Message {
            stanza.mark_multicast();
        }
        let stage = LaneStage::BeforeChain(HandedOver::of(&envelope, None));
        let settlement = Arc::new(PendingSettlement::new(self.owned(), from, envelope));
        let reliable = settlement.envelope.header.class != EnvelopeClass::BestEffort;
        let mut work = RoutingWork::default();
        for (position, recipient) in (0_u16..).zip(&settlement.envelope.recipients) {
            let to = match recipient {
                Recipient::Address(to) => Some(to.as_ref()),
                Recipient::Account(_) | Recipient::Session(..) => None,
            };
            let found = to.and_then(|to| {
                let hash = self.routing_table.hash(to);
                Some((to, hash, self.routing_table.find_with_hash(hash, to)?))
            });
            let Some((to, hash, account)) = found else {
                self.metrics.cluster_refused.inc();
                settlement.refuse(position);
                continue;
            };
            let outcome = if self.has_lane(hash) {
                LocalOutcome::NeedsCopy
            } else {
                self.deliver_multicast(&account.host(), Some(&account), &stanza, to)
            };
            match outcome {
                LocalOutcome::Done => {}
                LocalOutcome::NeedsCopy => {
                    let Some(stanza) = stanza.with_to(Some(to)) else { continue };
                    let share = || {
                        let settlement = settlement.clone();
                        Box::new(SettlementShare { settlement, position, is_safe: false })
                            as Box<dyn LaneCompletion>
                    };
                    let completion = reliable.then(share);
                    let (from, to) = (sender.clone(), to.to_jid());
                    let stanza = LaneStanza { stanza, from, to, stage, completion };
                    self.enter_lane_now(StanzaSource::Node, stanza, reliable);
                }
                LocalOutcome::Undelivered(condition) => {
                    work.effects.0.extend(self.undelivered_report(&stanza, sender.as_ref(), to, condition));
                }
            }
        }
        self.perform_effects_spawned(work);
    }

    /// A recipient of a multicast that the other node did not take: this node acts as its home.
    pub(super) fn return_multicast(
        &self,
        by: NodeId,
        envelope: &Envelope,
        stanza: &SharedStanza,
        from: &Jid,
        to: Jid,
        completion: Option<&CompletionShare>,
    ) {
        let Some(stanza) = stanza.with_to(Some(to.as_ref())) else { return };
        let stage = LaneStage::BeforeChain(HandedOver::of(envelope, Some(by)));
        let completion = completion.map(|completion| Box::new(completion.share()) as Box<dyn LaneCompletion>);
        let stanza = LaneStanza { stanza, from: from.clone(), to, stage, completion };
        let reliable = envelope.header.class != EnvelopeClass::BestEffort;
        self.enter_lane_now(StanzaSource::Node, stanza, reliable);
    }
}
