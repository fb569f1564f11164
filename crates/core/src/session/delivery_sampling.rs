//! Sampled delivery latency: from reading a stanza to having written it to the recipient's connection.
//!
//! On each worker thread, the first stanzas of each second are sampled, and every 64th after them. Of a sampled
//! stanza, the first copy that is queued without permission to be delayed ([`super::Urgency::Now`]) counts. An
//! unsampled stanza costs one read of a thread-local variable, a sampled one two reads of the clock. The time
//! is stored in unused bits of the outbox, so that no session grows.
//!
//! Not implemented: stanzas whose handlers wait for the store; the store's histograms contain those waits.
//! Detached sessions are not sampled, because the absence of a client is not a property of the server.
//!
//! # Pitfalls
//!
//! A queue has at most one sample at a time, which ends when the whole batch dequeued with it was written.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::Outbox;
use super::outbox::class_index;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::shared_stanza::QueueClass;

/// Number of stanzas that are always sampled in each second.
const ALWAYS_SAMPLED: u32 = 16;
/// Of the stanzas after these, one in `EVERY` is sampled.
const EVERY: u32 = 64;

#[derive(Clone, Copy)]
struct SamplerState {
    second: u32,
    count: u32,
    /// Clock time in microseconds at which the current stanza was read; 0 if it is not sampled.
    started: u64,
}

/// The sampled stanza was dequeued but is not yet written.
const SAMPLE_DEQUEUED: u32 = 8;
/// Shift of the class of the sample: two bits.
const SAMPLE_CLASS_SHIFT: u32 = 4;
/// Shift of the time at which it was read: microseconds that wrap after 67 seconds; 0 for no sample.
const SAMPLE_TIME_SHIFT: u32 = 6;
/// Mask of that time.
const SAMPLE_TIME_MASK: u64 = (1 << (32 - SAMPLE_TIME_SHIFT)) - 1;
/// All bits of a sample.
const SAMPLE_MASK: u32 = u32::MAX << 3;

thread_local! {
    static SAMPLE: Cell<SamplerState> = const { Cell::new(SamplerState { second: 0, count: 0, started: 0 }) };
}

/// Sample scope of a stanza that was read; must be dropped after its synchronous handling.
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

/// Time at which the current stanza was read, if it is sampled; only for the first caller.
fn take_sample_start() -> Option<u64> {
    let sample = SAMPLE.get();
    if sample.started == 0 {
        return None;
    }
    SAMPLE.set(SamplerState { started: 0, ..sample });
    Some(sample.started)
}

impl Outbox {
    /// Whether the queue contains a sample.
    pub(super) fn has_sample(&self) -> bool {
        self.signals.load(Ordering::Acquire) >> SAMPLE_TIME_SHIFT != 0
    }
    /// Marks the sample as dequeued.
    pub(super) fn mark_sample_dequeued(&self) {
        self.signals.fetch_or(SAMPLE_DEQUEUED, Ordering::Relaxed);
    }
    /// Starts a sample with the current stanza of this thread, if it is sampled and the queue has no other
    /// sample.
    pub(super) fn start_sample(&self, class: QueueClass, connected: bool) {
        let Some(started) = take_sample_start() else { return };
        if connected && self.signals.load(Ordering::Relaxed) >> SAMPLE_TIME_SHIFT == 0 {
            let started = ((started & SAMPLE_TIME_MASK) as u32).max(1);
            let timed = started << SAMPLE_TIME_SHIFT
                | u32::try_from(class_index(class)).unwrap_or(0) << SAMPLE_CLASS_SHIFT;
            self.signals.fetch_or(timed, Ordering::Release);
        }
    }
    /// Removes a dequeued sample: its class and the time at which it was read (see [`Outbox::elapsed_micros`]).
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
    /// Microseconds from such a time to now. Correct up to a minute; a client that does not read is closed
    /// earlier.
    const fn elapsed_micros(started: u64, now: u64) -> u64 {
        now.wrapping_sub(started) & SAMPLE_TIME_MASK
    }
    /// Discards the sample, because the connection was lost.
    pub(super) fn discard_sample(&self) {
        self.signals.fetch_and(!SAMPLE_MASK, Ordering::Relaxed);
    }
}

impl Node {
    /// Must be called when everything that was dequeued from an outbox is written.
    pub fn record_delivery(&self, link: &Outbox) {
        if let Some((class, started)) = link.dequeued_sample() {
            let span = Outbox::elapsed_micros(started, self.clock.now_micros());
            if let Some(histogram) = self.metrics.delivery.get(Metrics::class_index(class)) {
                histogram.record(span);
            }
        }
    }
}
