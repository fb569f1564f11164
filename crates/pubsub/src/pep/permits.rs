//! Permits of tasks: a bounded number of them does something at the same time, and the others wait in their order.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use base::lock::LeafMutex;

#[derive(Default)]
struct PermitState {
    active: usize,
    waiting: VecDeque<Waker>,
}

/// Permits of one kind.
pub(super) struct Permits {
    max: usize,
    state: LeafMutex<PermitState>,
}

/// Permission of a task; it ends when it is dropped.
pub(super) struct TaskPermit(Arc<Permits>);

impl Permits {
    /// This number of permits at the same time.
    pub(super) fn new(max: usize) -> Arc<Permits> {
        Arc::new(Permits { max, state: LeafMutex::default() })
    }

    /// Waits until there is one.
    pub(super) async fn acquire(self: &Arc<Self>) -> TaskPermit {
        poll_fn(|cx| {
            let mut state = self.state.lock();
            if state.active < self.max {
                state.active += 1;
                return Poll::Ready(());
            }
            state.waiting.push_back(cx.waker().clone());
            Poll::Pending
        })
        .await;
        TaskPermit(self.clone())
    }
}

impl Drop for TaskPermit {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.state.lock();
            state.active -= 1;
            state.waiting.pop_front()
        };
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Context;

    #[test]
    fn tasks_wait_for_each_other() {
        let permits = Permits::new(3);
        let permit = || {
            let mut waits = Box::pin(permits.acquire());
            match waits.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(permit) => Some(permit),
                Poll::Pending => None,
            }
        };
        let mut active: Vec<TaskPermit> = (0..3).map(|_| permit().unwrap()).collect();
        assert!(permit().is_none());
        active.pop();
        assert!(permit().is_some());
    }
}
