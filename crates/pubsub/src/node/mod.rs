//! A node as a state machine: a request and the state give an answer, changes for the store and notices, without I/O:
//! XEP-0060 1.30.0. A leaf node of a service or of an account, or a collection (XEP-0248).
//!
//! One task owns a node (`node_task.rs`), so its inputs have one order, which is that of every subscriber. Plain subscriptions
//! are not here, since there may be millions: the task tells whether the requester has one, and adds those subscribers to the
//! recipients of an event.
//!
//! Not implemented: `pubsub#type` as a condition of publication, because profiles give it other values than the payload's
//! namespace (XEP-0472); payment (no policy needs it).

mod access;
mod affiliations;
mod collections;
mod configuration;
mod creation;
mod disco;
mod events;
mod items;
mod options;
mod presence;
mod publishing;
mod retrieval;
mod special_subscriptions;
mod subscribing;
mod subscription_list;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::payload::data_form::{DataForm, FORM_TYPE};
use stanza::{StanzaCondition, StanzaError};
use store::{PubSubChange, PubSubItem, StoredPubSubNode};
use throng_core::SharedStanza;
use throng_core::limits::STANZA_LIMITS;
use xml::{NamespaceContext, Ns, Tree, Writer};

use self::collections::RecentEvents;
use self::events::{ChildOrigin, EventAudience};
use self::items::ItemIndex;
use self::special_subscriptions::SpecialSubscriptions;
use crate::affiliation::{NodeAffiliation, UNCONFIRMED_OWNER};
use crate::associated_nodes::AssociatedNodes;
use crate::graph::GraphInput;
use crate::node_config::{AccessModel, PubSubNodeConfig, PublishModel};
use crate::options::PubSubLimits;
use crate::pubsub_error::{forbidden, not_found};
use crate::request::NodeRequest;
use crate::subscription::NodeSubscription;

pub(crate) use self::collections::{ItemsOfChildren, ROOT_NODE};
pub(crate) use self::events::{AudienceContacts, EventRecipients, ImplicitAudience, NodeEvent, with_subids};
pub(crate) use self::options::default_options;
pub(crate) use self::retrieval::ItemsAnswer;
pub(crate) use self::subscription_list::SubscribersAnswer;

/// Owners that receive messages about subscribers.
const MAX_NOTIFIED_OWNERS: usize = 16;
/// Bytes of the entries of a list in one answer, and what an entry has besides its address.
const PAGE_BYTES: usize = 192 << 10;
const ENTRY_BYTES: usize = 128;
/// Name of the field with the address to which a deleted node has moved, in the store only.
pub(crate) const REDIRECT: &str = "throng#redirect";

/// Who requests something, with what the task knows about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requester<'a> {
    pub(crate) jid: &'a Jid,
    /// It administers the server.
    pub(crate) is_admin: bool,
    pub(crate) is_anonymous: bool,
    /// Whether the bare address that the request is about has a plain subscription.
    pub(crate) has_plain_subscription: bool,
    /// Whether it may see the presence of an owner.
    pub(crate) sees_presence: bool,
    /// Whether it is in one of the roster groups of the configuration.
    pub(crate) is_in_group: bool,
    /// Whether it may subscribe to one more node.
    pub(crate) may_subscribe: bool,
}

/// What a node needs besides the request, and what it wants.
pub(crate) struct NodeCtx<'a> {
    /// Milliseconds since 1970.
    pub(crate) now: u64,
    /// An id that nobody can guess.
    pub(crate) new_id: &'a dyn Fn() -> String,
    /// Whether an address is that of an account of this server.
    pub(crate) is_account: &'a dyn Fn(&Jid) -> bool,
    pub(crate) limits: &'a PubSubLimits,
    /// What must be stored.
    pub(crate) changes: Vec<PubSubChange>,
    /// What must be sent.
    pub(crate) notices: Vec<Notice>,
    /// What is known about the nodes that the request associates.
    pub(crate) graph: Option<AssociatedNodes>,
    /// The service has, or may have, a root node with subscribers.
    pub(crate) has_root: bool,
    /// Subscribers that may not stay must be removed.
    pub(crate) rechecks_subscribers: bool,
    /// The last item as a message without `to`, and its number: all recipients share it.
    last: Option<(u64, SharedStanza)>,
    /// The special recipients of the last event of another node: the next one may have the same.
    recipients: Option<(ChildOrigin, Arc<EventRecipients>)>,
}

/// What must be sent.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// To the subscribers.
    Event(NodeEvent),
    /// To one address; the stanza has both addresses.
    Direct { to: Jid, stanza: SharedStanza },
    /// The same, of a stanza without `to` that several recipients share.
    Shared { to: Jid, stanza: SharedStanza },
    /// To another node of the service.
    Graph(GraphInput),
}

