//! Stanzas between nodes: to the home of an account, from there to other nodes with sessions of it, and back. RFC 6121,
//! section 8.5, applied by the home.
//!
//! The incoming chain of an account runs on its home, the node with the oldest claim. Any other node sends it what it has
//! for the account ([`EnvelopeKind::RunChain`]), even if it has sessions of the account itself. The home decides for all
//! sessions, by what their nodes have reported (`peer_sessions.rs`), and sends one envelope to each further node
//! ([`EnvelopeKind::ChainHasRun`]). Without a claim anywhere, the node where the stanza came in acts as the home.
//!
//! A home that has no session refuses the stanza. It returns to its sender's node, which asks the next claim once; after
//! that, or if there is none, it acts as the home. A stanza keeps the id that it was given before it left.
//!
//! A message or subscription request that was handed over is safe when the other node has it safe: its sender's stream has a
//! receipt for it (`handovers.rs`). When it returns, it is safe when it was handled here.
//!
//! Long because each kind of envelope is sent, received and returned.
//!
//! # Pitfalls
//!
//! Recipients in an envelope are claims of another node. Each is compared with the routing table by number or text, and
//! refused if this node does not have it.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use cluster::{
    AddressLocation, AddressReference, Claim, Envelope, EnvelopeKind, HandoverResult, Inbox, Member,
    MembershipChange, NodeId, PeerViolation, Recipient, RefusalReason, Ticket,
};
use jid::{Jid, JidRef};
use outbox::QUEUE_FULL_CONDITION;
use stanza::{StanzaCondition, StanzaKind};
use store::AddressId;
use throng_core::account::Account;
use throng_core::receipt::Receipts;
use throng_core::router::lanes::{LaneCompletion, LaneStage, LaneStanza};
use throng_core::router::multicast::MULTICAST;
use throng_core::router::peer_routing::{address_number, envelope_class};
use throng_core::router::{HandedOver, HomeDecision, RoutingOutcome, RoutingWork, StanzaOrigin};
use throng_core::shared_stanza::{QueueClass, SharedStanza};
use throng_core::{Node, StanzaSource};

use super::handovers::{Handovers, ReturnedHandover};
use super::invalidation::{AccountReads, RecentlyStored};
use super::lost_peers::EndedSubscriptions;
use super::node_queries::{NodeQueries, ReceivedNodeQueries};
use super::presence_resync::{AccountReading, DuePresence};
use crate::ClusteredNode;
use crate::envelope_kinds::{
    COPY, MESSAGE_STORED, NODE_QUERY, NODE_QUERY_ANSWER, NOTICE, PRESENCE, PRESENCE_REQUEST, PROBE,
    PROBE_ANSWER, PUSH,
};

/// The node to which a stanza must go whose chain has not begun; none if this node acts as the home. `here`: whether it has
/// sessions of the account.
fn next_home(
    own: NodeId,
    location: &AddressLocation,
    here: bool,
    handed_over: Option<HandedOver>,
) -> Option<NodeId> {
    match handed_over {
        None => location.home(own).filter(|home| *home != own),
        Some(HandedOver { hops, returned_by, .. }) => {
            // What arrived from another node stays here.
            let returned_by = returned_by.filter(|_| !here && hops < Envelope::MAX_HOPS)?;
            let mut others =
                location.claims().iter().filter(|at| at.node != own && at.node != returned_by).peekable();
            let first = others.peek().map(|at| at.node);
            others.find(|at| at.claim.takes_messages).map(|at| at.node).or(first)
        }
    }
}

/// What is remembered about other nodes.
#[derive(Default)]
pub(super) struct PeerState {
    /// Violations that have been logged.
    logged: LeafMutex<BTreeSet<(NodeId, PeerViolation)>>,
    /// Stanzas that other nodes are handling.
    pub(super) handovers: Handovers,
    /// What nodes must receive again.
    pub(super) due_presence: DuePresence,
    /// Reading of all accounts after the loss of a node.
    pub(super) account_reading: AccountReading,
    /// Subscriptions that ended a moment ago.
    pub(super) ended_subscriptions: EndedSubscriptions,
    /// Accounts that are being read because another node changed them.
    pub(super) reads: AccountReads,
    /// Recipients of messages that were stored here.
    pub(super) stored: RecentlyStored,
    /// Queries to other nodes.
    pub(super) queries: NodeQueries,
    /// What other nodes have asked.
    pub(super) received_queries: ReceivedNodeQueries,
    /// Nodes that are lost: they may have been cut off, and may return with what they changed meanwhile.
    pub(super) lost: LeafMutex<BTreeSet<NodeId>>,
}

