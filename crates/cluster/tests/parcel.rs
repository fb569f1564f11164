//! The wire form of a parcel: the documented layout, limits, and that no input makes it panic.
#![allow(clippy::unwrap_used, reason = "a failed step ends the test")]

use std::sync::Arc;

use jid::Jid;
use proptest::prelude::*;
use throng_cluster::{AddressHasher, Class, Facts, NodeId, Parcel, ParcelError, Place};

fn sample() -> Parcel {
    Parcel {
        facts: Facts {
            kind: 7,
            class: Class::Message,
            origin: NodeId::new("n1").unwrap(),
            epoch: 0x0102,
            sequence: 0x0304,
        },
        recipients: vec![Jid::parse("a@b").unwrap(), Jid::parse("c@d/e").unwrap()],
        bytes: Arc::from(&b"<x/>"[..]),
    }
}

fn encoded(parcel: &Parcel) -> Vec<u8> {
    let mut out = Vec::new();
    parcel.encode(&mut out).unwrap();
    assert_eq!(out.len(), parcel.encoded_len());
    out
}

/// Two versions run side by side, so the octets of version 1 may never change.
#[test]
fn version_1_is_written_like_this_for_ever() {
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
    assert_eq!(Parcel::decode(&expect), Ok((sample(), &[][..])));
}

#[test]
fn parcels_follow_one_another() {
    let mut batch = encoded(&sample());
    batch.extend(encoded(&Parcel::new(1, Class::Presence, NodeId::new("b").unwrap(), Vec::new(), *b"")));
    let (first, rest) = Parcel::decode(&batch).unwrap();
    let (second, rest) = Parcel::decode(rest).unwrap();
    assert_eq!((first, second.facts.class, rest.len()), (sample(), Class::Presence, 0));
}

#[test]
fn every_cut_is_noticed() {
    let whole = encoded(&sample());
    for end in 0..whole.len() {
        assert!(Parcel::decode(&whole[..end]).is_err(), "{end}");
    }
}

#[test]
fn wrong_fields_are_named() {
    let whole = encoded(&sample());
    let with = |place: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[place] = byte;
        Parcel::decode(&bytes).map(|_| ())
    };
    assert_eq!(with(0, 2), Err(ParcelError::Version(2)));
    assert_eq!(with(2, 3), Err(ParcelError::Field("class")));
    assert_eq!(with(19, 0), Err(ParcelError::Field("origin")));
    assert_eq!(with(20, b'N'), Err(ParcelError::Field("origin")));
    assert_eq!(with(22, 0xff), Err(ParcelError::TooLarge));
    assert_eq!(with(26, b'@'), Err(ParcelError::Field("recipient")));
    assert_eq!(with(27, 0xff), Err(ParcelError::Field("recipient")));
    assert_eq!(with(whole.len() - 8, 0xff), Err(ParcelError::TooLarge));
}

#[test]
fn limits_hold_both_ways() {
    let own = NodeId::new("n").unwrap();
    let jid = Jid::parse("a@b").unwrap();
    let longest = Jid::from_parts(Some(&"a".repeat(1023)), "b", Some(&"c".repeat(1023))).unwrap();
    let encode = |recipients, bytes| {
        Parcel::new(0, Class::Control, own, recipients, vec![0; bytes]).encode(&mut Vec::new())
    };
    assert_eq!(encode(vec![jid.clone(); Parcel::MAX_RECIPIENTS], Parcel::MAX_BYTES), Ok(()));
    assert_eq!(encode(vec![jid; Parcel::MAX_RECIPIENTS + 1], 0), Err(ParcelError::TooLarge));
    assert_eq!(encode(Vec::new(), Parcel::MAX_BYTES + 1), Err(ParcelError::TooLarge));
    assert_eq!(encode(vec![longest; 600], 0), Err(ParcelError::TooLarge));
}

#[test]
fn names_of_nodes() {
    assert_eq!(NodeId::new("node-1").unwrap().to_string(), "node-1");
    assert_eq!(NodeId::new(&"a".repeat(NodeId::MAX)).unwrap().as_str().len(), NodeId::MAX);
    for wrong in ["", "A", "a.b", "a b", "a*", "\u{e9}", &"a".repeat(NodeId::MAX + 1)] {
        assert_eq!(NodeId::new(wrong), None, "{wrong:?}");
    }
    assert!(NodeId::new("a").unwrap() < NodeId::new("aa").unwrap() && NodeId::new("a1") < NodeId::new("b"));
}

#[test]
fn places() {
    let [a, b, c] = ["a", "b", "c"].map(|name| NodeId::new(name).unwrap());
    assert_eq!(
        [Place::of(a, &[]), Place::of(a, &[a]), Place::of(a, &[b])],
        [Place::Nowhere, Place::Here, Place::Node(b)]
    );
    let many = Place::of(a, &[a, b, c]);
    assert_eq!(many.elsewhere(a).collect::<Vec<_>>(), [b, c]);
    assert!(many.contains(a, a) && Place::Here.contains(a, a) && !Place::Here.contains(a, b));
    assert!(Place::Here.elsewhere(a).next().is_none());
}

/// Nodes of different versions must agree on the number, so it may never change.
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
    fn garbage_is_refused_quietly(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Parcel::decode(&bytes);
        // With a head that is right, so that the lengths are reached.
        let _ = Parcel::decode(&[&[1, 0, 0][..], &bytes].concat());
    }

    #[test]
    fn a_damaged_parcel_never_panics_and_what_is_read_can_be_written(
        places in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encoded(&sample());
        for (place, byte) in places {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if let Ok((parcel, rest)) = Parcel::decode(&bytes) {
            prop_assert_eq!(&encoded(&parcel), &bytes[..bytes.len() - rest.len()]);
        }
    }

    #[test]
    fn what_is_written_is_read(
        kind: u8, class in 0..3_u8, epoch: u64, sequence: u64, origin in "[a-z0-9_-]{1,24}",
        addresses in proptest::collection::vec("[a-z]{1,9}@[a-z]{1,9}(/[ -~]{1,9})?", 0..20),
        bytes in proptest::collection::vec(any::<u8>(), 0..300), behind in proptest::collection::vec(any::<u8>(), 0..9),
    ) {
        let class = [Class::Control, Class::Message, Class::Presence][usize::from(class)];
        let origin = NodeId::new(&origin).unwrap();
        let recipients = addresses.iter().map(|text| Jid::parse(text).unwrap()).collect();
        let parcel = Parcel { facts: Facts { kind, class, origin, epoch, sequence }, recipients, bytes: bytes.into() };
        let mut wire = encoded(&parcel);
        wire.extend(&behind);
        prop_assert_eq!(Parcel::decode(&wire), Ok((parcel, &behind[..])));
    }
}
