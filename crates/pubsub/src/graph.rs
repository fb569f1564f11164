//! The graph of collections between nodes (XEP-0248 0.5.0): what a change of one node must know about others, read from the
//! store, and what nodes send each other.
//!
//! Both ends of an edge have it in their records: a child names its collections, and a collection its children. Notifications
//! go from a child to its collections, each of which sends them to its subscribers, and only accepts them from its children:
//! half an edge, which a crash can leave, has no effect.
//!
//! # Pitfalls
//!
//! Changes of the graph are made one after another on each node of a cluster, so that no circle is made. Two nodes of a cluster
//! could make one at the same moment: notifications rise [`MAX_LEVELS`] levels at most.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::lock::LeafMutex;
use jid::{Jid, JidRef};
use queues::answer_channel::{AnswerSender, answer_channel};
use store::{StoreError, StoredPubSubNode};
use throng_core::{Node, SharedStanza};

use crate::affiliation::NodeAffiliation;
use crate::collection_config::{AssociationPolicy, CHILDREN, MAX_CHILDREN, MAX_PARENTS, PARENTS, names_of};
use crate::node::{PubSubNode, ROOT_NODE};
use crate::node_config::PubSubNodeConfig;
use crate::options::PubSubLimits;
use crate::request::NodeRequest;
use crate::service::node_address;
use crate::subscription::EventKind;

/// Levels that notifications rise.
pub(crate) const MAX_LEVELS: u32 = 16;
/// Collections that one notification reaches.
pub(crate) const MAX_REACHED: u32 = 256;
/// Collections above a node.
const MAX_ANCESTORS: usize = 256;
/// Seconds after which it is asked again whether a root node exists, which another node of the cluster may have created.
const ROOT_SECONDS: u32 = 60;

/// What another node must be for a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Relative {
    pub(crate) is_collection: bool,
    /// The requester owns it.
    pub(crate) is_owned: bool,
    /// Its policy permits the requester to associate children with it.
    pub(crate) admits: bool,
    /// It may have one more child, or one more collection.
    pub(crate) has_room: bool,
    /// The edge would close a circle, or there are too many collections above it.
    pub(crate) makes_circle: bool,
}

/// The nodes that a change names; one that is missing does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GraphFacts {
    pub(crate) parents: BTreeMap<String, Relative>,
    pub(crate) children: BTreeMap<String, Relative>,
    /// The requester has changed too many nodes lately.
    pub(crate) is_refused: bool,
}

/// The nodes that a request associates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedRelatives {
    pub(crate) parents: BTreeSet<String>,
    pub(crate) children: BTreeSet<String>,
}

impl WantedRelatives {
    /// Those of a request to a node with this configuration, if there are any.
    pub(crate) fn of(request: &NodeRequest, config: Option<&PubSubNodeConfig>) -> Option<WantedRelatives> {
        let form = match request {
            NodeRequest::Create { config: Some(form) } | NodeRequest::SetConfig(form) => form,
            NodeRequest::Associate(child) | NodeRequest::Dissociate(child) => {
                let children = BTreeSet::from([child.clone()]);
                return Some(WantedRelatives { children, ..WantedRelatives::default() });
            }
            _ => return None,
        };
        let of = |var, before: Option<&BTreeSet<String>>| {
            let mut names = names_of(form, var).unwrap_or_default();
            names.retain(|name| before.is_none_or(|before| !before.contains(name)));
            names
        };
        let graph = config.map(|config| &config.graph);
        let wanted = WantedRelatives {
            parents: of(PARENTS, graph.map(|graph| &graph.parents)),
            children: of(CHILDREN, graph.map(|graph| &graph.children)),
        };
        // Lists that are too long are refused without the store.
        let is_possible =
            wanted.parents.len() <= MAX_PARENTS && wanted.children.len() <= MAX_CHILDREN as usize;
        Some(wanted).filter(|wanted| is_possible && wanted.count() > 0)
    }

    /// Number of nodes.
    pub(crate) fn count(&self) -> usize {
        self.parents.len() + self.children.len()
    }
}

