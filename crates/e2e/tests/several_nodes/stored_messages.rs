//! Messages in the store for a user with sessions on several nodes: XEP-0160, section 2.

use jid::Jid;
use store::{OfflineMessage, Quota};
use testkit::{NodeClient, TestNode, TestNodes};
use throng_e2e::chain_observer::observed_features;

use super::handovers::{JULIET, Peer, chat, handed_over, messages};

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
pub(crate) fn receive(nodes: &TestNodes, client: &NodeClient) -> Vec<String> {
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

fn steps(nodes: &TestNodes, count: usize) {
    for _ in 0..count {
        nodes.step();
    }
}

/// Writes a message for juliet into the store.
pub(crate) fn store_message(node: &TestNode) {
    let juliet = Jid::parse(JULIET).expect("an address");
    let owner = node.block_on(node.stores.addresses.find(&juliet)).expect("an answer").expect("an id");
    let (stored_at, stanza) = (node.node.clock.unix_millis(), handed_over("1").into_bytes());
    let message = OfflineMessage { owner, sender: 1, stored_at, expires: None, stanza };
    node.block_on(node.stores.offline.append(vec![message], Quota::messages_only(9))).expect("the store");
}

/// Each of the two nodes takes the other one for the one that delivers: the first because its session had no connection when it learnt of
/// the message, the other one because that has been resumed when it learns of it.
#[test]
fn a_message_that_is_stored_when_a_session_is_resumed_is_delivered_once() {
    for moves in [false, true] {
        let nodes = cluster();
        let one = connect(&nodes, 0, "juliet", "one");
        one.enable_resumption();
        become_available(&nodes, &one, 0);
        nodes.clock.advance(10);
        let other = connect(&nodes, 1, "juliet", "other");
        become_available(&nodes, &other, 0);
        one.recv();
        other.recv();
        one.leave(true);
        nodes.settle();
        nodes.cut(1, 2);
        let node = nodes.node(2);
        store_message(node);
        node.node.peer_routing().report_stored_message(&node.node, Jid::parse(JULIET).expect("JID").as_ref());
        steps(&nodes, 3);
        let again = if moves {
            let pending = nodes.node(2).resume(&one);
            steps(&nodes, 8);
            nodes.node(2).resumed(&pending).expect("an outcome").expect("it is resumed")
        } else {
            nodes.node(0).resume_here(&one)
        };
        steps(&nodes, 3);
        nodes.heal(1, 2);
        nodes.settle();
        let received = [receive(&nodes, &again), receive(&nodes, &other)].concat();
        assert_eq!(received, ["1"], "{moves}");
    }
}

/// The session there has ended, or takes no messages any more.
#[test]
fn messages_that_are_left_to_a_node_that_does_not_deliver_them_come_back() {
    use cluster::conformance::InboxEvent;
    use cluster::{Cluster, Envelope, EnvelopeClass, EnvelopeKind, Recipient};
    let test = Peer::new();
    let juliet = Jid::parse(JULIET).expect("an address");
    let bot = test.online(0, "juliet", "bot");
    become_available(&test.nodes, &bot, -1);
    let report = |octets: &[u8]| {
        let (kind, class) = (EnvelopeKind::Engine(6), EnvelopeClass::Control);
        let recipients = vec![Recipient::from(juliet.clone())];
        let report = Envelope::new(kind, class, Peer::id(), recipients, octets);
        test.peer.deliver(test.nodes.id(0), report).expect("accepted");
        test.nodes.settle();
    };
    let answers = || -> Vec<Vec<u8>> {
        let answer = |event| match event {
            InboxEvent::Envelope(_, envelope) if envelope.header.kind == EnvelopeKind::Engine(6) => {
                Some(envelope.bytes.to_vec())
            }
            _ => None,
        };
        test.inbox.events().into_iter().filter_map(answer).collect()
    };
    let before = answers().len();
    report(&[1]);
    assert_eq!(answers()[before..], [vec![2]]);
    become_available(&test.nodes, &bot, 0);
    let before = answers().len();
    report(&[1]);
    assert_eq!(answers().len(), before, "it delivers them");
    // What this node has left to the other one.
    store_message(test.nodes.node(0));
    report(&[2]);
    assert_eq!(receive(&test.nodes, &bot), ["1"]);
}

/// A node of another release sends something else.
#[test]
fn a_report_of_a_stored_message_has_no_other_content() {
    use cluster::{Cluster, Envelope, EnvelopeClass, EnvelopeKind, PeerViolation, Recipient};
    let test = Peer::new();
    for (octets, violations) in [(&[][..], 0), (&[1], 0), (&[2], 0), (&[3], 1), (&[1, 1], 2)] {
        let juliet = Jid::parse(JULIET).expect("an address");
        let (kind, class) = (EnvelopeKind::Engine(6), EnvelopeClass::Control);
        let report = Envelope::new(kind, class, Peer::id(), vec![Recipient::from(juliet)], octets);
        test.peer.deliver(test.nodes.id(0), report).expect("accepted");
        test.nodes.settle();
        assert_eq!(test.violations(PeerViolation::Payload), violations, "{octets:?}");
    }
}
