//! Placement as the task of a room sees it: a room is loaded and changed under the lease of its slice, waits while its home node changes,
//! moves to the next home node with its occupants, and has a copy on another node.

use std::sync::Arc;

use cluster::NodeId;
use jid::{Jid, JidRef};
use peers::slices::{SliceAccess, SliceLease, forward_to_owner, slice_access, slice_of_item, wait_for_slice};
use queues::answer_channel::AnswerSender;
use stanza::{ErrorType, StanzaCondition, StanzaError};
use store::WriteFence;
use throng_core::{Effects, Node};

use crate::room::{Room, RoomCtx, empty_copy};
use crate::room_input::{MessageReceipts, RoomInput};
use crate::room_placement::{CopySender, is_here, may_exist};
use crate::room_storage::{RoomWrite, settle_all};
use crate::room_task::RoomTask;

/// The status of a session that is removed because of a technical problem (XEP-0045, section 11.1).
const TECHNICAL_PROBLEM: &[u16] = &[333];

impl RoomInput {
    /// Whether it is for a room that is not in memory, too.
    fn needs_room(&self) -> bool {
        match self {
            RoomInput::Stanza { .. }
            | RoomInput::Request { .. }
            | RoomInput::Create { .. }
            | RoomInput::Destroy { .. }
            | RoomInput::ListOccupants { .. }
            | RoomInput::ListAffiliations { .. }
            | RoomInput::SetAffiliation { .. }
            | RoomInput::Restore => true,
            RoomInput::SessionsLost(_)
            | RoomInput::HistoryStored(_)
            | RoomInput::AccountsRemoved(_)
            | RoomInput::AdminsChanged
            | RoomInput::WriteAgain
            | RoomInput::HomeChanged
            | RoomInput::HandOver { .. }
            | RoomInput::ShutDown { .. }
            | RoomInput::BackupChanged
            | RoomInput::MemberLeft => false,
        }
    }
}

/// The status of a session that is removed because the service is shut down (XEP-0045, section 11.2).
const SHUT_DOWN: &[u16] = &[332];

/// Error while no node has the room, or that node is not reached.
fn no_home_node() -> StanzaError {
    StanzaError::new(StanzaCondition::RemoteServerTimeout)
        .kind(ErrorType::Wait)
        .text("the room is not available for a moment")
}

impl RoomTask {
    /// Condition of writes.
    pub(crate) fn fence(&self) -> Option<WriteFence> {
        self.lease.as_ref().map(|lease| lease.fence.clone())
    }

    fn slice(&mut self, node: &Node) -> u8 {
        *self.slice.get_or_insert_with(|| slice_of_item(node, self.jid.as_ref()))
    }

    pub(crate) fn access(&mut self, node: &Arc<Node>) -> SliceAccess {
        match node.is_single() {
            true => SliceAccess::Own(None),
            false => slice_access(node, self.slice(node)),
        }
    }

    /// Whether an input can be handled at once.
    pub(crate) fn is_ready(&self, lease: &Option<SliceLease>, input: &RoomInput) -> bool {
        // Without a room the store is asked again: the sender of the last input may have been another one.
        let is_loaded = self.room.is_some() && !self.misses_removals || !input.needs_room();
        let moves = matches!(
            input,
            RoomInput::HandOver { .. } | RoomInput::ShutDown { .. } | RoomInput::BackupChanged
        );
        is_loaded && !moves && (self.lease == *lease || self.room.is_none() && !input.needs_room())
    }

