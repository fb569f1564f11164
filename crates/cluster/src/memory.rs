//! In-process cluster for tests: seeded delay, loss, duplication, partitions and crashes, without real time.
//!
//! [`Bus::step`] is one tick of the only clock; the same seed and the same calls give the same run. The faults
//! apply to frames between two nodes, and not to membership, except for partitions: nodes that are cut off from
//! each other for [`FAILURE_DETECTION_TICKS`] ticks consider each other dead. On top of the faulty frames, each
//! pair of nodes implements invariants 3 and 4 of the crate: sequence numbers, cumulative acknowledgements, and
//! retransmission from the oldest unacknowledged frame (go-back-n). Claims use the same channel and start with
//! a snapshot, so they cannot be lost either.
//!
//! # Pitfalls
//!
//! Inboxes are called at the end of a step, after the lock is released; calls caused by `leave` or `join`
//! arrive with the next step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use fastrand::Rng;

use crate::{
    AddressLocation, Cluster, Envelope, Inbox, Member, MembershipChange, NodeId, RefusalReason,
    RefusedEnvelope,
};

/// Ticks after which nodes that cannot reach each other consider each other dead.
pub const FAILURE_DETECTION_TICKS: u64 = 40;
/// Ticks after which unacknowledged frames are sent again.
const RESEND_TICKS: u64 = 8;
/// Octets of unacknowledged envelopes for each pair and direction.
const QUEUE_BYTES: usize = 4 << 20;

/// Faults of frames in transit.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkFaults {
    /// Frames lost, per thousand; below 1000.
    pub drop: u16,
    /// Frames duplicated, per thousand.
    pub duplicate: u16,
    /// Maximum extra delay in ticks, which lets frames overtake one another.
    pub delay: u16,
}

/// The network. Clones share the same network.
#[derive(Clone)]
pub struct Bus(Arc<LeafMutex<Network>>);

impl Bus {
    /// A network without nodes.
    pub fn new(seed: u64, faults: NetworkFaults) -> Bus {
        Bus(Arc::new(LeafMutex::new(Network { random: Rng::with_seed(seed), faults, ..Network::default() })))
    }

    /// A node joins, or returns with a new epoch; its former epoch ends immediately then.
    pub fn join(&self, node: NodeId) -> Arc<MemoryNode> {
        let mut net = self.0.lock();
        net.remove_member(node, false);
        net.epoch += 1;
        let member = Member { node, epoch: net.epoch, version: Envelope::VERSION };
        let others: Vec<NodeId> = net.nodes.keys().copied().collect();
        net.nodes.insert(node, MemberState { member, inbox: None, claims: BTreeMap::new() });
        net.cuts.retain(|pair, cut| !(cut.crash && (pair.0 == node || pair.1 == node)));
        others.into_iter().for_each(|other| net.connect(node, other));
        Arc::new(MemoryNode { net: Arc::clone(&self.0), member })
    }

    /// A node crashes without notice. The others detect it after [`FAILURE_DETECTION_TICKS`] ticks.
    pub fn crash(&self, node: NodeId) {
        let mut net = self.0.lock();
        net.nodes.remove(&node);
        let since = net.tick;
        let peers: Vec<NodeId> = net.nodes.keys().copied().collect();
        for peer in peers {
            net.cuts.entry(pair(node, peer)).or_insert(Cut { since, crash: true });
        }
    }

    /// Partitions two nodes: no frame passes between them.
    pub fn cut(&self, one: NodeId, other: NodeId) {
        let mut net = self.0.lock();
        let since = net.tick;
        net.cuts.entry(pair(one, other)).or_insert(Cut { since, crash: false });
    }

    /// Ends a partition.
    pub fn heal(&self, one: NodeId, other: NodeId) {
        let mut net = self.0.lock();
        net.cuts.remove(&pair(one, other));
        net.connect(one, other);
    }

    /// One tick. Returns whether anything is still in transit.
    pub fn step(&self) -> bool {
        let (calls, busy) = {
            let mut net = self.0.lock();
            net.tick();
            (std::mem::take(&mut net.calls), net.is_busy())
        };
        let called = !calls.is_empty();
        for (inbox, call) in calls {
            match call {
                InboxCall::Envelope(from, envelope) => inbox.on_envelope(from, envelope),
                InboxCall::Undelivered(to, envelope) => inbox.on_undelivered(to, envelope),
                InboxCall::Changed(change) => inbox.on_membership_change(change),
            }
        }
        called || busy
    }

