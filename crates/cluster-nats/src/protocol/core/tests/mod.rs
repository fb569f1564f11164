//! Tests of the protocol without a server: the conformance suite over a simulated network, faults, hostile frames.

mod directory_costs;
mod faults;
mod hostile;
mod network;
mod pacing;
mod random_operations;

use cluster::conformance::TestCluster;
use network::{Faults, SimulatedCluster, SimulatedNetwork};

fn storm(seed: u64) -> Box<dyn TestCluster> {
    let faults = Faults { drop: 250, duplicate: 250, delay: 12 };
    Box::new(SimulatedCluster(SimulatedNetwork::new(&["b", "a", "c", "d"], seed, faults)))
}

fn calm(names: &[&str]) -> Box<dyn TestCluster> {
    Box::new(SimulatedCluster(SimulatedNetwork::new(names, 1, Faults::default())))
}

cluster::conformance_suite!(alone, || calm(&["a"]));
cluster::conformance_suite!(calm_network, || calm(&["b", "a", "c"]));
cluster::conformance_suite!(stormy_network, || storm(1));
cluster::conformance_suite!(stormy_network_again, || storm(2));
