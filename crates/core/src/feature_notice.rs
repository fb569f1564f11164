//! Notices: short messages of a feature to the same feature on all other nodes of a cluster, for example that a setting of a
//! domain changed.
//!
//! A feature registers a handler with `FeatureBuilder::notice` and sends with [`crate::router::PeerRouting::send_notice`]. A notice arrives at
//! most once: one that does not fit into the queue of a node is lost, and logged. The node is notified that it has missed one.
//!
//! # Pitfalls
//!
//! Nodes that were cut off from each other, or whose queue was full, miss notices. Afterwards every handler is called without
//! content. What must not be missed belongs in the store, and the notice says that it changed.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::NodeId;

use crate::host::Host;
use crate::node::Node;

/// A notice of another node.
pub struct NoticeCtx<'a> {
    /// This node.
    pub node: &'a Arc<Node>,
    /// The host for which it was sent.
    pub host: &'a Arc<Host>,
    /// The node that has sent it, or whose notices may have been missed.
    pub from: Option<NodeId>,
    /// Its content, unchecked. `None`: notices may have been missed.
    pub content: Option<&'a [u8]>,
}

/// Handles notices; implemented by closures of the same signature. Must not block.
pub trait NoticeHandler: Send + Sync {
    /// Handles one.
    fn handle(&self, ctx: &NoticeCtx<'_>);
}

impl<F: Fn(&NoticeCtx<'_>) + Send + Sync> NoticeHandler for F {
    fn handle(&self, ctx: &NoticeCtx<'_>) {
        self(ctx);
    }
}

/// The handlers of a host, by name.
#[derive(Default)]
pub struct NoticeHandlers(BTreeMap<&'static str, Box<dyn NoticeHandler>>);

impl NoticeHandlers {
    /// Adds one; false if the name has one.
    pub fn add(&mut self, name: &'static str, handler: Box<dyn NoticeHandler>) -> bool {
        self.0.insert(name, handler).is_none()
    }

    /// The handler of this name.
    pub fn get(&self, name: &str) -> Option<&dyn NoticeHandler> {
        self.0.get(name).map(|handler| &**handler)
    }

    /// All handlers.
    pub fn iter(&self) -> impl Iterator<Item = &dyn NoticeHandler> {
        self.0.values().map(|handler| &**handler)
    }
}
