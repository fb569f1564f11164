//! Rosters, in memory.

use jid::{Jid, JidRef};

use super::{MemoryStore, no_account, ready};
use crate::roster::{MAX_ROSTER_BYTES, is_visible_change, roster_too_large};
use crate::{
    AddressId, BulkRoster, Roster, RosterEntry, RosterItem, RosterSize, RosterSnapshot, RosterUpdate,
    RosterUpdateFn, RosterUpdateOutcome, StoreError, StoreFuture, Subscription,
};

/// All entries, unless the roster is too large to be read.
pub(super) fn whole(entry: &super::AccountEntry) -> Result<Vec<RosterItem>, StoreError> {
    if entry.roster.values().map(RosterItem::weight).sum::<u64>() > MAX_ROSTER_BYTES {
        return Err(roster_too_large());
    }
    Ok(entry.roster.values().cloned().collect())
}

impl Roster for MemoryStore {
    fn get(&self, owner: AddressId) -> StoreFuture<'_, RosterSnapshot> {
        let state = self.state.lock();
        let entry = state.accounts.get(&owner).ok_or_else(no_account);
        ready(entry.and_then(|entry| Ok(RosterSnapshot { version: entry.version, items: whole(entry)? })))
    }

    fn entry(&self, owner: AddressId, contact: &Jid) -> StoreFuture<'_, RosterEntry> {
        let state = self.state.lock();
        let number = state.find_id(contact.as_ref());
        ready(state.accounts.get(&owner).ok_or_else(no_account).map(|entry| RosterEntry {
            version: entry.version,
            item: number.and_then(|number| entry.roster.get(&number)).cloned(),
        }))
    }

    fn subscription(&self, owner: JidRef<'_>, contact: JidRef<'_>) -> StoreFuture<'_, Subscription> {
        let state = self.state.lock();
        let number = state.find_id(contact);
        let entry = state.account(owner).and_then(|(_, entry)| entry.roster.get(&number?));
        ready(Ok(entry.map_or(Subscription::NONE, |item| item.subscription)))
    }

    fn size(&self, owner: AddressId) -> StoreFuture<'_, RosterSize> {
        let state = self.state.lock();
        ready(state.accounts.get(&owner).ok_or_else(no_account).map(|entry| {
            let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
            let open = |item: &&RosterItem| item.subscription.contains(Subscription::PENDING_IN);
            RosterSize {
                contacts: count(entry.roster.len()),
                requests: count(entry.roster.values().filter(open).count()),
                bytes: entry.roster.values().map(RosterItem::bytes).sum(),
            }
        }))
    }

    fn update(
        &self,
        owner: AddressId,
        contact: &Jid,
        change: RosterUpdateFn,
    ) -> StoreFuture<'_, RosterUpdateOutcome> {
        let mut state = self.state.lock();
        if !state.accounts.contains_key(&owner) {
            return ready(Err(no_account()));
        }
        let known = state.find_id(contact.as_ref());
        let before = known.and_then(|id| state.accounts.get(&owner)?.roster.get(&id)).cloned();
        let change = match crate::roster::run_update(change, before.clone()) {
            Ok(change) => change,
            Err(error) => return ready(Err(error)),
        };
        let after = match change {
            RosterUpdate::Keep => before.clone(),
            RosterUpdate::Delete => None,
            // An address without any reference gets no id.
            RosterUpdate::Put(item) => {
                match item.normalised().map(|item| Ok((state.intern(contact.as_ref())?, item))) {
                    None => None,
                    Some(Err(error)) => return ready(Err(error)),
                    Some(Ok((contact_id, item))) => {
                        let jid = contact.as_ref().bare().to_jid();
                        Some(RosterItem { contact: contact_id, jid, ..item })
                    }
                }
            }
        };
        let Some(entry) = state.accounts.get_mut(&owner) else { return ready(Err(no_account())) };
        match &after {
            Some(item) => drop(entry.roster.insert(item.contact, item.clone())),
            None => drop(known.and_then(|id| entry.roster.remove(&id))),
        }
        if is_visible_change(before.as_ref(), after.as_ref()) {
            entry.version += 1;
        }
        ready(Ok(RosterUpdateOutcome { before, after, version: entry.version }))
    }

    fn put_bulk(&self, rosters: Vec<BulkRoster>) -> StoreFuture<'_, u64> {
        let mut state = self.state.lock();
        let mut stored = 0;
        for BulkRoster { owner, items } in rosters {
            let items: Vec<RosterItem> = items
                .into_iter()
                .filter(|item| item.subscription != Subscription::NONE)
                .filter_map(|item| {
                    let jid = state.address(item.contact)?.clone();
                    let (name, groups) = (item.name, item.groups);
                    let subscription = item.subscription;
                    Some(RosterItem { contact: item.contact, jid, name, groups, subscription, request: None })
                })
                .filter_map(RosterItem::normalised)
                .collect();
            let Some(entry) = state.accounts.get_mut(&owner) else { continue };
            if items.is_empty() {
                continue;
            }
            stored += items.len() as u64;
            entry.version += 1;
            entry.roster.extend(items.into_iter().map(|item| (item.contact, item)));
        }
        ready(Ok(stored))
    }
}
