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
//! # Pitfalls
//!
//! Recipients in an envelope are claims of another node. Each is compared with the routing table by number or text, and
//! refused if this node does not have it.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::lock::LeafMutex;
use cluster::{
    AddressLocation, AddressReference, Claim, Envelope, EnvelopeKind, NodeId, PeerViolation, Recipient,
    RefusalReason,
};
use jid::{Jid, JidRef};
use outbox::QUEUE_FULL_CONDITION;
use stanza::{StanzaCondition, StanzaKind};
use store::AddressId;
use throng_core::StanzaSource;
use throng_core::account::Account;
use throng_core::router::lanes::{CompletionShare, LaneCompletion, LaneStage, LaneStanza};
use throng_core::router::multicast::MULTICAST;
use throng_core::router::peer_routing::{address_number, envelope_class};
use throng_core::router::{HandedOver, HomeDecision, RoutingWork, StanzaOrigin};
use throng_core::shared_stanza::{QueueClass, SharedStanza};

use super::blocklist_changes::PendingBlocklistChanges;
use super::delivered_messages::DeliveredMessages;
use super::due_errors::DueErrors;
use super::due_presence::DuePresence;
use super::forwarded_requests::{ForwardedRequests, InboundRequests};
use super::handovers::{Handovers, ReturnedHandover};
use super::invalidation::AccountReads;
use super::lost_peers::{ContactsToWithdraw, EndedSubscriptions};
use super::node_queries::{InboundQueries, NodeQueries};
use super::noted_presence::DirectedPresenceFromPeers;
use super::presence_resync::{AccountPass, Resync};
use super::session_transfer::SessionTransfers;
use super::slices::SliceTable;
use super::stored_messages::RecentlyStored;
use crate::ClusteredNode;
use crate::envelope_kinds::{COPY, SERVICE_STANZA, SESSION_REQUEST};

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
    /// Messages of other nodes that clients here have taken.
    pub(super) delivered: DeliveredMessages,
    /// What nodes must receive again.
    pub(super) due_presence: DuePresence,
    /// Errors for senders on other nodes.
    pub(super) due_errors: DueErrors,
    /// Reading of all accounts after the loss of a node.
    pub(super) account_reading: AccountPass,
    /// Exchange of all presence with other nodes.
    pub(super) resync: Resync,
    /// Subscriptions that ended a moment ago.
    pub(super) ended_subscriptions: EndedSubscriptions,
    /// Contacts on lost nodes that subscribers still see.
    pub(super) contacts_to_withdraw: ContactsToWithdraw,
    /// Changes of blocklists that other nodes have not read.
    pub(super) pending_blocklist_changes: PendingBlocklistChanges,
    /// Entities here to which sessions on other nodes have sent directed presence.
    pub(super) directed_presence: DirectedPresenceFromPeers,
    /// Accounts that are being read because another node changed them.
    pub(super) reads: AccountReads,
    /// Recipients of messages that were stored here.
    pub(super) stored: RecentlyStored,
    /// Queries to other nodes.
    pub(super) queries: NodeQueries,
    /// What other nodes have asked.
    pub(super) inbound_queries: InboundQueries,
    /// Requests of clients that other nodes answer.
    pub(super) forwarded: ForwardedRequests,
    /// Requests of clients of other nodes.
    pub(super) inbound_requests: InboundRequests,
    /// Ownership of the items of services.
    pub(super) slices: SliceTable,
    /// Sessions that move between nodes.
    pub(super) transfers: SessionTransfers,
    /// Nodes that are lost: they may have been cut off, and may return with what they changed meanwhile.
    pub(super) lost: LeafMutex<BTreeSet<NodeId>>,
}

impl PeerState {
    /// Notes that a violation is logged. True if it is the first of its kind by this node since it joined.
    pub(super) fn mark_violation_logged(&self, from: NodeId, violation: PeerViolation) -> bool {
        self.logged.lock().insert((from, violation))
    }

