//! Subscribing, unsubscribing, and approval by owners: XEP-0060 1.30.0, sections 6.1, 6.2 and 8.6.

use jid::Jid;
use stanza::payload::data_form::{DataForm, FormField, FormFieldType, FormKind};
use stanza::{StanzaCondition, StanzaError};
use store::PubSubChange;
use throng_core::SharedStanza;
use xml::{Ns, Writer};

use super::access::SubscribeDecision;
use super::collections::OptionsTarget;
use super::{MAX_NOTIFIED_OWNERS, NodeCtx, Notice, PubSubAnswer, PubSubNode, Requester};
use crate::affiliation::NodeAffiliation;
use crate::node_config::SendLast;
use crate::pubsub_error::{forbidden, pubsub_error};
use crate::request::{AUTHORIZATION_FORM, Approval, SubscriptionKey};
use crate::subscription::{NodeSubscription, SubscriptionExpiry, SubscriptionOptions, SubscriptionState};

/// Longest subscription of a lease: ten years, in milliseconds.
const MAX_LEASE_MILLIS: u64 = 10 * 366 * 86_400_000;

/// Subscriptions of one other domain to the root node.
const MAX_ROOT_SUBSCRIPTIONS: usize = 100;

/// A subscription that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FoundSubscription {
    Plain,
    Special(NodeSubscription),
}

impl PubSubNode {
    /// Section 6.1.
    pub(super) fn subscribe(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        jid: Jid,
        form: Option<&DataForm>,
    ) -> Result<PubSubAnswer, StanzaError> {
        if jid.bare() != requester.user() && !requester.is_admin {
            return Err(pubsub_error("invalid-jid"));
        }
        let decision = self.check_subscribe(requester)?;
        let mut options = SubscriptionOptions::default();
        if let Some(form) = form {
            options.submit(form, ctx.limits.form_fields, self.node_type())?;
            limit_lease(&mut options, ctx.now);
        }
        if self.config.temporary_subscriptions {
            options.expiry = SubscriptionExpiry::Presence;
        }
        if form.is_some() {
            self.check_collection_options(requester, &jid, OptionsTarget::NewSubscription, &options)?;
        }
        let existing: Vec<&NodeSubscription> = self.special.of_jid(&jid).collect();
        if existing.iter().any(|one| !one.is_approved()) {
            return Err(pubsub_error("pending-subscription"));
        }
        let is_plain = requester.has_plain_subscription && jid.is_bare();
        if form.is_none() && (is_plain || !existing.is_empty()) {
            let subid = if is_plain { None } else { existing.first().map(|one| one.subid.clone()) };
            return Ok(self.subscription_answer(&jid, "subscribed", subid.as_deref(), None));
        }
        let count = existing.len() + usize::from(is_plain);
        let of_user =
            self.special.of_user(jid.as_ref()).len() + usize::from(requester.has_plain_subscription);
        if of_user >= ctx.limits.subscriptions_per_user_and_node || count == 0 && !requester.may_subscribe {
            return Err(pubsub_error("too-many-subscriptions"));
        }
        if decision == SubscribeDecision::NeedsApproval && count == 0 {
            self.check_special_capacity(ctx, 1)?;
            let subid: Box<str> = (ctx.new_id)().into();
            let state = SubscriptionState::Pending;
            let pending = NodeSubscription { jid: jid.clone(), subid, state, options };
            self.request_approval(ctx, &pending);
            self.put_special(ctx, pending);
            return Ok(self.subscription_answer(&jid, "pending", None, None));
        }
        if form.is_none() && options == SubscriptionOptions::default() && ctx.can_be_plain(&jid) {
            ctx.changes.push(PubSubChange::Subscribe(jid.clone()));
            self.after_subscribe(ctx, &jid, None);
            return Ok(self.subscription_answer(&jid, "subscribed", None, None));
        }
        self.check_special_capacity(ctx, 1 + usize::from(is_plain))?;
        self.check_root_capacity(ctx, &jid)?;
        if is_plain {
            // Each of several subscriptions needs an id (section 6.1.6).
            self.make_special(ctx, &jid, SubscriptionOptions::default());
        }
        let subid: Box<str> = (ctx.new_id)().into();
        let state = SubscriptionState::Subscribed;
        let shown = form.is_some().then(|| options.form(FormKind::Result, self.node_type()));
        self.put_special(ctx, NodeSubscription { jid: jid.clone(), subid: subid.clone(), state, options });
        self.after_subscribe(ctx, &jid, Some(&subid));
        Ok(self.subscription_answer(&jid, "subscribed", Some(&subid), shown.as_ref()))
    }

