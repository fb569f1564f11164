//! Everything that a session needs from storage between authentication and its first roster result.
//!
//! One database round trip a login is a promise of the design, so this is one call: SASL asks it for the credentials, and
//! the session keeps the rest until the client asks for its roster.
use jid::JidRef;

use crate::{AddressId, Fut, PhotoHash, RosterItem};

/// What is known about an account at login.
#[derive(Clone, PartialEq, Debug)]
pub struct Login {
    /// The number of the account's bare address.
    pub id: AddressId,
    /// Opaque to storage; `sasl` encodes and decodes it.
    pub credentials: Vec<u8>,
    /// Whether the administrator has shut the account.
    pub disabled: bool,
    /// The whole roster with pending shadows, ordered by contact number.
    pub roster: Vec<RosterItem>,
    /// The version of that roster; see [`crate::Roster`].
    pub roster_version: u64,
    /// Messages waiting. May count messages that have expired but were not swept yet.
    pub offline: u32,
    /// The blocklist as [`crate::blocklists::decode`] reads it; empty when there is none.
    pub blocklist: Vec<u8>,
    /// Opaque to storage; see [`crate::Tokens`]. Empty when there are none.
    pub tokens: Vec<u8>,
    /// Of the photo in the vCard, if there is one; see [`crate::Vcards`].
    pub photo: Option<PhotoHash>,
}

/// Reads accounts for authentication.
pub trait Logins: Send + Sync {
    /// The account with this bare address, or nothing. Never more than one database round trip.
    fn login(&self, account: JidRef<'_>) -> Fut<'_, Option<Login>>;
}
