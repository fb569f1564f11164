//! The bus with partitions, crashes and rejoins; and that a seed reproduces a run.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::sync::Arc;

use throng_cluster::conformance::{InboxEvent, InboxRecorder, test_envelope};
use throng_cluster::memory::{Bus, FAILURE_DETECTION_TICKS, MemoryNode, NetworkFaults};
use throng_cluster::{AddressLocation, Cluster, EnvelopeClass, MembershipChange, NodeId, RefusalReason};

const STORM: NetworkFaults = NetworkFaults { drop: 200, duplicate: 200, delay: 9 };

fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

fn join(bus: &Bus, name: &str) -> (Arc<MemoryNode>, Arc<InboxRecorder>) {
    let node = bus.join(id(name));
    let recorder = InboxRecorder::attach(&*node);
    (node, recorder)
}

fn undelivered(recorder: &InboxRecorder) -> Vec<String> {
    let text = |received| match received {
        InboxEvent::Undelivered(_, envelope) => Some(String::from_utf8_lossy(&envelope.bytes).into_owned()),
        _ => None,
    };
    recorder.events().into_iter().filter_map(text).collect()
}

#[test]
fn a_short_cut_loses_nothing_that_is_kept() {
    for seed in 0..20 {
        let bus = Bus::new(seed, STORM);
        let (a, received_a) = join(&bus, "a");
        let (b, received_b) = join(&bus, "b");
        bus.run_until_idle();
        bus.cut(id("a"), id("b"));
        for number in 0..10 {
            assert!(
                a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, &number.to_string()))
                    .is_ok()
            );
            assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Presence, "lost")).is_ok());
        }
        b.claim(1);
        (1..FAILURE_DETECTION_TICKS).for_each(|_| {
            bus.step();
        });
        assert_eq!(a.locate(1), AddressLocation::Nowhere, "seed {seed}");
        assert!(received_b.texts(id("a")).is_empty(), "seed {seed}");
        bus.heal(id("a"), id("b"));
        assert!(bus.run_until_idle(), "seed {seed}");
        assert_eq!(received_b.texts(id("a")).join(""), "0123456789", "seed {seed}");
        assert_eq!(a.locate(1), AddressLocation::Node(id("b")), "seed {seed}");
        assert!(undelivered(&received_a).is_empty(), "seed {seed}");
    }
}

#[test]
fn a_long_cut_gives_back_what_is_kept_and_forgets_the_other() {
    for seed in 0..20 {
        let bus = Bus::new(seed, STORM);
        let (a, received_a) = join(&bus, "a");
        let (b, received_b) = join(&bus, "b");
        let (c, _) = join(&bus, "c");
        b.claim(1);
        bus.run_until_idle();
        bus.cut(id("b"), id("a"));
        for text in ["one", "two"] {
            assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, text)).is_ok());
        }
        assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Presence, "presence")).is_ok());
        assert!(bus.run_until_idle());
        assert_eq!(undelivered(&received_a), ["one", "two"], "seed {seed}");
        assert!(received_b.texts(id("a")).is_empty());
        assert!(received_a.events().contains(&InboxEvent::Changed(MembershipChange::Left(id("b")))));
        assert!(received_b.events().contains(&InboxEvent::Changed(MembershipChange::Left(id("a")))));
        assert_eq!(
            (a.locate(1), c.locate(1)),
            (AddressLocation::Nowhere, AddressLocation::Node(id("b"))),
            "only this pair is cut"
        );
        let refused =
            a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "three")).unwrap_err();
        assert_eq!(refused.reason, RefusalReason::UnknownNode);
        // Claims that changed meanwhile are correct after the partition.
        b.release(1);
        b.claim(2);
        bus.heal(id("a"), id("b"));
        assert!(bus.run_until_idle());
        assert_eq!(
            (a.locate(1), a.locate(2)),
            (AddressLocation::Nowhere, AddressLocation::Node(id("b"))),
            "seed {seed}"
        );
        assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "four")).is_ok());
        assert!(bus.run_until_idle());
        assert_eq!(received_b.texts(id("a")), ["four"], "seed {seed}");
        assert_eq!(a.members().len(), 3);
    }
}

