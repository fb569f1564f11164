//! Commands of administrators that concern all nodes.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use jid::Jid;
use testkit::{NodeClient, TestNodes};
use throng_core::router::OnlineFilter;

use crate::observed_features;

/// Ticks within which nodes answer.
const TICKS: usize = 1_000;

/// Drives a future of one node while the others go on.
fn drive<T>(nodes: &TestNodes, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..TICKS {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return value;
        }
        nodes.step();
    }
    panic!("the nodes do not answer");
}

fn cluster() -> (TestNodes, Vec<NodeClient>) {
    let nodes = TestNodes::new(3, &observed_features());
    for user in ["romeo", "juliet"] {
        nodes.node(0).create_user(user);
    }
    let places = [(0, "juliet", "balcony"), (1, "juliet", "chamber"), (2, "romeo", "orchard")];
    let sessions = places.map(|(node, user, resource)| nodes.node(node).connect(user, resource));
    nodes.settle();
    (nodes, sessions.into())
}

#[test]
fn a_user_on_two_nodes_is_one_online_user() {
    let (nodes, _sessions) = cluster();
    for asked in 0..3 {
        let node = &nodes.node(asked).node;
        let count = |filter| drive(&nodes, node.count_online_users("example.com", filter));
        assert_eq!([OnlineFilter::All, OnlineFilter::Active, OnlineFilter::Idle].map(count), [2, 2, 0]);
        assert_eq!(drive(&nodes, node.count_online_users("example.net", OnlineFilter::All)), 0);
    }
}

#[test]
fn users_are_counted_without_a_node_that_is_gone() {
    let (mut nodes, _sessions) = cluster();
    nodes.crash(2);
    let node = &nodes.node(0).node;
    assert_eq!(drive(&nodes, node.count_online_users("example.com", OnlineFilter::All)), 1);
}

#[test]
fn the_sessions_of_a_user_end_on_all_nodes() {
    let (nodes, sessions) = cluster();
    let node = &nodes.node(2).node;
    let chamber = Jid::parse("juliet@example.com/chamber").expect("an address");
    assert_eq!(drive(&nodes, node.peer_routing().end_sessions_everywhere(node, &chamber, "an end")), 1);
    let ended = || sessions.iter().map(|client| client.session.is_ended()).collect::<Vec<_>>();
    assert_eq!(ended(), [false, true, false]);
    let juliet = Jid::parse("juliet@example.com").expect("an address");
    assert_eq!(drive(&nodes, node.peer_routing().end_sessions_everywhere(node, &juliet, "an end")), 1);
    assert_eq!(ended(), [true, true, false]);
    assert_eq!(drive(&nodes, node.peer_routing().end_sessions_everywhere(node, &juliet, "an end")), 0);
}
