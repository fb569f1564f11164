//! Steps in rooms (XEP-0045): what users send to them, and which rooms a user is in.
//!
//! Not implemented: messages to rooms are not sent again after a failure of the server.
//!
//! # Pitfalls
//!
//! A stay ends when the user's leaving is *sent*: copies that arrive after it do not belong to it.

use super::event_loop::{WorkerEngine, WorkerStage};
use super::interpreter::StepOutcome;
use super::room_accounting::{RoomIndex, StayCursor};
use super::room_message_id::RoomMessageId;
use super::slot::UserSlot;
use super::virtual_user::{VirtualUser, WaitState};
use super::writer::request_id;
use crate::clock::now_us;
use crate::measure::{Counter, Gauge};
use crate::plan::room::ROOM_PREFIX;
use crate::plan::{AckMode, MessageBody, RoomSelection, RoomStep, TextTemplate};

/// Pause before another attempt to join a room that its creator has not unlocked yet, in microseconds.
const LOCKED_PAUSE: u64 = 1_000_000;
/// Attempts to join such a room.
const LOCKED_ATTEMPTS: u8 = 10;

/// Rooms of one user.
#[derive(Default)]
pub(crate) struct UserRooms {
    pub(super) rooms: Vec<RoomOccupancy>,
    /// Message whose own copy the user waits for.
    pub(super) awaited: Option<(RoomIndex, u32)>,
}

/// A user in a room, or on its way into it or out of it.
pub(crate) struct RoomOccupancy {
    pub(super) room: RoomIndex,
    pub(super) hash: u64,
    pub(super) nick: Box<str>,
    pub(super) state: OccupancyState,
    /// Due time of the pending join or change of nickname.
    pub(super) due: u64,
    /// Time of the self-presence.
    pub(super) joined_at: u64,
    pub(super) cursor: StayCursor,
    /// Own messages whose own copies have not arrived.
    pub(super) outstanding: u32,
    pub(super) history: Option<u32>,
    pub(super) attempts: u8,
}

const _: () = assert!(size_of::<RoomOccupancy>() <= 104);

/// State of an occupancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OccupancyState {
    /// The join has been sent.
    Joining,
    /// Self-presence has arrived.
    Joined,
    /// Joined, and this nickname has been requested.
    Renaming(Box<str>),
    /// The leaving has been sent.
    Leaving,
}

impl RoomOccupancy {
    /// Whether the user is in the room.
    pub(super) fn is_joined(&self) -> bool {
        matches!(self.state, OccupancyState::Joined | OccupancyState::Renaming(_))
    }
}

impl VirtualUser {
    /// Rooms of the user.
    pub(super) fn rooms(&self) -> &[RoomOccupancy] {
        self.extra.as_ref().and_then(|extra| extra.rooms.as_ref()).map_or(&[], |rooms| &rooms.rooms)
    }

    /// Rooms of the user, to be changed; `None` if it has none.
    pub(super) fn rooms_mut(&mut self) -> Option<&mut UserRooms> {
        self.extra.as_mut()?.rooms.as_deref_mut()
    }
}

