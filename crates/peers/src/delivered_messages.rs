//! Messages of other nodes that clients here have taken: a node that loses this one before it has the receipt delivers such a message
//! again, or stores it. It is recognised by its stanza-id (XEP-0359) when it comes back.
//!
//! Only what a client has acknowledged, or the kernel has taken for a client without stream management, is remembered. What was settled
//! because it is in the store is not before the client has it: until then the store may have the only copy.
//!
//! Not implemented: recognition on another node than the one that delivered the message.

use std::collections::{HashSet, VecDeque};

use base::TimeOrderedId;
use base::lock::LeafMutex;

/// Maximum number of messages that are remembered: more than a node receives while others consider it gone.
const MAX_MESSAGES: usize = 32_768;

/// The hash of an account's address, and the id that it has assigned to a message.
type DeliveredMessage = (u64, [u8; TimeOrderedId::CHARS]);

#[derive(Default)]
struct Messages {
    in_order: VecDeque<DeliveredMessage>,
    known: HashSet<DeliveredMessage>,
}

/// The latest messages.
#[derive(Default)]
pub(super) struct DeliveredMessages(LeafMutex<Messages>);

impl DeliveredMessages {
    pub(super) fn record(&self, message: DeliveredMessage) {
        let mut messages = self.0.lock();
        if !messages.known.insert(message) {
            return;
        }
        messages.in_order.push_back(message);
        if messages.in_order.len() > MAX_MESSAGES
            && let Some(oldest) = messages.in_order.pop_front()
        {
            messages.known.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, message: DeliveredMessage) -> bool {
        self.0.lock().known.contains(&message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_messages_are_remembered_once_each() {
        let delivered = DeliveredMessages::default();
        let message = |number: u64| (number, [0; TimeOrderedId::CHARS]);
        for number in 0..=MAX_MESSAGES as u64 {
            delivered.record(message(number));
            delivered.record(message(number));
        }
        assert!(!delivered.contains(message(0)));
        assert!(delivered.contains(message(1)) && delivered.contains(message(MAX_MESSAGES as u64)));
        assert!(!delivered.contains((1, [1; TimeOrderedId::CHARS])));
    }
}
