//! Copy of what a room has in memory only, on another node of the cluster: the occupants, and all of a temporary room except for its
//! history, which the next owner gets only when the room is handed over to it.
//!
//! ```text
//! changes, each: 1 kind, 4 octets of length, content
//! 0 everything follows: none                    1 settings: 1 flags (1 locked, 2 stored); without flag 2, fields of the room; when it
//!                                                 is handed over, for each user who must wait (XEP-0500) bare address and time
//! 2 message of the history: id, message         3 occupant: see `put_occupant`
//! 4 occupant that has left: nickname            5 nobody is in the room: none
//! 6 everything is complete: 1 whether the room is handed over
//! 7 affiliation of a room that is not stored: 1 number (1 removes it), bare address, nickname, reason
//! 8 everything contains the removals of accounts up to this number: 8 octets
//! ```
//!
//! Fields have 4 octets of length and the octets.
//!
//! # Pitfalls
//!
//! Requests between occupants that wait for an answer, and pending invitations, are in no copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use jid::Jid;
use smallvec::SmallVec;
use store::rooms::NO_AFFILIATION;
use store::{RoomAffiliation, RoomHistoryEntry, RoomRecord};
use throng_core::RecipientList;

use super::occupants::{Occupant, OccupantSession};
use super::snapshot::{FieldReader, put_field};
use super::{Affiliations, LoadedRoom, Room, RoomCtx, RoomState};
use crate::options::ServiceOptions;
use crate::privileges::RoomRole;

const RESET: u8 = 0;
const SETTINGS: u8 = 1;
const HISTORY: u8 = 2;
const OCCUPANT: u8 = 3;
const OCCUPANT_LEFT: u8 = 4;
const EMPTY: u8 = 5;
const COMPLETE: u8 = 6;
const AFFILIATION: u8 = 7;
const REMOVALS: u8 = 8;

const LOCKED: u8 = 1;
const STORED: u8 = 2;

const ANNOUNCED: u8 = 1;
const SERVICE_ADMIN: u8 = 2;

/// A received copy. What is in it is checked when it is used.
#[derive(Debug, Default)]
pub(crate) struct RoomCopy {
    settings: Box<[u8]>,
    /// By address.
    affiliations: BTreeMap<Box<[u8]>, Box<[u8]>>,
    history: Vec<Box<[u8]>>,
    occupants: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// Number of the last removal of an account that it contains.
    removals: u64,
    is_complete: bool,
    is_handed_over: bool,
    /// Octets of affiliations, messages and occupants.
    bytes: usize,
}

/// What a message counts besides its octets.
const MESSAGE_OVERHEAD: usize = 16;

/// What an affiliation or an occupant counts.
fn entry_size(key: &[u8], content: &[u8]) -> usize {
    key.len() + content.len() + 64
}

fn put_change(out: &mut Vec<u8>, kind: u8, content: &[u8]) {
    out.push(kind);
    put_field(out, content);
}

impl RoomCopy {
    /// Applies changes; false if they are none. The copy is of no use then.
    pub(crate) fn apply(&mut self, changes: &[u8]) -> bool {
        let mut changes = FieldReader(changes);
        while let Some(kind) = changes.octet() {
            let Some(content) = changes.bytes() else { return false };
            match kind {
                RESET => *self = RoomCopy::default(),
                SETTINGS => {
                    self.settings = content.into();
                    if content.first().is_some_and(|flags| flags & STORED != 0) {
                        let sizes = self.affiliations.iter().map(|(user, one)| entry_size(user, one));
                        self.bytes -= sizes.sum::<usize>();
                        self.affiliations.clear();
                    }
                }
                AFFILIATION => {
                    let Some((number, rest)) = content.split_first() else { return false };
                    let Some(user) = FieldReader(rest).bytes() else { return false };
                    let before = match *number {
                        NO_AFFILIATION => self.affiliations.remove(user),
                        _ => {
                            self.bytes += entry_size(user, content);
                            self.affiliations.insert(user.into(), content.into())
                        }
                    };
                    self.bytes -= before.map_or(0, |before| entry_size(user, &before));
                }
                HISTORY => {
                    self.bytes += content.len() + MESSAGE_OVERHEAD;
                    self.history.push(content.into());
                }
                OCCUPANT => {
                    let Some(nick) = FieldReader(content).bytes() else { return false };
                    self.bytes += entry_size(nick, content);
                    let before = self.occupants.insert(nick.into(), content.into());
                    self.bytes -= before.map_or(0, |before| entry_size(nick, &before));
                }
                OCCUPANT_LEFT => {
                    let before = self.occupants.remove(content);
                    self.bytes -= before.map_or(0, |before| entry_size(content, &before));
                }
                REMOVALS => {
                    let Ok(number) = content.try_into() else { return false };
                    self.removals = u64::from_be_bytes(number);
                }
                EMPTY => *self = RoomCopy::default(),
                COMPLETE => (self.is_complete, self.is_handed_over) = (true, content == [1]),
                _ => return false,
            }
        }
        true
    }

