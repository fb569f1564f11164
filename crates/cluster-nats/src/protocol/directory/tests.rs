//! Tests of the directory: own claims, claims of other nodes, snapshots, limits, memory.

use std::collections::BTreeMap;

use super::*;

fn claim(address: u64, number: u32, since: u64) -> Claim {
    Claim { address, number: AddressNumber::new(number), since, takes_messages: false }
}

fn directory() -> Directory {
    Directory::new(DirectoryLimits::default())
}

const PEER: NodeSlot = NodeSlot(1);

#[test]
fn counted_claims_keep_the_oldest_time_and_end_with_the_last_release() {
    let own = directory();
    let number = AddressNumber::new(1);
    assert!(own.claim(claim(7, 1, 20)), "the first pending change wakes the sender");
    assert!(!own.claim(claim(7, 1, 30)), "nothing changed for the others");
    assert_eq!(own.take_pending().0, [ClaimChange::Claimed(claim(7, 1, 20))]);
    assert!(own.claim(claim(7, 1, 10)));
    assert_eq!(own.take_pending().0, [ClaimChange::Claimed(claim(7, 1, 10))]);
    for _ in 0..2 {
        own.release(7, number);
        own.release(7, None);
        assert!(!own.has_pending());
    }
    assert!(own.release(7, number));
    assert!(!own.release(7, number), "an additional release has no effect");
    assert_eq!(
        own.take_pending(),
        (vec![ClaimChange::Released(7, number)], {
            let mut digest = Digest::default();
            digest.remove(&claim(7, 1, 10));
            digest
        })
    );
    assert_eq!((own.len(OWN_SLOT), own.locate(7, None).len()), (0, 0));
}

#[test]
fn a_change_of_the_readiness_for_messages_is_announced_once() {
    let own = directory();
    own.claim(claim(7, 1, 20));
    own.take_pending();
    let ready = Claim { takes_messages: true, ..claim(7, 1, 20) };
    assert!(own.set_takes_messages(7, ready.number, true));
    assert!(!own.set_takes_messages(7, ready.number, true));
    assert!(!own.set_takes_messages(7, None, true), "never claimed");
    assert_eq!(own.take_pending().0, [ClaimChange::Claimed(ready)]);
}

#[test]
fn addresses_with_one_hash_are_found_apart_by_their_numbers() {
    let all = directory();
    let mut digest = Digest::default();
    let claims = [claim(7, 0, 3), claim(7, 1, 2), claim(7, u32::MAX, 1), claim(8, 1, 0), claim(6, 2, 0)];
    for claim in claims {
        assert_eq!(all.apply(PEER, &mut digest, ClaimChange::Claimed(claim)), Applied::First);
    }
    all.claim(claim(7, 1, 9));
    assert_eq!(all.locate(7, None).len(), 4);
    let found = all.locate(7, AddressNumber::new(1));
    assert_eq!(&found[..], [(OWN_SLOT, claim(7, 1, 9)), (PEER, claims[1])]);
    assert_eq!(all.locate(7, AddressNumber::new(5)).len(), 0);
}

#[test]
fn more_claims_than_the_maximum_are_refused_and_room_is_given_back() {
    let all = Directory::new(DirectoryLimits { total: 3, per_node: 2, ..DirectoryLimits::default() });
    let mut digests = [Digest::default(); 3];
    let mut apply = |slot: u8, change| all.apply(NodeSlot(slot), &mut digests[usize::from(slot)], change);
    let claimed = |address| ClaimChange::Claimed(claim(address, 1, 0));
    assert_eq!((apply(1, claimed(1)), apply(1, claimed(2))), (Applied::First, Applied::First));
    assert_eq!(apply(1, claimed(3)), Applied::Refused, "one node");
    assert_eq!(apply(1, ClaimChange::Claimed(claim(1, 1, 9))), Applied::Known, "a known one may change");
    assert_eq!((apply(2, claimed(1)), apply(2, claimed(2))), (Applied::First, Applied::Refused), "all nodes");
    apply(1, ClaimChange::Released(1, AddressNumber::new(1)));
    apply(1, ClaimChange::Released(50, AddressNumber::new(1)));
    assert_eq!(apply(2, claimed(2)), Applied::First);
    let claims = (5..9).map(|n| claim(n, 1, 0)).collect();
    let part = SnapshotPart { from: 0, is_last: true, claims };
    let replaced = all.replace(NodeSlot(2), &mut digests[2], part).unwrap();
    assert_eq!((replaced.first.len(), replaced.has_room), (2, false));
    assert_eq!((all.remove(NodeSlot(2)).len(), all.remove(PEER).len(), all.peer_claims()), (2, 1, 0));
}

