//! Configuration and destruction of a room: XEP-0045 1.35.5, sections 10.1, 10.2 and 10.9.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{StanzaCondition, StanzaError};
use throng_core::SharedStanza;
use throng_core::iq::IqAnswer;
use xml::{Ns, TreeNode, Writer};

use super::admin::check_domain;
use super::change_limits::PrivilegeChangeCounts;
use super::history::write_occupant_id;
use super::presence::OccupantChange;
use super::{Room, RoomConfig, RoomCtx, RoomEvent, RoomRequest, write_status_codes};
use crate::privileges::{Affiliation, RoomRole};

const OWNERS: &str = "muc#roomconfig_roomowners";
const ADMINS: &str = "muc#roomconfig_roomadmins";
/// Users in one list of a form.
const MAX_LISTED: usize = 1_000;
/// Longest reason or password of a destruction, in bytes.
const MAX_REASON_BYTES: usize = 1024;

/// Where the discussion goes on when a room is destroyed, and why it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct DestroyNotice {
    pub(crate) alternate: Option<Jid>,
    pub(crate) password: Option<String>,
    pub(crate) reason: Option<String>,
}

impl Room {
    /// A request of `muc#owner`.
    pub(super) fn owner_request(&mut self, ctx: &mut RoomCtx<'_>, request: &RoomRequest<'_>) -> IqAnswer {
        if !self.is_owner(ctx, request.from.bare()) {
            return Err(StanzaCondition::Forbidden.into());
        }
        if !request.is_set {
            let mut out = Vec::with_capacity(4096);
            let mut w = Writer::new(&mut out);
            w.start_ns("query", Ns::MucOwner);
            self.owner_form().write(&mut w);
            w.end();
            return Ok(out);
        }
        self.update_service_admins(ctx);
        if let Some(destroy) = request.payload.child("destroy", Ns::MucOwner) {
            self.destroy(ctx, &read_notice(destroy)?);
            return Ok(Vec::new());
        }
        let form = request.payload.child("x", Ns::DataForms).ok_or(StanzaCondition::BadRequest)?;
        if form.attr("type").as_deref() == Some("cancel") {
            // Section 10.1.3: a room that was never configured is not created.
            if self.is_locked() {
                self.destroy(ctx, &DestroyNotice::default());
            }
            return Ok(Vec::new());
        }
        let submitted = self.owner_form().validate(&DataForm::read(form)?)?;
        self.configure(ctx, &submitted)?;
        Ok(Vec::new())
    }

    fn owner_form(&self) -> DataForm {
        let list = |var: &str, label: &str, affiliation| {
            let users = self.affiliations.with(affiliation).map(|(user, _)| user.as_str());
            FormField::new(FormFieldType::JidMulti, var).label(label).values(users)
        };
        let title = format!("Configuration of {}", self.jid.local().unwrap_or_default());
        let form = self.config.form(FormKind::Form).title(title);
        form.field(list(ADMINS, "Room Administrators", Affiliation::Admin)).field(list(
            OWNERS,
            "Room Owners",
            Affiliation::Owner,
        ))
    }

    /// Applies a validated submission, all or nothing.
    fn configure(&mut self, ctx: &mut RoomCtx<'_>, submitted: &DataForm) -> Result<(), StanzaError> {
        let lists = self.read_lists(submitted)?;
        let before = self.config.clone();
        let mut config = before.clone();
        config.apply(submitted, self.limits())?;
        if !config.persistent {
            self.check_temporary_lists()?;
        }
        self.config = config;
        if before.presence_broadcast != self.config.presence_broadcast {
            self.presence_broadcast_changed(ctx, &before.presence_broadcast);
        }
        for (user, affiliation) in lists {
            self.change_affiliation(ctx, &user, affiliation, None, None, None);
        }
        self.note_change();
        let was_locked = self.is_locked();
        self.state = self.state.after(RoomEvent::Configured { persistent: self.config.persistent });
        if was_locked {
            self.invitations = Default::default();
        }
        let mut codes = Vec::new();
        if before.logging != self.config.logging {
            codes.push(if self.config.logging { 170 } else { 171 });
        }
        if before.non_anonymous != self.config.non_anonymous {
            codes.push(if self.config.non_anonymous { 172 } else { 173 });
        }
        // Section 10.2.1: any other change.
        let others = RoomConfig {
            logging: before.logging,
            non_anonymous: before.non_anonymous,
            ..self.config.clone()
        };
        if before != others {
            codes.push(104);
        }
        if !codes.is_empty() && !was_locked {
            self.announce_status(ctx, &codes);
        }
        if self.config.members_only && !before.members_only {
            self.remove_others_than_members(ctx);
        }
        if before.moderated != self.config.moderated {
            self.roles.clear();
            self.adapt_roles(ctx);
        }
        Ok(())
    }

