//! A claim of the directory in 16 octets.
//!
//! ```text
//! bits  field            from the most significant bit
//! 47    rest of the hash the first 17 bits are the number of the bucket
//! 32    number           0 if the address has none
//! 6     slot             of the node
//! 42    since            milliseconds since 1970, until the year 2109
//! 1     takes messages
//! ```
//!
//! Entries of a bucket are sorted as numbers, so claims on one address are neighbours.

use cluster::{AddressNumber, Claim};

/// Buckets of a directory.
pub(super) const BUCKET_BITS: u32 = 17;
/// Nodes of a cluster.
pub(crate) const MAX_NODES: usize = 64;

const SINCE_BITS: u32 = 42;
const SLOT_SHIFT: u32 = SINCE_BITS + 1;
const NUMBER_SHIFT: u32 = SLOT_SHIFT + 6;
const REST_SHIFT: u32 = NUMBER_SHIFT + 32;
const REST_BITS: u32 = 64 - BUCKET_BITS;
const ENTRIES_PER_CACHE_LINE: usize = 64 / size_of::<Entry>();
const MAX_SINCE: u64 = (1 << SINCE_BITS) - 1;

/// Position of a node in a directory, below [`MAX_NODES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeSlot(pub(crate) u8);

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(u128);

impl Entry {
    pub(super) fn new(claim: &Claim, slot: NodeSlot) -> Entry {
        let since = u128::from(claim.since.min(MAX_SINCE));
        Entry(
            Entry::least(claim.address, claim.number, slot).0 | since << 1 | u128::from(claim.takes_messages),
        )
    }

    /// The least entry of this address and node.
    pub(super) fn least(address: u64, number: Option<AddressNumber>, slot: NodeSlot) -> Entry {
        let rest = u128::from(address << BUCKET_BITS >> BUCKET_BITS);
        let number = u128::from(number.map_or(0, AddressNumber::get));
        Entry(rest << REST_SHIFT | number << NUMBER_SHIFT | u128::from(slot.0) << SLOT_SHIFT)
    }

    /// The greatest entry of this address and node.
    pub(super) fn greatest(address: u64, number: Option<AddressNumber>, slot: NodeSlot) -> Entry {
        Entry(Entry::least(address, number, slot).0 | ((1 << SLOT_SHIFT) - 1))
    }

    /// The claim of an entry in this bucket.
    #[allow(clippy::cast_possible_truncation, reason = "fields are cut out of the number")]
    pub(super) fn claim(self, bucket: usize) -> Claim {
        let rest = (self.0 >> REST_SHIFT) as u64;
        Claim {
            address: (bucket as u64) << (64 - BUCKET_BITS) | rest,
            number: AddressNumber::new((self.0 >> NUMBER_SHIFT) as u32),
            since: (self.0 >> 1) as u64 & MAX_SINCE,
            takes_messages: self.0 & 1 == 1,
        }
    }

    pub(super) fn slot(self) -> NodeSlot {
        NodeSlot((self.0 >> SLOT_SHIFT) as u8 & (MAX_NODES as u8 - 1))
    }

    /// The position of this entry among `count` sorted ones of a bucket whose hashes are evenly distributed.
    #[allow(clippy::cast_possible_truncation, reason = "47 bits are left, and the position is below `count`")]
    fn expected_position(self, count: usize) -> usize {
        (self.0 >> REST_SHIFT).wrapping_mul(count as u128).wrapping_shr(REST_BITS) as usize
    }

    pub(super) fn is_of(self, least: Entry) -> bool {
        self.0 >> SLOT_SHIFT == least.0 >> SLOT_SHIFT
    }
}

