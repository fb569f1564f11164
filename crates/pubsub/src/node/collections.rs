//! Collections: XEP-0248 0.5.0. Association, notifications of children, and the nodes in a collection.

use std::collections::VecDeque;

use jid::{Jid, JidRef};
use stanza::payload::rsm::{RsmRequest, RsmResponse};
use stanza::{StanzaCondition, StanzaError};
use throng_core::SharedStanza;
use xml::{Ns, Writer};

use super::events::{ChildOrigin, EventOrigin, SHIM};
use super::retrieval::page;
use super::{NodeCtx, Notice, PubSubAnswer, PubSubNode, Requester};
use crate::affiliation::NodeAffiliation;
use crate::associated_nodes::{AssociatedNode, AssociatedNodes};
use crate::collection_config::{CollectionConfig, MAX_PARENTS, NodeType};
use crate::graph::{
    ChildEvent, EdgeChange, EdgeRequester, EventDelivery, GraphInput, MAX_LEVELS, MAX_REACHED, NodeEdgeChange,
};
use crate::graph_changes::associated_nodes;
use crate::node_config::AccessModel;
use crate::pubsub_error::{bad_request, forbidden_in_graph, graph_error, not_found, unsupported};
use crate::request::{ItemsQuery, NodeRequest};
use crate::subscription::{EventKind, SubscriptionOptions, SubscriptionType};

/// The name of the root node, which has none in the protocol (section 8.1).
pub(crate) const ROOT_NODE: &str = "throng#root";
/// Children whose items are retrieved by the collection (section 6.2).
const MAX_RETRIEVED_CHILDREN: usize = 20;
/// Notifications that are recognised when they arrive by another path.
const MAX_RECENT: usize = 64;

/// Notifications of children that a collection has seen, and from which depth.
#[derive(Debug, Default)]
pub(super) struct RecentEvents(VecDeque<(Box<str>, u32)>);

/// How a notification arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventArrival {
    First,
    /// It has arrived before, from at least this depth.
    Nearer {
        than: u32,
    },
    /// It has arrived before, from the same depth or a lower one.
    Repeated,
}

impl RecentEvents {
    /// A notification arrives from this depth.
    fn add(&mut self, id: &str, depth: u32) -> EventArrival {
        if let Some((_, seen)) = self.0.iter_mut().find(|(one, _)| **one == *id) {
            let than = *seen;
            if than <= depth {
                return EventArrival::Repeated;
            }
            *seen = depth;
            return EventArrival::Nearer { than };
        }
        if self.0.len() >= MAX_RECENT {
            self.0.pop_front();
        }
        self.0.push_back((id.into(), depth));
        EventArrival::First
    }
}

/// The items of leaves in a collection.
#[derive(Clone, Debug)]
pub(crate) struct ItemsOfChildren {
    pub(crate) children: Vec<String>,
    /// Of each of them.
    pub(crate) max_items: Option<u32>,
}

/// A subscription whose options are set.
#[derive(Clone, Copy, Debug)]
pub(super) enum OptionsTarget<'a> {
    NewSubscription,
    /// The request names no identifier.
    TheOnlyOne,
    Subid(&'a str),
}

/// What happens to a child of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AssociationChange {
    Associated,
    Dissociated,
}

impl PubSubNode {
    pub(crate) fn is_collection(&self) -> bool {
        self.config.graph.is_collection()
    }

    pub(super) fn node_type(&self) -> NodeType {
        self.config.graph.node_type
    }

    pub(super) fn is_root(&self) -> bool {
        self.name == ROOT_NODE
    }

    /// Its name in the protocol.
    pub(super) fn shown_name(&self) -> Option<&str> {
        Some(self.name.as_str()).filter(|_| !self.is_root())
    }

