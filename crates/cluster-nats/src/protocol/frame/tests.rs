//! Tests of frames: what is written is read again, and any other input is refused within bounds.

use cluster::{EnvelopeClass, EnvelopeKind};
use proptest::prelude::*;

use super::*;
use crate::protocol::property::check_frame;

fn header() -> FrameHeader {
    FrameHeader {
        version: FRAME_VERSIONS.newest,
        from: NodeId::new("node-1").unwrap(),
        from_epoch: 1,
        from_link: 2,
        to_epoch: 3,
        to_link: 4,
        received: 5,
        has_gap: true,
        first: 6,
    }
}

fn envelope(ticket: u64) -> Vec<u8> {
    let own = NodeId::new("node-1").unwrap();
    let envelope =
        Envelope::new(EnvelopeKind::RunChain, EnvelopeClass::Message, own, Vec::new(), &b"<message/>"[..]);
    let mut octets = ticket.to_be_bytes().to_vec();
    envelope.encode(&mut octets).unwrap();
    octets
}

fn claims() -> Vec<Claim> {
    let claim = |address, number, takes_messages| Claim {
        address,
        number: AddressNumber::new(number),
        since: 77,
        takes_messages,
    };
    vec![claim(1, 0, false), claim(u64::MAX, u32::MAX, true)]
}

fn receipts() -> ReceiptItem {
    ReceiptItem {
        up_to: 9,
        later: vec![11, 12],
        refused: vec![(9, HandoverResult::Refused), (12, HandoverResult::RefusedFor([0, 7].into()))],
    }
}

/// Every kind of item, as it is sent and as it is read.
fn items() -> Vec<(OutgoingItem, Item)> {
    let changes = vec![ClaimChange::Claimed(claims()[1]), ClaimChange::Released(5, None)];
    let mut octets = Vec::new();
    changes.iter().for_each(|change| encode_change(change, &mut octets));
    let digest = Digest { count: 4, xor: u64::MAX };
    let body = Bytes::from(envelope(8));
    vec![
        (
            OutgoingItem::new(ItemKind::EnvelopePart, &b"part"[..]),
            Item::EnvelopePart(Bytes::from_static(b"part")),
        ),
        (OutgoingItem::new(ItemKind::Envelope, body.clone()), Item::Envelope(EnvelopeBody::new(body))),
        (OutgoingItem::new(ItemKind::Changes, octets), Item::Changes(changes)),
        (
            OutgoingItem::new(ItemKind::Snapshot, encode_snapshot(true, false, &claims())),
            Item::Snapshot { first: true, last: false, claims: claims() },
        ),
        (OutgoingItem::new(ItemKind::Receipts, receipts().encode()), Item::Receipts(receipts())),
        (OutgoingItem::new(ItemKind::Digest, encode_digest(digest)), Item::Digest(digest)),
        (OutgoingItem::new(ItemKind::SnapshotRequest, Bytes::new()), Item::SnapshotRequest),
        (OutgoingItem::new(ItemKind::Leave, Bytes::new()), Item::Leave),
    ]
}

fn encoded() -> Vec<u8> {
    let sent: Vec<OutgoingItem> = items().into_iter().map(|(sent, _)| sent).collect();
    encode_frame(&header(), sent.iter())
}

#[test]
fn a_frame_is_read_as_it_was_written() {
    let (read, arrived) = decode_frame(&Bytes::from(encoded())).unwrap();
    assert_eq!(read, header());
    assert_eq!(arrived, items().into_iter().map(|(_, read)| read).collect::<Vec<_>>());
}

/// Nodes of two releases run side by side, so the octets of version 1 must never change: they are those of a recorded frame.
#[test]
fn a_recorded_frame_of_version_1_is_read_and_written_as_it_is() {
    let recorded: Vec<u8> = include_str!("version_1.hex")
        .split_ascii_whitespace()
        .map(|octet| u8::from_str_radix(octet, 16).unwrap())
        .collect();
    let written = encoded();
    let shown: Vec<String> = written.iter().map(|octet| format!("{octet:02x}")).collect();
    assert_eq!(written, recorded, "{}", shown.join(" "));
    let (read, arrived) = decode_frame(&Bytes::from(recorded)).unwrap();
    assert_eq!((read, arrived), (header(), items().into_iter().map(|(_, read)| read).collect()));
}

