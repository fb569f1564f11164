//! Rows of any database.

use sqlx::Row as _;
use sqlx::mysql::MySqlRow;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use store::{StoreError, StoreErrorKind};

use crate::error;

/// A row as fetched. Columns are counted from 0.
pub(crate) enum SqlRow {
    Sqlite(SqliteRow),
    Postgres(PgRow),
    MySql(MySqlRow),
}

/// Decodes a column as the type of the surrounding function.
macro_rules! column {
    ($row:expr, $column:expr) => {
        match $row {
            SqlRow::Sqlite(row) => row.try_get_unchecked($column),
            SqlRow::Postgres(row) => row.try_get_unchecked($column),
            SqlRow::MySql(row) => row.try_get_unchecked($column),
        }
        .map_err(error::from_sqlx)
    };
}

impl SqlRow {
    pub(super) fn all_sqlite(rows: Vec<SqliteRow>) -> Vec<SqlRow> {
        rows.into_iter().map(SqlRow::Sqlite).collect()
    }

    pub(super) fn all_postgres(rows: Vec<PgRow>) -> Vec<SqlRow> {
        rows.into_iter().map(SqlRow::Postgres).collect()
    }

    pub(super) fn all_mysql(rows: Vec<MySqlRow>) -> Vec<SqlRow> {
        rows.into_iter().map(SqlRow::MySql).collect()
    }

    pub(crate) fn number(&self, column: usize) -> Result<u64, StoreError> {
        self.optional_number(column)?.ok_or_else(|| null_column(column))
    }

    pub(crate) fn optional_number(&self, column: usize) -> Result<Option<u64>, StoreError> {
        let number: Option<i64> = column!(self, column)?;
        let wrong = || StoreError::new(StoreErrorKind::Corrupt, "the database contains a negative number");
        number.map(|number| u64::try_from(number).map_err(|_| wrong())).transpose()
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str, StoreError> {
        self.optional_text(column)?.ok_or_else(|| null_column(column))
    }

    pub(crate) fn optional_text(&self, column: usize) -> Result<Option<&str>, StoreError> {
        column!(self, column)
    }

    pub(crate) fn bytes(&self, column: usize) -> Result<&[u8], StoreError> {
        self.optional_bytes(column)?.ok_or_else(|| null_column(column))
    }

    pub(crate) fn optional_bytes(&self, column: usize) -> Result<Option<&[u8]>, StoreError> {
        column!(self, column)
    }
}

fn null_column(column: usize) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, format!("the database returned NULL for column {column}"))
}
