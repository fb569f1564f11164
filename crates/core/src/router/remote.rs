//! Accounts whose sessions are on other nodes: stanzas to them, from them, and back.
//!
//! A stanza for an account without a session here goes to every node that the cluster locates. The first of them, with
//! the oldest claim, is the account's home and answers for it: if it refuses the stanza or is gone, this node handles the
//! stanza as if nobody were located. Copies for the other nodes end with a refusal. A stanza keeps the id that it was
//! given before it left.
//!
//! Not implemented: one run of the recipient's chain for all nodes (each node runs it for its own sessions), stanzas
//! from a home to other nodes, session facts, reactions to invalidations.
//!
//! # Pitfalls
//!
//! Recipients in an envelope are claims of another node. Each is compared with the routing table by number or text, and
//! refused if this node does not have it; it is never forwarded again.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::TimeOrderedId;
use base::lock::LeafMutex;
use cluster::{
    AddressNumber, Claim, Envelope, EnvelopeKind, HandoverResult, Inbox, Member, MembershipChange, NodeId,
    PeerViolation, Recipient, Ticket,
};
use jid::{Jid, JidRef};
use store::AddressId;

use super::RoutingWork;
use crate::account::Account;
use crate::node::Node;
use crate::shared_stanza::{QueueClass, SharedStanza};

/// As [`EnvelopeKind::RunChain`], for a node that is not the home of the recipient: nobody handles what it refuses, because
/// the home has the stanza too.
const COPY: EnvelopeKind = EnvelopeKind::Engine(0);

/// A stanza that another node handed over, or that returned from one: it is not sent to another node again.
#[derive(Clone, Copy, Default)]
pub(crate) struct HandedOver {
    /// The stanza id that it was given.
    pub(crate) stanza_id: Option<TimeOrderedId>,
}

/// What is remembered about other nodes.
#[derive(Default)]
pub(crate) struct PeerState {
    /// Violations that have been logged.
    logged: LeafMutex<BTreeSet<(NodeId, PeerViolation)>>,
}

impl PeerState {
    /// Whether this is the first violation of its kind by this node since it joined.
    fn is_first(&self, from: NodeId, violation: PeerViolation) -> bool {
        self.logged.lock().insert((from, violation))
    }

    fn forget_node(&self, node: NodeId) {
        self.logged.lock().retain(|(other, _)| *other != node);
    }
}

/// The account's number on all nodes; none for a user without an account.
fn number(account: &Account) -> Option<AddressNumber> {
    (account.id != AddressId::UNASSIGNED).then_some(account.id.0)
}

impl Node {
    /// Announces to the other nodes that an account has a session here.
    pub(crate) fn claim_account(&self, account: &Account) {
        if !self.cluster.is_single() {
            self.cluster.claim(Claim {
                address: account.hash,
                number: number(account),
                since: self.clock.unix_millis(),
                takes_messages: false,
            });
        }
    }

    /// Announces to the other nodes that an account has no session here.
    pub(crate) fn release_account(&self, account: &Account) {
        if !self.cluster.is_single() {
            self.cluster.release(account.hash, number(account));
        }
    }

    /// Announces to the other nodes whether a session of the account takes messages. Must be called after a session
    /// became available or unavailable, or changed its priority.
    pub fn announce_readiness(&self, account: &Account) {
        if self.cluster.is_single() {
            return;
        }
        account.with(|state| {
            let ready = state.sessions.iter().any(|s| s.priority().is_some_and(|priority| priority >= 0));
            self.cluster.set_takes_messages(account.hash, number(account), ready);
        });
    }

