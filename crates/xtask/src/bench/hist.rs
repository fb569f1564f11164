//! A histogram of nanoseconds with logarithmic classes (64 a doubling, so at most 1.6 % of error), in the manner of HDR.

const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;

/// Counts of durations in nanoseconds.
#[derive(Clone)]
pub(crate) struct Hist {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Hist {
    /// An empty histogram (30 kB).
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; (64 - SUB_BITS as usize + 1) * SUB], total: 0, max: 0 }
    }

    fn class(value: u64) -> usize {
        if value < SUB as u64 {
            return value as usize;
        }
        let shift = 63 - value.leading_zeros() - SUB_BITS;
        ((shift as usize + 1) << SUB_BITS) + ((value >> shift) as usize - SUB)
    }

    /// The upper end of a class.
    fn upper(class: usize) -> u64 {
        if class < SUB {
            return class as u64;
        }
        let shift = (class >> SUB_BITS) - 1;
        ((((class & (SUB - 1)) + SUB) as u64) << shift) + ((1_u64 << shift) - 1)
    }

    /// Counts one duration.
    pub(crate) fn add(&mut self, nanos: u64) {
        self.counts[Self::class(nanos)] += 1;
        self.total += 1;
        self.max = self.max.max(nanos);
    }

    /// Adds the counts of another histogram.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.total += other.total;
        self.max = self.max.max(other.max);
    }

    /// The value in milliseconds below which `share` (0 to 1) of the counts lie; 0 when empty.
    pub(crate) fn percentile_ms(&self, share: f64) -> f64 {
        let wanted = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (class, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Self::upper(class).min(self.max) as f64 / 1e6;
            }
        }
        self.max as f64 / 1e6
    }

    /// The largest value in milliseconds.
    pub(crate) fn max_ms(&self) -> f64 {
        self.max as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::Hist;

    #[test]
    fn percentiles_are_within_two_per_cent() {
        let mut hist = Hist::new();
        for value in 1..=100_000_u64 {
            hist.add(value * 1_000);
        }
        for (share, expected) in [(0.5, 50.0), (0.99, 99.0), (0.001, 0.1)] {
            let got = hist.percentile_ms(share);
            assert!((got - expected).abs() / expected < 0.02, "{share}: {got} instead of {expected}");
        }
        assert!((hist.max_ms() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn extremes_have_a_class() {
        let mut hist = Hist::new();
        hist.add(0);
        hist.add(u64::MAX);
        assert!(hist.percentile_ms(1.0) > 1e12);
    }
}
