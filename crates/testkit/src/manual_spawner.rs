//! Spawner that runs tasks when the test calls it, in the order in which they were spawned.
//!
//! Not implemented: threads and timers. A test may only wait for the memory store.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use base::lock::LeafMutex;
use base::spawn::{BoxFuture, Spawner};

/// Rounds after which a pending task counts as stuck.
const ROUNDS: usize = 1_000;
/// Rounds after which a task that may wait for clients counts as waiting.
const ROUNDS_TO_WAIT: usize = 16;

/// Names of tasks that live as long as their state and wait for messages in between: they are complete while nothing wakes
/// them.
const LONG_LIVED: [&str; 2] = ["room", "pubsub-node"];

/// Tasks that wait for [`ManualSpawner::run`].
#[derive(Default)]
pub struct ManualSpawner {
    tasks: LeafMutex<Vec<ManualTask>>,
    may_wait: bool,
}

struct ManualTask {
    future: BoxFuture<'static, ()>,
    is_long_lived: bool,
    woken: Arc<WokenFlag>,
}

/// Whether a task was woken since it was polled.
struct WokenFlag(AtomicBool);

impl Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl ManualTask {
    fn poll(&mut self) -> Poll<()> {
        self.woken.0.store(false, Ordering::Relaxed);
        let waker = Waker::from(self.woken.clone());
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Whether it only waits for messages.
    fn is_resting(&self) -> bool {
        self.is_long_lived && !self.woken.0.load(Ordering::Relaxed)
    }
}

impl Spawner for ManualSpawner {
    fn spawn(&self, what: &'static str, task: BoxFuture<'static, ()>) {
        let woken = Arc::new(WokenFlag(AtomicBool::new(true)));
        let is_long_lived = LONG_LIVED.contains(&what);
        self.tasks.lock().push(ManualTask { future: task, is_long_lived, woken });
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

    /// Whether no task is left, except for those that wait for messages.
    pub fn is_idle(&self) -> bool {
        self.tasks.lock().iter().all(ManualTask::is_resting)
    }

    /// Polls every task once.
    pub fn step(&self) {
        let tasks = std::mem::take(&mut *self.tasks.lock());
        let left: Vec<_> =
            tasks.into_iter().filter_map(|mut task| task.poll().is_pending().then_some(task)).collect();
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
