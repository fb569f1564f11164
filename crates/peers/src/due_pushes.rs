//! Pushes of rosters and blocklists, and subscription stanzas, that did not fit into the queue of a node: in their order, bounded in
//! octets. A client that misses one shows an outdated entry until it requests the list again.

use std::collections::VecDeque;

use cluster::Envelope;

/// Maximum octets of the pushes for one node.
const MAX_OCTETS: usize = 4 << 20;
/// Octets that a push occupies besides its content.
const PUSH_OCTETS: usize = 192;

fn octets_of(push: &Envelope) -> usize {
    PUSH_OCTETS + push.bytes.len()
}

/// Pushes for one node.
#[derive(Default)]
pub(super) struct DuePushes {
    /// With ascending numbers.
    waiting: VecDeque<(u64, Envelope)>,
    octets: usize,
    next_number: u64,
}

impl DuePushes {
    /// Adds a push behind the others. Returns how many of the oldest were discarded for it: a later push may be of the same entry.
    pub(super) fn add(&mut self, push: Envelope) -> usize {
        self.octets += octets_of(&push);
        self.waiting.push_back((self.next_number, push));
        self.next_number += 1;
        let before = self.waiting.len();
        while self.octets > MAX_OCTETS {
            let Some((_, oldest)) = self.waiting.pop_front() else { break };
            self.octets -= octets_of(&oldest);
        }
        before - self.waiting.len()
    }

    /// The oldest push. It stays until it is removed: a later one must not be sent before it.
    pub(super) fn first(&self) -> Option<(u64, Envelope)> {
        self.waiting.front().cloned()
    }

    /// Removes the oldest push, unless it was discarded meanwhile.
    pub(super) fn remove(&mut self, number: u64) {
        if let Some((_, push)) = self.waiting.pop_front_if(|(first, _)| *first == number) {
            self.octets -= octets_of(&push);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope_kinds::PUSH;
    use cluster::{EnvelopeClass, NodeId};

    fn push(octets: usize) -> Envelope {
        let node = NodeId::new("a").unwrap();
        Envelope::new(PUSH, EnvelopeClass::Control, node, Vec::new(), vec![0; octets])
    }

    #[test]
    fn pushes_wait_in_their_order_and_the_oldest_are_discarded() {
        let mut due = DuePushes::default();
        assert!(due.is_empty() && due.first().is_none());
        assert_eq!((1..=3).map(|octets| due.add(push(octets))).sum::<usize>(), 0);
        for octets in 1..=3 {
            let (number, first) = due.first().unwrap();
            assert_eq!(first.bytes.len(), octets);
            due.remove(number);
            due.remove(number);
        }
        assert!(due.is_empty() && due.octets == 0);
        let half = MAX_OCTETS / 2 - PUSH_OCTETS;
        assert_eq!([half, half, 1].map(|octets| due.add(push(octets))), [0, 0, 1]);
        let (number, _) = due.first().unwrap();
        due.add(push(half));
        due.remove(number);
        assert_eq!(due.first().unwrap().1.bytes.len(), 1, "the first one was discarded");
        assert!(due.octets <= MAX_OCTETS);
    }
}
