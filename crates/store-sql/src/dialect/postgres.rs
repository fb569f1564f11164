//! PostgreSQL 13 and later: connections and SQL fragments.
//!
//! Text and byte values are bound without a type, so that the server takes the type of their column; both have the
//! same binary form. Texts that may contain any character are stored as `bytea`, because `text` cannot contain U+0000.
//! Columns of type `text` have the collation `C`, so that they are compared and ordered by code points.
//!
//! # Pitfalls
//!
//! The type of a parameter must follow from its context: `WHERE jid = ?` is fine, `SELECT ?` is text.

use std::fmt::Write as _;
use std::str::FromStr;

use base::BoxFuture;
use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{
    PgArgumentBuffer, PgArguments, PgConnectOptions, PgConnection, PgDatabaseError, PgRow, PgSeverity,
    PgTypeInfo, Postgres,
};
use sqlx::{Arguments, ConnectOptions, Encode, Type};
use store::{StoreError, StoreErrorKind};

use super::pool::RawConnectOptions;
use super::server_statements::server_statements;
use super::statements::{number_placeholders, push_hex};
use super::{Arg, ConnectionPool, Dialect, LiteralRows, PoolLimits, PoolPurpose};
use crate::DatabaseOptions;
use crate::error::{READ_ONLY, setup};
use crate::migrate::{Migration, POSTGRES_MIGRATIONS};

pub(crate) struct PostgresDialect;

impl Dialect for PostgresDialect {
    fn sql(&self, text: &str) -> String {
        number_placeholders(text)
    }

    fn begin_write(&self) -> &'static str {
        // Whatever the server's default is. Without READ WRITE, which a standby refuses with the code of an unknown
        // feature instead of that of a read-only server.
        "BEGIN ISOLATION LEVEL READ COMMITTED"
    }

    fn list_tables(&self) -> &'static str {
        "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()"
    }

    fn hex(&self, bytes: &str) -> String {
        format!("coalesce(encode({bytes}, 'hex'), '')")
    }

    fn zero_bytes(&self, bytes: usize) -> String {
        format!("decode(repeat('00', {bytes}), 'hex')")
    }

    fn join_lines(&self, text: &str) -> String {
        format!("string_agg({text}, chr(10))")
    }

    fn sum(&self, number: &str) -> String {
        // The sum of bigint is numeric.
        format!("coalesce(sum({number}), 0)::bigint")
    }

    fn lock_rows(&self) -> Option<&'static str> {
        Some("FOR UPDATE")
    }

    fn lock_rows_shared(&self) -> Option<&'static str> {
        Some("FOR SHARE")
    }

    fn lock_accounts(&self, ids: &str, names: &str) -> String {
        // An array: with `OR` the server would read all accounts.
        format!(
            "SELECT id FROM account WHERE id = ANY (ARRAY(SELECT unnest(ARRAY[{ids}]::bigint[]) UNION ALL \
             SELECT id FROM address WHERE jid IN ({names}))) ORDER BY id FOR UPDATE"
        )
    }

    fn migration_lock(&self) -> [&'static str; 2] {
        ["SELECT pg_advisory_lock(8390877713412350823)", "SELECT pg_advisory_unlock(8390877713412350823)"]
    }

    fn remove_timeouts(&self) -> &'static str {
        // A migration may read whole tables.
        "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
         RESET enable_seqscan; RESET enable_hashjoin; RESET enable_mergejoin"
    }

    fn migrations(&self) -> &'static [Migration] {
        POSTGRES_MIGRATIONS
    }

    fn literal_rows(&self) -> Option<LiteralRows> {
        Some(push_literal)
    }
}

