//! Tests of multicasts: shared bytes, chunks, order with routed stanzas, reports, and other nodes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use feature_api::feature::{Feature, FeatureBuilder};
use jid::Jid;
use stanza::{StanzaCondition, StanzaKindSet};
use store::Subscription;
use testkit::{NodeClient, TestNode, TestNodes};
use throng_core::hooks::{Flow, HandlerOutcome, IncomingCtx, Interest, Phase};
use throng_core::session::QueuedBatch;
use throng_core::{Effects, Multicast, Node, SharedStanza, UndeliveredRecipient};
use throng_features::registry::ALL;

const ROOM: &str = "room@conference.example.com/anna";

thread_local! {
    /// Whether the handler of [`SLOW`] goes on.
    static RELEASED: Cell<bool> = const { Cell::new(false) };
    static REPORTED: RefCell<Vec<UndeliveredRecipient>> = const { RefCell::new(Vec::new()) };
}

/// A handler that waits for headlines to juliet.
static SLOW: Feature = Feature { name: "slow", build, ..Feature::EMPTY };

fn build(builder: &mut FeatureBuilder<'_>) {
    let headlines = StanzaKindSet::of(stanza::StanzaKind::Message(stanza::MessageType::Headline));
    builder.incoming(Phase::Rewrite, Interest::kinds(headlines), |ctx: &mut IncomingCtx<'_>| {
        if ctx.to.local() != Some("juliet") {
            return Flow::Next;
        }
        Flow::Wait(Box::pin(async {
            poll_fn(|_| if RELEASED.get() { Poll::Ready(()) } else { Poll::Pending }).await;
            HandlerOutcome::next()
        }))
    });
}

fn stanza(text: &str) -> SharedStanza {
    SharedStanza::parse(text.as_bytes()).unwrap()
}

fn multicast(kind: &str, id: &str, recipients: &[&str]) -> Multicast {
    let recipients: Arc<[Jid]> = recipients.iter().map(|to| Jid::parse(to).unwrap()).collect();
    let text = format!("<message from='{ROOM}' type='{kind}' id='{id}'><body>{id}</body></message>");
    Multicast::new(stanza(&text), Jid::parse(ROOM).unwrap(), recipients)
}

fn perform(node: &Arc<Node>, multicast: Multicast) {
    let mut effects = Effects::default();
    effects.multicast(multicast);
    node.perform(effects);
}

fn report(_: &Arc<Node>, recipients: Vec<UndeliveredRecipient>) -> Effects {
    REPORTED.with_borrow_mut(|reported| reported.extend(recipients));
    Effects::default()
}

fn reported() -> Vec<String> {
    REPORTED.take().iter().map(|one| format!("{} {}", one.to, one.condition.as_str())).collect()
}

fn online(node: &TestNode, name: &str, resource: &str) -> NodeClient {
    let client = node.connect(name, resource);
    client.send("<presence/>");
    client.recv();
    client
}

fn ids(client: &NodeClient) -> Vec<String> {
    let id = |text: &String| text.split("id='").nth(1).unwrap().split('\'').next().unwrap().to_owned();
    client.recv().iter().filter(|text| text.starts_with("<message")).map(id).collect()
}

#[test]
fn all_recipients_share_the_bytes_and_each_reads_its_own_address() {
    let engine = TestNode::new(ALL);
    let names = ["juliet", "romeo", "nurse"];
    for name in names {
        engine.create_user(name);
    }
    let clients = names.map(|name| online(&engine, name, "r"));
    let to = names.map(|name| format!("{name}@example.com/r"));
    perform(&engine.node, multicast("groupchat", "1", &to.each_ref().map(String::as_str)));
    let mut bytes = Vec::new();
    for client in &clients {
        let mut batch = QueuedBatch::new();
        client.session.outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut batch);
        bytes.push(batch[0].stanza.bytes().as_ptr());
    }
    assert!(bytes.windows(2).all(|two| two[0] == two[1]), "one allocation for the body");
    perform(&engine.node, multicast("headline", "2", &["juliet@example.com", "romeo@example.com/r"]));
    for (client, to) in [(&clients[0], "juliet@example.com"), (&clients[1], "romeo@example.com/r")] {
        let received = client.recv().concat();
        assert_eq!(received.matches(" to=").count(), 1, "{received}");
        assert!(received.contains(&format!("to='{to}'")) && received.contains(ROOM), "{received}");
    }
}

