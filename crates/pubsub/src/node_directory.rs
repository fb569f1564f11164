//! The nodes of a domain that are in memory, and when each was used: a node without requests is dropped after some minutes, and
//! at once if another member of the cluster has become its owner.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use base::BoxFuture;
use base::lock::LeafMutex;
use cluster::NodeId;
use hashbrown::HashMap;
use jid::Jid;
use peers::slices::SliceService;
use throng_core::Node;
use throng_core::node_extensions::Swept;

use crate::pubsub_shared::{NodeInput, NodeMessage, PubSubShared};

/// Seconds between two checks.
const CHECK_SECONDS: u32 = 4;
/// Seconds after which an unused node is dropped.
const IDLE_SECONDS: u32 = 300;

/// A node in memory.
struct DirectoryEntry {
    /// Second of its last use.
    used: u32,
    weight: usize,
    /// Its place in the order of use.
    sequence: u64,
    /// Bare address of the user who has created it.
    creator: Jid,
}

/// The nodes of one creator.
#[derive(Default)]
struct CreatorNodes {
    weight: usize,
    /// In the order of use.
    order: BTreeMap<u64, Jid>,
}

#[derive(Default)]
struct DirectoryState {
    nodes: HashMap<Jid, DirectoryEntry>,
    /// All nodes in the order of use.
    order: BTreeMap<u64, Jid>,
    creators: HashMap<Jid, CreatorNodes>,
    /// The creator with more than half of the weight, if it was seen.
    largest: Option<Jid>,
    /// Sum of the weights.
    weight: usize,
    sequence: u64,
}

impl DirectoryState {
    fn insert(&mut self, node: &Jid, creator: &Jid, used: u32, weight: usize) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.weight += weight;
        self.order.insert(sequence, node.clone());
        let of_creator = self.creators.entry(creator.clone()).or_default();
        of_creator.weight += weight;
        of_creator.order.insert(sequence, node.clone());
        let entry = DirectoryEntry { used, weight, sequence, creator: creator.clone() };
        self.nodes.insert(node.clone(), entry);
    }

    fn remove(&mut self, node: &Jid) {
        let Some(entry) = self.nodes.remove(node) else { return };
        self.weight -= entry.weight;
        self.order.remove(&entry.sequence);
        if let Some(of_creator) = self.creators.get_mut(&entry.creator) {
            of_creator.weight -= entry.weight;
            of_creator.order.remove(&entry.sequence);
            if of_creator.order.is_empty() {
                self.creators.remove(&entry.creator);
            }
        }
    }

    /// The node that gives way to one of this creator and weight: the least used one of a creator with more than half of the room,
    /// otherwise of all.
    fn least_used(&self, creator: &Jid, weight: usize, most: usize) -> Option<Jid> {
        let own = self.creators.get(creator).filter(|one| one.weight + weight > most / 2);
        let largest = || self.largest.as_ref().and_then(|creator| self.creators.get(creator));
        let large = own.or_else(|| largest().filter(|one| one.weight > most / 2));
        large.map_or(&self.order, |one| &one.order).first_key_value().map(|(_, node)| node.clone())
    }
}

/// The nodes in memory.
#[derive(Default)]
pub(crate) struct NodeDirectory(LeafMutex<DirectoryState>);

/// What follows from the use of a node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeTouch {
    /// It may stay in memory without requests.
    pub(crate) is_kept: bool,
    /// Nodes that give way.
    pub(crate) evicted: Vec<Jid>,
}

