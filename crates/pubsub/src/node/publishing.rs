//! Publishing and retracting items: XEP-0060 1.30.0, sections 4.3, 7 and 12.9.

use std::collections::BTreeSet;

use jid::Jid;
use stanza::payload::data_form::{DataForm, FormKind};
use stanza::{StanzaCondition, StanzaError};
use store::{PubSubChange, PubSubItem, PubSubItemHead};
use xml::Ns;

use super::{NodeCtx, PubSubAnswer, PubSubNode, Requester};
use crate::affiliation::NodeAffiliation;
use crate::node_config::{NodeFull, PUBLISH_OPTIONS_FORM};
use crate::pubsub_error::{forbidden, not_found, pubsub_error, unsupported};
use crate::request::GivenItem;

/// Bytes of items in one message.
const EVENT_BYTES: usize = 128 << 10;

impl PubSubNode {
    /// Section 7.1.
    pub(super) fn publish(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        given: Vec<GivenItem>,
        options: Option<&DataForm>,
    ) -> Result<PubSubAnswer, StanzaError> {
        if self.is_collection() {
            return Err(unsupported("publish"));
        }
        self.check_publish(requester)?;
        if let Some(options) = options {
            self.check_preconditions(ctx, options)?;
        }
        self.check_event_type(ctx, &given)?;
        self.check_overwrites(requester, &given)?;
        let publisher = requester.user().to_jid();
        let except = self.config.publishers_hear_nothing.then(|| publisher.clone());
        if given.is_empty() {
            self.send_event(ctx, except, |w| {
                w.start("items").attr("node", &self.name).end();
            });
            return Ok(self.publish_answer(&[]));
        }
        let is_stored = self.config.persist_items && self.config.item_limit(ctx.limits) > 0;
        let removed = if is_stored { self.make_room(ctx, &given)? } else { Vec::new() };
        let before = self.last.as_ref().map(|last| last.head.seq).max(self.last_seq()).unwrap_or(0);
        let mut published: Vec<PubSubItem> = Vec::with_capacity(given.len());
        for (one, seq) in given.into_iter().zip(before + 1..) {
            let id: Box<str> = one.id.unwrap_or_else(|| (ctx.new_id)()).into();
            let first_seq = self.items.get(&id).map_or(seq, |before| before.first_seq);
            let head =
                PubSubItemHead { seq, first_seq, id, publisher: publisher.clone(), published: ctx.now };
            published.push(PubSubItem { head, payload: one.payload });
        }
        if is_stored {
            for item in &published {
                self.items.insert(item.head.clone());
                ctx.changes.push(PubSubChange::PutItem(item.clone()));
            }
        }
        self.send_items(ctx, &published, except);
        if self.config.node_full == NodeFull::RetractOldest && self.config.notify_retract {
            self.send_retracted(ctx, &removed, None);
        }
        let answer = self.publish_answer(&published);
        self.last = published.pop();
        Ok(answer)
    }

    fn publish_answer(&self, published: &[PubSubItem]) -> PubSubAnswer {
        PubSubAnswer::pubsub(Ns::Pubsub, |w| {
            w.start("publish").attr("node", &self.name);
            for item in published {
                w.start("item").attr("id", &item.head.id).end();
            }
            w.end();
        })
    }