    /// Whether it has everything of a room with occupants, or of one that is handed over.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether the former owner has handed the room over, so that all its sessions are known to be there.
    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    /// Whether settings and affiliations are in the store.
    pub(crate) fn needs_store(&self) -> bool {
        self.settings.first().is_some_and(|flags| flags & STORED != 0)
    }

    /// Octets that it counts.
    pub(crate) fn size(&self) -> usize {
        256 + self.settings.len() + self.bytes
    }

    /// The room without its occupants; `None` if it cannot be read, or is not in the store any more. `stored` is what is there.
    pub(crate) fn room(
        &self,
        jid: Jid,
        options: Arc<ServiceOptions>,
        stored: Option<LoadedRoom>,
    ) -> Option<Room> {
        let mut fields = FieldReader(&self.settings);
        let flags = fields.octet()?;
        if flags & STORED != 0 {
            let mut room = Room::restore(jid, options, stored?)?;
            room.restore_slow_mode(&mut fields);
            return Some(room);
        }
        let creator = Jid::from_stored(fields.text()?).ok()?;
        let (title, state) = (fields.text()?.to_owned(), fields.bytes()?.to_vec());
        let history = self.history.iter().filter_map(|entry| {
            let mut fields = FieldReader(entry);
            Some(RoomHistoryEntry { id: fields.text()?.into(), message: fields.bytes()?.to_vec() })
        });
        let record = RoomRecord { creator, title, is_public: false, state };
        let mut affiliations = Affiliations::default();
        let all = self.affiliations.values().map(|content| {
            let mut fields = FieldReader(content);
            Some(RoomAffiliation {
                affiliation: fields.octet()?,
                user: Jid::from_stored(fields.text()?).ok()?,
                nick: fields.text()?.into(),
                reason: fields.text()?.into(),
            })
        });
        affiliations.add_stored(all.collect::<Option<_>>()?)?;
        let (history, removals) = (history.collect(), self.removals);
        let loaded = LoadedRoom { record, affiliations, history, removals };
        let mut room = Room::restore(jid, options, loaded)?;
        if flags & LOCKED != 0 {
            room.state = RoomState::Locked;
        }
        room.restore_slow_mode(&mut fields);
        room.note_change();
        Some(room)
    }

    fn occupants(&self) -> impl Iterator<Item = OccupantFields> + '_ {
        self.occupants.values().filter_map(|octets| OccupantFields::read(octets))
    }
}

/// An occupant in a copy.
struct OccupantFields {
    nick: Box<str>,
    user: Jid,
    role: RoomRole,
    is_announced: bool,
    is_service_admin: bool,
    sessions: SmallVec<[OccupantSession; 1]>,
}

impl OccupantFields {
    fn read(octets: &[u8]) -> Option<OccupantFields> {
        let mut fields = FieldReader(octets);
        let nick = fields.text()?.into();
        let user = Jid::from_stored(fields.text()?).ok()?;
        let role = *RoomRole::ALL.get(usize::from(fields.octet()?))?;
        let flags = fields.octet()?;
        let mut sessions = SmallVec::new();
        while !fields.0.is_empty() {
            let jid = Jid::from_stored(fields.text()?).ok()?;
            let presence = fields.bytes()?.into();
            let lang = Some(fields.text()?).filter(|lang| !lang.is_empty()).map(Box::from);
            sessions.push(OccupantSession::new(jid, presence, lang));
        }
        let (is_announced, is_service_admin) = (flags & ANNOUNCED != 0, flags & SERVICE_ADMIN != 0);
        (!sessions.is_empty()).then_some(OccupantFields {
            nick,
            user,
            role,
            is_announced,
            is_service_admin,
            sessions,
        })
    }
}

