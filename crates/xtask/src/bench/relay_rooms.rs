//! Rooms of the gathering relay: the floor of a room. It writes the same bytes to the sockets of all occupants.
//!
//! A room exists when somebody joins it. A join is answered with the self-presence only; a message becomes one text of
//! [`COPY_BYTES`] for all occupants, its sender included. There is no history, no presence of others, no leaving: the
//! end of the connection ends the stay.
//!
//! # Pitfalls
//!
//! Stanzas must begin as `throng load` writes them: `type` before `to`, in single quotes.

use std::collections::HashMap;

use memchr::memmem;

use super::relay::attribute;

/// First bytes of a message to a room.
pub(super) const ROOM_MESSAGE: &[u8] = b"<message type='groupchat'";
/// First bytes of a presence to a room.
pub(super) const ROOM_PRESENCE: &[u8] = b"<presence to='";

/// Length of a copy, unless the message itself is longer.
const COPY_BYTES: usize = 300;

/// All rooms.
#[derive(Default)]
pub(super) struct RelayRooms {
    /// By address.
    rooms: HashMap<Vec<u8>, RelayRoom>,
    /// Addresses of rooms with messages that have not been written.
    dirty: Vec<Vec<u8>>,
}

#[derive(Default)]
struct RelayRoom {
    /// Connections of the occupants.
    occupants: Vec<usize>,
    /// Messages that have not been written.
    pending: Vec<u8>,
}

impl RelayRooms {
    /// Adds an occupant. Returns its self-presence.
    pub(super) fn join(&mut self, token: usize, presence: &[u8]) -> Option<Vec<u8>> {
        let to = attribute(presence, &memmem::Finder::new(b"to='"))?;
        let room = to.split(|byte| *byte == b'/').next()?;
        let occupants = &mut self.rooms.entry(room.to_vec()).or_default().occupants;
        if !occupants.contains(&token) {
            occupants.push(token);
        }
        let end =
            b"'><x xmlns='http://jabber.org/protocol/muc#user'><item affiliation='none' role='participant'/>\
                    <status code='110'/></x></presence>";
        Some([b"<presence from='", to, end].concat())
    }

    /// Collects a message of `user` for all occupants.
    pub(super) fn message(&mut self, message: &[u8], user: &[u8]) {
        let to = memmem::Finder::new(b"to='");
        let Some(room) = attribute(message, &to) else { return };
        let Some((address, found)) = self.rooms.get_key_value(room) else { return };
        if found.pending.is_empty() {
            self.dirty.push(address.clone());
        }
        let Some(found) = self.rooms.get_mut(room) else { return };
        write_copy(message, room, user, &mut found.pending);
    }

    /// Passes the collected messages of each room to `write`, once for each occupant. Occupants for which it returns
    /// false have left.
    pub(super) fn flush(&mut self, mut write: impl FnMut(usize, &[u8]) -> bool) {
        for address in self.dirty.drain(..) {
            let Some(room) = self.rooms.get_mut(&address) else { continue };
            room.occupants.retain(|token| write(*token, &room.pending));
            room.pending.clear();
        }
    }
}

/// Writes the copy of a message: from the occupant, without `to`, filled up to its length.
fn write_copy(message: &[u8], room: &[u8], user: &[u8], out: &mut Vec<u8>) {
    let begin = out.len();
    let after_to = ROOM_MESSAGE.len() + " to='".len() + room.len();
    let end = message.len() - "</message>".len();
    let content = message.get(after_to..end).unwrap_or_default();
    out.extend_from_slice(ROOM_MESSAGE);
    for part in [b" from='", room, b"/", user, content, b"<x xmlns='urn:x'>"] {
        out.extend_from_slice(part);
    }
    let last = b"</x></message>";
    let length = out.len() - begin + last.len();
    out.resize(out.len() + COPY_BYTES.saturating_sub(length), b'x');
    out.extend_from_slice(last);
}

#[cfg(test)]
mod tests {
    use super::{COPY_BYTES, RelayRooms};

    #[test]
    fn every_occupant_receives_the_messages_of_a_wake_up_at_once() {
        let mut rooms = RelayRooms::default();
        let join = b"<presence to='r@c/u1'><x xmlns='muc'/></presence>";
        let answer = String::from_utf8(rooms.join(1, join).unwrap()).unwrap();
        assert!(answer.starts_with("<presence from='r@c/u1'>") && answer.contains("110"), "{answer}");
        rooms.join(2, b"<presence to='r@c/u2'><x xmlns='muc'/></presence>");
        for id in ["1", "2"] {
            let message = format!("<message type='groupchat' to='r@c' id='{id}'><body>b</body></message>");
            rooms.message(message.as_bytes(), b"u1");
        }
        rooms.message(b"<message type='groupchat' to='other@c' id='3'></message>", b"u1");
        let mut written = Vec::new();
        rooms.flush(|token, bytes| {
            written.push((token, String::from_utf8(bytes.to_vec()).unwrap()));
            token == 2
        });
        assert_eq!(written.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 2]);
        let text = &written[0].1;
        assert_eq!((text.len(), &written[1].1), (2 * COPY_BYTES, text));
        let first = "<message type='groupchat' from='r@c/u1' id='1'><body>b</body><x xmlns='urn:x'>x";
        assert!(text.starts_with(first) && text.ends_with("x</x></message>"), "{text}");
        written.clear();
        rooms.flush(|token, bytes| {
            written.push((token, String::from_utf8(bytes.to_vec()).unwrap()));
            true
        });
        assert!(written.is_empty(), "nothing is written twice");
    }
}
