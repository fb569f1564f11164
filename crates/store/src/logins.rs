//! What a login reads: first what proves who the client is, and after the proof everything that a session needs until its
//! first roster result.
//!
//! Two database round trips a login are a promise of the design, so these are two calls. They are apart because anybody may
//! ask for the first: it costs the same for every account and for none, and what it brings is small.
//!
//! The trap: nothing may move from the second call to the first because it is needed at every login anyway.
use jid::JidRef;

use crate::{AddressId, Fut, PhotoHash, RosterItem};

/// What proves who a client is.
#[derive(Clone, PartialEq, Debug)]
pub struct Secrets {
    /// The number of the account's bare address.
    pub id: AddressId,
    /// Opaque to storage; `sasl` encodes and decodes it.
    pub credentials: Vec<u8>,
    /// Whether the administrator has shut the account.
    pub disabled: bool,
    /// Opaque to storage; see [`crate::Tokens`]. Empty when there are none.
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
    pub offline: u32,
    /// The blocklist as [`crate::blocklists::decode`] reads it; empty when there is none.
    pub blocklist: Vec<u8>,
    /// Of the photo in the vCard, if there is one; see [`crate::Vcards`].
    pub photo: Option<PhotoHash>,
}

/// Reads accounts for logins.
pub trait Logins: Send + Sync {
    /// What proves who the client is, for the account with this bare address, or nothing. One database round trip, which
    /// may be shared; the work does not depend on whether there is an account or on what else it has.
    fn secrets(&self, account: JidRef<'_>) -> Fut<'_, Option<Secrets>>;

    /// What a session begins with, or nothing if there is no such account any more. Only for clients that have proved who
    /// they are. One database round trip, which may be shared; a large roster ([`crate::roster::is_large`]) takes another
    /// and fails with `TooLarge` beyond [`crate::roster::ROSTER_BYTES`].
    fn login(&self, account: AddressId) -> Fut<'_, Option<Login>>;
}
