//! Bounded queues by key, each emptied by one owner at a time: the common part of lanes (`core/src/router/lanes.rs`)
//! and serial tasks ([`crate::serial_task`]).
//!
//! The first item of a key makes the caller the owner of its queue, who handles the item; later items are queued for the
//! owner. A queue exists while it has an owner, so a key without work takes no memory.
//!
//! Queues are bounded in bytes, each for itself and all together. An item counts until its owner requests the next one, or
//! longer if the owner retains it ([`KeyedQueues::retain_handled`]). A source whose item finds no capacity keeps the item and
//! waits for capacity; items of other keys are not affected.
//!
//! An item that cannot wait, because something else bounds it, is *forced*. Forced items take no capacity of the others, and
//! have a bound of their own, so that memory stays bounded if what should bound them does not. Beyond that bound, the source
//! must refuse the item.
//!
//! # Pitfalls
//!
//! An owner must call [`KeyedQueues::poll_next`] until it returns nothing, or [`KeyedQueues::close`]: otherwise the key
//! accepts items that nobody handles.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use hashbrown::{DefaultHashBuilder, HashMap};

const SHARDS: usize = 16;
/// Empty tables above this capacity are freed.
const RETAINED_KEYS: usize = 256;

/// Limits of [`KeyedQueues`], in bytes.
#[derive(Clone, Copy, Debug)]
pub struct KeyedQueueLimits {
    /// Items of one key. A larger item is accepted by an empty queue.
    pub bytes_per_key: usize,
    /// Items of all keys.
    pub bytes: usize,
    /// Items of all keys that were forced. A larger one is accepted if there is no other.
    pub forced_bytes: usize,
}

impl KeyedQueueLimits {
    /// Limits of the items that are not forced; something else bounds the forced ones.
    pub fn without_forced_bound(bytes_per_key: usize, bytes: usize) -> KeyedQueueLimits {
        KeyedQueueLimits { bytes_per_key, bytes, forced_bytes: usize::MAX }
    }
}

/// Result of [`KeyedQueues::push`].
#[derive(Debug, PartialEq, Eq)]
pub enum KeyedPushOutcome<T> {
    /// The queue was created: the caller owns it and handles this item.
    Owner(T),
    /// The owner will handle the item after those before it.
    Queued,
    /// There is no capacity; see [`KeyedQueues::poll_capacity`]. For a forced item none can be awaited.
    Full(T),
}

/// Capacity of a handled item; see [`KeyedQueues::retain_handled`].
#[must_use = "the capacity must be released"]
#[derive(Debug)]
pub struct RetainedCapacity(ItemSize);

/// Size of an item in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct ItemSize {
    bytes: usize,
    /// It was forced, so it takes no room of the others.
    forced: bool,
}

struct OwnedQueue<T> {
    items: VecDeque<(ItemSize, T)>,
    /// Size of the item that the owner handles.
    handled: ItemSize,
    /// Sizes of all items, the handled one included.
    bytes: usize,
    /// The owner's task, while it waits for an item.
    owner: Option<Waker>,
    /// Sources that wait for capacity.
    waiting: Vec<Waker>,
}

type Shard<K, T> = HashMap<K, OwnedQueue<T>>;

/// Queues of `T` by `K`.
pub struct KeyedQueues<K, T> {
    limits: KeyedQueueLimits,
    hasher: DefaultHashBuilder,
    shards: Box<[LeafMutex<Shard<K, T>>]>,
    /// Bytes of the items that were not forced.
    bytes: AtomicUsize,
    forced_bytes: AtomicUsize,
    open: AtomicUsize,
    /// Sources that wait for capacity among all queues.
    waiting: LeafMutex<Vec<Waker>>,
}

