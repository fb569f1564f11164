//! What the configuration of a node says about collections: XEP-0248 0.5.0, sections 7.2 and 12.2.2.
//!
//! A node without collections is a child of the root node, which an empty value means; with collections it is not.

use std::collections::BTreeSet;

use jid::JidRef;
use stanza::payload::data_form::{DataForm, FormError, FormField, FormFieldType};

use crate::node_config::{Bound, choices};

/// Collections of which a node is a child.
pub(crate) const MAX_PARENTS: usize = 16;
/// Children of a collection, and bytes of their names, which are in its record.
pub(crate) const MAX_CHILDREN: u32 = 1_000;
const MAX_CHILDREN_BYTES: usize = 64 << 10;
/// Users in a whitelist, and bytes of their addresses.
const MAX_WHITELIST: usize = 100;
const MAX_WHITELIST_BYTES: usize = 16 << 10;

pub(crate) const NODE_TYPE: &str = "pubsub#node_type";
pub(crate) const PARENTS: &str = "pubsub#collection";
pub(crate) const CHILDREN: &str = "pubsub#children";
const POLICY: &str = "pubsub#children_association_policy";
const WHITELIST: &str = "pubsub#children_association_whitelist";
const CHILDREN_MAX: &str = "pubsub#children_max";

/// Fields that a collection does not have: it has no items.
pub(crate) const FIELDS_OF_LEAVES: &[&str] = &[
    "pubsub#publish_model",
    "pubsub#persist_items",
    "pubsub#max_items",
    "pubsub#item_expire",
    "pubsub#publish_node_full",
    "pubsub#purge_offline",
    "pubsub#max_payload_size",
    "pubsub#send_last_published_item",
    "pubsub#notify_retract",
    "pubsub#itemreply",
    "pubsub#body_xslt",
    "pubsub#dataform_xslt",
    "throng#publishers_hear_nothing",
];

choices! {
    /// What a node contains.
    NodeType {
        Leaf = "leaf", "The node is a leaf node (default)";
        Collection = "collection", "The node is a collection node";
    }
}

choices! {
    /// Who may associate children with a collection.
    AssociationPolicy {
        Owners = "owners", "Only the owners of this node may associate other nodes to this collection";
        Whitelist = "whitelist", "Only those on the children association whitelist may associate other nodes to this collection";
        All = "all", "Anyone may associate nodes with this collection";
    }
}

/// The place of a node in the graph of collections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CollectionConfig {
    pub(crate) node_type: NodeType,
    /// Names of the collections of which it is a child; without one it is a child of the root.
    pub(crate) parents: BTreeSet<String>,
    /// Names of its children.
    pub(crate) children: BTreeSet<String>,
    pub(crate) policy: AssociationPolicy,
    /// Bare addresses.
    pub(crate) whitelist: Vec<String>,
    pub(crate) children_max: Bound,
}

impl Default for CollectionConfig {
    fn default() -> CollectionConfig {
        CollectionConfig {
            node_type: NodeType::Leaf,
            parents: BTreeSet::new(),
            children: BTreeSet::new(),
            policy: AssociationPolicy::Owners,
            whitelist: Vec::new(),
            children_max: Bound::Max,
        }
    }
}

/// The names in a field of a form, as they are in addresses.
pub(crate) fn names_of(form: &DataForm, var: &str) -> Result<BTreeSet<String>, FormError> {
    let invalid = || FormError::of(var, "has a value that is not the name of a node");
    let given = form.values(var).iter().filter(|name| !name.is_empty());
    let base = jid::Jid::parse("node").map_err(|_| invalid())?;
    given
        .map(|name| {
            let address = base.with_resource(name).map_err(|_| invalid())?;
            address.resource().map(str::to_owned).ok_or_else(invalid)
        })
        .collect()
}

impl CollectionConfig {
    pub(crate) fn is_collection(&self) -> bool {
        self.node_type == NodeType::Collection
    }

    /// Whether a collection may have these children.
    pub(crate) fn permits(&self, children: &BTreeSet<String>) -> bool {
        let most = match self.children_max {
            Bound::Number(most) => most.min(MAX_CHILDREN),
            Bound::Max => MAX_CHILDREN,
        };
        let bytes: usize = children.iter().map(String::len).sum();
        children.len() <= usize::try_from(most).unwrap_or(usize::MAX) && bytes <= MAX_CHILDREN_BYTES
    }

