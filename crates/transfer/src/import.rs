//! Writes the records of a source into the store, in two passes: the accounts, then their data.
//!
//! An import changes only accounts that it has created itself. It can be stopped at any time and continued by the same
//! call: accounts and data are written such that writing them again changes nothing, and a checkpoint in the store names
//! the record before which everything is durable. Only offline messages would be doubled: the checkpoint also has the number
//! of messages that the owners of those of the next batch had before.
//!
//! Long because checks, writes and the checkpoint of a batch must be read together.
//!
//! # Pitfalls
//!
//! A node that serves an account during the import does not notice its data. Nodes must be stopped.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use base::{BoxFuture, Secret};
use jid::Jid;
use sasl::{Credentials, ScramHash};
use store::vcards::MAX_VCARD_BYTES;
use store::{
    AccountKvLimits, AddressId, AppendOutcome, BlocklistOutcome, BulkItem, BulkRoster, CreateOutcome,
    LastActivity, NewAccount, OfflineMessage, PhotoHash, PutOutcome, Quota, RosterItem, RosterUpdate,
    RosterUpdateFn, SearchableProfile, StoreError, Stores, Subscription, Unblock,
};

use crate::concurrent_calls::run_all;
use crate::{
    AccountItem, AccountPassword, ContactData, ContactRequest, OfflineData, SkippedData, SourceError,
    SourceRecord, TransferSource,
};

/// Key of the checkpoint in [`store::ServerKv`]. There is one import at a time.
const CHECKPOINT_KEY: &str = "import";

/// Accounts that are created together.
const ACCOUNTS_PER_BATCH: usize = 1_000;

/// Records that are written between two checkpoints.
const RECORDS_PER_BATCH: usize = 1_000;

/// Bytes of stanzas and elements in these records.
const BYTES_PER_BATCH: usize = 8 << 20;

/// Owners whose ids are remembered.
const REMEMBERED_OWNERS: usize = 100_000;

/// Calls of the store in flight; fewer than any of its queues admits.
const CONCURRENT_CALLS: usize = 64;

/// Derives the stored keys of passwords, in their order; an error is a reason for people.
pub type DerivePasswords =
    Box<dyn Fn(Vec<Secret>) -> BoxFuture<'static, Vec<Result<Vec<u8>, String>>> + Send + Sync>;

/// The vCard as it is stored: the card, its searchable texts, the hash of its photo.
pub type IndexedVcard = (Vec<u8>, SearchableProfile, Option<PhotoHash>);

/// How features store elements. They define the formats, and this crate knows no feature.
#[derive(Clone, Copy, Debug)]
pub struct FeatureFormats {
    /// Beginning of the keys of private values.
    pub private_prefix: &'static str,
    /// Key of a private value; an error is a reason for people.
    pub private_key: fn(&[u8]) -> Result<String, String>,
    /// Indexes a vCard; `None` if it is empty.
    pub vcard: fn(&[u8]) -> Result<Option<IndexedVcard>, String>,
}

/// Options of an import.
pub struct ImportOptions {
    /// Name of the source, by which an interrupted import is continued: its kind and path.
    pub source: String,
    /// Domains that the server serves.
    pub domains: Vec<String>,
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
    /// SCRAM keys of the same accounts, by hash in the order of [`ScramHash::ALL`].
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
    /// Reports of data that cannot be taken.
    pub skipped: u64,
    /// Whether it continued an interrupted import; the data before the checkpoint are not counted then.
    pub continued: bool,
}

/// Observes an import.
pub trait ImportObserver {
    /// Data cannot be taken.
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
    let continued = checkpoint.position.is_some_and(|position| position > 0);
    let mut run = ImportRun {
        stores,
        options,
        observer,
        checkpoint,
        counts: ImportCounts { continued, ..ImportCounts::default() },
        foreign_domains: BTreeMap::new(),
        orphans: 0,
        owners: HashMap::new(),
    };
    if !options.dry_run {
        run.checkpoint.write(stores).await?;
    }
    source.rewind()?;
    run.create_accounts(source).await?;
    source.rewind()?;
    run.write_data(source).await?;
    run.finish().await
}

