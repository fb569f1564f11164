//! Rooms of a node that is not their owner any more: other members of the cluster joined, or came back.
//!
//! The occupants leave with the status 333, and their clients enter again, at the owner. A room is not moved with its occupants.

use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use jid::JidRef;
use throng_core::Node;
use throng_core::node_extensions::Swept;

use crate::room_task::{RoomInput, RoomMessage, RoomShared};

/// Seconds between two checks.
const CHECK_SECONDS: u32 = 4;

/// The rooms of a node's domains.
#[derive(Default)]
pub(crate) struct RoomOwnership(LeafMutex<Vec<Weak<RoomShared>>>);

impl RoomOwnership {
    /// From now on, the rooms of a domain are checked.
    pub(crate) fn add(&self, rooms: &Arc<RoomShared>) {
        let mut all = self.0.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(rooms));
    }
}

impl Swept for RoomOwnership {
    fn sweep(&self, node: &Arc<Node>, now: u32) {
        if !now.is_multiple_of(CHECK_SECONDS) {
            return;
        }
        let all: Vec<Arc<RoomShared>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        for rooms in all {
            let Some(tasks) = rooms.tasks() else { continue };
            for room in rooms.directory.rooms() {
                if is_owned_elsewhere(node, room.as_ref()) {
                    let message = RoomMessage { node: node.clone(), input: RoomInput::OwnerChanged };
                    // A full mailbox is tried again.
                    let _ = tasks.try_send(&node.spawner, &room, message, 64);
                }
            }
        }
    }
}

/// Whether another node owns a room.
pub(crate) fn is_owned_elsewhere(node: &Node, room: JidRef<'_>) -> bool {
    !node.is_single() && node.cluster.owner(node.routing_table.hash(room)) != node.cluster.node()
}
