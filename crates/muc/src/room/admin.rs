//! Changes of roles and affiliations: XEP-0045 1.35.5, sections 8 (moderators), 9 (administrators) and 10.3 to 10.8 (owners).
//!
//! A request is applied completely or not at all (sections 8.5, 9.2 and others).

use std::collections::BTreeMap;

use jid::{Jid, JidRef};
use stanza::payload::rsm::RsmRequest;
use stanza::{StanzaCondition, StanzaError};
use throng_core::SharedStanza;
use throng_core::iq::IqAnswer;
use xml::{Ns, TreeNode};

use super::change_limits::PrivilegeChangeCounts;
use super::presence::OccupantChange;
use super::{Room, RoomCtx, RoomRequest};
use crate::privileges::{Affiliation, RoomRole};

/// Changes of one request: each is announced to all occupants.
const MAX_ITEMS: usize = 100;
/// Bytes of all affiliations with their reasons and nicknames in a temporary room, which has them in memory.
const MAX_AFFILIATION_BYTES: usize = 1 << 20;
/// Further bytes in a persistent room, for each affiliation that it may have.
const BYTES_OF_AFFILIATION: usize = 64;
/// Longest reason, in bytes.
pub(super) const MAX_REASON_BYTES: usize = 1024;

/// An item of a request, resolved and checked.
enum PrivilegeChange {
    RoomRole { nick: String, role: RoomRole, reason: Option<String> },
    Affiliation { user: Jid, affiliation: Affiliation, nick: Option<String>, reason: Option<String> },
}

/// The requester of a change, or of a list.
pub(super) struct Actor {
    user: Jid,
    pub(super) affiliation: Affiliation,
    pub(super) role: RoomRole,
    nick: Option<String>,
    is_service_admin: bool,
}

