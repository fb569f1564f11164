//! Options of a database, with sensible defaults.

use std::path::PathBuf;
use std::time::Duration;

use crate::dialect::PoolPurpose;

/// Options of a database.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// Whether to create a missing database.
    pub create: bool,
    /// File with the password of the database's user, so that the URL needs none. Not for SQLite.
    pub password_file: Option<PathBuf>,
    /// Connections that read, at most. They are opened on demand.
    pub pool_size: u32,
    /// Connections that read, at least: opened at the start, and not closed while they are idle. Not for SQLite.
    pub min_connections: u32,
    /// A connection above the minimum that was not used for so long is closed. Not for SQLite.
    pub idle_timeout: Duration,
    /// Transactions that run at the same time, each on its own connection. SQLite has one.
    pub writers: u32,
    /// Connections that read logins. One is best unless reads wait for a disk or a network.
    pub login_connections: u32,
    /// A read that takes longer fails with `Timeout`.
    pub read_deadline: Duration,
    /// A write that has waited longer for its turn fails with `Timeout`. From its turn on it has the same time again, and is
    /// waited for longer only while it is unknown whether a server has committed it.
    pub write_deadline: Duration,
    /// Maximum replication lag of a read-only server, such as a standby during a failover. If only read-only servers are reachable for
    /// this long, and none has a transaction whose COMMIT was not answered, its writes fail with `InDoubt`.
    pub max_standby_lag: Duration,
    /// Requests that may wait: a limit each for writes, logins and other reads. More fail with `Overloaded` at once.
    /// Leaves room for a storm of reconnects: a waiting login holds some hundred bytes.
    pub max_queued: usize,
    /// Bytes that waiting writes may hold in total. More fail with `Overloaded` at once.
    pub max_queued_bytes: usize,
    /// How long a write waits for others to share its transaction, if there were others before.
    pub write_batch_delay: Duration,
    /// How long a login waits for others to share its statement, if there were others before.
    pub login_batch_delay: Duration,
    /// How long logout times are collected before they are written; that much is lost when the program is killed.
    pub last_seen_flush_interval: Duration,
    /// How long opening a connection may take, when the connection is over a network.
    pub connect_timeout: Duration,
    /// A statement of a write that takes longer is ended by the server (not SQLite), and its transaction runs again.
    pub statement_timeout: Duration,
    /// How long to wait for another program that has locked the database.
    pub busy_timeout: Duration,
    /// Page cache of each connection in bytes (SQLite only).
    pub cache_bytes: u64,
}

impl DatabaseOptions {
    /// After this time a server ends a statement: its caller does not wait for it any longer.
    pub(crate) fn statement_timeout_of(&self, purpose: PoolPurpose) -> Duration {
        match purpose {
            PoolPurpose::Read => self.read_deadline,
            PoolPurpose::Write => self.statement_timeout.min(self.write_deadline.max(Duration::from_secs(1))),
        }
    }
}

impl Default for DatabaseOptions {
    fn default() -> DatabaseOptions {
        DatabaseOptions {
            create: true,
            password_file: None,
            pool_size: 12,
            min_connections: 2,
            idle_timeout: Duration::from_secs(600),
            writers: 4,
            login_connections: 1,
            read_deadline: Duration::from_secs(5),
            write_deadline: Duration::from_secs(10),
            // PostgreSQL lets queries of a standby delay it for 30 s (`max_standby_streaming_delay`), and all three servers
            // let a transaction whose client is gone wait for up to 30 s (`statement_timeout`).
            max_standby_lag: Duration::from_secs(60),
            max_queued: 50_000,
            max_queued_bytes: 64 << 20,
            write_batch_delay: Duration::from_millis(2),
            login_batch_delay: Duration::from_millis(1),
            last_seen_flush_interval: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
            busy_timeout: Duration::from_secs(5),
            cache_bytes: 2 << 20,
        }
    }
}
