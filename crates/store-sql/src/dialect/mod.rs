//! Database dialects: the SQL fragments that differ, and the encoding of values and rows.
//!
//! Tables write each statement once, with `?` for values, and get the fragments that differ from a [`Dialect`].
//! [`DbConnection`] carries statements and rows; it is an enum, so that tables need no type parameters.
//!
//! # Pitfalls
//!
//! Statements are prepared and cached by their text. Lists of varying length must go through [`SizedStatement`] to
//! keep the number of texts small.

mod pool;
pub(crate) mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use pool::{ConnectionLease, RawConnection};
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use store::{StoreError, StoreErrorKind};

use crate::context::SqlContext;
use crate::error;

pub(crate) use pool::ConnectionPool;
pub use pool::PoolStats;

/// SQL fragments that differ. The defaults are shared by SQLite and PostgreSQL.
pub(crate) trait Dialect: Send + Sync {
    /// Translates the `?` placeholders into those of this database.
    fn sql(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Begins a transaction that will write.
    fn begin_write(&self) -> &'static str;

    /// Lists the tables of this database.
    fn list_tables(&self) -> &'static str;

    /// Suffix of a `SELECT` whose rows will be updated.
    fn for_update(&self) -> &'static str {
        ""
    }

    /// Expression that encodes bytes as hexadecimal text; NULL becomes an empty text.
    fn hex(&self, bytes: &str) -> String;

    /// Expression for this number of zero bytes.
    fn zero_bytes(&self, bytes: usize) -> String;

    /// Aggregate that joins texts with line feeds, in any order.
    fn join_lines(&self, text: &str) -> String;

    /// Inserts rows and ignores those whose key exists.
    fn insert_new(&self, table: &str, columns: &[&str], rows: usize) -> String {
        self.sql(&format!("{} ON CONFLICT DO NOTHING", plain_insert(table, columns, rows)))
    }

    /// Inserts rows and replaces all other columns of those whose key exists.
    fn upsert(&self, table: &str, key: &[&str], others: &[&str], rows: usize) -> String {
        let columns: Vec<&str> = key.iter().chain(others).copied().collect();
        let set: Vec<String> = others.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        let insert = plain_insert(table, &columns, rows);
        self.sql(&format!("{insert} ON CONFLICT ({}) DO UPDATE SET {}", key.join(", "), set.join(", ")))
    }
}

fn plain_insert(table: &str, columns: &[&str], rows: usize) -> String {
    let row = format!("({})", placeholders(columns.len()));
    format!("INSERT INTO {table} ({}) VALUES {}", columns.join(", "), vec![row; rows].join(", "))
}

/// `n` placeholders, separated by commas.
pub(crate) fn placeholders(n: usize) -> String {
    vec!["?"; n].join(", ")
}

/// One statement in several lengths, the powers of two.
pub(crate) struct SizedStatement([(usize, String); 9]);

impl SizedStatement {
    /// The longest length.
    pub(crate) const MAX: usize = 256;

    pub(crate) fn new(text: impl Fn(usize) -> String) -> SizedStatement {
        SizedStatement(std::array::from_fn(|power| (1 << power, text(1 << power))))
    }

    /// The shortest length that holds `n` values; the caller pads by repeating the last value. `n` is at most
    /// [`Self::MAX`].
    pub(crate) fn at_least(&self, n: usize) -> (usize, &str) {
        let found = self.0.iter().find(|(size, _)| *size >= n).unwrap_or(&self.0[8]);
        (found.0, &found.1)
    }

    /// The longest length that `n` values fill. `n` is at least 1.
    pub(crate) fn at_most(&self, n: usize) -> (usize, &str) {
        let found = self.0.iter().rev().find(|(size, _)| *size <= n).unwrap_or(&self.0[0]);
        (found.0, &found.1)
    }
}

/// A value bound to a statement.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Null,
}

impl Arg<'_> {
    /// A number of this program; all are far below 2^63.
    pub(crate) fn number(number: u64) -> Arg<'static> {
        Arg::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(crate) fn optional_number(number: Option<u64>) -> Arg<'static> {
        number.map_or(Arg::Null, Arg::number)
    }
}

