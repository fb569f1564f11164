//! The runtime: worker threads for sockets, a few more for what may block, and the spawner that the crates see.

use anyhow::{Context, Result};
use base::spawn::{BoxFuture, Spawner};
use tokio::runtime::{Builder, Handle, Runtime};

/// Starts the runtime: a worker a core.
pub(crate) fn start() -> Result<Runtime> {
    let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    Builder::new_multi_thread()
        .worker_threads(cores)
        // Password hashing must not take the cores away from the workers.
        .max_blocking_threads(cores.max(2))
        .enable_all()
        .build()
        .context("the threads of the runtime cannot be started")
}

/// Tasks on the runtime.
#[derive(Clone)]
pub(crate) struct Tasks(pub(crate) Handle);

impl Spawner for Tasks {
    fn spawn(&self, what: &'static str, task: BoxFuture<'static, ()>) {
        let handle = self.0.spawn(task);
        // A panic is logged by whoever watches; the task is the unit of failure.
        self.0.spawn(async move {
            if let Err(error) = handle.await
                && error.is_panic()
            {
                tracing::error!(what, "a task panicked");
            }
        });
    }
    fn blocking(&self, what: &'static str, job: Box<dyn FnOnce() + Send>) {
        let handle = self.0.spawn_blocking(job);
        self.0.spawn(async move {
            if let Err(error) = handle.await
                && error.is_panic()
            {
                tracing::error!(what, "a job panicked");
            }
        });
    }
}
