//! The task of one room: it owns the room, handles its inputs in order, and performs their effects before the next one.
//!
//! A room that does not exist has a task only while a stanza for it is handled.

use std::sync::Arc;

use base::spawn::BoxFuture;
use cluster::NodeId;
use jid::{Jid, JidRef};
use peers::slices::{SliceAccess, SliceLease};
use queues::answer_channel::AnswerReceiver;
use queues::serial_task::SerialState;
use stanza::StanzaKind;
use store::{FormerAccount, RoomHistoryEntry, StoreError};
use throng_core::receipt::ReceiptIssuer;
use throng_core::server_error::store_error;
use throng_core::{Effects, Node};

use crate::room::{Room, RoomCopy, RoomCtx, UndeliveredReport};
use crate::room_input::{RoomInput, RoomMessage, RoomReply, send_reply};
use crate::room_shared::RoomShared;
use crate::room_storage::RoomWrite;

/// The state of a room's task.
pub(crate) struct RoomTask {
    pub(crate) jid: Jid,
    pub(crate) shared: Arc<RoomShared>,
    pub(crate) room: Option<Room>,
    /// Whether the store may have something of it, which must be removed when the room ends.
    pub(crate) is_stored: bool,
    /// Whether the store has all of it but for the changes that the room remembers.
    pub(crate) is_committed: bool,
    /// When the first write failed since the last one that succeeded, in milliseconds since 1970.
    pub(crate) failing_since: Option<u64>,
    /// Persistent rooms that the user who enters has created.
    pub(crate) created_by_sender: u64,
    /// Whether that user has an account.
    pub(crate) sender_has_account: bool,
    /// Messages are being stored; the end is reported here.
    pub(crate) storing: Option<AnswerReceiver<()>>,
    pub(crate) unsaved: Vec<RoomHistoryEntry>,
    /// Receipts of messages among them.
    pub(crate) unsettled: Vec<ReceiptIssuer>,
    /// The slice of its address.
    pub(crate) slice: Option<u8>,
    /// The lease under which the room was loaded; none on a single node.
    pub(crate) lease: Option<SliceLease>,
    /// The node that has a copy of the room.
    pub(crate) copied_to: Option<NodeId>,
    /// Accounts may have been removed since the room was written or copied, and these removals were not read yet.
    pub(crate) misses_removals: bool,
    /// Those that were read, until the room handles its next input.
    pub(crate) missed_removals: Vec<FormerAccount>,
    /// The copy from which the room was restored, until its occupants are taken over.
    pub(crate) restored: Option<Box<RoomCopy>>,
    batch: RoomBatch,
}

/// Effects of stanzas that are not performed yet, because more inputs may wait: each occupant gets the stanzas of a batch together.
#[derive(Default)]
struct RoomBatch {
    node: Option<Arc<Node>>,
    effects: Effects,
    replies: Vec<RoomReply>,
    has_messages: bool,
}

/// Effects of a batch; a newcomer causes one for each occupant.
const MAX_BATCH_EFFECTS: usize = 256;
/// Longest pause after messages to many occupants. It is as long as sending them took, so that those which answer them are sent
/// together, with one write to each occupant: otherwise a busy room would write each alone, and take the time of its clients, too.
const MAX_PAUSE_MILLIS: u64 = 10;

impl RoomTask {
    pub(crate) fn new(jid: &Jid, shared: Arc<RoomShared>) -> RoomTask {
        RoomTask {
            jid: jid.clone(),
            shared,
            room: None,
            is_stored: false,
            is_committed: false,
            failing_since: None,
            created_by_sender: 0,
            sender_has_account: false,
            storing: None,
            unsaved: Vec::new(),
            unsettled: Vec::new(),
            slice: None,
            lease: None,
            copied_to: None,
            misses_removals: false,
            missed_removals: Vec::new(),
            restored: None,
            batch: RoomBatch::default(),
        }
    }

    /// Sends sessions that did not receive a stanza to the task again.
    pub(crate) fn undelivered_report(&self) -> UndeliveredReport {
        let (tasks, room) = (self.shared.tasks.get().cloned().unwrap_or_default(), self.jid.clone());
        Arc::new(move |node: &Arc<Node>, sessions: Vec<Jid>| {
            let Some(tasks) = tasks.upgrade() else { return };
            let size = sessions.iter().map(|one| one.as_str().len() + 32).sum();
            let message = RoomMessage { node: node.clone(), input: RoomInput::SessionsLost(sessions) };
            // The room's task may be the caller, so it must not wait; a full mailbox means that a later stanza reports them.
            let _ = tasks.try_send(&node.spawner, &room, message, size);
        })
    }
}

