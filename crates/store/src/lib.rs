//! What the server keeps: one small trait per need, the values they carry, a memory backend and the suite that
//! every backend must pass.
//!
//! No SQL and no XMPP protocol logic lives here: the roster is the data of RFC 6121 section 2 with the states of its
//! appendix A as bits, stanzas, credentials, tokens and vCards are opaque bytes. Left out for now: archive.
//!
//! The trap for the next person: the futures borrow only the store. Arguments passed by reference are copied before the
//! method returns, so a caller may drop them at once.
pub mod accounts;
pub mod addresses;
pub mod blocklists;
pub mod conformance;
pub mod directory;
mod error;
pub mod last_seen;
pub mod logins;
pub mod memory;
pub mod observed;
pub mod offline;
mod page;
pub mod private;
pub mod roster;
pub mod settings;
pub mod tokens;
pub mod vcards;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use accounts::{Account, Accounts, Created, NewAccount, Removed};
pub use addresses::{AddressId, Addresses};
pub use blocklists::{BlocklistChange, BlocklistOutcome, Blocklists, Unblock};
pub use directory::{Directory, Found, FoundUser, Query, SearchPage, Seek};
pub use error::{ErrorKind, StoreError};
pub use last_seen::{LastSeen, Seen};
pub use logins::{Login, LoginAttempt, Logins, ProofFn, Secrets};
pub use offline::{Appended, Held, Offline, OfflineMessage, Quota, Waiting};
pub use page::{Page, Slice};
pub use private::{Private, PrivateLimits, PutOutcome};
pub use roster::{
    BulkItem, BulkRoster, Change, ChangeFn, Changed, Roster, RosterEntry, RosterItem, RosterSize,
    RosterSnapshot, Subscription,
};
pub use settings::Settings;
pub use tokens::{Tokens, TokensFn};
pub use vcards::{PhotoHash, Searchable, Vcards};

/// What every storage call returns: a boxed future that borrows only the store.
pub type Fut<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// One backend, need by need. Cloning copies a reference count for each.
///
/// The fields may point to different backends (authentication kept apart from the user data), but `logins` must see what
/// `accounts`, `roster`, `offline`, `blocklists` and `tokens` write, and `directory` what `accounts` and `vcards` do.
#[derive(Clone)]
pub struct Stores {
    /// What a login reads, in two round trips.
    pub logins: Arc<dyn Logins>,
    /// Accounts and their credentials.
    pub accounts: Arc<dyn Accounts>,
    /// Contact lists.
    pub roster: Arc<dyn Roster>,
    /// Messages waiting for a recipient without a session.
    pub offline: Arc<dyn Offline>,
    /// The dictionary of bare addresses.
    pub addresses: Arc<dyn Addresses>,
    /// Small values of the server itself.
    pub settings: Arc<dyn Settings>,
    /// Whom accounts do not want to hear from.
    pub blocklists: Arc<dyn Blocklists>,
    /// Tokens for quick logins.
    pub tokens: Arc<dyn Tokens>,
    /// Small values of accounts.
    pub private: Arc<dyn Private>,
    /// vCards.
    pub vcards: Arc<dyn Vcards>,
    /// Finding accounts.
    pub directory: Arc<dyn Directory>,
    /// When accounts were last there.
    pub last_seen: Arc<dyn LastSeen>,
}

impl Stores {
    /// One value that implements every need, as both backends do.
    pub fn of<B>(backend: Arc<B>) -> Stores
    where
        B: Logins + Accounts + Roster + Offline + Addresses + Settings,
        B: Blocklists + Tokens + Private + Vcards + Directory + LastSeen + 'static,
    {
        Stores {
            logins: backend.clone(),
            accounts: backend.clone(),
            roster: backend.clone(),
            offline: backend.clone(),
            addresses: backend.clone(),
            settings: backend.clone(),
            blocklists: backend.clone(),
            tokens: backend.clone(),
            private: backend.clone(),
            vcards: backend.clone(),
            directory: backend.clone(),
            last_seen: backend,
        }
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stores")
    }
}
