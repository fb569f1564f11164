//! Measurements: timings as HDR histograms, counters, gauges and errors by kind, collected each second.
//!
//! A worker records into [`WorkerRecorder`] and takes a [`WorkerSnapshot`] each second; the controller merges snapshots
//! of all workers. Timings are in microseconds, from the moment something was *due* to the moment its answer was read
//! from the socket. The memory of a run grows with seconds and kinds of timings, never with users.
//!
//! Not implemented: raw samples.

mod histogram;
mod name;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use histogram::{SparseHistogram, TimingHistogram, TimingSummary};
pub use name::{Counter, Gauge, Timing};

/// Number of a timing: a fixed [`Timing`], or a transaction of the plan after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimingId(pub u16);

impl TimingId {
    /// Id of a transaction.
    pub fn transaction(index: u16) -> Self {
        Self(Timing::ALL.len() as u16 + index)
    }

    /// Index of the transaction, if it is one.
    pub fn as_transaction(self) -> Option<u16> {
        self.0.checked_sub(Timing::ALL.len() as u16)
    }

    /// Name; transactions are `tr:<name>`.
    pub fn name(self, transactions: &[String]) -> String {
        match self.as_transaction() {
            Some(index) => {
                format!("tr:{}", transactions.get(usize::from(index)).map_or("?", String::as_str))
            }
            None => Timing::ALL[usize::from(self.0)].name().to_owned(),
        }
    }
}

impl From<Timing> for TimingId {
    fn from(timing: Timing) -> Self {
        Self(timing as u16)
    }
}

/// Maximum number of distinct error kinds; further ones are counted together as `other`.
pub const MAX_ERROR_KINDS: usize = 64;

/// Measurements of one worker in one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerSnapshot {
    /// Second of the run, from 0; covers `second .. second + 1`.
    pub second: u32,
    /// Increments of each [`Counter`] in this second, in their order.
    pub counters: Vec<u64>,
    /// Value of each [`Gauge`] at the end of the second, in their order.
    pub gauges: Vec<i64>,
    /// Histograms of this second.
    pub timings: Vec<(TimingId, SparseHistogram)>,
    /// Errors of this second by kind.
    pub errors: Vec<(String, u64)>,
    /// Logins of this second by protection and mechanism.
    #[serde(default)]
    pub used: Vec<(String, u64)>,
    /// Users of this worker that came online or went offline in this second: (index, online).
    pub online: Vec<(u32, bool)>,
    /// Current phase of the worker.
    pub phase: u16,
    /// CPU of the worker in this second, in microseconds.
    pub cpu_us: u64,
    /// The part of it used by threads for key derivation.
    #[serde(default)]
    pub keys_us: u64,
    /// Resident memory of the worker in bytes.
    pub rss: u64,
    /// Lines for the log of the run, at most 100.
    pub log: Vec<String>,
}

/// Recorder of one worker.
pub struct WorkerRecorder {
    counters: Vec<u64>,
    gauges: Vec<i64>,
    timings: Vec<Option<TimingHistogram>>,
    errors: BTreeMap<String, u64>,
    used: BTreeMap<String, u64>,
    log: Vec<String>,
}

impl WorkerRecorder {
    /// Creates a recorder for a plan with this number of transactions.
    pub fn new(transactions: usize) -> Self {
        Self {
            counters: vec![0; Counter::ALL.len()],
            gauges: vec![0; Gauge::ALL.len()],
            timings: (0..Timing::ALL.len() + transactions).map(|_| None).collect(),
            errors: BTreeMap::new(),
            used: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    /// Records a timing in microseconds.
    #[inline]
    pub fn time(&mut self, id: impl Into<TimingId>, us: u64) {
        if let Some(slot) = self.timings.get_mut(usize::from(id.into().0)) {
            slot.get_or_insert_with(TimingHistogram::new).record(us);
        }
    }

    /// Adds to a counter.
    #[inline]
    pub fn add(&mut self, counter: Counter, count: u64) {
        self.counters[counter as usize] += count;
    }

    /// Changes a gauge by `by`.
    #[inline]
    pub fn adjust_gauge(&mut self, gauge: Gauge, by: i64) {
        self.gauges[gauge as usize] += by;
    }

    /// Sets a gauge.
    pub fn set(&mut self, gauge: Gauge, value: i64) {
        self.gauges[gauge as usize] = value;
    }

    /// Current value of a gauge.
    pub fn gauge(&self, gauge: Gauge) -> i64 {
        self.gauges[gauge as usize]
    }

    /// Counts an error.
    pub fn error(&mut self, kind: &str) {
        if let Some(count) = self.errors.get_mut(kind) {
            *count += 1;
        } else if self.errors.len() < MAX_ERROR_KINDS {
            self.errors.insert(kind.to_owned(), 1);
        } else {
            *self.errors.entry("other".to_owned()).or_default() += 1;
        }
    }

    /// Counts a login by its protection. There are few values: kinds of TLS times mechanisms.
    pub fn used(&mut self, protection: &str) {
        if let Some(count) = self.used.get_mut(protection) {
            *count += 1;
        } else {
            self.used.insert(protection.to_owned(), 1);
        }
    }

    /// Adds a line to the log of the run, within its limit.
    pub fn log(&mut self, line: impl FnOnce() -> String) {
        if self.log.len() < 100 {
            self.log.push(line());
        }
    }

    /// Takes everything recorded since the last call. Gauges are kept.
    pub fn take(&mut self, second: u32) -> WorkerSnapshot {
        let mut timings = Vec::new();
        for (index, slot) in self.timings.iter_mut().enumerate() {
            if let Some(histogram) = slot
                && histogram.count() > 0
            {
                timings.push((TimingId(index as u16), histogram.to_sparse()));
                histogram.reset();
            }
        }
        WorkerSnapshot {
            second,
            counters: self.counters.iter_mut().map(std::mem::take).collect(),
            gauges: self.gauges.clone(),
            timings,
            errors: std::mem::take(&mut self.errors).into_iter().collect(),
            used: std::mem::take(&mut self.used).into_iter().collect(),
            log: std::mem::take(&mut self.log),
            ..WorkerSnapshot::default()
        }
    }
}
