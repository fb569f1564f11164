//! The wire format of an envelope: its documented layout, its limits, and that no input causes a panic.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

mod property;

use std::sync::Arc;

use base::TimeOrderedId;
use jid::Jid;
use proptest::prelude::*;
use throng_cluster::{
    AddressHasher, AddressLocation, AddressNumber, AddressReference, Claim, Envelope, EnvelopeClass,
    EnvelopeError, EnvelopeHeader, EnvelopeKind, HandoverResult, InvalidationSubject, NodeClaim, NodeId,
    Recipient,
};

fn jid(text: &str) -> Recipient {
    Recipient::Address(Jid::parse(text).unwrap())
}

fn reference(hash: u64, number: u32) -> AddressReference {
    AddressReference { hash, number: AddressNumber::new(number).unwrap() }
}

fn sample() -> Envelope {
    Envelope {
        header: EnvelopeHeader {
            kind: EnvelopeKind::ChainHasRun,
            class: EnvelopeClass::Message,
            hops: 2,
            origin: NodeId::new("n1").unwrap(),
            epoch: 0x0102,
            sequence: 0x0304,
            stanza_id: Some(TimeOrderedId::from_bytes([9; 15])),
            tracks_delivery: true,
        },
        recipients: vec![
            jid("a@b"),
            Recipient::Account(reference(0x0506, 0x0708)),
            Recipient::Session(reference(0x0506, 0x0708), 0x090A),
            jid("c@d/e"),
        ],
        bytes: Arc::from(&b"<x/>"[..]),
    }
}

fn encoded(envelope: &Envelope) -> Vec<u8> {
    let mut out = Vec::new();
    envelope.encode(&mut out).unwrap();
    assert_eq!(out.len(), envelope.encoded_len());
    out
}

/// Two versions run side by side, so the octets of version 3 must never change.
#[test]
fn the_encoding_of_version_3_never_changes() {
    let expect = [
        &[3, 2, 1, 2, 1][..],
        &[0, 0, 0, 0, 0, 0, 1, 2],
        &[0, 0, 0, 0, 0, 0, 3, 4],
        b"\x02n1",
        b"\x0f\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t",
        b"\x00\x04\x00\x00\x03a@b",
        b"\x01\0\0\0\0\0\0\x05\x06\0\0\x07\x08",
        b"\x02\0\0\0\0\0\0\x05\x06\0\0\x07\x08\0\0\x09\x0A",
        b"\x00\x00\x05c@d/e",
        b"\x00\x00\x00\x04<x/>",
    ]
    .concat();
    assert_eq!(encoded(&sample()), expect);
    assert_eq!(Envelope::decode(&expect), Ok((sample(), &[][..])));
    let without_id = sample().with_stanza_id(None);
    let octets = encoded(&without_id);
    assert_eq!((octets[24], octets.len()), (0, expect.len() - 15));
    assert_eq!(Envelope::decode(&octets), Ok((without_id, &[][..])));
    let untracked = sample().with_delivery_tracking(false);
    let octets = encoded(&untracked);
    assert_eq!((octets[4], octets.len()), (0, expect.len()));
    assert_eq!(Envelope::decode(&octets), Ok((untracked, &[][..])));
}

#[test]
fn the_octet_of_each_kind_never_changes() {
    let subjects = InvalidationSubject::ALL.map(EnvelopeKind::Invalidation);
    let kinds = [EnvelopeKind::RunChain, EnvelopeKind::ChainHasRun, EnvelopeKind::SessionReport];
    let octets = |kinds: &[EnvelopeKind]| kinds.iter().filter_map(|kind| kind.to_byte()).collect::<Vec<_>>();
    assert_eq!(octets(&kinds), [1, 2, 3]);
    assert_eq!(octets(&subjects), [16, 17, 18, 20, 21]);
    assert_eq!(octets(&[EnvelopeKind::Engine(0), EnvelopeKind::Engine(127)]), [128, 255]);
    assert_eq!(EnvelopeKind::Engine(128).to_byte(), None);
    for octet in 0..=u8::MAX {
        let kind = EnvelopeKind::from_byte(octet);
        assert_eq!(kind.is_some(), matches!(octet, 1..=3 | 16..=18 | 20 | 21 | 128..), "{octet}");
        assert!(kind.is_none_or(|kind| kind.to_byte() == Some(octet)));
    }
}