    /// Sends items, in several messages if they are large.
    fn send_items(&self, ctx: &mut NodeCtx<'_>, items: &[PubSubItem], except: Option<Jid>) {
        let mut rest = items;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = rest.iter().take_while(|item| {
                bytes += if self.config.deliver_payloads { item.payload.len() } else { 0 } + 256;
                bytes <= EVENT_BYTES
            });
            let (part, others) = rest.split_at(fits.count().max(1));
            rest = others;
            self.send_event(ctx, except.clone(), |w| {
                w.start("items").attr("node", &self.name);
                for PubSubItem { head, payload } in part {
                    let payload: &[u8] = if self.config.deliver_payloads { payload } else { &[] };
                    self.write_item(w, head, payload);
                }
                w.end();
            });
        }
    }

    /// Section 7.1.5: each field is a condition. Also used by a node that is created by a publication.
    fn check_preconditions(&self, ctx: &NodeCtx<'_>, options: &DataForm) -> Result<(), StanzaError> {
        let not_met = || pubsub_error("precondition-not-met");
        let mut wanted = self.config.clone();
        let form = precondition_form(options, &wanted, ctx.limits).ok_or_else(not_met)?;
        wanted.submit(&form, ctx.limits).map_err(|_| not_met())?;
        if wanted == self.config { Ok(()) } else { Err(not_met()) }
    }

    /// Sections 7.1.3.5 to 7.1.3.7, and 12.9.
    fn check_event_type(&self, ctx: &NodeCtx<'_>, given: &[GivenItem]) -> Result<(), StanzaError> {
        if self.config.is_transient_notification() {
            return if given.is_empty() { Ok(()) } else { Err(pubsub_error("item-forbidden")) };
        }
        if given.is_empty() {
            return Err(pubsub_error("item-required"));
        }
        if given.len() > ctx.limits.batch_items {
            return Err(
                StanzaError::new(StanzaCondition::NotAcceptable).text("too many items in one request")
            );
        }
        let limit = self.config.item_limit(ctx.limits);
        if self.config.persist_items && limit > 0 && given.len() > limit {
            return Err(pubsub_error("max-items-exceeded"));
        }
        let most = self.config.max_payload_size.min(ctx.limits.payload_bytes);
        for item in given {
            if item.payload_count > 1 {
                return Err(pubsub_error("invalid-payload"));
            }
            if item.payload_count == 0 && self.config.deliver_payloads {
                return Err(pubsub_error("payload-required"));
            }
            if item.payload.len() > usize::try_from(most).unwrap_or(usize::MAX) {
                return Err(pubsub_error("payload-too-big"));
            }
        }
        let ids: BTreeSet<&str> = given.iter().filter_map(|item| item.id.as_deref()).collect();
        if ids.len() < given.iter().filter(|item| item.id.is_some()).count() {
            return Err(crate::pubsub_error::bad_request("an item is there twice"));
        }
        Ok(())
    }

    /// Items of others are overwritten by owners and publishers only: anybody could destroy an open node otherwise.
    fn check_overwrites(&self, requester: &Requester<'_>, given: &[GivenItem]) -> Result<(), StanzaError> {
        if matches!(self.affiliation(requester), NodeAffiliation::Owner | NodeAffiliation::Publisher) {
            return Ok(());
        }
        let before = given.iter().filter_map(|item| self.items.get(item.id.as_deref()?));
        if before.into_iter().any(|head| head.publisher.as_ref() != requester.user()) {
            return Err(forbidden());
        }
        Ok(())
    }

    /// Removes the oldest items for the given ones, and returns their ids (section 7.1.2.5).
    fn make_room(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        given: &[GivenItem],
    ) -> Result<Vec<Box<str>>, StanzaError> {
        let replaced: BTreeSet<&str> = given
            .iter()
            .filter_map(|item| item.id.as_deref())
            .filter(|id| self.items.get(id).is_some())
            .collect();
        let total = self.items.len() - replaced.len() + given.len();
        let excess = total.saturating_sub(self.config.item_limit(ctx.limits));
        if excess > 0 && self.config.node_full == NodeFull::Reject {
            return Err(pubsub_error("node-full"));
        }
        let oldest = self.items.iter().filter(|head| !replaced.contains(&*head.id)).take(excess);
        let oldest: Vec<Box<str>> = oldest.map(|head| head.id.clone()).collect();
        for id in &oldest {
            self.remove_item(ctx, id);
        }
        Ok(oldest)
    }

    /// Removes an item without a notification.
    pub(super) fn remove_item(&mut self, ctx: &mut NodeCtx<'_>, id: &str) {
        if self.items.remove(id) {
            ctx.changes.push(PubSubChange::RemoveItem(id.into()));
        }
    }

    /// Section 7.2.
    pub(super) fn retract(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        ids: &[String],
        notify: Option<bool>,
    ) -> Result<PubSubAnswer, StanzaError> {
        let affiliation = self.affiliation(requester);
        if affiliation == NodeAffiliation::Outcast {
            return Err(forbidden());
        }
        if ids.is_empty() {
            return Err(pubsub_error("item-required"));
        }
        if ids.len() > ctx.limits.batch_items {
            return Err(
                StanzaError::new(StanzaCondition::NotAcceptable).text("too many items in one request")
            );
        }
        if !self.config.persist_items || self.is_collection() {
            return Err(unsupported("persistent-items"));
        }
        // Section 4.1: its original publisher, or an owner. All or nothing (section 12.9).
        for id in ids {
            let head = self.items.get(id);
            let may_publish = self.check_publish(requester).is_ok();
            match head {
                _ if affiliation == NodeAffiliation::Owner => {}
                Some(head) if head.publisher.as_ref() == requester.user() => {}
                None if may_publish => {}
                _ => return Err(forbidden()),
            }
            if head.is_none() {
                return Err(not_found());
            }
        }
        let removed: BTreeSet<Box<str>> = ids.iter().map(|id| id.as_str().into()).collect();
        for id in &removed {
            self.remove_item(ctx, id);
        }
        let removed: Vec<Box<str>> = removed.into_iter().collect();
        if self.last.as_ref().is_some_and(|last| removed.contains(&last.head.id)) {
            self.last = None;
        }
        if notify.unwrap_or(self.config.notify_retract) {
            let publisher = requester.user().to_jid();
            self.send_retracted(ctx, &removed, self.config.publishers_hear_nothing.then_some(publisher));
        }
        Ok(PubSubAnswer::empty())
    }

    /// Sends the removal of items.
    pub(super) fn send_retracted(&self, ctx: &mut NodeCtx<'_>, ids: &[Box<str>], except: Option<Jid>) {
        if ids.is_empty() {
            return;
        }
        self.send_event(ctx, except, |w| {
            w.start("items").attr("node", &self.name);
            for id in ids {
                w.start("retract").attr("id", id).end();
            }
            w.end();
        });
    }
}

/// Preconditions as a form of the configuration; `None` if there is an unknown field (section 7.1.5).
pub(super) fn precondition_form(
    options: &DataForm,
    config: &crate::node_config::PubSubNodeConfig,
    limits: &crate::options::PubSubLimits,
) -> Option<DataForm> {
    // One more: the type of the form.
    if options.fields.len() > limits.form_fields + 1 {
        return None;
    }
    if options.kind != FormKind::Submit || options.form_type() != Some(PUBLISH_OPTIONS_FORM) {
        return None;
    }
    let fields = options.fields.iter().filter(|field| field.var != stanza::payload::data_form::FORM_TYPE);
    let mut form = DataForm::typed(FormKind::Submit, crate::node_config::CONFIG_FORM);
    let known = config.form(FormKind::Form);
    for field in fields {
        known.get(&field.var)?;
        form = form.field(field.clone());
    }
    Some(form)
}
