//! Writes the records of a source into the store, in two passes: the accounts, then their data.
//!
//! An import changes only accounts that it has created itself ([`created`]). It can be stopped at any time and continued by
//! the same call: accounts and data are written such that writing them again changes nothing, and a checkpoint in the store
//! names the record before which everything is durable. Only offline messages would be doubled: the checkpoint also has the
//! number of messages that the owners of those of the next batch had before.
//!
//! # Pitfalls
//!
//! A node that serves an account during the import does not notice its data. Nodes must be stopped.

mod accounts;
mod checkpoint;
mod created;
mod data;
mod key_shapes;
mod limits;
mod owner_set;
mod pubsub;
mod rooms;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::{BoxFuture, Secret};
use jid::Jid;
use sasl::KeyShapes;
use store::{PhotoHash, PubSubChange, RoomUpdate, SearchableProfile, StoreError, Stores};

use self::checkpoint::Checkpoint;
use self::created::CreatedAccounts;
use self::data::DataOwner;
use self::limits::AccountUsage;
use self::owner_set::OwnerSet;
use self::pubsub::PendingPubSub;
use crate::{SkippedData, SourceError, SourcePubSubNode, SourcePubSubState, SourceRoom, TransferSource};

pub use key_shapes::key_shapes;
pub use limits::AccountLimits;

/// Owners whose ids or sizes are remembered.
const REMEMBERED_OWNERS: usize = 100_000;

/// Domains of accounts that are skipped, by name. Further ones are counted together.
const REPORTED_DOMAINS: usize = 1_000;

/// Calls of the store in flight; fewer than any of its queues admits.
const CONCURRENT_CALLS: usize = 64;

/// Derives the stored keys of passwords, in their order; an error is a reason for people.
pub type DerivePasswords =
    Box<dyn Fn(Vec<Secret>) -> BoxFuture<'static, Vec<Result<Vec<u8>, String>>> + Send + Sync>;

/// The vCard as it is stored: the card, its searchable texts, the hash of its photo.
pub type IndexedVcard = (Vec<u8>, SearchableProfile, Option<PhotoHash>);

/// The changes that create a PubSub node, and fields of its configuration that have no place.
pub type NewPubSubNode = (Vec<PubSubChange>, Vec<String>);

/// The changes for what one entity has at a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPubSubState {
    /// The changes.
    pub changes: Vec<PubSubChange>,
    /// Number of subscriptions among them.
    pub subscriptions: usize,
    /// Options of the subscriptions that have no place.
    pub dropped: Vec<String>,
}

/// What one entity has at a node, with what the import knows about it.
#[derive(Clone, Copy, Debug)]
pub struct LocatedPubSubState<'a> {
    /// What the source has.
    pub state: &'a SourcePubSubState,
    /// The entity is an account of this server.
    pub is_account: bool,
}

