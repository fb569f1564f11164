//! [`TokenBucket`]: a rate limiter in 24 bytes of plain data, for stanzas, bytes, logins and connections.
//!
//! It has no timer and no clock: the caller passes the time. Arithmetic is in whole thousandths of a token, so rounding
//! never loses tokens.
//!
//! # Pitfalls
//!
//! An amount above the burst passes once the bucket is full and leaves a debt. Otherwise one large stanza would wait
//! permanently; the mean rate holds all the same.

use crate::clock::Millis;

/// A token bucket: refills at `rate` tokens per second, up to `burst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: u32,
    burst: u32,
    /// Thousandths of a token at `at`; negative means debt.
    level: i64,
    at: Millis,
}

impl TokenBucket {
    /// A full bucket. `rate_per_s` is in tokens per second, `burst` the maximum level. With a rate of zero it never
    /// refills; with a burst of zero only amounts of zero pass.
    pub const fn new(rate_per_s: u32, burst: u32) -> TokenBucket {
        TokenBucket { rate: rate_per_s, burst, level: burst as i64 * 1000, at: Millis::ZERO }
    }

    /// A bucket that lets everything pass.
    pub const fn unlimited() -> TokenBucket {
        TokenBucket::new(u32::MAX, u32::MAX)
    }

    /// Whether this is [`TokenBucket::unlimited`].
    pub const fn is_unlimited(&self) -> bool {
        self.rate == u32::MAX && self.burst == u32::MAX
    }

    /// Takes `n` tokens if available. Above the burst, takes them if the bucket is full (see the module's pitfalls).
    pub fn try_take(&mut self, n: u32, now: Millis) -> bool {
        if self.is_unlimited() || n == 0 {
            return true;
        }
        self.refill(now);
        if self.burst == 0 || self.level < self.needed(n) {
            return false;
        }
        self.level -= i64::from(n) * 1000;
        true
    }

    /// Takes `n` tokens whether available or not: for costs already incurred (bytes read). The debt is reflected in
    /// [`TokenBucket::millis_until`].
    pub fn charge(&mut self, n: u32, now: Millis) {
        if !self.is_unlimited() {
            self.refill(now);
            self.level = self.level.saturating_sub(i64::from(n) * 1000);
        }
    }

    /// Gives `n` tokens back, up to the burst: for costs that were not incurred after all.
    pub fn refund(&mut self, n: u32, now: Millis) {
        if !self.is_unlimited() {
            self.refill(now);
            let full = i64::from(self.burst) * 1000;
            self.level = self.level.saturating_add(i64::from(n) * 1000).min(full);
        }
    }

    /// Milliseconds from `now` until [`TokenBucket::try_take`] of `n` would pass; zero if it would pass now, `u64::MAX`
    /// if never. After [`TokenBucket::charge`], use `n` = 0: the time until the debt is paid.
    pub fn millis_until(&self, n: u32, now: Millis) -> u64 {
        if self.is_unlimited() {
            return 0;
        }
        let mut then = *self;
        then.refill(now);
        if n > 0 && self.burst == 0 {
            return u64::MAX;
        }
        let missing = then.needed(n).saturating_sub(then.level);
        match u64::try_from(missing) {
            Err(_) | Ok(0) => 0,
            Ok(_) if self.rate == 0 => u64::MAX,
            Ok(missing) => missing.div_ceil(u64::from(self.rate)),
        }
    }

    /// Whole tokens available at `now`; zero in debt.
    pub fn available(&self, now: Millis) -> u32 {
        let mut then = *self;
        then.refill(now);
        u32::try_from(then.level / 1000).unwrap_or(if then.level < 0 { 0 } else { u32::MAX })
    }

    /// Milliseconds from `now` until the bucket is full; zero if it is.
    pub fn full_ms(&self, now: Millis) -> u64 {
        self.millis_until(self.burst, now)
    }

    /// Tokens that are missing at `now` until the bucket is full, debts included; rounded up.
    pub fn missing(&self, now: Millis) -> u32 {
        if self.is_unlimited() {
            return 0;
        }
        let mut then = *self;
        then.refill(now);
        let missing = i64::from(self.burst) * 1000 - then.level;
        u32::try_from(missing.unsigned_abs().div_ceil(1000)).unwrap_or(u32::MAX)
    }

    /// Carries over the level of an earlier bucket at `now`: this one holds no more than that, debts included.
    pub fn carry(&mut self, earlier: &TokenBucket, now: Millis) {
        if !self.is_unlimited() && !earlier.is_unlimited() {
            let mut earlier = *earlier;
            earlier.refill(now);
            self.refill(now);
            self.level = self.level.min(earlier.level);
        }
    }

