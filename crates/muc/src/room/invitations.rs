//! Mediated invitations and their declines: XEP-0045 1.35.5, section 7.8.2; direct ones (XEP-0249 1.2) do not pass the room.

use std::collections::{BTreeSet, VecDeque};

use jid::{Jid, JidRef};
use stanza::{StanzaCondition, StanzaError};
use throng_core::SharedStanza;
use xml::{Ns, TreeNode};

use super::{Room, RoomCtx};
use crate::privileges::Affiliation;

/// Invitations in one message.
const MAX_INVITATIONS: usize = 20;
/// Invitations that can be declined.
const MAX_PENDING: usize = 256;
/// Longest reason, in bytes.
const MAX_REASON_BYTES: usize = 1024;

/// Invitations of one user that were neither declined nor accepted; administrators of the node are exempt.
const MAX_PENDING_OF_USER: usize = 50;
/// Time after which an invitation cannot be declined any more, in milliseconds.
const EXPIRY_MILLIS: u64 = 86_400_000;

#[derive(Clone, Debug)]
struct PendingInvitation {
    invitee: Jid,
    inviter: Jid,
    millis: u64,
}

/// Invitations that were neither declined nor accepted, so that only invited users reach an occupant by declining, and
/// nobody invites without a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingInvitations(VecDeque<PendingInvitation>);

impl PendingInvitations {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets those that cannot be declined any more.
    pub(crate) fn forget_expired(&mut self, now: u64) {
        self.0.retain(|one| now < one.millis.saturating_add(EXPIRY_MILLIS));
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |one: &PendingInvitation| {
            size_of::<PendingInvitation>() + one.invitee.as_str().len() + one.inviter.as_str().len()
        };
        self.0.iter().map(bytes).sum()
    }

    /// Adds one; the oldest of too many is forgotten.
    pub(crate) fn add(&mut self, invitee: Jid, inviter: Jid, millis: u64) {
        if self.0.len() == MAX_PENDING {
            self.0.pop_front();
        }
        self.0.push_back(PendingInvitation { invitee, inviter, millis });
    }

    /// Number of invitations by a user.
    fn count_of(&mut self, inviter: JidRef<'_>, now: u64) -> usize {
        self.forget_expired(now);
        self.0.iter().filter(|one| one.inviter.bare() == inviter.bare()).count()
    }

    /// Removes the invitation of a user by a user; its sender.
    fn take(&mut self, invitee: &Jid, inviter: &Jid) -> Option<Jid> {
        let is_meant =
            |one: &PendingInvitation| one.invitee == *invitee && one.inviter.bare() == inviter.bare();
        let at = self.0.iter().position(is_meant)?;
        self.0.remove(at).map(|one| one.inviter)
    }

    /// A user has entered the room.
    pub(super) fn accept(&mut self, invitee: &Jid) {
        self.0.retain(|one| one.invitee != *invitee);
    }

    /// Removes the oldest invitation of a user.
    fn take_oldest(&mut self, invitee: &Jid) -> Option<Jid> {
        let at = self.0.iter().position(|one| one.invitee == *invitee)?;
        self.0.remove(at).map(|one| one.inviter)
    }
}

