//! Counters and histograms for metrics that many threads write and few read.
//!
//! A [`Counter`] has a separate cell for each of a few threads, so that counting on the stanza path never waits for
//! another core's cache line. A [`Histogram`] has fixed buckets and no lock; percentiles come from a
//! [`HistogramSnapshot`], and those of an interval from the difference of two.
//!
//! Not implemented: names and labels, which belong to the code that exports the metrics.
//!
//! # Pitfalls
//!
//! Cells are summed one after the other, so two counters that are incremented together can be read inconsistently.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Cells per counter. With more threads than this, some share a cell.
const CELLS: usize = 8;

/// A cell that shares no cache line with another, nor the adjacent line, since lines are fetched in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// A monotonic counter. 1 kB: meant for events that occur with every stanza.
#[derive(Debug, Default)]
pub struct Counter([Padded; CELLS]);

static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CELL: Cell<usize> = const { Cell::new(usize::MAX) };
}

fn cell() -> usize {
    CELL.with(|cell| match cell.get() {
        usize::MAX => {
            let own = THREADS.fetch_add(1, Ordering::Relaxed) % CELLS;
            cell.set(own);
            own
        }
        own => own,
    })
}

impl Counter {
    /// Zero.
    pub const fn new() -> Counter {
        Counter([const { Padded(AtomicU64::new(0)) }; CELLS])
    }

    /// Adds; wraps around at 2^64.
    pub fn add(&self, n: u64) {
        self.0[cell()].0.fetch_add(n, Ordering::Relaxed);
    }

    /// The sum of all cells.
    pub fn get(&self) -> u64 {
        self.0.iter().fold(0, |sum, cell| sum.wrapping_add(cell.0.load(Ordering::Relaxed)))
    }
}

/// Upper bounds in microseconds for durations from ten microseconds to ten seconds: three per decade.
pub const LATENCY_BUCKETS_MICROS: &[u64] = &[
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// Upper bounds for sizes of collections, from zero to ten thousand.
pub const SIZE_BUCKETS: &[u64] = &[0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// Number of values in each bucket.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than the bounds: the last counts values above all bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// An empty histogram. `bounds` are the inclusive upper bounds of the buckets, ascending.
    pub fn new(bounds: &'static [u64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Records a value.
    pub fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The values recorded so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// State of a histogram at one time, or the difference between two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Inclusive upper bound of each bucket except the last, which has none.
    pub bounds: &'static [u64],
    /// Values in each bucket; one more than the bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

impl HistogramSnapshot {
    /// Number of values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The values recorded since an earlier snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        HistogramSnapshot {
            bounds: self.bounds,
            counts: self.counts.iter().zip(before).map(|(now, then)| now.saturating_sub(then)).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// Adds the values of another histogram with the same bounds.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        if self.counts.is_empty() {
            *self = other.clone();
        } else if self.bounds == other.bounds {
            self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
            self.sum += other.sum;
        }
    }

    /// The quantile for this share of all values, interpolated linearly within its bucket. Values above the last bound
    /// count as that bound. `None` without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let total = self.count();
        if total == 0 {
            return None;
        }
        let rank = share.clamp(0.0, 1.0) * total as f64;
        let (mut seen, mut low) = (0_u64, 0_u64);
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            if *count > 0 && (seen + count) as f64 >= rank {
                let into = ((rank - seen as f64) / *count as f64).clamp(0.0, 1.0);
                return Some(low as f64 + (bound - low) as f64 * into);
            }
            seen += count;
            low = *bound;
        }
        Some(low as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_increments_are_all_counted() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 40_000);
    }

    #[test]
    fn a_value_is_counted_in_the_first_bucket_with_a_sufficient_bound() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1_000] {
            histogram.record(value);
        }
        let seen = histogram.snapshot();
        assert_eq!((seen.counts.as_slice(), seen.sum, seen.count()), ([2, 2, 2].as_slice(), 1062, 6));
    }

    #[test]
    fn percentiles_lie_inside_their_bucket() {
        let histogram = Histogram::new(&[10, 20, 40]);
        assert_eq!(histogram.snapshot().quantile(0.5), None);
        (0..50).for_each(|_| histogram.record(5));
        (0..50).for_each(|_| histogram.record(15));
        let seen = histogram.snapshot();
        assert_eq!(seen.quantile(0.25), Some(5.0));
        assert_eq!(seen.quantile(0.5), Some(10.0));
        assert_eq!(seen.quantile(0.75), Some(15.0));
        histogram.record(5_000);
        assert_eq!(histogram.snapshot().quantile(1.0), Some(40.0), "above all bounds nothing more is known");
    }

    #[test]
    fn the_difference_of_two_snapshots_covers_the_values_in_between() {
        let histogram = Histogram::new(LATENCY_BUCKETS_MICROS);
        histogram.record(15);
        let before = histogram.snapshot();
        histogram.record(3_000);
        histogram.record(3_000);
        let between = histogram.snapshot().since(&before);
        assert_eq!((between.count(), between.sum), (2, 6_000));
        assert_eq!(between.quantile(0.5), Some(3500.0));
        let mut both = HistogramSnapshot::default();
        both.merge(&before);
        both.merge(&between);
        assert_eq!(both, histogram.snapshot());
        assert_eq!(before.since(&HistogramSnapshot::default()), before);
    }
}
