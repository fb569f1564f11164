//! Hand-overs to other nodes whose result is outstanding: receipts for the streams of senders, and the order of stanzas to
//! an address whose home moves.
//!
//! A hand-over ends with a receipt of the other node that covers or names its ticket, or when its envelope has returned and
//! was handled here. Either can happen before the thread that sent the envelope knows its ticket. While such a thread is at
//! work, returns and receipts of unknown tickets are remembered for it.
//!
//! The *path* of an address leads to the node that acts as its home: that to which its stanzas are handed over, or this one. When
//! the home moves, a stanza from a client's stream takes the new path only once everything on the old one has ended: otherwise it
//! could overtake a stanza that returns from the old home, or that the old home has sent to a further node. A stanza that has returned is
//! on a path of its own until it was handled here: its recipient may have logged in again where it returned from.
//!
//! Stanzas that have returned must not wait for each other in their lane. So one that finds an earlier one on its way to a further node
//! follows it there, even if that node has no session any more: it returns behind it, or finds the recipient where that one did.
//!
//! A node that does not settle a hand-over within [`MAX_OPEN_SECONDS`], although it stays a member, fails its receipt, and later
//! stanzas take the new path: it must not stop the streams of clients. If such a hand-over returns after its sender received
//! the error, it is dropped. Hand-overs of other senders to the node are not affected.
//!
//! A message that is being stored is on a path, too, which leads to this node. It must be in the store before a later one is handed to
//! the node where its recipient has logged in meanwhile.
//!
//! Not implemented: the order of stanzas that do not come from a client's stream when a home moves. A stanza that waited in a
//! lane could wait for itself, because the stanza that ends the old path may have to pass the same lane.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::ops::Bound;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use cluster::{Envelope, NodeId, PeerViolation, RefusalReason, RefusedEnvelope, Ticket};
use hashbrown::HashMap;
use smallvec::SmallVec;
use stanza::{StanzaCondition, StanzaError};
use throng_core::receipt::{AttachedReceipt, Receipt, ReceiptIssuer, receipt_pair};
use throng_core::router::lanes::LaneCompletion;

use super::home::PeerState;
use crate::ClusteredNode;

/// Octets of presence that one node has not settled: half of the queue, so that presence never takes the room of messages.
/// Further presence becomes due (`due_presence`).
const MAX_PRESENCE_OCTETS: usize = 2 << 20;
/// The same of forwarded requests and responses, which are clients' and as long as these choose.
pub(super) const MAX_FORWARDED_OCTETS: usize = 2 << 20;

/// Envelopes whose octets that one node has not settled have a bound of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundedEnvelopes {
    Presence,
    Forwarded,
}

impl BoundedEnvelopes {
    const COUNT: usize = 2;
}

/// Seconds after which a hand-over that its node has not settled is given up: longer than the detection of a lost node, and than
/// a message waits for the store.
const MAX_OPEN_SECONDS: u32 = 30;

/// The path of an address: its hash, and the node that acts as its home.
pub(super) type AddressPath = (u64, NodeId);

/// What must happen when a hand-over ends.
#[derive(Debug, Default)]
struct OpenHandover {
    /// The receipt of the sender's stanza.
    issuer: Option<ReceiptIssuer>,
    /// The path that it uses.
    path: Option<AddressPath>,
    /// Its octets, if there is a bound for them.
    bounded: Option<(BoundedEnvelopes, usize)>,
    /// Second of the node's clock at which it was sent.
    sent_at: u32,
    /// It was given up, and its sender has received an error.
    failed: bool,
}

/// Hand-overs to one node.
#[derive(Default)]
struct NodeHandovers {
    open: BTreeMap<Ticket, OpenHandover>,
    /// Everything up to this ticket has ended.
    ended: Option<Ticket>,
    /// Unknown tickets after it that have ended, while envelopes are being sent.
    ended_later: BTreeSet<Ticket>,
    /// Those up to this ticket that are still open were given up.
    given_up: Option<Ticket>,
    /// Envelopes that are being sent: `open` may not have them yet.
    sending: usize,
    /// Envelopes that returned meanwhile: their receipts, and whether what has returned ends their path.
    returned: BTreeMap<Ticket, (Receipt, bool)>,
    /// Octets that have not ended, of each kind that has a bound.
    bounded: [usize; BoundedEnvelopes::COUNT],
}

