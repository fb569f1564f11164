//! Writes a batch of the second pass, within the limits of the accounts.
//!
//! Limits hold for all data of an account, of which a batch may have a part, so the store is asked what there is already. A dry
//! run counts instead.
//!
//! # Pitfalls
//!
//! Writing a batch again must change nothing, so what is there already does not count twice.

use std::collections::{BTreeMap, HashMap};

use jid::Jid;
use store::{
    AccountKvLimits, AddressId, AppendOutcome, BlocklistOutcome, BulkItem, BulkRoster, OfflineMessage,
    PutOutcome, Quota, RosterItem, RosterSize, RosterUpdate, RosterUpdateFn, StoreErrorKind, Subscription,
    Unblock,
};

use super::data::AccountData;
use super::limits::{AccountLimits, RosterFill, RosterRefusals};
use super::{CONCURRENT_CALLS, ImportError, ImportRun, REMEMBERED_OWNERS};
use crate::concurrent_calls::run_all;
use crate::{ContactData, ContactRequest, OfflineData};

impl<'a> ImportRun<'a> {
    pub(super) async fn write_batch(&mut self, mut batch: Vec<AccountData<'a>>) -> Result<(), ImportError> {
        if self.options.dry_run {
            for account in batch {
                self.count(account);
            }
            return Ok(());
        }
        self.limit_rosters(&mut batch).await?;
        self.write_contacts(&mut batch).await?;
        self.write_private(&mut batch).await?;
        let stores = self.stores;
        let cards = batch.iter_mut().filter_map(|account| Some((account.jid.clone(), account.vcard.take()?)));
        let puts = cards.map(|(owner, (card, searchable, photo))| {
            stores.vcards.put(owner.as_ref(), Some(card), searchable, photo)
        });
        let puts = run_all(puts, CONCURRENT_CALLS).await?;
        self.orphans += puts.into_iter().filter(|put| !put).count() as u64;
        self.write_blocklists(&mut batch).await?;
        self.write_messages(&mut batch).await?;
        let mut seen = false;
        for account in &mut batch {
            if let Some(activity) = account.last_activity.take() {
                stores.last_seen.set(account.id, activity);
                seen = true;
            }
        }
        if seen {
            // The queue drops what exceeds its limit, and the checkpoint states that everything before it is durable.
            stores.last_seen.flush().await?;
        }
        Ok(())
    }

    /// Counts the data of an account in a dry run.
    fn count(&mut self, mut account: AccountData<'a>) {
        if self.counted.len() >= REMEMBERED_OWNERS {
            self.counted.clear();
        }
        let limits = &account.domain.limits;
        let mut usage = self.counted.get(&account.jid).copied().unwrap_or_default();
        let mut roster = RosterFill::new(limits, usage.roster, Vec::new());
        let refused = roster.fill(&mut account.contacts, &mut account.requests);
        usage.roster = roster.size();
        self.report_roster(&account.jid, limits, refused);
        let mut refused = 0;
        for (key, value) in &account.private {
            let after = (usage.private.0 + 1, usage.private.1 + key.len() + value.len());
            if store::account_kv::is_within_limits(usage.private, after, limits.private) {
                usage.private = after;
            } else {
                refused += 1;
            }
        }
        self.report_private(&account.jid, limits.private, refused);
        let fitting = fitting_addresses(limits, usage.blocked, &account.blocked);
        let bytes = account.blocked.iter().take(fitting).map(|jid| jid.as_str().len()).sum::<usize>();
        usage.blocked = (usage.blocked.0 + fitting, usage.blocked.1 + bytes);
        self.report_blocked(&account.jid, limits, account.blocked.len() - fitting);
        let mut refused = 0;
        for message in &account.offline {
            let size = message.stanza.len() as u64;
            if limits.offline.has_room(usage.offline, size) {
                usage.offline.add(size);
            } else {
                refused += 1;
            }
        }
        self.report_offline(&account.jid, limits.offline, refused);
        self.counted.insert(account.jid, usage);
    }

