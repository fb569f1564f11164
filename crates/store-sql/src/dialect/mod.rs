//! Database dialects: the SQL fragments that differ, and the encoding of values and rows.
//!
//! Tables write each statement once, with `?` for values, and get the fragments that differ from a [`Dialect`].
//! [`DbConnection`] carries statements and rows; it is an enum, so that tables need no type parameters.
//!
//! Numbers are 64-bit integers in every database. Keys and texts are compared and ordered by their code points, with
//! case and trailing spaces, whatever the collation of the database.
//!
//! # Pitfalls
//!
//! Statements are prepared and cached by their text. Lists of varying length must go through [`SizedStatement`] to
//! keep the number of texts small.

pub(crate) mod mysql;
mod pool;
pub(crate) mod postgres;
mod row;
mod server_statements;
pub(crate) mod sqlite;
mod statements;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use base::BoxFuture;
use pool::{ConnectionLease, RawConnection};
use statements::{
    literal_rows, literal_statements, pad_with_last, pad_with_last_pair, part_of_rows, plain_insert,
};
use store::{StoreError, StoreErrorKind};
use tokio::time::Instant;

use crate::context::SqlContext;
use crate::error;
use crate::migrate::Migration;

pub use pool::PoolStats;
pub(crate) use pool::{ConnectionPool, PoolLimits, PoolPurpose};
pub(crate) use row::SqlRow;
pub(crate) use statements::{LiteralRows, RowStatement, RowsStatement, SizedStatement, placeholders};

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

    /// Expression that encodes bytes as hexadecimal text; NULL becomes an empty text.
    fn hex(&self, bytes: &str) -> String;

    /// Expression for this number of zero bytes.
    fn zero_bytes(&self, bytes: usize) -> String;

    /// Aggregate that joins texts with line feeds, in any order.
    fn join_lines(&self, text: &str) -> String;

    /// Aggregate that adds up numbers; 0 for no rows.
    fn sum(&self, number: &str) -> String {
        format!("coalesce(sum({number}), 0)")
    }

    /// Table of this number of bound values, for the body of a common table expression.
    fn value_list(&self, _column: &str, values: usize) -> String {
        format!("VALUES {}", vec!["(?)"; values].join(", "))
    }

    /// Suffix of a `SELECT` that locks its rows until the end of the transaction; `None` where there is only one
    /// writing transaction at a time.
    fn lock_rows(&self) -> Option<&'static str> {
        None
    }

    /// As [`Dialect::lock_rows`], with a lock that others may have at the same time but nobody who changes the rows.
    fn lock_rows_shared(&self) -> Option<&'static str> {
        None
    }

    /// A statement that locks the accounts with these ids or addresses, which are lists of literals, in the order of the
    /// ids; empty where there is only one writing transaction at a time.
    fn lock_accounts(&self, _ids: &str, _names: &str) -> String {
        String::new()
    }

    /// Logins that may be joined in one text.
    fn max_joined_logins(&self) -> usize {
        SizedStatement::MAX
    }

    /// Whether `(a, b) > (?, ?)` is a range of an index on both columns.
    fn ranges_of_rows(&self) -> bool {
        true
    }

    /// Statements that acquire and release the lock that keeps nodes from migrating at the same time; empty where the
    /// transaction of a migration does.
    fn migration_lock(&self) -> [&'static str; 2] {
        ["", ""]
    }

    /// Statements that let a connection take any time; empty where there are no limits.
    fn remove_timeouts(&self) -> &'static str {
        ""
    }

    /// A statement that reads a number, the least that it may be, and the problem if it is less.
    fn requirement(&self) -> Option<(&'static str, u64, &'static str)> {
        None
    }

    /// The migrations of this database.
    fn migrations(&self) -> &'static [Migration];

    /// How to write values into the text of a statement. Over a network one statement of any number of rows is better
    /// than several prepared ones of fixed numbers. `None`: statements are always prepared.
    fn literal_rows(&self) -> Option<LiteralRows> {
        None
    }

    /// Inserts rows; fails with `Conflict` if the key of one exists.
    fn insert(&self, table: &str, columns: &[&str], rows: usize) -> String {
        self.sql(&plain_insert(table, columns, rows))
    }

    /// Inserts rows and ignores those whose key exists. The number of affected rows does not tell which: MySQL counts
    /// both.
    fn insert_new(&self, table: &str, columns: &[&str], rows: usize) -> String {
        self.sql(&(plain_insert(table, columns, rows) + &self.insert_new_suffix(columns)))
    }

    /// End of [`Self::insert_new`].
    fn insert_new_suffix(&self, _columns: &[&str]) -> String {
        " ON CONFLICT DO NOTHING".to_owned()
    }

    /// Inserts rows and replaces all other columns of those whose key exists. A key occurs once.
    fn upsert(&self, table: &str, key: &[&str], others: &[&str], rows: usize) -> String {
        let columns: Vec<&str> = key.iter().chain(others).copied().collect();
        self.sql(&(plain_insert(table, &columns, rows) + &self.upsert_suffix(key, others)))
    }

    /// End of [`Self::upsert`].
    fn upsert_suffix(&self, key: &[&str], others: &[&str]) -> String {
        let set: Vec<String> = others.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        format!(" ON CONFLICT ({}) DO UPDATE SET {}", key.join(", "), set.join(", "))
    }
}