#[test]
fn a_crash_is_found_out_and_a_new_life_starts_from_nothing() {
    let bus = Bus::new(1, STORM);
    let (a, received_a) = join(&bus, "a");
    let (b, _) = join(&bus, "b");
    b.claim(1);
    bus.run_until_idle();
    bus.crash(id("b"));
    assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "to a dead node")).is_ok());
    assert_eq!(a.members().len(), 2, "nobody knows yet");
    assert!(b.members().is_empty());
    assert!(bus.run_until_idle());
    assert_eq!(undelivered(&received_a), ["to a dead node"]);
    assert_eq!((a.locate(1), a.members().len()), (AddressLocation::Nowhere, 1));
    let (again, received_again) = join(&bus, "b");
    assert!(bus.run_until_idle());
    let (first, second) =
        (b.deliver(id("a"), test_envelope(id("b"), EnvelopeClass::Message, "ghost")), a.members()[1]);
    assert_eq!(first.unwrap_err().reason, RefusalReason::UnknownNode, "the former life stays dead");
    assert!(second.epoch > 2 && second.node == again.node());
    assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "welcome")).is_ok());
    assert!(bus.run_until_idle());
    assert_eq!(received_again.texts(id("a")), ["welcome"]);
}

#[test]
fn a_node_that_is_back_before_anyone_noticed_is_a_new_life() {
    let bus = Bus::new(1, NetworkFaults::default());
    let (a, received_a) = join(&bus, "a");
    let (b, received_b) = join(&bus, "b");
    b.claim(1);
    bus.run_until_idle();
    assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "old")).is_ok());
    bus.crash(id("b"));
    let (_again, received_again) = join(&bus, "b");
    assert!(bus.run_until_idle());
    assert_eq!(undelivered(&received_a), ["old"]);
    assert_eq!(a.locate(1), AddressLocation::Nowhere);
    assert!(received_b.texts(id("a")).is_empty() && received_again.texts(id("a")).is_empty());
    let changes: Vec<_> = received_a
        .events()
        .into_iter()
        .filter(|received| matches!(received, InboxEvent::Changed(_)))
        .collect();
    assert!(matches!(changes[..], [
        InboxEvent::Changed(MembershipChange::Joined(first)),
        InboxEvent::Changed(MembershipChange::Left(_)),
        InboxEvent::Changed(MembershipChange::Joined(second)),
    ] if first.epoch < second.epoch));
}

#[test]
fn a_full_queue_refuses_an_envelope() {
    let bus = Bus::new(1, NetworkFaults::default());
    let (a, _) = join(&bus, "a");
    let (_b, received) = join(&bus, "b");
    let large = "x".repeat(400 << 10);
    let accepted = (0..100)
        .take_while(|_| a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, &large)).is_ok())
        .count();
    assert!((5..20).contains(&accepted), "{accepted}");
    assert_eq!(
        a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, &large)).unwrap_err().reason,
        RefusalReason::QueueFull
    );
    assert!(bus.run_until_idle());
    assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, &large)).is_ok());
    assert!(bus.run_until_idle());
    assert_eq!(received.texts(id("a")).len(), accepted + 1);
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        let bus = Bus::new(seed, STORM);
        let nodes = ["a", "b", "c"].map(|name| join(&bus, name));
        for number in 0..30 {
            for (node, _) in &nodes {
                let refused =
                    node.broadcast(test_envelope(node.node(), EnvelopeClass::Presence, &number.to_string()));
                assert!(refused.is_empty());
            }
            bus.step();
        }
        bus.run_until_idle();
        nodes.map(|(_, recorder)| recorder.events())
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8), "the faults do something");
}

#[test]
fn frames_of_an_earlier_incarnation_are_ignored() {
    for seed in 0..50 {
        let bus = Bus::new(seed, NetworkFaults { drop: 100, duplicate: 300, delay: 30 });
        let (a, _) = join(&bus, "a");
        let (_b, _) = join(&bus, "b");
        (0..6).for_each(|number| {
            assert!(
                a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, &format!("old {number}")))
                    .is_ok()
            )
        });
        (0..10).for_each(|_| {
            bus.step();
        });
        let (_again, received) = join(&bus, "b");
        (0..6).for_each(|number| {
            assert!(
                a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, &number.to_string()))
                    .is_ok()
            )
        });
        assert!(bus.run_until_idle());
        assert_eq!(received.texts(id("a")).join(""), "012345", "seed {seed}");
    }
}

#[test]
fn envelopes_of_a_node_that_left_arrive_once() {
    for steps in 0..5 {
        let bus = Bus::new(1, NetworkFaults::default());
        let (a, received_a) = join(&bus, "a");
        let (b, received_b) = join(&bus, "b");
        bus.run_until_idle();
        assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "to b")).is_ok());
        assert!(b.deliver(id("a"), test_envelope(id("b"), EnvelopeClass::Message, "to a")).is_ok());
        (0..steps).for_each(|_| {
            bus.step();
        });
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(a.leave().as_mut().poll(&mut context).is_ready());
        assert!(bus.run_until_idle());
        assert_eq!(
            (received_b.texts(id("a")).join(""), received_a.texts(id("b")).join("")),
            ("to b".into(), "to a".into())
        );
        assert!(undelivered(&received_a).is_empty() && undelivered(&received_b).is_empty(), "{steps}");
    }
}
