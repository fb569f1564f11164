//! Persistent rooms (XEP-0045): the state of each as opaque bytes, what their list needs, affiliations, and discussion history.
//!
//! A room is read when it is used; nothing is read at the start.
//!
//! [`crate::Accounts::remove`] removes the affiliations of the account, except for bans, and rooms that the user has created have
//! themselves as their creator then.
//!
//! # Pitfalls
//!
//! Two nodes that write the same room without a [`WriteFence`] overwrite each other.

use std::sync::Arc;

use jid::{Jid, JidRef};

use crate::StoreFuture;

/// Count of public rooms at which counting ends.
pub const MAX_COUNT: u64 = 10_000;

/// [`Rooms::append`] removes no messages.
pub const KEEP_ALL: u32 = u32::MAX;

/// Condition of a write in a cluster: the [`crate::ServerKv`] has this value, which the next owner of the data replaces before it
/// reads them. Otherwise the write fails with [`crate::StoreErrorKind::Fenced`], also one that was on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteFence {
    /// The key.
    pub key: Arc<str>,
    /// The value that it must have.
    pub value: Arc<[u8]>,
}

/// A room without its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomRecord {
    /// Bare address of the user who has created it.
    pub creator: Jid,
    /// Name for people; may be empty.
    pub title: String,
    /// Whether it is listed.
    pub is_public: bool,
    /// Configuration, subject, vCard and hats.
    pub state: Vec<u8>,
}

/// The number of an affiliation that is none: an entry with it is removed. Lower ones are bans, which outlive the account.
pub const NO_AFFILIATION: u8 = 1;

/// Affiliations of a room that [`Rooms::load`] reads.
pub const LOADED_AFFILIATIONS: u32 = 1_000;

/// Affiliation of a user, or of a domain, with a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomAffiliation {
    /// Bare address.
    pub user: Jid,
    /// Its number.
    pub affiliation: u8,
    /// Reserved nickname; may be empty. At most 1 023 bytes.
    pub nick: Box<str>,
    /// Reason; may be empty. At most 4 096 bytes.
    pub reason: Box<str>,
}

/// Changes of a room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoomUpdate {
    /// Removes what is stored of the room before, with its history and affiliations.
    pub replaces: bool,
    /// Inserts or replaces the room.
    pub record: Option<RoomRecord>,
    /// Affiliations that are put or, with [`NO_AFFILIATION`], removed. Others stay. Each user occurs once.
    pub affiliations: Vec<RoomAffiliation>,
}

/// Where a page of affiliations begins or ends. Affiliations have the order of the numbers of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AffiliationPosition {
    /// It is the first page.
    First,
    /// It begins after this user.
    After(Jid),
    /// It ends before this user.
    Before(Jid),
    /// It is the last page.
    Last,
    /// It begins after this number of affiliations.
    Index(u32),
}

/// The affiliations of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AffiliationQuery {
    /// Only those with this number.
    pub affiliation: Option<u8>,
    /// Where the page begins or ends.
    pub position: AffiliationPosition,
    /// Maximum number of affiliations.
    pub limit: u32,
}

/// A message of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomHistoryEntry {
    /// Unique in the room; ids sort by time, byte by byte. At most 64 bytes.
    pub id: Box<str>,
    /// The message.
    pub message: Vec<u8>,
}

/// A room with the newest part of its history, oldest message first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRoom {
    /// The room.
    pub record: RoomRecord,
    /// The first [`LOADED_AFFILIATIONS`].
    pub affiliations: Vec<RoomAffiliation>,
    /// Its history.
    pub history: Vec<RoomHistoryEntry>,
    /// Number of the latest removal of an account that the room is known to contain; see [`FormerAccount::number`].
    pub removals: u64,
}

/// An address whose account was removed; another account may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormerAccount {
    /// The address.
    pub user: Jid,
    /// How many accounts were removed.
    pub times: u32,
    /// Number of the latest removal. Each removal of any account has a higher one than all that were committed before.
    pub number: u64,
}

/// A room of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedRoom {
    /// Its address.
    pub jid: Jid,
    /// Name for people; may be empty.
    pub title: String,
}

storage_need! {
    /// Persistent rooms by their bare addresses.
    pub trait Rooms in rooms {
        /// The room with at most this number of its newest messages, if there is one.
        fn load(&self, room: JidRef<'_>, messages: u32) -> StoreFuture<'_, Option<StoredRoom>>;

        /// Applies all changes or none. The history stays. Without effect if there is no such room and no record.
        fn update(&self, room: JidRef<'_>, update: RoomUpdate, fence: Option<WriteFence>) -> StoreFuture<'_, ()>;

        /// A page of affiliations, in ascending order. Empty if there is no such room or position. The user of a position need
        /// not be in the list: a caller that asks for a client must check that, because the answer depends on when the address was
        /// stored first.
        fn affiliations(&self, room: JidRef<'_>, query: AffiliationQuery) -> StoreFuture<'_, Vec<RoomAffiliation>>;

        /// Adds messages, or replaces those with the same ids, then removes the oldest ones beyond the newest `keep`, which takes a
        /// time that grows with `keep`; with [`KEEP_ALL`] none. Without effect if there is no such room.
        fn append(&self, room: JidRef<'_>, messages: Vec<RoomHistoryEntry>, keep: u32, fence: Option<WriteFence>) -> StoreFuture<'_, ()>;

        /// Removes a room with its history and affiliations; returns whether there was one.
        fn remove(&self, room: JidRef<'_>, fence: Option<WriteFence>) -> StoreFuture<'_, bool>;

        /// Public rooms of a service, in an order that does not change, after one of them. Empty if there is no such room.
        fn list(&self, service: &str, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedRoom>>;

        /// The same, hidden rooms included.
        fn list_all(&self, service: &str, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedRoom>>;

        /// Number of public rooms of a service, at most [`MAX_COUNT`].
        fn count(&self, service: &str) -> StoreFuture<'_, u64>;

        /// Addresses of removed accounts with numbers above `after`, in the order of their numbers. None is missed by who asks again
        /// with the last number.
        fn former_accounts(&self, after: u64, limit: u32) -> StoreFuture<'_, Vec<FormerAccount>>;

        /// Number of rooms that a user has created, at most `most`.
        fn count_created(&self, creator: JidRef<'_>, most: u32) -> StoreFuture<'_, u64>;
    }
}