fn push_literal(sql: &mut String, arg: &Arg<'_>) {
    match *arg {
        Arg::Int(number) => {
            // Writing to a string does not fail.
            let _ = write!(sql, "{number}");
        }
        Arg::Text(text) => {
            sql.push('\'');
            for char in text.chars() {
                // U+0000 is refused by the server in any form; see `Arg::Text`.
                if char == '\'' {
                    sql.push('\'');
                }
                sql.push(char);
            }
            sql.push('\'');
        }
        Arg::AnyText(text) | Arg::ForeignText(text) => push_bytea(sql, text.as_bytes()),
        Arg::Bytes(bytes) => push_bytea(sql, bytes),
        Arg::Null => sql.push_str("NULL"),
    }
}

fn push_bytea(sql: &mut String, bytes: &[u8]) {
    sql.push_str("'\\x");
    push_hex(sql, bytes);
    sql.push('\'');
}

/// A value whose type the server infers from its context.
struct Untyped<'a>(Option<&'a [u8]>);

impl Type<Postgres> for Untyped<'_> {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(0))
    }
}

impl Encode<'_, Postgres> for Untyped<'_> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        match self.0 {
            Some(bytes) => {
                buffer.extend_from_slice(bytes);
                Ok(IsNull::No)
            }
            None => Ok(IsNull::Yes),
        }
    }
}

fn bind(args: &[Arg<'_>]) -> Result<PgArguments, sqlx::Error> {
    let mut bound = PgArguments::default();
    for arg in args {
        match *arg {
            Arg::Int(number) => bound.add(number),
            Arg::Text(text) | Arg::AnyText(text) | Arg::ForeignText(text) => {
                Arguments::add(&mut bound, Untyped(Some(text.as_bytes())))
            }
            Arg::Bytes(bytes) => Arguments::add(&mut bound, Untyped(Some(bytes))),
            Arg::Null => Arguments::add(&mut bound, Untyped(None)),
        }
        .map_err(sqlx::Error::Encode)?;
    }
    Ok(bound)
}

/// How to connect; `postgres://USER@HOST/DATABASE`.
pub(crate) fn connect_options(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|error| setup("the database URL is invalid").with_source(error))?;
    Ok(options
        .application_name("throng")
        // All statements of this crate in all their lengths.
        .statement_cache_capacity(256)
        .disable_statement_logging())
}

/// Each of our statements reads rows by their keys or in the order of an index. A server keeps the plan of a prepared statement
/// until the tables are analysed, so a plan that reads a small table as a whole would still do so when it has grown.
pub(crate) const INDEX_PLAN_SETTINGS: &str =
    "; SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";

/// A pool for our own tables.
pub(crate) fn pool(
    connect: &PgConnectOptions,
    options: &DatabaseOptions,
    name: &'static str,
    limits: PoolLimits,
    purpose: PoolPurpose,
) -> ConnectionPool {
    let statements = session_settings(options, purpose) + INDEX_PLAN_SETTINGS;
    pool_with(connect, options, name, limits, (purpose, statements))
}

/// A pool for the tables and statements of another program.
pub(crate) fn foreign_pool(
    connect: &PgConnectOptions,
    options: &DatabaseOptions,
    limits: PoolLimits,
    purpose: PoolPurpose,
) -> ConnectionPool {
    pool_with(connect, options, "foreign", limits, (purpose, session_settings(options, purpose)))
}

fn pool_with(
    connect: &PgConnectOptions,
    options: &DatabaseOptions,
    name: &'static str,
    limits: PoolLimits,
    (purpose, settings): (PoolPurpose, String),
) -> ConnectionPool {
    let connect = RawConnectOptions::Postgres(Box::new(connect.clone()), settings);
    ConnectionPool::new(connect, name, limits, options, Some(options.statement_timeout_of(purpose)))
}

fn session_settings(options: &DatabaseOptions, purpose: PoolPurpose) -> String {
    // In both cases a statement that nobody waits for any more must end.
    let limit = options.statement_timeout_of(purpose);
    let mut statements = format!(
        "SET default_transaction_isolation = 'read committed'; SET standard_conforming_strings = on; \
         SET client_encoding = 'UTF8'; SET statement_timeout = {}",
        limit.as_millis().min(i32::MAX as u128)
    );
    if purpose == PoolPurpose::Read {
        statements += "; SET default_transaction_read_only = on";
    } else {
        // A transaction of a node that is gone must not hold its locks until the operating system notices.
        let idle = options.statement_timeout.as_millis().min(i32::MAX as u128);
        statements +=
            &format!("; SET idle_in_transaction_session_timeout = {idle}; SET synchronous_commit = on");
    }
    statements
}

