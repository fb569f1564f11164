//! Operations of administrators of the node by commands: results, and changes of affiliations.

use jid::Jid;
use store::RoomAffiliation;

use super::{Room, RoomCtx};
use crate::privileges::Affiliation;

/// Result of the creation of a room by an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreationOutcome {
    Created,
    /// There is such a room.
    Exists,
    /// The database failed.
    NotStored,
}

/// Result of the destruction of a room by an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DestructionOutcome {
    Destroyed,
    NoRoom,
    /// The database failed. The occupants are gone, and the removal is tried again.
    NotStored,
}

/// Result of a change of an affiliation by an administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AffiliationOutcome {
    Done,
    NoRoom,
    /// The room would have no owner.
    LastOwner,
    /// The lists have reached their maximum length.
    Full,
    /// The rooms of the creator take too much memory.
    OverQuota,
    /// The database failed.
    NotStored,
}

impl Room {
    /// A page of all affiliations after a user, in the order of addresses; `None` if the store has to be asked.
    pub(crate) fn affiliation_page(&self, after: Option<&Jid>, limit: usize) -> Option<Vec<RoomAffiliation>> {
        (!self.affiliations.is_large()).then(|| self.affiliations.page(after, limit))
    }

    /// Sets an affiliation in the name of the service.
    pub(crate) fn administer_affiliation(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        user: &Jid,
        affiliation: Affiliation,
    ) -> AffiliationOutcome {
        let before = self.affiliations.of(user.as_ref());
        let loses_owner =
            before == Affiliation::Owner && affiliation != Affiliation::Owner && user.local().is_some();
        if loses_owner && self.affiliations.owners() == 1 {
            return AffiliationOutcome::LastOwner;
        }
        let adds = affiliation != Affiliation::None && !self.affiliations.contains(user);
        let bytes = if adds { self.affiliations.growth(user, None, None) } else { 0 };
        if adds && affiliation != Affiliation::Outcast && self.check_quota().is_err() {
            return AffiliationOutcome::OverQuota;
        }
        if self.check_affiliation_capacity(usize::from(adds), bytes).is_err() {
            return AffiliationOutcome::Full;
        }
        if before != affiliation {
            self.change_affiliation(ctx, user, affiliation, None, None, None);
        }
        AffiliationOutcome::Done
    }
}
