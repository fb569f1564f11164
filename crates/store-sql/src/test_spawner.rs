//! Spawner on a tokio runtime, for tests of this crate that need its private state.

/// Spawns on this runtime.
pub(crate) struct HandleSpawner(pub(crate) tokio::runtime::Handle);

impl base::Spawner for HandleSpawner {
    fn spawn(&self, _what: &'static str, task: base::BoxFuture<'static, ()>) {
        drop(self.0.spawn(task));
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        drop(self.0.spawn_blocking(job));
    }
}
