//! The bus with partitions, crashes and rejoins; and that a seed reproduces a run.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::sync::Arc;

use throng_cluster::conformance::{InboxEvent, InboxRecorder, test_claim, test_envelope};
use throng_cluster::memory::{Bus, FAILURE_DETECTION_TICKS, MemoryNode, NetworkFaults};
use throng_cluster::{
    AddressLocation, Cluster, Envelope, EnvelopeClass, HandoverResult, MembershipChange, NodeId,
    PeerViolation, RefusalReason, Ticket,
};

const STORM: NetworkFaults = NetworkFaults { drop: 200, duplicate: 200, delay: 9 };

fn id(name: &str) -> NodeId {
    NodeId::new(name).unwrap()
}

/// Like [`join`], with an inbox that settles nothing.
fn join_unsettled(bus: &Bus, name: &str) -> (Arc<MemoryNode>, Arc<InboxRecorder>) {
    let node = bus.join(id(name));
    let cluster: Arc<dyn Cluster> = node.clone();
    (node, InboxRecorder::attach_unsettled(&cluster))
}

fn join(bus: &Bus, name: &str) -> (Arc<MemoryNode>, Arc<InboxRecorder>) {
    let node = bus.join(id(name));
    let cluster: Arc<dyn Cluster> = node.clone();
    (node, InboxRecorder::attach(&cluster))
}

/// The home of the address with the hash `address`, as `node` sees it.
fn home(node: &MemoryNode, address: u64) -> Option<NodeId> {
    node.locate(address, None).home(node.node())
}

fn undelivered(recorder: &InboxRecorder) -> Vec<String> {
    let text = |received| match received {
        InboxEvent::Undelivered(_, envelope) => Some(String::from_utf8_lossy(&envelope.bytes).into_owned()),
        _ => None,
    };
    recorder.events().into_iter().filter_map(text).collect()
}

#[test]
fn a_short_partition_loses_no_reliable_envelope() {
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
            assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::BestEffort, "lost")).is_ok());
        }
        b.claim(test_claim(1, 1, 1));
        (1..FAILURE_DETECTION_TICKS).for_each(|_| {
            bus.step();
        });
        assert_eq!(home(&a, 1), None, "seed {seed}");
        assert!(received_b.texts(id("a")).is_empty(), "seed {seed}");
        bus.heal(id("a"), id("b"));
        assert!(bus.run_until_idle(), "seed {seed}");
        assert_eq!(received_b.texts(id("a")).join(""), "0123456789", "seed {seed}");
        assert_eq!(home(&a, 1), Some(id("b")), "seed {seed}");
        assert!(undelivered(&received_a).is_empty(), "seed {seed}");
    }
}

#[test]
fn a_long_partition_returns_reliable_envelopes_and_drops_others() {
    for seed in 0..20 {
        let bus = Bus::new(seed, STORM);
        let (a, received_a) = join(&bus, "a");
        let (b, received_b) = join(&bus, "b");
        let (c, _) = join(&bus, "c");
        b.claim(test_claim(1, 1, 1));
        bus.run_until_idle();
        bus.cut(id("b"), id("a"));
        for text in ["one", "two"] {
            assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, text)).is_ok());
        }
        assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::BestEffort, "dropped")).is_ok());
        assert!(bus.run_until_idle());
        assert_eq!(undelivered(&received_a), ["one", "two"], "seed {seed}");
        assert!(received_b.texts(id("a")).is_empty());
        let left = |name, claims| {
            InboxEvent::Changed(MembershipChange::Left { node: id(name), claims, orderly: false })
        };
        assert!(received_a.events().contains(&left("b", vec![test_claim(1, 1, 1)])), "with its claims");
        assert!(received_b.events().contains(&left("a", Vec::new())));
        assert_eq!((home(&a, 1), home(&c, 1)), (None, Some(id("b"))), "only this pair is cut");
        let refused =
            a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "three")).unwrap_err();
        assert_eq!(refused.reason, RefusalReason::UnknownNode);
        // Claims that changed meanwhile are correct after the partition.
        b.release(1, test_claim(1, 1, 1).number);
        b.claim(test_claim(2, 1, 1));
        bus.heal(id("a"), id("b"));
        assert!(bus.run_until_idle());
        assert_eq!((home(&a, 1), home(&a, 2)), (None, Some(id("b"))), "seed {seed}");
        assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "four")).is_ok());
        assert!(bus.run_until_idle());
        assert_eq!(received_b.texts(id("a")), ["four"], "seed {seed}");
        assert_eq!(a.members().len(), 3);
    }
}

