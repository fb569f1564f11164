//! Sampled delivery latency: from reading a stanza to having written it to the recipient's connection.
//!
//! On each worker thread, the first stanzas of each second are sampled, and every 64th after them. Of a sampled
//! stanza, the first copy that is queued without permission to be delayed ([`super::Urgency::Now`]) counts. An
//! unsampled stanza costs one read of a thread-local variable, a sampled one two reads of the clock. The time
//! is stored in the outbox's signals (`signals.rs`), so that no session grows.
//!
//! Not implemented: stanzas whose handlers wait for the store; the store's histograms contain those waits.
//! Detached sessions are not sampled, because the absence of a client is not a property of the server.
//!
//! # Pitfalls
//!
//! A queue has at most one sample at a time, which ends when the whole batch dequeued with it was written.

use std::cell::Cell;

use base::clock::Clock;

use super::Outbox;
use super::signals::{DeliverySample, SampleTime};
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

thread_local! {
    static SAMPLE: Cell<SamplerState> = const { Cell::new(SamplerState { second: 0, count: 0, started: 0 }) };
}

/// Sample scope of a stanza that was read; must be dropped after its synchronous handling.
pub struct LatencySample(());

impl LatencySample {
    /// Starts the handling of a stanza. `second` is that of the node's clock, cached.
    #[inline]
    pub fn begin(second: u32, clock: &dyn Clock) -> LatencySample {
        let mut sample = SAMPLE.get();
        if sample.second != second {
            sample = SamplerState { second, count: 0, started: 0 };
        }
        sample.count = sample.count.wrapping_add(1);
        let timed = sample.count <= ALWAYS_SAMPLED || sample.count.is_multiple_of(EVERY);
        sample.started = if timed { clock.now_micros().max(1) } else { 0 };
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
    /// Starts a sample with the current stanza of this thread, if it is sampled and the queue has no other
    /// sample.
    pub(super) fn start_sample(&self, class: QueueClass, connected: bool) {
        let Some(started) = take_sample_start() else { return };
        if connected {
            self.signals.start_sample(DeliverySample { class, read_at: SampleTime::of(started) });
        }
    }

    /// Must be called when everything that was dequeued is written. Returns the class of the sampled stanza and its
    /// latency in microseconds, if the queue has a sample.
    #[inline]
    pub fn take_delivery_latency(&self, clock: &dyn Clock) -> Option<(QueueClass, u64)> {
        let sample = self.signals.take_dequeued_sample()?;
        Some((sample.class, sample.read_at.micros_until(clock.now_micros())))
    }
}
