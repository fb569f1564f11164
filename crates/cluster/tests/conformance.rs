//! The suite of `cluster::conformance` over a lonely node and over the bus, calm and stormy.

use std::sync::Arc;

use throng_cluster::conformance::Lab;
use throng_cluster::memory::{Bus, Faults};
use throng_cluster::{Cluster, NodeId, SingleNode};

struct Lonely(Arc<SingleNode>);

impl Lab for Lonely {
    fn nodes(&self) -> Vec<Arc<dyn Cluster>> {
        vec![self.0.clone()]
    }
    fn until(&self, done: &dyn Fn() -> bool) -> bool {
        done()
    }
    fn rest(&self) {}
}

struct OnBus(Bus, Vec<Arc<dyn Cluster>>);

impl OnBus {
    fn boxed(nodes: &[&str], seed: u64, faults: Faults) -> Box<dyn Lab> {
        let bus = Bus::new(seed, faults);
        let join = |name: &&str| -> Option<Arc<dyn Cluster>> { Some(bus.join(NodeId::new(name)?)) };
        let nodes = nodes.iter().filter_map(join).collect();
        Box::new(OnBus(bus, nodes))
    }
}

impl Lab for OnBus {
    fn nodes(&self) -> Vec<Arc<dyn Cluster>> {
        self.1.clone()
    }
    fn until(&self, done: &dyn Fn() -> bool) -> bool {
        done() || (self.0.settle() && done())
    }
    fn rest(&self) {
        assert!(self.0.settle());
    }
}

fn storm(seed: u64) -> Box<dyn Lab> {
    OnBus::boxed(&["b", "a", "c", "d"], seed, Faults { drop: 250, duplicate: 250, delay: 12 })
}

throng_cluster::conformance!(single, || Box::new(Lonely(Arc::new(SingleNode::new(
    NodeId::new("alone").unwrap()
)))));
throng_cluster::conformance!(bus_of_one, || OnBus::boxed(&["a"], 1, Faults::default()));
throng_cluster::conformance!(calm_bus, || OnBus::boxed(&["b", "a", "c"], 1, Faults::default()));
throng_cluster::conformance!(stormy_bus, || storm(1));
throng_cluster::conformance!(stormy_bus_again, || storm(2));
throng_cluster::conformance!(stormy_bus_once_more, || storm(3));