    /// Sends a stanza whose chain has not begun to the nodes that have sessions of the recipient, unless it was handed
    /// over before. True if any accepted it.
    pub(crate) fn forward_to_cluster(
        &self,
        stanza: &SharedStanza,
        to: JidRef<'_>,
        handed_over: Option<HandedOver>,
    ) -> bool {
        if self.cluster.is_single() || handed_over.is_some() {
            return false;
        }
        let own = self.cluster.node();
        let class = match stanza.class() {
            QueueClass::Control => cluster::EnvelopeClass::Control,
            QueueClass::Message => cluster::EnvelopeClass::Message,
            QueueClass::Presence => cluster::EnvelopeClass::Presence,
        };
        let location = self.cluster.locate(self.routing_table.hash(to), None);
        let mut others = location.other_nodes(own).peekable();
        if others.peek().is_none() {
            return false;
        }
        let id = (stanza.class() == QueueClass::Message).then(|| self.next_stanza_id());
        let recipients = vec![Recipient::Address(to.to_jid())];
        let envelope =
            Envelope::new(EnvelopeKind::RunChain, class, own, recipients, stanza.bytes()).with_stanza_id(id);
        let mut accepted = false;
        for node in others {
            let mut envelope = envelope.clone();
            if accepted {
                envelope.header.kind = COPY;
            }
            accepted |= self.cluster.deliver(node, envelope).is_ok();
        }
        accepted
    }

    /// Handles the recipients of an envelope that no other node took: this node acts as their home.
    fn handle_returned(self: &Arc<Self>, envelope: &Envelope) {
        let Some((stanza, from)) = read_stanza(envelope) else { return };
        let mut work = RoutingWork::default();
        for recipient in &envelope.recipients {
            let Some(to) = self.returned_address(recipient, &stanza) else { continue };
            match envelope.header.kind {
                EnvelopeKind::RunChain => {
                    work.handed_over = Some(HandedOver { stanza_id: envelope.header.stanza_id });
                    self.incoming(stanza.clone(), from.as_ref(), to.as_ref(), 0, &mut work);
                }
                // The chain has run, and ends as for a session that is gone.
                EnvelopeKind::ChainHasRun => {
                    self.undelivered(stanza.clone(), from.as_ref(), to.as_ref(), 0, &mut work);
                }
                _ => {}
            }
        }
        self.run_effects_spawned(work);
    }

    /// The text of a recipient that was sent by reference is in the stanza.
    fn returned_address(&self, recipient: &Recipient, stanza: &SharedStanza) -> Option<Jid> {
        match recipient {
            Recipient::Address(to) => Some(to.clone()),
            Recipient::Account(reference) | Recipient::Session(reference, _) => {
                stanza_recipient(stanza).filter(|to| self.routing_table.hash(to.as_ref()) == reference.hash)
            }
        }
    }

    /// The account of a recipient that another node named, with the address to which the stanza goes. `None` if it has
    /// no session here.
    fn find_recipient(&self, recipient: &Recipient, stanza: &SharedStanza) -> Option<(Arc<Account>, Jid)> {
        match recipient {
            Recipient::Address(to) => Some((self.routing_table.find(to.as_ref())?, to.clone())),
            Recipient::Account(reference) => {
                let id = Some(AddressId(reference.number)).filter(|id| *id != AddressId::UNASSIGNED)?;
                let account = self.routing_table.find_by_id(reference.hash, id)?;
                // Its resource, if it has one, is in the stanza.
                let full = stanza_recipient(stanza).filter(|to| to.as_ref().bare() == account.jid.as_ref());
                let to = full.unwrap_or_else(|| account.jid.clone());
                Some((account, to))
            }
            // This node has announced no session by number.
            Recipient::Session(..) => None,
        }
    }
}

/// The stanza of an envelope and its sender.
fn read_stanza(envelope: &Envelope) -> Option<(SharedStanza, Jid)> {
    let stanza = SharedStanza::read(&envelope.bytes)?;
    let from = stanza.head().from(stanza.bytes()).and_then(|from| Jid::parse(&from).ok())?;
    Some((stanza, from))
}

fn stanza_recipient(stanza: &SharedStanza) -> Option<Jid> {
    stanza.head().to(stanza.bytes()).and_then(|to| Jid::parse(&to).ok())
}

/// Receives envelopes from other nodes.
#[derive(Debug)]
pub struct ClusterInbox(pub Arc<Node>);

