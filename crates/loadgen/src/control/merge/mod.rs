//! Merger of all workers' snapshots into one [`RunRecord`], second by second.
//!
//! Percentiles come from merged histograms, never from means of percentiles. The newest [`OPEN`] seconds keep their
//! histograms, so that a late worker still counts in the right second; older seconds keep only their metrics.
//!
//! # Pitfalls
//!
//! A gauge that a worker did not report in a second keeps its value; the gauges of a dead worker are 0.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::measure::{
    Counter, Gauge, SparseHistogram, Timing, TimingHistogram, TimingId, TimingSummary, WorkerSnapshot,
};
use crate::report::model::{CounterTotal, PhaseRun, RunRecord, SecondReport, TimingTotal};

/// Seconds that accept late snapshots.
const OPEN: usize = 30;
/// Maximum lines of the run's log.
const LOG: usize = 1_000;
/// Maximum number of distinct security descriptions.
const USED: usize = 64;
/// Seconds per mean, of which Tsung reports the highest and lowest.
const TEN: u32 = 10;

/// A second that may still change.
#[derive(Default)]
struct OpenSecond {
    counters: Vec<u64>,
    timings: BTreeMap<TimingId, SparseHistogram>,
    errors: BTreeMap<String, u64>,
    gauges: BTreeMap<u16, Vec<i64>>,
    cpu: BTreeMap<u16, u64>,
    keys: BTreeMap<u16, u64>,
    rss: BTreeMap<u16, u64>,
    changed: bool,
    summaries: BTreeMap<String, TimingSummary>,
}

#[derive(Default)]
struct MergedWorker {
    /// Values at the end of the newest closed second.
    gauges: Vec<i64>,
    rss: u64,
    /// Newest reported second.
    newest: Option<u32>,
    /// Second from which on it has no users.
    gone: Option<u32>,
    /// All its users had arrived when its newest snapshot began.
    arrived: bool,
}

/// Running total of a counter or error kind.
#[derive(Clone, Copy, Default)]
struct RunningTotal {
    total: u64,
    highest: u64,
}

/// Merger of a run's snapshots.
pub(crate) struct SnapshotMerger {
    /// Record so far. `seconds`, `phases`, `workers`, `log` and (after `refresh`) `totals` are maintained here.
    pub(crate) run: RunRecord,
    transactions: Vec<String>,
    phases: Vec<String>,
    open: BTreeMap<u32, OpenSecond>,
    /// Closed entries of `run.seconds`.
    closed: usize,
    workers: Vec<MergedWorker>,
    histograms: BTreeMap<TimingId, TimingHistogram>,
    /// Timings measured after all users had arrived.
    after_arrivals: BTreeMap<TimingId, TimingHistogram>,
    /// Sum and count of each ten seconds.
    tens: BTreeMap<TimingId, BTreeMap<u32, (f64, u64)>>,
    /// Highest value of closed seconds.
    highest_timing: BTreeMap<TimingId, u64>,
    counters: Vec<RunningTotal>,
    errors: BTreeMap<String, RunningTotal>,
    highest_gauges: Vec<i64>,
}

impl SnapshotMerger {
    /// Creates a merger for these transactions and phases; `run` contains `about` and the workers' names.
    pub(crate) fn new(run: RunRecord, transactions: Vec<String>, phases: Vec<String>) -> Self {
        let workers = run.workers.iter().map(|_| MergedWorker::default()).collect();
        Self {
            run,
            transactions,
            phases,
            open: BTreeMap::new(),
            closed: 0,
            workers,
            histograms: BTreeMap::new(),
            after_arrivals: BTreeMap::new(),
            tens: BTreeMap::new(),
            highest_timing: BTreeMap::new(),
            counters: vec![RunningTotal::default(); Counter::ALL.len()],
            errors: BTreeMap::new(),
            highest_gauges: vec![0; Gauge::ALL.len()],
        }
    }

    /// Appends a line to the run's log.
    pub(crate) fn log(&mut self, line: String) {
        if self.run.log.len() < LOG {
            self.run.log.push(line);
        }
    }

    /// Newest second reported by this worker.
    pub(crate) fn newest(&self, worker: u16) -> Option<u32> {
        self.workers.get(usize::from(worker))?.newest
    }

    /// Last reported gauge, summed over all workers.
    pub(crate) fn gauge(&self, gauge: Gauge) -> i64 {
        (0..self.workers.len()).map(|index| self.gauge_of(index, gauge)).sum()
    }

    /// Last reported gauge of one worker.
    pub(crate) fn gauge_of(&self, index: usize, gauge: Gauge) -> i64 {
        let Some(worker) = self.workers.get(index).filter(|w| w.gone.is_none()) else { return 0 };
        let newest = self.open.values().rev().find_map(|open| open.gauges.get(&(index as u16)));
        newest.unwrap_or(&worker.gauges).get(gauge as usize).copied().unwrap_or(0)
    }