    /// Section 6.1.3: one address has one subscription of each type, and the root tells nobody everything.
    pub(super) fn check_collection_options(
        &self,
        requester: &Requester<'_>,
        jid: &Jid,
        target: OptionsTarget<'_>,
        options: &SubscriptionOptions,
    ) -> Result<(), StanzaError> {
        if !self.is_collection() {
            return Ok(());
        }
        let has_items = options.subscription_type != SubscriptionType::Nodes;
        let is_deep = options.depth.is_none_or(|depth| depth > 1);
        if self.is_root() && has_items && is_deep && !requester.is_admin {
            return Err(StanzaCondition::NotAllowed.into());
        }
        let usual = SubscriptionOptions::default();
        let is_plain = requester.has_plain_subscription && jid.is_bare();
        let of_jid = self.special.of_jid(jid).map(|one| (Some(&*one.subid), &one.options));
        let all = of_jid.chain(is_plain.then_some((None, &usual)));
        let is_other = |subid: Option<&str>| match target {
            OptionsTarget::NewSubscription => true,
            OptionsTarget::TheOnlyOne => false,
            OptionsTarget::Subid(changed) => subid != Some(changed),
        };
        let overlaps = |one: &SubscriptionOptions| one.subscription_type.overlaps(options.subscription_type);
        match all.filter(|(subid, _)| is_other(*subid)).any(|(_, one)| overlaps(one)) {
            true => Err(StanzaCondition::Conflict.into()),
            false => Ok(()),
        }
    }

    /// Checks the change of the node's place in the graph from an earlier configuration, and tells the nodes at the other ends.
    ///
    /// # Errors
    /// The change is not possible (section 7.2.3).
    pub(super) fn change_graph(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        before: &CollectionConfig,
        is_new: bool,
    ) -> Result<(), StanzaError> {
        let after = self.config.graph.clone();
        if before.parents == after.parents && before.children == after.children {
            return Ok(());
        }
        let known = associated_nodes(ctx.graph.as_ref())?;
        for name in after.parents.difference(&before.parents) {
            check_parent(known.parents.get(name))?;
        }
        for name in after.children.difference(&before.children) {
            check_child(known.children.get(name))?;
        }
        if after.parents.intersection(&after.children).next().is_some() {
            return Err(graph_error("invalid-options"));
        }
        let requester = known.requester;
        for name in after.parents.difference(&before.parents) {
            self.send_edge_change(ctx, name, EdgeChange::AddChild { is_new }, requester.clone());
        }
        for name in before.parents.difference(&after.parents) {
            self.send_edge_change(ctx, name, EdgeChange::RemoveChild { is_deleted: false }, None);
        }
        for name in after.children.difference(&before.children) {
            self.send_edge_change(ctx, name, EdgeChange::AddParent, requester.clone());
            if !is_new {
                self.send_association(ctx, name, AssociationChange::Associated);
            }
        }
        for name in before.children.difference(&after.children) {
            self.send_edge_change(ctx, name, EdgeChange::RemoveParent, None);
            self.send_association(ctx, name, AssociationChange::Dissociated);
        }
        Ok(())
    }

    /// Whether a requester may send a request that changes edges, as far as this node decides.
    pub(crate) fn may_change_graph(&self, requester: &Requester<'_>, request: &NodeRequest) -> bool {
        let is_owner = self.is_owner(requester);
        if self.redirect.is_some() {
            return is_owner && matches!(request, NodeRequest::Create { .. });
        }
        match request {
            _ if self.is_root() => false,
            NodeRequest::SetConfig(_) => is_owner,
            NodeRequest::Associate(_) => self.is_collection() && self.admits_child_of(requester),
            NodeRequest::Dissociate(child) => is_owner || self.config.graph.children.contains(child),
            _ => false,
        }
    }

    fn send_edge_change(
        &self,
        ctx: &mut NodeCtx<'_>,
        to: &str,
        change: EdgeChange,
        requester: Option<EdgeRequester>,
    ) {
        let edge = NodeEdgeChange { to: to.to_owned(), from: self.name.clone(), change, requester };
        ctx.notices.push(Notice::Graph(GraphInput::Edge(edge)));
    }

    /// The node is deleted: its collections and its children do not have it any more.
    pub(super) fn remove_all_edges(&mut self, ctx: &mut NodeCtx<'_>) {
        let graph = std::mem::take(&mut self.config.graph);
        for name in &graph.parents {
            self.send_edge_change(ctx, name, EdgeChange::RemoveChild { is_deleted: true }, None);
        }
        for name in &graph.children {
            self.send_edge_change(ctx, name, EdgeChange::RemoveParent, None);
        }
        self.config.graph.node_type = graph.node_type;
    }

