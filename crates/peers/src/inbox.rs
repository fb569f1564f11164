//! Envelopes from other nodes: each kind is handled, and settled when it was; receipts, returned envelopes, and changes of
//! the cluster.
//!
//! # Pitfalls
//!
//! The cluster calls an inbox on its own thread, which receives everything from all nodes: work over many accounts belongs
//! into a task.

use std::sync::Arc;

use base::spawn::BoxFuture;
use cluster::{
    Claim, Envelope, EnvelopeKind, HandoverResult, Inbox, InvalidationSubject, Member, MembershipChange,
    NodeId, PeerViolation, Recipient, Ticket,
};
use throng_core::Node;
use throng_core::SharedStanza;
use throng_core::receipt::Receipts;
use throng_core::router::multicast::MULTICAST;
use throng_core::router::{HandedOver, RoutingOutcome, RoutingWork, StanzaOrigin};

use super::home::read_stanza;
use super::message_copies;
use crate::ClusteredNode;
use crate::envelope_kinds::{
    CLIENT_REPLACED, COPY, DIRECTED_PROBE, FORWARDED_PRESENCE, FORWARDED_PROBE, FORWARDED_REQUEST,
    FORWARDED_REQUEST_END, FORWARDED_RESPONSE, MESSAGE_STORED, MESSAGES_TAKEN, NODE_QUERY, NODE_QUERY_ANSWER,
    NOTICE, NOTICES_MISSED, PRESENCE, PRESENCE_REQUEST, PROBE, PROBE_ANSWER, PUSH, PUSHES_MISSED, RESYNC,
    SERVICE_STANZA, SESSION_OFFER, SESSION_REFUSAL, SESSION_REQUEST, SESSION_STATE, SESSION_TAIL,
    SESSION_TAKEN, SLICE_FREED, USAGE_REPORT,
};
/// Receives envelopes from other nodes.
#[derive(Debug)]
pub struct ClusterInbox(pub Arc<Node>);

