//! A room in the store: it is loaded on demand, written when an input has changed it, and its messages are stored in the background.

use std::sync::Arc;

use jid::JidRef;
use queues::answer_channel::answer_channel;
use store::rooms::{AffiliationPosition, AffiliationQuery, LOADED_AFFILIATIONS};
use store::{RoomAffiliation, RoomUpdate, StoreError, StoreErrorKind, StoredRoom};
use throng_core::Node;
use throng_core::receipt::ReceiptIssuer;
use throng_core::server_error::store_error;

use crate::removed_accounts::PAGE;
use crate::room::{Affiliations, LoadedRoom, Room, RoomState};
use crate::room_dispatch::enters;
use crate::room_input::{RoomInput, RoomMessage};
use crate::room_task::RoomTask;

/// Time in which a write that failed is tried again without an input, in milliseconds.
const MAX_FAILING_MILLIS: u64 = 600_000;

/// Write that precedes an answer.
pub(crate) enum RoomWrite {
    Put(Box<RoomUpdate>),
    Remove,
}

impl RoomTask {
    /// Reads the room from the store.
    pub(crate) async fn load(&mut self, node: &Node, input: &RoomInput) -> Result<(), StoreError> {
        let options = self.shared.options();
        let rooms = &node.stores.rooms;
        let messages = u32::try_from(options.limits.history_messages).unwrap_or(u32::MAX);
        let stored = match rooms.load(self.jid.as_ref(), messages).await? {
            Some(stored) => Some(load_affiliations(node, self.jid.as_ref(), stored).await?),
            None => None,
        };
        let is_stored = stored.is_some();
        let stored = match self.shared.copies.take(&self.jid) {
            Some(copy) => {
                let needs_store = copy.needs_store();
                let (of_copy, stored) = if needs_store { (stored, None) } else { (None, stored) };
                let room = copy.room(self.jid.clone(), options.clone(), of_copy);
                if room.is_none() && needs_store && is_stored {
                    return Err(corrupt());
                }
                // Its home node was killed after it had stored a new room, and before it sent that.
                let is_older = stored.is_some()
                    && !copy.is_handed_over()
                    && room.as_ref().is_some_and(Room::is_persistent);
                if room.is_some() {
                    self.restored = Some(Box::new(copy));
                }
                if room.is_some() && !is_older {
                    self.room = room;
                    self.is_stored = is_stored;
                    self.is_committed = needs_store;
                    return Ok(());
                }
                stored
            }
            None => stored,
        };
        match stored {
            Some(stored) => {
                self.room = Some(Room::restore(self.jid.clone(), options, stored).ok_or_else(corrupt)?);
                // After that: a stored room without a room here is removed.
                (self.is_stored, self.is_committed) = (true, true);
            }
            None => {
                if let RoomInput::Stanza { stanza, from, .. } = input
                    && enters(stanza)
                {
                    let limit = u32::try_from(options.rooms_per_user).unwrap_or(u32::MAX);
                    self.sender_has_account = self.shared.has_account(node, from).await?;
                    self.created_by_sender = rooms.count_created(from.bare(), limit).await?;
                }
            }
        }
        Ok(())
    }

    /// Reads the room, without what accounts that are removed meanwhile have in it.
    pub(crate) async fn load_current(
        &mut self,
        node: &Arc<Node>,
        input: &RoomInput,
    ) -> Result<(), StoreError> {
        let removed = self.shared.removed_accounts(node).clone();
        removed.read(node).await?;
        self.load(node, input).await?;
        if let Some(room) = &self.room {
            // From here on it is notified of removals.
            self.shared.directory.put(room, usize::MAX);
            self.misses_removals = removed.number() > room.removals();
        }
        Ok(())
    }