/// An answer that may need what the task can find.
#[derive(Debug)]
pub(crate) enum PubSubAnswer {
    Payload(Vec<u8>),
    /// The payloads of items.
    Items(ItemsAnswer),
    /// The items of leaves.
    ItemsOfChildren(ItemsOfChildren),
    /// A page of plain subscribers.
    Subscribers(SubscribersAnswer),
    /// The number of plain subscribers, for the end of a form.
    Info(disco::InfoAnswer),
}

/// Whether a node exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeState {
    Alive,
    Deleted,
}

/// A node.
#[derive(Debug)]
pub(crate) struct PubSubNode {
    /// The address from which events come.
    service: Jid,
    name: String,
    creator: Jid,
    /// Milliseconds since 1970.
    created: u64,
    config: PubSubNodeConfig,
    affiliations: BTreeMap<Jid, NodeAffiliation>,
    /// Owners whom others have named, and who have not acted as owners yet: they receive no messages, and their rosters decide
    /// nothing.
    unconfirmed: BTreeSet<Jid>,
    special: SpecialSubscriptions,
    /// Of a collection.
    recent: RecentEvents,
    items: ItemIndex,
    /// The last item with its payload, also of a node that keeps no items.
    last: Option<PubSubItem>,
    /// Where the deleted node has moved.
    redirect: Option<String>,
    state: NodeState,
}

impl<'a> NodeCtx<'a> {
    pub(crate) fn new(
        now: u64,
        new_id: &'a dyn Fn() -> String,
        is_account: &'a dyn Fn(&Jid) -> bool,
        limits: &'a PubSubLimits,
    ) -> NodeCtx<'a> {
        let (changes, notices) = (Vec::new(), Vec::new());
        NodeCtx {
            now,
            new_id,
            is_account,
            limits,
            changes,
            notices,
            graph: None,
            has_root: false,
            rechecks_subscribers: false,
            last: None,
            recipients: None,
        }
    }

    /// Whether a subscription of this address with default options is a plain one.
    fn can_be_plain(&self, jid: &Jid) -> bool {
        jid.is_bare() && (self.is_account)(jid)
    }
}

impl Requester<'_> {
    /// The bare address.
    fn user(&self) -> JidRef<'_> {
        self.jid.bare()
    }
}

impl PubSubAnswer {
    /// An answer without content.
    fn empty() -> PubSubAnswer {
        PubSubAnswer::Payload(Vec::new())
    }

    /// `<pubsub/>` with this content.
    fn pubsub(ns: Ns, write: impl FnOnce(&mut Writer<'_>)) -> PubSubAnswer {
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.start_ns("pubsub", ns);
        write(&mut w);
        w.end();
        PubSubAnswer::Payload(out)
    }
}

impl PubSubNode {
    /// The node from the store, without its last item; `None` if it cannot be read.
    pub(crate) fn restore(
        service: Jid,
        name: String,
        stored: StoredPubSubNode,
        limits: &PubSubLimits,
    ) -> Option<PubSubNode> {
        let scope = NamespaceContext::client();
        let tree = Tree::parse(&stored.record.config, &scope, &STANZA_LIMITS).ok()?;
        let form = DataForm::read(tree.root()).ok()?;
        let (mut affiliations, mut unconfirmed) = (BTreeMap::new(), BTreeSet::new());
        for (jid, number) in stored.affiliations {
            if number == UNCONFIRMED_OWNER {
                unconfirmed.insert(jid.clone());
            }
            affiliations.insert(jid, NodeAffiliation::from_number(number)?);
        }
        let mut config = PubSubNodeConfig::restore(&form, limits)?;
        config.supports_collections = service.local().is_none();
        Some(PubSubNode {
            service,
            name,
            creator: stored.record.creator,
            created: stored.record.created,
            config,
            affiliations,
            unconfirmed,
            special: stored.special.into_iter().map(NodeSubscription::restore).collect::<Option<_>>()?,
            recent: RecentEvents::default(),
            items: ItemIndex::new(stored.items),
            last: None,
            redirect: form.value(REDIRECT).map(str::to_owned),
            state: NodeState::Alive,
        })
    }

    /// The fields of a stored configuration and their values, for display.
    pub(crate) fn stored_config(config: &[u8]) -> Option<Vec<(String, String)>> {
        let scope = NamespaceContext::client();
        let tree = Tree::parse(config, &scope, &STANZA_LIMITS).ok()?;
        let form = DataForm::read(tree.root()).ok()?;
        let fields = form.fields.iter().filter(|field| field.var != FORM_TYPE);
        Some(fields.map(|field| (field.var.clone(), field.values.join(", "))).collect())
    }

