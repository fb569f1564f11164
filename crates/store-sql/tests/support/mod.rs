//! Test support: a database in its own directory, and the runtime that its tasks need.
#![allow(dead_code, unreachable_pub, reason = "shared by several test programs, each using a part")]
#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]

pub mod contents;
pub mod load;
pub mod servers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{BoxFuture, Clock, ManualClock, Spawner};
use store::StoreError;
use store::conformance::{Backend, Case, Fixture};
use throng_store_sql::{DatabaseOptions, SqlStores};
use tokio::runtime::{Builder, Handle, Runtime};

/// Spawns on a tokio runtime.
pub struct SqliteTestSpawner(pub Handle);

impl Spawner for SqliteTestSpawner {
    fn spawn(&self, _what: &'static str, task: BoxFuture<'static, ()>) {
        drop(self.0.spawn(task));
    }

    fn spawn_blocking(&self, _what: &'static str, job: Box<dyn FnOnce() + Send>) {
        drop(self.0.spawn_blocking(job));
    }
}

/// A directory that is removed when the value is dropped.
pub struct TempDir(pub PathBuf);

impl TempDir {
    pub fn new() -> TempDir {
        let path = std::env::temp_dir().join(format!("throng-store-{}", base::id::random_id()));
        std::fs::create_dir(&path).unwrap();
        TempDir(path)
    }

    pub fn file(&self) -> PathBuf {
        self.0.join("throng.db")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub async fn open(file: &Path, options: &DatabaseOptions) -> Result<Arc<SqlStores>, StoreError> {
    open_at(file, options, Arc::new(ManualClock::new())).await
}

pub async fn open_at(
    file: &Path,
    options: &DatabaseOptions,
    clock: Arc<dyn Clock>,
) -> Result<Arc<SqlStores>, StoreError> {
    let url = format!("sqlite:{}", file.display());
    SqlStores::open(&url, options, clock, &SqliteTestSpawner(Handle::current())).await
}

/// A fresh SQLite database for each case.
pub struct SqliteBackend;

impl Backend for SqliteBackend {
    fn run(case: Case) {
        let directory = TempDir::new();
        runtime().block_on(async {
            let clock = Arc::new(ManualClock::new());
            let database =
                open_at(&directory.file(), &DatabaseOptions::default(), clock.clone()).await.unwrap();
            case(Fixture { stores: database.stores(), clock }).await;
            database.close().await;
        });
    }
}
