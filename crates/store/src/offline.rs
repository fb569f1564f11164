//! Messages that wait for a recipient without a session (RFC 6121 section 8.5.2.2, XEP-0160).
//!
//! The stanza is opaque bytes. Which messages are stored is decided above. Left out: XEP-0013, which needs no more than
//! `fetch` and a removal by number.
//!
//! The trap for the next person: sequence numbers are per owner and never used again, so that a repeated
//! `remove_through` cannot touch messages that came later.
use crate::{AddressId, Fut, Page, Slice};

/// A message to be stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfflineMessage {
    /// The recipient's account.
    pub owner: AddressId,
    /// When the server took it, in milliseconds since 1970. Also the present moment for the limit.
    pub stored_at: u64,
    /// When it is no longer worth delivering (XEP-0023, XEP-0334), in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The stanza.
    pub stanza: Vec<u8>,
}

/// What became of one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Appended {
    /// It is stored durably under this number.
    Stored {
        /// Greater than every earlier number of this owner.
        seq: u64,
    },
    /// The account holds as many messages as it may.
    Full,
    /// There is no such account.
    NoAccount,
}

/// A stored message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
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
    /// account that holds `limit_per_account` unexpired messages takes no more. After an error none of them is kept, and
    /// the call may be repeated.
    fn append(&self, messages: Vec<OfflineMessage>, limit_per_account: u32) -> Fut<'_, Vec<Appended>>;

    /// Waiting messages that have not expired at `now` (milliseconds since 1970), oldest first. The cursor is the number.
    fn fetch(&self, owner: AddressId, page: Page, now: u64) -> Fut<'_, Slice<Waiting>>;

    /// Removes all messages up to and including this number; answers how many there were.
    fn remove_through(&self, owner: AddressId, seq: u64) -> Fut<'_, u32>;

    /// How many messages wait, expired ones that were not swept included.
    fn count(&self, owner: AddressId) -> Fut<'_, u32>;

    /// Removes up to `limit` messages that have expired at `now`; answers how many. To be called now and then.
    fn expire(&self, now: u64, limit: u32) -> Fut<'_, u32>;
}