    /// Reads the removals of accounts that the room does not contain. Nobody uses it before.
    pub(crate) async fn read_missed_removals(&mut self, node: &Node) -> Result<(), StoreError> {
        let Some(room) = self.room.as_ref().filter(|_| self.misses_removals) else { return Ok(()) };
        let (mut after, mut missed) = (room.removals(), Vec::new());
        loop {
            let page = node.stores.rooms.former_accounts(after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            after = page.last().map_or(after, |last| last.number);
            // The last one for its number.
            missed
                .extend(page.into_iter().filter(|one| one.number == after || room.has_of_account(&one.user)));
            if is_last {
                break;
            }
        }
        self.missed_removals = missed;
        self.misses_removals = false;
        Ok(())
    }

    /// Forgets a room that ended, and updates the list of rooms. Returns the write that precedes the answer.
    pub(crate) fn after_input(&mut self, node: &Node) -> Option<RoomWrite> {
        let ends = self.room.as_mut().is_some_and(|room| room.end_if_empty() == RoomState::Ended);
        if ends {
            self.room = None;
            self.unsaved = Vec::new();
        }
        let Some(room) = &mut self.room else {
            self.shared.directory.remove(&self.jid);
            self.is_committed = false;
            return std::mem::take(&mut self.is_stored).then_some(RoomWrite::Remove);
        };
        let memory = match node.is_admin(room.creator().as_ref()) {
            true => usize::MAX,
            false => self.shared.options().memory_per_user,
        };
        room.set_over_quota(self.shared.directory.put(room, memory));
        let unsaved = room.take_unsaved();
        if !room.is_persistent() {
            // It is stored again, with its lists and history, when it becomes persistent.
            self.is_committed = false;
            room.mark_changed();
            room.forget_unsaved_affiliations();
            return std::mem::take(&mut self.is_stored).then_some(RoomWrite::Remove);
        }
        self.is_stored = true;
        // The store has nothing of it, or an older state that was not removed.
        let is_complete = !self.is_committed;
        if is_complete {
            self.unsaved = room.history_entries();
        } else {
            self.unsaved.extend(unsaved);
            // The store would remove messages that the history does not have any more.
            if self.shared.options().limits.stored_history_messages == 0 {
                let excess = self.unsaved.len().saturating_sub(room.history_length());
                self.unsaved.drain(..excess);
            }
        }
        let affiliations = room.take_unsaved_affiliations(is_complete);
        let record = (room.take_changed() || is_complete).then(|| room.record());
        let has_change = record.is_some() || !affiliations.is_empty();
        let update = RoomUpdate { replaces: is_complete, record, affiliations };
        has_change.then(|| RoomWrite::Put(Box::new(update)))
    }

    /// Whether a write has failed which the room needs.
    fn owes_write(&self) -> bool {
        match &self.room {
            None => self.is_stored,
            Some(room) if room.is_persistent() => !self.is_committed || room.has_changes(),
            Some(_) => self.is_stored,
        }
    }

    /// Stores messages in the background, one batch after the other, so that their number decides its size.
    pub(crate) fn store_history(&mut self, node: &Arc<Node>) {
        let Some(room) = self.room.as_ref().filter(|_| self.storing.is_none() && !self.unsaved.is_empty())
        else {
            return;
        };
        let (done, storing) = answer_channel();
        self.storing = Some(storing);
        let unsettled = std::mem::take(&mut self.unsettled);
        let fence = self.fence();
        let messages = std::mem::take(&mut self.unsaved);
        let keep = room.stored_history(messages.len());
        let (jid, node, tasks) = (self.jid.clone(), node.clone(), self.shared.tasks.get().cloned());
        let spawner = node.spawner.clone();
        spawner.spawn(
            "room history",
            Box::pin(async move {
                let result = node.stores.rooms.append(jid.as_ref(), messages, keep, fence).await;
                settle_all(unsettled, &result);
                done.send(());
                let Some(tasks) = tasks.and_then(|tasks| tasks.upgrade()) else { return };
                let spawner = node.spawner.clone();
                let message = RoomMessage { node, input: RoomInput::HistoryStored(result) };
                tasks.send(spawner, jid, message, 64).await;
            }),
        );
    }

    pub(crate) async fn write(&mut self, node: &Node, write: RoomWrite) -> Result<(), StoreError> {
        let rooms = &node.stores.rooms;
        let is_put = matches!(write, RoomWrite::Put(_));
        let (written, users) = match write {
            RoomWrite::Put(update) => {
                let users = update.affiliations.iter().map(|one| one.user.clone()).collect();
                (rooms.update(self.jid.as_ref(), *update, self.fence()).await, users)
            }
            RoomWrite::Remove => (rooms.remove(self.jid.as_ref(), self.fence()).await.map(drop), Vec::new()),
        };
        match (&written, &mut self.room) {
            (Ok(()), room) => {
                if let Some(room) = room.as_mut().filter(|_| is_put) {
                    room.affiliations_are_stored();
                    if !std::mem::replace(&mut self.is_committed, true) {
                        room.note_other_copy();
                    }
                }
                self.forget_failures();
            }
            (Err(error), room) => {
                tracing::error!(room = %self.jid, %error, "a room was not stored");
                self.is_stored = true;
                if let Some(room) = room {
                    room.mark_changed();
                    room.affiliations_are_not_stored(users);
                }
                let now = node.clock.unix_millis();
                let since = *self.failing_since.get_or_insert(now);
                match now < since.saturating_add(MAX_FAILING_MILLIS) {
                    true => self.shared.unwritten.add(&self.jid),
                    false => self.shared.unwritten.remove(&self.jid),
                }
            }
        }
        written
    }

    /// Whether a write that failed is tried again later: the room is kept until then.
    pub(crate) fn awaits_write(&self) -> bool {
        self.failing_since.is_some() && self.owes_write() && self.shared.unwritten.contains(&self.jid)
    }

    /// Nothing is tried again any more.
    pub(crate) fn forget_failures(&mut self) {
        if self.failing_since.take().is_some() {
            self.shared.unwritten.remove(&self.jid);
        }
    }
}

/// Reads the other affiliations of a stored room.
async fn load_affiliations(
    node: &Node,
    room: JidRef<'_>,
    stored: StoredRoom,
) -> Result<LoadedRoom, StoreError> {
    let StoredRoom { record, affiliations, history, removals } = stored;
    let affiliations = read_affiliations(node, room, affiliations).await?;
    Ok(LoadedRoom { record, affiliations, history, removals })
}

/// Reads the affiliations after a first page, page by page: a large room has most of them in the store only.
async fn read_affiliations(
    node: &Node,
    room: JidRef<'_>,
    mut page: Vec<RoomAffiliation>,
) -> Result<Affiliations, StoreError> {
    let mut affiliations = Affiliations::default();
    loop {
        let is_last = page.len() < LOADED_AFFILIATIONS as usize;
        let last = page.last().map(|last| last.user.clone());
        affiliations.add_stored(page).ok_or_else(corrupt)?;
        affiliations.mark_stored();
        let Some(last) = last.filter(|_| !is_last) else { return Ok(affiliations) };
        let position = AffiliationPosition::After(last);
        let next = AffiliationQuery { affiliation: None, position, limit: LOADED_AFFILIATIONS };
        page = node.stores.rooms.affiliations(room, next).await?;
    }
}

fn corrupt() -> StoreError {
    StoreError::new(StoreErrorKind::Corrupt, "a stored room cannot be read")
}

/// Ends the wait of the senders of messages that were stored, or not.
pub(crate) fn settle_all(receipts: Vec<ReceiptIssuer>, result: &Result<(), StoreError>) {
    for receipt in receipts {
        // The occupants have the message. Its sender learns that newcomers will not see it.
        receipt.settle(match result {
            Ok(()) => Ok(()),
            Err(error) => Err(store_error(StoreError::new(error.kind, error.message()))),
        });
    }
}
