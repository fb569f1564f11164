//! Frames that no correct node sends: they are reported, cost bounded memory, and what is true is true again afterwards.

use std::sync::Arc;

use bytes::Bytes;
use cluster::conformance::{InboxEvent, InboxRecorder, test_claim, test_envelope};
use cluster::{
    AddressLocation, ClaimChange, Cluster, EnvelopeClass, HandoverResult, Inbox, NodeId, PeerViolation,
};
use fastrand::Rng;

use super::network::{Faults, SimulatedNetwork, name};
use crate::cluster_key::ClusterKey;
use crate::protocol::frame::{
    FrameHeader, ItemKind, OutgoingItem, ReceiptItem, encode_change, encode_frame, encode_snapshot,
};

struct Victim {
    network: Arc<SimulatedNetwork>,
    inbox: Arc<InboxRecorder>,
}

fn victim() -> Victim {
    let network = SimulatedNetwork::new(&["a", "b"], 1, Faults::default());
    let nodes = ["a", "b"].map(|node| network.node(name(node)) as Arc<dyn Cluster>);
    let _other = InboxRecorder::attach(&nodes[0]);
    let inbox = InboxRecorder::attach(&nodes[1]);
    network.run(200, SimulatedNetwork::is_quiet);
    Victim { network, inbox }
}

impl Victim {
    /// The header of the next frame from `a` to `b`.
    fn header(&self) -> FrameHeader {
        self.network.node(name("a")).core.with(|state| state.next_header(name("b"))).unwrap()
    }

    fn send(&self, header: FrameHeader, items: &[OutgoingItem]) {
        self.network.inject(name("b"), encode_frame(&header, items.iter()));
    }

    fn violations(&self) -> Vec<PeerViolation> {
        let violation = |event| match event {
            InboxEvent::Violation(from, violation) => {
                assert_eq!(from, name("a"));
                Some(violation)
            }
            _ => None,
        };
        self.inbox.events().into_iter().filter_map(violation).collect()
    }

    /// Messages and claims arrive again.
    fn works(&self) {
        let sender = self.network.node(name("a"));
        assert!(self.network.run(20_000, SimulatedNetwork::is_connected));
        self.network.run(1_000, |_| false);
        sender.claim(test_claim(0xabc, 1, 1));
        let sent = sender.deliver(name("b"), test_envelope(name("a"), EnvelopeClass::Message, "still here"));
        assert!(sent.is_ok());
        let arrived = || self.inbox.texts(name("a")).iter().any(|text| text == "still here");
        let receiver = self.network.node(name("b"));
        let located = || receiver.locate(0xabc, None) != AddressLocation::Nowhere;
        assert!(self.network.run(20_000, |_| arrived() && located()));
    }
}

fn envelope_item(ticket: u64, from: NodeId, epoch: u64, sequence: u64) -> OutgoingItem {
    let mut envelope = test_envelope(from, EnvelopeClass::Message, "forged");
    (envelope.header.epoch, envelope.header.sequence) = (epoch, sequence);
    let mut body = ticket.to_be_bytes().to_vec();
    envelope.encode(&mut body).unwrap();
    OutgoingItem::new(ItemKind::Envelope, body)
}

