//! Messages to all users of a domain, on all nodes: announcements and the message of the day (XEP-0133 1.3.1, sections 4.23 to
//! 4.26).

use cluster::InvalidationSubject;
use jid::Jid;
use testkit::{NodeClient, TestNodes};
use throng_commands::cluster_admin::answer_other_nodes;
use throng_core::session::StreamManagementTerms;
use throng_e2e::chain_observer::observed_features;

use super::handovers::chat;
use super::stored_messages::{receive, store_message};

/// Three nodes; the administrator is connected to the first one.
fn cluster(users: &[&str]) -> (TestNodes, NodeClient) {
    let nodes = TestNodes::new(3, &observed_features());
    for user in users.iter().chain(&["bard"]) {
        nodes.node(0).create_user(user);
    }
    for node in 0..3 {
        nodes.node(node).node.set_admins([Jid::parse("bard@example.com").expect("an address")]);
    }
    (0..3).for_each(|index| answer_other_nodes(&nodes.node(index).node));
    let bard = nodes.node(0).connect("bard", "globe");
    nodes.settle();
    (nodes, bard)
}

fn online(nodes: &TestNodes, node: usize, user: &str, resource: &str) -> NodeClient {
    let client = nodes.node(node).connect(user, resource);
    client.send("<presence/>");
    nodes.settle();
    client
}

/// Runs a command of the administrator; returns the answer.
fn run(nodes: &TestNodes, admin: &NodeClient, command: &str, field: &str, text: &str) -> String {
    run_after(nodes, admin, [command, field, text], || {})
}

/// As [`run`]. `before` is called before the form is submitted.
fn run_after(
    nodes: &TestNodes,
    admin: &NodeClient,
    [command, field, text]: [&str; 3],
    before: impl FnOnce(),
) -> String {
    let request = |attributes: &str, form: &str| {
        admin.recv();
        admin.send(&format!(
            "<iq type='set' to='example.com' id='c'><command xmlns='http://jabber.org/protocol/commands' \
             node='http://jabber.org/protocol/admin#{command}' {attributes}>{form}</command></iq>"
        ));
        nodes.settle();
        let answers = admin.recv();
        answers.into_iter().find(|answer| answer.contains("id='c'")).expect("an answer")
    };
    let form = request("action='execute'", "");
    let Some(id) = form.split("sessionid='").nth(1).and_then(|rest| rest.split('\'').next()) else {
        return form;
    };
    if form.contains("status='completed'") {
        return form;
    }
    let submitted = format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE'>\
         <value>http://jabber.org/protocol/admin</value></field>\
         <field var='{field}'><value>{text}</value></field></x>"
    );
    before();
    let answer = request(&format!("sessionid='{id}'"), &submitted);
    assert!(answer.contains("status='completed'"), "{command}: {answer}");
    answer
}

/// Headlines with a text that a client received since the last call.
fn headlines(client: &NodeClient, text: &str) -> usize {
    client.recv().iter().filter(|stanza| stanza.contains("type='headline'") && stanza.contains(text)).count()
}

#[test]
fn an_announcement_reaches_the_sessions_of_all_nodes_once() {
    let (nodes, bard) = cluster(&["romeo", "juliet", "tybalt"]);
    let sessions = [(0, "romeo", "a"), (1, "romeo", "b"), (1, "juliet", "c"), (2, "tybalt", "d")]
        .map(|(node, user, resource)| online(&nodes, node, user, resource));
    let silent = nodes.node(2).connect("juliet", "silent");
    nodes.settle();
    let answer = run(&nodes, &bard, "announce", "announcement", "Curfew");
    assert!(answer.contains("4 users"), "of all nodes: {answer}");
    for session in &sessions {
        assert_eq!(headlines(session, "Curfew"), 1, "{}", session.full());
    }
    assert_eq!(headlines(&silent, "Curfew"), 0, "it is not available");
}

