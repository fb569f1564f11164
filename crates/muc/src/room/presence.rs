//! Presence of occupants: XEP-0045 1.35.5, sections 7.2.2 (broadcast), 7.7 (availability), 7.14 (leaving) and 11.1 (removal
//! after an error); occupant ids: XEP-0421 1.0.1.
//!
//! In a room with many occupants, the presence of further ones is sent to moderators and to themselves only: otherwise a
//! join would cost a stanza for each occupant.

use jid::Jid;
use stanza::{StanzaCondition, StanzaError};
use throng_core::{RecipientList, SharedStanza};
use xml::{Ns, Writer};

use super::history::{HistoryRequest, write_occupant_id};
use super::occupants::{Occupant, OccupantSession, sessions};
use super::{DestroyNotice, Room, RoomCtx, write_status_codes};
use crate::privileges::{Affiliation, RoomRole};

/// Longest language tag, in bytes: the length that RFC 5646, section 4.4.1, recommends.
const MAX_LANG_BYTES: usize = 35;

/// Details of a presence of an occupant besides its content.
#[derive(Clone, Copy, Default)]
pub(super) struct OccupantChange<'a> {
    /// The occupant is not in the room any more.
    pub(super) is_unavailable: bool,
    /// Content of an unavailable presence.
    pub(super) content: &'a [u8],
    /// `xml:lang` of an unavailable presence.
    pub(super) lang: Option<&'a str>,
    /// Status codes for everybody.
    pub(super) codes: &'a [u16],
    /// More status codes for the occupant, besides 110.
    pub(super) own_codes: &'a [u16],
    /// Nickname of the occupant who caused it.
    pub(super) actor: Option<&'a str>,
    pub(super) reason: Option<&'a str>,
    /// The nickname that the occupant has from now on.
    pub(super) new_nick: Option<&'a str>,
    /// `id` of the occupant's own presence that caused it.
    pub(super) id: Option<&'a str>,
    /// The only session of the occupant for which `id` and `own_codes` are.
    pub(super) newcomer: Option<&'a Jid>,
    /// Of the others, only moderators receive it.
    pub(super) only_moderators: bool,
}

impl Room {
    /// Presence without a type.
    pub(super) fn available(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        stanza: &SharedStanza,
        from: &Jid,
        to: &Jid,
    ) -> Result<(), StanzaError> {
        let Some(nick) = to.resource() else {
            // Section 7.2.1: no nickname.
            return Err(StanzaError::new(StanzaCondition::JidMalformed).text("add a nickname to the address"));
        };
        let tree = stanza.tree().map_err(|_| StanzaCondition::BadRequest)?;
        let x = tree.root().child("x", Ns::Muc);
        let content = presence_content(tree.root(), self.limits().presence_bytes);
        let session = OccupantSession::new(from.clone(), content, presence_lang(stanza));
        let id = stanza.head().id(stanza.bytes());
        let current = self.occupants.of_session(from).map(|one| one.nick().to_owned());
        match (current, x) {
            (None, Some(x)) => self.enter(ctx, session, nick, x, id.as_deref()),
            // Section 7.2.18: the client believes that it is in the room.
            (None, None) => {
                report_not_in_room(ctx, from, to);
                Ok(())
            }
            // Section 17.3: the client believes that it is not in the room.
            (Some(current), Some(x)) => {
                if current == nick {
                    self.occupants.put_session(nick, session);
                } else {
                    self.change_nick(ctx, session, &current, nick)?;
                }
                let codes = self.entry_codes();
                self.welcome(ctx, from, nick, &HistoryRequest::read(x), &codes, id.as_deref());
                Ok(())
            }
            (Some(current), None) if current == nick => {
                self.occupants.put_session(nick, session);
                let Some(occupant) = self.occupants.get(nick) else { return Ok(()) };
                self.announce(ctx, occupant, &OccupantChange { id: id.as_deref(), ..Default::default() });
                Ok(())
            }
            (Some(current), None) => {
                self.change_nick(ctx, session, &current, nick)?;
                let Some(occupant) = self.occupants.get(nick) else { return Ok(()) };
                self.announce(ctx, occupant, &OccupantChange::default());
                Ok(())
            }
        }
    }

