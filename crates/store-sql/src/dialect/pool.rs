//! Connection pool: idle connections and a limit on their number.
//!
//! sqlx's pool is not used: it pings through the connection's thread each time a connection is returned, which
//! doubles the cost of a short statement. Here a connection is returned as it is, unless a deadline cut off its
//! statement or it was lost; then it is closed. The most recently used connection is taken first, so that only a few
//! stay warm; [`ConnectionPool::maintain`] closes the others down to the minimum.
//!
//! # Pitfalls
//!
//! A connection that is held permanently must be released before [`ConnectionPool::close`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use base::BoxFuture;
use base::count::{Histogram, LATENCY_BUCKETS_MICROS};
use base::lock::LeafMutex;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use store::{StoreError, StoreErrorKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{DbConnection, mysql, postgres};
use crate::DatabaseOptions;
use crate::context::SqlContext;
use crate::error;

/// An open connection.
pub(super) enum RawConnection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
    MySql(MySqlConnection),
}

/// How to open a connection, and the statements to run first.
pub(super) enum RawConnectOptions {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>, String),
    MySql(Box<MySqlConnectOptions>, String),
}

impl RawConnectOptions {
    fn connect(&self) -> BoxFuture<'_, Result<RawConnection, sqlx::Error>> {
        Box::pin(async move {
            Ok(match self {
                RawConnectOptions::Sqlite(open) => RawConnection::Sqlite(open.connect().await?),
                RawConnectOptions::Postgres(open, setup) => {
                    let mut conn = open.connect().await?;
                    postgres::execute_text(&mut conn, setup).await?;
                    RawConnection::Postgres(conn)
                }
                RawConnectOptions::MySql(open, setup) => {
                    let mut conn = open.connect().await?;
                    mysql::execute_text(&mut conn, setup).await?;
                    RawConnection::MySql(conn)
                }
            })
        })
    }
}

/// A connection that nobody uses.
struct IdleConnection {
    raw: RawConnection,
    since: Instant,
}

/// A connection to a server that was idle for longer is tested before it is used: the server may have been restarted,
/// or a firewall may have forgotten it.
const PING_AFTER: Duration = Duration::from_secs(5);

/// Time for the answer to such a test. A caller whose connection was forgotten must still have time for another one.
const MAX_PING_TIME: Duration = Duration::from_secs(1);

/// Time to close a connection: a server that is gone does not accept the farewell.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(1);

/// Time for the error of a server that has ended a statement because of its duration.
const MAX_ERROR_DELAY: Duration = Duration::from_secs(1);

impl RawConnection {
    /// Whether the server answers.
    fn ping(&mut self) -> BoxFuture<'_, Result<(), sqlx::Error>> {
        match self {
            RawConnection::Sqlite(_) => Box::pin(std::future::ready(Ok(()))),
            RawConnection::Postgres(conn) => conn.ping(),
            RawConnection::MySql(conn) => conn.ping(),
        }
    }

    /// Closes the connection. One that fails to close cleanly is gone all the same.
    async fn close(self) {
        match self {
            RawConnection::Sqlite(conn) => drop(conn.close().await),
            RawConnection::Postgres(conn) => drop(tokio::time::timeout(MAX_CLOSE_TIME, conn.close()).await),
            RawConnection::MySql(conn) => drop(tokio::time::timeout(MAX_CLOSE_TIME, conn.close()).await),
        }
    }
}

/// Purpose of the connections of a pool.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolPurpose {
    Write,
    /// They refuse to write.
    Read,
}

/// Numbers of connections of a pool.
#[derive(Clone, Copy)]
pub(crate) struct PoolLimits {
    /// Kept open while they are idle.
    pub(crate) min: u32,
    pub(crate) max: u32,
}

impl PoolLimits {
    /// Connections that are opened on demand.
    pub(crate) fn at_most(max: u32) -> PoolLimits {
        PoolLimits { min: 0, max: max.max(1) }
    }

