//! Storage in SQL databases: SQLite now, with one set of statements that PostgreSQL and MySQL will share.
//!
//! Reads come from a pool; logins are grouped (`lane`); every write goes through one bounded queue and is answered when
//! its transaction is on the disk (`writer`), but for times of logouts (`seen`). Reads have deadlines, and so has the waiting
//! of a write for its turn. Left out: reading from replicas.
//!
//! A new need is a file in `tables/` that implements its trait, its statements in `kit::Kit` and a migration. A new
//! database is a file in `dialect/`, a variant in the enums there, and its migrations.
//!
//! The trap for the next person: read connections refuse to write (`query_only`), so a statement that changes anything
//! must be sent through the writer.
mod dialect;
mod fault;
mod gather;
mod inspect;
mod kit;
mod label;
mod lane;
mod migrate;
mod options;
mod seen;
mod tables;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::count::Histogram;
use base::{Clock, Spawner};
use store::{ErrorKind, Fut, StoreError, Stores};
use tokio::sync::Semaphore;

use dialect::Pool;
pub use dialect::PoolFigures;
use dialect::sqlite::{self, SqliteDialect, Use};
pub use inspect::{Found, inspect};
use kit::Kit;
use lane::Lanes;
pub use options::Options;
use seen::LastSeens;
use writer::{Work, Writer};

/// The file of a storage address.
///
/// # Errors
/// `Setup` with one sentence when the address is wrong.
pub fn file(url: &str) -> Result<PathBuf, StoreError> {
    if !url.starts_with("sqlite:") {
        let kind = url.split(':').next().unwrap_or_default();
        let message =
            format!("storage of the kind {kind:?} is not supported; write sqlite: and the path of a file");
        return Err(StoreError::new(ErrorKind::Setup, message));
    }
    sqlite::path(url)
}

/// Large rosters that are read for logins at a time, of at most [`store::roster::ROSTER_BYTES`] each.
const LARGE_ROSTERS: usize = 2;

/// Searches of the directory that run at a time. One search is bounded by its steps; without
/// a bound on their number one account with many resources would keep every connection for reads busy.
const SEARCHES: u32 = 2;

/// Searches that run or wait. More fail with `Overloaded` at once: they would wait longer than the deadline of reads.
const SEARCHES_WAITING: usize = 1_000;

/// Searches at a time in a pool of this size: at least one connection is left to other reads where there are two.
fn searches(pool_size: u32) -> usize {
    SEARCHES.min(pool_size.saturating_sub(1)).max(1) as usize
}

/// A database with all needs.
pub struct SqlStores {
    path: PathBuf,
    kit: Arc<Kit>,
    pools: [Pool; 3],
    writer: Arc<Writer>,
    seen: LastSeens,
    lanes: Lanes,
    /// Large rosters that may be read at a time.
    large: Semaphore,
    /// Searches of the directory that may run at a time.
    searches: Semaphore,
    /// Searches that run or wait.
    searching: AtomicUsize,
    reading: AtomicUsize,
    most_reading: usize,
    read_deadline: Duration,
}

impl SqlStores {
    /// Opens a database, makes it if there is none and the options allow that, and brings its schema up to date.
    ///
    /// `url` is `sqlite:PATH`. The tasks of the database run on `spawner`, which must be a tokio runtime's; they end with
    /// [`SqlStores::close`] or when the value is dropped.
    ///
    /// # Errors
    /// `Setup` with one sentence when the address is wrong, the directory is missing, the file is no database or one of
    /// another program, or its schema is newer than this program; `Conflict` when another program holds it locked.
    pub async fn open(
        url: &str,
        options: &Options,
        clock: Arc<dyn Clock>,
        spawner: &dyn Spawner,
    ) -> Result<Arc<SqlStores>, StoreError> {
        let path = file(url)?;
        sqlite::prepare(&path, options.create)?;
        let pool = |purpose, size, cache| sqlite::pool(&path, options, purpose, size, cache);
        // Logins have one small hot set of pages; the writer and the readers see whatever comes.
        let writing = pool((Use::Write, "write"), 1, options.cache_bytes);
        let reading = pool((Use::Read, "read"), options.pool_size, options.cache_bytes);
        let logins = pool((Use::Read, "login"), options.login_lanes, options.cache_bytes);
        let kit = Kit::new(Box::new(SqliteDialect), clock);

        let shown = format!("the database {}", path.display());
        let about =
            |error: StoreError| StoreError::new(error.kind, format!("{shown} cannot be used")).because(error);
        let mut conn = writing.acquire(&kit).await.map_err(about)?;
        migrate::migrate(&mut conn, migrate::SQLITE, &shown).await.map_err(|error| match error.kind {
            ErrorKind::Setup if error.message().starts_with(&shown) => error,
            _ => about(error),
        })?;
        drop(conn);

        let writer = Arc::new(Writer::start(writing.clone(), kit.clone(), spawner, options));
        Ok(Arc::new(SqlStores {
            seen: LastSeens::start(writer.clone(), spawner, options.seen_gather),
            writer,
            lanes: Lanes::start(logins.clone(), kit.clone(), spawner, options),
            pools: [writing, reading, logins],
            kit,
            large: Semaphore::new(LARGE_ROSTERS),
            searches: Semaphore::new(searches(options.pool_size)),
            searching: AtomicUsize::new(0),
            path,
            reading: AtomicUsize::new(0),
            most_reading: options.queue,
            read_deadline: options.read_deadline,
        }))
    }