#[test]
fn one_node_has_few_claims_on_one_hash() {
    let all = directory();
    let mut digest = Digest::default();
    let mut apply = |slot, number| all.apply(slot, &mut digest, ClaimChange::Claimed(claim(7, number, 0)));
    for number in 1..=16 {
        assert_eq!(apply(PEER, number), Applied::First);
    }
    assert_eq!((apply(PEER, 17), apply(PEER, 16)), (Applied::Refused, Applied::Known));
    assert_eq!(apply(NodeSlot(2), 17), Applied::First, "a limit of each node");
    assert_eq!(all.locate(7, None).len(), 17);
    assert_eq!(all.apply(PEER, &mut Digest::default(), ClaimChange::Claimed(claim(8, 1, 0))), Applied::First);
}

#[test]
fn a_snapshot_replaces_what_was_known_and_returns_what_was_not() {
    let all = directory();
    let mut digest = Digest::default();
    let mut replace =
        |from, is_last, claims| all.replace(PEER, &mut digest, SnapshotPart { from, is_last, claims });
    let replaced = replace(0, true, vec![claim(2, 1, 1), claim(1, 1, 1)]).unwrap();
    assert_eq!((replaced.first, replaced.has_room), (vec![claim(1, 1, 1), claim(2, 1, 1)], true));
    let replaced = replace(0, true, vec![claim(2, 1, 5), claim(3, 1, 1)]).unwrap();
    assert_eq!((replaced.first, replaced.known), (vec![claim(3, 1, 1)], vec![claim(2, 1, 5)]));
    // A part leaves the other buckets alone.
    let far = 9 << (64 - BUCKET_BITS);
    assert_eq!(replace(4, false, vec![claim(far, 1, 1)]).unwrap().end, 10);
    assert!(replace(10, false, vec![claim(far, 1, 1)]).is_none(), "a bucket before the part");
    assert!(replace(10, false, Vec::new()).is_none(), "a part without an end");
    assert_eq!(all.len(PEER), 3);
    assert!(replace(9, true, Vec::new()).unwrap().first.is_empty());
    let mut expect = Digest::default();
    expect.add(&claim(2, 1, 5));
    expect.add(&claim(3, 1, 1));
    assert_eq!(digest, expect);
    assert_eq!(all.remove(PEER), [claim(2, 1, 5), claim(3, 1, 1)]);
}

/// Random changes of one node, read by another: chunks of a snapshot that are read meanwhile, and all changes after them, give
/// the same claims.
#[test]
fn a_snapshot_in_chunks_and_the_changes_after_it_agree_with_the_owner() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (own, reader) = (directory(), directory());
        let (mut digest, mut own_digest) = (Digest::default(), Digest::default());
        let mut model: BTreeMap<u64, u32> = BTreeMap::new();
        let mut change = |random: &mut fastrand::Rng| {
            for _ in 0..50 {
                // All buckets, and some addresses in one of them.
                let address = random.u64(..100) << random.choice([0, 57]).unwrap_or(0);
                let number = AddressNumber::new(1);
                match random.u8(..4) {
                    0 | 1 => {
                        own.claim(claim(address, 1, random.u64(..5)));
                        *model.entry(address).or_default() += 1;
                    }
                    2 => {
                        own.set_takes_messages(address, number, random.bool());
                    }
                    _ => {
                        own.release(address, number);
                        model.entry(address).and_modify(|count| *count = count.saturating_sub(1));
                    }
                }
            }
        };
        change(&mut random);
        own_digest.merge(own.take_pending().1);
        let (mut later, mut from, mut end) = (Vec::new(), Some(0), 0);
        while let Some(bucket) = from {
            let (claims, next) = own.own_chunk(bucket, 7);
            let part = SnapshotPart { from: end, is_last: next.is_none(), claims };
            end = reader.replace(PEER, &mut digest, part).unwrap().end;
            from = next;
            change(&mut random);
            let (changes, delta) = own.take_pending();
            later.extend(changes);
            own_digest.merge(delta);
        }
        let online = model.values().filter(|count| **count > 0).count();
        assert_eq!(own.len(OWN_SLOT), online);
        for change in later {
            reader.apply(PEER, &mut digest, change);
        }
        assert_eq!(reader.claims_of(PEER), own.claims_of(OWN_SLOT), "seed {seed}");
        assert_eq!(digest, own_digest, "seed {seed}");
    }
}

#[test]
fn an_address_and_node_costs_little_more_than_16_octets() {
    let all = directory();
    let mut digest = Digest::default();
    let mut random = fastrand::Rng::with_seed(1);
    let count = 20 * BUCKETS;
    for number in 0..count {
        let claim = claim(random.u64(..), u32::try_from(number).unwrap(), 1_790_000_000_000);
        assert_eq!(all.apply(PEER, &mut digest, ClaimChange::Claimed(claim)), Applied::First);
    }
    let capacity: usize =
        all.shards.iter().map(|shard| shard.read().buckets.iter().map(Vec::capacity).sum::<usize>()).sum();
    let octets = capacity * size_of::<Entry>();
    assert!(octets < count * 18, "{octets} octets for {count} claims");
}