/// Reads what a change must know.
pub(crate) async fn read_graph(
    node: &Arc<Node>,
    key: &Jid,
    own_parents: BTreeSet<String>,
    (user, is_admin): (&Jid, bool),
    wanted: WantedRelatives,
    limits: &PubSubLimits,
) -> Result<GraphFacts, StoreError> {
    let reader = GraphReader { node, service: key.bare(), user, is_admin, limits };
    let own = key.resource().unwrap_or_default().to_owned();
    let mut facts = GraphFacts::default();
    for name in wanted.parents {
        let Some((stored, config)) = reader.load(&name).await? else { continue };
        let above = reader.ancestors(BTreeSet::from([name.clone()])).await?;
        let makes_circle = above.is_none_or(|above| above.contains(&own));
        let mut children = config.graph.children.clone();
        children.insert(own.clone());
        let has_room = config.graph.permits(&children);
        let relative = Relative { has_room, makes_circle, ..reader.relative(&stored, &config) };
        facts.parents.insert(name, relative);
    }
    if wanted.children.is_empty() {
        return Ok(facts);
    }
    let mut from_here = own_parents;
    from_here.insert(own);
    let above = reader.ancestors(from_here).await?;
    for name in wanted.children {
        let Some((stored, config)) = reader.load(&name).await? else { continue };
        let makes_circle = above.as_ref().is_none_or(|above| above.contains(&name));
        let has_room = config.graph.parents.len() < MAX_PARENTS;
        let relative = Relative { has_room, makes_circle, ..reader.relative(&stored, &config) };
        facts.children.insert(name, relative);
    }
    Ok(facts)
}

struct GraphReader<'a> {
    node: &'a Arc<Node>,
    service: JidRef<'a>,
    user: &'a Jid,
    is_admin: bool,
    limits: &'a PubSubLimits,
}

impl GraphReader<'_> {
    /// A node that exists and has not moved.
    async fn load(&self, name: &str) -> Result<Option<(StoredPubSubNode, PubSubNodeConfig)>, StoreError> {
        let Ok(key) = node_address(self.service, name) else { return Ok(None) };
        if name == ROOT_NODE {
            return Ok(None);
        }
        let Some(stored) = self.node.stores.pubsub.load(key.as_ref()).await? else { return Ok(None) };
        let config = PubSubNode::restored_config(&stored.record.config, self.limits);
        Ok(config.map(|config| (stored, config)))
    }

    fn relative(&self, stored: &StoredPubSubNode, config: &PubSubNodeConfig) -> Relative {
        let user = self.user.bare();
        let mut affiliations = stored.affiliations.iter().filter(|(jid, _)| jid.as_ref() == user);
        let is_owner =
            |(_, number): &(Jid, u8)| NodeAffiliation::from_number(*number) == Some(NodeAffiliation::Owner);
        let is_owned = self.is_admin || affiliations.any(is_owner);
        let is_listed = || config.graph.whitelist.iter().any(|one| one == user.as_str());
        let admits = is_owned
            || match config.graph.policy {
                AssociationPolicy::All => true,
                AssociationPolicy::Owners => false,
                AssociationPolicy::Whitelist => is_listed(),
            };
        let is_collection = config.graph.is_collection();
        Relative { is_collection, is_owned, admits, ..Relative::default() }
    }

    /// These nodes and all above them; `None`: too many, or too many levels.
    async fn ancestors(&self, from: BTreeSet<String>) -> Result<Option<BTreeSet<String>>, StoreError> {
        let (mut known, mut level) = (from.clone(), from);
        for _ in 0..MAX_LEVELS {
            let mut next = BTreeSet::new();
            for name in level {
                let Some((_, config)) = self.load(&name).await? else { continue };
                next.extend(config.graph.parents.into_iter().filter(|parent| known.insert(parent.clone())));
                if known.len() > MAX_ANCESTORS {
                    return Ok(None);
                }
            }
            if next.is_empty() {
                return Ok(Some(known));
            }
            level = next;
        }
        Ok(None)
    }
}

/// One end of a change, for the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkChange {
    AddChild {
        /// Its creation is announced by itself.
        is_new: bool,
    },
    RemoveChild {
        /// Its deletion is announced by itself.
        is_deleted: bool,
    },
    AddParent,
    RemoveParent,
}

impl LinkChange {
    const ALL: [(LinkChange, &'static str); 6] = [
        (LinkChange::AddChild { is_new: true }, "new-child"),
        (LinkChange::AddChild { is_new: false }, "add-child"),
        (LinkChange::RemoveChild { is_deleted: true }, "deleted-child"),
        (LinkChange::RemoveChild { is_deleted: false }, "remove-child"),
        (LinkChange::AddParent, "add-parent"),
        (LinkChange::RemoveParent, "remove-parent"),
    ];
}

/// A change of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeLink {
    /// The node that receives it.
    pub(crate) to: String,
    /// The other end.
    pub(crate) from: String,
    pub(crate) change: LinkChange,
}

