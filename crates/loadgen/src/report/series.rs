//! Curves of a run: values per second, reduced to the number of points that a chart can show.
//!
//! A run of hours has more seconds than a chart has pixels. Seconds are grouped into steps of equal length; each step
//! keeps its lowest and highest value beside its mean, so that no peak is lost. For latencies the line itself is the
//! maximum.
//!
//! # Pitfalls
//!
//! A second without an entry is zero for counters and unknown for everything else.

use super::model::{RunRecord, SecondReport};
use crate::measure::{Counter, Gauge, Timing, TimingSummary};

/// Maximum number of steps in a chart.
pub(super) const MOST_STEPS: u32 = 480;

/// One step of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CurvePoint {
    /// Middle of the step, in seconds of the run.
    pub(super) x: f64,
    /// Lowest value of any second in the step.
    pub(super) low: f64,
    /// Value of the line.
    pub(super) y: f64,
    /// Highest value of any second in the step.
    pub(super) high: f64,
}

/// Grouping of the seconds of a run into steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesBuckets {
    /// Seconds per step.
    pub(super) width: u32,
    /// Last second of the run plus one.
    pub(super) end: u32,
}

/// Aggregate of a step that the line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BucketAggregate {
    /// Mean of its seconds; seconds without a value are skipped.
    Mean,
    /// Mean of its seconds; seconds without a value count as zero.
    MeanOfAll,
    /// Maximum.
    Highest,
}

impl SeriesBuckets {
    /// Covers the whole run with at most `most` steps.
    pub(super) fn new(run: &RunRecord, most: u32) -> Self {
        let last = [
            run.seconds.iter().map(|s| s.at).max(),
            run.server.iter().map(|s| s.at).max(),
            run.scraped.iter().flat_map(|(_, values)| values).map(|v| v.0).max(),
        ];
        let end = last.into_iter().flatten().max().map_or(0, |at| at.saturating_add(1));
        let rough = end.div_ceil(most.max(1)).max(1);
        let width = [1, 2, 5, 10, 15, 20, 30, 60].into_iter().find(|w| *w >= rough);
        Self { width: width.unwrap_or(rough.div_ceil(60).saturating_mul(60)), end }
    }

    /// Curve of values per second, in any order.
    pub(super) fn curve(
        self,
        of: BucketAggregate,
        values: impl Iterator<Item = (u32, f64)>,
    ) -> Vec<CurvePoint> {
        struct Step {
            low: f64,
            sum: f64,
            high: f64,
            count: u32,
        }
        let mut steps: Vec<Option<Step>> = Vec::new();
        steps.resize_with(self.end.div_ceil(self.width) as usize, || None);
        for (at, value) in values {
            let Some(slot) = steps.get_mut((at / self.width) as usize) else { continue };
            if !value.is_finite() {
                continue;
            }
            let step = slot.get_or_insert(Step { low: value, sum: 0.0, high: value, count: 0 });
            step.low = step.low.min(value);
            step.high = step.high.max(value);
            step.sum += value;
            step.count += 1;
        }
        let mut points = Vec::new();
        for (index, step) in steps.into_iter().enumerate() {
            let from = index as u32 * self.width;
            let seconds = self.width.min(self.end - from);
            let x = f64::from(from) + f64::from(seconds) / 2.0;
            let point = match (step, of) {
                (None, BucketAggregate::MeanOfAll) => CurvePoint { x, low: 0.0, y: 0.0, high: 0.0 },
                (None, _) => continue,
                (Some(s), BucketAggregate::MeanOfAll) => {
                    let low = if s.count < seconds { 0.0f64.min(s.low) } else { s.low };
                    CurvePoint { x, low, y: s.sum / f64::from(seconds.max(s.count)), high: s.high.max(0.0) }
                }
                (Some(s), BucketAggregate::Mean) => {
                    CurvePoint { x, low: s.low, y: s.sum / f64::from(s.count), high: s.high }
                }
                (Some(s), BucketAggregate::Highest) => CurvePoint { x, low: s.low, y: s.high, high: s.high },
            };
            points.push(point);
        }
        points
    }

    /// Increase of a counter in each second.
    pub(super) fn counter(self, run: &RunRecord, counter: Counter) -> Vec<CurvePoint> {
        let values = run.seconds.iter().filter_map(|s| Some((s.at, *s.counters.get(counter.name())? as f64)));
        self.used(self.curve(BucketAggregate::MeanOfAll, values))
    }

    /// Errors of one kind in each second.
    pub(super) fn errors(self, run: &RunRecord, kind: &str) -> Vec<CurvePoint> {
        let values = run.seconds.iter().filter_map(|s| Some((s.at, *s.errors.get(kind)? as f64)));
        self.used(self.curve(BucketAggregate::MeanOfAll, values))
    }

    /// Values of a gauge.
    pub(super) fn gauge(self, run: &RunRecord, gauge: Gauge) -> Vec<CurvePoint> {
        self.curve(
            BucketAggregate::Mean,
            run.seconds.iter().filter_map(|s| Some((s.at, *s.gauges.get(gauge.name())? as f64))),
        )
    }

