//! The occupants of a room by nickname and by session.
//!
//! Several sessions of one user may share a nickname; they are one occupant. An occupant is small, since rooms have thousands of them:
//! `tests/weight.rs` limits its bytes.
//!
//! # Pitfalls
//!
//! The list of all sessions is shared with multicasts, so a change makes a new list. It exists while stanzas are handled.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use jid::{Jid, JidRef};
use smallvec::SmallVec;
use throng_core::RecipientList;

use super::occupant_id::OccupantId;
use crate::privileges::RoomRole;

/// A user in the room under one nickname.
#[derive(Debug)]
pub(crate) struct Occupant {
    /// Address in the room; its resource is the nickname.
    pub(crate) jid: Jid,
    pub(crate) role: RoomRole,
    /// Stable id of the user in this room (XEP-0421).
    pub(crate) occupant_id: OccupantId,
    /// At least one.
    pub(crate) sessions: SmallVec<[OccupantSession; 1]>,
    /// Everybody has received its presence, not only moderators.
    pub(crate) is_announced: bool,
    /// The user administers the service, and so owns every room.
    pub(crate) is_service_admin: bool,
}

/// A session of an occupant.
#[derive(Debug)]
pub(crate) struct OccupantSession {
    /// Full address.
    pub(crate) jid: Jid,
    presence: Option<Arc<PresenceContent>>,
}

/// What a room keeps of a presence. Most clients of a kind send the same, so occupants share it.
#[derive(Debug, Default, PartialEq, Eq)]
struct PresenceContent {
    /// Without what belongs to the room.
    payload: Box<[u8]>,
    /// `xml:lang`.
    lang: Option<Box<str>>,
}

impl OccupantSession {
    /// A session with the content and the `xml:lang` of its last presence.
    pub(crate) fn new(jid: Jid, payload: Box<[u8]>, lang: Option<Box<str>>) -> OccupantSession {
        let is_empty = payload.is_empty() && lang.is_none();
        OccupantSession { jid, presence: (!is_empty).then(|| Arc::new(PresenceContent { payload, lang })) }
    }

    /// Content of its last presence, without what belongs to the room.
    pub(crate) fn presence(&self) -> &[u8] {
        self.presence.as_deref().map(|presence| &*presence.payload).unwrap_or_default()
    }

    /// `xml:lang` of its last presence.
    pub(crate) fn lang(&self) -> Option<&str> {
        self.presence.as_deref()?.lang.as_deref()
    }
}

impl Occupant {
    /// Bare address of the user: that of every session.
    pub(crate) fn user(&self) -> JidRef<'_> {
        self.sessions.first().map_or(self.jid.as_ref(), |session| session.jid.as_ref()).bare()
    }

    /// The nickname.
    pub(crate) fn nick(&self) -> &str {
        self.jid.resource().unwrap_or_default()
    }

    /// Content of the latest presence.
    pub(crate) fn presence(&self) -> &[u8] {
        self.sessions.last().map(OccupantSession::presence).unwrap_or_default()
    }

    /// `xml:lang` of the latest presence.
    pub(crate) fn lang(&self) -> Option<&str> {
        self.sessions.last()?.lang()
    }
}

/// Position of an occupant; used again after the occupant has left.
type OccupantIndex = u32;

/// An entry of the table of sessions. The occupant may have several, so the hash tells whose entry it is.
#[derive(Clone, Copy, Debug)]
struct SessionEntry {
    hash: u32,
    occupant: OccupantIndex,
}

impl SessionEntry {
    /// The table uses the highest and the lowest bits.
    fn full_hash(hash: u32) -> u64 {
        u64::from(hash) << 32 | u64::from(hash)
    }
}

/// Presence contents of which a room knows that occupants may share them.
const FEW_CONTENTS: usize = 16;
/// Lists grow by this number while they are short: most rooms are small.
const SMALL_GROWTH: usize = 8;

