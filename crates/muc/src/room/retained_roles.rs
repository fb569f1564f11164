//! Voice that was granted in a moderated room: XEP-0045 1.35.5, section 5.1.3: roles should be retained across visits.

use std::collections::VecDeque;

use jid::{Jid, JidRef};

use super::Room;
use crate::privileges::{Affiliation, RoomRole};

/// Users whose voice is retained; a further one replaces the oldest.
const MAX_USERS: usize = 256;

/// Users who have been granted voice; kept while the room is in memory.
#[derive(Debug, Default)]
pub(super) struct RetainedRoles(VecDeque<Jid>);

impl RetainedRoles {
    /// The role that a user without an affiliation had.
    pub(super) fn of(&self, user: JidRef<'_>) -> Option<RoomRole> {
        self.0.iter().any(|one| one.as_ref() == user.bare()).then_some(RoomRole::Participant)
    }

    /// Memory that they take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.iter().map(|user| size_of::<Jid>() + user.as_str().len()).sum()
    }

    fn set(&mut self, user: JidRef<'_>, role: RoomRole) {
        self.0.retain(|one| one.as_ref() != user.bare());
        if role == RoomRole::Participant {
            if self.0.len() == MAX_USERS {
                self.0.pop_front();
            }
            self.0.push_back(user.bare().to_jid());
        }
    }

    /// The account of a user was removed.
    pub(super) fn forget(&mut self, user: &Jid) {
        self.0.retain(|one| one != user);
    }

    /// The room is not moderated any more.
    pub(super) fn clear(&mut self) {
        self.0 = VecDeque::new();
    }
}

impl Room {
    /// A moderator has given a role to an occupant.
    pub(super) fn retain_role(&mut self, nick: &str, role: RoomRole) {
        let Some(occupant) = self.occupants.get(nick).filter(|_| self.config.moderated) else { return };
        if self.affiliation_of(occupant) == Affiliation::None {
            self.roles.set(occupant.user(), role);
        }
    }
}
