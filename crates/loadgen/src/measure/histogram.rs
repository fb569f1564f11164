//! HDR histogram (microseconds, three significant digits) and its forms for the wire and the report.
//!
//! # Pitfalls
//!
//! The sparse form keeps the lowest value of each bucket, so merging is exact at the precision of the histogram.

use hdrhistogram::Histogram as Hdr;
use serde::{Deserialize, Serialize};

/// Longest distinguishable time: one hour. Longer times are recorded as this.
const LONGEST: u64 = 3_600_000_000;

/// Histogram of microseconds.
#[derive(Clone, Debug)]
pub struct TimingHistogram {
    hdr: Hdr<u32>,
    /// Sums of the exact values, for mean and standard deviation.
    sum: f64,
    squares: f64,
}

/// Non-empty buckets of a histogram (value and count) and the exact sums.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SparseHistogram {
    /// Value (microseconds) and count, ascending.
    pub buckets: Vec<(u64, u32)>,
    /// Sum of the values.
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
}

/// Statistics of a histogram for a report. Microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimingSummary {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Lowest.
    pub min: u64,
    /// 50th percentile.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Highest.
    pub max: u64,
}

impl Default for TimingHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl TimingHistogram {
    /// Creates an empty histogram. Its memory grows only with the largest value.
    #[allow(clippy::expect_used, reason = "three digits and a maximum of 2 are within the library's limits")]
    pub fn new() -> Self {
        let mut hdr = Hdr::new_with_max(2_000, 3).expect("constant arguments");
        hdr.auto(true);
        Self { hdr, sum: 0.0, squares: 0.0 }
    }

    /// Records one value.
    #[inline]
    pub fn record(&mut self, us: u64) {
        let us = us.min(LONGEST);
        // The histogram resizes itself, so this cannot fail up to the longest time.
        if self.hdr.record(us).is_err() {
            self.hdr.saturating_record(us);
        }
        let value = us as f64;
        self.sum += value;
        self.squares += value * value;
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.hdr.len()
    }

    /// Clears the values and keeps the memory.
    pub fn reset(&mut self) {
        self.hdr.reset();
        self.sum = 0.0;
        self.squares = 0.0;
    }

    /// Upper bound of the share `quantile` (0 to 1) of the values.
    pub fn quantile(&self, quantile: f64) -> u64 {
        self.hdr.value_at_quantile(quantile)
    }

    /// Returns the non-empty buckets.
    pub fn to_sparse(&self) -> SparseHistogram {
        SparseHistogram {
            buckets: self
                .hdr
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
            sum: self.sum,
            squares: self.squares,
        }
    }

    /// Adds the values of another histogram.
    pub fn add(&mut self, other: &SparseHistogram) {
        for &(value, count) in &other.buckets {
            if self.hdr.record_n(value.min(LONGEST), count).is_err() {
                self.hdr.saturating_record_n(value, count);
            }
        }
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Returns the statistics for the report.
    pub fn summary(&self) -> TimingSummary {
        let count = self.count();
        if count == 0 {
            return TimingSummary::default();
        }
        let mean = self.sum / count as f64;
        TimingSummary {
            count,
            mean,
            deviation: (self.squares / count as f64 - mean * mean).max(0.0).sqrt(),
            min: self.hdr.min(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            max: self.hdr.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TimingHistogram;

    #[test]
    fn merged_sparse_histograms_equal_one_histogram() {
        let (mut all, mut first, mut second, mut merged) =
            (TimingHistogram::new(), TimingHistogram::new(), TimingHistogram::new(), TimingHistogram::new());
        for value in 0..10_000_u64 {
            let us = value * value % 7_000_003;
            all.record(us);
            if value % 3 == 0 { &mut first } else { &mut second }.record(us);
        }
        merged.add(&first.to_sparse());
        merged.add(&second.to_sparse());
        let (mut all, mut merged) = (all.summary(), merged.summary());
        // The last digits of float sums depend on their order.
        assert!((all.mean - merged.mean).abs() < 1e-3 && (all.deviation - merged.deviation).abs() < 1e-3);
        (all.mean, merged.mean, all.deviation, merged.deviation) = (0.0, 0.0, 0.0, 0.0);
        assert_eq!(all, merged);
    }

    #[test]
    fn percentiles_are_accurate_to_a_thousandth() {
        let mut histogram = TimingHistogram::new();
        (1..=100_000).for_each(|value| histogram.record(value));
        let summary = histogram.summary();
        for (found, expected) in [
            (summary.p50, 50_000),
            (summary.p90, 90_000),
            (summary.p99, 99_000),
            (summary.p999, 99_900),
            (summary.max, 100_000),
        ] {
            assert!(found.abs_diff(expected) * 1_000 <= expected, "{found} for {expected}");
        }
    }

    #[test]
    fn longer_than_an_hour_counts_as_an_hour() {
        let mut histogram = TimingHistogram::new();
        histogram.record(u64::MAX);
        assert_eq!(histogram.count(), 1);
        assert!(histogram.summary().max >= 3_600_000_000);
    }
}