impl PeerState {
    /// Whether this is the first violation of its kind by this node since it joined.
    fn is_first(&self, from: NodeId, violation: PeerViolation) -> bool {
        self.logged.lock().insert((from, violation))
    }

    pub(super) fn forget_node(&self, node: NodeId) {
        self.logged.lock().retain(|(other, _)| *other != node);
        self.due_presence.forget_node(node);
        self.handovers.forget_node(node);
        self.queries.forget_node(node);
    }
}

/// An account as a recipient on another node: by its number, if it has one.
pub(super) fn account_recipient(account: &Account) -> Recipient {
    match address_number(account) {
        Some(number) => Recipient::Account(AddressReference { hash: account.hash, number }),
        None => Recipient::Address(account.jid.clone()),
    }
}

/// Whether a stanza must be safe before its sender's stream counts it: a message, or what changes rosters.
fn needs_receipt(stanza: &SharedStanza) -> bool {
    match stanza.kind() {
        StanzaKind::Presence(kind) => kind.is_subscription(),
        StanzaKind::Message(_) => true,
        StanzaKind::Iq(_) => false,
    }
}

impl ClusteredNode<'_> {
    /// Announces to the other nodes that an account has a session here.
    pub(super) fn claim_account(&self, account: &Account) {
        self.cluster.claim(Claim {
            address: account.hash,
            number: address_number(account),
            since: self.clock.unix_millis(),
            takes_messages: false,
        });
    }

    /// Announces to the other nodes that an account has no session here.
    pub(super) fn release_account(&self, account: &Account) {
        self.cluster.release(account.hash, address_number(account));
    }

    /// Announces to the other nodes whether a session of the account takes messages. Must be called after a session
    /// became available or unavailable, or changed its priority.
    pub(super) fn announce_readiness(&self, account: &Account) {
        account.with(|state| {
            let ready = state.sessions.iter().any(|s| s.priority().is_some_and(|priority| priority >= 0));
            self.cluster.set_takes_messages(account.hash, address_number(account), ready);
        });
        self.report_sessions(account);
    }

    /// Hands a stanza whose chain has not begun to the home of its recipient, if that is another node.
    ///
    /// A queue must not decide which node is the home: a message or request that does not fit into that of the home is
    /// refused, since the chain of another node could deliver it before those in the queue.
    pub(super) fn hand_to_home(
        &self,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        account: Option<&Arc<Account>>,
        handed_over: Option<HandedOver>,
        work: &RoutingWork,
    ) -> HomeDecision {
        let origin = work.origin;
        let own = self.cluster.node();
        let (hash, number) = match account {
            Some(account) => (account.hash, address_number(account)),
            None => (self.routing_table.hash(to), None),
        };
        let location = self.cluster.locate(hash, number);
        let home = next_home(own, &location, account.is_some(), handed_over);
        if origin == StanzaOrigin::Stream
            && handed_over.is_none()
            && let Some(old_path) = self.wait_for_old_path(hash, home.unwrap_or(own))
        {
            return HomeDecision::Wait(old_path);
        }
        if let Some(home) = home {
            let (id, hops) = match handed_over {
                None => ((stanza.class() == QueueClass::Message).then(|| self.next_stanza_id()), 0),
                Some(HandedOver { stanza_id, hops, .. }) => (stanza_id, hops),
            };
            let recipients = vec![Recipient::Address(to.to_jid())];
            let kind = EnvelopeKind::RunChain;
            let envelope = Envelope::new(kind, envelope_class(stanza), own, recipients, stanza.bytes());
            let mut envelope = envelope.with_stanza_id(id).with_delivery_tracking(work.tracks_delivery);
            envelope.header.hops += hops;
            let needs_receipt = origin.awaits_receipts() && needs_receipt(stanza);
            let refused = match self.hand_over(home, envelope, Some(hash), needs_receipt) {
                Ok(receipt) => return HomeDecision::HandedOver(receipt),
                Err(refused) => refused,
            };
            self.metrics.cluster_not_queued.inc([refused.reason.as_str()]);
            // One that has returned was accepted before.
            let answered = handed_over.is_none()
                && (stanza.class() == QueueClass::Message || stanza.kind().is_request());
            match refused.reason {
                RefusalReason::QueueFull if answered => return HomeDecision::Refused(QUEUE_FULL_CONDITION),
                RefusalReason::TooLarge if answered => {
                    return HomeDecision::Refused(StanzaCondition::PolicyViolation);
                }
                // The home is gone, or the stanza needs no answer: this node acts as the home.
                _ => {}
            }
        }
        if let Some(account) = account {
            self.update_peers(account, &location);
        }
        HomeDecision::Own
    }

    /// Sends a stanza whose chain has run here to a node with sessions that receive it. `hops`: envelopes that have carried
    /// it. With `is_copy`, nobody handles what that node refuses. True if it was accepted.
    #[expect(clippy::too_many_arguments, reason = "the stanza with its addresses and its work")]
    pub(super) fn deliver_to_peer(
        &self,
        node: NodeId,
        account: &Account,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        hops: u8,
        is_copy: bool,
        work: &mut RoutingWork,
    ) -> bool {
        let own = self.cluster.node();
        let same = stanza.head().to(stanza.bytes()).is_some_and(|text| text == to.as_str());
        // A resource, if `to` has one, is in the stanza.
        let recipient = match address_number(account).filter(|_| same) {
            Some(number) => Recipient::Account(AddressReference { hash: account.hash, number }),
            None => Recipient::Address(to.to_jid()),
        };
        let kind = if is_copy { COPY } else { EnvelopeKind::ChainHasRun };
        let envelope = Envelope::new(kind, envelope_class(stanza), own, vec![recipient], stanza.bytes());
        let mut envelope = envelope.with_delivery_tracking(work.tracks_delivery && !is_copy);
        envelope.header.hops += hops;
        // Of a copy, another node is responsible for the receipt.
        let needs_receipt = !is_copy && work.origin.awaits_receipts() && needs_receipt(stanza);
        match self.hand_over(node, envelope, None, needs_receipt) {
            Ok(receipt) => {
                work.attach(stanza.clone(), receipt);
                true
            }
            Err(refused) => {
                self.metrics.cluster_not_queued.inc([refused.reason.as_str()]);
                false
            }
        }
    }

    /// An envelope has returned from the node to which this one sent it.
    fn handle_return_of_own(&self, by: NodeId, envelope: &Envelope) {
        let path = match envelope.recipients.first() {
            Some(Recipient::Address(to)) if envelope.header.kind == EnvelopeKind::RunChain => {
                Some(self.routing_table.hash(to.as_ref()))
            }
            _ => None,
        };
        let Some(handover) = self.returned_handover(by, envelope, path) else { return };
        self.handle_returned(by, envelope, Some(handover));
    }

    /// Handles the recipients of an envelope that no other node took: this node acts as their home. An envelope with a
    /// receipt has one recipient.
    pub(super) fn handle_returned(
        &self,
        by: NodeId,
        envelope: &Envelope,
        mut handover: Option<ReturnedHandover>,
    ) {
        let Some((stanza, from)) = read_stanza(envelope) else { return };
        for recipient in &envelope.recipients {
            let Some(to) = self.returned_address(recipient, &stanza) else {
                // Its sender gets the error of the receipt.
                drop(handover.take());
                self.metrics.stanzas_dropped.inc([stanza.class().as_str(), "session-gone"]);
                continue;
            };
            let stage = match envelope.header.kind {
                EnvelopeKind::RunChain => LaneStage::BeforeChain(HandedOver::of(envelope, Some(by))),
                // The session to which it was sent is gone.
                EnvelopeKind::ChainHasRun => LaneStage::AfterChain(envelope.header.hops),
                MULTICAST => {
                    self.return_multicast(by, envelope, &stanza, &from, to);
                    continue;
                }
                _ => continue,
            };
            let completion = handover.take();
            let completion = completion.map(|handover| Box::new(handover) as Box<dyn LaneCompletion>);
            let (stanza, from) = (stanza.clone(), from.clone());
            // In the order in which they return, also if the chain waits.
            let stanza = LaneStanza { stanza, from, to, stage, completion };
            self.enter_lane_now(StanzaSource::Node, stanza, true);
        }
        if let Some(handover) = handover {
            handover.settle();
        }
    }

    /// The address of a recipient that returned. A number is used only where the stanza has the address, so the store is not
    /// needed for an account without a session here.
    fn returned_address(&self, recipient: &Recipient, stanza: &SharedStanza) -> Option<Jid> {
        match recipient {
            Recipient::Address(to) => Some(to.clone()),
            Recipient::Account(reference) | Recipient::Session(reference, _) => {
                match self.routing_table.find_by_id(reference.hash, AddressId(reference.number)) {
                    Some(account) => Some(stanza_recipient_at(stanza, account.jid.clone())),
                    None => {
                        let named = stanza.recipient();
                        named.filter(|to| self.routing_table.hash(to.as_ref()) == reference.hash)
                    }
                }
            }
        }
    }

    /// The account of a recipient that another node named, if it has a session here.
    pub(super) fn find_account(&self, recipient: &Recipient) -> Option<Arc<Account>> {
        match recipient {
            Recipient::Address(jid) => self.routing_table.find(jid.as_ref()),
            Recipient::Account(reference) => {
                let id = Some(AddressId(reference.number)).filter(|id| *id != AddressId::UNASSIGNED)?;
                self.routing_table.find_by_id(reference.hash, id)
            }
            // No node names sessions by number yet, so this one is unknown.
            Recipient::Session(..) => None,
        }
    }

    /// The account of a recipient that another node named, with the address to which the stanza goes. `None` if it has
    /// no session here.
    fn find_recipient(&self, recipient: &Recipient, stanza: &SharedStanza) -> Option<(Arc<Account>, Jid)> {
        let account = self.find_account(recipient)?;
        let to = match recipient {
            Recipient::Address(to) => to.clone(),
            // Its resource, if it has one, is in the stanza.
            Recipient::Account(_) | Recipient::Session(..) => {
                stanza_recipient_at(stanza, account.jid.clone())
            }
        };
        Some((account, to))
    }
}

