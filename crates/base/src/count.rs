//! Counters and histograms for figures that many threads write and hardly anybody reads.
//!
//! A [`Counter`] has a cell of its own for each of a few threads, so that counting on the way of a stanza never waits for
//! another core's cache line. A [`Histogram`] has fixed buckets and no lock; percentiles are read from a [`HistogramSnapshot`], and
//! those of a span of time from the difference of two.
//!
//! Left out: names and labels, which belong to whoever shows the figures. The trap: cells are added up one after the other,
//! so two counters that are raised together may be read apart.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Cells of a counter. More threads than this share some.
const CELLS: usize = 8;

/// A cell that shares no cache line (two of them, since they are fetched in pairs) with another.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

/// A number that only grows. 1 kB: for what is counted with every stanza.
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
    #[must_use]
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

/// Upper bounds, in microseconds, for what takes from ten microseconds to ten seconds: three to a decade.
pub const LATENCY_BUCKETS_MICROS: &[u64] = &[
    10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 10_000_000,
];

/// Upper bounds for how many there are of something, from one to ten thousand.
pub const SIZE_BUCKETS: &[u64] = &[0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000];

/// How often a value fell between which bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds: the last is for what is above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Empty. `bounds` are the highest values of the buckets, ascending.
    #[must_use]
    pub fn new(bounds: &'static [u64]) -> Histogram {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }
    /// Counts a value.
    pub fn record(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
    }
    /// What was counted so far.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            bounds: self.bounds,
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed),
        }
    }
}

/// A histogram as it was at one moment, or between two.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// The highest value of each bucket but the last, which has none.
    pub bounds: &'static [u64],
    /// Values in each bucket; one more than there are bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: u64,
}

impl HistogramSnapshot {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
    /// What came since an earlier snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        let before = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        HistogramSnapshot {
            bounds: self.bounds,
            counts: self.counts.iter().zip(before).map(|(now, then)| now.saturating_sub(then)).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }
    /// Adds what another histogram of the same bounds counted.
    pub fn merge(&mut self, other: &HistogramSnapshot) {
        if self.counts.is_empty() {
            *self = other.clone();
        } else if self.bounds == other.bounds {
            self.counts.iter_mut().zip(&other.counts).for_each(|(sum, count)| *sum += count);
            self.sum += other.sum;
        }
    }
    /// The value that this share of all values does not exceed, as near as buckets tell: they are taken as filled evenly.
    /// What is above the last bound reads as that bound. `None` without values.
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
    fn nothing_is_lost_however_many_threads_count() {
        let counter = Counter::new();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.get(), 40_000);
    }

    #[test]
    fn a_value_is_counted_in_the_bucket_whose_bound_it_does_not_exceed() {
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
    fn the_difference_of_two_snapshots_is_what_came_between() {
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