    /// The access model of a stored configuration, and the groups of the roster that it admits; `None` if it cannot be read, or the
    /// node has moved.
    pub(crate) fn stored_access(config: &[u8], limits: &PubSubLimits) -> Option<(AccessModel, Vec<String>)> {
        let config = PubSubNode::restored_config(config, limits)?;
        Some((config.access_model, config.roster_groups))
    }

    /// A stored configuration; `None` if it cannot be read, or the node has moved.
    pub(crate) fn restored_config(config: &[u8], limits: &PubSubLimits) -> Option<PubSubNodeConfig> {
        let scope = NamespaceContext::client();
        let tree = Tree::parse(config, &scope, &STANZA_LIMITS).ok()?;
        let form = DataForm::read(tree.root()).ok().filter(|form| form.get(REDIRECT).is_none())?;
        PubSubNodeConfig::restore(&form, limits)
    }

    /// The number of the last item in the store.
    pub(crate) fn last_seq(&self) -> Option<u64> {
        self.items.last().map(|head| head.seq)
    }

    /// Whether there is an item with this id.
    pub(crate) fn has_item(&self, id: &str) -> bool {
        self.items.get(id).is_some()
    }

    /// Whether the last item must be read from the store, because a later one was removed.
    pub(crate) fn lacks_last(&self) -> bool {
        let is_missing = |seq| self.last.as_ref().is_none_or(|last| last.head.seq != seq);
        self.config.persist_items && self.last_seq().is_some_and(is_missing)
    }

    /// The last item from the store.
    pub(crate) fn set_last(&mut self, item: Option<PubSubItem>) {
        self.last = item;
    }

    /// Number of its items, special subscriptions and affiliations, which are in memory.
    pub(crate) fn entry_count(&self) -> usize {
        self.items.len() + self.special.len() + self.affiliations.len()
    }

    /// Number of its special subscriptions.
    pub(crate) fn special_count(&self) -> usize {
        self.special.len()
    }

    /// Whether it exists.
    pub(crate) fn state(&self) -> NodeState {
        self.state
    }

    /// Its configuration.
    pub(crate) fn config(&self) -> &PubSubNodeConfig {
        &self.config
    }

    /// Whether it is a node of an account, whose user always owns it (XEP-0163).
    pub(crate) fn is_of_account(&self) -> bool {
        self.service.local().is_some()
    }

    /// Its owners.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &Jid> {
        self.affiliations.iter().filter(|(_, one)| **one == NodeAffiliation::Owner).map(|(jid, _)| jid)
    }

    /// The user who has created it.
    pub(crate) fn creator(&self) -> &Jid {
        &self.creator
    }

    /// Owners who have created the node or acted as owners.
    pub(crate) fn accepted_owners(&self) -> impl Iterator<Item = &Jid> {
        self.owners().filter(|jid| !self.unconfirmed.contains(*jid))
    }

    /// An owner whom others have named acts as one.
    fn confirm_owner(&mut self, ctx: &mut NodeCtx<'_>, requester: &Requester<'_>) {
        let user = requester.user();
        if self.unconfirmed.remove(user.as_str()) {
            ctx.changes.push(PubSubChange::Affiliate(user.to_jid(), NodeAffiliation::Owner.number()));
        }
    }

    /// Whether the requester owns the node.
    pub(crate) fn is_owner(&self, requester: &Requester<'_>) -> bool {
        self.affiliation(requester) == NodeAffiliation::Owner
    }

    /// Whether the existence of the node is a secret for the requester: it is on an account, and the requester can neither read it
    /// nor publish, and has no subscription.
    fn is_secret_for(&self, requester: &Requester<'_>) -> bool {
        self.is_of_account()
            && !self.is_subscribed(requester)
            && self.special.of_user(requester.user()).is_empty()
            && match self.affiliation(requester) {
                NodeAffiliation::Outcast => true,
                NodeAffiliation::None => {
                    self.config.access_model != AccessModel::Authorize
                        && self.config.publish_model != PublishModel::Open
                        && self.check_read(requester).is_err()
                }
                _ => false,
            }
    }