    /// A session leaves, or is gone. `stanza` is its unavailable presence.
    pub(super) fn leave(&mut self, ctx: &mut RoomCtx<'_>, from: &Jid, stanza: Option<&SharedStanza>) {
        // Section 10.1.3: the owner has not configured the room.
        if self.is_locked()
            && self.occupants.session_count() == 1
            && self.occupants.of_session(from).is_some()
        {
            return self.destroy(ctx, &DestroyNotice::default());
        }
        let content = stanza.and_then(|stanza| {
            let tree = stanza.tree().ok()?;
            Some(presence_content(tree.root(), self.limits().presence_bytes))
        });
        let lang = stanza.and_then(presence_lang);
        let change = OccupantChange {
            is_unavailable: true,
            content: content.as_deref().unwrap_or_default(),
            lang: lang.as_deref(),
            ..Default::default()
        };
        self.remove_session(ctx, from, &change);
    }

    /// Section 11.1: sessions are removed after an error.
    pub(super) fn remove_lost_sessions(&mut self, ctx: &mut RoomCtx<'_>, sessions: &[Jid]) {
        let change = OccupantChange { is_unavailable: true, codes: &[333], ..Default::default() };
        let mut nicks = Vec::new();
        for session in sessions {
            match self.occupants.of_session(session) {
                Some(occupant) if occupant.sessions.len() == 1 => nicks.push(occupant.nick().to_owned()),
                Some(_) => self.remove_session(ctx, session, &change),
                None => {}
            }
        }
        self.remove_occupants(ctx, &nicks, &change);
    }

    /// Removes one session. The occupant leaves with the last one.
    fn remove_session(&mut self, ctx: &mut RoomCtx<'_>, session: &Jid, change: &OccupantChange<'_>) {
        let Some(occupant) = self.occupants.of_session(session) else { return };
        let nick = occupant.nick().to_owned();
        if occupant.sessions.len() > 1 {
            let own = self.occupant_presence(occupant, change, self.sees_real_jids(occupant.role), true);
            let address = occupant.jid.clone();
            self.occupants.remove_session(session);
            ctx.send_shared(own, &address, session);
            let Some(occupant) = self.occupants.get(&nick) else { return };
            self.announce(ctx, occupant, &OccupantChange::default());
        } else {
            self.remove_occupant(ctx, &nick, change);
        }
    }

    /// Removes an occupant with all sessions.
    pub(super) fn remove_occupant(&mut self, ctx: &mut RoomCtx<'_>, nick: &str, change: &OccupantChange<'_>) {
        self.remove_occupants(ctx, &[nick], change);
    }

    /// Removes occupants together. They do not see each other leave, so that many cost no more than those who stay.
    pub(super) fn remove_occupants(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        nicks: &[impl AsRef<str>],
        change: &OccupantChange<'_>,
    ) {
        let removed: Vec<Occupant> =
            nicks.iter().filter_map(|nick| self.occupants.remove(nick.as_ref())).collect();
        for occupant in &removed {
            self.announce(ctx, occupant, change);
            self.relayed.remove_session_of(occupant);
        }
    }

    /// Sends the presence of an occupant to the others, then to the occupant. One that was removed is not among the others.
    pub(super) fn announce(&self, ctx: &mut RoomCtx<'_>, occupant: &Occupant, change: &OccupantChange<'_>) {
        let for_all = self.is_announced_to_all(occupant) && !change.only_moderators;
        let others = |sees: bool| {
            let is_meant = |one: &&Occupant| one.jid != occupant.jid && self.sees_real_jids(one.role) == sees;
            match for_all {
                true => sessions(self.occupants.iter().filter(is_meant)),
                false => sessions(self.occupants.moderators().filter(is_meant)),
            }
        };
        for sees in [true, false] {
            let recipients = others(sees);
            if !recipients.is_empty() {
                ctx.multicast(
                    self.occupant_presence(occupant, change, sees, false),
                    &occupant.jid,
                    recipients,
                );
            }
        }
        let sees = self.sees_real_jids(occupant.role);
        let own_sessions = |chosen: &dyn Fn(&Jid) -> bool| -> RecipientList {
            occupant.sessions.iter().map(|one| &one.jid).filter(|jid| chosen(jid)).collect()
        };
        let is_meant = |jid: &Jid| change.newcomer.is_none_or(|newcomer| newcomer == jid);
        let others = own_sessions(&|jid| !is_meant(jid));
        if !others.is_empty() {
            let plain = OccupantChange { id: None, own_codes: &[], ..*change };
            ctx.multicast(self.occupant_presence(occupant, &plain, sees, true), &occupant.jid, others);
        }
        let own = self.occupant_presence(occupant, change, sees, true);
        ctx.multicast(own, &occupant.jid, own_sessions(&is_meant));
    }

    /// Whether everybody receives the presence of an occupant, and not only moderators.
    pub(super) fn is_announced_to_all(&self, occupant: &Occupant) -> bool {
        occupant.is_announced && self.config.presence_broadcast.contains(&occupant.role)
    }

