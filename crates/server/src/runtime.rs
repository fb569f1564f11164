//! Tokio runtime: worker threads for sockets, a few more for blocking work and for files, and the spawner that the crates use.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use anyhow::{Context as _, Result};
use base::spawn::{BoxFuture, Spawner};
use tokio::runtime::{Builder, Handle, Runtime};

/// Starts the runtime with one worker per core.
pub(crate) fn start() -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Builder::new_multi_thread()
        .worker_threads(cores)
        // Password hashing must not take the cores away from the workers.
        .max_blocking_threads(cores.max(2))
        .enable_all()
        .build()
        .context("cannot start the threads of the runtime")
}

/// Threads for files of features, apart from those of the runtime: a slow disk must delay neither logins nor deadlines.
pub(crate) struct DiskThreads(Option<Runtime>);

impl DiskThreads {
    /// Threads are started when there is work.
    const MAX: usize = 4;

    /// Prepares the threads.
    pub(crate) fn start() -> Result<DiskThreads> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(DiskThreads::MAX)
            .thread_name("disk")
            .build()
            .context("cannot start the threads of the disk")?;
        Ok(DiskThreads(Some(runtime)))
    }

    /// Runs blocking work as long as these threads exist, and nothing afterwards.
    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for DiskThreads {
    fn drop(&mut self) {
        // Without waiting: it may be dropped by a task.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Spawns tasks on the runtime and counts those that run. Clones share the count.
#[derive(Clone)]
pub(crate) struct TokioSpawner {
    pub(crate) handle: Handle,
    running: Arc<AtomicUsize>,
}

impl TokioSpawner {
    /// A spawner without tasks.
    pub(crate) fn new(handle: Handle) -> Self {
        Self { handle, running: Arc::default() }
    }

    /// Whether a task runs. A task that spawns another one counts until both have ended.
    pub(crate) fn is_busy(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }
}

impl Spawner for TokioSpawner {
    fn spawn(&self, what: &'static str, task: BoxFuture<'static, ()>) {
        self.running.fetch_add(1, Ordering::Relaxed);
        let running = RunningTask(self.running.clone());
        drop(self.handle.spawn(CatchPanic { what, task, _running: running }));
    }

    fn spawn_blocking(&self, what: &'static str, job: Box<dyn FnOnce() + Send>) {
        let watched = move || {
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!(what, "a job panicked");
            }
        };
        drop(self.handle.spawn_blocking(watched));
    }
}

/// Catches and logs a panic of its task: the task is the unit of failure. A second task that waits for the first
/// would do the same, at the cost of another allocation per task.
struct CatchPanic {
    what: &'static str,
    task: BoxFuture<'static, ()>,
    /// Declared last: the task is dropped before it stops to count.
    _running: RunningTask,
}

/// Counts a task until it is dropped.
struct RunningTask(Arc<AtomicUsize>);

impl Drop for RunningTask {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Future for CatchPanic {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let what = self.what;
        // It is dropped after a panic, never polled again.
        catch_unwind(AssertUnwindSafe(|| self.task.as_mut().poll(cx))).unwrap_or_else(|_| {
            tracing::error!(what, "a task panicked");
            Poll::Ready(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_the_disk_does_not_use_the_threads_of_the_runtime() {
        let (runtime, disk) = (start().unwrap(), DiskThreads::start().unwrap());
        let (release, hold) = std::sync::mpsc::sync_channel::<()>(0);
        let hold = std::sync::Arc::new(base::lock::LeafMutex::new(hold));
        let held: Vec<_> = (0..DiskThreads::MAX + 1)
            .map(|_| {
                let hold = hold.clone();
                disk.handle().spawn_blocking(move || {
                    let _ = hold.lock().recv();
                })
            })
            .collect();
        let other = runtime.block_on(async { Handle::current().spawn_blocking(|| 1).await.unwrap() });
        assert_eq!(other, 1, "the disk hangs");
        drop(release);
        runtime.block_on(async {
            for one in held {
                one.await.unwrap();
            }
        });
    }

    #[test]
    fn a_panic_ends_its_own_task_only() {
        let runtime = start().unwrap();
        let tasks = TokioSpawner::new(runtime.handle().clone());
        let (sender, receiver) = std::sync::mpsc::sync_channel(2);
        tasks.spawn("one that fails", Box::pin(async { panic!("as it should") }));
        tasks.spawn_blocking("another one", Box::new(|| panic!("as it should")));
        let other = sender.clone();
        tasks.spawn("one that works", Box::pin(async move { other.send(1).unwrap() }));
        tasks.spawn_blocking("one that works", Box::new(move || sender.send(2).unwrap()));
        let mut all = [receiver.recv().unwrap(), receiver.recv().unwrap()];
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    }

    #[test]
    fn a_task_counts_until_it_and_those_that_it_spawned_have_ended() {
        let runtime = start().unwrap();
        let tasks = TokioSpawner::new(runtime.handle().clone());
        assert!(!tasks.is_busy());
        let (release, released) = tokio::sync::oneshot::channel::<()>();
        let inner = tasks.clone();
        tasks.spawn(
            "outer",
            Box::pin(async move { inner.spawn("inner", Box::pin(async { drop(released.await) })) }),
        );
        assert!(tasks.clone().is_busy());
        drop(release);
        while tasks.is_busy() {
            std::thread::yield_now();
        }
    }
}
