//! Connection pool: idle connections and a limit on their number.
//!
//! sqlx's pool is not used: it pings through the connection's thread each time a connection is returned, which
//! doubles the cost of a short statement. Here a connection is returned as it is, unless a deadline cut off its
//! statement or it was lost; then it is closed. The most recently used connection is taken first, so that only a few
//! stay warm.
//!
//! # Pitfalls
//!
//! A connection that is held permanently must be released before [`ConnectionPool::close`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::count::{Histogram, LATENCY_BUCKETS_MICROS};
use base::lock::LeafMutex;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use store::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::DbConnection;
use crate::context::SqlContext;
use crate::error;

/// An open connection.
pub(super) enum RawConnection {
    Sqlite(SqliteConnection),
}

/// How to open a connection.
pub(super) enum RawConnectOptions {
    Sqlite(SqliteConnectOptions),
}

/// A pool of connections.
#[derive(Clone)]
pub(crate) struct ConnectionPool(Arc<PoolInner>);

struct PoolInner {
    connect_options: RawConnectOptions,
    idle: LeafMutex<Vec<RawConnection>>,
    permits: Arc<Semaphore>,
    size: u32,
    name: &'static str,
    wait: Arc<Histogram>,
    waiting: AtomicUsize,
}

/// Statistics of a pool.
#[derive(Clone, Debug)]
pub struct PoolStats {
    /// `write`, `read` or `login`.
    pub name: &'static str,
    /// Maximum number of connections.
    pub size: usize,
    /// Connections in use.
    pub in_use: usize,
    /// Calls waiting for a connection.
    pub waiting: usize,
    /// Microseconds that calls waited for a connection, including calls that did not have to wait.
    pub wait: Arc<Histogram>,
}

/// Decrements the number of waiting calls when dropped.
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
    pub(super) fn give_back(&self, line: RawConnection) {
        self.pool.idle.lock().push(line);
    }
}

impl ConnectionPool {
    /// At most `size` connections, opened on demand.
    pub(super) fn new(open: RawConnectOptions, name: &'static str, size: u32) -> ConnectionPool {
        let size = size.max(1);
        let places = Arc::new(Semaphore::new(size as usize));
        let (wait, waiting) = (Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS)), AtomicUsize::new(0));
        ConnectionPool(Arc::new(PoolInner {
            connect_options: open,
            idle: LeafMutex::new(Vec::new()),
            permits: places,
            size,
            name,
            wait,
            waiting,
        }))
    }

    /// Waits for a free connection. The caller enforces the deadline.
    pub(crate) async fn acquire(&self, context: &Arc<SqlContext>) -> Result<DbConnection, StoreError> {
        let requested_at = context.clock.now_micros();
        let place = {
            let _in_line = WaitGuard::enter(&self.0.waiting);
            self.0.permits.clone().acquire_owned().await.map_err(|_| error::unavailable())?
        };
        self.0.wait.record(context.clock.now_micros().saturating_sub(requested_at));
        let idle = self.0.idle.lock().pop();
        let line = match idle {
            Some(line) => line,
            None => match &self.0.connect_options {
                RawConnectOptions::Sqlite(open) => {
                    RawConnection::Sqlite(open.connect().await.map_err(error::from_sqlx)?)
                }
            },
        };
        Ok(DbConnection::new(line, ConnectionLease { pool: self.0.clone(), _permit: place }, context.clone()))
    }

    /// Current statistics.
    pub(crate) fn stats(&self) -> PoolStats {
        let size = self.0.size as usize;
        PoolStats {
            name: self.0.name,
            size,
            in_use: size.saturating_sub(self.0.permits.available_permits()),
            waiting: self.0.waiting.load(Ordering::Relaxed),
            wait: self.0.wait.clone(),
        }
    }

    /// Waits until all connections are returned and closes them; later calls fail.
    pub(crate) async fn close(&self) {
        // Permits are granted in order, so this gets all of them once earlier callers are done.
        let all = self.0.permits.acquire_many(self.0.size).await;
        self.0.permits.close();
        drop(all);
        loop {
            let line = self.0.idle.lock().pop();
            match line {
                // A connection that fails to close cleanly is gone all the same.
                Some(RawConnection::Sqlite(line)) => drop(line.close().await),
                None => return,
            }
        }
    }
}
