//! Failures of an exchange: the conditions of RFC 6120, section 6.5, and the finer reasons of RFC 5802, section 7.
//!
//! The client receives the condition. The reason is for logs and counters: SCRAM's `e=` attribute has no place in an
//! XMPP `<failure/>`, and errata 5271 of RFC 5802 permits the failure of the protocol alone.
//!
//! # Pitfalls
//!
//! There is no reason "unknown user", on purpose: internally, too, it looks like a wrong proof.

use std::fmt;

/// Failure condition of RFC 6120, section 6.5, named as its element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The client sent `<abort/>` (section 6.5.1).
    Aborted,
    /// The account is disabled (section 6.5.2). Report it only after a correct proof.
    AccountDisabled,
    /// The credentials were right but have expired (section 6.5.3).
    CredentialsExpired,
    /// The mechanism needs TLS first (section 6.5.4).
    EncryptionRequired,
    /// The base 64 is invalid (section 6.5.5).
    IncorrectEncoding,
    /// The authorization identity is malformed or not permitted (section 6.5.6).
    InvalidAuthzid,
    /// No mechanism was named, or it is not offered (section 6.5.7).
    InvalidMechanism,
    /// The message breaks the syntax of the mechanism (section 6.5.8).
    MalformedRequest,
    /// The mechanism is weaker than policy permits for this account (section 6.5.9).
    MechanismTooWeak,
    /// Wrong credentials, or no such account (section 6.5.10).
    NotAuthorized,
    /// The server cannot verify the credentials at present; the client may retry later (section 6.5.11).
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

    /// Name of the element inside `<failure/>`.
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

    /// Whether it counts as a guess at a password, for the limit on attempts (RFC 6120, section 6.4.5).
    pub const fn counts_as_guess(self) -> bool {
        matches!(self, Failure::NotAuthorized | Failure::CredentialsExpired | Failure::AccountDisabled)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.condition())
    }
}

/// Detailed reason: the values of RFC 5802, section 7 (`server-error-value`), that of RFC 6750, section 3.1, and a few of our
/// own.
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
    /// The nonce received is not the one sent.
    NonceMismatch,
    /// `c=` does not match this channel, or not the header sent first.
    ChannelBindingsDontMatch,
    /// `y`, though binding was offered: the offer was shortened in transit.
    ServerDoesSupportChannelBinding,
    /// `p=` with a mechanism that is not `-PLUS`, or the reverse.
    ChannelBindingNotSupported,
    /// `p=` with a type that this channel does not have.
    UnsupportedChannelBindingType,
    /// The user name has an invalid escape or SASLprep rejects it.
    InvalidUsernameEncoding,
    /// The bearer token is invalid, has expired, or is of another account.
    InvalidToken,
    /// A message was received while none was expected.
    UnexpectedMessage,
    /// The caller ended the exchange with a failure.
    EndedByCaller,
}

impl FailureReason {
    /// Name for logs and counters; that of RFC 5802 where it has one.
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
            FailureReason::InvalidToken => "invalid_token",
            FailureReason::UnexpectedMessage => "out-of-turn",
            FailureReason::EndedByCaller => "caller",
        }
    }

    /// Condition to send to the client.
    pub const fn failure(self) -> Failure {
        match self {
            // The client violated the grammar or requested what the mechanism does not have.
            FailureReason::InvalidEncoding
            | FailureReason::TooLong
            | FailureReason::ExtensionsNotSupported
            | FailureReason::ChannelBindingNotSupported
            | FailureReason::UnexpectedMessage => Failure::MalformedRequest,
            // Well formed, but not a valid proof.
            FailureReason::InvalidProof
            | FailureReason::InvalidToken
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
