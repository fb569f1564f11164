//! The lock of the collection graph: edges of a service are added by one change at a time. What waits for it is bounded in number
//! and bytes, of one user as well.

use std::sync::Arc;

use base::lock::LeafMutex;
use hashbrown::HashMap;
use queues::semaphore::{Semaphore, SemaphorePermit};

/// Changes that wait, and bytes of their requests.
const MAX_WAITING: usize = 1_024;
const MAX_BYTES: usize = 32 << 20;
/// The same of one user, and of all users of another domain.
const MAX_OF_BUCKET: Waiting = Waiting { count: 64, bytes: 1 << 20 };

#[derive(Clone, Copy, Default)]
struct Waiting {
    count: usize,
    bytes: usize,
}

#[derive(Default)]
struct WaitingChanges {
    by_bucket: HashMap<Box<str>, Waiting>,
    bytes: usize,
}

/// The lock of a service.
#[derive(Clone)]
pub(crate) struct GraphLock {
    semaphore: Semaphore,
    waiting: Arc<LeafMutex<WaitingChanges>>,
}

/// The change that is being made; the next one begins when it is dropped.
#[derive(Debug)]
pub(crate) struct GraphGuard {
    _permit: SemaphorePermit,
}

/// What a change that waits counts.
struct WaitingPlace {
    waiting: Arc<LeafMutex<WaitingChanges>>,
    bucket: Box<str>,
    bytes: usize,
}

impl Default for GraphLock {
    fn default() -> GraphLock {
        GraphLock { semaphore: Semaphore::new(1, MAX_WAITING), waiting: Arc::default() }
    }
}

impl GraphLock {
    /// Waits until no other change is being made. `None`: too much waits. `bucket` is that of the user
    /// ([`crate::user_buckets::bucket_of`]), and `bytes` are those of the request.
    pub(crate) async fn acquire(&self, bucket: &str, bytes: usize) -> Option<GraphGuard> {
        let place = self.place(bucket, bytes)?;
        let permit = self.semaphore.acquire().await?;
        drop(place);
        Some(GraphGuard { _permit: permit })
    }

    fn place(&self, bucket: &str, bytes: usize) -> Option<WaitingPlace> {
        let state = &mut *self.waiting.lock();
        let of_bucket = state.by_bucket.get(bucket).copied().unwrap_or_default();
        let total = state.bytes.saturating_add(bytes);
        let after = Waiting { count: of_bucket.count + 1, bytes: of_bucket.bytes.saturating_add(bytes) };
        let is_full = after.count > MAX_OF_BUCKET.count || after.bytes > MAX_OF_BUCKET.bytes;
        if total > MAX_BYTES || is_full {
            return None;
        }
        state.bytes = total;
        state.by_bucket.insert(bucket.into(), after);
        Some(WaitingPlace { waiting: self.waiting.clone(), bucket: bucket.into(), bytes })
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let state = &mut *self.waiting.lock();
        state.bytes -= self.bytes;
        if let Some(of_bucket) = state.by_bucket.get_mut(&self.bucket) {
            of_bucket.count -= 1;
            of_bucket.bytes -= self.bytes;
            if of_bucket.count == 0 {
                state.by_bucket.remove(&self.bucket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Acquire<'a> = Pin<Box<dyn Future<Output = Option<GraphGuard>> + 'a>>;

    fn poll(acquire: &mut Acquire<'_>) -> Poll<Option<GraphGuard>> {
        acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_waits_for_the_lock_is_bounded_for_each_user_and_in_all() {
        let lock = GraphLock::default();
        let acquire = |bucket: &'static str, bytes| -> Acquire<'_> { Box::pin(lock.acquire(bucket, bytes)) };
        let Poll::Ready(Some(guard)) = poll(&mut acquire("a", 1)) else { panic!("it is free") };
        let mut waiting: Vec<Acquire<'_>> =
            (0..MAX_OF_BUCKET.count).map(|_| acquire("mallory", 1_000)).collect();
        assert!(waiting.iter_mut().all(|one| poll(one).is_pending()));
        assert!(matches!(poll(&mut acquire("mallory", 1_000)), Poll::Ready(None)));
        let mut large = acquire("bob", 700 << 10);
        assert!(poll(&mut large).is_pending());
        assert!(matches!(poll(&mut acquire("bob", 700 << 10)), Poll::Ready(None)), "bytes count, too");
        waiting.push(large);
        for number in 0.. {
            let bucket: &'static str = Box::leak(format!("u{number}").into());
            let mut one = acquire(bucket, 1 << 20);
            if poll(&mut one).is_ready() {
                assert!((20..32).contains(&number), "{number} MiB");
                break;
            }
            waiting.push(one);
        }
        drop(guard);
        let mut first = waiting.remove(0);
        assert!(matches!(poll(&mut first), Poll::Ready(Some(_))));
        drop(waiting);
        let state = lock.waiting.lock();
        assert!(state.bytes == 0 && state.by_bucket.is_empty());
    }
}
