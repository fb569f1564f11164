//! Checkpoints of SQLite's write-ahead log on a connection of its own.
//!
//! SQLite copies the log into the database inside the commit that makes the log too long. That commit takes as long as
//! the pages of some hundred transactions need to the disk, and all waiting writes with it. Here most pages are copied
//! meanwhile (`PRAGMA wal_checkpoint(PASSIVE)`), and the writer is left with what was written since the last time.
//!
//! # Pitfalls
//!
//! The log starts again at its beginning only after the writer has found nothing left to copy, so the writer's own
//! `wal_autocheckpoint` must stay on: under steady load it is what bounds the log. Commits wait for that one, so the log is
//! copied at short intervals when it is near its end, and little is left.

use std::sync::Arc;
use std::time::Duration;

use base::Spawner;
use store::StoreError;
use tokio::sync::Notify;

use crate::context::SqlContext;
use crate::dialect::ConnectionPool;
use crate::dialect::sqlite::CHECKPOINT_PAGES;

/// Time from a commit to the checkpoint on an idle server.
const IDLE_DELAY: Duration = Duration::from_secs(1);
/// The same after a checkpoint that copied many pages.
const LOADED_DELAY: Duration = Duration::from_millis(100);
/// The same under load when the log is about to start again.
const NEAR_END_DELAY: Duration = Duration::from_millis(20);
/// Pages copied by one checkpoint from which the server counts as loaded.
const MANY_PAGES: u64 = 200;
/// Pages copied by one checkpoint that are worth a short delay near the end of the log, so that an idle server with a long log writes at most
/// one checkpoint a second.
const FEW_PAGES: u64 = 16;
/// Pages of the log from which its end is near.
const NEAR_END: u64 = CHECKPOINT_PAGES as u64 * 3 / 4;

/// The task that writes checkpoints; it ends with [`Checkpointer::close`] or when the value is dropped.
pub(crate) struct Checkpointer {
    context: Arc<SqlContext>,
    pool: ConnectionPool,
    closing: Arc<Notify>,
}

impl Checkpointer {
    pub(crate) fn start(
        pool: ConnectionPool,
        context: Arc<SqlContext>,
        spawner: &dyn Spawner,
    ) -> Checkpointer {
        let closing = Arc::<Notify>::default();
        spawner.spawn("store-checkpoints", Box::pin(run(pool.clone(), context.clone(), closing.clone())));
        Checkpointer { context, pool, closing }
    }

    pub(crate) async fn close(&self) {
        self.end();
        self.pool.close().await;
    }

    fn end(&self) {
        self.closing.notify_one();
        // It waits for a commit first.
        self.context.committed.notify_one();
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.end();
    }
}

async fn run(pool: ConnectionPool, context: Arc<SqlContext>, closing: Arc<Notify>) {
    let (mut delay, mut copied_before) = (IDLE_DELAY, 0);
    loop {
        context.committed.notified().await;
        if tokio::time::timeout(delay, closing.notified()).await.is_ok() {
            return;
        }
        delay = match checkpoint(&pool, &context).await {
            Ok(copied) => {
                let delay = delay_after(copied, copied_before);
                copied_before = copied;
                delay
            }
            // The writer's own checkpoints continue, and report it to a caller if the disk is full.
            Err(_) => IDLE_DELAY,
        };
    }
}

/// The delay after a checkpoint, by the pages of the log that are copied after it and were before it.
fn delay_after(copied: u64, copied_before: u64) -> Duration {
    // The count begins again with the log.
    let new = copied.checked_sub(copied_before).unwrap_or(copied);
    if copied >= NEAR_END && new >= FEW_PAGES {
        NEAR_END_DELAY
    } else if new >= MANY_PAGES {
        LOADED_DELAY
    } else {
        IDLE_DELAY
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

    #[test]
    fn the_log_is_copied_at_short_intervals_only_near_its_end_and_under_load() {
        let near = NEAR_END;
        for (copied_before, copied, delay) in [
            (0, 0, IDLE_DELAY),
            (0, MANY_PAGES - 1, IDLE_DELAY),
            (0, MANY_PAGES, LOADED_DELAY),
            (near - 20, near, NEAR_END_DELAY),
            (near, near + MANY_PAGES, NEAR_END_DELAY),
            // One commit a second on a long log.
            (near, near + FEW_PAGES - 1, IDLE_DELAY),
            // The log has started again.
            (near + 4000, MANY_PAGES, LOADED_DELAY),
            (near + 4000, 20, IDLE_DELAY),
        ] {
            assert_eq!(delay_after(copied, copied_before), delay, "from {copied_before} to {copied}");
        }
    }

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
        let pages = checkpoint(&stores.checkpointer.as_ref().unwrap().pool, &stores.context).await.unwrap();
        assert!(pages > 0, "the account is in the log");
        writing.execute("ROLLBACK", &[]).await.unwrap();
        writing.discard();

        // The database without its log has the account.
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