/// How features store elements. They define the formats, and this crate knows no feature.
#[derive(Clone, Copy, Debug)]
pub struct FeatureFormats {
    /// Beginning of the keys of private values.
    pub private_prefix: &'static str,
    /// Key of a private value; an error is a reason for people.
    pub private_key: fn(&[u8]) -> Result<String, String>,
    /// Indexes a vCard; `None` if it is empty.
    pub vcard: fn(&[u8]) -> Result<Option<IndexedVcard>, String>,
    /// A room as it is stored; an error is a reason for people.
    pub room: fn(&SourceRoom) -> Result<RoomUpdate, String>,
    /// A PubSub node that is created at this time, in milliseconds since 1970; an error is a reason for people.
    pub pubsub_node: fn(&SourcePubSubNode, u64) -> Result<NewPubSubNode, String>,
    /// The changes for what one entity has at a node; an error is a reason for people.
    pub pubsub_state: fn(LocatedPubSubState<'_>) -> Result<NewPubSubState, String>,
}

/// A domain that the server serves.
#[derive(Clone, Debug)]
pub struct ImportDomain {
    /// Its name.
    pub name: String,
    /// Credentials of accounts whose passwords are not in the store but checked by a provider; the passwords and keys of the
    /// source are skipped then, and data without an account become one: another server with a provider had no more of it.
    /// `None` if the store has the passwords.
    ///
    /// They must differ from those of a first login, so that a continued import can tell its own accounts.
    pub external_credentials: Option<Arc<[u8]>>,
    /// Limits of the domain's accounts, those of data that a client stores.
    pub limits: AccountLimits,
}

/// Options of an import.
pub struct ImportOptions {
    /// Name of the source, by which an interrupted import is continued: its kind and path.
    pub source: String,
    /// Domains that the server serves.
    pub domains: Vec<ImportDomain>,
    /// Addresses of the services for rooms.
    pub room_services: Vec<String>,
    /// Addresses of the services for PubSub nodes.
    pub pubsub_services: Vec<String>,
    /// Counts and reports, but writes nothing.
    pub dry_run: bool,
    /// Discards the checkpoint of another import that was not finished.
    pub restart: bool,
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// How features store elements.
    pub formats: FeatureFormats,
    /// Derives passwords.
    pub derive: DerivePasswords,
}

/// What was taken, or would be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Accounts, those of an earlier part of the same import included.
    pub accounts: u64,
    /// Passwords in plain text, of all accounts of the source in the server's domains.
    pub passwords: u64,
    /// SCRAM keys of the same accounts, by hash in the order of [`sasl::ScramHash::ALL`].
    pub keys: [u64; 3],
    /// Contacts.
    pub contacts: u64,
    /// Subscription requests.
    pub requests: u64,
    /// Values of private storage.
    pub private: u64,
    /// vCards.
    pub vcards: u64,
    /// Blocked addresses.
    pub blocked: u64,
    /// Offline messages.
    pub offline: u64,
    /// Times of the last activity.
    pub last_activities: u64,
    /// Persistent rooms.
    pub rooms: u64,
    /// PubSub nodes.
    pub pubsub_nodes: u64,
    /// Subscriptions to PubSub nodes.
    pub pubsub_subscriptions: u64,
    /// Items of PubSub nodes.
    pub pubsub_items: u64,
    /// Reports of skipped data.
    pub skipped: u64,
    /// Whether it continued an interrupted import; the data before the checkpoint are not counted then.
    pub continued: bool,
}

/// Observes an import.
pub trait ImportObserver {
    /// Data are skipped.
    fn skipped(&mut self, skipped: &SkippedData);

    /// A batch is done. `position` is that of the source in its current pass.
    fn progress(&mut self, counts: &ImportCounts, pass: u8, position: Option<(u64, u64)>);
}

/// An import that has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The store. The import can be continued.
    #[error("the import has stopped; run the same command again to continue: {0}")]
    Store(#[from] StoreError),
    /// Another import was not finished.
    #[error(
        "the import of {0} was not finished; run it again to continue it, or add --restart to begin this one"
    )]
    Unfinished(String),
}

/// Imports a source.
///
/// # Errors
/// If the source cannot be read any further or the store fails; the same call continues.
pub async fn import(
    source: &mut dyn TransferSource,
    stores: &Stores,
    options: &ImportOptions,
    observer: &mut dyn ImportObserver,
) -> Result<ImportCounts, ImportError> {
    let found = Checkpoint::read(stores).await?;
    let unfinished = found.filter(|found| found.position.is_some() && !options.restart);
    let resumed = unfinished.is_some();
    let checkpoint = match unfinished {
        Some(found) if found.source == options.source => found,
        Some(found) => return Err(ImportError::Unfinished(found.source)),
        None => Checkpoint {
            source: options.source.clone(),
            started_at: options.now,
            position: Some(0),
            messages: None,
            stored: None,
        },
    };
    let created = if resumed { CreatedAccounts::read(stores).await? } else { CreatedAccounts::default() };
    if !resumed && !options.dry_run {
        CreatedAccounts::clear(stores).await?;
    }
    let continued = checkpoint.position.is_some_and(|position| position > 0);
    let mut run = ImportRun {
        stores,
        options,
        observer,
        checkpoint,
        counts: ImportCounts { continued, ..ImportCounts::default() },
        created,
        resumed,
        foreign_domains: BTreeMap::new(),
        provided_domains: BTreeMap::new(),
        foreign_rooms: BTreeMap::new(),
        foreign_services: BTreeMap::new(),
        pubsub: PendingPubSub::default(),
        orphans: 0,
        found: OwnerSet::default(),
        owners: HashMap::new(),
        counted: HashMap::new(),
        key_shapes: BTreeMap::new(),
    };
    if !options.dry_run {
        run.checkpoint.write(stores).await?;
    }
    source.rewind()?;
    run.create_accounts(source).await?;
    run.store_key_shapes().await?;
    source.rewind()?;
    run.write_data(source).await?;
    run.finish().await
}