#[test]
fn items_that_lie_are_reported_and_do_no_harm() {
    let victim = victim();
    let header = victim.header();
    let epoch = header.from_epoch;
    let best_effort = {
        let mut envelope = test_envelope(name("a"), EnvelopeClass::BestEffort, "");
        envelope.header.epoch = epoch;
        let mut body = 9_u64.to_be_bytes().to_vec();
        envelope.encode(&mut body).unwrap();
        OutgoingItem::new(ItemKind::Envelope, body)
    };
    let receipts = |up_to, refused: Vec<(u64, HandoverResult)>| {
        let receipts = ReceiptItem { up_to, later: Vec::new(), refused };
        OutgoingItem::new(ItemKind::Receipts, receipts.encode())
    };
    let cases = [
        (envelope_item(1, name("c"), epoch, 1), PeerViolation::Header),
        (envelope_item(2, name("a"), epoch + 1, 2), PeerViolation::Header),
        (envelope_item(3, name("a"), epoch, 4), PeerViolation::Header),
        (envelope_item(3, name("a"), epoch, 3), PeerViolation::Header),
        (envelope_item(0, name("a"), epoch, 0), PeerViolation::Header),
        (best_effort, PeerViolation::Header),
        (OutgoingItem::new(ItemKind::Envelope, &b"short"[..]), PeerViolation::Envelope),
        (OutgoingItem::new(ItemKind::Envelope, vec![0xff; 300]), PeerViolation::Envelope),
        (OutgoingItem::new(ItemKind::Changes, &b"x"[..]), PeerViolation::Claim),
        (OutgoingItem::new(ItemKind::Snapshot, encode_snapshot(false, true, &[])), PeerViolation::Claim),
        (receipts(1, vec![]), PeerViolation::Receipt),
        (receipts(0, vec![(1, HandoverResult::Refused)]), PeerViolation::Receipt),
    ];
    let mut expect = Vec::new();
    for (number, (item, violation)) in (header.first..).zip(cases) {
        victim.send(FrameHeader { first: number, ..header }, &[item]);
        expect.push(violation);
        assert_eq!(victim.violations(), expect);
    }
    assert!(victim.inbox.texts(name("a")).is_empty(), "nothing of it reached the inbox");
}

#[test]
fn parts_without_an_end_are_bounded() {
    let victim = victim();
    let header = victim.header();
    let part = OutgoingItem::new(ItemKind::EnvelopePart, vec![0; 200_000]);
    for number in 0..20 {
        victim.send(FrameHeader { first: header.first + number, ..header }, std::slice::from_ref(&part));
    }
    assert_eq!(victim.violations(), [PeerViolation::Envelope; 3]);
}

#[test]
fn a_flood_of_claims_is_refused_and_asks_for_no_further_snapshot() {
    let victim = victim();
    let header = victim.header();
    let mut first = header.first;
    for round in 0..10_u64 {
        let mut body = Vec::new();
        for address in 0..1_000 {
            encode_change(&ClaimChange::Claimed(test_claim(round << 40 | address, 1, 1)), &mut body);
        }
        victim.send(FrameHeader { first, ..header }, &[OutgoingItem::new(ItemKind::Changes, body)]);
        first += 1;
    }
    let status = victim.network.node(name("b")).core.status();
    assert_eq!(status.peer_claims, 5_000, "the limit of a node in these tests");
    assert_eq!(victim.violations().len(), 5_000);
    let claims: Vec<_> = (0..4_000).map(|address| test_claim(address, 1, 1)).collect();
    for (first_part, last) in [(true, false), (false, true)] {
        let item = OutgoingItem::new(ItemKind::Snapshot, encode_snapshot(first_part, last, &claims));
        victim.send(FrameHeader { first, ..header }, &[item]);
        first += 1;
    }
    assert_eq!(victim.violations().len(), 5_001, "the second part has claims of the buckets of the first");
    assert_eq!(victim.network.node(name("b")).core.status().peer_claims, 4_000);
}

#[test]
fn numbers_that_repeat_skip_or_overflow_are_ignored() {
    let victim = victim();
    let header = victim.header();
    let item = envelope_item(1, name("a"), header.from_epoch, 1);
    for first in [0, header.first + 1, header.first + 1_000_000, u64::MAX] {
        victim.send(FrameHeader { first, ..header }, std::slice::from_ref(&item));
    }
    for received in [0, u64::MAX] {
        victim.send(FrameHeader { received, ..header }, &[]);
    }
    assert_eq!(victim.violations(), [PeerViolation::Receipt]);
    assert!(victim.inbox.texts(name("a")).is_empty());
    victim.works();
}

