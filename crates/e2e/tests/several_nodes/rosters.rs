//! Requests for a roster that another node is changing: RFC 6121, sections 2.1.4 and 2.1.6.

use testkit::{NodeClient, TestNodes};
use throng_e2e::chain_observer::observed_features;

const GET: &str = "<iq type='get' id='get'><query xmlns='jabber:iq:roster'/></iq>";
const SET: &str =
    "<iq type='set' id='set'><query xmlns='jabber:iq:roster'><item jid='romeo@example.com'/></query></iq>";

/// Juliet on nodes 0 and 1.
fn two_clients() -> (TestNodes, [NodeClient; 2]) {
    let nodes = TestNodes::new(2, &observed_features());
    nodes.node(0).create_user("juliet");
    let clients = [0, 1].map(|node| {
        let client = nodes.node(node).connect("juliet", &format!("at-{node}"));
        nodes.settle();
        client
    });
    (nodes, clients)
}

/// What her client shows is the last that it has received.
fn shows_romeo(stanzas: &[String]) -> bool {
    let last = stanzas.iter().rfind(|stanza| stanza.contains("jabber:iq:roster"));
    last.is_some_and(|last| last.contains("romeo@example.com"))
}

/// Her login has read the roster before the change.
#[test]
fn the_first_request_after_a_login_has_changes_of_other_nodes() {
    for steps in 0..6 {
        let (nodes, [one, other]) = two_clients();
        one.send(SET);
        for _ in 0..steps {
            nodes.step();
        }
        other.send(GET);
        nodes.settle();
        let received = other.recv();
        assert!(shows_romeo(&received), "{steps}: {received:?}");
    }
}

/// The push of the change is sent before the answer.
#[test]
fn a_roster_that_was_read_before_a_change_of_another_node_is_read_again() {
    let (nodes, [one, other]) = two_clients();
    other.send("<presence/>");
    nodes.settle();
    other.recv();
    nodes.node(1).hold_store_call(Some("roster.get"));
    other.send(GET);
    one.send(SET);
    nodes.settle();
    nodes.node(1).hold_store_call(None);
    nodes.settle();
    let received = other.recv();
    assert!(shows_romeo(&received), "{received:?}");
}