impl<'a> Arg<'a> {
    pub(crate) fn optional_bytes(bytes: Option<&'a [u8]>) -> Arg<'a> {
        bytes.map_or(Arg::Null, Arg::Bytes)
    }
}

/// Budget of steps for the statements of one call: instructions of SQLite's virtual machine, about fifty per row
/// read. A count rather than a time, so that the same search always ends the same way.
#[derive(Clone)]
pub(crate) struct StepBudget(Arc<AtomicI64>);

impl StepBudget {
    pub(crate) fn new(most: i64) -> StepBudget {
        StepBudget(Arc::new(AtomicI64::new(most)))
    }

    /// Consumes steps; false when none were left.
    fn consume(&self, some: i32) -> bool {
        self.0.fetch_sub(i64::from(some), Ordering::Relaxed) > 0
    }
}

pub(crate) struct DbConnection {
    raw: Option<RawConnection>,
    /// A statement is running or was cut off. Such a connection is not returned to its pool.
    busy: bool,
    lease: ConnectionLease,
    pub(crate) context: Arc<SqlContext>,
}

impl Drop for DbConnection {
    fn drop(&mut self) {
        if let Some(line) = self.raw.take().filter(|_| !self.busy) {
            self.lease.give_back(line);
        }
    }
}

impl DbConnection {
    fn new(line: RawConnection, home: ConnectionLease, context: Arc<SqlContext>) -> DbConnection {
        DbConnection { raw: Some(line), busy: false, lease: home, context }
    }

    /// Returns the connection for one statement and counts the statement.
    fn begin_statement(&mut self) -> Result<&mut RawConnection, StoreError> {
        self.context.round_trips.fetch_add(1, Ordering::Relaxed);
        self.busy = true;
        self.raw.as_mut().ok_or_else(error::unavailable)
    }