impl NodeDirectory {
    /// A node of this weight is used. The weight of all nodes stays below `most`: the least used ones give way, and a node
    /// that is larger than that must be dropped when it has no requests.
    pub(crate) fn touch(
        &self,
        node: &Jid,
        creator: &Jid,
        used: u32,
        weight: usize,
        most: usize,
    ) -> NodeTouch {
        let mut state = self.0.lock();
        state.remove(node);
        if weight > most {
            return NodeTouch::default();
        }
        let mut evicted = Vec::new();
        while state.weight + weight > most {
            let Some(other) = state.least_used(creator, weight, most) else { break };
            state.remove(&other);
            evicted.push(other);
        }
        state.insert(node, creator, used, weight);
        if state.creators.get(creator).is_some_and(|one| one.weight > most / 2) {
            state.largest = Some(creator.clone());
        }
        NodeTouch { is_kept: true, evicted }
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
        let all: Vec<Arc<PubSubShared>> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|shared| shared.presence.wake());
        if !now.is_multiple_of(CHECK_SECONDS) {
            return;
        }
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

/// Ends the tasks of a domain's PubSub nodes when the node of the cluster stops, which waits for them.
pub(crate) struct NodeShutdown(Weak<PubSubShared>);

impl NodeShutdown {
    pub(crate) fn new(shared: &Arc<PubSubShared>) -> NodeShutdown {
        NodeShutdown(Arc::downgrade(shared))
    }
}

/// PubSub nodes have no leases: their next owner reads them from the database.
impl SliceService for NodeShutdown {
    fn hand_over(&self, _: &Arc<Node>, _: u8, _: NodeId) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn taken(&self, _: &Arc<Node>, _: u8, _: u64) {}

    fn lost(&self, _: &Arc<Node>, _: u8) {}

    fn set_backup(&self, _: &Arc<Node>, _: u8, _: Option<NodeId>) {}

    fn copied_slices(&self) -> Vec<u8> {
        Vec::new()
    }

    fn member_left(&self, _: &Arc<Node>) {}

    fn shut_down(&self, node: &Arc<Node>) -> BoxFuture<'static, ()> {
        if let Some(shared) = self.0.upgrade() {
            shared.stop();
            let Some(tasks) = shared.tasks() else { return Box::pin(std::future::ready(())) };
            for (key, _) in shared.directory.entries() {
                let message = NodeMessage { node: node.clone(), input: NodeInput::Drop };
                // With a full mailbox it ends after its last message.
                let _ = tasks.try_send(&node.spawner, &key, message, 64);
            }
        }
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jid(text: &str) -> Jid {
        Jid::parse(text).unwrap()
    }

    fn node(name: &str) -> Jid {
        jid(&format!("pubsub.denmark.lit/{name}"))
    }

    #[test]
    fn the_least_used_node_gives_way() {
        let (directory, owner) = (NodeDirectory::default(), jid("hamlet@denmark.lit"));
        let touch = |name: &str, owner: &Jid| directory.touch(&node(name), owner, 0, 1, 3);
        for name in ["a", "b", "c"] {
            assert_eq!(touch(name, &owner), NodeTouch { is_kept: true, evicted: Vec::new() });
        }
        touch("a", &owner);
        assert_eq!(touch("d", &owner).evicted, [node("b")]);
        assert!(!directory.touch(&node("huge"), &owner, 0, 4, 3).is_kept);
        assert_eq!(directory.0.lock().weight, 3);
    }

    #[test]
    fn a_user_with_many_nodes_takes_the_room_of_nobody_else() {
        let (directory, hamlet, francisco) =
            (NodeDirectory::default(), jid("hamlet@denmark.lit"), jid("francisco@denmark.lit"));
        for number in 0..5 {
            directory.touch(&node(&format!("own{number}")), &francisco, 0, 1, 10);
        }
        for number in 0..100 {
            let evicted = directory.touch(&node(&format!("n{number}")), &hamlet, 0, 1, 10).evicted;
            assert!(evicted.iter().all(|one| one.as_str().contains("/n")), "{number}: {evicted:?}");
        }
        for number in 0..100 {
            directory.remove(&node(&format!("n{number}")));
        }
        let state = directory.0.lock();
        assert_eq!((state.weight, state.creators.len(), state.order.len()), (5, 1, 5));
    }
}
