//! Presence when a node is lost in the middle of a change, or does not handle what it is sent: its contacts and the other
//! resources must not show what is gone.

use cluster::InvalidationSubject;
use jid::Jid;
use testkit::{NodeClient, TestNodes};
use throng_e2e::chain_observer::observed_features;

use crate::handovers::{JULIET, Peer};

pub(crate) fn two_nodes() -> TestNodes {
    let nodes = TestNodes::new(2, &observed_features());
    for user in ["romeo", "juliet"] {
        nodes.node(0).create_user(user);
    }
    nodes.node(0).befriend("romeo", "juliet");
    nodes
}

pub(crate) fn online(nodes: &TestNodes, node: usize, user: &str, resource: &str) -> NodeClient {
    let client = nodes.node(node).connect(user, resource);
    client.send("<presence/>");
    nodes.settle();
    client
}

/// The presence that a client received since the last call: `from`, and whether it is available.
pub(crate) fn presence(client: &NodeClient) -> Vec<(String, bool)> {
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

/// When a node is lost, subscribers receive the presence that is left. One who is blocked must not.
#[test]
fn a_blocked_subscriber_receives_no_presence_when_a_node_is_lost() {
    let mut nodes = two_nodes();
    let romeo = online(&nodes, 0, "romeo", "a");
    let balcony = online(&nodes, 0, "juliet", "balcony");
    let _phone = online(&nodes, 1, "juliet", "phone");
    assert_eq!(presence(&romeo).iter().filter(|(from, _)| from.starts_with(JULIET)).count(), 2);
    balcony.send(
        "<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'><item jid='romeo@example.com'/></block></iq>",
    );
    nodes.settle();
    assert!(presence(&romeo).iter().all(|(_, available)| !available));
    nodes.crash(1);
    nodes.settle();
    let received = presence(&romeo);
    assert!(received.iter().all(|(_, available)| !available), "{received:?}");
}

/// Juliet removes romeo on one node, and her phone on another node asks for his presence before that node learns it: its roster view has
/// the removal already when it is read again.
#[test]
fn a_removal_is_noticed_by_a_node_that_changes_the_same_contact_before_it_learns_it() {
    let nodes = two_nodes();
    let romeo = online(&nodes, 1, "romeo", "a");
    let (balcony, phone) = (online(&nodes, 0, "juliet", "balcony"), online(&nodes, 1, "juliet", "phone"));
    presence(&romeo);
    nodes.cut(0, 1);
    balcony.send(
        "<iq type='set' id='1'><query xmlns='jabber:iq:roster'>\
         <item jid='romeo@example.com' subscription='remove'/></query></iq>",
    );
    phone.send("<presence type='subscribe' to='romeo@example.com'/>");
    nodes.step();
    nodes.heal(0, 1);
    nodes.settle();
    let mut seen = std::collections::BTreeMap::new();
    presence(&romeo).into_iter().for_each(|(from, available)| {
        seen.insert(from, available);
    });
    for resource in ["balcony", "phone"] {
        let last = seen.get(&format!("juliet@example.com/{resource}"));
        assert_eq!(last, Some(&false), "{resource}: {seen:?}");
    }
}

/// Both become available at once, so neither node finds the other's session. The claims of the nodes lead to it.
#[test]
fn resources_that_become_available_on_two_nodes_at_once_see_one_another_until_a_node_is_lost() {
    let mut nodes = two_nodes();
    let (here, there) = (nodes.node(0).connect("juliet", "a"), nodes.node(1).connect("juliet", "b"));
    [&here, &there].iter().for_each(|client| client.send("<presence/>"));
    nodes.settle();
    assert!(presence(&here).contains(&("juliet@example.com/b".to_owned(), true)));
    assert!(presence(&there).contains(&("juliet@example.com/a".to_owned(), true)));
    nodes.crash(1);
    nodes.settle();
    let received = presence(&here);
    assert_eq!(received, [("juliet@example.com/b".to_owned(), false)]);
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

/// More than may be due for one node.
const TOO_MUCH: u32 = 70_000;

#[test]
fn a_node_that_missed_more_than_may_be_due_for_it_shows_the_presence_that_there_is() {
    let nodes = TestNodes::new(3, &observed_features());
    for user in ["romeo", "juliet", "nurse", "tybalt", "paris"] {
        nodes.node(0).create_user(user);
    }
    for contact in ["juliet", "nurse", "tybalt"] {
        nodes.node(0).befriend("romeo", contact);
    }
    let romeo = online(&nodes, 1, "romeo", "a");
    let paris = online(&nodes, 1, "paris", "a");
    let sender = online(&nodes, 0, "paris", "b");
    let leaves = online(&nodes, 0, "juliet", "b");
    let _stays = online(&nodes, 0, "nurse", "b");
    let _elsewhere = online(&nodes, 2, "tybalt", "c");
    for client in [&romeo, &paris] {
        drop(presence(client));
    }
    // Nothing passes between the nodes until `settle`.
    let body = "x".repeat(200_000);
    for _ in 0..30 {
        sender.send(&format!("<message to='romeo@example.com' type='chat'><body>{body}</body></message>"));
    }
    let node = nodes.node(0);
    for number in 0..TOO_MUCH {
        let changed = Jid::parse(&format!("{number}@example.com")).expect("an address");
        node.node.peer_routing().invalidate(&node.node, changed.as_ref(), InvalidationSubject::Roster);
    }
    assert_eq!(node.node.metrics.cluster_resyncs.get(), 1);
    // These are not remembered.
    leaves.send("<presence type='unavailable'/>");
    drop(leaves);
    let comes = nodes.node(0).connect("juliet", "new");
    comes.send("<presence/>");
    let address = Jid::parse("paris@example.com").expect("an address");
    let disabled = throng_commands::account_admin::set_account_disabled(&node.node, &address, true);
    node.block_on(disabled).expect("an account");
    for _ in 0..3 {
        nodes.settle();
        nodes.advance(1);
    }
    nodes.settle();
    let mut shown = std::collections::BTreeSet::new();
    for (from, available) in presence(&romeo) {
        if available {
            shown.insert(from);
        } else {
            shown.retain(|full: &String| *full != from && !full.starts_with(&format!("{from}/")));
        }
    }
    let expected = ["juliet@example.com/new", "nurse@example.com/b", "tybalt@example.com/c"];
    assert!(shown.iter().eq(expected), "{shown:?}");
    assert!(paris.session.is_ended(), "its account is disabled");
    assert_eq!(nodes.node(0).node.metrics.cluster_resyncs.get(), 1, "once");
    assert_eq!(nodes.node(1).node.metrics.cluster_resyncs.get(), 0);
}

/// The peer has the oldest claim to an address, so what is sent to it fills its queue.
#[test]
fn a_node_that_handles_nothing_does_not_stop_the_exchange_of_presence_with_another() {
    let test = Peer::new();
    let nodes = &test.nodes;
    for user in ["nurse", "paris"] {
        nodes.node(0).create_user(user);
    }
    nodes.node(0).befriend("romeo", "nurse");
    test.claim(0);
    let _nurse = online(nodes, 1, "nurse", "b");
    let sender = online(nodes, 0, "paris", "a");
    let body = "x".repeat(200_000);
    for _ in 0..30 {
        for to in [JULIET, "nurse@example.com"] {
            sender.send(&format!("<message to='{to}' type='chat'><body>{body}</body></message>"));
        }
    }
    let node = nodes.node(0);
    for number in 0..TOO_MUCH {
        let changed = Jid::parse(&format!("{number}@example.com")).expect("an address");
        node.node.peer_routing().invalidate(&node.node, changed.as_ref(), InvalidationSubject::Roster);
    }
    assert_eq!(node.node.metrics.cluster_resyncs.get(), 2, "both have missed too much");
    let romeo = node.connect("romeo", "a");
    romeo.send("<presence/>");
    for _ in 0..3 {
        nodes.settle();
        nodes.advance(1);
    }
    nodes.settle();
    let shown = presence(&romeo);
    assert!(shown.contains(&("nurse@example.com/b".to_owned(), true)), "{shown:?}");
}

/// Accounts are read in groups, and share counters of changes.
#[test]
fn blocklists_that_changed_on_the_other_side_of_a_partition_are_in_effect_after_it() {
    let nodes = TestNodes::new(2, &observed_features());
    let names: Vec<String> = (0..500).map(|number| format!("u{number}")).collect();
    let _clients: Vec<NodeClient> = names
        .iter()
        .map(|name| {
            nodes.node(0).create_user(name);
            nodes.node(1).connect(name, "b")
        })
        .collect();
    nodes.settle();
    nodes.cut(0, 1);
    nodes.settle();
    let juliet = Jid::parse(JULIET).expect("an address");
    let addresses = names.iter().map(|name| Jid::parse(&format!("{name}@example.com")).expect("an address"));
    let addresses: Vec<Jid> = addresses.collect();
    for address in &addresses {
        let unblock = store::Unblock::These(Vec::new());
        let change =
            nodes.stores.blocklists.update_blocklist(address.as_ref(), vec![juliet.clone()], unblock, 9);
        nodes.node(0).block_on(change).expect("the store");
    }
    nodes.heal(0, 1);
    // Groups of accounts are read one after the other, while nothing is in transit.
    (0..100).for_each(|_| nodes.settle());
    let node = &nodes.node(1).node;
    let has_blocked = |address: &&Jid| {
        let account = node.routing_table.find(address.as_ref()).expect("an account");
        account.blocked().is_some_and(|list| list.matches(juliet.as_ref()))
    };
    assert_eq!(addresses.iter().filter(has_blocked).count(), addresses.len());
}

/// It starts while it does not reach the other one, and serves a client.
#[test]
fn a_node_that_was_alone_at_its_start_learns_what_others_have_changed_before() {
    let mut nodes = two_nodes();
    nodes.node(0).create_user("paris");
    nodes.cut(0, 1);
    nodes.crash(1);
    nodes.settle();
    nodes.restart(1);
    let disabled = nodes.node(1).connect("paris", "a");
    let _juliet = online(&nodes, 1, "juliet", "b");
    let node = nodes.node(0);
    let address = |user: &str| Jid::parse(&format!("{user}@example.com")).expect("an address");
    node.block_on(throng_commands::account_admin::set_account_disabled(&node.node, &address("paris"), true))
        .expect("an account");
    let (juliet, romeo) = (address("juliet"), address("romeo"));
    let (views, unblock) = (node.node.account_views(), store::Unblock::These(Vec::new()));
    let change = views.update_blocklist(&node.node, &juliet, vec![romeo.clone()], unblock, 9);
    drop(node.block_on(change).expect("the store"));
    nodes.heal(0, 1);
    nodes.settle();
    assert!(disabled.session.is_ended(), "its account is disabled");
    let juliet = nodes.node(1).node.routing_table.find(juliet.as_ref()).expect("an account");
    assert!(juliet.blocks(romeo.as_ref()));
}

/// RFC 6121, section 3.2.2.
#[test]
fn the_end_of_a_subscription_follows_the_unavailable_of_resources_on_all_nodes() {
    for ends in [
        "<presence type='unsubscribed' to='romeo@example.com'/>",
        "<iq type='set' id='1'><query xmlns='jabber:iq:roster'>\
         <item jid='romeo@example.com' subscription='remove'/></query></iq>",
    ] {
        let nodes = TestNodes::new(3, &observed_features());
        for user in ["romeo", "juliet"] {
            nodes.node(0).create_user(user);
        }
        nodes.node(0).befriend("romeo", "juliet");
        let romeo = online(&nodes, 2, "romeo", "c");
        romeo.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>");
        let (here, _there) = (online(&nodes, 0, "juliet", "a"), online(&nodes, 1, "juliet", "b"));
        romeo.recv();
        here.send(ends);
        nodes.settle();
        let received = romeo.recv();
        let position =
            |parts: [&str; 2]| received.iter().position(|text| parts.iter().all(|part| text.contains(part)));
        let end = position(["'unsubscribed'", "juliet@example.com"]);
        for resource in ["juliet@example.com/a", "juliet@example.com/b"] {
            let gone = position(["'unavailable'", resource]);
            assert!(gone.is_some() && end.is_some() && gone < end, "{resource}: {received:#?}");
        }
    }
}

/// Sends more presence than another node has room for. Nothing passes between the nodes until they step.
fn send_much_presence(client: &NodeClient) {
    for (count, octets) in [(800, 3_000), (30, 300), (30, 1)] {
        let status = "x".repeat(octets);
        for _ in 0..count {
            client.send(&format!("<presence><status>{status}</status></presence>"));
        }
    }
    // Not even `unavailable` has room.
    (0..30).for_each(|_| client.send("<presence/>"));
}

/// More presence is due for the other node than it has room for, as when many sessions end with their node.
#[test]
fn a_node_that_shuts_down_sends_the_presence_that_is_due() {
    let mut nodes = two_nodes();
    for user in ["paris", "tybalt"] {
        nodes.node(0).create_user(user);
    }
    nodes.node(0).befriend("paris", "tybalt");
    let (juliet, _tybalt) = (online(&nodes, 0, "juliet", "a"), online(&nodes, 0, "tybalt", "a"));
    let (romeo, paris) = (online(&nodes, 1, "romeo", "b"), online(&nodes, 1, "paris", "b"));
    assert!(presence(&juliet).contains(&("romeo@example.com/b".to_owned(), true)));
    send_much_presence(&paris);
    [romeo, paris].iter().for_each(NodeClient::close);
    // The end of the claims arrives, and what is before it. Its receipts have not.
    nodes.step();
    nodes.leave(1);
    nodes.settle();
    let received = presence(&juliet);
    assert!(!received.is_empty() && received.iter().all(|(_, available)| !available), "{received:?}");
}

/// Its queue has no room while this one shuts down.
#[test]
fn a_node_that_does_not_take_what_is_due_before_another_one_shuts_down_withdraws_its_users() {
    let mut nodes = two_nodes();
    let juliet = online(&nodes, 0, "juliet", "a");
    let romeo = online(&nodes, 1, "romeo", "b");
    assert!(presence(&juliet).contains(&("romeo@example.com/b".to_owned(), true)));
    let node = nodes.node(1).node.clone();
    send_much_presence(&romeo);
    romeo.close();
    assert!(peers::send_due_items(&node) > 0);
    assert_eq!(peers::discard_due_items(&node).nodes, [nodes.id(0)]);
    assert_eq!(peers::send_due_items(&node), 0);
    nodes.leave(1);
    nodes.settle();
    let last = presence(&juliet).pop();
    assert!(last.as_ref().is_some_and(|(_, available)| !available), "{last:?}");
}
