//! How long delivery takes, by samples: from the moment at which a stanza was read to the moment at which the recipient's
//! connection has taken it.
//!
//! The first stanzas of each second are timed and every 64th after them, on each worker thread; of one stanza the first
//! copy that goes into a queue without leave to wait ([`super::Urgency::Later`]). A stanza that is not timed costs a
//! look at a thread's own variable; one that is costs two looks at the clock. The time sits in bits of the link that were
//! free, so nobody's session is larger for it.
//!
//! Left out: stanzas whose handlers wait for the store; those waits are in the histograms of the store. A line without a
//! connection is not timed either: how long a client is away is no property of the server.
//!
//! The trap: a queue has at most one sample at a time, and it is done when everything taken together with it was written.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::Link;
use super::link::slot;
use crate::frame::Class;
use crate::metrics::Metrics;
use crate::node::Node;

/// Timed for sure in each second.
const FIRST: u32 = 16;
/// Of those after the first, one in so many is timed.
const EVERY: u32 = 64;

#[derive(Clone, Copy)]
struct Sample {
    second: u32,
    count: u32,
    /// Microseconds of the clock at which the stanza that is under way was read; 0 if it is not timed.
    started: u64,
}

/// What is timed was taken out of the queue; it is not written yet.
const TAKEN: u32 = 8;
/// Where the class of what is timed stands: two bits.
const TIMED_CLASS: u32 = 4;
/// Where the time stands at which it was read: microseconds that begin anew after 67 seconds, 0 for nothing.
const TIMED: u32 = 6;
/// Bits of that time.
const TIMED_BITS: u64 = (1 << (32 - TIMED)) - 1;
/// All bits of what is timed.
const TIMED_MASK: u32 = u32::MAX << 3;

thread_local! {
    static SAMPLE: Cell<Sample> = const { Cell::new(Sample { second: 0, count: 0, started: 0 }) };
}

/// A stanza was read; to be dropped when everything that it sets off at once is done.
pub(crate) struct Reading(());

impl Reading {
    pub(crate) fn begin(node: &Node) -> Reading {
        let mut sample = SAMPLE.get();
        let second = node.seconds();
        if sample.second != second {
            sample = Sample { second, count: 0, started: 0 };
        }
        sample.count = sample.count.wrapping_add(1);
        let timed = sample.count <= FIRST || sample.count.is_multiple_of(EVERY);
        sample.started = if timed { node.clock.micros().max(1) } else { 0 };
        SAMPLE.set(sample);
        Reading(())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        take();
    }
}

/// When the stanza that is under way was read, if it is timed; only the first who asks gets it.
fn take() -> Option<u64> {
    let sample = SAMPLE.get();
    if sample.started == 0 {
        return None;
    }
    SAMPLE.set(Sample { started: 0, ..sample });
    Some(sample.started)
}

impl Link {
    /// Whether something in the queue is timed.
    pub(super) fn is_timed(&self) -> bool {
        self.signals.load(Ordering::Acquire) >> TIMED != 0
    }
    /// It was taken out of the queue.
    pub(super) fn timed_is_taken(&self) {
        self.signals.fetch_or(TAKEN, Ordering::Relaxed);
    }
    /// Times the stanza that is under way on this thread, if it is a sample and nothing else in the queue is timed.
    pub(super) fn time(&self, class: Class, connected: bool) {
        let Some(started) = take() else { return };
        if connected && self.signals.load(Ordering::Relaxed) >> TIMED == 0 {
            let started = ((started & TIMED_BITS) as u32).max(1);
            let timed = started << TIMED | u32::try_from(slot(class)).unwrap_or(0) << TIMED_CLASS;
            self.signals.fetch_or(timed, Ordering::Release);
        }
    }
    /// What was timed, if it was taken out of the queue: its class, and when it was read (see [`Link::span`]). Once.
    fn timed(&self) -> Option<(Class, u64)> {
        if self.signals.load(Ordering::Relaxed) & TAKEN == 0 {
            return None;
        }
        let signals = self.signals.fetch_and(!TIMED_MASK, Ordering::AcqRel);
        let class = match signals >> TIMED_CLASS & 3 {
            0 => Class::Control,
            1 => Class::Message,
            _ => Class::Presence,
        };
        Some((class, u64::from(signals >> TIMED)))
    }
    /// Microseconds from such a time to now; right up to a minute, and whoever does not read is closed before that.
    const fn span(started: u64, now: u64) -> u64 {
        now.wrapping_sub(started) & TIMED_BITS
    }
    /// Forgets what is timed: the line has lost its connection.
    pub(super) fn untime(&self) {
        self.signals.fetch_and(!TIMED_MASK, Ordering::Relaxed);
    }
}

impl Node {
    /// To be called when everything that was taken out of a link's queue is written.
    pub fn written(&self, link: &Link) {
        if let Some((class, started)) = link.timed() {
            let span = Link::span(started, self.clock.micros());
            if let Some(histogram) = self.metrics.delivery.get(Metrics::class(class)) {
                histogram.record(span);
            }
        }
    }
}
