//! Entering a room: XEP-0045 1.35.5, section 7.2, with its order of events (section 7.1).

use base::secret::constant_time_eq;
use jid::Jid;
use stanza::{ErrorType, StanzaCondition, StanzaError};
use throng_core::{RecipientList, SharedStanza};
use xml::{Ns, TreeNode};

use super::history::HistoryRequest;
use super::occupants::{Occupant, OccupantSession};
use super::presence::OccupantChange;
use super::{Room, RoomCtx};
use crate::privileges::{Affiliation, RoomRole};

/// Sessions beyond the maximum that administrators and owners may use (section 7.2.9).
const RESERVED_FOR_ADMINS: usize = 16;

impl Room {
    /// A session that is not in the room enters it. `x` is the element of its presence.
    pub(super) fn enter(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        session: OccupantSession,
        nick: &str,
        x: TreeNode<'_>,
        id: Option<&str>,
    ) -> Result<(), StanzaError> {
        let from = session.jid.clone();
        let user = from.bare().to_jid();
        let affiliation = self.affiliation(ctx, user.as_ref());
        self.check_admission(affiliation, x)?;
        let is_created = self.is_locked() && self.occupants.is_empty();
        // Section 7.10: the registered nickname replaces another one only if that one is not free; section 7.2.8: conflict.
        let jid = self.check_nick(&user, nick)?;
        self.check_capacity(affiliation, self.occupants.get(nick).is_none())?;
        match self.occupants.get(nick) {
            Some(_) => self.occupants.put_session(nick, session),
            None => {
                let default = affiliation.default_role(self.config.moderated);
                let role = self.roles.of(user.as_ref()).map_or(default, |retained| retained.max(default));
                let is_announced =
                    role == RoomRole::Moderator || self.occupants.len() < self.announced_limit();
                self.occupants.insert(Occupant {
                    jid,
                    occupant_id: self.occupant_id(ctx, user.as_ref()),
                    role,
                    sessions: smallvec::smallvec![session],
                    is_announced,
                    is_service_admin: ctx.is_service_admin,
                });
            }
        }
        self.invitations.accept(&from.bare().to_jid());
        let mut codes = self.entry_codes();
        if is_created {
            codes.push(201);
        }
        self.welcome(ctx, &from, nick, &HistoryRequest::read(x), &codes, id);
        Ok(())
    }

    /// Status codes about the room for a user who enters (sections 7.2.3 and 7.2.12).
    pub(super) fn entry_codes(&self) -> Vec<u16> {
        let codes = [(self.config.non_anonymous, 100), (self.config.logging, 170)];
        codes.into_iter().filter(|(applies, _)| *applies).map(|(_, code)| code).collect()
    }

    /// Sections 7.2.5 to 7.2.7 and 7.2.10.
    fn check_admission(&self, affiliation: Affiliation, x: TreeNode<'_>) -> Result<(), StanzaError> {
        if affiliation == Affiliation::Outcast {
            return Err(StanzaError::new(StanzaCondition::Forbidden).text("you are banned from this room"));
        }
        if self.is_locked() && affiliation != Affiliation::Owner {
            let text = "the room is locked until its owner has configured it";
            return Err(StanzaError::new(StanzaCondition::ItemNotFound).text(text));
        }
        if self.config.members_only && affiliation < Affiliation::Member {
            let text = "only members can enter this room";
            return Err(StanzaError::new(StanzaCondition::RegistrationRequired).text(text));
        }
        let Some(password) = &self.config.password else { return Ok(()) };
        let given = x.child("password", Ns::Muc).map(|given| given.text());
        if given.is_some_and(|given| constant_time_eq(given.as_bytes(), password.as_bytes())) {
            return Ok(());
        }
        Err(StanzaError::new(StanzaCondition::NotAuthorized).text("this room requires a password"))
    }

    /// Section 7.2.8: the nickname is short enough, and free for the user. Returns the occupant JID, which has its prepared form.
    pub(super) fn check_nick(&self, user: &Jid, nick: &str) -> Result<Jid, StanzaError> {
        // Section 17.1.
        if nick.chars().all(char::is_whitespace) {
            return Err(StanzaError::new(StanzaCondition::JidMalformed).text("the nickname is blank"));
        }
        let jid = self.jid.with_resource(nick).map_err(|_| StanzaCondition::JidMalformed)?;
        let nick = jid.resource().unwrap_or_default();
        if nick.len() > self.limits().nick_bytes {
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("the nickname is too long"));
        }
        let is_used = self.occupants.get(nick).is_some_and(|one| one.user() != user.as_ref());
        let is_reserved = self.affiliations.is_reserved_by_another(nick, user);
        if is_used || is_reserved {
            let text = "the nickname is used or reserved by another user";
            return Err(StanzaError::new(StanzaCondition::Conflict).text(text));
        }
        Ok(jid)
    }

    /// Section 7.2.9: the room limits the occupants, and the service the sessions. `is_new` is whether the session is that of another
    /// occupant.
    fn check_capacity(&self, affiliation: Affiliation, is_new: bool) -> Result<(), StanzaError> {
        let limit = self.limits().occupants;
        let (max_sessions, max_occupants) = match affiliation.is_privileged() {
            true => (limit.saturating_add(RESERVED_FOR_ADMINS), usize::MAX),
            false => (limit, self.config.max_occupants(self.limits())),
        };
        let has_room = !is_new || self.occupants.len() < max_occupants;
        if has_room && self.occupants.session_count() < max_sessions {
            return Ok(());
        }
        let error = StanzaError::new(StanzaCondition::ServiceUnavailable).kind(ErrorType::Wait);
        Err(error.text("the maximum number of occupants is reached"))
    }

    /// Section 7.1: presence of the others, the newcomer's own, history, subject. `codes` are for the newcomer only.
    pub(super) fn welcome(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        session: &Jid,
        nick: &str,
        request: &HistoryRequest,
        codes: &[u16],
        id: Option<&str>,
    ) {
        let Some(newcomer) = self.occupants.get(nick) else { return };
        let sees = self.sees_real_jids(newcomer.role);
        let only = RecipientList::from_iter([session]);
        let mut show = |one: &Occupant| {
            if one.jid != newcomer.jid {
                let stanza = self.occupant_presence(one, &OccupantChange::default(), sees, false);
                ctx.multicast(stanza, &one.jid, only.clone());
            }
        };
        if newcomer.role == RoomRole::Moderator {
            self.occupants.iter().for_each(show);
        } else {
            self.occupants.announced().filter(|one| self.is_announced_to_all(one)).for_each(&mut show);
        }
        let change = OccupantChange { own_codes: codes, id, newcomer: Some(session), ..Default::default() };
        self.announce(ctx, newcomer, &change);
        for item in self.history.select(request, self.config.history_messages, ctx.now, session.as_str()) {
            ctx.multicast(Some(item.stanza.clone()), &item.from, only.clone());
        }
        let (stanza, from) = self.subject_for_newcomer();
        ctx.multicast(stanza, &from, only);
    }

    /// The subject, or an empty one (section 7.2.15).
    fn subject_for_newcomer(&self) -> (Option<SharedStanza>, Jid) {
        match &self.subject.stanza {
            Some((stanza, from)) => (Some(stanza.clone()), from.clone()),
            None => {
                let stanza = SharedStanza::build(|w| {
                    w.start("message").attr("from", self.jid.as_str()).attr("type", "groupchat");
                    w.start("subject").end().end();
                });
                (stanza, self.jid.clone())
            }
        }
    }
}
