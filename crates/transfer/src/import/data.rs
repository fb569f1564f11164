//! The second pass: data are checked, sorted by account, and written in batches.

use std::collections::{HashMap, HashSet};

use jid::Jid;
use store::{AddressId, LastActivity};

use super::limits::text_fault;
use super::{CONCURRENT_CALLS, ImportDomain, ImportError, ImportRun, IndexedVcard, REMEMBERED_OWNERS};
use crate::concurrent_calls::run_all;
use crate::{
    AccountItem, ContactData, ContactRequest, OfflineData, SkippedData, SourceRecord, TransferSource,
};

/// Records that are written between two checkpoints.
const RECORDS_PER_BATCH: usize = 1_000;

/// Bytes of stanzas and elements in these records.
const BYTES_PER_BATCH: usize = 8 << 20;

/// The end of the year 9999 in milliseconds, the last time that a stamp (XEP-0082) can have.
const LAST_STAMP: u64 = 253_402_300_799_999;

/// An owner of data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DataOwner {
    /// Created by this import.
    Imported(AddressId),
    /// Not created by this import, which must not change it.
    Existing,
    /// It does not exist.
    Missing,
}

/// Data of one account that are written together.
pub(super) struct AccountData<'a> {
    pub(super) jid: Jid,
    pub(super) id: AddressId,
    pub(super) domain: &'a ImportDomain,
    pub(super) contacts: Vec<ContactData>,
    pub(super) requests: Vec<ContactRequest>,
    /// With their keys.
    pub(super) private: Vec<(String, Vec<u8>)>,
    pub(super) vcard: Option<IndexedVcard>,
    pub(super) blocked: Vec<Jid>,
    pub(super) offline: Vec<OfflineData>,
    pub(super) last_activity: Option<LastActivity>,
}