/// Nickname, user; 1 role, 1 flags (1 all have its presence, 2 administrator of the service); then for each session address, presence, language.
fn put_occupant(out: &mut Vec<u8>, occupant: &Occupant) {
    let mut content = Vec::with_capacity(256);
    put_field(&mut content, occupant.nick().as_bytes());
    put_field(&mut content, occupant.user().as_str().as_bytes());
    let role = RoomRole::ALL.iter().position(|role| *role == occupant.role).unwrap_or_default();
    content.push(u8::try_from(role).unwrap_or_default());
    let flags = u8::from(occupant.is_announced) * ANNOUNCED;
    content.push(flags | (u8::from(occupant.is_service_admin) * SERVICE_ADMIN));
    for session in &occupant.sessions {
        put_field(&mut content, session.jid.as_str().as_bytes());
        put_field(&mut content, session.presence());
        put_field(&mut content, session.lang().unwrap_or_default().as_bytes());
    }
    put_change(out, OCCUPANT, &content);
}

impl Room {
    fn put_settings(&mut self, out: &mut Vec<u8>, is_stored: bool, is_handed_over: bool) {
        self.is_copy_outdated = false;
        let mut content = vec![(u8::from(self.is_locked()) * LOCKED) | (u8::from(is_stored) * STORED)];
        if !is_stored {
            let record = self.record();
            put_field(&mut content, record.creator.as_str().as_bytes());
            put_field(&mut content, record.title.as_bytes());
            put_field(&mut content, &record.state);
        }
        if is_handed_over && self.config.slow_mode_seconds > 0 {
            for (user, millis) in self.slow_mode.iter() {
                put_field(&mut content, user.as_bytes());
                put_field(&mut content, &millis.to_be_bytes());
            }
        }
        put_change(out, SETTINGS, &content);
    }

    /// With each change, so that affiliations which are given later do not end with accounts that were removed before.
    fn put_removals(&mut self, out: &mut Vec<u8>) {
        self.copied_removals = self.removals;
        put_change(out, REMOVALS, &self.removals.to_be_bytes());
    }

    /// Affiliations that the copy does not have. The store has those of a stored room.
    fn put_affiliations(&mut self, out: &mut Vec<u8>, is_stored: bool) {
        if is_stored {
            return self.affiliations.stop_copying();
        }
        for one in self.affiliations.take_uncopied() {
            let mut content = vec![one.affiliation];
            for text in [one.user.as_str(), &one.nick, &one.reason] {
                put_field(&mut content, text.as_bytes());
            }
            put_change(out, AFFILIATION, &content);
        }
    }

    /// Everything that the store does not have. With `is_handed_over` it is for the next owner, which is also sent the history.
    /// Otherwise changes are recorded from now on.
    pub(crate) fn full_copy(&mut self, is_stored: bool, is_handed_over: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        put_change(&mut out, RESET, &[]);
        self.put_removals(&mut out);
        self.put_settings(&mut out, is_stored, is_handed_over);
        self.affiliations.stop_copying();
        self.put_affiliations(&mut out, is_stored);
        if is_handed_over && !is_stored {
            for item in self.history.iter() {
                let entry = item.entry();
                let mut content = Vec::with_capacity(entry.message.len() + 64);
                put_field(&mut content, entry.id.as_bytes());
                put_field(&mut content, &entry.message);
                put_change(&mut out, HISTORY, &content);
            }
        }
        self.occupants.iter().for_each(|occupant| put_occupant(&mut out, occupant));
        put_change(&mut out, COMPLETE, &[is_handed_over.into()]);
        self.occupants.track_changes(!is_handed_over);
        out
    }

    /// What has changed since the last copy; empty without a change.
    pub(crate) fn copy_changes(&mut self, is_stored: bool) -> Vec<u8> {
        let mut out = Vec::new();
        if self.is_copy_outdated {
            self.put_settings(&mut out, is_stored, false);
        }
        self.put_affiliations(&mut out, is_stored);
        for nick in self.occupants.take_changes().into_iter().flatten() {
            match self.occupants.get(&nick) {
                Some(occupant) => put_occupant(&mut out, occupant),
                None => put_change(&mut out, OCCUPANT_LEFT, nick.as_bytes()),
            }
        }
        if !out.is_empty() && self.copied_removals != self.removals {
            self.put_removals(&mut out);
        }
        out
    }

    /// There is no copy any more.
    pub(crate) fn stop_copying(&mut self) {
        self.occupants.track_changes(false);
        self.affiliations.stop_copying();
    }

    fn restore_slow_mode(&mut self, fields: &mut FieldReader<'_>) {
        while let (Some(user), Some(millis)) = (fields.text(), fields.bytes()) {
            let user = Jid::from_stored(user).ok();
            if let Some((user, millis)) = user.zip(millis.try_into().ok().map(u64::from_be_bytes)) {
                self.slow_mode.note(user.as_ref(), millis, self.config.slow_mode_seconds);
            }
        }
    }

