//! Public temporary rooms of other nodes, which the list of rooms shows on each node (XEP-0045 1.35.5, section 6.3). Each node announces
//! its own; persistent rooms are in the database.
//!
//! ```text
//! notice between nodes, changes: 1 kind; of kinds 1 and 2 address and name: each 2 octets of length and the octets
//! 0 all rooms of the sender follow    1 a room is listed    2 a room is not listed any more    3 send all
//! ```
//!
//! # Pitfalls
//!
//! A node that has just been started has the rooms of others a moment after rooms are used there.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use base::lock::LeafMutex;
use cluster::NodeId;
use jid::{Jid, JidRef};
use peers::notices::send_notice_to;
use throng_core::Node;
use throng_core::feature_notice::NoticeCtx;

use crate::room_directory::ListNotice;
use crate::room_shared::RoomShared;

/// Name of the notices.
pub(crate) const NOTICE: &str = "room list";
const ALL: u8 = 0;
const LISTED: u8 = 1;
const NOT_LISTED: u8 = 2;
const SEND_ALL: u8 = 3;
/// Rooms of other nodes; further ones are not listed here.
const MAX_ROOMS: usize = 100_000;
/// Bytes of a notice at which another one begins; a room has up to 4 kB.
const NOTICE_BYTES: usize = 64 << 10;
/// Rooms that are read from the directory at a time.
const PAGE: usize = 1_000;

/// A room of another node.
struct RemoteRoom {
    node: NodeId,
    name: Box<str>,
}

/// The rooms by address.
#[derive(Default)]
pub(crate) struct RemoteRooms(LeafMutex<BTreeMap<Jid, RemoteRoom>>);

fn field<'a>(from: &mut &'a [u8]) -> Option<&'a str> {
    let (length, rest) = from.split_first_chunk()?;
    let (field, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    *from = rest;
    std::str::from_utf8(field).ok()
}

fn put_room_change(out: &mut Vec<u8>, kind: u8, room: &Jid, name: &str) {
    let start = out.len();
    out.push(kind);
    for text in [room.as_str(), name] {
        let Ok(length) = u16::try_from(text.len()) else { return out.truncate(start) };
        out.extend(length.to_be_bytes());
        out.extend(text.as_bytes());
    }
}

impl RemoteRooms {
    /// Number of rooms.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    /// Rooms of a service after an address, in order, with their names.
    pub(crate) fn page(&self, service: &str, after: Option<JidRef<'_>>, limit: usize) -> Vec<(Jid, String)> {
        let rooms = self.0.lock();
        let from = after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let later = rooms.range::<str, _>((from, Bound::Unbounded));
        let of_service = later.filter(|(room, _)| room.domain() == service).take(limit);
        of_service.map(|(room, one)| (room.clone(), String::from(&*one.name))).collect()
    }

    /// Only these nodes are left.
    fn retain(&self, members: &[NodeId]) {
        self.0.lock().retain(|_, one| members.contains(&one.node));
    }

    /// Applies changes of a node; whether it wants the rooms of this node, or `None` if they are invalid.
    fn apply(&self, node: NodeId, mut changes: &[u8]) -> Option<bool> {
        let mut is_asked = false;
        let mut rooms = self.0.lock();
        while let Some((kind, rest)) = changes.split_first() {
            changes = rest;
            match *kind {
                ALL => rooms.retain(|_, one| one.node != node),
                SEND_ALL => is_asked = true,
                LISTED | NOT_LISTED => {
                    let room = JidRef::from_normalised(field(&mut changes)?)?.to_jid();
                    let name = field(&mut changes)?;
                    if *kind == NOT_LISTED {
                        if rooms.get(&room).is_some_and(|one| one.node == node) {
                            rooms.remove(&room);
                        }
                    } else if rooms.len() < MAX_ROOMS || rooms.contains_key(&room) {
                        rooms.insert(room, RemoteRoom { node, name: name.into() });
                    }
                }
                _ => return None,
            }
        }
        Some(is_asked)
    }
}

impl RoomShared {
    /// Announces changes of this node's rooms to the others, and sends all rooms to those that have asked. One task does that at a
    /// time: others would send older states after newer ones.
    pub(crate) fn announce_rooms(&self, node: &Arc<Node>) {
        let mut next = self.directory.next_notice(false);
        let mut unreached = Vec::new();
        while let Some(notice) = next {
            match notice {
                _ if node.is_single() => {}
                ListNotice::Changes(changed) => self.announce_changes(node, changed),
                ListNotice::All(to) => unreached.extend((!self.send_all_rooms(node, to)).then_some(to)),
            }
            next = self.directory.next_notice(true);
        }
        for to in unreached {
            self.directory.add_asker(to);
        }
    }

    fn announce_changes(&self, node: &Arc<Node>, changed: Vec<(Jid, Option<String>)>) {
        let mut content = Vec::new();
        for (room, name) in changed {
            let kind = if name.is_some() { LISTED } else { NOT_LISTED };
            put_room_change(&mut content, kind, &room, name.as_deref().unwrap_or_default());
            if content.len() >= NOTICE_BYTES {
                self.send_rooms(node, &std::mem::take(&mut content));
            }
        }
        self.send_rooms(node, &content);
    }

