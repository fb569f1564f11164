//! Slots that are not used yet, and the bytes that files and slots occupy.
//!
//! A slot occupies its size from the request on, so that no quota is exceeded by files that arrive together. It is kept
//! until its deadline, even after its file has arrived, which limits the rate of a user's requests.
//!
//! A file counts as the blocks that it occupies on a disk, and a user has a limited number of files. Otherwise many files of
//! one byte would fill the disk, its inodes, or the list of a folder, while the quota is nearly unused.
//!
//! # Pitfalls
//!
//! A file and its slot are counted once: files whose slot is still known are left out of the folder's sum.

use std::collections::{HashMap, HashSet};

use base::lock::LeafMutex;

use super::signed_url::{FileClass, FileId, FileOwner, SlotTerms, StoredName};
use super::{REMOVE_EXPIRED, UploadOptions};

/// Slots of a domain that are kept at the same time.
const MAX_SLOTS: usize = 100_000;
/// Files and unused slots of a user. Their folder is listed for each request.
pub(super) const MAX_FILES_PER_USER: usize = 10_000;
/// Bytes of a block of usual file systems.
const BLOCK_BYTES: u64 = 4096;

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
    /// Time of the last removal of expired slots of all users.
    pruned: u64,
}

/// Bytes that a file of this size occupies.
pub(super) fn occupied_bytes(size: u64) -> u64 {
    size.max(1).checked_next_multiple_of(BLOCK_BYTES).unwrap_or(u64::MAX)
}

#[derive(Clone, Copy)]
struct Slot {
    id: FileId,
    class: FileClass,
    terms: SlotTerms,
    state: SlotState,
}

impl Slot {
    fn occupied_bytes(&self) -> u64 {
        occupied_bytes(self.terms.size)
    }
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
    /// Bytes that it occupies.
    pub(super) occupied: u64,
}

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuotaRefusal {
    /// The user has requested too many slots; there is another at this time.
    TooManySlots { retry: u64 },
    /// The files of the user are too many or too large together; enough of them expire at this time, if at any.
    UserFull { retry: Option<u64> },
    /// The files of the domain are too large together; there may be space at this time.
    DomainFull { retry: u64 },
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
    /// Whether a user may request a slot, as far as that does not depend on the user's files. Checked before these are
    /// listed, so that a refusal costs nothing.
    pub(super) fn check_slots(
        &self,
        options: &UploadOptions,
        owner: FileOwner,
        now: u64,
    ) -> Result<(), QuotaRefusal> {
        self.0.lock().check_slots(options, owner, now)
    }

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
        state.check_slots(options, owner, now)?;
        let slots = state.slots.get(&owner).map_or(&[][..], Vec::as_slice);
        let limit = match class {
            FileClass::Message => options.bytes_per_user,
            FileClass::Profile => options.profile_bytes_per_user,
        };
        let of_class = slots.iter().filter(|slot| slot.class == class);
        let of_slots = of_class.map(Slot::occupied_bytes).fold(0, u64::saturating_add);
        let known: HashSet<FileId> = slots.iter().map(|slot| slot.id).collect();
        let mut files: Vec<&CountedFile> = files
            .iter()
            .filter(|file| !file.stored.is_expired(now) && !known.contains(&file.stored.id))
            .collect();
        if files.len() + slots.len() >= MAX_FILES_PER_USER {
            let expiries = files.iter().map(|file| file.stored.keep_until).filter(|until| *until != 0);
            return Err(QuotaRefusal::UserFull { retry: expiries.min() });
        }
        files.retain(|file| file.stored.class == class);
        let size = occupied_bytes(terms.size);
        let mut used = files.iter().map(|file| file.occupied).fold(of_slots, u64::saturating_add);
        if used.saturating_add(size) > limit {
            files.retain(|file| file.stored.keep_until != 0);
            files.sort_by_key(|file| file.stored.keep_until);
            for file in files {
                used = used.saturating_sub(file.occupied);
                if used.saturating_add(size) <= limit {
                    return Err(QuotaRefusal::UserFull { retry: Some(file.stored.keep_until) });
                }
            }
            return Err(QuotaRefusal::UserFull { retry: None });
        }
        let needed = state.file_bytes().saturating_add(size);
        if needed.saturating_add(state.reserved) > options.bytes {
            state.prune_all(now);
            if needed.saturating_add(state.reserved) > options.bytes {
                let retry = if needed > options.bytes { next_count(now) } else { state.first_deadline(now) };
                return Err(QuotaRefusal::DomainFull { retry });
            }
        }
        state.slots.entry(owner).or_default().push(Slot { id, class, terms, state: SlotState::Unused });
        state.count += 1;
        state.reserved = state.reserved.saturating_add(size);
        Ok(())
    }

    /// Returns a slot that was not issued.
    pub(super) fn cancel(&self, owner: FileOwner, id: FileId) {
        let mut state = self.0.lock();
        let Some(slots) = state.slots.get_mut(&owner) else { return };
        let Some(position) = slots.iter().position(|slot| slot.id == id) else { return };
        let slot = slots.swap_remove(position);
        let is_last = slots.is_empty();
        state.count -= 1;
        state.reserved = state.reserved.saturating_sub(slot.occupied_bytes());
        if is_last {
            state.slots.remove(&owner);
        }
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
        let size = slot.occupied_bytes();
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
        state.prune_all(now);
        state.arrived
    }

    /// Sets the counted bytes. `before` is the result of [`UploadQuota::begin_count`].
    pub(super) fn set_counted(&self, bytes: u64, before: u64) {
        let mut state = self.0.lock();
        (state.counted, state.arrived_before_count) = (bytes, before);
    }
}

impl QuotaState {
    fn check_slots(
        &mut self,
        options: &UploadOptions,
        owner: FileOwner,
        now: u64,
    ) -> Result<(), QuotaRefusal> {
        self.prune_owner(owner, now);
        let slots = self.slots.get(&owner).map_or(&[][..], Vec::as_slice);
        if slots.len() >= options.slots_per_user.max(1) {
            let retry = slots.iter().map(|slot| slot.terms.deadline).min().unwrap_or(now);
            return Err(QuotaRefusal::TooManySlots { retry });
        }
        if self.count >= MAX_SLOTS {
            self.prune_all(now);
        }
        if self.count >= MAX_SLOTS {
            return Err(QuotaRefusal::DomainFull { retry: self.first_deadline(now) });
        }
        Ok(())
    }

    /// Forgets slots of all users whose deadline has passed; at most once a second, because there may be many.
    fn prune_all(&mut self, now: u64) {
        if std::mem::replace(&mut self.pruned, now) == now {
            return;
        }
        let owners: Vec<FileOwner> = self.slots.keys().copied().collect();
        for owner in owners {
            self.prune_owner(owner, now);
        }
    }

    /// When the first slot expires.
    fn first_deadline(&self, now: u64) -> u64 {
        let slots = self.slots.values().flatten();
        let deadlines = slots.map(|slot| slot.terms.deadline).filter(|deadline| *deadline > now);
        deadlines.min().unwrap_or_else(|| next_count(now))
    }

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

/// When expired files are removed at the latest.
fn next_count(now: u64) -> u64 {
    now.saturating_add(REMOVE_EXPIRED.interval_seconds.into())
}

/// Bytes of slots whose file has not arrived.
fn open_bytes(slots: &[Slot]) -> u64 {
    let open = slots.iter().filter(|slot| slot.state != SlotState::Used);
    open.map(Slot::occupied_bytes).fold(0, u64::saturating_add)
}
