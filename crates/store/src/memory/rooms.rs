//! Persistent rooms, in memory.

use std::collections::BTreeMap;
use std::ops::Bound;

use jid::{Jid, JidRef};

use super::{MemoryState, MemoryStore, ready};
use crate::rooms::{
    AffiliationPosition, AffiliationQuery, FormerAccount, LOADED_AFFILIATIONS, ListedRoom, MAX_COUNT,
    NO_AFFILIATION, RoomAffiliation, RoomHistoryEntry, RoomRecord, RoomUpdate, StoredRoom, WriteFence,
};
use crate::{AddressId, Rooms, StoreError, StoreErrorKind, StoreFuture};

/// A room with its affiliations by address, and its history by id.
pub(super) struct RoomEntry {
    jid: Jid,
    record: RoomRecord,
    affiliations: BTreeMap<AddressId, RoomAffiliation>,
    history: BTreeMap<Box<str>, Vec<u8>>,
}

/// The rooms by the numbers of their addresses.
pub(super) type RoomEntries = BTreeMap<AddressId, RoomEntry>;

/// Fails if the condition of a write is not true.
fn check_fence(state: &MemoryState, fence: Option<&WriteFence>) -> Result<(), StoreError> {
    let holds =
        |fence: &WriteFence| state.server_kv.get(&*fence.key).is_some_and(|value| **value == *fence.value);
    match fence {
        Some(fence) if !holds(fence) => {
            Err(StoreError::new(StoreErrorKind::Fenced, "another node owns the room"))
        }
        _ => Ok(()),
    }
}

impl MemoryState {
    /// An account is removed.
    pub(super) fn forget_in_rooms(&mut self, account: AddressId, jid: JidRef<'_>) {
        self.removals += 1;
        let (times, number) = self.former_accounts.entry(account).or_default();
        *times += 1;
        *number = self.removals;
        for entry in self.rooms.values_mut() {
            if entry.affiliations.get(&account).is_some_and(|one| one.affiliation > NO_AFFILIATION) {
                entry.affiliations.remove(&account);
            }
            if entry.record.creator.as_ref() == jid.bare() {
                entry.record.creator = entry.jid.clone();
            }
        }
    }

    fn update_room(&mut self, room: JidRef<'_>, update: RoomUpdate) -> Result<(), StoreError> {
        let id = self.intern(room)?;
        if update.replaces {
            self.rooms.remove(&id);
        }
        if let Some(record) = update.record {
            let jid = room.bare().to_jid();
            match self.rooms.get_mut(&id) {
                Some(entry) => entry.record = record,
                None => {
                    let (affiliations, history) = Default::default();
                    self.rooms.insert(id, RoomEntry { jid, record, affiliations, history });
                }
            }
        }
        if !self.rooms.contains_key(&id) {
            return Ok(());
        }
        for one in update.affiliations {
            let user = self.intern(one.user.as_ref())?;
            let Some(entry) = self.rooms.get_mut(&id) else { continue };
            match one.affiliation {
                NO_AFFILIATION => entry.affiliations.remove(&user),
                _ => entry.affiliations.insert(user, one),
            };
        }
        Ok(())
    }
}

impl MemoryStore {
    /// Rooms of a service after one of them.
    fn page(
        &self,
        service: &str,
        after: Option<Jid>,
        limit: u32,
        choose: impl Fn(&RoomRecord) -> bool,
    ) -> Vec<ListedRoom> {
        let state = self.state.lock();
        let after = match after {
            None => None,
            Some(jid) => match state.find_id(jid.as_ref()).filter(|id| state.rooms.contains_key(id)) {
                Some(id) => Some(id),
                None => return Vec::new(),
            },
        };
        let listed = state.rooms.iter().filter(|(id, entry)| {
            choose(&entry.record) && entry.jid.domain() == service && after.is_none_or(|after| **id > after)
        });
        let room = |(_, entry): (&AddressId, &RoomEntry)| ListedRoom {
            jid: entry.jid.clone(),
            title: entry.record.title.clone(),
        };
        listed.take(limit as usize).map(room).collect()
    }
}

