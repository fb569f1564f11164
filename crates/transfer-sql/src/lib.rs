//! ejabberd's SQL database as a source of accounts, in PostgreSQL, MySQL, MariaDB or SQLite.
//!
//! Both of its schemas are read: the new one has a column `server_host`, the old one holds one domain, which the caller
//! names. Columns that only newer versions of ejabberd have are looked for first. Rows arrive in a fixed order from one
//! query for each table, through a bounded channel, so that nothing larger than some rows is in memory.
//!
//! Not implemented: schemas that an operator has changed; `sql_prefix`.
//!
//! # Pitfalls
//!
//! sqlx's driver for any database knows few types. Numbers are selected as 64 bits, truth values as numbers, and no
//! timestamp is selected.

mod queries;
mod rows;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use futures_core::Stream;
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Connection};
use transfer::ejabberd::{OptionsBySubid, UNSUPPORTED_TABLES};
use transfer::{SourceError, SourceRecord, TransferSource};

use crate::queries::{EjabberdSchema, TableQuery};
use crate::rows::{RowReader, subscription_option};

/// Records that wait for the import.
const MAX_WAITING_RECORDS: usize = 1_000;

/// ejabberd's SQL database.
pub struct EjabberdDatabase {
    url: String,
    /// Domain of an old schema.
    domain: Option<String>,
    records: Receiver<Result<SourceRecord, SourceError>>,
}

impl EjabberdDatabase {
    /// Connects to `postgres://…`, `mysql://…` or `sqlite:…`.
    ///
    /// # Errors
    /// If a thread cannot be started. Errors of the database are those of the first record.
    pub fn open(url: &str, domain: Option<&str>) -> Result<EjabberdDatabase, SourceError> {
        let domain = domain.map(str::to_owned);
        let records = start(url.to_owned(), domain.clone())?;
        Ok(EjabberdDatabase { url: url.to_owned(), domain, records })
    }
}

impl TransferSource for EjabberdDatabase {
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError> {
        // The thread has ended when the channel is closed.
        self.records.recv().ok().transpose()
    }

    fn has_accounts_first(&self) -> bool {
        true
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.records = start(self.url.clone(), self.domain.clone())?;
        Ok(())
    }
}

/// Starts a thread that reads all tables, and ends when nobody receives.
fn start(
    url: String,
    domain: Option<String>,
) -> Result<Receiver<Result<SourceRecord, SourceError>>, SourceError> {
    let (sender, receiver) = sync_channel(MAX_WAITING_RECORDS);
    let io = |error| SourceError::Io { place: "the database".to_owned(), error };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(io)?;
    let read = move || {
        if let Err(error) = runtime.block_on(read_database(&url, domain.as_deref(), &sender)) {
            let _ = sender.send(Err(error));
        }
    };
    std::thread::Builder::new().name("import".to_owned()).spawn(read).map_err(io)?;
    Ok(receiver)
}

/// The error of a database without its URL, which may contain a password.
fn database_error(place: &str, error: sqlx::Error) -> SourceError {
    SourceError::Database { place: place.to_owned(), reason: error.to_string() }
}

async fn read_database(
    url: &str,
    domain: Option<&str>,
    sender: &SyncSender<Result<SourceRecord, SourceError>>,
) -> Result<(), SourceError> {
    sqlx::any::install_default_drivers();
    let connected = AnyConnection::connect(url).await;
    let mut conn = connected.map_err(|error| database_error("the database of ejabberd", error))?;
    let schema = read_schema(&mut conn, domain).await?;
    for query in schema.queries() {
        if !read_table(&mut conn, &schema, &query, sender).await? {
            return Ok(());
        }
    }
    for (table, content) in UNSUPPORTED_TABLES {
        // Not every version has every table. Rows are not counted: an archive may have more of them than all other tables.
        let sql = format!("SELECT CAST(1 AS {}) FROM {table} LIMIT 1", schema.integer_type());
        if let Ok(Some(_)) = sqlx::query(&sql).fetch_optional(&mut conn).await {
            let reason = format!("{content} are not implemented");
            let _ = sender.send(Ok(SourceRecord::skipped(format!("table {table}"), reason)));
        }
    }
    let _ = conn.close().await;
    Ok(())
}

