//! Memory backend: one locked state, one file per trait. For tests, and for servers that need no durability.
//!
//! Every call runs synchronously and its future is immediately ready.
//!
//! Not implemented: durability, and any limit on the amount of data.
//!
//! # Pitfalls
//!
//! Update closures run under the lock.

mod account_kv;
mod accounts;
mod address_dictionary;
mod blocklists;
mod last_seen;
mod logins;
mod offline;
mod pubsub;
mod rooms;
mod roster;
mod server_kv;
mod subscription_sets;
mod tokens;
mod user_search;
mod vcards;

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::Clock;
use base::lock::LeafMutex;
use jid::{Jid, JidRef};

use crate::{
    AddressId, PhotoHash, RosterItem, SearchableProfile, StoreError, StoreErrorKind, StoreFuture,
    StoredMessage, Stores,
};

/// All storage traits, in memory.
pub struct MemoryStore {
    state: LeafMutex<MemoryState>,
    clock: Arc<dyn Clock>,
}

/// A new, empty memory backend as a bundle.
pub fn stores(clock: Arc<dyn Clock>) -> Stores {
    Stores::from_backend(Arc::new(MemoryStore::new(clock)))
}

#[derive(Default)]
struct MemoryState {
    ids: HashMap<Jid, AddressId>,
    /// The address with id n is at index n - 1.
    addresses: Vec<Jid>,
    accounts: BTreeMap<AddressId, AccountEntry>,
    server_kv: HashMap<Box<str>, Vec<u8>>,
    rooms: rooms::RoomEntries,
    /// How many accounts with an address were removed, and the number of the latest removal.
    former_accounts: BTreeMap<AddressId, (u32, u64)>,
    /// Removals of all accounts.
    removals: u64,
    subscriptions: subscription_sets::SubscriptionEntries,
    pubsub: pubsub::PubSubEntries,
}

struct AccountEntry {
    created_at: u64,
    disabled: bool,
    revision: u64,
    credentials: Arc<[u8]>,
    roster: BTreeMap<AddressId, RosterItem>,
    version: u64,
    /// With the sender's number.
    offline: BTreeMap<u64, (u64, StoredMessage)>,
    last_seq: u64,
    blocklist: Vec<u8>,
    tokens: Vec<u8>,
    vcard: Option<Vec<u8>>,
    photo: Option<PhotoHash>,
    searchable: SearchableProfile,
    values: AccountValues,
}

/// What an account has for storage needs that no other need reads, by type: such a need is one file of this folder.
#[derive(Default)]
struct AccountValues(HashMap<TypeId, Box<dyn Any + Send>>);

impl AccountValues {
    fn get<T: 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// The value, which begins with the default.
    #[allow(clippy::expect_used, reason = "the key is the type of the value")]
    fn get_or_default<T: Default + Send + 'static>(&mut self) -> &mut T {
        let value = self.0.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        value.downcast_mut().expect("the type of its key")
    }
}

impl MemoryStore {
    /// An empty store. The clock dates new accounts.
    pub fn new(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { state: LeafMutex::new(MemoryState::default()), clock }
    }
}

impl MemoryState {
    fn find_id(&self, address: JidRef<'_>) -> Option<AddressId> {
        self.ids.get(address.bare().as_str()).copied()
    }

    fn intern(&mut self, address: JidRef<'_>) -> Result<AddressId, StoreError> {
        if let Some(id) = self.find_id(address) {
            return Ok(id);
        }
        let bare = address.bare().to_jid();
        let id = u32::try_from(self.addresses.len() + 1)
            .ok()
            .and_then(AddressId::new)
            .filter(|id| *id != AddressId::UNASSIGNED)
            .ok_or_else(|| StoreError::new(StoreErrorKind::TooLarge, "the address dictionary is full"))?;
        self.addresses.push(bare.clone());
        self.ids.insert(bare, id);
        Ok(id)
    }

    fn address(&self, id: AddressId) -> Option<&Jid> {
        self.addresses.get(id.get() as usize - 1)
    }

    fn account(&self, account: JidRef<'_>) -> Option<(AddressId, &AccountEntry)> {
        let id = self.find_id(account)?;
        self.accounts.get(&id).map(|entry| (id, entry))
    }

    fn account_mut(&mut self, account: JidRef<'_>) -> Option<&mut AccountEntry> {
        let id = self.find_id(account)?;
        self.accounts.get_mut(&id)
    }
}

/// A future that is immediately ready.
fn ready<'a, T: Send + 'a>(answer: Result<T, StoreError>) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(answer))
}

fn no_account() -> StoreError {
    StoreError::new(StoreErrorKind::NotFound, "the account does not exist")
}