#[test]
fn consecutive_envelopes_are_decoded_one_by_one() {
    let mut batch = encoded(&sample());
    batch.extend(encoded(&Envelope::new(
        EnvelopeKind::Engine(1),
        EnvelopeClass::BestEffort,
        NodeId::new("b").unwrap(),
        Vec::new(),
        *b"",
    )));
    let (first, rest) = Envelope::decode(&batch).unwrap();
    let (second, rest) = Envelope::decode(rest).unwrap();
    assert_eq!((first, second.header.class, rest.len()), (sample(), EnvelopeClass::BestEffort, 0));
}

#[test]
fn every_truncation_is_an_error() {
    let whole = encoded(&sample());
    for end in 0..whole.len() {
        assert!(Envelope::decode(&whole[..end]).is_err(), "{end}");
    }
}

#[test]
fn an_invalid_field_is_named_in_the_error() {
    let whole = encoded(&sample());
    let with = |place: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[place] = byte;
        Envelope::decode(&bytes).map(|_| ())
    };
    for version in [0, 1, 2, 4, 255] {
        assert_eq!(with(0, version), Err(EnvelopeError::Version(version)));
    }
    assert_eq!(
        (with(1, 0), with(1, 64)),
        (Err(EnvelopeError::Field("kind")), Err(EnvelopeError::Field("kind")))
    );
    assert_eq!(with(2, 3), Err(EnvelopeError::Field("class")));
    assert_eq!(
        (with(3, 0), with(3, 3)),
        (Err(EnvelopeError::Field("hops")), Err(EnvelopeError::Field("hops")))
    );
    assert_eq!(
        (with(4, 2), with(4, 0xff)),
        (Err(EnvelopeError::Field("flags")), Err(EnvelopeError::Field("flags")))
    );
    assert_eq!(with(21, 0), Err(EnvelopeError::Field("origin")));
    assert_eq!(with(22, b'N'), Err(EnvelopeError::Field("origin")));
    assert_eq!(with(24, 14), Err(EnvelopeError::Field("stanza id")));
    assert_eq!(with(40, 0xff), Err(EnvelopeError::TooLarge));
    let recipient = Err(EnvelopeError::Field("recipient"));
    assert_eq!(with(42, 3), recipient, "an unknown form");
    assert_eq!(with(45, b'@'), recipient);
    assert_eq!(with(46, 0xff), recipient);
    let zero = Envelope::decode(&[&whole[..57], &[0, 0, 0, 0], &whole[61..]].concat()).map(|_| ());
    assert_eq!(zero, recipient, "no address has the number 0");
    assert_eq!(with(whole.len() - 8, 0xff), Err(EnvelopeError::TooLarge));
}

#[test]
fn a_kind_or_hops_that_do_not_exist_are_not_sent() {
    let mut out = vec![1];
    let mut wrong = sample();
    wrong.header.kind = EnvelopeKind::Engine(128);
    assert_eq!(wrong.encode(&mut out), Err(EnvelopeError::Field("kind")));
    for hops in [0, Envelope::MAX_HOPS + 1] {
        let mut wrong = sample();
        wrong.header.hops = hops;
        assert_eq!(wrong.encode(&mut out), Err(EnvelopeError::Field("hops")));
    }
    assert_eq!(out, [1]);
}

#[test]
fn a_stanza_travels_two_hops_and_keeps_its_id() {
    let mut first = sample();
    first.header.hops = 1;
    let second = first.forwarded(EnvelopeKind::ChainHasRun, vec![jid("x@y")]).unwrap();
    assert_eq!((second.header.hops, second.header.stanza_id), (2, first.header.stanza_id));
    assert!(second.header.tracks_delivery);
    assert!(Arc::ptr_eq(&second.bytes, &first.bytes));
    assert_eq!(second.forwarded(EnvelopeKind::RunChain, Vec::new()), None);
}

