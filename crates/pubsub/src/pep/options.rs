//! Options of personal eventing: limits of the nodes of an account.

use feature_api::feature::{FeatureOptions, OptionKind, OptionSpec, OptionValue};

use crate::options::{NodeCreationAccess, PubSubLimits, PubSubOptions};

const fn number(key: &'static str, min: i64, max: i64, default: i64, doc: &'static str) -> OptionSpec {
    OptionSpec { key, kind: OptionKind::Int(min, max), default: OptionValue::Int(default), doc }
}

/// All options.
pub(crate) const OPTIONS: &[OptionSpec] = &[
    number(
        "nodes_per_user",
        1,
        100_000,
        1_000,
        "Nodes that one user can have created, on the account and on the service of the module pubsub.",
    ),
    number(
        "cached_nodes",
        0,
        10_000_000,
        50_000,
        "Nodes without requests that stay in memory for some minutes; a hundred items of a node count as one more.",
    ),
    number(
        "items",
        1,
        1_000_000,
        10_000,
        "Items that one node can keep; the meaning of `max` in its configuration.",
    ),
    number("payload_bytes", 1, 10_000_000, 131_072, "Bytes of the payload of one item."),
    number("batch_items", 1, 10_000, 100, "Items of one request that publishes, retracts or retrieves."),
];

/// Reads the options.
pub(crate) fn read(options: &FeatureOptions) -> PubSubOptions {
    let of = |key: &str| usize::try_from(options.int(key)).unwrap_or(usize::MAX);
    let small = |key: &str| u32::try_from(options.int(key)).unwrap_or(u32::MAX);
    PubSubOptions {
        creation: NodeCreationAccess::Users,
        auto_create: true,
        nodes_per_user: small("nodes_per_user"),
        subscriptions_per_user: 10_000,
        cached_nodes: of("cached_nodes"),
        cached_subscribers: 1_000,
        limits: PubSubLimits {
            items: small("items"),
            default_items: 1,
            payload_bytes: small("payload_bytes"),
            affiliations: 1_000,
            special_subscriptions: 100,
            subscriptions_per_user_and_node: 10,
            form_fields: 128,
            batch_items: of("batch_items"),
        },
    }
}
