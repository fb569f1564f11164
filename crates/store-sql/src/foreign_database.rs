//! A database of another program, in which account providers look up and change rows with statements of the operator.
//!
//! It has a pool of its own. Nothing is created or migrated, and connections that have no statements to write refuse to.
//! Values are bound as texts with the type that the database infers; columns are returned as texts, whatever their type is.
//!
//! Not implemented: columns of types without an obvious text, such as timestamps: the statement casts them.
//!
//! # Pitfalls
//!
//! In MySQL a value must not be bound as bytes, as values of our own tables are: a comparison of a text column with bytes
//! uses no index.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use base::Clock;
use sqlx::error::DatabaseError;
use sqlx::{Column as _, Row as _, TypeInfo as _, ValueRef as _};
use store::{StoreError, StoreErrorKind};

use crate::DatabaseOptions;
use crate::context::SqlContext;
use crate::dialect::{Arg, ConnectionPool, PoolLimits, PoolPurpose, SqlRow};
use crate::error::{self, setup};
use crate::location::{Encryption, Location};

/// Options of a foreign database.
#[derive(Clone, Debug)]
pub struct ForeignDatabaseOptions {
    /// File with the password of the user. Not for SQLite.
    pub password_file: Option<PathBuf>,
    /// Connections, at most. They are opened on demand.
    pub connections: u32,
    /// A statement that takes longer is ended.
    pub deadline: Duration,
    /// Whether statements may write.
    pub writes: bool,
}

/// A database of another program.
pub struct ForeignDatabase {
    location: Location,
    pool: ConnectionPool,
    context: Arc<SqlContext>,
}

impl ForeignDatabase {
    /// Nothing is connected yet.
    ///
    /// # Errors
    /// `Setup` with one sentence when the URL is wrong or the password cannot be read.
    pub fn open(
        url: &str,
        options: &ForeignDatabaseOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<ForeignDatabase, StoreError> {
        let location = Location::parse(url)?.with_password_file(options.password_file.as_deref())?;
        // An attacker who could change an answer could log in to any account.
        if !matches!(location.encryption(), Encryption::Local | Encryption::Verified) {
            let message = format!(
                "{} is not on this machine, so its certificate must be verified: add {} to the URL",
                location.shown(),
                location.encryption_parameters()
            );
            return Err(setup(message));
        }
        let database = DatabaseOptions {
            create: false,
            read_deadline: options.deadline,
            write_deadline: options.deadline,
            statement_timeout: options.deadline,
            connect_timeout: options.deadline,
            busy_timeout: options.deadline,
            ..DatabaseOptions::default()
        };
        let limits = PoolLimits::at_most(options.connections);
        let purpose = if options.writes { PoolPurpose::Write } else { PoolPurpose::Read };
        let pool = location.foreign_pool(&database, limits, purpose);
        let context = SqlContext::new(location.dialect(), clock);
        Ok(ForeignDatabase { location, pool, context })
    }

    /// The database in messages, without a password.
    pub fn name(&self) -> String {
        self.location.shown()
    }

    /// The placeholder of the value with this number, counted from 1.
    pub fn placeholder(&self, number: usize) -> String {
        match &self.location {
            Location::Postgres(_) => format!("${number}"),
            Location::Sqlite(_) | Location::MySql(_) => "?".to_owned(),
        }
    }

    /// The rows of a query, each with its columns as texts; `None` for NULL. It runs again if the connection was lost.
    ///
    /// # Errors
    /// If the database does not answer or refuses the statement, or a column has no text.
    pub async fn rows(&self, sql: &str, values: &[String]) -> Result<Vec<Vec<Option<String>>>, StoreError> {
        let rows = match self.fetch(sql, values).await {
            Err(error) if error.kind == StoreErrorKind::Unavailable => self.fetch(sql, values).await?,
            fetched => fetched?,
        };
        rows.iter().map(columns).collect()
    }

    async fn fetch(&self, sql: &str, values: &[String]) -> Result<Vec<SqlRow>, StoreError> {
        let mut conn = self.pool.acquire_now(&self.context).await?;
        conn.fetch_all(sql, &bound(values)).await
    }

    /// Runs a statement for its effect; returns the number of changed rows. It runs once.
    ///
    /// # Errors
    /// As [`ForeignDatabase::rows`]; see [`is_duplicate_key`].
    pub async fn execute(&self, sql: &str, values: &[String]) -> Result<u64, StoreError> {
        let mut conn = self.pool.acquire_now(&self.context).await?;
        conn.execute(sql, &bound(values)).await
    }
}

/// Whether a statement failed because a row with the same key exists.
pub fn is_duplicate_key(error: &StoreError) -> bool {
    refusal(error).is_some_and(DatabaseError::is_unique_violation)
}

/// The code with which the database refused a statement: without its message, which may have values in it.
pub fn refusal_code(error: &StoreError) -> Option<String> {
    refusal(error)?.code().map(Cow::into_owned)
}

fn refusal(error: &StoreError) -> Option<&dyn DatabaseError> {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<sqlx::Error>());
    source.and_then(sqlx::Error::as_database_error)
}

