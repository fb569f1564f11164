//! The occupants of a room by nickname and by session.
//!
//! Several sessions of one user may share a nickname; they are one occupant.
//!
//! # Pitfalls
//!
//! The lists of recipients are shared with multicasts that are still running, so a change makes a new list.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use jid::Jid;
use smallvec::SmallVec;

use crate::privileges::RoomRole;

/// A user in the room under one nickname.
#[derive(Debug)]
pub(crate) struct Occupant {
    /// Address in the room; its resource is the nickname.
    pub(crate) jid: Jid,
    /// Bare address of the user.
    pub(crate) user: Jid,
    pub(crate) role: RoomRole,
    /// Stable id of the user in this room (XEP-0421).
    pub(crate) occupant_id: Box<str>,
    /// At least one.
    pub(crate) sessions: SmallVec<[OccupantSession; 1]>,
    /// Everybody has received its presence, not only moderators.
    pub(crate) is_announced: bool,
    /// Time of the last message to all, in milliseconds since 1970.
    pub(crate) last_message_millis: u64,
}

/// A session of an occupant.
#[derive(Debug)]
pub(crate) struct OccupantSession {
    /// Full address.
    pub(crate) jid: Jid,
    /// Content of its last presence, without what belongs to the room.
    pub(crate) presence: Box<[u8]>,
    /// `xml:lang` of its last presence.
    pub(crate) lang: Option<Box<str>>,
}

impl Occupant {
    /// The nickname.
    pub(crate) fn nick(&self) -> &str {
        self.jid.resource().unwrap_or_default()
    }

    /// Content of the latest presence.
    pub(crate) fn presence(&self) -> &[u8] {
        self.sessions.last().map(|session| &*session.presence).unwrap_or_default()
    }

    /// `xml:lang` of the latest presence.
    pub(crate) fn lang(&self) -> Option<&str> {
        self.sessions.last()?.lang.as_deref()
    }
}

/// All occupants.
#[derive(Debug, Default)]
pub(crate) struct Occupants {
    by_nick: BTreeMap<Box<str>, Occupant>,
    nick_by_session: HashMap<Jid, Box<str>>,
    all_sessions: Option<Arc<[Jid]>>,
    /// Nicknames whose occupants have changed since the copy of another node; `None` without a copy.
    changed: Option<BTreeSet<Box<str>>>,
}

impl Occupants {
    /// Number of occupants.
    pub(crate) fn len(&self) -> usize {
        self.by_nick.len()
    }

    /// Number of sessions.
    pub(crate) fn session_count(&self) -> usize {
        self.nick_by_session.len()
    }

    /// Whether nobody is in the room.
    pub(crate) fn is_empty(&self) -> bool {
        self.by_nick.is_empty()
    }

    /// In the order of nicknames.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Occupant> {
        self.by_nick.values()
    }

    /// The occupant with this nickname.
    pub(crate) fn get(&self, nick: &str) -> Option<&Occupant> {
        self.by_nick.get(nick)
    }

    /// The occupant with this nickname. Sessions are changed by other methods.
    pub(crate) fn get_mut(&mut self, nick: &str) -> Option<&mut Occupant> {
        self.note_change(nick);
        self.by_nick.get_mut(nick)
    }

    /// An occupant has sent a message to all.
    pub(crate) fn set_last_message(&mut self, nick: &str, millis: u64) {
        // The copy of another node does not need it.
        if let Some(occupant) = self.by_nick.get_mut(nick) {
            occupant.last_message_millis = millis;
        }
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

    /// The occupant of a session.
    pub(crate) fn of_session(&self, session: &Jid) -> Option<&Occupant> {
        self.by_nick.get(self.nick_by_session.get(session)?)
    }

    /// Nicknames of a user.
    pub(crate) fn nicks_of_user(&self, user: &Jid) -> Vec<String> {
        self.iter().filter(|one| one.user == *user).map(|one| one.nick().to_owned()).collect()
    }

    /// Adds an occupant with its sessions.
    pub(crate) fn insert(&mut self, occupant: Occupant) {
        let nick: Box<str> = occupant.nick().into();
        self.note_change(&nick);
        for session in &occupant.sessions {
            self.nick_by_session.insert(session.jid.clone(), nick.clone());
        }
        self.by_nick.insert(nick, occupant);
        self.all_sessions = None;
    }

    /// Adds a session to an occupant, or replaces its presence.
    pub(crate) fn put_session(&mut self, nick: &str, session: OccupantSession) {
        self.note_change(nick);
        let Some(occupant) = self.by_nick.get_mut(nick) else { return };
        if let Some(at) = occupant.sessions.iter().position(|one| one.jid == session.jid) {
            occupant.sessions.remove(at);
        } else {
            self.nick_by_session.insert(session.jid.clone(), nick.into());
            self.all_sessions = None;
        }
        occupant.sessions.push(session);
    }

    /// Removes a session of an occupant that has others.
    pub(crate) fn remove_session(&mut self, session: &Jid) -> Option<OccupantSession> {
        let nick = self.nick_by_session.remove(session)?;
        self.note_change(&nick);
        self.all_sessions = None;
        let occupant = self.by_nick.get_mut(&nick)?;
        let at = occupant.sessions.iter().position(|one| one.jid == *session)?;
        Some(occupant.sessions.remove(at))
    }

    /// Removes an occupant with all its sessions.
    pub(crate) fn remove(&mut self, nick: &str) -> Option<Occupant> {
        self.note_change(nick);
        let occupant = self.by_nick.remove(nick)?;
        for session in &occupant.sessions {
            self.nick_by_session.remove(&session.jid);
        }
        self.all_sessions = None;
        Some(occupant)
    }

    /// All sessions; made once for all messages between two changes of the occupants.
    pub(crate) fn all_sessions(&mut self) -> Arc<[Jid]> {
        let sessions = || {
            let all = self.by_nick.values().flat_map(|one| &one.sessions);
            all.map(|session| session.jid.clone()).collect()
        };
        self.all_sessions.get_or_insert_with(sessions).clone()
    }

    /// The sessions of the occupants that `choose` selects.
    pub(crate) fn sessions_of(&self, choose: impl Fn(&Occupant) -> bool) -> Arc<[Jid]> {
        let chosen = self.by_nick.values().filter(|one| choose(one)).flat_map(|one| &one.sessions);
        chosen.map(|session| session.jid.clone()).collect()
    }
}
