//! Time-ordered ids: 48 bits of milliseconds since 1970, 60 bits of the node, 12 bits of a counter, written as 24
//! characters of base32 (RFC 4648, section 7, in lower case).
//!
//! The alphabet of section 7 is in the order of its values and every id has the same length, so ids sort by time as
//! bytes, as text and in every collation of a database.
//!
//! An id reveals when it was generated and which ids come from the same start of a node. It is unique, but it can be
//! guessed, and nothing secret may depend on it: ids of sessions, streams and tokens come from [`crate::id`].
//!
//! # Pitfalls
//!
//! The time in an id is approximate. After the wall clock was set back, ids keep the last time until the clock has
//! caught up. If it was far in the future for a moment, ids keep that time until the node restarts, and are smaller
//! afterwards. A monotonic clock would not help: it stops while the machine sleeps. More than 4 096 ids in a
//! millisecond borrow from the next one. The order of the ids of one node is exact; that of two nodes is as exact as
//! their clocks.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::id::random_bytes;

/// RFC 4648, section 7, in lower case.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
const COUNTER_BITS: u32 = 12;
const NODE_BITS: u32 = 60;
const MILLIS_BITS: u32 = 48;

/// An id that sorts by the time at which it was generated. Plain data of 15 bytes, compared by time, node and counter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOrderedId([u8; TimeOrderedId::BYTES]);

impl TimeOrderedId {
    /// Length in bytes.
    pub const BYTES: usize = 15;
    /// Length as text.
    pub const CHARS: usize = 24;

    /// The id with these bytes; every value is an id.
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> TimeOrderedId {
        TimeOrderedId(bytes)
    }

    /// The bytes, in the order of the text.
    pub const fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// The text, in ASCII.
    pub fn to_text(self) -> [u8; Self::CHARS] {
        let bits = self.bits();
        std::array::from_fn(|at| ALPHABET[(bits >> (5 * (Self::CHARS - 1 - at)) & 31) as usize])
    }

    /// Milliseconds since 1970 at which it was generated; see the pitfalls of this file.
    pub fn unix_millis(self) -> u64 {
        u64::try_from(self.bits() >> (NODE_BITS + COUNTER_BITS)).unwrap_or(u64::MAX)
    }

    fn bits(self) -> u128 {
        self.0.iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte))
    }
}

impl fmt::Display for TimeOrderedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(std::str::from_utf8(&self.to_text()).unwrap_or_default())
    }
}

impl fmt::Debug for TimeOrderedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Generator of the ids of one node. Threads share it: its ids increase in the order of the calls.
#[derive(Debug)]
pub struct TimeOrderedIdGenerator {
    /// 60 bits, in place.
    node: u128,
    /// Milliseconds and counter of the last id.
    last: AtomicU64,
}

impl TimeOrderedIdGenerator {
    /// A generator for the node of this name. `epoch` distinguishes its starts.
    ///
    /// The bits of the node are a hash of both and of 16 random bytes. So two nodes have different ones, and so have two
    /// starts of a node whose epoch repeats: a machine that was restored, or one without other nodes.
    pub fn new(name: &str, epoch: u64) -> TimeOrderedIdGenerator {
        TimeOrderedIdGenerator::with_salt(name, epoch, random_bytes())
    }

    fn with_salt(name: &str, epoch: u64, salt: [u8; 16]) -> TimeOrderedIdGenerator {
        let mut hash = ring::digest::Context::new(&ring::digest::SHA256);
        hash.update(&salt);
        hash.update(&epoch.to_be_bytes());
        hash.update(name.as_bytes());
        let digest = hash.finish();
        let bits = digest.as_ref().iter().take(8).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
        let node = bits >> (u64::BITS - NODE_BITS) << COUNTER_BITS;
        TimeOrderedIdGenerator { node, last: AtomicU64::new(0) }
    }

