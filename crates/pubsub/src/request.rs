//! Requests to nodes and to the service, read from their stanzas: XEP-0060 1.30.0, sections 5 to 8.
//!
//! # Pitfalls
//!
//! What is in a request is its sender's claim: the `publisher` of an item is never read from it (section 7.1.2.3).

use jid::Jid;
use stanza::payload::data_form::{DataForm, FormKind};
use stanza::payload::rsm::RsmRequest;
use stanza::{StanzaCondition, StanzaError};
use throng_core::limits::STANZA_LIMITS;
use xml::{Ns, TreeNode};

use crate::affiliation::NodeAffiliation;
use crate::node::ROOT_NODE;
use crate::pubsub_error::{bad_request, pubsub_error};

/// Longest name of a node, and id of an item, in bytes.
const MAX_NAME_BYTES: usize = 1023;
/// Longest URI of a redirection, in bytes.
const MAX_URI_BYTES: usize = 2048;
/// Longest id of a subscription, in bytes.
const MAX_SUBID_BYTES: usize = 64;
/// Namespace of XEP-0413.
const ORDER_BY: &str = "urn:xmpp:order-by:1";
/// Elements of one request that change affiliations or subscriptions.
const MAX_CHANGES: usize = 1000;

/// An item that is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GivenItem {
    pub(crate) id: Option<String>,
    /// The payload elements: of a valid item at most one.
    pub(crate) payload: Vec<u8>,
    pub(crate) payload_ns: String,
    pub(crate) payload_count: usize,
}

/// The address and the id that name a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionKey {
    pub(crate) jid: Option<Jid>,
    pub(crate) subid: Option<String>,
}

/// Which items are retrieved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ItemsQuery {
    pub(crate) subid: Option<String>,
    pub(crate) max_items: Option<u32>,
    pub(crate) ids: Vec<String>,
    pub(crate) rsm: Option<RsmRequest>,
    /// XEP-0413 0.2.1.
    pub(crate) order: Option<ItemOrder>,
}

/// The order of items that a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ItemOrder {
    pub(crate) field: OrderField,
    pub(crate) direction: OrderDirection,
}

/// What items are ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderField {
    /// The first publication of an item with the id.
    Creation,
    /// The last one.
    Modification,
}

/// The direction of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderDirection {
    Ascending,
    Descending,
}

/// A change of a subscription by an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionChange {
    pub(crate) jid: Jid,
    pub(crate) subid: Option<String>,
    /// `None`: unchanged.
    pub(crate) subscription: Option<String>,
    /// What the task of the node knows about the bare address, which is in no request.
    pub(crate) subscriber: ChangedSubscriber,
}

/// What is known about whom an owner subscribes or unsubscribes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangedSubscriber {
    pub(crate) has_plain_subscription: bool,
    /// Others may subscribe it: it has not too many subscriptions.
    pub(crate) is_admitted: bool,
    /// It is not an account of this server that does not exist.
    pub(crate) exists: bool,
}

/// A request to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NodeRequest {
    Create {
        config: Option<DataForm>,
    },
    Subscribe {
        jid: Jid,
        options: Option<DataForm>,
    },
    Unsubscribe(SubscriptionKey),
    GetOptions(SubscriptionKey),
    SetOptions(SubscriptionKey, DataForm),
    DefaultOptions,
    Items(ItemsQuery),
    Publish {
        items: Vec<GivenItem>,
        options: Option<DataForm>,
    },
    Retract {
        ids: Vec<String>,
        notify: Option<bool>,
    },
    OwnSubscriptions,
    OwnAffiliation,
    GetConfig,
    SetConfig(DataForm),
    Delete {
        redirect: Option<String>,
    },
    Purge,
    ListSubscriptions(Option<RsmRequest>),
    ModifySubscriptions(Vec<SubscriptionChange>),
    ListAffiliations(Option<RsmRequest>),
    ModifyAffiliations(Vec<(Jid, Option<NodeAffiliation>)>),
    Info,
    DiscoItems(Option<RsmRequest>),
    /// XEP-0248: a node becomes a child of this collection, and is one no more.
    Associate(String),
    Dissociate(String),
}

