//! What a change of edges must know about the nodes that it associates, read from the store (XEP-0248 0.5.0, section 7.2.3).
//!
//! # Pitfalls
//!
//! What a change removes is not in the store yet: cycles are searched in the graph that the change makes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jid::{Jid, JidRef};
use stanza::payload::data_form::{DataForm, FormKind};
use store::StoreError;
use throng_core::Node;

use crate::affiliation::NodeAffiliation;
use crate::collection_config::{CHILDREN, MAX_CHILDREN, MAX_PARENTS, PARENTS, names_of};
use crate::graph::{EdgeRequester, MAX_LEVELS};
use crate::node::{PubSubNode, ROOT_NODE};
use crate::node_config::PubSubNodeConfig;
use crate::pubsub_shared::PubSubShared;
use crate::request::NodeRequest;
use crate::service::node_address;

/// Collections above a node.
const MAX_ANCESTORS: usize = 256;

/// What is known of a node that a change makes a parent or a child.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AssociatedNode {
    pub(crate) is_collection: bool,
    /// The requester owns it.
    pub(crate) is_owned: bool,
    /// Its policy permits the requester to associate children with it.
    pub(crate) admits: bool,
    /// It may have one more child, or one more collection.
    pub(crate) has_capacity: bool,
    /// The edge would close a cycle, or there are too many collections above it.
    pub(crate) creates_cycle_or_is_too_deep: bool,
}

/// The nodes that a change associates; one that is missing does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AssociatedNodes {
    pub(crate) parents: BTreeMap<String, AssociatedNode>,
    pub(crate) children: BTreeMap<String, AssociatedNode>,
    /// The requester has caused too many changes lately.
    pub(crate) is_rate_limited: bool,
    pub(crate) requester: Option<EdgeRequester>,
}

/// The edges that a request adds and removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestedAssociations {
    /// Those that are added.
    parents: BTreeSet<String>,
    children: BTreeSet<String>,
    removed_children: BTreeSet<String>,
    removed_parents: usize,
    /// All collections of the node after the change.
    all_parents: BTreeSet<String>,
}

impl RequestedAssociations {
    /// Those of a request to a node with this configuration, if there are any.
    pub(crate) fn of(
        request: &NodeRequest,
        config: Option<&PubSubNodeConfig>,
    ) -> Option<RequestedAssociations> {
        let before = config.map(|config| &config.graph);
        let all_parents = before.map(|graph| graph.parents.clone()).unwrap_or_default();
        let requested = match request {
            NodeRequest::Create { config: Some(form) } | NodeRequest::SetConfig(form)
                if form.kind != FormKind::Cancel =>
            {
                let none = BTreeSet::new();
                let parents_before = before.map_or(&none, |graph| &graph.parents);
                let children_before = before.map_or(&none, |graph| &graph.children);
                let after = |var, before| after_submission(form, var, before);
                let (parents, children) = (after(PARENTS, parents_before), after(CHILDREN, children_before));
                RequestedAssociations {
                    removed_children: children_before.difference(&children).cloned().collect(),
                    removed_parents: parents_before.difference(&parents).count(),
                    children: children.difference(children_before).cloned().collect(),
                    all_parents: parents.clone(),
                    parents: parents.difference(parents_before).cloned().collect(),
                }
            }
            NodeRequest::Associate(child) => RequestedAssociations {
                children: BTreeSet::from([child.clone()]),
                all_parents,
                ..RequestedAssociations::default()
            },
            NodeRequest::Dissociate(child) => RequestedAssociations {
                removed_children: BTreeSet::from([child.clone()]),
                all_parents,
                ..RequestedAssociations::default()
            },
            _ => return None,
        };
        // Lists that are too long are refused without the store.
        let is_possible =
            requested.parents.len() <= MAX_PARENTS && requested.children.len() <= MAX_CHILDREN as usize;
        Some(requested).filter(|requested| is_possible && requested.count() > 0)
    }