/// A connection that is kept for the next statement is returned to its pool if it was not used for so long.
const STALE_AFTER: Duration = Duration::from_secs(30);

/// Bytes of the values of a statement, in any form below the 16 MB that servers accept by default.
const MAX_ROWS_BYTES: usize = 2 << 20;

/// A value bound to a statement.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Int(i64),
    /// Text without U+0000: an address, a user name or a search key.
    Text(&'a str),
    /// Text of any characters, for a column of that kind.
    AnyText(&'a str),
    /// Text for a table of another program.
    ForeignText(&'a str),
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
    /// The connection failed. Others of its pool have probably failed, too.
    lost: bool,
    /// The last statement has no answer that tells its outcome.
    outcome_unknown: bool,
    /// A statement has failed since the transaction began.
    failed: bool,
    /// Statements run for their effect.
    writes: u64,
    /// Time for the answer to a statement, if it comes over a network.
    deadline: Option<Duration>,
    /// When the answers to all statements must have come, if they come over a network.
    until: Option<Instant>,
    last_used: Instant,
    lease: ConnectionLease,
    pub(crate) context: Arc<SqlContext>,
}

impl Drop for DbConnection {
    fn drop(&mut self) {
        let unchanged = !self.busy && self.deadline == self.lease.statement_deadline();
        if let Some(raw) = self.raw.take().filter(|_| unchanged) {
            self.lease.give_back(raw, self.last_used);
        } else if self.lost {
            self.lease.drop_idle();
        }
    }
}

/// Waits for an answer. Without a limit a server that lost its power would be waited for until the system gives the
/// connection up, which takes a quarter of an hour.
async fn within<T>(
    limit: Option<Duration>,
    answer: BoxFuture<'_, Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match limit {
        None => answer.await,
        Some(limit) => tokio::time::timeout(limit, answer)
            .await
            .unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into())),
    }
}

impl DbConnection {
    fn new(raw: RawConnection, lease: ConnectionLease, context: Arc<SqlContext>) -> DbConnection {
        DbConnection {
            raw: Some(raw),
            busy: false,
            lost: false,
            outcome_unknown: false,
            failed: false,
            writes: 0,
            deadline: lease.statement_deadline(),
            until: None,
            last_used: Instant::now(),
            lease,
            context,
        }
    }

    /// Returns the connection for one statement and counts the statement.
    fn begin_statement(&mut self) -> Result<&mut RawConnection, StoreError> {
        self.context.round_trips.fetch_add(1, Ordering::Relaxed);
        self.busy = true;
        self.raw.as_mut().ok_or_else(error::unavailable)
    }

