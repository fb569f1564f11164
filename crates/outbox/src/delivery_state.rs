//! Delivery state of a shared stanza, packed into one word beside its head.
//!
//! A message from the store needs its store number and nothing else; any other stanza needs marks and the number
//! of sessions that share it. The highest bit distinguishes the two, so one atomic word serves both and a stanza
//! in a queue is no larger.
//!
//! # Pitfalls
//!
//! Marks and counts of a stored message do not exist: an operation on them must leave the store number alone.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::bit_field::BitField64;

/// Number of sessions that share the message, if there are several.
const RECIPIENTS: BitField64 = BitField64::lowest(32);
const UNUSED: BitField64 = RECIPIENTS.then(26);
const MULTICAST: BitField64 = UNUSED.then(1);
const SERVER_ANSWER: BitField64 = MULTICAST.then(1);
const REQUESTED: BitField64 = SERVER_ANSWER.then(1);
const DELAYED: BitField64 = REQUESTED.then(1);
const DELIVERED: BitField64 = DELAYED.then(1);
const STORED: BitField64 = DELIVERED.then(1);
/// All bits below [`STORED`], in a stored message.
const STORE_NUMBER: BitField64 = BitField64::lowest(63);

const _: () = assert!(STORED.is_last(), "the fields fill the word");
const _: () = assert!(STORED.mask() == !STORE_NUMBER.mask(), "a store number does not reach the mark");
const _: () = assert!(size_of::<AtomicDeliveryState>() == 8, "a stanza holds one word");

/// A property of a stanza that is not from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryMark {
    /// At least one of the sessions that share the message has received it.
    Delivered,
    /// The message contains the time at which it was first sent.
    Delayed,
    /// A response that the session requested, or presence that its client expects.
    Requested,
    /// A response or error that the server generated on behalf of the recipient of a stanza.
    ServerAnswer,
    /// A message of a multicast, whose copies without an address belong to their recipients.
    Multicast,
}

impl DeliveryMark {
    const fn field(self) -> BitField64 {
        match self {
            DeliveryMark::Delivered => DELIVERED,
            DeliveryMark::Delayed => DELAYED,
            DeliveryMark::Requested => REQUESTED,
            DeliveryMark::ServerAnswer => SERVER_ANSWER,
            DeliveryMark::Multicast => MULTICAST,
        }
    }
}

/// Value of an [`AtomicDeliveryState`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryState(u64);

impl DeliveryState {
    /// A stanza of one recipient without marks.
    pub(crate) const NEW: DeliveryState = DeliveryState(0);

    /// A message that the store holds under this number.
    pub(crate) const fn stored(number: u64) -> DeliveryState {
        DeliveryState(STORED.mask() | STORE_NUMBER.of(number))
    }

    /// This state with a mark.
    pub(crate) const fn with(self, mark: DeliveryMark) -> DeliveryState {
        DeliveryState(self.0 | mark.field().mask())
    }

    /// Number of the message in the store, if the store holds it.
    pub(crate) const fn store_number(self) -> Option<u64> {
        if STORED.is_set(self.0) { Some(STORE_NUMBER.get(self.0)) } else { None }
    }

    /// Whether the mark is set.
    pub(crate) const fn has(self, mark: DeliveryMark) -> bool {
        self.store_number().is_none() && mark.field().is_set(self.0)
    }

    /// Number of sessions that share the message and have not released it; 0 if it has one recipient.
    pub(crate) const fn recipients(self) -> u64 {
        if self.store_number().is_some() { 0 } else { RECIPIENTS.get(self.0) }
    }
}

/// Delivery state that the sessions of all recipients share.
pub(crate) struct AtomicDeliveryState(AtomicU64);

impl AtomicDeliveryState {
    /// The initial state.
    pub(crate) const fn new(state: DeliveryState) -> AtomicDeliveryState {
        AtomicDeliveryState(AtomicU64::new(state.0))
    }

    /// The present state.
    pub(crate) fn load(&self) -> DeliveryState {
        DeliveryState(self.0.load(Ordering::Relaxed))
    }

    /// Sets a mark; no effect on a stored message.
    pub(crate) fn set(&self, mark: DeliveryMark) {
        if self.load().store_number().is_none() {
            self.0.fetch_or(mark.field().mask(), Ordering::AcqRel);
        }
    }

    /// Adds sessions that share the message; no effect on a stored message, which the store still holds when all
    /// of them lose it.
    pub(crate) fn add_recipients(&self, sessions: usize) {
        if self.load().store_number().is_none() {
            self.0.fetch_add(RECIPIENTS.of(sessions as u64), Ordering::Relaxed);
        }
    }

    /// Releases the share of one session; returns the state before. Must only be called on a shared message.
    pub(crate) fn release_recipient(&self) -> DeliveryState {
        DeliveryState(self.0.fetch_sub(RECIPIENTS.of(1), Ordering::AcqRel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: [DeliveryMark; 5] = [
        DeliveryMark::Delivered,
        DeliveryMark::Delayed,
        DeliveryMark::Requested,
        DeliveryMark::ServerAnswer,
        DeliveryMark::Multicast,
    ];

    #[test]
    fn each_mark_and_the_recipient_count_are_independent() {
        for set in MARKS {
            for sessions in [0, 1, 2, u32::MAX as usize] {
                let state = AtomicDeliveryState::new(DeliveryState::NEW);
                state.add_recipients(sessions);
                state.set(set);
                assert_eq!(state.load(), DeliveryState(state.load().0).with(set));
                assert_eq!((state.load().recipients(), state.load().store_number()), (sessions as u64, None));
                for mark in MARKS {
                    assert_eq!(state.load().has(mark), mark == set, "{set:?} {mark:?} {sessions}");
                }
            }
        }
    }

    #[test]
    fn a_store_number_survives_marks_and_recipients() {
        for number in [0, 1, u64::from(u32::MAX), 1 << 62, (1 << 63) - 1] {
            let state = AtomicDeliveryState::new(DeliveryState::stored(number));
            state.add_recipients(3);
            MARKS.into_iter().for_each(|mark| state.set(mark));
            assert_eq!((state.load().store_number(), state.load().recipients()), (Some(number), 0));
            assert!(MARKS.into_iter().all(|mark| !state.load().has(mark)));
        }
    }

    #[test]
    fn releasing_decrements_the_count_and_preserves_the_marks() {
        let state = AtomicDeliveryState::new(DeliveryState::NEW.with(DeliveryMark::Delayed));
        state.add_recipients(2);
        assert_eq!([state.release_recipient().recipients(), state.release_recipient().recipients()], [2, 1]);
        assert!(state.load().has(DeliveryMark::Delayed) && state.load().recipients() == 0);
    }
}