/// All occupants.
#[derive(Debug, Default)]
pub(crate) struct Occupants {
    slots: Vec<Option<Box<Occupant>>>,
    free: Vec<OccupantIndex>,
    /// In the order of nicknames.
    by_nick: Vec<OccupantIndex>,
    by_session: HashTable<SessionEntry>,
    hasher: DefaultHashBuilder,
    moderators: Vec<OccupantIndex>,
    /// Number of occupants whose presence everybody has received.
    announced: usize,
    contents: PresenceContents,
    all_sessions: Option<RecipientList>,
    /// Nicknames whose occupants have changed since the copy of another node; `None` without a copy.
    changed: Option<BTreeSet<Box<str>>>,
}

/// The different contents of presence.
#[derive(Debug, Default)]
struct PresenceContents {
    /// The latest ones, which most occupants share; a rarer one may be here twice.
    latest: Vec<Arc<PresenceContent>>,
}

impl PresenceContents {
    /// The content that others with the same share.
    fn share(&mut self, content: Arc<PresenceContent>) -> Arc<PresenceContent> {
        if let Some(at) = self.latest.iter().position(|known| *known == content) {
            let known = self.latest.remove(at);
            self.latest.push(known.clone());
            return known;
        }
        self.latest.retain(|known| Arc::strong_count(known) > 1);
        if self.latest.len() >= FEW_CONTENTS {
            self.latest.remove(0);
        }
        self.latest.reserve_exact(1);
        self.latest.push(content.clone());
        content
    }
}

impl Occupants {
    /// Number of occupants.
    pub(crate) fn len(&self) -> usize {
        self.by_nick.len()
    }

    /// Number of sessions.
    pub(crate) fn session_count(&self) -> usize {
        self.by_session.len()
    }

