//! The state of a [`super::Bus`]: its nodes, the channels between them, and the frames in transit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use fastrand::Rng;

use super::{FAILURE_DETECTION_TICKS, NetworkFaults, RESEND_TICKS};
use crate::claim::{ClaimBudget, ClaimChange, OwnClaims, PeerClaims};
use crate::{
    Claim, Envelope, HandoverResult, Inbox, InboxCall, Member, MembershipChange, NodeId, PeerViolation,
    Ticket,
};

/// Content of a frame between two nodes.
#[derive(Clone)]
pub(super) enum FrameBody {
    Snapshot(Vec<Claim>),
    Claims(ClaimChange),
    Envelope(Arc<[u8]>),
    /// The receiver has settled the sender's envelopes up to this number, and later ones, in order. Of these, the listed ones
    /// were not safe.
    Receipts {
        up_to: u64,
        later: Vec<u64>,
        refused: Vec<(u64, HandoverResult)>,
    },
}

impl FrameBody {
    fn len(&self) -> usize {
        if let FrameBody::Envelope(bytes) = self { bytes.len() } else { 0 }
    }
}

#[derive(Clone)]
pub(super) enum Frame {
    Reliable(u64, FrameBody),
    Unreliable(u64, FrameBody),
    /// Everything below this number has arrived.
    Ack(u64),
}

pub(super) struct MemberState {
    pub(super) member: Member,
    pub(super) inbox: Option<Arc<dyn Inbox>>,
    pub(super) claims: OwnClaims,
    /// For the claims of the others.
    pub(super) budget: Arc<ClaimBudget>,
}

/// One direction between two members: the state of sender and receiver.
pub(super) struct Channel {
    /// Frames of a former channel between the same nodes are ignored.
    pub(super) incarnation: u64,
    pub(super) sender: Member,
    pub(super) receiver: Member,
    pub(super) next: u64,
    pub(super) next_loose: u64,
    /// Frames that have not arrived as far as the sender knows: sent again.
    unacked: VecDeque<(u64, FrameBody)>,
    /// Envelopes without a receipt.
    unsettled: VecDeque<(u64, Arc<[u8]>)>,
    /// Octets of `unsettled`.
    pub(super) queued: usize,
    sent_at: u64,
    expected: u64,
    expected_loose: u64,
    /// The receiver's knowledge of the sender's claims.
    pub(super) view: PeerClaims,
    /// Envelopes that the receiver has and has not settled.
    outstanding: BTreeSet<u64>,
    /// Envelopes that were settled, and that no receipt covers.
    settled: Vec<u64>,
    /// Those of them that were not safe.
    refused: BTreeMap<u64, HandoverResult>,
    /// The last envelope that the receiver has.
    last_envelope: u64,
    /// What the last receipt covered.
    reported: u64,
}

impl Channel {
    /// The number up to which every envelope is settled.
    fn settled_up_to(&self) -> u64 {
        self.outstanding.first().map_or(self.last_envelope, |oldest| oldest - 1)
    }

    fn has_unreported(&self) -> bool {
        !self.settled.is_empty() || self.settled_up_to() > self.reported
    }
}

pub(super) struct Cut {
    pub(super) since: u64,
    pub(super) crash: bool,
}

struct InFlightFrame {
    from: NodeId,
    to: NodeId,
    incarnation: u64,
    frame: Frame,
}

#[derive(Default)]
pub(super) struct Network {
    random: Rng,
    faults: NetworkFaults,
    pub(super) tick: u64,
    pub(super) epoch: u64,
    pub(super) envelopes: u64,
    /// Generates the incarnations of channels and the order of frames that are due in the same tick.
    serial: u64,
    pub(super) nodes: BTreeMap<NodeId, MemberState>,
    pub(super) links: BTreeMap<(NodeId, NodeId), Channel>,
    /// Numbers at which the next channel of a pair begins: tickets increase across channels.
    numbers: BTreeMap<(NodeId, NodeId), (u64, u64)>,
    pub(super) cuts: BTreeMap<(NodeId, NodeId), Cut>,
    flights: BTreeMap<(u64, u64), InFlightFrame>,
    pub(super) calls: Vec<(Arc<dyn Inbox>, InboxCall)>,
}