impl Room {
    /// A request of `muc#admin`.
    pub(super) fn admin_request(&mut self, ctx: &mut RoomCtx<'_>, request: &RoomRequest<'_>) -> IqAnswer {
        let items: Vec<TreeNode<'_>> =
            request.payload.child_elements().filter(|child| child.is("item", Ns::MucAdmin)).collect();
        if items.is_empty() {
            return Err(StanzaCondition::BadRequest.into());
        }
        if items.len() > MAX_ITEMS {
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("too many items"));
        }
        let actor = self.actor(ctx, request.from);
        if !request.is_set {
            return match items.as_slice() {
                [item] => {
                    let page = RsmRequest::from_parent(request.payload)?;
                    self.list(&actor, *item, page.as_ref())
                }
                _ => Err(StanzaCondition::BadRequest.into()),
            };
        }
        if actor.affiliation.is_privileged() {
            self.update_service_admins(ctx);
        }
        let changes: Vec<PrivilegeChange> =
            items.into_iter().map(|item| self.read_change(&actor, item)).collect::<Result<_, _>>()?;
        self.check_owners_remain(&changes)?;
        check_nicks_differ(&changes)?;
        self.check_changes(&changes)?;
        let (mut more, mut bytes, mut has_others) = (0, 0, false);
        for change in &changes {
            if let PrivilegeChange::Affiliation { user, affiliation, nick, reason } = change
                && *affiliation != Affiliation::None
            {
                let growth = self.affiliations.growth(user, nick.as_deref(), reason.as_deref());
                more += usize::from(!self.affiliations.contains(user));
                bytes += growth;
                has_others |= *affiliation != Affiliation::Outcast && growth > 0;
            }
        }
        if has_others {
            self.check_quota()?;
        }
        self.check_affiliation_capacity(more, bytes)?;
        for change in changes {
            match change {
                PrivilegeChange::RoomRole { nick, role, reason } => {
                    self.change_role(ctx, &nick, role, actor.nick.as_deref(), reason.as_deref());
                }
                PrivilegeChange::Affiliation { user, affiliation, nick, reason } => {
                    let is_new_member = affiliation == Affiliation::Member
                        && self.affiliations.of(user.as_ref()) == Affiliation::None;
                    self.change_affiliation(
                        ctx,
                        &user,
                        affiliation,
                        nick.as_deref(),
                        actor.nick.as_deref(),
                        reason.as_deref(),
                    );
                    if is_new_member && self.config.members_only {
                        self.invite_member(ctx, &user, request.from, reason.as_deref());
                    }
                }
            }
        }
        Ok(Vec::new())
    }

    pub(super) fn actor(&self, ctx: &RoomCtx<'_>, from: &Jid) -> Actor {
        let occupant = self.occupants.of_session(from);
        // A moderator may act from any session of the user (section 8: the bare address decides).
        let of_user =
            || self.occupants.iter().filter(|one| one.user() == from.bare()).map(|one| one.role).max();
        Actor {
            user: from.bare().to_jid(),
            affiliation: self.affiliation(ctx, from.bare()),
            role: occupant.map(|one| one.role).or_else(of_user).unwrap_or(RoomRole::None),
            nick: occupant.map(|one| one.nick().to_owned()),
            is_service_admin: ctx.is_service_admin,
        }
    }

    fn read_change(&self, actor: &Actor, item: TreeNode<'_>) -> Result<PrivilegeChange, StanzaError> {
        let reason = item.child("reason", Ns::MucAdmin).map(|reason| reason.text().into_owned());
        let reason = reason.filter(|reason| !reason.is_empty() && reason.len() <= MAX_REASON_BYTES);
        match (item.attr("role"), item.attr("affiliation")) {
            (Some(role), None) => {
                let role = RoomRole::from_name(&role).ok_or(StanzaCondition::BadRequest)?;
                let nick = item.attr("nick").ok_or(StanzaCondition::BadRequest)?.into_owned();
                self.check_role_change(actor, &nick, role)?;
                Ok(PrivilegeChange::RoomRole { nick, role, reason })
            }
            (None, Some(affiliation)) => {
                let affiliation = Affiliation::from_name(&affiliation).ok_or(StanzaCondition::BadRequest)?;
                let nick = item.attr("nick").map(|nick| nick.into_owned());
                // Only administrators learn whether a nickname or a real JID is known.
                if !actor.affiliation.is_privileged() {
                    return Err(StanzaCondition::Forbidden.into());
                }
                let user = match (item.attr("jid"), &nick) {
                    (Some(jid), _) => {
                        Jid::parse(&jid).map_err(|_| StanzaCondition::JidMalformed)?.bare().to_jid()
                    }
                    (None, Some(nick)) => {
                        self.occupants.get(nick).ok_or(StanzaCondition::ItemNotFound)?.user().to_jid()
                    }
                    (None, None) => return Err(StanzaCondition::BadRequest.into()),
                };
                let has_nick = item.attr("jid").is_some() && affiliation >= Affiliation::Member;
                let mut nick = nick.filter(|_| has_nick);
                self.check_affiliation_change(actor, &user, affiliation)?;
                // Section 9.5: an empty nickname ends the reservation. Only members and higher have one.
                if let Some(nick) = nick.as_mut().filter(|nick| !nick.is_empty()) {
                    let address = self.check_nick(&user, nick)?;
                    *nick = address.resource().unwrap_or_default().to_owned();
                }
                Ok(PrivilegeChange::Affiliation { user, affiliation, nick, reason })
            }
            // Section 17.4: both, or neither.
            _ => Err(StanzaCondition::BadRequest.into()),
        }
    }

    /// Sections 8.2 to 8.4, 9.6 and 9.7.
    fn check_role_change(&self, actor: &Actor, nick: &str, role: RoomRole) -> Result<(), StanzaError> {
        if actor.role != RoomRole::Moderator && !actor.affiliation.is_privileged() {
            return Err(StanzaCondition::Forbidden.into());
        }
        let target = self.occupants.get(nick).ok_or(StanzaCondition::ItemNotFound)?;
        let affiliation = self.affiliation_of(target);
        let not_allowed = |text| Err(StanzaError::new(StanzaCondition::NotAllowed).text(text));
        if target.is_service_admin && !actor.is_service_admin {
            return not_allowed("the role of an administrator of the service cannot be changed");
        }
        // Section 8.4.
        let is_protected = affiliation.is_privileged()
            || affiliation == Affiliation::Member && affiliation >= actor.affiliation;
        if role == RoomRole::Visitor && is_protected {
            return not_allowed("the voice of this user cannot be revoked");
        }
        // Only administrators grant and revoke the role of moderator.
        let concerns_moderators =
            role == RoomRole::Moderator || target.role == RoomRole::Moderator && role != RoomRole::None;
        if concerns_moderators && !actor.affiliation.is_privileged() {
            return Err(StanzaCondition::Forbidden.into());
        }
        match role {
            RoomRole::None if target.user() == actor.user.as_ref() => {
                Err(StanzaError::new(StanzaCondition::Conflict).text("you cannot kick yourself"))
            }
            RoomRole::None if affiliation > actor.affiliation => {
                not_allowed("a user with a higher affiliation cannot be kicked")
            }
            // Section 5.1.1.
            RoomRole::None if target.role == RoomRole::Moderator && !actor.affiliation.is_privileged() => {
                not_allowed("only administrators can kick moderators")
            }
            RoomRole::None | RoomRole::Moderator => Ok(()),
            RoomRole::Participant if affiliation.is_privileged() => {
                not_allowed("the role of owners and administrators cannot be revoked")
            }
            RoomRole::Visitor | RoomRole::Participant => Ok(()),
        }
    }

    /// Sections 9.1 to 9.4 and 10.3 to 10.7; the actor is an administrator or owner.
    fn check_affiliation_change(
        &self,
        actor: &Actor,
        user: &Jid,
        affiliation: Affiliation,
    ) -> Result<(), StanzaError> {
        let current = self.affiliations.of(user.as_ref());
        check_domain(user, affiliation)?;
        if affiliation == Affiliation::Outcast {
            if *user == actor.user {
                return Err(StanzaError::new(StanzaCondition::Conflict).text("you cannot ban yourself"));
            }
            if self.occupants.iter().any(|one| one.is_service_admin && one.user() == user.as_ref()) {
                let text = "an administrator of the service cannot be banned";
                return Err(StanzaError::new(StanzaCondition::NotAllowed).text(text));
            }
            if current.is_privileged()
                && current >= actor.affiliation
                && actor.affiliation != Affiliation::Owner
            {
                let text = "a user with a higher affiliation cannot be banned";
                return Err(StanzaError::new(StanzaCondition::NotAllowed).text(text));
            }
            return Ok(());
        }
        let concerns_owners = affiliation.is_privileged() || current.is_privileged();
        if concerns_owners && actor.affiliation != Affiliation::Owner {
            return Err(StanzaCondition::Forbidden.into());
        }
        Ok(())
    }

    /// Sections 10.2, 10.4 and 10.5: a room has an owner.
    fn check_owners_remain(&self, changes: &[PrivilegeChange]) -> Result<(), StanzaError> {
        let mut after = BTreeMap::new();
        for change in changes {
            if let PrivilegeChange::Affiliation { user, affiliation, .. } = change {
                after.insert(user, *affiliation);
            }
        }
        let mut owners = self.affiliations.owners();
        for (user, affiliation) in after {
            let is_user = user.local().is_some();
            owners -= usize::from(is_user && self.affiliations.of(user.as_ref()) == Affiliation::Owner);
            owners += usize::from(is_user && affiliation == Affiliation::Owner);
        }
        if owners == 0 && self.affiliations.owners() > 0 {
            return Err(StanzaError::new(StanzaCondition::Conflict).text("a room must have an owner"));
        }
        Ok(())
    }

    /// Checks the number of stanzas that a request with these changes causes.
    ///
    /// # Errors
    /// `not-acceptable` if they are too many.
    fn check_changes(&self, changes: &[PrivilegeChange]) -> Result<(), StanzaError> {
        let mut counts = PrivilegeChangeCounts::default();
        for change in changes {
            match change {
                PrivilegeChange::RoomRole { nick, role, .. } => {
                    let is_moderator =
                        self.occupants.get(nick).is_some_and(|one| one.role == RoomRole::Moderator);
                    let is_kicked = *role == RoomRole::None;
                    counts.roles += 1;
                    counts.moderators +=
                        usize::from(!is_kicked && is_moderator != (*role == RoomRole::Moderator));
                }
                PrivilegeChange::Affiliation { user, affiliation, .. } => {
                    counts.affiliations.insert(user.as_str(), *affiliation);
                }
            }
        }
        self.check_stanza_count(&counts)
    }

    /// Whether the lists have capacity for users who add themselves or are invited. They fill half of the lists; the other half is for
    /// administrators, so that they can still ban users.
    pub(super) fn check_capacity_for_outsiders<'a>(
        &self,
        users: impl Iterator<Item = &'a Jid>,
    ) -> Result<(), StanzaError> {
        let (mut more, mut bytes) = (0, 0);
        for user in users.filter(|user| !self.affiliations.contains(user)) {
            more += 1;
            bytes += self.affiliations.growth(user, None, None);
        }
        let exceeds_half = self.affiliations.len() + more > self.limits().affiliations / 2
            || self.affiliations.bytes() + bytes > self.max_affiliation_bytes() / 2;
        if more > 0 && exceeds_half {
            return Err(StanzaCondition::ResourceConstraint.into());
        }
        if bytes > 0 {
            self.check_quota()?;
        }
        self.check_affiliation_capacity(more, bytes)
    }

    /// Whether others than banned users may be added to the lists. Bans are always possible: who fills the memory must be banned.
    pub(super) fn check_quota(&self) -> Result<(), StanzaError> {
        if !self.is_over_quota {
            return Ok(());
        }
        let text = "the rooms of the user who has created this one take too much memory";
        Err(StanzaError::new(StanzaCondition::ResourceConstraint).text(text))
    }

    /// Whether the lists have capacity for this number of further users and bytes.
    pub(super) fn check_affiliation_capacity(&self, more: usize, bytes: usize) -> Result<(), StanzaError> {
        let has_capacity = more == 0 || self.affiliations.len() + more <= self.limits().affiliations;
        if has_capacity && (bytes == 0 || self.affiliations.bytes() + bytes <= self.max_affiliation_bytes()) {
            return Ok(());
        }
        let text = "the lists of this room have reached their maximum length";
        Err(StanzaError::new(StanzaCondition::ResourceConstraint).text(text))
    }

    fn max_affiliation_bytes(&self) -> usize {
        let more = self.limits().affiliations.saturating_mul(BYTES_OF_AFFILIATION);
        MAX_AFFILIATION_BYTES.saturating_add(if self.is_persistent() { more } else { 0 })
    }

    /// Whether the lists are short enough for a room that is not in the store.
    pub(super) fn check_temporary_lists(&self) -> Result<(), StanzaError> {
        if !self.affiliations.is_large() && self.affiliations.bytes() <= MAX_AFFILIATION_BYTES {
            return Ok(());
        }
        let text = "the lists of members and banned users are too long for a temporary room";
        Err(StanzaError::new(StanzaCondition::NotAcceptable).text(text))
    }

    /// Applies a role; `None` removes the occupant.
    pub(super) fn change_role(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        nick: &str,
        role: RoomRole,
        actor: Option<&str>,
        reason: Option<&str>,
    ) {
        let change = OccupantChange { actor, reason, ..Default::default() };
        self.retain_role(nick, role);
        if role == RoomRole::None {
            let change = OccupantChange { is_unavailable: true, codes: &[307], ..change };
            return self.remove_occupant(ctx, nick, &change);
        }
        self.set_role(ctx, nick, role, &change);
    }

    /// Applies an affiliation, with its consequences for the occupants of the user.
    pub(super) fn change_affiliation(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        user: &Jid,
        affiliation: Affiliation,
        nick: Option<&str>,
        actor: Option<&str>,
        reason: Option<&str>,
    ) {
        let before = self.affiliations.set(user, affiliation, nick, reason);
        let change = OccupantChange { actor, reason, ..Default::default() };
        let is_domain = user.local().is_none();
        let mut nicks: Vec<String> = if is_domain && affiliation == Affiliation::Outcast {
            let banned = |user: JidRef<'_>| self.affiliations.of(user) == Affiliation::Outcast;
            self.occupants.iter().filter(|one| banned(one.user())).map(|one| one.nick().to_owned()).collect()
        } else {
            self.occupants.nicks_of_user(user)
        };
        let is_present = !nicks.is_empty();
        // Administrators of the service are owners, whatever the lists say.
        nicks.retain(|nick| self.occupants.get(nick).is_some_and(|one| !one.is_service_admin));
        if nicks.is_empty() {
            if is_domain || !is_present {
                self.announce_absent(ctx, user, affiliation, reason);
            }
            return;
        }
        self.adapt_occupants(ctx, nicks, (before, affiliation), &change);
    }

    /// Occupants get another affiliation: they leave, or have another role.
    pub(super) fn adapt_occupants(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        nicks: Vec<String>,
        (before, affiliation): (Affiliation, Affiliation),
        change: &OccupantChange<'_>,
    ) {
        let code = match affiliation {
            Affiliation::Outcast => Some(&[301]),
            Affiliation::None if self.config.members_only => Some(&[321]),
            _ => None,
        };
        if let Some(codes) = code {
            let change = OccupantChange { is_unavailable: true, codes, ..*change };
            return self.remove_occupants(ctx, &nicks, &change);
        }
        for nick in nicks {
            let moderated = self.config.moderated;
            if let Some(occupant) = self.occupants.get(&nick) {
                let default = affiliation.default_role(moderated);
                let loses_role = before.is_privileged() && !affiliation.is_privileged();
                let role = if loses_role { default } else { default.max(occupant.role) };
                self.set_role(ctx, &nick, role, change);
            }
        }
    }

    /// Sections 9.3, 9.4 and others: occupants learn about the affiliation of a user who is not in the room.
    fn announce_absent(
        &self,
        ctx: &mut RoomCtx<'_>,
        user: &Jid,
        affiliation: Affiliation,
        reason: Option<&str>,
    ) {
        let id = (ctx.new_id)();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.jid.as_str()).attr("id", &id);
            w.start_ns("x", Ns::MucUser);
            w.start("item").attr("affiliation", affiliation.as_str()).attr("jid", user.as_str());
            w.attr("role", RoomRole::None.as_str());
            if let Some(reason) = reason {
                w.text_element("reason", reason);
            }
            w.end().end().end();
        });
        ctx.multicast(stanza, &self.jid, self.occupants.sessions_of(|one| self.sees_real_jids(one.role)));
    }
}

/// A domain can be banned, and has no other affiliation: nobody would be an owner or a member by it.
pub(super) fn check_domain(user: &Jid, affiliation: Affiliation) -> Result<(), StanzaError> {
    if user.local().is_some() || matches!(affiliation, Affiliation::Outcast | Affiliation::None) {
        return Ok(());
    }
    Err(StanzaError::new(StanzaCondition::NotAcceptable).text("a domain can only be banned"))
}

/// Section 7.10: no two users of one request reserve the same nickname.
fn check_nicks_differ(changes: &[PrivilegeChange]) -> Result<(), StanzaError> {
    let mut users = BTreeMap::new();
    for change in changes {
        let PrivilegeChange::Affiliation { user, nick: Some(nick), .. } = change else { continue };
        if !nick.is_empty() && users.insert(nick, user).is_some_and(|other| other != user) {
            let text = "two users cannot reserve the same nickname";
            return Err(StanzaError::new(StanzaCondition::Conflict).text(text));
        }
    }
    Ok(())
}
