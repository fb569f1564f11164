//! What follows from the presence of users, its end, and the end of their accounts: XEP-0060 1.30.0, sections 6.1.7, 12.4 and
//! 12.5; requests for approval again (section 8.7).

use jid::Jid;
use stanza::StanzaError;
use store::PubSubChange;

use super::{NodeCtx, NodeState, PubSubAnswer, PubSubNode, Requester};
use crate::affiliation::NodeAffiliation;
use crate::node_config::SendLast;
use crate::pubsub_error::forbidden;
use crate::subscription::{NodeSubscription, SubscriptionExpiry};

/// Requests for approval that an owner receives again at once.
const MAX_REQUESTS_AGAIN: usize = 100;

impl PubSubNode {
    /// A session of a user becomes available.
    pub(crate) fn user_available(&mut self, ctx: &mut NodeCtx<'_>, requester: &Requester<'_>) {
        self.expire(ctx);
        let jid = requester.jid;
        let is_of_session =
            |one: &NodeSubscription| one.jid == *jid || one.jid.is_bare() && one.is_of(jid.as_ref());
        let own = self.special.of_user(jid.as_ref());
        let receives = requester.has_plain_subscription
            || own.iter().any(|one| one.receives_events() && is_of_session(one));
        // The right to read may have ended since the subscription.
        if receives
            && self.check_read(requester).is_ok()
            && self.config.send_last == SendLast::OnSubAndPresence
        {
            self.send_last(ctx, jid);
        }
    }

    /// A client of a user is interested in this node of an account (XEP-0163, section 4.3.4).
    pub(crate) fn user_interested(&mut self, ctx: &mut NodeCtx<'_>, requester: &Requester<'_>) {
        self.expire(ctx);
        if self.redirect.is_none()
            && self.config.send_last == SendLast::OnSubAndPresence
            && self.check_read(requester).is_ok()
        {
            self.send_last(ctx, requester.jid);
        }
    }

    /// The account with this node was removed.
    pub(crate) fn account_removed(&mut self, ctx: &mut NodeCtx<'_>) {
        ctx.changes.push(PubSubChange::Remove);
        self.state = NodeState::Deleted;
    }

    /// A session of a user becomes unavailable.
    pub(crate) fn user_unavailable(&mut self, ctx: &mut NodeCtx<'_>, requester: &Requester<'_>) {
        self.expire(ctx);
        let jid = requester.jid;
        let ends = |one: &&NodeSubscription| {
            one.options.expiry == SubscriptionExpiry::Presence
                && (one.jid == *jid || one.jid.is_bare() && one.is_of(jid.as_ref()))
        };
        for one in self.special.of_user(jid.as_ref()).iter().filter(ends).cloned().collect::<Vec<_>>() {
            self.remove_special(ctx, &one.jid, &one.subid);
            if self.config.notify_sub {
                self.notify_owners(ctx, &one.jid, "none", Some(&one.subid));
            }
        }
        if self.config.purge_offline {
            self.purge_items_of(ctx, requester.user().to_jid());
        }
    }

    /// An account is removed: another one with its address must have neither its rights nor its subscriptions. A node without
    /// an owner is left to administrators.
    pub(crate) fn user_removed(&mut self, ctx: &mut NodeCtx<'_>, user: &Jid) {
        ctx.changes.push(PubSubChange::Unsubscribe(user.bare().to_jid()));
        for one in self.special.of_user(user.as_ref()).to_vec() {
            self.remove_special(ctx, &one.jid, &one.subid);
        }
        let whitelist = &mut self.config.graph.whitelist;
        if let Some(at) = whitelist.iter().position(|one| one == user.as_ref().bare().as_str()) {
            whitelist.remove(at);
            self.put_record(ctx);
        }
        if self.affiliations.remove(user.as_ref().bare().as_str()).is_some() {
            self.unconfirmed.remove(user.as_ref().bare().as_str());
            ctx.changes.push(PubSubChange::Affiliate(user.bare().to_jid(), None));
        }
    }

    /// `pubsub#purge_offline`.
    fn purge_items_of(&mut self, ctx: &mut NodeCtx<'_>, publisher: Jid) {
        let of_publisher = self.items.iter().filter(|head| head.publisher == publisher);
        let ids: Vec<Box<str>> = of_publisher.map(|head| head.id.clone()).collect();
        for id in &ids {
            self.remove_item(ctx, id);
        }
        if self.last.as_ref().is_some_and(|last| last.head.publisher == publisher) {
            self.last = None;
        }
        if self.config.notify_retract {
            self.send_retracted(ctx, &ids, None);
        }
    }

    /// Section 12.4: subscribers that do not exist any more.
    pub(crate) fn subscribers_lost(&mut self, ctx: &mut NodeCtx<'_>, users: &[Jid]) {
        for user in users {
            if user.is_bare() {
                ctx.changes.push(PubSubChange::Unsubscribe(user.clone()));
            }
            for one in self.special.of_jid(user).cloned().collect::<Vec<_>>() {
                self.remove_special(ctx, &one.jid, &one.subid);
            }
        }
    }

    /// Section 8.7: sends requests for approval again, of many the first ones: an owner who has answered these asks again for the
    /// others.
    pub(crate) fn ask_again(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
    ) -> Result<PubSubAnswer, StanzaError> {
        if self.is_root() || self.affiliation(requester) != NodeAffiliation::Owner {
            return Err(forbidden().kind(stanza::ErrorType::Cancel));
        }
        self.confirm_owner(ctx, requester);
        let to = [requester.user().to_jid()];
        for pending in self.special.iter().filter(|one| !one.is_approved()).take(MAX_REQUESTS_AGAIN) {
            self.request_approval_of(ctx, pending, &to);
        }
        Ok(PubSubAnswer::empty())
    }
}
