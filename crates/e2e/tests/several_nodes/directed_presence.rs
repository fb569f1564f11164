//! Probes, and presence to single entities (RFC 6121, sections 4.3 and 4.6), of sessions that are not on the home of their account.

use testkit::{NodeClient, TestNodes};
use throng_e2e::chain_observer::observed_features;

use crate::presence::{online, presence, two_nodes};

fn seen(from: &str, available: bool) -> Vec<(String, bool)> {
    vec![(from.to_owned(), available)]
}

/// The resources of juliet on three nodes, of which the first is her home, and tybalt, who is no contact.
fn three_nodes() -> (TestNodes, [NodeClient; 3], NodeClient) {
    let nodes = TestNodes::new(3, &observed_features());
    for user in ["juliet", "tybalt"] {
        nodes.node(0).create_user(user);
    }
    let juliet = [(0, "a"), (1, "b"), (2, "c")].map(|(node, resource)| {
        nodes.clock.advance(10);
        online(&nodes, node, "juliet", resource)
    });
    let tybalt = online(&nodes, 1, "tybalt", "t");
    presence(&tybalt);
    (nodes, juliet, tybalt)
}

/// What tybalt receives after he has sent this.
fn answers(nodes: &TestNodes, tybalt: &NodeClient, stanza: &str) -> Vec<String> {
    tybalt.send(stanza);
    nodes.settle();
    tybalt.recv()
}

#[test]
fn a_subscriber_that_probes_a_resource_on_another_node_receives_its_availability() {
    let nodes = two_nodes();
    let _home = online(&nodes, 0, "juliet", "a");
    nodes.clock.advance(10);
    let (phone, romeo) = (online(&nodes, 1, "juliet", "b"), online(&nodes, 0, "romeo", "r"));
    let probe = |resource: &str| {
        presence(&romeo);
        romeo.send(&format!("<presence type='probe' to='juliet@example.com/{resource}'/>"));
        nodes.settle();
        presence(&romeo)
    };
    assert_eq!(probe("b"), seen("juliet@example.com/b", true));
    assert_eq!(probe("nowhere"), seen("juliet@example.com/nowhere", false));
    phone.send("<presence type='unavailable'/>");
    nodes.settle();
    assert_eq!(probe("b"), seen("juliet@example.com/b", false));
}

#[test]
fn section_4_6_6_a_recipient_of_directed_presence_may_probe_resources_on_all_nodes() {
    let (nodes, juliet, tybalt) = three_nodes();
    // The answer is `unsubscribed`, which changes nothing and is not shown.
    let received = answers(&nodes, &tybalt, "<presence type='probe' to='juliet@example.com'/>");
    assert!(received.is_empty(), "nobody sent him presence: {received:?}");
    for session in &juliet[1..] {
        session.send("<presence to='tybalt@example.com/t'/>");
    }
    nodes.settle();
    tybalt.recv();
    tybalt.send("<presence type='probe' to='juliet@example.com'/>");
    nodes.settle();
    let mut all = presence(&tybalt);
    all.sort();
    assert_eq!(all, [seen("juliet@example.com/b", true), seen("juliet@example.com/c", true)].concat());
    tybalt.send("<presence type='probe' to='juliet@example.com/c'/>");
    nodes.settle();
    assert_eq!(presence(&tybalt), seen("juliet@example.com/c", true));
    let received = answers(&nodes, &tybalt, "<presence type='probe' to='juliet@example.com/a'/>");
    assert!(received.is_empty(), "{received:?}");
}

#[test]
fn section_4_6_1_an_entity_that_becomes_unavailable_receives_no_more_presence_from_another_node() {
    let (nodes, juliet, tybalt) = three_nodes();
    for to in ["juliet@example.com/c", "juliet@example.com"] {
        juliet[2].send("<presence to='tybalt@example.com/t'/>");
        nodes.settle();
        tybalt.recv();
        juliet[2].recv();
        tybalt.send(&format!("<presence type='unavailable' to='{to}'/>"));
        nodes.settle();
        assert_eq!(presence(&juliet[2]), seen("tybalt@example.com/t", false));
        assert!(juliet[2].session.with(|state| state.directed_presence.is_none()), "{to}");
    }
    juliet[2].close();
    nodes.settle();
    assert!(presence(&tybalt).is_empty());
}

#[test]
fn directed_presence_of_sessions_on_a_node_that_is_killed_is_withdrawn() {
    for killed in [0, 2] {
        let mut nodes = TestNodes::new(3, &observed_features());
        for user in ["juliet", "tybalt"] {
            nodes.node(0).create_user(user);
        }
        let juliet = online(&nodes, killed, "juliet", "j");
        // His home is the node that is killed, or another one.
        let _home = online(&nodes, 0, "tybalt", "home");
        nodes.clock.advance(10);
        let tybalt = online(&nodes, 1, "tybalt", "t");
        tybalt.recv();
        for to in ["tybalt@example.com/t", "tybalt@example.com"] {
            juliet.send(&format!("<presence to='{to}'/>"));
        }
        nodes.settle();
        assert_eq!(presence(&tybalt).len(), 2);
        // What was withdrawn is not withdrawn again.
        juliet.send("<presence type='unavailable' to='tybalt@example.com'/>");
        nodes.settle();
        tybalt.recv();
        nodes.crash(killed);
        nodes.settle();
        let mut received = presence(&tybalt);
        received.retain(|(from, _)| from.starts_with("juliet@"));
        assert_eq!(received, seen("juliet@example.com/j", false), "node {killed}");
    }
}