    /// Number of edges.
    pub(crate) fn count(&self) -> usize {
        self.parents.len() + self.children.len() + self.removed_children.len() + self.removed_parents
    }

    /// Whether edges are added. Without the lock, two changes could close a cycle together.
    pub(crate) fn needs_lock(&self) -> bool {
        !self.parents.is_empty() || !self.children.is_empty()
    }
}

/// The names in a field after a submission, which may omit it.
fn after_submission(form: &DataForm, var: &str, before: &BTreeSet<String>) -> BTreeSet<String> {
    match form.get(var) {
        // What is invalid is refused.
        Some(_) => names_of(form, var).unwrap_or_else(|_| before.clone()),
        None => before.clone(),
    }
}

/// Reads nodes of a service for one change.
pub(crate) struct AssociatedNodeReader<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) shared: &'a PubSubShared,
    /// The node that is changed.
    pub(crate) key: &'a Jid,
    /// The requester.
    pub(crate) user: &'a Jid,
    pub(crate) is_admin: bool,
    loaded: BTreeMap<String, Option<Arc<LoadedNode>>>,
    is_rate_limited: bool,
}

struct LoadedNode {
    config: PubSubNodeConfig,
    is_owned: bool,
}

impl<'a> AssociatedNodeReader<'a> {
    pub(crate) fn new(
        node: &'a Arc<Node>,
        shared: &'a PubSubShared,
        key: &'a Jid,
        (user, is_admin): (&'a Jid, bool),
    ) -> AssociatedNodeReader<'a> {
        let (loaded, is_rate_limited) = (BTreeMap::new(), false);
        AssociatedNodeReader { node, shared, key, user, is_admin, loaded, is_rate_limited }
    }

