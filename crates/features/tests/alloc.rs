//! Allocation budget of the hot path: a chat message costs one allocation from the sender's bytes to the receiver's
//! queue, with every feature enabled: the stanza with its new `from`, which has room for its stanza-id.
#![allow(clippy::panic, reason = "a test")]

use std::sync::Arc;
use std::task::{Context, Waker};

use counting_allocator::allocations;
use jid::Jid;
use stanza::Element;
use testkit::TestNode;
use throng_core::session::outstanding::OutstandingStanzas;
use throng_core::session::{QueuedBatch, flags};
use throng_core::{Effects, IngestOutcome, Multicast, SharedStanza};
use throng_features::registry::ALL;

/// Allocations of `rounds` messages of Romeo to this address, each taken out of Juliet's queue. With `managed` she
/// acknowledges (XEP-0198) every tenth one. With `tracked` Romeo's stream waits until she has them.
fn cost(to: &str, rounds: usize, managed: bool, tracked: bool) -> usize {
    let engine = TestNode::new(ALL);
    engine.create_user("romeo@example.net");
    engine.create_user("juliet");
    engine.befriend("romeo@example.net", "juliet");
    let (romeo, juliet) =
        (engine.connect("romeo@example.net", "orchard"), engine.connect("juliet", "balcony"));
    for client in [&romeo, &juliet] {
        client.send("<presence/>");
    }
    let text = format!(
        "<message to='{to}' type='chat' id='ktx72v49' xml:lang='en'>\
         <body>Art thou not Romeo, and a Montague?</body><active xmlns='http://jabber.org/protocol/chatstates'/>\
         <request xmlns='urn:xmpp:receipts'/></message>"
    );
    let (scope, limits) = (xml::NamespaceContext::client(), engine.node.limits().stanza());
    let mut cx = Context::from_waker(Waker::noop());
    let mut batch = QueuedBatch::new();
    let (mut before, mut delivered) = (0, 0);
    juliet.recv();
    if managed {
        let terms = throng_core::session::StreamManagementTerms {
            resume_seconds: 60,
            unacked_bytes: 100_000,
            sm2: false,
        };
        assert!(juliet.session.outbox.enable_management(terms, [0; 16]));
    }
    if tracked {
        romeo.session.flags.set(flags::STREAM_MANAGEMENT);
    }
    let mut outstanding = OutstandingStanzas::default();
    for round in 0..rounds + 10 {
        if round == 10 {
            before = allocations();
        }
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
        match engine.node.ingest(&romeo.session, text.as_bytes(), &head) {
            IngestOutcome::Done => assert!(!tracked),
            IngestOutcome::AwaitsReceipts(receipts) => {
                assert!(tracked);
                let position = outstanding.begin(true);
                outstanding.complete(position, receipts);
            }
            _ => panic!("the message waits"),
        }
        outstanding.poll(&mut cx, &mut |_| panic!("the message failed"));
        juliet.session.outbox.dequeue_all(&mut cx, &mut batch);
        delivered += batch.len();
        batch.clear();
        if managed && round % 10 == 9 {
            assert_eq!(juliet.session.outbox.acknowledge(delivered as u32), Ok(()));
        }
    }
    let after = allocations();
    assert_eq!(delivered, rounds + 10);
    outstanding.poll(&mut cx, &mut |_| panic!("the message failed"));
    assert!(outstanding.is_empty(), "all are delivered");
    after - before
}

/// The same with carbons enabled on both sides; each client takes its copy out of its queue.
#[test]
fn a_carbon_copy_costs_two_allocations() {
    const ROUNDS: usize = 1000;
    let engine = TestNode::new(ALL);
    engine.create_user("romeo@example.net");
    engine.create_user("juliet");
    let connect = |name: &str, resource: &str| engine.connect(name, resource);
    let (romeo, juliet) = (connect("romeo@example.net", "orchard"), connect("juliet", "balcony"));
    let others = ["a", "b"].map(|r| [connect("romeo@example.net", r), connect("juliet", r)]);
    for client in others.iter().flatten() {
        client.send("<iq type='set' id='1'><enable xmlns='urn:xmpp:carbons:2'/></iq>");
        client.recv();
    }
    let text =
        "<message to='juliet@example.com/balcony' type='chat' id='ktx72v49'><body>Montague?</body></message>";
    let (scope, limits) = (xml::NamespaceContext::client(), engine.node.limits().stanza());
    let mut cx = Context::from_waker(Waker::noop());
    let mut batch = QueuedBatch::new();
    let (mut before, mut delivered) = (0, 0);
    for round in 0..ROUNDS + 10 {
        if round == 10 {
            before = allocations();
        }
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
        assert!(matches!(engine.node.ingest(&romeo.session, text.as_bytes(), &head), IngestOutcome::Done));
        for client in others.iter().flatten().chain([&juliet]) {
            client.session.outbox.dequeue_all(&mut cx, &mut batch);
            delivered += batch.len();
            batch.clear();
        }
    }
    let count = allocations() - before;
    assert_eq!(delivered, 5 * (ROUNDS + 10));
    // The message with its id, two copies, the list of effects, and the sessions of two accounts to send them to.
    assert!(count <= (1 + 2 + 1 + 2) * ROUNDS, "{count} allocations for {ROUNDS} messages");
}

#[test]
fn a_multicast_costs_no_allocation_for_a_recipient() {
    const RECIPIENTS: usize = 200;
    let engine = TestNode::new(ALL);
    let clients: Vec<_> = (0..RECIPIENTS).map(|n| engine.connect_anonymous(&format!("u{n}"), "r")).collect();
    let to: Arc<[Jid]> = clients.iter().map(|client| client.session.jid.clone()).collect();
    let text = b"<message from='room@conference.example.com/anna' type='groupchat'><body>x</body></message>";
    let (Some(stanza), Some(from)) =
        (SharedStanza::parse(text), jid::JidRef::from_normalised("room@conference.example.com/anna"))
    else {
        panic!()
    };
    let mut effects = Effects::default();
    effects.multicast(Multicast::new(stanza, from.to_jid(), to));
    let before = allocations();
    engine.node.perform(effects);
    let count = allocations() - before;
    assert!(clients.iter().all(|client| client.session.outbox.queued_bytes() > 0));
    // Some counters of the metrics are made by their first use.
    assert!(count <= 10, "{count} allocations for {RECIPIENTS} recipients");
}

#[test]
fn a_chat_message_costs_one_allocation() {
    const ROUNDS: usize = 1000;
    for to in ["juliet@example.com", "juliet@example.com/balcony"] {
        let count = cost(to, ROUNDS, false, false);
        assert!(count >= ROUNDS, "the counter does not count");
        assert!(count <= ROUNDS + 10, "{count} allocations for {ROUNDS} messages to {to}");
        // Unacknowledged stanzas share the same allocation, in a list that is reused.
        let managed = cost(to, ROUNDS, true, false);
        assert!(managed <= count + 10, "{managed} allocations for {ROUNDS} acknowledged messages to {to}");
        // So do the messages that the sender's stream waits for; its list is reused as well.
        for managed in [false, true] {
            let tracked = cost(to, ROUNDS, managed, true);
            assert!(tracked <= count + 20, "{tracked} allocations for {ROUNDS} tracked messages to {to}");
        }
    }
}