    /// Answers a request.
    ///
    /// # Errors
    /// The error for the requester.
    pub(crate) fn handle(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        request: NodeRequest,
    ) -> Result<PubSubAnswer, StanzaError> {
        if self.is_secret_for(requester) {
            // As if there were none, which other users cannot create.
            return Err(match request {
                NodeRequest::Create { .. } | NodeRequest::Publish { .. } => forbidden(),
                _ => not_found(),
            });
        }
        if let Some(uri) = &self.redirect {
            return self.handle_moved(ctx, requester, request, &uri.clone());
        }
        self.expire(ctx);
        if self.is_root() && !request.is_for_root() {
            return Err(StanzaCondition::NotAllowed.into());
        }
        if request.is_of_owner() && self.affiliation(requester) != NodeAffiliation::Owner {
            return Err(forbidden());
        }
        if request.is_of_owner()
            || matches!(request, NodeRequest::Publish { .. } | NodeRequest::Retract { .. })
        {
            self.confirm_owner(ctx, requester);
        }
        match request {
            NodeRequest::Create { .. } => Err(StanzaCondition::Conflict.into()),
            NodeRequest::Subscribe { jid, options } => self.subscribe(ctx, requester, jid, options.as_ref()),
            NodeRequest::Unsubscribe(key) => self.unsubscribe(ctx, requester, &key),
            NodeRequest::GetOptions(key) => self.subscription_options(requester, &key),
            NodeRequest::SetOptions(key, form) => self.set_subscription_options(ctx, requester, &key, &form),
            NodeRequest::DefaultOptions => Ok(options::default_options(self.shown_name(), self.node_type())),
            NodeRequest::Items(query) => self.retrieve(ctx, requester, &query),
            NodeRequest::Publish { items, options } => self.publish(ctx, requester, items, options.as_ref()),
            NodeRequest::Retract { ids, notify } => self.retract(ctx, requester, &ids, notify),
            NodeRequest::OwnSubscriptions => Ok(self.own_subscriptions(requester)),
            NodeRequest::OwnAffiliation => Ok(self.own_affiliation(requester)),
            NodeRequest::GetConfig => Ok(self.config_form()),
            NodeRequest::SetConfig(form) => self.configure(ctx, &form),
            NodeRequest::Delete { redirect } => Ok(self.delete(ctx, redirect)),
            NodeRequest::Purge => self.purge(ctx),
            NodeRequest::ListSubscriptions(rsm) => self.list_subscriptions(rsm),
            NodeRequest::ModifySubscriptions(changes) => self.modify_subscriptions(ctx, changes),
            NodeRequest::ListAffiliations(rsm) => self.list_affiliations(rsm),
            NodeRequest::ModifyAffiliations(changes) => self.modify_affiliations(ctx, requester, changes),
            NodeRequest::Associate(child) => self.associate(ctx, requester, child),
            NodeRequest::Dissociate(child) => self.dissociate(ctx, requester, &child),
            NodeRequest::Info => self.info(requester),
            NodeRequest::DiscoItems(rsm) => self.disco_items(ctx, requester, rsm),
        }
    }

    /// The affiliation of the requester; administrators of the server own every node.
    fn affiliation(&self, requester: &Requester<'_>) -> NodeAffiliation {
        if requester.is_admin { NodeAffiliation::Owner } else { self.affiliation_of(requester.user()) }
    }

    fn affiliation_of(&self, user: JidRef<'_>) -> NodeAffiliation {
        if self.is_of_account() && user.bare() == self.service.as_ref() {
            return NodeAffiliation::Owner;
        }
        self.affiliations.get(user.bare().as_str()).copied().unwrap_or(NodeAffiliation::None)
    }

    /// Removes what has expired: items, and subscriptions with a lease.
    pub(crate) fn expire(&mut self, ctx: &mut NodeCtx<'_>) {
        if let Some(age) = self.config.expiry_millis() {
            let until = ctx.now.saturating_sub(age);
            for id in self.items.published_before(until) {
                self.remove_item(ctx, &id);
            }
            if self.last.as_ref().is_some_and(|last| last.head.published < until) {
                self.last = None;
            }
        }
        let ended = self.special.ended(ctx.now);
        for one in ended {
            self.remove_special(ctx, &one.jid, &one.subid);
            self.notify_subscription(ctx, &one.jid, "none", Some(&one.subid));
        }
    }
}

impl NodeRequest {
    /// Whether users may send it to the root node, which is the service's.
    fn is_for_root(&self) -> bool {
        matches!(
            self,
            NodeRequest::Subscribe { .. }
                | NodeRequest::Unsubscribe(_)
                | NodeRequest::GetOptions(_)
                | NodeRequest::SetOptions(..)
        )
    }

    /// Whether only an owner may send it.
    fn is_of_owner(&self) -> bool {
        matches!(
            self,
            NodeRequest::GetConfig
                | NodeRequest::SetConfig(_)
                | NodeRequest::Delete { .. }
                | NodeRequest::Purge
                | NodeRequest::ListSubscriptions(_)
                | NodeRequest::ModifySubscriptions(_)
                | NodeRequest::ListAffiliations(_)
                | NodeRequest::ModifyAffiliations(_)
        )
    }
}
