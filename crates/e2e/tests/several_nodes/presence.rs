//! Presence when a node is lost in the middle of a change: its contacts and the other resources must not show what is gone.

use testkit::{NodeClient, TestNodes};

use crate::observed_features;

fn two_nodes() -> TestNodes {
    let nodes = TestNodes::new(2, &observed_features());
    for user in ["romeo", "juliet"] {
        nodes.node(0).create_user(user);
    }
    nodes.node(0).befriend("romeo", "juliet");
    nodes
}

fn online(nodes: &TestNodes, node: usize, user: &str, resource: &str) -> NodeClient {
    let client = nodes.node(node).connect(user, resource);
    client.send("<presence/>");
    nodes.settle();
    client
}

/// The presence that a client received since the last call: `from`, and whether it is available.
fn presence(client: &NodeClient) -> Vec<(String, bool)> {
    let read = |text: &String| {
        let document = roxmltree::Document::parse(text).expect("XML");
        let root = document.root_element();
        let from = root.attribute("from").unwrap_or_default().to_owned();
        (root.tag_name().name() == "presence").then(|| (from, root.attribute("type") != Some("unavailable")))
    };
    client.recv().iter().filter_map(read).collect()
}

#[test]
fn a_contact_that_was_removed_while_its_node_was_unreachable_becomes_unavailable() {
    let nodes = two_nodes();
    let (romeo, _juliet) = (online(&nodes, 0, "romeo", "a"), online(&nodes, 1, "juliet", "b"));
    assert!(presence(&romeo).contains(&("juliet@example.com/b".to_owned(), true)));
    nodes.cut(0, 1);
    romeo.send(
        "<iq type='set' id='1'><query xmlns='jabber:iq:roster'>\
         <item jid='juliet@example.com' subscription='remove'/></query></iq>",
    );
    nodes.settle();
    assert_eq!(presence(&romeo), [("juliet@example.com".to_owned(), false)]);
}

/// Both sessions begin at once, so neither node knows the other's when it reports its own. The presence arrives first.
#[test]
fn a_resource_that_its_node_has_not_reported_becomes_unavailable_when_that_node_is_lost() {
    let mut nodes = two_nodes();
    let (here, there) = (nodes.node(0).connect("juliet", "a"), nodes.node(1).connect("juliet", "b"));
    [&here, &there].iter().for_each(|client| client.send("<presence/>"));
    nodes.step();
    assert!(presence(&here).contains(&("juliet@example.com/b".to_owned(), true)));
    nodes.crash(1);
    nodes.settle();
    let received = presence(&here);
    assert!(received.contains(&("juliet@example.com".to_owned(), false)), "{received:?}");
    assert!(received.contains(&("juliet@example.com/a".to_owned(), true)), "what is left: {received:?}");
}

#[test]
fn presence_arrives_once_after_an_approval_on_another_node() {
    let nodes = TestNodes::new(3, &observed_features());
    for user in ["romeo", "juliet"] {
        nodes.node(0).create_user(user);
    }
    let romeo = [online(&nodes, 0, "romeo", "a"), online(&nodes, 2, "romeo", "c")];
    let juliet = online(&nodes, 1, "juliet", "b");
    romeo.iter().for_each(|client| drop(client.recv()));
    romeo[0].send("<presence type='subscribe' to='juliet@example.com'/>");
    nodes.settle();
    romeo.iter().for_each(|client| drop(presence(client)));
    juliet.send("<presence type='subscribed' to='romeo@example.com'/>");
    nodes.settle();
    for client in romeo {
        let from_juliet = presence(&client).into_iter().filter(|(from, _)| from.starts_with("juliet@"));
        let available: Vec<_> = from_juliet.filter(|(from, _)| from.ends_with("/b")).collect();
        assert_eq!(available, [("juliet@example.com/b".to_owned(), true)], "{}", client.full());
    }
}
