//! Collections: XEP-0248 0.5.0. Association, notifications of children, and the nodes in a collection.

use std::collections::{BTreeSet, VecDeque};

use jid::Jid;
use stanza::payload::rsm::{RsmRequest, RsmResponse};
use stanza::{StanzaCondition, StanzaError};
use throng_core::SharedStanza;
use xml::{Ns, Writer};

use super::events::{EventOrigin, SHIM};
use super::retrieval::page;
use super::{NodeCtx, Notice, PubSubAnswer, PubSubNode, Requester};
use crate::collection_config::{CollectionConfig, NodeType};
use crate::graph::{
    ChildEvent, GraphFacts, GraphInput, LinkChange, MAX_LEVELS, MAX_REACHED, NodeLink, Relative,
};
use crate::node_config::AccessModel;
use crate::pubsub_error::{bad_request, forbidden_in_graph, graph_error, not_found, unsupported};
use crate::subscription::{EventKind, SubscriptionOptions, SubscriptionType};

/// The name of the root node, which has none in the protocol (section 8.1).
pub(crate) const ROOT_NODE: &str = "throng#root";
/// Children whose items are retrieved by the collection (section 6.2).
const MAX_RETRIEVED_CHILDREN: usize = 20;
/// Notifications that are recognised when they arrive on another way.
const MAX_RECENT: usize = 64;

/// Notifications of children that a collection has seen, and from which depth.
#[derive(Debug, Default)]
pub(super) struct RecentEvents(VecDeque<(Box<str>, u32)>);

impl RecentEvents {
    /// A notification arrives: the least depth that was seen before, unless it is this one; `Err`: it was.
    fn add(&mut self, id: &str, depth: u32) -> Result<Option<u32>, ()> {
        if let Some((_, seen)) = self.0.iter_mut().find(|(one, _)| **one == *id) {
            let before = *seen;
            if before <= depth {
                return Err(());
            }
            *seen = depth;
            return Ok(Some(before));
        }
        if self.0.len() >= MAX_RECENT {
            self.0.pop_front();
        }
        self.0.push_back((id.into(), depth));
        Ok(None)
    }
}

impl PubSubNode {
    pub(crate) fn is_collection(&self) -> bool {
        self.config.graph.is_collection()
    }