/// Progress of an import in the store.
struct Checkpoint {
    source: String,
    /// Accounts that were created earlier are not the import's.
    started_at: u64,
    /// Records of the second pass before which everything is stored; `None` if it is finished.
    position: Option<u64>,
    /// Stored messages, before those of the next batch, of the owners of those; `None` before they are stored.
    messages: Option<BTreeMap<AddressId, u32>>,
    /// The value in the store.
    stored: Option<Vec<u8>>,
}

impl Checkpoint {
    async fn read(stores: &Stores) -> Result<Option<Checkpoint>, StoreError> {
        let Some(stored) = stores.server_kv.get(CHECKPOINT_KEY).await? else { return Ok(None) };
        let text = String::from_utf8_lossy(&stored).into_owned();
        let mut lines = text.splitn(4, '\n');
        let started_at = lines.next().and_then(|line| line.parse().ok()).unwrap_or(0);
        let position = lines.next().and_then(|line| line.parse().ok());
        let messages = lines.next().filter(|line| !line.is_empty());
        let messages = messages.map(|line| line.split(' ').filter_map(read_message_count).collect());
        let source = lines.next().unwrap_or_default().to_owned();
        Ok(Some(Checkpoint { source, started_at, position, messages, stored: Some(stored) }))
    }

    async fn write(&mut self, stores: &Stores) -> Result<(), StoreError> {
        let position = self.position.map_or_else(|| "finished".to_owned(), |position| position.to_string());
        let counts = self.messages.iter().flatten().map(|(owner, count)| format!("{}={count}", owner.get()));
        let messages = counts.collect::<Vec<_>>().join(" ");
        let value = format!("{}\n{position}\n{messages}\n{}", self.started_at, self.source).into_bytes();
        if self.stored.as_ref() != Some(&value) {
            stores.server_kv.put(CHECKPOINT_KEY, &value).await?;
            self.stored = Some(value);
        }
        Ok(())
    }
}

/// `OWNER=COUNT`.
fn read_message_count(text: &str) -> Option<(AddressId, u32)> {
    let (owner, count) = text.split_once('=')?;
    Some((AddressId::new(owner.parse().ok()?)?, count.parse().ok()?))
}

/// An owner of data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DataOwner {
    /// Created by this import.
    Imported(AddressId),
    /// Created before this import, which must not change it.
    Existing,
    /// It does not exist.
    Missing,
}

struct ImportRun<'a> {
    stores: &'a Stores,
    options: &'a ImportOptions,
    observer: &'a mut dyn ImportObserver,
    checkpoint: Checkpoint,
    counts: ImportCounts,
    /// Accounts in domains that the server does not serve.
    foreign_domains: BTreeMap<String, u64>,
    /// Records of accounts that do not exist.
    orphans: u64,
    owners: HashMap<Jid, DataOwner>,
}

/// An account of the first pass.
struct PendingAccount {
    jid: Jid,
    plain: Option<Secret>,
    keys: Credentials,
    disabled: bool,
}

