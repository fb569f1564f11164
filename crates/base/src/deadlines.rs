//! Deadlines of connections: a regular sweep over plain numbers, instead of a timer each.
//!
//! A timer of the runtime costs a hundred bytes and two operations on its wheel for each request. Here a connection
//! needs 56 bytes and an entry in a table. The owner of a [`Deadlines`] chooses the unit of its times: seconds for HTTP,
//! tenths of a second for bytestreams.
//!
//! # Pitfalls
//!
//! The sweep only wakes; the woken task must compare the clock itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};

use crate::lock::{LeafMutex, RankedMutex, rank};

const SHARDS: usize = 16;
/// No deadline.
pub const NEVER: u32 = u32::MAX;

/// Deadlines of all connections of one kind.
#[derive(Default)]
pub struct Deadlines {
    shards: [DeadlineShard; SHARDS],
    next: AtomicU64,
}

type DeadlineShard = RankedMutex<HashMap<u64, Arc<DeadlineEntry>>, { rank::CONNECTION_DEADLINES }>;

struct DeadlineEntry {
    /// Time at which it elapses.
    at: AtomicU32,
    waker: LeafMutex<Option<Waker>>,
}

impl DeadlineEntry {
    fn wake(&self) {
        let waker = self.waker.lock().clone();
        waker.into_iter().for_each(Waker::wake);
    }
}

/// Deadline of one connection, removed on drop.
pub struct Deadline {
    entry: Arc<DeadlineEntry>,
    id: u64,
    deadlines: Arc<Deadlines>,
}

impl Deadlines {
    /// Adds a deadline, not set yet.
    pub fn add(self: &Arc<Self>) -> Deadline {
        let id = self.next.fetch_add(1, Relaxed);
        let entry = Arc::new(DeadlineEntry { at: AtomicU32::new(NEVER), waker: LeafMutex::new(None) });
        self.shard(id).lock().insert(id, entry.clone());
        Deadline { entry, id, deadlines: self.clone() }
    }

    /// Wakes tasks whose deadline has elapsed.
    pub fn sweep(&self, now: u32) {
        for shard in &self.shards {
            for entry in shard.lock().values() {
                if entry.at.load(Relaxed) <= now {
                    entry.wake();
                }
            }
        }
    }

    /// Wakes all tasks.
    pub fn wake_all(&self) {
        for shard in &self.shards {
            shard.lock().values().for_each(|entry| entry.wake());
        }
    }

    #[allow(clippy::cast_possible_truncation, reason = "the low bits choose as well")]
    fn shard(&self, id: u64) -> &DeadlineShard {
        &self.shards[id as usize % SHARDS]
    }
}

impl Deadline {
    /// Registers the task to wake.
    pub fn register(&self, cx: &Context<'_>) {
        let mut waker = self.entry.waker.lock();
        match &mut *waker {
            Some(known) => known.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }

    /// Sets the time at which it elapses.
    pub fn set(&self, at: u32) {
        self.entry.at.store(at, Relaxed);
    }

    /// Whether the time has passed.
    pub fn has_elapsed(&self, now: u32) -> bool {
        self.entry.at.load(Relaxed) <= now
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let mut shard = self.deadlines.shard(self.id).lock();
        shard.remove(&self.id);
        if shard.capacity() > 64 && shard.len() * 8 < shard.capacity() {
            shard.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    struct Count(AtomicU32);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn elapsed_deadlines_wake_and_dropped_ones_are_removed() {
        let deadlines = Arc::new(Deadlines::default());
        let counts = [Arc::new(Count(AtomicU32::new(0))), Arc::new(Count(AtomicU32::new(0)))];
        let made: Vec<Deadline> = counts
            .iter()
            .map(|count| {
                let deadline = deadlines.add();
                deadline.register(&Context::from_waker(&Waker::from(count.clone())));
                deadline
            })
            .collect();
        let woken = || counts.each_ref().map(|count| count.0.load(Relaxed));
        made[0].set(10);
        deadlines.sweep(9);
        assert_eq!(woken(), [0, 0]);
        deadlines.sweep(10);
        assert_eq!(woken(), [1, 0]);
        assert!(made[0].has_elapsed(10) && !made[1].has_elapsed(10));
        made[0].set(NEVER);
        deadlines.sweep(11);
        deadlines.wake_all();
        assert_eq!(woken(), [2, 1]);
        drop(made);
        deadlines.wake_all();
        assert_eq!(woken(), [2, 1]);
        assert!(deadlines.shards.iter().all(|shard| shard.lock().is_empty()));
    }
}
