//! Several nodes without sockets in one cluster: engines over one memory store, connected by the memory bus.
//!
//! Nothing passes between nodes until [`TestNodes::step`] or [`TestNodes::settle`], so a test decides what is in
//! transit when something happens. All nodes have the domain `example.com`, the clock and the store in common, as
//! nodes of a deployment have one database; each has its own tasks, which end with it.
//!
//! A number of a node counts from 0 and wraps around, so that one test runs on any number of nodes.
//!
//! # Pitfalls
//!
//! [`crate::NodeClient::send`] completes what its own node does, not what other nodes do afterwards. The delivery of
//! stored messages waits for its client, which must read before the next [`TestNodes::settle`].

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::ManualClock;
use cluster::memory::{Bus, NetworkFaults};
use cluster::{Cluster, NodeId, SingleNode};
use feature_api::EnabledFeature;
use feature_api::feature::Feature;
use store::Stores;
use throng_core::NodeLimits;

use crate::engine::{NodeSurroundings, TestNode, with_defaults};
use crate::manual_spawner::ManualSpawner;

/// The domain of every node.
const DOMAIN: [&str; 1] = ["example.com"];
/// Steps after which traffic between nodes counts as endless.
const STEPS: usize = 100_000;

/// Steps in which a node that leaves sends what is due.
const LAST_STEPS: usize = 1_000;
/// Steps without anything in transit, after which tasks wait for clients.
const IDLE_STEPS: usize = 16;

/// Nodes of one cluster.
pub struct TestNodes {
    /// The network between them; [`NodeId`]s are those of [`TestNodes::id`].
    pub bus: Bus,
    /// The clock of all nodes.
    pub clock: Arc<ManualClock>,
    /// The store of all nodes, without a counter.
    pub stores: Stores,
    envelopes: Arc<AtomicU64>,
    enabled: Vec<EnabledFeature>,
    nodes: Vec<Option<TestNode>>,
}

impl TestNodes {
    /// Starts this number of nodes with a network without faults. One node has no network.
    pub fn new(count: usize, features: &[&'static Feature]) -> TestNodes {
        TestNodes::with_faults(count, features, 0, NetworkFaults::default())
    }

    /// As [`TestNodes::new`], with faults of the network that depend on `seed` only.
    ///
    /// # Panics
    /// Without a node.
    pub fn with_faults(
        count: usize,
        features: &[&'static Feature],
        seed: u64,
        faults: NetworkFaults,
    ) -> TestNodes {
        assert!(count > 0, "a cluster has a node");
        let clock = Arc::new(ManualClock::new());
        let mut all = TestNodes {
            bus: Bus::new(seed, faults),
            stores: store::memory::stores(clock.clone()),
            clock,
            envelopes: Arc::default(),
            enabled: with_defaults(features),
            nodes: (0..count).map(|_| None).collect(),
        };
        (0..count).for_each(|index| all.start(index));
        all.settle();
        all
    }

    /// Name of a node in the network.
    pub fn id(&self, index: usize) -> NodeId {
        NodeId::new(&format!("node-{}", index % self.nodes.len())).expect("a name")
    }

    /// A node that is alive.
    ///
    /// # Panics
    /// If it crashed.
    pub fn node(&self, index: usize) -> &TestNode {
        self.nodes[index % self.nodes.len()].as_ref().expect("a node that is alive")
    }

    /// Numbers of the nodes that are alive.
    pub fn alive(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].is_some()).collect()
    }

    /// Numbers of the nodes that crashed.
    pub fn crashed(&self) -> Vec<usize> {
        (0..self.nodes.len()).filter(|index| self.nodes[*index].is_none()).collect()
    }

    fn start(&mut self, index: usize) {
        let id = self.id(index);
        let cluster: Arc<dyn Cluster> =
            if self.nodes.len() == 1 { Arc::new(SingleNode::new(id)) } else { self.bus.join(id) };
        let surroundings = NodeSurroundings {
            clock: self.clock.clone(),
            stores: self.stores.clone(),
            cluster,
            domains: &DOMAIN,
            tasks: ManualSpawner::for_waiting_tasks(),
            envelopes: self.envelopes.clone(),
        };
        self.nodes[index] = Some(TestNode::start_in(surroundings, &self.enabled, NodeLimits::default()));
    }

