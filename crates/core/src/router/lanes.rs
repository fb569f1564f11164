//! Lanes of recipients: stanzas of other nodes for one account are handled one after the other, also when a handler waits.
//!
//! A lane exists while a stanza of it is being handled. Envelopes of reliable classes that wait in it are bounded by the
//! queues of their senders, which keep an envelope until it is settled; presence is bounded here.
//!
//! Not implemented: lanes for stanzas of services, components and other servers.
//!
//! # Pitfalls
//!
//! A lane whose task ends early refuses what is left: the senders handle it.

use std::collections::VecDeque;
use std::sync::Arc;

use base::lock::LeafMutex;
use cluster::{Envelope, EnvelopeClass, HandoverResult, NodeId};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use super::remote::settle;
use crate::node::Node;

/// Maximum number of envelopes in a lane beyond which presence is dropped.
const MAX_PRESENCE: usize = 256;

type Waiting = VecDeque<(NodeId, Envelope)>;

/// Lanes by the hash of their recipient. Two recipients with one hash share a lane.
#[derive(Default)]
pub(super) struct RecipientLanes(LeafMutex<HashMap<u64, Waiting>>);

impl RecipientLanes {
    /// Opens the lane and returns the envelope; or queues it behind those that are in the lane. True if it was dropped.
    fn enter(&self, key: u64, from: NodeId, envelope: Envelope) -> Result<(NodeId, Envelope), bool> {
        match self.0.lock().entry(key) {
            Entry::Vacant(free) => {
                free.insert(VecDeque::new());
                Ok((from, envelope))
            }
            Entry::Occupied(mut lane) => {
                let presence = envelope.header.class == EnvelopeClass::Presence;
                if presence && lane.get().len() >= MAX_PRESENCE {
                    return Err(true);
                }
                lane.get_mut().push_back((from, envelope));
                Err(false)
            }
        }
    }

    /// The next envelope of an open lane; without one the lane is closed.
    fn next(&self, key: u64) -> Option<(NodeId, Envelope)> {
        let mut lanes = self.0.lock();
        let next = lanes.get_mut(&key)?.pop_front();
        if next.is_none() {
            lanes.remove(&key);
            if lanes.is_empty() && lanes.capacity() > 1024 {
                *lanes = HashMap::new();
            }
        }
        next
    }

    fn close(&self, key: u64) -> Waiting {
        self.0.lock().remove(&key).unwrap_or_default()
    }
}

/// An open lane.
struct OpenLane {
    node: Arc<Node>,
    key: u64,
    closed: bool,
}

impl OpenLane {
    fn next(&mut self) -> Option<(NodeId, Envelope)> {
        let next = self.node.peers.lanes.next(self.key);
        self.closed = next.is_none();
        next
    }
}

impl Drop for OpenLane {
    fn drop(&mut self) {
        if !self.closed {
            for (from, envelope) in self.node.peers.lanes.close(self.key) {
                settle(&self.node, from, &envelope, HandoverResult::Refused);
            }
        }
    }
}

impl Node {
    /// Handles an envelope with a stanza after those before it for the same recipient.
    pub(super) fn receive_in_lane(self: &Arc<Self>, key: u64, from: NodeId, envelope: Envelope) {
        let mut next = match self.peers.lanes.enter(key, from, envelope) {
            Ok(first) => Some(first),
            Err(dropped) => {
                if dropped {
                    self.metrics.stanzas_dropped.inc(["presence", "queue-full"]);
                }
                return;
            }
        };
        let mut lane = OpenLane { node: self.clone(), key, closed: false };
        while let Some((from, envelope)) = next {
            if let Some(rest) = self.receive_stanza(from, envelope) {
                let task = async move {
                    rest.await;
                    while let Some((from, envelope)) = lane.next() {
                        if let Some(rest) = lane.node.receive_stanza(from, envelope) {
                            rest.await;
                        }
                    }
                };
                return self.spawner.spawn("routing", Box::pin(task));
            }
            next = lane.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::EnvelopeKind;

    #[test]
    fn a_lane_keeps_the_order_bounds_presence_and_ends_when_it_is_empty() {
        let lanes = RecipientLanes::default();
        let node = NodeId::new("a").unwrap();
        let envelope = |class, text: &str| {
            Envelope::new(EnvelopeKind::RunChain, class, node, Vec::new(), text.as_bytes())
        };
        let enter = |class, text: &str| lanes.enter(1, node, envelope(class, text));
        assert!(enter(EnvelopeClass::Message, "0").is_ok(), "nothing is before it");
        assert!(lanes.enter(2, node, envelope(EnvelopeClass::Message, "")).is_ok(), "another lane");
        for n in 1..=2 * MAX_PRESENCE {
            let full = n > MAX_PRESENCE;
            assert_eq!(enter(EnvelopeClass::Presence, &n.to_string()).err(), Some(full));
        }
        assert_eq!(enter(EnvelopeClass::Message, "last").err(), Some(false));
        let text = |(_, envelope): (NodeId, Envelope)| String::from_utf8(envelope.bytes.to_vec()).unwrap();
        let taken: Vec<String> = std::iter::from_fn(|| lanes.next(1)).map(text).collect();
        assert_eq!(taken.len(), MAX_PRESENCE + 1);
        assert_eq!((taken[0].as_str(), taken.last().map(String::as_str)), ("1", Some("last")));
        assert!(lanes.next(2).is_none() && lanes.0.lock().is_empty());
    }
}