impl ClusteredNode<'_> {
    /// Handles a stanza of another node. Returns what must be awaited before the next one for this recipient.
    pub(super) fn receive_stanza(&self, from: NodeId, envelope: Envelope) -> Option<BoxFuture<'static, ()>> {
        let Some((stanza, sender)) = read_stanza(&envelope) else {
            self.note_violation(from, PeerViolation::Payload);
            settle(self, from, &envelope, HandoverResult::Refused);
            return None;
        };
        // Others would be handled in the lane of the first one.
        if envelope.recipients.len() != 1 {
            self.note_violation(from, PeerViolation::Payload);
            settle(self, from, &envelope, HandoverResult::Refused);
            return None;
        }
        let kind = envelope.header.kind;
        let names = stanza.recipient();
        self.forget_withdrawn_presence(&stanza, sender.as_ref(), names.as_ref());
        let mut work = RoutingWork::of(StanzaOrigin::Peer);
        // The home answers for what is a copy.
        work.tracks_delivery = envelope.header.tracks_delivery && kind != COPY;
        let mut refused = Vec::new();
        for (position, recipient) in (0_u16..).zip(&envelope.recipients) {
            let for_other = matches!((recipient, &names), (Recipient::Address(to), Some(name))
                if to.as_ref().bare() != name.as_ref().bare());
            if for_other {
                // The stanza is for somebody else: delivered here, it would be shown with that address.
                self.note_violation(from, PeerViolation::Payload);
                refused.push(position);
                continue;
            }
            let Some((account, to)) = self.find_recipient(recipient, &stanza) else {
                refused.push(position);
                continue;
            };
            // A number is used only where the stanza has the address.
            if names.as_ref().is_some_and(|name| name.as_ref().bare() != account.jid.as_ref()) {
                self.note_violation(from, PeerViolation::Payload);
                refused.push(position);
                continue;
            }
            self.note_directed_presence(from, &stanza, sender.as_ref(), names.as_ref(), &account);
            if kind == EnvelopeKind::RunChain {
                work.handed_over = Some(HandedOver::of(&envelope, None));
                self.incoming(stanza.clone(), sender.as_ref(), to.as_ref(), 0, &mut work);
                continue;
            }
            let (from, to) = (sender.as_ref(), to.as_ref());
            if !self.deliver_after_chain(&account, stanza.clone(), from, to, kind == COPY, &mut work) {
                refused.push(position);
            }
        }
        self.metrics.cluster_refused.inc_by(refused.len() as u64);
        let result = HandoverResult::of(envelope.recipients.len(), refused);
        // Later stanzas of the lane wait until this one was routed, but not for its receipts.
        match self.perform_effects(work) {
            RoutingOutcome::Done => settle(self, from, &envelope, result),
            RoutingOutcome::AwaitsReceipts(receipts) => {
                self.settle_with_receipts(from, envelope, result, receipts);
            }
            RoutingOutcome::Wait(rest) => {
                let node = self.owned();
                return Some(Box::pin(async move {
                    let receipts = rest.await;
                    node.view().settle_with_receipts(from, envelope, result, receipts);
                }));
            }
        }
        None
    }

    /// Performs what a stanza has caused, and settles its envelope when it is safe.
    pub(super) fn settle_after_work(&self, from: NodeId, envelope: Envelope, work: RoutingWork) {
        match self.perform_effects(work) {
            RoutingOutcome::Done => settle(self, from, &envelope, HandoverResult::Safe),
            RoutingOutcome::AwaitsReceipts(receipts) => {
                self.settle_with_receipts(from, envelope, HandoverResult::Safe, receipts);
            }
            RoutingOutcome::Wait(rest) => {
                let node = self.owned();
                let settled = async move {
                    let receipts = rest.await;
                    node.view().settle_with_receipts(from, envelope, HandoverResult::Safe, receipts);
                };
                self.spawner.spawn("routing", Box::pin(settled));
            }
        }
    }

    /// Settles an envelope once the receipts of its stanza have an outcome.
    fn settle_with_receipts(
        &self,
        from: NodeId,
        envelope: Envelope,
        result: HandoverResult,
        receipts: Receipts,
    ) {
        if receipts.is_empty() {
            return settle(self, from, &envelope, result);
        }
        let node = self.owned();
        let settled = async move {
            let node = &node.view();
            let stanzas: Vec<_> = receipts.0.iter().map(|attached| attached.stanza.clone()).collect();
            node.settle_receipts(receipts).await;
            if let Some(delivered) = stanzas.iter().find(|stanza| stanza.is_delivery_confirmed()) {
                node.note_delivered(&envelope, delivered);
            }
            settle(node, from, &envelope, result);
        };
        self.spawner.spawn("routing", Box::pin(settled));
    }

    /// A client has taken the message of an envelope.
    fn note_delivered(&self, envelope: &Envelope, stanza: &SharedStanza) {
        let [recipient] = &envelope.recipients[..] else { return };
        let id = match envelope.header.stanza_id {
            Some(id) => Some(id.to_text()),
            // Its chain has run, so it is in the stanza.
            None => self
                .find_account(recipient)
                .and_then(|account| message_copies::stanza_id(stanza, account.jid.as_ref())),
        };
        if let Some(id) = id {
            self.state.delivered.record((recipient_hash(self, recipient), id));
        }
    }

    /// Handles an envelope that contains no stanza to route. False if its octets do not fit its kind.
    fn receive_unrouted(&self, from: NodeId, envelope: &Envelope) -> bool {
        let mut work = RoutingWork::default();
        let recipients = || self.accounts_of(envelope);
        // These have one recipient: each would keep a copy of the bytes.
        let single = matches!(
            envelope.header.kind,
            EnvelopeKind::SessionReport
                | PUSH
                | PRESENCE_REQUEST
                | MESSAGES_TAKEN
                | CLIENT_REPLACED
                | DIRECTED_PROBE
        );
        if single && envelope.recipients.len() != 1 {
            return false;
        }
        let empty = matches!(envelope.header.kind, RESYNC | NOTICES_MISSED);
        if empty && !(envelope.recipients.is_empty() && envelope.bytes.is_empty()) {
            return false;
        }
        let is_valid = match envelope.header.kind {
            EnvelopeKind::SessionReport => {
                recipients().all(|account| self.on_session_report(from, &account, &envelope.bytes))
            }
            EnvelopeKind::Invalidation(subject) => {
                for recipient in &envelope.recipients {
                    if let Recipient::Address(jid) = recipient {
                        self.on_invalidation(jid.as_ref(), subject);
                    }
                }
                true
            }
            PUSH => {
                self.forward_push(envelope);
                recipients().all(|account| self.on_push(from, &account, &envelope.bytes, &mut work))
            }
            PUSHES_MISSED => {
                recipients().for_each(|account| self.mark_roster_outdated(&account));
                true
            }
            PRESENCE_REQUEST => {
                recipients().all(|account| self.on_presence_request(&account, &envelope.bytes, &mut work))
            }
            PRESENCE => {
                let is_valid = self.on_presence(envelope);
                self.forward_presence(envelope);
                is_valid
            }
            FORWARDED_PRESENCE => self.on_forwarded_presence(envelope),
            SESSION_OFFER => self.on_session_offer(envelope),
            SESSION_REQUEST => self.on_session_request(from, envelope),
            SESSION_REFUSAL => self.on_session_refusal(from, &envelope.bytes),
            SESSION_TAKEN => self.on_session_taken(from, &envelope.bytes),
            MESSAGES_TAKEN => recipients().all(|account| self.on_messages_taken(&account, &envelope.bytes)),
            CLIENT_REPLACED => recipients().all(|account| self.on_client_replaced(&account, &envelope.bytes)),
            PROBE => self.on_probe(from, envelope),
            FORWARDED_PROBE => self.on_forwarded_probe(envelope),
            PROBE_ANSWER => self.on_probe_answer(envelope, &mut work),
            DIRECTED_PROBE => self.on_directed_probe(envelope),
            NODE_QUERY => self.on_node_query(from, &envelope.bytes),
            NODE_QUERY_ANSWER => self.on_node_query_answer(from, &envelope.bytes),
            FORWARDED_REQUEST => self.on_forwarded_request(from, &envelope.bytes),
            FORWARDED_RESPONSE => self.on_forwarded_response(from, &envelope.bytes),
            FORWARDED_REQUEST_END => self.on_request_end(from, &envelope.bytes),
            NOTICE => self.on_notice(from, envelope),
            SLICE_FREED => self.on_slice_freed(from, &envelope.bytes),
            USAGE_REPORT => self.on_usage_report(envelope),
            RESYNC => {
                self.on_resync(from);
                true
            }
            NOTICES_MISSED => {
                self.handle_missed_notices(from);
                true
            }
            MESSAGE_STORED => envelope.recipients.iter().all(|recipient| match recipient {
                Recipient::Address(jid) => self.on_message_stored(from, jid.as_ref(), &envelope.bytes),
                _ => true,
            }),
            _ => true,
        };
        self.perform_effects_spawned(work);
        is_valid
    }

    pub(super) fn note_violation(&self, from: NodeId, violation: PeerViolation) {
        self.count_violations(from, violation, 1, |from| {
            tracing::error!(node = %from, %violation, "a node does what no correct node does; further cases are counted only");
        });
    }

    /// Counts violations of a node; `log` is called for the first one of this kind.
    pub(super) fn count_violations(
        &self,
        from: NodeId,
        violation: PeerViolation,
        count: u64,
        log: impl FnOnce(NodeId),
    ) {
        self.metrics.cluster_violations.add([violation.as_str()], count);
        if self.state.mark_violation_logged(from, violation) {
            log(from);
        }
    }
}

