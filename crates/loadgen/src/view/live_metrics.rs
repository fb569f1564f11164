//! Lookups in a run in progress: the last complete second, percentiles of the last ten, totals.
//!
//! # Pitfalls
//!
//! The newest entry of `run.seconds` may be an incomplete second (a worker died in it); it has no rates yet.

use std::collections::BTreeMap;

use super::LiveContext;
use crate::measure::{Counter, Gauge, Timing, TimingSummary};
use crate::report::model::{RunRecord, SecondReport, ServerSample};
use crate::report::unit;

/// Lateness at p99 above which latencies include the generator's own queueing, as in the report. Microseconds.
pub(super) const LATE_US: u64 = 5_000;
/// CPU of one worker above which it is the bottleneck, in cores.
pub(super) const BUSY: f64 = 0.9;

/// State of a run in progress.
pub(super) struct LiveMetrics<'a> {
    pub(super) run: &'a RunRecord,
    pub(super) live: &'a LiveContext,
    /// Last complete second.
    pub(super) second: Option<&'a SecondReport>,
}

impl<'a> LiveMetrics<'a> {
    pub(super) fn new(run: &'a RunRecord, live: &'a LiveContext) -> Self {
        let is_complete = |second: &&SecondReport| f64::from(second.at) + 1.0 <= live.elapsed;
        let second = run.seconds.iter().rev().take(60).find(is_complete).or(run.seconds.last());
        Self { run, live, second }
    }

    /// Seconds since the end of the last complete second, if reports of workers are overdue.
    pub(super) fn seconds_without_reports(&self) -> Option<f64> {
        let end = self.second.map_or(0.0, |second| f64::from(second.at) + 1.0);
        // A report arrives half a second after its second, so the next one is not overdue before 2.5 s.
        Some(self.live.elapsed - end).filter(|seconds_without_reports| *seconds_without_reports > 2.5)
    }

    /// Rate in the last complete second.
    pub(super) fn rate(&self, counter: Counter) -> f64 {
        self.second.and_then(|second| second.counters.get(counter.name())).copied().unwrap_or(0) as f64
    }

    /// Mean rate over the last five seconds.
    pub(super) fn mean_rate(&self, counter: Counter) -> f64 {
        let Some(newest) = self.second else { return 0.0 };
        let seconds = f64::from(newest.at).min(4.0) + 1.0;
        let recent =
            self.run.seconds.iter().rev().filter(|s| s.at <= newest.at).take_while(|s| s.at + 5 > newest.at);
        recent.filter_map(|second| second.counters.get(counter.name())).sum::<u64>() as f64 / seconds
    }

    /// Value at the end of the last complete second.
    pub(super) fn gauge(&self, gauge: Gauge) -> u64 {
        let value = self.second.and_then(|second| second.gauges.get(gauge.name())).copied();
        u64::try_from(value.unwrap_or(0)).unwrap_or(0)
    }

    /// Total so far.
    pub(super) fn total(&self, counter: Counter) -> u64 {
        self.run.totals.counters.get(counter.name()).map_or(0, |total| total.total)
    }

    /// Percentiles of the last ten seconds; of one second if no merged histograms are given.
    pub(super) fn recent(&self, name: &str) -> Option<TimingSummary> {
        let timings: Option<&BTreeMap<String, TimingSummary>> = if self.live.recent.is_empty() {
            self.second.map(|s| &s.timings)
        } else {
            Some(&self.live.recent)
        };
        timings?.get(name).copied().filter(|summary| summary.count > 0)
    }

    /// Generator lateness at p99, in microseconds.
    pub(super) fn lateness(&self) -> Option<u64> {
        self.recent(Timing::Lateness.name()).map(|summary| summary.p99)
    }

    /// CPU of the busiest worker in the last complete second, in cores.
    pub(super) fn busiest(&self) -> f64 {
        self.second.map_or(0.0, |second| second.busiest_cpu)
    }

    /// Latest sample of the server.
    pub(super) fn server(&self) -> Option<ServerSample> {
        self.run.server.last().copied()
    }

    /// Errors by kind, the most frequent first, and their total.
    pub(super) fn errors(&self) -> (Vec<(&'a str, u64)>, u64) {
        let errors = self.run.totals.errors.iter();
        let mut kinds: Vec<_> =
            errors.map(|(kind, e)| (kind.as_str(), e.total)).filter(|e| e.1 > 0).collect();
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.1));
        let all = kinds.iter().map(|kind| kind.1).sum();
        (kinds, all)
    }

    /// Warnings of the view while their condition holds, whether or not the report will have them.
    pub(super) fn limits(&self) -> Vec<String> {
        let mut limits = Vec::new();
        if let Some(late) = self.lateness().filter(|late| *late > LATE_US) {
            let late = unit::time(late as f64);
            limits.push(format!("The generator is late: {late} at p99; latencies include its own queueing"));
        }
        if self.busiest() > BUSY {
            let busy = unit::digits(self.busiest() * 100.0);
            limits.push(format!(
                "A worker uses {busy} % of its core; it may be the bottleneck, not the server"
            ));
        }
        if let Some(seconds_without_reports) = self.seconds_without_reports() {
            limits.push(format!(
                "No report from the workers for {} s; rates are older than that",
                seconds_without_reports as u64
            ));
        }
        limits
    }

    /// One value for each of the last sixty complete seconds.
    pub(super) fn minute(&self, value: impl Fn(&SecondReport) -> Option<f64>) -> Vec<Option<f64>> {
        let Some(newest) = self.second else { return Vec::new() };
        let first = newest.at.saturating_sub(59);
        let mut values = vec![None; (newest.at - first) as usize + 1];
        for second in
            self.run.seconds.iter().rev().filter(|s| s.at <= newest.at).take_while(|s| s.at >= first)
        {
            values[(second.at - first) as usize] = value(second);
        }
        values
    }
}