/// A request to the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceRequest {
    /// The service chooses the name.
    CreateInstant {
        config: Option<DataForm>,
    },
    DefaultConfig {
        node_type: Option<String>,
    },
    DefaultOptions,
    Subscriptions(Option<RsmRequest>),
    Affiliations(Option<RsmRequest>),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PubSubRequest {
    OfNode(String, NodeRequest),
    OfService(ServiceRequest),
}

/// The name of a node in an element, checked for its length only.
pub(crate) fn node_name(element: TreeNode<'_>) -> Result<Option<String>, StanzaError> {
    let name = element.attr("node").filter(|name| !name.is_empty());
    match name {
        Some(name) if name.len() > MAX_NAME_BYTES => {
            Err(StanzaError::new(StanzaCondition::NotAcceptable).text("the name of the node is too long"))
        }
        Some(name) if name == ROOT_NODE => {
            Err(StanzaError::new(StanzaCondition::NotAcceptable).text("the name of the node is reserved"))
        }
        name => Ok(name.map(std::borrow::Cow::into_owned)),
    }
}

fn required_node(element: TreeNode<'_>) -> Result<String, StanzaError> {
    node_name(element)?.ok_or_else(|| pubsub_error("nodeid-required"))
}

/// The name of a node, or the root node (XEP-0248, section 8.1).
fn node_or_root(element: TreeNode<'_>) -> Result<String, StanzaError> {
    Ok(node_name(element)?.unwrap_or_else(|| ROOT_NODE.to_owned()))
}

/// Requests that are about the root node if they name none.
const OF_ROOT: [&str; 4] = ["subscribe", "unsubscribe", "options", "delete"];

/// The name of the node that a request of `<pubsub/>` is about.
pub(crate) fn requested_node(action: TreeNode<'_>) -> Option<String> {
    match node_name(action).ok()? {
        None if OF_ROOT.contains(&action.name()) => Some(ROOT_NODE.to_owned()),
        name => name,
    }
}

fn form(parent: TreeNode<'_>) -> Result<Option<DataForm>, StanzaError> {
    let x = parent.child("x", Ns::DataForms);
    x.map(|x| DataForm::read(x).map_err(StanzaError::from)).transpose()
}

fn jid(element: TreeNode<'_>) -> Result<Option<Jid>, StanzaError> {
    let text = element.attr("jid").filter(|text| !text.is_empty());
    text.map(|text| Jid::parse(&text)).transpose().map_err(|_| pubsub_error("invalid-jid"))
}

fn subscription_key(element: TreeNode<'_>) -> Result<SubscriptionKey, StanzaError> {
    Ok(SubscriptionKey { jid: jid(element)?, subid: subid(element) })
}

/// An id that is too long is kept as one that does not exist.
fn subid(element: TreeNode<'_>) -> Option<String> {
    let subid = element.attr("subid").filter(|subid| !subid.is_empty())?;
    Some(if subid.len() > MAX_SUBID_BYTES { String::new() } else { subid.into_owned() })
}

fn item_id(item: TreeNode<'_>) -> Result<Option<String>, StanzaError> {
    match item.attr("id").filter(|id| !id.is_empty()) {
        Some(id) if id.len() > MAX_NAME_BYTES => {
            Err(StanzaError::new(StanzaCondition::NotAcceptable).text("the id of an item is too long"))
        }
        id => Ok(id.map(std::borrow::Cow::into_owned)),
    }
}

