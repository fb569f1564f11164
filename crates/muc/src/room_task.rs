//! The task of one room: it owns the room, handles its inputs in order, and performs their effects before the next one.
//!
//! A room that does not exist has a task only while a stanza for it is handled.
//!
//! Long because each input goes through loading, effects and storing of the same state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use base::lock::LeafRwLock;
use base::spawn::BoxFuture;
use cluster::NodeId;
use jid::Jid;
use peers::slices::{SliceAccess, SliceLease};
use queues::answer_channel::{AnswerReceiver, AnswerSender, answer_channel};
use queues::serial_task::{SerialState, SerialTasks};
use ring::hmac;
use stanza::{PresenceType, StanzaCondition, StanzaError, StanzaKind};
use store::{RoomHistoryEntry, RoomRecord, StoreError, StoreErrorKind};
use throng_core::iq::IqAnswer;
use throng_core::receipt::ReceiptIssuer;
use throng_core::server_error::store_error;
use throng_core::server_secret::ServerSecret;
use throng_core::session::flags;
use throng_core::{Effects, Node, SharedStanza};
use xml::Ns;

use crate::options::{CreationAccess, ServiceOptions};
use crate::privileges::Affiliation;
use crate::room::{
    AffiliationOutcome, CreationOutcome, DestroyNotice, DestructionOutcome, ListedAffiliation, Room,
    RoomCopy, RoomCtx, RoomRequest, RoomState, UndeliveredReport, not_in_room, send_error,
};
use crate::room_directory::{RoomDirectory, RoomLimit};
use crate::room_placement::RoomCopies;

/// The tasks of a domain's rooms, by address.
pub(crate) type RoomTasks = SerialTasks<Jid, RoomTask>;

/// State that the tasks of a domain share.
pub(crate) struct RoomShared {
    /// The domain of accounts.
    domain: String,
    options: LeafRwLock<Arc<ServiceOptions>>,
    pub(crate) directory: RoomDirectory,
    pub(crate) copies: RoomCopies,
    occupant_key: OnceLock<hmac::Key>,
    tasks: OnceLock<Weak<RoomTasks>>,
    is_used: AtomicBool,
}

/// An input of a room.
pub(crate) struct RoomMessage {
    pub(crate) node: Arc<Node>,
    pub(crate) input: RoomInput,
}

/// Receipts of a message to all occupants, for the stream or the node of its sender.
pub(crate) struct MessageReceipts {
    /// Fulfilled when the message is in the store, or needs not to be.
    pub(crate) stored: ReceiptIssuer,
    /// Fulfilled when all nodes with occupants have acknowledged the message; none on a single node.
    pub(crate) delivered: Option<ReceiptIssuer>,
}

impl MessageReceipts {
    /// The message was passed on, or its sender has an error.
    pub(crate) fn fulfil(self) {
        self.stored.settle(Ok(()));
        if let Some(delivered) = self.delivered {
            delivered.settle(Ok(()));
        }
    }
}

/// Input of a room.
pub(crate) enum RoomInput {
    /// A message or presence, or an IQ between occupants.
    Stanza { stanza: SharedStanza, from: Jid, to: Jid, receipts: Option<MessageReceipts> },
    /// A request to the room: the stanza, and the way of the answer.
    Request { bytes: Vec<u8>, is_set: bool, from: Jid, reply: AnswerSender<IqAnswer> },
    /// Sessions that did not receive a stanza.
    SessionsLost(Vec<Jid>),
    /// An administrator creates the room for an owner.
    Create { owner: Jid, reply: AnswerSender<CreationOutcome> },
    /// An administrator destroys the room.
    Destroy { notice: DestroyNotice, reply: AnswerSender<DestructionOutcome> },
    /// Another node may have become the home node of the room.
    HomeChanged,
    /// The former home node is gone or has handed the room over: this node has a copy.
    Restore,
    /// The next home node must have the room.
    HandOver { to: NodeId, reply: AnswerSender<()> },
    /// The node stops.
    ShutDown { reply: AnswerSender<()> },
    /// Another node keeps the copy of the room.
    BackupChanged,
    /// Sessions may be gone with their node.
    MemberLeft,
    /// Messages of the history were stored, or not.
    HistoryStored(Result<(), StoreError>),
    /// An administrator lists the occupants.
    ListOccupants { reply: AnswerSender<Option<Vec<(String, Jid)>>> },
    /// An administrator lists the affiliations.
    ListAffiliations { reply: AnswerSender<Option<Vec<ListedAffiliation>>> },
    /// An administrator sets an affiliation.
    SetAffiliation { user: Jid, affiliation: Affiliation, reply: AnswerSender<AffiliationOutcome> },
}

