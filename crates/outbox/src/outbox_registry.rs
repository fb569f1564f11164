//! Registry of all connections of a node, and the sweep that signals their deadlines once a second.
//!
//! One sweep over plain numbers replaces a timer in each session: a timer costs a hundred bytes and a wake-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use base::lock::{LeafMutex, RankedMutex, rank};
use hashbrown::HashMap;
use stanza::StreamError;

use super::Outbox;
use super::outbox::NEXT_ID;

const SHARDS: usize = 16;

/// Number of stored creation times, for the ids of all outboxes together.
const MAX_CREATION_TIMES: usize = 4_096;

/// Creation times of outboxes. Ids only grow, so the next id at each sweep dates all of them, and an outbox
/// needs no field for it. The table becomes sparser towards the past: a time is accurate to a 64th of its age.
#[derive(Default)]
struct CreationTimes(Vec<(u64, u32)>);

impl CreationTimes {
    /// Records that all outboxes with ids below `next` were created before `now`.
    fn record(&mut self, next: u64, now: u32) {
        if self.0.last().is_some_and(|(before, _)| *before == next) {
            return;
        }
        if self.0.len() >= MAX_CREATION_TIMES {
            self.thin(now);
        }
        self.0.push((next, now));
    }

    /// Removes entries whose loss changes no time by more than a 64th of its age.
    fn thin(&mut self, now: u32) {
        let old = std::mem::take(&mut self.0);
        for (at, moment) in old.iter().enumerate() {
            let before = self.0.last().map_or(0, |(_, second)| *second);
            let close = old.get(at + 1).is_some_and(|(_, next)| next - before <= (now - next) / 64);
            if !close {
                self.0.push(*moment);
            }
        }
    }

    /// Second in which an outbox was created; `now` if no sweep has run since.
    fn created_at(&self, id: u64, now: u32) -> u32 {
        let index = self.0.partition_point(|(next, _)| *next <= id);
        self.0.get(index).map_or(now, |(_, second)| *second)
    }
}

/// All connections of a node.
#[derive(Default)]
pub struct OutboxRegistry {
    creation_times: LeafMutex<CreationTimes>,
    shards: [OutboxShard; SHARDS],
    count: AtomicUsize,
    /// Bytes in the queues of each shard by class, as of the last measurement.
    queued_bytes: [[AtomicU64; 3]; SHARDS],
    next_shard: AtomicUsize,
}

/// Above this number of connections, queues are measured in turns.
const MEASURE_ALL_BELOW: usize = 20_000;

type OutboxShard = RankedMutex<HashMap<u64, Arc<Outbox>, IdHashBuilder>, { rank::OUTBOX_REGISTRY }>;
type IdHashBuilder = std::hash::BuildHasherDefault<IdHasher>;

/// Outbox ids are sequential: multiplication spreads them.
#[derive(Default)]
struct IdHasher(u64);
impl std::hash::Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0 ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
}

impl OutboxRegistry {
    /// Adds a connection.
    pub fn add(&self, outbox: Arc<Outbox>) {
        let old = self.shard(outbox.id).lock().insert(outbox.id, outbox);
        if old.is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Removes a connection.
    pub fn remove(&self, outbox: &Outbox) {
        let mut shard = self.shard(outbox.id).lock();
        if shard.remove(&outbox.id).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        // After many logouts, the memory of the table is freed.
        if shard.capacity() > 64 && shard.len() * 8 < shard.capacity() {
            shard.shrink_to_fit();
        }
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether there are no connections.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in all queues. Locks every connection once: for requests, not for every second.
    pub fn queued_bytes(&self) -> u64 {
        let of = |shard: &OutboxShard| {
            shard.lock().values().map(|outbox| u64::from(outbox.queued_bytes())).sum::<u64>()
        };
        self.shards.iter().map(of).sum()
    }

    /// Second of the node's clock at which a connection was accepted.
    pub fn created_at(&self, outbox: &Outbox, now: u32) -> u32 {
        self.creation_times.lock().created_at(outbox.id, now)
    }

    /// Measures the queues; must be called regularly. Locks every queue once while there are few connections,
    /// otherwise a sixteenth of them at a time.
    pub fn measure_queues(&self) {
        let shard_to_measure = self.next_shard.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let all = self.len() <= MEASURE_ALL_BELOW;
        for (part, (shard, counters)) in self.shards.iter().zip(&self.queued_bytes).enumerate() {
            if all || part == shard_to_measure {
                let mut sum = [0_u64; 3];
                for outbox in shard.lock().values() {
                    sum.iter_mut()
                        .zip(outbox.queued_bytes_by_class())
                        .for_each(|(sum, bytes)| *sum += u64::from(bytes));
                }
                counters.iter().zip(sum).for_each(|(counter, sum)| counter.store(sum, Ordering::Relaxed));
            }
        }
    }

    /// Bytes in all queues by class (control, messages, presence), as of the last
    /// [`OutboxRegistry::measure_queues`].
    pub fn measured_bytes(&self) -> [u64; 3] {
        [0, 1, 2].map(|class| self.queued_bytes.iter().map(|part| part[class].load(Ordering::Relaxed)).sum())
    }

    /// Signals every deadline that is due.
    pub fn check_deadlines(&self, now: u32) {
        self.creation_times.lock().record(NEXT_ID.load(Ordering::Relaxed), now);
        for shard in &self.shards {
            for outbox in shard.lock().values() {
                outbox.check_deadline(now);
            }
        }
    }

    /// Requests that every connection closes its stream.
    pub fn close_all(&self, reason: &StreamError) {
        for shard in &self.shards {
            for outbox in shard.lock().values() {
                outbox.close(reason.clone());
            }
        }
    }

    /// Requests that some more connections close their streams, at most `limit`. Returns how many: fewer if all others have
    /// been requested.
    pub fn close_some(&self, limit: usize, reason: &StreamError) -> usize {
        let mut closed = 0;
        for shard in &self.shards {
            for outbox in shard.lock().values() {
                if closed == limit {
                    return closed;
                }
                closed += usize::from(outbox.close_first(reason.clone()));
            }
        }
        closed
    }

    #[allow(clippy::cast_possible_truncation, reason = "the low bits choose as well")]
    fn shard(&self, id: u64) -> &OutboxShard {
        &self.shards[id as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_creation_time_follows_from_the_id() {
        let mut creation_times = CreationTimes::default();
        assert_eq!(creation_times.created_at(1, 7), 7);
        creation_times.record(1, 10);
        creation_times.record(4, 11); // 1, 2 and 3 are new
        creation_times.record(4, 12);
        creation_times.record(5, 13);
        assert_eq!([1, 2, 3, 4, 5].map(|id| creation_times.created_at(id, 20)), [11, 11, 11, 13, 20]);
    }

    #[test]
    fn the_table_of_creation_times_is_bounded_and_accurate_to_a_64th() {
        let mut creation_times = CreationTimes::default();
        for second in 1..=100_000u32 {
            creation_times.record(u64::from(second) * 3, second);
        }
        assert!(creation_times.0.len() <= MAX_CREATION_TIMES);
        for made in [1u32, 10, 1_000, 50_000, 99_000, 99_999] {
            let found = creation_times.created_at(u64::from(made) * 3 - 1, 100_000);
            let (age, error) = (100_000 - made, found.abs_diff(made));
            assert!(error <= age / 32 + 1, "{found} for {made}");
        }
    }
}