impl ClusterInbox {
    fn receive_stanza(&self, from: NodeId, envelope: Envelope) {
        let node = &self.0;
        let Some((stanza, sender)) = read_stanza(&envelope) else {
            self.on_violation(from, PeerViolation::Payload);
            return settle(node, from, &envelope, HandoverResult::Refused);
        };
        let mut work = RoutingWork::default();
        let mut refused = Vec::new();
        for (position, recipient) in (0_u16..).zip(&envelope.recipients) {
            let Some((account, to)) = node.find_recipient(recipient, &stanza) else {
                refused.push(position);
                continue;
            };
            if envelope.header.kind != EnvelopeKind::ChainHasRun {
                work.handed_over = Some(HandedOver { stanza_id: envelope.header.stanza_id });
                node.incoming(stanza.clone(), sender.as_ref(), to.as_ref(), 0, &mut work);
            } else {
                node.deliver_after_chain(&account, stanza.clone(), sender.as_ref(), to.as_ref(), &mut work);
            }
        }
        node.metrics.cluster_refused.inc_by(refused.len() as u64);
        let result = HandoverResult::of(envelope.recipients.len(), refused);
        match node.run_effects(work) {
            None => settle(node, from, &envelope, result),
            Some(rest) => {
                let node = node.clone();
                let spawner = node.spawner.clone();
                let settled = async move {
                    rest.await;
                    settle(&node, from, &envelope, result);
                };
                spawner.spawn("routing", Box::pin(settled));
            }
        }
    }
}

/// Tells the sender's node the result. What it can no longer learn, this node handles.
fn settle(node: &Arc<Node>, from: NodeId, envelope: &Envelope, result: HandoverResult) {
    let ticket = envelope.ticket();
    if !ticket.has_receipt() || node.cluster.settle(from, ticket, result.clone()) {
        return;
    }
    if let Some(refused) = envelope.clone().refused(&result) {
        node.handle_returned(&refused);
    }
}

impl Inbox for ClusterInbox {
    fn on_envelope(&self, from: NodeId, envelope: Envelope) {
        match envelope.header.kind {
            EnvelopeKind::RunChain | EnvelopeKind::ChainHasRun | COPY => self.receive_stanza(from, envelope),
            EnvelopeKind::SessionFacts | EnvelopeKind::Invalidation(_) => {
                settle(&self.0, from, &envelope, HandoverResult::Safe);
            }
            EnvelopeKind::Engine(_) => {
                self.on_violation(from, PeerViolation::Kind);
                settle(&self.0, from, &envelope, HandoverResult::Refused);
            }
        }
    }

    fn on_receipts(&self, from: NodeId, up_to: Ticket) {
        // Nothing waits for a hand-over: the sender's stanza counts as handled when it is queued for the other node.
        tracing::trace!(node = %from, sequence = up_to.sequence, "envelopes are safe");
    }

    fn on_refused(&self, _from: NodeId, envelope: Envelope) {
        self.0.handle_returned(&envelope);
    }

    fn on_undelivered(&self, _to: NodeId, envelope: Envelope) {
        self.0.handle_returned(&envelope);
    }

    fn on_membership_change(&self, change: MembershipChange) {
        match change {
            MembershipChange::Joined(Member { node, epoch, version }) => {
                tracing::info!(%node, epoch, version, "a node joined the cluster");
            }
            MembershipChange::Left { node, claims } => {
                self.0.peers.forget_node(node);
                tracing::info!(%node, claims = claims.len(), "a node left the cluster");
            }
        }
    }

    fn on_violation(&self, from: NodeId, violation: PeerViolation) {
        self.0.metrics.cluster_violations.inc([violation.as_str()]);
        if self.0.peers.is_first(from, violation) {
            tracing::error!(node = %from, %violation, "a node sent what no correct node sends; further ones are counted only");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_is_logged_once_for_each_node_and_again_after_it_left() {
        let peers = PeerState::default();
        let [a, b] = ["a", "b"].map(|name| NodeId::new(name).unwrap());
        for _ in 0..3 {
            for violation in PeerViolation::ALL {
                peers.is_first(a, violation);
            }
        }
        assert_eq!(peers.logged.lock().len(), PeerViolation::ALL.len(), "bounded");
        assert!(!peers.is_first(a, PeerViolation::Claim) && peers.is_first(b, PeerViolation::Claim));
        peers.forget_node(a);
        assert!(peers.is_first(a, PeerViolation::Claim) && !peers.is_first(b, PeerViolation::Claim));
    }
}
