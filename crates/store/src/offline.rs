//! Messages that wait for a recipient without a session (RFC 6121 section 8.5.2.2, XEP-0160).
//!
//! The stanza is opaque bytes. Which messages are stored is decided above. Left out: XEP-0013, which needs no more than
//! `fetch` and a removal by number.
//!
//! The trap for the next person: sequence numbers are per owner and never used again, so that a repeated
//! `remove_through` cannot touch messages that came later.
use crate::{AddressId, Page, Paged, StoreFuture};

/// A message to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfflineMessage {
    /// The recipient's account.
    pub owner: AddressId,
    /// A number below 2^63 that is the same for all messages of one sender; 0 is nobody whom a share binds.
    pub sender: u64,
    /// When the server took it, in milliseconds since 1970. Also the present moment for the limit.
    pub stored_at: u64,
    /// When it is no longer worth delivering (XEP-0023, XEP-0334), in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The stanza.
    pub stanza: Vec<u8>,
}

/// What may wait for one account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// Messages.
    pub messages: u32,
    /// Bytes of their stanzas.
    pub bytes: u64,
    /// Percent of both that one sender may take; its first message is taken in any case.
    pub sender_percent: u32,
}

/// What waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaUsage {
    /// Messages.
    pub messages: u64,
    /// Bytes of their stanzas.
    pub bytes: u64,
}

impl Quota {
    /// So many messages of any size and of any sender.
    pub const fn messages_only(messages: u32) -> Quota {
        Quota { messages, bytes: u64::MAX, sender_percent: 100 }
    }
    /// Whether there is room for a stanza of this size.
    pub const fn has_room(&self, held: QuotaUsage, size: u64) -> bool {
        held.messages < self.messages as u64 && held.bytes.saturating_add(size) <= self.bytes
    }
    /// Whether one sender's part has to be looked at before a stanza of this size: with so little for all, it cannot be
    /// over its share.
    pub fn needs_sender_usage(&self, sender: u64, held: QuotaUsage, size: u64) -> bool {
        sender != 0 && self.sender_percent < 100 && !self.sender_share().has_room(held, size)
    }
    /// Whether a sender who has so much waiting may leave a stanza of this size.
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
    /// With one more stanza.
    pub const fn add(&mut self, size: u64) {
        self.messages += 1;
        self.bytes = self.bytes.saturating_add(size);
    }
}

/// What became of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AppendOutcome {
    /// It is stored durably under this number.
    Stored {
        /// Greater than every earlier number of this owner.
        seq: u64,
    },
    /// The account holds as many messages or bytes as it may.
    Full,
    /// It holds as many of this sender as one sender may have waiting.
    SenderFull,
    /// There is no such account.
    NoAccount,
}

/// A stored message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredMessage {
    /// Its number; also the cursor.
    pub seq: u64,
    /// When the server took it, in milliseconds since 1970.
    pub stored_at: u64,
    /// When it expires.
    pub expires: Option<u64>,
    /// The stanza.
    pub stanza: Vec<u8>,
}

/// Messages waiting for accounts.
pub trait Offline: Send + Sync {
    /// Stores messages in this order, all in one transaction, and answers when they are durable; one answer for each. An
    /// account takes no more than `quota` of unexpired messages. After an error none of them is kept, and the call may be
    /// repeated.
    fn append(&self, messages: Vec<OfflineMessage>, quota: Quota) -> StoreFuture<'_, Vec<AppendOutcome>>;

    /// Waiting messages that have not expired at `now` (milliseconds since 1970), oldest first. The cursor is the number.
    fn fetch(&self, owner: AddressId, page: Page, now: u64) -> StoreFuture<'_, Paged<StoredMessage>>;

    /// Removes all messages up to and including this number; answers how many there were.
    fn remove_through(&self, owner: AddressId, seq: u64) -> StoreFuture<'_, u32>;

    /// How many messages wait, expired ones that were not swept included.
    fn count(&self, owner: AddressId) -> StoreFuture<'_, u32>;

    /// Removes up to `limit` messages that have expired at `now`; answers how many. To be called now and then.
    fn expire(&self, now: u64, limit: u32) -> StoreFuture<'_, u32>;
}