impl Rooms for MemoryStore {
    fn load(&self, room: JidRef<'_>, messages: u32) -> StoreFuture<'_, Option<StoredRoom>> {
        let state = self.state.lock();
        let entry = state.find_id(room).and_then(|id| state.rooms.get(&id));
        ready(Ok(entry.map(|entry| StoredRoom {
            removals: state.removals,
            record: entry.record.clone(),
            affiliations: entry.affiliations.values().take(LOADED_AFFILIATIONS as usize).cloned().collect(),
            history: entry
                .history
                .iter()
                .skip(entry.history.len().saturating_sub(messages as usize))
                .map(|(id, message)| RoomHistoryEntry { id: id.clone(), message: message.clone() })
                .collect(),
        })))
    }

    fn update(&self, room: JidRef<'_>, update: RoomUpdate, fence: Option<WriteFence>) -> StoreFuture<'_, ()> {
        let mut state = self.state.lock();
        if let Err(error) = check_fence(&state, fence.as_ref()) {
            return ready(Err(error));
        }
        ready(state.update_room(room, update))
    }

    fn affiliations(
        &self,
        room: JidRef<'_>,
        page: AffiliationQuery,
    ) -> StoreFuture<'_, Vec<RoomAffiliation>> {
        let state = self.state.lock();
        let Some(entry) = state.find_id(room).and_then(|id| state.rooms.get(&id)) else {
            return ready(Ok(Vec::new()));
        };
        let (first, end) = (Bound::Unbounded, Bound::Unbounded);
        let user = |jid: &Jid| state.find_id(jid.as_ref());
        let (range, skip, is_reverse) = match &page.position {
            AffiliationPosition::First => ((first, end), 0, false),
            AffiliationPosition::Last => ((first, end), 0, true),
            AffiliationPosition::Index(index) => ((first, end), *index as usize, false),
            AffiliationPosition::After(jid) => match user(jid) {
                Some(id) => ((Bound::Excluded(id), end), 0, false),
                None => return ready(Ok(Vec::new())),
            },
            AffiliationPosition::Before(jid) => match user(jid) {
                Some(id) => ((first, Bound::Excluded(id)), 0, true),
                None => return ready(Ok(Vec::new())),
            },
        };
        let of_kind = |one: &&RoomAffiliation| page.affiliation.is_none_or(|kind| one.affiliation == kind);
        let chosen = entry.affiliations.range(range).map(|(_, one)| one).filter(of_kind);
        let limit = page.limit as usize;
        ready(Ok(match is_reverse {
            false => chosen.skip(skip).take(limit).cloned().collect(),
            true => {
                let mut last: Vec<_> = chosen.rev().take(limit).cloned().collect();
                last.reverse();
                last
            }
        }))
    }

    fn append(
        &self,
        room: JidRef<'_>,
        messages: Vec<RoomHistoryEntry>,
        keep: u32,
        fence: Option<WriteFence>,
    ) -> StoreFuture<'_, ()> {
        let mut state = self.state.lock();
        if let Err(error) = check_fence(&state, fence.as_ref()) {
            return ready(Err(error));
        }
        let id = state.find_id(room);
        if let Some(entry) = id.and_then(|id| state.rooms.get_mut(&id)) {
            entry.history.extend(messages.into_iter().map(|one| (one.id, one.message)));
            while entry.history.len() > keep as usize {
                entry.history.pop_first();
            }
        }
        ready(Ok(()))
    }

    fn remove(&self, room: JidRef<'_>, fence: Option<WriteFence>) -> StoreFuture<'_, bool> {
        let mut state = self.state.lock();
        if let Err(error) = check_fence(&state, fence.as_ref()) {
            return ready(Err(error));
        }
        let id = state.find_id(room);
        ready(Ok(id.is_some_and(|id| state.rooms.remove(&id).is_some())))
    }

    fn list(&self, service: &str, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedRoom>> {
        ready(Ok(self.page(service, after, limit, |record| record.is_public)))
    }

    fn list_all(&self, service: &str, after: Option<Jid>, limit: u32) -> StoreFuture<'_, Vec<ListedRoom>> {
        ready(Ok(self.page(service, after, limit, |_| true)))
    }

    fn count(&self, service: &str) -> StoreFuture<'_, u64> {
        let state = self.state.lock();
        let of_service = |entry: &&RoomEntry| entry.record.is_public && entry.jid.domain() == service;
        ready(Ok((state.rooms.values().filter(of_service).count() as u64).min(MAX_COUNT)))
    }

    fn former_accounts(&self, after: u64, limit: u32) -> StoreFuture<'_, Vec<FormerAccount>> {
        let state = self.state.lock();
        let later = state.former_accounts.iter().filter(|(_, (_, number))| *number > after);
        let former = |(id, (times, number)): (&AddressId, &(u32, u64))| {
            Some(FormerAccount { user: state.address(*id)?.clone(), times: *times, number: *number })
        };
        let mut found: Vec<FormerAccount> = later.filter_map(former).collect();
        found.sort_by_key(|one| one.number);
        found.truncate(limit as usize);
        ready(Ok(found))
    }

    fn count_created(&self, creator: JidRef<'_>, most: u32) -> StoreFuture<'_, u64> {
        let state = self.state.lock();
        let of_creator = |entry: &&RoomEntry| entry.record.creator.as_ref() == creator.bare();
        ready(Ok((state.rooms.values().filter(of_creator).count() as u64).min(most.into())))
    }
}