#[test]
fn a_crash_is_detected_and_a_new_incarnation_starts_empty() {
    let bus = Bus::new(1, STORM);
    let (a, received_a) = join(&bus, "a");
    let (b, _) = join(&bus, "b");
    b.claim(test_claim(1, 1, 1));
    bus.run_until_idle();
    bus.crash(id("b"));
    assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "to a dead node")).is_ok());
    assert_eq!(a.members().len(), 2, "nobody knows yet");
    assert!(b.members().is_empty());
    assert!(bus.run_until_idle());
    assert_eq!(undelivered(&received_a), ["to a dead node"]);
    assert_eq!((a.locate(1, None), a.members().len()), (AddressLocation::Nowhere, 1));
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
fn a_node_that_restarts_before_detection_is_a_new_incarnation() {
    let bus = Bus::new(1, NetworkFaults::default());
    let (a, received_a) = join(&bus, "a");
    let (b, received_b) = join(&bus, "b");
    b.claim(test_claim(1, 1, 1));
    bus.run_until_idle();
    assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "old")).is_ok());
    bus.crash(id("b"));
    let (_again, received_again) = join(&bus, "b");
    assert!(bus.run_until_idle());
    assert_eq!(undelivered(&received_a), ["old"]);
    assert_eq!(a.locate(1, None), AddressLocation::Nowhere);
    assert!(received_b.texts(id("a")).is_empty() && received_again.texts(id("a")).is_empty());
    let changes: Vec<_> = received_a
        .events()
        .into_iter()
        .filter(|received| matches!(received, InboxEvent::Changed(_)))
        .collect();
    assert!(matches!(changes[..], [
        InboxEvent::Changed(MembershipChange::Joined(first)),
        InboxEvent::Changed(MembershipChange::Left { .. }),
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
fn the_same_seed_repeats_the_run() {
    let run = |seed| {
        let bus = Bus::new(seed, STORM);
        let nodes = ["a", "b", "c"].map(|name| join(&bus, name));
        for number in 0..30 {
            for (node, _) in &nodes {
                let refused = node.broadcast(test_envelope(
                    node.node(),
                    EnvelopeClass::BestEffort,
                    &number.to_string(),
                ));
                assert!(refused.refused.is_empty());
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

/// Whether every ticket ended at its sender, once, and none after the other node left.
fn check_tickets(bus_seed: u64, sender: &InboxRecorder, to: NodeId, given: &[Ticket], refused: &[Ticket]) {
    let (mut returned, mut covered, mut lost) = (Vec::new(), None, Vec::new());
    let mut named: Vec<Ticket> = Vec::new();
    for event in sender.events() {
        match event {
            InboxEvent::Refused(by, envelope) if by == to => {
                let ticket = envelope.ticket();
                assert!(
                    Some(ticket) > covered && !named.contains(&ticket),
                    "seed {bus_seed}: before the receipt"
                );
                returned.push(ticket);
            }
            InboxEvent::Undelivered(by, envelope) if by == to => {
                let ticket = envelope.ticket();
                assert!(
                    Some(ticket) > covered && !named.contains(&ticket),
                    "seed {bus_seed}: no receipt before"
                );
                lost.push(ticket);
            }
            InboxEvent::Receipts(by, up_to, later) if by == to => {
                let news = Some(up_to) > covered || (Some(up_to) == covered && !later.is_empty());
                assert!(news, "seed {bus_seed}: receipts increase");
                assert!(
                    later.iter().all(|ticket| *ticket > up_to && !named.contains(ticket)),
                    "seed {bus_seed}"
                );
                named.extend(later);
                covered = Some(up_to);
            }
            _ => {}
        }
    }
    for ticket in given {
        let has_receipt = Some(*ticket) <= covered || named.contains(ticket);
        let safe = has_receipt && !returned.contains(ticket) && !lost.contains(ticket);
        let ends = [safe, returned.contains(ticket), lost.contains(ticket)];
        assert_eq!(ends.iter().filter(|end| **end).count(), 1, "seed {bus_seed}: {ticket:?} {ends:?}");
        assert!(!safe || !refused.contains(ticket), "seed {bus_seed}: {ticket:?} was refused");
    }
    assert!(returned.iter().all(|ticket| refused.contains(ticket)), "seed {bus_seed}: only what was refused");
}

#[test]
fn every_ticket_ends_once_while_envelopes_are_settled_in_any_order_and_the_network_is_cut() {
    let mut ends = [0; 3];
    for seed in 0..100 {
        let bus = Bus::new(seed, STORM);
        let mut random = fastrand::Rng::with_seed(seed);
        let (a, sender) = join(&bus, "a");
        let (b, receiver) = join_unsettled(&bus, "b");
        let (mut given, mut settled, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for step in 0..120 {
            let envelope = test_envelope(id("a"), EnvelopeClass::Message, &step.to_string());
            given.extend(a.deliver(id("b"), envelope).ok());
            let mut open = receiver.tickets(id("a"));
            open.retain(|ticket| !settled.contains(ticket));
            if let Some(ticket) = random.choice(open) {
                settled.push(ticket);
                let result = if random.bool() { HandoverResult::Safe } else { HandoverResult::Refused };
                let no = result == HandoverResult::Refused;
                if b.settle(id("a"), ticket, result) && no {
                    refused.push(ticket);
                }
            }
            match random.u32(..300) {
                0 => bus.cut(id("a"), id("b")),
                1..6 => bus.heal(id("a"), id("b")),
                _ => {}
            }
            bus.step();
        }
        bus.heal(id("a"), id("b"));
        assert!(bus.run_until_idle());
        for ticket in receiver.tickets(id("a")) {
            b.settle(id("a"), ticket, HandoverResult::Safe);
        }
        assert!(bus.run_until_idle());
        assert!(given.is_sorted_by(|one, next| one < next), "seed {seed}: tickets increase");
        check_tickets(seed, &sender, id("b"), &given, &refused);
        for event in sender.events() {
            match event {
                InboxEvent::Receipts(..) => ends[0] += 1,
                InboxEvent::Refused(..) => ends[1] += 1,
                InboxEvent::Undelivered(..) => ends[2] += 1,
                _ => {}
            }
        }
        assert!(!sender.events().iter().any(|event| matches!(event, InboxEvent::Violation(..))));
    }
    assert!(ends.iter().all(|count| *count > 50), "every end occurs: {ends:?}");
}

#[test]
fn an_envelope_that_was_never_settled_returns_when_its_node_is_gone() {
    for politely in [true, false] {
        let bus = Bus::new(1, NetworkFaults::default());
        let (a, sender) = join(&bus, "a");
        let (b, receiver) = join_unsettled(&bus, "b");
        bus.run_until_idle();
        assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "not safe")).is_ok());
        assert!(bus.run_until_idle());
        assert_eq!((receiver.texts(id("a")).len(), undelivered(&sender).len()), (1, 0));
        if politely {
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(b.leave().as_mut().poll(&mut context).is_ready());
        } else {
            bus.crash(id("b"));
        }
        assert!(bus.run_until_idle());
        assert_eq!(undelivered(&sender), ["not safe"]);
        let left = sender
            .events()
            .into_iter()
            .position(|event| matches!(event, InboxEvent::Changed(MembershipChange::Left { .. })));
        let returned =
            sender.events().into_iter().position(|event| matches!(event, InboxEvent::Undelivered(..)));
        assert!(returned < left, "before the node is gone");
        let ticket = receiver.tickets(id("a"))[0];
        assert!(!b.settle(id("a"), ticket, HandoverResult::Refused), "the sender cannot learn it");
    }
}

#[test]
fn an_envelope_for_a_node_that_is_not_ready_returns() {
    let bus = Bus::new(1, STORM);
    let (a, sender) = join(&bus, "a");
    let b = bus.join(id("b"));
    bus.run_until_idle();
    assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "early")).is_ok());
    assert!(bus.run_until_idle());
    let refused = |event: &InboxEvent| matches!(event, InboxEvent::Refused(by, _) if *by == b.node());
    assert_eq!(sender.events().iter().filter(|event| refused(event)).count(), 1);
}

fn violations(recorder: &InboxRecorder) -> Vec<PeerViolation> {
    let violation =
        |event| if let InboxEvent::Violation(_, violation) = event { Some(violation) } else { None };
    recorder.events().into_iter().filter_map(violation).collect()
}

#[test]
fn an_envelope_with_a_wrong_header_is_refused_and_the_next_one_arrives() {
    let bus = Bus::new(1, NetworkFaults::default());
    let (a, sender) = join(&bus, "a");
    let (_b, received) = join(&bus, "b");
    bus.run_until_idle();
    let octets = |change: &dyn Fn(&mut Envelope)| {
        let mut envelope = test_envelope(id("a"), EnvelopeClass::Message, "wrong");
        let Some(member) = a.members().into_iter().find(|member| member.node == id("a")) else { panic!("a") };
        envelope.header.epoch = member.epoch;
        change(&mut envelope);
        let mut octets = Vec::new();
        envelope.encode(&mut octets).unwrap();
        octets
    };
    let wrong = [
        octets(&|envelope| envelope.header.origin = id("c")),
        octets(&|envelope| envelope.header.epoch += 1),
        octets(&|envelope| envelope.header.sequence = 0),
        octets(&|envelope| envelope.header.sequence = u64::MAX),
        octets(&|envelope| envelope.header.class = EnvelopeClass::BestEffort),
    ];
    for octets in wrong {
        bus.inject(id("a"), id("b"), &octets);
    }
    for octets in [&b""[..], &[2; 300], &[3; 300], &[0xFF; 300]] {
        bus.inject(id("a"), id("b"), octets);
    }
    assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "right")).is_ok());
    assert!(bus.run_until_idle());
    let expect = [[PeerViolation::Header; 5].as_slice(), &[PeerViolation::Envelope; 4]].concat();
    assert_eq!(violations(&received), expect);
    assert_eq!(received.texts(id("a")), ["right"]);
    assert!(sender.receipt(id("b")).is_some(), "the queue of the sender is empty again");
}

