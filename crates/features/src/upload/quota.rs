//! Slots that are not used yet, and the bytes that files and slots occupy.
//!
//! A slot occupies its size from the request on, so that no quota is exceeded by files that arrive together. It is kept
//! until its deadline, also when its file has arrived: that limits the slots that a user requests in a time.
//!
//! # Pitfalls
//!
//! A file and its slot are counted once: files whose slot is still known are left out of the folder's sum.

use std::collections::{HashMap, HashSet};

use base::lock::LeafMutex;

use super::UploadOptions;
use super::signed_url::{FileClass, FileId, FileOwner, SlotTerms, StoredName};

/// Slots of a domain that are kept at the same time.
const MAX_SLOTS: usize = 100_000;

/// The slots and the used bytes of a domain.
#[derive(Default)]
pub(super) struct UploadQuota(LeafMutex<QuotaState>);

#[derive(Default)]
struct QuotaState {
    slots: HashMap<FileOwner, Vec<Slot>>,
    count: usize,
    /// Bytes of slots whose file has not arrived.
    reserved: u64,
    /// Bytes of all files when they were last counted.
    counted: u64,
    /// Bytes of files that have arrived since the start.
    arrived: u64,
    /// `arrived` when the last count began.
    arrived_before_count: u64,
}

#[derive(Clone, Copy)]
struct Slot {
    id: FileId,
    class: FileClass,
    terms: SlotTerms,
    state: SlotState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotState {
    Unused,
    /// Its file is being received.
    Receiving,
    Used,
}

/// A file of a user as the quota sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedFile {
    pub(super) stored: StoredName,
    pub(super) size: u64,
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaRefusal {
    /// The user has requested too many slots; there is another at this time.
    TooManySlots { retry: u64 },
    /// The files of the user are too large together; enough of them expire at this time, if at any.
    UserFull { retry: Option<u64> },
    /// The files of the domain are too large together.
    DomainFull,
}

/// Why a file is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotRefusal {
    /// The slot is not known: it was revoked, or issued by an earlier process.
    Unknown,
    /// It has been used, or is in use.
    Used,
}

impl UploadQuota {
    /// Reserves a slot for a file of a user. `files` are those of the user.
    pub(super) fn reserve(
        &self,
        options: &UploadOptions,
        (owner, id, class): (FileOwner, FileId, FileClass),
        terms: SlotTerms,
        files: &[CountedFile],
        now: u64,
    ) -> Result<(), QuotaRefusal> {
        let mut state = self.0.lock();
        state.prune_owner(owner, now);
        let slots = state.slots.get(&owner).map_or(&[][..], Vec::as_slice);
        if slots.len() >= options.slots_per_user.max(1) {
            let retry = slots.iter().map(|slot| slot.terms.deadline).min().unwrap_or(now);
            return Err(QuotaRefusal::TooManySlots { retry });
        }
        if state.count >= MAX_SLOTS {
            return Err(QuotaRefusal::DomainFull);
        }
        let limit = match class {
            FileClass::Message => options.bytes_per_user,
            FileClass::Profile => options.profile_bytes_per_user,
        };
        let of_slots: u64 = slots.iter().filter(|slot| slot.class == class).map(|slot| slot.terms.size).sum();
        let known: HashSet<FileId> = slots.iter().map(|slot| slot.id).collect();
        let mut files: Vec<&CountedFile> = files
            .iter()
            .filter(|file| file.stored.class == class && !file.stored.is_expired(now))
            .filter(|file| !known.contains(&file.stored.id))
            .collect();
        let mut used = files.iter().map(|file| file.size).fold(of_slots, u64::saturating_add);
        if used.saturating_add(terms.size) > limit {
            files.retain(|file| file.stored.keep_until != 0);
            files.sort_by_key(|file| file.stored.keep_until);
            for file in files {
                used = used.saturating_sub(file.size);
                if used.saturating_add(terms.size) <= limit {
                    return Err(QuotaRefusal::UserFull { retry: Some(file.stored.keep_until) });
                }
            }
            return Err(QuotaRefusal::UserFull { retry: None });
        }
        if state.file_bytes().saturating_add(state.reserved).saturating_add(terms.size) > options.bytes {
            return Err(QuotaRefusal::DomainFull);
        }
        state.slots.entry(owner).or_default().push(Slot { id, class, terms, state: SlotState::Unused });
        state.count += 1;
        state.reserved = state.reserved.saturating_add(terms.size);
        Ok(())
    }

    /// Takes an unused slot, so that no other request can.
    pub(super) fn begin(&self, owner: FileOwner, id: FileId) -> Result<(), SlotRefusal> {
        let mut state = self.0.lock();
        let slot = state.slot(owner, id).ok_or(SlotRefusal::Unknown)?;
        if slot.state != SlotState::Unused {
            return Err(SlotRefusal::Used);
        }
        slot.state = SlotState::Receiving;
        Ok(())
    }

    /// Ends the reception of a file. False if the slot was revoked meanwhile.
    pub(super) fn end(&self, owner: FileOwner, id: FileId, received: bool) -> bool {
        let mut state = self.0.lock();
        let Some(slot) = state.slot(owner, id) else { return false };
        slot.state = if received { SlotState::Used } else { SlotState::Unused };
        let size = slot.terms.size;
        if received {
            state.arrived = state.arrived.saturating_add(size);
            state.reserved = state.reserved.saturating_sub(size);
        }
        true
    }

    /// Revokes the slots of a user.
    pub(super) fn revoke(&self, owner: FileOwner) {
        let mut state = self.0.lock();
        if let Some(slots) = state.slots.remove(&owner) {
            state.count -= slots.len();
            state.reserved = state.reserved.saturating_sub(open_bytes(&slots));
        }
    }

    /// Begins to count the files of the domain: forgets slots whose deadline has passed.
    pub(super) fn begin_count(&self, now: u64) -> u64 {
        let mut state = self.0.lock();
        let owners: Vec<FileOwner> = state.slots.keys().copied().collect();
        for owner in owners {
            state.prune_owner(owner, now);
        }
        state.arrived
    }

    /// Sets the counted bytes. `before` is the result of [`UploadQuota::begin_count`].
    pub(super) fn set_counted(&self, bytes: u64, before: u64) {
        let mut state = self.0.lock();
        (state.counted, state.arrived_before_count) = (bytes, before);
    }
}

impl QuotaState {
    fn slot(&mut self, owner: FileOwner, id: FileId) -> Option<&mut Slot> {
        self.slots.get_mut(&owner)?.iter_mut().find(|slot| slot.id == id)
    }

    /// Bytes of files; those that arrived during the last count may be counted twice.
    fn file_bytes(&self) -> u64 {
        self.counted.saturating_add(self.arrived - self.arrived_before_count)
    }

    /// Forgets slots of a user whose deadline has passed, except those in use.
    fn prune_owner(&mut self, owner: FileOwner, now: u64) {
        let Some(slots) = self.slots.get_mut(&owner) else { return };
        let (before, open) = (slots.len(), open_bytes(slots));
        slots.retain(|slot| slot.terms.deadline > now || slot.state == SlotState::Receiving);
        self.count -= before - slots.len();
        self.reserved = self.reserved.saturating_sub(open - open_bytes(slots));
        if slots.is_empty() {
            self.slots.remove(&owner);
        }
    }
}

/// Bytes of slots whose file has not arrived.
fn open_bytes(slots: &[Slot]) -> u64 {
    let open = slots.iter().filter(|slot| slot.state != SlotState::Used);
    open.map(|slot| slot.terms.size).fold(0, u64::saturating_add)
}
