//! What the exact account of a run with failures needs besides the numbers that arrived: the messages that the server did
//! not acknowledge (XEP-0198) or returned, and the ids that it gave to those that arrived (XEP-0359).
//!
//! # Pitfalls
//!
//! All parts are bounded; beyond a bound the account is marked as incomplete. A run without failures keeps none of this.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;

use hashbrown::HashMap;

/// Bound of each list.
const MAX_MESSAGES: usize = 1_000_000;

/// The worker of the recipient or sender, and the number between the two workers.
type MessageNumber = (u16, u32);

/// How a second copy of a message compares with the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DuplicateKind {
    /// The server delivered one message twice: both copies have the same stanza-id.
    SameId,
    /// The server accepted it twice: the copies have different ones.
    OtherId,
    /// One of them has none, or the first was too long ago.
    Unknown,
}

/// The account of one worker.
#[derive(Default)]
pub(crate) struct AcknowledgementAccounting {
    /// Sent messages that the server has not acknowledged.
    pub(crate) unacknowledged: Vec<MessageNumber>,
    /// Sent messages that the server returned.
    pub(crate) refused: Vec<MessageNumber>,
    /// Users without a session at the end.
    pub(crate) away: u32,
    /// A bound was reached.
    pub(crate) incomplete: bool,
    /// Hash of the stanza-id of each message that arrived with one.
    ids: HashMap<MessageNumber, u64>,
    /// Those in the order of their arrival.
    order: VecDeque<MessageNumber>,
}

impl AcknowledgementAccounting {
    /// Records a message that the server has not acknowledged.
    pub(crate) fn unacknowledged(&mut self, number: MessageNumber) {
        self.incomplete |= !push(&mut self.unacknowledged, number);
    }

    /// Records a message that the server returned.
    pub(crate) fn refused(&mut self, number: MessageNumber) {
        self.incomplete |= !push(&mut self.refused, number);
    }

    /// Records the stanza-id of a message that arrived for the first time.
    pub(crate) fn arrived(&mut self, number: MessageNumber, id: Option<&str>) {
        let Some(id) = id else { return };
        if self.order.len() >= MAX_MESSAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        let hash = self.ids.hasher().hash_one(id);
        if self.ids.insert(number, hash).is_none() {
            self.order.push_back(number);
        }
    }

    /// Compares the stanza-id of a message that arrived again with that of the first copy.
    pub(crate) fn duplicate(&self, number: MessageNumber, id: Option<&str>) -> DuplicateKind {
        match (self.ids.get(&number), id) {
            (Some(first), Some(id)) if *first == self.ids.hasher().hash_one(id) => DuplicateKind::SameId,
            (Some(_), Some(_)) => DuplicateKind::OtherId,
            _ => DuplicateKind::Unknown,
        }
    }
}

fn push(list: &mut Vec<MessageNumber>, number: MessageNumber) -> bool {
    let fits = list.len() < MAX_MESSAGES;
    if fits {
        list.push(number);
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::{AcknowledgementAccounting, DuplicateKind, MAX_MESSAGES};

    #[test]
    fn a_second_copy_is_compared_by_its_stanza_id() {
        let mut account = AcknowledgementAccounting::default();
        account.arrived((0, 1), Some("a"));
        account.arrived((0, 2), None);
        assert_eq!(account.duplicate((0, 1), Some("a")), DuplicateKind::SameId);
        assert_eq!(account.duplicate((0, 1), Some("b")), DuplicateKind::OtherId);
        assert_eq!(account.duplicate((0, 1), None), DuplicateKind::Unknown);
        assert_eq!(account.duplicate((0, 2), Some("a")), DuplicateKind::Unknown);
        assert_eq!(account.duplicate((1, 1), Some("a")), DuplicateKind::Unknown);
    }

    #[test]
    fn lists_are_bounded_and_say_so() {
        let mut account = AcknowledgementAccounting::default();
        (0..=MAX_MESSAGES as u32).for_each(|number| account.arrived((0, number), Some("x")));
        assert_eq!(account.duplicate((0, 0), Some("x")), DuplicateKind::Unknown);
        assert_eq!(account.duplicate((0, 1), Some("x")), DuplicateKind::SameId);
        (0..MAX_MESSAGES as u32).for_each(|number| account.refused((0, number)));
        assert!(!account.incomplete);
        account.refused((0, 0));
        assert!(account.incomplete && account.refused.len() == MAX_MESSAGES);
    }
}
