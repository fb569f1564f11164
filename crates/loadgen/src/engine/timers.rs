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

use super::slot::{SlotVec, UserSlot};

/// The timers of a worker.
#[derive(Default)]
pub(crate) struct UserTimers {
    heap: BinaryHeap<Reverse<(u64, UserSlot, u32)>>,
    /// Second of the response timeout, by slot; 0 is none.
    limits: SlotVec<UserSlot, u32>,
}

impl UserTimers {
    /// Wakes `slot` at `due`, if its generation is still this one.
    pub(crate) fn wake(&mut self, due: u64, slot: UserSlot, generation: u32) {
        self.heap.push(Reverse((due, slot, generation)));
    }

    /// Time of the earliest entry.
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((due, ..))| *due)
    }

    /// Takes the next entry that is due at `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(u64, UserSlot, u32)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    /// Sets the timeout of `slot` to a second; 0 clears it.
    pub(crate) fn limit(&mut self, slot: UserSlot, second: u32) {
        if second != 0 {
            self.limits.grow_to(slot, 0);
        }
        if let Some(limit) = self.limits.get_mut(slot) {
            *limit = second;
        }
    }

    /// Takes the slots whose timeout is at or before `second`, and clears them.
    pub(crate) fn expired(&mut self, second: u32) -> Vec<UserSlot> {
        let mut expired = Vec::new();
        for (slot, limit) in self.limits.iter_mut() {
            if *limit != 0 && *limit <= second {
                *limit = 0;
                expired.push(slot);
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot::SlotIndex;
    use super::{UserSlot, UserTimers};

    fn slot(position: usize) -> UserSlot {
        UserSlot::at(position)
    }

    #[test]
    fn timers_expire_in_order_of_their_due_time() {
        let mut timers = UserTimers::default();
        timers.wake(30, slot(1), 0);
        timers.wake(10, slot(2), 0);
        timers.wake(20, slot(3), 5);
        assert_eq!(timers.next(), Some(10));
        assert_eq!(timers.pop(9), None);
        assert_eq!(
            (timers.pop(25), timers.pop(25), timers.pop(25)),
            (Some((10, slot(2), 0)), Some((20, slot(3), 5)), None)
        );
    }

    #[test]
    fn a_timer_expires_once_and_can_be_cancelled() {
        let mut timers = UserTimers::default();
        timers.limit(slot(5), 0);
        timers.limit(slot(4), 10);
        timers.limit(slot(2), 8);
        timers.limit(slot(3), 9);
        timers.limit(slot(3), 0);
        assert!(timers.expired(7).is_empty());
        assert_eq!(timers.expired(10), [slot(2), slot(4)]);
        assert!(timers.expired(10).is_empty());
    }
}
