//! Changes of whose presence everybody receives (`muc#roomconfig_presencebroadcast`): XEP-0045 1.35.5, sections 7.2.2 and 8.4.

use super::occupants::Occupant;
use super::presence::OccupantChange;
use super::{Room, RoomCtx};
use crate::privileges::RoomRole;

impl Room {
    /// Gives a role to an occupant and announces it. Those who do not receive the occupant's presence any more see it leave.
    pub(super) fn set_role(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        nick: &str,
        role: RoomRole,
        change: &OccupantChange<'_>,
    ) {
        let Some(was_shown) = self.occupants.get(nick).map(|one| self.is_announced_to_all(one)) else {
            return;
        };
        self.occupants.set_role(nick, role);
        let Some(occupant) = self.occupants.get(nick) else { return };
        self.announce(ctx, occupant, change);
        if was_shown && !self.is_announced_to_all(occupant) {
            self.withdraw(ctx, occupant);
        }
    }

    /// The owner has changed the roles whose presence is broadcast. `before` are the former ones.
    pub(super) fn presence_broadcast_changed(&self, ctx: &mut RoomCtx<'_>, before: &[RoomRole]) {
        for occupant in self.occupants.iter().filter(|one| one.is_announced) {
            match (before.contains(&occupant.role), self.is_announced_to_all(occupant)) {
                (true, false) => self.withdraw(ctx, occupant),
                (false, true) => self.announce(ctx, occupant, &OccupantChange::default()),
                _ => {}
            }
        }
    }

    /// Shows an occupant as gone to all but moderators and the occupant.
    fn withdraw(&self, ctx: &mut RoomCtx<'_>, occupant: &Occupant) {
        let change = OccupantChange { is_unavailable: true, ..Default::default() };
        let stanza = self.occupant_presence(occupant, &change, self.sees_real_jids(RoomRole::Visitor), false);
        let others =
            self.occupants.sessions_of(|one| one.jid != occupant.jid && one.role != RoomRole::Moderator);
        ctx.multicast(stanza, &occupant.jid, others);
    }
}
