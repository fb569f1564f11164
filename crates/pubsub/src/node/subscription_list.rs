//! Lists of subscriptions, and their changes by owners: XEP-0060 1.30.0, sections 5.6 and 8.8.

use std::collections::BTreeMap;

use jid::Jid;
use stanza::payload::rsm::{PagePosition, RsmRequest, RsmResponse};
use stanza::{ErrorType, StanzaCondition, StanzaError};
use store::PubSubChange;
use xml::{Ns, Writer};

use super::subscribing::write_subscription;
use super::{ENTRY_BYTES, NodeCtx, PAGE_BYTES, PubSubAnswer, PubSubNode, Requester};
use crate::pubsub_error::not_found;
use crate::request::SubscriptionChange;
use crate::subscription::{NodeSubscription, SubscriptionOptions, SubscriptionState};

/// Subscriptions of a page.
const MAX_PAGE: u32 = 1000;

/// A page of an owner's list without plain subscriptions, which follow the special ones.
#[derive(Debug)]
pub(crate) struct SubscribersAnswer {
    /// The plain subscription before the page.
    pub(crate) after: Option<Jid>,
    /// Plain subscriptions of the page.
    pub(crate) limit: u32,
    special: Vec<NodeSubscription>,
    /// Number of all special ones.
    special_count: u64,
    is_page: bool,
}

impl PubSubNode {
    /// Section 5.6, of one node.
    pub(super) fn own_subscriptions(&self, requester: &Requester<'_>) -> PubSubAnswer {
        let user = requester.user();
        PubSubAnswer::pubsub(Ns::Pubsub, |w| {
            w.start("subscriptions").attr("node", &self.name);
            if requester.has_plain_subscription {
                write_subscription(w, Some(&self.name), &user.to_jid(), "subscribed", None);
            }
            for one in self.special.of_user(user) {
                let subid = one.is_approved().then_some(&*one.subid);
                write_subscription(w, Some(&self.name), &one.jid, one.state.as_str(), subid);
            }
            w.end();
        })
    }

    pub(super) fn list_subscriptions(&self, rsm: Option<RsmRequest>) -> Result<PubSubAnswer, StanzaError> {
        let after = match rsm.as_ref().map(|rsm| &rsm.position) {
            None | Some(PagePosition::First) => None,
            Some(PagePosition::After(id)) => Some(id.as_str()),
            Some(_) => return Err(StanzaCondition::FeatureNotImplemented.into()),
        };
        let limit = rsm.as_ref().map_or(MAX_PAGE, |rsm| rsm.page_size(MAX_PAGE));
        // Special ones come first; their ids are those of the page.
        let mut approved = self.special.iter().filter(|one| one.is_approved());
        let special_count = approved.clone().count() as u64;
        let is_after_special = after.is_some_and(|after| approved.clone().any(|one| *one.subid == *after));
        let (mut special, mut bytes) = (Vec::new(), 0);
        let mut plain_after = None;
        match after {
            Some(after) if is_after_special => {
                approved.by_ref().find(|one| *one.subid == *after);
            }
            Some(after) => {
                // The id of a special subscription that has ended is no address of a plain one (XEP-0059, section 2.2).
                let jid = Jid::parse(after).ok().filter(|jid| jid.is_bare() && jid.local().is_some());
                plain_after = Some(jid.ok_or_else(not_found)?);
                approved.by_ref().for_each(drop);
            }
            None => {}
        }
        let mut plain_limit = limit;
        for one in approved {
            bytes += one.jid.as_str().len() + ENTRY_BYTES;
            if plain_limit == 0 || bytes > PAGE_BYTES {
                plain_limit = 0;
                break;
            }
            special.push(one.clone());
            plain_limit -= 1;
        }
        let is_page = rsm.is_some();
        Ok(PubSubAnswer::Subscribers(SubscribersAnswer {
            after: plain_after,
            limit: plain_limit,
            special,
            special_count,
            is_page,
        }))
    }

    /// Writes the answer with the plain subscribers that were found, of `count`.
    pub(crate) fn write_subscribers(&self, answer: &SubscribersAnswer, plain: &[Jid], count: u64) -> Vec<u8> {
        let mut bytes: usize = answer.special.iter().map(|one| one.jid.as_str().len() + ENTRY_BYTES).sum();
        let fits = plain.iter().take_while(|jid| {
            bytes += jid.as_str().len() + ENTRY_BYTES;
            bytes <= PAGE_BYTES
        });
        let fits = fits.count().max(usize::from(answer.special.is_empty()));
        let plain = plain.get(..fits).unwrap_or(plain);
        let mut out = Vec::with_capacity(1024);
        let mut w = Writer::new(&mut out);
        w.start_ns("pubsub", Ns::PubsubOwner).start("subscriptions").attr("node", &self.name);
        for one in &answer.special {
            write_subscription(&mut w, None, &one.jid, one.state.as_str(), Some(&one.subid));
        }
        for jid in plain {
            write_subscription(&mut w, None, jid, "subscribed", None);
        }
        w.end();
        let count = count + answer.special_count;
        if answer.is_page || ((plain.len() + answer.special.len()) as u64) < count {
            let ids = answer.special.iter().map(|one| &*one.subid).chain(plain.iter().map(Jid::as_str));
            let ends = ids.clone().next().zip(ids.last());
            RsmResponse { first_and_last: ends, index: None, count: Some(count) }.write(&mut w);
        }
        w.end();
        out
    }

