//! Connections that are open and idle, and how many there may be.
//!
//! Not sqlx's pool: that one sends a ping through the connection's thread each time a connection comes back, which doubles
//! what a short statement costs. Here a connection goes back as it is, unless its statement was cut off by a deadline or it
//! was lost; then it is closed. The one used last is taken first, so that few stay warm.
//!
//! The trap for the next person: whoever holds a connection for good must let it go before [`Pool::close`].
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::count::{Histogram, MICROS};
use parking_lot::Mutex;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use store::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Conn;
use crate::fault;
use crate::kit::Kit;

/// An open connection.
pub(super) enum Line {
    Sqlite(SqliteConnection),
}

/// How to open one.
pub(super) enum Open {
    Sqlite(SqliteConnectOptions),
}

/// Where connections come from.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    open: Open,
    idle: Mutex<Vec<Line>>,
    places: Arc<Semaphore>,
    size: u32,
    name: &'static str,
    wait: Arc<Histogram>,
    waiting: AtomicUsize,
}

/// What a pool says of itself.
#[derive(Clone, Debug)]
pub struct PoolFigures {
    /// `write`, `read` or `login`.
    pub name: &'static str,
    /// Connections that there may be.
    pub size: usize,
    /// Of these, those in use.
    pub used: usize,
    /// Calls that wait for one.
    pub waiting: usize,
    /// Microseconds that calls waited for one, including those that had not to.
    pub wait: Arc<Histogram>,
}

/// Counts down when the waiting is over, however it ends.
struct InLine<'a>(&'a AtomicUsize);

impl<'a> InLine<'a> {
    fn enter(waiting: &'a AtomicUsize) -> InLine<'a> {
        waiting.fetch_add(1, Ordering::Relaxed);
        InLine(waiting)
    }
}

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The right to one connection; brings it back.
pub(super) struct Home {
    pool: Arc<Inner>,
    _place: OwnedSemaphorePermit,
}

impl Home {
    pub(super) fn take_back(&self, line: Line) {
        self.pool.idle.lock().push(line);
    }
}

impl Pool {
    /// At most `size` connections, opened when they are asked for.
    pub(super) fn new(open: Open, name: &'static str, size: u32) -> Pool {
        let size = size.max(1);
        let places = Arc::new(Semaphore::new(size as usize));
        let (wait, waiting) = (Arc::new(Histogram::new(MICROS)), AtomicUsize::new(0));
        Pool(Arc::new(Inner { open, idle: Mutex::new(Vec::new()), places, size, name, wait, waiting }))
    }

    /// A connection, as soon as one is free. The caller has the deadline.
    pub(crate) async fn acquire(&self, kit: &Arc<Kit>) -> Result<Conn, StoreError> {
        let asked = kit.clock.micros();
        let place = {
            let _in_line = InLine::enter(&self.0.waiting);
            self.0.places.clone().acquire_owned().await.map_err(|_| fault::unavailable())?
        };
        self.0.wait.record(kit.clock.micros().saturating_sub(asked));
        let idle = self.0.idle.lock().pop();
        let line = match idle {
            Some(line) => line,
            None => match &self.0.open {
                Open::Sqlite(open) => Line::Sqlite(open.connect().await.map_err(fault::classify)?),
            },
        };
        Ok(Conn::new(line, Home { pool: self.0.clone(), _place: place }, kit.clone()))
    }

    /// What it says of itself.
    pub(crate) fn figures(&self) -> PoolFigures {
        let size = self.0.size as usize;
        PoolFigures {
            name: self.0.name,
            size,
            used: size.saturating_sub(self.0.places.available_permits()),
            waiting: self.0.waiting.load(Ordering::Relaxed),
            wait: self.0.wait.clone(),
        }
    }

    /// Waits for all connections to come back and closes them; nobody gets one any more.
    pub(crate) async fn close(&self) {
        // The places are given out in turn, so this gets them all once those who came before are done.
        let all = self.0.places.acquire_many(self.0.size).await;
        self.0.places.close();
        drop(all);
        loop {
            let line = self.0.idle.lock().pop();
            match line {
                // A connection that cannot say goodbye is gone all the same.
                Some(Line::Sqlite(line)) => drop(line.close().await),
                None => return,
            }
        }
    }
}
