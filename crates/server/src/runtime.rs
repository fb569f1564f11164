//! Tokio runtime: worker threads for sockets, others for passwords, for files and for the remaining blocking work, and the
//! spawner that the crates use.

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
    Builder::new_multi_thread()
        .worker_threads(cores())
        // Host names are looked up here. A name server that is dead holds each thread for half a minute.
        .max_blocking_threads(512)
        .enable_all()
        .build()
        .context("cannot start the threads of the runtime")
}

pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}

/// Threads for one kind of blocking work, apart from those of the runtime. They are started when there is work.
pub(crate) struct BlockingThreads(Option<Runtime>);

impl BlockingThreads {
    /// Most threads for files.
    const DISK: usize = 4;

    /// For files of features: a slow disk must delay neither logins nor deadlines.
    pub(crate) fn disk() -> Result<BlockingThreads> {
        BlockingThreads::start("disk", BlockingThreads::DISK)
    }

    /// For passwords of accounts in the store. Hashing must not take the cores away from the workers, and nothing that waits
    /// may take these threads away from the hashing.
    pub(crate) fn passwords() -> Result<BlockingThreads> {
        BlockingThreads::start("passwords", cores().max(2))
    }

    fn start(name: &'static str, most: usize) -> Result<BlockingThreads> {
        let runtime = Builder::new_current_thread()
            .max_blocking_threads(most)
            .thread_name(name)
            .build()
            .with_context(|| format!("cannot start the threads \"{name}\""))?;
        Ok(BlockingThreads(Some(runtime)))
    }

    /// Runs blocking work as long as these threads exist, and nothing afterwards.
    pub(crate) fn handle(&self) -> Handle {
        self.0.as_ref().map_or_else(Handle::current, |runtime| runtime.handle().clone())
    }
}

impl Drop for BlockingThreads {
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
    /// Whose threads do blocking work.
    blocking: Handle,
    running: Arc<AtomicUsize>,
}

impl TokioSpawner {
    /// A spawner without tasks.
    pub(crate) fn new(handle: Handle) -> Self {
        Self { blocking: handle.clone(), handle, running: Arc::default() }
    }

    /// The same with other threads for blocking work.
    #[must_use]
    pub(crate) fn with_blocking_threads(self, threads: &BlockingThreads) -> Self {
        Self { blocking: threads.handle(), ..self }
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
        drop(self.blocking.spawn_blocking(watched));
    }

    fn pause(&self, millis: u64) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(std::time::Duration::from_millis(millis)))
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
        let (runtime, disk) = (start().unwrap(), BlockingThreads::disk().unwrap());
        let (release, hold) = std::sync::mpsc::sync_channel::<()>(0);
        let hold = std::sync::Arc::new(base::lock::LeafMutex::new(hold));
        let held: Vec<_> = (0..BlockingThreads::DISK + 1)
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
    fn host_names_that_are_not_found_delay_no_password() {
        let (runtime, threads) = (start().unwrap(), BlockingThreads::passwords().unwrap());
        let tasks = TokioSpawner::new(runtime.handle().clone()).with_blocking_threads(&threads);
        let (release, hold) = std::sync::mpsc::sync_channel::<()>(0);
        let hold = std::sync::Arc::new(base::lock::LeafMutex::new(hold));
        let held: Vec<_> = (0..4 * cores())
            .map(|_| {
                let hold = hold.clone();
                // What `TcpStream::connect` does with a name.
                runtime.spawn_blocking(move || {
                    let _ = hold.lock().recv();
                })
            })
            .collect();
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        tasks.spawn_blocking("password", Box::new(move || sender.send(()).unwrap()));
        receiver.recv_timeout(std::time::Duration::from_secs(30)).unwrap();
        let keys = crate::passwords::ScramKeyDeriver::new(4096, threads.handle());
        let derived = throng_core::Passwords::derive(&*keys, base::Secret::from("correct horse"));
        assert!(runtime.block_on(derived).is_ok());
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
