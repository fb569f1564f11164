//! Nodes over a simulated network: seeded loss, duplication, delay and cuts, and a clock that a test moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use base::clock::Millis;
use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use bytes::Bytes;
use cluster::conformance::TestCluster;
use cluster::{
    AddressLocation, AddressNumber, BroadcastResult, Claim, Cluster, Envelope, HandoverResult, Inbox, Member,
    NodeId, RefusedEnvelope, Ticket,
};
use fastrand::Rng;

use crate::cluster_key::ClusterKey;
use crate::protocol::core::Core;
use crate::protocol::directory::DirectoryLimits;
use crate::protocol::member_record::MemberRecord;

/// Faults of frames, per thousand, and the longest delay in milliseconds.
#[derive(Clone, Copy, Default)]
pub(super) struct Faults {
    pub(super) drop: u16,
    pub(super) duplicate: u16,
    pub(super) delay: u16,
}

/// A node, with the network that it is in.
pub(super) struct SimulatedNode {
    pub(super) core: Core,
    record: LeafMutex<Option<MemberRecord>>,
    network: Weak<SimulatedNetwork>,
}

struct Transit {
    now: Millis,
    epoch: u64,
    random: Rng,
    serial: u64,
    flights: BTreeMap<(u64, u64), (NodeId, NodeId, Bytes)>,
    /// Sender and receiver.
    cuts: BTreeSet<(NodeId, NodeId)>,
    /// Records as the bucket has them.
    records: BTreeMap<NodeId, (MemberRecord, Millis)>,
}

/// The network.
pub(super) struct SimulatedNetwork {
    faults: Faults,
    pub(super) nodes: LeafMutex<Vec<Arc<SimulatedNode>>>,
    transit: LeafMutex<Transit>,
}