#[test]
fn a_refused_envelope_has_only_the_refused_recipients() {
    let refused = |result: &HandoverResult| sample().refused(result).map(|envelope| envelope.recipients);
    let all = sample().recipients;
    assert_eq!(refused(&HandoverResult::Safe), None);
    assert_eq!(refused(&HandoverResult::Refused), Some(all.clone()));
    let some = HandoverResult::of(4, vec![0, 3]);
    assert_eq!(refused(&some), Some(vec![all[0].clone(), all[3].clone()]));
    assert_eq!(HandoverResult::of(2, vec![0, 1]), HandoverResult::Refused);
    assert_eq!(HandoverResult::of(2, vec![]), HandoverResult::Safe);
    for wrong in [&[4][..], &[0, 0], &[1, 0], &[], &[u16::MAX]] {
        assert_eq!(refused(&HandoverResult::RefusedFor(wrong.into())), None, "{wrong:?}");
    }
}

#[test]
fn limits_apply_to_encoding_and_decoding() {
    let own = NodeId::new("n").unwrap();
    let longest = Jid::from_parts(Some(&"a".repeat(1023)), "b", Some(&"c".repeat(1023))).unwrap();
    let longest = Recipient::Address(longest);
    let encode = |recipients, bytes| {
        Envelope::new(EnvelopeKind::RunChain, EnvelopeClass::Control, own, recipients, vec![0; bytes])
            .encode(&mut Vec::new())
    };
    assert_eq!(encode(vec![jid("a@b"); Envelope::MAX_RECIPIENTS], Envelope::MAX_BYTES), Ok(()));
    assert_eq!(encode(vec![jid("a@b"); Envelope::MAX_RECIPIENTS + 1], 0), Err(EnvelopeError::TooLarge));
    assert_eq!(encode(Vec::new(), Envelope::MAX_BYTES + 1), Err(EnvelopeError::TooLarge));
    assert_eq!(encode(vec![longest; 600], 0), Err(EnvelopeError::TooLarge));
}

#[test]
fn a_node_name_has_1_to_24_allowed_characters() {
    assert_eq!(NodeId::new("node-1").unwrap().to_string(), "node-1");
    assert_eq!(NodeId::new(&"a".repeat(NodeId::MAX)).unwrap().as_str().len(), NodeId::MAX);
    for wrong in ["", "A", "a.b", "a b", "a*", "\u{e9}", &"a".repeat(NodeId::MAX + 1)] {
        assert_eq!(NodeId::new(wrong), None, "{wrong:?}");
    }
    assert!(NodeId::new("a").unwrap() < NodeId::new("aa").unwrap() && NodeId::new("a1") < NodeId::new("b"));
}

#[test]
fn a_location_is_built_from_claims_oldest_first() {
    let [a, b, c] = ["a", "b", "c"].map(|name| NodeId::new(name).unwrap());
    let claim = |number, since, takes_messages| Claim {
        address: 1,
        number: AddressNumber::new(number),
        since,
        takes_messages,
    };
    let at = |node, since| NodeClaim { node, claim: claim(1, since, false) };
    assert_eq!(
        [vec![], vec![at(a, 1)], vec![at(b, 1)]].map(|claims| AddressLocation::of(a, claims)),
        [AddressLocation::Nowhere, AddressLocation::Here, AddressLocation::Node(at(b, 1))]
    );
    let many = AddressLocation::of(a, vec![at(a, 3), at(c, 2), at(b, 2)]);
    assert_eq!(many, AddressLocation::Many([at(b, 2), at(c, 2), at(a, 3)].into()));
    assert_eq!(many.other_nodes(a).collect::<Vec<_>>(), [b, c]);
    assert_eq!((many.home(a), AddressLocation::Here.home(a)), (Some(b), Some(a)));
    assert_eq!((AddressLocation::Nowhere.home(a), AddressLocation::Node(at(c, 1)).home(a)), (None, Some(c)));
    assert!(many.contains(a, a) && AddressLocation::Here.contains(a, a));
    assert!(!AddressLocation::Here.contains(a, b) && !AddressLocation::Nowhere.contains(a, a));
    assert!(AddressLocation::Here.other_nodes(a).next().is_none());
    // Two addresses with one hash on one node: the node counts once, and neither number is right for both.
    let mixed = [claim(1, 5, false), claim(2, 4, true)].map(|claim| NodeClaim { node: b, claim });
    let merged = NodeClaim { node: b, claim: claim(0, 4, true) };
    assert_eq!(AddressLocation::of(a, mixed.into()), AddressLocation::Node(merged));
}

