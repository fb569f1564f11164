//! Storage in SQL databases: SQLite, PostgreSQL and MySQL or MariaDB, with one set of statements.
//!
//! Reads come from a pool; logins are batched (`login_batcher`); every write goes through a bounded queue and is
//! answered when its transaction is on the disk (`writer`), except logout times (`last_seen_writer`). Reads have
//! deadlines, and so has the time that a write waits for its turn.
//!
//! A new kind of data is a file in `tables/` that implements its trait, with its line in `tables!` there, and a migration
//! for each database. A new database is a file in `dialect/`, a variant in the enums there and in
//! `location`, and its migrations.
//!
//! Not implemented: reading from replicas.
//!
//! # Pitfalls
//!
//! Read connections refuse to write, so a statement that changes anything must be sent through the writer. Several
//! nodes write at the same time: what a write reads before it decides must belong to an account that it names as its
//! [`writer::Owner`], whose row is locked.

mod backup;
mod batch_receiver;
mod checkpointer;
mod context;
mod dialect;
mod error;
mod foreign_database;
mod inspect;
mod last_seen_writer;
mod location;
mod login_batcher;
mod migrate;
mod options;
#[cfg(test)]
mod plan_tests;
mod pool_keeper;
mod room_affiliation_migration;
mod roster_label;
mod subscription_cleaner;
mod tables;
#[cfg(test)]
mod test_spawner;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::count::Histogram;
use base::{Clock, Spawner};
use checkpointer::Checkpointer;
use context::SqlContext;
use dialect::sqlite;
use dialect::{ConnectionPool, PoolLimits};
use last_seen_writer::LastSeenWriter;
use location::Location;
use login_batcher::LoginBatcher;
use pool_keeper::PoolKeeper;
use store::{StoreError, StoreErrorKind, StoreFuture, Stores};
use subscription_cleaner::SubscriptionCleaner;
use tokio::sync::Semaphore;
use writer::{ReadFn, TransactionWriter};

pub use backup::backup;
pub use dialect::PoolStats;
pub use foreign_database::{ForeignDatabase, ForeignDatabaseOptions, is_duplicate_key, refusal_code};
pub use inspect::{DatabaseState, inspect, pending_migrations};
pub use location::Encryption;
pub use options::DatabaseOptions;

/// The file of a database URL; `None` for a database on a server.
///
/// # Errors
/// `Setup` with one sentence when the URL is wrong.
pub fn database_path(url: &str) -> Result<Option<PathBuf>, StoreError> {
    Ok(Location::parse(url)?.path().map(Path::to_owned))
}

/// The database of a URL in messages, without a password: "the PostgreSQL database chat at db.example:5432".
///
/// # Errors
/// `Setup` with one sentence when the URL is wrong.
pub fn database_name(url: &str) -> Result<String, StoreError> {
    Ok(Location::parse(url)?.shown())
}

/// Whether two URLs name the same database, as far as they tell.
///
/// # Errors
/// `Setup` with one sentence when one of them is wrong.
pub fn is_same_database(one: &str, other: &str) -> Result<bool, StoreError> {
    Ok(Location::parse(one)?.is_same(&Location::parse(other)?))
}

/// Whether a database URL has a password.
pub fn has_password(url: &str) -> bool {
    Location::has_password(url)
}

/// How connections to the database of a URL are encrypted, and the parameters of such a URL that require it.
///
/// # Errors
/// `Setup` with one sentence when the URL is wrong.
pub fn encryption(url: &str) -> Result<(Encryption, &'static str), StoreError> {
    let location = Location::parse(url)?;
    Ok((location.encryption(), location.encryption_parameters()))
}

/// Large rosters that are read for logins at a time, of at most [`store::roster::MAX_ROSTER_BYTES`] each.
const CONCURRENT_LARGE_ROSTERS: usize = 2;

/// User searches that run at a time. One search is bounded by its steps; without a bound on their number one account
/// with many resources would keep all read connections busy.
const MAX_CONCURRENT_SEARCHES: u32 = 2;

/// Searches that run or wait. More fail with `Overloaded` at once: they would wait longer than the read deadline.
const MAX_QUEUED_SEARCHES: usize = 1_000;

/// Concurrent searches for a pool of this size: at least one connection is left to other reads if there are two.
fn concurrent_searches(pool_size: u32) -> usize {
    MAX_CONCURRENT_SEARCHES.min(pool_size.saturating_sub(1)).max(1) as usize
}