    /// Last ten seconds combined, by name of the timing.
    pub(crate) fn recent(&self) -> BTreeMap<String, TimingSummary> {
        let mut merged: BTreeMap<TimingId, TimingHistogram> = BTreeMap::new();
        for open in self.open.values().rev().take(TEN as usize) {
            for (id, sparse) in &open.timings {
                merged.entry(*id).or_default().add(sparse);
            }
        }
        merged.iter().map(|(id, histogram)| (name(*id, &self.transactions), histogram.summary())).collect()
    }

    /// Adds to a counter that only the controller knows, in the newest second.
    pub(crate) fn count(&mut self, counter: Counter, count: u64, second: u32) {
        if count > 0 {
            let mut counters = vec![0; Counter::ALL.len()];
            counters[counter as usize] = count;
            self.merge(second, None, WorkerSnapshot { counters, ..WorkerSnapshot::default() });
        }
    }

    /// Merges a worker's snapshot. The caller has validated its second.
    pub(crate) fn add(&mut self, worker: u16, mut snapshot: WorkerSnapshot) {
        let index = usize::from(worker);
        let Some(state) = self.workers.get_mut(index) else { return };
        state.newest = state.newest.max(Some(snapshot.second));
        let over = !self.phases.is_empty() && usize::from(snapshot.phase) >= self.phases.len();
        if std::mem::replace(&mut state.arrived, over) && over {
            for (id, sparse) in &snapshot.timings {
                self.after_arrivals.entry(*id).or_default().add(sparse);
            }
        }
        let record = &mut self.run.workers[index];
        record.cpu += snapshot.cpu_us as f64 / 1e6;
        record.rss = record.rss.max(snapshot.rss);
        let users = snapshot.gauges.get(Gauge::Users as usize).copied().unwrap_or(0);
        record.users = record.users.max(u32::try_from(users).unwrap_or(0));
        for (protection, count) in std::mem::take(&mut snapshot.used) {
            // The kinds come from a worker: a broken one must not fill the report.
            let known = self.run.totals.used.len() < USED || self.run.totals.used.contains_key(&protection);
            let kind = if known { protection } else { "other".to_owned() };
            *self.run.totals.used.entry(kind).or_default() += count;
        }
        for line in std::mem::take(&mut snapshot.log) {
            self.log(line);
        }
        self.phase(snapshot.phase, snapshot.second);
        self.merge(snapshot.second, Some(worker), snapshot);
    }

    fn phase(&mut self, phase: u16, second: u32) {
        // Phases without a worker in them at the end of a second were shorter than one; they begin where the next does.
        while self.run.phases.len() <= usize::from(phase) {
            let Some(name) = self.phases.get(self.run.phases.len()) else { return };
            self.run.phases.push(PhaseRun { name: name.clone(), from: second });
        }
    }

    fn merge(&mut self, second: u32, worker: Option<u16>, snapshot: WorkerSnapshot) {
        for (sum, count) in self.counters.iter_mut().zip(&snapshot.counters) {
            sum.total += count;
        }
        for (kind, count) in &snapshot.errors {
            self.errors.entry(kind.clone()).or_default().total += count;
        }
        for (id, sparse) in &snapshot.timings {
            self.histograms.entry(*id).or_default().add(sparse);
            let ten = self.tens.entry(*id).or_default().entry(second / TEN).or_default();
            ten.0 += sparse.sum;
            ten.1 += sparse.buckets.iter().map(|(_, count)| u64::from(*count)).sum::<u64>();
        }
        let last_closed = self.closed.checked_sub(1).map(|at| self.run.seconds[at].at);
        if last_closed.is_some_and(|closed| second <= closed) {
            self.merge_late(second, &snapshot);
            return;
        }
        let open = self.open.entry(second).or_default();
        open.changed = true;
        open.counters.resize(Counter::ALL.len(), 0);
        for (sum, count) in open.counters.iter_mut().zip(&snapshot.counters) {
            *sum += count;
        }
        for (kind, count) in snapshot.errors {
            *open.errors.entry(kind).or_default() += count;
        }
        for (id, sparse) in snapshot.timings {
            join(open.timings.entry(id).or_default(), sparse);
        }
        if let Some(worker) = worker {
            open.gauges.insert(worker, snapshot.gauges);
            *open.cpu.entry(worker).or_default() += snapshot.cpu_us;
            *open.keys.entry(worker).or_default() += snapshot.keys_us;
            open.rss.insert(worker, snapshot.rss);
        }
    }