server_statements!(PgConnection, PgRow);

/// Classifies an error by its SQLSTATE (<https://www.postgresql.org/docs/current/errcodes-appendix.html>).
pub(crate) fn classify(error: &PgDatabaseError) -> (StoreErrorKind, &'static str) {
    let code = error.code();
    match code {
        "40001" | "40P01" | "55P03" => {
            (StoreErrorKind::Conflict, "the database aborted a transaction that competed with another")
        }
        "23505" => (StoreErrorKind::Conflict, "another node wrote the same row"),
        "57014" => (StoreErrorKind::Timeout, "the database did not respond in time"),
        // Another node has migrated the schema, and this connection has statements prepared for the former one. Another
        // connection prepares them again.
        "0A000" if error.routine() == Some("RevalidateCachedQuery") => {
            (StoreErrorKind::Unavailable, "another node has changed the schema of the database")
        }
        "25006" => (StoreErrorKind::Unavailable, READ_ONLY),
        "53100" => (StoreErrorKind::Unavailable, "the disk of the database is full"),
        "53300" => (StoreErrorKind::Unavailable, "the database accepts no more connections"),
        "3D000" => (StoreErrorKind::Setup, "the database does not exist"),
        "42501" => (StoreErrorKind::Setup, "the database denies a permission"),
        "2200H" => (StoreErrorKind::TooLarge, "the address dictionary is full"),
        "XX001" | "XX002" => (StoreErrorKind::Corrupt, "the database is damaged"),
        _ => match code.get(..2).unwrap_or_default() {
            "08" | "57" | "25" => (StoreErrorKind::Unavailable, "the database is not available"),
            "53" | "58" => (StoreErrorKind::Unavailable, "the database has no resources left"),
            "28" => (StoreErrorKind::Setup, "the database refused the user or the password"),
            "22" | "54" => (StoreErrorKind::TooLarge, "the value is not supported by the database"),
            "40" => (StoreErrorKind::Conflict, "the database aborted a transaction"),
            _ => (StoreErrorKind::Internal, "the database rejected a statement"),
        },
    }
}

/// Whether this error ends the connection, so that the statement may have taken effect. A server that cannot write its WAL during
/// a commit reports a full disk as PANIC, and may show the commit after its restart.
pub(crate) fn ends_connection(severity: PgSeverity, code: &str) -> bool {
    matches!(severity, PgSeverity::Panic | PgSeverity::Fatal)
        || code.starts_with("57P")
        || code.starts_with("08")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_roll_back_unless_they_end_the_connection() {
        for code in ["25006", "40001", "53100", "53200", "53300", "57014", "58030", "XX001"] {
            assert!(!ends_connection(PgSeverity::Error, code), "{code}: it rolls back");
        }
        for (severity, code) in [
            (PgSeverity::Panic, "53100"),
            (PgSeverity::Fatal, "57P01"),
            (PgSeverity::Fatal, "25P03"),
            // A proxy may report these, whatever it says of their severity.
            (PgSeverity::Error, "57P01"),
            (PgSeverity::Error, "08006"),
        ] {
            assert!(ends_connection(severity, code), "{severity:?} {code}");
        }
    }

    #[test]
    fn literals_cannot_end_early() {
        let mut sql = String::new();
        for arg in [
            Arg::Int(-5),
            Arg::Text("o'neill\\"),
            Arg::AnyText("a\u{0}'"),
            Arg::Bytes(&[0, 0x27, 255]),
            Arg::Null,
        ] {
            push_literal(&mut sql, &arg);
            sql.push(' ');
        }
        assert_eq!(sql, "-5 'o''neill\\' '\\x610027' '\\x0027ff' NULL ");
    }
}
