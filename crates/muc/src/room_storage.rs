//! A room in the store: it is loaded on demand, written when an input has changed it, and its messages are stored in the background.

use std::sync::Arc;

use queues::answer_channel::answer_channel;
use store::{RoomRecord, StoreError, StoreErrorKind};
use throng_core::Node;
use throng_core::receipt::ReceiptIssuer;
use throng_core::server_error::store_error;

use crate::room::{Room, RoomState};
use crate::room_dispatch::enters;
use crate::room_input::{RoomInput, RoomMessage};
use crate::room_task::RoomTask;

/// Write that precedes an answer.
pub(crate) enum RoomWrite {
    Put(Box<RoomRecord>),
    Remove,
}

impl RoomTask {
    /// Reads the room from the store.
    pub(crate) async fn load(&mut self, node: &Node, input: &RoomInput) -> Result<(), StoreError> {
        let options = self.shared.options();
        let rooms = &node.stores.rooms;
        let messages = u32::try_from(options.limits.history_messages).unwrap_or(u32::MAX);
        let stored = rooms.load(self.jid.as_ref(), messages).await?;
        let is_stored = stored.is_some();
        let stored = match self.shared.copies.take(&self.jid) {
            Some(copy) => {
                self.room = copy.room(self.jid.clone(), options.clone(), stored.clone());
                if self.room.is_some() {
                    self.is_stored = is_stored;
                    self.restored = Some(Box::new(copy));
                    return Ok(());
                }
                stored
            }
            None => stored,
        };
        match stored {
            Some(stored) => {
                let corrupt = || StoreError::new(StoreErrorKind::Corrupt, "a stored room cannot be read");
                self.room = Some(Room::restore(self.jid.clone(), options, stored).ok_or_else(corrupt)?);
                // After that: a stored room without a room here is removed.
                self.is_stored = true;
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

    /// Forgets a room that ended, and updates the list of rooms. Returns the write that precedes the answer.
    pub(crate) fn after_input(&mut self) -> Option<RoomWrite> {
        let ends = self.room.as_ref().is_some_and(|room| {
            room.state() == RoomState::Destroyed || room.occupant_count() == 0 && !room.is_persistent()
        });
        if ends {
            self.room = None;
            self.unsaved = Vec::new();
        }
        let Some(room) = &mut self.room else {
            self.shared.directory.remove(&self.jid);
            return std::mem::take(&mut self.is_stored).then_some(RoomWrite::Remove);
        };
        self.shared.directory.put(room);
        let unsaved = room.take_unsaved();
        if !room.is_persistent() {
            // It is stored again, with its history, when it becomes persistent.
            room.mark_changed();
            return std::mem::take(&mut self.is_stored).then_some(RoomWrite::Remove);
        }
        let is_new = !std::mem::replace(&mut self.is_stored, true);
        if is_new {
            self.unsaved = room.history_entries();
        } else {
            self.unsaved.extend(unsaved);
            // The store would remove messages that the history does not have any more.
            if self.shared.options().limits.stored_history_messages == 0 {
                let excess = self.unsaved.len().saturating_sub(room.history_length());
                self.unsaved.drain(..excess);
            }
        }
        (room.take_changed() || is_new).then(|| RoomWrite::Put(Box::new(room.record())))
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
        let written = match write {
            RoomWrite::Put(record) => rooms.put(self.jid.as_ref(), *record, self.fence()).await,
            RoomWrite::Remove => rooms.remove(self.jid.as_ref(), self.fence()).await.map(drop),
        };
        if let Err(error) = &written {
            tracing::error!(room = %self.jid, %error, "a room was not stored");
            // It is tried again with the next input.
            self.is_stored = true;
            if let Some(room) = &mut self.room {
                room.mark_changed();
            }
        }
        written
    }
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