impl ImportRun<'_> {
    fn skip(&mut self, place: impl Into<String>, reason: impl Into<String>) {
        self.counts.skipped += 1;
        self.observer.skipped(&SkippedData { place: place.into(), reason: reason.into() });
    }

    fn is_served(&self, jid: &Jid) -> bool {
        self.options.domains.iter().any(|domain| domain == jid.domain())
    }

    // First pass.

    async fn create_accounts(&mut self, source: &mut dyn TransferSource) -> Result<(), ImportError> {
        let mut batch: Vec<PendingAccount> = Vec::new();
        let mut places: HashMap<Jid, usize> = HashMap::new();
        loop {
            let record = source.next_record()?.filter(|record| {
                let is_data = matches!(record, SourceRecord::Item { item, .. } if !item.is_account());
                !(is_data && source.has_accounts_first())
            });
            if batch.len() >= ACCOUNTS_PER_BATCH || (record.is_none() && !batch.is_empty()) {
                places.clear();
                self.write_accounts(std::mem::take(&mut batch)).await?;
                self.observer.progress(&self.counts, 1, source.progress());
            }
            let (owner, password, disabled) = match record {
                None => return Ok(()),
                Some(SourceRecord::Item { owner, item: AccountItem::Account { password, disabled } }) => {
                    (owner, password, disabled)
                }
                Some(_) => continue,
            };
            if !self.is_served(&owner) {
                *self.foreign_domains.entry(owner.domain().to_owned()).or_default() += 1;
                continue;
            }
            let at = *places.entry(owner.clone()).or_insert(batch.len());
            if at == batch.len() {
                let keys = Credentials::default();
                batch.push(PendingAccount { jid: owner, plain: None, keys, disabled: false });
            }
            let Some(account) = batch.get_mut(at) else { continue };
            account.disabled |= disabled;
            match password {
                AccountPassword::Missing => {}
                AccountPassword::Plain(password) => {
                    self.counts.passwords += 1;
                    account.plain = Some(password);
                }
                AccountPassword::Scram(keys) => {
                    for (count, hash) in self.counts.keys.iter_mut().zip(ScramHash::ALL) {
                        *count += u64::from(keys.keys(hash).is_some());
                    }
                    add_missing_keys(&mut account.keys, &keys);
                }
            }
        }
    }

    async fn write_accounts(&mut self, batch: Vec<PendingAccount>) -> Result<(), ImportError> {
        let stores = self.stores;
        let gets = batch.iter().map(|account| stores.accounts.get(account.jid.as_ref()));
        let found = run_all(gets, CONCURRENT_CALLS).await?;
        let (mut missing, mut created_before) = (Vec::new(), Vec::new());
        for (account, record) in batch.into_iter().zip(found) {
            match record {
                None => missing.push(account),
                Some(record) if record.created_at < self.checkpoint.started_at => {
                    self.skip(account.jid.as_str(), "the account exists already and was not changed");
                }
                Some(_) => {
                    self.counts.accounts += 1;
                    created_before.push(account);
                }
            }
        }
        if self.options.dry_run {
            self.counts.accounts += missing.len() as u64;
            return Ok(());
        }
        // With accounts in a database of their own, an interruption may have left one of the two parts of an account.
        let repeated = created_before.iter().map(|account| NewAccount {
            jid: account.jid.clone(),
            credentials: Arc::from(account.keys.encode()),
        });
        stores.accounts.create_bulk(repeated.collect()).await?;
        let completed = created_before.iter().map(|account| Box::pin(complete_account(stores, account)));
        run_all(completed, CONCURRENT_CALLS).await?;
        let created = self.derive(&mut missing).await;
        let outcomes = stores.accounts.create_bulk(created).await?;
        let mut disabled = Vec::new();
        for (account, outcome) in missing.iter().zip(outcomes) {
            if let CreateOutcome::Exists(_) = outcome {
                self.skip(account.jid.as_str(), "the account was created by somebody else meanwhile");
                continue;
            }
            self.counts.accounts += 1;
            if account.disabled {
                disabled.push(account.jid.as_ref());
            }
        }
        let disable = disabled.into_iter().map(|jid| stores.accounts.set_disabled(jid, true));
        run_all(disable, CONCURRENT_CALLS).await?;
        Ok(())
    }

    /// Derives passwords, and reports accounts that nobody can log in to.
    async fn derive(&mut self, accounts: &mut [PendingAccount]) -> Vec<NewAccount> {
        let plain: Vec<Secret> = accounts.iter().filter_map(|account| account.plain.clone()).collect();
        let mut derived = if plain.is_empty() {
            Vec::new().into_iter()
        } else {
            (self.options.derive)(plain).await.into_iter()
        };
        let mut created = Vec::with_capacity(accounts.len());
        for account in accounts {
            let keys = match account.plain.take().and_then(|_| derived.next()) {
                Some(Ok(keys)) => keys,
                Some(Err(reason)) => {
                    self.skip(account.jid.as_str(), format!("the password cannot be used: {reason}"));
                    account.keys.encode()
                }
                None => {
                    if account.keys == Credentials::default() {
                        let reason = "the account has no password; set one with: throng account passwd";
                        self.skip(account.jid.as_str(), reason);
                    }
                    account.keys.encode()
                }
            };
            created.push(NewAccount { jid: account.jid.clone(), credentials: Arc::from(keys) });
        }
        created
    }

    // Second pass.

    async fn write_data(&mut self, source: &mut dyn TransferSource) -> Result<(), ImportError> {
        let written = self.checkpoint.position.unwrap_or(0);
        let mut position = 0;
        let mut records: Vec<(Jid, AccountItem)> = Vec::new();
        let mut bytes = 0;
        loop {
            let record = source.next_record()?;
            if records.len() >= RECORDS_PER_BATCH || bytes >= BYTES_PER_BATCH || record.is_none() {
                bytes = 0;
                let batch = self.batch(std::mem::take(&mut records)).await?;
                self.write_batch(batch).await?;
                self.checkpoint.position = Some(position.max(written));
                self.checkpoint.messages = None;
                if !self.options.dry_run {
                    self.checkpoint.write(self.stores).await?;
                }
                self.observer.progress(&self.counts, 2, source.progress());
            }
            let Some(record) = record else { return Ok(()) };
            position += 1;
            if position <= written {
                continue;
            }
            match record {
                SourceRecord::Skipped(SkippedData { place, reason }) => self.skip(place, reason),
                SourceRecord::Item { item: AccountItem::Account { .. }, .. } => {}
                SourceRecord::Item { owner, .. } if !self.is_served(&owner) => {}
                SourceRecord::Item { owner, item } => {
                    bytes += item.bytes();
                    records.push((owner, item));
                }
            }
        }
    }

    /// Finds the accounts of records and sorts the records by how they are written.
    async fn batch(&mut self, records: Vec<(Jid, AccountItem)>) -> Result<DataBatch, ImportError> {
        self.find_owners(&records).await?;
        let mut batch = DataBatch::default();
        for (owner, item) in records {
            match self.owners.get(&owner).copied() {
                Some(DataOwner::Imported(id)) => self.add(&mut batch, owner, id, item),
                Some(DataOwner::Missing) => self.orphans += 1,
                Some(DataOwner::Existing) | None => {}
            }
        }
        Ok(batch)
    }

    /// Finds the ids of accounts. In a dry run, accounts do not exist yet, and get an id that nothing uses.
    async fn find_owners(&mut self, records: &[(Jid, AccountItem)]) -> Result<(), ImportError> {
        if self.owners.len() >= REMEMBERED_OWNERS {
            self.owners.clear();
        }
        let unknown =
            records.iter().map(|(owner, _)| owner).filter(|owner| !self.owners.contains_key(*owner));
        let unknown: HashSet<&Jid> = unknown.collect();
        let unknown: Vec<&Jid> = unknown.into_iter().collect();
        let stores = self.stores;
        let gets = unknown.iter().map(|owner| stores.accounts.get(owner.as_ref()));
        let found = run_all(gets, CONCURRENT_CALLS).await?;
        for (owner, record) in unknown.into_iter().zip(found) {
            let found = match record {
                Some(record) if record.created_at >= self.checkpoint.started_at => {
                    DataOwner::Imported(record.id)
                }
                Some(_) => DataOwner::Existing,
                None if self.options.dry_run => DataOwner::Imported(AddressId::UNASSIGNED),
                None => DataOwner::Missing,
            };
            self.owners.insert(owner.clone(), found);
        }
        Ok(())
    }

    /// Checks an item and adds it to the batch.
    fn add(&mut self, batch: &mut DataBatch, owner: Jid, id: AddressId, item: AccountItem) {
        match item {
            AccountItem::Account { .. } => {}
            AccountItem::Contact(contact) => {
                self.counts.contacts += 1;
                batch.contacts.entry(id).or_default().push(contact);
            }
            AccountItem::Request(request) => {
                self.counts.requests += 1;
                batch.requests.push((id, request));
            }
            AccountItem::Private(value) => match (self.options.formats.private_key)(&value) {
                Ok(key) => {
                    self.counts.private += 1;
                    batch.private.entry(owner).or_default().push((key, value));
                }
                Err(reason) => self.skip(owner.as_str(), format!("a private value: {reason}")),
            },
            AccountItem::Vcard(card) => match (self.options.formats.vcard)(&card) {
                Ok(Some(indexed)) if indexed.0.len() <= MAX_VCARD_BYTES => {
                    self.counts.vcards += 1;
                    batch.vcards.insert(owner, indexed);
                }
                Ok(Some(_)) => self.skip(owner.as_str(), "the vCard is too large"),
                Ok(None) => {}
                Err(reason) => self.skip(owner.as_str(), format!("the vCard: {reason}")),
            },
            AccountItem::Blocked(addresses) => {
                self.counts.blocked += addresses.len() as u64;
                batch.blocked.push((owner, addresses));
            }
            AccountItem::Offline(message) => {
                if message.expires.is_some_and(|expires| expires <= self.options.now) {
                    self.skip(owner.as_str(), "an offline message has expired");
                    return;
                }
                self.counts.offline += 1;
                batch.offline.push((id, message));
            }
            AccountItem::LastActivity(seen) => {
                self.counts.last_activities += 1;
                batch.last_activities.push((id, seen));
            }
        }
    }

    async fn write_batch(&mut self, batch: DataBatch) -> Result<(), ImportError> {
        if self.options.dry_run {
            return Ok(());
        }
        let stores = self.stores;
        let DataBatch { contacts, requests, private, vcards, blocked, offline, last_activities } = batch;
        self.write_contacts(contacts).await?;
        let updates = requests.into_iter().map(|(owner, request)| {
            let (from, change) = request_update(request);
            stores.roster.update(owner, &from, change)
        });
        run_all(updates, CONCURRENT_CALLS).await?;
        let puts = private
            .into_iter()
            .map(|(owner, values)| stores.account_kv.put(owner.as_ref(), values, AccountKvLimits::UNLIMITED));
        let puts = run_all(puts, CONCURRENT_CALLS).await?;
        self.orphans += puts.into_iter().filter(|put| *put == PutOutcome::NoAccount).count() as u64;
        let puts = vcards.into_iter().map(|(owner, (card, searchable, photo))| {
            stores.vcards.put(owner.as_ref(), Some(card), searchable, photo)
        });
        let puts = run_all(puts, CONCURRENT_CALLS).await?;
        self.orphans += puts.into_iter().filter(|put| !put).count() as u64;
        let owners: Vec<Jid> = blocked.iter().map(|(owner, _)| owner.clone()).collect();
        let updates = blocked.into_iter().map(|(owner, addresses)| {
            let nothing = Unblock::These(Vec::new());
            stores.blocklists.update_blocklist(owner.as_ref(), addresses, nothing, u32::MAX)
        });
        let updated = run_all(updates, CONCURRENT_CALLS).await?;
        for (owner, outcome) in owners.into_iter().zip(updated) {
            match outcome {
                BlocklistOutcome::Changed(_) => {}
                BlocklistOutcome::Full => self.skip(owner.as_str(), "the blocklist is too long"),
                BlocklistOutcome::NoAccount => self.orphans += 1,
            }
        }
        self.write_messages(offline).await?;
        for (owner, seen) in last_activities {
            self.stores.last_seen.set(owner, seen);
        }
        Ok(())
    }

    async fn write_contacts(
        &mut self,
        contacts: HashMap<AddressId, Vec<ContactData>>,
    ) -> Result<(), ImportError> {
        if contacts.is_empty() {
            return Ok(());
        }
        // A list, so that addresses and ids have the same order.
        let contacts: Vec<(AddressId, Vec<ContactData>)> = contacts.into_iter().collect();
        let addresses: Vec<Jid> =
            contacts.iter().flat_map(|(_, contacts)| contacts).map(|contact| contact.jid.clone()).collect();
        let mut ids = self.stores.addresses.intern_many(&addresses).await?.into_iter();
        let mut rosters = Vec::with_capacity(contacts.len());
        for (owner, contacts) in contacts {
            // One entry for each contact, of which the last one counts.
            let mut items: BTreeMap<AddressId, BulkItem> = BTreeMap::new();
            for (contact, id) in contacts.into_iter().zip(ids.by_ref()) {
                let ContactData { name, groups, subscription, .. } = contact;
                items.insert(id, BulkItem { contact: id, name, groups, subscription });
            }
            rosters.push(BulkRoster { owner, items: items.into_values().collect() });
        }
        self.stores.roster.put_bulk(rosters).await?;
        Ok(())
    }

    async fn write_messages(
        &mut self,
        mut messages: Vec<(AddressId, OfflineData)>,
    ) -> Result<(), ImportError> {
        if messages.is_empty() {
            return Ok(());
        }
        let owners: BTreeSet<AddressId> = messages.iter().map(|(owner, _)| *owner).collect();
        let stores = self.stores;
        let counts = owners.iter().map(|owner| stores.offline.count(*owner));
        let counts = owners.iter().copied().zip(run_all(counts, CONCURRENT_CALLS).await?).collect();
        match &self.checkpoint.messages {
            // The interrupted part of the import may have stored the first messages of each owner in this batch.
            Some(before) => drop_stored_messages(&mut messages, before, &counts),
            None => {
                self.checkpoint.messages = Some(counts);
                self.checkpoint.write(stores).await?;
            }
        }
        let now = self.options.now;
        let messages = messages.into_iter().map(|(owner, message)| OfflineMessage {
            owner,
            sender: 0,
            stored_at: message.stored_at.unwrap_or(now),
            expires: message.expires,
            stanza: message.stanza,
        });
        let outcomes = stores.offline.append(messages.collect(), Quota::messages_only(u32::MAX)).await?;
        let lost = outcomes.iter().filter(|outcome| !matches!(outcome, AppendOutcome::Stored { .. })).count();
        self.orphans += lost as u64;
        Ok(())
    }

    async fn finish(mut self) -> Result<ImportCounts, ImportError> {
        for (domain, accounts) in std::mem::take(&mut self.foreign_domains) {
            let reason = format!(
                "{accounts} accounts: the configuration has no such domain; add it to [server] hosts"
            );
            self.skip(domain, reason);
        }
        if self.orphans > 0 {
            let reason = format!("{} records belong to accounts that do not exist", self.orphans);
            self.skip(self.options.source.clone(), reason);
        }
        self.checkpoint.position = None;
        if !self.options.dry_run {
            self.checkpoint.write(self.stores).await?;
        }
        Ok(self.counts)
    }
}