pub(super) fn recipient_hash(node: &Node, recipient: &Recipient) -> u64 {
    match recipient {
        Recipient::Address(jid) => node.routing_table.hash(jid.as_ref()),
        Recipient::Account(reference) | Recipient::Session(reference, _) => reference.hash,
    }
}

/// Reports the result to the sender's node. If that node is gone, this one handles the refused recipients.
pub(super) fn settle(node: &ClusteredNode<'_>, from: NodeId, envelope: &Envelope, result: HandoverResult) {
    let ticket = envelope.ticket();
    if !ticket.has_receipt() || node.cluster.settle(from, ticket, result.clone()) {
        return;
    }
    if let Some(refused) = envelope.clone().refused(&result) {
        node.handle_returned(from, &refused, None);
    }
}

impl Inbox for ClusterInbox {
    fn on_envelope(&self, from: NodeId, envelope: Envelope) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        match envelope.header.kind {
            EnvelopeKind::RunChain | EnvelopeKind::ChainHasRun | COPY => {
                let key = envelope.recipients.first().map_or(0, |recipient| recipient_hash(&node, recipient));
                node.receive_in_lane(key, from, envelope);
            }
            MULTICAST => node.receive_multicast(from, envelope),
            EnvelopeKind::Invalidation(InvalidationSubject::Blocklist) => {
                node.on_blocklist_change(from, envelope);
            }
            SERVICE_STANZA => node.receive_service_stanza(from, &envelope),
            SESSION_STATE => node.on_session_state(from, envelope),
            SESSION_TAIL => node.on_session_tail(from, envelope),
            EnvelopeKind::SessionReport
            | EnvelopeKind::Invalidation(_)
            | PUSH
            | PUSHES_MISSED
            | PRESENCE
            | PRESENCE_REQUEST
            | PROBE
            | PROBE_ANSWER
            | DIRECTED_PROBE
            | NODE_QUERY
            | NODE_QUERY_ANSWER
            | NOTICE
            | NOTICES_MISSED
            | SLICE_FREED
            | USAGE_REPORT
            | RESYNC
            | SESSION_OFFER
            | SESSION_REQUEST
            | SESSION_REFUSAL
            | SESSION_TAKEN
            | MESSAGES_TAKEN
            | CLIENT_REPLACED
            | FORWARDED_PRESENCE
            | FORWARDED_PROBE
            | FORWARDED_REQUEST
            | FORWARDED_RESPONSE
            | FORWARDED_REQUEST_END
            | MESSAGE_STORED => {
                if !node.receive_unrouted(from, &envelope) {
                    node.note_violation(from, PeerViolation::Payload);
                }
                settle(&node, from, &envelope, HandoverResult::Safe);
            }
            EnvelopeKind::Engine(_) => {
                node.note_violation(from, PeerViolation::Kind);
                settle(&node, from, &envelope, HandoverResult::Refused);
            }
        }
    }

    fn on_receipts(&self, from: NodeId, up_to: Ticket, later: &[Ticket]) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.state.handovers.end(from, up_to, later);
        node.send_due_errors(from);
        node.send_due_presence(from);
        node.state.inbound_requests.send_waiting(from);
    }

    fn on_refused(&self, from: NodeId, envelope: Envelope) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.on_query_returned(from, &envelope, true);
        node.on_request_returned(from, &envelope, true);
        node.handle_return_of_own(from, &envelope);
    }

    fn on_undelivered(&self, to: NodeId, envelope: Envelope) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.on_query_returned(to, &envelope, false);
        node.on_request_returned(to, &envelope, false);
        node.handle_return_of_own(to, &envelope);
    }

    fn on_membership_change(&self, change: MembershipChange) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        match change {
            MembershipChange::Joined(Member { node, epoch, version, .. }) => {
                tracing::info!(%node, epoch, version, "a node joined the cluster");
            }
            MembershipChange::Left { node: left, claims, orderly } => {
                if !orderly {
                    node.state.lost.lock().insert(left);
                    node.read_accounts_again();
                }
                node.on_peer_left(left, orderly, &claims);
                node.slice_member_left(left);
                tracing::info!(node = %left, claims = claims.len(), orderly, "a node left the cluster");
            }
        }
    }

    fn on_claim(&self, from: NodeId, claim: Claim) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.report_recently_stored(from, claim.address);
        node.on_peer_claim(from, claim);
    }

    fn on_claims_of_joined(&self, from: NodeId, claims: Vec<Claim>) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.on_joined_with(from, claims);
    }

    fn on_violation(&self, from: NodeId, violation: PeerViolation) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.note_violation(from, violation);
    }
}