    /// Section 6.2.
    pub(super) fn unsubscribe(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        key: &SubscriptionKey,
    ) -> Result<PubSubAnswer, StanzaError> {
        let (jid, found) = self.find_subscription(requester, key)?;
        let subid = match found {
            FoundSubscription::Plain => {
                ctx.changes.push(PubSubChange::Unsubscribe(jid.clone()));
                None
            }
            FoundSubscription::Special(one) => {
                self.remove_special(ctx, &jid, &one.subid);
                Some(one.subid)
            }
        };
        if self.config.notify_sub {
            self.notify_owners(ctx, &jid, "none", subid.as_deref());
        }
        Ok(self.subscription_answer(&jid, "none", subid.as_deref(), None))
    }

    /// The subscription that a request names (sections 6.2.3 and 6.3.4).
    pub(super) fn find_subscription(
        &self,
        requester: &Requester<'_>,
        key: &SubscriptionKey,
    ) -> Result<(Jid, FoundSubscription), StanzaError> {
        let jid = key.jid.clone().ok_or_else(|| pubsub_error("jid-required"))?;
        if jid.bare() != requester.user() && !requester.is_admin {
            return Err(forbidden());
        }
        let is_plain = requester.has_plain_subscription && jid.is_bare();
        let of_jid: Vec<&NodeSubscription> = self.special.of_jid(&jid).collect();
        let found = match (of_jid.as_slice(), &key.subid) {
            // A plain one has no id, and is the only one of its address.
            (_, _) if is_plain => FoundSubscription::Plain,
            ([], _) => return Err(pubsub_error("not-subscribed")),
            ([one], None) => FoundSubscription::Special((*one).clone()),
            (_, None) => return Err(pubsub_error("subid-required")),
            (all, Some(subid)) => {
                let one = all.iter().find(|one| *one.subid == **subid).map(|one| (*one).clone());
                FoundSubscription::Special(one.ok_or_else(|| pubsub_error("invalid-subid"))?)
            }
        };
        Ok((jid, found))
    }

    /// An owner answers a request for approval.
    pub(crate) fn approve(&mut self, ctx: &mut NodeCtx<'_>, requester: &Requester<'_>, approval: &Approval) {
        // The root node approves nobody.
        if self.redirect.is_some() || self.is_root() || self.affiliation(requester) != NodeAffiliation::Owner
        {
            return;
        }
        self.confirm_owner(ctx, requester);
        let is_meant = |one: &&NodeSubscription| {
            !one.is_approved() && approval.subid.as_ref().is_none_or(|subid| **subid == *one.subid)
        };
        let Some(pending) = self.special.of_jid(&approval.subscriber).find(is_meant).cloned() else { return };
        if approval.allow {
            self.accept_pending(ctx, pending);
        } else {
            self.remove_special(ctx, &pending.jid, &pending.subid);
            self.notify_subscription(ctx, &pending.jid, "none", None);
        }
    }

    /// A pending subscription comes into force.
    pub(super) fn accept_pending(&mut self, ctx: &mut NodeCtx<'_>, pending: NodeSubscription) {
        let jid = pending.jid.clone();
        let is_plain = ctx.can_be_plain(&jid) && pending.options == SubscriptionOptions::default();
        let subid = if is_plain {
            self.remove_special(ctx, &jid, &pending.subid);
            ctx.changes.push(PubSubChange::Subscribe(jid.clone()));
            None
        } else {
            let subid = pending.subid.clone();
            self.put_special(ctx, NodeSubscription { state: SubscriptionState::Subscribed, ..pending });
            Some(subid)
        };
        self.notify_subscription(ctx, &jid, "subscribed", subid.as_deref());
        self.after_subscribe(ctx, &jid, subid.as_deref());
    }

    /// What follows a subscription: the last item (section 6.1.7), and a message to the owners.
    fn after_subscribe(&mut self, ctx: &mut NodeCtx<'_>, jid: &Jid, subid: Option<&str>) {
        if self.config.notify_sub {
            self.notify_owners(ctx, jid, "subscribed", subid);
        }
        if self.config.send_last != SendLast::Never {
            self.send_last(ctx, jid);
        }
    }

    /// Asks the owners, each of whom may decide (section 12.11).
    pub(super) fn request_approval(&self, ctx: &mut NodeCtx<'_>, pending: &NodeSubscription) {
        let owners: Vec<Jid> = self.accepted_owners().take(MAX_NOTIFIED_OWNERS).cloned().collect();
        self.request_approval_of(ctx, pending, &owners);
    }

