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

/// Two nodes with a session of one user each; the queue from the first node to the second is full of messages to another user.
struct FullQueue {
    nodes: TestNodes,
    phone: NodeClient,
    laptop: NodeClient,
    tybalt: NodeClient,
    _sender: NodeClient,
}

fn full_queue() -> FullQueue {
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
    fill_queue(&sender);
    FullQueue { nodes, phone, laptop, tybalt, _sender: sender }
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

/// Sends more to tybalt than the queue to his node holds. Nothing passes between the nodes until `settle`.
fn fill_queue(sender: &NodeClient) {
    for (count, octets) in [(30, 200_000), (50, 10_000), (50, 1_000), (50, 1)] {
        let body = "x".repeat(octets);
        for _ in 0..count {
            sender
                .send(&format!("<message to='tybalt@example.com' type='chat'><body>{body}</body></message>"));
        }
    }
}

/// Sends what is due while tybalt reads; what the laptop receives.
fn drain_queue(nodes: &TestNodes, tybalt: &NodeClient, laptop: &NodeClient) -> Vec<String> {
    let mut received = Vec::new();
    for _ in 0..8 {
        // Their own queues are bounded, too.
        for _ in 0..40 {
            nodes.step();
            tybalt.recv();
            received.extend(laptop.recv());
        }
        nodes.advance(1);
    }
    received
}

/// The version of the last push among these stanzas.
fn last_version(received: &[String]) -> String {
    let version = |text: &String| {
        let document = roxmltree::Document::parse(text).expect("XML");
        let is_push = document.root_element().attribute("type") == Some("set");
        let query = document.descendants().find(|node| node.has_tag_name(("jabber:iq:roster", "query")));
        query.filter(|_| is_push).and_then(|query| query.attribute("ver").map(str::to_owned))
    };
    received.iter().rev().find_map(version).expect("a push")
}

/// What a new session receives that requests the roster with a version.
fn request_with(nodes: &TestNodes, node: usize, version: &str) -> String {
    let client = nodes.node(node).connect("juliet", "again");
    client.send(&format!("<iq type='get' id='r'><query xmlns='jabber:iq:roster' ver='{version}'/></iq>"));
    nodes.settle();
    let received = client.recv().concat();
    client.close();
    nodes.settle();
    received
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
    let FullQueue { nodes, phone, laptop, tybalt, .. } = &full_queue();
    rename(phone, "one");
    for action in ["block", "unblock"] {
        phone.send(&format!(
            "<iq type='set' id='{action}'><{action} xmlns='urn:xmpp:blocking'><item jid='paris@example.com'/></{action}></iq>"
        ));
    }
    rename(phone, "two");
    let received = drain_queue(nodes, tybalt, laptop);
    let position = |part: &str| received.iter().position(|text| text.contains(part));
    let pushes = ["name='one'", "<block ", "<unblock ", "name='two'"].map(position);
    assert!(pushes.iter().all(Option::is_some) && pushes.is_sorted(), "{pushes:?}: {received:#?}");
}

/// RFC 6121, section 2.6: it requests it with the version of a later push.
#[test]
fn a_client_that_has_missed_a_push_of_a_node_that_was_cut_off_receives_the_whole_roster() {
    let nodes = TestNodes::new(2, &observed_features());
    nodes.node(0).create_user("juliet");
    let (phone, laptop) = (interested(&nodes, 0, "phone"), interested(&nodes, 1, "laptop"));
    nodes.cut(0, 1);
    rename(&phone, "missed");
    nodes.settle();
    nodes.heal(0, 1);
    nodes.settle();
    assert_eq!(pushed_names(&laptop), [""; 0]);
    // From its own node, and from the other one.
    for client in [&phone, &laptop] {
        client.send(
            "<iq type='set' id='s'><query xmlns='jabber:iq:roster'><item jid='paris@example.com'/></query></iq>",
        );
        nodes.settle();
        let version = last_version(&laptop.recv());
        for node in [0, 1] {
            let received = request_with(&nodes, node, &version);
            assert!(received.contains("name='missed'"), "{version}: {received}");
        }
    }
    // With the whole roster, the laptop has missed nothing any more.
    laptop.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster' ver='1'/></iq>");
    rename(&phone, "seen");
    nodes.settle();
    let received = laptop.recv();
    assert!(received.iter().any(|text| text.contains("name='missed'")), "{received:?}");
    let current = last_version(&received);
    assert!(!request_with(&nodes, 1, &current).contains("<item"), "{current}");
}

/// The version of its own push is that of the roster.
#[test]
fn a_client_receives_the_whole_roster_although_its_own_node_has_pushed_a_later_change() {
    for is_killed in [false, true] {
        let mut nodes = TestNodes::new(3, &observed_features());
        nodes.node(0).create_user("juliet");
        let (phone, laptop) = (interested(&nodes, 0, "phone"), interested(&nodes, 1, "laptop"));
        [0, 2].iter().for_each(|node| nodes.cut(*node, 1));
        rename(&phone, "missed");
        if is_killed {
            nodes.crash(0);
            nodes.heal(2, 1);
        } else {
            nodes.settle();
        }
        laptop.send(
            "<iq type='set' id='s'><query xmlns='jabber:iq:roster'><item jid='paris@example.com'/></query></iq>",
        );
        nodes.settle();
        if !is_killed {
            [0, 2].iter().for_each(|node| nodes.heal(*node, 1));
            nodes.settle();
        }
        let received = laptop.recv();
        assert!(!received.iter().any(|text| text.contains("name='missed'")), "{received:?}");
        let version = last_version(&received);
        for node in [1, 2] {
            let received = request_with(&nodes, node, &version);
            assert!(received.contains("name='missed'"), "{is_killed}, {version}: {received}");
        }
        // As the client that requests it again in the same session.
        laptop.send(&format!("<iq type='get' id='r'><query xmlns='jabber:iq:roster' ver='{version}'/></iq>"));
        nodes.settle();
        assert!(laptop.recv().iter().any(|text| text.contains("name='missed'")), "{is_killed}");
    }
}

/// Nothing is lost, so its version stays that of the roster.
#[test]
fn a_client_that_receives_several_pushes_of_another_node_at_once_has_the_last_version() {
    let nodes = TestNodes::new(2, &observed_features());
    nodes.node(0).create_user("juliet");
    let (phone, laptop) = (interested(&nodes, 0, "phone"), interested(&nodes, 1, "laptop"));
    ["one", "two", "three"].iter().for_each(|name| rename(&phone, name));
    nodes.settle();
    let version = last_version(&laptop.recv());
    assert!(!request_with(&nodes, 1, &version).contains("<item"), "{version}");
}

#[test]
fn a_client_that_has_missed_a_push_without_room_receives_the_whole_roster() {
    let FullQueue { nodes, phone, laptop, tybalt, .. } = &full_queue();
    rename(phone, "missed");
    let mut pushed = Vec::new();
    for round in 0..100 {
        let group = |at: u32| format!("<group>{round}-{at}-{}</group>", "x".repeat(1000));
        let groups: String = (0..48).map(group).collect();
        phone.send(&format!(
            "<iq type='set' id='s{round}'><query xmlns='jabber:iq:roster'>\
             <item jid='paris@example.com' name='{round}'>{groups}</item></query></iq>"
        ));
        pushed.extend(phone.recv());
    }
    let received = drain_queue(nodes, tybalt, laptop);
    assert!(!received.iter().any(|text| text.contains("name='missed'")), "there was room");
    let version = last_version(&received);
    assert_eq!(version, format!("{}-incomplete", last_version(&pushed)), "it has received the last one");
    let answer = request_with(nodes, 0, &version);
    assert!(answer.contains("name='missed'"), "{version}: {} octets", answer.len());
}

/// The roster changes on node 1, which reports that, and does not push it, as if the push were lost.
fn change_without_push(nodes: &TestNodes) {
    nodes.node(1).edit_roster_item("juliet", "romeo", |item| {
        item.name = Some("missed".to_owned());
        item.subscription = store::Subscription::IN_ROSTER;
    });
    nodes.settle();
}

/// Its node has read the roster, because the report has arrived and the push has not.
#[test]
fn a_client_that_has_missed_a_push_of_a_killed_node_receives_the_whole_roster() {
    let mut nodes = TestNodes::new(2, &observed_features());
    nodes.node(0).create_user("juliet");
    let laptop = interested(&nodes, 0, "laptop");
    change_without_push(&nodes);
    nodes.crash(1);
    nodes.settle();
    laptop.send(
        "<iq type='set' id='s'><query xmlns='jabber:iq:roster'><item jid='paris@example.com'/></query></iq>",
    );
    nodes.settle();
    let version = last_version(&laptop.recv());
    let received = request_with(&nodes, 0, &version);
    assert!(received.contains("name='missed'"), "{version}: {received}");
    // With the whole roster, it has missed nothing any more.
    laptop.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster' ver='1'/></iq>");
    nodes.settle();
    laptop.recv();
    rename(&laptop, "again");
    nodes.settle();
    let current = last_version(&laptop.recv());
    assert!(!request_with(&nodes, 0, &current).contains("<item"), "{current}");
}

/// The node that has lost the push pushes the next one.
#[test]
fn a_push_after_one_that_was_lost_does_not_have_the_version_of_the_roster() {
    let nodes = TestNodes::new(2, &observed_features());
    nodes.node(0).create_user("juliet");
    let (laptop, phone) = (interested(&nodes, 0, "laptop"), interested(&nodes, 1, "phone"));
    change_without_push(&nodes);
    phone.send(
        "<iq type='set' id='s'><query xmlns='jabber:iq:roster'><item jid='paris@example.com'/></query></iq>",
    );
    nodes.settle();
    let version = last_version(&laptop.recv());
    let received = request_with(&nodes, 0, &version);
    assert!(received.contains("name='missed'"), "{version}: {received}");
}

/// The report of the change fits into the queue of the other node, the push does not.
#[test]
fn a_node_that_shuts_down_sends_the_pushes_that_wait_for_room() {
    let mut nodes = TestNodes::new(2, &observed_features());
    for user in ["juliet", "paris", "tybalt"] {
        nodes.node(0).create_user(user);
    }
    let (phone, laptop) = (interested(&nodes, 0, "phone"), interested(&nodes, 1, "laptop"));
    let sender = nodes.node(0).connect("paris", "p");
    let tybalt = nodes.node(1).connect("tybalt", "t");
    tybalt.send("<presence/>");
    nodes.settle();
    laptop.recv();
    for (count, octets) in [(30, 200_000), (50, 10_000)] {
        let body = "x".repeat(octets);
        for _ in 0..count {
            sender
                .send(&format!("<message to='tybalt@example.com' type='chat'><body>{body}</body></message>"));
        }
    }
    let groups: String =
        (0..40).map(|group| format!("<group>{group}-{}</group>", "x".repeat(1000))).collect();
    phone.send(&format!(
        "<iq type='set' id='s'><query xmlns='jabber:iq:roster'>\
         <item jid='romeo@example.com' name='missed'>{groups}</item></query></iq>"
    ));
    [phone, sender].iter().for_each(NodeClient::close);
    nodes.leave(0);
    nodes.settle();
    let pushed = pushed_names(&laptop);
    assert_eq!(pushed, ["missed"]);
}
