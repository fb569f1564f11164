//! Tests of events: every handler runs, in order, also after one that waits, stops or panics.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::cell::RefCell;
use std::future::poll_fn;
use std::task::Poll;

use testkit::TestNode;
use throng_core::effect::Effect;
use throng_core::feature::{Feature, FeatureBuilder};
use throng_core::hooks::{
    AvailableCtx, ClosingCtx, CreatedCtx, Flow, HandlerOutcome, Interest, OpenedCtx, Phase, RemovedCtx,
    StopReason,
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
        $builder.$point(Phase::Rewrite, Interest::ALL, |_: &mut $ctx<'_>| wait($first, Effects::default()));
        $builder.$point(Phase::Archive, Interest::ALL, |_: &mut $ctx<'_>| wait($second, Effects::default()));
        $builder.$point(Phase::Notify, Interest::ALL, |_: &mut $ctx<'_>| {
            log($third);
            Flow::Next
        });
    };
}

fn build(builder: &mut FeatureBuilder<'_>) {
    three_handlers!(builder, opened, OpenedCtx, "opened 1", "opened 2", "opened 3");
    three_handlers!(builder, created, CreatedCtx, "created 1", "created 2", "created 3");
    three_handlers!(builder, removed, RemovedCtx, "removed 1", "removed 2", "removed 3");
    builder.closing(Phase::Rewrite, Interest::ALL, |_: &mut ClosingCtx<'_>| panic!("a handler that panics"));
    three_handlers!(builder, closing, ClosingCtx, "closing 1", "closing 2", "closing 3");
    // The effects of a handler that waited come before those of the handlers after it.
    builder.available(Phase::Rewrite, Interest::ALL, |ctx: &mut AvailableCtx<'_>| {
        let first = SharedStanza::parse(b"<message id='first'/>").unwrap();
        wait("available 1", Effects(vec![Effect::Send(ctx.session.clone(), first)]))
    });
    builder.available(Phase::Notify, Interest::ALL, |ctx: &mut AvailableCtx<'_>| {
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