struct ImportRun<'a> {
    stores: &'a Stores,
    options: &'a ImportOptions,
    observer: &'a mut dyn ImportObserver,
    checkpoint: Checkpoint,
    counts: ImportCounts,
    created: CreatedAccounts,
    /// Whether it continues an import that was not finished.
    resumed: bool,
    /// Accounts in domains that the server does not serve.
    foreign_domains: BTreeMap<String, u64>,
    /// Accounts whose passwords were skipped, in domains with a provider.
    provided_domains: BTreeMap<String, u64>,
    /// Rooms at addresses where the server has no service for rooms.
    foreign_rooms: BTreeMap<String, u64>,
    /// PubSub nodes at addresses where the server has no service for them.
    foreign_services: BTreeMap<String, u64>,
    pubsub: PendingPubSub,
    /// Records of accounts that do not exist.
    orphans: u64,
    /// Accounts of the source in the server's domains.
    found: OwnerSet,
    owners: HashMap<Jid, DataOwner>,
    /// What a dry run would have stored, since nothing is in the store.
    counted: HashMap<Jid, AccountUsage>,
    /// Of the accounts of each domain.
    key_shapes: BTreeMap<String, KeyShapes>,
}

impl<'a> ImportRun<'a> {
    fn skip(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.counts.skipped += 1;
        self.observer.skipped(&SkippedData { place: place.into(), reason: reason.into() });
    }

    /// The domain of an account; `None` if the server does not serve it.
    fn domain(&self, jid: &Jid) -> Option<&'a ImportDomain> {
        self.options.domains.iter().find(|domain| domain.name == jid.domain())
    }

    async fn finish(mut self) -> Result<ImportCounts, ImportError> {
        for (domain, accounts) in std::mem::take(&mut self.foreign_domains) {
            let reason =
                format!("{accounts} accounts: the configuration has no such domain; add it to hosts");
            self.skip(domain, reason);
        }
        for (domain, accounts) in std::mem::take(&mut self.provided_domains) {
            let reason = format!(
                "the passwords and keys of {accounts} accounts: an account provider checks the passwords of this domain"
            );
            self.skip(domain, reason);
        }
        for (service, rooms) in std::mem::take(&mut self.foreign_rooms) {
            let reason = format!(
                "{rooms} rooms: no host has its rooms at this address; set address in [modules.muc] of the host"
            );
            self.skip(service, reason);
        }
        for (service, nodes) in std::mem::take(&mut self.foreign_services) {
            let reason = format!(
                "{nodes} PubSub nodes: no host has its nodes at this address; set address in [modules.pubsub] of the host"
            );
            self.skip(service, reason);
        }
        if self.orphans > 0 {
            let reason = format!("{} records belong to accounts that do not exist", self.orphans);
            self.skip(self.options.source.clone(), reason);
        }
        self.checkpoint.position = None;
        if !self.options.dry_run {
            self.checkpoint.write(self.stores).await?;
            CreatedAccounts::clear(self.stores).await?;
        }
        Ok(self.counts)
    }
}

/// Counts an account of a domain, with a limited number of domains.
fn count_domain(domains: &mut BTreeMap<String, u64>, domain: &str) {
    let is_full = domains.len() >= REPORTED_DOMAINS && !domains.contains_key(domain);
    *domains.entry(if is_full { "other domains" } else { domain }.to_owned()).or_default() += 1;
}
