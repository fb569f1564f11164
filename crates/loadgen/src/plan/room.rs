//! Steps in rooms (XEP-0045): joining, leaving, messages, presence and nicknames.
//!
//! Not implemented: passwords, private messages, configuration and everything else that only owners do.

use serde::{Deserialize, Serialize};

use super::{AckMode, MessageBody, TextTemplate};

/// Prefix of the names of numbered rooms: room 7 is `room7`.
pub(crate) const ROOM_PREFIX: &str = "room";

/// Choice of rooms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RoomSelection {
    /// A name at the MUC service of the plan, or an address.
    Named(TextTemplate),
    /// Numbered rooms in a ring: those from the user's own number plus `offset` on, modulo `rooms`.
    Ring {
        /// Added to the user's number.
        offset: u32,
        /// Number of rooms in the ring.
        rooms: u32,
        /// Number of consecutive rooms.
        count: u32,
    },
    /// A random room that the user is in.
    Joined,
    /// All rooms that the user is in.
    All,
}

/// One action of a user in rooms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RoomStep {
    /// Joins (section 7.2), measured until self-presence with status 110.
    Join {
        /// Rooms to join, all at once.
        room: RoomSelection,
        /// Nickname.
        nick: TextTemplate,
        /// Maximum number of messages of the history; `None`: the room's default.
        history: Option<u32>,
        /// Wait until every join has succeeded or failed.
        wait: bool,
    },
    /// Leaves (section 7.14).
    Leave {
        /// Rooms to leave.
        room: RoomSelection,
        /// Wait for the room's confirmation.
        wait: bool,
    },
    /// Sends a numbered message to all occupants (section 7.4), measured at each of them.
    Message {
        /// Recipient.
        room: RoomSelection,
        /// Body.
        body: MessageBody,
        /// Event to wait for. `Delivery` is the arrival of the sender's own copy.
        ack: AckMode,
    },
    /// Changes the presence in rooms (section 7.7).
    Presence {
        /// Rooms to inform.
        room: RoomSelection,
        /// `away`, `dnd` …
        show: Option<TextTemplate>,
        /// Status text.
        status: Option<TextTemplate>,
    },
    /// Changes the nickname (section 7.6), measured until self-presence with the new one.
    Nick {
        /// Rooms.
        room: RoomSelection,
        /// The new nickname.
        nick: TextTemplate,
        /// Wait until every change has succeeded or failed.
        wait: bool,
    },
}

impl RoomStep {
    /// Rooms of the step.
    pub fn room(&self) -> &RoomSelection {
        match self {
            Self::Join { room, .. }
            | Self::Leave { room, .. }
            | Self::Message { room, .. }
            | Self::Presence { room, .. }
            | Self::Nick { room, .. } => room,
        }
    }

    /// Its name in TOML plans.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Join { .. } => "room_join",
            Self::Leave { .. } => "room_leave",
            Self::Message { .. } => "room_message",
            Self::Presence { .. } => "room_presence",
            Self::Nick { .. } => "room_nick",
        }
    }
}
