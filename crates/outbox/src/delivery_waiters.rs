//! Tasks that wait until the delivery of a message is settled, by the address of the message in memory.
//!
//! A message that nobody waits for costs nothing here. A sender's stream waits only for the first of its messages that is
//! not settled, because the count of handled stanzas (XEP-0198, section 4) rises in order; so there is about one entry for
//! each sender. The tables keep their memory, so waiting does not allocate.
//!
//! # Pitfalls
//!
//! The address is unique only while the message exists, so [`AwaitedDelivery`] holds the message and removes its entry.
//! Wakers cannot identify an entry: two of the same task may compare as different.

use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use smallvec::SmallVec;

use crate::delivery_state::DeliveryMark;
use crate::shared_stanza::SharedStanza;

/// A power of two.
const SHARDS: usize = 64;
/// Capacity of a shard that is retained while it is empty.
const RETAINED_CAPACITY: usize = 64;

struct DeliveryWaiter {
    key: usize,
    /// Distinguishes those that wait for the same message.
    id: u32,
    waker: Waker,
}

struct Shard {
    waiters: Vec<DeliveryWaiter>,
    last_id: u32,
}

static WAITERS: [LeafMutex<Shard>; SHARDS] =
    [const { LeafMutex::new(Shard { waiters: Vec::new(), last_id: 0 }) }; SHARDS];

fn shard(key: usize) -> &'static LeafMutex<Shard> {
    // The low bits of an address are equal.
    &WAITERS[(key >> 5 ^ key >> 11) % SHARDS]
}

impl Shard {
    fn shrink(&mut self) {
        if self.waiters.is_empty() && self.waiters.capacity() > RETAINED_CAPACITY {
            self.waiters.shrink_to(RETAINED_CAPACITY);
        }
    }
}

/// A message whose delivery a task waits for.
#[derive(Debug)]
pub struct AwaitedDelivery {
    message: SharedStanza,
    /// Id of its entry; 0 if it never had one.
    id: AtomicU32,
}

impl AwaitedDelivery {
    /// Waits for the delivery of a message, which must be tracked ([`SharedStanza::track_delivery`]).
    pub fn new(message: &SharedStanza) -> AwaitedDelivery {
        AwaitedDelivery { message: message.clone(), id: AtomicU32::new(0) }
    }

    /// Ready when the delivery is settled; until then, registers the task to be woken, in place of an earlier one.
    pub fn poll_settled(&self, cx: &Context<'_>) -> Poll<()> {
        let state = self.message.delivery_state();
        if state.load().has(DeliveryMark::Settled) {
            return Poll::Ready(());
        }
        let key = self.message.delivery_key();
        let mut shard = shard(key).lock();
        if state.set(DeliveryMark::Awaited).has(DeliveryMark::Settled) {
            return Poll::Ready(());
        }
        let id = self.id.load(Ordering::Relaxed);
        if let Some(entry) = shard.waiters.iter_mut().find(|waiter| waiter.key == key && waiter.id == id) {
            if !entry.waker.will_wake(cx.waker()) {
                entry.waker = cx.waker().clone();
            }
            return Poll::Pending;
        }
        shard.last_id = shard.last_id.wrapping_add(1).max(1);
        let id = shard.last_id;
        self.id.store(id, Ordering::Relaxed);
        shard.waiters.push(DeliveryWaiter { key, id, waker: cx.waker().clone() });
        Poll::Pending
    }
}

impl Drop for AwaitedDelivery {
    fn drop(&mut self) {
        let id = *self.id.get_mut();
        if id == 0 || self.message.delivery_state().load().has(DeliveryMark::Settled) {
            return;
        }
        let key = self.message.delivery_key();
        let mut shard = shard(key).lock();
        shard.waiters.retain(|waiter| waiter.key != key || waiter.id != id);
        shard.shrink();
    }
}

/// Wakes all tasks that wait for this message and removes them.
pub(crate) fn wake(key: usize) {
    let mut woken: SmallVec<[Waker; 2]> = SmallVec::new();
    let mut shard = shard(key).lock();
    let mut at = 0;
    while at < shard.waiters.len() {
        if shard.waiters[at].key == key {
            woken.push(shard.waiters.swap_remove(at).waker);
        } else {
            at += 1;
        }
    }
    shard.shrink();
    drop(shard);
    woken.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::Millis;
    use std::sync::Arc;

    #[derive(Default)]
    struct WakeCount(AtomicU32);

    impl std::task::Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counter() -> (Arc<WakeCount>, Waker) {
        let count = Arc::<WakeCount>::default();
        (count.clone(), count.into())
    }

    fn tracked() -> SharedStanza {
        let message = SharedStanza::parse(b"<message/>").unwrap();
        assert!(message.track_delivery(Millis(0)));
        message
    }

    fn poll(awaited: &AwaitedDelivery, waker: &Waker) -> Poll<()> {
        awaited.poll_settled(&Context::from_waker(waker))
    }

    fn entries(message: &SharedStanza) -> usize {
        let key = message.delivery_key();
        shard(key).lock().waiters.iter().filter(|waiter| waiter.key == key).count()
    }

    #[test]
    fn a_task_that_awaits_a_delivery_is_woken_once_it_is_settled() {
        let (message, (count, waker)) = (tracked(), counter());
        let awaited = AwaitedDelivery::new(&message);
        assert_eq!((poll(&awaited, &waker), poll(&awaited, &waker)), (Poll::Pending, Poll::Pending));
        assert!(!message.confirm_delivery(), "there is no backup");
        message.settle_delivery();
        assert_eq!((count.0.load(Ordering::Relaxed), poll(&awaited, &waker)), (1, Poll::Ready(())));
        assert_eq!(entries(&message), 0);
    }

    #[test]
    fn a_task_has_one_entry_also_if_its_wakers_differ_and_the_last_one_is_woken() {
        let message = tracked();
        let awaited = AwaitedDelivery::new(&message);
        let wakers: Vec<_> = (0..10).map(|_| counter()).collect();
        assert!(wakers.iter().all(|(_, waker)| poll(&awaited, waker).is_pending()));
        assert_eq!(entries(&message), 1);
        message.settle_delivery();
        let woken: Vec<_> = wakers.iter().map(|(count, _)| count.0.load(Ordering::Relaxed)).collect();
        assert_eq!((woken[..9].iter().sum::<u32>(), woken[9]), (0, 1));
    }

    #[test]
    fn a_task_that_stops_waiting_does_not_take_the_wake_up_of_another() {
        let (message, (left, leaving), (stayed, staying)) = (tracked(), counter(), counter());
        let [first, second] = [(); 2].map(|()| AwaitedDelivery::new(&message));
        assert!(poll(&first, &leaving).is_pending() && poll(&second, &staying).is_pending());
        drop(first);
        message.settle_delivery();
        assert_eq!((left.0.load(Ordering::Relaxed), stayed.0.load(Ordering::Relaxed)), (0, 1));
    }
}
