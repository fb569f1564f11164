//! Changes of whose presence everybody receives (`muc#roomconfig_presencebroadcast`, and the limit of large rooms): XEP-0045 1.35.5,
//! sections 7.2.2 and 8.4.

use throng_core::RecipientList;

use super::occupants::Occupant;
use super::presence::OccupantChange;
use super::{Room, RoomCtx};
use crate::privileges::RoomRole;

/// Occupants who are announced after one input.
const MAX_ANNOUNCED_AT_ONCE: usize = 8;

impl Room {
    /// Gives a role to an occupant and announces it. Those who do not receive the occupant's presence any more see it leave; an
    /// occupant who becomes a moderator receives what moderators see, and the reverse.
    pub(super) fn set_role(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        nick: &str,
        role: RoomRole,
        change: &OccupantChange<'_>,
    ) {
        let before = self.occupants.get(nick).map(|one| (self.is_announced_to_all(one), one.role));
        let Some((was_shown, former_role)) = before else { return };
        self.occupants.set_role(nick, role);
        if role == RoomRole::Moderator {
            self.occupants.set_announced(nick);
        } else if former_role == RoomRole::Moderator
            && self.occupants.announced_count() > self.announced_limit()
        {
            // Otherwise everybody would be shown who was a moderator once, however many are in the room.
            self.occupants.set_hidden(nick);
        }
        let Some(occupant) = self.occupants.get(nick) else { return };
        self.announce(ctx, occupant, change);
        if was_shown && !self.is_announced_to_all(occupant) {
            self.withdraw(ctx, occupant);
        }
        match (former_role == RoomRole::Moderator, role == RoomRole::Moderator) {
            (false, true) => self.show_as_to_moderators(ctx, occupant),
            (true, false) => self.hide_from(ctx, occupant),
            _ => {}
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

    /// A room is not large any more: those who were hidden are shown, few at a time. Not before: each of those who leave a large room
    /// would cause a presence to all others.
    pub(crate) fn announce_next(&mut self, ctx: &mut RoomCtx<'_>) {
        for _ in 0..MAX_ANNOUNCED_AT_ONCE {
            if self.occupants.len() > self.announced_limit() || self.occupants.first_hidden().is_none() {
                return;
            }
            self.announce_hidden(ctx);
        }
    }

    fn announce_hidden(&mut self, ctx: &mut RoomCtx<'_>) {
        let Some(nick) = self.occupants.first_hidden().map(|one| one.nick().to_owned()) else { return };
        self.occupants.set_announced(&nick);
        let Some(occupant) = self.occupants.get(&nick).filter(|one| self.is_announced_to_all(one)) else {
            return;
        };
        let sees = self.sees_real_jids(RoomRole::Visitor);
        let presence = self.occupant_presence(occupant, &OccupantChange::default(), sees, false);
        ctx.multicast(presence, &occupant.jid, self.others_than_moderators(occupant));
    }

    /// Occupants above which only moderators receive the presence of further ones.
    pub(super) fn announced_limit(&self) -> usize {
        self.limits().presence_occupants.max(1)
    }

    /// Shows an occupant as gone to all but moderators and the occupant.
    fn withdraw(&self, ctx: &mut RoomCtx<'_>, occupant: &Occupant) {
        let stanza = self.withdrawal(occupant, RoomRole::Visitor);
        ctx.multicast(stanza, &occupant.jid, self.others_than_moderators(occupant));
    }

    fn withdrawal(&self, occupant: &Occupant, of: RoomRole) -> Option<throng_core::SharedStanza> {
        let change = OccupantChange { is_unavailable: true, ..Default::default() };
        self.occupant_presence(occupant, &change, self.sees_real_jids(of), false)
    }

    fn others_than_moderators(&self, occupant: &Occupant) -> RecipientList {
        self.occupants.sessions_of(|one| one.jid != occupant.jid && one.role != RoomRole::Moderator)
    }

    /// A new moderator receives the presence of those who were hidden, and of all if moderators alone see their addresses.
    fn show_as_to_moderators(&self, ctx: &mut RoomCtx<'_>, moderator: &Occupant) {
        let sessions: RecipientList = moderator.sessions.iter().map(|session| &session.jid).collect();
        for one in self.occupants.iter().filter(|one| one.jid != moderator.jid) {
            if !self.config.non_anonymous || !self.is_announced_to_all(one) {
                let presence = self.occupant_presence(one, &OccupantChange::default(), true, false);
                ctx.multicast(presence, &one.jid, sessions.clone());
            }
        }
    }

    /// A former moderator sees those leave whose presence only moderators receive.
    fn hide_from(&self, ctx: &mut RoomCtx<'_>, occupant: &Occupant) {
        let sessions: RecipientList = occupant.sessions.iter().map(|session| &session.jid).collect();
        for one in self.occupants.iter().filter(|one| one.jid != occupant.jid) {
            if !self.is_announced_to_all(one) {
                ctx.multicast(self.withdrawal(one, occupant.role), &one.jid, sessions.clone());
            }
        }
    }
}