impl NodeHandovers {
    /// A hand-over has ended.
    fn release_octets(&mut self, bounded: Option<(BoundedEnvelopes, usize)>) {
        if let Some((kind, octets)) = bounded {
            self.bounded[kind as usize] -= octets;
        }
    }

    /// An envelope was sent, or not accepted.
    fn end_sending(&mut self) {
        self.sending = self.sending.saturating_sub(1);
        if self.sending == 0 {
            (self.returned, self.ended_later) = (BTreeMap::new(), BTreeSet::new());
        }
    }

    fn has_ended(&self, ticket: Ticket) -> bool {
        self.ended >= Some(ticket) || self.ended_later.contains(&ticket)
    }
}

/// Hand-overs for one address, with their number for each node.
#[derive(Default)]
struct AddressPaths {
    /// In the order of the latest hand-over.
    nodes: SmallVec<[(NodeId, u32); 1]>,
    /// Hand-overs that have returned and are being handled here.
    returned: u32,
    waiting: Vec<Waker>,
}

impl AddressPaths {
    fn has_other(&self, home: NodeId) -> bool {
        self.returned > 0 || self.nodes.iter().any(|(node, _)| *node != home)
    }

    /// Ends one hand-over to this node. True if it was the last one.
    fn close(&mut self, node: NodeId) -> bool {
        let Some(at) = self.nodes.iter().position(|(other, _)| *other == node) else { return false };
        self.nodes[at].1 -= 1;
        let is_last = self.nodes[at].1 == 0;
        if is_last {
            self.nodes.remove(at);
        }
        is_last
    }
}

#[derive(Default)]
struct HandoverState {
    nodes: BTreeMap<NodeId, NodeHandovers>,
    /// By hash: two addresses with one hash wait for each other, which is harmless.
    paths: HashMap<u64, AddressPaths>,
}

impl HandoverState {
    fn open_path(&mut self, (path, node): AddressPath) {
        let nodes = &mut self.paths.entry(path).or_default().nodes;
        let known = nodes.iter().position(|(other, _)| *other == node);
        let open = known.map_or(0, |at| nodes.remove(at).1);
        nodes.push((node, open.saturating_add(1)));
    }

    /// Ends one hand-over of an address. Those that wait for it must be woken after the lock is released.
    fn close_path(&mut self, path: Option<AddressPath>, woken: &mut Vec<Waker>) {
        let Some((path, node)) = path else { return };
        if self.paths.get_mut(&path).is_some_and(|paths| paths.close(node)) {
            self.free_path(path, woken);
        }
    }

    /// A hand-over of an address has returned.
    fn begin_return(&mut self, (path, node): AddressPath) {
        if let Some(paths) = self.paths.get_mut(&path) {
            paths.close(node);
            paths.returned = paths.returned.saturating_add(1);
        }
    }

    /// It was handled here.
    fn end_return(&mut self, path: u64, woken: &mut Vec<Waker>) {
        let Some(paths) = self.paths.get_mut(&path) else { return };
        paths.returned = paths.returned.saturating_sub(1);
        if paths.returned == 0 {
            self.free_path(path, woken);
        }
    }

    /// A kind of hand-over of an address has ended: those that wait look at it again.
    fn free_path(&mut self, path: u64, woken: &mut Vec<Waker>) {
        let Some(paths) = self.paths.get_mut(&path) else { return };
        woken.append(&mut paths.waiting);
        if paths.nodes.is_empty() && paths.returned == 0 {
            self.paths.remove(&path);
            if self.paths.is_empty() {
                self.paths = HashMap::new();
            }
        }
    }
}

/// Hand-overs whose result is outstanding.
#[derive(Default)]
pub(super) struct Handovers(LeafMutex<HandoverState>);

impl Handovers {
    /// An envelope is about to be sent.
    fn begin(&self, node: NodeId, path: Option<AddressPath>) {
        let mut state = self.0.lock();
        state.nodes.entry(node).or_default().sending += 1;
        if let Some(path) = path {
            state.open_path(path);
        }
    }

