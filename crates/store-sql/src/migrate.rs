//! Schema migrations: numbered steps that only go forward.
//!
//! `migrations/<database>/NNNN_name.sql`, embedded in the program, each run once in its own transaction and recorded
//! in the table `throng_schema`. A released file is never edited. sqlx's own migrator is not used: it requires the
//! files or a macro at compile time, and brings checksums that forbid fixing a comment.
//!
//! # Pitfalls
//!
//! A database that is newer than the program is refused, since its schema is unknown.

use store::{StoreError, StoreErrorKind};

use crate::dialect::DbConnection;

/// One migration. Its number is its position, counted from 1.
pub(crate) struct Migration {
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// The migrations for SQLite; `build.rs` lists the files.
pub(crate) const SQLITE_MIGRATIONS: &[Migration] =
    include!(concat!(env!("OUT_DIR"), "/sqlite_migrations.rs"));

const CREATE_SCHEMA_TABLE: &str =
    "CREATE TABLE throng_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL)";

/// The table that records the migrations; it identifies a database of this program.
pub(crate) const SCHEMA_TABLE: &str = "throng_schema";

/// Message for a database of a newer program.
pub(crate) fn newer_schema_message(shown: &str, version: u64, steps: &[Migration]) -> String {
    let known = steps.len();
    format!(
        "{shown} has schema {version}, but this version of throng supports only up to {known}; use a \
     newer throng"
    )
}

/// An in-memory database with the schema of [`SQLITE_MIGRATIONS`], for tests of plans and rows.
#[cfg(test)]
pub(crate) async fn in_memory() -> sqlx::SqliteConnection {
    use sqlx::ConnectOptions as _;
    let options = sqlx::sqlite::SqliteConnectOptions::new().in_memory(true);
    let mut connection = options.connect().await.unwrap();
    for step in SQLITE_MIGRATIONS {
        sqlx::raw_sql(step.sql).execute(&mut connection).await.unwrap();
    }
    connection
}

/// Migrates the schema to the newest version; `shown` names the database in messages.
pub(crate) async fn migrate(
    conn: &mut DbConnection,
    steps: &[Migration],
    shown: &str,
) -> Result<(), StoreError> {
    let setup = |message: String| StoreError::new(StoreErrorKind::Setup, message);
    let begin = conn.context.clone().dialect.begin_write();
    let tables = conn.list_tables().await?;
    if tables.is_empty() {
        conn.execute(begin, &[]).await?;
        // Another program may have been first.
        if conn.list_tables().await?.is_empty() {
            conn.execute(CREATE_SCHEMA_TABLE, &[]).await?;
        }
        conn.execute("COMMIT", &[]).await?;
    } else if !tables.iter().any(|table| table == SCHEMA_TABLE) {
        return Err(setup(format!("{shown} contains the tables of another program")));
    }
    loop {
        let row = conn.fetch_optional("SELECT coalesce(max(version), 0) FROM throng_schema", &[]).await?;
        let version = row.map_or(Ok(0), |row| row.number(0))?;
        let at = usize::try_from(version).unwrap_or(usize::MAX);
        if at > steps.len() {
            return Err(setup(newer_schema_message(shown, version, steps)));
        }
        let Some(step) = steps.get(at) else { return Ok(()) };
        conn.execute(begin, &[]).await?;
        let done = apply(conn, step, version + 1).await;
        match done {
            Ok(()) => conn.execute("COMMIT", &[]).await?,
            Err(error) => {
                // The first error is the one to report.
                let _ = conn.execute("ROLLBACK", &[]).await;
                return Err(StoreError::new(error.kind, format!("{shown}: migration {} failed", step.name))
                    .with_source(error));
            }
        };
    }
}

async fn apply(conn: &mut DbConnection, step: &Migration, version: u64) -> Result<(), StoreError> {
    use crate::dialect::Arg;
    let taken = conn
        .fetch_optional(&conn.sql("SELECT 1 FROM throng_schema WHERE version = ?"), &[Arg::number(version)])
        .await?;
    if taken.is_some() {
        return Ok(());
    }
    conn.execute_script(step.sql).await?;
    let now = conn.context.clock.unix_millis();
    let note = conn.sql("INSERT INTO throng_schema (version, name, at) VALUES (?, ?, ?)");
    conn.execute(&note, &[Arg::number(version), Arg::Text(step.name), Arg::number(now)]).await.map(drop)
}
