//! What is done from time to time: rooms in memory learn of removed accounts, of other administrators of the node, and that a write that
//! failed is due again, and nodes whose queues were full get lists of rooms.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::Provided;
use base::lock::LeafMutex;
use jid::Jid;
use throng_core::Node;
use throng_core::node_extensions::Swept;

use crate::FEATURE;
use crate::removed_accounts::update_if_used;
use crate::room_input::RoomInput;
use crate::room_shared::RoomShared;

/// Seconds after which new removals of accounts are read, if no notice says that there are some.
const REMOVALS_SECONDS: u32 = 10;
/// Seconds after which a write that failed is tried again.
const WRITE_SECONDS: u32 = 5;
/// Rooms whose writes are tried again. Others are written with their next input only.
const MAX_UNWRITTEN: usize = 10_000;

/// The rooms of a domain: an account of any domain may be in their lists.
pub(crate) struct RoomsOfHost(pub(crate) Arc<RoomShared>);

impl Provided for RoomsOfHost {
    const NAME: &'static str = "the rooms of a host";
}

/// The rooms of all domains of a node.
pub(crate) fn shared_rooms(node: &Node) -> Vec<Arc<RoomShared>> {
    let mut all = Vec::new();
    for host in node.hosts() {
        let has_rooms = host.services.iter().any(|service| service.feature == FEATURE.name);
        if let Some(RoomsOfHost(rooms)) = host.extensions.get().filter(|_| has_rooms) {
            all.push(rooms.clone());
        }
    }
    all
}

/// Rooms with writes that failed: they stay in memory until the writes succeed, or for some minutes.
#[derive(Default)]
pub(crate) struct UnwrittenRooms(LeafMutex<BTreeSet<Jid>>);

impl UnwrittenRooms {
    /// Adds a room, if there are not too many.
    pub(crate) fn add(&self, room: &Jid) {
        let mut rooms = self.0.lock();
        if rooms.len() < MAX_UNWRITTEN {
            rooms.insert(room.clone());
        }
    }

    /// Removes a room.
    pub(crate) fn remove(&self, room: &Jid) {
        self.0.lock().remove(room);
    }

    /// Whether a room is among them.
    pub(crate) fn contains(&self, room: &Jid) -> bool {
        self.0.lock().contains(room)
    }

    fn all(&self) -> Vec<Jid> {
        self.0.lock().iter().cloned().collect()
    }
}

/// The sweep of a node, one of its extensions.
#[derive(Default)]
pub(crate) struct RoomSweep {
    /// Administrators of the node at the last sweep.
    admins: LeafMutex<Option<Vec<Jid>>>,
}

impl RoomSweep {
    /// Rooms are used from here on: later changes of the administrators are noticed.
    pub(crate) fn start(&self, node: &Node) {
        let admins = node.admins();
        self.admins.lock().get_or_insert(admins);
    }

    /// Whether the administrators have changed since the last sweep.
    fn notes_other_admins(&self, node: &Node) -> bool {
        let admins = node.admins();
        let mut known = self.admins.lock();
        let is_other = known.as_ref().is_some_and(|known| *known != admins);
        *known = Some(admins);
        is_other
    }
}

impl Swept for RoomSweep {
    fn sweep(&self, node: &Arc<Node>, now: u32) {
        if now.is_multiple_of(REMOVALS_SECONDS) {
            update_if_used(node);
        }
        let has_other_admins = self.notes_other_admins(node);
        let is_write_due = now.is_multiple_of(WRITE_SECONDS);
        if !has_other_admins && !is_write_due {
            return;
        }
        for rooms in shared_rooms(node) {
            if has_other_admins {
                rooms.send_to_all(node, rooms.directory.rooms(), || RoomInput::AdminsChanged);
            }
            if is_write_due {
                rooms.send_due_lists(node);
                rooms.send_to_all(node, rooms.unwritten.all(), || RoomInput::WriteAgain);
            }
        }
    }
}