#[test]
fn repeated_and_skipped_numbers_have_no_effect() {
    for seed in 0..20 {
        let bus = Bus::new(seed, STORM);
        let (a, _) = join(&bus, "a");
        let (_b, received) = join(&bus, "b");
        bus.run_until_idle();
        for number in 0..10 {
            bus.inject_numbers(id("a"), id("b"));
            let text = number.to_string();
            assert!(a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, &text)).is_ok());
            bus.step();
        }
        assert!(bus.run_until_idle());
        assert_eq!(received.texts(id("a")).join(""), "0123456789", "seed {seed}");
    }
}

#[test]
fn a_receipt_for_what_was_never_sent_ends_no_ticket() {
    let bus = Bus::new(1, NetworkFaults::default());
    let (a, sender) = join(&bus, "a");
    let (b, receiver) = join_unsettled(&bus, "b");
    bus.run_until_idle();
    for (up_to, later, refused) in [
        (u64::MAX, Vec::new(), Vec::new()),
        (10_000, Vec::new(), vec![(9, HandoverResult::Refused)]),
        (0, vec![10_000], Vec::new()),
        (0, vec![u64::MAX], Vec::new()),
        (0, vec![2, 1], Vec::new()),
        (0, vec![1, 1], Vec::new()),
    ] {
        bus.inject_receipts(id("b"), id("a"), up_to, later, refused);
    }
    assert!(bus.run_until_idle());
    assert_eq!(violations(&sender), [PeerViolation::Receipt; 6]);
    assert_eq!(sender.receipt(id("b")), None);
    // A refusal of a recipient that does not exist.
    let sent = a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, "one recipient"));
    let ticket = sent.unwrap();
    assert!(bus.run_until_idle());
    assert_eq!(receiver.tickets(id("a")), [ticket]);
    assert!(b.settle(id("a"), ticket, HandoverResult::RefusedFor([5].into())));
    assert!(bus.run_until_idle());
    assert_eq!(violations(&sender).len(), 7);
    assert_eq!(sender.receipt(id("b")), Some(ticket));
    assert!(!sender.events().iter().any(|event| matches!(event, InboxEvent::Refused(..))));
}

