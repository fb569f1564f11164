//! Spawner that runs tasks when the test calls it, in the order in which they were spawned.
//!
//! Not implemented: threads and timers. A test may only wait for the memory store.

use std::future::Future;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use base::spawn::{BoxFuture, Spawner};

/// Rounds after which a pending task counts as stuck.
const ROUNDS: usize = 1_000;
/// Rounds after which a task that may wait for clients counts as waiting.
const ROUNDS_TO_WAIT: usize = 16;

/// Tasks that wait for [`ManualSpawner::run`].
#[derive(Default)]
pub struct ManualSpawner {
    tasks: LeafMutex<Vec<BoxFuture<'static, ()>>>,
    may_wait: bool,
}

impl Spawner for ManualSpawner {
    fn spawn(&self, _what: &'static str, task: BoxFuture<'static, ()>) {
        self.tasks.lock().push(task);
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

impl ManualSpawner {
    /// A spawner whose tasks may wait until a client reads: [`ManualSpawner::run`] leaves them.
    pub fn for_waiting_tasks() -> ManualSpawner {
        ManualSpawner { may_wait: true, ..ManualSpawner::default() }
    }

    /// Whether tasks may wait until a client reads.
    pub(crate) fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Runs until every task is complete, or waits for a client if it may.
    ///
    /// # Panics
    /// If a task that may not wait never completes.
    pub fn run(&self) {
        for _ in 0..if self.may_wait { ROUNDS_TO_WAIT } else { ROUNDS } {
            if self.is_idle() {
                return;
            }
            self.step();
        }
        assert!(self.may_wait, "a task never finishes");
    }

    /// Whether no task is left.
    pub fn is_idle(&self) -> bool {
        self.tasks.lock().is_empty()
    }

    /// Polls every task once.
    pub fn step(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let mut cx = Context::from_waker(Waker::noop());
        let left: Vec<_> = tasks
            .into_iter()
            .filter_map(|mut t| t.as_mut().poll(&mut cx).is_pending().then_some(t))
            .collect();
        self.tasks.lock().splice(0..0, left);
    }

    /// Drops every task, as a runtime does that stops.
    pub fn drop_tasks(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        drop(tasks);
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
