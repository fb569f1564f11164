//! What a worker reports about rooms at the end of a run: the messages that its users sent, the order in which it saw
//! messages, and what each occupant received. The controller compares the occupants with each other
//! ([`super::room_accounting`]).
//!
//! A position is an index into the worker's log of a room. The log has the messages in the order in which the first
//! occupant received each, with the message that most occupants received before it; an occupant's sequence is this
//! except for its deviations.
//!
//! # Pitfalls
//!
//! The sequence of an occupant can be read backwards only: a message has one predecessor, but may precede several.

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// No position.
pub const NONE: u32 = u32::MAX;

/// A room, as one worker saw it. Field names are short in JSON because there may be hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoomReport {
    /// Hash of the room's address, as in the ids of its messages.
    #[serde(rename = "r")]
    pub room: u64,
    /// It is a PubSub node.
    #[serde(rename = "k", default, skip_serializing_if = "std::ops::Not::not")]
    pub is_node: bool,
    /// Messages sent by this worker's users, by number.
    #[serde(rename = "m")]
    pub sent: Vec<SentRoomMessage>,
    /// Messages received by this worker's users.
    #[serde(rename = "l")]
    pub log: Vec<LoggedRoomMessage>,
    /// Stays of this worker's users.
    #[serde(rename = "s")]
    pub stays: Vec<RoomStay>,
}

/// A sent message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SentRoomMessage {
    /// The sender.
    #[serde(rename = "u")]
    pub sender: u32,
    /// Time of sending on the worker's clock, in microseconds.
    #[serde(rename = "t")]
    pub at: u64,
    /// The room returned it with an error.
    #[serde(rename = "e", default, skip_serializing_if = "std::ops::Not::not")]
    pub refused: bool,
}

/// A received message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedRoomMessage {
    /// The sending worker.
    #[serde(rename = "w")]
    pub worker: u16,
    /// Number in the room, of that worker.
    #[serde(rename = "n")]
    pub number: u32,
    /// Position of the message that occupants received before it; [`NONE`] if it was the first of every occupant.
    #[serde(rename = "p")]
    pub previous: u32,
    /// Number of occupants that received these two in succession.
    #[serde(rename = "c")]
    pub count: u32,
}

/// Time of an occupant in a room: from self-presence (status 110) to leaving.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoomStay {
    /// Time of the self-presence on the worker's clock, in microseconds.
    #[serde(rename = "t")]
    pub joined_at: u64,
    /// Position of the first received message; [`NONE`] without any.
    #[serde(rename = "f")]
    pub first: u32,
    /// Position of the last received message.
    #[serde(rename = "l")]
    pub last: u32,
    /// The occupant stayed until the end of the run.
    #[serde(rename = "e", default, skip_serializing_if = "std::ops::Not::not")]
    pub to_the_end: bool,
    /// Messages that this occupant received after another one than the log says: position of the previous message, and
    /// position.
    #[serde(rename = "d", default, skip_serializing_if = "Vec::is_empty")]
    pub deviations: Vec<(u32, u32)>,
}

impl RoomReport {
    /// Positions in the order in which an occupant received them.
    pub(crate) fn sequence(&self, stay: &RoomStay) -> Vec<u32> {
        let deviations: HashMap<u32, u32> =
            stay.deviations.iter().map(|(previous, position)| (*position, *previous)).collect();
        let mut sequence = Vec::new();
        let mut at = stay.last;
        // Reports come from other processes: a cycle must not be endless.
        while (at as usize) < self.log.len() && sequence.len() < self.log.len() {
            sequence.push(at);
            if at == stay.first {
                break;
            }
            at = deviations.get(&at).copied().unwrap_or(self.log[at as usize].previous);
        }
        sequence.reverse();
        sequence
    }
}
