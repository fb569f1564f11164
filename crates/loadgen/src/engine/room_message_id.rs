//! Stanza `id` of what users send to rooms, from which each copy is measured and counted.
//!
//! `G<run>-<worker>-<number>-<sender>-<due>-<room>`, all hexadecimal. `G` is a message, `O` a presence, whose number is 0.
//! Messages are numbered for each room and sending worker; `room` is the hash of the room's address, so that a copy needs
//! no comparison of addresses.

use super::message_id::{unhex, write_fields};

/// Content of such an `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoomMessageId {
    /// `G` or `O`.
    pub(crate) class: u8,
    /// The run.
    pub(crate) run: u32,
    /// The worker that sent it.
    pub(crate) worker: u16,
    /// Number of the message, by room and sending worker.
    pub(crate) number: u32,
    /// The user who sent it.
    pub(crate) sender: u32,
    /// Due time in microseconds of the sender's clock.
    pub(crate) due: u64,
    /// Hash of the room's address.
    pub(crate) room: u64,
}

impl RoomMessageId {
    /// Appends the `id`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let fields = [
            u64::from(self.run),
            u64::from(self.worker),
            u64::from(self.number),
            u64::from(self.sender),
            self.due,
            self.room,
        ];
        write_fields(self.class, fields, out);
    }

    /// Parses an `id`; `None` if it is not one of this run and class.
    pub(crate) fn read(id: &str, class: u8, run: u32) -> Option<Self> {
        let (first, rest) = id.as_bytes().split_first()?;
        if *first != class {
            return None;
        }
        let mut fields = rest.split(|byte| *byte == b'-').map(unhex);
        let mut next = || fields.next().flatten();
        let id = Self {
            class,
            run: u32::try_from(next()?).ok()?,
            worker: u16::try_from(next()?).ok()?,
            number: u32::try_from(next()?).ok()?,
            sender: u32::try_from(next()?).ok()?,
            due: next()?,
            room: next()?,
        };
        (id.run == run && fields.next().is_none()).then_some(id)
    }
}

/// Hash of a room's address (FNV-1a): the same in all workers.
pub(crate) fn room_hash(address: &str) -> u64 {
    address.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::{RoomMessageId, room_hash};

    #[test]
    fn room_message_ids_round_trip() {
        let room = room_hash("lobby@conference.load.test");
        let id = RoomMessageId {
            class: b'G',
            run: 0xABCD_1234,
            worker: 3,
            number: u32::MAX,
            sender: 0,
            due: 1 << 50,
            room,
        };
        let mut text = Vec::new();
        id.write(&mut text);
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text, format!("Gabcd1234-3-ffffffff-0-4000000000000-{room:x}"));
        assert_eq!(RoomMessageId::read(&text, b'G', 0xABCD_1234), Some(id));
        for (class, run) in [(b'O', 0xABCD_1234), (b'G', 1)] {
            assert_eq!(RoomMessageId::read(&text, class, run), None);
        }
    }

    #[test]
    fn foreign_room_message_ids_are_not_recognised() {
        for id in
            ["", "G", "G1-2-3-4-5", "G1-2-3-4-5-6-7", "G1-10000-3-4-5-6", "G1-2-3-4-g-6", "T1-2-3-4-0-5"]
        {
            assert_eq!(RoomMessageId::read(id, b'G', 1), None, "{id}");
        }
        assert_ne!(room_hash("a@b"), room_hash("b@a"));
    }
}