/// A database that implements all storage traits.
pub struct SqlStores {
    location: Location,
    context: Arc<SqlContext>,
    pools: [ConnectionPool; 3],
    /// For SQLite.
    checkpointer: Option<Checkpointer>,
    /// For a server.
    pool_keeper: Option<PoolKeeper>,
    writer: Arc<TransactionWriter>,
    last_seen_writer: LastSeenWriter,
    subscription_cleaner: SubscriptionCleaner,
    login_batcher: LoginBatcher,
    /// Permits for reading large rosters.
    large_roster_permits: Semaphore,
    /// Permits for user searches.
    search_permits: Semaphore,
    /// Searches that run or wait.
    searches_queued: AtomicUsize,
    reads_queued: AtomicUsize,
    max_reads_queued: usize,
    read_deadline: Duration,
}

impl SqlStores {
    /// Opens a database, creates it if it is missing and the options allow that, and migrates its schema.
    ///
    /// `url` is `sqlite:PATH`, `postgres://…` or `mysql://…`. The tasks of the database run on `spawner`, which must be a tokio runtime's; they end
    /// with [`SqlStores::close`] or when the value is dropped.
    ///
    /// # Errors
    /// `Setup` with one sentence when the address is wrong, the directory is missing, the file is no database or one
    /// of another program, or its schema is newer than this program; `Conflict` when another program holds it locked.
    pub async fn open(
        url: &str,
        options: &DatabaseOptions,
        clock: Arc<dyn Clock>,
        spawner: &dyn Spawner,
    ) -> Result<Arc<SqlStores>, StoreError> {
        let location = Location::parse(url)?.with_password_file(options.password_file.as_deref())?;
        if let Some(path) = location.path() {
            sqlite::ensure_usable(path, options.create)?;
        }
        let writing = location.writing_pool(options, "write");
        let kept = if location.path().is_some() { 0 } else { options.min_connections };
        let reads = PoolLimits::at_most(options.pool_size).with_min(kept);
        let reading = location.reading_pool(options, "read", reads);
        let logins = location.reading_pool(options, "login", PoolLimits::exactly(options.login_connections));
        let context = SqlContext::new(location.dialect(), clock);

        let shown = location.shown();
        let about =
            |error: StoreError| StoreError::new(error.kind, format!("cannot use {shown}")).with_source(error);
        let mut conn = writing.acquire_now(&context).await.map_err(about)?;
        migrate::migrate(&mut conn, &shown).await.map_err(|error| match error.kind {
            StoreErrorKind::Setup if error.message().starts_with(&shown) => error,
            _ => about(error),
        })?;
        let has_removed = tables::pubsub::has_removed(&mut conn).await.map_err(about)?;
        drop(conn);
        let pools = [writing, reading, logins];
        let pool_keeper = match location.path() {
            Some(_) => None,
            None => Some(PoolKeeper::start(&pools, spawner, options).await),
        };
        let [writing, _, logins] = &pools;

        let writer = Arc::new(TransactionWriter::start(
            writing,
            &context,
            spawner,
            options,
            location.writers(options),
        ));
        let subscription_cleaner = SubscriptionCleaner::start(writer.clone(), spawner);
        if has_removed {
            subscription_cleaner.wake();
        }
        Ok(Arc::new(SqlStores {
            subscription_cleaner,
            last_seen_writer: LastSeenWriter::start(
                writer.clone(),
                spawner,
                options.last_seen_flush_interval,
            ),
            writer,
            checkpointer: location
                .checkpoint_pool(options)
                .map(|pool| Checkpointer::start(pool, context.clone(), spawner)),
            login_batcher: LoginBatcher::start(logins.clone(), context.clone(), spawner, options),
            pool_keeper,
            pools,
            context,
            large_roster_permits: Semaphore::new(CONCURRENT_LARGE_ROSTERS),
            search_permits: Semaphore::new(concurrent_searches(options.pool_size)),
            searches_queued: AtomicUsize::new(0),
            location,
            reads_queued: AtomicUsize::new(0),
            max_reads_queued: options.max_queued,
            read_deadline: options.read_deadline,
        }))
    }

    /// The database file, if the database is a file.
    pub fn path(&self) -> Option<&Path> {
        self.location.path()
    }

    /// All storage traits as the bundle that the server passes around.
    pub fn stores(self: &Arc<Self>) -> Stores {
        Stores::from_backend(self.clone())
    }

    /// Statements of any kind sent to the database since it was opened. A login counts at most two.
    pub fn round_trips(&self) -> u64 {
        self.context.round_trips.load(Ordering::Relaxed)
    }