    /// Handles an input that needs the store or the home node of the room.
    pub(crate) async fn handle_later(&mut self, node: Arc<Node>, input: RoomInput, access: SliceAccess) {
        let access = match access {
            SliceAccess::Pending if input.needs_room() => {
                let slice = self.slice(&node);
                wait_for_slice(&node, slice).await
            }
            access => access,
        };
        let lease = match access {
            SliceAccess::Own(lease) => lease,
            SliceAccess::Moving(lease, _) if self.room.is_some() => Some(lease),
            SliceAccess::Moving(_, to) | SliceAccess::Elsewhere(to) => {
                self.abandon(&node).await;
                return self.pass_on(&node, input, to).await;
            }
            // It is known again later; nothing of the room is lost meanwhile.
            SliceAccess::Pending if self.room.is_some() && !input.needs_room() => self.lease.clone(),
            SliceAccess::Pending => return self.reject(&node, input).await,
            SliceAccess::CutOff => {
                self.abandon(&node).await;
                return self.reject(&node, input).await;
            }
        };
        if self.lease != lease {
            // Another node may have been the home node meanwhile.
            self.abandon(&node).await;
            self.lease = lease;
        }
        let input = match input {
            RoomInput::HandOver { to, reply } => return self.hand_over(&node, to, reply).await,
            RoomInput::ShutDown { reply } => return self.shut_down(&node, reply).await,
            RoomInput::BackupChanged => {
                self.copied_to = None;
                RoomInput::BackupChanged
            }
            input => input,
        };
        let mut loaded = Ok(());
        // The room was destroyed, and its removal from the store has failed. Who destroys it again has the answer of the next attempt.
        let is_destroyed_again = self.is_stored && matches!(input, RoomInput::Destroy { .. });
        let needs_room = input.needs_room() && !is_destroyed_again;
        if self.room.is_none() && needs_room && std::mem::take(&mut self.is_stored) {
            loaded = self.write(&node, RoomWrite::Remove).await;
        }
        if self.room.is_none() && loaded.is_ok() && needs_room {
            loaded = self.load_current(&node, &input).await;
            if let Some(room) = &mut self.room {
                room.set_pending_invitations(
                    self.shared.invitations.take(&self.jid, node.clock.unix_millis()),
                );
            }
            // One that was not in memory when the slice began to move is for the next home node.
            if self.restored.is_none()
                && let SliceAccess::Moving(_, to) | SliceAccess::Elsewhere(to) = self.access(&node)
            {
                self.forget();
                return self.pass_on(&node, input, to).await;
            }
        }
        if loaded.is_ok() && input.needs_room() {
            loaded = self.read_missed_removals(&node).await;
        }
        if let Some(rest) = self.handle_loaded(node, input, loaded) {
            rest.await;
        }
    }

    /// Forgets the room without an effect.
    fn forget(&mut self) {
        self.room = None;
        (self.is_stored, self.is_committed) = (false, false);
        (self.misses_removals, self.missed_removals) = (false, Vec::new());
        self.forget_failures();
        self.copied_to = None;
        self.restored = None;
        self.unsaved = Vec::new();
        // Their senders learn that the messages are not stored.
        self.unsettled = Vec::new();
        self.shared.directory.remove(&self.jid);
    }

    /// Another node is the home node, and has the occupants that it reaches. Those on this node must enter again.
    async fn abandon(&mut self, node: &Arc<Node>) {
        let Some(mut room) = self.room.take() else { return self.forget() };
        self.forget();
        tracing::warn!(room = %self.jid, "a room was given up; its occupants on this node must enter again");
        let effects = self.with_ctx(node, |ctx| {
            room.dissolve(ctx, TECHNICAL_PROBLEM, &|session| is_here(node, session));
        });
        if let Some(rest) = node.perform_in_order(effects) {
            rest.await;
        }
    }

    /// Passes an input on to the home node. What cannot be passed on is refused.
    async fn pass_on(&mut self, node: &Arc<Node>, input: RoomInput, to: NodeId) {
        match input {
            RoomInput::Stanza { stanza, to: item, receipts, .. }
                if forward_to_owner(node, &stanza, item.as_ref(), to) =>
            {
                receipts.into_iter().for_each(MessageReceipts::fulfil);
            }
            input => self.reject(node, input).await,
        }
    }

    async fn reject(&mut self, node: &Arc<Node>, input: RoomInput) {
        let effects = self.with_ctx(node, |ctx| self.refuse(ctx, input, no_home_node()));
        if let Some(rest) = node.perform_in_order(effects) {
            rest.await;
        }
    }

    /// The next home node gets the room.
    async fn hand_over(&mut self, node: &Arc<Node>, to: NodeId, reply: AnswerSender<()>) {
        if let Some(mut room) = self.room.take() {
            self.flush_history(node, &room).await;
            let copy = room.full_copy(self.is_committed, true);
            let is_sent = match self.copy_sender(node) {
                Some(sender) if room.occupant_count() > 0 => {
                    sender.send_changes_surely(to, &self.jid, &copy).await
                }
                _ => true,
            };
            if !is_sent {
                tracing::warn!(room = %self.jid, node = %to, "a room was not handed over; its occupants must enter again");
                let effects = self.with_ctx(node, |ctx| room.dissolve(ctx, TECHNICAL_PROBLEM, &|_| true));
                if let Some(rest) = node.perform_in_order(effects) {
                    rest.await;
                }
            }
        }
        self.forget();
        self.shared.announce_rooms(node);
        reply.send(());
    }