    pub(super) fn request_approval_of(
        &self,
        ctx: &mut NodeCtx<'_>,
        pending: &NodeSubscription,
        owners: &[Jid],
    ) {
        let form = DataForm::typed(FormKind::Form, AUTHORIZATION_FORM)
            .title("PubSub subscriber request")
            .instructions("Allow or deny the subscription, or cancel to decide later.")
            .field(FormField::new(FormFieldType::Hidden, "pubsub#subid").value(&*pending.subid))
            .field(
                FormField::new(FormFieldType::TextSingle, "pubsub#node").label("Node ID").value(&*self.name),
            )
            .field(
                FormField::new(FormFieldType::JidSingle, "pubsub#subscriber_jid")
                    .label("Subscriber Address")
                    .value(pending.jid.as_str()),
            )
            .field(
                FormField::boolean("pubsub#allow", false)
                    .label("Allow this JID to subscribe to this pubsub node?"),
            );
        for owner in owners {
            let id = (ctx.new_id)();
            let stanza = SharedStanza::build(|w| {
                w.start("message").attr("from", self.service.as_str()).attr("to", owner.as_str());
                w.attr("id", &id);
                form.write(w);
                w.end();
            });
            if let Some(stanza) = stanza {
                ctx.notices.push(Notice::Direct { to: owner.clone(), stanza });
            }
        }
    }

    /// A plain subscription becomes one with an id.
    pub(super) fn make_special(&mut self, ctx: &mut NodeCtx<'_>, jid: &Jid, options: SubscriptionOptions) {
        ctx.changes.push(PubSubChange::Unsubscribe(jid.clone()));
        let subid: Box<str> = (ctx.new_id)().into();
        let state = SubscriptionState::Subscribed;
        self.put_special(ctx, NodeSubscription { jid: jid.clone(), subid, state, options });
    }

    pub(super) fn check_special_capacity(&self, ctx: &NodeCtx<'_>, more: usize) -> Result<(), StanzaError> {
        if self.special.len() + more > ctx.limits.special_subscriptions {
            let error = StanzaError::new(StanzaCondition::ResourceConstraint);
            return Err(error.text("the node has too many subscriptions with options"));
        }
        Ok(())
    }

    /// The root node belongs to all: another domain, which can have any number of addresses, has a part of its subscriptions.
    fn check_root_capacity(&self, ctx: &NodeCtx<'_>, jid: &Jid) -> Result<(), StanzaError> {
        if !self.is_root() || (ctx.is_account)(jid) {
            return Ok(());
        }
        let of_domain = self.special.iter().filter(|one| one.jid.domain() == jid.domain());
        if of_domain.count() >= MAX_ROOT_SUBSCRIPTIONS {
            let error = StanzaError::new(StanzaCondition::ResourceConstraint);
            return Err(error.text("too many addresses of your domain are subscribed to the service"));
        }
        Ok(())
    }

    /// Inserts or replaces a subscription.
    pub(super) fn put_special(&mut self, ctx: &mut NodeCtx<'_>, one: NodeSubscription) {
        ctx.changes.push(PubSubChange::PutSpecial(one.record()));
        self.special.put(one);
    }

    pub(super) fn remove_special(&mut self, ctx: &mut NodeCtx<'_>, jid: &Jid, subid: &str) {
        self.special.remove(jid, subid);
        ctx.changes.push(PubSubChange::RemoveSpecial(jid.clone(), subid.into()));
    }

    fn subscription_answer(
        &self,
        jid: &Jid,
        state: &str,
        subid: Option<&str>,
        options: Option<&DataForm>,
    ) -> PubSubAnswer {
        PubSubAnswer::pubsub(Ns::Pubsub, |w| {
            write_subscription(w, self.shown_name(), jid, state, subid);
            if let Some(options) = options {
                w.start("options");
                options.write(w);
                w.end();
            }
        })
    }
}

/// Writes `<subscription/>`.
pub(super) fn write_subscription(
    w: &mut Writer<'_>,
    node: Option<&str>,
    jid: &Jid,
    state: &str,
    subid: Option<&str>,
) {
    w.start("subscription").attr_opt("node", node).attr("jid", jid.as_str());
    w.attr_opt("subid", subid).attr("subscription", state).end();
}

/// Section 12.18: a lease that is too long ends earlier.
pub(super) fn limit_lease(options: &mut SubscriptionOptions, now: u64) {
    if let SubscriptionExpiry::At(end) = options.expiry {
        options.expiry = SubscriptionExpiry::At(end.min(now.saturating_add(MAX_LEASE_MILLIS)));
    }
}
