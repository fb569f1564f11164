//! Tests of messages that several sessions of an account share: which of them has one when sessions end meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::cell::RefCell;
use std::sync::Arc;

use feature_api::feature::{Feature, FeatureBuilder};
use stanza::StanzaKindSet;
use testkit::{NodeClient, TestNode};
use throng_core::Session;
use throng_core::hooks::{DeliverCtx, Flow, Interest, Phase, StopReason};
use throng_features::registry::ALL;

thread_local! {
    static SCENE: RefCell<Scene> = const { RefCell::new(Scene { first: None, consumes: false }) };
}

#[derive(Default)]
struct Scene {
    /// The session that was the first to accept the message.
    first: Option<Arc<Session>>,
    /// A handler consumes the message for it.
    consumes: bool,
}

/// Ends both sessions of juliet while a message is put into the second one's queue, as other threads do.
static ENDS_BOTH: Feature = Feature { name: "ends-both", build, ..Feature::EMPTY };

fn build(builder: &mut FeatureBuilder<'_>) {
    builder.deliver(Phase::Notify, Interest::kinds(StanzaKindSet::MESSAGES), |ctx: &mut DeliverCtx<'_>| {
        if ctx.session.bare().local() != Some("juliet") || ctx.session.resource() == "later" {
            return Flow::Next;
        }
        let (first, consumes) =
            SCENE.with_borrow_mut(|scene| (scene.first.replace(ctx.session.clone()), scene.consumes));
        match first {
            None if consumes => return Flow::Stop(StopReason::Consumed),
            None => {}
            Some(first) => {
                for session in [&first, ctx.session] {
                    ctx.node.end_session(session);
                    ctx.node.outboxes.remove(&session.outbox);
                }
            }
        }
        Flow::Next
    });
}

fn online(node: &TestNode, name: &str, resource: &str) -> NodeClient {
    let client = node.connect(name, resource);
    client.send("<presence/>");
    client.recv();
    client
}

/// Romeo's message to two sessions of juliet, both of which end while it is delivered. What she receives later.
fn message_to_two_ending_sessions(consumes: bool) -> String {
    SCENE.set(Scene { first: None, consumes });
    let features: Vec<_> = ALL.iter().copied().chain([&ENDS_BOTH]).collect();
    let node = TestNode::with_waiting_handlers(&features);
    node.create_user("juliet");
    node.create_user("romeo");
    let _sessions = [online(&node, "juliet", "one"), online(&node, "juliet", "two")];
    let romeo = online(&node, "romeo", "orchard");
    romeo.send("<message to='juliet@example.com' type='chat' id='m'><body>Hello</body></message>");
    assert_eq!(romeo.handled(), romeo.sent(), "it is safe, or consumed");
    assert!(SCENE.take().first.is_some(), "the handler ran");
    let later = node.connect("juliet", "later");
    later.send("<presence/>");
    later.recv().concat()
}

#[test]
fn a_message_is_stored_if_the_session_that_accepted_it_ends_before_another_refuses_it() {
    let received = message_to_two_ending_sessions(false);
    assert_eq!(received.matches("<body>Hello</body>").count(), 1, "{received}");
}

#[test]
fn a_message_that_a_handler_consumed_is_not_stored_when_another_session_refuses_it() {
    let received = message_to_two_ending_sessions(true);
    assert!(!received.contains("<body>Hello</body>"), "{received}");
}
