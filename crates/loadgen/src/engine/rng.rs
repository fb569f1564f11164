//! Pseudo-random numbers for destinations, pauses and arrivals: SplitMix64, the same sequence for the same seed.
//!
//! Not implemented: secrets. Nonces come from the system's generator ([`crate::sasl`]).
//!
//! # Pitfalls
//!
//! Workers draw arrivals in lockstep from equal generators; a draw that only one worker makes must come from another.

/// A generator.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// Starts the sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    #[inline]
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        // Multiply and shift: the bias of 2^-32 does not matter here.
        ((u64::from(end) * (self.next() >> 32)) >> 32) as u32
    }

    /// A number in `0.0 .. 1.0`.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
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
