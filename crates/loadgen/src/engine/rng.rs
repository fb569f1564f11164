//! Pseudo-random numbers for destinations, pauses and arrivals: fastrand, the same sequence for the same seed.
//!
//! Not implemented: secrets. Nonces come from the system's generator ([`crate::sasl`]).
//!
//! # Pitfalls
//!
//! Workers draw arrivals in lockstep from equal generators; a draw that only one worker makes must come from another.

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng(fastrand::Rng);

impl Rng {
    /// Starts the sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// A number below `end`; 0 if `end` is 0.
    #[inline]
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        if end == 0 { 0 } else { self.0.u32(..end) }
    }

    /// A number in `0.0 .. 1.0`.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        self.0.f64()
    }

    /// A number from an exponential distribution with this mean.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn distributions_have_their_expected_means() {
        let mut rng = Rng::new(7);
        let n = 200_000;
        let even: f64 = (0..n).map(|_| f64::from(rng.below(1_000))).sum::<f64>() / f64::from(n);
        let exponential: f64 = (0..n).map(|_| rng.exponential(50.0)).sum::<f64>() / f64::from(n);
        assert!((even - 499.5).abs() < 3.0, "{even}");
        assert!((exponential - 50.0).abs() < 0.7, "{exponential}");
        assert_eq!(rng.below(0), 0);
    }
}