#[test]
fn a_frame_that_is_cut_or_continued_is_refused_as_a_whole() {
    let octets = Bytes::from(encoded());
    for length in 0..octets.len() {
        assert_eq!(decode_frame(&octets.slice(..length)), Err(FrameError::Malformed), "{length}");
    }
    let longer = [&octets[..], b"x"].concat();
    assert_eq!(decode_frame(&longer.into()), Err(FrameError::Malformed));
    let mut newer = octets.to_vec();
    newer[0] = 2;
    assert_eq!(decode_frame(&newer.into()), Err(FrameError::Version(2)));
    assert_eq!(decode_frame(&Bytes::from(vec![1; MAX_FRAME + 1])), Err(FrameError::Malformed));
}

#[test]
fn an_item_that_is_not_valid_keeps_its_number() {
    let wrong = |kind, body: Vec<u8>| OutgoingItem::new(kind, body);
    let mut truncated = receipts().encode();
    truncated.pop();
    let mut lying = receipts().encode();
    lying[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    let sent = [
        (wrong(ItemKind::Changes, vec![0; 12]), PeerViolation::Claim),
        (wrong(ItemKind::Changes, vec![4; 21]), PeerViolation::Claim),
        (wrong(ItemKind::Snapshot, vec![]), PeerViolation::Claim),
        (wrong(ItemKind::Snapshot, vec![4]), PeerViolation::Claim),
        (wrong(ItemKind::Snapshot, [vec![1, 1], vec![0; 12]].concat()), PeerViolation::Claim),
        (wrong(ItemKind::Receipts, truncated), PeerViolation::Receipt),
        (wrong(ItemKind::Receipts, lying), PeerViolation::Receipt),
        (wrong(ItemKind::Digest, vec![0; 15]), PeerViolation::Claim),
    ];
    let octets = encode_frame(&header(), sent.iter().map(|(item, _)| item).collect::<Vec<_>>().into_iter());
    let (_, arrived) = decode_frame(&octets.into()).unwrap();
    assert_eq!(arrived, sent.map(|(_, violation)| Item::Invalid(violation)));
}

#[test]
fn kinds_of_later_versions_are_skipped_and_their_fields_ignored() {
    let longer = |item: &OutgoingItem| OutgoingItem::new(item.kind, [&item.body[..], b"later"].concat());
    let extended: Vec<(OutgoingItem, Item)> = items().split_off(4);
    let sent: Vec<OutgoingItem> = extended.iter().map(|(item, _)| longer(item)).collect();
    let mut octets = encode_frame(&header(), sent.iter());
    let (_, arrived) = decode_frame(&octets.clone().into()).unwrap();
    assert_eq!(arrived, extended.into_iter().map(|(_, item)| item).collect::<Vec<_>>());
    // The kind of the first item.
    let at = encode_frame(&header(), [].iter()).len();
    octets[at] = 200;
    let (_, arrived) = decode_frame(&octets.into()).unwrap();
    assert_eq!((&arrived[0], arrived.len()), (&Item::Unknown, 4));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_octets_are_read_or_refused(octets in proptest::collection::vec(any::<u8>(), 0..400)) {
        check_frame(&octets);
    }

    #[test]
    fn a_frame_with_changed_octets_is_read_or_refused(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let mut octets = encoded();
        for (at, value) in changes {
            let at = at.index(octets.len());
            octets[at] = value;
        }
        check_frame(&octets);
    }

    #[test]
    fn items_with_changed_octets_are_read_or_refused(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4)
    ) {
        // Without the header, which the property adds.
        let length = encode_frame(&header(), [].iter()).len() - 2;
        let mut octets = encoded().split_off(length);
        for (at, value) in changes {
            let at = at.index(octets.len());
            octets[at] = value;
        }
        check_frame(&octets);
    }
}

/// Writes the seeds of the fuzz target: `cargo test -p throng-cluster-nats seeds -- --ignored`.
#[test]
#[ignore = "writes files"]
fn write_seeds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/frame");
    let length = encode_frame(&header(), [].iter()).len() - 2;
    std::fs::write(format!("{folder}/seed-frame"), encoded()).unwrap();
    std::fs::write(format!("{folder}/seed-items"), encoded().split_off(length)).unwrap();
}
