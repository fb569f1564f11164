//! Tests of presence broadcasts to large rosters: chunks, and what changes while one is in progress. RFC 6121, section 4.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

use store::Subscription;
use testkit::{NodeClient, TestNode, TestNodes};
use throng_core::{Effect, Effects, IngestOutcome, Node, Outbox, Session, SharedStanza};
use throng_features::registry::ALL;

/// Three chunks.
const LARGE: usize = 600;
const JULIET: &str = "juliet@example.com/balcony";

fn stanza(id: &str) -> SharedStanza {
    SharedStanza::parse(format!("<presence from='{JULIET}' id='{id}'/>").as_bytes()).unwrap()
}

/// Contacts of juliet that are available, in the order in which a broadcast reaches them.
fn contacts(node: &TestNode, count: usize) -> Vec<NodeClient> {
    node.create_user("juliet");
    let contact = |number: usize| {
        let name = format!("u{number}");
        node.create_user(&name);
        node.befriend("juliet", &name);
        let client = node.connect(&name, "r");
        client.send("<presence/>");
        client.recv();
        client
    };
    let mut clients: Vec<NodeClient> = (0..count).map(contact).collect();
    clients.sort_by_key(|client| client.session.account.hash);
    clients
}

fn broadcast(node: &Arc<Node>, session: &Session, id: &str) {
    let stanza = stanza(id);
    session.set_available(stanza.clone(), 0).unwrap();
    let account = session.account.clone();
    node.perform(Effects(vec![Effect::Broadcast { account, stanza, to: Subscription::FROM }]));
}

fn is_reached(client: &NodeClient) -> bool {
    client.session.outbox.queued_bytes() > 0
}

fn reached(clients: &[NodeClient]) -> usize {
    clients.iter().filter(|client| is_reached(client)).count()
}

/// The presence of juliet that a contact has received: ids, or `unavailable`.
fn received(client: &NodeClient) -> Vec<String> {
    let id = |text: &String| match text.split(" id='").nth(1) {
        Some(rest) => rest.split('\'').next().unwrap().to_owned(),
        None if text.contains("type='unavailable'") => "unavailable".to_owned(),
        None => panic!("{text}"),
    };
    client.recv().iter().filter(|text| text.contains(JULIET)).map(id).collect()
}

#[track_caller]
fn assert_received(clients: &[NodeClient], want: &[&str]) {
    for client in clients {
        assert_eq!(received(client), want, "{}", client.full());
    }
}

#[test]
fn a_broadcast_to_hundreds_of_contacts_runs_in_chunks() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let juliet = engine.connect("juliet", "balcony");
    broadcast(&engine.node, &juliet.session, "1");
    let first = reached(&contacts);
    assert!((1..=300).contains(&first), "{first} in the first chunk");
    assert!(contacts[..first].iter().all(is_reached), "in the order of the roster view");
    engine.run_tasks();
    assert_received(&contacts, &["1"]);
    assert!(
        !engine.node.is_broadcasting(juliet.session.account.hash),
        "a queue ends with its last broadcast"
    );
}

#[test]
fn a_roster_of_one_chunk_needs_no_task() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, 256);
    let juliet = engine.connect("juliet", "balcony");
    juliet.send("<presence id='0'/>");
    assert_received(&contacts, &["0"]);
    let text = SharedStanza::parse(b"<presence id='1'/>").unwrap();
    let outcome = engine.node.ingest(&juliet.session, text.bytes(), text.head());
    assert!(matches!(outcome, IngestOutcome::Done));
    assert_received(&contacts, &["1"]);
}

#[test]
fn the_next_stanza_of_the_sender_waits_and_the_end_of_its_stream_ends_no_broadcast() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let juliet = engine.connect("juliet", "balcony");
    juliet.send("<presence id='0'/>");
    assert_received(&contacts, &["0"]);
    let mut cx = Context::from_waker(Waker::noop());
    for (id, stream_ends) in [("1", false), ("2", true)] {
        let text = SharedStanza::parse(format!("<presence id='{id}'/>").as_bytes()).unwrap();
        let outcome = engine.node.ingest(&juliet.session, text.bytes(), text.head());
        let IngestOutcome::Wait(mut rest) = outcome else { panic!("it must wait") };
        assert!(rest.as_mut().poll(&mut cx).is_pending());
        if stream_ends {
            drop(rest);
            engine.run_tasks();
        } else {
            engine.run_tasks();
            assert!(rest.as_mut().poll(&mut cx).is_ready());
        }
        assert_received(&contacts, &[id]);
    }
}

#[test]
fn later_presence_of_a_session_replaces_what_was_not_sent() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let juliet = engine.connect("juliet", "balcony");
    broadcast(&engine.node, &juliet.session, "1");
    let first = reached(&contacts);
    broadcast(&engine.node, &juliet.session, "2");
    engine.run_tasks();
    assert_received(&contacts[..first], &["1", "2"]);
    assert_received(&contacts[first..], &["2"]);
}

#[test]
fn presence_of_another_resource_is_not_lost_when_it_waits() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let (balcony, chamber) = (engine.connect("juliet", "balcony"), engine.connect("juliet", "chamber"));
    broadcast(&engine.node, &balcony.session, "1");
    let presence = SharedStanza::parse(b"<presence from='juliet@example.com/chamber' id='2'/>").unwrap();
    chamber.session.set_available(presence.clone(), 0).unwrap();
    let account = chamber.session.account.clone();
    let effect = Effect::Broadcast { account, stanza: presence, to: Subscription::FROM };
    engine.node.perform(Effects(vec![effect]));
    engine.run_tasks();
    for contact in &contacts {
        assert_eq!(contact.recv().len(), 2, "{}", contact.full());
    }
}

