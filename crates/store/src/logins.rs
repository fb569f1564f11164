//! What a login reads: first what proves who the client is, and after the proof everything that a session needs until its
//! first roster result.
//!
//! Two database round trips a login are a promise of the design, so these are two calls. They are apart because anybody may
//! ask for the first: it costs the same for every account and for none, and what it brings is small. Where the proof comes
//! with the request (XEP-0484) and needs no password hash, [`Logins::prove`] does both in one call.
//!
//! Between the calls an account may be removed, made anew or get another password. The second call names the credentials
//! that were proved by their revision and finds nothing if the account has others.
//!
//! The trap: nothing may move from the second call to the first because it is needed at every login anyway.
use std::panic::AssertUnwindSafe;

use jid::JidRef;

use crate::{AddressId, PhotoHash, RosterItem, StoreError, StoreErrorKind, StoreFuture};

/// What proves who a client is.
#[derive(Clone, PartialEq, Debug)]
pub struct AccountSecrets {
    /// The number of the account's bare address.
    pub id: AddressId,
    /// Of the credentials: another one after each change of the password, and for each account that was made under this
    /// address.
    pub revision: u64,
    /// Opaque to storage; `sasl` encodes and decodes it.
    pub credentials: Vec<u8>,
    /// Whether the administrator has shut the account.
    pub disabled: bool,
    /// Opaque to storage; see [`crate::LoginTokens`]. Empty when there are none.
    pub tokens: Vec<u8>,
}

/// What a session begins with.
#[derive(Clone, PartialEq, Debug)]
pub struct Login {
    /// Whether the administrator has shut the account, perhaps since the proof.
    pub disabled: bool,
    /// The whole roster with pending shadows, ordered by contact number.
    pub roster: Vec<RosterItem>,
    /// The version of that roster; see [`crate::Roster`].
    pub roster_version: u64,
    /// Messages waiting. May count messages that have expired but were not swept yet.
    pub offline_messages: u32,
    /// The blocklist as [`crate::blocklists::decode`] reads it; empty when there is none.
    pub blocklist: Vec<u8>,
    /// Of the photo in the vCard, if there is one; see [`crate::Vcards`].
    pub photo: Option<PhotoHash>,
}

/// Judges a proof by what is stored, `None` for no account; true if the client has proved who it is. Called once unless the
/// store fails. It must not wait: other logins wait for it.
pub type ProofFn = Box<dyn FnOnce(Option<&AccountSecrets>) -> bool + Send>;

/// What [`Logins::prove`] found.
#[derive(Debug)]
pub struct LoginAttempt {
    /// What the proof was judged by.
    pub secrets: AccountSecrets,
    /// As [`Logins::login`] answers. `None`: it was not read, since the proof was wrong or the account is disabled.
    pub login: Option<Result<Option<Login>, StoreError>>,
}

/// The lowest revision, and that of accounts from before there were any. All have as many digits, so that the length of a
/// row tells nothing.
pub const LOWEST_REVISION: u64 = 1 << 61;

/// The start of the revisions of a new account's credentials. Random, so that an account that is made anew has others.
#[must_use]
pub fn first_revision() -> u64 {
    LOWEST_REVISION + (u64::from_be_bytes(base::id::random_bytes()) >> 3)
}

/// Judges a proof for a backend. A panic in it is an error of that one call.
///
/// # Errors
/// `Internal` when it panics.
pub fn judge(proof: ProofFn, secrets: Option<&AccountSecrets>) -> Result<bool, StoreError> {
    std::panic::catch_unwind(AssertUnwindSafe(|| proof(secrets)))
        .map_err(|_| StoreError::new(StoreErrorKind::Internal, "the check of a proof panicked"))
}

/// Reads accounts for logins.
pub trait Logins: Send + Sync {
    /// What proves who the client is, for the account with this bare address, or nothing. One database round trip, which
    /// may be shared; the work does not depend on whether there is an account or on what else it has.
    fn secrets(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountSecrets>>;

    /// What a session begins with, or nothing if the account is gone or has credentials of another revision. Only for
    /// clients that have proved who they are. One database round trip, which may be shared; a large roster
    /// ([`crate::roster::is_large`]) takes another and fails with `TooLarge` beyond [`crate::roster::ROSTER_BYTES`].
    fn login(&self, account: AddressId, revision: u64) -> StoreFuture<'_, Option<Login>>;

    /// [`Logins::secrets`], and if `proof` finds that the client has proved who it is, [`Logins::login`] as well. Nothing
    /// else is read before the proof.
    fn prove(&self, account: JidRef<'_>, proof: ProofFn) -> StoreFuture<'_, Option<LoginAttempt>>;
}