/// A notification of a child on its way to a collection.
#[derive(Clone, Debug)]
pub(crate) struct ChildEvent {
    /// The collection that receives it.
    pub(crate) to: String,
    /// Its child.
    pub(crate) from: String,
    pub(crate) stanza: SharedStanza,
    /// The same for all copies of a notification.
    pub(crate) id: Box<str>,
    pub(crate) kind: EventKind,
    /// Edges from the node that it is about.
    pub(crate) depth: u32,
    /// Collections that it may still reach.
    pub(crate) budget: u32,
    /// Everybody may know it.
    pub(crate) is_public: bool,
    /// A user who does not receive it.
    pub(crate) except: Option<Jid>,
    pub(crate) presence_based: bool,
}

/// What one node sends another one.
#[derive(Clone, Debug)]
pub(crate) enum GraphInput {
    Link(NodeLink),
    Event(Box<ChildEvent>),
}

impl GraphInput {
    /// Bytes that it counts in a mailbox.
    pub(crate) fn size(&self) -> usize {
        match self {
            GraphInput::Link(_) => 256,
            GraphInput::Event(event) => 256 + event.stanza.bytes().len(),
        }
    }

    /// The name of the node that receives it.
    pub(crate) fn to(&self) -> &str {
        match self {
            GraphInput::Link(link) => &link.to,
            GraphInput::Event(event) => &event.to,
        }
    }

    /// As it is sent to another node of the cluster: lines, and the stanza after an empty one. Names have no control characters.
    pub(crate) fn encode(&self, service: &str) -> Vec<u8> {
        match self {
            GraphInput::Link(link) => {
                let change = LinkChange::ALL.iter().find(|(change, _)| *change == link.change);
                let change = change.map_or("", |(_, name)| name);
                format!("link\n{service}\n{}\n{}\n{change}\n\n", link.to, link.from).into_bytes()
            }
            GraphInput::Event(event) => {
                let kind = if event.kind == EventKind::Items { "items" } else { "nodes" };
                let except = event.except.as_ref().map(Jid::as_str).unwrap_or_default();
                let (is_public, is_based) = (u8::from(event.is_public), u8::from(event.presence_based));
                let mut out = format!(
                    "event\n{service}\n{}\n{}\n{}\n{kind}\n{}\n{}\n{is_public}\n{is_based}\n{except}\n\n",
                    event.to, event.from, event.id, event.depth, event.budget
                )
                .into_bytes();
                out.extend_from_slice(event.stanza.bytes());
                out
            }
        }
    }

    /// Reads what another node of the cluster has sent: the service, and the input; `None` if it is damaged.
    pub(crate) fn decode(content: &[u8]) -> Option<(Jid, GraphInput)> {
        // The last line of an event can be empty.
        let count = if content.starts_with(b"link\n") { 5 } else { 11 };
        let mut end = 0;
        for _ in 0..count {
            end += content.get(end..)?.iter().position(|byte| *byte == b'\n')? + 1;
        }
        let lines: Vec<&str> = std::str::from_utf8(content.get(..end)?).ok()?.lines().collect();
        let rest = content.get(end..)?.strip_prefix(b"\n")?;
        match lines.as_slice() {
            ["link", service, to, from, change] => {
                let (change, _) = LinkChange::ALL.iter().find(|(_, name)| name == change)?;
                let link = NodeLink { to: (*to).to_owned(), from: (*from).to_owned(), change: *change };
                Some((Jid::parse(service).ok()?, GraphInput::Link(link)))
            }
            ["event", service, to, from, id, kind, depth, budget, is_public, is_based, except] => {
                let event = ChildEvent {
                    to: (*to).to_owned(),
                    from: (*from).to_owned(),
                    stanza: SharedStanza::parse(rest)?,
                    id: (*id).into(),
                    kind: if *kind == "items" { EventKind::Items } else { EventKind::Nodes },
                    depth: depth.parse().ok()?,
                    budget: budget.parse::<u32>().ok()?.min(MAX_REACHED),
                    is_public: *is_public == "1",
                    except: Some(*except).filter(|text| !text.is_empty()).map(Jid::parse).transpose().ok()?,
                    presence_based: *is_based == "1",
                };
                Some((Jid::parse(service).ok()?, GraphInput::Event(Box::new(event))))
            }
            _ => None,
        }
    }
}

