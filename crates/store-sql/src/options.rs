//! Options of a database, with sensible defaults.

use std::time::Duration;

/// Options of a database.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// Whether to create a missing database.
    pub create: bool,
    /// Connections that read. They are opened on demand.
    pub pool_size: u32,
    /// Connections that read logins. One is best unless reads wait for a disk or a network.
    pub login_connections: u32,
    /// A read that takes longer fails with `Timeout`.
    pub read_deadline: Duration,
    /// A write that has waited longer for its turn fails with `Timeout`. A write whose turn has come is waited for.
    pub write_deadline: Duration,
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
    /// How long to wait for another program that has locked the database.
    pub busy_timeout: Duration,
    /// Page cache of each connection in bytes (SQLite only).
    pub cache_bytes: u64,
}

impl Default for DatabaseOptions {
    fn default() -> DatabaseOptions {
        DatabaseOptions {
            create: true,
            pool_size: 12,
            login_connections: 1,
            read_deadline: Duration::from_secs(5),
            write_deadline: Duration::from_secs(10),
            max_queued: 50_000,
            max_queued_bytes: 64 << 20,
            write_batch_delay: Duration::from_millis(2),
            login_batch_delay: Duration::from_millis(1),
            last_seen_flush_interval: Duration::from_secs(1),
            busy_timeout: Duration::from_secs(5),
            cache_bytes: 2 << 20,
        }
    }
}
