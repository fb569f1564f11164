//! Tests of `throng_stanza_delivery_seconds`: the sampled stanzas, and start and end of a sample.

use std::task::{Context, Waker};

use testkit::{NodeClient, TestNode};
use throng_core::metrics::Metrics;
use throng_core::session::{QueuedBatch, StreamManagementTerms};
use throng_features::registry::ALL;

struct TimedChat {
    engine: TestNode,
    romeo: NodeClient,
    juliet: NodeClient,
}

impl TimedChat {
    /// Both users are online, with empty queues and no running sample.
    fn new() -> TimedChat {
        let engine = TestNode::new(ALL);
        engine.create_user("romeo");
        engine.create_user("juliet");
        engine.befriend("romeo", "juliet");
        let (romeo, juliet) = (engine.connect("romeo", "orchard"), engine.connect("juliet", "balcony"));
        for client in [&romeo, &juliet] {
            client.send("<presence/>");
        }
        let stage = TimedChat { engine, romeo, juliet };
        stage.take();
        stage.engine.node.record_delivery(&stage.juliet.session.outbox);
        stage.engine.clock.advance(1_000);
        stage
    }

    fn say(&self) {
        self.romeo.send("<message to='juliet@example.com' type='chat'><body>Soft!</body></message>");
    }

    fn take(&self) -> usize {
        let mut batch = QueuedBatch::new();
        self.juliet.session.outbox.dequeue_all(&mut Context::from_waker(Waker::noop()), &mut batch);
        batch.len()
    }

    /// Number of samples and their sum in milliseconds.
    fn messages(&self) -> (u64, u64) {
        let metrics: &Metrics = &self.engine.node.metrics;
        let seen = metrics.delivery[1].snapshot();
        (seen.count(), seen.sum / 1_000)
    }
}

#[test]
fn a_message_is_timed_from_reading_to_writing() {
    let stage = TimedChat::new();
    let (node, link) = (&stage.engine.node, &stage.juliet.session.outbox);
    let before = stage.messages();
    stage.say();
    stage.engine.clock.advance(3);
    // Another stanza was written meanwhile, not this message.
    node.record_delivery(link);
    assert_eq!(stage.messages(), before);
    assert_eq!(stage.take(), 1);
    stage.engine.clock.advance(4);
    // A later stanza is not included.
    stage.say();
    node.record_delivery(link);
    assert_eq!(stage.messages(), (before.0 + 1, before.1 + 7));
    node.record_delivery(link);
    assert_eq!(stage.messages().0, before.0 + 1, "once");
}

#[test]
fn one_sample_at_a_time_and_not_every_stanza() {
    let stage = TimedChat::new();
    let before = stage.messages().0;
    for _ in 0..640 {
        stage.say();
        stage.take();
        stage.engine.node.record_delivery(&stage.juliet.session.outbox);
    }
    let timed = stage.messages().0 - before;
    // The first sixteen of the second and every 64th, minus those of the sixteen that presence used.
    assert!((10..=27).contains(&timed), "{timed}");
}

#[test]
fn a_detached_session_is_not_timed() {
    let stage = TimedChat::new();
    let link = &stage.juliet.session.outbox;
    assert!(link.enable_management(
        StreamManagementTerms { resume_seconds: 60, unacked_bytes: 100_000, sm2: false },
        [0; 16]
    ));
    stage.say();
    assert!(link.detach(stage.engine.node.seconds(), None));
    stage.say();
    let before = stage.messages();
    stage.take();
    stage.engine.node.record_delivery(link);
    assert_eq!(stage.messages(), before);
}
