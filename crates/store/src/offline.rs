//! Offline messages, stored for recipients without a session (RFC 6121, section 8.5.2.2; XEP-0160).
//!
//! The stanza is opaque bytes. The caller decides which messages are stored.
//!
//! Not implemented: XEP-0013, which would only need `fetch` and `remove_range`.
//!
//! # Pitfalls
//!
//! Sequence numbers are per owner and never reused, so that a repeated `remove_range` cannot remove later messages.

use crate::{AddressId, Page, Paged, StoreFuture};

/// A message to store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfflineMessage {
    /// The recipient's account.
    pub owner: AddressId,
    /// A number below 2^63, equal for all messages of one sender; 0 is a sender without a share limit.
    pub sender: u64,
    /// When the server accepted it, in milliseconds since 1970. Also the current time for the quota.
    pub stored_at: u64,
    /// When it expires (XEP-0023, XEP-0334), in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The stanza.
    pub stanza: Vec<u8>,
}

/// Storage limits of one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Number of messages.
    pub messages: u32,
    /// Bytes of their stanzas.
    pub bytes: u64,
    /// Percentage of both that one sender may use; its first message is always accepted.
    pub sender_percent: u32,
}

/// Stored messages of an account or of one sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaUsage {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of their stanzas.
    pub bytes: u64,
}

impl Quota {
    /// A limit of the number of messages only, for any size and sender.
    pub const fn messages_only(messages: u32) -> Quota {
        Quota { messages, bytes: u64::MAX, sender_percent: 100 }
    }

    /// Whether there is room for a stanza of this size.
    pub const fn has_room(&self, held: QuotaUsage, size: u64) -> bool {
        held.messages < self.messages as u64 && held.bytes.saturating_add(size) <= self.bytes
    }

    /// Whether the usage of one sender must be read before storing a stanza of this size: if the total is small enough,
    /// no sender can exceed its share.
    pub fn needs_sender_usage(&self, sender: u64, held: QuotaUsage, size: u64) -> bool {
        sender != 0 && self.sender_percent < 100 && !self.sender_share().has_room(held, size)
    }

    /// Whether a sender with this usage may store a stanza of this size.
    pub fn sender_has_room(&self, held: QuotaUsage, size: u64) -> bool {
        held.messages == 0 || self.sender_share().has_room(held, size)
    }

    fn sender_share(&self) -> Quota {
        let part = |of: u64| {
            let part = u128::from(of) * u128::from(self.sender_percent) / 100;
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        let messages = u32::try_from(part(self.messages.into())).unwrap_or(u32::MAX);
        Quota { messages, bytes: part(self.bytes), sender_percent: 100 }
    }
}

impl QuotaUsage {
    /// Adds one stanza.
    pub const fn add(&mut self, size: u64) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(size);
    }
}

/// Result for one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendOutcome {
    /// It is stored durably under this number.
    Stored {
        /// Greater than every earlier sequence number of this owner.
        seq: u64,
    },
    /// The account has reached its limit of messages or bytes.
    Full,
    /// The sender has reached its share.
    SenderFull,
    /// There is no such account.
    NoAccount,
}

/// A stored message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredMessage {
    /// Sequence number; also the cursor.
    pub seq: u64,
    /// When the server accepted it, in milliseconds since 1970.
    pub stored_at: u64,
    /// When it expires, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The stanza.
    pub stanza: Vec<u8>,
}

storage_need! {
    /// Storage of offline messages.
    pub trait Offline in offline {
        /// Stores messages in this order in one transaction and returns one result per message once they are durable. The
        /// unexpired messages of an account are limited by `quota`. After an error none of them is stored, and the call may
        /// be repeated.
        fn append(&self, messages: Vec<OfflineMessage>, quota: Quota) -> StoreFuture<'_, Vec<AppendOutcome>>;

        /// Messages that have not expired at `now` (milliseconds since 1970), oldest first. The cursor is the sequence
        /// number.
        fn fetch(&self, owner: AddressId, page: Page, now: u64) -> StoreFuture<'_, Paged<StoredMessage>>;

        /// Removes all messages from the first up to and including the last sequence number; returns how many there were.
        fn remove_range(&self, owner: AddressId, first: u64, last: u64) -> StoreFuture<'_, u32>;

        /// Number of messages, including expired ones not yet removed.
        fn count(&self, owner: AddressId) -> StoreFuture<'_, u32>;

        /// Removes up to `limit` messages that have expired at `now` and returns their number. Must be called periodically.
        fn expire(&self, now: u64, limit: u32) -> StoreFuture<'_, u32>;
    }
}

impl dyn Offline {
    /// Removes all messages up to and including this sequence number; returns how many there were.
    pub fn remove_through(&self, owner: AddressId, seq: u64) -> StoreFuture<'_, u32> {
        self.remove_range(owner, 0, seq)
    }
}
