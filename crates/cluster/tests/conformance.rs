//! The suite of `cluster::conformance` for a single node and for the bus, with and without faults.

use std::sync::Arc;

use throng_cluster::conformance::TestCluster;
use throng_cluster::memory::{Bus, NetworkFaults};
use throng_cluster::{Cluster, NodeId, SingleNode};

struct SingleNodeCluster(Arc<SingleNode>);

impl TestCluster for SingleNodeCluster {
    fn nodes(&self) -> Vec<Arc<dyn Cluster>> {
        vec![self.0.clone()]
    }

    fn run_until(&self, done: &dyn Fn() -> bool) -> bool {
        done()
    }

    fn run_until_idle(&self) {}
}

struct BusCluster(Bus, Vec<Arc<dyn Cluster>>);

impl BusCluster {
    fn boxed(nodes: &[&str], seed: u64, faults: NetworkFaults) -> Box<dyn TestCluster> {
        let bus = Bus::new(seed, faults);
        let join = |name: &&str| -> Option<Arc<dyn Cluster>> { Some(bus.join(NodeId::new(name)?)) };
        let nodes = nodes.iter().filter_map(join).collect();
        Box::new(BusCluster(bus, nodes))
    }
}

impl TestCluster for BusCluster {
    fn nodes(&self) -> Vec<Arc<dyn Cluster>> {
        self.1.clone()
    }

    fn run_until(&self, done: &dyn Fn() -> bool) -> bool {
        done() || (self.0.run_until_idle() && done())
    }

    fn run_until_idle(&self) {
        assert!(self.0.run_until_idle());
    }
}

fn storm(seed: u64) -> Box<dyn TestCluster> {
    BusCluster::boxed(&["b", "a", "c", "d"], seed, NetworkFaults { drop: 250, duplicate: 250, delay: 12 })
}

throng_cluster::conformance_suite!(single, || Box::new(SingleNodeCluster(Arc::new(SingleNode::new(
    NodeId::new("alone").unwrap()
)))));
throng_cluster::conformance_suite!(bus_of_one, || BusCluster::boxed(&["a"], 1, NetworkFaults::default()));
throng_cluster::conformance_suite!(calm_bus, || BusCluster::boxed(
    &["b", "a", "c"],
    1,
    NetworkFaults::default()
));
throng_cluster::conformance_suite!(stormy_bus, || storm(1));
throng_cluster::conformance_suite!(stormy_bus_again, || storm(2));
throng_cluster::conformance_suite!(stormy_bus_once_more, || storm(3));