    /// The other end of an edge has changed. What was checked before may not be so any more: the node may have another owner, or
    /// was deleted and created again.
    pub(crate) fn apply_edge_change(&mut self, ctx: &mut NodeCtx<'_>, edge: &NodeEdgeChange) {
        let name = &edge.from;
        let requester = edge.requester.as_ref();
        let is_changed = match edge.change {
            EdgeChange::AddChild { .. } => {
                let mut children = self.config.graph.children.clone();
                let is_new = children.insert(name.clone());
                let is_permitted = self.is_collection()
                    && self.redirect.is_none()
                    && self.config.graph.permits(&children)
                    && requester
                        .is_some_and(|one| one.is_admin || self.admits_child_of_user(one.user.as_ref()));
                if is_new && !is_permitted {
                    return self.send_edge_change(ctx, name, EdgeChange::RemoveParent, None);
                }
                self.config.graph.children = children;
                is_new
            }
            EdgeChange::RemoveChild { .. } => self.config.graph.children.remove(name),
            EdgeChange::AddParent => {
                let is_new = !self.config.graph.parents.contains(name);
                // Its owner must agree: the subscribers of the collection receive what it publishes.
                let is_permitted = self.redirect.is_none()
                    && self.config.graph.parents.len() < MAX_PARENTS
                    && requester.is_some_and(|one| one.is_admin || self.is_owned_by(one.user.as_ref()));
                if is_new && !is_permitted {
                    let change = EdgeChange::RemoveChild { is_deleted: false };
                    return self.send_edge_change(ctx, name, change, None);
                }
                self.config.graph.parents.insert(name.clone())
            }
            EdgeChange::RemoveParent => self.config.graph.parents.remove(name),
        };
        if !is_changed {
            return;
        }
        self.put_record(ctx);
        match edge.change {
            EdgeChange::AddChild { is_new: false } => {
                self.send_association(ctx, name, AssociationChange::Associated);
            }
            EdgeChange::RemoveChild { is_deleted: false } => {
                self.send_association(ctx, name, AssociationChange::Dissociated);
            }
            _ => {}
        }
    }

    /// Section 7.5, at the collection.
    pub(super) fn associate(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        child: String,
    ) -> Result<PubSubAnswer, StanzaError> {
        self.check_graph_request()?;
        if !self.admits_child_of(requester) {
            return Err(forbidden_in_graph());
        }
        let known = associated_nodes(ctx.graph.as_ref())?;
        check_child(known.children.get(&child))?;
        if self.config.graph.children.contains(&child) {
            return Ok(PubSubAnswer::empty());
        }
        let mut children = self.config.graph.children.clone();
        children.insert(child.clone());
        if !self.config.graph.permits(&children) {
            return Err(graph_error("max-nodes-exceeded"));
        }
        self.config.graph.children = children;
        self.put_record(ctx);
        self.send_edge_change(ctx, &child, EdgeChange::AddParent, known.requester);
        self.send_association(ctx, &child, AssociationChange::Associated);
        Ok(PubSubAnswer::empty())
    }

    /// Section 7.6, at the collection. The owners of both nodes may separate them.
    pub(super) fn dissociate(
        &mut self,
        ctx: &mut NodeCtx<'_>,
        requester: &Requester<'_>,
        child: &str,
    ) -> Result<PubSubAnswer, StanzaError> {
        self.check_graph_request()?;
        let owns_child =
            |known: &AssociatedNodes| known.children.get(child).is_some_and(|child| child.is_owned);
        if !self.is_owner(requester) && !ctx.graph.as_ref().is_some_and(owns_child) {
            return Err(forbidden_in_graph());
        }
        if !self.config.graph.children.remove(child) {
            return Err(bad_request("the node is not in the collection"));
        }
        self.put_record(ctx);
        self.send_edge_change(ctx, child, EdgeChange::RemoveParent, None);
        self.send_association(ctx, child, AssociationChange::Dissociated);
        Ok(PubSubAnswer::empty())
    }

    fn check_graph_request(&self) -> Result<(), StanzaError> {
        if !self.config.supports_collections {
            return Err(unsupported("collections"));
        }
        if self.is_root() {
            return Err(StanzaCondition::NotAllowed.into());
        }
        if self.is_collection() { Ok(()) } else { Err(graph_error("invalid-options")) }
    }

    fn admits_child_of(&self, requester: &Requester<'_>) -> bool {
        self.is_owner(requester) || self.config.graph.permits_association_by(requester.user())
    }

    fn admits_child_of_user(&self, user: JidRef<'_>) -> bool {
        self.is_owned_by(user) || self.config.graph.permits_association_by(user)
    }

