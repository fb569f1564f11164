//! Messages in the store for a user with sessions on several nodes: XEP-0160, section 2.

use testkit::{NodeClient, TestNodes};
use throng_e2e::chain_observer::observed_features;

use super::handovers::{chat, messages};

fn cluster() -> TestNodes {
    let nodes = TestNodes::new(3, &observed_features());
    for user in ["romeo", "juliet"] {
        nodes.node(0).create_user(user);
    }
    nodes
}

fn connect(nodes: &TestNodes, node: usize, user: &str, resource: &str) -> NodeClient {
    let client = nodes.node(node).connect(user, resource);
    nodes.settle();
    client
}

fn become_available(nodes: &TestNodes, client: &NodeClient, priority: i8) {
    client.send(&format!("<presence><priority>{priority}</priority></presence>"));
    nodes.settle();
}

/// Ids of the messages that a client receives until nothing arrives any more.
fn receive(nodes: &TestNodes, client: &NodeClient) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..3 {
        for message in messages(client) {
            let (_, rest) = message.split_once(" id='").expect("an id");
            ids.extend(rest.split_once('\'').map(|(id, _)| id.to_owned()));
        }
        nodes.settle();
    }
    ids
}

#[test]
fn a_message_that_the_home_stores_is_delivered_where_a_session_has_become_available_meanwhile() {
    let nodes = cluster();
    let romeo = connect(&nodes, 0, "romeo", "orchard");
    let bot = connect(&nodes, 0, "juliet", "bot");
    become_available(&nodes, &bot, -1);
    let phone = connect(&nodes, 1, "juliet", "phone");
    phone.send("<presence/>");
    // Its home, node 0, does not know yet that the phone takes messages.
    romeo.send(&chat("1"));
    nodes.settle();
    assert_eq!(receive(&nodes, &phone), ["1"]);
    assert_eq!(receive(&nodes, &bot), [""; 0]);
    phone.close();
    nodes.settle();
    let late = connect(&nodes, 1, "juliet", "late");
    become_available(&nodes, &late, 0);
    assert_eq!(receive(&nodes, &late), [""; 0], "it was removed");
}

/// The first client has received nothing yet when the second one logs in on another node.
#[test]
fn stored_messages_go_to_one_node_and_to_the_other_if_the_first_does_not_take_them() {
    for first in [0, 1] {
        let nodes = cluster();
        let romeo = connect(&nodes, 2, "romeo", "orchard");
        ["1", "2"].iter().for_each(|id| romeo.send(&chat(id)));
        nodes.settle();
        let one = connect(&nodes, first, "juliet", "one");
        let other = connect(&nodes, 1 - first, "juliet", "other");
        become_available(&nodes, &one, 0);
        become_available(&nodes, &other, 0);
        romeo.send(&chat("3"));
        nodes.settle();
        assert_eq!(receive(&nodes, &other), ["3"], "{first}: the rest is in the queue of the other");
        one.close();
        nodes.settle();
        assert_eq!(receive(&nodes, &other), ["1", "2"], "{first}");
        let late = connect(&nodes, 2, "juliet", "late");
        become_available(&nodes, &late, 0);
        assert_eq!(receive(&nodes, &late), [""; 0], "{first}: they were removed");
    }
}

#[test]
fn stored_messages_do_not_wait_for_sessions_of_another_node_that_are_unavailable_or_have_no_connection() {
    for loses_connection in [false, true] {
        let nodes = cluster();
        let romeo = connect(&nodes, 2, "romeo", "orchard");
        romeo.send(&chat("1"));
        nodes.settle();
        let one = connect(&nodes, 0, "juliet", "one");
        let other = connect(&nodes, 1, "juliet", "other");
        one.enable_resumption();
        become_available(&nodes, &one, 0);
        become_available(&nodes, &other, 0);
        assert_eq!(receive(&nodes, &other), [""; 0]);
        if loses_connection {
            one.leave(true);
        } else {
            // What its queue has, it still receives.
            assert_eq!(receive(&nodes, &one), ["1"]);
            one.send("<presence type='unavailable'/>");
            romeo.send(&chat("1"));
        }
        nodes.settle();
        assert_eq!(receive(&nodes, &other), ["1"], "{loses_connection}");
    }
}

/// A node of another release sends something else.
#[test]
fn a_report_of_a_stored_message_has_no_other_content() {
    use cluster::{Cluster, Envelope, EnvelopeClass, EnvelopeKind, PeerViolation, Recipient};
    let test = super::handovers::Peer::new();
    for (octets, violations) in [(&[][..], 0), (&[1], 0), (&[2], 0), (&[3], 1), (&[1, 1], 2)] {
        let juliet: jid::Jid = jid::Jid::parse(super::handovers::JULIET).expect("an address");
        let (kind, class) = (EnvelopeKind::Engine(6), EnvelopeClass::Control);
        let report =
            Envelope::new(kind, class, super::handovers::Peer::id(), vec![Recipient::from(juliet)], octets);
        test.peer.deliver(test.nodes.id(0), report).expect("accepted");
        test.nodes.settle();
        assert_eq!(test.violations(PeerViolation::Payload), violations, "{octets:?}");
    }
}
