//! Blocklists of accounts with sessions on several nodes (XEP-0191, sections 3.2 to 3.4).

use testkit::{NodeClient, TestNodes};
use throng_e2e::chain_observer::observed_features;

use crate::presence::{online, presence};

/// Juliet has sessions on two nodes. Romeo is her contact, tybalt is not; both are on the third one.
fn stage() -> (TestNodes, [NodeClient; 2], NodeClient, NodeClient) {
    let nodes = TestNodes::new(3, &observed_features());
    for user in ["juliet", "romeo", "tybalt"] {
        nodes.node(0).create_user(user);
    }
    nodes.node(0).befriend("romeo", "juliet");
    let (romeo, tybalt) = (online(&nodes, 2, "romeo", "r"), online(&nodes, 2, "tybalt", "t"));
    let juliet = [(0, "a"), (1, "b")].map(|(node, resource)| {
        nodes.clock.advance(10);
        online(&nodes, node, "juliet", resource)
    });
    [&romeo, &tybalt, &juliet[0], &juliet[1]].iter().for_each(|client| drop(client.recv()));
    (nodes, juliet, romeo, tybalt)
}

fn change(client: &NodeClient, action: &str, jid: &str) {
    client.send(&format!(
        "<iq type='set' id='change'><{action} xmlns='urn:xmpp:blocking'><item jid='{jid}'/></{action}></iq>"
    ));
}

/// Presence from juliet's resources, sorted.
fn from_juliet(client: &NodeClient) -> Vec<(String, bool)> {
    let mut all = presence(client);
    all.retain(|(from, _)| from.starts_with("juliet@"));
    all.sort();
    all
}

fn both(available: bool) -> Vec<(String, bool)> {
    ["a", "b"].map(|resource| (format!("juliet@example.com/{resource}"), available)).to_vec()
}

#[test]
fn a_blocked_recipient_of_directed_presence_receives_unavailable_from_sessions_on_all_nodes() {
    let (nodes, juliet, _romeo, tybalt) = stage();
    juliet.iter().for_each(|session| session.send("<presence to='tybalt@example.com/t'/>"));
    nodes.settle();
    assert_eq!(from_juliet(&tybalt), both(true));
    change(&juliet[0], "block", "tybalt@example.com");
    nodes.settle();
    assert_eq!(from_juliet(&tybalt), both(false));
    juliet.iter().for_each(NodeClient::close);
    nodes.settle();
    assert!(from_juliet(&tybalt).is_empty());
}

#[test]
fn a_resource_of_a_contact_that_is_blocked_receives_unavailable_from_sessions_on_all_nodes() {
    let (nodes, juliet, romeo, _tybalt) = stage();
    let other = online(&nodes, 1, "romeo", "other");
    other.recv();
    change(&juliet[0], "block", "romeo@example.com/r");
    nodes.settle();
    assert_eq!((from_juliet(&romeo), from_juliet(&other)), (both(false), Vec::new()));
    change(&juliet[1], "unblock", "romeo@example.com/r");
    nodes.settle();
    assert_eq!((from_juliet(&romeo), from_juliet(&other)), (both(true), Vec::new()));
}

#[test]
fn a_blocked_resource_receives_no_presence_when_it_becomes_available() {
    let (nodes, juliet, romeo, _tybalt) = stage();
    change(&juliet[0], "block", "romeo@example.com/r");
    nodes.settle();
    romeo.send("<presence type='unavailable'/>");
    nodes.settle();
    romeo.recv();
    romeo.send("<presence/>");
    nodes.settle();
    assert_eq!(from_juliet(&romeo), []);
    // On the same node.
    change(&juliet[0], "block", "romeo@example.com/here");
    nodes.settle();
    let here = online(&nodes, 0, "romeo", "here");
    assert_eq!(from_juliet(&here), []);
    let other = online(&nodes, 0, "romeo", "other");
    assert_eq!(from_juliet(&other), both(true));
}

#[test]
fn a_contact_that_is_blocked_during_a_partition_receives_unavailable_after_it() {
    let (nodes, juliet, romeo, _tybalt) = stage();
    nodes.cut(0, 1);
    nodes.cut(0, 2);
    nodes.settle();
    romeo.recv();
    change(&juliet[0], "block", "romeo@example.com");
    nodes.settle();
    nodes.heal(0, 1);
    nodes.heal(0, 2);
    nodes.settle();
    let received = from_juliet(&romeo);
    assert!(received.contains(&("juliet@example.com/b".to_owned(), false)), "{received:?}");
    assert!(received.iter().all(|(_, available)| !available), "{received:?}");
}

/// XEP-0191, section 3.3: nothing arrives any more when the request was answered.
#[test]
fn a_node_delivers_nothing_of_a_blocked_user_after_the_answer() {
    let (nodes, juliet, romeo, _tybalt) = stage();
    // Messages from there are handled on the node of the other session, the home.
    let sender = online(&nodes, 1, "romeo", "s");
    juliet[0].send("<presence type='unavailable'/>");
    nodes.settle();
    juliet.iter().chain([&romeo, &sender]).for_each(|client| drop(client.recv()));
    juliet[0].close();
    let phone = nodes.node(0).connect("juliet", "phone");
    nodes.settle();
    change(&phone, "block", "romeo@example.com");
    let answered = || phone.recv().iter().any(|text| text.contains("id='change'"));
    let is_answered = (0..100).any(|_| {
        let is_answered = answered();
        if !is_answered {
            nodes.step();
        }
        is_answered
    });
    assert!(is_answered);
    sender.send("<message to='juliet@example.com/b' type='chat' id='m'><body>Hello</body></message>");
    nodes.settle();
    let received = juliet[1].recv();
    assert!(!received.iter().any(|text| text.contains("id='m'")), "{received:?}");
}

#[test]
fn a_node_that_does_not_read_the_list_delays_the_answer_for_seconds_only() {
    let (nodes, juliet, _romeo, _tybalt) = stage();
    nodes.cut(0, 1);
    change(&juliet[0], "block", "romeo@example.com");
    let answered = || juliet[0].recv().iter().any(|text| text.contains("id='change'"));
    nodes.step();
    assert!(!answered());
    nodes.advance(3);
    nodes.step();
    assert!(answered());
}