    /// Section 10.5 and 10.8: the complete lists of owners and administrators, as changes.
    fn read_lists(&self, submitted: &DataForm) -> Result<BTreeMap<Jid, Affiliation>, StanzaError> {
        let mut changes = BTreeMap::new();
        for (var, affiliation) in [(ADMINS, Affiliation::Admin), (OWNERS, Affiliation::Owner)] {
            let Some(field) = submitted.get(var) else { continue };
            if field.values.len() > MAX_LISTED {
                return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("too many users in a list"));
            }
            let users: BTreeSet<Jid> = field
                .values
                .iter()
                .map(|text| Jid::parse(text).map(|jid| jid.bare().to_jid()))
                .collect::<Result<_, _>>()
                .map_err(|_| StanzaCondition::JidMalformed)?;
            // An administrator who becomes an owner, or the reverse, is on the other list.
            let removed = self.affiliations.with(affiliation).filter(|(user, _)| !users.contains(*user));
            for (user, _) in removed {
                changes.entry(user.clone()).or_insert(Affiliation::None);
            }
            for user in users {
                if self.affiliations.of(user.as_ref()) == affiliation {
                    changes.remove(&user);
                } else {
                    check_domain(&user, affiliation)?;
                    changes.insert(user, affiliation);
                }
            }
        }
        if changes.len() > 2 * MAX_LISTED {
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("too many changes at a time"));
        }
        let affiliations = changes.iter().map(|(user, affiliation)| (user.as_str(), *affiliation)).collect();
        self.check_stanza_count(&PrivilegeChangeCounts { affiliations, ..Default::default() })?;
        let stays = |user: &Jid| user.local().is_some() && !changes.contains_key(user);
        let owners = self.affiliations.with(Affiliation::Owner).filter(|(user, _)| stays(user)).count();
        let new_owners = changes.values().filter(|affiliation| **affiliation == Affiliation::Owner).count();
        if owners + new_owners == 0 {
            return Err(StanzaError::new(StanzaCondition::Conflict).text("a room must have an owner"));
        }
        let added = |(user, affiliation): &(&Jid, &Affiliation)| {
            **affiliation != Affiliation::None && !self.affiliations.contains(user)
        };
        let added: Vec<&Jid> = changes.iter().filter(added).map(|(user, _)| user).collect();
        let bytes = added.iter().map(|user| self.affiliations.growth(user, None, None)).sum();
        if bytes > 0 {
            self.check_quota()?;
        }
        self.check_affiliation_capacity(added.len(), bytes)?;
        Ok(changes)
    }

    /// Section 10.2.1: a room becomes members-only.
    fn remove_others_than_members(&mut self, ctx: &mut RoomCtx<'_>) {
        let others = self.occupants.iter().filter(|one| self.affiliation_of(one) < Affiliation::Member);
        let others: Vec<String> = others.map(|one| one.nick().to_owned()).collect();
        let change = OccupantChange { is_unavailable: true, codes: &[322], ..Default::default() };
        self.remove_occupants(ctx, &others, &change);
    }

    /// A room becomes moderated, or is not any more: voice of occupants without an affiliation. In a large room only they and moderators
    /// learn of it: all to all would be millions of stanzas.
    fn adapt_roles(&mut self, ctx: &mut RoomCtx<'_>) {
        let moderated = self.config.moderated;
        let unaffiliated = |one: &&super::Occupant| {
            one.role < RoomRole::Moderator && self.affiliation_of(one) == Affiliation::None
        };
        let role = Affiliation::None.default_role(moderated);
        let changing = self.occupants.iter().filter(unaffiliated).filter(|one| one.role != role);
        let nicks: Vec<String> = changing.map(|one| one.nick().to_owned()).collect();
        let only_moderators = self.check_announcements(nicks.len(), 0).is_err();
        let change = OccupantChange { only_moderators, ..Default::default() };
        for nick in nicks {
            self.set_role(ctx, &nick, role, &change);
        }
    }

    /// Every occupant leaves for a technical reason (section 11.1); the room itself stays in the store.
    pub(crate) fn dissolve(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        codes: &[u16],
        is_concerned: &dyn Fn(&Jid) -> bool,
    ) {
        let change = OccupantChange { is_unavailable: true, codes, ..Default::default() };
        for occupant in self.occupants.iter() {
            let own = self.occupant_presence(occupant, &change, self.sees_real_jids(occupant.role), true);
            let sessions = occupant.sessions.iter().map(|session| &session.jid);
            let sessions: Arc<[Jid]> = sessions.filter(|session| is_concerned(session)).cloned().collect();
            ctx.multicast(own, &occupant.jid, sessions);
        }
        self.occupants = Default::default();
    }

    /// Section 10.9.
    pub(crate) fn destroy(&mut self, ctx: &mut RoomCtx<'_>, notice: &DestroyNotice) {
        for (nick, session) in self.occupant_list() {
            let Some(occupant) = self.occupants.get(&nick) else { continue };
            let stanza = SharedStanza::build(|w| {
                w.start("presence").attr("from", occupant.jid.as_str()).attr("type", "unavailable");
                write_occupant_id(w, &occupant.occupant_id);
                w.start_ns("x", Ns::MucUser);
                w.start("item").attr("affiliation", "none").attr("role", "none").end();
                w.start("destroy").attr_opt("jid", notice.alternate.as_ref().map(Jid::as_str));
                if let Some(password) = &notice.password {
                    w.text_element("password", password);
                }
                if let Some(reason) = &notice.reason {
                    w.text_element("reason", reason);
                }
                w.end();
                write_status_codes(w, &[110]);
                w.end().end();
            });
            ctx.send_shared(stanza, &occupant.jid, &session);
        }
        self.occupants = Default::default();
        self.state = self.state.after(RoomEvent::Destroyed);
    }
}

fn read_notice(destroy: TreeNode<'_>) -> Result<DestroyNotice, StanzaError> {
    let alternate = destroy.attr("jid").filter(|jid| !jid.is_empty());
    let alternate = alternate.map(|jid| Jid::parse(&jid)).transpose();
    let text = |name| destroy.child(name, Ns::MucOwner).map(|child| child.text().into_owned());
    Ok(DestroyNotice {
        alternate: alternate.map_err(|_| StanzaCondition::JidMalformed)?,
        password: text("password").filter(|password| password.len() <= MAX_REASON_BYTES),
        reason: text("reason").filter(|reason| reason.len() <= MAX_REASON_BYTES),
    })
}
