//! SQLite: connections in WAL mode, and its SQL fragments.
//!
//! One connection writes with `synchronous=FULL`, so that a committed transaction is on the disk; the others only
//! read.
//!
//! Not implemented: in-memory databases (each connection would have its own) and memory-mapped reads, which count as
//! resident memory and gained little.

use std::path::{Path, PathBuf};

use base::BoxFuture;
use sqlx::sqlite::{
    SqliteArguments, SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteRow, SqliteSynchronous,
};
use sqlx::{Arguments, ConnectOptions};
use store::{StoreError, StoreErrorKind};

use super::pool::RawConnectOptions;
use super::{Arg, ConnectionPool, Dialect, PoolLimits, PoolPurpose, StepBudget};
use crate::DatabaseOptions;
use crate::error::{READ_ONLY, setup};
use crate::migrate::{Migration, SQLITE_MIGRATIONS};

/// Rows that the connection's thread may buffer ahead of their reader, so that it is not woken for each.
const ROW_BUFFER_SIZE: usize = 512;

pub(crate) struct SqliteDialect;

impl Dialect for SqliteDialect {
    fn begin_write(&self) -> &'static str {
        "BEGIN IMMEDIATE"
    }

    fn list_tables(&self) -> &'static str {
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    }

    fn hex(&self, bytes: &str) -> String {
        format!("hex({bytes})")
    }

    fn zero_bytes(&self, bytes: usize) -> String {
        format!("zeroblob({bytes})")
    }

    fn join_lines(&self, text: &str) -> String {
        format!("group_concat({text}, char(10))")
    }

    fn migrations(&self) -> &'static [Migration] {
        SQLITE_MIGRATIONS
    }
}

/// The path in `sqlite:PATH`, `sqlite://PATH` or `sqlite:///PATH`, without parameters.
pub(crate) fn path(url: &str) -> Result<PathBuf, StoreError> {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() || path.contains(":memory:") {
        return Err(setup(format!(
            "the database URL \"{url}\" names no file; write sqlite: and the path of a file"
        )));
    }
    if path.contains('?') {
        return Err(setup(format!("the database URL \"{url}\" has parameters, which are not supported")));
    }
    Ok(PathBuf::from(path))
}

/// Checks that a file can be a database, with one sentence otherwise, and creates it if it is missing and `create` is
/// set.
pub(crate) fn ensure_usable(path: &Path, create: bool) -> Result<(), StoreError> {
    let shown = path.display();
    // A failed start leaves an empty file.
    let is_there = std::fs::metadata(path).is_ok_and(|file| file.len() > 0);
    if !create && !is_there {
        return Err(setup(format!("the database {shown} does not exist")));
    }
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent.filter(|parent| !parent.is_dir()) {
        return Err(setup(format!("the directory {} of the database does not exist", parent.display())));
    }
    if path.is_dir() {
        return Err(setup(format!("{shown} is a directory, not a database")));
    }
    let mut open = std::fs::OpenOptions::new();
    open.read(true).write(true).create(true).truncate(false);
    // The file holds credentials; the write-ahead log beside it inherits its permissions.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut open, 0o600);
    open.open(path)
        .map(drop)
        .map_err(|error| setup(format!("cannot open the database {shown} for writing")).with_source(error))
}

/// Pages in the write-ahead log (64 MiB) after which the writer copies what [`crate::checkpointer`] has not, and starts the log
/// again.
pub(crate) const CHECKPOINT_PAGES: u32 = 16_384;