pub(super) fn pair(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}

impl Network {
    pub(super) fn new(random: Rng, faults: NetworkFaults) -> Network {
        Network { random, faults, ..Network::default() }
    }

    pub(super) fn peers(&self, node: NodeId) -> Vec<NodeId> {
        self.links.keys().filter(|(from, _)| *from == node).map(|(_, to)| *to).collect()
    }

    pub(super) fn connect(&mut self, one: NodeId, other: NodeId) {
        if one == other || self.cuts.contains_key(&pair(one, other)) || self.links.contains_key(&(one, other))
        {
            return;
        }
        for (from, to) in [(one, other), (other, one)] {
            let (Some(sender), Some(receiver)) = (self.nodes.get(&from), self.nodes.get(&to)) else { return };
            let budget = receiver.budget.clone();
            let (claims, joined, receiver) = (sender.claims.all().collect(), sender.member, receiver.member);
            self.serial += 1;
            let (next, next_loose) = self.numbers.get(&(from, to)).copied().unwrap_or((1, 1));
            let link = Channel {
                incarnation: self.serial,
                sender: joined,
                receiver,
                next,
                next_loose,
                unacked: VecDeque::new(),
                unsettled: VecDeque::new(),
                queued: 0,
                sent_at: 0,
                expected: next,
                expected_loose: next_loose,
                view: PeerClaims::new(budget),
                outstanding: BTreeSet::new(),
                settled: Vec::new(),
                refused: BTreeMap::new(),
                last_envelope: next - 1,
                reported: next - 1,
            };
            self.links.insert((from, to), link);
            self.call(to, InboxCall::Changed(MembershipChange::Joined(joined)));
            self.send_reliable(from, to, FrameBody::Snapshot(claims));
        }
    }

    /// Ends both directions. Envelopes without a receipt return to their sender. If one of the nodes leaves politely, those
    /// that were not received go to the receiver instead, and of those that were received only the ones return that the
    /// leaver has not settled.
    pub(super) fn disconnect(&mut self, one: NodeId, other: NodeId, leaver: Option<NodeId>) {
        let ended = [(one, other), (other, one)].map(|key| (key, self.links.remove(&key)));
        let mut views = Vec::new();
        for ((from, to), link) in ended {
            let Some(link) = link else { continue };
            self.numbers.insert((from, to), (link.next, link.next_loose));
            let Channel { sender, expected, outstanding, refused, .. } = link;
            let open = !link.unsettled.is_empty();
            for (number, bytes) in link.unsettled {
                let Ok((envelope, _)) = Envelope::decode(&bytes) else { continue };
                if leaver.is_none() || (leaver == Some(to) && outstanding.contains(&number)) {
                    self.call(from, InboxCall::Undelivered(to, envelope));
                } else if number >= expected {
                    self.call(to, InboxCall::Envelope(from, envelope));
                } else if let Some(envelope) =
                    refused.get(&number).and_then(|result| envelope.refused(result))
                {
                    self.call(from, InboxCall::Refused(to, envelope));
                }
            }
            if open && leaver.is_some() {
                let up_to = Ticket { epoch: sender.epoch, sequence: link.next - 1 };
                self.call(from, InboxCall::Receipts(to, up_to, Vec::new()));
            }
            views.push((from, to, link.view));
        }
        for (node, to, view) in views {
            let claims = view.into_claims();
            let orderly = leaver.is_some();
            self.call(to, InboxCall::Changed(MembershipChange::Left { node, claims, orderly }));
        }
    }

