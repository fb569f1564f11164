//! How long delivery takes, by samples: from the moment at which a stanza was read to the moment at which the recipient's
//! connection has taken it.
//!
//! The first stanzas of each second are timed and every 64th after them, on each worker thread; of one stanza the first
//! copy that goes into a queue without leave to wait ([`crate::session::Urgency::Later`]). A stanza that is not timed costs a
//! look at a thread's own variable; one that is costs two looks at the clock. The time sits in bits of the link that were
//! free, so nobody's session is larger for it.
//!
//! Left out: stanzas whose handlers wait for the store; those waits are in the histograms of the store. A line without a
//! connection is not timed either: how long a client is away is no property of the server.
//!
//! The trap: a queue has at most one sample at a time, and it is done when everything taken together with it was written.

use std::cell::Cell;

use super::Metrics;
use crate::node::Node;
use crate::session::Link;

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
pub(crate) fn take() -> Option<u64> {
    let sample = SAMPLE.get();
    if sample.started == 0 {
        return None;
    }
    SAMPLE.set(Sample { started: 0, ..sample });
    Some(sample.started)
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