#[test]
fn a_multicast_to_thousands_runs_in_chunks() {
    const RECIPIENTS: usize = 1_000;
    let engine = TestNode::new(ALL);
    let clients: Vec<NodeClient> =
        (0..RECIPIENTS).map(|n| engine.connect_anonymous(&format!("u{n}"), "r")).collect();
    let to: Vec<String> = (0..RECIPIENTS).map(|n| format!("u{n}@example.com/r")).collect();
    perform(&engine.node, multicast("groupchat", "1", &to.iter().map(String::as_str).collect::<Vec<_>>()));
    let queued = clients.iter().filter(|client| client.session.outbox.queued_bytes() > 0).count();
    assert!((1..=300).contains(&queued), "{queued} in the first chunk");
    engine.run_tasks();
    assert!(clients.iter().all(|client| ids(client) == ["1"]));
}

#[test]
fn each_recipient_gets_all_stanzas_to_the_same_list_before_the_next_one() {
    const RECIPIENTS: usize = 400;
    let engine = TestNode::new(ALL);
    let clients: Vec<NodeClient> =
        (0..RECIPIENTS).map(|n| engine.connect_anonymous(&format!("u{n}"), "r")).collect();
    let jid = |text: &str| Jid::parse(text).unwrap();
    let to: Arc<[Jid]> = (0..RECIPIENTS).map(|n| jid(&format!("u{n}@example.com/r"))).collect();
    let mut effects = Effects::default();
    for id in 1..=4 {
        let text = format!("<message from='{ROOM}' type='groupchat' id='{id}'><body>x</body></message>");
        effects.multicast(Multicast::new(stanza(&text), jid(ROOM), to.clone()));
    }
    effects.multicast(multicast("groupchat", "5", &["u0@example.com/r", "u399@example.com/r"]));
    engine.node.perform(effects);
    let first: Vec<Vec<String>> = clients.iter().map(ids).collect();
    let served = first.iter().filter(|ids| ids.len() == 4).count();
    assert!((1..=100).contains(&served) && first[served..].iter().all(Vec::is_empty), "{served} at once");
    engine.run_tasks();
    let rest: Vec<Vec<String>> = clients.iter().map(ids).collect();
    assert_eq!((&rest[0], &rest[served - 1]), (&vec!["5".to_owned()], &vec![]));
    assert!(rest[served..399].iter().all(|ids| ids == &["1", "2", "3", "4"]));
    assert_eq!(rest[399], ["1", "2", "3", "4", "5"]);
}

#[test]
fn recipients_that_are_gone_are_reported_once_for_the_multicast() {
    let engine = TestNode::new(ALL);
    engine.create_user("juliet");
    let juliet = online(&engine, "juliet", "balcony");
    let to = ["juliet@example.com/gone", "juliet@example.com/balcony", "nobody@example.com/x"];
    perform(&engine.node, multicast("groupchat", "1", &to).on_undelivered(report));
    assert_eq!(ids(&juliet), ["1"]);
    let gone = |to: &str| format!("{to} {}", StanzaCondition::ServiceUnavailable.as_str());
    assert_eq!(reported(), [gone("juliet@example.com/gone"), gone("nobody@example.com/x")]);
    perform(&engine.node, multicast("groupchat", "2", &to[1..2]).on_undelivered(report));
    assert_eq!((ids(&juliet), reported()), (vec!["2".to_owned()], vec![]));
}

#[test]
fn without_a_handler_the_sender_receives_errors() {
    let engine = TestNode::new(ALL);
    for name in ["juliet", "anna"] {
        engine.create_user(name);
    }
    let anna = online(&engine, "anna", "r");
    let from = Jid::parse("anna@example.com/r").unwrap();
    let text = "<message from='anna@example.com/r' to='x@y' type='groupchat' id='7'><body>x</body></message>";
    let to: Arc<[Jid]> = Arc::new([Jid::parse("juliet@example.com/gone").unwrap()]);
    perform(&engine.node, Multicast::new(stanza(text), from, to));
    engine.run_tasks();
    let errors = anna.recv().concat();
    assert!(errors.contains("from='juliet@example.com/gone'") && errors.contains("type='error'"), "{errors}");
}

#[test]
fn a_recipient_that_waits_keeps_its_order_and_holds_up_nobody() {
    let features: Vec<_> = ALL.iter().copied().chain([&SLOW]).collect();
    let nodes = TestNodes::new(1, &features);
    let engine = nodes.node(0);
    for name in ["juliet", "romeo"] {
        engine.create_user(name);
    }
    let (juliet, romeo) = (online(engine, "juliet", "r"), online(engine, "romeo", "r"));
    let both = ["juliet@example.com/r", "romeo@example.com/r"];
    perform(&engine.node, multicast("headline", "1", &both));
    // Nothing waits for this one, but it follows the first.
    perform(&engine.node, multicast("groupchat", "2", &both));
    nodes.settle();
    assert_eq!((ids(&juliet), ids(&romeo)), (vec![], vec!["1".to_owned(), "2".to_owned()]));
    RELEASED.set(true);
    nodes.settle();
    assert_eq!(ids(&juliet), ["1", "2"]);
}

