//! Change of the nickname: XEP-0045 1.35.5, section 7.6.

use jid::Jid;
use stanza::StanzaError;

use super::occupants::{Occupant, OccupantSession};
use super::presence::OccupantChange;
use super::{Room, RoomCtx};

impl Room {
    /// Changes the nickname of a session; the caller announces the new one. An occupant with several sessions keeps the former
    /// one for the others.
    pub(super) fn change_nick(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        session: OccupantSession,
        current: &str,
        nick: &str,
    ) -> Result<(), StanzaError> {
        let user = session.jid.bare().to_jid();
        let address = self.check_nick(&user, nick)?;
        let moved = session.jid.clone();
        let change = OccupantChange {
            is_unavailable: true,
            codes: &[303],
            new_nick: Some(nick),
            ..Default::default()
        };
        let Some(before) = self.occupants.get(current) else { return Ok(()) };
        if before.sessions.len() > 1 {
            let own = self.occupant_presence(before, &change, self.sees_real_jids(before.role), true);
            let former = before.jid.clone();
            let next = Occupant { sessions: smallvec::smallvec![session], ..renamed(before, address) };
            self.occupants.remove_session(&moved);
            self.join_or_insert(nick, next);
            ctx.send_shared(own, &former, &moved);
        } else {
            let Some(before) = self.occupants.remove(current) else { return Ok(()) };
            self.announce(ctx, &before, &change);
            let next = Occupant { sessions: smallvec::smallvec![session], ..renamed(&before, address) };
            self.join_or_insert(nick, next);
        }
        Ok(())
    }

    fn join_or_insert(&mut self, nick: &str, occupant: Occupant) {
        if self.occupants.get(nick).is_none() {
            return self.occupants.insert(occupant);
        }
        for session in occupant.sessions {
            self.occupants.put_session(nick, session);
        }
    }
}

/// The occupant under another occupant JID, without sessions.
fn renamed(before: &Occupant, jid: Jid) -> Occupant {
    Occupant {
        jid,
        role: before.role,
        occupant_id: before.occupant_id,
        sessions: smallvec::SmallVec::new(),
        is_announced: before.is_announced,
        is_service_admin: before.is_service_admin,
    }
}