    /// The envelope was accepted with this ticket, or not at all. Returns its receipt, unless it has ended already.
    fn sent(
        &self,
        node: NodeId,
        path: Option<AddressPath>,
        ticket: Option<Ticket>,
        needs_receipt: bool,
        now: u32,
    ) -> Option<Receipt> {
        let mut woken = Vec::new();
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let at = state.nodes.entry(node).or_default();
        let ticket = ticket.filter(|ticket| ticket.has_receipt());
        let returned = ticket.and_then(|ticket| at.returned.remove(&ticket));
        let open = ticket.filter(|ticket| !at.has_ended(*ticket));
        at.end_sending();
        let receipt = match (returned, open) {
            (Some((receipt, ends_path)), _) => {
                // Otherwise its path ends when it was handled here.
                state.close_path(path.filter(|_| !ends_path), &mut woken);
                Some(receipt).filter(|_| needs_receipt)
            }
            (None, Some(ticket)) => {
                let (issuer, receipt) = needs_receipt.then(receipt_pair).unzip();
                at.open
                    .insert(ticket, OpenHandover { issuer, path, sent_at: now, ..OpenHandover::default() });
                receipt
            }
            (None, None) => {
                state.close_path(path, &mut woken);
                None
            }
        };
        drop(guard);
        woken.into_iter().for_each(Waker::wake);
        receipt
    }

    /// `envelopes` with these octets in all are about to be sent. False if they must wait until others of their kind have
    /// ended, because these and they have more octets than `most`.
    pub(super) fn begin_bounded(
        &self,
        node: NodeId,
        kind: BoundedEnvelopes,
        envelopes: usize,
        octets: usize,
        most: usize,
    ) -> bool {
        let mut state = self.0.lock();
        let at = state.nodes.entry(node).or_default();
        let open = &mut at.bounded[kind as usize];
        if *open > 0 && *open + octets > most {
            return false;
        }
        *open += octets;
        at.sending += envelopes;
        true
    }

    /// One of these envelopes was accepted with this ticket, or not at all.
    pub(super) fn bounded_sent(
        &self,
        node: NodeId,
        kind: BoundedEnvelopes,
        octets: usize,
        ticket: Option<Ticket>,
        now: u32,
    ) {
        let mut state = self.0.lock();
        let at = state.nodes.entry(node).or_default();
        let bounded = Some((kind, octets));
        let ticket = ticket.filter(|ticket| ticket.has_receipt() && !at.has_ended(*ticket));
        match ticket.filter(|ticket| at.returned.remove(ticket).is_none()) {
            Some(ticket) => {
                let open = OpenHandover { bounded, sent_at: now, ..OpenHandover::default() };
                at.open.insert(ticket, open);
            }
            None => at.release_octets(bounded),
        }
        at.end_sending();
    }

    /// A receipt covers the tickets up to the first, and names the `later` ones. None of them has returned.
    pub(super) fn end(&self, node: NodeId, up_to: Ticket, later: &[Ticket]) {
        let mut woken = Vec::new();
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let Some(at) = state.nodes.get_mut(&node) else { return };
        let next = Ticket { sequence: up_to.sequence.saturating_add(1), ..up_to };
        let open = at.open.split_off(&next);
        let mut ended = std::mem::replace(&mut at.open, open);
        at.ended = at.ended.max(Some(up_to));
        at.ended_later = at.ended_later.split_off(&next);
        for ticket in later {
            match at.open.remove(ticket) {
                Some(open) => drop(ended.insert(*ticket, open)),
                None if at.sending > 0 => drop(at.ended_later.insert(*ticket)),
                None => {}
            }
        }
        ended.values().for_each(|handover| at.release_octets(handover.bounded));
        for handover in ended.values() {
            state.close_path(handover.path, &mut woken);
        }
        drop(guard);
        for issuer in ended.into_values().filter_map(|handover| handover.issuer) {
            issuer.settle(Ok(()));
        }
        woken.into_iter().for_each(Waker::wake);
    }

    /// An envelope has returned. `path`: that of its stanza, if it certainly has one.
    fn returned(&self, by: NodeId, ticket: Ticket, path: Option<AddressPath>) -> OpenHandover {
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let Some(at) = state.nodes.get_mut(&by) else { return OpenHandover::default() };
        let open = match at.open.remove(&ticket) {
            Some(open) => {
                at.release_octets(open.bounded);
                open
            }
            None if at.sending == 0 => return OpenHandover::default(),
            None => {
                let (issuer, receipt) = receipt_pair();
                at.returned.insert(ticket, (receipt, path.is_some()));
                OpenHandover { issuer: Some(issuer), path, ..OpenHandover::default() }
            }
        };
        if let Some(path) = open.path {
            state.begin_return(path);
        }
        open
    }