/// A pool of connections to a file.
pub(crate) fn pool(
    path: &Path,
    options: &DatabaseOptions,
    (purpose, name): (PoolPurpose, &'static str),
    limits: PoolLimits,
    cache_bytes: u64,
) -> ConnectionPool {
    let mut connect = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(options.busy_timeout)
        .foreign_keys(false)
        .row_buffer_size(ROW_BUFFER_SIZE)
        // All statements of this crate in all their lengths.
        .statement_cache_capacity(256)
        // A negative number means kibibytes.
        .pragma("cache_size", format!("-{}", (cache_bytes / 1024).max(64)))
        .disable_statement_logging();
    if purpose == PoolPurpose::Write {
        // The log shrinks to this size after a burst. Twice what it usually reaches: a log that shrinks has its
        // blocks allocated anew, and each commit then waits for the file system's own journal.
        connect = connect.pragma("journal_size_limit", (128u64 << 20).to_string());
        // Statements that insert many rows keep the pages that they change for a rollback; by default in a file that is
        // written and deleted for each transaction.
        connect = connect.pragma("temp_store", "MEMORY");
        connect = connect.pragma("wal_autocheckpoint", CHECKPOINT_PAGES.to_string());
    } else {
        connect = connect.pragma("query_only", "1");
    }
    ConnectionPool::new(RawConnectOptions::Sqlite(Box::new(connect)), name, limits, options, None)
}

/// A pool of connections to a file of another program, whose journal stays as it is.
pub(crate) fn foreign_pool(
    path: &Path,
    options: &DatabaseOptions,
    limits: PoolLimits,
    purpose: PoolPurpose,
) -> ConnectionPool {
    let mut connect = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .busy_timeout(options.busy_timeout)
        .row_buffer_size(ROW_BUFFER_SIZE)
        .disable_statement_logging();
    if purpose == PoolPurpose::Read {
        connect = connect.pragma("query_only", "1");
    }
    ConnectionPool::new(RawConnectOptions::Sqlite(Box::new(connect)), "foreign", limits, options, None)
}

fn bind(args: &[Arg<'_>]) -> Result<SqliteArguments<'static>, sqlx::Error> {
    let mut bound = SqliteArguments::default();
    for arg in args {
        match *arg {
            Arg::Int(number) => bound.add(number),
            Arg::Text(text) | Arg::AnyText(text) | Arg::ForeignText(text) => bound.add(text.to_owned()),
            Arg::Bytes(bytes) => bound.add(bytes.to_owned()),
            Arg::Null => bound.add(None::<i64>),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(bound)
}

pub(super) async fn execute(
    conn: &mut SqliteConnection,
    sql: &str,
    args: &[Arg<'_>],
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query_with(sql, bind(args)?).execute(conn).await?;
    Ok(done.rows_affected())
}

pub(super) async fn fetch_all(
    conn: &mut SqliteConnection,
    sql: &str,
    args: &[Arg<'_>],
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    sqlx::query_with(sql, bind(args)?).fetch_all(conn).await
}

/// Fetches all rows, interrupted when the budget is exhausted. A statement whose future is dropped is interrupted as
/// well, some time later.
pub(super) async fn fetch_all_within(
    conn: &mut SqliteConnection,
    steps: &StepBudget,
    sql: &str,
    args: &[Arg<'_>],
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    const AT_ONCE: i32 = 10_000;
    let left = steps.clone();
    conn.lock_handle().await?.set_progress_handler(AT_ONCE, move || left.consume(AT_ONCE));
    let result = fetch_all(conn, sql, args).await;
    conn.lock_handle().await?.remove_progress_handler();
    result
}

pub(super) fn execute_text<'a>(
    conn: &'a mut SqliteConnection,
    sql: &'a str,
) -> BoxFuture<'a, Result<u64, sqlx::Error>> {
    let done = sqlx::Executor::execute(conn, sql);
    Box::pin(async move { Ok(done.await?.rows_affected()) })
}

/// Classifies an error by its code (<https://www.sqlite.org/rescode.html>); extended codes carry the primary one in
/// their low byte.
pub(crate) fn classify(code: Option<u32>) -> (StoreErrorKind, &'static str) {
    match code.map(|code| code & 255) {
        Some(5 | 6) => (StoreErrorKind::Conflict, "the database is locked by another program"),
        Some(8 | 3) => (StoreErrorKind::Setup, READ_ONLY),
        // Only the step budget of a search interrupts a statement.
        Some(9) => (StoreErrorKind::TooBroad, "the search exceeded its limit of rows"),
        Some(10) => (StoreErrorKind::Unavailable, "disk I/O error"),
        Some(13) => (StoreErrorKind::Unavailable, "the disk is full"),
        Some(14) => (StoreErrorKind::Setup, "cannot open the database"),
        Some(11) => (StoreErrorKind::Corrupt, "the database is damaged"),
        Some(26) => (StoreErrorKind::Setup, "the file is not a database"),
        Some(18) => (StoreErrorKind::TooLarge, "the value is too large for the database"),
        Some(19) => (StoreErrorKind::Conflict, "another program is writing to the database"),
        _ => (StoreErrorKind::Internal, "the database rejected a statement"),
    }
}

#[cfg(test)]
mod tests {
    /// Cargo reads `.cargo/config.toml` of the directory in which it is started. A build from elsewhere would be slower without
    /// a word.
    #[test]
    fn sqlite_is_compiled_with_the_options_of_this_workspace() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let options: Vec<String> = runtime.block_on(async {
            let mut conn = crate::migrate::in_memory().await;
            sqlx::query_scalar("PRAGMA compile_options").fetch_all(&mut conn).await.unwrap()
        });
        let has = |option: &str| options.iter().any(|one| one == option);
        let hint = "start cargo in the directory of the workspace, or set LIBSQLITE3_FLAGS as .cargo/config.toml does";
        assert!(has("DEFAULT_MEMSTATUS=0"), "{hint}: {options:?}");
        assert!(!has("ENABLE_MEMORY_MANAGEMENT"), "{hint}: {options:?}");
        // Connections of several threads.
        assert!(has("THREADSAFE=1"), "{options:?}");
    }
}