impl<K: Hash + Eq, T> KeyedQueues<K, T> {
    /// No queues.
    pub fn new(limits: KeyedQueueLimits) -> KeyedQueues<K, T> {
        KeyedQueues {
            limits,
            hasher: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| LeafMutex::default()).collect(),
            bytes: AtomicUsize::new(0),
            forced_bytes: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            waiting: LeafMutex::default(),
        }
    }

    fn shard(&self, key: &K) -> &LeafMutex<Shard<K, T>> {
        // The map uses the highest and the lowest bits.
        &self.shards[(self.hasher.hash_one(key) >> 24) as usize % SHARDS]
    }

    /// Queues an item of this many bytes, or makes the caller the owner of a queue.
    pub fn push(&self, key: K, item: T, size: usize) -> KeyedPushOutcome<T> {
        let size_of_item = ItemSize { bytes: size, forced: false };
        self.push_if(key, item, size_of_item, |held| self.has_capacity(held, size))
    }

    /// Like [`KeyedQueues::push`], for an item that something else bounds: only the bound of all forced items applies, and it
    /// takes no capacity of the other keys.
    pub fn push_forced(&self, key: K, item: T, size: usize) -> KeyedPushOutcome<T> {
        self.push_if(key, item, ItemSize { bytes: size, forced: true }, |_| {
            let all = self.forced_bytes.load(Ordering::Relaxed);
            all == 0 || all.saturating_add(size) <= self.limits.forced_bytes
        })
    }

    fn push_if(
        &self,
        key: K,
        item: T,
        size: ItemSize,
        has_capacity: impl FnOnce(usize) -> bool,
    ) -> KeyedPushOutcome<T> {
        let shard = self.shard(&key);
        let mut queues = shard.lock();
        let queue = queues.get_mut(&key);
        let held = queue.as_ref().map_or(0, |queue| queue.bytes);
        if !has_capacity(held) {
            return KeyedPushOutcome::Full(item);
        }
        let total = if size.forced { &self.forced_bytes } else { &self.bytes };
        total.fetch_add(size.bytes, Ordering::Relaxed);
        if let Some(queue) = queue {
            queue.bytes += size.bytes;
            queue.items.push_back((size, item));
            let owner = queue.owner.take();
            drop(queues);
            owner.into_iter().for_each(Waker::wake);
            return KeyedPushOutcome::Queued;
        }
        let queue = OwnedQueue {
            items: VecDeque::new(),
            handled: size,
            bytes: size.bytes,
            owner: None,
            waiting: Vec::new(),
        };
        queues.insert(key, queue);
        self.open.fetch_add(1, Ordering::Release);
        KeyedPushOutcome::Owner(item)
    }

    fn has_capacity(&self, held: usize, size: usize) -> bool {
        let all = self.bytes.load(Ordering::Relaxed);
        (held == 0 || held.saturating_add(size) <= self.limits.bytes_per_key)
            && (all == 0 || all.saturating_add(size) <= self.limits.bytes)
    }

    /// The next item for the owner, who has handled the one before. Without one, the queue ends if `end_when_empty` is
    /// set, and the owner must stop; otherwise its task is woken for the next item.
    pub fn poll_next(&self, key: &K, end_when_empty: bool, cx: &Context<'_>) -> Poll<Option<T>> {
        let mut queues = self.shard(key).lock();
        let Some(queue) = queues.get_mut(key) else { return Poll::Ready(None) };
        let freed = std::mem::take(&mut queue.handled);
        queue.bytes -= freed.bytes;
        let mut waiting = std::mem::take(&mut queue.waiting);
        let next = match queue.items.pop_front() {
            Some((size, item)) => {
                queue.handled = size;
                Poll::Ready(Some(item))
            }
            None if end_when_empty => {
                self.remove(&mut queues, key);
                Poll::Ready(None)
            }
            None => {
                // A queue without items may last: it keeps no memory for them.
                queue.items = VecDeque::new();
                queue.owner = Some(cx.waker().clone());
                Poll::Pending
            }
        };
        drop(queues);
        self.release(freed, &mut waiting);
        next
    }

    /// The next item, if there is one. Otherwise the item that the owner handles counts on, and the queue does not end.
    pub fn next_waiting(&self, key: &K) -> Option<T> {
        let mut queues = self.shard(key).lock();
        let queue = queues.get_mut(key)?;
        let (size, item) = queue.items.pop_front()?;
        let freed = std::mem::replace(&mut queue.handled, size);
        queue.bytes -= freed.bytes;
        let mut waiting = std::mem::take(&mut queue.waiting);
        drop(queues);
        self.release(freed, &mut waiting);
        Some(item)
    }

    /// Like [`KeyedQueues::poll_next`], for an owner that does not wait: the queue ends without an item.
    pub fn next(&self, key: &K) -> Option<T> {
        match self.poll_next(key, true, &Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// Counts the item that the owner handles also after the next one is requested: something that it has caused is not
    /// finished. The owner must release it, and before it ends the queue.
    pub fn retain_handled(&self, key: &K) -> RetainedCapacity {
        let mut queues = self.shard(key).lock();
        RetainedCapacity(
            queues.get_mut(key).map(|queue| std::mem::take(&mut queue.handled)).unwrap_or_default(),
        )
    }

    /// Releases the capacity of an item that was retained.
    pub fn release_retained(&self, key: &K, retained: RetainedCapacity) {
        let mut queues = self.shard(key).lock();
        let mut waiting = Vec::new();
        if let Some(queue) = queues.get_mut(key) {
            queue.bytes -= retained.0.bytes;
            waiting = std::mem::take(&mut queue.waiting);
        }
        drop(queues);
        self.release(retained.0, &mut waiting);
    }

    /// Ends a queue whose owner stops early; returns what it held.
    pub fn close(&self, key: &K) -> Vec<T> {
        let mut queues = self.shard(key).lock();
        let Some(mut queue) = self.remove(&mut queues, key) else { return Vec::new() };
        drop(queues);
        self.release(queue.handled, &mut queue.waiting);
        let items = queue.items.into_iter().map(|(size, item)| {
            self.release(size, &mut Vec::new());
            item
        });
        items.collect()
    }

    fn remove(&self, queues: &mut Shard<K, T>, key: &K) -> Option<OwnedQueue<T>> {
        let queue = queues.remove(key)?;
        if queues.is_empty() && queues.capacity() > RETAINED_KEYS {
            *queues = HashMap::new();
        }
        self.open.fetch_sub(1, Ordering::Release);
        Some(queue)
    }

    fn release(&self, size: ItemSize, waiting: &mut Vec<Waker>) {
        if size.forced {
            self.forced_bytes.fetch_sub(size.bytes, Ordering::Relaxed);
        } else if size.bytes > 0 {
            self.bytes.fetch_sub(size.bytes, Ordering::SeqCst);
            waiting.append(&mut self.waiting.lock());
        }
        waiting.drain(..).for_each(Waker::wake);
    }

    /// Ready when an item of this size may find capacity. Other sources may be faster, so the caller pushes it again and
    /// repeats this.
    pub fn poll_capacity(&self, key: &K, size: usize, cx: &Context<'_>) -> Poll<()> {
        {
            let mut queues = self.shard(key).lock();
            if let Some(queue) = queues.get_mut(key)
                && queue.bytes > 0
                && queue.bytes.saturating_add(size) > self.limits.bytes_per_key
            {
                register(&mut queue.waiting, cx);
                return Poll::Pending;
            }
        }
        if self.has_capacity(0, size) {
            return Poll::Ready(());
        }
        register(&mut self.waiting.lock(), cx);
        // Bytes that were released before the registration woke nobody.
        if self.bytes.load(Ordering::SeqCst) == 0 || self.has_capacity(0, size) {
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Whether the key has a queue.
    pub fn contains(&self, key: &K) -> bool {
        self.open.load(Ordering::Acquire) > 0 && self.shard(key).lock().contains_key(key)
    }

    /// Number of queues.
    pub fn len(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Whether there is no queue.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes in all queues.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.forced_bytes.load(Ordering::Relaxed)
    }
}

fn register(waiting: &mut Vec<Waker>, cx: &Context<'_>) {
    if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
        waiting.push(cx.waker().clone());
    }
}

impl<K, T> std::fmt::Debug for KeyedQueues<K, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [open, bytes] = [&self.open, &self.bytes].map(|count| count.load(Ordering::Relaxed));
        write!(f, "KeyedQueues({open} with {bytes} bytes)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::task::Wake;

    fn queues(bytes_per_key: usize, bytes: usize) -> KeyedQueues<u64, u32> {
        KeyedQueues::new(KeyedQueueLimits { bytes_per_key, bytes, forced_bytes: 20_000 })
    }

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_first_item_makes_an_owner_and_the_others_follow_in_order() {
        let queues = queues(100, 1_000);
        assert_eq!(queues.push(1, 0, 10), KeyedPushOutcome::Owner(0));
        assert_eq!(queues.push(1, 1, 10), KeyedPushOutcome::Queued);
        assert_eq!(queues.push(2, 9, 10), KeyedPushOutcome::Owner(9), "another key");
        assert_eq!(queues.push(1, 2, 10), KeyedPushOutcome::Queued);
        assert_eq!((queues.next(&1), queues.next(&1)), (Some(1), Some(2)));
        assert!(queues.contains(&1), "the owner handles the last item");
        assert_eq!((queues.next(&1), queues.contains(&1)), (None, false));
        assert_eq!(queues.close(&2), [0_u32; 0]);
        assert_eq!((queues.len(), queues.bytes()), (0, 0), "a key without work takes no memory");
    }

    #[test]
    fn a_full_queue_refuses_its_source_until_an_item_is_done_and_no_other() {
        let queues = queues(100, 1_000);
        let (wakes, waker) = wakes();
        let cx = Context::from_waker(&waker);
        assert_eq!(queues.push(1, 0, 60), KeyedPushOutcome::Owner(0));
        assert_eq!(queues.push(1, 1, 40), KeyedPushOutcome::Queued);
        assert_eq!(queues.push(1, 2, 1), KeyedPushOutcome::Full(2), "the handled item counts");
        assert!(queues.poll_capacity(&1, 1, &cx).is_pending() && queues.poll_capacity(&2, 1, &cx).is_ready());
        assert_eq!(queues.push(2, 0, 100), KeyedPushOutcome::Owner(0));
        assert_eq!(queues.next(&1), Some(1));
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(queues.poll_capacity(&1, 60, &cx).is_ready());
        assert_eq!(queues.push(1, 2, 60), KeyedPushOutcome::Queued);
        assert_eq!(queues.push(1, 3, 1), KeyedPushOutcome::Full(3));
        assert_eq!(queues.push_forced(1, 3, 1), KeyedPushOutcome::Queued);
        assert_eq!((queues.next(&1), queues.next(&1)), (Some(2), Some(3)));
    }

    #[test]
    fn all_queues_together_are_bounded_and_one_large_item_passes() {
        let queues = queues(100, 250);
        let (wakes, waker) = wakes();
        let cx = Context::from_waker(&waker);
        for key in 0..2 {
            assert_eq!(queues.push(key, 0, 100), KeyedPushOutcome::Owner(0));
        }
        assert_eq!(queues.push(2, 0, 100), KeyedPushOutcome::Full(0));
        assert!(queues.poll_capacity(&2, 100, &cx).is_pending());
        assert_eq!(queues.next(&0), None);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(queues.poll_capacity(&2, 100, &cx).is_ready());
        assert_eq!(queues.next(&1), None);
        assert_eq!(queues.push(2, 0, 10_000), KeyedPushOutcome::Owner(0), "nothing else is queued");
        assert_eq!(queues.push(3, 0, 1), KeyedPushOutcome::Full(0));
    }

    #[test]
    fn what_is_forced_takes_capacity_of_its_key_only() {
        let queues = queues(100, 250);
        assert_eq!(queues.push_forced(1, 0, 10_000), KeyedPushOutcome::Owner(0));
        assert_eq!(queues.push(1, 1, 1), KeyedPushOutcome::Full(1), "it must not overtake");
        assert_eq!(queues.push(2, 0, 100), KeyedPushOutcome::Owner(0), "another key");
        assert_eq!(queues.bytes(), 10_100);
        assert_eq!((queues.next(&1), queues.bytes()), (None, 100));
        assert_eq!(queues.push_forced(2, 1, 50), KeyedPushOutcome::Queued);
        assert_eq!(queues.close(&2), [1]);
        assert_eq!((queues.bytes(), queues.len()), (0, 0));
    }

    #[test]
    fn what_is_forced_is_bounded_over_all_keys_and_does_not_stop_other_items() {
        let queues = queues(100, 250);
        for key in 0..2 {
            assert_eq!(queues.push_forced(key, 0, 10_000), KeyedPushOutcome::Owner(0));
        }
        for key in 0..3 {
            assert_eq!(queues.push_forced(key, 1, 1), KeyedPushOutcome::Full(1));
        }
        assert_eq!(queues.bytes(), 20_000, "what was refused leaves nothing");
        assert_eq!(queues.push(2, 0, 100), KeyedPushOutcome::Owner(0));
        let retained = queues.retain_handled(&0);
        assert_eq!(queues.push_forced(3, 0, 1), KeyedPushOutcome::Full(0), "what is not safe counts");
        queues.release_retained(&0, retained);
        assert_eq!(queues.push_forced(3, 0, 10_000), KeyedPushOutcome::Owner(0));
        for key in 0..4 {
            assert_eq!(queues.next(&key), None);
        }
        assert_eq!((queues.bytes(), queues.len()), (0, 0));
        assert_eq!(queues.push_forced(0, 0, 30_000), KeyedPushOutcome::Owner(0), "nothing else is forced");
        assert_eq!(queues.push_forced(0, 1, 1), KeyedPushOutcome::Full(1));
        assert_eq!((queues.next(&0), queues.bytes()), (None, 0));
    }

    #[test]
    fn an_owner_that_waits_is_woken_and_one_that_stops_returns_what_is_left() {
        let queues = queues(100, 1_000);
        let (wakes, waker) = wakes();
        let cx = Context::from_waker(&waker);
        assert_eq!(queues.push(1, 0, 10), KeyedPushOutcome::Owner(0));
        assert!(queues.poll_next(&1, false, &cx).is_pending());
        assert_eq!((queues.bytes(), queues.len()), (0, 1));
        assert_eq!(queues.push(1, 1, 10), KeyedPushOutcome::Queued);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(queues.poll_next(&1, false, &cx), Poll::Ready(Some(1)));
        assert_eq!(queues.push(1, 2, 10), KeyedPushOutcome::Queued);
        assert_eq!(queues.close(&1), [2]);
        assert_eq!((queues.bytes(), queues.len()), (0, 0));
        assert_eq!(queues.poll_next(&1, false, &cx), Poll::Ready(None), "the queue has ended");
    }

    #[test]
    fn an_item_counts_while_it_is_retained_and_sources_are_woken_when_it_is_released() {
        let queues = queues(100, 1000);
        assert_eq!(queues.push(1, 0, 60), KeyedPushOutcome::Owner(0));
        assert_eq!(queues.push(1, 1, 30), KeyedPushOutcome::Queued);
        let retained = queues.retain_handled(&1);
        assert_eq!(queues.next(&1), Some(1));
        assert_eq!(queues.push(1, 2, 60), KeyedPushOutcome::Full(2));
        let (wakes, waker) = wakes();
        assert!(queues.poll_capacity(&1, 60, &Context::from_waker(&waker)).is_pending());
        queues.release_retained(&1, retained);
        assert_eq!((wakes.0.load(Ordering::Relaxed), queues.bytes()), (1, 30));
        assert_eq!(queues.push(1, 2, 60), KeyedPushOutcome::Queued);
        assert_eq!((queues.next(&1), queues.next(&1), queues.bytes()), (Some(2), None, 0));
    }

    fn wakes() -> (Arc<Wakes>, Waker) {
        let wakes = Arc::<Wakes>::default();
        (wakes.clone(), wakes.into())
    }

    #[test]
    fn threads_that_push_to_one_key_lose_and_double_nothing() {
        let queues = Arc::new(queues(usize::MAX, usize::MAX));
        let handled = Arc::new(LeafMutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let (queues, handled) = (queues.clone(), handled.clone());
                scope.spawn(move || {
                    for n in 0..1_000 {
                        if let KeyedPushOutcome::Owner(first) = queues.push(7, thread * 1_000 + n, 1) {
                            let mut next = Some(first);
                            while let Some(item) = next {
                                handled.lock().push(item);
                                next = queues.next(&7);
                            }
                        }
                    }
                });
            }
        });
        let handled = handled.lock();
        for thread in 0..4 {
            let own: Vec<u32> = handled.iter().copied().filter(|item| item / 1_000 == thread).collect();
            assert!(own.is_sorted() && own.len() == 1_000);
        }
        assert!(queues.is_empty());
    }
}