    fn end_statement<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        let result = result.map_err(error::from_sqlx);
        self.busy = result.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Unavailable);
        result
    }

    /// Runs a statement for its effect; returns the number of affected rows.
    pub(crate) async fn execute(&mut self, sql: &str, args: &[Arg<'_>]) -> Result<u64, StoreError> {
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(line) => sqlite::execute(line, sql, args).await,
        };
        self.end_statement(result)
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn fetch_all(&mut self, sql: &str, args: &[Arg<'_>]) -> Result<Vec<SqlRow>, StoreError> {
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(line) => sqlite::fetch_all(line, sql, args).await,
        };
        self.end_statement(result).map(|rows| rows.into_iter().map(SqlRow::Sqlite).collect())
    }

    /// Runs a statement and returns its rows; fails with `TooBroad` when the budget is exhausted.
    pub(crate) async fn fetch_all_within(
        &mut self,
        steps: &StepBudget,
        sql: &str,
        args: &[Arg<'_>],
    ) -> Result<Vec<SqlRow>, StoreError> {
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(line) => sqlite::fetch_all_within(line, steps, sql, args).await,
        };
        self.end_statement(result).map(|rows| rows.into_iter().map(SqlRow::Sqlite).collect())
    }

    /// Copies the journal into the database, without waiting for readers or writers; returns how many pages of the
    /// journal are copied, since it began last.
    /// It is housekeeping and not counted as a round trip.
    pub(crate) async fn checkpoint(&mut self) -> Result<u64, StoreError> {
        self.busy = true;
        let result = match self.raw.as_mut().ok_or_else(error::unavailable)? {
            RawConnection::Sqlite(line) => {
                sqlite::fetch_all(line, "PRAGMA wal_checkpoint(PASSIVE)", &[]).await
            }
        };
        let rows = self.end_statement(result)?;
        rows.into_iter().next().map_or(Ok(0), |row| SqlRow::Sqlite(row).number(2))
    }

    /// Runs a statement and returns its first row.
    pub(crate) async fn fetch_optional(
        &mut self,
        sql: &str,
        args: &[Arg<'_>],
    ) -> Result<Option<SqlRow>, StoreError> {
        Ok(self.fetch_all(sql, args).await?.into_iter().next())
    }

    /// Runs a statement with a list of values, in as many parts as its longest length requires.
    pub(crate) async fn fetch_in(
        &mut self,
        sql: &SizedStatement,
        list: &[Arg<'_>],
    ) -> Result<Vec<SqlRow>, StoreError> {
        let mut all = Vec::new();
        for part in list.chunks(SizedStatement::MAX) {
            let (size, text) = sql.at_least(part.len());
            all.append(&mut self.fetch_all(text, &pad_with_last(part, size)).await?);
        }
        Ok(all)
    }

    /// Like [`Self::fetch_in`], for the effect.
    pub(crate) async fn execute_in(
        &mut self,
        sql: &SizedStatement,
        list: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        let mut touched = 0;
        for part in list.chunks(SizedStatement::MAX) {
            let (size, text) = sql.at_least(part.len());
            touched += self.execute(text, &pad_with_last(part, size)).await?;
        }
        Ok(touched)
    }

    /// Runs a statement with `width` values per row, for any number of rows.
    pub(crate) async fn execute_rows(
        &mut self,
        sql: &SizedStatement,
        width: usize,
        values: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        let (mut touched, mut rest) = (0, values);
        while !rest.is_empty() {
            let (size, text) = sql.at_most(rest.len() / width);
            let (now, later) = rest.split_at(size * width);
            touched += self.execute(text, now).await?;
            rest = later;
        }
        Ok(touched)
    }

    /// Runs a script of statements without values.
    pub(crate) async fn execute_script(&mut self, sql: &str) -> Result<(), StoreError> {
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(line) => sqlite::execute_script(line, sql).await,
        };
        self.end_statement(result)
    }

    /// The names of all tables.
    pub(crate) async fn list_tables(&mut self) -> Result<Vec<String>, StoreError> {
        let rows = self.fetch_all(self.context.clone().dialect.list_tables(), &[]).await?;
        rows.iter().map(|row| row.text(0).map(str::to_owned)).collect()
    }

    /// Translates a statement that is not worth caching.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.context.dialect.sql(text)
    }

    /// Closes the connection instead of returning it to its pool.
    pub(crate) fn discard(mut self) {
        self.busy = true;
    }
}

fn pad_with_last<'a>(part: &[Arg<'a>], size: usize) -> Vec<Arg<'a>> {
    let mut args = part.to_vec();
    if let Some(last) = part.last() {
        args.resize(size, *last);
    }
    args
}

/// A row as fetched. Columns are counted from 0.
pub(crate) enum SqlRow {
    Sqlite(SqliteRow),
}

impl SqlRow {
    pub(crate) fn number(&self, column: usize) -> Result<u64, StoreError> {
        self.optional_number(column)?.ok_or_else(|| null_column(column))
    }

    pub(crate) fn optional_number(&self, column: usize) -> Result<Option<u64>, StoreError> {
        let SqlRow::Sqlite(row) = self;
        let number: Option<i64> = row.try_get_unchecked(column).map_err(error::from_sqlx)?;
        let wrong = || StoreError::new(StoreErrorKind::Corrupt, "the database contains a negative number");
        number.map(|number| u64::try_from(number).map_err(|_| wrong())).transpose()
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, StoreError> {
        self.optional_text(column)?.ok_or_else(|| null_column(column))
    }

    pub(crate) fn optional_text(&self, column: usize) -> Result<Option<&str>, StoreError> {
        let SqlRow::Sqlite(row) = self;
        row.try_get_unchecked(column).map_err(error::from_sqlx)
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8], StoreError> {
        self.optional_bytes(column)?.ok_or_else(|| null_column(column))
    }

    pub(crate) fn optional_bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError> {
        let SqlRow::Sqlite(row) = self;
        row.try_get_unchecked(column).map_err(error::from_sqlx)
    }
}

fn null_column(column: usize) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("the database returned NULL for column {column}"))
}