    /// Transactions that the writer has committed; under concurrent writes far fewer than requests.
    pub fn commits(&self) -> u64 {
        self.context.commits.load(Ordering::Relaxed)
    }

    /// Transactions that ran again after a conflict or a lost connection.
    pub fn write_retries(&self) -> u64 {
        self.context.write_retries.load(Ordering::Relaxed)
    }

    /// Current waiting times and queue sizes.
    pub fn stats(&self) -> DatabaseStats {
        let (writes_waiting, write_bytes) = self.writer.queue_depth();
        DatabaseStats {
            pools: self.pools.each_ref().map(ConnectionPool::stats),
            writes_waiting,
            write_bytes,
            logins_waiting: self.login_batcher.queue_depth(),
            reads: self.reads_queued.load(Ordering::Relaxed),
            commit_time: self.context.commit_time.clone(),
            commit_size: self.context.commit_size.clone(),
        }
    }

    /// Finishes pending writes and closes all connections. Later calls fail with `Unavailable`.
    pub async fn close(&self) {
        let [_, reading, logins] = &self.pools;
        reading.stop_waiting();
        logins.stop_waiting();
        self.subscription_cleaner.close();
        self.last_seen_writer.close().await;
        self.writer.close().await;
        self.login_batcher.close().await;
        if let Some(checkpointer) = &self.checkpointer {
            checkpointer.close().await;
        }
        if let Some(keeper) = &self.pool_keeper {
            keeper.close();
        }
        // The writing connection last: the last one to close checkpoints the write-ahead log into the file.
        for pool in self.pools.iter().rev() {
            pool.close().await;
        }
    }

    /// Reads on any free connection.
    fn read<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        args: A,
        work: ReadFn<A, T>,
    ) -> StoreFuture<'_, T> {
        self.read_with_permit(None, args, work)
    }

    /// Runs a user search: like [`Self::read`], a few at a time. The deadline includes the wait.
    fn read_search<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        args: A,
        work: ReadFn<A, T>,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let _slot = QueueSlot::acquire(&self.searches_queued, MAX_QUEUED_SEARCHES)?;
            self.read_with_permit(Some(&self.search_permits), args, work).await
        })
    }

    /// Reads on any free connection. A permit of `few` is acquired first, so that a call waiting for one holds no
    /// connection. A read whose connection was lost runs once more: the server may have been restarted since the connection
    /// was used last.
    fn read_with_permit<'a, A: Send + Sync + 'static, T: Send + 'static>(
        &'a self,
        few: Option<&'a Semaphore>,
        args: A,
        work: ReadFn<A, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let _slot = QueueSlot::acquire(&self.reads_queued, self.max_reads_queued)?;
            let reading = async {
                let _permit = match few {
                    Some(few) => Some(few.acquire().await.map_err(|_| error::unavailable())?),
                    None => None,
                };
                match self.read_once(&args, work).await {
                    Err(error) if error.kind == StoreErrorKind::Unavailable && self.path().is_none() => {
                        self.read_once(&args, work).await
                    }
                    result => result,
                }
            };
            tokio::time::timeout(self.read_deadline, reading).await.map_err(|_| error::deadline_exceeded())?
        })
    }

    async fn read_once<A: Sync, T>(&self, args: &A, work: ReadFn<A, T>) -> Result<T, StoreError> {
        let mut conn = self.pools[1].acquire(&self.context).await?;
        work(&mut conn, args).await
    }
}

/// Statistics of a database besides its counters.
#[derive(Clone, Debug)]
pub struct DatabaseStats {
    /// Pools for writes, reads and logins.
    pub pools: [PoolStats; 3],
    /// Writes that wait for their transaction.
    pub writes_waiting: usize,
    /// Bytes held by these writes.
    pub write_bytes: usize,
    /// Logins that wait for their statement.
    pub logins_waiting: usize,
    /// Other reads that wait or run.
    pub reads: usize,
    /// Duration of transactions from begin to commit, in microseconds.
    pub commit_time: Arc<Histogram>,
    /// Requests per transaction.
    pub commit_size: Arc<Histogram>,
}

/// A slot among the calls that wait for a connection.
struct QueueSlot<'a>(&'a AtomicUsize);

impl QueueSlot<'_> {
    fn acquire(taken: &AtomicUsize, most: usize) -> Result<QueueSlot<'_>, StoreError> {
        let slot = QueueSlot(taken);
        if taken.fetch_add(1, Ordering::Relaxed) >= most { Err(error::overloaded()) } else { Ok(slot) }
    }
}

impl Drop for QueueSlot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
