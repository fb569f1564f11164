//! The address directory of all nodes: 16 octets for each online address and node ([`super::entry`]).
//!
//! 64 shards, each under a lock of its own, so that a look-up waits for no other one. A shard also has the changes of this
//! node's own claims that are not queued for the other nodes yet, in the order in which they were made.
//!
//! # Pitfalls
//!
//! An own change and its place among the pending ones are made under one lock: two threads that claim and release the same
//! address would otherwise be reported in another order than they were applied.
//!
//! Claims of another node are applied by one thread only ([`super::state`]).

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::lock::LeafRwLock;
use cluster::{AddressNumber, Claim, ClaimChange, MAX_CLAIMS_PER_NODE, MAX_PEER_CLAIMS};
use smallvec::SmallVec;

use super::entry::{BUCKET_BITS, Entry, MAX_NODES, NodeSlot, bucket_of, lower_bound, rounded};

const SHARD_BITS: u32 = 6;
const BUCKETS: usize = 1 << BUCKET_BITS;
const BUCKETS_PER_SHARD: usize = BUCKETS >> SHARD_BITS;

/// The slot of this node.
pub(crate) const OWN_SLOT: NodeSlot = NodeSlot(0);

/// Number of claims of a node and the exclusive or of their hashes: different claims have different digests, except by
/// accident.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) count: u64,
    pub(crate) xor: u64,
}

impl Digest {
    fn add(&mut self, claim: &Claim) {
        self.count = self.count.wrapping_add(1);
        self.xor ^= digest_of(claim);
    }

    fn remove(&mut self, claim: &Claim) {
        self.count = self.count.wrapping_sub(1);
        self.xor ^= digest_of(claim);
    }

    /// Adds the differences that changes made.
    pub(crate) fn merge(&mut self, change: Digest) {
        self.count = self.count.wrapping_add(change.count);
        self.xor ^= change.xor;
    }
}

/// A mixing of all fields (that of `SplitMix64`). It detects mistakes, not attacks.
fn digest_of(claim: &Claim) -> u64 {
    let mix = |value: u64| {
        let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    let number = u64::from(claim.number.map_or(0, AddressNumber::get));
    mix(mix(mix(claim.address) ^ number) ^ (claim.since << 1 | u64::from(claim.takes_messages)))
}

/// What a change of another node's claims did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// The first claim on the address.
    First,
    /// Anything else.
    Known,
    /// There are too many claims.
    Refused,
}

/// A part of a snapshot of another node's claims.
#[derive(Debug)]
pub(crate) struct SnapshotPart {
    /// The bucket after those of the part before.
    pub(crate) from: usize,
    pub(crate) is_last: bool,
    pub(crate) claims: Vec<Claim>,
}

/// What a part of a snapshot did.
#[derive(Debug)]
pub(crate) struct ReplacedPart {
    /// Claims that were not known.
    pub(crate) first: Vec<Claim>,
    pub(crate) known: Vec<Claim>,
    /// All claims had room.
    pub(crate) has_room: bool,
    /// The bucket with which the next part begins.
    pub(crate) end: usize,
}

struct Shard {
    buckets: Vec<Vec<Entry>>,
    /// Own claims that were made several times.
    counts: BTreeMap<(u64, Option<AddressNumber>), u32>,
    pending: Vec<ClaimChange>,
    /// What the pending changes add to the digest.
    pending_digest: Digest,
}

/// The directory.
pub(crate) struct Directory {
    shards: Vec<LeafRwLock<Shard>>,
    /// A bit for each shard with pending changes.
    dirty: AtomicU64,
    counts: Vec<AtomicUsize>,
    total: AtomicUsize,
    limits: DirectoryLimits,
}

/// Claims of other nodes that are kept, because other nodes fill them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirectoryLimits {
    /// Of all nodes together.
    pub(crate) total: usize,
    /// Of one node.
    pub(crate) per_node: usize,
    /// Of one node on one hash, with different numbers: a look-up visits them all.
    pub(crate) per_address: usize,
}

impl Default for DirectoryLimits {
    fn default() -> Self {
        DirectoryLimits { total: MAX_PEER_CLAIMS, per_node: MAX_CLAIMS_PER_NODE, per_address: 16 }
    }
}

