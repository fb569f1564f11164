//! Delivery accounting of numbered messages: exact counts of sent, arrived, duplicated and reordered ones.
//!
//! Messages are numbered without gaps for each pair of workers. The receiver keeps one bit per number, in chunks that
//! are freed when full; a duplicate is thus always detected, and memory is proportional to what is missing. Order is
//! checked per pair of users: the highest arrived number is kept only while a lower one may come. The controller
//! computes losses at the end, from the counts for each recipient.
//!
//! # Pitfalls
//!
//! There is one number space per pair of workers, not per user: a message to a user of another worker must be numbered
//! in that worker's space, or the chunks never fill.

use std::collections::VecDeque;

use hashbrown::HashMap;

/// Numbers in one chunk.
const CHUNK: u32 = 4_096;
/// Maximum number of user pairs whose order is tracked; beyond it they are dropped and counted as unchecked.
const MAX_PAIRS: usize = 1_000_000;

/// Maximum number of ranges of missing numbers from one worker in the last report.
const MAX_RANGES: usize = 200_000;

enum Chunk {
    Empty,
    Some(Box<[u64; CHUNK as usize / 64]>, u32),
    Full,
}

/// Numbers received from one worker.
#[derive(Default)]
struct ReceivedNumbers {
    /// Index of the first chunk in `chunks`; all before it are full.
    low: u32,
    chunks: VecDeque<Chunk>,
    /// Highest arrived number, by sender and recipient.
    pairs: HashMap<(u32, u32), u32>,
    /// Size of `pairs` at which it is pruned again.
    prune_at: usize,
}

/// Classification of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryKind {
    /// First arrival, in order.
    New,
    /// First arrival, but after a later message of the same pair.
    Late,
    /// Arrived before.
    Duplicate,
    /// Impossible number; not counted.
    Invalid,
}

/// Delivery accounting of one worker.
pub(crate) struct DeliveryAccounting {
    /// Next number for each worker.
    next: Vec<u32>,
    receipts: Vec<ReceivedNumbers>,
    /// Sent messages, by recipient.
    pub(crate) sent: UserCounts,
    /// Part of `sent` whose recipient was not online.
    pub(crate) sent_offline: UserCounts,
    /// Arrived messages, by recipient.
    pub(crate) arrived: UserCounts,
    /// Part of `arrived` that came from each worker, by recipient.
    pub(crate) arrived_from: Vec<UserCounts>,
    /// Part of `arrived` that the server had stored.
    pub(crate) delayed: UserCounts,
    /// Bounced messages, by recipient.
    pub(crate) refused: UserCounts,
    /// Dropped pairs.
    pub(crate) unchecked: u64,
}

/// Counter per user, paged so that only used pages take memory.
pub(crate) struct UserCounts(Vec<Option<Box<[u32; 256]>>>);

impl UserCounts {
    fn new(accounts: u32) -> Self {
        Self((0..accounts.div_ceil(256)).map(|_| None).collect())
    }

    /// Increments the count of `user`.
    #[inline]
    pub(crate) fn add(&mut self, user: u32) {
        if let Some(page) = self.0.get_mut(user as usize / 256) {
            page.get_or_insert_with(|| Box::new([0; 256]))[user as usize % 256] += 1;
        }
    }

    /// Users with a nonzero count.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().enumerate().filter_map(|(page, counts)| Some((page, counts.as_ref()?))).flat_map(
            |(page, counts)| {
                counts
                    .iter()
                    .enumerate()
                    .filter(|(_, count)| **count > 0)
                    .map(move |(at, count)| ((page * 256 + at) as u32, *count))
            },
        )
    }
}

impl DeliveryAccounting {
    /// Accounting for a run of `workers` workers and `accounts` accounts.
    pub(crate) fn new(workers: usize, accounts: u32) -> Self {
        Self {
            next: vec![0; workers],
            receipts: (0..workers).map(|_| ReceivedNumbers::default()).collect(),
            sent: UserCounts::new(accounts),
            sent_offline: UserCounts::new(accounts),
            arrived: UserCounts::new(accounts),
            arrived_from: (0..workers).map(|_| UserCounts::new(accounts)).collect(),
            delayed: UserCounts::new(accounts),
            refused: UserCounts::new(accounts),
            unchecked: 0,
        }
    }