    /// A member owns nothing any more. The others see it at once.
    pub(super) fn begin_drain(&mut self, node: NodeId) {
        let members = self.nodes.values_mut().map(|state| &mut state.member);
        let of_links = self.links.values_mut().flat_map(|link| [&mut link.sender, &mut link.receiver]);
        members.chain(of_links).filter(|member| member.node == node).for_each(|member| member.drains = true);
    }

    pub(super) fn remove_member(&mut self, node: NodeId, politely: bool) {
        // An epoch that ended without notice receives nothing more.
        let former = if politely { None } else { self.nodes.remove(&node) };
        for peer in self.peers(node) {
            let hand_over = politely && !self.cuts.contains_key(&pair(node, peer));
            self.disconnect(node, peer, hand_over.then_some(node));
        }
        drop(former.or_else(|| self.nodes.remove(&node)));
    }

    pub(super) fn call(&mut self, to: NodeId, call: InboxCall) {
        if let Some(inbox) = self.nodes.get(&to).and_then(|node| node.inbox.clone()) {
            self.calls.push((inbox, call));
        }
    }

    pub(super) fn send_reliable(&mut self, from: NodeId, to: NodeId, body: FrameBody) {
        let tick = self.tick;
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        let (life, number) = (link.incarnation, link.next);
        link.next += 1;
        link.queued += body.len();
        if link.unacked.is_empty() {
            link.sent_at = tick;
        }
        if let FrameBody::Envelope(bytes) = &body {
            link.unsettled.push_back((number, bytes.clone()));
        }
        link.unacked.push_back((number, body.clone()));
        self.transmit(from, to, life, Frame::Reliable(number, body));
    }

    /// Sends frames again whose numbers were used, and frames that skip numbers.
    pub(super) fn send_wrong_numbers(&mut self, from: NodeId, to: NodeId) {
        let (Some(link), Some(reverse)) = (self.links.get(&(from, to)), self.links.get(&(to, from))) else {
            return;
        };
        let (life, next, reverse) = (link.incarnation, link.next, reverse.incarnation);
        for number in [0, 1, next + 1_000_000, u64::MAX] {
            let body = FrameBody::Envelope(Arc::from(&[][..]));
            self.transmit(from, to, life, Frame::Reliable(number, body));
        }
        for number in [0, u64::MAX] {
            self.transmit(from, to, reverse, Frame::Ack(number));
        }
    }

    /// Transmits a frame, subject to the faults.
    pub(super) fn transmit(&mut self, from: NodeId, to: NodeId, life: u64, frame: Frame) {
        if self.chance(self.faults.drop) {
            return;
        }
        let copies = if self.chance(self.faults.duplicate) { 2 } else { 1 };
        for _ in 0..copies {
            let due = self.tick + 1 + self.random.u64(..=u64::from(self.faults.delay));
            self.serial += 1;
            self.flights.insert(
                (due, self.serial),
                InFlightFrame { from, to, incarnation: life, frame: frame.clone() },
            );
        }
    }

    pub(super) fn tick(&mut self) {
        self.tick += 1;
        let over: Vec<_> = self
            .cuts
            .iter()
            .filter(|(_, cut)| self.tick == cut.since + FAILURE_DETECTION_TICKS)
            .map(|(key, _)| *key)
            .collect();
        for (one, other) in over {
            self.disconnect(one, other, None);
        }
        while let Some(first) = self.flights.first_entry().filter(|first| first.key().0 <= self.tick) {
            let flight = first.remove();
            self.arrive(flight);
        }
        self.send_receipts();
        let late: Vec<_> = self
            .links
            .iter()
            .filter(|(_, link)| !link.unacked.is_empty() && self.tick >= link.sent_at + RESEND_TICKS)
            .map(|(key, _)| *key)
            .collect();
        for key in late {
            let tick = self.tick;
            let Some(link) = self.links.get_mut(&key) else { continue };
            link.sent_at = tick;
            let (life, again): (u64, Vec<_>) = (link.incarnation, link.unacked.iter().cloned().collect());
            for (number, body) in again {
                self.transmit(key.0, key.1, life, Frame::Reliable(number, body));
            }
        }
    }

