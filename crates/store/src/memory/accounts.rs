//! Accounts, in memory.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use jid::{Jid, JidRef};

use super::{AccountEntry, AccountValues, MemoryState, MemoryStore, ready};
use crate::{
    AccountRecord, Accounts, AddressId, CreateOutcome, NewAccount, Page, Paged, RemovedAccount, RosterItem,
    StoreError, StoreErrorKind, StoreFuture,
};

impl MemoryState {
    fn create(&mut self, jid: &Jid, credentials: Arc<[u8]>, now: u64) -> Result<CreateOutcome, StoreError> {
        let id = self.intern(jid.as_ref())?;
        if self.accounts.contains_key(&id) {
            return Ok(CreateOutcome::Exists(id));
        }
        let first = crate::accounts::first_sequence_number(now);
        let entry = AccountEntry {
            created_at: now,
            disabled: false,
            revision: crate::logins::first_revision(),
            credentials,
            roster: BTreeMap::new(),
            version: first,
            offline: BTreeMap::new(),
            last_seq: first,
            blocklist: Vec::new(),
            tokens: Vec::new(),
            vcard: None,
            photo: None,
            searchable: crate::SearchableProfile::default(),
            values: AccountValues::default(),
        };
        self.accounts.insert(id, entry);
        Ok(CreateOutcome::New(id))
    }

    fn account_record(&self, id: AddressId, entry: &AccountEntry) -> Option<AccountRecord> {
        let jid = self.address(id)?.clone();
        Some(AccountRecord { id, jid, disabled: entry.disabled, created_at: entry.created_at })
    }

    fn in_domain<'a>(&'a self, domain: &'a str, after: u64) -> impl Iterator<Item = AccountRecord> + 'a {
        let after = u32::try_from(after).unwrap_or(u32::MAX);
        let start = AddressId::new(after).map_or(Bound::Unbounded, Bound::Excluded);
        self.accounts
            .range((start, Bound::Unbounded))
            .filter_map(|(id, entry)| self.account_record(*id, entry))
            .filter(move |account| account.jid.as_ref().domain() == domain)
    }
}

impl Accounts for MemoryStore {
    fn create(&self, account: &Jid, credentials: &[u8]) -> StoreFuture<'_, AddressId> {
        let now = self.clock.unix_millis();
        ready(match self.state.lock().create(account, credentials.into(), now) {
            Ok(CreateOutcome::New(id)) => Ok(id),
            Ok(CreateOutcome::Exists(_)) => {
                Err(StoreError::new(StoreErrorKind::AlreadyExists, "the account already exists"))
            }
            Err(error) => Err(error),
        })
    }

    fn create_bulk(&self, accounts: Vec<NewAccount>) -> StoreFuture<'_, Vec<CreateOutcome>> {
        let now = self.clock.unix_millis();
        let mut state = self.state.lock();
        ready(accounts.into_iter().map(|new| state.create(&new.jid, new.credentials, now)).collect())
    }

    fn remove(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<RemovedAccount>> {
        let mut state = self.state.lock();
        let removed = state.find_id(account).and_then(|id| {
            let entry = state.accounts.remove(&id)?;
            state.forget_in_rooms(id, account);
            let contacts =
                entry.roster.into_values().filter(RosterItem::has_subscription_or_request).collect();
            Some(RemovedAccount { id, contacts })
        });
        ready(Ok(removed))
    }

    fn set_credentials(&self, account: JidRef<'_>, credentials: &[u8]) -> StoreFuture<'_, bool> {
        let mut state = self.state.lock();
        let entry = state.account_mut(account);
        let done = entry.map(|entry| {
            entry.credentials = credentials.into();
            entry.revision += 1;
            entry.tokens.clear();
        });
        ready(Ok(done.is_some()))
    }

    fn upgrade_credentials(
        &self,
        account: JidRef<'_>,
        expected: &[u8],
        credentials: &[u8],
    ) -> StoreFuture<'_, bool> {
        let mut state = self.state.lock();
        let entry = state.account_mut(account).filter(|entry| *entry.credentials == *expected);
        ready(Ok(entry.map(|entry| entry.credentials = credentials.into()).is_some()))
    }

    fn set_disabled(&self, account: JidRef<'_>, disabled: bool) -> StoreFuture<'_, bool> {
        let mut state = self.state.lock();
        ready(Ok(state.account_mut(account).map(|entry| entry.disabled = disabled).is_some()))
    }

    fn get(&self, account: JidRef<'_>) -> StoreFuture<'_, Option<AccountRecord>> {
        let state = self.state.lock();
        ready(Ok(state.account(account).and_then(|(id, entry)| state.account_record(id, entry))))
    }

    fn list(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>> {
        let state = self.state.lock();
        let items = state.in_domain(domain, page.after).take(page.limit as usize + 1).collect();
        ready(Ok(Paged::from_rows(items, page, |account: &AccountRecord| u64::from(account.id.get()))))
    }

    fn count(&self, domain: &str) -> StoreFuture<'_, u64> {
        ready(Ok(self.state.lock().in_domain(domain, 0).count() as u64))
    }

    fn list_disabled(&self, domain: &str, page: Page) -> StoreFuture<'_, Paged<AccountRecord>> {
        let state = self.state.lock();
        let shut = state.in_domain(domain, page.after).filter(|account| account.disabled);
        let items = shut.take(page.limit as usize + 1).collect();
        ready(Ok(Paged::from_rows(items, page, |account: &AccountRecord| u64::from(account.id.get()))))
    }

    fn count_disabled(&self, domain: &str) -> StoreFuture<'_, u64> {
        let state = self.state.lock();
        ready(Ok(state.in_domain(domain, 0).filter(|account| account.disabled).count() as u64))
    }

    fn exists(&self, account: JidRef<'_>) -> StoreFuture<'_, bool> {
        ready(Ok(self.state.lock().account(account).is_some()))
    }
}