    /// Section 11.2: the service is shut down. On several nodes, rooms that were handed over are not here any more.
    async fn shut_down(&mut self, node: &Arc<Node>, reply: AnswerSender<()>) {
        if let Some(mut room) = self.room.take() {
            self.flush_history(node, &room).await;
            let effects = self.with_ctx(node, |ctx| room.dissolve(ctx, SHUT_DOWN, &|_| true));
            if let Some(rest) = node.perform_in_order(effects) {
                rest.await;
            }
        }
        self.forget();
        reply.send(());
    }

    /// Waits until all messages are in the store.
    async fn flush_history(&mut self, node: &Node, room: &Room) {
        if let Some(storing) = self.storing.take() {
            storing.receive().await;
        }
        let messages = std::mem::take(&mut self.unsaved);
        if messages.is_empty() || !self.is_committed {
            return;
        }
        let keep = room.stored_history(messages.len());
        let stored = node.stores.rooms.append(self.jid.as_ref(), messages, keep, self.fence()).await;
        settle_all(std::mem::take(&mut self.unsettled), &stored);
        if let Err(error) = stored {
            tracing::error!(room = %self.jid, %error, "messages of a room were not stored");
        }
    }

    /// Takes over the occupants of a room that was restored from a copy.
    pub(crate) fn take_over_occupants(&mut self, ctx: &mut RoomCtx<'_>, node: &Arc<Node>) {
        let Some(copy) = self.restored.take() else { return };
        let Some(room) = &mut self.room else { return };
        room.take_over(ctx, &copy);
        if !copy.is_handed_over() {
            self.remove_gone_sessions(ctx, node);
        }
    }

    /// Removes sessions that are gone with their node.
    pub(crate) fn remove_gone_sessions(&mut self, ctx: &mut RoomCtx<'_>, node: &Arc<Node>) {
        let Some(room) = &mut self.room else { return };
        let sessions = room.sessions();
        let gone: Vec<Jid> = sessions
            .iter()
            .map(|session| session.to_jid())
            .filter(|session| !may_exist(node, session))
            .collect();
        room.sessions_lost(ctx, &gone);
    }

    fn copy_sender<'a>(&'a self, node: &'a Arc<Node>) -> Option<CopySender<'a>> {
        let (slice, lease) = (self.slice?, self.lease.as_ref()?);
        Some(CopySender { node, domain: self.shared.domain(), slice, number: lease.number })
    }

    /// Sends what has changed to the node that keeps the copy.
    pub(crate) fn send_copy(&mut self, node: &Arc<Node>) {
        let backup = self.slice.and_then(|slice| self.shared.copies.backup(slice));
        let is_used = self.room.as_ref().is_some_and(|room| room.occupant_count() > 0);
        let changes = match (&mut self.room, backup) {
            (Some(room), None) => {
                if self.copied_to.take().is_some() {
                    room.stop_copying();
                }
                return;
            }
            (Some(room), Some(_)) if is_used && self.copied_to == backup => {
                room.copy_changes(self.is_committed)
            }
            (Some(room), Some(_)) if is_used => room.full_copy(self.is_committed, false),
            _ if self.copied_to.is_some() => empty_copy(),
            _ => return,
        };
        let Some(to) = backup.or(self.copied_to).filter(|_| !changes.is_empty()) else { return };
        self.copied_to = is_used.then_some(to);
        let Some(sender) = self.copy_sender(node) else { return };
        if !sender.send_changes(to, &self.jid, &changes) {
            sender.note_failure();
            self.copied_to = None;
        }
    }

    /// Runs something outside of an input; returns the effects.
    fn with_ctx(&self, node: &Arc<Node>, run: impl FnOnce(&mut RoomCtx<'_>)) -> Effects {
        let undelivered = self.undelivered_report();
        let new_id = || String::from_utf8_lossy(&node.next_stanza_id().to_text()).into_owned();
        let is_admin = |user: JidRef<'_>| node.is_admin(user);
        let mut ctx = RoomCtx {
            now: node.clock.unix_millis(),
            new_id: &new_id,
            occupant_key: self.shared.occupant_key(node),
            is_service_admin: false,
            is_admin: &is_admin,
            removed_accounts: self.shared.removed_accounts(node),
            invitations: &self.shared.invitations,
            undelivered: &undelivered,
            delivered: None,
            effects: Effects::default(),
        };
        run(&mut ctx);
        ctx.effects
    }
}
