//! A semaphore: a bounded number of tasks has a permit at the same time, and a bounded number of others waits in the order of
//! their requests. A permit that is returned passes to the first of them.

use std::collections::VecDeque;
use std::sync::Arc;

use base::lock::LeafMutex;

use crate::answer_channel::{AnswerSender, answer_channel};

struct SemaphoreState {
    active: usize,
    waiting: VecDeque<AnswerSender<SemaphorePermit>>,
}

struct SharedSemaphore {
    permits: usize,
    max_waiting: usize,
    state: LeafMutex<SemaphoreState>,
}

/// Permits of one kind. Clones share them.
#[derive(Clone)]
pub struct Semaphore(Arc<SharedSemaphore>);

/// A permit of a [`Semaphore`]. Returned when it is dropped.
pub struct SemaphorePermit(Semaphore);

impl Semaphore {
    /// This number of permits, for which this number of tasks may wait.
    pub fn new(permits: usize, max_waiting: usize) -> Semaphore {
        let state = LeafMutex::new(SemaphoreState { active: 0, waiting: VecDeque::new() });
        Semaphore(Arc::new(SharedSemaphore { permits, max_waiting, state }))
    }

    /// Waits for a permit; `None`: too many tasks wait.
    pub async fn acquire(&self) -> Option<SemaphorePermit> {
        let receiver = {
            let mut state = self.0.state.lock();
            if state.active < self.0.permits {
                state.active += 1;
                return Some(SemaphorePermit(self.clone()));
            }
            if state.waiting.len() >= self.0.max_waiting {
                return None;
            }
            let (sender, receiver) = answer_channel();
            state.waiting.push_back(sender);
            receiver
        };
        receiver.receive().await
    }
}

impl Drop for SemaphorePermit {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.0.state.lock();
            let next = state.waiting.pop_front();
            if next.is_none() {
                state.active -= 1;
            }
            next
        };
        // A receiver that is gone drops the permit, which passes it on.
        if let Some(next) = next {
            next.send(SemaphorePermit(self.0.clone()));
        }
    }
}

impl std::fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.0.state.lock();
        write!(f, "Semaphore({} of {} active, {} waiting)", state.active, self.0.permits, state.waiting.len())
    }
}

impl std::fmt::Debug for SemaphorePermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SemaphorePermit")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    type Acquire = Pin<Box<dyn Future<Output = Option<SemaphorePermit>>>>;

    fn acquire(semaphore: &Semaphore) -> Acquire {
        let semaphore = semaphore.clone();
        Box::pin(async move { semaphore.acquire().await })
    }

    fn poll(acquire: &mut Acquire) -> Poll<Option<SemaphorePermit>> {
        acquire.as_mut().poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn permits_pass_in_the_order_of_requests() {
        let semaphore = Semaphore::new(2, 3);
        let mut active: Vec<_> = (0..2).map(|_| poll(&mut acquire(&semaphore))).collect();
        assert!(active.iter().all(|one| matches!(one, Poll::Ready(Some(_)))));
        let mut waiting: Vec<Acquire> = (0..3).map(|_| acquire(&semaphore)).collect();
        assert!(waiting.iter_mut().all(|one| poll(one).is_pending()));
        assert!(matches!(poll(&mut acquire(&semaphore)), Poll::Ready(None)), "bounded");
        // One that does not wait any more takes no permit.
        drop(waiting.remove(0));
        active.pop();
        // A task that comes later is behind those that wait.
        let mut late = acquire(&semaphore);
        assert!(poll(&mut late).is_pending() && poll(&mut waiting[1]).is_pending());
        assert!(matches!(poll(&mut waiting[0]), Poll::Ready(Some(_))), "and returned at once");
        assert!(matches!(poll(&mut waiting[1]), Poll::Ready(Some(_))));
        assert!(matches!(poll(&mut late), Poll::Ready(Some(_))));
        active.clear();
        assert_eq!(format!("{semaphore:?}"), "Semaphore(0 of 2 active, 0 waiting)");
    }
}