    /// As [`TokenBucket::carry`] from a level that several buckets share, but with no more debt than `single` has: the
    /// sum of what several have spent takes the burst, and only the debt of a single one delays.
    pub fn carry_shared(&mut self, shared: &TokenBucket, single: &TokenBucket, now: Millis) {
        if !self.is_unlimited() && !shared.is_unlimited() {
            let (mut shared, mut single) = (*shared, *single);
            shared.refill(now);
            single.refill(now);
            self.refill(now);
            self.level = self.level.min(shared.level.max(single.level.min(0)));
        }
    }

    /// Charges what `left` has less than `before` at `now`.
    pub fn charge_difference(&mut self, before: &TokenBucket, left: &TokenBucket, now: Millis) {
        if [&*self, before, left].iter().all(|bucket| !bucket.is_unlimited()) {
            let (mut before, mut left) = (*before, *left);
            before.refill(now);
            left.refill(now);
            self.refill(now);
            let spent = before.level.saturating_sub(left.level).max(0);
            self.level = self.level.saturating_sub(spent);
        }
    }

    /// This bucket when it is full.
    #[must_use]
    pub const fn filled(&self) -> TokenBucket {
        TokenBucket::new(self.rate, self.burst)
    }

    /// Thousandths that must be available for `n` to pass.
    fn needed(&self, n: u32) -> i64 {
        i64::from(n.min(self.burst)) * 1000
    }

    /// Adds the tokens since the last refill. `rate` per second is `rate` thousandths per millisecond.
    fn refill(&mut self, now: Millis) {
        let ms = i64::try_from(now.since(self.at)).unwrap_or(i64::MAX);
        let full = i64::from(self.burst) * 1000;
        self.level = self.level.saturating_add(ms.saturating_mul(i64::from(self.rate))).min(full);
        self.at = self.at.max(now);
    }
}

