//! Read-only inspection of a database: no file is created, no schema migrated, no write-ahead log checkpointed.
//!
//! Not implemented: an integrity check of the pages, which takes as long as reading the whole database.
//!
//! # Pitfalls
//!
//! SQLite in WAL mode writes two files beside the database even for readers. The database is therefore opened as
//! `immutable`, and changes that are still in the log of a killed program are not visible.

use std::path::Path;
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};
use store::StoreError;

use crate::context::SqlContext;
use crate::dialect::{Dialect, PoolLimits, sqlite};
use crate::error::{self, setup};
use crate::location::Location;
use crate::{DatabaseOptions, migrate};

/// Result of an inspection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseState {
    /// There is no database; opening would create one.
    Missing,
    /// Everything visible is in the write-ahead log of a program that was killed or is running.
    WalOnly,
    /// A database of this program. Opening would migrate it from its schema to the newest.
    Schema {
        /// Schema of the database.
        version: u64,
        /// Newest schema of this program.
        newest: u64,
    },
}

/// Inspects the database of a URL.
///
/// # Errors
/// `Setup` with one sentence where opening it would fail, as far as an inspection can tell.
pub async fn inspect(url: &str, password_file: Option<&Path>) -> Result<DatabaseState, StoreError> {
    let location = Location::parse(url)?.with_password_file(password_file)?;
    let shown = location.shown();
    let Some(path) = location.path().map(Path::to_owned) else { return inspect_server(&location).await };
    if path.is_dir() {
        return Err(setup(format!("{} is a directory, not a database", path.display())));
    }
    match std::fs::metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(DatabaseState::Missing),
        Err(error) => return Err(setup(format!("cannot read {shown}")).with_source(error)),
        Ok(file) if file.len() == 0 => return Ok(DatabaseState::Missing),
        Ok(_) => {}
    }
    let read = read_schema(&path).await;
    if has_wal(&path) && !matches!(&read, Ok((_, Some(_)))) {
        return Ok(DatabaseState::WalOnly);
    }
    let about = |error| {
        let error = error::from_sqlx(error);
        StoreError::new(error.kind, format!("cannot use {shown}")).with_source(error)
    };
    let (tables, version) = read.map_err(about)?;
    if tables.is_empty() {
        return Ok(DatabaseState::Missing);
    }
    let Some(version) = version else {
        return Err(setup(format!("{shown} contains the tables of another program")));
    };
    let newest = migrate::newest(migrate::SQLITE_MIGRATIONS);
    if version > newest {
        return Err(setup(migrate::newer_schema_message(&shown, version, migrate::SQLITE_MIGRATIONS)));
    }
    Ok(DatabaseState::Schema { version, newest })
}

/// The names of the migrations that a database of this schema needs, in their order.
///
/// # Errors
/// `Setup` with one sentence when the URL is wrong.
pub fn pending_migrations(url: &str, version: u64) -> Result<Vec<&'static str>, StoreError> {
    let steps = Location::parse(url)?.dialect().migrations();
    Ok(steps.iter().filter(|step| step.version > version).map(|step| step.name).collect())
}

/// Inspects a database on a server.
async fn inspect_server(location: &Location) -> Result<DatabaseState, StoreError> {
    let pool = location.reading_pool(&DatabaseOptions::default(), "check", PoolLimits::at_most(1));
    let context = SqlContext::new(location.dialect(), Arc::new(base::SystemClock::new()));
    let shown = location.shown();
    let about =
        |error: StoreError| StoreError::new(error.kind, format!("cannot use {shown}")).with_source(error);
    let mut conn = pool.acquire_now(&context).await.map_err(about)?;
    migrate::check_requirement(&mut conn, &shown).await?;
    let version = migrate::schema_version(&mut conn, &shown).await?;
    drop(conn);
    pool.close().await;
    let newest = migrate::newest(context.dialect.migrations());
    Ok(version.map_or(DatabaseState::Missing, |version| DatabaseState::Schema { version, newest }))
}

/// Whether a killed or running program has left a write-ahead log.
fn has_wal(path: &Path) -> bool {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    std::fs::metadata(Path::new(&wal)).is_ok_and(|file| file.len() > 0)
}

/// The names of the tables, and the schema version if it is a database of this program.
async fn read_schema(path: &Path) -> Result<(Vec<String>, Option<u64>), sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .read_only(true)
        .immutable(true)
        .disable_statement_logging();
    let mut conn: SqliteConnection = options.connect().await?;
    let rows = sqlx::query(sqlite::SqliteDialect.list_tables()).fetch_all(&mut conn).await?;
    let tables = rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>()?;
    let mut version = None;
    if tables.iter().any(|table| table == migrate::SCHEMA_TABLE) {
        let sql = "SELECT coalesce(max(version), 0) FROM throng_schema";
        let number: i64 = sqlx::query(sql).fetch_one(&mut conn).await?.try_get(0)?;
        version = Some(u64::try_from(number).unwrap_or_default());
    }
    conn.close().await?;
    Ok((tables, version))
}
