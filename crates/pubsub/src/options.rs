//! Options of the service: limits, and what a node is like when it is created.

use std::borrow::Cow;

use feature_api::feature::{FeatureOptions, OptionKind, OptionSpec, OptionValue};
use feature_api::service::ServiceSpec;

/// Who may create nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeCreationAccess {
    Users,
    Admins,
    All,
}

/// The options of a domain.
#[derive(Clone, Debug)]
pub(crate) struct PubSubOptions {
    pub(crate) creation: NodeCreationAccess,
    /// A publication creates a node that does not exist.
    pub(crate) auto_create: bool,
    pub(crate) nodes_per_user: u32,
    pub(crate) subscriptions_per_user: u32,
    /// Nodes without requests that stay in memory.
    pub(crate) cached_nodes: usize,
    /// Subscribers of each of them.
    pub(crate) cached_subscribers: usize,
    pub(crate) limits: PubSubLimits,
}

/// Limits of each node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PubSubLimits {
    pub(crate) items: u32,
    pub(crate) default_items: u32,
    pub(crate) payload_bytes: u32,
    pub(crate) affiliations: usize,
    /// Subscriptions of a node that are more than a bare address.
    pub(crate) special_subscriptions: usize,
    /// Subscriptions of one user at one node, of all its addresses.
    pub(crate) subscriptions_per_user_and_node: usize,
    /// Fields of a submitted form.
    pub(crate) form_fields: usize,
    /// Items of one request.
    pub(crate) batch_items: usize,
}

const fn number(key: &'static str, min: i64, max: i64, default: i64, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Int(min, max), default: OptionValue::Int(default), doc }
}

/// All options.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    ServiceSpec::address_option("pubsub.{domain}"),
    ServiceSpec::rate_option(200),
    OptionSpec {
        key: "creation",
        kind: OptionKind::Text,
        default: OptionValue::Text(Cow::Borrowed("users")),
        doc: "Who can create nodes: `users` with an account on the domain, `admins` only, or `all` including anonymous \
              users and users of other servers.",
    },
    OptionSpec {
        key: "auto_create",
        kind: OptionKind::Bool,
        default: OptionValue::Bool(false),
        doc: "A publication to a node that does not exist creates it, if the publisher can create nodes.",
    },
    number(
        "nodes_per_user",
        1,
        10_000_000,
        1_000,
        "Nodes that one user can have created; administrators are exempt.",
    ),
    number(
        "subscriptions_per_user",
        1,
        10_000_000,
        10_000,
        "Nodes to which one user can be subscribed; administrators are exempt.",
    ),
    number(
        "cached_nodes",
        0,
        1_000_000,
        10_000,
        "Nodes without requests that stay in memory for some minutes; a hundred items or subscribers of a node, or 4 KiB of its configuration, count as one more.",
    ),
    number(
        "cached_subscribers",
        0,
        10_000_000,
        20_000,
        "Subscribers of one node whose addresses stay in memory; of a node with more only their numbers do, and events go to those who are online.",
    ),
    number(
        "items",
        1,
        1_000_000,
        10_000,
        "Items that one node can keep; the meaning of `max` in its configuration.",
    ),
    number("default_items", 1, 1_000_000, 10, "Items that a node keeps when it is created."),
    number("payload_bytes", 1, 10_000_000, 65_536, "Bytes of the payload of one item."),
    number("affiliations", 1, 1_000_000, 10_000, "Owners, publishers, members and outcasts of one node."),
    number(
        "special_subscriptions",
        0,
        1_000_000,
        10_000,
        "Subscriptions of one node that have options, a full address or an identifier, or are not yet approved.",
    ),
    number(
        "subscriptions_per_user_and_node",
        1,
        1_000,
        10,
        "Subscriptions of one user to one node, of all its addresses together.",
    ),
    number("form_fields", 1, 1_000, 128, "Fields of a form that a client submits."),
    number("batch_items", 1, 10_000, 100, "Items of one request that publishes, retracts or retrieves."),
];

impl PubSubOptions {
    /// Reads the options.
    ///
    /// # Errors
    /// The option with an invalid value, and the problem.
    pub(crate) fn read(options: &FeatureOptions) -> Result<PubSubOptions, (&'static str, String)> {
        let creation = match options.text("creation") {
            "users" => NodeCreationAccess::Users,
            "admins" => NodeCreationAccess::Admins,
            "all" => NodeCreationAccess::All,
            other => return Err(("creation", format!("must be users, admins or all, not \"{other}\""))),
        };
        let of = |key: &str| usize::try_from(options.int(key)).unwrap_or(usize::MAX);
        let small = |key: &str| u32::try_from(options.int(key)).unwrap_or(u32::MAX);
        Ok(PubSubOptions {
            creation,
            auto_create: options.bool("auto_create"),
            nodes_per_user: small("nodes_per_user"),
            subscriptions_per_user: small("subscriptions_per_user"),
            cached_nodes: of("cached_nodes"),
            cached_subscribers: of("cached_subscribers"),
            limits: PubSubLimits {
                items: small("items"),
                default_items: small("default_items").min(small("items")),
                payload_bytes: small("payload_bytes"),
                affiliations: of("affiliations"),
                special_subscriptions: of("special_subscriptions"),
                subscriptions_per_user_and_node: of("subscriptions_per_user_and_node"),
                form_fields: of("form_fields"),
                batch_items: of("batch_items"),
            },
        })
    }
}
