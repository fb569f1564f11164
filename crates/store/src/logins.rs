//! Reads of a login: first what authenticates the client, and after authentication everything that a session needs
//! until its first roster result.
//!
//! The design promises two database round trips per login, so these are two calls. They are separate because
//! unauthenticated clients can trigger the first: its cost does not depend on whether the account exists, and its
//! result is small. Where the proof comes with the request (XEP-0484) and needs no password hash, [`Logins::prove`]
//! combines both.
//!
//! Between the calls an account may be removed, recreated or get another password. The second call names the revision
//! of the proved credentials and returns nothing if the account has others.
//!
//! # Pitfalls
//!
//! Data must not move from the second call to the first merely because every login needs it.

use std::panic::AssertUnwindSafe;

use jid::JidRef;

use crate::{AddressId, PhotoHash, RosterItem, StoreError, StoreErrorKind, StoreFuture};

/// Data to authenticate a client.
#[derive(Clone, PartialEq, Debug)]
pub struct AccountSecrets {
    /// Id of the account's bare address. [`AddressId::UNASSIGNED`] if the account has credentials and no data yet: an
    /// unauthenticated client must not create an id, so it is assigned after the proof (`AddressDictionary::intern`).
    pub id: AddressId,
    /// Revision of the credentials: changes with every change of the password and every account created under this
    /// address.
    pub revision: u64,
    /// Opaque to storage; `sasl` encodes and decodes it.
    pub credentials: Vec<u8>,
    /// Whether an administrator has disabled the account.
    pub disabled: bool,
    /// Opaque to storage; see [`crate::LoginTokens`]. Empty if there are none.
    pub tokens: Vec<u8>,
}

/// Initial data of a session.
#[derive(Clone, PartialEq, Debug)]
pub struct Login {
    /// Whether an administrator has disabled the account, possibly since authentication.
    pub disabled: bool,
    /// The whole roster with pending shadows, ordered by contact id. May be empty if the account is disabled.
    pub roster: Vec<RosterItem>,
    /// Version of that roster; see [`crate::Roster`].
    pub roster_version: u64,
    /// Number of offline messages. May include expired messages not yet removed.
    pub offline_messages: u32,
    /// The blocklist, for [`crate::blocklists::decode`]; empty if there is none.
    pub blocklist: Vec<u8>,
    /// Hash of the photo in the vCard, if there is one; see [`crate::Vcards`].
    pub photo: Option<PhotoHash>,
}

/// Verifies a proof against the stored data, `None` for no account; true if the client is authenticated. Called once
/// unless the store fails. It must not block: other logins wait for it.
pub type ProofFn = Box<dyn FnOnce(Option<&AccountSecrets>) -> bool + Send>;

/// Result of [`Logins::prove`].
#[derive(Debug)]
pub struct LoginAttempt {
    /// The data against which the proof was verified.
    pub secrets: AccountSecrets,
    /// Result of [`Logins::login`]. `None`: not read, because the proof was wrong or the account is disabled.
    pub login: Option<Result<Option<Login>, StoreError>>,
}

/// The lowest revision, and that of accounts older than revisions. All have the same number of digits, so that the
/// length of a row reveals nothing.
pub const LOWEST_REVISION: u64 = 1 << 61;

/// First revision of a new account's credentials. Random, so that a recreated account has different ones.
pub fn first_revision() -> u64 {
    LOWEST_REVISION + (u64::from_be_bytes(base::id::random_bytes()) >> 3)
}

/// Verifies a proof for a backend. A panic in it is an error of that one call.
///
/// # Errors
/// `Internal` if it panics.
pub fn judge(proof: ProofFn, secrets: Option<&AccountSecrets>) -> Result<bool, StoreError> {
    std::panic::catch_unwind(AssertUnwindSafe(|| proof(secrets)))
        .map_err(|_| StoreError::new(StoreErrorKind::Internal, "the check of a proof panicked"))
}

storage_need! {
    /// Account reads for logins.
    pub trait Logins in logins {
        /// Authentication data of the account with this bare address, or `None`. One database round trip, which may be
        /// shared; the work does not depend on whether the account exists or on its other data.
        fn secrets(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountSecrets>>;

        /// Initial data of a session, or `None` if the account is gone or has credentials of another revision. Only for
        /// authenticated clients. One database round trip, which may be shared; a large roster
        /// ([`crate::roster::is_large`]) takes another and fails with `TooLarge` beyond
        /// [`crate::roster::MAX_ROSTER_BYTES`]. Whether the account is disabled never depends on its roster.
        fn login(&self, account: AddressId, revision: u64) -> StoreFuture<'_, Option<Login>>;

        /// [`Logins::secrets`], followed by [`Logins::login`] if `proof` authenticates the client. Nothing else is read
        /// before the proof.
        fn prove(&self, account: JidRef<'_>, proof: ProofFn) -> StoreFuture<'_, Option<LoginAttempt>>;
    }
}