/// An answer that is sent after the effects.
enum RoomReply {
    None,
    Iq(AnswerSender<IqAnswer>, IqAnswer),
    Creation(AnswerSender<CreationOutcome>, CreationOutcome),
    Destruction(AnswerSender<DestructionOutcome>, DestructionOutcome),
    /// The stanza was handled, and nothing of it must be stored.
    Handled(ReceiptIssuer),
    Affiliation(AnswerSender<AffiliationOutcome>, AffiliationOutcome),
}

impl RoomShared {
    pub(crate) fn new(domain: &str, options: ServiceOptions) -> Arc<RoomShared> {
        Arc::new(RoomShared {
            domain: domain.to_owned(),
            options: LeafRwLock::new(Arc::new(options)),
            directory: RoomDirectory::default(),
            copies: RoomCopies::default(),
            occupant_key: OnceLock::new(),
            tasks: OnceLock::new(),
            is_used: AtomicBool::new(false),
        })
    }

    /// Whether this is the first call.
    pub(crate) fn is_first_use(&self) -> bool {
        !self.is_used.swap(true, Ordering::Relaxed)
    }

    /// The domain of accounts.
    pub(crate) fn domain(&self) -> &str {
        &self.domain
    }

    /// The tasks of the rooms, while they exist.
    pub(crate) fn tasks(&self) -> Option<Arc<RoomTasks>> {
        self.tasks.get()?.upgrade()
    }

    /// The tasks that report undelivered stanzas.
    pub(crate) fn set_tasks(&self, tasks: &Arc<RoomTasks>) {
        let _ = self.tasks.set(Arc::downgrade(tasks));
    }

    /// The options after a reload.
    pub(crate) fn set_options(&self, options: ServiceOptions) {
        *self.options.write() = Arc::new(options);
    }

    pub(crate) fn options(&self) -> Arc<ServiceOptions> {
        self.options.read().clone()
    }

    /// The key of occupant ids: the same after a restart, if the server has a secret.
    pub(crate) fn occupant_key(&self, node: &Node) -> &hmac::Key {
        self.occupant_key.get_or_init(|| match node.extensions.get::<ServerSecret>() {
            Some(secret) => secret.key(&format!("occupant-id {}", self.domain)),
            None => hmac::Key::new(hmac::HMAC_SHA256, &base::id::random_bytes::<32>()),
        })
    }

    /// Whether a user may create a room.
    fn may_create(&self, node: &Node, from: &Jid, options: &ServiceOptions, has_account: bool) -> bool {
        if node.is_admin(from.as_ref()) {
            return true;
        }
        match options.creation {
            CreationAccess::All => true,
            CreationAccess::Admins => false,
            CreationAccess::Users => from.domain() == self.domain && has_account,
        }
    }

    /// Whether a sender has an account of the domain, which anonymous users (SASL ANONYMOUS) have not. The store is asked about
    /// sessions of other nodes only.
    async fn has_account(&self, node: &Node, from: &Jid) -> Result<bool, StoreError> {
        if from.domain() != self.domain {
            return Ok(false);
        }
        let session = || node.routing_table.find(from.bare())?.session(from.resource()?);
        match session() {
            Some(session) => Ok(!session.flags.has(flags::EPHEMERAL)),
            None => node.stores.accounts.exists(from.bare()).await,
        }
    }
}

