//! What a source yields: small parts of accounts, and reports of skipped data.
//!
//! # Pitfalls
//!
//! A subscription request adds to the contact of the same address, and a contact replaces it. A source yields the requests
//! of an account after its contacts.

use base::Secret;
use jid::Jid;
use sasl::Credentials;
use store::{LastActivity, Subscription};

use crate::{PubSubRecord, SourceRoom};

/// Password of an account in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountPassword {
    /// None, or only keys of an unknown kind. The account gets keys that match no password.
    Missing,
    /// The password itself.
    Plain(Secret),
    /// SCRAM keys.
    Scram(Box<Credentials>),
}

/// A contact that its owner sees in the roster, or a shadow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactData {
    /// Its bare address.
    pub jid: Jid,
    /// The label.
    pub name: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// The state, without [`Subscription::PENDING_IN`].
    pub subscription: Subscription,
}

/// A subscription request that the account has not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactRequest {
    /// Bare address of the contact.
    pub from: Jid,
    /// The stanza in the form of the store; `None` if the source has only the address.
    pub stanza: Option<Vec<u8>>,
}

/// An offline message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineData {
    /// The stanza in the form of the store.
    pub stanza: Vec<u8>,
    /// When the server accepted it, in milliseconds since 1970.
    pub stored_at: Option<u64>,
    /// When it expires, in milliseconds since 1970.
    pub expires: Option<u64>,
}

/// A part of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccountItem {
    /// The account itself. It may be repeated with keys for further hashes.
    Account {
        /// Its password.
        password: AccountPassword,
        /// Whether login is refused.
        disabled: bool,
    },
    /// A contact.
    Contact(ContactData),
    /// A subscription request.
    Request(ContactRequest),
    /// A value of private storage (XEP-0049): an element as a standalone document.
    Private(Vec<u8>),
    /// The vCard (XEP-0054): an element as a standalone document.
    Vcard(Vec<u8>),
    /// Blocked addresses (XEP-0191).
    Blocked(Vec<Jid>),
    /// An offline message.
    Offline(OfflineData),
    /// The last activity (XEP-0012).
    LastActivity(LastActivity),
}

impl AccountItem {
    /// Whether it is the account itself.
    pub(crate) const fn is_account(&self) -> bool {
        matches!(self, AccountItem::Account { .. })
    }

    /// Bytes of stanzas and elements.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            AccountItem::Request(request) => request.stanza.as_ref().map_or(0, Vec::len),
            AccountItem::Private(element) | AccountItem::Vcard(element) => element.len(),
            AccountItem::Offline(message) => message.stanza.len(),
            AccountItem::Blocked(addresses) => addresses.iter().map(|jid| jid.as_str().len()).sum(),
            AccountItem::Account { .. } | AccountItem::Contact(_) | AccountItem::LastActivity(_) => 0,
        }
    }
}

/// Data that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedData {
    /// Where it is: an account, a file, a table.
    pub place: String,
    /// The reason, one sentence without a full stop.
    pub reason: String,
}

/// One step of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceRecord {
    /// A part of the account with this bare address.
    Item {
        /// The account.
        owner: Jid,
        /// The part.
        item: AccountItem,
    },
    /// A persistent room.
    Room(Box<SourceRoom>),
    /// A part of a PubSub node.
    PubSub(Box<PubSubRecord>),
    /// Data that cannot be imported.
    Skipped(SkippedData),
}

impl SourceRecord {
    /// A report of skipped data.
    pub fn skipped(place: impl Into<String>, reason: impl Into<String>) -> SourceRecord {
        SourceRecord::Skipped(SkippedData { place: place.into(), reason: reason.into() })
    }
}

/// A source that cannot be read any further.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system refused it.
    #[error("cannot read {place}: {error}")]
    Io {
        /// The file.
        place: String,
        /// The reason.
        error: std::io::Error,
    },
    /// It is not in the expected format.
    #[error("{place} is not {expected}: {reason}")]
    Format {
        /// The file, with a position.
        place: String,
        /// The format.
        expected: &'static str,
        /// The reason.
        reason: String,
    },
    /// A database refused it.
    #[error("cannot read {place}: {reason}")]
    Database {
        /// The database or table.
        place: String,
        /// The reason.
        reason: String,
    },
}

/// Accounts of another server.
pub trait TransferSource {
    /// The next record; `None` at the end. The order is the same in each run over the same data.
    ///
    /// # Errors
    /// If the rest of the source cannot be read.
    fn next_record(&mut self) -> Result<Option<SourceRecord>, SourceError>;

    /// Starts again at the first record.
    ///
    /// # Errors
    /// If the source can no longer be opened.
    fn rewind(&mut self) -> Result<(), SourceError>;

    /// Whether all accounts are before all other items, so that an import need not read the others to know the accounts.
    fn has_accounts_first(&self) -> bool {
        false
    }

    /// Units read so far and in total since the last [`TransferSource::rewind`], if the source can tell: bytes, accounts or
    /// rows. For progress only.
    fn progress(&self) -> Option<(u64, u64)> {
        None
    }
}