impl WorkerEngine<'_> {
    /// Runs a step in rooms.
    pub(super) fn room_step(&mut self, slot: UserSlot, step: &RoomStep, due: u64) -> StepOutcome {
        let waits = match step {
            RoomStep::Join { room, nick, history, wait } => {
                for address in self.room_addresses(slot, room) {
                    self.join_room(slot, &address, nick, *history, due);
                }
                *wait
            }
            RoomStep::Leave { room, wait } => {
                for room in self.joined_rooms(slot, room) {
                    self.leave_room(slot, room, due);
                }
                *wait
            }
            RoomStep::Message { room, body, ack } => {
                let sent = self.send_room_message(slot, room, body, due);
                return self.await_room_message(slot, ack, sent);
            }
            RoomStep::Presence { room, show, status } => {
                self.send_room_presence(slot, room, show.as_ref(), status.as_ref(), due);
                false
            }
            RoomStep::Nick { room, nick, wait } => {
                for room in self.joined_rooms(slot, room) {
                    self.change_nick(slot, room, nick, due);
                }
                *wait
            }
        };
        if !waits || !self.has_pending_rooms(slot) {
            return StepOutcome::Go;
        }
        self.users[slot].wait = WaitState::Rooms;
        self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
        StepOutcome::Block
    }

    fn await_room_message(
        &mut self,
        slot: UserSlot,
        ack: &AckMode,
        sent: Option<(RoomIndex, u32)>,
    ) -> StepOutcome {
        match (ack, sent) {
            (AckMode::Delivery, None) => StepOutcome::Go,
            (AckMode::Delivery, Some(_)) => {
                if let Some(rooms) = self.users[slot].rooms_mut() {
                    rooms.awaited = sent;
                }
                self.users[slot].wait = WaitState::RoomCopy;
                self.set_response_timeout(slot, self.plan.options.answer_timeout_ms);
                StepOutcome::Block
            }
            _ => self.await_message(slot, ack, None),
        }
    }

    /// Whether the user has joins, leavings or changes of nickname that the room has not answered.
    pub(super) fn has_pending_rooms(&self, slot: UserSlot) -> bool {
        self.users[slot].rooms().iter().any(|it| it.state != OccupancyState::Joined)
    }

    /// Addresses of the selected rooms.
    fn room_addresses(&mut self, slot: UserSlot, selection: &RoomSelection) -> Vec<String> {
        let names = match selection {
            RoomSelection::Named(name) => vec![self.text(slot, name)],
            RoomSelection::Ring { offset, rooms, count } => {
                let rooms = u64::from((*rooms).max(1));
                let first = u64::from(self.users[slot].account) + u64::from(*offset);
                let count = u64::from(*count).min(rooms);
                (first..first + count).map(|room| format!("{ROOM_PREFIX}{}", room % rooms)).collect()
            }
            RoomSelection::Joined | RoomSelection::All => Vec::new(),
        };
        let service = self.plan.options.muc_service.as_deref();
        let address = |name: String| {
            let address = match service {
                _ if name.contains('@') => name,
                Some(service) => format!("{name}@{service}"),
                None => format!("{name}@conference.{}", self.names.domain()),
            };
            address.to_lowercase()
        };
        names.into_iter().map(address).collect()
    }

    /// The selected rooms that the user is in; counts an error if there are none.
    fn joined_rooms(&mut self, slot: UserSlot, selection: &RoomSelection) -> Vec<RoomIndex> {
        let addresses = self.room_addresses(slot, selection);
        let joined = self.users[slot].rooms().iter().filter(|it| it.is_joined()).map(|it| it.room);
        let mut rooms: Vec<RoomIndex> = match selection {
            RoomSelection::Joined | RoomSelection::All => joined.collect(),
            _ => joined.filter(|room| addresses.iter().any(|it| it == self.rooms.address(*room))).collect(),
        };
        if rooms.is_empty() {
            self.record.error("not-in-room");
        } else if matches!(selection, RoomSelection::Joined) {
            let chosen = self.rng.below(rooms.len() as u32) as usize;
            rooms = vec![rooms[chosen]];
        }
        rooms
    }

    fn join_room(
        &mut self,
        slot: UserSlot,
        address: &str,
        nick: &TextTemplate,
        history: Option<u32>,
        due: u64,
    ) {
        let room = self.rooms.room(address);
        let nick = self.text(slot, nick).into_boxed_str();
        self.end_stay(slot, room);
        let occupancy = RoomOccupancy {
            room,
            hash: self.rooms.hash(room),
            nick,
            state: OccupancyState::Joining,
            due,
            joined_at: 0,
            cursor: StayCursor::EMPTY,
            outstanding: 0,
            history,
            attempts: 0,
        };
        let rooms = &mut self.users[slot].extra().rooms.get_or_insert_default().rooms;
        match rooms.iter_mut().find(|it| it.room == room) {
            Some(known) => *known = occupancy,
            None => rooms.push(occupancy),
        }
        self.send_join(slot, room);
    }

    fn send_join(&mut self, slot: UserSlot, room: RoomIndex) {
        let history = self.users[slot].rooms().iter().find(|it| it.room == room).and_then(|it| it.history);
        let begin = self.begin_room_presence(slot, room, None);
        let out = &mut self.users[slot].out;
        out.extend_from_slice(b"'><x xmlns='http://jabber.org/protocol/muc'");
        match history {
            Some(most) => {
                out.extend_from_slice(format!("><history maxstanzas='{most}'/></x></presence>").as_bytes());
            }
            None => out.extend_from_slice(b"/></presence>"),
        }
        self.sent_stanza(slot, begin, Counter::PresenceSent);
    }

    /// Writes `<presence to='` and the occupant's address, with the own nickname or another one. Returns where the
    /// stanza begins.
    fn begin_room_presence(&mut self, slot: UserSlot, room: RoomIndex, nick: Option<&str>) -> usize {
        let user = &mut self.users[slot];
        let own = user.rooms().iter().find(|it| it.room == room).map(|it| it.nick.clone());
        let begin = user.out.len();
        user.out.extend_from_slice(b"<presence to='");
        xml::escape::attr(self.rooms.address(room), &mut user.out);
        user.out.push(b'/');
        xml::escape::attr(nick.or(own.as_deref()).unwrap_or_default(), &mut user.out);
        begin
    }

    fn leave_room(&mut self, slot: UserSlot, room: RoomIndex, due: u64) {
        let begin = self.begin_room_presence(slot, room, None);
        self.users[slot].out.extend_from_slice(b"' type='unavailable'/>");
        self.sent_stanza(slot, begin, Counter::PresenceSent);
        self.end_stay(slot, room);
        if let Some(occupancy) = self.occupancy(slot, room) {
            occupancy.state = OccupancyState::Leaving;
            occupancy.due = due;
        }
    }

    fn change_nick(&mut self, slot: UserSlot, room: RoomIndex, nick: &TextTemplate, due: u64) {
        let nick = self.text(slot, nick);
        let begin = self.begin_room_presence(slot, room, Some(&nick));
        self.users[slot].out.extend_from_slice(b"'/>");
        self.sent_stanza(slot, begin, Counter::PresenceSent);
        if let Some(occupancy) = self.occupancy(slot, room) {
            occupancy.state = OccupancyState::Renaming(nick.into_boxed_str());
            occupancy.due = due;
        }
    }

    /// Sends presence to rooms that was due at `due`.
    pub(super) fn send_room_presence(
        &mut self,
        slot: UserSlot,
        selection: &RoomSelection,
        show: Option<&TextTemplate>,
        status: Option<&TextTemplate>,
        due: u64,
    ) {
        for room in self.joined_rooms(slot, selection) {
            if self.skip_if_blocked(slot) {
                return;
            }
            let show = show.map(|text| self.text(slot, text));
            let status = status.map(|text| self.text(slot, text));
            let begin = self.begin_room_presence(slot, room, None);
            self.users[slot].out.push(b'\'');
            if self.plan.options.stamps {
                let id = self.room_message_id(slot, b'O', room, 0, due);
                let out = &mut self.users[slot].out;
                out.extend_from_slice(b" id='");
                id.write(out);
                out.push(b'\'');
            }
            self.end_presence(slot, begin, show.as_deref(), status.as_deref());
        }
    }

    fn room_message_id(
        &self,
        slot: UserSlot,
        class: u8,
        room: RoomIndex,
        number: u32,
        due: u64,
    ) -> RoomMessageId {
        let (run, worker) = (self.assignment.run, self.assignment.worker);
        let sender = self.users[slot].account;
        RoomMessageId { class, run, worker, number, sender, due, room: self.rooms.hash(room) }
    }

    /// Sends a message to rooms that was due at `due`. Returns the number of the last, if it is numbered.
    pub(super) fn send_room_message(
        &mut self,
        slot: UserSlot,
        selection: &RoomSelection,
        body: &MessageBody,
        due: u64,
    ) -> Option<(RoomIndex, u32)> {
        let mut sent = None;
        for room in self.joined_rooms(slot, selection) {
            if self.skip_if_blocked(slot) {
                return sent;
            }
            let text = match body {
                MessageBody::Text(text) => Some(self.text(slot, text)),
                MessageBody::Size(_) => None,
            };
            let begin = self.users[slot].out.len();
            let out = &mut self.users[slot].out;
            out.extend_from_slice(b"<message type='groupchat' to='");
            xml::escape::attr(self.rooms.address(room), out);
            let mut counter = Counter::MessagesElsewhere;
            if self.plan.options.stamps {
                counter = Counter::RoomMessagesSent;
                let number = self.rooms.number(room, self.users[slot].account, now_us());
                sent = Some((room, number));
                let id = self.room_message_id(slot, b'G', room, number, due);
                let out = &mut self.users[slot].out;
                out.extend_from_slice(b"' id='");
                id.write(out);
                self.record.adjust_gauge(Gauge::UnderWay, 1);
                if let Some(occupancy) = self.occupancy(slot, room) {
                    occupancy.outstanding += 1;
                }
            }
            let out = &mut self.users[slot].out;
            out.extend_from_slice(b"'><body>");
            super::writer::write_body(text.as_deref(), body, out);
            out.extend_from_slice(b"</body></message>");
            self.sent_stanza(slot, begin, counter);
        }
        sent
    }

    /// Accepts the default configuration of a room that the user has created (section 10.1.2), which unlocks it.
    pub(super) fn unlock_room(&mut self, slot: UserSlot, room: RoomIndex, due: u64) {
        let number = self.begin_request(slot);
        let out = &mut self.users[slot].out;
        let begin = out.len();
        out.extend_from_slice(b"<iq type='set' id='");
        request_id(b'M', number, due, out);
        out.extend_from_slice(b"' to='");
        xml::escape::attr(self.rooms.address(room), out);
        out.extend_from_slice(
            b"'><query xmlns='http://jabber.org/protocol/muc#owner'><x xmlns='jabber:x:data' type='submit'/></query></iq>",
        );
        self.sent_stanza(slot, begin, Counter::IqSent);
    }

    /// Schedules another attempt to join a locked room. False after too many.
    pub(super) fn retry_join(&mut self, slot: UserSlot, room: RoomIndex, now: u64) -> bool {
        let arrived = self.users[slot].arrived;
        let Some(occupancy) = self.occupancy(slot, room) else { return false };
        occupancy.attempts += 1;
        if occupancy.attempts > LOCKED_ATTEMPTS {
            return false;
        }
        self.locked_rooms.push_back((now + LOCKED_PAUSE, slot, arrived, room));
        true
    }

    /// Sends the joins that are due again.
    pub(super) fn retry_joins(&mut self, now: u64) {
        while let Some(&(at, slot, arrived, room)) = self.locked_rooms.front() {
            if now < at {
                break;
            }
            self.locked_rooms.pop_front();
            let user = &self.users[slot];
            let joins = |it: &RoomOccupancy| it.room == room && it.state == OccupancyState::Joining;
            if user.arrived == arrived && user.rooms().iter().any(joins) && self.may_act() {
                self.send_join(slot, room);
            }
        }
        self.flush();
    }

    pub(super) fn occupancy(&mut self, slot: UserSlot, room: RoomIndex) -> Option<&mut RoomOccupancy> {
        self.users[slot].rooms_mut()?.rooms.iter_mut().find(|it| it.room == room)
    }

    /// Ends the stay of a user in a room, if it is in it.
    pub(super) fn end_stay(&mut self, slot: UserSlot, room: RoomIndex) {
        let to_the_end = matches!(self.stage, WorkerStage::Closing(_));
        let Some(occupancy) = self.occupancy(slot, room) else { return };
        if !occupancy.is_joined() {
            return;
        }
        occupancy.state = OccupancyState::Leaving;
        let outstanding = std::mem::take(&mut occupancy.outstanding);
        let (cursor, joined_at) = (occupancy.cursor, occupancy.joined_at);
        self.rooms.end(room, cursor, joined_at, to_the_end);
        self.record.adjust_gauge(Gauge::UnderWay, -i64::from(outstanding));
        self.record.adjust_gauge(Gauge::RoomOccupants, -1);
    }

    /// Ends all stays of a user whose session is over, and the events of PubSub nodes.
    pub(super) fn end_stays(&mut self, slot: UserSlot) {
        self.end_all_events(slot);
        let joined: Vec<RoomIndex> = self.users[slot].rooms().iter().map(|it| it.room).collect();
        for room in joined {
            self.end_stay(slot, room);
        }
        if let Some(extra) = &mut self.users[slot].extra {
            extra.rooms = None;
        }
    }
}