    fn service(&self) -> JidRef<'a> {
        self.key.bare()
    }

    /// Reads what the change must know. The requester has paid for its nodes ([`RequestedAssociations::count`]), and pays here for
    /// each collection above them.
    pub(crate) async fn read(
        mut self,
        requested: &RequestedAssociations,
    ) -> Result<AssociatedNodes, StoreError> {
        let own = self.key.resource().unwrap_or_default().to_owned();
        let mut nodes = AssociatedNodes::default();
        for name in &requested.removed_children {
            // Its owner may take it away; who else may is known without the store.
            if let NodeOwnership::Of(is_owned) = self.ownership(requested, name).await? {
                let removed = AssociatedNode { is_owned, ..AssociatedNode::default() };
                nodes.children.insert(name.clone(), removed);
            }
        }
        let above = match requested.needs_lock() {
            true => self.above(&own, requested).await?,
            false => None,
        };
        for name in &requested.parents {
            let Some(loaded) = self.load(name, true).await? else { continue };
            let mut children = loaded.config.graph.children.clone();
            children.insert(own.clone());
            let parent = AssociatedNode {
                has_capacity: loaded.config.graph.permits(&children),
                creates_cycle_or_is_too_deep: above.as_ref().is_none_or(|above| above.reaches(name, &own)),
                ..self.associated(&loaded)
            };
            nodes.parents.insert(name.clone(), parent);
        }
        for name in &requested.children {
            let Some(loaded) = self.load(name, true).await? else { continue };
            let is_above = |above: &CollectionsAbove| {
                *name == own || above.parents.contains_key(name) || above.levels >= MAX_LEVELS
            };
            let child = AssociatedNode {
                has_capacity: loaded.config.graph.parents.len() < MAX_PARENTS,
                creates_cycle_or_is_too_deep: above.as_ref().is_none_or(is_above),
                ..self.associated(&loaded)
            };
            nodes.children.insert(name.clone(), child);
        }
        nodes.is_rate_limited = self.is_rate_limited;
        nodes.requester = Some(EdgeRequester { user: self.user.bare().to_jid(), is_admin: self.is_admin });
        Ok(nodes)
    }

    /// Whether the requester owns a child that `<dissociate/>` names.
    async fn ownership(
        &mut self,
        requested: &RequestedAssociations,
        name: &str,
    ) -> Result<NodeOwnership, StoreError> {
        // By a configuration only owners of the collection remove children.
        if requested.count() > 1 {
            return Ok(NodeOwnership::Unknown);
        }
        let loaded = self.load(name, true).await?;
        Ok(loaded.map_or(NodeOwnership::Unknown, |loaded| NodeOwnership::Of(loaded.is_owned)))
    }

    /// A node that exists and has not moved.
    async fn load(&mut self, name: &str, is_paid: bool) -> Result<Option<Arc<LoadedNode>>, StoreError> {
        if let Some(loaded) = self.loaded.get(name) {
            return Ok(loaded.clone());
        }
        let Ok(key) = node_address(self.service(), name) else { return Ok(None) };
        if name == ROOT_NODE || self.is_rate_limited {
            return Ok(None);
        }
        if !is_paid && !self.is_admin {
            self.is_rate_limited = !self.shared.changes_of_others.try_take(self.node, self.user.as_ref(), 1);
            if self.is_rate_limited {
                return Ok(None);
            }
        }
        let found = self.node.stores.pubsub.record(key.as_ref(), self.user.bare()).await?;
        let limits = self.shared.options().limits;
        let loaded = found.and_then(|(record, affiliation)| {
            let config = PubSubNode::restored_config(&record.config, &limits)?;
            let affiliation = affiliation.and_then(NodeAffiliation::from_number);
            let is_owned = self.is_admin || affiliation == Some(NodeAffiliation::Owner);
            Some(Arc::new(LoadedNode { config, is_owned }))
        });
        self.loaded.insert(name.to_owned(), loaded.clone());
        Ok(loaded)
    }

    fn associated(&self, loaded: &LoadedNode) -> AssociatedNode {
        let graph = &loaded.config.graph;
        AssociatedNode {
            is_collection: graph.is_collection(),
            is_owned: loaded.is_owned,
            admits: loaded.is_owned || graph.permits_association_by(self.user.bare()),
            ..AssociatedNode::default()
        }
    }

    /// The collections above the node after the change; `None`: too many, or too many levels.
    async fn above(
        &mut self,
        own: &str,
        requested: &RequestedAssociations,
    ) -> Result<Option<CollectionsAbove>, StoreError> {
        let mut above = CollectionsAbove { parents: BTreeMap::new(), levels: 0 };
        let mut level: BTreeSet<String> = requested.all_parents.clone();
        while !level.is_empty() {
            above.levels += 1;
            if above.levels > MAX_LEVELS || above.parents.len() + level.len() > MAX_ANCESTORS {
                return Ok(None);
            }
            let mut next = BTreeSet::new();
            for name in level {
                let is_paid = requested.parents.contains(&name);
                let loaded = self.load(&name, is_paid).await?;
                let mut parents = loaded.map(|one| one.config.graph.parents.clone()).unwrap_or_default();
                if requested.removed_children.contains(&name) {
                    parents.remove(own);
                }
                next.extend(parents.iter().filter(|parent| *parent != own).cloned());
                above.parents.insert(name, parents);
            }
            next.retain(|name| !above.parents.contains_key(name));
            level = next;
        }
        Ok(Some(above))
    }
}

/// Whether the requester owns a node.
enum NodeOwnership {
    Of(bool),
    Unknown,
}

/// The collections above a node.
struct CollectionsAbove {
    /// The collections of each of them.
    parents: BTreeMap<String, BTreeSet<String>>,
    levels: u32,
}

impl CollectionsAbove {
    /// Whether a node is `own`, or in a collection that is, however many levels below.
    fn reaches(&self, name: &str, own: &str) -> bool {
        let (mut found, mut seen) = (vec![name], BTreeSet::from([name]));
        while let Some(name) = found.pop() {
            if name == own {
                return true;
            }
            let parents = self.parents.get(name).into_iter().flatten();
            found.extend(parents.map(String::as_str).filter(|parent| seen.insert(parent)));
        }
        false
    }
}