/// Nodes of different versions must agree on the hash, so it must never change.
#[test]
fn hashes_are_of_bare_addresses_and_fixed_for_a_key() {
    let key = |key| move |text: &str| AddressHasher::new(key).hash(Jid::parse(text).unwrap().as_ref());
    let (hash, other) = (key([1; 16]), key([2; 16]));
    assert_eq!(hash("Juliet@example.com/balcony"), hash("juliet@example.com"));
    assert_ne!(hash("juliet@example.com"), hash("juliet@example.net"));
    assert_ne!(hash("juliet@example.com"), other("juliet@example.com"), "the key matters");
    assert_eq!(hash("juliet@example.com"), 15_971_918_539_627_077_138);
}

fn recipient() -> impl Strategy<Value = Recipient> {
    let account = || (any::<u64>(), 1..=u32::MAX).prop_map(|(hash, number)| reference(hash, number));
    prop_oneof![
        "[a-z]{1,9}@[a-z]{1,9}(/[ -~]{1,9})?".prop_map(|text| jid(&text)),
        account().prop_map(Recipient::Account),
        (account(), any::<u32>()).prop_map(|(account, session)| Recipient::Session(account, session)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn garbage_is_an_error_and_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        property::check(&bytes);
        // With valid headers, so that the lengths are reached.
        property::check(&[&[3, 1, 0, 1, 0][..], &bytes].concat());
        property::check(&[&encoded(&sample())[..25], &bytes].concat());
        property::check(&[&encoded(&sample())[..42], &bytes].concat());
    }

    #[test]
    fn a_damaged_envelope_never_panics_and_a_decoded_one_can_be_encoded(
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        length in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encoded(&sample());
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        property::check(&bytes);
        bytes.truncate(length.index(bytes.len()));
        property::check(&bytes);
    }

    #[test]
    fn encoding_and_decoding_are_inverse(
        kind in any::<u8>(), class in 0..3_u8, hops in 1..=Envelope::MAX_HOPS, epoch: u64, sequence: u64,
        origin in "[a-z0-9_-]{1,24}", id: Option<[u8; 15]>, tracks_delivery: bool,
        recipients in proptest::collection::vec(recipient(), 0..20),
        bytes in proptest::collection::vec(any::<u8>(), 0..300), suffix in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let kind = EnvelopeKind::from_byte(kind).unwrap_or(EnvelopeKind::RunChain);
        let class = [EnvelopeClass::Control, EnvelopeClass::Message, EnvelopeClass::BestEffort][usize::from(class)];
        let origin = NodeId::new(&origin).unwrap();
        let stanza_id = id.map(TimeOrderedId::from_bytes);
        let header =
            EnvelopeHeader { kind, class, hops, origin, epoch, sequence, stanza_id, tracks_delivery };
        let envelope = Envelope { header, recipients, bytes: bytes.into() };
        let mut wire = encoded(&envelope);
        property::check(&wire);
        wire.extend(&suffix);
        prop_assert_eq!(Envelope::decode(&wire), Ok((envelope, &suffix[..])));
    }
}

/// An input that announces as much as its fields can hold must not reserve it.
#[test]
fn huge_announcements_are_refused_before_memory_is_reserved() {
    let head = &encoded(&sample())[..40];
    for count in [[0xff; 2], [0x20, 0x01]] {
        assert_eq!(Envelope::decode(&[head, &count].concat()), Err(EnvelopeError::TooLarge));
    }
    for rest in [&[0x20, 0x00][..], &[0, 1, 0, 0xff, 0xff], &[0, 0, 0, 8, 0, 0]] {
        let error = Envelope::decode(&[head, rest].concat()).map(|_| ());
        assert!(
            matches!(error, Err(EnvelopeError::Truncated | EnvelopeError::Field("recipient"))),
            "{rest:?}"
        );
    }
}
