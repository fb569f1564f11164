//! What differs between databases: the text of some statements, and how values travel.
//!
//! Tables write each statement once, with `?` for values, and ask a [`Dialect`] for the pieces that differ. [`Conn`]
//! carries statements and rows; it is an enum, so that tables need no type parameters.
//!
//! The trap for the next person: statements are prepared and cached by their text. Anything of varying length goes through
//! [`Sizes`], so that there are few texts.
mod pool;
pub(crate) mod sqlite;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use store::{ErrorKind, StoreError};

use crate::fault;
use crate::kit::Kit;
pub(crate) use pool::Pool;
pub use pool::PoolFigures;
use pool::{Home, Line};

/// The pieces of SQL that differ. The defaults are what SQLite and PostgreSQL share.
pub(crate) trait Dialect: Send + Sync {
    /// The statement as this database wants it; here `?` becomes what marks a value.
    fn sql(&self, text: &str) -> String {
        text.to_owned()
    }

    /// Begins a transaction that is going to write.
    fn begin(&self) -> &'static str;

    /// Lists the tables of this database.
    fn tables(&self) -> &'static str;

    /// Appended to a `SELECT` whose rows are about to be changed.
    fn lock_rows(&self) -> &'static str {
        ""
    }

    /// An expression that writes bytes as hexadecimal text; absent bytes as an empty one.
    fn hex(&self, bytes: &str) -> String;

    /// An expression for this many bytes of zero.
    fn zeros(&self, bytes: usize) -> String;

    /// An aggregate that joins texts by line feeds, in any order.
    fn join_lines(&self, text: &str) -> String;

    /// Inserts rows, leaving those alone whose key is there.
    fn insert_new(&self, table: &str, columns: &[&str], rows: usize) -> String {
        self.sql(&format!("{} ON CONFLICT DO NOTHING", plain_insert(table, columns, rows)))
    }

    /// Inserts rows, replacing all other columns of those whose key is there.
    fn upsert(&self, table: &str, key: &[&str], others: &[&str], rows: usize) -> String {
        let columns: Vec<&str> = key.iter().chain(others).copied().collect();
        let set: Vec<String> = others.iter().map(|name| format!("{name} = excluded.{name}")).collect();
        let insert = plain_insert(table, &columns, rows);
        self.sql(&format!("{insert} ON CONFLICT ({}) DO UPDATE SET {}", key.join(", "), set.join(", ")))
    }
}

fn plain_insert(table: &str, columns: &[&str], rows: usize) -> String {
    let row = format!("({})", marks(columns.len()));
    format!("INSERT INTO {table} ({}) VALUES {}", columns.join(", "), vec![row; rows].join(", "))
}

/// `n` marks for values, with commas.
pub(crate) fn marks(n: usize) -> String {
    vec!["?"; n].join(", ")
}

/// One statement in a few lengths, the powers of two.
pub(crate) struct Sizes([(usize, String); 9]);

impl Sizes {
    /// The longest length.
    pub(crate) const MOST: usize = 256;

    pub(crate) fn new(text: impl Fn(usize) -> String) -> Sizes {
        Sizes(std::array::from_fn(|power| (1 << power, text(1 << power))))
    }

    /// The shortest that takes `n` values; the caller repeats the last value to fill it. `n` is at most [`Self::MOST`].
    pub(crate) fn holding(&self, n: usize) -> (usize, &str) {
        let found = self.0.iter().find(|(size, _)| *size >= n).unwrap_or(&self.0[8]);
        (found.0, &found.1)
    }

    /// The longest that `n` values fill. `n` is at least 1.
    pub(crate) fn within(&self, n: usize) -> (usize, &str) {
        let found = self.0.iter().rev().find(|(size, _)| *size <= n).unwrap_or(&self.0[0]);
        (found.0, &found.1)
    }
}

/// A value on its way to the database.
#[derive(Clone, Copy)]
pub(crate) enum Arg<'a> {
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Null,
}

impl Arg<'_> {
    /// A number from this program; all are far below 2^63.
    pub(crate) fn number(number: u64) -> Arg<'static> {
        Arg::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }

    pub(crate) fn maybe_number(number: Option<u64>) -> Arg<'static> {
        number.map_or(Arg::Null, Arg::number)
    }
}

impl<'a> Arg<'a> {
    pub(crate) fn maybe_bytes(bytes: Option<&'a [u8]>) -> Arg<'a> {
        bytes.map_or(Arg::Null, Arg::Bytes)
    }
}

/// A connection with the statements of this database.
/// Steps that statements of one call may take together: instructions of SQLite's machine, some fifty for a row that is read.
/// A count and no time, so that the same search always ends the same way.
#[derive(Clone)]
pub(crate) struct Steps(Arc<AtomicI64>);

impl Steps {
    pub(crate) fn new(most: i64) -> Steps {
        Steps(Arc::new(AtomicI64::new(most)))
    }

    /// Takes some; false when none were left.
    fn take(&self, some: i32) -> bool {
        self.0.fetch_sub(i64::from(some), Ordering::Relaxed) > 0
    }
}

pub(crate) struct Conn {
    line: Option<Line>,
    /// A statement is under way, or was cut off. Such a connection does not go back.
    busy: bool,
    home: Home,
    pub(crate) kit: Arc<Kit>,
}

impl Drop for Conn {
    fn drop(&mut self) {
        if let Some(line) = self.line.take().filter(|_| !self.busy) {
            self.home.take_back(line);
        }
    }
}

impl Conn {
    fn new(line: Line, home: Home, kit: Arc<Kit>) -> Conn {
        Conn { line: Some(line), busy: false, home, kit }
    }

