//! Administrators of the service among the occupants, who own every room: XEP-0045 1.35.5, section 17.3.
//!
//! # Pitfalls
//!
//! The list of administrators may change while they are in the room.

use super::presence::OccupantChange;
use super::{Room, RoomCtx};

impl Room {
    /// Adapts the roles of occupants who are administrators of the service since they have entered, or are none any more.
    pub(super) fn update_service_admins(&mut self, ctx: &mut RoomCtx<'_>) {
        let changed = self.occupants.iter().filter(|one| one.is_service_admin != (ctx.is_admin)(one.user()));
        let changed: Vec<String> = changed.map(|one| one.nick().to_owned()).collect();
        for nick in changed {
            self.occupants.toggle_service_admin(&nick);
            let Some(occupant) = self.occupants.get(&nick) else { continue };
            let role = self.affiliation_of(occupant).default_role(self.config.moderated);
            self.set_role(ctx, &nick, role, &OccupantChange::default());
        }
    }
}