fn bound(values: &[String]) -> Vec<Arg<'_>> {
    values.iter().map(|value| Arg::ForeignText(value)).collect()
}

/// Decodes the columns of a row by their types.
macro_rules! columns {
    ($row:expr) => {
        (0..$row.len())
            .map(|at| {
                let value = $row.try_get_raw(at).map_err(error::from_sqlx)?;
                if value.is_null() {
                    return Ok(None);
                }
                let kind = value.type_info().name().to_ascii_uppercase();
                let text = match column_kind(&kind) {
                    ColumnKind::Boolean => {
                        $row.try_get_unchecked::<bool, _>(at).map(|value| value.to_string())
                    }
                    ColumnKind::Integer(bytes) => integer!($row, at, bytes),
                    ColumnKind::Bytes => $row
                        .try_get_unchecked::<Vec<u8>, _>(at)
                        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
                    ColumnKind::Text => $row.try_get_unchecked::<String, _>(at),
                    ColumnKind::Other => {
                        let name = $row.column(at).name();
                        let message = format!("the column {name} has the type {kind}; cast it to a text");
                        return Err(StoreError::new(StoreErrorKind::Corrupt, message));
                    }
                };
                text.map(Some).map_err(error::from_sqlx)
            })
            .collect()
    };
}

/// Decodes an integer of this size, which PostgreSQL insists on.
macro_rules! integer {
    ($row:expr, $at:expr, $bytes:expr) => {
        match $bytes {
            2 => $row.try_get_unchecked::<i16, _>($at).map(|value| value.to_string()),
            4 => $row.try_get_unchecked::<i32, _>($at).map(|value| value.to_string()),
            _ => $row.try_get_unchecked::<i64, _>($at).map(|value| value.to_string()),
        }
    };
}

fn columns(row: &SqlRow) -> Result<Vec<Option<String>>, StoreError> {
    match row {
        SqlRow::Sqlite(row) => columns!(row),
        SqlRow::Postgres(row) => columns!(row),
        SqlRow::MySql(row) => columns!(row),
    }
}

enum ColumnKind {
    Boolean,
    /// With its size in bytes in PostgreSQL.
    Integer(u8),
    Text,
    Bytes,
    Other,
}

fn column_kind(name: &str) -> ColumnKind {
    match name {
        "BOOL" | "BOOLEAN" => ColumnKind::Boolean,
        "INT2" => ColumnKind::Integer(2),
        "INT4" => ColumnKind::Integer(4),
        "INT8" | "INTEGER" => ColumnKind::Integer(8),
        name if name.contains("INT") && !name.contains("INTERVAL") && !name.contains("POINT") => {
            ColumnKind::Integer(8)
        }
        "BYTEA" | "BLOB" | "TINYBLOB" | "MEDIUMBLOB" | "LONGBLOB" | "BINARY" | "VARBINARY" => {
            ColumnKind::Bytes
        }
        "TEXT" | "VARCHAR" | "CHAR" | "BPCHAR" | "NAME" | "CITEXT" | "TINYTEXT" | "MEDIUMTEXT"
        | "LONGTEXT" | "ENUM" | "UNKNOWN" => ColumnKind::Text,
        _ => ColumnKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_elsewhere_must_prove_who_it_is() {
        let open = |url: &str| {
            let options = ForeignDatabaseOptions {
                password_file: None,
                connections: 1,
                deadline: Duration::from_secs(1),
                writes: false,
            };
            ForeignDatabase::open(url, &options, Arc::new(base::ManualClock::new())).map(drop)
        };
        for url in [
            "sqlite:accounts.db",
            "postgres://u@localhost/d",
            "postgres://u@127.0.0.1/d",
            "postgres://u@[::1]/d",
            "postgres://u@x/d?host=/run/postgresql",
            "postgres://u@db.example.net/d?sslmode=verify-full",
            "mysql://u@127.0.0.1/d",
            "mysql://u@db.example.net/d?ssl-mode=VERIFY_IDENTITY",
        ] {
            assert!(open(url).is_ok(), "{url}");
        }
        for url in [
            "postgres://u@db.example.net/d",
            "postgres://u@192.0.2.1/d?sslmode=require",
            "mysql://u@db.example.net/d",
            "mysql://u@db.example.net/d?ssl-mode=REQUIRED",
        ] {
            assert!(open(url).unwrap_err().to_string().contains("must be verified"), "{url}");
        }
    }
}