    fn is_owned_by(&self, user: JidRef<'_>) -> bool {
        self.affiliation_of(user) == NodeAffiliation::Owner
    }

    /// Section 5.2.2: a node was associated with this collection, or dissociated from it.
    fn send_association(&mut self, ctx: &mut NodeCtx<'_>, child: &str, change: AssociationChange) {
        if !self.config.deliver_notifications {
            return;
        }
        let name = match change {
            AssociationChange::Associated => "associate",
            AssociationChange::Dissociated => "dissociate",
        };
        let id: Box<str> = (ctx.new_id)().into();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.service.as_str()).attr("id", &id);
            self.write_type(w);
            w.start_ns("event", Ns::PubsubEvent).start("collection").attr("node", &self.name);
            w.start(name).attr("node", child).end();
            w.end().end().end();
        });
        let Some(stanza) = stanza else { return };
        let event = ChildEvent {
            to: self.name.clone(),
            from: child.to_owned(),
            stanza: stanza.clone(),
            id,
            kind: EventKind::Nodes,
            depth: 1,
            budget: MAX_REACHED,
            is_public: self.config.is_listed(),
            delivery: EventDelivery { except: None, presence_based: self.config.presence_based_delivery },
        };
        self.recent.add(&event.id, event.depth);
        let origin = EventOrigin::Child(ChildOrigin { kind: event.kind, depth: event.depth, seen: None });
        self.push_event(ctx, stanza, origin, event.delivery.clone());
        self.notify_parents(ctx, event);
    }

    /// A notification of a child (section 5.2.1).
    pub(crate) fn child_event(&mut self, ctx: &mut NodeCtx<'_>, event: ChildEvent) {
        let is_child = self.config.graph.children.contains(&event.from);
        if !self.is_collection()
            || self.redirect.is_some()
            || !is_child && !self.is_root()
            || self.is_root() && !event.is_public
        {
            return;
        }
        let seen = match self.recent.add(&event.id, event.depth) {
            EventArrival::First => None,
            EventArrival::Nearer { than } => Some(than),
            EventArrival::Repeated => return,
        };
        let origin = EventOrigin::Child(ChildOrigin { kind: event.kind, depth: event.depth, seen });
        // The header is written if somebody receives it.
        let is_received = origin.is_for_plain() || !self.event_recipients(ctx, origin).is_empty();
        if is_received
            && let Some(shown) = with_collection(&event.stanza, self.shown_name().unwrap_or_default())
        {
            self.push_event(ctx, shown, origin, event.delivery.clone());
        }
        self.notify_parents(ctx, event);
    }

    /// Sends a notification to the collections of this node.
    fn notify_parents(&self, ctx: &mut NodeCtx<'_>, mut event: ChildEvent) {
        let root = [ROOT_NODE.to_owned()].into();
        let parents = match self.config.graph.parents.is_empty() {
            true if self.is_root() || !ctx.has_root => return,
            true => &root,
            false => &self.config.graph.parents,
        };
        if event.depth >= MAX_LEVELS {
            return;
        }
        event.is_public &= self.is_public(event.kind);
        event.depth += 1;
        // The collections that the copies reach are as many as those that the notification may reach.
        let count = u32::try_from(parents.len()).unwrap_or(u32::MAX);
        let of_each = event.budget.saturating_sub(count) / count.max(1);
        let reached = usize::try_from(event.budget).unwrap_or(usize::MAX);
        for parent in parents.iter().take(reached) {
            let (to, from) = (parent.clone(), self.name.clone());
            let event = ChildEvent { to, from, budget: of_each, ..event.clone() };
            ctx.notices.push(Notice::Graph(GraphInput::Event(Box::new(event))));
        }
    }

    /// Whether everybody may know of notifications of this kind.
    fn is_public(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Items => self.config.access_model == AccessModel::Open,
            EventKind::Nodes => self.config.is_listed(),
        }
    }

    /// Sends a notification of this node to its collections.
    pub(super) fn propagate_to_collections(
        &self,
        ctx: &mut NodeCtx<'_>,
        kind: EventKind,
        (stanza, id): (SharedStanza, &str),
        delivery: EventDelivery,
    ) {
        if !self.config.supports_collections {
            return;
        }
        let event = ChildEvent {
            to: String::new(),
            from: String::new(),
            stanza,
            id: id.into(),
            kind,
            depth: 0,
            budget: MAX_REACHED,
            is_public: true,
            delivery,
        };
        self.notify_parents(ctx, event);
    }

    /// Tells the collections that the node was created (section 5.2.1.2).
    pub(super) fn announce_creation(&self, ctx: &mut NodeCtx<'_>) {
        let has_collection = !self.config.graph.parents.is_empty() || ctx.has_root;
        if !self.config.supports_collections || !has_collection || !self.config.deliver_notifications {
            return;
        }
        let id = (ctx.new_id)();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.service.as_str()).attr("id", &id);
            self.write_type(w);
            w.start_ns("event", Ns::PubsubEvent).start("create").attr("node", &self.name).end().end().end();
        });
        if let Some(stanza) = stanza {
            let presence_based = self.config.presence_based_delivery;
            let delivery = EventDelivery { except: None, presence_based };
            self.propagate_to_collections(ctx, EventKind::Nodes, (stanza, &id), delivery);
        }
    }

    /// The nodes in the collection, for service discovery (section 5.1.2).
    pub(super) fn disco_children(&self, rsm: Option<&RsmRequest>) -> Result<PubSubAnswer, StanzaError> {
        let all: Vec<&String> = self.config.graph.children.iter().collect();
        let count = all.len() as u64;
        let position = |name: &str| all.iter().position(|one| *one == name);
        let page = page(all.clone(), rsm, position)?;
        let mut out = Vec::with_capacity(512);
        let mut w = Writer::new(&mut out);
        w.start_ns("query", Ns::DiscoItems).attr("node", &self.name);
        for name in &page.items {
            w.start("item").attr("jid", self.service.as_str()).attr("node", name).end();
        }
        if page.is_page {
            let ends = page.items.first().zip(page.items.last());
            let ends = ends.map(|(first, last)| (first.as_str(), last.as_str()));
            let index = ends.map(|_| page.first_index as u64);
            RsmResponse { first_and_last: ends, index, count: Some(count) }.write(&mut w);
        }
        w.end();
        Ok(PubSubAnswer::Payload(out))
    }

    /// Section 6.2: the items of leaves in the collection, if there are few. Some of them, or an order, cannot be requested.
    pub(super) fn retrieve_of_children(&self, query: &ItemsQuery) -> Result<PubSubAnswer, StanzaError> {
        let children = &self.config.graph.children;
        let is_plain = query.ids.is_empty() && query.rsm.is_none() && query.order.is_none();
        if self.is_root() || children.len() > MAX_RETRIEVED_CHILDREN || !is_plain {
            return Err(StanzaCondition::FeatureNotImplemented.into());
        }
        let children = children.iter().cloned().collect();
        Ok(PubSubAnswer::ItemsOfChildren(ItemsOfChildren { children, max_items: query.max_items }))
    }
}

