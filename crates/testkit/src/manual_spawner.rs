//! Spawner that runs tasks when the test calls it, in the order in which they were spawned.
//!
//! Not implemented: threads and timers. A test may only wait for the memory store.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use base::spawn::{BoxFuture, Spawner};
use parking_lot::Mutex;

/// Rounds after which a pending task counts as stuck.
const ROUNDS: usize = 1_000;

/// Tasks that wait for [`ManualSpawner::run`].
#[derive(Default)]
pub struct ManualSpawner(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Spawner for ManualSpawner {
    fn spawn(&self, _what: &'static str, task: BoxFuture<'static, ()>) {
        self.0.lock().push(task);
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

impl ManualSpawner {
    /// Runs until every task is complete.
    ///
    /// # Panics
    /// If a task never completes.
    pub fn run(&self) {
        for _ in 0..ROUNDS {
            if self.0.lock().is_empty() {
                return;
            }
            self.step();
        }
        panic!("a task never finishes");
    }

    /// Polls every task once.
    pub fn step(&self) {
        let tasks = std::mem::take(&mut *self.0.lock());
        let mut cx = Context::from_waker(Waker::noop());
        let left: Vec<_> = tasks
            .into_iter()
            .filter_map(|mut t| t.as_mut().poll(&mut cx).is_pending().then_some(t))
            .collect();
        self.0.lock().splice(0..0, left);
    }

    /// Drives one future to completion, together with the spawned tasks.
    ///
    /// # Panics
    /// If it never completes.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..ROUNDS {
            if let Poll::Ready(value) = future.as_mut().poll(&mut cx) {
                return value;
            }
            self.step();
        }
        panic!("a future never finishes");
    }
}