    /// The next id, greater than all earlier ones. `unix_millis` is the wall clock ([`crate::Clock::unix_millis`]).
    pub fn next(&self, unix_millis: u64) -> TimeOrderedId {
        let millis = unix_millis.min((1 << MILLIS_BITS) - 1);
        let now = millis << COUNTER_BITS;
        // A full counter is carried into the milliseconds.
        let advance = |last: u64| Some(now.max(last.wrapping_add(1)));
        let (Ok(last) | Err(last)) = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance);
        let given = now.max(last.wrapping_add(1));
        let (millis, counter) = (given >> COUNTER_BITS, given & ((1 << COUNTER_BITS) - 1));
        let bits = u128::from(millis) << (NODE_BITS + COUNTER_BITS) | self.node | u128::from(counter);
        let mut bytes = [0; TimeOrderedId::BYTES];
        bytes.copy_from_slice(&bits.to_be_bytes()[1..]);
        TimeOrderedId(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const START: u64 = 1_767_225_600_000;

    #[test]
    fn an_id_is_24_characters_that_sort_as_the_bytes_do() {
        let fixed = |bytes| TimeOrderedId::from_bytes(bytes).to_string();
        assert_eq!(fixed([0; 15]), "0".repeat(24));
        assert_eq!(fixed([0xFF; 15]), "v".repeat(24));
        assert_eq!(fixed(*b"foobarfoobarfoo"), "cpnmuoj1e9j6urr2c5p6crrf");
        assert!(ALPHABET.is_sorted());
        let ids = TimeOrderedIdGenerator::new("a", 1);
        let given: Vec<_> = (0..10_000).map(|at| ids.next(START + at * 37)).collect();
        assert!(given.is_sorted() && given.iter().map(|id| id.to_text()).is_sorted());
        assert!(given.iter().zip(0..).all(|(id, at)| id.unix_millis() == START + at * 37));
        assert_eq!(TimeOrderedId::from_bytes(given[7].to_bytes()), given[7]);
    }

    #[test]
    fn ids_increase_while_the_clock_stands_still_or_is_set_back() {
        let ids = TimeOrderedIdGenerator::new("a", 1);
        let mut last = ids.next(START);
        let mut next = |now| {
            let id = ids.next(now);
            assert!(id > last, "{id} {last}");
            last = id;
            id.unix_millis()
        };
        // The counter has 4 096 values; the rest is borrowed from the next milliseconds.
        for _ in 0..3 * 4096 {
            next(START);
        }
        assert_eq!(next(START), START + 3);
        assert_eq!(next(START - 3_600_000), START + 3, "the time of the ids stands still");
        assert_eq!(next(0), START + 3);
        assert_eq!(next(START + 50), START + 50, "it goes on once the clock has caught up");
        assert_eq!(next(START + 86_400_000), START + 86_400_000);
        assert_eq!(next(START + 51), START + 86_400_000);
        assert_eq!(next(u64::MAX), (1 << 48) - 1, "a clock beyond the range");
        next(u64::MAX);
    }

    #[test]
    fn threads_never_share_an_id_and_each_sees_increasing_ones() {
        let ids = TimeOrderedIdGenerator::new("a", 1);
        let take = || (0..20_000).map(|at| ids.next(START + at / 7000)).collect::<Vec<_>>();
        let lists: Vec<Vec<TimeOrderedId>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
        });
        assert!(lists.iter().all(|list| list.len() == 20_000 && list.is_sorted_by(|a, b| a < b)));
        assert_eq!(lists.iter().flatten().collect::<HashSet<_>>().len(), 80_000);
    }

    #[test]
    fn nodes_and_starts_of_a_node_never_share_an_id() {
        let starts =
            (0..2000).flat_map(|at| [("a".to_owned(), at), ("b".to_owned(), at), (format!("n{at}"), 1)]);
        let same_salt = |(name, epoch): (String, u64)| {
            TimeOrderedIdGenerator::with_salt(&name, epoch, [0; 16]).next(START)
        };
        assert_eq!(starts.map(same_salt).collect::<HashSet<_>>().len(), 6000, "by name and epoch");
        let again: HashSet<_> = (0..2000).map(|_| TimeOrderedIdGenerator::new("a", 0).next(START)).collect();
        assert_eq!(again.len(), 2000, "a start with the epoch of another one");
        let (a, b) = (TimeOrderedIdGenerator::new("a", 1), TimeOrderedIdGenerator::new("b", 1));
        let mixed: HashSet<_> = (0..50_000).flat_map(|_| [a.next(START), b.next(START)]).collect();
        assert_eq!(mixed.len(), 100_000);
    }
}
