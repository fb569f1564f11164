//! Storage errors, and whether a retry can help.
//!
//! A failed write was not stored and will not be, so its sender may be informed. The exceptions are the kind
//! [`StoreErrorKind::InDoubt`] and a backend that crashed during the write.
//!
//! # Pitfalls
//!
//! A backend must not let a deadline interrupt a write that it has begun.

use std::error::Error;
use std::fmt;

/// The kinds of error that callers distinguish.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum StoreErrorKind {
    /// The backend cannot be reached or is shutting down.
    Unavailable,
    /// The bounded queue of the backend is full; nothing was attempted.
    Overloaded,
    /// The deadline passed. A write had not begun and will not happen.
    Timeout,
    /// It is unknown whether the write was stored: the server failed during the commit, and those that were reached since
    /// then are read-only and cannot tell, or this program ends.
    InDoubt,
    /// A concurrent writer caused a conflict; nothing was changed.
    Conflict,
    /// The caller is not the owner of what it writes any more ([`crate::WriteFence`]); nothing was changed.
    Fenced,
    /// The account to create already exists.
    AlreadyExists,
    /// The account does not exist.
    NotFound,
    /// Stored data is invalid.
    Corrupt,
    /// A value exceeds the backend's limit, or the dictionary is full.
    TooLarge,
    /// A search would exceed the number of rows that one search may read.
    TooBroad,
    /// The backend cannot be used as configured (path, permission, version of the schema).
    Setup,
    /// A bug in the program, such as a panic in a roster change.
    Internal,
}

impl StoreErrorKind {
    /// Every kind, in order of declaration.
    pub const ALL: [StoreErrorKind; 13] = [
        StoreErrorKind::Unavailable,
        StoreErrorKind::Overloaded,
        StoreErrorKind::Timeout,
        StoreErrorKind::InDoubt,
        StoreErrorKind::Conflict,
        StoreErrorKind::Fenced,
        StoreErrorKind::AlreadyExists,
        StoreErrorKind::NotFound,
        StoreErrorKind::Corrupt,
        StoreErrorKind::TooLarge,
        StoreErrorKind::TooBroad,
        StoreErrorKind::Setup,
        StoreErrorKind::Internal,
    ];

    /// Name used in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            StoreErrorKind::Unavailable => "unavailable",
            StoreErrorKind::Overloaded => "overloaded",
            StoreErrorKind::Timeout => "timeout",
            StoreErrorKind::InDoubt => "in-doubt",
            StoreErrorKind::Conflict => "conflict",
            StoreErrorKind::Fenced => "fenced",
            StoreErrorKind::AlreadyExists => "already-exists",
            StoreErrorKind::NotFound => "not-found",
            StoreErrorKind::Corrupt => "corrupt",
            StoreErrorKind::TooLarge => "too-large",
            StoreErrorKind::TooBroad => "too-broad",
            StoreErrorKind::Setup => "setup",
            StoreErrorKind::Internal => "internal",
        }
    }

    /// Whether the same call may succeed later without any fix.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            StoreErrorKind::Unavailable
                | StoreErrorKind::Overloaded
                | StoreErrorKind::Timeout
                | StoreErrorKind::InDoubt
                | StoreErrorKind::Conflict
        )
    }
}

/// A failed storage call: its kind, one sentence for a human reader, and the backend's own error as source.
pub struct StoreError {
    /// The kind, for decisions of callers.
    pub kind: StoreErrorKind,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    message: Box<str>,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// An error of this kind; `message` is one sentence without a full stop.
    pub fn new(kind: StoreErrorKind, message: impl Into<Box<str>>) -> StoreError {
        StoreError { kind, retryable: kind.is_retryable(), message: message.into(), source: None }
    }

    /// Attaches the underlying error.
    #[must_use]
    pub fn with_source(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
        self.source = Some(cause.into());
        self
    }

    /// The sentence without the cause.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            None => f.write_str(&self.message),
            Some(cause) => write!(f, "{}: {cause}", self.message),
        }
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreError({:?}: {self})", self.kind)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|cause| cause as &(dyn Error + 'static))
    }
}