    /// A node ends without notice, with its sessions and its tasks.
    pub fn crash(&mut self, index: usize) {
        let id = self.id(index);
        self.bus.crash(id);
        let index = index % self.nodes.len();
        self.nodes[index] = None;
    }

    /// A node leaves in order, with its sessions and its tasks, after it has sent what is due for others, as `throng serve` does.
    pub fn leave(&mut self, index: usize) {
        let node = &self.node(index).node;
        let mut steps = 0;
        while peers::send_due_items(node) > 0 && steps < LAST_STEPS {
            self.step();
            steps += 1;
        }
        if steps == LAST_STEPS {
            peers::discard_due_items(node);
            (0..IDLE_STEPS).for_each(|_| _ = self.step());
        }
        let node = self.node(index);
        node.block_on(node.node.cluster.leave());
        let index = index % self.nodes.len();
        self.nodes[index] = None;
    }

    /// A crashed node starts again.
    pub fn restart(&mut self, index: usize) {
        self.start(index % self.nodes.len());
    }

    /// Partitions two nodes.
    pub fn cut(&self, one: usize, other: usize) {
        self.bus.cut(self.id(one), self.id(other));
    }

    /// Ends a partition.
    pub fn heal(&self, one: usize, other: usize) {
        self.bus.heal(self.id(one), self.id(other));
    }

    /// Number of envelopes that have arrived on all nodes since the last call.
    pub fn take_envelopes(&self) -> u64 {
        self.envelopes.swap(0, Ordering::Relaxed)
    }

    /// One tick of the network, then one poll of every task. True if something is in transit.
    pub fn step(&self) -> bool {
        self.nodes.iter().flatten().for_each(|node| peers::send_usage_reports(&node.node));
        let in_transit = self.bus.step();
        self.nodes.iter().flatten().for_each(TestNode::step_tasks);
        in_transit
    }

    /// Steps until nothing is in transit and every task is complete or waits for a client to read. Partitions are
    /// detected meanwhile.
    ///
    /// # Panics
    /// If that never happens.
    pub fn settle(&self) {
        let mut idle = 0;
        for _ in 0..STEPS {
            idle = if self.step() { 0 } else { idle + 1 };
            if idle == IDLE_STEPS {
                return;
            }
        }
        panic!("the nodes exchange envelopes without an end");
    }

    /// Advances the clock second by second. Each time, every node sweeps and backs up what clients take too slowly.
    pub fn advance(&self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(1000);
            for node in self.nodes.iter().flatten() {
                node.node.sweep();
                while node.node.back_up_overdue() {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = "<message to='juliet@example.com' type='chat' id='1'><body>Hello</body></message>";

    #[test]
    fn a_message_to_a_user_elsewhere_arrives_after_a_step_and_not_earlier() {
        let nodes = TestNodes::new(2, &[]);
        nodes.node(0).create_user("romeo");
        nodes.node(0).create_user("juliet");
        let (romeo, juliet) = (nodes.node(0).connect("romeo", "a"), nodes.node(1).connect("juliet", "b"));
        nodes.settle();
        romeo.send(&MESSAGE.replace("example.com", "example.com/b"));
        assert!(juliet.recv().is_empty());
        nodes.settle();
        assert_eq!(juliet.recv().len(), 1);
    }

    #[test]
    fn a_crashed_node_takes_its_sessions_with_it_and_starts_again_without_them() {
        let mut nodes = TestNodes::new(2, &[]);
        nodes.node(0).create_user("juliet");
        let juliet = nodes.node(1).connect("juliet", "b");
        nodes.crash(1);
        nodes.settle();
        assert_eq!((nodes.alive(), nodes.crashed()), (vec![0], vec![1]));
        nodes.restart(1);
        nodes.settle();
        assert!(nodes.node(1).node.routing_table.find(juliet.bare()).is_none());
        let again = nodes.node(1).connect("juliet", "b");
        assert_eq!(again.full(), "juliet@example.com/b");
    }
}