impl Directory {
    pub(crate) fn new(limits: DirectoryLimits) -> Directory {
        let shard = |_| {
            LeafRwLock::new(Shard {
                buckets: vec![Vec::new(); BUCKETS_PER_SHARD],
                counts: BTreeMap::new(),
                pending: Vec::new(),
                pending_digest: Digest::default(),
            })
        };
        Directory {
            shards: (0..1 << SHARD_BITS).map(shard).collect(),
            dirty: AtomicU64::new(0),
            counts: (0..MAX_NODES).map(|_| AtomicUsize::new(0)).collect(),
            total: AtomicUsize::new(0),
            limits,
        }
    }

    /// Announces an own claim. True if this is the first pending change.
    pub(crate) fn claim(&self, claim: Claim) -> bool {
        let claim = rounded(claim);
        self.change(claim.address, |shard| {
            let Some(known) = shard.find(claim.address, claim.number, OWN_SLOT) else {
                self.count(OWN_SLOT, 1);
                shard.put(&claim, OWN_SLOT);
                return Some(ClaimChange::Claimed(claim));
            };
            let count = shard.counts.entry((claim.address, claim.number)).or_insert(1);
            *count = count.saturating_add(1);
            shard.replace_own(&known, claim.merge(&known))
        })
    }

    /// Announces whether sessions of an own claim take messages. True if this is the first pending change.
    pub(crate) fn set_takes_messages(
        &self,
        address: u64,
        number: Option<AddressNumber>,
        takes_messages: bool,
    ) -> bool {
        self.change(address, |shard| {
            let known = shard.find(address, number, OWN_SLOT)?;
            shard.replace_own(&known, Claim { takes_messages, ..known })
        })
    }

    /// Releases an own claim. True if this is the first pending change.
    pub(crate) fn release(&self, address: u64, number: Option<AddressNumber>) -> bool {
        self.change(address, |shard| {
            if let Some(count) = shard.counts.get_mut(&(address, number)) {
                *count -= 1;
                if *count == 1 {
                    shard.counts.remove(&(address, number));
                }
                return None;
            }
            let known = shard.take(address, number, OWN_SLOT)?;
            self.uncount(OWN_SLOT, 1);
            shard.pending_digest.remove(&known);
            Some(ClaimChange::Released(address, number))
        })
    }

    fn change(&self, address: u64, change: impl FnOnce(&mut Shard) -> Option<ClaimChange>) -> bool {
        let (index, _) = place(address);
        let Some(lock) = self.shards.get(index) else { return false };
        let mut shard = lock.write();
        let Some(change) = change(&mut shard) else { return false };
        if let ClaimChange::Claimed(claim) = &change {
            shard.pending_digest.add(claim);
        }
        shard.pending.push(change);
        // Under the lock: a thread that clears the bit and then takes the lock finds the change.
        self.dirty.fetch_or(1 << index, Ordering::AcqRel) == 0
    }

    /// Whether own changes are pending.
    pub(crate) fn has_pending(&self) -> bool {
        self.dirty.load(Ordering::Acquire) != 0
    }

    /// Takes the pending changes, and what they add to the digest of the own claims.
    pub(crate) fn take_pending(&self) -> (Vec<ClaimChange>, Digest) {
        let dirty = self.dirty.swap(0, Ordering::AcqRel);
        let (mut changes, mut digest) = (Vec::new(), Digest::default());
        for (index, lock) in self.shards.iter().enumerate() {
            if dirty >> index & 1 == 1 {
                let mut shard = lock.write();
                changes.append(&mut shard.pending);
                digest.merge(std::mem::take(&mut shard.pending_digest));
            }
        }
        (changes, digest)
    }

    /// The claims on a hash with the slots of their nodes; only those with this number if there is one.
    pub(crate) fn locate(
        &self,
        address: u64,
        number: Option<AddressNumber>,
    ) -> SmallVec<[(NodeSlot, Claim); 2]> {
        let Some(lock) = self.shards.get(place(address).0) else { return SmallVec::new() };
        let shard = lock.read();
        let found = shard.entries_on(address, number);
        found.map(|entry| (entry.slot(), entry.claim(bucket_of(address)))).collect()
    }

    /// Applies a change of another node.
    pub(crate) fn apply(&self, slot: NodeSlot, digest: &mut Digest, change: ClaimChange) -> Applied {
        let address = match &change {
            ClaimChange::Claimed(claim) => claim.address,
            ClaimChange::Released(address, _) => *address,
        };
        let Some(lock) = self.shards.get(place(address).0) else { return Applied::Refused };
        let mut shard = lock.write();
        match change {
            ClaimChange::Claimed(claim) => {
                let claim = rounded(claim);
                if let Some(known) = shard.take(claim.address, claim.number, slot) {
                    digest.remove(&known);
                    digest.add(&claim);
                    shard.put(&claim, slot);
                    return Applied::Known;
                }
                if !self.has_room(slot) || shard.on_address(claim.address, slot) >= self.limits.per_address {
                    return Applied::Refused;
                }
                self.count(slot, 1);
                digest.add(&claim);
                shard.put(&claim, slot);
                Applied::First
            }
            ClaimChange::Released(address, number) => {
                if let Some(known) = shard.take(address, number, slot) {
                    digest.remove(&known);
                    self.uncount(slot, 1);
                }
                Applied::Known
            }
        }
    }

