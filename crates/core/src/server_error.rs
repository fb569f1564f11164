//! Server errors, translated once at the edge into a stanza error, a stream error or an HTTP status.

use std::borrow::Cow;

use stanza::{StanzaCondition, StanzaError, StreamCondition, StreamError};

/// Where an error originated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// The peer sent invalid data.
    Peer,
    /// This server has a bug.
    Internal,
    /// A database or another server.
    Upstream,
}

/// A server error with a public text and a private cause.
#[derive(Clone, Debug)]
pub struct ServerError {
    /// Where it originated.
    pub origin: ErrorOrigin,
    /// Whether a retry may help.
    pub retryable: bool,
    /// One sentence that may be shown to anybody.
    pub public_text: Cow<'static, str>,
    /// The cause, for the log only.
    pub cause: String,
}

/// The error for a stanza that cannot be parsed, or could not be parsed by its recipient after additions of the
/// server. Limits on arrival leave room for these additions; a stanza that exceeds them nevertheless is
/// refused, never passed on (it was not policed) and never dropped silently.
pub fn unreadable_stanza(error: xml::Error) -> StanzaError {
    tracing::error!(%error, "refused a stanza that cannot be parsed again");
    StanzaError::new(StanzaCondition::PolicyViolation)
        .text(format!("this server cannot handle the stanza: {error}"))
}

impl From<store::StoreError> for ServerError {
    fn from(error: store::StoreError) -> Self {
        ServerError {
            origin: ErrorOrigin::Upstream,
            retryable: error.retryable,
            public_text: Cow::Borrowed("the storage is not available; try again later"),
            cause: error.to_string(),
        }
    }
}

impl ServerError {
    /// Converts it to a stanza error and logs the cause.
    pub fn stanza(&self) -> StanzaError {
        tracing::warn!(cause = %self.cause, "cannot handle a stanza");
        let condition = match self.origin {
            ErrorOrigin::Peer => StanzaCondition::BadRequest,
            ErrorOrigin::Internal => StanzaCondition::InternalServerError,
            ErrorOrigin::Upstream if self.retryable => StanzaCondition::ResourceConstraint,
            ErrorOrigin::Upstream => StanzaCondition::InternalServerError,
        };
        StanzaError::new(condition).text(self.public_text.clone())
    }

    /// Converts it to a stream error and logs the cause.
    pub fn stream(&self) -> StreamError {
        tracing::warn!(cause = %self.cause, "cannot continue a stream");
        let condition = match self.origin {
            ErrorOrigin::Peer => StreamCondition::PolicyViolation,
            ErrorOrigin::Internal => StreamCondition::InternalServerError,
            ErrorOrigin::Upstream => StreamCondition::ResourceConstraint,
        };
        StreamError::new(condition).text(self.public_text.clone())
    }
}

/// Converts a store error to a stanza error and logs the cause.
pub fn store_error(error: store::StoreError) -> StanzaError {
    ServerError::from(error).stanza()
}