/// Whether a collection may be the parent.
fn check_parent(parent: Option<&AssociatedNode>) -> Result<(), StanzaError> {
    let parent = parent.ok_or_else(not_found)?;
    if !parent.is_collection || parent.creates_cycle_or_is_too_deep {
        return Err(graph_error("invalid-options"));
    }
    if !parent.admits {
        return Err(forbidden_in_graph());
    }
    if parent.has_capacity { Ok(()) } else { Err(graph_error("max-nodes-exceeded")) }
}

/// Whether a node may be the child. Its owner must agree: the subscribers of the collection receive what it publishes.
fn check_child(child: Option<&AssociatedNode>) -> Result<(), StanzaError> {
    let child = child.ok_or_else(not_found)?;
    if !child.is_owned {
        return Err(forbidden_in_graph());
    }
    if child.creates_cycle_or_is_too_deep {
        return Err(graph_error("invalid-options"));
    }
    if child.has_capacity { Ok(()) } else { Err(graph_error("max-nodes-exceeded")) }
}

/// A notification with the name of the collection that sends it.
fn with_collection(event: &SharedStanza, name: &str) -> Option<SharedStanza> {
    const END: &[u8] = b"</message>";
    let mut out = event.bytes().strip_suffix(END)?.to_vec();
    let mut w = Writer::new(&mut out);
    w.start("headers").xmlns(SHIM);
    w.start("header").attr("name", "Collection").text(name).end();
    w.end();
    out.extend_from_slice(END);
    SharedStanza::parse(&out)
}
