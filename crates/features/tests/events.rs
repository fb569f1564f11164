//! Tests of events: every handler runs, in order, also after one that waits, stops or panics.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use feature_api::feature::{Feature, FeatureBuilder};
use testkit::TestNode;
use throng_core::effect::Effect;
use throng_core::hooks::{
    AvailableCtx, ClosingCtx, CreatedCtx, Flow, HandlerOutcome, IncomingCtx, Interest, OpenedCtx, Phase,
    RemovedCtx, StopReason,
};
use throng_core::{Effects, SharedStanza};

thread_local! {
    /// What the handlers did.
    static LOG: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn log(entry: &'static str) {
    LOG.with_borrow_mut(|log| log.push(entry));
}

fn logged() -> Vec<&'static str> {
    LOG.take()
}

/// Waits, logs, and then asks the chain to stop, which an event ignores.
fn wait(entry: &'static str, effects: Effects) -> Flow {
    Flow::Wait(Box::pin(async move {
        let mut polled = false;
        poll_fn(|cx| {
            cx.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        log(entry);
        HandlerOutcome { flow: Flow::Stop(StopReason::Consumed), effects }
    }))
}

macro_rules! three_handlers {
    ($builder:ident, $point:ident, $ctx:ident, $first:literal, $second:literal, $third:literal) => {
        $builder.$point(Phase::Rewrite, |_: &mut $ctx<'_>| wait($first, Effects::default()));
        $builder.$point(Phase::Archive, |_: &mut $ctx<'_>| wait($second, Effects::default()));
        $builder.$point(Phase::Notify, |_: &mut $ctx<'_>| {
            log($third);
            Flow::Next
        });
    };
}

fn build(builder: &mut FeatureBuilder<'_>) {
    three_handlers!(builder, opened, OpenedCtx, "opened 1", "opened 2", "opened 3");
    three_handlers!(builder, created, CreatedCtx, "created 1", "created 2", "created 3");
    three_handlers!(builder, removed, RemovedCtx, "removed 1", "removed 2", "removed 3");
    builder.closing(Phase::Rewrite, |_: &mut ClosingCtx<'_>| panic!("a handler that panics"));
    three_handlers!(builder, closing, ClosingCtx, "closing 1", "closing 2", "closing 3");
    // The effects of a handler that waited come before those of the handlers after it.
    builder.available(Phase::Rewrite, |ctx: &mut AvailableCtx<'_>| {
        let first = SharedStanza::parse(b"<message id='first'/>").unwrap();
        wait("available 1", Effects(vec![Effect::Send(ctx.session.clone(), first)]))
    });
    builder.available(Phase::Notify, |ctx: &mut AvailableCtx<'_>| {
        ctx.effects.send(ctx.session, SharedStanza::parse(b"<message id='second'/>"));
        log("available 2");
        Flow::Next
    });
}

static EVENTS: Feature = Feature { name: "events", build, ..Feature::EMPTY };

fn node() -> TestNode {
    let mut features = throng_features::registry::ALL.to_vec();
    features.push(&EVENTS);
    let node = TestNode::new(&features);
    node.create_user("juliet");
    node
}

#[test]
fn all_handlers_of_a_session_run_in_order() {
    let engine = node();
    let juliet = engine.connect("juliet", "balcony");
    assert_eq!(logged(), ["opened 1", "opened 2", "opened 3"]);
    juliet.send("<presence/>");
    assert_eq!(logged(), ["available 1", "available 2"]);
    let received = juliet.recv().concat();
    let at = |id: &str| received.find(id).unwrap();
    assert!(at("first") < at("second"), "{received}");
    let session = juliet.session.clone();
    juliet.close();
    assert_eq!(logged(), ["closing 1", "closing 2", "closing 3"]);
    assert!(session.with(|state| state.presence.is_none()), "the state is freed after the last handler");
}

#[test]
fn all_handlers_of_an_account_run_in_order() {
    let engine = node();
    let romeo: jid::Jid = "romeo@example.com".parse().unwrap();
    engine
        .block_on(throng_commands::account_admin::create_account(
            &engine.node,
            &romeo,
            base::Secret::new("secret"),
        ))
        .unwrap();
    engine.run_tasks();
    assert_eq!(logged(), ["created 1", "created 2", "created 3"]);
    engine.block_on(throng_commands::account_admin::remove_account(&engine.node, romeo.as_ref())).unwrap();
    engine.run_tasks();
    assert_eq!(logged(), ["removed 1", "removed 2", "removed 3"]);
}

thread_local! {
    /// Whether handlers that wait for the gate continue.
    static GATE_OPEN: Cell<bool> = const { Cell::new(true) };
    static AT_GATE: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

fn open_gate(node: &TestNode) {
    GATE_OPEN.set(true);
    AT_GATE.take().into_iter().for_each(Waker::wake);
    node.run_tasks();
}

/// Waits for the gate and logs.
fn wait_at_gate(entry: &'static str) -> Flow {
    Flow::Wait(Box::pin(async move {
        poll_fn(|cx| match GATE_OPEN.get() {
            true => Poll::Ready(()),
            false => {
                AT_GATE.with_borrow_mut(|wakers| wakers.push(cx.waker().clone()));
                Poll::Pending
            }
        })
        .await;
        log(entry);
        HandlerOutcome::next()
    }))
}

static SLOW_OPENED: Feature = Feature {
    name: "slow-opened",
    build: |builder| {
        builder.opened(Phase::Rewrite, |_: &mut OpenedCtx<'_>| wait_at_gate("slow opened"));
    },
    ..Feature::EMPTY
};

static SLOW_CLOSING: Feature = Feature {
    name: "slow-closing",
    build: |builder| {
        builder.closing(Phase::Rewrite, |_: &mut ClosingCtx<'_>| wait_at_gate("slow closing"));
    },
    ..Feature::EMPTY
};

static PANICS_LATER: Feature = Feature {
    name: "panics-later",
    build: |builder| {
        let panics = || -> Flow {
            Flow::Wait(Box::pin(async {
                std::future::ready(()).await;
                panic!("a handler that panics after it has waited")
            }))
        };
        builder.created(Phase::Rewrite, move |_: &mut CreatedCtx<'_>| panics());
        builder.closing(Phase::Rewrite, move |_: &mut ClosingCtx<'_>| panics());
        builder.incoming(
            Phase::Copy,
            Interest::kinds(stanza::StanzaKindSet::MESSAGES),
            move |_: &mut IncomingCtx<'_>| panics(),
        );
    },
    ..Feature::EMPTY
};

fn node_with(first: &'static Feature) -> TestNode {
    let mut features = throng_features::registry::ALL.to_vec();
    features.extend([first, &EVENTS]);
    let node = TestNode::with_waiting_handlers(&features);
    node.create_user("juliet");
    node.create_user("romeo");
    logged();
    node
}

#[test]
fn events_of_a_session_run_one_after_another() {
    let engine = node_with(&SLOW_OPENED);
    GATE_OPEN.set(false);
    let juliet = engine.connect("juliet", "balcony");
    juliet.send("<presence/>");
    juliet.send("<presence><priority>1</priority></presence>");
    juliet.close();
    assert_eq!(logged(), [""; 0]);
    open_gate(&engine);
    let opened = ["slow opened", "opened 1", "opened 2", "opened 3"];
    let rest = ["available 1", "available 2", "closing 1", "closing 2", "closing 3"];
    assert_eq!(logged(), [&opened[..], &rest].concat());
    assert!(
        juliet.session.with(|state| state.presence.is_none()),
        "the state is freed after the last handler"
    );
}

#[test]
fn a_session_that_ends_late_does_not_make_its_successor_unavailable() {
    let engine = node_with(&SLOW_CLOSING);
    engine.befriend("juliet@example.com", "romeo@example.com");
    let romeo = engine.connect("romeo", "orchard");
    romeo.send("<presence/>");
    let unavailable = |received: Vec<String>| {
        received.iter().filter(|stanza| stanza.contains("type='unavailable'")).count()
    };
    for (returns, want) in [(true, 0), (false, 1)] {
        let juliet = engine.connect("juliet", "balcony");
        juliet.send("<presence/>");
        romeo.recv();
        GATE_OPEN.set(false);
        juliet.close();
        let successor = engine.connect("juliet", "balcony");
        if returns {
            successor.send("<presence/>");
        }
        open_gate(&engine);
        assert_eq!(unavailable(romeo.recv()), want, "returns: {returns}");
        successor.close();
    }
}

#[test]
fn a_panic_after_a_wait_stops_nothing() {
    let engine = node_with(&PANICS_LATER);
    let tybalt: jid::Jid = "tybalt@example.com".parse().unwrap();
    let created =
        throng_commands::account_admin::create_account(&engine.node, &tybalt, base::Secret::new("secret"));
    engine.block_on(created).unwrap();
    engine.run_tasks();
    assert_eq!(logged(), ["created 1", "created 2", "created 3"]);
    let juliet = engine.connect("juliet", "balcony");
    juliet.send("<presence/>");
    juliet.recv();
    juliet.send("<message to='juliet@example.com' type='chat'><body>x</body></message>");
    assert!(juliet.recv().concat().contains("<body>x</body>"), "a copy fails open");
    logged();
    juliet.close();
    assert_eq!(logged(), ["closing 1", "closing 2", "closing 3"]);
    assert!(juliet.session.with(|state| state.presence.is_none()));
}