    /// Connections that are all kept open.
    pub(crate) fn exactly(size: u32) -> PoolLimits {
        PoolLimits { min: size.max(1), max: size.max(1) }
    }

    /// With another minimum.
    pub(crate) fn with_min(self, min: u32) -> PoolLimits {
        PoolLimits { min: min.min(self.max), ..self }
    }
}

/// A pool of connections.
#[derive(Clone)]
pub(crate) struct ConnectionPool(Arc<PoolInner>);

struct PoolInner {
    connect_options: RawConnectOptions,
    idle: LeafMutex<Vec<IdleConnection>>,
    permits: Arc<Semaphore>,
    limits: PoolLimits,
    name: &'static str,
    wait: Arc<Histogram>,
    waiting: AtomicUsize,
    /// Permits whose connection is not open yet.
    connecting: AtomicUsize,
    connect_timeout: Duration,
    idle_timeout: Duration,
    statement_deadline: Option<Duration>,
    breaker: CircuitBreaker,
    /// The pool will be closed: nobody waits for a server that cannot be reached.
    closing: AtomicBool,
}

/// Opens after a failed attempt to connect. While it is open, one caller tries at a time, at growing intervals, and the
/// others wait for it within their deadlines.
#[derive(Default)]
struct CircuitBreaker {
    state: LeafMutex<BreakerState>,
    failures: AtomicU64,
}

#[derive(Default)]
struct BreakerState {
    consecutive_failures: u32,
    next_attempt: Option<Instant>,
}

