//! The rooms of a service that are in memory: for their list, and for the limits of rooms.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use base::lock::LeafMutex;
use cluster::NodeId;
use hashbrown::HashMap;
use jid::{Jid, JidRef};

use crate::room::Room;

/// Details of a room in the list of rooms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoomSummary {
    pub(crate) name: String,
    pub(crate) is_public: bool,
    pub(crate) is_persistent: bool,
    pub(crate) occupants: usize,
    pub(crate) creator: Jid,
    pub(crate) description: Box<str>,
    pub(crate) language: Box<str>,
    /// Everybody may enter it.
    pub(crate) is_open: bool,
    pub(crate) is_non_anonymous: bool,
    /// Memory that it counts; see [`Room::memory_bytes`].
    pub(crate) bytes: usize,
}

impl RoomSummary {
    /// Whether it is in the list of rooms and not in the store.
    pub(crate) fn is_listed(&self) -> bool {
        self.is_public && !self.is_persistent
    }
}

/// The rooms in memory that one user has created.
#[derive(Default)]
struct CreatedRooms {
    number: usize,
    /// Memory of all of them.
    bytes: usize,
}

#[derive(Default)]
struct DirectoryState {
    rooms: BTreeMap<Jid, RoomSummary>,
    creators: HashMap<Jid, CreatedRooms>,
    /// Those that are listed: the lock is that of every room, so nobody looks for them among all.
    listed: BTreeSet<Jid>,
    /// Rooms of which other nodes must be notified: whether they are listed has changed.
    unannounced: BTreeSet<Jid>,
    /// Nodes to which all listed rooms must be sent.
    askers: BTreeSet<NodeId>,
    /// A task sends changes.
    is_announcing: bool,
}

/// What other nodes must learn of the list of rooms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ListNotice {
    /// All listed rooms, for this node.
    All(NodeId),
    /// Rooms whose place in the list has changed, with the names of those that are listed, for all nodes.
    Changes(Vec<(Jid, Option<String>)>),
}

impl DirectoryState {
    fn put(&mut self, room: &Jid, summary: RoomSummary) {
        let name = |summary: &RoomSummary| summary.is_listed().then(|| summary.name.clone());
        if name(&summary) != self.rooms.get(room).and_then(name) {
            self.unannounced.insert(room.clone());
        }
        match summary.is_listed() {
            true => self.listed.insert(room.clone()),
            false => self.listed.remove(room),
        };
        let created = self.creators.entry(summary.creator.clone()).or_default();
        created.number += 1;
        created.bytes += summary.bytes;
        if let Some(before) = self.rooms.insert(room.clone(), summary) {
            self.uncount(&before);
        }
    }

    /// A user has created one room less.
    fn uncount(&mut self, summary: &RoomSummary) {
        if let Some(created) = self.creators.get_mut(&summary.creator) {
            created.number -= 1;
            created.bytes -= summary.bytes;
            if created.number == 0 {
                self.creators.remove(&summary.creator);
            }
        }
    }

    /// The memory of a room has changed.
    fn set_bytes(&mut self, room: &Jid, bytes: usize) {
        let Some(summary) = self.rooms.get_mut(room) else { return };
        let before = std::mem::replace(&mut summary.bytes, bytes);
        if let Some(created) = self.creators.get_mut(&summary.creator) {
            created.bytes = created.bytes - before + bytes;
        }
    }

    /// Memory of all rooms of a user.
    fn bytes_of(&self, creator: &Jid) -> usize {
        self.creators.get(creator).map_or(0, |created| created.bytes)
    }
}

/// The rooms by address.
#[derive(Default)]
pub(crate) struct RoomDirectory(LeafMutex<DirectoryState>);

/// Why a room cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoomLimit {
    Rooms,
    RoomsOfUser,
    MemoryOfUser,
}