    /// What has returned was handled here.
    fn end_return(&self, path: u64) {
        let mut woken = Vec::new();
        self.0.lock().end_return(path, &mut woken);
        woken.into_iter().for_each(Waker::wake);
    }

    /// A node has left. Every ticket has ended before; a receipt that is left fails, because nothing else would settle it.
    pub(super) fn forget_node(&self, node: NodeId) {
        let mut woken = Vec::new();
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let Some(at) = state.nodes.get_mut(&node) else { return };
        let open = std::mem::take(&mut at.open);
        open.values().for_each(|handover| at.release_octets(handover.bounded));
        at.given_up = None;
        if at.sending == 0 {
            state.nodes.remove(&node);
        }
        for handover in open.values() {
            state.close_path(handover.path, &mut woken);
        }
        drop(guard);
        drop(open);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Gives up what was not settled in time. Returns the nodes that did not, with the number of hand-overs.
    fn give_up_overdue(&self, now: u32) -> Vec<(NodeId, u64)> {
        let (mut woken, mut failed, mut slow) = (Vec::new(), Vec::new(), Vec::new());
        let mut paths = Vec::new();
        let mut guard = self.0.lock();
        let state = &mut *guard;
        for (node, at) in &mut state.nodes {
            let mut count = 0;
            let from = at.given_up.map_or(Bound::Unbounded, Bound::Excluded);
            for (ticket, open) in at.open.range_mut((from, Bound::Unbounded)) {
                if now.saturating_sub(open.sent_at) < MAX_OPEN_SECONDS {
                    break;
                }
                at.given_up = Some(*ticket);
                let (issuer, path) = (open.issuer.take(), open.path.take());
                count += u64::from(issuer.is_some() || path.is_some());
                open.failed = issuer.is_some();
                failed.extend(issuer);
                paths.extend(path);
            }
            slow.extend((count > 0).then_some((*node, count)));
        }
        for path in paths {
            state.close_path(Some(path), &mut woken);
        }
        drop(guard);
        for issuer in failed {
            issuer.settle(Err(StanzaError::new(StanzaCondition::ResourceConstraint)));
        }
        woken.into_iter().for_each(Waker::wake);
        slow
    }

    fn open_path(&self, path: AddressPath) {
        self.0.lock().open_path(path);
    }

    fn close_path(&self, path: AddressPath) {
        let mut woken = Vec::new();
        self.0.lock().close_path(Some(path), &mut woken);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Whether hand-overs of this address to other nodes than `home` are outstanding.
    fn uses_other_path(&self, path: u64, home: NodeId) -> bool {
        self.0.lock().paths.get(&path).is_some_and(|paths| paths.has_other(home))
    }

    /// The node of the latest hand-over of this address among the nodes with open ones, other than `except`.
    pub(super) fn other_open_path(&self, path: u64, except: NodeId) -> Option<NodeId> {
        let state = self.0.lock();
        let nodes = &state.paths.get(&path)?.nodes;
        nodes.iter().rev().map(|(node, _)| *node).find(|node| *node != except)
    }

    /// Ready when all hand-overs of this address to other nodes than `home` have ended.
    fn poll_old_path(&self, path: u64, home: NodeId, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        let Some(paths) = state.paths.get_mut(&path).filter(|paths| paths.has_other(home)) else {
            return Poll::Ready(());
        };
        if !paths.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            paths.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

/// A hand-over that has returned and is being handled here. Dropped before it is settled, it fails the receipt.
pub(super) struct ReturnedHandover {
    state: Arc<PeerState>,
    open: OpenHandover,
    /// The sender's stream waits until the message is safe.
    tracks_delivery: bool,
}

impl ReturnedHandover {
    fn close_path(&mut self) {
        if let Some((path, _)) = self.open.path.take() {
            self.state.handovers.end_return(path);
        }
    }

    /// The stanza is safe, or its sender has received an error.
    pub(super) fn settle(mut self) {
        self.close_path();
        if let Some(issuer) = self.open.issuer.take() {
            issuer.settle(Ok(()));
        }
    }
}

impl LaneCompletion for ReturnedHandover {
    fn tracks_delivery(&self) -> bool {
        self.tracks_delivery
    }

    fn routed(&mut self) {
        self.close_path();
    }

    fn complete(self: Box<Self>) {
        self.settle();
    }
}

impl Drop for ReturnedHandover {
    fn drop(&mut self) {
        self.close_path();
    }
}

impl ClusteredNode<'_> {
    /// Sends a stanza to another node. `path`: later stanzas of streams to its recipient must not take another one until it has
    /// ended. Returns its receipt, if it needs one and has not ended already.
    pub(super) fn hand_over(
        &self,
        node: NodeId,
        envelope: Envelope,
        path: Option<AddressPath>,
        needs_receipt: bool,
    ) -> Result<Option<Receipt>, Box<RefusedEnvelope>> {
        let handovers = &self.state.handovers;
        handovers.begin(node, path);
        let sent = self.cluster.deliver(node, envelope);
        let ticket = sent.as_ref().ok().copied();
        let receipt = handovers.sent(node, path, ticket, needs_receipt, self.seconds());
        sent.map(|_| receipt)
    }

    /// Sends presence to another node.
    pub(super) fn hand_over_presence(&self, node: NodeId, envelope: Envelope) -> Result<(), RefusalReason> {
        let (kind, octets) = (BoundedEnvelopes::Presence, envelope.encoded_len());
        if !self.state.handovers.begin_bounded(node, kind, 1, octets, MAX_PRESENCE_OCTETS) {
            return Err(RefusalReason::QueueFull);
        }
        self.hand_over_begun(node, kind, envelope, octets)
    }

    /// Sends one of the envelopes of [`Handovers::begin_bounded`].
    pub(super) fn hand_over_begun(
        &self,
        node: NodeId,
        kind: BoundedEnvelopes,
        envelope: Envelope,
        octets: usize,
    ) -> Result<(), RefusalReason> {
        let sent = self.cluster.deliver(node, envelope);
        let ticket = sent.as_ref().ok().copied();
        self.state.handovers.bounded_sent(node, kind, octets, ticket, self.seconds());
        sent.map(drop).map_err(|refused| refused.reason)
    }

    /// What a stanza must wait for before it may go to `home`, if its recipient was elsewhere before.
    pub(super) fn wait_for_old_path(&self, path: u64, home: NodeId) -> Option<BoxFuture<'static, ()>> {
        if !self.state.handovers.uses_other_path(path, home) {
            return None;
        }
        let state = self.state.clone();
        Some(Box::pin(poll_fn(move |cx| state.handovers.poll_old_path(path, home, cx))))
    }

    /// The receipt of a message that this node writes: until then, later ones for its recipient must not go to another node.
    pub(super) fn hold_path(&self, attached: AttachedReceipt) -> AttachedReceipt {
        let AttachedReceipt { stanza, receipt: written } = attached;
        let Some(path) = stanza.recipient().map(|to| self.routing_table.hash(to.as_ref())) else {
            return AttachedReceipt { stanza, receipt: written };
        };
        let (issuer, receipt) = receipt_pair();
        let (state, path) = (self.state.clone(), (path, self.cluster.node()));
        self.state.handovers.open_path(path);
        let task = async move {
            let outcome = poll_fn(|cx| written.poll_outcome(cx)).await;
            state.handovers.close_path(path);
            issuer.settle(outcome);
        };
        self.spawner.spawn("receipt", Box::pin(task));
        AttachedReceipt { stanza, receipt }
    }

    /// Gives up what other nodes did not settle in time. Called by the sweep.
    pub(super) fn give_up_overdue_handovers(&self, now: u32) {
        for (node, count) in self.state.handovers.give_up_overdue(now) {
            // A correct node may be slow, too: its store may fail for this time.
            self.count_violations(node, PeerViolation::Unsettled, count, |node| {
                tracing::warn!(%node, "a node has not settled envelopes in time, so they failed; further cases are counted only");
            });
        }
    }

    /// An envelope has returned from the node to which this one sent it. `None` if it was given up, and its sender has received
    /// an error.
    pub(super) fn returned_handover(
        &self,
        by: NodeId,
        envelope: &Envelope,
        path: Option<AddressPath>,
    ) -> Option<ReturnedHandover> {
        let open = self.state.handovers.returned(by, envelope.ticket(), path);
        if open.failed {
            return None;
        }
        let tracks_delivery = envelope.header.tracks_delivery;
        Some(ReturnedHandover { state: self.state.clone(), open, tracks_delivery })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_core::receipt::ReceiptOutcome;

    const PATH: u64 = 7;
    const PRESENCE: BoundedEnvelopes = BoundedEnvelopes::Presence;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn ticket(sequence: u64) -> Ticket {
        Ticket { epoch: 1, sequence }
    }

    fn poll(receipt: &Receipt) -> Poll<ReceiptOutcome> {
        receipt.poll_outcome(&mut Context::from_waker(Waker::noop()))
    }

    fn begin_presence(handovers: &Handovers, to: NodeId, octets: usize) -> bool {
        handovers.begin_bounded(to, PRESENCE, 1, octets, MAX_PRESENCE_OCTETS)
    }

    fn send(handovers: &Handovers, to: NodeId, sequence: u64) -> Option<Receipt> {
        handovers.begin(to, Some((PATH, to)));
        handovers.sent(to, Some((PATH, to)), Some(ticket(sequence)), true, 0)
    }

    #[test]
    fn a_receipt_of_the_other_node_covers_all_tickets_up_to_its_own() {
        let (handovers, a) = (Handovers::default(), node("a"));
        let receipts: Vec<Receipt> = [3, 5, 9].map(|n| send(&handovers, a, n).unwrap()).into();
        handovers.end(node("b"), ticket(9), &[]);
        handovers.end(a, ticket(5), &[]);
        let outcomes: Vec<_> = receipts.iter().map(poll).collect();
        assert_eq!(outcomes, [Poll::Ready(Ok(())), Poll::Ready(Ok(())), Poll::Pending]);
        assert!(handovers.uses_other_path(PATH, node("b")));
        handovers.end(a, ticket(100), &[]);
        assert_eq!(poll(&receipts[2]), Poll::Ready(Ok(())));
        assert!(handovers.0.lock().paths.is_empty());
    }

    #[test]
    fn what_is_settled_late_delays_no_other_hand_over() {
        let (handovers, a) = (Handovers::default(), node("a"));
        let late = send(&handovers, a, 1).unwrap();
        let others: Vec<Receipt> = [2, 3, 4].map(|n| send(&handovers, a, n).unwrap()).into();
        begin_presence(&handovers, a, 100);
        handovers.bounded_sent(a, PRESENCE, 100, Some(ticket(5)), 0);
        handovers.end(a, ticket(0), &[ticket(2), ticket(4), ticket(5)]);
        let outcomes: Vec<_> = others.iter().map(poll).collect();
        assert_eq!(outcomes, [Poll::Ready(Ok(())), Poll::Pending, Poll::Ready(Ok(()))]);
        assert_eq!(handovers.0.lock().nodes[&a].bounded, [0, 0]);
        handovers.end(a, ticket(0), &[ticket(3)]);
        assert_eq!((poll(&others[1]), poll(&late)), (Poll::Ready(Ok(())), Poll::Pending));
        assert_eq!(handovers.give_up_overdue(MAX_OPEN_SECONDS), [(a, 1)]);
        let error = StanzaError::new(StanzaCondition::ResourceConstraint);
        assert_eq!(poll(&late), Poll::Ready(Err(error)));
        handovers.end(a, ticket(5), &[]);
        let state = handovers.0.lock();
        assert!(state.nodes[&a].open.is_empty() && state.paths.is_empty());
    }

    #[test]
    fn a_hand_over_that_ends_before_its_ticket_is_known_needs_no_receipt() {
        for (up_to, later) in [(4, vec![]), (2, vec![ticket(4)])] {
            let (handovers, a) = (Handovers::default(), node("a"));
            handovers.begin(a, Some((PATH, a)));
            handovers.end(a, ticket(up_to), &later);
            assert!(handovers.sent(a, Some((PATH, a)), Some(ticket(4)), true, 0).is_none());
            begin_presence(&handovers, a, 100);
            handovers.end(a, ticket(up_to), &[ticket(7)]);
            handovers.bounded_sent(a, PRESENCE, 100, Some(ticket(7)), 0);
            let state = handovers.0.lock();
            assert!(state.paths.is_empty());
            let at = &state.nodes[&a];
            assert!(at.bounded == [0, 0] && at.open.is_empty() && at.ended_later.is_empty());
        }
    }

    #[test]
    fn one_that_returns_before_its_ticket_is_known_is_safe_when_it_was_handled() {
        let (handovers, a) = (Handovers::default(), node("a"));
        handovers.begin(a, Some((PATH, a)));
        let open = handovers.returned(a, ticket(4), Some((PATH, a)));
        handovers.end(a, ticket(0), &[ticket(4)]);
        let receipt =
            handovers.sent(a, Some((PATH, a)), Some(ticket(4)), true, 0).expect("it is being handled");
        assert_eq!(poll(&receipt), Poll::Pending);
        let other = ["a", "b"].map(|home| handovers.uses_other_path(PATH, node(home)));
        assert_eq!(other, [true; 2], "later stanzas must follow it");
        open.issuer.unwrap().settle(Ok(()));
        handovers.end_return(open.path.unwrap().0);
        assert_eq!(poll(&receipt), Poll::Ready(Ok(())));
        assert!(handovers.0.lock().paths.is_empty());
    }

    /// An envelope whose chain has run does not tell whether its stanza came from a stream.
    #[test]
    fn the_path_of_one_that_returns_before_its_ticket_is_known_ends_although_its_envelope_names_none() {
        let (handovers, [own, a, b]) = (Handovers::default(), ["own", "a", "b"].map(node));
        handovers.begin(b, Some((PATH, own)));
        assert!(handovers.uses_other_path(PATH, a) && !handovers.uses_other_path(PATH, own));
        let open = handovers.returned(b, ticket(4), None);
        assert!(handovers.sent(b, Some((PATH, own)), Some(ticket(4)), true, 0).is_some());
        assert!(open.path.is_none() && handovers.0.lock().paths.is_empty());
        handovers.begin(b, Some((PATH, own)));
        assert!(handovers.sent(b, Some((PATH, own)), Some(ticket(5)), false, 0).is_none());
        assert!(handovers.uses_other_path(PATH, b), "it leads to this node");
        handovers.end(b, ticket(5), &[]);
        assert!(handovers.0.lock().paths.is_empty());
    }

    #[test]
    fn what_returns_and_is_unknown_is_remembered_only_while_something_is_being_sent() {
        let (handovers, a) = (Handovers::default(), node("a"));
        handovers.begin(a, None);
        for sequence in 0..100 {
            drop(handovers.returned(a, ticket(sequence), None));
        }
        assert!(handovers.sent(a, None, None, true, 0).is_none());
        assert!(handovers.0.lock().nodes[&a].returned.is_empty());
        assert!(handovers.returned(a, ticket(200), Some((PATH, a))).issuer.is_none());
    }

    #[test]
    fn a_stanza_waits_until_everything_on_the_old_path_has_ended() {
        let (handovers, [a, b]) = (Handovers::default(), ["a", "b"].map(node));
        let mut cx = Context::from_waker(Waker::noop());
        let _receipts = [1, 2].map(|n| send(&handovers, a, n));
        assert!(!handovers.uses_other_path(PATH, a) && handovers.uses_other_path(PATH, b));
        assert!(!handovers.uses_other_path(PATH + 1, b), "another address");
        assert!(handovers.poll_old_path(PATH, b, &mut cx).is_pending());
        handovers.end(a, ticket(1), &[]);
        assert!(handovers.poll_old_path(PATH, b, &mut cx).is_pending());
        let returned = handovers.returned(a, ticket(2), Some((PATH, a)));
        handovers.end(a, ticket(2), &[]);
        assert!(handovers.poll_old_path(PATH, b, &mut cx).is_pending(), "it is being handled");
        assert!(
            handovers.poll_old_path(PATH, a, &mut cx).is_pending(),
            "it must not be overtaken there either"
        );
        handovers.end_return(returned.path.unwrap().0);
        assert!(handovers.poll_old_path(PATH, a, &mut cx).is_ready());
        assert!(handovers.poll_old_path(PATH, b, &mut cx).is_ready());
        assert!(handovers.0.lock().paths.is_empty());
    }

    #[test]
    fn what_has_returned_follows_the_latest_that_is_on_its_way_and_not_to_where_it_was() {
        let (handovers, [a, b, c]) = (Handovers::default(), ["a", "b", "c"].map(node));
        let _receipts = [(a, 1), (b, 2), (c, 3)].map(|(to, n)| send(&handovers, to, n));
        assert_eq!(handovers.other_open_path(PATH, a), Some(c));
        assert_eq!(handovers.other_open_path(PATH, c), Some(b));
        assert_eq!(handovers.other_open_path(PATH + 1, a), None, "another address");
        let _again = send(&handovers, a, 4);
        assert_eq!(handovers.other_open_path(PATH, b), Some(a), "the latest hand-over decides");
        handovers.end(a, ticket(0), &[ticket(4)]);
        handovers.end(b, ticket(2), &[]);
        assert_eq!(handovers.other_open_path(PATH, c), Some(a));
        let returned = handovers.returned(a, ticket(1), Some((PATH, a)));
        assert_eq!(handovers.other_open_path(PATH, c), None, "its own way has ended");
        handovers.end_return(returned.path.unwrap().0);
        handovers.end(c, ticket(3), &[]);
        assert!(handovers.0.lock().paths.is_empty());
    }

    #[test]
    fn presence_has_a_bound_until_it_has_ended() {
        let (handovers, a) = (Handovers::default(), node("a"));
        let size = MAX_PRESENCE_OCTETS / 2;
        let send = |sequence: u64| {
            begin_presence(&handovers, a, size) && {
                handovers.bounded_sent(a, PRESENCE, size, Some(ticket(sequence)), 0);
                true
            }
        };
        assert!(send(1) && send(2) && !send(3));
        handovers.end(a, ticket(1), &[]);
        assert!(send(4) && !send(5));
        drop(handovers.returned(a, ticket(2), None));
        assert!(begin_presence(&handovers, a, size));
        handovers.bounded_sent(a, PRESENCE, size, None, 0);
        assert!(send(6) && !send(7), "the one that was not accepted takes no room");
        assert!(begin_presence(&handovers, node("b"), 2 * MAX_PRESENCE_OCTETS), "a large one alone");
        handovers.forget_node(a);
        assert!(send(8), "a new one");
    }

    #[test]
    fn what_a_node_does_not_settle_in_time_fails_and_does_not_stop_its_way() {
        let (handovers, [a, b]) = (Handovers::default(), ["a", "b"].map(node));
        let old = send(&handovers, a, 1).unwrap();
        handovers.begin(a, Some((PATH, a)));
        let late = handovers.sent(a, Some((PATH, a)), Some(ticket(2)), true, 10).unwrap();
        begin_presence(&handovers, a, 100);
        handovers.bounded_sent(a, PRESENCE, 100, Some(ticket(3)), 10);
        assert!(handovers.give_up_overdue(MAX_OPEN_SECONDS - 1).is_empty());
        assert_eq!(handovers.give_up_overdue(MAX_OPEN_SECONDS), [(a, 1)]);
        let error = StanzaError::new(StanzaCondition::ResourceConstraint);
        assert_eq!((poll(&old), poll(&late)), (Poll::Ready(Err(error)), Poll::Pending));
        assert!(handovers.uses_other_path(PATH, b), "the later one");
        assert!(handovers.returned(a, ticket(1), Some((PATH, a))).failed, "its sender has the error");
        assert_eq!(handovers.give_up_overdue(MAX_OPEN_SECONDS + 10), [(a, 1)]);
        assert!(!handovers.uses_other_path(PATH, b) && handovers.give_up_overdue(u32::MAX).is_empty());
        handovers.end(a, ticket(3), &[]);
        assert_eq!(handovers.0.lock().nodes[&a].bounded, [0, 0]);
        let next = send(&handovers, a, 4).unwrap();
        handovers.end(a, ticket(0), &[ticket(4)]);
        assert_eq!(poll(&next), Poll::Ready(Ok(())));
    }

    #[test]
    fn receipts_of_a_node_that_left_without_ending_them_fail() {
        let (handovers, a) = (Handovers::default(), node("a"));
        let receipt = send(&handovers, a, 1).unwrap();
        handovers.forget_node(a);
        let error = StanzaError::new(StanzaCondition::InternalServerError);
        assert_eq!(poll(&receipt), Poll::Ready(Err(error)));
        let state = handovers.0.lock();
        assert!(state.nodes.is_empty() && state.paths.is_empty());
    }

    #[test]
    fn an_envelope_that_was_not_accepted_leaves_nothing() {
        let (handovers, a) = (Handovers::default(), node("a"));
        handovers.begin(a, Some((PATH, a)));
        assert!(handovers.sent(a, Some((PATH, a)), None, true, 0).is_none());
        let state = handovers.0.lock();
        assert!(state.paths.is_empty() && state.nodes[&a].open.is_empty());
    }
}
