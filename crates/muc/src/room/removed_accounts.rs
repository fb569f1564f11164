//! Accounts that were removed: they lose what they have in a room. A ban stays, since nobody should end it by registering again.

use jid::Jid;

use super::presence::OccupantChange;
use super::{Affiliations, Room, RoomCtx};
use crate::privileges::Affiliation;

impl Room {
    /// Accounts were removed.
    pub(crate) fn accounts_removed(&mut self, ctx: &mut RoomCtx<'_>, users: &[Jid]) {
        for user in users {
            self.registrations.remove(user);
            self.voice_requests.remove(user);
            self.roles.forget(user);
            self.invitations.accept(user);
            if self.hats.forget(user) {
                self.note_change();
            }
            if self.creator == *user {
                // As in the store.
                self.creator = self.jid.clone();
                self.note_change();
            }
            if self.affiliations.contains(user) && self.affiliations.of(user.as_ref()) > Affiliation::None {
                self.change_affiliation(ctx, user, Affiliation::None, None, None, None);
            }
        }
    }

    /// The store may have removed affiliations: these are left.
    pub(crate) fn replace_affiliations(&mut self, ctx: &mut RoomCtx<'_>, affiliations: Affiliations) {
        let occupants = self.occupants.iter();
        let before: Vec<(String, Affiliation)> =
            occupants.map(|one| (one.nick().to_owned(), self.affiliation_of(one))).collect();
        if !self.put_affiliations_of_store(affiliations) {
            return;
        }
        for (nick, before) in before {
            let Some(occupant) = self.occupants.get(&nick) else { continue };
            let after = self.affiliation_of(occupant);
            if after != before {
                self.adapt_occupants(ctx, vec![nick], (before, after), &OccupantChange::default());
            }
        }
    }

    /// Replaces affiliations by those of the store, unless it does not have all; whether they are replaced.
    pub(crate) fn put_affiliations_of_store(&mut self, affiliations: Affiliations) -> bool {
        if !self.is_persistent() || self.affiliations.has_unsaved() {
            return false;
        }
        self.affiliations = affiliations;
        true
    }
}