fn items(parent: TreeNode<'_>, ns: Ns) -> impl Iterator<Item = TreeNode<'_>> {
    parent.child_elements().filter(move |child| child.is("item", ns))
}

/// The order of XEP-0413: of several, the first one, since no two items are equal in it.
fn item_order(pubsub: TreeNode<'_>) -> Result<Option<ItemOrder>, StanzaError> {
    let is_order = |child: &TreeNode<'_>| child.name() == "order" && child.ns_text() == ORDER_BY;
    let Some(order) = pubsub.child_elements().find(is_order) else { return Ok(None) };
    let field = match order.attr("by").as_deref() {
        Some("creation") => OrderField::Creation,
        Some("modification") => OrderField::Modification,
        Some(_) => return Err(StanzaCondition::FeatureNotImplemented.into()),
        None => return Err(bad_request("the order has no field")),
    };
    let direction = match order.attr("desc").as_deref() {
        None | Some("false" | "0") => OrderDirection::Ascending,
        Some("true" | "1") => OrderDirection::Descending,
        Some(_) => return Err(bad_request("desc must be true or false")),
    };
    Ok(Some(ItemOrder { field, direction }))
}

fn given_item(item: TreeNode<'_>) -> Result<GivenItem, StanzaError> {
    let mut given =
        GivenItem { id: item_id(item)?, payload: Vec::new(), payload_ns: String::new(), payload_count: 0 };
    for payload in item.child_elements() {
        given.payload_count += 1;
        if given.payload_count == 1 {
            let bytes = payload.to_standalone(&STANZA_LIMITS).map_err(|_| pubsub_error("invalid-payload"))?;
            given.payload = bytes.into_owned();
            given.payload_ns = payload.ns_text().to_owned();
        }
    }
    Ok(given)
}

impl PubSubRequest {
    /// Reads `<pubsub/>`, or the query of service discovery.
    ///
    /// # Errors
    /// The error for the requester.
    pub(crate) fn read(payload: TreeNode<'_>, is_set: bool) -> Result<PubSubRequest, StanzaError> {
        match payload.ns() {
            Some(Ns::Pubsub) => read_pubsub(payload, is_set),
            Some(Ns::PubsubOwner) => read_owner(payload, is_set),
            Some(Ns::DiscoInfo) => Ok(PubSubRequest::OfNode(required_node(payload)?, NodeRequest::Info)),
            Some(Ns::DiscoItems) => {
                let rsm = RsmRequest::from_parent(payload)?;
                Ok(PubSubRequest::OfNode(required_node(payload)?, NodeRequest::DiscoItems(rsm)))
            }
            _ => Err(StanzaCondition::ServiceUnavailable.into()),
        }
    }
}

fn read_pubsub(pubsub: TreeNode<'_>, is_set: bool) -> Result<PubSubRequest, StanzaError> {
    let mut children = pubsub.child_elements().filter(|child| child.ns() == Some(Ns::Pubsub));
    let action = children.next().ok_or_else(|| bad_request("the request is empty"))?;
    let second = children.next();
    let second_named = |name: &str| second.filter(|child| child.name() == name);
    let rsm = || RsmRequest::from_parent(pubsub);
    let of_node = |request| match OF_ROOT.contains(&action.name()) {
        true => Ok(PubSubRequest::OfNode(node_or_root(action)?, request)),
        false => Ok(PubSubRequest::OfNode(required_node(action)?, request)),
    };
    match (action.name(), is_set) {
        ("create", true) => {
            let config = match second_named("configure") {
                // Section 8.1.3.
                Some(configure) if configure.attr("node").is_some() => {
                    return Err(bad_request("<configure/> must not have a node"));
                }
                Some(configure) => form(configure)?,
                None => None,
            };
            Ok(match node_name(action)? {
                Some(node) => PubSubRequest::OfNode(node, NodeRequest::Create { config }),
                None => PubSubRequest::OfService(ServiceRequest::CreateInstant { config }),
            })
        }
        // Sections 6.3.7 and 8.1.3: they must follow.
        ("options", true) if second_named("subscribe").is_some() => {
            Err(bad_request("<options/> must follow <subscribe/>"))
        }
        ("configure", true) => Err(bad_request("<configure/> must follow <create/>")),
        ("subscribe", true) => {
            let jid = jid(action)?.ok_or_else(|| pubsub_error("invalid-jid"))?;
            let options = match second_named("options") {
                Some(options) if options.attr("node").is_some() || options.attr("jid").is_some() => {
                    return Err(bad_request("<options/> must have neither node nor jid"));
                }
                Some(options) => form(options)?,
                None => None,
            };
            of_node(NodeRequest::Subscribe { jid, options })
        }
        ("unsubscribe", true) => of_node(NodeRequest::Unsubscribe(subscription_key(action)?)),
        ("options", false) => of_node(NodeRequest::GetOptions(subscription_key(action)?)),
        ("options", true) => {
            let form = form(action)?.ok_or_else(|| bad_request("the form is missing"))?;
            of_node(NodeRequest::SetOptions(subscription_key(action)?, form))
        }
        ("default", false) => Ok(match node_name(action)? {
            Some(node) => PubSubRequest::OfNode(node, NodeRequest::DefaultOptions),
            None => PubSubRequest::OfService(ServiceRequest::DefaultOptions),
        }),
        ("items", false) => {
            let max_items = action.attr("max_items").map(|text| text.trim().parse()).transpose();
            let max_items = max_items.map_err(|_| bad_request("max_items must be a number"))?;
            let mut ids = Vec::new();
            for item in items(action, Ns::Pubsub) {
                ids.push(item_id(item)?.ok_or_else(|| bad_request("the id of an item is missing"))?);
            }
            let order = item_order(pubsub)?;
            let query = ItemsQuery { subid: subid(action), max_items, ids, rsm: rsm()?, order };
            of_node(NodeRequest::Items(query))
        }
        ("publish", true) => {
            let given = items(action, Ns::Pubsub).map(given_item).collect::<Result<_, _>>()?;
            let options = match second_named("publish-options") {
                Some(options) => Some(form(options)?.ok_or_else(|| bad_request("the form is missing"))?),
                None => None,
            };
            of_node(NodeRequest::Publish { items: given, options })
        }
        ("retract", true) => {
            let mut ids = Vec::new();
            for item in items(action, Ns::Pubsub) {
                ids.push(item_id(item)?.ok_or_else(|| pubsub_error("item-required"))?);
            }
            let notify = match action.attr("notify").as_deref() {
                None => None,
                Some("1" | "true") => Some(true),
                Some("0" | "false") => Some(false),
                Some(_) => return Err(bad_request("notify must be true or false")),
            };
            of_node(NodeRequest::Retract { ids, notify })
        }
        ("subscriptions", false) => Ok(match node_name(action)? {
            Some(node) => PubSubRequest::OfNode(node, NodeRequest::OwnSubscriptions),
            None => PubSubRequest::OfService(ServiceRequest::Subscriptions(rsm()?)),
        }),
        ("affiliations", false) => Ok(match node_name(action)? {
            Some(node) => PubSubRequest::OfNode(node, NodeRequest::OwnAffiliation),
            None => PubSubRequest::OfService(ServiceRequest::Affiliations(rsm()?)),
        }),
        _ => Err(bad_request("the request is unknown")),
    }
}

fn read_owner(pubsub: TreeNode<'_>, is_set: bool) -> Result<PubSubRequest, StanzaError> {
    let mut children = pubsub.child_elements().filter(|child| child.ns() == Some(Ns::PubsubOwner));
    let action = children.next().ok_or_else(|| bad_request("the request is empty"))?;
    if (action.name(), is_set) == ("default", false) {
        let node_type = action.attr("type").map(std::borrow::Cow::into_owned);
        return Ok(PubSubRequest::OfService(ServiceRequest::DefaultConfig { node_type }));
    }
    let changes = |name| action.child_elements().filter(move |child| child.is(name, Ns::PubsubOwner));
    let request = match (action.name(), is_set) {
        ("configure", false) => NodeRequest::GetConfig,
        ("configure", true) => {
            NodeRequest::SetConfig(form(action)?.ok_or_else(|| bad_request("the form is missing"))?)
        }
        ("delete", true) => {
            let redirect = action.child("redirect", Ns::PubsubOwner);
            let uri = redirect.and_then(|redirect| redirect.attr("uri")).filter(|uri| !uri.is_empty());
            if uri.as_ref().is_some_and(|uri| uri.len() > MAX_URI_BYTES) {
                return Err(bad_request("the address of the redirection is too long"));
            }
            NodeRequest::Delete { redirect: uri.map(std::borrow::Cow::into_owned) }
        }
        // XEP-0248, sections 7.5 and 7.6.
        ("collection", true) => {
            let child = action.child_elements().find(|child| {
                child.is("associate", Ns::PubsubOwner) || child.is("dissociate", Ns::PubsubOwner)
            });
            let child = child.ok_or_else(|| bad_request("the change of the collection is missing"))?;
            let name = required_node(child)?;
            let name = jid::Jid::parse("node").ok().and_then(|base| base.with_resource(&name).ok());
            let name = name.as_ref().and_then(|jid| jid.resource()).ok_or(StanzaCondition::ItemNotFound)?;
            match child.name() {
                "associate" => NodeRequest::Associate(name.to_owned()),
                _ => NodeRequest::Dissociate(name.to_owned()),
            }
        }
        ("purge", true) => NodeRequest::Purge,
        ("subscriptions", false) => NodeRequest::ListSubscriptions(RsmRequest::from_parent(pubsub)?),
        ("affiliations", false) => NodeRequest::ListAffiliations(RsmRequest::from_parent(pubsub)?),
        ("subscriptions", true) => {
            if changes("subscription").count() > MAX_CHANGES {
                return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("too many changes"));
            }
            let change = |one: TreeNode<'_>| {
                Ok(SubscriptionChange {
                    jid: jid(one)?.ok_or_else(|| pubsub_error("jid-required"))?,
                    subid: subid(one),
                    subscription: one.attr("subscription").map(std::borrow::Cow::into_owned),
                    subscriber: ChangedSubscriber::default(),
                })
            };
            let all: Result<_, StanzaError> = changes("subscription").map(change).collect();
            NodeRequest::ModifySubscriptions(all?)
        }
        ("affiliations", true) => {
            if changes("affiliation").count() > MAX_CHANGES {
                return Err(StanzaError::new(StanzaCondition::NotAcceptable).text("too many changes"));
            }
            let change = |one: TreeNode<'_>| {
                let jid = jid(one)?.ok_or_else(|| pubsub_error("jid-required"))?;
                let affiliation = match one.attr("affiliation") {
                    None => None,
                    Some(name) => Some(
                        NodeAffiliation::from_name(&name)
                            .ok_or_else(|| bad_request("there is no such affiliation"))?,
                    ),
                };
                Ok((jid, affiliation))
            };
            let all: Result<_, StanzaError> = changes("affiliation").map(change).collect();
            NodeRequest::ModifyAffiliations(all?)
        }
        _ => return Err(bad_request("the request is unknown")),
    };
    // The root cannot be deleted.
    let name = if action.name() == "delete" { node_or_root(action)? } else { required_node(action)? };
    Ok(PubSubRequest::OfNode(name, request))
}

