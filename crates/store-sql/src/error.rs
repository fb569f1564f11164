//! Translation of database errors into storage errors, each with one sentence.
//!
//! Codes are those of <https://www.sqlite.org/rescode.html>; extended codes carry the primary one in their low byte.

use store::{StoreError, StoreErrorKind};

pub(crate) fn from_sqlx(error: sqlx::Error) -> StoreError {
    let (kind, message) = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().and_then(|code| code.parse::<u32>().ok());
            sqlite_code(code.map(|code| code & 255))
        }
        sqlx::Error::PoolTimedOut => (StoreErrorKind::Timeout, "timed out waiting for a database connection"),
        sqlx::Error::PoolClosed => (StoreErrorKind::Unavailable, "the database is closed"),
        sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) | sqlx::Error::Tls(_) => {
            (StoreErrorKind::Unavailable, "cannot reach the database")
        }
        sqlx::Error::Configuration(_) => (StoreErrorKind::Setup, "the storage URL is invalid"),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            (StoreErrorKind::Corrupt, "the database returned an unexpected value")
        }
        _ => (StoreErrorKind::Internal, "the database rejected a statement"),
    };
    StoreError::new(kind, message).with_source(error)
}

fn sqlite_code(primary: Option<u32>) -> (StoreErrorKind, &'static str) {
    match primary {
        Some(5 | 6) => (StoreErrorKind::Conflict, "the database is locked by another program"),
        Some(8 | 3) => (StoreErrorKind::Setup, "the database is read-only"),
        // Only the step budget of a search interrupts a statement.
        Some(9) => (StoreErrorKind::TooBroad, "the search exceeded its limit of rows"),
        Some(10) => (StoreErrorKind::Unavailable, "disk I/O error"),
        Some(13) => (StoreErrorKind::Unavailable, "the disk is full"),
        Some(14) => (StoreErrorKind::Setup, "cannot open the database"),
        Some(11) => (StoreErrorKind::Corrupt, "the database is damaged"),
        Some(26) => (StoreErrorKind::Setup, "the file is not a database"),
        Some(18) => (StoreErrorKind::TooLarge, "the value is too large for the database"),
        Some(19) => (StoreErrorKind::Conflict, "another program is writing to the database"),
        _ => (StoreErrorKind::Internal, "the database rejected a statement"),
    }
}

/// Clones the error for another caller of the same transaction.
pub(crate) fn clone_error(error: &StoreError) -> StoreError {
    StoreError::new(error.kind, error.to_string())
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