    /// One statistic of a timing, the maximum of each step.
    pub(super) fn timing(
        self,
        run: &RunRecord,
        name: &str,
        pick: fn(&TimingSummary) -> f64,
    ) -> Vec<CurvePoint> {
        let values = run.seconds.iter().filter_map(|s| {
            let summary = s.timings.get(name)?;
            (summary.count > 0).then(|| (s.at, pick(summary)))
        });
        self.curve(BucketAggregate::Highest, values)
    }

    /// One value of each second.
    pub(super) fn second(self, run: &RunRecord, pick: fn(&SecondReport) -> f64) -> Vec<CurvePoint> {
        self.curve(BucketAggregate::Mean, run.seconds.iter().map(|s| (s.at, pick(s))))
    }

    /// Drops a curve that is always zero: it was not measured.
    fn used(self, points: Vec<CurvePoint>) -> Vec<CurvePoint> {
        if points.iter().any(|p| p.high > 0.0) { points } else { Vec::new() }
    }

    /// Caption that explains steps longer than a second.
    pub(super) fn caption(self, of: BucketAggregate) -> String {
        match (self.width, of) {
            (1, _) => String::new(),
            (width, BucketAggregate::Highest) => format!("Each point is the highest second of {width}."),
            (width, _) => {
                format!("Lines are means of {width} s; the shade is from the lowest to the highest second.")
            }
        }
    }
}

/// Title of a timing; transactions keep their own names.
pub(super) fn timing_title(name: &str) -> String {
    match Timing::ALL.iter().find(|timing| timing.name() == name) {
        Some(timing) => timing.title().to_owned(),
        None => name.strip_prefix("tr:").unwrap_or(name).to_owned(),
    }
}

/// Title of a counter.
pub(super) fn counter_title(name: &str) -> String {
    Counter::ALL.iter().find(|c| c.name() == name).map_or(name, |c| c.title()).to_owned()
}

/// Title of a gauge.
pub(super) fn gauge_title(name: &str) -> String {
    Gauge::ALL.iter().find(|g| g.name() == name).map_or(name, |g| g.title()).to_owned()
}

/// Sorts names in the order of `known`; unknown ones follow.
pub(super) fn ordered<'a>(names: impl Iterator<Item = &'a String>, known: &[&str]) -> Vec<&'a str> {
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    names.sort_by_key(|name| known.iter().position(|k| k == name).unwrap_or(usize::MAX));
    names
}

/// Names of the timings with values, in order, without transactions.
pub(super) fn timings(run: &RunRecord) -> Vec<&str> {
    let known: Vec<&str> = Timing::ALL.iter().map(|t| t.name()).collect();
    let used =
        run.totals.timings.iter().filter(|(name, total)| total.summary.count > 0 && !name.starts_with("tr:"));
    ordered(used.map(|(name, _)| name), &known)
}

/// Names of the transactions with values.
pub(super) fn transactions(run: &RunRecord) -> Vec<&str> {
    let used =
        run.totals.timings.iter().filter(|(name, total)| total.summary.count > 0 && name.starts_with("tr:"));
    used.map(|(name, _)| name.as_str()).collect()
}

#[cfg(test)]
mod tests {
    use super::{BucketAggregate, SeriesBuckets};

    #[test]
    fn joining_seconds_keeps_the_highest_and_the_lowest() {
        let steps = SeriesBuckets { width: 20, end: 10_000 };
        let values = (0..10_000).map(|at| (at, if at == 7_777 { 9e6 } else { f64::from(at % 13) + 1.0 }));
        for of in [BucketAggregate::Mean, BucketAggregate::MeanOfAll, BucketAggregate::Highest] {
            let points = steps.curve(of, values.clone());
            assert_eq!(points.len(), 500);
            assert!(points.iter().any(|p| p.high == 9e6 && (of != BucketAggregate::Highest || p.y == 9e6)));
            assert!(points.iter().all(|p| p.low == 1.0 && p.low <= p.y && p.y <= p.high));
        }
    }

    #[test]
    fn a_second_without_a_count_is_zero_and_without_a_time_unknown() {
        let steps = SeriesBuckets { width: 2, end: 6 };
        let values = || [(0, 4.0), (5, 2.0)].into_iter();
        let counted = steps.curve(BucketAggregate::MeanOfAll, values());
        assert_eq!(
            counted.iter().map(|p| (p.low, p.y, p.high)).collect::<Vec<_>>(),
            [(0.0, 2.0, 4.0), (0.0, 0.0, 0.0), (0.0, 1.0, 2.0)]
        );
        let timed = steps.curve(BucketAggregate::Highest, values());
        assert_eq!(timed.iter().map(|p| (p.x, p.y)).collect::<Vec<_>>(), [(1.0, 4.0), (5.0, 2.0)]);
    }

    #[test]
    fn a_file_with_an_invalid_second_allocates_no_memory() {
        use super::super::model::{RunRecord, SecondReport};
        let mut run = RunRecord {
            seconds: vec![SecondReport { at: u32::MAX, ..SecondReport::default() }],
            ..RunRecord::default()
        };
        run.seconds[0].gauges.insert("users".to_owned(), 1);
        let steps = SeriesBuckets::new(&run, 480);
        assert!(steps.end.div_ceil(steps.width) <= 480);
        steps.gauge(&run, crate::measure::Gauge::Users);
    }
}