pub(super) fn name(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn cluster_key() -> ClusterKey {
    ClusterKey::new(&[7; 32])
}

impl SimulatedNetwork {
    pub(super) fn new(names: &[&str], seed: u64, faults: Faults) -> Arc<SimulatedNetwork> {
        let transit = Transit {
            now: Millis(1),
            epoch: 0,
            random: Rng::with_seed(seed),
            serial: 0,
            flights: BTreeMap::new(),
            cuts: BTreeSet::new(),
            records: BTreeMap::new(),
        };
        let network = Arc::new(SimulatedNetwork {
            faults,
            nodes: LeafMutex::new(Vec::new()),
            transit: LeafMutex::new(transit),
        });
        for name in names {
            network.join(NodeId::new(name).unwrap());
        }
        assert!(network.run(20_000, |network| network.is_connected()), "all nodes know one another");
        network
    }

    /// A node joins, or returns with a new epoch.
    pub(super) fn join(self: &Arc<Self>, node: NodeId) -> Arc<SimulatedNode> {
        let core = Core::new(
            node,
            cluster_key(),
            DirectoryLimits { total: 10_000, per_node: 5_000, ..DirectoryLimits::default() },
        );
        let record = {
            let mut transit = self.transit.lock();
            transit.epoch += 1;
            transit.epoch
        };
        let record = core.start(record);
        let now = self.now();
        self.transit.lock().records.insert(node, (record, now));
        let new = Arc::new(SimulatedNode {
            core,
            record: LeafMutex::new(Some(record)),
            network: Arc::downgrade(self),
        });
        let mut nodes = self.nodes.lock();
        nodes.retain(|known| known.core.node() != node);
        nodes.push(new.clone());
        new
    }

    /// A node ends without notice.
    pub(super) fn crash(&self, node: NodeId) {
        self.nodes.lock().retain(|known| known.core.node() != node);
    }

    pub(super) fn cut(&self, one: NodeId, other: NodeId) {
        self.cut_one_way(one, other);
        self.cut_one_way(other, one);
    }

    /// Nothing of `from` arrives at `to`.
    pub(super) fn cut_one_way(&self, from: NodeId, to: NodeId) {
        self.transit.lock().cuts.insert((from, to));
    }

    pub(super) fn heal(&self, one: NodeId, other: NodeId) {
        let mut transit = self.transit.lock();
        transit.cuts.remove(&(one, other));
        transit.cuts.remove(&(other, one));
    }

    pub(super) fn now(&self) -> Millis {
        self.transit.lock().now
    }

    pub(super) fn node(&self, node: NodeId) -> Arc<SimulatedNode> {
        self.nodes.lock().iter().find(|known| known.core.node() == node).unwrap().clone()
    }

    /// Sends a frame to a node at once, with the right code.
    pub(super) fn inject(&self, to: NodeId, frame: Vec<u8>) {
        self.inject_octets(to, cluster_key().seal_frame(to.as_str(), frame));
    }

    /// Sends octets to a node at once.
    pub(super) fn inject_octets(&self, to: NodeId, octets: Vec<u8>) {
        let node = self.node(to);
        node.core.receive(self.now(), &octets.into());
        node.core.run_calls();
    }

    /// All nodes that are not cut off know one another.
    pub(super) fn is_connected(&self) -> bool {
        let nodes = self.nodes.lock().clone();
        nodes.iter().all(|node| node.core.members().len() == nodes.len())
    }

    /// Nothing is in transit.
    pub(super) fn is_quiet(&self) -> bool {
        let nodes = self.nodes.lock().clone();
        nodes.iter().all(|node| node.core.is_quiet())
    }

    /// Runs until `done`, for this number of milliseconds at most.
    pub(super) fn run(&self, millis: u64, done: impl Fn(&SimulatedNetwork) -> bool) -> bool {
        for _ in 0..millis {
            if done(self) {
                return true;
            }
            self.step();
        }
        done(self)
    }

    /// One millisecond.
    pub(super) fn step(&self) {
        let now = {
            let mut transit = self.transit.lock();
            transit.now = transit.now.plus(1);
            transit.now
        };
        let nodes = self.nodes.lock().clone();
        if now.0 % 3_000 == 2 {
            self.refresh(now, &nodes);
        }
        for node in &nodes {
            for (to, frame) in node.core.poll(now, 8, true).frames {
                self.transmit(node.core.node(), to, frame.into());
            }
        }
        for (to, frame) in self.arrivals(now) {
            if let Some(node) = nodes.iter().find(|node| node.core.node() == to) {
                node.core.receive(now, &frame);
            }
        }
        for node in &nodes {
            node.core.run_calls();
        }
    }

    /// Nodes write and watch their records, except those of nodes from which they are cut off in both directions.
    fn refresh(&self, now: Millis, nodes: &[Arc<SimulatedNode>]) {
        for node in nodes {
            let record = *node.record.lock();
            if let Some(record) = record {
                self.transit.lock().records.insert(node.core.node(), (record, now));
            }
        }
        let seen: Vec<(NodeId, MemberRecord)> = {
            let transit = self.transit.lock();
            let fresh = transit.records.iter().filter(|(_, (_, at))| now.since(*at) < 10_000);
            fresh.map(|(node, (record, _))| (*node, *record)).collect()
        };
        for node in nodes.iter().filter(|node| node.record.lock().is_some()) {
            for (other, record) in &seen {
                let is_cut = {
                    let (own, cuts) = (node.core.node(), &self.transit.lock().cuts);
                    cuts.contains(&(own, *other)) && cuts.contains(&(*other, own))
                };
                if !is_cut {
                    let _ = node.core.see_member(now, record);
                }
            }
        }
    }

    fn transmit(&self, from: NodeId, to: NodeId, frame: Bytes) {
        let mut transit = self.transit.lock();
        if transit.cuts.contains(&(from, to)) || transit.random.u16(..1000) < self.faults.drop {
            return;
        }
        let copies = if transit.random.u16(..1000) < self.faults.duplicate { 2 } else { 1 };
        for _ in 0..copies {
            let due = transit.now.0 + transit.random.u64(..=u64::from(self.faults.delay));
            transit.serial += 1;
            let key = (due, transit.serial);
            transit.flights.insert(key, (from, to, frame.clone()));
        }
    }

    fn arrivals(&self, now: Millis) -> Vec<(NodeId, Bytes)> {
        let mut transit = self.transit.lock();
        let later = transit.flights.split_off(&(now.0 + 1, 0));
        let due = std::mem::replace(&mut transit.flights, later);
        due.into_values()
            .filter(|(from, to, _)| !transit.cuts.contains(&(*from, *to)))
            .map(|(_, to, frame)| (to, frame))
            .collect()
    }

    fn leave(&self, node: &SimulatedNode) {
        node.core.begin_leave();
        self.run(5_000, |_| node.core.send_leave(false));
        node.core.send_leave(true);
        self.run(2_000, |_| node.core.is_sent());
        *node.record.lock() = None;
        self.transit.lock().records.remove(&node.core.node());
        node.core.finish_leave();
        node.core.run_calls();
    }
}

impl SimulatedNode {
    /// Writes another record.
    pub(super) fn announce(&self, record: MemberRecord) {
        *self.record.lock() = Some(record);
        if let Some(network) = self.network.upgrade() {
            let now = network.now();
            network.transit.lock().records.insert(self.core.node(), (record, now));
        }
    }
}

impl Cluster for SimulatedNode {
    fn node(&self) -> NodeId {
        self.core.node()
    }

    fn attach(&self, inbox: Arc<dyn Inbox>) {
        self.core.attach(inbox);
        self.core.run_calls();
    }

    fn members(&self) -> Vec<Member> {
        self.core.members()
    }

    fn locate(&self, address: u64, number: Option<AddressNumber>) -> AddressLocation {
        self.core.locate(address, number)
    }

    fn claim(&self, claim: Claim) {
        self.core.claim(claim);
    }

    fn set_takes_messages(&self, address: u64, number: Option<AddressNumber>, takes_messages: bool) {
        self.core.set_takes_messages(address, number, takes_messages);
    }

    fn release(&self, address: u64, number: Option<AddressNumber>) {
        self.core.release(address, number);
    }

    fn deliver(&self, node: NodeId, envelope: Envelope) -> Result<Ticket, Box<RefusedEnvelope>> {
        self.core.deliver(node, envelope).map(|(ticket, _)| ticket)
    }

    fn broadcast(&self, envelope: Envelope) -> BroadcastResult {
        self.core.broadcast(envelope).0
    }

    fn settle(&self, from: NodeId, ticket: Ticket, result: HandoverResult) -> bool {
        self.core.settle(from, ticket, result).is_some()
    }

    fn begin_drain(&self) {
        self.core.begin_drain();
        self.announce(self.core.record());
    }

    fn leave(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            if let Some(network) = self.network.upgrade() {
                network.leave(self);
            }
        })
    }
}

/// The network as the conformance suite needs it.
pub(super) struct SimulatedCluster(pub(super) Arc<SimulatedNetwork>);

impl TestCluster for SimulatedCluster {
    fn nodes(&self) -> Vec<Arc<dyn Cluster>> {
        self.0.nodes.lock().iter().map(|node| node.clone() as Arc<dyn Cluster>).collect()
    }

    fn run_until(&self, done: &dyn Fn() -> bool) -> bool {
        self.0.run(60_000, |_| done())
    }

    fn run_until_idle(&self) {
        assert!(self.0.run(60_000, SimulatedNetwork::is_quiet), "it is never idle");
    }
}