    fn end_statement<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        self.outcome_unknown = result.as_ref().is_err_and(error::is_outcome_unknown);
        let result = result.map_err(error::from_sqlx);
        self.last_used = Instant::now();
        self.lost = result.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Unavailable);
        self.busy = self.lost;
        self.failed |= result.is_err();
        result
    }

    /// Lets statements take any time, as migrations may. The connection is closed after use.
    pub(crate) async fn remove_deadlines(&mut self) -> Result<(), StoreError> {
        self.deadline = None;
        let sql = self.context.dialect.remove_timeouts();
        if !sql.is_empty() {
            self.execute_text(sql).await?;
        }
        Ok(())
    }

    /// Ends statements at this time, if they go over a network.
    pub(crate) fn set_deadline(&mut self, until: Instant) {
        self.until = Some(until);
    }

    /// Time for the answer to the next statement.
    fn time_left(&self) -> Option<Duration> {
        let left = self.until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
        self.deadline.map(|deadline| deadline.min(left))
    }

    /// Begins to notice failed statements.
    pub(crate) fn begin_transaction(&mut self) {
        self.failed = false;
    }

    /// Whether a statement has failed since [`Self::begin_transaction`].
    pub(crate) fn statement_failed(&self) -> bool {
        self.failed
    }

    /// Statements run for their effect so far.
    pub(crate) fn writes(&self) -> u64 {
        self.writes
    }

    /// Whether a connection over a network was not used for so long that it may be lost. Its pool tests it.
    pub(crate) fn is_stale(&self) -> bool {
        self.deadline.is_some() && self.last_used.elapsed() >= STALE_AFTER
    }

    /// Whether the last statement may have had its effect although it failed.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        self.outcome_unknown
    }

    /// Whether the connection itself has failed.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Runs a statement for its effect; returns the number of affected rows.
    pub(crate) async fn execute(&mut self, sql: &str, args: &[Arg<'_>]) -> Result<u64, StoreError> {
        self.writes += 1;
        let limit = self.time_left();
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(raw) => sqlite::execute(raw, sql, args).await,
            RawConnection::Postgres(raw) => within(limit, postgres::execute(raw, sql, args)).await,
            RawConnection::MySql(raw) => within(limit, mysql::execute(raw, sql, args)).await,
        };
        self.end_statement(result)
    }

    /// Runs a text of one or several statements without bound values; returns the number of affected rows.
    pub(crate) async fn execute_text(&mut self, sql: &str) -> Result<u64, StoreError> {
        self.writes += 1;
        let limit = self.time_left();
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(raw) => sqlite::execute_text(raw, sql).await,
            RawConnection::Postgres(raw) => within(limit, postgres::execute_text(raw, sql)).await,
            RawConnection::MySql(raw) => within(limit, mysql::execute_text(raw, sql)).await,
        };
        self.end_statement(result)
    }

    /// Runs a statement and returns its rows.
    pub(crate) async fn fetch_all(&mut self, sql: &str, args: &[Arg<'_>]) -> Result<Vec<SqlRow>, StoreError> {
        let limit = self.time_left();
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(raw) => sqlite::fetch_all(raw, sql, args).await.map(SqlRow::all_sqlite),
            RawConnection::Postgres(raw) => {
                within(limit, postgres::fetch_all(raw, sql, args)).await.map(SqlRow::all_postgres)
            }
            RawConnection::MySql(raw) => {
                within(limit, mysql::fetch_all(raw, sql, args)).await.map(SqlRow::all_mysql)
            }
        };
        self.end_statement(result)
    }

    /// Runs a query without bound values and returns its rows.
    async fn fetch_text(&mut self, sql: &str) -> Result<Vec<SqlRow>, StoreError> {
        let limit = self.time_left();
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(raw) => sqlite::fetch_all(raw, sql, &[]).await.map(SqlRow::all_sqlite),
            RawConnection::Postgres(raw) => {
                within(limit, postgres::fetch_text(raw, sql)).await.map(SqlRow::all_postgres)
            }
            RawConnection::MySql(raw) => {
                within(limit, mysql::fetch_text(raw, sql)).await.map(SqlRow::all_mysql)
            }
        };
        self.end_statement(result)
    }

    /// Runs a statement and returns its rows; fails with `TooBroad` when the budget is exhausted.
    pub(crate) async fn fetch_all_within(
        &mut self,
        steps: &StepBudget,
        sql: &str,
        args: &[Arg<'_>],
    ) -> Result<Vec<SqlRow>, StoreError> {
        let limit = self.time_left();
        let result = match self.begin_statement()? {
            RawConnection::Sqlite(raw) => {
                sqlite::fetch_all_within(raw, steps, sql, args).await.map(SqlRow::all_sqlite)
            }
            // These servers end a statement by its time; see `statement_timeout`.
            RawConnection::Postgres(raw) => {
                within(limit, postgres::fetch_all(raw, sql, args)).await.map(SqlRow::all_postgres)
            }
            RawConnection::MySql(raw) => {
                within(limit, mysql::fetch_all(raw, sql, args)).await.map(SqlRow::all_mysql)
            }
        };
        self.end_statement(result)
    }

    /// Copies SQLite's write-ahead log into the database, without waiting for readers or writers; returns how many pages of the
    /// log are copied, since it began last. It is housekeeping and not counted as a round trip.
    pub(crate) async fn checkpoint(&mut self) -> Result<u64, StoreError> {
        self.busy = true;
        let result = match self.raw.as_mut().ok_or_else(error::unavailable)? {
            RawConnection::Sqlite(raw) => {
                sqlite::fetch_all(raw, "PRAGMA wal_checkpoint(PASSIVE)", &[]).await.map(SqlRow::all_sqlite)
            }
            // Servers write their own.
            RawConnection::Postgres(_) | RawConnection::MySql(_) => Ok(Vec::new()),
        };
        self.end_statement(result)?.into_iter().next().map_or(Ok(0), |row| row.number(2))
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

    /// Runs a statement with a list of pairs of values.
    pub(crate) async fn fetch_pairs(
        &mut self,
        sql: &SizedStatement,
        pairs: &[Arg<'_>],
    ) -> Result<Vec<SqlRow>, StoreError> {
        let mut all = Vec::new();
        for part in pairs.chunks(SizedStatement::MAX * 2) {
            let (size, text) = sql.at_least(part.len() / 2);
            all.append(&mut self.fetch_all(text, &pad_with_last_pair(part, size)).await?);
        }
        Ok(all)
    }

    /// Like [`Self::fetch_pairs`], for the effect.
    pub(crate) async fn execute_pairs(
        &mut self,
        sql: &SizedStatement,
        pairs: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        let mut touched = 0;
        for part in pairs.chunks(SizedStatement::MAX * 2) {
            let (size, text) = sql.at_least(part.len() / 2);
            touched += self.execute(text, &pad_with_last_pair(part, size)).await?;
        }
        Ok(touched)
    }

    /// Writes any number of rows of `width` values.
    pub(crate) async fn execute_rows(
        &mut self,
        sql: &RowsStatement,
        width: usize,
        values: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        let (push, parts) = match &sql.literal {
            // One row is prepared once and sent without its text.
            Some(literal) if values.len() > width => literal,
            _ => return self.execute_sized(&sql.sizes, width, values).await,
        };
        let (mut touched, mut rest) = (0, values);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(part_of_rows(rest, width));
            touched += self.execute_text(&literal_rows(*push, parts, width, now)).await?;
            rest = later;
        }
        Ok(touched)
    }

    /// Runs a statement once for each row of values.
    pub(crate) async fn execute_each(
        &mut self,
        sql: &RowStatement,
        values: &[Arg<'_>],
    ) -> Result<(), StoreError> {
        let Some(literal) = sql.literal.as_ref().filter(|_| values.len() > sql.width) else {
            for row in values.chunks(sql.width) {
                self.execute(&sql.prepared, row).await?;
            }
            return Ok(());
        };
        let mut rest = values;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(part_of_rows(rest, sql.width));
            self.execute_text(&literal_statements(literal, "; ", now)).await?;
            rest = later;
        }
        Ok(())
    }

    /// Runs a query once for each row of values, all of which are numbers, and returns the rows of all, which are numbers,
    /// too: a text without bound values has results in another form.
    pub(crate) async fn fetch_each(
        &mut self,
        sql: &RowStatement,
        values: &[Arg<'_>],
    ) -> Result<Vec<SqlRow>, StoreError> {
        match &sql.literal {
            Some(literal) if values.len() > sql.width => {
                self.fetch_text(&literal_statements(literal, " UNION ALL ", values)).await
            }
            _ => {
                let mut rows = Vec::new();
                for row in values.chunks(sql.width) {
                    rows.append(&mut self.fetch_all(&sql.prepared, row).await?);
                }
                Ok(rows)
            }
        }
    }

    async fn execute_sized(
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
