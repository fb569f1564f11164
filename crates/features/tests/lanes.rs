//! Tests of lanes: order, a source that floods one, and services.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use base::Spawner;
use cluster::{Envelope, EnvelopeClass, EnvelopeKind};
use feature_api::feature::{Feature, FeatureBuilder};
use jid::Jid;
use stanza::StanzaKindSet;
use testkit::{NodeClient, TestNode, TestNodes};
use throng_core::hooks::{Flow, HandlerOutcome, IncomingCtx, Interest, Phase};
use throng_core::{SharedStanza, StanzaSource};
use throng_features::registry::ALL;

thread_local! {
    static RELEASED: Cell<bool> = const { Cell::new(false) };
}

/// A handler that waits for each message to juliet.
static SLOW: Feature = Feature { name: "slow", build, ..Feature::EMPTY };

fn build(builder: &mut FeatureBuilder<'_>) {
    builder.incoming(
        Phase::Rewrite,
        Interest::kinds(StanzaKindSet::MESSAGES),
        |ctx: &mut IncomingCtx<'_>| {
            if ctx.to.local() != Some("juliet") {
                return Flow::Next;
            }
            Flow::Wait(Box::pin(async {
                poll_fn(|_| if RELEASED.get() { Poll::Ready(()) } else { Poll::Pending }).await;
                HandlerOutcome::next()
            }))
        },
    );
}

fn stage(count: usize) -> TestNodes {
    RELEASED.set(false);
    let features: Vec<_> = ALL.iter().copied().chain([&SLOW]).collect();
    let nodes = TestNodes::new(count, &features);
    for name in ["juliet", "romeo"] {
        nodes.node(0).create_user(name);
    }
    nodes
}

fn online(node: &TestNode, name: &str) -> NodeClient {
    let client = node.connect(name, "r");
    client.send("<presence/>");
    client.recv();
    client
}

/// A stream of a component: it routes one stanza after the other and waits when it is held back.
async fn stream(node: Arc<throng_core::Node>, to: &'static str, count: usize, sent: Arc<AtomicUsize>) {
    let (from, to) = (Jid::parse("bot@irc.example.com").unwrap(), Jid::parse(to).unwrap());
    for n in 0..count {
        let text =
            format!("<message from='{from}' to='{to}' id='{n}'><body>{}</body></message>", "x".repeat(1_000));
        let stanza = SharedStanza::parse(text.as_bytes()).unwrap();
        if let Some(room) = node.route_in_lane(StanzaSource::Component, stanza, from.as_ref(), to.as_ref()) {
            room.await;
        }
        sent.fetch_add(1, Ordering::Relaxed);
    }
}

fn ids(client: &NodeClient) -> Vec<usize> {
    let id = |text: &String| text.split("id='").nth(1).unwrap().split('\'').next().unwrap().parse().unwrap();
    client.recv().iter().map(id).collect()
}

#[test]
fn a_component_that_floods_one_lane_is_held_back_and_other_lanes_go_on() {
    // What exceeds her queue is stored: at most 500 of one sender.
    const MESSAGES: usize = 600;
    let nodes = stage(1);
    let engine = nodes.node(0);
    let (juliet, romeo) = (online(engine, "juliet"), online(engine, "romeo"));
    let (flood, other) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let spawner = engine.node.spawner.clone();
    let full = || engine.node.metrics.lanes_full.get(["component"]);
    let (node, sent) = (engine.node.clone(), flood.clone());
    spawner.spawn("component", Box::pin(stream(node, "juliet@example.com/r", MESSAGES, sent)));
    nodes.settle();
    let held = flood.load(Ordering::Relaxed);
    assert!((100..300).contains(&held), "{held} messages of 1.1 kB are in a lane of 256 kB");
    assert_eq!(full(), 1);
    // Another source with another recipient goes on.
    let (node, sent) = (engine.node.clone(), other.clone());
    spawner.spawn("component", Box::pin(stream(node, "romeo@example.com/r", 50, sent)));
    nodes.settle();
    assert_eq!(ids(&romeo), (0..50).collect::<Vec<_>>());
    assert_eq!(flood.load(Ordering::Relaxed), held, "the flood is still held back");
    assert_eq!(ids(&juliet), [0; 0]);
    RELEASED.set(true);
    let mut received = Vec::new();
    while received.len() < MESSAGES {
        nodes.settle();
        let more = ids(&juliet);
        assert!(!more.is_empty(), "only {} arrived", received.len());
        received.extend(more);
    }
    assert_eq!(received, (0..MESSAGES).collect::<Vec<_>>());
    assert_eq!(flood.load(Ordering::Relaxed), MESSAGES);
}

/// The queue of a node towards this one bounds what it sends; a node that ignores its own bound cannot take the memory.
#[test]
fn stanzas_of_other_nodes_are_refused_beyond_a_bound_over_all_lanes_and_other_sources_go_on() {
    let nodes = stage(2);
    let (engine, peer) = (nodes.node(0), nodes.id(1));
    let (juliet, romeo) = (online(engine, "juliet"), online(engine, "romeo"));
    nodes.settle();
    for client in [&juliet, &romeo] {
        client.recv();
    }
    let to = Jid::parse("juliet@example.com").unwrap();
    let text = format!(
        "<message xmlns='jabber:client' from='bot@example.com/r' to='{to}' id='1'><body>{}</body></message>",
        "x".repeat(500_000)
    );
    let (kind, class) = (EnvelopeKind::RunChain, EnvelopeClass::Message);
    let envelope = Envelope::new(kind, class, peer, vec![to.clone().into()], text.as_bytes());
    let key = engine.node.routing_table.hash(to.as_ref());
    // They share their bytes, so the test does not need what they count.
    for _ in 0..600 {
        engine.node.receive_in_lane(key, peer, envelope.clone());
    }
    let refused = engine.node.metrics.lanes_full.get(["node"]);
    assert!((50..100).contains(&refused), "{refused} of 600 envelopes of 0.5 MB exceed 256 MB");
    // A component with another recipient goes on.
    let sent = Arc::<AtomicUsize>::default();
    let source = stream(engine.node.clone(), "romeo@example.com/r", 50, sent.clone());
    engine.node.spawner.spawn("component", Box::pin(source));
    nodes.settle();
    assert_eq!((sent.load(Ordering::Relaxed), ids(&romeo)), (50, (0..50).collect()));
    assert_eq!(ids(&juliet), [0; 0]);
}

#[test]
fn a_lane_keeps_order_while_a_handler_waits_and_is_not_that_of_client_streams() {
    let nodes = stage(1);
    let engine = nodes.node(0);
    let (juliet, romeo) = (online(engine, "juliet"), online(engine, "romeo"));
    let from = Jid::parse("bot@irc.example.com").unwrap();
    let route = |id: usize, kind: &str| {
        let text = format!("<{kind} from='{from}' to='juliet@example.com/r' id='{id}'/>");
        let to = Jid::parse("juliet@example.com/r").unwrap();
        let stanza = SharedStanza::parse(text.as_bytes()).unwrap();
        let full =
            engine.node.route_in_lane(StanzaSource::Component, stanza, from.as_ref(), to.as_ref()).is_some();
        assert!(!full);
    };
    route(1, "message");
    route(2, "presence");
    romeo.send("<presence to='juliet@example.com/r' id='3'/>");
    assert_eq!(ids(&juliet), [3], "another sender does not wait");
    RELEASED.set(true);
    nodes.settle();
    assert_eq!(ids(&juliet), [1, 2]);
}