    /// Whether nobody is in the room.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_nick.is_empty()
    }

    fn at(&self, index: OccupantIndex) -> Option<&Occupant> {
        self.slots.get(index as usize)?.as_deref()
    }

    fn at_mut(&mut self, index: OccupantIndex) -> Option<&mut Occupant> {
        self.slots.get_mut(index as usize)?.as_deref_mut()
    }

    /// Position of a nickname in their order; otherwise where it would be.
    fn search(&self, nick: &str) -> Result<usize, usize> {
        self.by_nick.binary_search_by(|index| self.at(*index).map_or("", Occupant::nick).cmp(nick))
    }

    fn index_of(&self, nick: &str) -> Option<OccupantIndex> {
        self.by_nick.get(self.search(nick).ok()?).copied()
    }

    /// In the order of nicknames.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Occupant> {
        self.by_nick.iter().filter_map(|index| self.at(*index))
    }

    /// Those whose presence everybody has received. They are usually the first of a large room, so this does not look at the others.
    pub(crate) fn announced(&self) -> impl Iterator<Item = &Occupant> {
        // In the order of nicknames, if there are no others.
        let all = (self.announced == self.len()).then(|| self.iter()).into_iter().flatten();
        let some = self.slots.iter().flatten().filter(|one| one.is_announced).map(|one| &**one);
        let some_count = if self.announced == self.len() { 0 } else { self.announced };
        all.chain(some.take(some_count))
    }

    /// Those with the role of a moderator.
    pub(crate) fn moderators(&self) -> impl Iterator<Item = &Occupant> {
        self.moderators.iter().filter_map(|index| self.at(*index))
    }

    /// The occupant with this nickname.
    pub(crate) fn get(&self, nick: &str) -> Option<&Occupant> {
        self.at(self.index_of(nick)?)
    }

    /// Changes the role of an occupant.
    pub(crate) fn set_role(&mut self, nick: &str, role: RoomRole) {
        self.note_change(nick);
        let Some(index) = self.index_of(nick) else { return };
        self.moderators.retain(|moderator| *moderator != index);
        if role == RoomRole::Moderator {
            self.moderators.push(index);
        }
        if let Some(occupant) = self.at_mut(index) {
            occupant.role = role;
        }
    }

    /// Number of occupants whose presence everybody has received.
    pub(crate) fn announced_count(&self) -> usize {
        self.announced
    }

    /// Everybody receives the presence of an occupant from now on.
    pub(crate) fn set_announced(&mut self, nick: &str) {
        let Some(index) = self.index_of(nick) else { return };
        let Some(occupant) = self.at_mut(index).filter(|one| !one.is_announced) else { return };
        occupant.is_announced = true;
        self.announced += 1;
        self.note_change(nick);
    }

    /// Only moderators receive the presence of an occupant from now on.
    pub(crate) fn set_hidden(&mut self, nick: &str) {
        let Some(index) = self.index_of(nick) else { return };
        let Some(occupant) = self.at_mut(index).filter(|one| one.is_announced) else { return };
        occupant.is_announced = false;
        self.announced -= 1;
        self.note_change(nick);
    }

    /// An occupant whose presence only moderators have received.
    pub(crate) fn first_hidden(&self) -> Option<&Occupant> {
        if self.announced == self.len() {
            return None;
        }
        self.slots.iter().flatten().find(|one| !one.is_announced).map(|one| &**one)
    }

    /// The user administers the service from now on, or not any more.
    pub(crate) fn toggle_service_admin(&mut self, nick: &str) {
        let Some(index) = self.index_of(nick) else { return };
        let Some(occupant) = self.at_mut(index) else { return };
        occupant.is_service_admin = !occupant.is_service_admin;
        self.note_change(nick);
    }

    fn note_change(&mut self, nick: &str) {
        if let Some(changed) = &mut self.changed {
            changed.insert(nick.into());
        }
    }

    /// Whether changes are recorded from now on.
    pub(crate) fn track_changes(&mut self, tracks: bool) {
        self.changed = tracks.then(BTreeSet::new);
    }

    /// Nicknames whose occupants have changed since the last call; `None` if changes are not recorded.
    pub(crate) fn take_changes(&mut self) -> Option<BTreeSet<Box<str>>> {
        self.changed.as_mut().map(std::mem::take)
    }

    #[allow(clippy::cast_possible_truncation, reason = "any 32 bits of a hash are one")]
    fn hash(&self, session: JidRef<'_>) -> u32 {
        self.hasher.hash_one(session.as_str()) as u32
    }

    fn index_of_session(&self, session: JidRef<'_>) -> Option<OccupantIndex> {
        let hash = self.hash(session);
        let is_meant = |entry: &SessionEntry| {
            entry.hash == hash
                && self.at(entry.occupant).is_some_and(|one| {
                    one.sessions.iter().any(|other| other.jid.as_str() == session.as_str())
                })
        };
        Some(self.by_session.find(SessionEntry::full_hash(hash), is_meant)?.occupant)
    }

    fn add_session(&mut self, session: JidRef<'_>, occupant: OccupantIndex) {
        let hash = self.hash(session);
        let entry = SessionEntry { hash, occupant };
        let full = |entry: &SessionEntry| SessionEntry::full_hash(entry.hash);
        self.by_session.insert_unique(full(&entry), entry, full);
        self.all_sessions = None;
    }

    fn forget_session(&mut self, session: JidRef<'_>, occupant: OccupantIndex) {
        let hash = self.hash(session);
        let is_meant = |entry: &SessionEntry| entry.hash == hash && entry.occupant == occupant;
        if let Ok(entry) = self.by_session.find_entry(SessionEntry::full_hash(hash), is_meant) {
            entry.remove();
        }
        self.all_sessions = None;
    }

    /// The occupant of a session.
    pub(crate) fn of_session(&self, session: &Jid) -> Option<&Occupant> {
        self.at(self.index_of_session(session.as_ref())?)
    }

    /// Nicknames of a user.
    pub(crate) fn nicks_of_user(&self, user: &Jid) -> Vec<String> {
        self.iter().filter(|one| one.user() == user.as_ref()).map(|one| one.nick().to_owned()).collect()
    }

    fn share_content(&mut self, session: &mut OccupantSession) {
        if let Some(content) = session.presence.take() {
            session.presence = Some(self.contents.share(content));
        }
    }

    /// Adds an occupant with its sessions, under a nickname that nobody has.
    pub(crate) fn insert(&mut self, mut occupant: Occupant) {
        self.note_change(occupant.nick());
        let Err(position) = self.search(occupant.nick()) else { return };
        let index = self.free.pop().or_else(|| {
            let index = OccupantIndex::try_from(self.slots.len()).ok()?;
            grow(&mut self.slots);
            self.slots.push(None);
            Some(index)
        });
        let Some(index) = index else { return };
        for session in &mut occupant.sessions {
            self.share_content(session);
            self.add_session(session.jid.as_ref(), index);
        }
        self.announced += usize::from(occupant.is_announced);
        if occupant.role == RoomRole::Moderator {
            self.moderators.push(index);
        }
        grow(&mut self.by_nick);
        self.by_nick.insert(position, index);
        if let Some(slot) = self.slots.get_mut(index as usize) {
            *slot = Some(Box::new(occupant));
        }
    }

    /// Adds a session to an occupant, or replaces its presence.
    pub(crate) fn put_session(&mut self, nick: &str, mut session: OccupantSession) {
        self.note_change(nick);
        let Some(index) = self.index_of(nick) else { return };
        self.share_content(&mut session);
        let Some(occupant) = self.at_mut(index) else { return };
        let jid = session.jid.clone();
        let known = occupant.sessions.iter().position(|one| one.jid == jid);
        if let Some(at) = known {
            occupant.sessions.remove(at);
        }
        occupant.sessions.push(session);
        if known.is_none() {
            self.add_session(jid.as_ref(), index);
        }
    }

    /// Removes a session of an occupant that has others.
    pub(crate) fn remove_session(&mut self, session: &Jid) -> Option<OccupantSession> {
        let index = self.index_of_session(session.as_ref())?;
        let nick = self.at(index)?.nick().to_owned();
        self.note_change(&nick);
        self.forget_session(session.as_ref(), index);
        let occupant = self.at_mut(index)?;
        let at = occupant.sessions.iter().position(|one| one.jid == *session)?;
        Some(occupant.sessions.remove(at))
    }

    /// Removes an occupant with all its sessions.
    pub(crate) fn remove(&mut self, nick: &str) -> Option<Occupant> {
        self.note_change(nick);
        let index = self.by_nick.remove(self.search(nick).ok()?);
        let occupant = *self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        for session in &occupant.sessions {
            self.forget_session(session.jid.as_ref(), index);
        }
        self.moderators.retain(|moderator| *moderator != index);
        self.announced -= usize::from(occupant.is_announced);
        if self.is_empty() {
            // What many occupants needed is not kept for the next few.
            let changed = self.changed.take();
            *self = Occupants { changed, ..Occupants::default() };
        }
        Some(occupant)
    }

    /// All sessions; made once for the stanzas that are handled together.
    pub(crate) fn all_sessions(&mut self) -> RecipientList {
        if let Some(known) = &self.all_sessions {
            return known.clone();
        }
        let made = self.sessions_of(|_| true);
        self.all_sessions = Some(made.clone());
        made
    }

    /// The stanzas that are handled together have the list of all sessions.
    pub(crate) fn drop_list(&mut self) {
        self.all_sessions = None;
    }

    /// The sessions of the occupants that `choose` selects.
    pub(crate) fn sessions_of(&self, choose: impl Fn(&Occupant) -> bool) -> RecipientList {
        sessions(self.iter().filter(|one| choose(one)))
    }
}

/// Makes room for one more.
fn grow<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(SMALL_GROWTH.max(list.len() / 4));
    }
}

/// The real JIDs of all sessions of occupants.
pub(crate) fn sessions<'a>(occupants: impl Iterator<Item = &'a Occupant>) -> RecipientList {
    occupants.flat_map(|one| &one.sessions).map(|session| &session.jid).collect()
}
