//! Numbers of envelopes: a stanza costs at most one for each node concerned, and none when nobody elsewhere is. What a
//! session sends first and last goes to all nodes.

use store::Subscription;
use testkit::{NodeClient, TestNodes};
use throng_e2e::chain_observer::observed_features;
use throng_e2e::several_nodes::{assert_entries_name_tests, assert_outcome};

/// All tests of this file.
const TESTS: [&str; 6] = [
    "envelopes/message-to-one-node",
    "envelopes/message-to-two-nodes",
    "envelopes/message-to-nobody-online",
    "envelopes/message-on-the-same-node",
    "envelopes/presence-to-contacts-on-four-nodes",
    "envelopes/login-and-logout",
];

fn cluster(count: usize, users: &[&str]) -> TestNodes {
    let nodes = TestNodes::new(count, &observed_features());
    for user in users {
        nodes.node(0).create_user(user);
    }
    nodes
}

/// A session of `user` on a node that is available.
fn online(nodes: &TestNodes, node: usize, user: &str) -> NodeClient {
    let client = nodes.node(node).connect(user, "r");
    client.send("<presence/>");
    nodes.settle();
    client
}

/// Sends a stanza and asserts how many envelopes it costs.
#[track_caller]
fn assert_envelopes(test: &str, nodes: &TestNodes, sender: &NodeClient, stanza: &str, wanted: u64) {
    nodes.settle();
    nodes.take_envelopes();
    sender.send(stanza);
    nodes.settle();
    let found = nodes.take_envelopes();
    let outcome = if found == wanted { Ok(()) } else { Err(format!("{found} envelopes, not {wanted}")) };
    assert_outcome(test, 0, outcome);
}

const MESSAGE: &str = "<message to='juliet@example.com' type='chat' id='1'><body>Hello</body></message>";

#[test]
fn a_message_to_a_user_on_another_node_is_one_envelope() {
    let nodes = cluster(3, &["romeo", "juliet"]);
    let (romeo, _juliet) = (online(&nodes, 0, "romeo"), online(&nodes, 1, "juliet"));
    assert_envelopes(TESTS[0], &nodes, &romeo, MESSAGE, 1);
}

/// One to the home, and one from it to the other node.
#[test]
fn a_message_to_a_user_on_two_other_nodes_is_two_envelopes() {
    let nodes = cluster(3, &["romeo", "juliet"]);
    let romeo = online(&nodes, 0, "romeo");
    let sessions = [nodes.node(1).connect("juliet", "a"), nodes.node(2).connect("juliet", "b")];
    sessions.iter().for_each(|session| session.send("<presence/>"));
    assert_envelopes(TESTS[1], &nodes, &romeo, MESSAGE, 2);
}

#[test]
fn a_message_to_nobody_online_is_no_envelope() {
    let nodes = cluster(3, &["romeo", "juliet"]);
    let romeo = online(&nodes, 0, "romeo");
    assert_envelopes(TESTS[2], &nodes, &romeo, MESSAGE, 0);
}

#[test]
fn a_message_on_the_same_node_is_no_envelope() {
    let nodes = cluster(3, &["romeo", "juliet"]);
    let (romeo, _juliet) = (online(&nodes, 0, "romeo"), online(&nodes, 0, "juliet"));
    assert_envelopes(TESTS[3], &nodes, &romeo, MESSAGE, 0);
}

#[test]
fn a_presence_change_is_one_envelope_for_each_node_with_contacts() {
    let nodes = cluster(5, &["romeo"]);
    let contacts: Vec<String> = (0..30).map(|number| format!("contact{number}")).collect();
    for contact in &contacts {
        nodes.node(0).create_user(contact);
        nodes.node(0).add_contact("romeo", contact, Subscription::BOTH | Subscription::IN_ROSTER);
        nodes.node(0).add_contact(contact, "romeo", Subscription::BOTH | Subscription::IN_ROSTER);
    }
    let _contacts: Vec<NodeClient> =
        contacts.iter().enumerate().map(|(number, name)| online(&nodes, 1 + number % 4, name)).collect();
    let romeo = online(&nodes, 0, "romeo");
    assert_envelopes(TESTS[4], &nodes, &romeo, "<presence><show>away</show></presence>", 4);
}

/// A probe, and the presence for contacts that the directory does not have yet; at the end `unavailable` for contacts, and for
/// the account's other resources.
#[test]
fn a_login_is_two_envelopes_for_each_node_and_so_is_a_logout() {
    let nodes = cluster(4, &["romeo", "juliet"]);
    nodes.node(0).befriend("romeo", "juliet");
    let _juliet = online(&nodes, 0, "juliet");
    let romeo = nodes.node(0).connect("romeo", "r");
    assert_envelopes(TESTS[5], &nodes, &romeo, "<presence/>", 2 * 3);
    assert_envelopes(TESTS[5], &nodes, &romeo, "<presence type='unavailable'/>", 2 * 3);
}

#[test]
fn each_known_failure_names_a_test() {
    assert_entries_name_tests("envelopes/", &TESTS.map(str::to_owned));
}
