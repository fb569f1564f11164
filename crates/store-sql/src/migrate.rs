//! Schema migrations: numbered steps that only go forward.
//!
//! `migrations/<database>/NNNN_name.sql`, embedded in the program, each run once in its own transaction and recorded
//! in the table `throng_schema`. What SQL cannot do is done after the file by a module of its own. A released file is never edited. sqlx's own migrator is not used: it requires the
//! files or a macro at compile time, and brings checksums that forbid fixing a comment.
//!
//! # Pitfalls
//!
//! A database that is newer than the program is refused, since its schema is unknown.

use store::StoreError;

use crate::dialect::DbConnection;
use crate::error::setup;
use crate::room_affiliation_migration;

/// One migration: the number of the schema that it makes, its name and its text.
pub(crate) struct Migration {
    pub(crate) version: u64,
    pub(crate) name: &'static str,
    pub(crate) sql: &'static str,
}

/// The migrations for SQLite; `build.rs` lists the files.
pub(crate) const SQLITE_MIGRATIONS: &[Migration] =
    include!(concat!(env!("OUT_DIR"), "/sqlite_migrations.rs"));

/// The migrations for PostgreSQL. The first one makes what the first five make in SQLite.
pub(crate) const POSTGRES_MIGRATIONS: &[Migration] =
    include!(concat!(env!("OUT_DIR"), "/postgres_migrations.rs"));

/// The migrations for MySQL and MariaDB.
pub(crate) const MYSQL_MIGRATIONS: &[Migration] = include!(concat!(env!("OUT_DIR"), "/mysql_migrations.rs"));

/// The schema that a database has after all its migrations.
pub(crate) fn newest(steps: &[Migration]) -> u64 {
    steps.last().map_or(0, |step| step.version)
}

const CREATE_SCHEMA_TABLE: &str =
    "CREATE TABLE throng_schema (version INTEGER PRIMARY KEY, name TEXT NOT NULL, at BIGINT NOT NULL)";

/// The table that records the migrations; it identifies a database of this program.
pub(crate) const SCHEMA_TABLE: &str = "throng_schema";

/// Message for a database of a newer program.
pub(crate) fn newer_schema_message(shown: &str, version: u64, steps: &[Migration]) -> String {
    let known = newest(steps);
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

/// Migrates the schema to the newest version; `shown` names the database in messages. Other nodes may do the same at
/// the same time.
pub(crate) async fn migrate(conn: &mut DbConnection, shown: &str) -> Result<(), StoreError> {
    check_requirement(conn, shown).await?;
    let [lock, unlock] = conn.context.dialect.migration_lock();
    // An up-to-date database is not locked: nodes start while another one runs.
    if schema_version(conn, shown).await? == Some(newest(conn.context.dialect.migrations())) {
        return Ok(());
    }
    // Another node may migrate a large database in the meantime.
    conn.remove_deadlines().await?;
    if !lock.is_empty() {
        conn.execute(lock, &[]).await?;
    }
    let done = migrate_locked(conn, shown).await;
    if !unlock.is_empty() {
        // A lock whose connection is lost is released, too.
        let _ = conn.execute(unlock, &[]).await;
    }
    done
}

/// Checks that the server is configured as this program requires.
pub(crate) async fn check_requirement(conn: &mut DbConnection, shown: &str) -> Result<(), StoreError> {
    let Some((sql, least, problem)) = conn.context.dialect.requirement() else { return Ok(()) };
    let row = conn.fetch_optional(sql, &[]).await?;
    if row.map_or(Ok(0), |row| row.number(0))? < least {
        return Err(setup(format!("{shown} {problem}")));
    }
    Ok(())
}

/// The schema of the database; `None` for an empty one.
pub(crate) async fn schema_version(conn: &mut DbConnection, shown: &str) -> Result<Option<u64>, StoreError> {
    let tables = conn.list_tables().await?;
    if tables.is_empty() {
        return Ok(None);
    }
    if !tables.iter().any(|table| table == SCHEMA_TABLE) {
        return Err(setup(format!("{shown} contains the tables of another program")));
    }
    let row = conn.fetch_optional("SELECT coalesce(max(version), 0) FROM throng_schema", &[]).await?;
    let version = row.map_or(Ok(0), |row| row.number(0))?;
    let steps = conn.context.dialect.migrations();
    if version > newest(steps) {
        return Err(setup(newer_schema_message(shown, version, steps)));
    }
    Ok(Some(version))
}

async fn migrate_locked(conn: &mut DbConnection, shown: &str) -> Result<(), StoreError> {
    let begin = conn.context.dialect.begin_write();
    if schema_version(conn, shown).await?.is_none() {
        conn.execute_text(begin).await?;
        // Another program may have been first.
        if conn.list_tables().await?.is_empty() {
            conn.execute_text(CREATE_SCHEMA_TABLE).await?;
        }
        conn.execute_text("COMMIT").await?;
    }
    let steps = conn.context.dialect.migrations();
    loop {
        let version = schema_version(conn, shown).await?.unwrap_or(0);
        let Some(step) = steps.iter().find(|step| step.version > version) else { return Ok(()) };
        conn.execute_text(begin).await?;
        match apply(conn, step).await {
            Ok(()) => conn.execute_text("COMMIT").await?,
            Err(error) => {
                // The first error is the one to report.
                let _ = conn.execute_text("ROLLBACK").await;
                return Err(StoreError::new(error.kind, format!("{shown}: migration {} failed", step.name))
                    .with_source(error));
            }
        };
    }
}

async fn apply(conn: &mut DbConnection, step: &Migration) -> Result<(), StoreError> {
    use crate::dialect::Arg;
    let version = Arg::number(step.version);
    let taken =
        conn.fetch_optional(&conn.sql("SELECT 1 FROM throng_schema WHERE version = ?"), &[version]).await?;
    if taken.is_some() {
        return Ok(());
    }
    conn.execute_text(step.sql).await?;
    if step.name == room_affiliation_migration::STEP {
        room_affiliation_migration::run(conn).await?;
    }
    let now = conn.context.clock.unix_millis();
    let note = conn.sql("INSERT INTO throng_schema (version, name, at) VALUES (?, ?, ?)");
    conn.execute(&note, &[version, Arg::Text(step.name), Arg::number(now)]).await.map(drop)
}