#[test]
fn links_of_others_epochs_and_times_are_ignored_or_replaced() {
    let victim = victim();
    let header = victim.header();
    let before = victim.inbox.events();
    for (from_epoch, to_epoch, from) in [
        (header.from_epoch + 1, header.to_epoch, "a"),
        (header.from_epoch, header.to_epoch + 1, "a"),
        (header.from_epoch, header.to_epoch, "nobody"),
        (header.from_epoch, header.to_epoch, "b"),
    ] {
        victim.send(FrameHeader { from_epoch, to_epoch, from: name(from), ..header }, &[]);
    }
    victim.send(FrameHeader { from_link: 0, ..header }, &[]);
    assert_eq!(victim.inbox.events(), before);
    victim.send(FrameHeader { to_link: u64::MAX, ..header }, &[]);
    victim.send(FrameHeader { from_link: u64::MAX, ..header }, &[]);
    assert_eq!(victim.violations(), [PeerViolation::Header; 2]);
    // A later link that there is not: it is replaced, and the real one again.
    victim.send(FrameHeader { from_link: header.from_link + 7, ..header }, &[]);
    victim.works();
    victim.send(FrameHeader { to_link: victim.header().to_link + 7, ..victim.header() }, &[]);
    victim.works();
}

#[test]
fn items_and_frames_of_later_versions_do_no_harm() {
    let victim = victim();
    let header = victim.header();
    let epoch = header.from_epoch;
    let items = [OutgoingItem::new(ItemKind::Digest, vec![0; 16]), envelope_item(1, name("a"), epoch, 1)];
    let mut octets = encode_frame(&header, items.iter());
    let first_item = encode_frame(&header, [].iter()).len();
    octets[first_item] = 77;
    victim.network.inject(name("b"), octets);
    assert_eq!(victim.inbox.texts(name("a")), ["forged"], "what follows an unknown item is handled");
    victim.send(FrameHeader { version: 2, first: header.first + 2, ..header }, &items);
    let status = victim.network.node(name("b")).core.status().statistics;
    assert_eq!((status.skipped_items, victim.violations()), (1, vec![]));
}

#[test]
fn frames_without_the_key_of_the_deployment_are_ignored() {
    let victim = victim();
    let header = victim.header();
    let leave = encode_frame(&header, [OutgoingItem::new(ItemKind::Leave, Bytes::new())].iter());
    let before = victim.inbox.events();
    for octets in [
        leave.clone(),
        [&leave[..], &[0; 16]].concat(),
        ClusterKey::new(&[8; 32]).seal_frame("b", leave.clone()),
        ClusterKey::new(&[7; 32]).seal_frame("c", leave.clone()),
    ] {
        victim.network.inject_octets(name("b"), octets);
    }
    assert_eq!(victim.inbox.events(), before);
    assert_eq!(victim.network.node(name("b")).core.status().statistics.forged_frames, 4);
    victim.network.inject(name("b"), leave);
    assert_ne!(victim.inbox.events(), before, "the frame itself was right");
}

#[test]
fn a_handler_of_violations_that_panics_does_not_end_the_connection() {
    struct Panics;
    impl Inbox for Panics {
        fn on_envelope(&self, _: NodeId, _: cluster::Envelope) {}
        fn on_receipts(&self, _: NodeId, _: cluster::Ticket, _: &[cluster::Ticket]) {}
        fn on_refused(&self, _: NodeId, _: cluster::Envelope) {}
        fn on_undelivered(&self, _: NodeId, _: cluster::Envelope) {}
        fn on_membership_change(&self, _: cluster::MembershipChange) {}
        fn on_violation(&self, _: NodeId, _: PeerViolation) {
            panic!("a handler of violations");
        }
    }
    let network = SimulatedNetwork::new(&["a", "b"], 1, Faults::default());
    network.node(name("b")).core.attach(Arc::new(Panics));
    let header = network.node(name("a")).core.with(|state| state.next_header(name("b"))).unwrap();
    let mut malformed = encode_frame(&header, [].iter());
    malformed.push(0);
    network.inject(name("b"), malformed);
    assert_eq!(network.node(name("b")).core.members().len(), 2);
}

