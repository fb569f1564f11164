//! Offline messages, in memory.

use std::collections::BTreeMap;

use super::{MemoryStore, ready};
use crate::{
    AddressId, AppendOutcome, Offline, OfflineMessage, Page, Paged, Quota, QuotaUsage, StoreFuture,
    StoredMessage,
};

fn expired(waiting: &StoredMessage, now: u64) -> bool {
    waiting.expires.is_some_and(|expires| expires <= now)
}

fn quota_usage(all: &BTreeMap<u64, (u64, StoredMessage)>, of: impl Fn(u64) -> bool) -> QuotaUsage {
    let mut held = QuotaUsage::default();
    for (_, waiting) in all.values().filter(|(sender, _)| of(*sender)) {
        held.add(waiting.stanza.len() as u64);
    }
    held
}

fn saturating_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Offline for MemoryStore {
    fn append(&self, messages: Vec<OfflineMessage>, quota: Quota) -> StoreFuture<'_, Vec<AppendOutcome>> {
        let mut state = self.state.lock();
        let answers = messages.into_iter().map(|message| {
            let OfflineMessage { owner, sender, stored_at, expires, stanza } = message;
            let Some(entry) = state.accounts.get_mut(&owner) else { return AppendOutcome::NoAccount };
            let size = stanza.len() as u64;
            if !quota.has_room(quota_usage(&entry.offline, |_| true), size) {
                entry.offline.retain(|_, (_, waiting)| !expired(waiting, stored_at));
            }
            let all = quota_usage(&entry.offline, |_| true);
            if !quota.has_room(all, size) {
                return AppendOutcome::Full;
            }
            if quota.needs_sender_usage(sender, all, size)
                && !quota.sender_has_room(quota_usage(&entry.offline, |of| of == sender), size)
            {
                return AppendOutcome::SenderFull;
            }
            entry.last_seq += 1;
            let seq = entry.last_seq;
            entry.offline.insert(seq, (sender, StoredMessage { seq, stored_at, expires, stanza }));
            AppendOutcome::Stored { seq }
        });
        let answers = answers.collect();
        ready(Ok(answers))
    }

    fn fetch(&self, owner: AddressId, page: Page, now: u64) -> StoreFuture<'_, Paged<StoredMessage>> {
        let state = self.state.lock();
        let items = state.accounts.get(&owner).map_or_else(Vec::new, |entry| {
            let behind = entry.offline.range(page.after.saturating_add(1)..);
            let live = behind.map(|(_, (_, waiting))| waiting).filter(|waiting| !expired(waiting, now));
            live.take(page.limit as usize + 1).cloned().collect()
        });
        ready(Ok(Paged::from_rows(items, page, |waiting| waiting.seq)))
    }

    fn remove_range(&self, owner: AddressId, first: u64, last: u64) -> StoreFuture<'_, u32> {
        let mut state = self.state.lock();
        ready(Ok(state.accounts.get_mut(&owner).map_or(0, |entry| {
            let before = entry.offline.len();
            entry.offline.retain(|number, _| *number < first || *number > last);
            saturating_u32(before - entry.offline.len())
        })))
    }

    fn count(&self, owner: AddressId) -> StoreFuture<'_, u32> {
        ready(Ok(self
            .state
            .lock()
            .accounts
            .get(&owner)
            .map_or(0, |entry| saturating_u32(entry.offline.len()))))
    }

    fn expire(&self, now: u64, limit: u32) -> StoreFuture<'_, u32> {
        let mut state = self.state.lock();
        let mut left = limit;
        for entry in state.accounts.values_mut() {
            entry.offline.retain(|_, (_, waiting)| {
                let gone = left > 0 && expired(waiting, now);
                left -= u32::from(gone);
                !gone
            });
        }
        ready(Ok(limit - left))
    }
}