    /// Replaces the claims of another node by those of a part of a snapshot, in the buckets from this one to that of the last claim,
    /// or to the end with the last part. None if claims are in other buckets.
    pub(crate) fn replace(
        &self,
        slot: NodeSlot,
        digest: &mut Digest,
        SnapshotPart { from, is_last, mut claims }: SnapshotPart,
    ) -> Option<ReplacedPart> {
        claims.sort_unstable_by_key(|claim| (claim.address, claim.number));
        let end = match claims.last() {
            _ if is_last => BUCKETS,
            Some(claim) => bucket_of(claim.address) + 1,
            None => return None,
        };
        if claims.first().is_some_and(|claim| bucket_of(claim.address) < from) {
            return None;
        }
        let is_kept = |known: &Claim| {
            let key = (known.address, known.number);
            claims.binary_search_by_key(&key, |claim| (claim.address, claim.number)).is_ok()
        };
        for gone in self.claims_in(slot, from..end).into_iter().filter(|known| !is_kept(known)) {
            self.apply(slot, digest, ClaimChange::Released(gone.address, gone.number));
        }
        let mut replaced = ReplacedPart { first: Vec::new(), known: Vec::new(), has_room: true, end };
        for claim in claims {
            match self.apply(slot, digest, ClaimChange::Claimed(claim)) {
                Applied::First => replaced.first.push(claim),
                Applied::Known => replaced.known.push(claim),
                Applied::Refused => replaced.has_room = false,
            }
        }
        Some(replaced)
    }

    /// Removes and returns the claims of a node that is gone.
    pub(crate) fn remove(&self, slot: NodeSlot) -> Vec<Claim> {
        let mut claims = Vec::new();
        for (index, lock) in self.shards.iter().enumerate() {
            let mut shard = lock.write();
            for (at, bucket) in shard.buckets.iter_mut().enumerate() {
                if bucket.iter().any(|entry| entry.slot() == slot) {
                    let number = index * BUCKETS_PER_SHARD + at;
                    claims.extend(bucket.extract_if(.., |e| e.slot() == slot).map(|e| e.claim(number)));
                }
            }
        }
        self.uncount(slot, claims.len());
        claims
    }

    /// Own claims from this bucket on, a little more than `count` at most, and the bucket after them; none after the last.
    pub(crate) fn own_chunk(&self, from: usize, count: usize) -> (Vec<Claim>, Option<usize>) {
        let mut claims = Vec::new();
        for number in from / BUCKETS_PER_SHARD..self.shards.len() {
            let Some(lock) = self.shards.get(number) else { break };
            let shard = lock.read();
            for (at, bucket) in shard.buckets.iter().enumerate() {
                let bucket_number = number * BUCKETS_PER_SHARD + at;
                if bucket_number < from {
                    continue;
                }
                if claims.len() >= count {
                    return (claims, Some(bucket_number));
                }
                let own = bucket.iter().filter(|entry| entry.slot() == OWN_SLOT);
                claims.extend(own.map(|entry| entry.claim(bucket_number)));
            }
        }
        (claims, None)
    }

    /// The claims of a node.
    pub(crate) fn claims_of(&self, slot: NodeSlot) -> Vec<Claim> {
        self.claims_in(slot, 0..BUCKETS)
    }

    /// The claims of a node in these buckets.
    fn claims_in(&self, slot: NodeSlot, buckets: Range<usize>) -> Vec<Claim> {
        let mut claims = Vec::new();
        let shards = buckets.start / BUCKETS_PER_SHARD..buckets.end.div_ceil(BUCKETS_PER_SHARD);
        for (index, lock) in self.shards.iter().enumerate().take(shards.end).skip(shards.start) {
            let shard = lock.read();
            let numbered = (index * BUCKETS_PER_SHARD..).zip(&shard.buckets);
            for (number, bucket) in numbered.filter(|(number, _)| buckets.contains(number)) {
                let of_slot = bucket.iter().filter(|entry| entry.slot() == slot);
                claims.extend(of_slot.map(|entry| entry.claim(number)));
            }
        }
        claims
    }