    /// Merges a late snapshot: counters and errors go to their second, timings to the totals only.
    fn merge_late(&mut self, second: u32, snapshot: &WorkerSnapshot) {
        let seconds = &mut self.run.seconds[..self.closed];
        let Ok(at) = seconds.binary_search_by_key(&second, |s| s.at) else { return };
        for (counter, count) in Counter::ALL.iter().zip(&snapshot.counters).filter(|(_, count)| **count > 0) {
            *seconds[at].counters.entry(counter.name().to_owned()).or_default() += count;
        }
        for (kind, count) in &snapshot.errors {
            *seconds[at].errors.entry(kind.clone()).or_default() += count;
        }
    }

    /// Records that a worker has no users from this second on: it died or sent its last report.
    pub(crate) fn worker_left(&mut self, worker: u16, second: u32) {
        if let Some(state) = self.workers.get_mut(usize::from(worker)) {
            state.gone = Some(second);
        }
    }

    /// Updates `run.seconds` and `run.totals`. `length` is the length of the run so far, in seconds.
    pub(crate) fn refresh(&mut self, length: f64) {
        while self.open.len() > OPEN {
            let Some((at, open)) = self.open.pop_first() else { break };
            self.close(at, open);
        }
        self.run.seconds.truncate(self.closed);
        let mut gauges: Vec<(Vec<i64>, u64)> =
            self.workers.iter().map(|w| (w.gauges.clone(), w.rss)).collect();
        for (&at, open) in &mut self.open {
            if std::mem::take(&mut open.changed) {
                open.summaries = summaries(&open.timings, &self.transactions);
            }
            self.run.seconds.push(second(at, open, &mut gauges, &self.workers));
        }
        self.totals(length);
    }

    fn close(&mut self, at: u32, mut open: OpenSecond) {
        if open.changed {
            open.summaries = summaries(&open.timings, &self.transactions);
        }
        let mut gauges: Vec<(Vec<i64>, u64)> =
            self.workers.iter_mut().map(|w| (std::mem::take(&mut w.gauges), w.rss)).collect();
        let done = second(at, &open, &mut gauges, &self.workers);
        for (worker, (gauges, rss)) in self.workers.iter_mut().zip(gauges) {
            worker.gauges = gauges;
            worker.rss = rss;
        }
        for (sum, count) in self.counters.iter_mut().zip(&open.counters) {
            sum.highest = sum.highest.max(*count);
        }
        for (kind, count) in &open.errors {
            let sum = self.errors.entry(kind.clone()).or_default();
            sum.highest = sum.highest.max(*count);
        }
        for (id, sparse) in &open.timings {
            let highest = self.highest_timing.entry(*id).or_default();
            *highest = (*highest).max(count(sparse));
        }
        highest_gauges(&mut self.highest_gauges, &done);
        self.run.seconds.truncate(self.closed);
        self.run.seconds.push(done);
        self.closed += 1;
    }

    fn totals(&mut self, length: f64) {
        let rate = |total: u64| if length > 0.0 { total as f64 / length } else { 0.0 };
        let totals = &mut self.run.totals;
        totals.counters.clear();
        for (index, counter) in Counter::ALL.iter().enumerate() {
            let RunningTotal { total, highest } = self.counters[index];
            if total > 0 {
                let open = self.open.values().filter_map(|o| o.counters.get(index)).max();
                let highest_rate = highest.max(open.copied().unwrap_or(0)) as f64;
                let value = CounterTotal { total, highest_rate, mean_rate: rate(total) };
                totals.counters.insert(counter.name().to_owned(), value);
            }
        }
        totals.errors.clear();
        for (kind, RunningTotal { total, highest }) in &self.errors {
            let open = self.open.values().filter_map(|o| o.errors.get(kind)).max();
            let highest_rate = (*highest).max(open.copied().unwrap_or(0)) as f64;
            let value = CounterTotal { total: *total, highest_rate, mean_rate: rate(*total) };
            totals.errors.insert(kind.clone(), value);
        }
        totals.timings.clear();
        for (id, histogram) in &self.histograms {
            let open = self.open.values().filter_map(|o| o.timings.get(id)).map(count).max();
            let highest = self.highest_timing.get(id).copied().max(open).unwrap_or(0);
            let means = self.tens.get(id).into_iter().flatten().map(|(_, (sum, count))| sum / *count as f64);
            let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
            for mean in means.filter(|mean| mean.is_finite()) {
                low = low.min(mean);
                high = high.max(mean);
            }
            let value = TimingTotal {
                summary: histogram.summary(),
                highest_10s: high,
                lowest_10s: if low.is_finite() { low } else { 0.0 },
                highest_rate: highest as f64,
                mean_rate: rate(histogram.count()),
                histogram: SparseHistogram::default(),
            };
            totals.timings.insert(name(*id, &self.transactions), value);
        }
        totals.after_arrivals = self
            .after_arrivals
            .iter()
            .map(|(id, histogram)| (name(*id, &self.transactions), histogram.summary()))
            .collect();
        let mut gauges = self.highest_gauges.clone();
        self.run.seconds[self.closed..].iter().for_each(|s| highest_gauges(&mut gauges, s));
        totals.gauges =
            Gauge::ALL.iter().zip(gauges).map(|(gauge, value)| (gauge.name().to_owned(), value)).collect();
    }

