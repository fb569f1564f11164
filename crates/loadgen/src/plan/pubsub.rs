//! Steps at PubSub nodes (XEP-0060): creating, subscribing, publishing, and counting events.
//!
//! Not implemented: configuration other than the service's default, options of subscriptions, retrieval, and everything else
//! that only owners do.

use serde::{Deserialize, Serialize};

use super::{MessageBody, TextTemplate};

/// Prefix of the names of numbered nodes: node 7 is `node7`, as `throng pubsub bulk` names it.
pub(crate) const NODE_PREFIX: &str = "node";

/// Choice of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PubSubNodeSelection {
    /// A name at the PubSub service of the plan.
    Named(TextTemplate),
    /// Numbered nodes in a ring: those from the user's own number plus `offset` on, modulo `nodes`.
    Ring {
        /// Added to the user's number.
        offset: u32,
        /// Number of nodes in the ring.
        nodes: u32,
        /// Number of consecutive nodes.
        count: u32,
    },
    /// A random node to which the user is subscribed.
    Subscribed,
    /// All nodes to which the user is subscribed.
    All,
}

/// One action of a user at PubSub nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PubSubStep {
    /// Creates nodes with the default configuration (section 8.1).
    Create {
        /// The nodes.
        node: PubSubNodeSelection,
        /// Wait for the answers.
        wait: bool,
    },
    /// Deletes nodes (section 8.4).
    Delete {
        /// The nodes.
        node: PubSubNodeSelection,
        /// Wait for the answers.
        wait: bool,
    },
    /// Subscribes the user's bare address (section 6.1), measured until the answer; from then on events are counted.
    Subscribe {
        /// The nodes.
        node: PubSubNodeSelection,
        /// Wait until each has succeeded or failed.
        wait: bool,
    },
    /// Ends subscriptions (section 6.2).
    Unsubscribe {
        /// The nodes.
        node: PubSubNodeSelection,
        /// The identifier of the subscription, if the service needs it.
        subid: Option<TextTemplate>,
        /// Wait until each has succeeded or failed.
        wait: bool,
    },
    /// Counts events of nodes to which the user has been subscribed before the run.
    Listen {
        /// The nodes.
        node: PubSubNodeSelection,
    },
    /// Publishes a numbered item (section 7.1), measured until the answer and at each subscriber.
    Publish {
        /// The nodes.
        node: PubSubNodeSelection,
        /// Content of the payload.
        body: MessageBody,
        /// Wait for the answer.
        wait: bool,
    },
}

impl PubSubStep {
    /// Nodes of the step.
    pub fn node(&self) -> &PubSubNodeSelection {
        match self {
            Self::Create { node, .. }
            | Self::Delete { node, .. }
            | Self::Subscribe { node, .. }
            | Self::Unsubscribe { node, .. }
            | Self::Listen { node }
            | Self::Publish { node, .. } => node,
        }
    }

    /// Its name in TOML plans.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Create { .. } => "pubsub_create",
            Self::Delete { .. } => "pubsub_delete",
            Self::Subscribe { .. } => "pubsub_subscribe",
            Self::Unsubscribe { .. } => "pubsub_unsubscribe",
            Self::Listen { .. } => "pubsub_listen",
            Self::Publish { .. } => "pubsub_publish",
        }
    }
}
