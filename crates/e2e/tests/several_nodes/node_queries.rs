//! Commands of administrators that concern all nodes, with every feature. Hostile nodes and pages are in the tests of
//! `commands::cluster_admin`.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use jid::Jid;
use testkit::{NodeClient, TestNodes};
use throng_commands::cluster_admin::online_users::count_online_users;
use throng_commands::cluster_admin::{answer_other_nodes, end_sessions};
use throng_core::router::OnlineFilter;
use throng_e2e::chain_observer::observed_features;

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
    (0..3).for_each(|index| answer_other_nodes(&nodes.node(index).node));
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
        let count = |filter| drive(&nodes, count_online_users(node, "example.com", filter));
        let none = Vec::new;
        assert_eq!(
            [OnlineFilter::All, OnlineFilter::Active, OnlineFilter::Idle].map(count),
            [(2, none()), (2, none()), (0, none())]
        );
        let other = count_online_users(node, "example.net", OnlineFilter::All);
        assert_eq!(drive(&nodes, other), (0, none()));
    }
}

#[test]
fn users_are_counted_without_a_node_that_is_gone() {
    let (mut nodes, _sessions) = cluster();
    nodes.crash(2);
    let node = &nodes.node(0).node;
    let (count, _) = drive(&nodes, count_online_users(node, "example.com", OnlineFilter::All));
    assert_eq!(count, 1);
}

#[test]
fn the_sessions_of_a_user_end_on_all_nodes() {
    let (nodes, sessions) = cluster();
    let end = |jid: &str| {
        let jid = Jid::parse(jid).expect("an address");
        drive(&nodes, end_sessions(&nodes.node(2).node, &jid, "an end")).0
    };
    assert_eq!(end("juliet@example.com/chamber"), 1);
    let ended = || sessions.iter().map(|client| client.session.is_ended()).collect::<Vec<_>>();
    assert_eq!(ended(), [false, true, false]);
    assert_eq!(end("juliet@example.com"), 1);
    assert_eq!(ended(), [true, true, false]);
    assert_eq!(end("juliet@example.com"), 0);
}