    /// Steps until nothing is in transit; `false` if that takes more than 100 000 ticks (inboxes that answer
    /// permanently).
    pub fn run_until_idle(&self) -> bool {
        (0..100_000).any(|_| !self.step())
    }
}

/// One node of a [`Bus`].
pub struct MemoryNode {
    net: Arc<LeafMutex<Network>>,
    member: Member,
}

impl MemoryNode {
    /// Whether this epoch of the node is over: it left, crashed, or joined again.
    fn is_stale(&self, net: &Network) -> bool {
        net.nodes.get(&self.member.node).is_none_or(|node| node.member != self.member)
    }

    /// Runs `change` on the claims; it returns what the others must receive.
    fn update_claims(&self, change: impl FnOnce(&mut BTreeMap<u64, u32>) -> Option<FrameBody>) {
        let mut net = self.net.lock();
        if self.is_stale(&net) {
            return;
        }
        let Some(body) = net.nodes.get_mut(&self.member.node).and_then(|node| change(&mut node.claims))
        else {
            return;
        };
        for peer in net.peers(self.member.node) {
            net.send_reliable(self.member.node, peer, body.clone());
        }
    }
}

impl Cluster for MemoryNode {
    fn node(&self) -> NodeId {
        self.member.node
    }

    fn attach(&self, inbox: Arc<dyn Inbox>) {
        let mut net = self.net.lock();
        if self.is_stale(&net) {
            return;
        }
        let own = self.member.node;
        let Some(node) = net.nodes.get_mut(&own).filter(|node| node.inbox.is_none()) else { return };
        node.inbox = Some(inbox);
        let joined = net.links.iter().filter(|((from, _), _)| *from == own).map(|(_, link)| link.receiver);
        for member in joined.collect::<Vec<_>>() {
            net.call(own, InboxCall::Changed(MembershipChange::Joined(member)));
        }
    }

    fn members(&self) -> Vec<Member> {
        let net = self.net.lock();
        if self.is_stale(&net) {
            return Vec::new();
        }
        // A crashed node stays a member until its peers detect it; the channel still knows its epoch.
        let of_links = net.links.iter().filter(|((from, _), _)| *from == self.member.node);
        let mut members: Vec<Member> = of_links.map(|(_, link)| link.receiver).chain([self.member]).collect();
        members.sort_by_key(|member| member.node);
        members
    }

    fn locate(&self, address: u64) -> AddressLocation {
        let net = self.net.lock();
        let own = self.member.node;
        if self.is_stale(&net) {
            return AddressLocation::Nowhere;
        }
        let here = net.nodes.get(&own).is_some_and(|node| node.claims.contains_key(&address));
        let seen = net.links.iter().filter(|((_, to), link)| *to == own && link.view.contains(&address));
        let mut nodes: Vec<NodeId> =
            here.then_some(own).into_iter().chain(seen.map(|((from, _), _)| *from)).collect();
        nodes.sort();
        AddressLocation::of(own, &nodes)
    }

    fn claim(&self, address: u64) {
        self.update_claims(|claims| {
            let count = claims.entry(address).or_insert(0);
            *count += 1;
            (*count == 1).then_some(FrameBody::Claim(address))
        });
    }

    fn release(&self, address: u64) {
        self.update_claims(|claims| {
            let count = claims.get_mut(&address)?;
            *count -= 1;
            (*count == 0).then(|| claims.remove(&address)).map(|_| FrameBody::Release(address))
        });
    }

    fn deliver(&self, node: NodeId, mut envelope: Envelope) -> Result<(), Box<RefusedEnvelope>> {
        let mut net = self.net.lock();
        let own = self.member;
        let refuse = |why, envelope| Err(Box::new(RefusedEnvelope { node, reason: why, envelope }));
        if node == own.node {
            return refuse(RefusalReason::OwnNode, envelope);
        }
        let alive = !self.is_stale(&net);
        let Some(link) = net.links.get_mut(&(own.node, node)).filter(|_| alive) else {
            return refuse(RefusalReason::UnknownNode, envelope);
        };
        let kept = envelope.header.class.is_reliable();
        envelope.header.origin = own.node;
        envelope.header.epoch = own.epoch;
        envelope.header.sequence = if kept { link.next } else { link.next_loose };
        let mut bytes = Vec::new();
        if envelope.encode(&mut bytes).is_err() {
            return refuse(RefusalReason::TooLarge, envelope);
        }
        if kept && link.queued + bytes.len() > QUEUE_BYTES {
            return refuse(RefusalReason::QueueFull, envelope);
        }
        let body = FrameBody::Envelope(bytes.into());
        if kept {
            net.send_reliable(own.node, node, body);
        } else {
            link.next_loose += 1;
            let (life, number) = (link.incarnation, envelope.header.sequence);
            net.transmit(own.node, node, life, Frame::Unreliable(number, body));
        }
        Ok(())
    }