    /// Asks all other nodes for their rooms.
    pub(crate) fn ask_for_rooms(&self, node: &Arc<Node>) {
        self.send_rooms(node, &[SEND_ALL]);
    }

    fn ask_node(&self, node: &Arc<Node>, to: NodeId) {
        let Some(host) = node.host(self.domain()) else { return };
        let is_member = node.cluster.members().iter().any(|member| member.node == to);
        if is_member && !send_notice_to(node, to, &host, NOTICE, &[SEND_ALL]) {
            self.nodes_to_ask.lock().insert(to);
        }
    }

    fn send_rooms(&self, node: &Arc<Node>, content: &[u8]) {
        let (Some(peers), Some(host)) = (node.peers(), node.host(self.domain())) else { return };
        if !content.is_empty() {
            peers.send_notice(node, &host, NOTICE, content);
        }
    }

    /// Nodes have left.
    pub(crate) fn forget_rooms_of_others(&self, node: &Node) {
        let members: Vec<NodeId> = node.cluster.members().iter().map(|member| member.node).collect();
        self.remote_rooms.retain(&members);
    }

    /// Another node has announced rooms, or asks for those of this node.
    pub(crate) fn handle_room_notice(&self, ctx: &NoticeCtx<'_>) {
        let (from, content) = match (ctx.from, ctx.content) {
            (Some(from), Some(content)) => (from, content),
            // Only that node: all others would send all their rooms whenever one joins.
            (Some(from), None) => return self.ask_node(ctx.node, from),
            (None, _) => return self.ask_for_rooms(ctx.node),
        };
        match self.remote_rooms.apply(from, content) {
            Some(false) => {}
            Some(true) => {
                self.directory.add_asker(from);
                self.announce_rooms(ctx.node);
            }
            None => tracing::error!(%from, "a node has sent an invalid list of rooms"),
        }
    }

    /// Asks nodes for lists, and sends lists to nodes, whose queues were full.
    pub(crate) fn send_due_lists(&self, node: &Arc<Node>) {
        let nodes = std::mem::take(&mut *self.nodes_to_ask.lock());
        nodes.into_iter().for_each(|to| self.ask_node(node, to));
        if self.directory.has_askers() {
            self.announce_rooms(node);
        }
    }

    /// Sends all rooms to a node; false if it must get them again later.
    fn send_all_rooms(&self, node: &Arc<Node>, to: NodeId) -> bool {
        if !node.cluster.members().iter().any(|member| member.node == to) {
            return true;
        }
        let Some(host) = node.host(self.domain()) else { return true };
        let (mut content, mut after) = (vec![ALL], None);
        loop {
            let page = self.directory.listed_names(after.as_ref().map(Jid::as_ref), PAGE);
            for (room, name) in &page {
                put_room_change(&mut content, LISTED, room, name);
                if content.len() >= NOTICE_BYTES
                    && !send_notice_to(node, to, &host, NOTICE, &std::mem::take(&mut content))
                {
                    return false;
                }
            }
            match page.into_iter().next_back() {
                Some((last, _)) => after = Some(last),
                None => break,
            }
        }
        send_notice_to(node, to, &host, NOTICE, &content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_of_other_nodes_are_replaced_removed_and_never_taken_from_invalid_notices() {
        let jid = |text: &str| Jid::parse(text).unwrap();
        let (one, other) = (NodeId::new("one").unwrap(), NodeId::new("other").unwrap());
        let rooms = RemoteRooms::default();
        let mut changes = Vec::new();
        put_room_change(&mut changes, LISTED, &jid("a@chat.example"), "A");
        put_room_change(&mut changes, LISTED, &jid("b@chat.example"), "B");
        assert_eq!(rooms.apply(one, &changes), Some(false));
        for end in 1..changes.len() {
            // A part may be valid, and nothing panics.
            let _ = rooms.apply(one, &changes[..end]);
        }
        let names =
            || rooms.page("chat.example", None, 9).into_iter().map(|(_, name)| name).collect::<String>();
        assert_eq!(names(), "AB");
        let after = jid("a@chat.example");
        assert_eq!(rooms.page("chat.example", Some(after.as_ref()), 9).len(), 1);
        // It has moved, and its former node says that it has it no more.
        let mut moved = Vec::new();
        put_room_change(&mut moved, LISTED, &jid("b@chat.example"), "C");
        rooms.apply(other, &moved);
        let mut gone = Vec::new();
        put_room_change(&mut gone, NOT_LISTED, &jid("b@chat.example"), "");
        rooms.apply(one, &gone);
        assert_eq!(names(), "AC");
        assert_eq!(rooms.apply(one, &[ALL, SEND_ALL]), Some(true));
        assert_eq!(names(), "C");
        assert_eq!(rooms.apply(one, &[9]), None);
        rooms.retain(&[one]);
        assert_eq!(rooms.len(), 0);
    }
}
