//! How long delivery takes, by samples: from the moment at which a stanza was read to the moment at which the recipient's
//! connection has taken it.
//!
//! The first stanzas of each second are timed and every 64th after them, on each worker thread; of one stanza the first
//! copy that goes into a queue without leave to wait ([`super::Urgency::DeferredOutcome`]). A stanza that is not timed costs a
//! look at a thread's own variable; one that is costs two looks at the clock. The time sits in bits of the link that were
//! free, so nobody's session is larger for it.
//!
//! Left out: stanzas whose handlers wait for the store; those waits are in the histograms of the store. A line without a
//! connection is not timed either: how long a client is away is no property of the server.
//!
//! The trap: a queue has at most one sample at a time, and it is done when everything taken together with it was written.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::Outbox;
use super::outbox::class_index;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::shared_stanza::QueueClass;

/// Timed for sure in each second.
const ALWAYS_SAMPLED: u32 = 16;
/// Of those after the first, one in so many is timed.
const EVERY: u32 = 64;

#[derive(Clone, Copy)]
struct SamplerState {
    second: u32,
    count: u32,
    /// Microseconds of the clock at which the stanza that is under way was read; 0 if it is not timed.
    started: u64,
}

/// What is timed was taken out of the queue; it is not written yet.
const SAMPLE_DEQUEUED: u32 = 8;
/// Where the class of what is timed stands: two bits.
const SAMPLE_CLASS_SHIFT: u32 = 4;
/// Where the time stands at which it was read: microseconds that begin anew after 67 seconds, 0 for nothing.
const SAMPLE_TIME_SHIFT: u32 = 6;
/// Bits of that time.
const SAMPLE_TIME_MASK: u64 = (1 << (32 - SAMPLE_TIME_SHIFT)) - 1;
/// All bits of what is timed.
const SAMPLE_MASK: u32 = u32::MAX << 3;

thread_local! {
    static SAMPLE: Cell<SamplerState> = const { Cell::new(SamplerState { second: 0, count: 0, started: 0 }) };
}

/// A stanza was read; to be dropped when everything that it sets off at once is done.
pub(crate) struct LatencySample(());

impl LatencySample {
    pub(crate) fn begin(node: &Node) -> LatencySample {
        let mut sample = SAMPLE.get();
        let second = node.seconds();
        if sample.second != second {
            sample = SamplerState { second, count: 0, started: 0 };
        }
        sample.count = sample.count.wrapping_add(1);
        let timed = sample.count <= ALWAYS_SAMPLED || sample.count.is_multiple_of(EVERY);
        sample.started = if timed { node.clock.now_micros().max(1) } else { 0 };
        SAMPLE.set(sample);
        LatencySample(())
    }
}

impl Drop for LatencySample {
    fn drop(&mut self) {
        take_sample_start();
    }
}

/// When the stanza that is under way was read, if it is timed; only the first who asks gets it.
fn take_sample_start() -> Option<u64> {
    let sample = SAMPLE.get();
    if sample.started == 0 {
        return None;
    }
    SAMPLE.set(SamplerState { started: 0, ..sample });
    Some(sample.started)
}

impl Outbox {
    /// Whether something in the queue is timed.
    pub(super) fn has_sample(&self) -> bool {
        self.signals.load(Ordering::Acquire) >> SAMPLE_TIME_SHIFT != 0
    }
    /// It was taken out of the queue.
    pub(super) fn mark_sample_dequeued(&self) {
        self.signals.fetch_or(SAMPLE_DEQUEUED, Ordering::Relaxed);
    }
    /// Times the stanza that is under way on this thread, if it is a sample and nothing else in the queue is timed.
    pub(super) fn start_sample(&self, class: QueueClass, connected: bool) {
        let Some(started) = take_sample_start() else { return };
        if connected && self.signals.load(Ordering::Relaxed) >> SAMPLE_TIME_SHIFT == 0 {
            let started = ((started & SAMPLE_TIME_MASK) as u32).max(1);
            let timed = started << SAMPLE_TIME_SHIFT
                | u32::try_from(class_index(class)).unwrap_or(0) << SAMPLE_CLASS_SHIFT;
            self.signals.fetch_or(timed, Ordering::Release);
        }
    }
    /// What was timed, if it was taken out of the queue: its class, and when it was read (see [`Outbox::elapsed_micros`]). Once.
    fn dequeued_sample(&self) -> Option<(QueueClass, u64)> {
        if self.signals.load(Ordering::Relaxed) & SAMPLE_DEQUEUED == 0 {
            return None;
        }
        let signals = self.signals.fetch_and(!SAMPLE_MASK, Ordering::AcqRel);
        let class = match signals >> SAMPLE_CLASS_SHIFT & 3 {
            0 => QueueClass::Control,
            1 => QueueClass::Message,
            _ => QueueClass::Presence,
        };
        Some((class, u64::from(signals >> SAMPLE_TIME_SHIFT)))
    }
    /// Microseconds from such a time to now; right up to a minute, and whoever does not read is closed before that.
    const fn elapsed_micros(started: u64, now: u64) -> u64 {
        now.wrapping_sub(started) & SAMPLE_TIME_MASK
    }
    /// Forgets what is timed: the line has lost its connection.
    pub(super) fn discard_sample(&self) {
        self.signals.fetch_and(!SAMPLE_MASK, Ordering::Relaxed);
    }
}

impl Node {
    /// To be called when everything that was taken out of a link's queue is written.
    pub fn record_delivery(&self, link: &Outbox) {
        if let Some((class, started)) = link.dequeued_sample() {
            let span = Outbox::elapsed_micros(started, self.clock.now_micros());
            if let Some(histogram) = self.metrics.delivery.get(Metrics::class_index(class)) {
                histogram.record(span);
            }
        }
    }
}
