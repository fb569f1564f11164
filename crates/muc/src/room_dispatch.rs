//! Handling of an input by the room that a task owns, and creation of rooms: XEP-0045 1.35.5, section 10.1.

use std::sync::Arc;

use jid::Jid;
use queues::answer_channel::AnswerSender;
use stanza::{PresenceType, StanzaCondition, StanzaError, StanzaKind};
use store::rooms::{AffiliationPosition, AffiliationQuery};
use store::{RoomAffiliation, StoreError};
use throng_core::iq::IqAnswer;
use throng_core::server_error::store_error;
use throng_core::{Node, SharedStanza};
use xml::Ns;

use crate::room::{
    AffiliationOutcome, CreationOutcome, DestructionOutcome, Room, RoomAnswer, RoomCtx, RoomRequest,
    StoredAffiliationList, not_in_room, send_error,
};
use crate::room_directory::RoomLimit;
use crate::room_input::{MessageReceipts, RoomInput, RoomReply};
use crate::room_task::RoomTask;

impl RoomTask {
    /// Refuses an input, since the room could not be read.
    pub(crate) fn refuse(&self, ctx: &mut RoomCtx<'_>, input: RoomInput, error: StanzaError) {
        match input {
            RoomInput::Stanza { stanza, from, to, receipts } => {
                send_error(ctx, &stanza, &from, &to, &error);
                receipts.into_iter().for_each(MessageReceipts::fulfil);
            }
            RoomInput::Request { reply, .. } => reply.send(Err(error)),
            // The end of its channel reports it to who waits for an answer.
            _ => {}
        }
    }

    pub(crate) fn handle_input(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        node: &Arc<Node>,
        input: RoomInput,
    ) -> RoomReply {
        match input {
            RoomInput::Stanza { stanza, from, to, receipts } => {
                let (stored, delivered) = receipts.map(|both| (both.stored, both.delivered)).unzip();
                ctx.delivered = delivered.flatten();
                self.handle_stanza(ctx, node, &stanza, &from, &to);
                // It was not sent to the occupants.
                if let Some(delivered) = ctx.delivered.take() {
                    delivered.settle(Ok(()));
                }
                stored.map_or(RoomReply::None, RoomReply::Handled)
            }
            RoomInput::Request { bytes, is_set, from, reply } => {
                match self.answer(ctx, &bytes, is_set, &from) {
                    Ok(RoomAnswer::Result(result)) => RoomReply::Iq(reply, Ok(result)),
                    Ok(RoomAnswer::List(list)) => {
                        self.read_list(node, list, reply);
                        RoomReply::None
                    }
                    Err(error) => RoomReply::Iq(reply, Err(error)),
                }
            }
            RoomInput::SessionsLost(sessions) => {
                if let Some(room) = &mut self.room {
                    room.sessions_lost(ctx, &sessions);
                }
                RoomReply::None
            }
            RoomInput::Create { owner, reply } => {
                let is_new = self.room.is_none();
                if is_new {
                    let mut room = Room::create(self.jid.clone(), self.shared.options(), owner);
                    room.contains_removals(self.shared.removed_accounts(node).number());
                    room.unlock_persistent();
                    self.room = Some(room);
                }
                let outcome = if is_new { CreationOutcome::Created } else { CreationOutcome::Exists };
                RoomReply::Creation(reply, outcome)
            }
            RoomInput::Destroy { notice, reply } => {
                // Without a room, its removal from the store has failed, and is tried again.
                let exists = self.room.is_some() || self.is_stored;
                if let Some(room) = &mut self.room {
                    room.destroy(ctx, &notice);
                }
                let outcome = if exists { DestructionOutcome::Destroyed } else { DestructionOutcome::NoRoom };
                RoomReply::Destruction(reply, outcome)
            }
            RoomInput::HomeChanged
            | RoomInput::Restore
            | RoomInput::HandOver { .. }
            | RoomInput::ShutDown { .. }
            | RoomInput::BackupChanged => RoomReply::None,
            RoomInput::WriteAgain => {
                if self.failing_since.is_none() {
                    self.shared.unwritten.remove(&self.jid);
                }
                RoomReply::None
            }
            RoomInput::AdminsChanged => {
                if let Some(room) = &mut self.room {
                    room.update_service_admins(ctx);
                }
                RoomReply::None
            }
            RoomInput::MemberLeft => {
                self.remove_gone_sessions(ctx, node);
                RoomReply::None
            }
            RoomInput::AccountsRemoved(removed) => {
                // Otherwise they are read with the earlier ones.
                if let Some(room) = self.room.as_mut().filter(|_| !self.misses_removals) {
                    room.accounts_removed(ctx, &removed);
                }
                RoomReply::None
            }
            RoomInput::HistoryStored(result) => {
                self.storing = None;
                if let Err(error) = result {
                    tracing::error!(room = %self.jid, %error, "messages of a room were not stored");
                }
                RoomReply::None
            }
            RoomInput::ListOccupants { reply } => {
                reply.send(self.room.as_ref().map(Room::occupant_list));
                RoomReply::None
            }
            RoomInput::ListAffiliations { after, limit, reply } => {
                let size = usize::try_from(limit).unwrap_or(usize::MAX);
                match self.room.as_ref().map(|room| room.affiliation_page(after.as_ref(), size)) {
                    None => reply.send(None),
                    Some(Some(page)) => reply.send(Some(Ok(page))),
                    Some(None) => {
                        let position = after.map_or(AffiliationPosition::First, AffiliationPosition::After);
                        let query = AffiliationQuery { affiliation: None, position, limit };
                        self.read_affiliations(node, query, move |found| reply.send(Some(found)));
                    }
                }
                RoomReply::None
            }
            RoomInput::SetAffiliation { user, affiliation, reply } => {
                let outcome = match &mut self.room {
                    Some(room) => room.administer_affiliation(ctx, &user, affiliation),
                    None => AffiliationOutcome::NoRoom,
                };
                RoomReply::Affiliation(reply, outcome)
            }
        }
    }

