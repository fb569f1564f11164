//! Notices: short messages of a feature to the same feature on all other nodes of a cluster, for example that a setting of a
//! domain changed.
//!
//! A feature registers a handler with `FeatureBuilder::notice` and sends with [`Node::send_notice`]. A notice arrives at
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
    /// The node that has sent it; none if notices may have been missed.
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
}

impl Node {
    /// Sends a notice to all other nodes. At most 256 KiB.
    pub fn send_notice(self: &Arc<Self>, host: &Host, name: &'static str, content: &[u8]) {
        if let Some(peers) = self.peers() {
            peers.send_notice(self, host, name, content);
        }
    }

    /// Another node has sent a notice. Unknown names are ignored: the node may have other features.
    pub fn handle_notice(self: &Arc<Self>, host: &Arc<Host>, from: NodeId, name: &str, content: &[u8]) {
        let handlers = host.extensions.get::<NoticeHandlers>();
        if let Some(handler) = handlers.and_then(|handlers| handlers.0.get(name)) {
            handler.handle(&NoticeCtx { node: self, host, from: Some(from), content: Some(content) });
        }
    }

    /// Notices may have been missed.
    pub fn handle_missed_notices(self: &Arc<Self>) {
        for host in &self.hosts() {
            let handlers = host.extensions.get::<NoticeHandlers>();
            for handler in handlers.iter().flat_map(|handlers| handlers.0.values()) {
                handler.handle(&NoticeCtx { node: self, host, from: None, content: None });
            }
        }
    }
}