/// The state of a room's task.
pub(crate) struct RoomTask {
    pub(crate) jid: Jid,
    pub(crate) shared: Arc<RoomShared>,
    pub(crate) room: Option<Room>,
    /// Whether the store has it.
    pub(crate) is_stored: bool,
    /// Persistent rooms that the user who enters has created.
    created_by_sender: u64,
    /// Whether that user has an account.
    sender_has_account: bool,
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
            created_by_sender: 0,
            sender_has_account: false,
            storing: None,
            unsaved: Vec::new(),
            unsettled: Vec::new(),
            slice: None,
            lease: None,
            copied_to: None,
            restored: None,
            batch: RoomBatch::default(),
        }
    }

    /// Reads the room from the store.
    pub(crate) async fn load(&mut self, node: &Node, input: &RoomInput) -> Result<(), StoreError> {
        let options = self.shared.options();
        let rooms = &node.stores.rooms;
        let stored = rooms.load(self.jid.as_ref()).await?;
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

    fn handle_input(&mut self, ctx: &mut RoomCtx<'_>, node: &Arc<Node>, input: RoomInput) -> RoomReply {
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
                RoomReply::Iq(reply, self.answer(ctx, &bytes, is_set, &from))
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
                    room.unlock_persistent();
                    self.room = Some(room);
                }
                let outcome = if is_new { CreationOutcome::Created } else { CreationOutcome::Exists };
                RoomReply::Creation(reply, outcome)
            }
            RoomInput::Destroy { notice, reply } => {
                let exists = self.room.is_some();
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
            RoomInput::MemberLeft => {
                self.remove_gone_sessions(ctx, node);
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
            RoomInput::ListAffiliations { reply } => {
                reply.send(self.room.as_ref().map(Room::affiliation_list));
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
        match self.shared.directory.add_created(&self.jid, &creator, options.rooms, per_user) {
            Ok(()) => Ok(Room::create(self.jid.clone(), options, creator)),
            Err(RoomLimit::OfService) => {
                Err(not_allowed("the service has reached its maximum number of rooms"))
            }
            Err(RoomLimit::OfUser) => Err(not_allowed("you have reached your maximum number of rooms")),
        }
    }

    fn answer(&mut self, ctx: &mut RoomCtx<'_>, bytes: &[u8], is_set: bool, from: &Jid) -> IqAnswer {
        let room = self.room.as_mut().ok_or(StanzaCondition::ItemNotFound)?;
        let tree = throng_core::shared_stanza::tree(bytes).map_err(|_| StanzaCondition::BadRequest)?;
        let payload = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
        room.request(ctx, &RoomRequest { from, is_set, payload })
    }

    /// Forgets a room that ended, and updates the list of rooms. Returns the write that precedes the answer.
    fn after_input(&mut self) -> Option<RoomWrite> {
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
            let excess = self.unsaved.len().saturating_sub(room.history_limit() as usize);
            self.unsaved.drain(..excess);
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
        let (messages, keep) = (std::mem::take(&mut self.unsaved), room.history_limit());
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

/// Write that precedes an answer.
enum RoomWrite {
    Put(Box<RoomRecord>),
    Remove,
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
        let mut ctx = RoomCtx {
            now: node.clock.unix_millis(),
            new_id: &new_id,
            occupant_key: shared.occupant_key(&node),
            is_service_admin: sender.is_some_and(|sender| node.is_admin(sender.bare())),
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
        let may_wait = matches!(input, RoomInput::Stanza { .. });
        self.batch.has_messages |= matches!(&input, RoomInput::Stanza { stanza, .. } if matches!(stanza.kind(), StanzaKind::Message(_)));
        let mut reply = self.handle_input(&mut ctx, &node, input);
        let mut effects = std::mem::take(&mut ctx.effects);
        let has_message = self.room.as_ref().is_some_and(Room::has_unsaved);
        let write = self.after_input();
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
                Some(write) => self.write(&node, write).await,
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

    async fn write(&mut self, node: &Node, write: RoomWrite) -> Result<(), StoreError> {
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

/// Sends an answer, or the error of the store.
fn send_reply(reply: RoomReply, written: Result<(), StoreError>) {
    match reply {
        RoomReply::None => {}
        RoomReply::Iq(reply, answer) => {
            reply.send(answer.and_then(|answer| written.map(|()| answer).map_err(store_error)));
        }
        RoomReply::Creation(reply, outcome) => {
            reply.send(if written.is_ok() { outcome } else { CreationOutcome::NotStored });
        }
        RoomReply::Destruction(reply, outcome) => {
            reply.send(if written.is_ok() { outcome } else { DestructionOutcome::NotStored });
        }
        RoomReply::Handled(receipt) => receipt.settle(Ok(())),
        RoomReply::Affiliation(reply, outcome) => {
            reply.send(if written.is_ok() { outcome } else { AffiliationOutcome::NotStored });
        }
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
            && self.room.as_ref().is_none_or(|room| room.occupant_count() == 0);
        if is_idle {
            // A persistent room stays in the store only.
            self.shared.directory.remove(&self.jid);
        }
        is_idle
    }
}

/// Whether the payload of a request is a ping.
fn is_ping(stanza: &SharedStanza) -> bool {
    stanza.head().first_child.is_some_and(|payload| payload.ns == Some(Ns::Ping))
}

/// Whether a stanza enters a room: available presence with the element of section 7.2.1.
fn enters(stanza: &SharedStanza) -> bool {
    stanza.kind() == StanzaKind::Presence(PresenceType::Available)
        && stanza.tree().is_ok_and(|tree| tree.root().child("x", Ns::Muc).is_some())
}