    fn handle_stanza(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        node: &Arc<Node>,
        stanza: &SharedStanza,
        from: &Jid,
        to: &Jid,
    ) {
        if self.room.is_none() && enters(stanza) && to.resource().is_some() {
            match self.create_room(node, from) {
                Ok(room) => self.room = Some(room),
                Err(error) => return send_error(ctx, stanza, from, to, &error),
            }
        }
        match (&mut self.room, stanza.kind()) {
            (Some(room), StanzaKind::Presence(_)) => room.presence(ctx, stanza, from, to),
            (Some(room), StanzaKind::Message(_)) => room.message(ctx, stanza, from, to),
            (Some(room), StanzaKind::Iq(_)) => room.relayed_iq(ctx, stanza, from, to),
            (None, StanzaKind::Presence(PresenceType::Available)) => match to.resource() {
                Some(_) => crate::room::report_not_in_room(ctx, from, to),
                None => {
                    let error = StanzaError::new(StanzaCondition::JidMalformed);
                    send_error(ctx, stanza, from, to, &error.text("add a nickname to the address"));
                }
            },
            (None, StanzaKind::Presence(_)) => {}
            // XEP-0410, section 3.2: a client that pings itself is not in the room.
            (None, kind) if kind.is_request() && to.resource().is_some() && is_ping(stanza) => {
                send_error(ctx, stanza, from, to, &not_in_room());
            }
            (None, kind) => {
                if kind.is_request() || matches!(kind, StanzaKind::Message(_)) {
                    send_error(ctx, stanza, from, to, &StanzaCondition::ItemNotFound.into());
                }
            }
        }
    }

    /// Section 10.1 of XEP-0045.
    fn create_room(&self, node: &Node, from: &Jid) -> Result<Room, StanzaError> {
        let options = self.shared.options();
        let not_allowed = |text| StanzaError::new(StanzaCondition::NotAllowed).text(text);
        if !self.shared.may_create(node, from, &options, self.sender_has_account) {
            return Err(not_allowed("you are not allowed to create rooms"));
        }
        let creator = from.bare().to_jid();
        let per_user = if node.is_admin(from.as_ref()) { usize::MAX } else { options.rooms_per_user };
        if self.created_by_sender >= per_user as u64 {
            return Err(not_allowed("you have reached your maximum number of rooms"));
        }
        let memory = if node.is_admin(from.as_ref()) { usize::MAX } else { options.memory_per_user };
        match self.shared.directory.add_created(&self.jid, &creator, options.rooms, per_user, memory) {
            Ok(()) => {
                let mut room = Room::create(self.jid.clone(), options, creator);
                room.contains_removals(self.shared.removed_accounts(node).number());
                Ok(room)
            }
            Err(RoomLimit::Rooms) => Err(not_allowed("the service has reached its maximum number of rooms")),
            Err(RoomLimit::MemoryOfUser) => Err(not_allowed("your rooms take too much memory")),
            Err(RoomLimit::RoomsOfUser) => Err(not_allowed("you have reached your maximum number of rooms")),
        }
    }

    /// Reads affiliations in the background. They are stored before the next input is handled.
    fn read_affiliations(
        &self,
        node: &Arc<Node>,
        query: AffiliationQuery,
        done: impl FnOnce(Result<Vec<RoomAffiliation>, StoreError>) + Send + 'static,
    ) {
        let (reader, room) = (node.clone(), self.jid.clone());
        let read = async move { done(reader.stores.rooms.affiliations(room.as_ref(), query).await) };
        node.spawner.spawn("room list", Box::pin(read));
    }

    fn read_list(&self, node: &Arc<Node>, list: StoredAffiliationList, reply: AnswerSender<IqAnswer>) {
        self.read_affiliations(node, list.query(), move |found| {
            reply.send(found.map(|page| list.answer(&page)).map_err(store_error));
        });
    }

    fn answer(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        bytes: &[u8],
        is_set: bool,
        from: &Jid,
    ) -> Result<RoomAnswer, StanzaError> {
        let not_found = || StanzaError::new(StanzaCondition::ItemNotFound).by(self.jid.as_str());
        let room = self.room.as_mut().ok_or_else(not_found)?;
        let tree = throng_core::shared_stanza::tree(bytes).map_err(|_| StanzaCondition::BadRequest)?;
        let payload = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
        room.request(ctx, &RoomRequest { from, is_set, payload })
    }
}

/// Whether the payload of a request is a ping.
fn is_ping(stanza: &SharedStanza) -> bool {
    stanza.head().first_child.is_some_and(|payload| payload.ns == Some(Ns::Ping))
}

/// Whether a stanza enters a room: available presence with the element of section 7.2.1.
pub(crate) fn enters(stanza: &SharedStanza) -> bool {
    stanza.kind() == StanzaKind::Presence(PresenceType::Available)
        && stanza.tree().is_ok_and(|tree| tree.root().child("x", Ns::Muc).is_some())
}
