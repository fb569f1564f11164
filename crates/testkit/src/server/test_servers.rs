//! Several nodes with streams in one cluster: one memory store and one clock, connected by the memory bus.
//!
//! Not implemented: crashes and partitions, which the nodes without streams have ([`crate::TestNodes`]).
//!
//! # Pitfalls
//!
//! The network stands still between the calls of [`TestServers::settle`]; a test that waits for a stanza of another
//! node must call it, or step [`TestServers::bus`].

use std::sync::Arc;

use base::ManualClock;
use cluster::memory::{Bus, NetworkFaults};
use cluster::{Cluster, NodeId, SingleNode};

use super::{TestServer, TestServerConfig, run_until_idle};

/// Nodes of one cluster that serve streams.
pub struct TestServers {
    /// The network between them.
    pub bus: Bus,
    /// The nodes, at least one.
    pub nodes: Vec<TestServer>,
}

impl TestServers {
    pub(super) fn start(setup: &TestServerConfig, count: usize) -> TestServers {
        assert!(count > 0, "a cluster has a node");
        let bus = Bus::new(0, NetworkFaults::default());
        let clock = Arc::new(ManualClock::new());
        let stores = store::memory::stores(clock.clone());
        let start = |index: usize| {
            let id = NodeId::new(&format!("node-{index}")).expect("a name");
            let cluster: Arc<dyn Cluster> =
                if count == 1 { Arc::new(SingleNode::new(id)) } else { bus.join(id) };
            TestServer::start_in(setup, clock.clone(), stores.clone(), cluster)
        };
        let nodes = (0..count).map(start).collect();
        bus.run_until_idle();
        TestServers { bus, nodes }
    }

    /// Lets every task run and every envelope arrive, until all are waiting.
    pub async fn settle(&self) {
        run_until_idle().await;
        self.send_usage_reports();
        while self.bus.step() {
            run_until_idle().await;
            self.send_usage_reports();
        }
    }

    /// Sends the reports that are due, at most one of each node in 100 milliseconds of the clock.
    fn send_usage_reports(&self) {
        self.nodes.iter().for_each(|server| peers::send_usage_reports(&server.node));
    }

    /// Advances the clock second by second, runs the sweep of each node and lets all tasks run in between.
    pub async fn advance(&self, seconds: u32) {
        for _ in 0..seconds {
            // The clock is that of all nodes.
            self.nodes[0].clock.advance(1000);
            for server in &self.nodes {
                server.node.sweep();
            }
            tokio::task::yield_now().await;
        }
        self.settle().await;
    }
}