    fn report_roster(&mut self, owner: &Jid, limits: &AccountLimits, refused: RosterRefusals) {
        let AccountLimits { roster_items, roster_bytes, requests, .. } = limits;
        self.counts.contacts = self.counts.contacts.saturating_sub(refused.contacts);
        self.counts.requests = self.counts.requests.saturating_sub(refused.requests);
        if refused.contacts > 0 {
            let count = refused.contacts;
            let reason = format!(
                "{count} contacts: a roster has at most {roster_items} contacts and {roster_bytes} bytes"
            );
            self.skip(owner.as_str(), reason);
        }
        if refused.requests > 0 {
            let count = refused.requests;
            let reason = format!(
                "{count} subscription requests: an account has at most {requests}, and its roster at most \
                 {roster_items} contacts and {roster_bytes} bytes"
            );
            self.skip(owner.as_str(), reason);
        }
    }

    fn report_private(&mut self, owner: &Jid, limits: AccountKvLimits, refused: u64) {
        if refused > 0 {
            self.counts.private = self.counts.private.saturating_sub(refused);
            let AccountKvLimits { entries, bytes } = limits;
            let reason = format!(
                "{refused} private values: an account has at most {entries} with {bytes} bytes in total"
            );
            self.skip(owner.as_str(), reason);
        }
    }

    fn report_blocked(&mut self, owner: &Jid, limits: &AccountLimits, refused: usize) {
        if refused > 0 {
            self.counts.blocked = self.counts.blocked.saturating_sub(refused as u64);
            let AccountLimits { blocked, blocked_bytes, .. } = limits;
            let reason = format!(
                "{refused} blocked addresses: a blocklist has at most {blocked} addresses and {blocked_bytes} bytes"
            );
            self.skip(owner.as_str(), reason);
        }
    }

    fn report_offline(&mut self, owner: &Jid, quota: Quota, refused: u64) {
        if refused > 0 {
            self.counts.offline = self.counts.offline.saturating_sub(refused);
            let Quota { messages, bytes, .. } = quota;
            let reason = format!(
                "{refused} offline messages: an account has at most {messages} with {bytes} bytes in total"
            );
            self.skip(owner.as_str(), reason);
        }
    }

