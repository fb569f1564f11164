//! Received stanzas of rooms: copies of messages, self-presence (XEP-0045, section 7.2.3), and errors.
//!
//! A copy is recognized by its `id`, and presence of others is not parsed: only a user that waits for a room examines it.
//!
//! # Pitfalls
//!
//! The history of a room (section 7.2.13) has the ids of its messages. It is distinguished by its delay (XEP-0203) and by
//! the time at which the messages were due.

use stanza::kind::PresenceType;
use stanza::{Head, PayloadNs};
use xml::{Ns, Tree};

use super::connection::LIMITS;
use super::event_loop::WorkerEngine;
use super::negotiate::error_condition;
use super::room_accounting::{CopyKind, RoomIndex};
use super::room_message_id::RoomMessageId;
use super::rooms::OccupancyState;
use super::slot::UserSlot;
use super::virtual_user::WaitState;
use crate::measure::{Counter, Gauge, Timing};

/// Status codes of a self-presence (section 15.6).
#[derive(Clone, Copy, Default)]
struct RoomStatus {
    /// 110: the presence is the recipient's own.
    own: bool,
    /// 201: the room has been created.
    created: bool,
    /// 303: the nickname changes.
    renamed: bool,
}

impl WorkerEngine<'_> {
    /// Handles a numbered message from a room, or one that the room returned.
    pub(super) fn room_message(
        &mut self,
        slot: UserSlot,
        is_error: bool,
        id: RoomMessageId,
        bytes: &[u8],
        head: &Head,
        now: u64,
    ) {
        if is_error {
            return self.room_message_refused(slot, id, bytes, now);
        }
        let same_clock = self.same_clock(id.worker);
        let delayed = head.payloads().contains(PayloadNs::Delay);
        let user = &mut self.users[slot];
        let account = user.account;
        let Some(occupancy) =
            user.rooms_mut().and_then(|rooms| rooms.rooms.iter_mut().find(|it| it.hash == id.room))
        else {
            return self.record.add(Counter::RoomCopiesOutside, 1);
        };
        if delayed && (!occupancy.is_joined() || !same_clock || id.due < occupancy.joined_at) {
            return self.record.add(Counter::RoomHistory, 1);
        }
        if !occupancy.is_joined() {
            return self.record.add(Counter::RoomCopiesOutside, 1);
        }
        let room = occupancy.room;
        match self.rooms.arrive(room, &mut occupancy.cursor, id.worker, id.number) {
            CopyKind::New => {}
            CopyKind::Duplicate => return self.record.add(Counter::RoomCopiesDuplicate, 1),
            CopyKind::Invalid => return self.record.add(Counter::MessagesForeign, 1),
        }
        let own = id.sender == account && id.worker == self.assignment.worker;
        if own && occupancy.outstanding > 0 {
            occupancy.outstanding -= 1;
            self.record.adjust_gauge(Gauge::UnderWay, -1);
        }
        self.record.add(Counter::RoomCopies, 1);
        if same_clock {
            let took = now.saturating_sub(id.due);
            self.record.time(Timing::RoomMessage, took);
            self.record_acceptable(slot, took);
        }
        if own {
            self.room_message_resolved(slot, room, id.number, now);
        }
    }

    fn room_message_refused(&mut self, slot: UserSlot, id: RoomMessageId, bytes: &[u8], now: u64) {
        let own = id.sender == self.users[slot].account && id.worker == self.assignment.worker;
        if !own || !self.rooms.refuse(id.room, id.number) {
            return self.record.add(Counter::MessagesForeign, 1);
        }
        let condition = error_condition(bytes, &self.users[slot].scope);
        self.record.error(&format!("room_message:{condition}"));
        self.record.add(Counter::RoomMessagesRefused, 1);
        let rooms = self.users[slot].rooms_mut();
        let Some(occupancy) = rooms.and_then(|rooms| rooms.rooms.iter_mut().find(|it| it.hash == id.room))
        else {
            return;
        };
        let room = occupancy.room;
        if occupancy.outstanding > 0 {
            occupancy.outstanding -= 1;
            self.record.adjust_gauge(Gauge::UnderWay, -1);
        }
        self.room_message_resolved(slot, room, id.number, now);
    }

    /// Resumes the sender if it waits for this message, whose outcome is now known.
    fn room_message_resolved(&mut self, slot: UserSlot, room: RoomIndex, number: u32, now: u64) {
        let user = &mut self.users[slot];
        if user.wait == WaitState::RoomCopy
            && user.rooms_mut().is_some_and(|rooms| rooms.awaited == Some((room, number)))
        {
            self.resume_program(slot, now);
        }
    }

    /// Whether this worker's clock is that of another one.
    pub(super) fn same_clock(&self, worker: u16) -> bool {
        let clocks = &self.assignment.clocks;
        clocks.get(usize::from(worker)) == clocks.get(usize::from(self.assignment.worker))
    }

    /// Handles presence from a room. False if it is not from one that the user joins, leaves or is in.
    pub(super) fn room_presence(
        &mut self,
        slot: UserSlot,
        kind: PresenceType,
        bytes: &[u8],
        head: &Head,
        now: u64,
    ) -> bool {
        if self.users[slot].rooms().is_empty() {
            return false;
        }
        if kind == PresenceType::Available
            && let Some(id) = head.raw_id(bytes)
            && let Some(id) = RoomMessageId::read(id, b'O', self.assignment.run)
        {
            // Servers are free to change the id of presence; those that keep it are measured.
            if self.same_clock(id.worker) {
                self.record.time(Timing::RoomPresence, now.saturating_sub(id.due));
            }
            return true;
        }
        let concerns = match kind {
            PresenceType::Error => true,
            PresenceType::Available | PresenceType::Unavailable => {
                head.payloads().contains(PayloadNs::MucUser)
                    && (kind == PresenceType::Unavailable || self.has_pending_rooms(slot))
                    && memchr::memmem::find(bytes, b"110").is_some()
            }
            _ => false,
        };
        if !concerns {
            return false;
        }
        let Some(from) = head.from(bytes) else { return false };
        let (address, nick) = from.split_once('/').unwrap_or((&from, ""));
        let room = self.users[slot].rooms().iter().map(|it| it.room);
        let Some(room) = room.into_iter().find(|room| self.rooms.address(*room) == address) else {
            return false;
        };
        let status = self.room_status(slot, bytes);
        match kind {
            PresenceType::Error => {
                let condition = error_condition(bytes, &self.users[slot].scope);
                self.room_presence_refused(slot, room, &condition, now);
            }
            _ if !status.own => return false,
            PresenceType::Available => self.own_room_presence(slot, room, nick, status, now),
            _ => self.left_room(slot, room, status, now),
        }
        if self.users[slot].wait == WaitState::Rooms && !self.has_pending_rooms(slot) {
            self.resume_program(slot, now);
        }
        true
    }

    fn room_status(&self, slot: UserSlot, bytes: &[u8]) -> RoomStatus {
        let mut status = RoomStatus::default();
        let Ok(tree) = Tree::parse(bytes, &self.users[slot].scope, &LIMITS) else { return status };
        let Some(x) = tree.root().child("x", Ns::MucUser) else { return status };
        for code in x.child_elements().filter(|child| child.name() == "status") {
            match code.attr("code").as_deref() {
                Some("110") => status.own = true,
                Some("201") => status.created = true,
                Some("303") => status.renamed = true,
                _ => {}
            }
        }
        status
    }

    /// The user has joined, or has its new nickname.
    fn own_room_presence(
        &mut self,
        slot: UserSlot,
        room: RoomIndex,
        nick: &str,
        status: RoomStatus,
        now: u64,
    ) {
        let Some(occupancy) = self.occupancy(slot, room) else { return };
        let (due, took) = (occupancy.due, now.saturating_sub(occupancy.due));
        match &occupancy.state {
            OccupancyState::Joining => {
                // The room may have changed the nickname (status 210).
                occupancy.nick = nick.into();
                occupancy.state = OccupancyState::Joined;
                occupancy.joined_at = now;
                let cursor = self.rooms.begin(room);
                if let Some(occupancy) = self.occupancy(slot, room) {
                    occupancy.cursor = cursor;
                }
                self.record.adjust_gauge(Gauge::RoomOccupants, 1);
                self.record.add(Counter::RoomJoins, 1);
                self.record.time(Timing::RoomJoin, took);
                self.record_acceptable(slot, took);
                if status.created {
                    self.unlock_room(slot, room, due);
                }
            }
            OccupancyState::Renaming(wanted) if **wanted == *nick => {
                occupancy.nick = nick.into();
                occupancy.state = OccupancyState::Joined;
                self.record.time(Timing::RoomNick, took);
                self.record_acceptable(slot, took);
            }
            _ => {}
        }
    }

    /// The user has left, or the room has removed it.
    fn left_room(&mut self, slot: UserSlot, room: RoomIndex, status: RoomStatus, now: u64) {
        let Some(occupancy) = self.occupancy(slot, room) else { return };
        match &occupancy.state {
            // The old nickname, or the end of an earlier stay.
            OccupancyState::Renaming(_) if status.renamed => return,
            OccupancyState::Joining => return,
            OccupancyState::Leaving => {
                let took = now.saturating_sub(occupancy.due);
                self.record.time(Timing::RoomLeave, took);
                self.record.add(Counter::RoomLeaves, 1);
            }
            OccupancyState::Joined | OccupancyState::Renaming(_) => {
                self.record.error("room:removed");
                self.end_stay(slot, room);
            }
        }
        self.forget_room(slot, room);
    }

    fn room_presence_refused(&mut self, slot: UserSlot, room: RoomIndex, condition: &str, now: u64) {
        let Some(occupancy) = self.occupancy(slot, room) else { return };
        match occupancy.state {
            OccupancyState::Joining => {
                self.record.error(&format!("room_join:{condition}"));
                // A room is locked until its creator has configured it (section 10.1).
                if condition == "item-not-found" && self.retry_join(slot, room, now) {
                    return;
                }
                self.record.add(Counter::RoomJoinErrors, 1);
                self.forget_room(slot, room);
            }
            OccupancyState::Renaming(_) => {
                occupancy.state = OccupancyState::Joined;
                self.record.error(&format!("room_nick:{condition}"));
            }
            OccupancyState::Joined | OccupancyState::Leaving => {
                self.record.add(Counter::PresenceErrors, 1);
                self.record.error(&format!("room_presence:{condition}"));
            }
        }
    }

    fn forget_room(&mut self, slot: UserSlot, room: RoomIndex) {
        if let Some(rooms) = self.users[slot].rooms_mut() {
            rooms.rooms.retain(|it| it.room != room);
        }
    }

    /// Gives up what the rooms of a user have not answered in time.
    pub(super) fn rooms_timed_out(&mut self, slot: UserSlot) {
        let rooms: Vec<RoomIndex> = self.users[slot].rooms().iter().map(|it| it.room).collect();
        for room in rooms {
            let Some(occupancy) = self.occupancy(slot, room) else { continue };
            match occupancy.state {
                OccupancyState::Joining => {
                    self.record.error("room_join:timeout");
                    self.record.add(Counter::RoomJoinErrors, 1);
                    self.forget_room(slot, room);
                }
                OccupancyState::Renaming(_) => {
                    occupancy.state = OccupancyState::Joined;
                    self.record.error("room_nick:timeout");
                }
                OccupancyState::Leaving => {
                    self.record.error("room_leave:timeout");
                    self.forget_room(slot, room);
                }
                OccupancyState::Joined => {}
            }
        }
    }
}