    pub(super) fn forget_node(&self, node: NodeId) {
        self.logged.lock().retain(|(other, _)| *other != node);
        self.due_presence.forget_node(node);
        self.handovers.forget_node(node);
        self.queries.forget_node(node);
        self.inbound_requests.forget_node(node);
        self.transfers.forget_node(node);
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
        // A returned stanza follows the latest earlier one that is still on its way to another node, so that it cannot overtake it.
        let returned =
            handed_over.filter(|returned| returned.hops < Envelope::MAX_HOPS && needs_receipt(stanza));
        let returned_by = returned.and_then(|returned| returned.returned_by);
        let home = match returned_by.and_then(|by| self.state.handovers.other_open_path(hash, by)) {
            Some(node) => Some(node).filter(|node| *node != own),
            None => next_home(own, &location, account.is_some(), handed_over),
        };
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
            let refused = match self.hand_over(home, envelope, Some((hash, home)), needs_receipt) {
                Ok(receipt) => return HomeDecision::HandedOver(receipt),
                Err(refused) => refused,
            };
            self.metrics.cluster_not_queued.inc([refused.reason.as_str()]);
            // An error has no answer: refused, it would be dropped, although the sender's stream has counted the stanza that
            // it is for. It goes on as if the home had returned it, or waits; it needs no order.
            if stanza.kind().is_error() {
                if handed_over.is_none() {
                    let returned = HandedOver { stanza_id: id, hops: 0, returned_by: Some(home) };
                    let decision = self.hand_to_home(stanza, to, account, Some(returned), work);
                    if !matches!(decision, HomeDecision::Own) {
                        return decision;
                    }
                }
                let receives = |account: &Arc<Account>| match to.resource() {
                    Some(resource) => account.session(resource).is_some(),
                    None => true,
                };
                if !account.is_some_and(receives)
                    && refused.reason == RefusalReason::QueueFull
                    && self.error_is_due(home, refused.envelope)
                {
                    return HomeDecision::HandedOver(None);
                }
                return HomeDecision::Own;
            }
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
        // Until it has arrived, the path of its sender's stream must not change: it leads from here, or from the node of the sender,
        // which waits for the receipt. Of a copy, another node is responsible for the receipt.
        let path = (work.origin == StanzaOrigin::Stream).then_some((account.hash, own));
        let needs_receipt = !is_copy
            && (work.origin == StanzaOrigin::Peer || work.origin.awaits_receipts() && needs_receipt(stanza));
        match self.hand_over(node, envelope, path, needs_receipt) {
            Ok(receipt) => {
                work.attach(stanza.clone(), receipt);
                true
            }
            Err(refused) => {
                self.metrics.cluster_not_queued.inc([refused.reason.as_str()]);
                let waits =
                    !is_copy && stanza.kind().is_error() && refused.reason == RefusalReason::QueueFull;
                waits && self.error_is_due(node, refused.envelope)
            }
        }
    }

    /// An envelope has returned from the node to which this one sent it.
    pub(super) fn handle_return_of_own(&self, by: NodeId, envelope: &Envelope) {
        if envelope.header.kind == SESSION_REQUEST {
            return self.on_returned_session_request(by, envelope);
        }
        if envelope.header.kind == SERVICE_STANZA {
            return self.return_service_stanza(by, envelope);
        }
        let path = match envelope.recipients.first() {
            Some(Recipient::Address(to)) if envelope.header.kind == EnvelopeKind::RunChain => {
                Some((self.routing_table.hash(to.as_ref()), by))
            }
            _ => None,
        };
        let Some(handover) = self.returned_handover(by, envelope, path) else { return };
        self.handle_returned(by, envelope, Some(handover));
    }

    /// Handles the recipients of an envelope that no other node took: this node acts as their home. The receipt
    /// of an envelope with several recipients is that of a multicast: it follows when all of them are handled.
    pub(super) fn handle_returned(
        &self,
        by: NodeId,
        envelope: &Envelope,
        mut handover: Option<ReturnedHandover>,
    ) {
        let Some((stanza, from)) = read_stanza(envelope) else { return };
        let of_multicast = handover
            .take_if(|_| envelope.header.kind == MULTICAST)
            .map(|handover| Box::new(CompletionShare::new(Box::new(handover))));
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
                    self.return_multicast(by, envelope, &stanza, &from, to, of_multicast.as_deref());
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
        if let Some(share) = of_multicast {
            share.complete();
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
            // No node names sessions by number, so this one is unknown.
            Recipient::Session(..) => None,
        }
    }

    /// The account of a recipient that another node named, with the address to which the stanza goes. `None` if it has
    /// no session here.
    pub(super) fn find_recipient(
        &self,
        recipient: &Recipient,
        stanza: &SharedStanza,
    ) -> Option<(Arc<Account>, Jid)> {
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
                state.mark_violation_logged(a, violation);
            }
        }
        assert_eq!(state.logged.lock().len(), PeerViolation::ALL.len(), "bounded");
        assert!(
            !state.mark_violation_logged(a, PeerViolation::Claim)
                && state.mark_violation_logged(b, PeerViolation::Claim)
        );
        state.forget_node(a);
        assert!(
            state.mark_violation_logged(a, PeerViolation::Claim)
                && !state.mark_violation_logged(b, PeerViolation::Claim)
        );
    }
}