/// Juliet's session on node 2, which may be resumed, and tybalt's on node 1, which has received its presence.
fn directed_to_tybalt() -> (TestNodes, NodeClient, NodeClient) {
    let nodes = TestNodes::new(3, &observed_features());
    for user in ["juliet", "tybalt"] {
        nodes.node(0).create_user(user);
    }
    let (juliet, tybalt) = (online(&nodes, 2, "juliet", "j"), online(&nodes, 1, "tybalt", "t"));
    juliet.enable_resumption();
    juliet.send("<presence to='tybalt@example.com/t'/>");
    nodes.settle();
    juliet.recv();
    tybalt.recv();
    (nodes, juliet, tybalt)
}

fn move_to(nodes: &TestNodes, node: usize, client: &NodeClient) -> NodeClient {
    client.leave(true);
    let pending = nodes.node(node).resume(client);
    nodes.settle();
    nodes.node(node).resumed(&pending).expect("an outcome").expect("it is resumed")
}

fn from_juliet(tybalt: &NodeClient) -> Vec<(String, bool)> {
    let mut received = presence(tybalt);
    received.retain(|(from, _)| from.starts_with("juliet@"));
    received
}

#[test]
fn directed_presence_of_a_session_that_has_moved_is_withdrawn_when_its_node_is_killed() {
    for sends_again in [false, true] {
        let (mut nodes, juliet, tybalt) = directed_to_tybalt();
        let moved = move_to(&nodes, 0, &juliet);
        if sends_again {
            moved.send("<presence to='tybalt@example.com/t'><show>away</show></presence>");
            nodes.settle();
        }
        tybalt.recv();
        nodes.crash(0);
        nodes.settle();
        assert_eq!(from_juliet(&tybalt), seen("juliet@example.com/j", false), "{sends_again}");
    }
}

#[test]
fn directed_presence_of_a_session_that_has_moved_stays_when_its_former_node_is_killed() {
    let (mut nodes, juliet, tybalt) = directed_to_tybalt();
    let moved = move_to(&nodes, 0, &juliet);
    moved.send("<presence to='tybalt@example.com/t'/>");
    nodes.settle();
    tybalt.recv();
    nodes.crash(2);
    nodes.settle();
    assert_eq!(from_juliet(&tybalt), []);
    moved.close();
    nodes.settle();
    assert_eq!(from_juliet(&tybalt), seen("juliet@example.com/j", false));
}

#[test]
fn directed_presence_of_a_killed_node_is_withdrawn_although_the_account_has_other_sessions() {
    for has_moved in [false, true] {
        let (mut nodes, juliet, tybalt) = directed_to_tybalt();
        let other = online(&nodes, 0, "juliet", "other");
        let moved = has_moved.then(|| move_to(&nodes, 0, &juliet));
        tybalt.recv();
        nodes.crash(2);
        nodes.settle();
        // A session that may have moved is asked.
        let mut expected = seen("juliet@example.com/j", false);
        expected.extend(seen("juliet@example.com/j", true).into_iter().filter(|_| has_moved));
        assert_eq!(from_juliet(&tybalt), expected, "{has_moved}");
        nodes.crash(0);
        drop((other, moved));
        nodes.settle();
        let expected = seen("juliet@example.com/j", false).into_iter().filter(|_| has_moved);
        assert_eq!(from_juliet(&tybalt), expected.collect::<Vec<_>>(), "{has_moved}");
    }
}

/// Juliet has requested a subscription and does not have it, so the presence that she receives is directed. She has not asked whether
/// his session has moved: `unsubscribed` would end her request.
#[test]
fn a_pending_subscription_survives_the_node_of_directed_presence() {
    let mut nodes = TestNodes::new(3, &observed_features());
    for user in ["juliet", "romeo"] {
        nodes.node(0).create_user(user);
    }
    let home = online(&nodes, 0, "romeo", "home");
    let (juliet, romeo) = (online(&nodes, 1, "juliet", "j"), online(&nodes, 2, "romeo", "r"));
    juliet.send("<presence type='subscribe' to='romeo@example.com'/>");
    nodes.settle();
    juliet.recv();
    romeo.send("<presence to='juliet@example.com/j'/>");
    nodes.settle();
    assert_eq!(presence(&juliet), seen("romeo@example.com/r", true));
    nodes.crash(2);
    nodes.settle();
    assert_eq!(presence(&juliet), seen("romeo@example.com/r", false));
    home.send("<presence type='subscribed' to='juliet@example.com'/>");
    nodes.settle();
    let roster = nodes.node(0).stored_roster_item("juliet", "romeo").expect("an entry");
    assert!(roster.subscription.contains(store::Subscription::TO), "{:?}", roster.subscription);
}

