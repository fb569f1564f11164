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

#[macro_use]
mod storage_need;

/// All storage needs: the field of [`Stores`] with its documentation, the file, and the trait.
macro_rules! storage_needs {
    ($callback:ident) => {
        $callback! {
            /// Reads of a login, in two round trips.
            logins in logins: Logins;
            /// Accounts and their credentials.
            accounts in accounts: Accounts;
            /// Rosters.
            roster in roster: Roster;
            /// Offline messages.
            offline in offline: Offline;
            /// Address dictionary.
            addresses in address_dictionary: AddressDictionary;
            /// Key-value storage of the server.
            server_kv in server_kv: ServerKv;
            /// Blocklists.
            blocklists in blocklists: Blocklists;
            /// Login tokens.
            tokens in tokens: LoginTokens;
            /// Key-value storage per account.
            account_kv in account_kv: AccountKv;
            /// vCards.
            vcards in vcards: Vcards;
            /// User search.
            user_search in user_search: UserSearch;
            /// Last activity.
            last_seen in last_seen: LastSeen;
            /// Persistent rooms.
            rooms in rooms: Rooms;
            /// PubSub nodes.
            pubsub in pubsub: PubSub;
            /// Plain subscriptions of PubSub nodes.
            subscription_sets in subscription_sets: SubscriptionSets;
        }
    };
}

pub mod account_kv;
pub mod accounts;
pub mod address_dictionary;
pub mod blocklists;
pub mod conformance;
mod error;
pub mod instrumented;
pub mod last_seen;
pub mod lease;
pub mod logins;
pub mod memory;
pub mod node_subscribers;
pub mod number_chunk;
pub mod observed;
pub mod offline;
mod page;
pub mod pubsub;
pub mod rooms;
pub mod roster;
pub mod separate_auth;
pub mod server_kv;
pub mod subscription_bulk;
pub mod subscription_sets;
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
pub use node_subscribers::NodeSubscribers;
pub use offline::{AppendOutcome, Offline, OfflineMessage, Quota, QuotaUsage, StoredMessage};
pub use page::{Page, Paged};
pub use pubsub::{
    EntitySubscription, ListedPubSubNode, PubSub, PubSubChange, PubSubItem, PubSubItemHead,
    PubSubNodeOfService, PubSubNodeRecord, SpecialSubscription, StoredPubSubNode,
};
pub use rooms::{
    FormerAccount, ListedRoom, RoomAffiliation, RoomHistoryEntry, RoomRecord, RoomUpdate, Rooms, StoredRoom,
    WriteFence,
};
pub use roster::{
    BulkItem, BulkRoster, Roster, RosterEntry, RosterItem, RosterSize, RosterSnapshot, RosterUpdate,
    RosterUpdateFn, RosterUpdateOutcome, Subscription,
};
pub use server_kv::ServerKv;
pub use subscription_sets::{NodeNumber, SubscriptionSetChange, SubscriptionSets, SubscriptionSide};
pub use tokens::{LoginTokens, TokensUpdateFn, TokensUpdateOutcome};
pub use user_search::{FoundUser, SearchPageRequest, Seek, UserQuery, UserSearch, UserSearchPage};
pub use vcards::{PhotoHash, SearchableProfile, Vcards};

/// Return type of every storage call: a boxed future that borrows only the store.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

macro_rules! stores {
    ($($(#[$doc:meta])* $field:ident in $module:ident: $need:ident;)+) => {
        /// One backend, trait by trait. Cloning copies a reference count per field.
        ///
        /// The fields may point to different backends (see [`separate_auth`]), but `logins` must see the
        /// writes of `accounts`, `roster`, `offline`, `blocklists` and `tokens`, and `user_search` those of `accounts` and
        /// `vcards`.
        #[derive(Clone)]
        pub struct Stores {
            $($(#[$doc])* pub $field: Arc<dyn $need>,)+
        }

        impl Stores {
            /// A bundle of one value that implements every trait, as both backends do.
            pub fn from_backend<B: $($need +)+ 'static>(backend: Arc<B>) -> Stores {
                Stores { $($field: backend.clone(),)+ }
            }
        }

        /// All measured operations, by need.
        pub(crate) const OPERATIONS: &[&[&str]] = &[$($module::OPERATIONS),+];
    };
}

storage_needs!(stores);

impl std::fmt::Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stores")
    }
}
