//! Why a storage call failed, and whether asking again can help.
//!
//! A write that failed was not kept and will not be, whatever the kind, so that its sender may be told so. The one exception
//! is a backend that died over it.
//!
//! The trap for the next person: a backend must not let a deadline cut off a write that it has begun.
use std::error::Error;
use std::fmt;

/// The reasons that callers tell apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum StoreErrorKind {
    /// The backend cannot be reached or is shutting down.
    Unavailable,
    /// The bounded queue before the backend is full; nothing was tried.
    Overloaded,
    /// The deadline passed. A write had not begun and will not be done.
    Timeout,
    /// Another writer was in the way; nothing was changed.
    Conflict,
    /// The account to be created is there already.
    AlreadyExists,
    /// The account that the call is about is not there.
    NotFound,
    /// What was read back makes no sense.
    Corrupt,
    /// A value is larger than the backend takes, or the dictionary is full.
    TooLarge,
    /// A search would have to read more than one search may.
    TooBroad,
    /// The backend cannot be used as configured (path, permission, version of the schema).
    Setup,
    /// A fault in the program, such as a panic in a roster change.
    Internal,
}

impl StoreErrorKind {
    /// Every kind, in order of declaration.
    pub const ALL: [StoreErrorKind; 11] = [
        StoreErrorKind::Unavailable,
        StoreErrorKind::Overloaded,
        StoreErrorKind::Timeout,
        StoreErrorKind::Conflict,
        StoreErrorKind::AlreadyExists,
        StoreErrorKind::NotFound,
        StoreErrorKind::Corrupt,
        StoreErrorKind::TooLarge,
        StoreErrorKind::TooBroad,
        StoreErrorKind::Setup,
        StoreErrorKind::Internal,
    ];

    /// The word for it in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            StoreErrorKind::Unavailable => "unavailable",
            StoreErrorKind::Overloaded => "overloaded",
            StoreErrorKind::Timeout => "timeout",
            StoreErrorKind::Conflict => "conflict",
            StoreErrorKind::AlreadyExists => "already-exists",
            StoreErrorKind::NotFound => "not-found",
            StoreErrorKind::Corrupt => "corrupt",
            StoreErrorKind::TooLarge => "too-large",
            StoreErrorKind::TooBroad => "too-broad",
            StoreErrorKind::Setup => "setup",
            StoreErrorKind::Internal => "internal",
        }
    }

    /// Whether the same call may succeed later without anybody mending anything.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            StoreErrorKind::Unavailable
                | StoreErrorKind::Overloaded
                | StoreErrorKind::Timeout
                | StoreErrorKind::Conflict
        )
    }
}

/// A failed storage call: its kind, one sentence for people, and the backend's own error below it.
pub struct StoreError {
    /// What callers decide by.
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

    /// The same with the error below it.
    #[must_use]
    pub fn with_source(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> StoreError {
        self.source = Some(cause.into());
        self
    }

    /// The sentence alone, without the cause.
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