/// As when a node is drained: its sessions move, and it leaves.
#[test]
fn directed_presence_of_a_session_that_has_moved_from_a_node_that_left_is_withdrawn() {
    let (mut nodes, juliet, tybalt) = directed_to_tybalt();
    let moved = move_to(&nodes, 0, &juliet);
    tybalt.recv();
    nodes.leave(2);
    nodes.settle();
    assert_eq!(from_juliet(&tybalt), []);
    nodes.crash(0);
    drop(moved);
    nodes.settle();
    assert_eq!(from_juliet(&tybalt), seen("juliet@example.com/j", false));
}

/// The home does not know yet that a session there has ended.
#[test]
fn a_probe_passes_a_node_whose_session_has_ended() {
    let nodes = TestNodes::new(3, &observed_features());
    for user in ["juliet", "tybalt"] {
        nodes.node(0).create_user(user);
    }
    let [_home, ended, juliet] = [(0, "a"), (1, "b"), (2, "c")].map(|(node, resource)| {
        nodes.clock.advance(10);
        online(&nodes, node, "juliet", resource)
    });
    let tybalt = online(&nodes, 2, "tybalt", "t");
    juliet.send("<presence to='tybalt@example.com/t'/>");
    nodes.settle();
    tybalt.recv();
    nodes.cut(0, 1);
    ended.close();
    tybalt.send("<presence type='probe' to='juliet@example.com'/>");
    for _ in 0..5 {
        nodes.step();
    }
    nodes.heal(0, 1);
    nodes.settle();
    assert_eq!(presence(&tybalt), seen("juliet@example.com/c", true));
}

/// His client connects to the node of the recipient before that has noticed the loss.
#[test]
fn directed_presence_of_a_killed_node_is_withdrawn_although_the_client_has_connected_again() {
    for node in [0, 1] {
        let (mut nodes, _juliet, tybalt) = directed_to_tybalt();
        nodes.crash(2);
        let again = nodes.node(node).connect("juliet", "j");
        again.send("<presence/>");
        nodes.settle();
        assert_eq!(from_juliet(&tybalt), seen("juliet@example.com/j", false), "{node}");
        // What the new session sends stays.
        again.send("<presence to='tybalt@example.com/t'/>");
        nodes.settle();
        assert_eq!(from_juliet(&tybalt), seen("juliet@example.com/j", true), "{node}");
    }
}

/// Presence that was directed to somebody who has become a subscriber, or has moved away meanwhile.
#[test]
fn directed_presence_of_a_session_that_has_ended_is_not_withdrawn_later() {
    for moves in [false, true] {
        let (mut nodes, juliet, tybalt) = directed_to_tybalt();
        tybalt.send("<presence type='subscribe' to='juliet@example.com'/>");
        nodes.settle();
        juliet.send("<presence type='subscribed' to='tybalt@example.com'/>");
        nodes.settle();
        let tybalt = if moves {
            tybalt.enable_resumption();
            move_to(&nodes, 0, &tybalt)
        } else {
            tybalt
        };
        juliet.close();
        nodes.settle();
        let again = online(&nodes, 0, "juliet", "j");
        assert_eq!(from_juliet(&tybalt).last(), seen("juliet@example.com/j", true).last(), "{moves}");
        nodes.crash(2);
        nodes.settle();
        assert_eq!(from_juliet(&tybalt), [], "{moves}");
        drop(again);
    }
}

/// The node of the recipient remembers only what the recipient can have received.
#[test]
fn directed_presence_to_invented_addresses_does_not_displace_that_of_others() {
    let (mut nodes, _juliet, tybalt) = directed_to_tybalt();
    for user in ["nurse", "paris", "mercutio"] {
        nodes.node(0).create_user(user);
    }
    let mut attackers = Vec::new();
    for session in 0..50 {
        let user = ["paris", "mercutio"][session % 2];
        let attacker = nodes.node(2).connect(user, &format!("{session:0>200}"));
        attacker.send("<presence/>");
        for entity in 0..256 {
            attacker.send(&format!("<presence to='tybalt@example.com/{entity:0>1000}'/>"));
        }
        nodes.settle();
        attackers.push(attacker);
    }
    let nurse = online(&nodes, 2, "nurse", "n");
    nurse.send("<presence to='tybalt@example.com/t'/>");
    nodes.settle();
    tybalt.recv();
    nodes.crash(2);
    nodes.settle();
    let received = presence(&tybalt);
    for from in ["juliet@example.com/j", "nurse@example.com/n"] {
        assert!(received.contains(&(from.to_owned(), false)), "{from}");
    }
}
