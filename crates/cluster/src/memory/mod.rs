//! In-process cluster for tests: seeded delay, loss, duplication, partitions and crashes, without real time.
//!
//! [`Bus::step`] is one tick of the only clock; the same seed and the same calls give the same run. The faults
//! apply to frames between two nodes, and not to membership, except for partitions: nodes that are cut off from
//! each other for [`FAILURE_DETECTION_TICKS`] ticks consider each other dead. On top of the faulty frames, each
//! pair of nodes implements invariants 4 to 6 of the crate: sequence numbers, cumulative acknowledgements of frames, and
//! retransmission from the oldest unacknowledged frame (go-back-n). Claims and receipts use the same channel, and claims
//! start with a snapshot, so they cannot be lost either. An acknowledgement says that a frame arrived, and ends its
//! retransmission; a receipt says that an envelope was settled, and ends its retention.
//!
//! # Pitfalls
//!
//! Inboxes are called at the end of a step, after the lock is released; calls caused by `leave` or `join`
//! arrive with the next step.

mod network;

use std::sync::Arc;

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use fastrand::Rng;

use self::network::{Cut, Frame, FrameBody, MemberState, Network, pair};
use crate::claim::{ClaimBudget, ClaimChange, MAX_CLAIMS_PER_NODE, MAX_PEER_CLAIMS, OwnClaims};
use crate::{
    AddressLocation, AddressNumber, BroadcastResult, Claim, Cluster, Envelope, EnvelopeError, HandoverResult,
    Inbox, InboxCall, Member, MembershipChange, NodeClaim, NodeId, RefusalReason, RefusedEnvelope, Ticket,
};