    /// Whether it is a leaf whose items can be retrieved, and which has not moved.
    pub(crate) fn shows_items(&self) -> bool {
        !self.is_collection() && self.config.persist_items && self.redirect.is_none()
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

    /// The collections of which it is a child.
    pub(crate) fn parents(&self) -> &BTreeSet<String> {
        &self.config.graph.parents
    }

    /// Section 6.1.3: one address has one subscription of each type, and the root tells nobody everything. `change` is the
    /// identifier of the subscription that is changed, if it was named; without a change there is none.
    pub(super) fn check_collection_options(
        &self,
        requester: &Requester<'_>,
        jid: &Jid,
        change: Option<Option<&str>>,
        options: &SubscriptionOptions,
    ) -> Result<(), StanzaError> {
        if !self.is_collection() {
            return Ok(());
        }
        let has_items = options.subscription_type != SubscriptionType::Nodes;
        if self.is_root() && has_items && options.depth.is_none() && !requester.is_admin {
            return Err(StanzaCondition::NotAllowed.into());
        }
        let usual = SubscriptionOptions::default();
        let is_plain = requester.has_plain_subscription && jid.is_bare();
        let of_jid = self.special.of_jid(jid).map(|one| (Some(&*one.subid), &one.options));
        let all = of_jid.chain(is_plain.then_some((None, &usual)));
        let is_other = |subid: Option<&str>| match change {
            None => true,
            // Without an identifier it is the only one.
            Some(None) => false,
            Some(changed) => subid != changed,
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
        let facts = graph_facts(ctx)?;
        for name in after.parents.difference(&before.parents) {
            check_parent(facts.parents.get(name))?;
        }
        for name in after.children.difference(&before.children) {
            check_child(facts.children.get(name))?;
        }
        if after.parents.intersection(&after.children).next().is_some() {
            return Err(graph_error("invalid-options"));
        }
        for name in after.parents.difference(&before.parents) {
            self.link(ctx, name, LinkChange::AddChild { is_new });
        }
        for name in before.parents.difference(&after.parents) {
            self.link(ctx, name, LinkChange::RemoveChild { is_deleted: false });
        }
        for name in after.children.difference(&before.children) {
            self.link(ctx, name, LinkChange::AddParent);
            if !is_new {
                self.send_association(ctx, name, true);
            }
        }
        for name in before.children.difference(&after.children) {
            self.link(ctx, name, LinkChange::RemoveParent);
            self.send_association(ctx, name, false);
        }
        Ok(())
    }

    fn link(&self, ctx: &mut NodeCtx<'_>, to: &str, change: LinkChange) {
        let link = NodeLink { to: to.to_owned(), from: self.name.clone(), change };
        ctx.notices.push(Notice::Graph(GraphInput::Link(link)));
    }

    /// The node is deleted: its collections and its children do not have it any more.
    pub(super) fn unlink(&mut self, ctx: &mut NodeCtx<'_>) {
        let graph = std::mem::take(&mut self.config.graph);
        for name in &graph.parents {
            self.link(ctx, name, LinkChange::RemoveChild { is_deleted: true });
        }
        for name in &graph.children {
            self.link(ctx, name, LinkChange::RemoveParent);
        }
        self.config.graph.node_type = graph.node_type;
    }

    /// The other end of an edge has changed.
    pub(crate) fn apply_link(&mut self, ctx: &mut NodeCtx<'_>, link: &NodeLink) {
        let name = &link.from;
        let graph = &mut self.config.graph;
        let is_changed = match link.change {
            // It was checked, but the node may have been deleted and created again meanwhile.
            LinkChange::AddChild { .. } if !graph.is_collection() || self.redirect.is_some() => {
                return self.link(ctx, name, LinkChange::RemoveParent);
            }
            LinkChange::AddChild { .. } => {
                let mut children = graph.children.clone();
                children.insert(name.clone());
                if !graph.permits(&children) {
                    return self.link(ctx, name, LinkChange::RemoveParent);
                }
                std::mem::replace(&mut graph.children, children).len() < graph.children.len()
            }
            LinkChange::RemoveChild { .. } => graph.children.remove(name),
            LinkChange::AddParent if self.redirect.is_some() => {
                return self.link(ctx, name, LinkChange::RemoveChild { is_deleted: false });
            }
            LinkChange::AddParent => graph.parents.insert(name.clone()),
            LinkChange::RemoveParent => graph.parents.remove(name),
        };
        if !is_changed {
            return;
        }
        self.put_record(ctx);
        match link.change {
            LinkChange::AddChild { is_new: false } => self.send_association(ctx, name, true),
            LinkChange::RemoveChild { is_deleted: false } => self.send_association(ctx, name, false),
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
        let facts = graph_facts(ctx)?;
        if !self.admits_child_of(requester) {
            return Err(forbidden_in_graph());
        }
        check_child(facts.children.get(&child))?;
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
        self.link(ctx, &child, LinkChange::AddParent);
        self.send_association(ctx, &child, true);
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
        let facts = graph_facts(ctx)?;
        let owns_child = facts.children.get(child).is_some_and(|child| child.is_owned);
        if !self.is_owner(requester) && !owns_child {
            return Err(forbidden_in_graph());
        }
        if !self.config.graph.children.remove(child) {
            return Err(bad_request("the node is not in the collection"));
        }
        self.put_record(ctx);
        self.link(ctx, child, LinkChange::RemoveParent);
        self.send_association(ctx, child, false);
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
        use crate::collection_config::AssociationPolicy::{All, Owners, Whitelist};
        let graph = &self.config.graph;
        self.is_owner(requester)
            || match graph.policy {
                All => true,
                Owners => false,
                Whitelist => graph.whitelist.iter().any(|one| one == requester.user().as_str()),
            }
    }

    /// Section 5.2.2: a node was associated with this collection, or dissociated from it.
    fn send_association(&mut self, ctx: &mut NodeCtx<'_>, child: &str, is_added: bool) {
        let id: Box<str> = (ctx.new_id)().into();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.service.as_str()).attr("id", &id);
            self.write_type(w);
            w.start_ns("event", Ns::PubsubEvent).start("collection").attr("node", &self.name);
            w.start(if is_added { "associate" } else { "dissociate" }).attr("node", child).end();
            w.end().end().end();
        });
        let Some(stanza) = stanza else { return };
        let event = ChildEvent {
            to: self.name.clone(),
            from: child.to_owned(),
            stanza,
            id,
            kind: EventKind::Nodes,
            depth: 1,
            budget: MAX_REACHED,
            is_public: self.config.is_listed(),
            except: None,
            presence_based: false,
        };
        self.pass_on(ctx, event, false);
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
        self.pass_on(ctx, event, true);
    }