    /// The complete run, with its histograms.
    pub(crate) fn finish(mut self, length: f64) -> RunRecord {
        self.refresh(length);
        for (id, histogram) in &self.histograms {
            if let Some(total) = self.run.totals.timings.get_mut(&name(*id, &self.transactions)) {
                total.histogram = histogram.to_sparse();
            }
        }
        self.run.steps = crate::report::bosh_steps::steps(&self.run);
        self.run
    }
}

/// Name of a timing. Ids come from workers; an unknown one must not end the run.
fn name(id: TimingId, transactions: &[String]) -> String {
    let known = id.as_transaction().is_some() || usize::from(id.0) < Timing::ALL.len();
    if known { id.name(transactions) } else { "?".to_owned() }
}

fn count(sparse: &SparseHistogram) -> u64 {
    sparse.buckets.iter().map(|(_, count)| u64::from(*count)).sum()
}

fn summaries(
    timings: &BTreeMap<TimingId, SparseHistogram>,
    transactions: &[String],
) -> BTreeMap<String, TimingSummary> {
    let summary = |sparse: &SparseHistogram| {
        let mut histogram = TimingHistogram::new();
        histogram.add(sparse);
        histogram.summary()
    };
    timings.iter().map(|(id, sparse)| (name(*id, transactions), summary(sparse))).collect()
}

/// One second of the report. `gauges` are the values at its start and are updated to those at its end.
fn second(
    at: u32,
    open: &OpenSecond,
    gauges: &mut [(Vec<i64>, u64)],
    workers: &[MergedWorker],
) -> SecondReport {
    let mut sums = vec![0; Gauge::ALL.len()];
    let mut rss = 0;
    for (index, (known, resident)) in gauges.iter_mut().enumerate() {
        let id = index as u16;
        if let Some(new) = open.gauges.get(&id) {
            known.clone_from(new);
            *resident = open.rss.get(&id).copied().unwrap_or(*resident);
        }
        if workers[index].gone.is_some_and(|gone| at >= gone) {
            known.clear();
            *resident = 0;
        }
        for (sum, value) in sums.iter_mut().zip(known.iter()) {
            *sum += value;
        }
        rss += *resident;
    }
    // Key derivation threads are excluded: only the thread that users share must not be saturated.
    let loops = open.cpu.iter().map(|(id, cpu)| cpu.saturating_sub(open.keys.get(id).copied().unwrap_or(0)));
    let busiest = loops.max().unwrap_or(0);
    let counters = Counter::ALL.iter().zip(&open.counters).filter(|(_, count)| **count > 0);
    SecondReport {
        at,
        counters: counters.map(|(counter, count)| (counter.name().to_owned(), *count)).collect(),
        gauges: Gauge::ALL.iter().zip(sums).map(|(gauge, sum)| (gauge.name().to_owned(), sum)).collect(),
        timings: open.summaries.clone(),
        errors: open.errors.clone(),
        generator_cpu: open.cpu.values().sum::<u64>() as f64 / 1e6,
        busiest_cpu: busiest as f64 / 1e6,
        generator_rss: rss,
    }
}

fn highest_gauges(highest: &mut [i64], second: &SecondReport) {
    for (gauge, highest) in Gauge::ALL.iter().zip(highest) {
        *highest = (*highest).max(second.gauges.get(gauge.name()).copied().unwrap_or(0));
    }
}

/// Adds one sparse histogram to another; both are sorted.
fn join(into: &mut SparseHistogram, other: SparseHistogram) {
    into.sum += other.sum;
    into.squares += other.squares;
    if into.buckets.is_empty() {
        into.buckets = other.buckets;
        return;
    }
    let (mut left, mut right) =
        (std::mem::take(&mut into.buckets).into_iter().peekable(), other.buckets.into_iter().peekable());
    loop {
        let next = match (left.peek(), right.peek()) {
            (Some(a), Some(b)) if a.0 == b.0 => {
                let both = (a.0, a.1.saturating_add(b.1));
                left.next();
                right.next();
                Some(both)
            }
            (Some(a), Some(b)) if a.0 > b.0 => right.next(),
            (Some(_), _) => left.next(),
            (None, _) => right.next(),
        };
        let Some(next) = next else { return };
        into.buckets.push(next);
    }
}
