//! Errors of commands: one value that each interface translates.

use std::borrow::Cow;
use std::fmt;

use stanza::{StanzaCondition, StanzaError};
use store::{StoreError, StoreErrorKind};
use throng_core::server_error::ServerError;

/// Reasons that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandErrorKind {
    /// A value cannot be parsed, or a required one is missing.
    Invalid,
    /// The values can be parsed, but not used.
    NotAcceptable,
    /// There is no such account, session or command.
    NotFound,
    /// It exists already.
    Conflict,
    /// This caller is not allowed to do it.
    Forbidden,
    /// Nobody is allowed to do it.
    NotAllowed,
    /// The storage does not answer, or too much is in progress; a retry may help.
    Unavailable,
    /// An internal error of the server.
    Internal,
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// The reason, for interfaces.
    pub kind: CommandErrorKind,
    /// One sentence for a person. Never contains the value of a secret field.
    pub text: Cow<'static, str>,
}

impl CommandError {
    /// An error; `text` is one sentence without a full stop.
    pub fn new(kind: CommandErrorKind, text: impl Into<Cow<'static, str>>) -> CommandError {
        CommandError { kind, text: text.into() }
    }

    /// The caller is not allowed to do it.
    pub fn forbidden() -> CommandError {
        CommandError::new(CommandErrorKind::Forbidden, "this command requires an administrator")
    }

    /// The account is an administrator's, and the caller's token lacks the scope `admin`.
    pub fn protected(jid: &impl fmt::Display) -> CommandError {
        CommandError::new(
            CommandErrorKind::Forbidden,
            format!("{jid} is an administrator; a token requires the scope \"admin\" to change it"),
        )
    }

    /// There is no such account.
    pub fn no_account(jid: &impl fmt::Display) -> CommandError {
        CommandError::new(CommandErrorKind::NotFound, format!("there is no account {jid}"))
    }

    /// An internal error of the server; its cause is logged where it occurs.
    pub fn internal() -> CommandError {
        CommandError::new(CommandErrorKind::Internal, "internal server error; see the server log")
    }

    /// The condition of a stanza error (XEP-0133, section 5).
    pub const fn condition(&self) -> StanzaCondition {
        match self.kind {
            CommandErrorKind::Invalid => StanzaCondition::BadRequest,
            CommandErrorKind::NotAcceptable => StanzaCondition::NotAcceptable,
            CommandErrorKind::NotFound => StanzaCondition::ItemNotFound,
            CommandErrorKind::Conflict => StanzaCondition::Conflict,
            CommandErrorKind::Forbidden => StanzaCondition::Forbidden,
            CommandErrorKind::NotAllowed => StanzaCondition::NotAllowed,
            CommandErrorKind::Unavailable => StanzaCondition::ResourceConstraint,
            CommandErrorKind::Internal => StanzaCondition::InternalServerError,
        }
    }

    /// The status code of HTTP (RFC 9110, section 15).
    pub const fn http_status(&self) -> u16 {
        match self.kind {
            CommandErrorKind::Invalid => 400,
            CommandErrorKind::Forbidden | CommandErrorKind::NotAllowed => 403,
            CommandErrorKind::NotFound => 404,
            CommandErrorKind::Conflict => 409,
            CommandErrorKind::NotAcceptable => 422,
            CommandErrorKind::Internal => 500,
            CommandErrorKind::Unavailable => 503,
        }
    }

    /// The stanza error. The request is not repeated: it may contain a password.
    pub fn stanza(&self) -> StanzaError {
        StanzaError::new(self.condition()).text(self.text.clone()).without_request()
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for CommandError {}

impl From<StoreError> for CommandError {
    fn from(error: StoreError) -> CommandError {
        match error.kind {
            StoreErrorKind::TooLarge => {
                CommandError::new(CommandErrorKind::NotAcceptable, "the value is too large to be stored")
            }
            StoreErrorKind::TooBroad => CommandError::new(
                CommandErrorKind::Invalid,
                "too many users match the longest term; use a longer one",
            ),
            _ => {
                let fault = ServerError::from(error);
                tracing::warn!(cause = %fault.cause, "a command failed");
                let kind =
                    if fault.retryable { CommandErrorKind::Unavailable } else { CommandErrorKind::Internal };
                CommandError::new(kind, fault.public_text)
            }
        }
    }
}