    /// A presence of an occupant, without `to`. `sees` is whether the recipient sees the real JID of the user.
    pub(super) fn occupant_presence(
        &self,
        occupant: &Occupant,
        change: &OccupantChange<'_>,
        sees: bool,
        is_own: bool,
    ) -> Option<SharedStanza> {
        let content = if change.is_unavailable { change.content } else { occupant.presence() };
        // Whatever its content is, an occupant is never invisible.
        self.presence_with(occupant, change, (sees, is_own), content)
            .or_else(|| self.presence_with(occupant, change, (sees, is_own), &[]))
    }

    fn presence_with(
        &self,
        occupant: &Occupant,
        change: &OccupantChange<'_>,
        (sees, is_own): (bool, bool),
        content: &[u8],
    ) -> Option<SharedStanza> {
        SharedStanza::build(|w| {
            w.start("presence").attr("from", occupant.jid.as_str());
            if is_own {
                w.attr_opt("id", change.id);
            }
            // Section 13.
            if change.is_unavailable {
                w.attr("type", "unavailable").attr_opt("xml:lang", change.lang);
            } else {
                w.attr_opt("xml:lang", occupant.lang());
            }
            w.raw(content);
            write_occupant_id(w, &occupant.occupant_id);
            if !change.is_unavailable {
                self.hats.write(w, occupant.user());
            }
            w.start_ns("x", Ns::MucUser);
            self.write_item(w, occupant, change, sees);
            write_status_codes(w, change.codes);
            if is_own {
                write_status_codes(w, change.own_codes);
                write_status_codes(w, &[110]);
            }
            w.end().end();
        })
    }

    fn write_item(&self, w: &mut Writer<'_>, occupant: &Occupant, change: &OccupantChange<'_>, sees: bool) {
        // A nickname is changed by an unavailable presence, but the occupant stays.
        let leaves = change.is_unavailable && change.new_nick.is_none();
        let role = if leaves { RoomRole::None } else { occupant.role };
        w.start("item").attr("affiliation", self.affiliation_of(occupant).as_str());
        if sees && let Some(session) = occupant.sessions.last() {
            w.attr("jid", session.jid.as_str());
        }
        w.attr_opt("nick", change.new_nick).attr("role", role.as_str());
        if let Some(actor) = change.actor {
            w.start("actor").attr("nick", actor).end();
        }
        if let Some(reason) = change.reason {
            w.text_element("reason", reason);
        }
        w.end();
    }
}

/// Section 7.2.18: an explicit removal of a session that is not in the room.
pub(crate) fn report_not_in_room(ctx: &mut RoomCtx<'_>, session: &Jid, occupant: &Jid) {
    let stanza = SharedStanza::build(|w| {
        w.start("presence").attr("from", occupant.as_str()).attr("type", "unavailable");
        w.start_ns("x", Ns::MucUser);
        w.start("item").attr("affiliation", Affiliation::None.as_str()).attr("role", RoomRole::None.as_str());
        w.text_element("reason", "You are not in the room.").end();
        write_status_codes(w, &[110, 307, 333]);
        w.end().end();
    });
    ctx.send_shared(stanza, occupant, session);
}

/// The `xml:lang` of a presence; none if it is too long.
fn presence_lang(presence: &SharedStanza) -> Option<Box<str>> {
    let lang = presence.head().lang(presence.bytes())?;
    (lang.len() <= MAX_LANG_BYTES).then(|| lang.into())
}

/// The children of a presence that are passed on, which need no declarations of it; none if they are too long.
pub(super) fn presence_content(presence: xml::TreeNode<'_>, max_bytes: usize) -> Box<[u8]> {
    let mut content = Vec::new();
    // Prefixes that the start tag declares are not known to the other presence.
    let has_prefixes =
        presence.start_tag().is_none_or(|tag| tag.declarations().any(|one| one.prefix.is_some()));
    for child in presence.child_elements() {
        // These are written by rooms, and an error is no content.
        let is_of_room = matches!(
            child.ns(),
            Some(
                Ns::Muc
                    | Ns::MucUser
                    | Ns::OccupantId
                    | Ns::Hats
                    | Ns::StanzaId
                    | Ns::Delay
                    | Ns::DelayLegacy
            )
        );
        if !is_of_room && child.name() != "priority" {
            match has_prefixes {
                false => content.extend_from_slice(child.raw()),
                true => match child.to_standalone(&xml::Limits::DEFAULT) {
                    Ok(alone) => content.extend_from_slice(&alone),
                    Err(_) => return Box::default(),
                },
            }
        }
        if content.len() > max_bytes {
            return Box::default();
        }
    }
    content.into()
}
