//! Rooms in a cluster: each slice of rooms has one home node ([`peers::slices`]), its backup has copies of what is not in the store
//! (`room/copy.rs`), and rooms move with their occupants when the home node changes.
//!
//! ```text
//! notice between nodes: 1 kind, 1 slice, 8 number of the sender's lease
//! kind 0: forget all copies of the slice up to this number
//! kind 1: changes of one room: 1 whether more follow, 2 length of its address and the address, a part of the changes
//! ```
//!
//! # Pitfalls
//!
//! Copies of a node count only if the slice has had no other home node since: their number is that of the former lease.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use base::spawn::BoxFuture;
use cluster::NodeId;
use hashbrown::HashMap;
use jid::{Jid, JidRef};
use peers::notices::send_notice_to;
use peers::slices::{
    SliceAccess, SliceService, add_slice_service, backup_failed, next_sweep, slice_access, slice_of_item,
};
use queues::answer_channel::answer_channel;
use throng_core::Node;
use throng_core::domains::Domain;
use throng_core::feature_notice::NoticeCtx;

use crate::removed_accounts::update_if_used;
use crate::room::RoomCopy;
use crate::room_input::{RoomInput, RoomMessage};
use crate::room_shared::RoomShared;
use crate::room_sweep::RoomSweep;

/// Name of the notices.
pub(crate) const NOTICE: &str = "room copy";
const FORGET: u8 = 0;
const CHANGES: u8 = 1;
/// Bytes of changes in one notice.
const PART_BYTES: usize = 192 << 10;
/// Bytes of all copies; a room beyond them has none.
const MAX_COPY_BYTES: usize = 256 << 20;
/// Bytes that an input without a stanza counts in a mailbox.
const INPUT_BYTES: usize = 64;
/// Attempts, a second apart, to send a room to its next home node.
const ATTEMPTS: usize = 10;

/// Copies of a room that another node owns.
struct HeldCopy {
    slice: u8,
    number: u64,
    /// Changes of which parts are missing.
    partial: Vec<u8>,
    copy: RoomCopy,
}

impl HeldCopy {
    fn size(&self) -> usize {
        self.copy.size() + self.partial.capacity()
    }
}

#[derive(Default)]
struct CopyState {
    rooms: HashMap<Jid, HeldCopy>,
    bytes: usize,
}

impl CopyState {
    fn remove(&mut self, room: &Jid) -> Option<HeldCopy> {
        let removed = self.rooms.remove(room)?;
        self.bytes -= removed.size();
        Some(removed)
    }

    fn retain(&mut self, keep: impl Fn(&HeldCopy) -> bool) {
        self.rooms.retain(|_, held| keep(held));
        self.bytes = self.rooms.values().map(HeldCopy::size).sum();
    }
}

/// Copies on this node, and the nodes that have copies of this node's rooms.
#[derive(Default)]
pub(crate) struct RoomCopies {
    held: LeafMutex<CopyState>,
    backups: LeafMutex<BTreeMap<u8, NodeId>>,
}

impl RoomCopies {
    /// The node that has copies of the rooms of a slice.
    pub(crate) fn backup(&self, slice: u8) -> Option<NodeId> {
        self.backups.lock().get(&slice).copied()
    }

    /// Removes and returns the copy of a room, if it is complete.
    pub(crate) fn take(&self, room: &Jid) -> Option<RoomCopy> {
        let removed = self.held.lock().remove(room)?;
        Some(removed.copy).filter(RoomCopy::is_complete)
    }

    /// Rooms of which this node has complete copies.
    fn rooms(&self, slice: u8) -> Vec<Jid> {
        let held = self.held.lock();
        let of_slice = held.rooms.iter().filter(|(_, one)| one.slice == slice && one.copy.is_complete());
        of_slice.map(|(room, _)| room.clone()).collect()
    }

    fn slices(&self) -> Vec<u8> {
        let held = self.held.lock();
        let mut slices: Vec<u8> = held.rooms.values().map(|one| one.slice).collect();
        slices.sort_unstable();
        slices.dedup();
        slices
    }

    /// Handles the content of a notice; false if it is none.
    fn receive(&self, content: &[u8]) -> bool {
        let Some(([kind, slice], rest)) = content.split_first_chunk() else { return false };
        let Some((number, rest)) = rest.split_first_chunk() else { return false };
        let (slice, number) = (*slice, u64::from_be_bytes(*number));
        match *kind {
            FORGET => {
                self.held.lock().retain(|one| one.slice != slice || one.number > number);
                true
            }
            CHANGES => self.receive_changes(slice, number, rest).is_some(),
            _ => false,
        }
    }