impl RoomTask {
    /// Handles an input of a room that was loaded, or could not be.
    pub(crate) fn handle_loaded(
        &mut self,
        node: Arc<Node>,
        input: RoomInput,
        loaded: Result<(), StoreError>,
    ) -> Option<BoxFuture<'_, ()>> {
        if let Some(room) = &mut self.room {
            room.set_options(self.shared.options());
        }
        let shared = self.shared.clone();
        let sender = match &input {
            RoomInput::Stanza { from, .. } | RoomInput::Request { from, .. } => Some(from.clone()),
            _ => None,
        };
        let undelivered = self.undelivered_report();
        let new_id = || String::from_utf8_lossy(&node.next_stanza_id().to_text()).into_owned();
        let is_admin = |user: JidRef<'_>| node.is_admin(user);
        let mut ctx = RoomCtx {
            now: node.clock.unix_millis(),
            new_id: &new_id,
            occupant_key: shared.occupant_key(&node),
            is_service_admin: sender.is_some_and(|sender| node.is_admin(sender.bare())),
            is_admin: &is_admin,
            removed_accounts: shared.removed_accounts(&node),
            invitations: &shared.invitations,
            undelivered: &undelivered,
            delivered: None,
            effects: Effects::default(),
        };
        if let Err(error) = loaded {
            tracing::error!(room = %self.jid, %error, "a room could not be read");
            self.refuse(&mut ctx, input, store_error(error));
            let effects = std::mem::take(&mut ctx.effects);
            return node.perform_in_order(effects);
        }
        self.take_over_occupants(&mut ctx, &node);
        if let Some(room) = &mut self.room {
            room.accounts_removed(&mut ctx, &std::mem::take(&mut self.missed_removals));
        }
        let may_wait = matches!(input, RoomInput::Stanza { .. });
        self.batch.has_messages |= matches!(&input, RoomInput::Stanza { stanza, .. } if matches!(stanza.kind(), StanzaKind::Message(_)));
        let mut reply = self.handle_input(&mut ctx, &node, input);
        if let Some(room) = &mut self.room {
            room.announce_next(&mut ctx);
        }
        let mut effects = std::mem::take(&mut ctx.effects);
        let has_message = self.room.as_ref().is_some_and(Room::has_unsaved);
        let write = self.after_input(&node);
        self.shared.announce_rooms(&node);
        reply = match reply {
            RoomReply::Handled(receipt) if has_message && !self.unsaved.is_empty() => {
                self.unsettled.push(receipt);
                RoomReply::None
            }
            reply => reply,
        };
        // Before the effects: what clients see is in the copy.
        self.send_copy(&node);
        self.batch.effects.0.append(&mut effects.0);
        if may_wait && write.is_none() && self.batch.effects.0.len() < MAX_BATCH_EFFECTS {
            self.batch.node = Some(node);
            self.batch.replies.push(reply);
            return None;
        }
        self.complete(node, write, reply)
    }

    /// Performs the effects of a batch, whose last input has this reply, and stores what they need.
    fn complete(
        &mut self,
        node: Arc<Node>,
        write: Option<RoomWrite>,
        reply: RoomReply,
    ) -> Option<BoxFuture<'_, ()>> {
        let RoomBatch { effects, replies, has_messages, .. } = std::mem::take(&mut self.batch);
        let started = node.clock.now();
        if let Some(room) = &mut self.room {
            room.end_batch();
        }
        let rest = node.perform_in_order(effects);
        let send_replies = move |written| {
            replies.into_iter().for_each(|reply| send_reply(reply, Ok(())));
            send_reply(reply, written);
        };
        if write.is_none() && rest.is_none() {
            self.store_history(&node);
            send_replies(Ok(()));
            return None;
        }
        let is_large = rest.is_some();
        Some(Box::pin(async move {
            if let Some(rest) = rest {
                rest.await;
            }
            let written = match write {
                Some(write) => {
                    let written = self.write(&node, write).await;
                    // The copy says from here on that the store has the room.
                    self.send_copy(&node);
                    written
                }
                None => Ok(()),
            };
            // After the room: messages of a room that is not stored are not stored either.
            self.store_history(&node);
            send_replies(written);
            if is_large && has_messages {
                let spent = node.clock.now().since(started);
                node.spawner.pause(spent.min(MAX_PAUSE_MILLIS)).await;
            }
        }))
    }
}

impl SerialState for RoomTask {
    type Message = RoomMessage;

    fn handle(&mut self, message: RoomMessage) -> Option<BoxFuture<'_, ()>> {
        let RoomMessage { node, input } = message;
        match self.access(&node) {
            SliceAccess::Own(lease) if self.is_ready(&lease, &input) => {
                self.handle_loaded(node, input, Ok(()))
            }
            access => Some(Box::pin(async move {
                if let Some(rest) = self.complete_batch() {
                    rest.await;
                }
                self.handle_later(node, input, access).await;
            })),
        }
    }

    fn complete_batch(&mut self) -> Option<BoxFuture<'_, ()>> {
        let node = self.batch.node.take()?;
        self.complete(node, None, RoomReply::None)
    }

    fn is_idle(&self) -> bool {
        let is_idle = self.storing.is_none()
            && self.unsaved.is_empty()
            && !self.awaits_write()
            && self.room.as_ref().is_none_or(|room| room.occupant_count() == 0);
        if is_idle {
            if let Some(room) = &self.room {
                self.shared.invitations.keep(&self.jid, room.pending_invitations().clone());
            }
            // A persistent room stays in the store only.
            self.shared.directory.remove(&self.jid);
        }
        is_idle
    }
}
