//! A room as it is stored: configuration, subject, vCard and hats as bytes, affiliations as rows, and the history as messages.
//!
//! ```text
//! 1 version; configuration (a form), subject, its sender and text, vCard: each 4 octets of length and the octets; then for
//! each hat octet 16, URI, title, hue; for each user with a hat octet 17, bare JID, URI, nothing
//! ```
//!
//! Octets below 16 are reserved: migration 0010 of `store-sql` moves entries with them to the table `room_affiliation`. Entries with unknown
//! octets are ignored.
//!
//! # Pitfalls
//!
//! Presence of occupants is not stored: after a restart nobody is in the room.

use std::sync::Arc;

use jid::Jid;
use stanza::payload::data_form::{DataForm, FormKind};
use stanza::payload::datetime;
use store::{RoomHistoryEntry, RoomRecord};
use throng_core::SharedStanza;
use throng_core::limits::STANZA_LIMITS;
use xml::{NamespaceContext, Ns, Tree, Writer};

use super::avatar::RoomAvatar;
use super::history::HistoryItem;
use super::messages::is_activity;
use super::{Affiliations, Room, RoomEvent};
use crate::options::ServiceOptions;

/// Version of the encoding.
const VERSION: u8 = 1;
/// A hat, and a user with a hat (XEP-0317).
const HAT: u8 = 16;
const WORN_HAT: u8 = 17;

/// Takes fields from an encoding.
pub(super) struct FieldReader<'a>(pub(super) &'a [u8]);

impl<'a> FieldReader<'a> {
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let (length, rest) = self.0.split_first_chunk()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        let field = rest.get(..length)?;
        self.0 = &rest[length..];
        Some(field)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn octet(&mut self) -> Option<u8> {
        let (octet, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*octet)
    }
}

pub(super) fn put_field(out: &mut Vec<u8>, field: &[u8]) {
    out.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(field);
}

/// A room that was read.
pub(crate) struct LoadedRoom {
    pub(crate) record: RoomRecord,
    pub(crate) affiliations: Affiliations,
    pub(crate) history: Vec<RoomHistoryEntry>,
    /// Number of the last removal of an account that it contains.
    pub(crate) removals: u64,
}

impl Room {
    /// The room without its affiliations and history.
    pub(crate) fn record(&self) -> RoomRecord {
        let mut state = vec![VERSION];
        let mut form = Vec::with_capacity(2048);
        self.config.form(FormKind::Submit).write(&mut Writer::new(&mut form));
        put_field(&mut state, &form);
        let subject = self.subject.stanza.as_ref();
        put_field(&mut state, subject.map(|(stanza, _)| stanza.bytes()).unwrap_or_default());
        put_field(&mut state, subject.map_or("", |(_, from)| from.as_str()).as_bytes());
        put_field(&mut state, self.subject.text.as_bytes());
        put_field(&mut state, self.avatar.as_ref().map(|avatar| &*avatar.card).unwrap_or_default());
        for hat in self.hats.iter() {
            state.push(HAT);
            hat.iter().for_each(|text| put_field(&mut state, text.as_bytes()));
        }
        for (user, uri) in self.hats.worn() {
            state.push(WORN_HAT);
            [user.as_str(), uri, ""].iter().for_each(|text| put_field(&mut state, text.as_bytes()));
        }
        RoomRecord {
            creator: self.creator.clone(),
            title: self.config.name.clone(),
            is_public: self.config.public,
            state,
        }
    }

    /// The complete history.
    pub(crate) fn history_entries(&self) -> Vec<RoomHistoryEntry> {
        self.history.iter().map(HistoryItem::entry).collect()
    }

