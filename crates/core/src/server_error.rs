//! Server errors, translated once at the edge into a stanza error, a stream error or an HTTP status.

use std::borrow::Cow;

use environment::account_provider;
use stanza::{StanzaCondition, StanzaError, StreamCondition, StreamError};

/// An error of a database or of another server, with a public text and a private cause.
#[derive(Clone, Debug)]
pub struct ServerError {
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
            retryable: error.retryable,
            public_text: Cow::Borrowed("the storage is not available; try again later"),
            cause: error.to_string(),
        }
    }
}

impl From<account_provider::ProviderError> for ServerError {
    fn from(error: account_provider::ProviderError) -> Self {
        ServerError {
            retryable: error.kind.is_retryable(),
            public_text: Cow::Borrowed("the accounts of this domain are not available; try again later"),
            cause: format!("{}: {error}", error.kind.name()),
        }
    }
}

impl ServerError {
    /// Converts it to a stanza error and logs the cause.
    pub fn stanza(&self) -> StanzaError {
        tracing::warn!(cause = %self.cause, "cannot handle a stanza");
        let condition = match self.retryable {
            true => StanzaCondition::ResourceConstraint,
            false => StanzaCondition::InternalServerError,
        };
        StanzaError::new(condition).text(self.public_text.clone())
    }

    /// Converts it to a stream error and logs the cause.
    pub fn stream(&self) -> StreamError {
        tracing::warn!(cause = %self.cause, "cannot continue a stream");
        StreamError::new(StreamCondition::ResourceConstraint).text(self.public_text.clone())
    }
}

/// Converts a store error to a stanza error and logs the cause.
pub fn store_error(error: store::StoreError) -> StanzaError {
    ServerError::from(error).stanza()
}
