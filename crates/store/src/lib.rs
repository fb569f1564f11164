//! Storage contract: one small trait per kind of data, their value types, a memory backend, and the conformance suite
//! that every backend must pass.
//!
//! It contains neither SQL nor XMPP protocol logic: the roster is the data of RFC 6121, section 2, with the states of
//! its appendix A as bits; stanzas, credentials, tokens and vCards are opaque bytes.
//!
//! Not implemented: message archives.
//!
//! # Pitfalls
//!
//! The futures borrow only the store. Arguments passed by reference are copied before the method returns, so a caller
//! may drop them immediately.

pub mod account_kv;
pub mod accounts;
pub mod address_dictionary;
pub mod blocklists;
pub mod conformance;
mod error;
pub mod instrumented;
pub mod last_seen;
pub mod logins;
pub mod memory;
pub mod offline;
mod page;
pub mod roster;
pub mod server_kv;
pub mod tokens;
pub mod user_search;
pub mod vcards;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use account_kv::{AccountKv, AccountKvLimits, PutOutcome};
pub use accounts::{AccountRecord, Accounts, CreateOutcome, NewAccount, RemovedAccount};
pub use address_dictionary::{AddressDictionary, AddressId};
pub use blocklists::{BlocklistChange, BlocklistOutcome, Blocklists, Unblock};
pub use error::{StoreError, StoreErrorKind};
pub use last_seen::{LastActivity, LastSeen};
pub use logins::{AccountSecrets, Login, LoginAttempt, Logins, ProofFn};
pub use offline::{AppendOutcome, Offline, OfflineMessage, Quota, QuotaUsage, StoredMessage};
pub use page::{Page, Paged};
pub use roster::{
    BulkItem, BulkRoster, Roster, RosterEntry, RosterItem, RosterSize, RosterSnapshot, RosterUpdate,
    RosterUpdateFn, RosterUpdateOutcome, Subscription,
};
pub use server_kv::ServerKv;
pub use tokens::{LoginTokens, TokensUpdateFn, TokensUpdateOutcome};
pub use user_search::{FoundUser, SearchPageRequest, Seek, UserQuery, UserSearch, UserSearchPage};
pub use vcards::{PhotoHash, SearchableProfile, Vcards};

/// Return type of every storage call: a boxed future that borrows only the store.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// One backend, trait by trait. Cloning copies a reference count per field.
///
/// The fields may point to different backends (authentication separate from user data), but `logins` must see the
/// writes of `accounts`, `roster`, `offline`, `blocklists` and `tokens`, and `user_search` those of `accounts` and
/// `vcards`.
#[derive(Clone)]
pub struct Stores {
    /// Reads of a login, in two round trips.
    pub logins: Arc<dyn Logins>,
    /// Accounts and their credentials.
    pub accounts: Arc<dyn Accounts>,
    /// Rosters.
    pub roster: Arc<dyn Roster>,
    /// Offline messages.
    pub offline: Arc<dyn Offline>,
    /// Address dictionary.
    pub addresses: Arc<dyn AddressDictionary>,
    /// Key-value storage of the server.
    pub server_kv: Arc<dyn ServerKv>,
    /// Blocklists.
    pub blocklists: Arc<dyn Blocklists>,
    /// Login tokens.
    pub tokens: Arc<dyn LoginTokens>,
    /// Key-value storage per account.
    pub account_kv: Arc<dyn AccountKv>,
    /// vCards.
    pub vcards: Arc<dyn Vcards>,
    /// User search.
    pub user_search: Arc<dyn UserSearch>,
    /// Last activity.
    pub last_seen: Arc<dyn LastSeen>,
}

impl Stores {
    /// A bundle of one value that implements every trait, as both backends do.
    pub fn from_backend<B>(backend: Arc<B>) -> Stores
    where
        B: Logins + Accounts + Roster + Offline + AddressDictionary + ServerKv,
        B: Blocklists + LoginTokens + AccountKv + Vcards + UserSearch + LastSeen + 'static,
    {
        Stores {
            logins: backend.clone(),
            accounts: backend.clone(),
            roster: backend.clone(),
            offline: backend.clone(),
            addresses: backend.clone(),
            server_kv: backend.clone(),
            blocklists: backend.clone(),
            tokens: backend.clone(),
            account_kv: backend.clone(),
            vcards: backend.clone(),
            user_search: backend.clone(),
            last_seen: backend,
        }
    }
}

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stores")
    }
}