    /// The connection for one statement, which is counted.
    fn begin(&mut self) -> Result<&mut Line, StoreError> {
        self.kit.round_trips.fetch_add(1, Ordering::Relaxed);
        self.busy = true;
        self.line.as_mut().ok_or_else(fault::unavailable)
    }

    fn end<T>(&mut self, result: Result<T, sqlx::Error>) -> Result<T, StoreError> {
        let result = result.map_err(fault::classify);
        self.busy = result.as_ref().is_err_and(|error| error.kind == ErrorKind::Unavailable);
        result
    }

    /// Runs a statement for its effect; answers how many rows it touched.
    pub(crate) async fn run(&mut self, sql: &str, args: &[Arg<'_>]) -> Result<u64, StoreError> {
        let result = match self.begin()? {
            Line::Sqlite(line) => sqlite::run(line, sql, args).await,
        };
        self.end(result)
    }

    /// Runs a statement for its rows.
    pub(crate) async fn rows(&mut self, sql: &str, args: &[Arg<'_>]) -> Result<Vec<Row>, StoreError> {
        let result = match self.begin()? {
            Line::Sqlite(line) => sqlite::rows(line, sql, args).await,
        };
        self.end(result).map(|rows| rows.into_iter().map(Row::Sqlite).collect())
    }

    /// Runs a statement for its rows, as long as steps are left; `TooBroad` when they are used up.
    pub(crate) async fn rows_within(
        &mut self,
        steps: &Steps,
        sql: &str,
        args: &[Arg<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let result = match self.begin()? {
            Line::Sqlite(line) => sqlite::rows_within(line, steps, sql, args).await,
        };
        self.end(result).map(|rows| rows.into_iter().map(Row::Sqlite).collect())
    }

    /// Runs a statement for its first row.
    pub(crate) async fn row(&mut self, sql: &str, args: &[Arg<'_>]) -> Result<Option<Row>, StoreError> {
        Ok(self.rows(sql, args).await?.into_iter().next())
    }

    /// Runs a statement with a list of values, as often as its longest length asks.
    pub(crate) async fn rows_in(&mut self, sql: &Sizes, list: &[Arg<'_>]) -> Result<Vec<Row>, StoreError> {
        let mut all = Vec::new();
        for part in list.chunks(Sizes::MOST) {
            let (size, text) = sql.holding(part.len());
            all.append(&mut self.rows(text, &padded(part, size)).await?);
        }
        Ok(all)
    }

    /// The same for the effect.
    pub(crate) async fn run_in(&mut self, sql: &Sizes, list: &[Arg<'_>]) -> Result<u64, StoreError> {
        let mut touched = 0;
        for part in list.chunks(Sizes::MOST) {
            let (size, text) = sql.holding(part.len());
            touched += self.run(text, &padded(part, size)).await?;
        }
        Ok(touched)
    }

    /// Runs a statement that takes `width` values a row over any number of rows.
    pub(crate) async fn run_rows(
        &mut self,
        sql: &Sizes,
        width: usize,
        values: &[Arg<'_>],
    ) -> Result<u64, StoreError> {
        let (mut touched, mut rest) = (0, values);
        while !rest.is_empty() {
            let (size, text) = sql.within(rest.len() / width);
            let (now, later) = rest.split_at(size * width);
            touched += self.run(text, now).await?;
            rest = later;
        }
        Ok(touched)
    }

    /// Runs a file of statements without values.
    pub(crate) async fn script(&mut self, sql: &str) -> Result<(), StoreError> {
        let result = match self.begin()? {
            Line::Sqlite(line) => sqlite::script(line, sql).await,
        };
        self.end(result)
    }

    /// The names of all tables.
    pub(crate) async fn tables(&mut self) -> Result<Vec<String>, StoreError> {
        let rows = self.rows(self.kit.clone().dialect.tables(), &[]).await?;
        rows.iter().map(|row| row.text(0).map(str::to_owned)).collect()
    }

    /// A statement that is not worth keeping, in this database's words.
    pub(crate) fn sql(&self, text: &str) -> String {
        self.kit.dialect.sql(text)
    }

    /// Closes the connection instead of returning it to its pool.
    pub(crate) fn discard(mut self) {
        self.busy = true;
    }
}

fn padded<'a>(part: &[Arg<'a>], size: usize) -> Vec<Arg<'a>> {
    let mut args = part.to_vec();
    if let Some(last) = part.last() {
        args.resize(size, *last);
    }
    args
}

/// A row as it came. Columns are counted from 0.
pub(crate) enum Row {
    Sqlite(SqliteRow),
}

impl Row {
    pub(crate) fn number(&self, column: usize) -> Result<u64, StoreError> {
        self.maybe_number(column)?.ok_or_else(|| absent(column))
    }

    pub(crate) fn maybe_number(&self, column: usize) -> Result<Option<u64>, StoreError> {
        let Row::Sqlite(row) = self;
        let number: Option<i64> = row.try_get_unchecked(column).map_err(fault::classify)?;
        let wrong = || StoreError::new(ErrorKind::Corrupt, "the database holds a negative number");
        number.map(|number| u64::try_from(number).map_err(|_| wrong())).transpose()
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, StoreError> {
        self.maybe_text(column)?.ok_or_else(|| absent(column))
    }

    pub(crate) fn maybe_text(&self, column: usize) -> Result<Option<&str>, StoreError> {
        let Row::Sqlite(row) = self;
        row.try_get_unchecked(column).map_err(fault::classify)
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8], StoreError> {
        self.maybe_bytes(column)?.ok_or_else(|| absent(column))
    }

    pub(crate) fn maybe_bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError> {
        let Row::Sqlite(row) = self;
        row.try_get_unchecked(column).map_err(fault::classify)
    }
}

fn absent(column: usize) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, format!("the database left column {column} empty"))
}