impl RoomDirectory {
    /// Adds a room that is being created.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn add_created(
        &self,
        room: &Jid,
        creator: &Jid,
        rooms: usize,
        rooms_per_user: usize,
        memory_per_user: usize,
    ) -> Result<(), RoomLimit> {
        let mut state = self.0.lock();
        if state.rooms.len() >= rooms {
            return Err(RoomLimit::Rooms);
        }
        if state.creators.get(creator).is_some_and(|created| created.number >= rooms_per_user) {
            return Err(RoomLimit::RoomsOfUser);
        }
        if state.bytes_of(creator) > memory_per_user {
            return Err(RoomLimit::MemoryOfUser);
        }
        let summary = RoomSummary {
            name: String::new(),
            is_public: false,
            is_persistent: false,
            occupants: 0,
            creator: creator.clone(),
            description: Box::default(),
            language: Box::default(),
            is_open: false,
            is_non_anonymous: false,
            bytes: 0,
        };
        state.put(room, summary);
        Ok(())
    }

    /// Adds or replaces a room; whether all rooms of its creator take more than `memory_per_user`.
    pub(crate) fn put(&self, room: &Room, memory_per_user: usize) -> bool {
        let bytes = room.memory_bytes();
        let mut state = self.0.lock();
        let is_same = state.rooms.get(room.jid()).is_some_and(|summary| {
            summary.occupants == room.occupant_count()
                && summary.is_public == room.is_public()
                && summary.is_persistent == room.is_persistent()
                && summary.name == room.name()
                && room.has_details(summary)
        });
        if !is_same {
            state.put(room.jid(), room.summary());
        }
        state.set_bytes(room.jid(), bytes);
        state.bytes_of(room.creator()) > memory_per_user
    }

    /// Removes a room.
    pub(crate) fn remove(&self, room: &Jid) {
        let mut state = self.0.lock();
        let Some(summary) = state.rooms.remove(room) else { return };
        if state.listed.remove(room) {
            state.unannounced.insert(room.clone());
        }
        state.uncount(&summary);
    }

    /// Listed rooms of a service after an address, in order.
    pub(crate) fn listed_page(
        &self,
        service: &str,
        after: Option<JidRef<'_>>,
        limit: usize,
    ) -> Vec<(Jid, RoomSummary)> {
        let state = self.0.lock();
        let from = after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let later = state.listed.range::<str, _>((from, Bound::Unbounded));
        let of_service = later.filter(|room| room.domain() == service).take(limit);
        of_service.filter_map(|room| Some((room.clone(), state.rooms.get(room)?.clone()))).collect()
    }

    /// All listed rooms after an address, in order, with their names.
    pub(crate) fn listed_names(&self, after: Option<JidRef<'_>>, limit: usize) -> Vec<(Jid, String)> {
        let state = self.0.lock();
        let from = after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let later = state.listed.range::<str, _>((from, Bound::Unbounded)).take(limit);
        later.filter_map(|room| Some((room.clone(), state.rooms.get(room)?.name.clone()))).collect()
    }

    /// Another node must get all listed rooms.
    pub(crate) fn add_asker(&self, node: NodeId) {
        self.0.lock().askers.insert(node);
    }

    /// Whether a node must get all listed rooms.
    pub(crate) fn has_askers(&self) -> bool {
        !self.0.lock().askers.is_empty()
    }

    /// What must be sent next; `None` if there is nothing, or another task sends. The caller sends it before it calls this again,
    /// with `is_sender`: notices have one order, in which none is older than an earlier one.
    pub(crate) fn next_notice(&self, is_sender: bool) -> Option<ListNotice> {
        let mut state = self.0.lock();
        if state.is_announcing && !is_sender {
            return None;
        }
        state.is_announcing = !state.askers.is_empty() || !state.unannounced.is_empty();
        if let Some(asker) = state.askers.pop_first() {
            return Some(ListNotice::All(asker));
        }
        if state.unannounced.is_empty() {
            return None;
        }
        let changed = std::mem::take(&mut state.unannounced);
        let name = |room: &Jid| {
            let listed = state.rooms.get(room).filter(|summary| summary.is_listed());
            listed.map(|summary| summary.name.clone())
        };
        Some(ListNotice::Changes(
            changed.into_iter().map(|room| (name(&room), room)).map(|(name, room)| (room, name)).collect(),
        ))
    }

    /// A room that is in memory.
    pub(crate) fn summary(&self, room: &Jid) -> Option<RoomSummary> {
        self.0.lock().rooms.get(room).cloned()
    }

    /// Rooms of a service after an address, in order.
    pub(crate) fn page(
        &self,
        service: &str,
        after: Option<JidRef<'_>>,
        limit: usize,
        choose: impl Fn(&RoomSummary) -> bool,
    ) -> Vec<(Jid, RoomSummary)> {
        let state = self.0.lock();
        let of_service = |room: &Jid| room.domain() == service;
        let from = after.as_ref().map_or(Bound::Unbounded, |after| Bound::Excluded(after.as_str()));
        let later = state.rooms.range::<str, _>((from, Bound::Unbounded));
        let chosen = later.filter(|(room, summary)| of_service(room) && choose(summary));
        chosen.take(limit).map(|(room, summary)| (room.clone(), summary.clone())).collect()
    }

    /// The addresses of all rooms.
    pub(crate) fn rooms(&self) -> Vec<Jid> {
        self.0.lock().rooms.keys().cloned().collect()
    }

    /// Whether it has a room that `choose` selects.
    pub(crate) fn contains(&self, room: &Jid, choose: impl Fn(&RoomSummary) -> bool) -> bool {
        self.0.lock().rooms.get(room).is_some_and(choose)
    }

    /// Occupants of a room; none if it is not in use.
    pub(crate) fn occupants(&self, room: &Jid) -> usize {
        self.0.lock().rooms.get(room).map_or(0, |summary| summary.occupants)
    }

    /// Number of listed rooms.
    pub(crate) fn listed(&self) -> usize {
        self.0.lock().listed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_limited_for_the_service_and_for_each_user() {
        let jid = |text: &str| Jid::parse(text).unwrap();
        let directory = RoomDirectory::default();
        let (crone, hag) = (jid("crone1@shakespeare.lit"), jid("hag66@shakespeare.lit"));
        let add = |room: &str, user: &Jid| directory.add_created(&jid(room), user, 3, 2, 9);
        assert_eq!(add("a@chat.shakespeare.lit", &crone), Ok(()));
        assert_eq!(add("b@chat.shakespeare.lit", &crone), Ok(()));
        assert_eq!(add("c@chat.shakespeare.lit", &crone), Err(RoomLimit::RoomsOfUser));
        assert_eq!(add("c@chat.shakespeare.lit", &hag), Ok(()));
        assert_eq!(add("d@chat.shakespeare.lit", &hag), Err(RoomLimit::Rooms));
        directory.remove(&jid("b@chat.shakespeare.lit"));
        assert_eq!(add("d@chat.shakespeare.lit", &crone), Ok(()));
        let page =
            directory.page("chat.shakespeare.lit", Some(jid("a@chat.shakespeare.lit").as_ref()), 1, |_| true);
        assert_eq!(page[0].0, jid("c@chat.shakespeare.lit"));
        assert_eq!(directory.listed(), 0);
    }

    #[test]
    fn one_task_at_a_time_announces_changes_and_sends_lists() {
        let jid = |text: &str| Jid::parse(text).unwrap();
        let directory = RoomDirectory::default();
        assert_eq!(directory.next_notice(false), None);
        let (room, other) = (jid("a@chat.shakespeare.lit"), NodeId::new("other").unwrap());
        let list = |is_public| {
            let summary = RoomSummary {
                name: "A".to_owned(),
                is_public,
                is_persistent: false,
                occupants: 1,
                creator: jid("crone1@shakespeare.lit"),
                description: Box::default(),
                language: Box::default(),
                is_open: true,
                is_non_anonymous: false,
                bytes: 0,
            };
            directory.0.lock().put(&room, summary);
        };
        list(true);
        let listed = ListNotice::Changes(vec![(room.clone(), Some("A".to_owned()))]);
        assert_eq!(directory.next_notice(false), Some(listed), "the first task sends it");
        // The room is hidden before that one has sent what it has.
        list(false);
        directory.add_asker(other);
        assert_eq!(directory.next_notice(false), None, "another task does not overtake it");
        assert_eq!(directory.next_notice(true), Some(ListNotice::All(other)));
        let hidden = ListNotice::Changes(vec![(room.clone(), None)]);
        assert_eq!(directory.next_notice(true), Some(hidden));
        assert_eq!(directory.next_notice(true), None);
        list(true);
        assert!(directory.next_notice(false).is_some(), "it has ended");
    }
}