    /// Whether its policy permits a user who does not own the collection to associate children with it.
    pub(crate) fn permits_association_by(&self, user: JidRef<'_>) -> bool {
        match self.policy {
            AssociationPolicy::All => true,
            AssociationPolicy::Owners => false,
            AssociationPolicy::Whitelist => self.whitelist.iter().any(|one| one == user.bare().as_str()),
        }
    }

    /// Bytes of its lists.
    pub(crate) fn list_bytes(&self) -> usize {
        let names = self.parents.iter().chain(&self.children).chain(&self.whitelist);
        names.map(String::len).sum()
    }

    /// Adds the fields of the form.
    pub(crate) fn add_fields(&self, form: DataForm) -> DataForm {
        let node_type = FormField::new(FormFieldType::ListSingle, NODE_TYPE)
            .label("Whether the node is a leaf (default) or a collection")
            .value(self.node_type.as_str());
        let node_type =
            NodeType::ALL.iter().fold(node_type, |field, (_, name, label)| field.option(*label, *name));
        let parents = FormField::new(FormFieldType::TextMulti, PARENTS)
            .label("The collections of which this node is a child");
        // The root node has no name.
        let parents = match self.parents.is_empty() {
            true => parents.value(""),
            false => parents.values(self.parents.iter().cloned()),
        };
        let form = form.field(node_type).field(parents);
        if !self.is_collection() {
            return form;
        }
        let policy = FormField::new(FormFieldType::ListSingle, POLICY)
            .label("Who may associate other nodes to this collection")
            .value(self.policy.as_str());
        let policy =
            AssociationPolicy::ALL.iter().fold(policy, |field, (_, name, label)| field.option(*label, *name));
        form.field(
            FormField::new(FormFieldType::TextMulti, CHILDREN)
                .label("The nodes of which this node is a parent")
                .values(self.children.iter().cloned()),
        )
        .field(policy)
        .field(
            FormField::new(FormFieldType::JidMulti, WHITELIST)
                .label("JIDs who can associate nodes to this collection")
                .values(self.whitelist.iter().cloned()),
        )
        .field(
            FormField::new(FormFieldType::TextSingle, CHILDREN_MAX)
                .label("The maximum number of children for this collection")
                .value(self.children_max.text()),
        )
    }

    /// Applies valid fields.
    pub(crate) fn apply(&mut self, form: &DataForm) -> Result<(), FormError> {
        if let Some(name) = form.value(NODE_TYPE) {
            self.node_type =
                NodeType::from_name(name).ok_or_else(|| FormError::of(NODE_TYPE, "is unknown"))?;
        }
        if form.get(PARENTS).is_some() {
            self.parents = names_of(form, PARENTS)?;
        }
        if !self.is_collection() {
            return Ok(());
        }
        if form.get(CHILDREN).is_some() {
            self.children = names_of(form, CHILDREN)?;
        }
        if let Some(name) = form.value(POLICY) {
            // The text of the specification has this name, and its form the other one.
            let name = if name == "owner" { AssociationPolicy::Owners.as_str() } else { name };
            self.policy =
                AssociationPolicy::from_name(name).ok_or_else(|| FormError::of(POLICY, "is unknown"))?;
        }
        if form.get(WHITELIST).is_some() {
            let given = form.values(WHITELIST);
            let bytes: usize = given.iter().map(String::len).sum();
            if given.len() > MAX_WHITELIST || bytes > MAX_WHITELIST_BYTES {
                return Err(FormError::of(WHITELIST, "has too many values, or too long ones"));
            }
            let bare = |text: &String| jid::Jid::parse(text).map(|jid| jid.bare().as_str().to_owned());
            let all: Result<Vec<String>, _> = given.iter().map(bare).collect();
            self.whitelist = all.map_err(|_| FormError::of(WHITELIST, "must have addresses"))?;
        }
        if let Some(text) = form.value(CHILDREN_MAX) {
            let most = Bound::read(text)
                .filter(|most| matches!(most, Bound::Max | Bound::Number(..=MAX_CHILDREN)))
                .ok_or_else(|| {
                    FormError::of(CHILDREN_MAX, &format!("must be max or at most {MAX_CHILDREN}"))
                })?;
            self.children_max = most;
        }
        Ok(())
    }

    /// The form that validates a submission must have a value that only the text of the specification has.
    pub(crate) fn accept_other_names(shown: &mut DataForm) {
        if let Some(policy) = shown.fields.iter_mut().find(|field| field.var == POLICY) {
            policy.options.push(stanza::payload::data_form::FormOption::new("", "owner"));
        }
    }
}
