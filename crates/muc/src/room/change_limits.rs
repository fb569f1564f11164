//! Bounds of the stanzas that one request for other roles and affiliations causes.
//!
//! # Pitfalls
//!
//! Users who are removed together are not counted: their number has no bound but that of the room, as if they left one by one.

use std::collections::{BTreeMap, BTreeSet};

use stanza::{StanzaCondition, StanzaError};

use super::Room;
use crate::privileges::{Affiliation, RoomRole};

/// Copies of announcements, which all recipients of one share.
const MAX_ANNOUNCEMENTS: usize = 200_000;
/// Presence of others for new and former moderators, of which no two are the same.
const MAX_PRESENCE_FOR_MODERATORS: usize = 20_000;

fn too_many() -> StanzaError {
    StanzaError::new(StanzaCondition::NotAcceptable).text("too many changes at a time")
}

/// Changes of one request.
#[derive(Default)]
pub(super) struct PrivilegeChangeCounts<'a> {
    /// Affiliations that users get.
    pub(super) affiliations: BTreeMap<&'a str, Affiliation>,
    /// Number of roles.
    pub(super) roles: usize,
    /// Number of those who become moderators by a role, or are none any more.
    pub(super) moderators: usize,
}

impl Room {
    /// Checks the number of announcements of these changes. `absent` are those of users who are not in the room. One is always possible.
    ///
    /// # Errors
    /// `not-acceptable` if they are too many.
    pub(super) fn check_announcements(&self, present: usize, absent: usize) -> Result<(), StanzaError> {
        let all = self.occupants.session_count();
        let of_absent = match self.config.non_anonymous {
            true => all,
            false => self.occupants.moderators().map(|one| one.sessions.len()).sum(),
        };
        let copies = present.saturating_mul(all).saturating_add(absent.saturating_mul(of_absent));
        if copies <= MAX_ANNOUNCEMENTS || present.saturating_add(absent) <= 1 {
            return Ok(());
        }
        Err(too_many())
    }

    /// Checks the number of stanzas that the changes of one request cause.
    ///
    /// # Errors
    /// `not-acceptable` if they are too many.
    pub(super) fn check_stanza_count(&self, changes: &PrivilegeChangeCounts<'_>) -> Result<(), StanzaError> {
        let (affiliations, mut moderators) = (&changes.affiliations, changes.moderators);
        let mut present = BTreeSet::new();
        for occupant in self.occupants.iter() {
            let user = occupant.user();
            let Some(affiliation) = affiliations.get(user.as_str()) else { continue };
            present.insert(user.as_str());
            let is_moderator = occupant.role == RoomRole::Moderator;
            let becomes_other = match affiliation.is_privileged() {
                true => !is_moderator,
                false => is_moderator && self.affiliations.of(user).is_privileged(),
            };
            moderators += usize::from(becomes_other);
        }
        self.check_announcements(changes.roles + present.len(), affiliations.len() - present.len())?;
        if moderators > 1 && moderators > MAX_PRESENCE_FOR_MODERATORS / self.occupants.len().max(1) {
            return Err(too_many());
        }
        Ok(())
    }
}
