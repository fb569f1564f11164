//! Accounts that were removed: they lose what they have in a room. A ban stays, since nobody should end it by registering again.

use jid::Jid;
use store::FormerAccount;

use super::{Room, RoomCtx};
use crate::privileges::Affiliation;

impl Room {
    /// Number of the last removal that it contains.
    pub(crate) fn removals(&self) -> u64 {
        self.removals
    }

    /// It contains all removals up to this number.
    pub(crate) fn contains_removals(&mut self, number: u64) {
        self.removals = number;
    }

    /// Whether a user has something in the room that ends with the account.
    pub(crate) fn has_of_account(&self, user: &Jid) -> bool {
        self.creator == *user || self.affiliations.contains(user) || self.hats.has_wearer(user)
    }

    /// Accounts were removed, in this order. An account that has one of the addresses by now keeps what it was given since.
    pub(crate) fn accounts_removed(&mut self, ctx: &mut RoomCtx<'_>, removed: &[FormerAccount]) {
        for one in removed {
            if one.number > self.removals {
                self.removals = one.number;
                self.account_removed(ctx, &one.user);
            }
        }
    }

    fn account_removed(&mut self, ctx: &mut RoomCtx<'_>, user: &Jid) {
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