/// The stanza of an envelope and its sender.
pub(super) fn read_stanza(envelope: &Envelope) -> Option<(SharedStanza, Jid)> {
    let stanza = SharedStanza::read(&envelope.bytes)?;
    let from = stanza.sender()?;
    Some((stanza, from))
}

/// The recipient that the stanza names, if it is this bare address or one of its resources; otherwise the bare address.
fn stanza_recipient_at(stanza: &SharedStanza, bare: Jid) -> Jid {
    stanza.recipient().filter(|to| to.as_ref().bare() == bare.as_ref()).unwrap_or(bare)
}

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
            node.settle_receipts(receipts).await;
            settle(node, from, &envelope, result);
        };
        self.spawner.spawn("routing", Box::pin(settled));
    }

    /// Handles an envelope that contains no stanza to route. False if its octets do not fit its kind.
    fn receive_unrouted(&self, from: NodeId, envelope: &Envelope) -> bool {
        let mut work = RoutingWork::default();
        let recipients = || self.accounts_of(envelope);
        // These have one recipient: each would keep a copy of the bytes.
        let single = matches!(envelope.header.kind, EnvelopeKind::SessionReport | PUSH | PRESENCE_REQUEST);
        if single && envelope.recipients.len() != 1 {
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
            PUSH => recipients().all(|account| self.on_push(from, &account, &envelope.bytes, &mut work)),
            PRESENCE_REQUEST => {
                recipients().all(|account| self.on_presence_request(&account, &envelope.bytes, &mut work))
            }
            PRESENCE => self.on_presence(envelope),
            PROBE => self.on_probe(from, envelope),
            PROBE_ANSWER => self.on_probe_answer(envelope, &mut work),
            NODE_QUERY => self.on_node_query(from, &envelope.bytes),
            NODE_QUERY_ANSWER => self.on_node_query_answer(from, &envelope.bytes),
            NOTICE => self.on_notice(envelope),
            MESSAGE_STORED => {
                for recipient in &envelope.recipients {
                    if let Recipient::Address(jid) = recipient {
                        self.on_message_stored(jid.as_ref());
                    }
                }
                true
            }
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
        if self.state.is_first(from, violation) {
            log(from);
        }
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
                let key = match envelope.recipients.first() {
                    Some(Recipient::Address(jid)) => node.routing_table.hash(jid.as_ref()),
                    Some(Recipient::Account(reference) | Recipient::Session(reference, _)) => reference.hash,
                    None => 0,
                };
                node.receive_in_lane(key, from, envelope);
            }
            MULTICAST => node.receive_multicast(from, envelope),
            EnvelopeKind::SessionReport
            | EnvelopeKind::Invalidation(_)
            | PUSH
            | PRESENCE
            | PRESENCE_REQUEST
            | PROBE
            | PROBE_ANSWER
            | NODE_QUERY
            | NODE_QUERY_ANSWER
            | NOTICE
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

    fn on_receipts(&self, from: NodeId, up_to: Ticket) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.state.handovers.end(from, up_to);
        node.send_due_presence(from);
    }

    fn on_refused(&self, from: NodeId, envelope: Envelope) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.handle_return_of_own(from, &envelope);
    }

    fn on_undelivered(&self, to: NodeId, envelope: Envelope) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        node.handle_return_of_own(to, &envelope);
    }

    fn on_membership_change(&self, change: MembershipChange) {
        let Some(node) = ClusteredNode::of(&self.0) else { return };
        match change {
            MembershipChange::Joined(Member { node, epoch, version }) => {
                tracing::info!(%node, epoch, version, "a node joined the cluster");
            }
            MembershipChange::Left { node: left, claims, orderly } => {
                if !orderly {
                    node.state.lost.lock().insert(left);
                    node.read_accounts_again();
                }
                node.on_peer_left(left, &claims);
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

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::NodeClaim;

    #[test]
    fn a_stanza_goes_to_the_oldest_claim_and_once_more_to_another_if_it_returns() {
        let [own, old, ready] = ["own", "old", "ready"].map(|name| NodeId::new(name).unwrap());
        let claim = |node, since, takes_messages| NodeClaim {
            node,
            claim: Claim { address: 1, number: None, since, takes_messages },
        };
        let at = |claims: &[NodeClaim]| AddressLocation::of(own, claims.to_vec());
        let others = [claim(old, 1, false), claim(ready, 2, true)];
        let with_own = [others[0], others[1], claim(own, 3, true)];
        let fresh = |claims, here| next_home(own, &at(claims), here, None);
        assert_eq!(fresh(&[], false), None);
        assert_eq!(fresh(&others, false), Some(old));
        assert_eq!(fresh(&with_own, true), Some(old), "also from a node with sessions");
        assert_eq!(fresh(&[claim(own, 0, false), others[1]], true), None);
        let again = |claims, here, hops, returned_by| {
            next_home(own, &at(claims), here, Some(HandedOver { stanza_id: None, hops, returned_by }))
        };
        assert_eq!(again(&others, false, 1, None), None, "what arrived from another node stays");
        assert_eq!(again(&others, false, 1, Some(NodeId::new("x").unwrap())), Some(ready));
        assert_eq!(again(&others, false, 1, Some(ready)), Some(old));
        assert_eq!(again(&others[..1], false, 1, Some(old)), None);
        assert_eq!(again(&others, false, Envelope::MAX_HOPS, Some(old)), None, "no detour is endless");
        assert_eq!(again(&with_own, true, 1, Some(old)), None, "this node has sessions");
    }

    #[test]
    fn a_violation_is_logged_once_for_each_node_and_again_after_it_left() {
        let state = PeerState::default();
        let [a, b] = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        for _ in 0..3 {
            for violation in PeerViolation::ALL {
                state.is_first(a, violation);
            }
        }
        assert_eq!(state.logged.lock().len(), PeerViolation::ALL.len(), "bounded");
        assert!(!state.is_first(a, PeerViolation::Claim) && state.is_first(b, PeerViolation::Claim));
        state.forget_node(a);
        assert!(state.is_first(a, PeerViolation::Claim) && !state.is_first(b, PeerViolation::Claim));
    }
}