    /// Assigns the number of a message to `recipient`, a user of `worker`.
    pub(crate) fn number(&mut self, worker: u16, recipient: u32, online: bool) -> u32 {
        self.sent.add(recipient);
        if !online {
            self.sent_offline.add(recipient);
        }
        let Some(next) = self.next.get_mut(usize::from(worker)) else { return 0 };
        let number = *next;
        *next = next.wrapping_add(1);
        number
    }

    /// Records the arrival of `number` from `worker`.
    pub(crate) fn arrive(
        &mut self,
        worker: u16,
        number: u32,
        sender: u32,
        recipient: u32,
        delayed: bool,
    ) -> DeliveryKind {
        let Some(receipts) = self.receipts.get_mut(usize::from(worker)) else { return DeliveryKind::Invalid };
        let arrival = receipts.note(number, sender, recipient, &mut self.unchecked);
        if matches!(arrival, DeliveryKind::New | DeliveryKind::Late) {
            self.arrived.add(recipient);
            self.arrived_from[usize::from(worker)].add(recipient);
            if delayed {
                self.delayed.add(recipient);
            }
        }
        arrival
    }

    /// Messages numbered so far, by the recipient's worker.
    pub(crate) fn numbered(&self) -> &[u32] {
        &self.next
    }

    /// Numbers that have not arrived, by the sender's worker, as ranges without their ends. The last range is open: it
    /// ends with what that worker has sent. False if there are more ranges than are listed.
    pub(crate) fn missing(&self) -> (Vec<Vec<(u32, u32)>>, bool) {
        let mut complete = true;
        let missing = self
            .receipts
            .iter()
            .map(|receipts| {
                let mut ranges = receipts.missing();
                complete &= ranges.len() <= MAX_RANGES;
                ranges.truncate(MAX_RANGES);
                ranges
            })
            .collect();
        (missing, complete)
    }

    /// Number of user pairs that are tracked.
    #[cfg(test)]
    fn watched(&self) -> usize {
        self.receipts.iter().map(|receipts| receipts.pairs.len()).sum()
    }
}

impl ReceivedNumbers {
    /// Ranges of numbers that have not arrived; the last is open.
    fn missing(&self) -> Vec<(u32, u32)> {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        let mut add = |from: u32, to: u32| match ranges.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => ranges.push((from, to)),
        };
        for (at, chunk) in (self.low..).zip(&self.chunks) {
            let first = at * CHUNK;
            match chunk {
                Chunk::Full => {}
                Chunk::Empty => add(first, first + CHUNK),
                Chunk::Some(bits, _) => {
                    let is_missing = |number: &u32| bits[(*number / 64) as usize] & 1 << (number % 64) == 0;
                    (0..CHUNK).filter(is_missing).for_each(|number| add(first + number, first + number + 1));
                }
            }
        }
        let end = self.low.saturating_add(self.chunks.len() as u32).saturating_mul(CHUNK);
        add(end, u32::MAX);
        ranges
    }

    fn note(&mut self, number: u32, sender: u32, recipient: u32, unchecked: &mut u64) -> DeliveryKind {
        let chunk = number / CHUNK;
        let Some(at) = chunk.checked_sub(self.low) else { return DeliveryKind::Duplicate };
        // A server cannot be 16 million messages ahead of itself; the number is forged.
        if at > 4_096 {
            return DeliveryKind::Invalid;
        }
        while self.chunks.len() <= at as usize {
            self.chunks.push_back(Chunk::Empty);
        }
        let slot = &mut self.chunks[at as usize];
        if matches!(slot, Chunk::Empty) {
            *slot = Chunk::Some(Box::new([0; CHUNK as usize / 64]), 0);
        }
        let Chunk::Some(bits, filled) = slot else { return DeliveryKind::Duplicate };
        let (word, bit) = ((number % CHUNK / 64) as usize, 1_u64 << (number % 64));
        if bits[word] & bit != 0 {
            return DeliveryKind::Duplicate;
        }
        bits[word] |= bit;
        *filled += 1;
        if *filled == CHUNK {
            *slot = Chunk::Full;
            while matches!(self.chunks.front(), Some(Chunk::Full)) {
                self.chunks.pop_front();
                self.low += 1;
            }
        }
        self.order(number, sender, recipient, unchecked)
    }

    fn order(&mut self, number: u32, sender: u32, recipient: u32, unchecked: &mut u64) -> DeliveryKind {
        if self.pairs.len() >= self.prune_at.max(8_192) {
            // Everything below has arrived, so nothing can come late after these.
            let below = self.low * CHUNK;
            self.pairs.retain(|_, last| *last >= below);
            if self.pairs.len() >= MAX_PAIRS {
                *unchecked += self.pairs.len() as u64;
                self.pairs.clear();
            }
            self.pairs.shrink_to(8_192);
            self.prune_at = 2 * self.pairs.len();
        }
        let last = self.pairs.entry((sender, recipient)).or_insert(number);
        if number < *last {
            return DeliveryKind::Late;
        }
        *last = number;
        DeliveryKind::New
    }
}