    fn receive_changes(&self, slice: u8, number: u64, rest: &[u8]) -> Option<()> {
        let ([more, high, low], rest) = rest.split_first_chunk()?;
        let (room, part) = rest.split_at_checked(u16::from_be_bytes([*high, *low]).into())?;
        let room = JidRef::from_normalised(std::str::from_utf8(room).ok()?)?.to_jid();
        let mut state = self.held.lock();
        let mut held = match state.remove(&room) {
            Some(held) if held.number == number => held,
            Some(held) if held.number > number => {
                state.bytes += held.size();
                state.rooms.insert(room, held);
                return Some(());
            }
            _ => HeldCopy { slice, number, partial: Vec::new(), copy: RoomCopy::default() },
        };
        held.partial.extend_from_slice(part);
        if *more == 0 {
            let changes = std::mem::take(&mut held.partial);
            if !held.copy.apply(&changes) {
                return None;
            }
            // Nobody is in the room: the store has the rest.
            if !held.copy.is_complete() {
                return Some(());
            }
        }
        if state.bytes + held.size() > MAX_COPY_BYTES {
            tracing::warn!(%room, "too many copies of rooms; after the loss of its home node the occupants of the room must enter again");
            return Some(());
        }
        state.bytes += held.size();
        state.rooms.insert(room, held);
        Some(())
    }
}

/// A room as it is sent to another node.
pub(crate) struct CopySender<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) domain: &'a str,
    pub(crate) slice: u8,
    /// Number of the lease of the slice.
    pub(crate) number: u64,
}

impl CopySender<'_> {
    fn send(&self, to: NodeId, kind: u8, content: &[u8]) -> bool {
        let Some(host) = self.node.host(self.domain) else { return false };
        let number = self.number.to_be_bytes();
        let content = [&[kind, self.slice][..], &number, content].concat();
        send_notice_to(self.node, to, &host, NOTICE, &content)
    }

    /// Sends changes of a room; false if not all were sent.
    pub(crate) fn send_changes(&self, to: NodeId, room: &Jid, changes: &[u8]) -> bool {
        let Ok(length) = u16::try_from(room.as_str().len()) else { return false };
        let mut parts = changes.chunks(PART_BYTES).peekable();
        while let Some(part) = parts.next() {
            let more = u8::from(parts.peek().is_some());
            let head = [&[more][..], &length.to_be_bytes(), room.as_str().as_bytes()].concat();
            if !self.send(to, CHANGES, &[&head, part].concat()) {
                return false;
            }
        }
        true
    }

    /// As [`CopySender::send_changes`], until it succeeds, or for a few seconds.
    pub(crate) async fn send_changes_surely(&self, to: NodeId, room: &Jid, changes: &[u8]) -> bool {
        for _ in 0..ATTEMPTS {
            if self.send_changes(to, room, changes) {
                return true;
            }
            next_sweep(self.node).await;
        }
        false
    }

    /// The backup has not received a change.
    pub(crate) fn note_failure(&self) {
        backup_failed(self.node, self.slice);
    }
}

/// The rooms of a domain, as a service with slices.
struct RoomSlices(Weak<RoomShared>);

impl RoomShared {
    /// Takes part in the placement of rooms, and learns when the node stops.
    pub(crate) fn join_slices(self: &Arc<Self>, node: &Arc<Node>) {
        if self.is_first_use() {
            add_slice_service(node, Arc::new(RoomSlices(Arc::downgrade(self))));
            node.extensions.get_or_default_swept::<RoomSweep>().start(node);
            self.ask_for_rooms(node);
        }
    }

    /// Another node has sent copies.
    pub(crate) fn handle_notice(self: &Arc<Self>, ctx: &NoticeCtx<'_>) {
        // Without content: what was missed is sent again by its home node.
        let Some(content) = ctx.content else { return };
        self.join_slices(ctx.node);
        if !self.copies.receive(content) {
            let from = ctx.from.as_ref().map_or("", |node| node.as_str());
            tracing::error!(from, "a node has sent an invalid copy of a room");
        }
    }

    /// Rooms of a slice in memory.
    fn rooms_of_slice(&self, node: &Node, slice: u8) -> Vec<Jid> {
        let mut rooms = self.directory.rooms();
        rooms.retain(|room| slice_of_item(node, room.as_ref()) == slice);
        rooms
    }

