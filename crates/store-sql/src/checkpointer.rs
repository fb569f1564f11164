//! Checkpoints of SQLite's write-ahead log on a connection of its own.
//!
//! SQLite copies the log into the database inside the commit that makes the log too long. That commit takes as long as
//! the pages of some hundred transactions need to the disk, and all waiting writes with it. Here most pages are copied
//! meanwhile (`PRAGMA wal_checkpoint(PASSIVE)`), and the writer is left with what was written since the last time.
//!
//! # Pitfalls
//!
//! The log starts again at its beginning only after the writer has found nothing left to copy, so the writer's own
//! `wal_autocheckpoint` must stay on: under steady load it is what bounds the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::Spawner;
use store::StoreError;

use crate::context::SqlContext;
use crate::dialect::ConnectionPool;

/// Time from a commit to the checkpoint, if the last one copied many pages, and otherwise.
const BUSY_DELAY: Duration = Duration::from_millis(250);
const QUIET_DELAY: Duration = Duration::from_secs(1);
/// What many pages are.
const MANY_PAGES: u64 = 1000;

/// The task that writes checkpoints; it ends with [`Checkpointer::close`] or when the value is dropped.
pub(crate) struct Checkpointer {
    context: Arc<SqlContext>,
    pool: ConnectionPool,
    closed: Arc<AtomicBool>,
}

impl Checkpointer {
    pub(crate) fn start(
        pool: ConnectionPool,
        context: Arc<SqlContext>,
        spawner: &dyn Spawner,
    ) -> Checkpointer {
        let closed = Arc::new(AtomicBool::new(false));
        spawner.spawn("store-checkpoints", Box::pin(run(pool.clone(), context.clone(), closed.clone())));
        Checkpointer { context, pool, closed }
    }

    pub(crate) async fn close(&self) {
        self.end();
        self.pool.close().await;
    }

    fn end(&self) {
        self.closed.store(true, Ordering::Release);
        self.context.committed.notify_one();
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.end();
    }
}

async fn run(pool: ConnectionPool, context: Arc<SqlContext>, closed: Arc<AtomicBool>) {
    let (mut delay, mut copied_before) = (QUIET_DELAY, 0);
    loop {
        context.committed.notified().await;
        if closed.load(Ordering::Acquire) {
            return;
        }
        tokio::time::sleep(delay).await;
        if closed.load(Ordering::Acquire) {
            return;
        }
        delay = match checkpoint(&pool, &context).await {
            Ok(copied) => {
                // The count begins again with the journal.
                let new = copied.checked_sub(copied_before).unwrap_or(copied);
                copied_before = copied;
                if new >= MANY_PAGES { BUSY_DELAY } else { QUIET_DELAY }
            }
            // The writer's own checkpoints continue, and report it to a caller if the disk is full.
            Err(_) => QUIET_DELAY,
        };
    }
}

/// Copies what the log contains; returns how many of its pages are copied.
async fn checkpoint(pool: &ConnectionPool, context: &Arc<SqlContext>) -> Result<u64, StoreError> {
    pool.acquire(context).await?.checkpoint().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_spawner::HandleSpawner;
    use crate::{DatabaseOptions, SqlStores};

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn committed_pages_are_copied_while_a_transaction_is_open() {
        let directory = std::env::temp_dir().join(format!("throng-checkpoint-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let url = format!("sqlite:{}", directory.join("throng.db").display());
        let spawner = HandleSpawner(tokio::runtime::Handle::current());
        let clock = Arc::new(base::ManualClock::new());
        let stores = SqlStores::open(&url, &DatabaseOptions::default(), clock, &spawner).await.unwrap();
        let address = jid::Jid::parse("juliet@example.org").unwrap();
        stores.stores().accounts.create(&address, b"x").await.unwrap();

        let mut writing = stores.pools[1].acquire(&stores.context).await.unwrap();
        writing.execute("PRAGMA query_only = 0", &[]).await.unwrap();
        writing.execute("BEGIN IMMEDIATE", &[]).await.unwrap();
        let pages = checkpoint(&stores.checkpointer.pool, &stores.context).await.unwrap();
        assert!(pages > 0, "the account is in the journal");
        writing.execute("ROLLBACK", &[]).await.unwrap();
        writing.discard();

        // The database without its journal has the account.
        let copy = directory.join("copy.db");
        std::fs::copy(directory.join("throng.db"), &copy).unwrap();
        let url = format!("sqlite:{}", copy.display());
        let clock = Arc::new(base::ManualClock::new());
        let copied = SqlStores::open(&url, &DatabaseOptions::default(), clock, &spawner).await.unwrap();
        assert!(copied.stores().accounts.get(address.as_ref()).await.unwrap().is_some());
        copied.close().await;
        stores.close().await;
        std::fs::remove_dir_all(directory).unwrap();
    }
}