const _: () = assert!(size_of::<TokenBucket>() <= 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_passes_immediately_and_then_the_rate() {
        let mut meter = TokenBucket::new(10, 3);
        assert!((0..3).all(|_| meter.try_take(1, Millis(0))));
        assert!(!meter.try_take(1, Millis(99)));
        assert_eq!(meter.millis_until(1, Millis(99)), 1);
        assert!(meter.try_take(1, Millis(100)));
        assert_eq!(meter.millis_until(2, Millis(100)), 200);
    }

    #[test]
    fn missing_tokens_include_a_debt_and_are_rounded_up() {
        let mut meter = TokenBucket::new(3, 10);
        assert_eq!(meter.missing(Millis(0)), 0);
        meter.charge(25, Millis(0));
        assert_eq!(
            (meter.missing(Millis(0)), meter.missing(Millis(1_100)), meter.missing(Millis(9_000))),
            (25, 22, 0)
        );
        assert_eq!(TokenBucket::unlimited().missing(Millis(0)), 0);
    }

    #[test]
    fn frequent_queries_lose_no_tokens() {
        let mut meter = TokenBucket::new(7, 1);
        let passed = (0..100_000).filter(|ms| meter.try_take(1, Millis(*ms))).count();
        assert!((667..=701).contains(&passed), "{passed} in 100 s at 7 a second");
    }

    #[test]
    fn a_full_bucket_stays_at_its_burst() {
        let mut meter = TokenBucket::new(1000, 5);
        assert_eq!(meter.available(Millis(1_000_000)), 5);
        assert!(meter.try_take(5, Millis(1_000_000)));
        assert!(!meter.try_take(1, Millis(1_000_000)));
    }

    #[test]
    fn a_full_bucket_admits_more_than_its_burst_and_goes_into_debt() {
        let mut meter = TokenBucket::new(10, 10);
        assert!(meter.try_take(25, Millis(0)));
        assert_eq!(meter.available(Millis(0)), 0);
        assert_eq!(meter.millis_until(1, Millis(0)), 1600);
        assert!(!meter.try_take(1, Millis(1599)));
        assert!(meter.try_take(1, Millis(1600)));
    }

    #[test]
    fn a_debt_is_repaid_over_time() {
        let mut meter = TokenBucket::new(1000, 100);
        meter.charge(600, Millis(0));
        assert_eq!(meter.millis_until(0, Millis(0)), 500);
        assert_eq!(meter.millis_until(0, Millis(500)), 0);
    }

    #[test]
    fn refunds_pay_debts_and_do_not_exceed_the_burst() {
        let mut meter = TokenBucket::new(10, 2);
        meter.charge(4, Millis(0));
        meter.refund(1, Millis(0));
        assert_eq!(meter.millis_until(0, Millis(0)), 100);
        meter.refund(9, Millis(0));
        assert_eq!(meter.available(Millis(0)), 2);
        let mut unlimited = TokenBucket::unlimited();
        unlimited.refund(1, Millis(0));
        assert_eq!(unlimited, TokenBucket::unlimited());
    }

    #[test]
    fn a_replacement_bucket_does_not_refill_spent_tokens() {
        let mut earlier = TokenBucket::new(10, 100);
        earlier.charge(130, Millis(0));
        let mut later = TokenBucket::new(10, 100);
        later.carry(&earlier, Millis(1000));
        assert_eq!((later.millis_until(0, Millis(1000)), later.full_ms(Millis(1000))), (2000, 12_000));
        // A bucket with a lower level is unchanged; a larger one gets the level of a full smaller one.
        later.carry(&TokenBucket::new(10, 100), Millis(1000));
        assert_eq!(later.millis_until(0, Millis(1000)), 2000);
        let mut wider = TokenBucket::new(10, 500);
        wider.carry(&earlier, Millis(13_000));
        assert_eq!((earlier.full_ms(Millis(13_000)), wider.available(Millis(13_000))), (0, 100));
        let mut unlimited = TokenBucket::unlimited();
        unlimited.carry(&earlier, Millis(0));
        later.carry(&unlimited, Millis(13_000));
        assert_eq!((unlimited, later.full_ms(Millis(13_000))), (TokenBucket::unlimited(), 0));
    }

    #[test]
    fn spending_of_several_buckets_is_summed_but_only_single_debts_delay() {
        let spent = |n| {
            let mut bucket = TokenBucket::new(10, 100);
            bucket.charge(n, Millis(0));
            bucket
        };
        let mut shared = TokenBucket::new(10, 100);
        for n in [60, 90, 130] {
            let left = spent(n);
            shared.charge_difference(&left.filled(), &left, Millis(0));
        }
        assert_eq!(shared.millis_until(0, Millis(0)), 18_000, "280 of 100 at 10 a second");
        let begun = |single: &TokenBucket, now| {
            let mut bucket = TokenBucket::new(10, 100);
            bucket.carry_shared(&shared, single, now);
            (bucket.available(now), bucket.millis_until(0, now))
        };
        assert_eq!(begun(&spent(130), Millis(0)), (0, 3_000), "the debt of one");
        assert_eq!(begun(&spent(90), Millis(0)), (0, 0), "no burst, no debt");
        assert_eq!(begun(&spent(130), Millis(20_000)), (20, 0), "the sum is paid off");
        // From one time to the next, and never a gain.
        let (before, after) = (spent(60), spent(75));
        shared.charge_difference(&before, &after, Millis(1_000));
        assert_eq!(shared.millis_until(0, Millis(1_000)), 18_500);
        shared.charge_difference(&after, &before, Millis(1_000));
        shared.charge_difference(&TokenBucket::unlimited(), &after, Millis(1_000));
        shared.charge_difference(&before, &TokenBucket::unlimited(), Millis(1_000));
        assert_eq!(shared.millis_until(0, Millis(1_000)), 18_500);
        let mut unlimited = TokenBucket::unlimited();
        unlimited.charge_difference(&before, &after, Millis(0));
        unlimited.carry_shared(&shared, &before, Millis(0));
        assert!(unlimited.is_unlimited());
    }

    #[test]
    fn extreme_rates_and_times_do_not_overflow() {
        let mut meter = TokenBucket::unlimited();
        assert!((0..10).all(|_| meter.try_take(u32::MAX, Millis(0))));
        assert_eq!(meter.millis_until(u32::MAX, Millis(0)), 0);
        let mut still = TokenBucket::new(0, 1);
        assert!(still.try_take(1, Millis(0)));
        assert_eq!(still.millis_until(1, Millis(1)), u64::MAX);
        assert!(!still.try_take(1, Millis::NEVER));
        let mut shut = TokenBucket::new(5, 0);
        assert!(!shut.try_take(1, Millis(9)) && shut.try_take(0, Millis(9)));
        assert_eq!(shut.millis_until(1, Millis(9)), u64::MAX);
        let mut wide = TokenBucket::new(u32::MAX, 1);
        wide.charge(u32::MAX, Millis(0));
        assert_eq!(wide.millis_until(1, Millis::NEVER), 0);
        assert!(wide.try_take(1, Millis::NEVER));
    }

    #[test]
    fn time_that_goes_backwards_adds_no_tokens() {
        let mut meter = TokenBucket::new(1000, 10);
        assert!(meter.try_take(10, Millis(1000)));
        assert!(!meter.try_take(1, Millis(500)));
        assert_eq!(meter.available(Millis(1000)), 0);
    }
}
