//! Why an exchange failed: the conditions of RFC 6120 section 6.5, and the finer reasons of RFC 5802 section 7.
//!
//! The client is told the condition. The reason is for logs and counters: SCRAM's `e=` attribute has no place in
//! an XMPP `<failure/>`, and errata 5271 of RFC 5802 allows to end with the failure of the protocol alone.
//!
//! Trap: there is no reason "unknown user", on purpose. It looks like a wrong proof from inside as well.

use std::fmt;

/// A failure condition of RFC 6120 section 6.5, named as its element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The client sent `<abort/>` (6.5.1).
    Aborted,
    /// The account is disabled for now (6.5.2). Say it only after the proof was good.
    AccountDisabled,
    /// The credentials were right but have expired (6.5.3).
    CredentialsExpired,
    /// The mechanism needs TLS first (6.5.4).
    EncryptionRequired,
    /// The base 64 was wrong (6.5.5).
    IncorrectEncoding,
    /// The authorisation identity is malformed or not permitted (6.5.6).
    InvalidAuthzid,
    /// No mechanism named, or one that is not offered (6.5.7).
    InvalidMechanism,
    /// The message breaks the syntax of the mechanism (6.5.8).
    MalformedRequest,
    /// The mechanism is weaker than policy permits for this account (6.5.9).
    MechanismTooWeak,
    /// Wrong credentials, or no such account (6.5.10).
    NotAuthorized,
    /// The server cannot tell just now; try again later (6.5.11).
    TemporaryAuthFailure,
}

impl Failure {
    /// Every condition, in the order of the RFC.
    pub const ALL: [Failure; 11] = [
        Failure::Aborted,
        Failure::AccountDisabled,
        Failure::CredentialsExpired,
        Failure::EncryptionRequired,
        Failure::IncorrectEncoding,
        Failure::InvalidAuthzid,
        Failure::InvalidMechanism,
        Failure::MalformedRequest,
        Failure::MechanismTooWeak,
        Failure::NotAuthorized,
        Failure::TemporaryAuthFailure,
    ];

    /// The name of the element inside `<failure/>`.
    #[must_use]
    pub const fn condition(self) -> &'static str {
        match self {
            Failure::Aborted => "aborted",
            Failure::AccountDisabled => "account-disabled",
            Failure::CredentialsExpired => "credentials-expired",
            Failure::EncryptionRequired => "encryption-required",
            Failure::IncorrectEncoding => "incorrect-encoding",
            Failure::InvalidAuthzid => "invalid-authzid",
            Failure::InvalidMechanism => "invalid-mechanism",
            Failure::MalformedRequest => "malformed-request",
            Failure::MechanismTooWeak => "mechanism-too-weak",
            Failure::NotAuthorized => "not-authorized",
            Failure::TemporaryAuthFailure => "temporary-auth-failure",
        }
    }

    /// Whether it counts as a guess at a password, for the limit on attempts (RFC 6120 section 6.4.5).
    #[must_use]
    pub const fn counts_as_guess(self) -> bool {
        matches!(self, Failure::NotAuthorized | Failure::CredentialsExpired | Failure::AccountDisabled)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.condition())
    }
}

/// What exactly was wrong; the values of RFC 5802 section 7 (`server-error-value`) and a few of our own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FailureReason {
    /// A message breaks the grammar of its mechanism, or is not UTF-8.
    InvalidEncoding,
    /// A message is longer than this crate reads.
    TooLong,
    /// A mandatory extension (`m=`), of which there are none.
    ExtensionsNotSupported,
    /// The proof or password is wrong, or there is no such account.
    InvalidProof,
    /// The nonce that came back is not the one sent.
    NonceMismatch,
    /// `c=` is not what this channel has, or not the header sent first.
    ChannelBindingsDontMatch,
    /// `y`, though binding was offered: somebody removed it from the list on the way.
    ServerDoesSupportChannelBinding,
    /// `p=` with a mechanism that is not `-PLUS`, or the reverse.
    ChannelBindingNotSupported,
    /// `p=` with a type that this channel does not have.
    UnsupportedChannelBindingType,
    /// The user name has a wrong escape or does not survive SASLprep.
    InvalidUsernameEncoding,
    /// A message came while none was due.
    UnexpectedMessage,
    /// The caller ended the exchange with a failure of its own.
    EndedByCaller,
}

impl FailureReason {
    /// For logs and counters. Where RFC 5802 has a name for it, that name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            FailureReason::InvalidEncoding => "invalid-encoding",
            FailureReason::TooLong => "too-long",
            FailureReason::ExtensionsNotSupported => "extensions-not-supported",
            FailureReason::InvalidProof => "invalid-proof",
            FailureReason::NonceMismatch => "nonce-mismatch",
            FailureReason::ChannelBindingsDontMatch => "channel-bindings-dont-match",
            FailureReason::ServerDoesSupportChannelBinding => "server-does-support-channel-binding",
            FailureReason::ChannelBindingNotSupported => "channel-binding-not-supported",
            FailureReason::UnsupportedChannelBindingType => "unsupported-channel-binding-type",
            FailureReason::InvalidUsernameEncoding => "invalid-username-encoding",
            FailureReason::UnexpectedMessage => "out-of-turn",
            FailureReason::EndedByCaller => "caller",
        }
    }

    /// The condition that the client is told.
    #[must_use]
    pub const fn failure(self) -> Failure {
        match self {
            // The client misunderstood the grammar or asked for what the mechanism does not have.
            FailureReason::InvalidEncoding
            | FailureReason::TooLong
            | FailureReason::ExtensionsNotSupported
            | FailureReason::ChannelBindingNotSupported
            | FailureReason::UnexpectedMessage => Failure::MalformedRequest,
            // Well formed, but it proves nothing.
            FailureReason::InvalidProof
            | FailureReason::NonceMismatch
            | FailureReason::ChannelBindingsDontMatch
            | FailureReason::ServerDoesSupportChannelBinding
            | FailureReason::UnsupportedChannelBindingType
            | FailureReason::InvalidUsernameEncoding => Failure::NotAuthorized,
            FailureReason::EndedByCaller => Failure::TemporaryAuthFailure,
        }
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
