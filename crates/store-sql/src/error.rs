//! Translation of database errors into storage errors, each with one sentence. Each dialect classifies its codes.

use sqlx::mysql::MySqlDatabaseError;
use sqlx::postgres::PgDatabaseError;
use store::{StoreError, StoreErrorKind};

use crate::dialect::{mysql, postgres, sqlite};

pub(crate) fn from_sqlx(error: sqlx::Error) -> StoreError {
    let (kind, message) = match &error {
        sqlx::Error::Database(database) => {
            if let Some(error) = database.try_downcast_ref::<PgDatabaseError>() {
                postgres::classify(error)
            } else if let Some(error) = database.try_downcast_ref::<MySqlDatabaseError>() {
                mysql::classify(error)
            } else {
                sqlite::classify(database.code().and_then(|code| code.parse::<u32>().ok()))
            }
        }
        sqlx::Error::PoolTimedOut => (StoreErrorKind::Timeout, "timed out waiting for a database connection"),
        sqlx::Error::PoolClosed => (StoreErrorKind::Unavailable, "the database is closed"),
        // The form that errors of rustls take in a handshake.
        sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            (StoreErrorKind::Unavailable, "cannot encrypt the connection to the database")
        }
        sqlx::Error::Tls(_) => (StoreErrorKind::Unavailable, "cannot encrypt the connection to the database"),
        // The server breaks its protocol when it ends in the middle of an answer.
        sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => {
            (StoreErrorKind::Unavailable, "cannot reach the database")
        }
        sqlx::Error::Configuration(_) => (StoreErrorKind::Setup, "the database URL is invalid"),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            (StoreErrorKind::Corrupt, "the database returned an unexpected value")
        }
        _ => (StoreErrorKind::Internal, "the database rejected a statement"),
    };
    StoreError::new(kind, message).with_source(error)
}

/// Whether the outcome of a statement is unknown: the connection broke, the statement timed out, or the server ended it.
pub(crate) fn is_outcome_unknown(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(database) = error else { return true };
    if let Some(error) = database.try_downcast_ref::<PgDatabaseError>() {
        postgres::ends_connection(error.severity(), error.code())
    } else if let Some(error) = database.try_downcast_ref::<MySqlDatabaseError>() {
        mysql::ends_connection(error.number())
    } else {
        false
    }
}

/// Clones the error for another caller of the same transaction.
pub(crate) fn clone_error(error: &StoreError) -> StoreError {
    StoreError::new(error.kind, error.to_string())
}

/// An error that the operator must repair, with one sentence.
pub(crate) fn setup(message: impl Into<Box<str>>) -> StoreError {
    StoreError::new(StoreErrorKind::Setup, message)
}

pub(crate) fn unavailable() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "the database is closed")
}

pub(crate) fn overloaded() -> StoreError {
    StoreError::new(StoreErrorKind::Overloaded, "too many requests are waiting for the database")
}

pub(crate) fn deadline_exceeded() -> StoreError {
    StoreError::new(StoreErrorKind::Timeout, "the database did not respond in time")
}

pub(crate) fn corrupt(message: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, message)
}

/// Message of a server that refuses writes, and of which reads succeed.
pub(crate) const READ_ONLY: &str = "the database is read-only";

pub(crate) fn read_only() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, READ_ONLY)
}

pub(crate) fn is_read_only(error: &StoreError) -> bool {
    error.kind == StoreErrorKind::Unavailable && error.message() == READ_ONLY
}

/// The error of a write that counts as not stored, but may be stored.
pub(crate) fn in_doubt(cause: StoreError) -> StoreError {
    let message = "it is unknown whether the database stored the write";
    StoreError::new(StoreErrorKind::InDoubt, message).with_source(cause)
}

pub(crate) fn unreachable() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "cannot reach the database")
}

pub(crate) fn connect_timeout() -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, "cannot reach the database in time")
}