    /// Sends an input to each of these rooms, in the background.
    pub(crate) fn send_to_all(
        &self,
        node: &Arc<Node>,
        rooms: Vec<Jid>,
        input: impl Fn() -> RoomInput + Send + 'static,
    ) {
        let Some(tasks) = self.tasks().filter(|_| !rooms.is_empty()) else { return };
        let sender = node.clone();
        let send = async move {
            for room in rooms {
                let message = RoomMessage { node: sender.clone(), input: input() };
                tasks.clone().send(sender.spawner.clone(), room, message, INPUT_BYTES).await;
            }
        };
        node.spawner.spawn("rooms", Box::pin(send));
    }
}

impl SliceService for RoomSlices {
    fn hand_over(&self, node: &Arc<Node>, slice: u8, to: NodeId) -> BoxFuture<'static, ()> {
        let (rooms, node) = (self.0.upgrade(), node.clone());
        Box::pin(async move {
            let Some((rooms, tasks)) = rooms.and_then(|rooms| Some((rooms.clone(), rooms.tasks()?))) else {
                return;
            };
            // A room that was being loaded is found by the second pass.
            for _ in 0..2 {
                for room in rooms.rooms_of_slice(&node, slice) {
                    let (reply, done) = answer_channel();
                    let message =
                        RoomMessage { node: node.clone(), input: RoomInput::HandOver { to, reply } };
                    tasks.clone().send(node.spawner.clone(), room, message, INPUT_BYTES).await;
                    done.receive().await;
                }
            }
            rooms.copies.backups.lock().remove(&slice);
        })
    }

    fn taken(&self, node: &Arc<Node>, slice: u8, previous: u64) {
        let Some(rooms) = self.0.upgrade() else { return };
        rooms.copies.held.lock().retain(|one| one.slice != slice || one.number == previous);
        rooms.send_to_all(node, rooms.copies.rooms(slice), || RoomInput::Restore);
    }

    fn lost(&self, node: &Arc<Node>, slice: u8) {
        let Some(rooms) = self.0.upgrade() else { return };
        rooms.copies.backups.lock().remove(&slice);
        rooms.send_to_all(node, rooms.rooms_of_slice(node, slice), || RoomInput::HomeChanged);
    }

    fn set_backup(&self, node: &Arc<Node>, slice: u8, backup: Option<NodeId>) {
        let Some(rooms) = self.0.upgrade() else { return };
        let former = {
            let mut backups = rooms.copies.backups.lock();
            match backup {
                Some(backup) => backups.insert(slice, backup),
                None => backups.remove(&slice),
            }
        };
        let SliceAccess::Own(Some(lease)) = slice_access(node, slice) else {
            return backup_failed(node, slice);
        };
        let sender = CopySender { node, domain: rooms.domain(), slice, number: lease.number };
        for other in former.into_iter().chain(backup) {
            sender.send(other, FORGET, &[]);
        }
        rooms.send_to_all(node, rooms.rooms_of_slice(node, slice), || RoomInput::BackupChanged);
    }

    fn copied_slices(&self) -> Vec<u8> {
        self.0.upgrade().map(|rooms| rooms.copies.slices()).unwrap_or_default()
    }

    fn shut_down(&self, node: &Arc<Node>) -> BoxFuture<'static, ()> {
        let (rooms, node) = (self.0.upgrade(), node.clone());
        Box::pin(async move {
            let Some((rooms, tasks)) = rooms.and_then(|rooms| Some((rooms.clone(), rooms.tasks()?))) else {
                return;
            };
            for room in rooms.directory.rooms() {
                let (reply, done) = answer_channel();
                let message = RoomMessage { node: node.clone(), input: RoomInput::ShutDown { reply } };
                tasks.clone().send(node.spawner.clone(), room, message, INPUT_BYTES).await;
                done.receive().await;
            }
        })
    }

    fn member_left(&self, node: &Arc<Node>) {
        let Some(rooms) = self.0.upgrade() else { return };
        rooms.forget_rooms_of_others(node);
        // It may have removed accounts, and was killed before its notice.
        update_if_used(node);
        rooms.send_to_all(node, rooms.directory.rooms(), || RoomInput::MemberLeft);
    }
}

/// Whether a session of an account of this deployment may exist. Those of other servers always may.
pub(crate) fn may_exist(node: &Node, session: &Jid) -> bool {
    !matches!(node.domains().find(session.domain()), Domain::Accounts(_))
        || is_here(node, session)
        || node.may_be_elsewhere(session.as_ref())
}

/// Whether a session is on this node.
pub(crate) fn is_here(node: &Node, session: &Jid) -> bool {
    let account = || node.routing_table.find(session.as_ref().bare());
    session.resource().is_some_and(|resource| account().is_some_and(|one| one.session(resource).is_some()))
}
