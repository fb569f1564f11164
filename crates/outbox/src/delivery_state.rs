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
const RECIPIENTS: BitField64 = BitField64::lowest(31);
/// Millisecond of the node's clock since which the delivery is tracked, modulo 2^20 (17 minutes).
const TRACKED_SINCE: BitField64 = RECIPIENTS.then(20);
const TRACKED: BitField64 = TRACKED_SINCE.then(1);
const SETTLED: BitField64 = TRACKED.then(1);
const AWAITED: BitField64 = SETTLED.then(1);
const CONFIRMED: BitField64 = AWAITED.then(1);
const BACKED_UP: BitField64 = CONFIRMED.then(1);
const ABANDONED: BitField64 = BACKED_UP.then(1);
const MULTICAST: BitField64 = ABANDONED.then(1);
const SERVER_ANSWER: BitField64 = MULTICAST.then(1);
const REQUESTED: BitField64 = SERVER_ANSWER.then(1);
const DELAYED: BitField64 = REQUESTED.then(1);
const DELIVERED: BitField64 = DELAYED.then(1);
const NODE_COPY: BitField64 = DELIVERED.then(1);
const STORED: BitField64 = NODE_COPY.then(1);
/// All bits below [`STORED`], in a stored message.
const STORE_NUMBER: BitField64 = BitField64::lowest(63);

/// A task may have read the clock up to this time before the delivery began, so its age may seem negative, and reads as 0. Ages wrap
/// around with [`TRACKED_SINCE`], so a true age in the last minute before that looks the same, and also reads as 0.
const MAX_CLOCK_LAG_MILLIS: u64 = 60_000;

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
    /// The sender need not wait for the delivery any more.
    Settled,
    /// A task waits until the delivery is settled.
    Awaited,
    /// A client has acknowledged the message, or the kernel has taken it.
    Confirmed,
    /// A copy of a message for which another node answers.
    NodeCopy,
}

