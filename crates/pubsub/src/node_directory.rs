//! The nodes of a domain that are in memory, and when each was used: a node without requests is dropped after some minutes, and
//! at once if another member of the cluster has become its owner.

use std::sync::{Arc, Weak};

use base::lock::LeafMutex;
use cluster::NodeId;
use hashbrown::HashMap;
use jid::Jid;
use throng_core::Node;
use throng_core::node_extensions::Swept;

use crate::pubsub_shared::{NodeInput, NodeMessage, PubSubShared};

/// Seconds between two checks.
const CHECK_SECONDS: u32 = 4;
/// Seconds after which an unused node is dropped.
const IDLE_SECONDS: u32 = 300;

/// A node in memory.
#[derive(Clone, Copy)]
struct DirectoryEntry {
    /// Second of its last use.
    used: u32,
    weight: usize,
}

#[derive(Default)]
struct DirectoryState {
    nodes: HashMap<Jid, DirectoryEntry>,
    /// Sum of the weights.
    weight: usize,
}

impl DirectoryState {
    fn remove(&mut self, node: &Jid) {
        if let Some(entry) = self.nodes.remove(node) {
            self.weight -= entry.weight;
        }
    }
}

/// The nodes in memory.
#[derive(Default)]
pub(crate) struct NodeDirectory(LeafMutex<DirectoryState>);

impl NodeDirectory {
    /// A node of this weight is used. False if it must be dropped when it has no requests, because the weight of all nodes
    /// would exceed `most`.
    pub(crate) fn touch(&self, node: &Jid, used: u32, weight: usize, most: usize) -> bool {
        let mut state = self.0.lock();
        state.remove(node);
        let fits = state.weight + weight <= most;
        if fits {
            state.weight += weight;
            state.nodes.insert(node.clone(), DirectoryEntry { used, weight });
        }
        fits
    }

    /// A node is dropped.
    pub(crate) fn remove(&self, node: &Jid) {
        self.0.lock().remove(node);
    }

    fn entries(&self) -> Vec<(Jid, u32)> {
        self.0.lock().nodes.iter().map(|(node, entry)| (node.clone(), entry.used)).collect()
    }
}

/// Whether another node of the cluster owns a PubSub node.
pub(crate) fn is_owned_elsewhere(node: &Arc<Node>, pubsub_node: &Jid) -> bool {
    other_owner(node, pubsub_node).is_some()
}

/// The other node of the cluster that owns a PubSub node; `None`: this one does.
pub(crate) fn other_owner(node: &Arc<Node>, pubsub_node: &Jid) -> Option<NodeId> {
    let table = &node.routing_table;
    let hash = match pubsub_node.local() {
        // One node of the cluster owns all nodes of an account.
        Some(_) => table.hash(pubsub_node.as_ref()),
        None => table.hash_name(pubsub_node.as_str()),
    };
    peers::slices::other_owner(node, hash)
}

/// The domains of a node whose PubSub nodes are checked.
#[derive(Default)]
pub(crate) struct NodeSweep(LeafMutex<Vec<Weak<PubSubShared>>>);

impl NodeSweep {
    /// From now on, the nodes of a domain are checked.
    pub(crate) fn add(&self, shared: &Arc<PubSubShared>) {
        let mut all = self.0.lock();
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(shared));
    }
}

impl Swept for NodeSweep {
    fn sweep(&self, node: &Arc<Node>, now: u32) {
        if !now.is_multiple_of(CHECK_SECONDS) {
            return;
        }
        let all: Vec<Arc<PubSubShared>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        for shared in all {
            let Some(tasks) = shared.tasks() else { continue };
            shared.host.sweep(node);
            for (key, used) in shared.directory.entries() {
                if now.saturating_sub(used) >= IDLE_SECONDS || is_owned_elsewhere(node, &key) {
                    let message = NodeMessage { node: node.clone(), input: NodeInput::Drop };
                    // A full mailbox is tried again.
                    let _ = tasks.try_send(&node.spawner, &key, message, 64);
                }
            }
        }
    }
}