    fn broadcast(&self, envelope: Envelope) -> Vec<RefusedEnvelope> {
        let peers = self.net.lock().peers(self.member.node);
        peers
            .into_iter()
            .filter_map(|peer| self.deliver(peer, envelope.clone()).err().map(|refused| *refused))
            .collect()
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut net = self.net.lock();
            if !self.is_stale(&net) {
                net.remove_member(self.member.node, true);
            }
        })
    }
}

/// A frame between two nodes.
#[derive(Clone)]
enum FrameBody {
    Snapshot(Vec<u64>),
    Claim(u64),
    Release(u64),
    Envelope(Arc<[u8]>),
}

impl FrameBody {
    fn len(&self) -> usize {
        if let FrameBody::Envelope(bytes) = self { bytes.len() } else { 0 }
    }
}

#[derive(Clone)]
enum Frame {
    Reliable(u64, FrameBody),
    Unreliable(u64, FrameBody),
    /// Everything below this number has arrived.
    Ack(u64),
}

enum InboxCall {
    Envelope(NodeId, Envelope),
    Undelivered(NodeId, Envelope),
    Changed(MembershipChange),
}

struct MemberState {
    member: Member,
    inbox: Option<Arc<dyn Inbox>>,
    claims: BTreeMap<u64, u32>,
}

/// One direction between two members: the state of sender and receiver.
struct Channel {
    /// Frames of a former channel between the same nodes are ignored.
    incarnation: u64,
    receiver: Member,
    next: u64,
    next_loose: u64,
    unacked: VecDeque<(u64, FrameBody)>,
    queued: usize,
    sent_at: u64,
    expected: u64,
    expected_loose: u64,
    view: BTreeSet<u64>,
}

struct Cut {
    since: u64,
    crash: bool,
}

struct InFlightFrame {
    from: NodeId,
    to: NodeId,
    incarnation: u64,
    frame: Frame,
}

#[derive(Default)]
struct Network {
    random: Rng,
    faults: NetworkFaults,
    tick: u64,
    epoch: u64,
    /// Generates the incarnations of channels and the order of frames that are due in the same tick.
    serial: u64,
    nodes: BTreeMap<NodeId, MemberState>,
    links: BTreeMap<(NodeId, NodeId), Channel>,
    cuts: BTreeMap<(NodeId, NodeId), Cut>,
    flights: BTreeMap<(u64, u64), InFlightFrame>,
    calls: Vec<(Arc<dyn Inbox>, InboxCall)>,
}

fn pair(one: NodeId, other: NodeId) -> (NodeId, NodeId) {
    (one.min(other), one.max(other))
}

impl Network {
    fn peers(&self, node: NodeId) -> Vec<NodeId> {
        self.links.keys().filter(|(from, _)| *from == node).map(|(_, to)| *to).collect()
    }

    fn connect(&mut self, one: NodeId, other: NodeId) {
        if one == other || self.cuts.contains_key(&pair(one, other)) || self.links.contains_key(&(one, other))
        {
            return;
        }
        for (from, to) in [(one, other), (other, one)] {
            let (Some(sender), Some(receiver)) = (self.nodes.get(&from), self.nodes.get(&to)) else { return };
            let (claims, joined, receiver) =
                (sender.claims.keys().copied().collect(), sender.member, receiver.member);
            self.serial += 1;
            let link = Channel {
                incarnation: self.serial,
                receiver,
                next: 1,
                next_loose: 1,
                unacked: VecDeque::new(),
                queued: 0,
                sent_at: 0,
                expected: 1,
                expected_loose: 1,
                view: BTreeSet::new(),
            };
            self.links.insert((from, to), link);
            self.call(to, InboxCall::Changed(MembershipChange::Joined(joined)));
            self.send_reliable(from, to, FrameBody::Snapshot(claims));
        }
    }

