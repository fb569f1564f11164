//! Writes accounts as XEP-0227, also while a node runs: each account is read in a few queries of its own.
//!
//! Not implemented: a consistent view over all accounts. What changes during the export is exported as it was before or
//! after.
//!
//! # Pitfalls
//!
//! The file contains SCRAM keys: with them passwords can be guessed offline, and the server impersonated (RFC 5802,
//! section 9). The caller must create it readable only by its owner.

use std::io::Write;

use jid::Jid;
use sasl::Credentials;
use store::{AccountRecord, Page, RosterItem, StoreError, StoreErrorKind, Stores};
use xml::escape;

use crate::OfflineData;
use crate::concurrent_calls::run_all;
use crate::server_data::{ExportedUser, SERVER_DATA_NAMESPACE, write_user};

/// Accounts that are listed with one query.
const ACCOUNTS_PER_PAGE: u32 = 1_000;

/// Accounts that are read at the same time and are in memory.
const CONCURRENT_ACCOUNTS: usize = 16;

/// Offline messages that are read with one query.
const MESSAGES_PER_PAGE: u32 = 200;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportCounts {
    /// Accounts written.
    pub accounts: u64,
    /// Accounts to write.
    pub total: u64,
    /// Accounts among those written that have no keys, because a provider checks their passwords.
    pub without_keys: u64,
}

/// A domain to export.
#[derive(Clone, Debug)]
pub struct ExportDomain {
    /// Its name.
    pub name: String,
    /// Whether a provider checks the passwords of its accounts. Keys of a time before are in the store, unused; they are not
    /// exported, because another server would accept an old password.
    pub provided: bool,
}

/// Options of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The domains, in their order.
    pub domains: Vec<ExportDomain>,
    /// Beginning of the keys of private values.
    pub private_prefix: &'static str,
    /// Whether stored credentials state that a provider has the password.
    pub is_external: fn(&[u8]) -> bool,
    /// The time, in milliseconds since 1970.
    pub now: u64,
}

/// An export that has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file.
    #[error("cannot write the export: {0}")]
    Io(#[from] std::io::Error),
}

/// Writes the accounts of these domains, ordered by address, so that two exports of the same data are equal.
///
/// `progress` is called after some accounts.
///
/// # Errors
/// If the store or the file fails.
pub async fn export(
    stores: &Stores,
    options: &ExportOptions,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(&ExportCounts),
) -> Result<ExportCounts, ExportError> {
    let mut counts = ExportCounts::default();
    let mut text =
        format!("<?xml version='1.0' encoding='UTF-8'?>\n<server-data xmlns='{SERVER_DATA_NAMESPACE}'>\n")
            .into_bytes();
    for domain in &options.domains {
        let accounts = accounts_of(stores, &domain.name).await?;
        counts.total += accounts.len() as u64;
        text.extend_from_slice(b"<host jid='");
        escape::attr(&domain.name, &mut text);
        text.extend_from_slice(b"'>\n");
        let mut accounts = accounts.into_iter();
        loop {
            let part: Vec<AccountRecord> = accounts.by_ref().take(CONCURRENT_ACCOUNTS).collect();
            if part.is_empty() {
                break;
            }
            let reads = part
                .into_iter()
                .map(|account| Box::pin(read_user(stores, account, domain.provided, options)));
            for user in run_all(reads, CONCURRENT_ACCOUNTS).await?.into_iter().flatten() {
                write_user(&user, &mut text);
                counts.accounts += 1;
                counts.without_keys += u64::from(user.external);
            }
            out.write_all(&text)?;
            text.clear();
            progress(&counts);
        }
        text.extend_from_slice(b"</host>\n");
    }
    text.extend_from_slice(b"</server-data>\n");
    out.write_all(&text)?;
    out.flush()?;
    Ok(counts)
}

/// The accounts of a domain by address. A record is about a hundred bytes.
async fn accounts_of(stores: &Stores, domain: &str) -> Result<Vec<AccountRecord>, StoreError> {
    let mut accounts = Vec::new();
    let mut page = Page::first(ACCOUNTS_PER_PAGE);
    loop {
        let mut paged = stores.accounts.list(domain, page).await?;
        accounts.append(&mut paged.items);
        match paged.next {
            Some(after) => page = Page::after(after, ACCOUNTS_PER_PAGE),
            None => break,
        }
    }
    accounts.sort_by(|a, b| a.jid.cmp(&b.jid));
    Ok(accounts)
}

/// All data of an account; `None` if it was removed meanwhile.
async fn read_user(
    stores: &Stores,
    account: AccountRecord,
    provided: bool,
    options: &ExportOptions,
) -> Result<Option<ExportedUser>, StoreError> {
    let AccountRecord { id, jid, .. } = account;
    let Some(secrets) = stores.logins.secrets(jid.as_ref()).await? else { return Ok(None) };
    let external = provided || (options.is_external)(&secrets.credentials);
    let credentials = if external {
        Credentials::default()
    } else {
        Credentials::decode(&secrets.credentials).map_err(|error| {
            StoreError::new(StoreErrorKind::Corrupt, format!("the account {jid}: {error}"))
        })?
    };
    let mut roster: Vec<RosterItem> = match stores.roster.get(id).await {
        Ok(roster) => roster.items,
        Err(error) if error.kind == StoreErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    roster.sort_by(|a, b| a.jid.cmp(&b.jid));
    let entries = stores.account_kv.entries(jid.as_ref()).await?;
    let private = entries.into_iter().filter(|(key, _)| key.starts_with(options.private_prefix));
    let mut offline = Vec::new();
    let mut page = Page::first(MESSAGES_PER_PAGE);
    loop {
        let paged = stores.offline.fetch(id, page, options.now).await?;
        offline.extend(paged.items.into_iter().map(|message| OfflineData {
            stanza: message.stanza,
            stored_at: Some(message.stored_at),
            expires: message.expires,
        }));
        match paged.next {
            Some(after) => page = Page::after(after, MESSAGES_PER_PAGE),
            None => break,
        }
    }
    let blocklist: Vec<Jid> = stores.blocklists.blocklist(jid.as_ref()).await?;
    Ok(Some(ExportedUser {
        credentials,
        external,
        disabled: secrets.disabled,
        last_activity: stores.last_seen.get(jid.as_ref()).await?,
        roster,
        private: private.map(|(_, value)| value).collect(),
        vcard: stores.vcards.get(jid.as_ref()).await?,
        blocklist,
        offline,
        jid,
    }))
}
