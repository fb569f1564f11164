//! Why a command was not carried out: one value that each door translates.

use std::borrow::Cow;
use std::fmt;

use stanza::{StanzaCondition, StanzaError};
use store::{StoreError, StoreErrorKind};

use crate::server_error::ServerError;

/// The reasons that callers tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandErrorKind {
    /// A value cannot be read, or a required one is missing.
    Invalid,
    /// The values can be read, but not used.
    NotAcceptable,
    /// There is no such account, session or command.
    NotFound,
    /// It is there already.
    Conflict,
    /// The caller may not.
    Forbidden,
    /// Nobody may.
    NotAllowed,
    /// The storage does not answer, or too much is under way; trying again may help.
    Unavailable,
    /// A fault of the server.
    Internal,
}

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError {
    /// What doors decide by.
    pub kind: CommandErrorKind,
    /// One sentence for a person. Never with a value of a secret field.
    pub text: Cow<'static, str>,
}

impl CommandError {
    /// An error; `text` is one sentence without a full stop.
    pub fn new(why: CommandErrorKind, text: impl Into<Cow<'static, str>>) -> CommandError {
        CommandError { kind: why, text: text.into() }
    }
    /// The caller may not.
    pub fn forbidden() -> CommandError {
        CommandError::new(CommandErrorKind::Forbidden, "this command is for administrators")
    }
    /// The account is an administrator's, and the caller's token lacks the scope `admin`.
    pub fn protected(jid: &impl fmt::Display) -> CommandError {
        CommandError::new(
            CommandErrorKind::Forbidden,
            format!("{jid} is an administrator's address; a token needs the scope \"admin\" to change it"),
        )
    }
    /// There is no such account.
    pub fn no_account(jid: &impl fmt::Display) -> CommandError {
        CommandError::new(CommandErrorKind::NotFound, format!("there is no account {jid}"))
    }
    /// A fault of the server; the cause is logged where it happens.
    pub fn internal() -> CommandError {
        CommandError::new(CommandErrorKind::Internal, "the server has a fault; its log says more")
    }

    /// As the condition of a stanza error (XEP-0133 section 5).
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
    /// As a status of HTTP (RFC 9110 section 15).
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
    /// As a stanza error. What was sent is not repeated: it may hold a password.
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
                CommandError::new(CommandErrorKind::NotAcceptable, "that is too large to be kept")
            }
            StoreErrorKind::TooBroad => CommandError::new(
                CommandErrorKind::Invalid,
                "too many match the longest term; give a longer one",
            ),
            _ => {
                let fault = ServerError::from(error);
                tracing::warn!(cause = %fault.cause, "a command could not be carried out");
                let why =
                    if fault.retryable { CommandErrorKind::Unavailable } else { CommandErrorKind::Internal };
                CommandError::new(why, fault.public_text)
            }
        }
    }
}