#[test]
fn each_user_sees_the_message_of_the_day_once_on_whichever_node() {
    let (nodes, bard) = cluster(&["romeo", "juliet", "tybalt", "nurse"]);
    // A node that has looked for a message, and found none.
    let nurse = online(&nodes, 2, "nurse", "a");
    let romeo = [online(&nodes, 1, "romeo", "a"), online(&nodes, 2, "romeo", "b")];
    run(&nodes, &bard, "set-motd", "motd", "Globe");
    assert_eq!(romeo.iter().map(|session| headlines(session, "Globe")).sum::<usize>(), 1, "one resource");
    assert_eq!(headlines(&nurse, "Globe"), 1);
    for node in [2, 0, 1] {
        let juliet = online(&nodes, node, "juliet", "a");
        assert_eq!(headlines(&juliet, "Globe"), usize::from(node == 2), "node {node}");
        juliet.close();
        nodes.settle();
    }
    // The bits of one node do not replace those of the others.
    for (node, user) in [(0, "nurse"), (1, "nurse"), (2, "juliet"), (0, "romeo")] {
        let again = online(&nodes, node, user, "again");
        assert_eq!(headlines(&again, "Globe"), 0, "{user} on node {node}");
    }
    run(&nodes, &bard, "edit-motd", "motd", "Rose");
    let tybalt = online(&nodes, 1, "tybalt", "a");
    assert_eq!(headlines(&tybalt, "Rose"), 1, "the other nodes know the new text");
    run(&nodes, &bard, "delete-motd", "motd", "");
    // In the same millisecond, as if by a node whose clock is behind.
    run(&nodes, &bard, "set-motd", "motd", "Swan");
    assert_eq!(headlines(&tybalt, "Swan"), 1, "a new message is sent to everyone");
    run(&nodes, &bard, "delete-motd", "motd", "");
    let late = online(&nodes, 2, "juliet", "late");
    assert_eq!(headlines(&late, "S"), 0, "the other nodes know that there is none");
}

#[test]
fn a_change_of_administrators_is_in_effect_on_all_nodes_and_later_on_one_that_was_cut_off() {
    let (nodes, bard) = cluster(&["romeo"]);
    let romeo = Jid::parse("romeo@example.com").expect("an address");
    for node in 0..3 {
        nodes.node(node).node.set_configured_admins([Jid::parse("bard@example.com").expect("an address")]);
    }
    let are_admins = || [0, 1, 2].map(|node| nodes.node(node).node.is_admin(romeo.as_ref()));
    let both = "bard@example.com</value><value>romeo@example.com";
    run(&nodes, &bard, "edit-admin", "adminjids", both);
    nodes.settle();
    assert_eq!(are_admins(), [true; 3]);
    for other in [0, 2] {
        nodes.cut(1, other);
    }
    nodes.settle();
    run(&nodes, &bard, "edit-admin", "adminjids", "bard@example.com");
    nodes.settle();
    assert_eq!(are_admins(), [false, true, false]);
    for other in [0, 2] {
        nodes.heal(1, other);
    }
    nodes.settle();
    assert_eq!(are_admins(), [false; 3]);
}

#[test]
fn a_node_that_was_cut_off_sends_the_message_of_the_day_when_it_returns() {
    let (nodes, bard) = cluster(&["romeo"]);
    let romeo = online(&nodes, 1, "romeo", "a");
    for other in [0, 2] {
        nodes.cut(1, other);
    }
    nodes.settle();
    run(&nodes, &bard, "set-motd", "motd", "Globe");
    assert_eq!(headlines(&romeo, "Globe"), 0);
    for other in [0, 2] {
        nodes.heal(1, other);
    }
    nodes.settle();
    assert_eq!(headlines(&romeo, "Globe"), 1);
}

#[test]
fn a_node_whose_queue_was_full_sends_the_message_of_the_day_when_there_is_room() {
    let (nodes, bard) = cluster(&["romeo", "juliet"]);
    let (romeo, juliet) = (online(&nodes, 1, "romeo", "a"), online(&nodes, 0, "juliet", "b"));
    run_after(&nodes, &bard, ["set-motd", "motd", "Globe"], || {
        let body = "x".repeat(200_000);
        for _ in 0..30 {
            juliet.send(&format!("<message to='{}' type='chat'><body>{body}</body></message>", romeo.full()));
        }
        // What remains of the queue.
        let node = &nodes.node(0).node;
        for number in 0..10_000 {
            let changed = Jid::parse(&format!("{number}@example.com")).expect("an address");
            node.peer_routing().invalidate(node, changed.as_ref(), InvalidationSubject::Roster);
        }
    });
    assert_eq!(headlines(&juliet, "Globe"), 1);
    nodes.advance(1);
    nodes.settle();
    assert_eq!(headlines(&romeo, "Globe"), 1);
}

