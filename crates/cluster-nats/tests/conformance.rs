//! The suite of `cluster::conformance` on a real NATS server with JetStream.

mod harness;

use cluster::conformance::TestCluster;
use harness::{Nodes, shared_server};

fn nodes(names: &[&str]) -> Box<dyn TestCluster> {
    Box::new(Nodes::start(&shared_server().url(), names))
}

cluster::conformance_suite!(alone, || nodes(&["a"]));
cluster::conformance_suite!(three_nodes, || nodes(&["b", "a", "c"]));
