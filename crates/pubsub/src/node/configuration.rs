//! Configuration, purge and deletion: XEP-0060 1.30.0, sections 8.2, 8.4 and 8.5; nodes that have moved (section 6.1.3.11).

use stanza::payload::data_form::{DataForm, FormKind};
use stanza::{ErrorType, StanzaCondition, StanzaError};
use store::PubSubChange;
use xml::Ns;

use super::{EventAudience, NodeCtx, NodeState, PubSubAnswer, PubSubNode, Requester};
use crate::affiliation::NodeAffiliation;
use crate::node_config::{AccessModel, PubSubNodeConfig};
use crate::pubsub_error::{not_found, unsupported};
use crate::request::NodeRequest;

impl PubSubNode {
    pub(super) fn config_form(&self) -> PubSubAnswer {
        PubSubAnswer::pubsub(Ns::PubsubOwner, |w| {
            w.start("configure").attr("node", &self.name);
            self.config.form(FormKind::Form).write(w);
            w.end();
        })
    }

    /// Section 8.2.4.
    pub(super) fn configure(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        form: &DataForm,
    ) -> Result<PubSubAnswer, StanzaError> {
        if form.kind == FormKind::Cancel {
            return Ok(PubSubAnswer::empty());
        }
        let before = self.config.clone();
        self.config.submit(form, ctx.limits)?;
        if self.config == before {
            return Ok(PubSubAnswer::empty());
        }
        if let Err(error) = self.change_graph(ctx, &before.graph, false) {
            self.config = before;
            return Err(error);
        }
        self.put_record(ctx);
        // XEP-0248, section 7.2.4.
        let becomes_collection = self.is_collection() && !before.graph.is_collection();
        if becomes_collection || !self.config.persist_items || self.config.item_limit(ctx.limits) == 0 {
            self.remove_items(ctx);
        }
        let excess = self.items.len().saturating_sub(self.config.item_limit(ctx.limits));
        for id in self.items.oldest(excess) {
            self.remove_item(ctx, &id);
        }
        // The other models admit whom they have admitted, or are compared with each event.
        ctx.rechecks_subscribers = self.config.access_model == AccessModel::Whitelist
            && before.access_model != AccessModel::Whitelist;
        if self.config.notify_config {
            let shown = self.config.deliver_payloads.then(|| self.config.form(FormKind::Result));
            self.send_node_event(ctx, EventAudience::Subscribers, |w| {
                w.start("configuration").attr("node", &self.name);
                if let Some(form) = &shown {
                    form.write(w);
                }
                w.end();
            });
        }
        Ok(PubSubAnswer::empty())
    }

    /// The record has changed.
    pub(super) fn put_record(&self, ctx: &mut NodeCtx<'_>) {
        let mut record = self.config.record(self.creator.clone(), self.created, self.redirect.as_deref());
        record.is_listed &= !self.is_root();
        ctx.changes.push(PubSubChange::Put(record));
    }

    fn remove_items(&mut self, ctx: &mut NodeCtx<'_>) {
        if self.items.len() > 0 {
            ctx.changes.push(PubSubChange::RemoveItems);
        }
        self.items.clear();
        self.last = None;
    }

    /// Section 8.5.
    pub(super) fn purge(&mut self, ctx: &mut NodeCtx<'_>) -> Result<PubSubAnswer, StanzaError> {
        if !self.config.persist_items || self.is_collection() {
            return Err(unsupported("persistent-items"));
        }
        self.remove_items(ctx);
        self.send_event(ctx, None, |w| {
            w.start("purge").attr("node", &self.name).end();
        });
        Ok(PubSubAnswer::empty())
    }

    /// Section 8.4. Of a node that has moved, the address stays.
    pub(crate) fn delete(&mut self, ctx: &mut NodeCtx<'_>, redirect: Option<String>) -> PubSubAnswer {
        if self.config.notify_delete {
            self.send_node_event(ctx, EventAudience::SubscribersAndPending, |w| {
                w.start("delete").attr("node", &self.name);
                if let Some(uri) = &redirect {
                    w.start("redirect").attr("uri", uri).end();
                }
                w.end();
            });
        }
        self.remove_all_edges(ctx);
        ctx.changes.push(PubSubChange::Remove);
        self.items.clear();
        self.last = None;
        self.special.clear();
        self.redirect = redirect;
        if self.redirect.is_none() {
            self.state = NodeState::Deleted;
            return PubSubAnswer::empty();
        }
        self.put_record(ctx);
        for (user, affiliation) in self.affiliations.iter() {
            if *affiliation == NodeAffiliation::Owner {
                ctx.changes
                    .push(PubSubChange::Affiliate(user.clone(), self.stored_number(user, *affiliation)));
            }
        }
        self.affiliations.retain(|_, one| *one == NodeAffiliation::Owner);
        PubSubAnswer::empty()
    }

    /// A request to a node that was deleted with a redirection. Its owners can delete it again, or create another one.
    pub(super) fn handle_moved(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        request: NodeRequest,
        uri: &str,
    ) -> Result<PubSubAnswer, StanzaError> {
        let is_owner = self.affiliation(requester) == NodeAffiliation::Owner;
        match request {
            NodeRequest::Delete { redirect } if is_owner => Ok(self.delete(ctx, redirect)),
            NodeRequest::Create { config } if is_owner => {
                let creator = self.creator.clone();
                ctx.changes.push(PubSubChange::Remove);
                let (service, name) = (self.service.clone(), self.name.clone());
                let (node, answer) = {
                    let defaults = match self.is_of_account() {
                        true => PubSubNodeConfig::of_account(ctx.limits),
                        false => PubSubNodeConfig::new(ctx.limits),
                    };
                    let created =
                        PubSubNode::create(ctx, service, name, creator, (defaults, config.as_ref()));
                    // A request that is refused removes nothing.
                    created.inspect_err(|_| ctx.changes.clear())?
                };
                *self = node;
                Ok(answer)
            }
            NodeRequest::Create { .. } => Err(StanzaCondition::Conflict.into()),
            NodeRequest::DiscoItems(_) | NodeRequest::Info => Err(not_found()),
            _ => Err(StanzaError::new(StanzaCondition::Gone).kind(ErrorType::Modify).new_address(uri)),
        }
    }
}