#[test]
fn a_session_that_ends_during_its_broadcast_is_unavailable_for_everyone() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let juliet = engine.connect("juliet", "balcony");
    broadcast(&engine.node, &juliet.session, "1");
    let first = reached(&contacts);
    engine.node.end_session(&juliet.session);
    engine.run_tasks();
    assert_received(&contacts[..first], &["1", "unavailable"]);
    assert_received(&contacts[first..], &["unavailable"]);
}

#[test]
fn a_session_that_replaces_one_is_available_after_it_was_unavailable() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let juliet = engine.connect("juliet", "balcony");
    broadcast(&engine.node, &juliet.session, "1");
    engine.run_tasks();
    assert_received(&contacts, &["1"]);
    let principal = engine.principal("juliet");
    engine.node.end_session(&juliet.session);
    assert!(!is_reached(contacts.last().unwrap()), "`unavailable` is on its way");
    let outbox = Arc::new(Outbox::new());
    let again = engine.node.bind(principal, Some("balcony"), &outbox).unwrap();
    assert!(!Arc::ptr_eq(&again.account, &juliet.session.account), "the account had no session in between");
    broadcast(&engine.node, &again, "2");
    engine.run_tasks();
    assert_received(&contacts, &["unavailable", "2"]);
}

#[test]
fn a_contact_that_is_blocked_during_a_broadcast_sees_unavailable_presence_only() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let (last, others) = contacts.split_last().unwrap();
    let juliet = engine.connect("juliet", "balcony");
    let account = &juliet.session.account;
    let block = |entries: &[jid::Jid]| account.with(|state| account.set_blocked(state, entries));
    broadcast(&engine.node, &juliet.session, "1");
    block(&[last.bare().to_jid()]);
    engine.run_tasks();
    assert_received(others, &["1"]);
    assert_received(std::slice::from_ref(last), &[]);
    block(&[]);
    broadcast(&engine.node, &juliet.session, "2");
    engine.run_tasks();
    assert_received(&contacts, &["2"]);
    engine.node.end_session(&juliet.session);
    assert!(!is_reached(last));
    block(&[last.bare().to_jid()]);
    engine.run_tasks();
    assert_received(&contacts, &["unavailable"]);
}

#[test]
fn a_contact_whose_subscription_ends_during_a_broadcast_sees_unavailable_presence_only() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let (last, others) = contacts.split_last().unwrap();
    let juliet = engine.connect("juliet", "balcony");
    let subscribe = |subscription| engine.add_contact("juliet", last.bare().as_str(), subscription);
    broadcast(&engine.node, &juliet.session, "1");
    subscribe(Subscription::NONE);
    assert!(!is_reached(last), "the broadcast is in progress");
    engine.run_tasks();
    assert_received(others, &["1"]);
    assert_received(std::slice::from_ref(last), &[]);
    subscribe(Subscription::BOTH);
    broadcast(&engine.node, &juliet.session, "2");
    engine.run_tasks();
    assert_received(&contacts, &["2"]);
    engine.node.end_session(&juliet.session);
    assert!(!is_reached(last));
    juliet.session.account.with(|state| {
        let (table, domains) = (&engine.node.routing_table, engine.node.domains());
        let version = state.roster_version;
        state.replace_roster(table, &domains, &[], version);
    });
    engine.run_tasks();
    assert_received(&contacts, &["unavailable"]);
}

#[test]
fn a_session_that_moves_to_another_node_is_available_after_it_was_unavailable() {
    let nodes = TestNodes::new(2, ALL);
    let contacts = contacts(nodes.node(0), LARGE);
    nodes.settle();
    let juliet = nodes.node(0).connect("juliet", "balcony");
    juliet.send("<presence id='1'/>");
    nodes.settle();
    contacts.iter().for_each(|contact| drop(contact.recv()));
    nodes.node(0).node.end_session(&juliet.session);
    let again = nodes.node(1).connect("juliet", "balcony");
    again.send("<presence id='2'/>");
    // The network delivers, and no task of the first node runs.
    for _ in 0..20 {
        nodes.bus.step();
    }
    assert!(!is_reached(contacts.last().unwrap()), "`unavailable` is on its way");
    assert!(nodes.node(0).node.is_broadcasting(juliet.session.account.hash));
    nodes.settle();
    for contact in &contacts {
        let received = received(contact);
        assert!(received.contains(&"unavailable".to_owned()), "{}: {received:?}", contact.full());
        assert_eq!(received.last().map(String::as_str), Some("2"), "{}: {received:?}", contact.full());
    }
}

#[test]
fn presence_of_other_nodes_that_waits_for_a_broadcast_is_bounded_and_none_is_lost() {
    let engine = TestNode::new(ALL);
    let contacts = contacts(&engine, LARGE);
    let juliet = engine.connect("juliet", "balcony");
    broadcast(&engine.node, &juliet.session, "1");
    let delivered = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let delivered = delivered.clone();
        engine.node.after_broadcasts(juliet.session.account.hash, 1024 * 1024, move || {
            delivered.fetch_add(1, Ordering::Relaxed);
        });
    }
    assert!(!is_reached(contacts.last().unwrap()), "the broadcast is in progress");
    assert_eq!(delivered.load(Ordering::Relaxed), 97, "three waited");
    engine.run_tasks();
    assert_eq!(delivered.load(Ordering::Relaxed), 100);
    assert_received(&contacts, &["1"]);
}
