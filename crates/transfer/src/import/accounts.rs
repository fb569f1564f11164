//! The first pass: accounts are created, with the keys of all their records.

use std::collections::HashMap;
use std::sync::Arc;

use base::Secret;
use jid::Jid;
use sasl::{Credentials, ScramHash};
use store::{AccountRecord, CreateOutcome, NewAccount, StoreError, Stores};

use super::{CONCURRENT_CALLS, ImportError, ImportRun, count_domain};
use crate::concurrent_calls::run_all;
use crate::{AccountItem, AccountPassword, SourceRecord, TransferSource};

/// Accounts that are created together.
const ACCOUNTS_PER_BATCH: usize = 1_000;

/// An account of the first pass.
struct PendingAccount {
    jid: Jid,
    plain: Option<Secret>,
    keys: Credentials,
    /// Instead of them, where a provider checks the passwords.
    external: Option<Arc<[u8]>>,
    disabled: bool,
    /// Whether no batch before had it.
    first: bool,
}

impl PendingAccount {
    /// The credentials without a password in plain text.
    fn encoded(&self) -> Arc<[u8]> {
        self.external.clone().unwrap_or_else(|| Arc::from(self.keys.encode()))
    }

    /// Whether an account with these credentials was created from this record: they are equal, or of the same password.
    fn has_credentials(&self, stored: &[u8]) -> bool {
        if *stored == *self.encoded() {
            return true;
        }
        let plain = self.plain.as_ref().and_then(|plain| plain.expose_str().ok());
        plain.is_some_and(|plain| Credentials::decode(stored).is_ok_and(|keys| keys.verify_password(plain)))
    }
}

