//! Pushes of rosters and blocklists, and subscription stanzas, for a node: in their order, bounded in octets. Each waits here until the
//! queue to that node has accepted it, and one is sent at a time, so that none overtakes another.
//!
//! A client that misses one shows an outdated entry until it requests the list again. Its node is notified (`PUSHES_MISSED`) and answers its
//! next roster request in full.

use std::collections::VecDeque;

use cluster::Envelope;
use jid::Jid;

/// Maximum octets of the pushes for one node.
const MAX_OCTETS: usize = 4 << 20;
/// Octets that a push occupies besides its content.
const PUSH_OCTETS: usize = 192;

/// A push to the sessions of an account.
struct DuePush {
    number: u64,
    account: Jid,
    push: Envelope,
}

impl DuePush {
    fn octets(&self) -> usize {
        PUSH_OCTETS + self.account.as_str().len() + self.push.bytes.len()
    }
}

/// Pushes for one node.
#[derive(Default)]
pub(super) struct DuePushes {
    /// With ascending numbers.
    waiting: VecDeque<DuePush>,
    octets: usize,
    /// One is being sent.
    sending: bool,
}

impl DuePushes {
    /// Adds a push behind the others. `number`: higher than those of the others. Returns the accounts of the oldest, which were
    /// discarded for it: a later push may be of the same entry.
    pub(super) fn add(&mut self, number: u64, account: Jid, push: Envelope) -> Vec<Jid> {
        let due = DuePush { number, account, push };
        self.octets += due.octets();
        self.waiting.push_back(due);
        let mut discarded = Vec::new();
        while self.octets > MAX_OCTETS {
            let Some(oldest) = self.waiting.pop_front() else { break };
            self.octets -= oldest.octets();
            discarded.push(oldest.account);
        }
        discarded
    }

    /// The account of the oldest push.
    pub(super) fn first_account(&self) -> Option<&Jid> {
        self.waiting.front().map(|first| &first.account)
    }

    /// Whether one may be sent.
    pub(super) fn can_begin(&self) -> bool {
        !self.sending && !self.is_empty()
    }

    /// The oldest push, with its number, unless one is being sent already. It stays until it is sent.
    pub(super) fn begin(&mut self) -> Option<(u64, Envelope)> {
        if self.sending {
            return None;
        }
        let first = self.waiting.front()?;
        self.sending = true;
        Some((first.number, first.push.clone()))
    }

    /// The attempt to send a push is over. It is removed unless it waits for room, or was discarded meanwhile.
    pub(super) fn end(&mut self, number: u64, waits: bool) {
        self.sending = false;
        if !waits && let Some(sent) = self.waiting.pop_front_if(|first| first.number == number) {
            self.octets -= sent.octets();
        }
    }

    pub(super) fn count(&self) -> usize {
        self.waiting.len()
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

    /// Sends the first push; its octets.
    fn send(due: &mut DuePushes, waits: bool) -> Option<usize> {
        let (number, first) = due.begin()?;
        due.end(number, waits);
        Some(first.bytes.len())
    }

    fn jid(name: &str) -> Jid {
        Jid::parse(&format!("{name}@example.com")).unwrap()
    }

    #[test]
    fn pushes_wait_in_their_order_and_the_oldest_are_discarded() {
        let mut due = DuePushes::default();
        assert!(!due.can_begin() && due.begin().is_none());
        let mut numbers = 0..;
        let mut add =
            |due: &mut DuePushes, name, octets| due.add(numbers.next().unwrap(), jid(name), push(octets));
        for octets in 1..=3 {
            assert!(add(&mut due, "a", octets).is_empty());
        }
        for octets in 1..=3 {
            assert_eq!(send(&mut due, true), Some(octets));
            assert_eq!(send(&mut due, false), Some(octets));
        }
        assert!(due.is_empty() && due.octets == 0);
        let half = MAX_OCTETS / 2 - PUSH_OCTETS - jid("a").as_str().len();
        assert!(add(&mut due, "a", half).is_empty());
        assert!(add(&mut due, "b", half).is_empty());
        let (number, _) = due.begin().unwrap();
        assert_eq!(add(&mut due, "c", 1), [jid("a")]);
        due.end(number, false);
        assert_eq!(send(&mut due, false), Some(half), "the first one was discarded");
        assert_eq!((send(&mut due, false), due.octets), (Some(1), 0));
    }

    /// Two threads push at the same time.
    #[test]
    fn a_push_does_not_overtake_one_that_is_being_sent() {
        let mut due = DuePushes::default();
        due.add(0, jid("a"), push(1));
        let (number, _) = due.begin().unwrap();
        due.add(1, jid("a"), push(2));
        assert!(!due.can_begin() && due.begin().is_none(), "it waits");
        due.end(number, true);
        assert_eq!([false, false].map(|waits| send(&mut due, waits)), [Some(1), Some(2)]);
    }
}