#[test]
fn messages_that_must_be_stored_are_stored_also_if_the_session_ends_with_them() {
    let nodes = TestNodes::new(1, ALL);
    let engine = nodes.node(0);
    for name in ["juliet", "romeo"] {
        engine.create_user(name);
    }
    let juliet = online(engine, "juliet", "r");
    perform(&engine.node, multicast("chat", "1", &["juliet@example.com", "romeo@example.com"]));
    perform(&engine.node, multicast("groupchat", "2", &["juliet@example.com/r"]));
    nodes.settle();
    juliet.close();
    nodes.settle();
    for name in ["juliet", "romeo"] {
        let client = engine.connect(name, "later");
        client.send("<presence/>");
        nodes.settle();
        let received = client.recv().concat();
        nodes.settle();
        assert!(received.contains(&format!("to='{name}@example.com'")), "{received}");
        assert_eq!(received.matches("<body>1</body>").count(), 1, "{received}");
        assert!(!received.contains("<body>2</body>"), "a room's message is not stored: {received}");
    }
}

#[test]
fn a_blocked_sender_reaches_nobody_who_blocks_it() {
    let engine = TestNode::new(ALL);
    engine.create_user("juliet");
    let juliet = online(&engine, "juliet", "r");
    juliet.request(
        "<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'>\
         <item jid='room@conference.example.com'/></block></iq>",
    );
    perform(&engine.node, multicast("groupchat", "1", &["juliet@example.com/r"]).on_undelivered(report));
    engine.run_tasks();
    assert_eq!(ids(&juliet), [""; 0]);
}

#[test]
fn recipients_on_another_node_are_one_envelope_and_gone_ones_are_reported() {
    let nodes = TestNodes::new(3, ALL);
    let names: Vec<String> = (0..12).map(|n| format!("u{n}")).collect();
    for name in &names {
        nodes.node(0).create_user(name);
    }
    nodes.node(0).create_user("anna");
    let anna = online(nodes.node(0), "anna", "r");
    let clients: Vec<NodeClient> =
        names.iter().enumerate().map(|(n, name)| online(nodes.node(n % 3), name, "r")).collect();
    nodes.settle();
    clients.iter().for_each(|client| drop(client.recv()));
    nodes.take_envelopes();
    let to: Vec<Jid> = names
        .iter()
        .map(|name| format!("{name}@example.com/r"))
        .chain(["u1@example.com/gone".to_owned(), "u2@example.com/gone".to_owned()])
        .map(|to| Jid::parse(&to).unwrap())
        .collect();
    let text = "<message from='anna@example.com/r' type='groupchat' id='1'><body>x</body></message>";
    let from = Jid::parse("anna@example.com/r").unwrap();
    perform(&nodes.node(0).node, Multicast::new(stanza(text), from, Arc::<[Jid]>::from(to)));
    let sent = nodes.take_envelopes();
    nodes.settle();
    for (client, name) in clients.iter().zip(&names) {
        let received = client.recv().concat();
        assert_eq!(received.matches("<message").count(), 1, "{name}: {received}");
        assert!(received.contains(&format!("to='{name}@example.com/r'")), "{received}");
    }
    assert!(sent <= 2, "{sent} envelopes for two nodes");
    let errors = anna.recv();
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(errors.iter().all(|error| error.contains("type='error'") && error.contains("/gone'")));
}

#[test]
fn presence_of_a_multicast_reaches_those_who_do_not_know_the_sender() {
    let engine = TestNode::new(ALL);
    for name in ["juliet", "romeo"] {
        engine.create_user(name);
    }
    engine.add_contact("juliet", "romeo", Subscription::NONE);
    let juliet = online(&engine, "juliet", "r");
    let to: Arc<[Jid]> = Arc::new([Jid::parse("juliet@example.com/r").unwrap()]);
    let from = Jid::parse(ROOM).unwrap();
    perform(&engine.node, Multicast::new(stanza(&format!("<presence from='{ROOM}'/>")), from, to));
    let received = juliet.recv().concat();
    assert!(received.contains("to='juliet@example.com/r'") && received.contains(ROOM), "{received}");
}