    /// Takes the occupants over from the former owner. Nobody notices it.
    pub(crate) fn take_over(&mut self, ctx: &RoomCtx<'_>, copy: &RoomCopy) {
        for OccupantFields { nick, user, role, is_announced, is_service_admin, sessions } in copy.occupants()
        {
            let Ok(jid) = self.jid.with_resource(&nick) else { continue };
            let occupant_id = self.occupant_id(ctx, user.as_ref());
            self.occupants.insert(Occupant {
                jid,
                role,
                occupant_id,
                sessions,
                is_announced,
                is_service_admin,
            });
        }
    }

    /// Addresses of all sessions.
    pub(crate) fn sessions(&mut self) -> RecipientList {
        self.occupants.all_sessions()
    }
}

/// What the copy of a room without occupants needs.
pub(crate) fn empty_copy() -> Vec<u8> {
    let mut out = Vec::new();
    put_change(&mut out, EMPTY, &[]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::OPTIONS;
    use crate::privileges::Affiliation;
    use feature_api::feature::FeatureOptions;

    #[test]
    fn the_copy_of_a_temporary_room_gets_single_affiliations() {
        let jid = |text: &str| Jid::parse(text).unwrap();
        let options = Arc::new(ServiceOptions::read(&FeatureOptions::defaults(OPTIONS)).unwrap());
        let address = jid("coven@chat.shakespeare.lit");
        let mut room = Room::create(address.clone(), options.clone(), jid("crone1@shakespeare.lit"));
        for number in 0..1_000 {
            let user = jid(&format!("u{number}@shakespeare.lit"));
            room.affiliations.set(&user, Affiliation::Member, None, None);
        }
        let mut copy = RoomCopy::default();
        assert!(copy.apply(&room.full_copy(false, false)));
        assert!(room.copy_changes(false).is_empty());
        room.affiliations.set(&jid("u7@shakespeare.lit"), Affiliation::None, None, None);
        room.affiliations.set(&jid("u8@shakespeare.lit"), Affiliation::Admin, Some("eighth"), Some("wise"));
        let changes = room.copy_changes(false);
        assert!(changes.len() < 200, "{} octets", changes.len());
        assert!(copy.apply(&changes));
        let restored = copy.room(address.clone(), options.clone(), None).unwrap();
        assert_eq!(
            restored.affiliations.page(None, usize::MAX),
            room.affiliations.page(None, usize::MAX),
            "the same lists"
        );
        // The store has those of a persistent room.
        let size = copy.size();
        room.note_change();
        assert!(copy.apply(&room.copy_changes(true)));
        assert!(copy.needs_store() && copy.affiliations.is_empty() && copy.size() < size / 10);
        room.note_change();
        assert!(copy.apply(&room.copy_changes(false)));
        assert_eq!(copy.affiliations.len(), 1_000);
    }

    #[test]
    fn a_copy_says_which_removals_it_contains_and_is_not_used_with_a_part_of_its_lists() {
        let jid = |text: &str| Jid::parse(text).unwrap();
        let options = Arc::new(ServiceOptions::read(&FeatureOptions::defaults(OPTIONS)).unwrap());
        let address = jid("coven@chat.shakespeare.lit");
        let mut room = Room::create(address.clone(), options.clone(), jid("crone1@shakespeare.lit"));
        room.contains_removals(7);
        let mut copy = RoomCopy::default();
        assert!(copy.apply(&room.full_copy(false, false)));
        let removals =
            |copy: &RoomCopy| copy.room(address.clone(), options.clone(), None).unwrap().removals();
        assert_eq!(removals(&copy), 7);
        room.contains_removals(9);
        assert!(room.copy_changes(false).is_empty(), "nothing has changed");
        room.affiliations.set(&jid("hag66@shakespeare.lit"), Affiliation::Member, None, None);
        assert!(copy.apply(&room.copy_changes(false)));
        assert_eq!(removals(&copy), 9, "the member was given after them");
        let mut unknown = Vec::new();
        let mut content = vec![99];
        for text in ["hecate@shakespeare.lit", "", ""] {
            put_field(&mut content, text.as_bytes());
        }
        put_change(&mut unknown, AFFILIATION, &content);
        assert!(copy.apply(&unknown));
        assert!(copy.room(address.clone(), options.clone(), None).is_none());
    }
}