    /// Sends a notification to the subscribers, and to the collections of this one.
    fn pass_on(&mut self, ctx: &mut NodeCtx<'_>, event: ChildEvent, has_header: bool) {
        let Ok(seen) = self.recent.add(&event.id, event.depth) else { return };
        let shown = match has_header {
            true => with_collection(&event.stanza, self.shown_name().unwrap_or_default()),
            false => Some(event.stanza.clone()),
        };
        if let Some(shown) = shown {
            let origin = EventOrigin::Child { kind: event.kind, depth: event.depth, seen };
            self.push_event(ctx, shown, origin, (event.except.clone(), event.presence_based));
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
    pub(super) fn rise(
        &self,
        ctx: &mut NodeCtx<'_>,
        kind: EventKind,
        (stanza, id): (SharedStanza, &str),
        (except, presence_based): (Option<Jid>, bool),
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
            except,
            presence_based,
        };
        self.notify_parents(ctx, event);
    }

    /// Tells the collections that the node was created (section 5.2.1.2).
    pub(super) fn announce_creation(&self, ctx: &mut NodeCtx<'_>) {
        if !self.config.supports_collections || self.config.graph.parents.is_empty() && !ctx.has_root {
            return;
        }
        let id = (ctx.new_id)();
        let stanza = SharedStanza::build(|w| {
            w.start("message").attr("from", self.service.as_str()).attr("id", &id);
            self.write_type(w);
            w.start_ns("event", Ns::PubsubEvent).start("create").attr("node", &self.name).end().end().end();
        });
        if let Some(stanza) = stanza {
            self.rise(ctx, EventKind::Nodes, (stanza, &id), (None, false));
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

    /// Section 6.2: the items of leaves in the collection, if there are few.
    pub(super) fn retrieve_of_children(&self) -> Result<PubSubAnswer, StanzaError> {
        let children = &self.config.graph.children;
        if self.is_root() || children.len() > MAX_RETRIEVED_CHILDREN {
            return Err(StanzaCondition::FeatureNotImplemented.into());
        }
        Ok(PubSubAnswer::ItemsOfChildren(children.iter().cloned().collect()))
    }
}

/// What is known about the nodes that a request associates.
fn graph_facts(ctx: &NodeCtx<'_>) -> Result<GraphFacts, StanzaError> {
    let facts = ctx.graph.clone().unwrap_or_default();
    if facts.is_refused {
        let error = StanzaError::new(StanzaCondition::ResourceConstraint);
        return Err(error.text("too many changes for others; try again later"));
    }
    Ok(facts)
}

/// Whether a collection may be the parent.
fn check_parent(parent: Option<&Relative>) -> Result<(), StanzaError> {
    let parent = parent.ok_or_else(not_found)?;
    if !parent.is_collection || parent.makes_circle {
        return Err(graph_error("invalid-options"));
    }
    if !parent.admits {
        return Err(forbidden_in_graph());
    }
    if parent.has_room { Ok(()) } else { Err(graph_error("max-nodes-exceeded")) }
}

/// Whether a node may be the child. Its owner must agree: the subscribers of the collection receive what it publishes.
fn check_child(child: Option<&Relative>) -> Result<(), StanzaError> {
    let child = child.ok_or_else(not_found)?;
    if !child.is_owned {
        return Err(forbidden_in_graph());
    }
    if child.makes_circle {
        return Err(graph_error("invalid-options"));
    }
    if child.has_room { Ok(()) } else { Err(graph_error("max-nodes-exceeded")) }
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
