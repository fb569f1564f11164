//! Signals of an outbox, packed into one word: requests of other tasks, and the delivery sample of one stanza.
//!
//! The task of a connection reads the word on every wake-up without taking the outbox's lock. The sample is
//! stored in the bits that the requests leave free, so that no session grows.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::bit_field::BitField32;
use crate::shared_stanza::QueueClass;

const DEADLINE_ELAPSED: BitField32 = BitField32::lowest(1);
const TAKEOVER_REQUESTED: BitField32 = DEADLINE_ELAPSED.then(1);
const INFO_REQUESTED: BitField32 = TAKEOVER_REQUESTED.then(1);
/// The sampled stanza was dequeued but is not yet written.
const SAMPLE_DEQUEUED: BitField32 = INFO_REQUESTED.then(1);
/// Class of the sampled stanza: an index into [`QueueClass::ALL`].
const SAMPLE_CLASS: BitField32 = SAMPLE_DEQUEUED.then(2);
/// [`SampleTime`] at which the sampled stanza was read; 0 without a sample.
const SAMPLE_TIME: BitField32 = SAMPLE_CLASS.then(26);

/// All bits of a sample.
const SAMPLE: u32 = SAMPLE_DEQUEUED.mask() | SAMPLE_CLASS.mask() | SAMPLE_TIME.mask();

const _: () = assert!(SAMPLE_TIME.is_last(), "the fields fill the word");
const _: () = assert!(QueueClass::ALL.len() - 1 <= SAMPLE_CLASS.max() as usize, "each class has a value");
const _: () = assert!(SAMPLE_TIME.max() > 60_000_000, "a sample may last a minute, in microseconds");
const _: () = assert!(size_of::<OutboxSignals>() == 4, "an outbox holds one word");

/// A request of another task to the task of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// The deadline elapsed.
    DeadlineElapsed,
    /// Another connection requests the takeover.
    TakeoverRequested,
    /// The connection must report its session info.
    InfoRequested,
}

impl Signal {
    const fn mask(self) -> u32 {
        match self {
            Signal::DeadlineElapsed => DEADLINE_ELAPSED.mask(),
            Signal::TakeoverRequested => TAKEOVER_REQUESTED.mask(),
            Signal::InfoRequested => INFO_REQUESTED.mask(),
        }
    }
}

/// Time of the node's clock in microseconds, modulo 2^26: it wraps after 67 seconds. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampleTime(u32);

impl SampleTime {
    /// The time of a clock in microseconds.
    #[allow(clippy::cast_possible_truncation, reason = "the mask leaves 26 bits")]
    pub(super) const fn of(micros: u64) -> SampleTime {
        let wrapped = (micros & SAMPLE_TIME.max() as u64) as u32;
        SampleTime(if wrapped == 0 { 1 } else { wrapped })
    }

    /// Microseconds from this time to `now`. Correct up to a minute; a client that does not read is closed
    /// earlier.
    pub(super) const fn micros_until(self, now: u64) -> u64 {
        now.wrapping_sub(self.0 as u64) & SAMPLE_TIME.max() as u64
    }
}

/// The sampled stanza of an outbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeliverySample {
    /// Queue class of the stanza.
    pub(super) class: QueueClass,
    /// Time at which it was read from its sender.
    pub(super) read_at: SampleTime,
}

/// Value of [`OutboxSignals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SignalWord(u32);

impl SignalWord {
    /// A word that contains nothing but this sample.
    const fn with_sample(sample: DeliverySample) -> SignalWord {
        SignalWord(SAMPLE_CLASS.of(sample.class as u32) | SAMPLE_TIME.of(sample.read_at.0))
    }

    const fn has(self, signal: Signal) -> bool {
        self.0 & signal.mask() != 0
    }

    const fn is_sample_dequeued(self) -> bool {
        SAMPLE_DEQUEUED.is_set(self.0)
    }

    fn sample(self) -> Option<DeliverySample> {
        let read_at = SAMPLE_TIME.get(self.0);
        let class = *QueueClass::ALL.get(SAMPLE_CLASS.get(self.0) as usize)?;
        (read_at != 0).then_some(DeliverySample { class, read_at: SampleTime(read_at) })
    }
}

/// Signals and delivery sample of one outbox.
#[derive(Default)]
pub(super) struct OutboxSignals(AtomicU32);

impl OutboxSignals {
    fn load(&self, ordering: Ordering) -> SignalWord {
        SignalWord(self.0.load(ordering))
    }

    /// Raises a signal. The caller must wake the task.
    pub(super) fn raise(&self, signal: Signal) {
        self.0.fetch_or(signal.mask(), Ordering::Release);
    }

