//! Owners of outboxes with messages that are not settled, in the order in which they must be checked for overdue ones.
//!
//! Each is in the queue at most for the time of one check. All checks follow after the same time, so the queue is always
//! sorted: no timer for a session or message.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use base::clock::Millis;
use base::lock::LeafMutex;

/// Milliseconds after which a message that is not settled gets a backup. With a fast store, it has one before twice this time.
pub const OVERDUE_MILLIS: u64 = 100;
/// Capacity that is retained while nothing is watched.
const RETAINED_CAPACITY: usize = 1024;

/// Sessions whose outboxes must be checked for overdue messages.
pub struct DeliveryWatch<T>(LeafMutex<WatchedOwners<T>>);

struct WatchedOwners<T> {
    queue: VecDeque<(Millis, T)>,
    /// The task that checks them.
    waker: Option<Waker>,
}

impl<T> Default for DeliveryWatch<T> {
    fn default() -> DeliveryWatch<T> {
        DeliveryWatch(LeafMutex::new(WatchedOwners { queue: VecDeque::new(), waker: None }))
    }
}

impl<T> DeliveryWatch<T> {
    /// Adds the owner of an outbox whose watch has started ([`crate::Outbox::start_watch`]) or continues.
    pub fn add(&self, owner: T, now: Millis) {
        let mut watched = self.0.lock();
        watched.queue.push_back((now.plus(OVERDUE_MILLIS), owner));
        let waker = watched.waker.take();
        drop(watched);
        waker.into_iter().for_each(Waker::wake);
    }

    /// Time of the next check; pending while nothing is watched. For one task.
    pub fn poll_due(&self, cx: &Context<'_>) -> Poll<Millis> {
        let mut watched = self.0.lock();
        match watched.queue.front() {
            Some((due, _)) => Poll::Ready(*due),
            None => {
                watched.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// An owner whose check is due.
    pub fn next_due(&self, now: Millis) -> Option<T> {
        let mut watched = self.0.lock();
        if watched.queue.front().is_none_or(|(due, _)| *due > now) {
            if watched.queue.is_empty() {
                watched.queue.shrink_to(RETAINED_CAPACITY);
            }
            return None;
        }
        watched.queue.pop_front().map(|(_, owner)| owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_due_in_order_after_the_time_of_a_check() {
        let watch = DeliveryWatch::default();
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(watch.poll_due(&cx), Poll::Pending);
        watch.add("first", Millis(5));
        watch.add("second", Millis(6));
        assert_eq!(watch.poll_due(&cx), Poll::Ready(Millis(5 + OVERDUE_MILLIS)));
        assert_eq!(watch.next_due(Millis(4 + OVERDUE_MILLIS)), None);
        assert_eq!(watch.next_due(Millis(5 + OVERDUE_MILLIS)), Some("first"));
        assert_eq!(watch.next_due(Millis(5 + OVERDUE_MILLIS)), None);
        assert_eq!(watch.next_due(Millis(9 + OVERDUE_MILLIS)), Some("second"));
        assert_eq!(watch.poll_due(&cx), Poll::Pending);
    }
}