#[derive(Default)]
struct GraphLockState {
    is_held: bool,
    waiting: VecDeque<AnswerSender<GraphGuard>>,
}

/// Lets one change of a service's graph be made at a time.
#[derive(Clone, Default)]
pub(crate) struct GraphLock(Arc<LeafMutex<GraphLockState>>);

/// The change that is being made; the next one begins when it is dropped.
pub(crate) struct GraphGuard(GraphLock);

impl std::fmt::Debug for GraphGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GraphGuard")
    }
}

impl GraphLock {
    /// Waits until no other change is being made. `None`: the lock is gone.
    pub(crate) async fn acquire(&self) -> Option<GraphGuard> {
        let receiver = {
            let mut state = self.0.lock();
            if !state.is_held {
                state.is_held = true;
                return Some(GraphGuard(self.clone()));
            }
            let (sender, receiver) = answer_channel();
            state.waiting.push_back(sender);
            receiver
        };
        receiver.receive().await
    }
}

impl Drop for GraphGuard {
    fn drop(&mut self) {
        let next = {
            let mut state = self.0.0.lock();
            let next = state.waiting.pop_front();
            state.is_held = next.is_some();
            next
        };
        // A receiver that is gone drops the guard, which wakes the next one.
        if let Some(next) = next {
            next.send(GraphGuard(self.0.clone()));
        }
    }
}

/// Whether a service has a root node, which exists when somebody has subscribed to it.
#[derive(Debug, Default)]
pub(crate) struct RootUse(LeafMutex<Option<(u32, bool)>>);

impl RootUse {
    /// Whether it exists, if that was read lately.
    pub(crate) fn known(&self, now: u32) -> Option<bool> {
        let known = *self.0.lock();
        known
            .filter(|(at, exists)| *exists || now.saturating_sub(*at) < ROOT_SECONDS)
            .map(|(_, exists)| exists)
    }

    pub(crate) fn set(&self, now: u32, exists: bool) {
        *self.0.lock() = Some((now, exists));
    }

    /// Whether it exists.
    pub(crate) async fn exists(&self, node: &Arc<Node>, service: JidRef<'_>) -> bool {
        let now = node.seconds();
        if let Some(known) = self.known(now) {
            return known;
        }
        let Ok(key) = node_address(service, ROOT_NODE) else { return false };
        match node.stores.pubsub.number(key.as_ref()).await {
            Ok(number) => {
                self.set(now, number.is_some());
                number.is_some()
            }
            Err(error) => {
                tracing::warn!(%service, %error, "the root node could not be read");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_between_nodes_of_a_cluster_is_read_again() {
        for (change, _) in LinkChange::ALL {
            let link = NodeLink { to: "blogs".into(), from: "princely musings".into(), change };
            let (service, read) =
                GraphInput::decode(&GraphInput::Link(link.clone()).encode("pubsub.a.org")).unwrap();
            assert!(
                service.as_str() == "pubsub.a.org" && matches!(read, GraphInput::Link(read) if read == link)
            );
        }
        for except in [None, Some(Jid::parse("hamlet@denmark.lit").unwrap())] {
            let event = ChildEvent {
                to: "blogs".into(),
                from: "musings".into(),
                stanza: SharedStanza::parse(b"<message><event>\n\n</event></message>").unwrap(),
                id: "1".into(),
                kind: EventKind::Items,
                depth: 2,
                budget: 9,
                is_public: true,
                except: except.clone(),
                presence_based: false,
            };
            let bytes = GraphInput::Event(Box::new(event)).encode("pubsub.a.org");
            let Some((_, GraphInput::Event(read))) = GraphInput::decode(&bytes) else { panic!("{bytes:?}") };
            assert_eq!((&*read.from, read.depth, read.budget, read.except), ("musings", 2, 9, except));
            assert!(
                read.stanza.bytes().ends_with(b"\n\n</event></message>") && read.kind == EventKind::Items
            );
            for cut in 0..bytes.len() {
                drop(GraphInput::decode(&bytes[..cut]));
            }
        }
        assert!(GraphInput::decode(b"").is_none() && GraphInput::decode(b"link\n\n\n\n\n\n").is_none());
    }
}