impl Room {
    /// An occupant invites users.
    pub(super) fn invite(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        x: TreeNode<'_>,
        from: &Jid,
    ) -> Result<(), StanzaError> {
        self.occupant(from)?;
        let affiliation = self.affiliation(ctx, from.bare());
        if self.config.members_only && !self.config.allow_invites && !affiliation.is_privileged() {
            let text = "you are not allowed to invite users to this room";
            return Err(StanzaError::new(StanzaCondition::Forbidden).text(text));
        }
        let invitations: Vec<TreeNode<'_>> =
            x.child_elements().filter(|child| child.is("invite", Ns::MucUser)).collect();
        if invitations.len() > MAX_INVITATIONS {
            return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("too many invitations"));
        }
        let mut invited = Vec::with_capacity(invitations.len());
        for invitation in invitations {
            let to = invitation.attr("to").ok_or(StanzaCondition::BadRequest)?;
            let to = Jid::parse(&to).map_err(|_| StanzaCondition::JidMalformed)?;
            if to.local().is_none() || to.domain() == self.jid.domain() {
                let text = "only users can be invited, and no rooms or servers";
                return Err(StanzaError::new(StanzaCondition::NotAcceptable).text(text));
            }
            if self.affiliations.of(to.as_ref()) == Affiliation::Outcast {
                return Err(StanzaError::new(StanzaCondition::Forbidden).text("this user is banned"));
            }
            invited.push((to, invitation));
        }
        let members = self.new_members(invited.iter().map(|(to, _)| to))?;
        if !self.may_invite(ctx, from.bare(), invited.len()) {
            return Err(
                StanzaError::new(StanzaCondition::ResourceConstraint).text("too many invitations; wait")
            );
        }
        // Section 7.8.2: an invitation to a members-only room makes a member.
        for user in members {
            self.change_affiliation(ctx, &user, Affiliation::Member, None, None, None);
        }
        for (to, invitation) in invited {
            let reason = invitation.child("reason", Ns::MucUser).map(|reason| reason.text());
            let resumed = invitation.child("continue", Ns::MucUser);
            let stanza = self.invitation(&to, from, reason.as_deref(), resumed, &(ctx.new_id)());
            self.invitations.add(to.bare().to_jid(), from.clone(), ctx.now);
            ctx.send(stanza, self.jid.clone(), to);
        }
        Ok(())
    }

    /// Whether a user may send this number of invitations, which then count.
    fn may_invite(&mut self, ctx: &RoomCtx<'_>, inviter: JidRef<'_>, number: usize) -> bool {
        if ctx.is_service_admin {
            return true;
        }
        let pending = self.invitations.count_of(inviter, ctx.now) + number;
        let limit = self.limits().invitations_per_hour;
        pending <= MAX_PENDING_OF_USER && ctx.invitations.try_add(inviter, number, limit, ctx.now)
    }

    /// The users whom an invitation makes members, if the lists have room for them.
    fn new_members<'a>(&self, invited: impl Iterator<Item = &'a Jid>) -> Result<BTreeSet<Jid>, StanzaError> {
        let is_new = |user: &Jid| {
            self.config.members_only && self.affiliations.of(user.as_ref()) < Affiliation::Member
        };
        let new: BTreeSet<Jid> = invited.map(|to| to.bare().to_jid()).filter(is_new).collect();
        self.check_capacity_for_outsiders(new.iter())?;
        Ok(new)
    }

    /// Invitations that were neither declined nor accepted.
    pub(crate) fn pending_invitations(&self) -> &PendingInvitations {
        &self.invitations
    }

    /// The room is in memory again.
    pub(crate) fn set_pending_invitations(&mut self, pending: PendingInvitations) {
        self.invitations = pending;
    }

    /// Section 9.5: a new member of a members-only room is invited.
    pub(super) fn invite_member(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        user: &Jid,
        inviter: &Jid,
        reason: Option<&str>,
    ) {
        // Rooms cannot enter.
        if user.local().is_none() || user.domain() == self.jid.domain() {
            return;
        }
        // Of too many new members, the last ones are not invited.
        if !self.may_invite(ctx, inviter.as_ref(), 1) {
            return;
        }
        let stanza = self.invitation(user, inviter, reason, None, &(ctx.new_id)());
        ctx.send(stanza, self.jid.clone(), user.clone());
        self.invitations.add(user.clone(), inviter.clone(), ctx.now);
    }

    fn invitation(
        &self,
        to: &Jid,
        inviter: &Jid,
        reason: Option<&str>,
        resumed: Option<TreeNode<'_>>,
        id: &str,
    ) -> Option<SharedStanza> {
        let reason = reason.filter(|reason| reason.len() <= MAX_REASON_BYTES);
        let thread = resumed.and_then(|resumed| resumed.attr("thread"));
        SharedStanza::build(|w| {
            w.start("message").attr("from", self.jid.as_str()).attr("to", to.as_str()).attr("id", id);
            w.start_ns("x", Ns::MucUser);
            w.start("invite").attr("from", inviter.as_str());
            if let Some(reason) = reason {
                w.text_element("reason", reason);
            }
            if resumed.is_some() {
                w.start("continue").attr_opt("thread", thread.as_deref()).end();
            }
            w.end();
            if let Some(password) = &self.config.password {
                w.text_element("password", password);
            }
            w.end();
            // For clients that know direct invitations only.
            w.start_ns("x", Ns::Conference).attr("jid", self.jid.as_str());
            w.attr_opt("password", self.config.password.as_deref()).attr_opt("reason", reason);
            w.attr_opt("continue", resumed.map(|_| "true")).attr_opt("thread", thread.as_deref());
            w.end().end();
        })
    }

    /// Section 7.8.2: an invitation has come back. Servers answer `service-unavailable` for users that do not exist, and for others.
    pub(super) fn invitation_failed(&mut self, ctx: &mut RoomCtx<'_>, invitee: &Jid) {
        let Some(inviter) = self.invitations.take_oldest(&invitee.bare().to_jid()) else { return };
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.jid.as_str()).attr("to", inviter.as_str());
            w.attr("type", "error").start_ns("x", Ns::MucUser);
            w.start("invite").attr("to", invitee.as_str()).end().end();
            StanzaError::from(StanzaCondition::ItemNotFound).write(w);
            w.end();
        });
        ctx.send(stanza, self.jid.clone(), inviter);
    }

    /// An invited user declines.
    pub(super) fn decline(
        &mut self,
        ctx: &mut RoomCtx<'_>,
        decline: TreeNode<'_>,
        from: &Jid,
    ) -> Result<(), StanzaError> {
        let to = decline.attr("to").ok_or(StanzaCondition::BadRequest)?;
        let to = Jid::parse(&to).map_err(|_| StanzaCondition::JidMalformed)?;
        let user = from.bare().to_jid();
        // What was not invited cannot decline: otherwise anybody could write to any occupant.
        let inviter = self.invitations.take(&user, &to).ok_or(StanzaCondition::ItemNotFound)?;
        let reason = decline.child("reason", Ns::MucUser).map(|reason| reason.text());
        let reason = reason.filter(|reason| reason.len() <= MAX_REASON_BYTES);
        let id = (ctx.new_id)();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.jid.as_str()).attr("to", inviter.as_str()).attr("id", &id);
            w.start_ns("x", Ns::MucUser);
            w.start("decline").attr("from", user.as_str());
            if let Some(reason) = &reason {
                w.text_element("reason", reason);
            }
            w.end().end().end();
        });
        ctx.send(stanza, self.jid.clone(), inviter);
        Ok(())
    }
}