    /// Claims of a node.
    pub(crate) fn len(&self, slot: NodeSlot) -> usize {
        self.counts.get(usize::from(slot.0)).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    /// Claims of all other nodes.
    pub(crate) fn peer_claims(&self) -> usize {
        self.total.load(Ordering::Relaxed)
    }

    /// Whether this number of claims of a node has room.
    pub(crate) fn has_room_for(&self, slot: NodeSlot, count: u64) -> bool {
        let others = self.peer_claims().saturating_sub(self.len(slot));
        usize::try_from(count).is_ok_and(|count| {
            count <= self.limits.per_node && others.saturating_add(count) <= self.limits.total
        })
    }

    fn has_room(&self, slot: NodeSlot) -> bool {
        self.len(slot) < self.limits.per_node && self.peer_claims() < self.limits.total
    }

    fn count(&self, slot: NodeSlot, number: usize) {
        if let Some(count) = self.counts.get(usize::from(slot.0)) {
            count.fetch_add(number, Ordering::Relaxed);
        }
        if slot != OWN_SLOT {
            self.total.fetch_add(number, Ordering::Relaxed);
        }
    }

    fn uncount(&self, slot: NodeSlot, number: usize) {
        if let Some(count) = self.counts.get(usize::from(slot.0)) {
            count.fetch_sub(number, Ordering::Relaxed);
        }
        if slot != OWN_SLOT {
            self.total.fetch_sub(number, Ordering::Relaxed);
        }
    }
}

/// The shard of an address, and the bucket in it.
fn place(address: u64) -> (usize, usize) {
    let bucket = bucket_of(address);
    (bucket / BUCKETS_PER_SHARD, bucket % BUCKETS_PER_SHARD)
}

impl Shard {
    fn position(&self, address: u64, number: Option<AddressNumber>, slot: NodeSlot) -> Result<usize, usize> {
        let least = Entry::least(address, number, slot);
        let Some(bucket) = self.buckets.get(place(address).1) else { return Err(0) };
        let at = lower_bound(bucket, least);
        if bucket.get(at).is_some_and(|entry| entry.is_of(least)) { Ok(at) } else { Err(at) }
    }

    /// The entries on a hash; only those with this number if there is one.
    fn entries_on(&self, address: u64, number: Option<AddressNumber>) -> impl Iterator<Item = &Entry> {
        let first = Entry::least(address, number, NodeSlot(0));
        let last = Entry::greatest(address, number.or(Some(AddressNumber::MAX)), NodeSlot(63));
        let entries = self.buckets.get(place(address).1).map(Vec::as_slice).unwrap_or_default();
        let start = lower_bound(entries, first);
        entries.iter().skip(start).take_while(move |entry| **entry <= last)
    }

    /// Claims of a node on a hash.
    fn on_address(&self, address: u64, slot: NodeSlot) -> usize {
        self.entries_on(address, None).filter(|entry| entry.slot() == slot).count()
    }

    fn find(&self, address: u64, number: Option<AddressNumber>, slot: NodeSlot) -> Option<Claim> {
        let at = self.position(address, number, slot).ok()?;
        Some(self.buckets.get(place(address).1)?.get(at)?.claim(bucket_of(address)))
    }

    /// Inserts a claim that is not there.
    fn put(&mut self, claim: &Claim, slot: NodeSlot) {
        let Err(at) = self.position(claim.address, claim.number, slot) else { return };
        let Some(bucket) = self.buckets.get_mut(place(claim.address).1) else { return };
        if bucket.len() == bucket.capacity() {
            // Doubling would leave a quarter of the directory empty.
            bucket.reserve_exact(2.max(bucket.len() / 8));
        }
        bucket.insert(at, Entry::new(claim, slot));
    }

    fn take(&mut self, address: u64, number: Option<AddressNumber>, slot: NodeSlot) -> Option<Claim> {
        let at = self.position(address, number, slot).ok()?;
        let bucket = self.buckets.get_mut(place(address).1)?;
        let entry = bucket.remove(at);
        if bucket.len() < bucket.capacity() / 2 {
            bucket.shrink_to(bucket.len() + 2);
        }
        Some(entry.claim(bucket_of(address)))
    }

    fn replace_own(&mut self, known: &Claim, next: Claim) -> Option<ClaimChange> {
        if next == *known {
            return None;
        }
        self.take(known.address, known.number, OWN_SLOT);
        self.put(&next, OWN_SLOT);
        self.pending_digest.remove(known);
        Some(ClaimChange::Claimed(next))
    }
}