/// The position of the first of these sorted entries that is not less than `least`, as `partition_point` finds it.
///
/// Hashes are keyed, so they are evenly distributed and the position is known within a few entries: the search begins there and
/// reads one or two cache lines, where each step of a binary search would read another one. It takes twice the steps of a binary
/// search if another node sends other hashes.
pub(super) fn lower_bound(entries: &[Entry], least: Entry) -> usize {
    let is_less = |at: usize| entries.get(at).is_some_and(|entry| *entry < least);
    let start = least.expected_position(entries.len());
    let (mut low, mut high, mut step) = (0, entries.len(), ENTRIES_PER_CACHE_LINE);
    if is_less(start) {
        low = start + 1;
        while low + step < entries.len() {
            if !is_less(low + step) {
                high = low + step;
                break;
            }
            low += step + 1;
            step *= 2;
        }
    } else {
        high = start;
        while let Some(at) = high.checked_sub(step) {
            if is_less(at) {
                low = at + 1;
                break;
            }
            high = at;
            step *= 2;
        }
    }
    low + entries.get(low..high).unwrap_or_default().partition_point(|entry| *entry < least)
}

/// The bucket of an address.
#[allow(clippy::cast_possible_truncation, reason = "17 bits are left")]
pub(super) fn bucket_of(address: u64) -> usize {
    (address >> (64 - BUCKET_BITS)) as usize
}

/// The claim as another node reads it: times after the year 2109 are cut.
pub(super) fn rounded(claim: Claim) -> Claim {
    Claim { since: claim.since.min(MAX_SINCE), ..claim }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_16_octets_and_every_field_of_the_claim() {
        assert_eq!(size_of::<Entry>(), 16);
        for address in [0, 1, u64::MAX, 1 << 46, 1 << 47, 0x0123_4567_89ab_cdef] {
            for number in [None, AddressNumber::new(1), AddressNumber::new(u32::MAX)] {
                for (since, slot) in [(0, 0), (1_790_000_000_000, 63), (MAX_SINCE, 7)] {
                    for takes_messages in [false, true] {
                        let claim = Claim { address, number, since, takes_messages };
                        let entry = Entry::new(&claim, NodeSlot(slot));
                        assert_eq!(entry.claim(bucket_of(address)), claim);
                        assert_eq!(entry.slot(), NodeSlot(slot));
                        assert!(entry >= Entry::least(address, number, NodeSlot(slot)));
                        assert!(entry <= Entry::greatest(address, number, NodeSlot(slot)));
                    }
                }
            }
        }
    }

    #[test]
    fn a_search_finds_what_a_binary_search_finds() {
        let mut random = fastrand::Rng::with_seed(1);
        // Even hashes, and those of one that has them all in a part of the bucket.
        for bits in [64 - BUCKET_BITS, 8, 3, 0] {
            for count in (0..40).chain([400, 4_000]) {
                for shift in [0, 64 - BUCKET_BITS - bits] {
                    let mut draw = || {
                        let address = random.u64(..1 << bits) << shift;
                        let number = AddressNumber::new(random.u32(..3));
                        let claim = Claim { address, number, since: 1, takes_messages: false };
                        Entry::new(&claim, NodeSlot(random.u8(..3)))
                    };
                    let mut entries: Vec<Entry> = (0..count).map(|_| draw()).collect();
                    entries.sort_unstable();
                    let ends = [Entry(0), Entry(u128::MAX)];
                    let sought: Vec<Entry> = (0..100).map(|_| draw()).chain(ends).collect();
                    for least in sought.into_iter().chain(entries.clone()) {
                        let found = entries.partition_point(|entry| *entry < least);
                        assert_eq!(lower_bound(&entries, least), found, "{bits} bits, {count} entries");
                    }
                }
            }
        }
    }

    #[test]
    fn a_time_beyond_the_range_is_the_last_one() {
        let claim = Claim { address: 1, number: None, since: u64::MAX, takes_messages: true };
        let read = Entry::new(&claim, NodeSlot(1)).claim(0);
        assert_eq!((read, read.since), (rounded(claim), MAX_SINCE));
    }
}