/// The answer of an owner to a request for approval (section 8.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Approval {
    pub(crate) node: String,
    pub(crate) subscriber: Jid,
    pub(crate) subid: Option<String>,
    pub(crate) allow: bool,
}

/// `FORM_TYPE` of requests for approval.
pub(crate) const AUTHORIZATION_FORM: &str = "http://jabber.org/protocol/pubsub#subscribe_authorization";

/// The name of the node whose event could not be delivered, because its recipient does not exist any more (section 12.4): a
/// message of type error with the event.
pub(crate) fn lost_event(message: TreeNode<'_>) -> Option<String> {
    let error = message.child("error", Ns::Client)?;
    let is_gone = error
        .child_elements()
        .any(|one| one.ns() == Some(Ns::Stanzas) && matches!(one.name(), "item-not-found" | "gone"));
    // A collection sends what happens at others.
    let header = message.child_elements().find(|child| child.name() == "headers").and_then(|headers| {
        headers.child_elements().find(|header| header.attr("name").as_deref() == Some("Collection"))
    });
    if let Some(header) = header {
        let name = header.text().into_owned();
        let name = if name.is_empty() { ROOT_NODE.to_owned() } else { name };
        return Some(name).filter(|name| is_gone && name.len() <= MAX_NAME_BYTES);
    }
    let content = message.child("event", Ns::PubsubEvent)?.child_elements().next()?;
    node_name(content).ok()?.filter(|_| is_gone)
}

impl Approval {
    /// Reads the form of a message; `None` for anything else, and for a form that was cancelled.
    pub(crate) fn read(message: TreeNode<'_>) -> Option<Approval> {
        let form = DataForm::read(message.child("x", Ns::DataForms)?).ok()?;
        if form.kind != FormKind::Submit || form.form_type() != Some(AUTHORIZATION_FORM) {
            return None;
        }
        Some(Approval {
            node: form.value("pubsub#node")?.to_owned(),
            subscriber: Jid::parse(form.value("pubsub#subscriber_jid")?).ok()?,
            subid: form.value("pubsub#subid").map(str::to_owned),
            allow: form.bool("pubsub#allow")?,
        })
    }
}