    /// One receipt for each channel with newly settled envelopes.
    fn send_receipts(&mut self) {
        let mut due = Vec::new();
        for ((from, to), link) in &mut self.links {
            if link.has_unreported() {
                let up_to = link.settled_up_to();
                link.reported = up_to;
                let mut later = std::mem::take(&mut link.settled);
                later.retain(|number| *number > up_to);
                later.sort_unstable();
                let refused = std::mem::take(&mut link.refused).into_iter().collect();
                due.push((*to, *from, FrameBody::Receipts { up_to, later, refused }));
            }
        }
        for (from, to, body) in due {
            self.send_reliable(from, to, body);
        }
    }

    fn arrive(&mut self, InFlightFrame { from, to, incarnation: life, frame }: InFlightFrame) {
        if self.cuts.contains_key(&pair(from, to)) {
            return;
        }
        // An acknowledgement belongs to the channel in the other direction.
        let key = if matches!(frame, Frame::Ack(_)) { (to, from) } else { (from, to) };
        let tick = self.tick;
        let Some(link) = self.links.get_mut(&key).filter(|link| link.incarnation == life) else { return };
        match frame {
            Frame::Reliable(number, body) => {
                let news = number == link.expected;
                if news {
                    link.expected += 1;
                }
                let ack = Frame::Ack(link.expected);
                if news {
                    self.apply(key, Some(number), body);
                }
                self.transmit(to, from, life, ack);
            }
            Frame::Unreliable(number, body) => {
                if number >= link.expected_loose {
                    link.expected_loose = number.saturating_add(1);
                    self.apply(key, None, body);
                }
            }
            Frame::Ack(below) => {
                // What was never sent cannot have arrived.
                if below > link.next {
                    return;
                }
                while link.unacked.pop_front_if(|(number, _)| *number < below).is_some() {
                    link.sent_at = tick;
                }
            }
        }
    }

    /// `number`: that of a reliable frame.
    fn apply(&mut self, (from, to): (NodeId, NodeId), number: Option<u64>, body: FrameBody) {
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        let call = match &body {
            FrameBody::Snapshot(claims) => Some(InboxCall::ClaimedByJoined(from, claims.clone())),
            FrameBody::Claims(ClaimChange::Claimed(claim)) if !link.view.contains(claim) => {
                Some(InboxCall::Claimed(from, *claim))
            }
            _ => None,
        };
        let result = match body {
            FrameBody::Snapshot(claims) => link.view.replace(claims),
            FrameBody::Claims(change) => link.view.apply(change),
            FrameBody::Envelope(bytes) => self.receive((from, to), number, &bytes),
            FrameBody::Receipts { up_to, later, refused } => {
                self.end_tickets((to, from), up_to, &later, refused)
            }
        };
        match result {
            Ok(()) => call.into_iter().for_each(|call| self.call(to, call)),
            Err(violation) => self.call(to, InboxCall::Violation(from, violation)),
        }
    }

    fn receive(
        &mut self,
        (from, to): (NodeId, NodeId),
        number: Option<u64>,
        bytes: &[u8],
    ) -> Result<(), PeerViolation> {
        let attached = self.nodes.get(&to).is_some_and(|node| node.inbox.is_some());
        let Some(link) = self.links.get_mut(&(from, to)) else { return Ok(()) };
        let checked = match Envelope::decode(bytes) {
            Ok((envelope, [])) => {
                let header = &envelope.header;
                let own = header.origin == from
                    && header.epoch == link.sender.epoch
                    && header.class.is_reliable() == number.is_some()
                    && number.is_none_or(|number| header.sequence == number);
                if own { Ok(envelope) } else { Err(PeerViolation::Header) }
            }
            _ => Err(PeerViolation::Envelope),
        };
        if let Some(number) = number {
            link.last_envelope = number;
            if checked.is_err() || !attached {
                link.settled.push(number);
                link.refused.insert(number, HandoverResult::Refused);
            } else {
                link.outstanding.insert(number);
            }
        }
        let envelope = checked?;
        self.call(to, InboxCall::Envelope(from, envelope));
        Ok(())
    }

