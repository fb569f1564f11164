//! Administrators of the service among the occupants, who own every room: XEP-0045 1.35.5, section 17.3.
//!
//! # Pitfalls
//!
//! The list of administrators may change while they are in the room: rooms in memory are notified within a second, and look for themselves
//! before an administrator or owner changes something.

use super::presence::OccupantChange;
use super::{Room, RoomCtx};

impl Room {
    /// Adapts the roles of occupants who are administrators of the service since they have entered, or are none any more. Those
    /// leave a room which is not open to them.
    pub(crate) fn update_service_admins(&mut self, ctx: &mut RoomCtx<'_>) {
        let changed = self.occupants.iter().filter(|one| one.is_service_admin != (ctx.is_admin)(one.user()));
        let changed: Vec<String> = changed.map(|one| one.nick().to_owned()).collect();
        for nick in changed {
            let before = self.occupants.get(&nick).map(|one| self.affiliation_of(one));
            self.occupants.toggle_service_admin(&nick);
            let after = self.occupants.get(&nick).map(|one| self.affiliation_of(one));
            if let Some(affiliations) = before.zip(after).filter(|(before, after)| before != after) {
                self.adapt_occupants(ctx, vec![nick], affiliations, &OccupantChange::default());
            }
        }
    }
}