impl CircuitBreaker {
    /// Whether the caller may try to connect, or when to try again.
    fn admit(&self) -> Result<(), Instant> {
        let state = &mut *self.state.lock();
        let now = Instant::now();
        match state.next_attempt {
            Some(at) if at > now => Err(at),
            Some(_) => {
                // The others wait for this attempt.
                state.next_attempt = Some(now + state.pause());
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn succeeded(&self) {
        *self.state.lock() = BreakerState::default();
    }

    fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        let state = &mut *self.state.lock();
        state.consecutive_failures = state.consecutive_failures.saturating_add(1);
        state.next_attempt = Some(Instant::now() + state.pause());
    }

    fn is_open(&self) -> bool {
        self.state.lock().consecutive_failures > 0
    }
}

impl BreakerState {
    /// 20 ms, 40 ms and so on, up to a second.
    fn pause(&self) -> Duration {
        Duration::from_millis((10 << self.consecutive_failures.min(7)).min(1000))
    }
}

/// Statistics of a pool.
#[derive(Clone, Debug)]
pub struct PoolStats {
    /// `write`, `read` or `login`.
    pub name: &'static str,
    /// Maximum number of connections.
    pub size: usize,
    /// Number of connections that stay open while they are idle.
    pub min: usize,
    /// Connections in use.
    pub in_use: usize,
    /// Calls waiting for a connection.
    pub waiting: usize,
    /// Microseconds that calls waited for a connection, including calls that did not have to wait.
    pub wait: Arc<Histogram>,
    /// Open connections that are not in use.
    pub idle: usize,
    /// Failed attempts to connect.
    pub connect_failures: u64,
    /// Whether the last attempt to connect failed; then one caller tries at a time.
    pub circuit_open: bool,
}

/// Decrements a number of waiting calls when dropped.
struct WaitGuard<'a>(&'a AtomicUsize);

impl<'a> WaitGuard<'a> {
    fn enter(waiting: &'a AtomicUsize) -> WaitGuard<'a> {
        waiting.fetch_add(1, Ordering::Relaxed);
        WaitGuard(waiting)
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to one connection; returns the connection when dropped.
pub(super) struct ConnectionLease {
    pool: Arc<PoolInner>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionLease {
    pub(super) fn give_back(&self, raw: RawConnection, since: Instant) {
        self.pool.idle.lock().push(IdleConnection { raw, since });
    }

    /// Time for the answer to a statement, if it comes over a network.
    pub(super) fn statement_deadline(&self) -> Option<Duration> {
        self.pool.statement_deadline
    }

    /// Closes the idle connections.
    pub(super) fn drop_idle(&self) {
        let idle = std::mem::take(&mut *self.pool.idle.lock());
        drop(idle);
    }
}

impl ConnectionPool {
    /// A pool without connections. `limit` is the time after which a server ends a statement.
    pub(super) fn new(
        open: RawConnectOptions,
        name: &'static str,
        limits: PoolLimits,
        options: &DatabaseOptions,
        limit: Option<Duration>,
    ) -> ConnectionPool {
        let permits = Arc::new(Semaphore::new(limits.max as usize));
        let (wait, waiting) = (Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS)), AtomicUsize::new(0));
        ConnectionPool(Arc::new(PoolInner {
            connect_options: open,
            idle: LeafMutex::new(Vec::new()),
            permits,
            limits,
            name,
            wait,
            waiting,
            connecting: AtomicUsize::new(0),
            connect_timeout: options.connect_timeout,
            idle_timeout: options.idle_timeout,
            statement_deadline: limit.map(|limit| limit.saturating_add(MAX_ERROR_DELAY)),
            breaker: CircuitBreaker::default(),
            closing: AtomicBool::new(false),
        }))
    }

    /// Waits for a free connection, and for a server that cannot be reached. The caller enforces the deadline.
    pub(crate) async fn acquire(&self, context: &Arc<SqlContext>) -> Result<DbConnection, StoreError> {
        self.acquire_with(context, true).await
    }

    /// Waits for a free connection; fails when the server cannot be reached.
    pub(crate) async fn acquire_now(&self, context: &Arc<SqlContext>) -> Result<DbConnection, StoreError> {
        self.acquire_with(context, false).await
    }

    async fn acquire_with(
        &self,
        context: &Arc<SqlContext>,
        may_wait: bool,
    ) -> Result<DbConnection, StoreError> {
        let requested_at = context.clock.now_micros();
        let permit = {
            let _waiting = WaitGuard::enter(&self.0.waiting);
            self.0.permits.clone().acquire_owned().await.map_err(|_| error::unavailable())?
        };
        self.0.wait.record(context.clock.now_micros().saturating_sub(requested_at));
        let conn = match self.take_idle().await {
            Some(conn) => conn,
            None => self.connect(may_wait).await?,
        };
        Ok(DbConnection::new(
            conn,
            ConnectionLease { pool: self.0.clone(), _permit: permit },
            context.clone(),
        ))
    }

    /// An idle connection that works.
    async fn take_idle(&self) -> Option<RawConnection> {
        let IdleConnection { mut raw, since } = self.0.idle.lock().pop()?;
        if since.elapsed() < PING_AFTER {
            return Some(raw);
        }
        if let Ok(Ok(())) = tokio::time::timeout(MAX_PING_TIME, raw.ping()).await {
            return Some(raw);
        }
        // The others were idle for longer.
        let lost = std::mem::take(&mut *self.0.idle.lock());
        drop(lost);
        None
    }

    async fn connect(&self, may_wait: bool) -> Result<RawConnection, StoreError> {
        let _connecting = WaitGuard::enter(&self.0.connecting);
        loop {
            let may_wait = may_wait && !self.0.closing.load(Ordering::Relaxed);
            if let Err(at) = self.0.breaker.admit() {
                if !may_wait {
                    return Err(error::connect_timeout());
                }
                tokio::time::sleep_until(at).await;
                // Another caller may have returned a connection in the meantime.
                match self.take_idle().await {
                    Some(conn) => return Ok(conn),
                    None => continue,
                }
            }
            let connecting = self.0.connect_options.connect();
            let connected = match tokio::time::timeout(self.0.connect_timeout, connecting).await {
                Ok(connected) => connected.map_err(error::from_sqlx),
                Err(_) => Err(error::connect_timeout()),
            };
            match connected {
                Ok(conn) => {
                    self.0.breaker.succeeded();
                    return Ok(conn);
                }
                // A file that cannot be opened now cannot be opened soon.
                Err(error) if matches!(self.0.connect_options, RawConnectOptions::Sqlite(_)) => {
                    return Err(error);
                }
                Err(error) => {
                    self.0.breaker.failed();
                    if !may_wait || error.kind != StoreErrorKind::Unavailable {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// Connections in use, including those that are being opened.
    fn in_use(&self) -> usize {
        (self.0.limits.max as usize).saturating_sub(self.0.permits.available_permits())
    }

    /// Closes connections that were idle for too long, and opens those that the minimum requires.
    pub(crate) async fn maintain(&self) {
        for expired in self.take_expired() {
            expired.raw.close().await;
        }
        self.probe().await;
        loop {
            // Before the idle ones are counted: a connection that is returned meanwhile is counted twice rather than not.
            let in_use = self.in_use();
            let open = self.0.idle.lock().len() + in_use;
            if open >= self.0.limits.min as usize {
                return;
            }
            let Ok(_permit) = self.0.permits.clone().try_acquire_owned() else { return };
            // The circuit breaker counts a failure; the next call tries again.
            let Ok(raw) = self.connect(false).await else { return };
            self.0.idle.lock().push(IdleConnection { raw, since: Instant::now() });
        }
    }

    /// Opens a connection if the last attempt failed. The idle ones may suffice for all calls, and the failure would be
    /// reported until they do not.
    async fn probe(&self) {
        if !self.0.breaker.is_open() {
            return;
        }
        let Ok(_permit) = self.0.permits.clone().try_acquire_owned() else { return };
        if self.0.idle.lock().len() + self.in_use() > self.0.limits.max as usize {
            return;
        }
        if let Ok(raw) = self.connect(false).await {
            self.0.idle.lock().push(IdleConnection { raw, since: Instant::now() });
        }
    }

    /// The idle connections above the minimum that were not used for too long. Those that are being opened do not count: a
    /// server that accepts no more connections would lose the last one that works.
    fn take_expired(&self) -> Vec<IdleConnection> {
        let (now, in_use) = (Instant::now(), self.in_use());
        let in_use = in_use.saturating_sub(self.0.connecting.load(Ordering::Relaxed));
        let idle = &mut *self.0.idle.lock();
        let surplus = (idle.len() + in_use).saturating_sub(self.0.limits.min as usize);
        let is_expired = |conn: &&IdleConnection| now.duration_since(conn.since) >= self.0.idle_timeout;
        // The least recently used ones come first.
        let count = idle.iter().take(surplus).take_while(is_expired).count();
        idle.drain(..count).collect()
    }

    /// Current statistics.
    pub(crate) fn stats(&self) -> PoolStats {
        // Released at once; the circuit breaker has a lock, too.
        let idle = self.0.idle.lock().len();
        PoolStats {
            name: self.0.name,
            size: self.0.limits.max as usize,
            min: self.0.limits.min as usize,
            in_use: self.in_use(),
            waiting: self.0.waiting.load(Ordering::Relaxed),
            wait: self.0.wait.clone(),
            idle,
            connect_failures: self.0.breaker.failures.load(Ordering::Relaxed),
            circuit_open: self.0.breaker.is_open(),
        }
    }

    /// Lets calls fail that would wait for a server that cannot be reached: it may not be there again before the node must
    /// have ended.
    pub(crate) fn stop_waiting(&self) {
        self.0.closing.store(true, Ordering::Relaxed);
    }

    /// Waits until all connections are returned and closes them; later calls fail.
    pub(crate) async fn close(&self) {
        self.stop_waiting();
        // Permits are granted in order, so this gets all of them once earlier callers are done.
        let all = self.0.permits.acquire_many(self.0.limits.max).await;
        self.0.permits.close();
        drop(all);
        loop {
            let idle = self.0.idle.lock().pop();
            match idle {
                Some(idle) => idle.raw.close().await,
                None => return,
            }
        }
    }
}