#[test]
fn a_node_that_was_cut_off_does_not_send_a_message_of_the_day_that_was_set_quietly() {
    let (nodes, bard) = cluster(&["romeo", "juliet"]);
    let romeo = online(&nodes, 1, "romeo", "a");
    for other in [0, 2] {
        nodes.cut(1, other);
    }
    nodes.settle();
    run(&nodes, &bard, "edit-motd", "motd", "Globe");
    for other in [0, 2] {
        nodes.heal(1, other);
    }
    nodes.settle();
    assert_eq!(headlines(&romeo, "Globe"), 0);
    let juliet = online(&nodes, 1, "juliet", "a");
    assert_eq!(headlines(&juliet, "Globe"), 1, "who becomes available receives it");
}

/// XEP-0133, section 4.24: it is sent immediately to users who are online.
#[test]
fn the_message_of_the_day_reaches_the_preferred_session_of_a_user_on_whichever_node() {
    for (priorities, receives) in
        [([None, Some(5)], 1), ([Some(-1), Some(0)], 1), ([Some(1), Some(5)], 1), ([Some(5), Some(1)], 0)]
    {
        let (nodes, bard) = cluster(&["juliet"]);
        let sessions = [(1, 0), (2, 1)].map(|(node, at): (usize, usize)| {
            let client = nodes.node(node).connect("juliet", ["a", "b"][at]);
            if let Some(priority) = priorities[at] {
                client.send(&format!("<presence><priority>{priority}</priority></presence>"));
            }
            nodes.settle();
            client
        });
        run(&nodes, &bard, "set-motd", "motd", "Globe");
        let received = sessions.each_ref().map(|session| headlines(session, "Globe"));
        assert_eq!((received.iter().sum::<usize>(), received[receives]), (1, 1), "{priorities:?}");
    }
}

/// A detached session may never be resumed, and the account has then seen the message.
#[test]
fn a_detached_session_gets_no_message_of_the_day_while_another_is_connected_on_another_node() {
    let (nodes, bard) = cluster(&["juliet"]);
    let [phone, desktop] = [(1, 5), (2, 1)].map(|(node, priority)| {
        let client = nodes.node(node).connect("juliet", ["", "phone", "desktop"][node]);
        client.send(&format!("<presence><priority>{priority}</priority></presence>"));
        nodes.settle();
        client
    });
    let terms = StreamManagementTerms { resume_seconds: 600, unacked_bytes: 100_000, sm2: false };
    assert!(phone.session.outbox.enable_management(terms, [0; 16]));
    assert!(nodes.node(1).node.detach_session(&phone.session));
    nodes.settle();
    run(&nodes, &bard, "set-motd", "motd", "Globe");
    assert_eq!(headlines(&desktop, "Globe"), 1);
}

#[test]
fn a_user_who_is_online_on_another_node_is_seen_now() {
    let (nodes, bard) = cluster(&["romeo", "juliet"]);
    let _romeo = online(&nodes, 2, "romeo", "a");
    for (user, seen) in [("romeo", true), ("juliet", false)] {
        let answer = run(&nodes, &bard, "get-user-lastlogin", "accountjids", &format!("{user}@example.com"));
        assert_eq!(!answer.contains("never"), seen, "{answer}");
    }
}

/// A stream is resumed on a node that must read whether the user has seen the message.
#[test]
fn a_stored_message_precedes_later_ones_while_the_message_of_the_day_is_read() {
    let (nodes, bard) = cluster(&["romeo", "juliet"]);
    run(&nodes, &bard, "set-motd", "motd", "Hark");
    let romeo = nodes.node(2).connect("romeo", "orchard");
    let juliet = online(&nodes, 0, "juliet", "one");
    juliet.enable_resumption();
    juliet.recv();
    store_message(nodes.node(2));
    nodes.node(2).hold_store_call(Some("server_kv.get"));
    juliet.leave(true);
    let pending = nodes.node(2).resume(&juliet);
    nodes.settle();
    let moved = nodes.node(2).resumed(&pending).expect("an outcome").expect("it is resumed");
    romeo.send(&chat("2"));
    nodes.settle();
    nodes.node(2).hold_store_call(None);
    nodes.settle();
    let mut received = receive(&nodes, &moved);
    received.retain(|id| ["1", "2"].contains(&id.as_str()));
    assert_eq!(received, ["1", "2"]);
}