#[test]
fn a_claim_for_the_address_of_another_node_makes_a_wrong_home_until_it_is_gone() {
    let bus = Bus::new(1, STORM);
    let (a, _) = join(&bus, "a");
    let (b, _) = join(&bus, "b");
    let (c, _) = join(&bus, "c");
    b.claim(test_claim(1, 1, 50));
    bus.run_until_idle();
    bus.inject_claim(id("c"), id("a"), test_claim(1, 1, 0));
    assert!(bus.run_until_idle());
    assert_eq!((home(&a, 1), home(&b, 1)), (Some(id("c")), Some(id("b"))));
    assert!(a.locate(1, None).other_nodes(id("a")).any(|node| node == id("b")), "the true claim is known");
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(c.leave().as_mut().poll(&mut context).is_ready());
    assert!(bus.run_until_idle());
    assert_eq!(home(&a, 1), Some(id("b")));
}

#[test]
fn a_full_queue_stays_full_until_envelopes_are_settled() {
    let bus = Bus::new(1, NetworkFaults::default());
    let (a, _) = join(&bus, "a");
    let (b, receiver) = join_unsettled(&bus, "b");
    bus.run_until_idle();
    let large = "x".repeat(400 << 10);
    let deliver = || a.deliver(id("b"), test_envelope(id("a"), EnvelopeClass::Message, &large)).is_ok();
    let accepted = (0..100).take_while(|_| deliver()).count();
    assert!(bus.run_until_idle());
    assert!(!deliver(), "they arrived and are not safe");
    let tickets = receiver.tickets(id("a"));
    assert_eq!(tickets.len(), accepted);
    assert!(b.settle(id("a"), tickets[0], HandoverResult::Safe));
    assert!(bus.run_until_idle());
    assert!(deliver());
}

#[test]
fn envelopes_are_counted() {
    let bus = Bus::new(1, STORM);
    let (a, _) = join(&bus, "a");
    let (_b, _) = join(&bus, "b");
    a.claim(test_claim(1, 1, 1));
    for class in [EnvelopeClass::Message, EnvelopeClass::BestEffort] {
        assert!(a.deliver(id("b"), test_envelope(id("a"), class, "one")).is_ok());
    }
    assert!(a.deliver(id("z"), test_envelope(id("a"), EnvelopeClass::Message, "nobody")).is_err());
    assert!(bus.run_until_idle());
    assert_eq!(bus.envelopes(), 2);
}