#[cfg(test)]
mod tests {
    use super::{DeliveryAccounting, DeliveryKind};

    #[test]
    fn every_kind_of_delivery_is_classified() {
        let mut accounting = DeliveryAccounting::new(2, 10);
        assert_eq!(
            (accounting.number(1, 7, true), accounting.number(1, 8, false), accounting.number(0, 1, true)),
            (0, 1, 0)
        );
        assert_eq!(accounting.arrive(1, 1, 3, 4, false), DeliveryKind::New);
        assert_eq!(accounting.arrive(1, 0, 3, 4, true), DeliveryKind::Late);
        assert_eq!(accounting.arrive(1, 0, 3, 4, false), DeliveryKind::Duplicate);
        assert_eq!(accounting.arrive(1, 2, 4, 3, false), DeliveryKind::New);
        assert_eq!(accounting.arrive(2, 0, 3, 4, false), DeliveryKind::Invalid);
        assert_eq!(accounting.arrive(1, u32::MAX, 3, 4, false), DeliveryKind::Invalid);
        assert_eq!(accounting.sent.iter().collect::<Vec<_>>(), [(1, 1), (7, 1), (8, 1)]);
        assert_eq!(accounting.sent_offline.iter().collect::<Vec<_>>(), [(8, 1)]);
        assert_eq!(accounting.arrived.iter().collect::<Vec<_>>(), [(3, 1), (4, 2)]);
        assert_eq!(accounting.delayed.iter().collect::<Vec<_>>(), [(4, 1)]);
        assert_eq!(accounting.arrived_from[1].iter().collect::<Vec<_>>(), [(3, 1), (4, 2)]);
        assert_eq!(accounting.arrived_from[0].iter().count(), 0);
    }

    #[test]
    fn late_duplicates_are_detected_with_memory_for_missing_messages_only() {
        let mut accounting = DeliveryAccounting::new(1, 1_000);
        for number in 0..1_000_000_u32 {
            // Each message is of another pair; number 500 000 is lost.
            if number != 500_000 {
                let (sender, recipient) = (number % 997, number % 991);
                assert_eq!(
                    accounting.arrive(0, number, sender, recipient, false),
                    DeliveryKind::New,
                    "{number}"
                );
            }
        }
        assert_eq!(accounting.arrive(0, 3, 3, 3, false), DeliveryKind::Duplicate);
        assert_eq!(accounting.arrive(0, 999_999, 3, 3, false), DeliveryKind::Duplicate);
        assert_eq!(accounting.receipts[0].low, 500_000 / super::CHUNK);
        assert_eq!(accounting.unchecked, 0);
        // The lost message holds back the half after it, in pairs as in chunks.
        assert!(
            accounting.watched() <= 1_000_000 - 500_000 + super::CHUNK as usize,
            "{}",
            accounting.watched()
        );
        assert_eq!(accounting.arrive(0, 500_000, 500_000 % 997, 500_000 % 991, false), DeliveryKind::New);
    }

    #[test]
    fn missing_numbers_are_listed_as_ranges() {
        let mut accounting = DeliveryAccounting::new(2, 10);
        let chunk = super::CHUNK;
        let arrives = |number: &u32| ![3, 4, 9].contains(number) && (*number < 10 || *number >= 2 * chunk);
        for number in (0..3 * chunk).filter(arrives) {
            accounting.arrive(1, number, 0, 0, false);
        }
        let open = (3 * chunk, u32::MAX);
        let expected = vec![vec![(0, u32::MAX)], vec![(3, 5), (9, 2 * chunk), open]];
        assert_eq!(accounting.missing(), (expected, true));
        assert_eq!((accounting.number(1, 7, true), accounting.numbered()), (0, [0, 1].as_slice()));
    }

    #[test]
    fn order_is_checked_for_each_pair_of_users() {
        let mut accounting = DeliveryAccounting::new(1, 100);
        for number in (0..20_000_u32).rev() {
            // Delivered in reverse, but each to another recipient.
            assert_eq!(accounting.arrive(0, number, number, number, false), DeliveryKind::New);
        }
    }
}
