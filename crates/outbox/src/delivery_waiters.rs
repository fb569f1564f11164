//! Tasks that wait until the delivery of a message is settled, by the address of the message in memory.
//!
//! A message that nobody waits for costs nothing here. A sender's stream waits only for the first of its messages that is
//! not settled, because the count of handled stanzas (XEP-0198, section 4) rises in order; so there is about one entry for
//! each sender. The tables keep their memory, so waiting does not allocate.
//!
//! # Pitfalls
//!
//! The address is unique only while the message exists: who waits must hold the message, and must call
//! [`crate::SharedStanza::stop_awaiting_delivery`] if it gives up.

use std::task::{Poll, Waker};

use base::lock::LeafMutex;
use smallvec::SmallVec;

/// A power of two.
const SHARDS: usize = 64;
/// Capacity of a shard that is retained while it is empty.
const RETAINED_CAPACITY: usize = 64;

struct DeliveryWaiter {
    key: usize,
    waker: Waker,
}

static WAITERS: [LeafMutex<Vec<DeliveryWaiter>>; SHARDS] = [const { LeafMutex::new(Vec::new()) }; SHARDS];

fn shard(key: usize) -> &'static LeafMutex<Vec<DeliveryWaiter>> {
    // The low bits of an address are equal.
    &WAITERS[(key >> 5 ^ key >> 11) % SHARDS]
}

/// Registers a task if `is_open`, which is called with the lock held.
pub(crate) fn register(key: usize, waker: &Waker, is_open: impl FnOnce() -> bool) -> Poll<()> {
    let mut waiters = shard(key).lock();
    if !is_open() {
        return Poll::Ready(());
    }
    if !waiters.iter().any(|waiter| waiter.key == key && waiter.waker.will_wake(waker)) {
        waiters.push(DeliveryWaiter { key, waker: waker.clone() });
    }
    Poll::Pending
}

/// Wakes all tasks that wait for this message and removes them.
pub(crate) fn wake(key: usize) {
    let mut woken: SmallVec<[Waker; 2]> = SmallVec::new();
    let mut waiters = shard(key).lock();
    let mut at = 0;
    while at < waiters.len() {
        if waiters[at].key == key {
            woken.push(waiters.swap_remove(at).waker);
        } else {
            at += 1;
        }
    }
    if waiters.is_empty() && waiters.capacity() > RETAINED_CAPACITY {
        waiters.shrink_to(RETAINED_CAPACITY);
    }
    drop(waiters);
    woken.into_iter().for_each(Waker::wake);
}