impl DeliveryMark {
    const fn field(self) -> BitField64 {
        match self {
            DeliveryMark::Delivered => DELIVERED,
            DeliveryMark::Delayed => DELAYED,
            DeliveryMark::Requested => REQUESTED,
            DeliveryMark::ServerAnswer => SERVER_ANSWER,
            DeliveryMark::Multicast => MULTICAST,
            DeliveryMark::Settled => SETTLED,
            DeliveryMark::Awaited => AWAITED,
            DeliveryMark::Confirmed => CONFIRMED,
            DeliveryMark::NodeCopy => NODE_COPY,
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

    const fn is_set(self, field: BitField64) -> bool {
        self.store_number().is_none() && field.is_set(self.0)
    }

    /// Whether the delivery is or was awaited.
    pub(crate) const fn is_tracked(self) -> bool {
        self.is_set(TRACKED)
    }

    /// Whether the delivery is tracked and not settled, so that a task may wait for it.
    pub(crate) const fn is_unsettled(self) -> bool {
        self.is_set(TRACKED) && !self.is_set(SETTLED)
    }

    /// Whether the offline store has the message, or is about to store it, while it is in a queue.
    pub(crate) const fn is_backed_up(self) -> bool {
        self.is_set(BACKED_UP)
    }

    /// Whether no session holds the backed-up message any more.
    pub(crate) const fn is_abandoned(self) -> bool {
        self.is_set(ABANDONED)
    }

    /// Milliseconds for which the delivery has not been settled, modulo 2^20; 0 if it is tracked since a moment after `now`,
    /// and also in the last [`MAX_CLOCK_LAG_MILLIS`] before the number wraps around.
    pub(crate) const fn unsettled_millis(self, now: u64) -> Option<u64> {
        if !self.is_unsettled() {
            return None;
        }
        let millis = now.wrapping_sub(TRACKED_SINCE.get(self.0)) & TRACKED_SINCE.max();
        // The caller may have read the clock before another task began to track this message.
        Some(if millis > TRACKED_SINCE.max() - MAX_CLOCK_LAG_MILLIS { 0 } else { millis })
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
        DeliveryState(self.0.load(Ordering::Acquire))
    }

    /// Sets a mark; no effect on a stored message. Returns the state before.
    pub(crate) fn set(&self, mark: DeliveryMark) -> DeliveryState {
        let before = self.load();
        if before.store_number().is_some() {
            return before;
        }
        DeliveryState(self.0.fetch_or(mark.field().mask(), Ordering::AcqRel))
    }

    /// Begins to track the delivery; no effect on a stored message, or if it is tracked. True unless it is settled.
    pub(crate) fn track(&self, now: u64) -> bool {
        let tracked = TRACKED.mask() | TRACKED_SINCE.of(now);
        let begin = |state| (!TRACKED.is_set(state) && !STORED.is_set(state)).then_some(state | tracked);
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, begin);
        self.load().is_unsettled()
    }

    /// The offline store is about to store the message. False if it has or need not.
    pub(crate) fn begin_backup(&self) -> bool {
        let begin = |state| {
            let is_due = DeliveryState(state).is_unsettled() && !BACKED_UP.is_set(state);
            is_due.then_some(state | BACKED_UP.mask())
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, begin).is_ok()
    }

    /// The offline store does not have the message. True if no session has it either; otherwise it counts as not backed up.
    pub(crate) fn cancel_backup(&self) -> bool {
        let cancel = |state| {
            let cancels = DeliveryState(state).is_backed_up() && !ABANDONED.is_set(state);
            cancels.then_some(state & !BACKED_UP.mask())
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, cancel).is_err()
            && self.load().is_abandoned()
    }

    /// The last session that held the message is gone. True if it is backed up, so that nothing is lost.
    pub(crate) fn abandon(&self) -> bool {
        let abandon = |state| {
            let is_kept = STORED.mask() & state == 0 && BACKED_UP.is_set(state);
            is_kept.then_some(state | ABANDONED.mask())
        };
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, abandon).is_ok()
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

    const MARKS: [DeliveryMark; 9] = [
        DeliveryMark::Delivered,
        DeliveryMark::Delayed,
        DeliveryMark::Requested,
        DeliveryMark::ServerAnswer,
        DeliveryMark::Multicast,
        DeliveryMark::Settled,
        DeliveryMark::Awaited,
        DeliveryMark::Confirmed,
        DeliveryMark::NodeCopy,
    ];

    #[test]
    fn each_mark_and_the_recipient_count_are_independent() {
        for set in MARKS {
            for sessions in [0, 1, 2, i32::MAX as usize] {
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
            for mark in MARKS {
                state.set(mark);
            }
            assert!(!state.track(7) && !state.begin_backup() && !state.cancel_backup() && !state.abandon());
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

    #[test]
    fn a_delivery_is_unsettled_from_tracking_to_settling_and_its_age_is_correct_across_the_wrap() {
        let wrap = 1 << 20;
        for (since, now, age) in
            [(5, 5, 0), (5, 105, 100), (wrap - 10, wrap + 10, 20), (3 * wrap, 3 * wrap + 7, 7), (9, 5, 0)]
        {
            let state = AtomicDeliveryState::new(DeliveryState::NEW);
            assert_eq!(state.load().unsettled_millis(now), None);
            assert!(state.track(since) && state.track(since + 1), "the first time counts");
            assert_eq!(state.load().unsettled_millis(now), Some(age), "{since} to {now}");
            state.set(DeliveryMark::Settled);
            assert_eq!((state.load().unsettled_millis(now), state.track(now)), (None, false));
        }
    }

    #[test]
    fn a_backup_begins_once_and_is_cancelled_unless_the_message_was_abandoned() {
        let tracked = || {
            let state = AtomicDeliveryState::new(DeliveryState::NEW);
            assert!(!state.begin_backup() && !state.abandon(), "not tracked");
            state.track(0);
            assert!(!state.abandon(), "a session that ends must reroute it");
            assert!(state.begin_backup() && !state.begin_backup());
            state
        };
        let kept = tracked();
        assert!(!kept.cancel_backup() && !kept.load().is_backed_up());
        assert!(kept.begin_backup(), "another attempt");
        let abandoned = tracked();
        assert!(abandoned.abandon() && abandoned.cancel_backup() && abandoned.load().is_backed_up());
        let settled = AtomicDeliveryState::new(DeliveryState::NEW);
        settled.track(0);
        settled.set(DeliveryMark::Settled);
        assert!(!settled.begin_backup());
    }
}
