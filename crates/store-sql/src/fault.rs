//! The database's errors as storage errors, each with one sentence.
//!
//! Codes are those of <https://www.sqlite.org/rescode.html>; extended codes carry the primary one in their low byte.
use store::{ErrorKind, StoreError};

pub(crate) fn classify(error: sqlx::Error) -> StoreError {
    let (kind, message) = match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().and_then(|code| code.parse::<u32>().ok());
            sqlite_code(code.map(|code| code & 255))
        }
        sqlx::Error::PoolTimedOut => (ErrorKind::Timeout, "no database connection became free in time"),
        sqlx::Error::PoolClosed => (ErrorKind::Unavailable, "the database is closed"),
        sqlx::Error::WorkerCrashed | sqlx::Error::Io(_) | sqlx::Error::Tls(_) => {
            (ErrorKind::Unavailable, "the database cannot be reached")
        }
        sqlx::Error::Configuration(_) => (ErrorKind::Setup, "the storage address is wrong"),
        sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::Decode(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. } => {
            (ErrorKind::Corrupt, "the database answered what cannot be read")
        }
        _ => (ErrorKind::Internal, "the database refused a statement"),
    };
    StoreError::new(kind, message).because(error)
}

fn sqlite_code(primary: Option<u32>) -> (ErrorKind, &'static str) {
    match primary {
        Some(5 | 6) => (ErrorKind::Conflict, "the database is locked by another program"),
        Some(8 | 3) => (ErrorKind::Setup, "the database may not be written to"),
        // Nothing but the budget of a search interrupts a statement.
        Some(9) => (ErrorKind::TooBroad, "the search would read more than one search may"),
        Some(10) => (ErrorKind::Unavailable, "the disk failed"),
        Some(13) => (ErrorKind::Unavailable, "the disk is full"),
        Some(14) => (ErrorKind::Setup, "the database cannot be opened"),
        Some(11) => (ErrorKind::Corrupt, "the database is damaged"),
        Some(26) => (ErrorKind::Setup, "the file is not a database"),
        Some(18) => (ErrorKind::TooLarge, "the value is too large for the database"),
        Some(19) => (ErrorKind::Conflict, "another writer was in the way"),
        _ => (ErrorKind::Internal, "the database refused a statement"),
    }
}

/// The same error for another caller of the same transaction.
pub(crate) fn again(error: &StoreError) -> StoreError {
    StoreError::new(error.kind, error.to_string())
}

pub(crate) fn unavailable() -> StoreError {
    StoreError::new(ErrorKind::Unavailable, "the database is closed")
}

pub(crate) fn overloaded() -> StoreError {
    StoreError::new(ErrorKind::Overloaded, "too many requests wait for the database")
}

pub(crate) fn late() -> StoreError {
    StoreError::new(ErrorKind::Timeout, "the database did not answer in time")
}

pub(crate) fn corrupt(message: &'static str) -> StoreError {
    StoreError::new(ErrorKind::Corrupt, message)
}