    /// The room from the store; `None` if it cannot be read.
    pub(crate) fn restore(jid: Jid, options: Arc<ServiceOptions>, loaded: LoadedRoom) -> Option<Room> {
        let LoadedRoom { record, affiliations, history, removals } = loaded;
        let limits = options.limits;
        let mut room = Room::create(jid, options, record.creator);
        room.affiliations = affiliations;
        room.removals = removals;
        room.is_changed = false;
        let mut fields = FieldReader(&record.state);
        if fields.octet()? != VERSION {
            return None;
        }
        let scope = NamespaceContext::client();
        let form = Tree::parse(fields.bytes()?, &scope, &STANZA_LIMITS).ok()?;
        let form = DataForm::read(form.root()).ok()?;
        room.config.apply(&form, &limits).ok()?;
        room.state = room.state.after(RoomEvent::Configured { persistent: room.config.persistent });
        let (subject, from, text) = (fields.bytes()?, fields.text()?, fields.text()?);
        if let Some(stanza) = SharedStanza::read(subject).filter(|_| !subject.is_empty()) {
            room.subject.stanza = Some((stanza, Jid::from_stored(from).ok()?));
            room.subject.text = text.to_owned();
        }
        let card = fields.bytes()?;
        if !card.is_empty() {
            let limits = xml::Limits::DEFAULT;
            room.avatar =
                Tree::parse(card, &scope, &limits).ok().and_then(|card| RoomAvatar::read(card.root()));
        }
        while let Some(octet) = fields.octet() {
            let (key, second, third) = (fields.text()?, fields.text()?, fields.text()?);
            if octet == HAT {
                room.hats.put(key, second, third);
                continue;
            }
            let user = Jid::from_stored(key).ok()?;
            if octet == WORN_HAT {
                room.hats.assign(&user, second);
            }
        }
        for item in history.iter().filter_map(HistoryItem::read) {
            if item.stanza.tree().is_ok_and(|tree| is_activity(tree.root())) {
                room.activity.note(item.millis);
            }
            room.history.push(item, &limits);
        }
        Some(room)
    }
}

/// The time in an id that a node has assigned (`base::TimeOrderedId`): the first 48 bits of 24 characters of 5.
fn millis_of_id(id: &str) -> Option<u64> {
    const CHARS: usize = 10;
    if id.len() != base::TimeOrderedId::CHARS {
        return None;
    }
    let bits = id.bytes().take(CHARS).try_fold(0_u64, |bits, octet| {
        let value = char::from(octet).to_digit(32).filter(|_| !octet.is_ascii_uppercase())?;
        Some((bits << 5) | u64::from(value))
    });
    bits.map(|bits| bits >> 2)
}

impl HistoryItem {
    /// As it is stored.
    pub(super) fn entry(&self) -> RoomHistoryEntry {
        RoomHistoryEntry { id: self.id.clone(), message: self.stanza.bytes().to_vec() }
    }

    fn read(entry: &RoomHistoryEntry) -> Option<HistoryItem> {
        let stanza = SharedStanza::read(&entry.message)?;
        let from = Jid::from_stored(&stanza.head().from(stanza.bytes())?).ok()?;
        let tree = stanza.tree().ok()?;
        // Messages of the room itself have none.
        let occupant_id = tree.root().child("occupant-id", Ns::OccupantId).and_then(|id| id.attr("id"));
        let occupant_id = occupant_id.unwrap_or_default().into_owned().into();
        let stamp = tree.root().child("delay", Ns::Delay)?.attr("stamp")?;
        // The time of an owner's delay is not that of the room.
        let millis = match millis_of_id(&entry.id) {
            Some(millis) => millis,
            None => u64::try_from(datetime::parse_datetime(&stamp)?).ok()?,
        };
        drop(tree);
        Some(HistoryItem { stanza, from, id: entry.id.clone(), occupant_id, millis })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_id_is_that_at_which_it_was_assigned() {
        let ids = base::TimeOrderedIdGenerator::new("node-1", 1);
        for millis in [0, 1_700_000_000_123] {
            let id = ids.next(millis);
            assert_eq!(millis_of_id(&id.to_string()), Some(id.unix_millis()));
        }
        assert_eq!((millis_of_id("s1"), millis_of_id(&"Z".repeat(24))), (None, None));
    }
}