    /// The file that the database is in.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All needs as the bundle that the server passes around.
    pub fn stores(self: &Arc<Self>) -> Stores {
        Stores::of(self.clone())
    }

    /// Statements sent to the database since it was opened, of any kind. A login counts at most two.
    pub fn round_trips(&self) -> u64 {
        self.kit.round_trips.load(Ordering::Relaxed)
    }

    /// Transactions that the writer has committed; with many writers at once far fewer than requests.
    pub fn commits(&self) -> u64 {
        self.kit.commits.load(Ordering::Relaxed)
    }

    /// Waits and sizes, as they are now.
    pub fn figures(&self) -> Figures {
        let (writes_waiting, write_bytes) = self.writer.waiting();
        Figures {
            pools: self.pools.each_ref().map(Pool::figures),
            writes_waiting,
            write_bytes,
            logins_waiting: self.lanes.waiting(),
            reads: self.reading.load(Ordering::Relaxed),
            commit_time: self.kit.commit_time.clone(),
            commit_size: self.kit.commit_size.clone(),
        }
    }

    /// Finishes what waits to be written and closes all connections. Later calls fail with `Unavailable`.
    pub async fn close(&self) {
        self.seen.close().await;
        self.writer.close().await;
        self.lanes.close().await;
        // The writing connection last: whoever closes last folds the journal into the file.
        for pool in self.pools.iter().rev() {
            pool.close().await;
        }
    }

    /// Reads on any free connection.
    fn read<T: Send + 'static>(&self, work: Work<T>) -> Fut<'_, T> {
        self.read_among(None, work)
    }

    /// Searches the directory: as [`Self::read`], few at a time. The deadline includes the waiting.
    fn search_for<T: Send + 'static>(&self, work: Work<T>) -> Fut<'_, T> {
        Box::pin(async move {
            let _place = Place::take(&self.searching, SEARCHES_WAITING)?;
            self.read_among(Some(&self.searches), work).await
        })
    }

    /// Reads on any free connection. A permit of `few` is taken first, so that whoever waits for one holds no connection.
    fn read_among<'a, T: Send + 'static>(&'a self, few: Option<&'a Semaphore>, work: Work<T>) -> Fut<'a, T> {
        Box::pin(async move {
            let _place = Place::take(&self.reading, self.most_reading)?;
            let reading = async {
                let _permit = match few {
                    Some(few) => Some(few.acquire().await.map_err(|_| fault::unavailable())?),
                    None => None,
                };
                let mut conn = self.pools[1].acquire(&self.kit).await?;
                work(&mut conn).await
            };
            tokio::time::timeout(self.read_deadline, reading).await.map_err(|_| fault::late())?
        })
    }
}

/// What a database says of itself besides its counters.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Connections for writes, reads and logins.
    pub pools: [PoolFigures; 3],
    /// Writes that wait for their transaction.
    pub writes_waiting: usize,
    /// Bytes that they hold.
    pub write_bytes: usize,
    /// Logins that wait for their statement.
    pub logins_waiting: usize,
    /// Other reads that wait or run.
    pub reads: usize,
    /// Microseconds of transactions, from beginning to commit.
    pub commit_time: Arc<Histogram>,
    /// Requests that shared a transaction.
    pub commit_size: Arc<Histogram>,
}

/// A place among the calls that wait for a connection.
struct Place<'a>(&'a AtomicUsize);

impl Place<'_> {
    fn take(taken: &AtomicUsize, most: usize) -> Result<Place<'_>, StoreError> {
        let place = Place(taken);
        if taken.fetch_add(1, Ordering::Relaxed) >= most { Err(fault::overloaded()) } else { Ok(place) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