    /// Section 8.8.2: what is possible is changed, the rest is in the error. A change without effect notifies nobody.
    pub(super) fn modify_subscriptions(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        changes: Vec<SubscriptionChange>,
    ) -> Result<PubSubAnswer, StanzaError> {
        let mut failed = Vec::new();
        // Plain subscriptions that this request has added or removed.
        let mut plain: BTreeMap<Jid, bool> = BTreeMap::new();
        for mut change in changes {
            if let Some(is_subscribed) = plain.get(&change.jid) {
                change.subscriber.has_plain_subscription = *is_subscribed;
            }
            let count = ctx.changes.len();
            let done = match change.subscription.as_deref() {
                None => true,
                Some("none") => self.remove_subscriptions(ctx, &change),
                Some("subscribed") => self.add_subscription(ctx, &change),
                Some(_) => false,
            };
            for stored in ctx.changes.iter().skip(count) {
                match stored {
                    PubSubChange::Subscribe(jid) => drop(plain.insert(jid.clone(), true)),
                    PubSubChange::Unsubscribe(jid) => drop(plain.insert(jid.clone(), false)),
                    _ => {}
                }
            }
            if !done {
                failed.push(change);
            }
        }
        if failed.is_empty() {
            return Ok(PubSubAnswer::empty());
        }
        let error = StanzaError::new(StanzaCondition::NotAcceptable).kind(ErrorType::Modify);
        Err(error.payload(|w| {
            w.start_ns("pubsub", Ns::PubsubOwner).start("subscriptions").attr("node", &self.name);
            for change in &failed {
                let one = self.special_of(change).next();
                let (state, subid) =
                    one.map_or(("none", None), |one| (one.state.as_str(), Some(&*one.subid)));
                write_subscription(w, None, &change.jid, state, subid);
            }
            w.end().end();
        }))
    }

    fn special_of<'a>(
        &'a self,
        change: &'a SubscriptionChange,
    ) -> impl Iterator<Item = &'a NodeSubscription> {
        let of_jid = self.special.of_jid(&change.jid);
        of_jid.filter(|one| change.subid.as_ref().is_none_or(|subid| **subid == *one.subid))
    }

    fn remove_subscriptions(&mut self, ctx: &mut NodeCtx<'_>, change: &SubscriptionChange) -> bool {
        let special: Vec<NodeSubscription> = self.special_of(change).cloned().collect();
        if special.is_empty() && (change.subid.is_some() || !change.jid.is_bare()) {
            return false;
        }
        if change.subid.is_none() && change.jid.is_bare() && change.subscriber.has_plain_subscription {
            ctx.changes.push(PubSubChange::Unsubscribe(change.jid.clone()));
            if special.is_empty() {
                self.notify_subscription(ctx, &change.jid, "none", None);
            }
        }
        for one in special {
            self.remove_special(ctx, &one.jid, &one.subid);
            self.notify_subscription(ctx, &one.jid, "none", Some(&one.subid));
        }
        true
    }

    fn add_subscription(&mut self, ctx: &mut NodeCtx<'_>, change: &SubscriptionChange) -> bool {
        let special: Vec<NodeSubscription> = self.special_of(change).cloned().collect();
        if !special.is_empty() {
            for pending in special.into_iter().filter(|one| !one.is_approved()) {
                self.accept_pending(ctx, pending);
            }
            return true;
        }
        if change.subid.is_some() || !self.may_stay_subscribed(change.jid.as_ref()) {
            return false;
        }
        if change.jid.is_bare() && change.subscriber.has_plain_subscription {
            return true;
        }
        if !change.subscriber.is_admitted {
            return false;
        }
        let is_plain = ctx.can_be_plain(&change.jid);
        let of_user = self.special.of_user(change.jid.as_ref()).len();
        let is_full = !is_plain
            && (of_user >= ctx.limits.subscriptions_per_user_and_node
                || self.check_special_capacity(ctx, 1).is_err());
        if is_full {
            return false;
        }
        // Whether an account exists is no information for others (RFC 6120, section 8.3.3.19): the answer is the same.
        if !change.subscriber.exists {
            return true;
        }
        if is_plain {
            ctx.changes.push(PubSubChange::Subscribe(change.jid.clone()));
            self.notify_subscription(ctx, &change.jid, "subscribed", None);
            return true;
        }
        let subid: Box<str> = (ctx.new_id)().into();
        let one = NodeSubscription {
            jid: change.jid.clone(),
            subid: subid.clone(),
            state: SubscriptionState::Subscribed,
            options: SubscriptionOptions::default(),
        };
        self.put_special(ctx, one);
        self.notify_subscription(ctx, &change.jid, "subscribed", Some(&subid));
        true
    }

    /// Removes the plain ones of a list of subscribers that may not stay after a change of the configuration, and tells them.
    pub(crate) fn remove_excluded(&mut self, ctx: &mut NodeCtx<'_>, plain: &[Jid]) {
        for jid in plain.iter().filter(|jid| !self.may_stay_subscribed(jid.as_ref())) {
            ctx.changes.push(PubSubChange::Unsubscribe(jid.clone()));
            self.notify_subscription(ctx, jid, "none", None);
        }
    }

    /// The same for special ones.
    pub(crate) fn remove_excluded_special(&mut self, ctx: &mut NodeCtx<'_>) {
        let excluded = self.special.iter().filter(|one| !self.may_stay_subscribed(one.jid.as_ref()));
        for one in excluded.cloned().collect::<Vec<_>>() {
            self.remove_special(ctx, &one.jid, &one.subid);
            self.notify_subscription(ctx, &one.jid, "none", Some(&one.subid));
        }
    }
}