#[test]
fn frames_of_another_link_keep_no_member() {
    let victim = victim();
    let header = victim.header();
    victim.network.cut(name("a"), name("b"));
    for _ in 0..12 {
        for (from_link, to_link) in [
            (header.from_link, 0),
            (header.from_link - 1, header.to_link),
            (header.from_link, header.to_link - 1),
        ] {
            victim.send(FrameHeader { from_link, to_link, ..header }, &[]);
        }
        victim.network.run(1_000, |_| false);
    }
    assert_eq!(victim.network.node(name("b")).core.members().len(), 1);
}

#[test]
fn a_repeated_frame_does_not_keep_a_node_that_is_gone() {
    let victim = victim();
    let (network, a, b) = (&victim.network, name("a"), name("b"));
    let header = victim.header();
    let frame = encode_frame(
        &FrameHeader { has_gap: true, ..header },
        [envelope_item(1, a, header.from_epoch, 1)].iter(),
    );
    network.inject(b, frame.clone());
    network.crash(a);
    for _ in 0..120 {
        network.inject(b, frame.clone());
        network.run(100, |_| false);
    }
    assert_eq!(network.node(b).core.members().len(), 1, "repeated frames keep a member that is gone");
}

#[test]
fn the_number_of_a_link_changes_no_other_link() {
    let network = SimulatedNetwork::new(&["a", "b", "c"], 1, Faults::default());
    let of_link = |from: &str, to: &str| {
        let header = network.node(name(from)).core.with(|state| state.next_header(name(to)));
        header.map(|header| header.from_link)
    };
    let header = network.node(name("a")).core.with(|state| state.next_header(name("b"))).unwrap();
    let forged = FrameHeader { to_link: header.to_link + (1 << 20), ..header };
    network.inject(name("b"), encode_frame(&forged, [].iter()));
    assert!(network.run(20_000, SimulatedNetwork::is_connected), "the other node follows");
    assert!(of_link("b", "a").is_some_and(|number| number > 1 << 20));
    network.cut(name("b"), name("c"));
    network.run(11_000, |_| false);
    network.heal(name("b"), name("c"));
    assert!(network.run(20_000, SimulatedNetwork::is_connected));
    assert_eq!(of_link("b", "c"), Some(2));
}

#[test]
fn random_frames_do_not_stop_the_link() {
    let victim = victim();
    let mut random = Rng::with_seed(7);
    for _ in 0..3_000 {
        let header = victim.header();
        let near = |random: &mut Rng, value: u64| match random.u8(..8) {
            0 => random.u64(..),
            1 => value.wrapping_add(random.u64(..3)),
            2 => value.saturating_sub(random.u64(..3)),
            _ => value,
        };
        let header = FrameHeader {
            from_link: near(&mut random, header.from_link),
            to_link: near(&mut random, header.to_link),
            received: near(&mut random, header.received),
            first: near(&mut random, header.first),
            has_gap: random.bool(),
            ..header
        };
        let kinds = [
            ItemKind::Envelope,
            ItemKind::EnvelopePart,
            ItemKind::Changes,
            ItemKind::Snapshot,
            ItemKind::Receipts,
            ItemKind::Digest,
            ItemKind::SnapshotRequest,
        ];
        let items: Vec<OutgoingItem> = (0..random.usize(..4))
            .map(|_| {
                let mut body = vec![0; random.usize(..64)];
                random.fill(&mut body);
                if random.bool() {
                    body.iter_mut().take(8).for_each(|octet| *octet = 0);
                }
                OutgoingItem::new(random.choice(kinds).unwrap(), body)
            })
            .collect();
        victim.send(header, &items);
        victim.network.step();
    }
    // Numbers that were used up by forged items are repaired with the next link.
    victim.network.cut(name("a"), name("b"));
    victim.network.run(11_000, |_| false);
    victim.network.heal(name("a"), name("b"));
    victim.works();
}
