//! Timers of a worker: a heap for wake-ups with microsecond resolution, an array for response timeouts.
//!
//! Not implemented: cancelling. A heap entry that outlived its user is recognised by its generation and dropped.
//!
//! # Pitfalls
//!
//! Timeouts are whole seconds and swept once a second, since nearly all of them are never reached; what is measured
//! must be in the heap.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The timers of a worker.
#[derive(Default)]
pub(crate) struct UserTimers {
    heap: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Second of the response timeout, by slot; 0 is none.
    limits: Vec<u32>,
}

impl UserTimers {
    /// Wakes `slot` at `due`, if its generation is still this one.
    pub(crate) fn wake(&mut self, due: u64, slot: u32, generation: u32) {
        self.heap.push(Reverse((due, slot, generation)));
    }

    /// Time of the earliest entry.
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    /// Takes the next entry that is due at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(u64, u32, u32)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Sets the timeout of `slot` to a second; 0 clears it.
    pub(crate) fn limit(&mut self, slot: u32, second: u32) {
        let slot = slot as usize;
        if slot >= self.limits.len() {
            if second == 0 {
                return;
            }
            self.limits.resize(slot + 1, 0);
        }
        self.limits[slot] = second;
    }

    /// Takes the slots whose timeout is at or before `second`, and clears them.
    pub(crate) fn expired(&mut self, second: u32) -> Vec<u32> {
        let mut expired = Vec::new();
        for (slot, limit) in self.limits.iter_mut().enumerate() {
            if *limit != 0 && *limit <= second {
                *limit = 0;
                expired.push(slot as u32);
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::UserTimers;

    #[test]
    fn what_is_due_first_comes_first() {
        let mut timers = UserTimers::default();
        timers.wake(30, 1, 0);
        timers.wake(10, 2, 0);
        timers.wake(20, 3, 5);
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.pop(9), None);
        assert_eq!(
            (timers.pop(25), timers.pop(25), timers.pop(25)),
            (Some((10, 2, 0)), Some((20, 3, 5)), None)
        );
    }

    #[test]
    fn a_limit_expires_once_and_can_be_taken_away() {
        let mut timers = UserTimers::default();
        timers.limit(5, 0);
        timers.limit(4, 10);
        timers.limit(2, 8);
        timers.limit(3, 9);
        timers.limit(3, 0);
        assert!(timers.expired(7).is_empty());
        assert_eq!(timers.expired(10), [2, 4]);
        assert!(timers.expired(10).is_empty());
    }
}