    /// Whether the signal is raised.
    pub(super) fn is_raised(&self, signal: Signal) -> bool {
        self.load(Ordering::Acquire).has(signal)
    }

    /// Clears a signal; true if it was raised. Without the signal, this costs one load.
    pub(super) fn take(&self, signal: Signal) -> bool {
        self.is_raised(signal) && SignalWord(self.0.fetch_and(!signal.mask(), Ordering::AcqRel)).has(signal)
    }

    /// Whether there is a sample.
    pub(super) fn has_sample(&self) -> bool {
        SAMPLE_TIME.is_set(self.load(Ordering::Acquire).0)
    }

    /// Stores a sample; the caller must hold the lock of the outbox. No effect if there is one.
    pub(super) fn start_sample(&self, sample: DeliverySample) {
        if !SAMPLE_TIME.is_set(self.load(Ordering::Relaxed).0) {
            self.0.fetch_or(SignalWord::with_sample(sample).0, Ordering::Release);
        }
    }

    /// Marks the sample as dequeued.
    pub(super) fn mark_sample_dequeued(&self) {
        self.0.fetch_or(SAMPLE_DEQUEUED.mask(), Ordering::Relaxed);
    }

    /// Removes a sample that was dequeued.
    pub(super) fn take_dequeued_sample(&self) -> Option<DeliverySample> {
        if !self.load(Ordering::Relaxed).is_sample_dequeued() {
            return None;
        }
        SignalWord(self.0.fetch_and(!SAMPLE, Ordering::AcqRel)).sample()
    }

    /// Removes the sample.
    pub(super) fn discard_sample(&self) {
        self.0.fetch_and(!SAMPLE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNALS: [Signal; 3] = [Signal::DeadlineElapsed, Signal::TakeoverRequested, Signal::InfoRequested];

    #[test]
    fn each_signal_is_taken_once_and_preserves_the_others() {
        let signals = OutboxSignals::default();
        for raised in SIGNALS {
            signals.raise(raised);
            for signal in SIGNALS {
                assert_eq!(signals.is_raised(signal), signal == raised, "{signal:?} {raised:?}");
            }
            assert!(!signals.has_sample());
            assert!(signals.take(raised) && !signals.take(raised));
        }
        SIGNALS.into_iter().for_each(|signal| signals.raise(signal));
        assert!(signals.take(Signal::TakeoverRequested));
        assert!(signals.is_raised(Signal::DeadlineElapsed) && signals.is_raised(Signal::InfoRequested));
    }

    #[test]
    fn a_sample_is_read_back_with_its_class_and_time_beside_all_signals() {
        for class in QueueClass::ALL {
            for micros in [1, 63, 1 << 25, (1 << 26) - 1, (1 << 26) + 5, u64::MAX] {
                let sample = DeliverySample { class, read_at: SampleTime::of(micros) };
                let signals = OutboxSignals::default();
                SIGNALS.into_iter().for_each(|signal| signals.raise(signal));
                signals.start_sample(sample);
                assert!(signals.has_sample());
                assert_eq!(signals.take_dequeued_sample(), None, "it is still in the queue");
                signals.start_sample(DeliverySample { class, read_at: SampleTime::of(7) });
                signals.mark_sample_dequeued();
                assert_eq!(signals.take_dequeued_sample(), Some(sample), "{class:?} {micros}");
                assert!(!signals.has_sample() && SIGNALS.into_iter().all(|signal| signals.take(signal)));
                assert_eq!(signals.load(Ordering::Relaxed), SignalWord(0));
            }
        }
    }

    #[test]
    fn elapsed_time_is_correct_across_the_wrap() {
        let wrap = 1 << 26;
        for (read_at, now, elapsed) in
            [(5, 5, 0), (5, 905, 900), (wrap - 10, wrap + 10, 20), (3 * wrap + 1, 4 * wrap, wrap - 1)]
        {
            assert_eq!(SampleTime::of(read_at).micros_until(now), elapsed, "{read_at} to {now}");
        }
        assert_ne!(SampleTime::of(0), SampleTime(0), "0 means that there is no sample");
    }

    #[test]
    fn discarding_a_sample_preserves_the_signals() {
        let signals = OutboxSignals::default();
        signals.raise(Signal::InfoRequested);
        signals.start_sample(DeliverySample { class: QueueClass::Presence, read_at: SampleTime::of(9) });
        signals.mark_sample_dequeued();
        signals.discard_sample();
        assert_eq!((signals.has_sample(), signals.take_dequeued_sample()), (false, None));
        assert!(signals.is_raised(Signal::InfoRequested));
    }
}
