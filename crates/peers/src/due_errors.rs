//! Errors for senders on other nodes that did not fit into the queues to these nodes. The streams of the senders have counted the stanzas that
//! they are for: an error that is lost is a lost message.
//!
//! They wait for room, bounded in octets for each node; beyond that they are dropped. They need no order.

use std::collections::{BTreeMap, VecDeque};

use base::lock::LeafMutex;
use cluster::{Envelope, EnvelopeKind, NodeId, Recipient, RefusalReason};

use crate::ClusteredNode;

/// Maximum octets of the errors for one node.
const MAX_OCTETS: usize = 4 << 20;
/// Octets that an error occupies besides its content.
const ERROR_OCTETS: usize = 192;

fn octets(error: &Envelope) -> usize {
    ERROR_OCTETS + error.encoded_len()
}

#[derive(Default)]
struct ErrorsForNode {
    waiting: VecDeque<Envelope>,
    octets: usize,
}

/// Errors that wait, by node.
#[derive(Default)]
pub(super) struct DueErrors(LeafMutex<BTreeMap<NodeId, ErrorsForNode>>);

impl DueErrors {
    /// Adds an error. False if there is no room.
    fn add(&self, node: NodeId, error: Envelope) -> bool {
        let mut nodes = self.0.lock();
        let errors = nodes.entry(node).or_default();
        let after = errors.octets + octets(&error);
        if after > MAX_OCTETS {
            return false;
        }
        errors.octets = after;
        errors.waiting.push_back(error);
        true
    }

    fn take(&self, node: NodeId) -> Option<Envelope> {
        let mut nodes = self.0.lock();
        let errors = nodes.get_mut(&node)?;
        let error = errors.waiting.pop_front()?;
        errors.octets -= octets(&error);
        if errors.waiting.is_empty() {
            nodes.remove(&node);
        }
        Some(error)
    }

    /// Returns what the queue did not accept.
    fn put_back(&self, node: NodeId, error: Envelope) {
        let mut nodes = self.0.lock();
        let errors = nodes.entry(node).or_default();
        errors.octets += octets(&error);
        errors.waiting.push_front(error);
    }

    /// The nodes for which errors wait.
    pub(super) fn nodes(&self) -> Vec<NodeId> {
        self.0.lock().keys().copied().collect()
    }

    /// Number of errors that wait.
    pub(super) fn count(&self) -> usize {
        self.0.lock().values().map(|errors| errors.waiting.len()).sum()
    }

    /// Removes the errors for a node.
    pub(super) fn take_all(&self, node: NodeId) -> Vec<Envelope> {
        self.0.lock().remove(&node).map(|errors| errors.waiting.into()).unwrap_or_default()
    }
}

impl ClusteredNode<'_> {
    /// The queue to `node` is full: this error waits for room. False if too many do.
    pub(super) fn error_is_due(&self, node: NodeId, error: Envelope) -> bool {
        self.state.due_errors.add(node, error)
    }

    /// Sends the errors that wait for a node, as far as there is room.
    pub(super) fn send_due_errors(&self, to: NodeId) {
        while let Some(error) = self.state.due_errors.take(to) {
            let path = match error.recipients.first() {
                Some(Recipient::Address(sender)) if error.header.kind == EnvelopeKind::RunChain => {
                    Some((self.routing_table.hash(sender.as_ref()), to))
                }
                _ => None,
            };
            match self.hand_over(to, error, path, false) {
                Ok(_) => {}
                Err(refused) if refused.reason == RefusalReason::QueueFull => {
                    return self.state.due_errors.put_back(to, refused.envelope);
                }
                Err(refused) => self.handle_returned(to, &refused.envelope, None),
            }
        }
    }

    /// A node has left: the senders whom these errors are for may be elsewhere now.
    pub(super) fn return_due_errors(&self, node: NodeId) {
        for error in self.state.due_errors.take_all(node) {
            self.handle_returned(node, &error, None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::EnvelopeClass;

    #[test]
    fn errors_wait_up_to_their_octets() {
        let (due, node) = (DueErrors::default(), NodeId::new("a").unwrap());
        let error = || {
            let kind = EnvelopeKind::RunChain;
            Envelope::new(kind, EnvelopeClass::Message, node, Vec::new(), vec![b'x'; 1 << 20])
        };
        assert_eq!(
            (0..5).map(|_| due.add(node, error())).collect::<Vec<_>>(),
            [true, true, true, false, false]
        );
        assert_eq!((due.count(), due.nodes()), (3, vec![node]));
        let first = due.take(node).unwrap();
        due.put_back(node, first);
        assert!(!due.add(node, error()));
        let last = due.take(node).unwrap();
        assert_eq!(due.take_all(node).len(), 2);
        assert!(due.0.lock().is_empty() && due.add(node, last));
    }
}