/// Finds out which columns there are.
async fn read_schema(conn: &mut AnyConnection, domain: Option<&str>) -> Result<EjabberdSchema, SourceError> {
    let mysql = conn.backend_name().eq_ignore_ascii_case("mysql");
    if !has(conn, "SELECT username FROM users WHERE 1 = 0").await {
        return Err(SourceError::Format {
            place: "the database".to_owned(),
            expected: "a database of ejabberd",
            reason: "it has no table users with a column username that can be read".to_owned(),
        });
    }
    let server_host = has(conn, "SELECT server_host FROM users WHERE 1 = 0").await;
    if !server_host && domain.is_none() {
        return Err(SourceError::Format {
            place: "the database".to_owned(),
            expected: "a database of several domains",
            reason: "its schema has no column server_host; name its domain with --domain".to_owned(),
        });
    }
    Ok(EjabberdSchema {
        mysql,
        server_host,
        domain: domain.unwrap_or_default().to_owned(),
        password_type: has(conn, "SELECT type FROM users WHERE 1 = 0").await,
        rooms: has(conn, "SELECT opts FROM muc_room WHERE 1 = 0").await,
        pubsub: has(conn, "SELECT nodeid FROM pubsub_node WHERE 1 = 0").await,
        subscription_options: read_subscription_options(conn, mysql).await?,
        approved: has(conn, "SELECT approved FROM rosterusers WHERE 1 = 0").await,
    })
}

/// Options of subscriptions to PubSub nodes, which are named in upper case; few subscriptions have options.
async fn read_subscription_options(
    conn: &mut AnyConnection,
    mysql: bool,
) -> Result<OptionsBySubid, SourceError> {
    let mut all = OptionsBySubid::new();
    if !has(conn, "SELECT subid FROM pubsub_subscription_opt WHERE 1 = 0").await {
        return Ok(all);
    }
    let columns = ["subid", "opt_name", "opt_value"];
    let columns = columns.map(|column| format!("CAST({column} AS {})", if mysql { "CHAR" } else { "TEXT" }));
    let sql = format!("SELECT {} FROM pubsub_subscription_opt", columns.join(", "));
    let table = "pubsub_subscription_opt";
    let mut rows = pin!(sqlx::query(&sql).fetch(conn));
    while let Some(row) = poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
        let row: AnyRow = row.map_err(|error| database_error(table, error))?;
        let (subid, var, value) = subscription_option(&row).map_err(|error| database_error(table, error))?;
        let of_one = all.entry(subid).or_default();
        match of_one.iter_mut().find(|(found, _)| *found == var) {
            Some((_, values)) => values.push(value),
            None => of_one.push((var, vec![value])),
        }
    }
    Ok(all)
}

async fn has(conn: &mut AnyConnection, sql: &'static str) -> bool {
    sqlx::query(sql).fetch_all(conn).await.is_ok()
}

/// Reads the rows of a table and sends its records. False when nobody receives.
async fn read_table(
    conn: &mut AnyConnection,
    schema: &EjabberdSchema,
    query: &TableQuery,
    sender: &SyncSender<Result<SourceRecord, SourceError>>,
) -> Result<bool, SourceError> {
    let mut reader = RowReader::new(schema, query.kind);
    let mut records = Vec::new();
    {
        let mut rows = pin!(sqlx::query(&query.sql).fetch(conn));
        while let Some(row) = poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
            let row: AnyRow = row.map_err(|error| database_error(query.table, error))?;
            reader.read(&row, &mut records).map_err(|error| database_error(query.table, error))?;
            for record in records.drain(..) {
                if sender.send(Ok(record)).is_err() {
                    return Ok(false);
                }
            }
        }
    }
    reader.finish(&mut records);
    for record in records {
        if sender.send(Ok(record)).is_err() {
            return Ok(false);
        }
    }
    Ok(true)
}
