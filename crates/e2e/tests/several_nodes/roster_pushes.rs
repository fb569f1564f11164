//! Rosters of accounts with sessions on several nodes: pushes of two nodes, and pushes to a node whose queue is full.

use testkit::{NodeClient, TestNodes};
use throng_e2e::chain_observer::observed_features;

/// A session that has requested the roster.
fn interested(nodes: &TestNodes, node: usize, resource: &str) -> NodeClient {
    let client = nodes.node(node).connect("juliet", resource);
    client.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>");
    client.send("<iq type='get' id='b'><blocklist xmlns='urn:xmpp:blocking'/></iq>");
    client.send("<presence/>");
    nodes.settle();
    client.recv();
    client
}

fn rename(client: &NodeClient, name: &str) {
    client.send(&format!(
        "<iq type='set' id='{name}'><query xmlns='jabber:iq:roster'>\
         <item jid='romeo@example.com' name='{name}'/></query></iq>"
    ));
}

/// Names in the pushes that a client received since the last call.
fn pushed_names(client: &NodeClient) -> Vec<String> {
    let name = |text: &String| {
        let document = roxmltree::Document::parse(text).expect("XML");
        let item = document.descendants().find(|node| node.tag_name().name() == "item")?;
        let is_push = document.root_element().attribute("type") == Some("set");
        is_push.then(|| item.attribute("name").unwrap_or_default().to_owned())
    };
    client.recv().iter().filter_map(name).collect()
}

/// RFC 6121, section 2.6.3.
#[test]
fn clients_show_the_later_of_two_changes_of_an_entry_on_two_nodes() {
    let nodes = TestNodes::new(3, &observed_features());
    nodes.node(0).create_user("juliet");
    let clients = [interested(&nodes, 0, "a"), interested(&nodes, 1, "b"), interested(&nodes, 2, "c")];
    // The first push takes longer to the third node.
    nodes.cut(0, 2);
    rename(&clients[0], "old");
    rename(&clients[1], "new");
    for _ in 0..10 {
        nodes.step();
    }
    nodes.heal(0, 2);
    nodes.settle();
    for client in &clients {
        let names = pushed_names(client);
        assert_eq!(names.last().map(String::as_str), Some("new"), "{}: {names:?}", client.full());
    }
}

#[test]
fn pushes_that_do_not_fit_into_the_queue_of_a_node_arrive_later_in_their_order() {
    let nodes = TestNodes::new(2, &observed_features());
    for user in ["juliet", "paris", "tybalt"] {
        nodes.node(0).create_user(user);
    }
    let (phone, laptop) = (interested(&nodes, 0, "phone"), interested(&nodes, 1, "laptop"));
    let sender = nodes.node(0).connect("paris", "p");
    let tybalt = nodes.node(1).connect("tybalt", "t");
    tybalt.send("<presence/>");
    nodes.settle();
    laptop.recv();
    // Nothing passes between the nodes until `settle`.
    let body = "x".repeat(200_000);
    for _ in 0..30 {
        sender.send(&format!("<message to='tybalt@example.com' type='chat'><body>{body}</body></message>"));
    }
    for octets in [10_000, 1_000, 1] {
        let body = "x".repeat(octets);
        for _ in 0..50 {
            sender
                .send(&format!("<message to='tybalt@example.com' type='chat'><body>{body}</body></message>"));
        }
    }
    rename(&phone, "one");
    for action in ["block", "unblock"] {
        phone.send(&format!(
            "<iq type='set' id='{action}'><{action} xmlns='urn:xmpp:blocking'><item jid='paris@example.com'/></{action}></iq>"
        ));
    }
    rename(&phone, "two");
    for _ in 0..6 {
        nodes.settle();
        tybalt.recv();
        nodes.advance(1);
    }
    nodes.settle();
    let received = laptop.recv();
    let position = |part: &str| received.iter().position(|text| text.contains(part));
    let pushes = ["name='one'", "<block ", "<unblock ", "name='two'"].map(position);
    assert!(pushes.iter().all(Option::is_some) && pushes.is_sorted(), "{pushes:?}: {received:#?}");
}
