//! The service of rooms: it passes stanzas to the tasks of rooms, and answers requests to its own address: XEP-0045 1.35.5,
//! section 6.3 (the list of rooms), in pages of XEP-0059 1.0.

use std::sync::Arc;

use jid::Jid;
use queues::answer_channel::{AnswerSender, answer_channel};
use queues::keyed_queues::KeyedQueueLimits;
use queues::serial_task::{MailboxFull, SerialTasks};
use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{MessageType, StanzaCondition, StanzaError, StanzaKind};
use throng_core::Effects;
use throng_core::Node;
use throng_core::hooks::{Flow, HandlerOutcome, StopReason};
use throng_core::iq::{IqFlow, IqRequest};
use throng_core::receipt::receipt_pair;
use throng_core::server_error::store_error;
use throng_core::service::ServiceCtx;
use xml::{Ns, Writer};

use crate::options::ServiceOptions;
use crate::room_directory::RoomSummary;
use crate::room_input::{MessageReceipts, RoomInput, RoomMessage};
use crate::room_shared::{RoomShared, RoomTasks};
use crate::room_task::RoomTask;

/// Bytes that wait for one room, and for all rooms of a domain.
const MAILBOX_BYTES: usize = 1 << 20;
const ALL_MAILBOXES_BYTES: usize = 256 << 20;
/// Bytes that a message counts besides its stanza.
const MESSAGE_BYTES: usize = 256;
/// Resource of the address of a temporary room as the id of a position in the list.
const TEMPORARY: &str = "temporary";
/// Rooms of a page of the list.
const MAX_PAGE: u32 = 100;

/// The rooms of a domain; they survive reloads.
pub(crate) struct RoomService {
    pub(crate) shared: Arc<RoomShared>,
    tasks: Arc<RoomTasks>,
}

impl RoomService {
    pub(crate) fn new(domain: &str, options: ServiceOptions) -> RoomService {
        let shared = RoomShared::new(domain, options);
        let limits = KeyedQueueLimits::without_forced_bound(MAILBOX_BYTES, ALL_MAILBOXES_BYTES);
        let of_tasks = shared.clone();
        let tasks = SerialTasks::new("room", limits, move |jid: &Jid| RoomTask::new(jid, of_tasks.clone()));
        shared.set_tasks(&tasks);
        RoomService { shared, tasks }
    }

    /// Passes a message, a presence or an IQ between occupants to its room.
    pub(crate) fn handle_stanza(&self, ctx: &mut ServiceCtx<'_>) -> Flow {
        if ctx.to.local().is_none() {
            return Flow::Stop(StopReason::Refused(StanzaCondition::ServiceUnavailable.into()));
        }
        self.shared.join_slices(ctx.node);
        let room = ctx.to.bare().to_jid();
        // A message to a persistent room is in its history, and with all nodes of occupants, before the sender's stream counts it
        // (XEP-0198).
        let is_groupchat = ctx.stanza.kind() == StanzaKind::Message(MessageType::Groupchat);
        let (stored, stored_receipt) = is_groupchat.then(receipt_pair).unzip();
        let has_other_nodes = is_groupchat && !ctx.node.is_single();
        let (delivered, delivered_receipt) = has_other_nodes.then(receipt_pair).unzip();
        let receipts = stored_receipt.into_iter().chain(delivered_receipt);
        let (stanza, from, to) = (ctx.stanza.clone(), ctx.from.to_jid(), ctx.to.to_jid());
        let issuers = stored.map(|stored| MessageReceipts { stored, delivered });
        let input = RoomInput::Stanza { stanza, from, to, receipts: issuers };
        let message = RoomMessage { node: ctx.node.clone(), input };
        let size = ctx.stanza.bytes().len() + MESSAGE_BYTES;
        let Err(MailboxFull(message)) = self.tasks.try_send(&ctx.node.spawner, &room, message, size) else {
            receipts.for_each(|receipt| ctx.effects.receipt(ctx.stanza, receipt));
            return Flow::Stop(StopReason::Consumed);
        };
        if !ctx.may_wait {
            return Flow::Stop(StopReason::Refused(StanzaCondition::ResourceConstraint.into()));
        }
        // The sender is slowed, and nobody else.
        let wait = self.tasks.clone().send(ctx.node.spawner.clone(), room, message, size);
        let stanza = ctx.stanza.clone();
        Flow::Wait(Box::pin(async move {
            wait.await;
            let mut effects = Effects::default();
            receipts.for_each(|receipt| effects.receipt(&stanza, receipt));
            HandlerOutcome { flow: Flow::Stop(StopReason::Consumed), effects }
        }))
    }

    /// Passes a request to its room, and waits for the answer.
    pub(crate) fn handle_request(&self, request: &IqRequest<'_>, is_set: bool) -> IqFlow {
        let Some(room) = request.to.map(|to| to.bare().to_jid()) else {
            return IqFlow::error(StanzaCondition::ItemNotFound);
        };
        let (reply, answer) = answer_channel();
        let (bytes, from) = (request.bytes.to_vec(), request.from.to_jid());
        let size = bytes.len() + MESSAGE_BYTES;
        self.shared.join_slices(request.node);
        self.send(request.node, &room, RoomInput::Request { bytes, is_set, from, reply }, size);
        IqFlow::wait(async move {
            let ended = || Err(StanzaCondition::ResourceConstraint.into());
            answer.receive().await.unwrap_or_else(ended)
        })
    }

