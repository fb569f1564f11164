//! Connections that are open and idle, and how many there may be.
//!
//! Not sqlx's pool: that one sends a ping through the connection's thread each time a connection comes back, which doubles
//! what a short statement costs. Here a connection goes back as it is, unless its statement was cut off by a deadline or it
//! was lost; then it is closed. The one used last is taken first, so that few stay warm.
//!
//! The trap for the next person: whoever holds a connection for good must let it go before [`ConnectionPool::close`].
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::count::{Histogram, LATENCY_BUCKETS_MICROS};
use parking_lot::Mutex;
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

/// How to open one.
pub(super) enum RawConnectOptions {
    Sqlite(SqliteConnectOptions),
}

/// Where connections come from.
#[derive(Clone)]
pub(crate) struct ConnectionPool(Arc<PoolInner>);

struct PoolInner {
    connect_options: RawConnectOptions,
    idle: Mutex<Vec<RawConnection>>,
    permits: Arc<Semaphore>,
    size: u32,
    name: &'static str,
    wait: Arc<Histogram>,
    waiting: AtomicUsize,
}

/// What a pool says of itself.
#[derive(Clone, Debug)]
pub struct PoolStats {
    /// `write`, `read` or `login`.
    pub name: &'static str,
    /// Connections that there may be.
    pub size: usize,
    /// Of these, those in use.
    pub in_use: usize,
    /// Calls that wait for one.
    pub waiting: usize,
    /// Microseconds that calls waited for one, including those that had not to.
    pub wait: Arc<Histogram>,
}

/// Counts down when the waiting is over, however it ends.
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

/// The right to one connection; brings it back.
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
    /// At most `size` connections, opened when they are asked for.
    pub(super) fn new(open: RawConnectOptions, name: &'static str, size: u32) -> ConnectionPool {
        let size = size.max(1);
        let places = Arc::new(Semaphore::new(size as usize));
        let (wait, waiting) = (Arc::new(Histogram::new(LATENCY_BUCKETS_MICROS)), AtomicUsize::new(0));
        ConnectionPool(Arc::new(PoolInner {
            connect_options: open,
            idle: Mutex::new(Vec::new()),
            permits: places,
            size,
            name,
            wait,
            waiting,
        }))
    }

    /// A connection, as soon as one is free. The caller has the deadline.
    pub(crate) async fn acquire(&self, kit: &Arc<SqlContext>) -> Result<DbConnection, StoreError> {
        let asked = kit.clock.now_micros();
        let place = {
            let _in_line = WaitGuard::enter(&self.0.waiting);
            self.0.permits.clone().acquire_owned().await.map_err(|_| error::unavailable())?
        };
        self.0.wait.record(kit.clock.now_micros().saturating_sub(asked));
        let idle = self.0.idle.lock().pop();
        let line = match idle {
            Some(line) => line,
            None => match &self.0.connect_options {
                RawConnectOptions::Sqlite(open) => {
                    RawConnection::Sqlite(open.connect().await.map_err(error::from_sqlx)?)
                }
            },
        };
        Ok(DbConnection::new(line, ConnectionLease { pool: self.0.clone(), _permit: place }, kit.clone()))
    }

    /// What it says of itself.
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

    /// Waits for all connections to come back and closes them; nobody gets one any more.
    pub(crate) async fn close(&self) {
        // The places are given out in turn, so this gets them all once those who came before are done.
        let all = self.0.permits.acquire_many(self.0.size).await;
        self.0.permits.close();
        drop(all);
        loop {
            let line = self.0.idle.lock().pop();
            match line {
                // A connection that cannot say goodbye is gone all the same.
                Some(RawConnection::Sqlite(line)) => drop(line.close().await),
                None => return,
            }
        }
    }
}