/// Data that are written together.
#[derive(Default)]
struct DataBatch {
    contacts: HashMap<AddressId, Vec<ContactData>>,
    requests: Vec<(AddressId, ContactRequest)>,
    private: HashMap<Jid, Vec<(String, Vec<u8>)>>,
    vcards: HashMap<Jid, IndexedVcard>,
    blocked: Vec<(Jid, Vec<Jid>)>,
    offline: Vec<(AddressId, OfflineData)>,
    last_activities: Vec<(AddressId, LastActivity)>,
}

/// The sender of a request, and the change that adds it to the entry of the contact.
fn request_update(request: ContactRequest) -> (Jid, RosterUpdateFn) {
    let ContactRequest { from, stanza } = request;
    let contact = from.clone();
    let change = Box::new(move |before: Option<RosterItem>| {
        let mut item = before.unwrap_or_else(|| RosterItem::new(contact));
        item.subscription = item.subscription | Subscription::PENDING_IN;
        item.request = stanza;
        RosterUpdate::Put(item)
    });
    (from, change)
}

/// Adds to an account of this import what a later record or an interruption has left out.
async fn complete_account(stores: &Stores, account: &PendingAccount) -> Result<(), StoreError> {
    let jid = account.jid.as_ref();
    if account.keys != Credentials::default()
        && let Some(secrets) = stores.logins.secrets(jid).await?
        && let Ok(mut keys) = Credentials::decode(&secrets.credentials)
    {
        let before = keys.clone();
        add_missing_keys(&mut keys, &account.keys);
        if keys != before {
            stores.accounts.set_credentials(jid, &keys.encode()).await?;
        }
    }
    if account.disabled {
        stores.accounts.set_disabled(jid, true).await?;
    }
    Ok(())
}

/// Drops the first messages of each owner, as many as were stored since the counts `before`.
fn drop_stored_messages(
    messages: &mut Vec<(AddressId, OfflineData)>,
    before: &BTreeMap<AddressId, u32>,
    now: &BTreeMap<AddressId, u32>,
) {
    let stored =
        |owner: &AddressId, count: &u32| count.saturating_sub(before.get(owner).copied().unwrap_or(*count));
    let mut stored: BTreeMap<AddressId, u32> =
        now.iter().map(|(owner, count)| (*owner, stored(owner, count))).collect();
    messages.retain(|(owner, _)| match stored.get_mut(owner) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
}

/// Adds the keys of hashes that `keys` does not have.
fn add_missing_keys(keys: &mut Credentials, others: &Credentials) {
    for hash in ScramHash::ALL {
        let slot = match hash {
            ScramHash::Sha1 => &mut keys.sha1,
            ScramHash::Sha256 => &mut keys.sha256,
            ScramHash::Sha512 => &mut keys.sha512,
        };
        if slot.is_none() {
            *slot = others.keys(hash).cloned();
        }
    }
}