    /// Sends an input that is answered, and waits for the answer; `None` if it was not handled.
    pub(crate) async fn call<T>(
        &self,
        node: &Arc<Node>,
        room: Jid,
        input: impl FnOnce(AnswerSender<T>) -> RoomInput,
    ) -> Option<T> {
        self.shared.join_slices(node);
        let (reply, answer) = answer_channel();
        self.send(node, &room, input(reply), MESSAGE_BYTES);
        answer.receive().await
    }

    /// With a full mailbox the input is dropped, and with it the sender of its answer.
    fn send(&self, node: &Arc<Node>, room: &Jid, input: RoomInput, size: usize) {
        let _ = self.tasks.try_send(&node.spawner, room, RoomMessage { node: node.clone(), input }, size);
    }

    /// Section 6.3: the public rooms, temporary ones first.
    pub(crate) fn list_rooms(&self, request: &IqRequest<'_>) -> Result<IqFlow, StanzaError> {
        let service = request.service.ok_or(StanzaCondition::ServiceUnavailable)?.address().to_owned();
        let tree = request.tree()?;
        let query = tree.root().child_elements().next().ok_or(StanzaCondition::BadRequest)?;
        if query.attr("node").is_some_and(|node| !node.is_empty()) {
            return Err(StanzaCondition::ItemNotFound.into());
        }
        let paging = RsmRequest::from_parent(query)?;
        let after = match paging.as_ref().map(|paging| &paging.position) {
            None | Some(PagePosition::First) => None,
            Some(PagePosition::After(id)) => {
                Some(Jid::parse(id).map_err(|_| StanzaError::new(StanzaCondition::ItemNotFound))?)
            }
            Some(_) => return Err(StanzaCondition::FeatureNotImplemented.into()),
        };
        let page_size = paging.as_ref().map_or(MAX_PAGE, |paging| paging.page_size(MAX_PAGE));
        let directory = &self.shared.directory;
        let remote = &self.shared.remote_rooms;
        self.shared.join_slices(request.node);
        let temporary_count = directory.listed() + remote.len();
        // A room that is not a temporary one is a position in the list of persistent ones. The id of a temporary one says that it is
        // one, since the room may be gone.
        let is_in_store = after.as_ref().is_some_and(|after| {
            after.resource() != Some(TEMPORARY) && !directory.contains(after, RoomSummary::is_listed)
        });
        let after = after.map(|after| after.bare().to_jid());
        let mut rooms: Vec<(Jid, String)> = Vec::new();
        if !is_in_store {
            let (after, size) = (after.as_ref().map(Jid::as_ref), page_size as usize);
            let page = directory.listed_page(&service, after, size);
            let mut found = remote.page(&service, after, size);
            found.extend(page.into_iter().map(|(room, summary)| (room, summary.name)));
            found.sort_by(|(one, _), (other, _)| one.as_str().cmp(other.as_str()));
            found.dedup_by(|(one, _), (other, _)| one == other);
            found.truncate(size);
            rooms = found;
        }
        let temporary = rooms.len();
        let stores = request.node.stores.clone();
        Ok(IqFlow::wait(async move {
            let missing = page_size.saturating_sub(u32::try_from(rooms.len()).unwrap_or(u32::MAX));
            if missing > 0 {
                let after = after.filter(|_| is_in_store);
                let stored = stores.rooms.list(&service, after, missing).await.map_err(store_error)?;
                rooms.extend(stored.into_iter().map(|room| (room.jid, room.title)));
            }
            let count = stores.rooms.count(&service).await.map_err(store_error)? + temporary_count as u64;
            Ok(write_rooms(&rooms, temporary, count, paging.is_some()))
        }))
    }
}

/// Writes a page, of which the first rooms are temporary ones.
fn write_rooms(rooms: &[(Jid, String)], temporary: usize, count: u64, is_page: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    let mut w = Writer::new(&mut out);
    w.start_ns("query", Ns::DiscoItems);
    for (room, name) in rooms {
        let name = if name.is_empty() { room.local().unwrap_or_default() } else { name };
        w.start("item").attr("jid", room.as_str()).attr("name", name).end();
    }
    // A list that is cut is a page, even if the client did not ask for one.
    if is_page || (rooms.len() as u64) < count {
        let id = |(at, (room, _)): (usize, &(Jid, String))| match at < temporary {
            true => format!("{room}/{TEMPORARY}"),
            false => room.to_string(),
        };
        let first = rooms.iter().enumerate().next().map(id);
        let last = rooms.iter().enumerate().next_back().map(id);
        let ends = first.as_deref().zip(last.as_deref());
        RsmResponse { first_and_last: ends, index: None, count: Some(count) }.write(&mut w);
    }
    w.end();
    out
}
