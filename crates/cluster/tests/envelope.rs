//! The wire format of an envelope: its documented layout, its limits, and that no input causes a panic.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::sync::Arc;

use jid::Jid;
use proptest::prelude::*;
use throng_cluster::{
    AddressHasher, AddressLocation, Envelope, EnvelopeClass, EnvelopeError, EnvelopeHeader, NodeId,
};

fn sample() -> Envelope {
    Envelope {
        header: EnvelopeHeader {
            kind: 7,
            class: EnvelopeClass::Message,
            origin: NodeId::new("n1").unwrap(),
            epoch: 0x0102,
            sequence: 0x0304,
        },
        recipients: vec![Jid::parse("a@b").unwrap(), Jid::parse("c@d/e").unwrap()],
        bytes: Arc::from(&b"<x/>"[..]),
    }
}

fn encoded(envelope: &Envelope) -> Vec<u8> {
    let mut out = Vec::new();
    envelope.encode(&mut out).unwrap();
    assert_eq!(out.len(), envelope.encoded_len());
    out
}

/// Two versions run side by side, so the octets of version 1 must never change.
#[test]
fn the_encoding_of_version_1_never_changes() {
    let expect = [
        &[1, 7, 1][..],
        &[0, 0, 0, 0, 0, 0, 1, 2],
        &[0, 0, 0, 0, 0, 0, 3, 4],
        b"\x02n1",
        b"\x00\x02\x00\x03a@b\x00\x05c@d/e",
        b"\x00\x00\x00\x04<x/>",
    ]
    .concat();
    assert_eq!(encoded(&sample()), expect);
    assert_eq!(Envelope::decode(&expect), Ok((sample(), &[][..])));
}

#[test]
fn consecutive_envelopes_are_decoded_one_by_one() {
    let mut batch = encoded(&sample());
    batch.extend(encoded(&Envelope::new(
        1,
        EnvelopeClass::Presence,
        NodeId::new("b").unwrap(),
        Vec::new(),
        *b"",
    )));
    let (first, rest) = Envelope::decode(&batch).unwrap();
    let (second, rest) = Envelope::decode(rest).unwrap();
    assert_eq!((first, second.header.class, rest.len()), (sample(), EnvelopeClass::Presence, 0));
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
    assert_eq!(with(0, 2), Err(EnvelopeError::Version(2)));
    assert_eq!(with(2, 3), Err(EnvelopeError::Field("class")));
    assert_eq!(with(19, 0), Err(EnvelopeError::Field("origin")));
    assert_eq!(with(20, b'N'), Err(EnvelopeError::Field("origin")));
    assert_eq!(with(22, 0xff), Err(EnvelopeError::TooLarge));
    assert_eq!(with(26, b'@'), Err(EnvelopeError::Field("recipient")));
    assert_eq!(with(27, 0xff), Err(EnvelopeError::Field("recipient")));
    assert_eq!(with(whole.len() - 8, 0xff), Err(EnvelopeError::TooLarge));
}

#[test]
fn limits_apply_to_encoding_and_decoding() {
    let own = NodeId::new("n").unwrap();
    let jid = Jid::parse("a@b").unwrap();
    let longest = Jid::from_parts(Some(&"a".repeat(1023)), "b", Some(&"c".repeat(1023))).unwrap();
    let encode = |recipients, bytes| {
        Envelope::new(0, EnvelopeClass::Control, own, recipients, vec![0; bytes]).encode(&mut Vec::new())
    };
    assert_eq!(encode(vec![jid.clone(); Envelope::MAX_RECIPIENTS], Envelope::MAX_BYTES), Ok(()));
    assert_eq!(encode(vec![jid; Envelope::MAX_RECIPIENTS + 1], 0), Err(EnvelopeError::TooLarge));
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
fn a_location_is_built_from_a_list_of_nodes() {
    let [a, b, c] = ["a", "b", "c"].map(|name| NodeId::new(name).unwrap());
    assert_eq!(
        [AddressLocation::of(a, &[]), AddressLocation::of(a, &[a]), AddressLocation::of(a, &[b])],
        [AddressLocation::Nowhere, AddressLocation::Here, AddressLocation::Node(b)]
    );
    let many = AddressLocation::of(a, &[a, b, c]);
    assert_eq!(many.other_nodes(a).collect::<Vec<_>>(), [b, c]);
    assert!(
        many.contains(a, a) && AddressLocation::Here.contains(a, a) && !AddressLocation::Here.contains(a, b)
    );
    assert!(AddressLocation::Here.other_nodes(a).next().is_none());
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn garbage_is_an_error_and_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::decode(&bytes);
        // With a valid header, so that the lengths are reached.
        let _ = Envelope::decode(&[&[1, 0, 0][..], &bytes].concat());
    }

    #[test]
    fn a_damaged_envelope_never_panics_and_a_decoded_one_can_be_encoded(
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encoded(&sample());
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok((envelope, rest)) = Envelope::decode(&bytes) {
            prop_assert_eq!(&encoded(&envelope), &bytes[..bytes.len() - rest.len()]);
        }
    }

    #[test]
    fn encoding_and_decoding_are_inverse(
        kind: u8, class in 0..3_u8, epoch: u64, sequence: u64, origin in "[a-z0-9_-]{1,24}",
        addresses in proptest::collection::vec("[a-z]{1,9}@[a-z]{1,9}(/[ -~]{1,9})?", 0..20),
        bytes in proptest::collection::vec(any::<u8>(), 0..300), suffix in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let class = [EnvelopeClass::Control, EnvelopeClass::Message, EnvelopeClass::Presence][usize::from(class)];
        let origin = NodeId::new(&origin).unwrap();
        let recipients = addresses.iter().map(|text| Jid::parse(text).unwrap()).collect();
        let envelope = Envelope { header: EnvelopeHeader { kind, class, origin, epoch, sequence }, recipients, bytes: bytes.into() };
        let mut wire = encoded(&envelope);
        wire.extend(&suffix);
        prop_assert_eq!(Envelope::decode(&wire), Ok((envelope, &suffix[..])));
    }
}