    /// Ends the tickets of the channel `key` that a receipt covers.
    fn end_tickets(
        &mut self,
        key: (NodeId, NodeId),
        up_to: u64,
        later: &[u64],
        refused: Vec<(u64, HandoverResult)>,
    ) -> Result<(), PeerViolation> {
        let Some(link) = self.links.get_mut(&key) else { return Ok(()) };
        let last = later.last().copied().unwrap_or(up_to).max(up_to);
        if last >= link.next || !later.is_sorted_by(|one, next| one < next) {
            return Err(PeerViolation::Receipt);
        }
        let is_covered = |number: u64| number <= up_to || later.binary_search(&number).is_ok();
        let mut ended = Vec::new();
        let queued = &mut link.queued;
        // Numbers increase, so nothing after the last one is visited.
        let end = link.unsettled.partition_point(|(number, _)| *number <= last);
        let kept: Vec<_> = link
            .unsettled
            .drain(..end)
            .filter_map(|(number, bytes)| {
                if !is_covered(number) {
                    return Some((number, bytes));
                }
                *queued -= bytes.len();
                ended.push((number, bytes));
                None
            })
            .collect();
        kept.into_iter().rev().for_each(|open| link.unsettled.push_front(open));
        let ticket = |sequence| Ticket { epoch: link.sender.epoch, sequence };
        let mut refused: BTreeMap<u64, HandoverResult> = refused.into_iter().collect();
        let (mut calls, mut later_tickets) = (Vec::new(), Vec::new());
        for (number, bytes) in &ended {
            if *number > up_to {
                later_tickets.push(ticket(*number));
            }
            let Some(result) = refused.remove(number) else { continue };
            let Ok((envelope, _)) = Envelope::decode(bytes) else { continue };
            match envelope.refused(&result) {
                Some(envelope) => calls.push(InboxCall::Refused(key.1, envelope)),
                None => drop(refused.insert(*number, result)),
            }
        }
        if !ended.is_empty() {
            calls.push(InboxCall::Receipts(key.1, ticket(up_to), later_tickets));
        }
        for call in calls {
            self.call(key.0, call);
        }
        // Refusals that belong to no envelope.
        if refused.is_empty() { Ok(()) } else { Err(PeerViolation::Receipt) }
    }

    /// Settles an envelope of the channel `key`. False if it has ended.
    pub(super) fn settle(&mut self, key: (NodeId, NodeId), ticket: Ticket, result: HandoverResult) -> bool {
        let Some(link) = self.links.get_mut(&key).filter(|link| link.sender.epoch == ticket.epoch) else {
            return false;
        };
        if !link.outstanding.remove(&ticket.sequence) {
            return false;
        }
        link.settled.push(ticket.sequence);
        if result != HandoverResult::Safe {
            link.refused.insert(ticket.sequence, result);
        }
        true
    }

    pub(super) fn is_busy(&self) -> bool {
        let unfinished = |link: &Channel| !link.unacked.is_empty() || link.has_unreported();
        let pending = |(key, cut): (&(NodeId, NodeId), &Cut)| {
            self.tick < cut.since + FAILURE_DETECTION_TICKS && self.links.contains_key(key)
        };
        !self.flights.is_empty() || self.links.values().any(unfinished) || self.cuts.iter().any(pending)
    }

    fn chance(&mut self, per_mille: u16) -> bool {
        self.random.u16(..1000) < per_mille
    }
}