    /// Removes contacts and requests that do not fit.
    async fn limit_rosters(&mut self, batch: &mut [AccountData<'a>]) -> Result<(), ImportError> {
        let stores = self.stores;
        let mut with_roster: Vec<&mut AccountData<'a>> = batch
            .iter_mut()
            .filter(|account| !account.contacts.is_empty() || !account.requests.is_empty())
            .collect();
        let sizes = with_roster.iter().map(|account| {
            let size = stores.roster.size(account.id);
            Box::pin(async move {
                match size.await {
                    Err(error) if error.kind == StoreErrorKind::NotFound => Ok(RosterSize::default()),
                    size => size,
                }
            })
        });
        let sizes = run_all(sizes, CONCURRENT_CALLS).await?;
        for (account, size) in with_roster.iter_mut().zip(sizes) {
            let limits = &account.domain.limits;
            if RosterFill::has_room(limits, size, &account.contacts, &account.requests) {
                continue;
            }
            let items = stores.roster.get(account.id).await?.items;
            let mut roster = RosterFill::new(limits, RosterSize::default(), items);
            let refused = roster.fill(&mut account.contacts, &mut account.requests);
            self.report_roster(&account.jid, limits, refused);
        }
        Ok(())
    }

    async fn write_contacts(&mut self, batch: &mut [AccountData<'a>]) -> Result<(), ImportError> {
        let contacts: Vec<(AddressId, Vec<ContactData>)> = batch
            .iter_mut()
            .filter(|account| !account.contacts.is_empty())
            .map(|account| (account.id, std::mem::take(&mut account.contacts)))
            .collect();
        if !contacts.is_empty() {
            let addresses = contacts.iter().flat_map(|(_, contacts)| contacts);
            let addresses: Vec<Jid> = addresses.map(|contact| contact.jid.clone()).collect();
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
        }
        let stores = self.stores;
        let requests = batch.iter_mut().flat_map(|account| {
            let owner = account.id;
            std::mem::take(&mut account.requests).into_iter().map(move |request| (owner, request))
        });
        let updates = requests.map(|(owner, request)| {
            let (from, change) = request_update(request);
            stores.roster.update(owner, &from, change)
        });
        run_all(updates, CONCURRENT_CALLS).await?;
        Ok(())
    }

    async fn write_private(&mut self, batch: &mut [AccountData<'a>]) -> Result<(), ImportError> {
        let stores = self.stores;
        let with_values = || batch.iter().filter(|account| !account.private.is_empty());
        let puts = with_values().map(|account| {
            let limits = account.domain.limits.private;
            stores.account_kv.put(account.jid.as_ref(), account.private.clone(), limits)
        });
        let puts = run_all(puts, CONCURRENT_CALLS).await?;
        let mut refusals = Vec::new();
        for (account, put) in with_values().zip(puts) {
            match put {
                PutOutcome::Done => {}
                PutOutcome::NoAccount => self.orphans += account.private.len() as u64,
                PutOutcome::Full => {
                    // Those that fit, in their order.
                    let limits = account.domain.limits.private;
                    let mut refused = 0;
                    for value in &account.private {
                        let put = stores.account_kv.put(account.jid.as_ref(), vec![value.clone()], limits);
                        refused += u64::from(put.await? == PutOutcome::Full);
                    }
                    refusals.push((account.jid.clone(), limits, refused));
                }
            }
        }
        for (owner, limits, refused) in refusals {
            self.report_private(&owner, limits, refused);
        }
        Ok(())
    }

    async fn write_blocklists(&mut self, batch: &mut [AccountData<'a>]) -> Result<(), ImportError> {
        let stores = self.stores;
        let lists: Vec<(Jid, &AccountLimits, Vec<Jid>)> = batch
            .iter_mut()
            .filter(|account| !account.blocked.is_empty())
            .map(|account| {
                (account.jid.clone(), &account.domain.limits, std::mem::take(&mut account.blocked))
            })
            .collect();
        let reads = lists.iter().map(|(owner, ..)| stores.blocklists.blocklist(owner.as_ref()));
        let known = run_all(reads, CONCURRENT_CALLS).await?;
        let mut updates = Vec::with_capacity(lists.len());
        for ((owner, limits, mut addresses), known) in lists.into_iter().zip(known) {
            let taken: std::collections::HashSet<&Jid> = known.iter().collect();
            addresses.retain(|jid| !taken.contains(jid));
            let usage = (known.len(), known.iter().map(|jid| jid.as_str().len()).sum());
            let fitting = fitting_addresses(limits, usage, &addresses);
            self.report_blocked(&owner, limits, addresses.len() - fitting);
            addresses.truncate(fitting);
            updates.push((owner, addresses));
        }
        let nothing = || Unblock::These(Vec::new());
        let calls = updates.into_iter().map(|(owner, addresses)| {
            stores.blocklists.update_blocklist(owner.as_ref(), addresses, nothing(), u32::MAX)
        });
        for outcome in run_all(calls, CONCURRENT_CALLS).await? {
            match outcome {
                BlocklistOutcome::Changed(_) => {}
                BlocklistOutcome::Full | BlocklistOutcome::NoAccount => self.orphans += 1,
            }
        }
        Ok(())
    }

    async fn write_messages(&mut self, batch: &mut [AccountData<'a>]) -> Result<(), ImportError> {
        let owners: BTreeMap<AddressId, (Jid, Quota)> = batch
            .iter()
            .filter(|account| !account.offline.is_empty())
            .map(|account| (account.id, (account.jid.clone(), account.domain.limits.offline)))
            .collect();
        if owners.is_empty() {
            return Ok(());
        }
        let stores = self.stores;
        let counts = owners.keys().map(|owner| stores.offline.count(*owner));
        let counts: BTreeMap<AddressId, u32> =
            owners.keys().copied().zip(run_all(counts, CONCURRENT_CALLS).await?).collect();
        let mut messages: Vec<(AddressId, OfflineData)> = Vec::new();
        for account in batch {
            messages.extend(std::mem::take(&mut account.offline).into_iter().map(|data| (account.id, data)));
        }
        match &self.checkpoint.messages {
            // The interrupted part of the import may have stored the first messages of each owner in this batch.
            Some(before) => drop_stored_messages(&mut messages, before, &counts),
            None => {
                self.checkpoint.messages = Some(counts);
                self.checkpoint.write(self.stores).await?;
            }
        }
        // Domains may have different limits, and there are few domains.
        let mut by_quota: Vec<(Quota, Vec<OfflineMessage>)> = Vec::new();
        for (owner, message) in messages {
            let Some((_, quota)) = owners.get(&owner) else { continue };
            let message = OfflineMessage {
                owner,
                sender: 0,
                stored_at: message.stored_at.unwrap_or(self.options.now),
                expires: message.expires,
                stanza: message.stanza,
            };
            match by_quota.iter_mut().find(|(known, _)| known == quota) {
                Some((_, part)) => part.push(message),
                None => by_quota.push((*quota, vec![message])),
            }
        }
        let mut refused: BTreeMap<AddressId, u64> = BTreeMap::new();
        for (quota, part) in by_quota {
            let of: Vec<AddressId> = part.iter().map(|message| message.owner).collect();
            for (owner, outcome) in of.into_iter().zip(self.stores.offline.append(part, quota).await?) {
                match outcome {
                    AppendOutcome::Stored { .. } => {}
                    AppendOutcome::Full | AppendOutcome::SenderFull => {
                        *refused.entry(owner).or_default() += 1;
                    }
                    AppendOutcome::NoAccount => self.orphans += 1,
                }
            }
        }
        for (owner, count) in refused {
            if let Some((jid, quota)) = owners.get(&owner) {
                self.report_offline(jid, *quota, count);
            }
        }
        Ok(())
    }
}

/// How many of these addresses fit on a blocklist with this many addresses and bytes.
fn fitting_addresses(limits: &AccountLimits, (count, bytes): (usize, usize), addresses: &[Jid]) -> usize {
    let most = limits.blocked_bytes.min(store::blocklists::MAX_BLOCKLIST_BYTES);
    let room = usize::try_from(limits.blocked).unwrap_or(usize::MAX).saturating_sub(count);
    // The store separates addresses by one byte.
    let mut bytes = bytes + count;
    let fits = |jid: &&Jid| {
        bytes += jid.as_str().len() + 1;
        bytes <= most
    };
    addresses.iter().take(room).take_while(fits).count()
}

/// The sender of a request, and the change that adds it to the entry of the contact.
fn request_update(request: ContactRequest) -> (Jid, RosterUpdateFn) {
    let ContactRequest { from, stanza } = request;
    let contact = from.clone();
    let change = Box::new(move |before: Option<RosterItem>| {
        let mut item = before.unwrap_or_else(|| RosterItem::new(contact));
        // RFC 6121, appendix A.2.1: no state has both.
        if item.subscription.contains(Subscription::FROM) {
            return RosterUpdate::Keep;
        }
        item.subscription = item.subscription | Subscription::PENDING_IN;
        item.request = stanza;
        RosterUpdate::Put(item)
    });
    (from, change)
}

/// Drops the first messages of each owner, as many as were stored since the counts `before`.
fn drop_stored_messages(
    messages: &mut Vec<(AddressId, OfflineData)>,
    before: &BTreeMap<AddressId, u32>,
    now: &BTreeMap<AddressId, u32>,
) {
    let stored =
        |owner: &AddressId, count: &u32| count.saturating_sub(before.get(owner).copied().unwrap_or(*count));
    let mut stored: HashMap<AddressId, u32> =
        now.iter().map(|(owner, count)| (*owner, stored(owner, count))).collect();
    messages.retain(|(owner, _)| match stored.get_mut(owner) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    });
}
