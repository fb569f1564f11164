//! Persistent rooms (XEP-0045): the state of each as opaque bytes, what their list needs, and their discussion history.
//!
//! A room is read when it is used; nothing is read at the start.
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
    /// Configuration, affiliations and subject.
    pub state: Vec<u8>,
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
    /// Its history.
    pub history: Vec<RoomHistoryEntry>,
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

        /// Inserts or replaces a room. Its history stays.
        fn put(&self, room: JidRef<'_>, record: RoomRecord, fence: Option<WriteFence>) -> StoreFuture<'_, ()>;

        /// Adds messages, or replaces those with the same ids, then removes the oldest ones beyond the newest `keep`, which takes a
        /// time that grows with `keep`; with [`KEEP_ALL`] none. Without effect if there is no such room.
        fn append(&self, room: JidRef<'_>, messages: Vec<RoomHistoryEntry>, keep: u32, fence: Option<WriteFence>) -> StoreFuture<'_, ()>;

        /// Removes a room with its history; returns whether there was one.
        fn remove(&self, room: JidRef<'_>, fence: Option<WriteFence>) -> StoreFuture<'_, bool>;

        /// Public rooms of a service, in an order that does not change, after one of them. Empty if there is no such room.
        fn list(&self, service: &str, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedRoom>>;

        /// The same, hidden rooms included.
        fn list_all(&self, service: &str, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedRoom>>;

        /// Number of public rooms of a service, at most [`MAX_COUNT`].
        fn count(&self, service: &str) -> StoreFuture<'_, u64>;

        /// Number of rooms that a user has created, at most `most`.
        fn count_created(&self, creator: JidRef<'_>, most: u32) -> StoreFuture<'_, u64>;
    }
}
