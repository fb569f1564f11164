//! What went wrong, translated once at the edge into a stanza error, a stream error or an HTTP status.

use std::borrow::Cow;

use stanza::{StanzaCondition, StanzaError, StreamCondition, StreamError};

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// The other side sent something wrong.
    Peer,
    /// This server has a bug.
    Internal,
    /// A database or another server.
    Upstream,
}

/// A fault with what may be said in public and what may not.
#[derive(Clone, Debug)]
pub struct ServerError {
    /// Whose fault it is.
    pub origin: ErrorOrigin,
    /// Whether trying again may help.
    pub retryable: bool,
    /// One sentence that anybody may read.
    pub public_text: Cow<'static, str>,
    /// For the log only.
    pub cause: String,
}

/// The answer to a stanza that cannot be read, or could not be read by its recipient, once the server has added to it. What is
/// admitted leaves room for that; a stanza that does not all the same is refused, never passed on (it was not policed) and never
/// dropped.
pub fn unreadable_stanza(error: xml::Error) -> StanzaError {
    tracing::error!(%error, "a stanza could not be read again and was refused");
    StanzaError::new(StanzaCondition::PolicyViolation)
        .text(format!("this server cannot handle the stanza: {error}"))
}

impl From<store::StoreError> for ServerError {
    fn from(error: store::StoreError) -> Self {
        ServerError {
            origin: ErrorOrigin::Upstream,
            retryable: error.retryable,
            public_text: Cow::Borrowed("the storage does not answer at the moment; try again later"),
            cause: error.to_string(),
        }
    }
}

impl ServerError {
    /// As an answer to a stanza. Logs the cause.
    pub fn stanza(&self) -> StanzaError {
        tracing::warn!(cause = %self.cause, "a stanza could not be handled");
        let condition = match self.origin {
            ErrorOrigin::Peer => StanzaCondition::BadRequest,
            ErrorOrigin::Internal => StanzaCondition::InternalServerError,
            ErrorOrigin::Upstream if self.retryable => StanzaCondition::ResourceConstraint,
            ErrorOrigin::Upstream => StanzaCondition::InternalServerError,
        };
        StanzaError::new(condition).text(self.public_text.clone())
    }
    /// As the end of a stream. Logs the cause.
    pub fn stream(&self) -> StreamError {
        tracing::warn!(cause = %self.cause, "a stream could not go on");
        let condition = match self.origin {
            ErrorOrigin::Peer => StreamCondition::PolicyViolation,
            ErrorOrigin::Internal => StreamCondition::InternalServerError,
            ErrorOrigin::Upstream => StreamCondition::ResourceConstraint,
        };
        StreamError::new(condition).text(self.public_text.clone())
    }
}

/// A store error as an answer to a stanza.
pub fn store_error(error: store::StoreError) -> StanzaError {
    ServerError::from(error).stanza()
}