impl<'a> ImportRun<'a> {
    pub(super) async fn write_data(&mut self, source: &mut dyn TransferSource) -> Result<(), ImportError> {
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
                self.flush_pubsub().await?;
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
                SourceRecord::Room(room) => self.write_room(&room).await?,
                SourceRecord::PubSub(record) => self.write_pubsub(*record).await?,
                SourceRecord::Item { item: AccountItem::Account { .. }, .. } => {}
                SourceRecord::Item { owner, .. } if self.domain(&owner).is_none() => {}
                SourceRecord::Item { owner, item } => {
                    bytes += item.bytes();
                    records.push((owner, item));
                }
            }
        }
    }

    /// Finds the accounts of records and sorts the records by account.
    async fn batch(&mut self, records: Vec<(Jid, AccountItem)>) -> Result<Vec<AccountData<'a>>, ImportError> {
        self.find_owners(records.iter().map(|(owner, _)| owner).collect()).await?;
        let mut batch: Vec<AccountData<'a>> = Vec::new();
        let mut places: HashMap<Jid, usize> = HashMap::new();
        for (owner, item) in records {
            let Some(domain) = self.domain(&owner) else { continue };
            let id = match self.owners.get(&owner) {
                Some(DataOwner::Imported(id)) => *id,
                Some(DataOwner::Missing) => {
                    self.orphans += 1;
                    continue;
                }
                Some(DataOwner::Existing) | None => continue,
            };
            let at = *places.entry(owner.clone()).or_insert(batch.len());
            if at == batch.len() {
                batch.push(AccountData {
                    jid: owner,
                    id,
                    domain,
                    contacts: Vec::new(),
                    requests: Vec::new(),
                    private: Vec::new(),
                    vcard: None,
                    blocked: Vec::new(),
                    offline: Vec::new(),
                    last_activity: None,
                });
            }
            if let Some(account) = batch.get_mut(at) {
                self.add(account, item);
            }
        }
        Ok(batch)
    }

    /// Finds the ids of accounts. In a dry run, accounts do not exist yet, and get an id that nothing uses.
    pub(super) async fn find_owners(&mut self, owners: Vec<&Jid>) -> Result<(), ImportError> {
        if self.owners.len() >= REMEMBERED_OWNERS {
            self.owners.clear();
        }
        let unknown = owners.into_iter().filter(|owner| !self.owners.contains_key(*owner));
        let unknown: HashSet<&Jid> = unknown.collect();
        let unknown: Vec<&Jid> = unknown.into_iter().collect();
        let stores = self.stores;
        let gets = || unknown.iter().map(|owner| stores.accounts.get(owner.as_ref()));
        let mut found = run_all(gets(), CONCURRENT_CALLS).await?;
        let missing = unknown.iter().zip(&found).filter(|(_, record)| record.is_none());
        if self.create_overlooked(missing.map(|(owner, _)| *owner).collect()).await? {
            found = run_all(gets(), CONCURRENT_CALLS).await?;
        }
        for (owner, record) in unknown.into_iter().zip(found) {
            let found = match record {
                Some(record) if self.created.contains(&record) => DataOwner::Imported(record.id),
                Some(_) => DataOwner::Existing,
                None if self.options.dry_run && self.found.contains(owner) => {
                    DataOwner::Imported(AddressId::UNASSIGNED)
                }
                None => DataOwner::Missing,
            };
            self.owners.insert(owner.clone(), found);
        }
        Ok(())
    }

    /// Checks an item and adds it to the data of its account.
    fn add(&mut self, account: &mut AccountData<'a>, item: AccountItem) {
        let place = account.jid.clone();
        let limits = &account.domain.limits;
        let now = self.options.now;
        match item {
            AccountItem::Account { .. } => {}
            AccountItem::Contact(contact) if contact.jid == account.jid => {
                self.skip(place.as_str(), "an account cannot be its own contact");
            }
            AccountItem::Contact(mut contact) => {
                for reason in limits.check_labels(&mut contact) {
                    self.skip(place.as_str(), reason);
                }
                self.counts.contacts += 1;
                account.contacts.push(contact);
            }
            AccountItem::Request(request) if request.from == account.jid => {
                self.skip(place.as_str(), "an account cannot be its own contact");
            }
            AccountItem::Request(mut request) => {
                if request.stanza.as_ref().is_some_and(|stanza| stanza.len() > limits.stanza_bytes) {
                    let reason = format!("the text of the request of {} is too large", request.from);
                    self.skip(place.as_str(), reason);
                    request.stanza = None;
                }
                self.counts.requests += 1;
                account.requests.push(request);
            }
            AccountItem::Private(value) => match (self.options.formats.private_key)(&value) {
                Ok(key) => {
                    self.counts.private += 1;
                    account.private.push((key, value));
                }
                Err(reason) => self.skip(place.as_str(), format!("a private value: {reason}")),
            },
            AccountItem::Vcard(card) => match (self.options.formats.vcard)(&card) {
                Ok(Some(indexed)) if indexed.0.len() <= limits.vcard_bytes => {
                    self.counts.vcards += u64::from(account.vcard.replace(indexed).is_none());
                }
                Ok(Some(_)) => {
                    let reason = format!("the vCard has more than {} bytes", limits.vcard_bytes);
                    self.skip(place.as_str(), reason);
                }
                Ok(None) => {}
                Err(reason) => self.skip(place.as_str(), format!("the vCard: {reason}")),
            },
            AccountItem::Blocked(mut addresses) => {
                self.counts.blocked += addresses.len() as u64;
                account.blocked.append(&mut addresses);
            }
            AccountItem::Offline(message) if message.expires.is_some_and(|expires| expires <= now) => {
                self.skip(place.as_str(), "an offline message has expired");
            }
            AccountItem::Offline(message) if message.stanza.len() > limits.stanza_bytes => {
                let reason = format!("an offline message has more than {} bytes", limits.stanza_bytes);
                self.skip(place.as_str(), reason);
            }
            AccountItem::Offline(mut message) => {
                // A time that no database can hold, or one in the future, which a wrong clock has written.
                message.stored_at = message.stored_at.map(|stored_at| stored_at.min(now));
                message.expires = message.expires.map(|expires| expires.min(LAST_STAMP));
                self.counts.offline += 1;
                account.offline.push(message);
            }
            AccountItem::LastActivity(mut seen) => {
                seen.at = seen.at.min(now / 1000);
                let fault = seen.status.as_ref().and_then(|status| text_fault(status, usize::MAX));
                if let Some(fault) = fault {
                    self.skip(place.as_str(), format!("the status of the last activity {fault}"));
                    seen.status = None;
                }
                self.counts.last_activities += u64::from(account.last_activity.replace(seen).is_none());
            }
        }
    }
}