impl ImportRun<'_> {
    pub(super) async fn create_accounts(
        &mut self,
        source: &mut dyn TransferSource,
    ) -> Result<(), ImportError> {
        let mut batch: Vec<PendingAccount> = Vec::new();
        let mut places: HashMap<Jid, usize> = HashMap::new();
        let reads_data = self.options.domains.iter().any(|domain| domain.external_credentials.is_some());
        loop {
            let record = source.next_record()?.filter(|record| {
                let is_data = matches!(record, SourceRecord::Item { item, .. } if !item.is_account());
                reads_data || !(is_data && source.has_accounts_first())
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
                Some(SourceRecord::Item { owner, .. }) if self.is_of_provider(&owner) => {
                    (owner, AccountPassword::Missing, false)
                }
                Some(_) => continue,
            };
            let Some(domain) = self.domain(&owner) else {
                count_domain(&mut self.foreign_domains, owner.domain());
                continue;
            };
            let at = *places.entry(owner.clone()).or_insert(batch.len());
            if at == batch.len() {
                let external = domain.external_credentials.clone();
                let keys = Credentials::default();
                let first = self.found.insert(&owner);
                let account =
                    PendingAccount { jid: owner, plain: None, keys, external, disabled: false, first };
                batch.push(account);
            }
            let Some(account) = batch.get_mut(at) else { continue };
            account.disabled |= disabled;
            match password {
                AccountPassword::Missing => {}
                _ if account.external.is_some() => count_domain(&mut self.provided_domains, &domain.name),
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

    /// Whether these are the first data of an owner without an account in the source, in a domain with a provider.
    fn is_of_provider(&self, owner: &Jid) -> bool {
        let domain = self.domain(owner).filter(|domain| domain.external_credentials.is_some());
        domain.is_some() && !self.found.contains(owner)
    }

    /// Creates the accounts of these owners of data that a provider has and that the first pass has overlooked. False if
    /// there are none.
    pub(super) async fn create_overlooked(&mut self, owners: Vec<&Jid>) -> Result<bool, ImportError> {
        if self.options.dry_run {
            return Ok(false);
        }
        let external =
            |owner: &Jid| self.domain(owner).and_then(|domain| domain.external_credentials.clone());
        let provided = owners.into_iter().filter_map(|owner| Some((owner, external(owner)?)));
        let provided: Vec<(&Jid, Arc<[u8]>)> = provided.collect();
        let stores = self.stores;
        let ids = provided.iter().map(|(owner, _)| stores.addresses.find(owner));
        let ids = run_all(ids, CONCURRENT_CALLS).await?;
        let mut overlooked = Vec::new();
        for ((owner, external), id) in provided.into_iter().zip(ids) {
            // This import has created that account, and it was removed since.
            if id.is_some_and(|id| self.created.contains_address(id)) {
                continue;
            }
            overlooked.push(PendingAccount {
                jid: owner.clone(),
                plain: None,
                keys: Credentials::default(),
                external: Some(external),
                disabled: false,
                first: self.found.insert(owner),
            });
        }
        let found = !overlooked.is_empty();
        if found {
            self.write_accounts(overlooked).await?;
        }
        Ok(found)
    }

    async fn write_accounts(&mut self, batch: Vec<PendingAccount>) -> Result<(), ImportError> {
        let stores = self.stores;
        let gets = batch.iter().map(|account| stores.accounts.get(account.jid.as_ref()));
        let found = run_all(gets, CONCURRENT_CALLS).await?;
        let (mut missing, mut created_before, mut unlisted) = (Vec::new(), Vec::new(), Vec::new());
        for (account, record) in batch.into_iter().zip(found) {
            match record {
                None => missing.push(account),
                Some(record) if self.created.contains(&record) => created_before.push(account),
                Some(record) if self.resumed && record.created_at >= self.checkpoint.started_at => {
                    unlisted.push((account, record));
                }
                Some(_) => self.skip(account.jid.as_str(), "the account exists already and was not changed"),
            }
        }
        created_before.append(&mut self.own_accounts(unlisted).await?);
        let mut missing = self.without_removed(missing).await?;
        let first = created_before.iter().filter(|account| account.first).count();
        self.counts.accounts += first as u64;
        if self.options.dry_run {
            self.counts.accounts += missing.iter().filter(|account| account.first).count() as u64;
            return Ok(());
        }
        // With accounts in a database of their own, an interruption may have left one of the two parts of an account.
        let repeated = created_before
            .iter()
            .map(|account| NewAccount { jid: account.jid.clone(), credentials: account.encoded() });
        stores.accounts.create_bulk(repeated.collect()).await?;
        let completed = created_before.iter().map(|account| Box::pin(complete_account(stores, account)));
        run_all(completed, CONCURRENT_CALLS).await?;
        for account in created_before.iter().filter(|account| account.plain.is_none()) {
            self.count_keys(account.jid.domain(), &account.encoded());
        }
        let new = self.derive(&mut missing).await;
        for account in &new {
            self.count_keys(account.jid.domain(), &account.credentials);
        }
        let outcomes = stores.accounts.create_bulk(new).await?;
        let mut created = Vec::with_capacity(missing.len());
        for (account, outcome) in missing.into_iter().zip(outcomes) {
            match outcome {
                CreateOutcome::New(_) => created.push(account),
                CreateOutcome::Exists(_) => {
                    self.skip(account.jid.as_str(), "the account was created by somebody else meanwhile");
                }
            }
        }
        self.counts.accounts += created.len() as u64;
        let gets = created.iter().map(|account| stores.accounts.get(account.jid.as_ref()));
        let records = run_all(gets, CONCURRENT_CALLS).await?;
        self.created.add(stores, records.into_iter().flatten()).await?;
        let disabled = created.iter().filter(|account| account.disabled);
        let disable = disabled.map(|account| stores.accounts.set_disabled(account.jid.as_ref(), true));
        run_all(disable, CONCURRENT_CALLS).await?;
        Ok(())
    }

    /// Those accounts of an interrupted import that it has created but not listed; the others are reported.
    async fn own_accounts(
        &mut self,
        unlisted: Vec<(PendingAccount, AccountRecord)>,
    ) -> Result<Vec<PendingAccount>, ImportError> {
        let stores = self.stores;
        let reads = unlisted.iter().map(|(account, _)| stores.logins.secrets(account.jid.as_ref()));
        let found = run_all(reads, CONCURRENT_CALLS).await?;
        let (mut own, mut records) = (Vec::new(), Vec::new());
        for ((account, record), secrets) in unlisted.into_iter().zip(found) {
            if secrets.is_some_and(|secrets| account.has_credentials(&secrets.credentials)) {
                own.push(account);
                records.push(record);
            } else {
                self.skip(account.jid.as_str(), "the account was created by somebody else meanwhile");
            }
        }
        if !self.options.dry_run {
            self.created.add(stores, records).await?;
        }
        Ok(own)
    }

    /// Without the accounts that an interrupted import had created and that were removed since, which are reported.
    async fn without_removed(
        &mut self,
        missing: Vec<PendingAccount>,
    ) -> Result<Vec<PendingAccount>, ImportError> {
        if !self.resumed {
            return Ok(missing);
        }
        let stores = self.stores;
        let ids = missing.iter().map(|account| stores.addresses.find(&account.jid));
        let ids = run_all(ids, CONCURRENT_CALLS).await?;
        let mut kept = Vec::with_capacity(missing.len());
        for (account, id) in missing.into_iter().zip(ids) {
            if id.is_some_and(|id| self.created.contains_address(id)) {
                self.skip(account.jid.as_str(), "the account was removed after this import had created it");
            } else {
                kept.push(account);
            }
        }
        Ok(kept)
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
            let credentials = match account.plain.take().and_then(|_| derived.next()) {
                Some(Ok(keys)) => Arc::from(keys),
                Some(Err(reason)) => {
                    self.skip(account.jid.as_str(), format!("the password cannot be used: {reason}"));
                    account.encoded()
                }
                None => {
                    if account.external.is_none() && account.keys == Credentials::default() {
                        let reason = "the account has no password; set one with: throng account passwd";
                        self.skip(account.jid.as_str(), reason);
                    }
                    account.encoded()
                }
            };
            created.push(NewAccount { jid: account.jid.clone(), credentials });
        }
        created
    }
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