    /// Ends both directions. Unacknowledged envelopes return to their sender; with `hand_over`, those that the
    /// receiver has not received go to it instead, and none that it has received are returned.
    fn disconnect(&mut self, one: NodeId, other: NodeId, hand_over: bool) {
        for (from, to) in [(one, other), (other, one)] {
            let Some(link) = self.links.remove(&(from, to)) else { continue };
            for (number, body) in link.unacked {
                let FrameBody::Envelope(bytes) = body else { continue };
                let Ok((envelope, _)) = Envelope::decode(&bytes) else { continue };
                if !hand_over {
                    self.call(from, InboxCall::Undelivered(to, envelope));
                } else if number >= link.expected {
                    self.call(to, InboxCall::Envelope(from, envelope));
                }
            }
            self.call(to, InboxCall::Changed(MembershipChange::Left(from)));
        }
    }

    fn remove_member(&mut self, node: NodeId, politely: bool) {
        // An epoch that ended without notice receives nothing more.
        let former = if politely { None } else { self.nodes.remove(&node) };
        for peer in self.peers(node) {
            let hand_over = politely && !self.cuts.contains_key(&pair(node, peer));
            self.disconnect(node, peer, hand_over);
        }
        drop(former.or_else(|| self.nodes.remove(&node)));
    }

    fn call(&mut self, to: NodeId, call: InboxCall) {
        if let Some(inbox) = self.nodes.get(&to).and_then(|node| node.inbox.clone()) {
            self.calls.push((inbox, call));
        }
    }

    fn send_reliable(&mut self, from: NodeId, to: NodeId, body: FrameBody) {
        let tick = self.tick;
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        let (life, number) = (link.incarnation, link.next);
        link.next += 1;
        link.queued += body.len();
        if link.unacked.is_empty() {
            link.sent_at = tick;
        }
        link.unacked.push_back((number, body.clone()));
        self.transmit(from, to, life, Frame::Reliable(number, body));
    }

    /// Transmits a frame, subject to the faults.
    fn transmit(&mut self, from: NodeId, to: NodeId, life: u64, frame: Frame) {
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

    fn tick(&mut self) {
        self.tick += 1;
        let over: Vec<_> = self
            .cuts
            .iter()
            .filter(|(_, cut)| self.tick == cut.since + FAILURE_DETECTION_TICKS)
            .map(|(key, _)| *key)
            .collect();
        for (one, other) in over {
            self.disconnect(one, other, false);
        }
        while let Some(first) = self.flights.first_entry().filter(|first| first.key().0 <= self.tick) {
            let flight = first.remove();
            self.arrive(flight);
        }
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
                    self.apply(key, body);
                }
                self.transmit(to, from, life, ack);
            }
            Frame::Unreliable(number, body) => {
                if number >= link.expected_loose {
                    link.expected_loose = number + 1;
                    self.apply(key, body);
                }
            }
            Frame::Ack(below) => {
                while let Some((_, body)) = link.unacked.pop_front_if(|(number, _)| *number < below) {
                    link.queued -= body.len();
                    link.sent_at = tick;
                }
            }
        }
    }

    fn apply(&mut self, (from, to): (NodeId, NodeId), body: FrameBody) {
        let Some(link) = self.links.get_mut(&(from, to)) else { return };
        match body {
            FrameBody::Snapshot(claims) => link.view = claims.into_iter().collect(),
            FrameBody::Claim(address) => {
                link.view.insert(address);
            }
            FrameBody::Release(address) => {
                link.view.remove(&address);
            }
            FrameBody::Envelope(bytes) => {
                if let Ok((envelope, _)) = Envelope::decode(&bytes) {
                    self.call(to, InboxCall::Envelope(from, envelope));
                }
            }
        }
    }

    fn is_busy(&self) -> bool {
        let unfinished = |link: &Channel| !link.unacked.is_empty();
        let pending = |(key, cut): (&(NodeId, NodeId), &Cut)| {
            self.tick < cut.since + FAILURE_DETECTION_TICKS && self.links.contains_key(key)
        };
        !self.flights.is_empty() || self.links.values().any(unfinished) || self.cuts.iter().any(pending)
    }

    fn chance(&mut self, per_mille: u16) -> bool {
        self.random.u16(..1000) < per_mille
    }
}