/// Ticks after which nodes that cannot reach each other consider each other dead.
pub const FAILURE_DETECTION_TICKS: u64 = 40;
/// Ticks after which unacknowledged frames are sent again.
const RESEND_TICKS: u64 = 8;
/// Octets of envelopes without a receipt for each pair and direction.
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
        Bus(Arc::new(LeafMutex::new(Network::new(Rng::with_seed(seed), faults))))
    }

    /// A node joins, or returns with a new epoch; its former epoch ends immediately then.
    pub fn join(&self, node: NodeId) -> Arc<MemoryNode> {
        let mut net = self.0.lock();
        net.remove_member(node, false);
        net.epoch += 1;
        let member = Member { node, epoch: net.epoch, version: Envelope::VERSION, drains: false };
        let others: Vec<NodeId> = net.nodes.keys().copied().collect();
        let budget = ClaimBudget::new(MAX_PEER_CLAIMS, MAX_CLAIMS_PER_NODE);
        net.nodes.insert(node, MemberState { member, inbox: None, claims: OwnClaims::default(), budget });
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
        calls.into_iter().for_each(|(inbox, call)| call.run(&*inbox));
        called || busy
    }

    /// Number of envelopes that nodes have accepted for other nodes so far.
    pub fn envelopes(&self) -> u64 {
        self.0.lock().envelopes
    }

    /// Sends octets in place of an envelope, as a faulty node might. Nothing happens if the nodes are not connected.
    pub fn inject(&self, from: NodeId, to: NodeId, octets: &[u8]) {
        self.0.lock().send_reliable(from, to, FrameBody::Envelope(octets.into()));
    }

    /// Sends a claim that `from` never made, as a faulty node might.
    pub fn inject_claim(&self, from: NodeId, to: NodeId, claim: Claim) {
        self.0.lock().send_reliable(from, to, FrameBody::Claims(ClaimChange::Claimed(claim)));
    }

    /// Sends a receipt from `from` for envelopes of `to` up to this sequence number and for `later` ones, with refused
    /// recipients by sequence number and positions, as a faulty node might.
    pub fn inject_receipts(
        &self,
        from: NodeId,
        to: NodeId,
        up_to: u64,
        later: Vec<u64>,
        refused: Vec<(u64, HandoverResult)>,
    ) {
        self.0.lock().send_reliable(from, to, FrameBody::Receipts { up_to, later, refused });
    }

    /// Sends a frame again that was acknowledged, and one from far ahead, as a faulty node might.
    pub fn inject_numbers(&self, from: NodeId, to: NodeId) {
        self.0.lock().send_wrong_numbers(from, to);
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
        net.nodes.get(&self.member.node).is_none_or(|node| node.member.epoch != self.member.epoch)
    }

    /// Runs `change` on the claims; it returns what the others must receive.
    fn update_claims(&self, change: impl FnOnce(&mut OwnClaims) -> Option<ClaimChange>) {
        let mut net = self.net.lock();
        if self.is_stale(&net) {
            return;
        }
        let Some(change) = net.nodes.get_mut(&self.member.node).and_then(|node| change(&mut node.claims))
        else {
            return;
        };
        for peer in net.peers(self.member.node) {
            net.send_reliable(self.member.node, peer, FrameBody::Claims(change));
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
        let own = net.nodes.get(&self.member.node).map_or(self.member, |node| node.member);
        let of_links = net.links.iter().filter(|((from, _), _)| *from == own.node);
        let mut members: Vec<Member> = of_links.map(|(_, link)| link.receiver).chain([own]).collect();
        members.sort_by_key(|member| member.node);
        members
    }

    fn locate(&self, address: u64, number: Option<AddressNumber>) -> AddressLocation {
        let net = self.net.lock();
        let own = self.member.node;
        if self.is_stale(&net) {
            return AddressLocation::Nowhere;
        }
        let here = net.nodes.get(&own).into_iter().flat_map(|node| node.claims.find(address, number));
        let here = here.map(|claim| NodeClaim { node: own, claim });
        let elsewhere = net.links.iter().filter(|((_, to), _)| *to == own);
        let elsewhere = elsewhere.flat_map(|((from, _), link)| {
            link.view.find(address, number).map(|claim| NodeClaim { node: *from, claim })
        });
        AddressLocation::of(own, here.chain(elsewhere).collect())
    }

    fn claim(&self, claim: Claim) {
        self.update_claims(|claims| claims.claim(claim));
    }

    fn set_takes_messages(&self, address: u64, number: Option<AddressNumber>, takes_messages: bool) {
        self.update_claims(|claims| claims.set_takes_messages(address, number, takes_messages));
    }

    fn release(&self, address: u64, number: Option<AddressNumber>) {
        self.update_claims(|claims| claims.release(address, number));
    }

    fn deliver(&self, node: NodeId, mut envelope: Envelope) -> Result<Ticket, Box<RefusedEnvelope>> {
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
        if let Err(error) = envelope.encode(&mut bytes) {
            let too_large = error == EnvelopeError::TooLarge;
            let reason = if too_large { RefusalReason::TooLarge } else { RefusalReason::Undefined };
            return refuse(reason, envelope);
        }
        if kept && link.queued + bytes.len() > QUEUE_BYTES {
            return refuse(RefusalReason::QueueFull, envelope);
        }
        let body = FrameBody::Envelope(bytes.into());
        if !kept {
            link.next_loose += 1;
        }
        let (life, number) = (link.incarnation, envelope.header.sequence);
        net.envelopes += 1;
        if kept {
            net.send_reliable(own.node, node, body);
        } else {
            net.transmit(own.node, node, life, Frame::Unreliable(number, body));
        }
        Ok(envelope.ticket())
    }

    fn broadcast(&self, envelope: Envelope) -> BroadcastResult {
        let peers = self.net.lock().peers(self.member.node);
        let mut result = BroadcastResult::default();
        for peer in peers {
            match self.deliver(peer, envelope.clone()) {
                Ok(ticket) => result.accepted.push((peer, ticket)),
                Err(refused) => result.refused.push(*refused),
            }
        }
        result
    }

    fn settle(&self, from: NodeId, ticket: Ticket, result: HandoverResult) -> bool {
        let mut net = self.net.lock();
        if self.is_stale(&net) {
            return false;
        }
        net.settle((from, self.member.node), ticket, result)
    }

    fn begin_drain(&self) {
        let mut net = self.net.lock();
        if !self.is_stale(&net) {
            net.begin_drain(self.member.node);
        }
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
