//! [`AcceptRate`]: the rate at which all listeners of a node together accept connections.
//!
//! When a node dies, its clients connect to the others at once. Above the rate a listener accepts later: the kernel's
//! backlog holds the connections, and their clients wait. None is refused, because a refused client tries again.
//!
//! # Pitfalls
//!
//! A connection is charged after it is accepted, so that a listener without clients reserves nothing, and a listener that
//! stops while it waits loses no connection. Each listener may accept one connection more than the rate; the debt delays the
//! next ones. Listeners that wait are due at the same time, so each accepts one in turn: a crowd on one of them does not
//! delay the others for long.

use std::fmt;
use std::sync::Arc;

use crate::clock::{Clock, Millis};
use crate::lock::LeafMutex;
use crate::token_bucket::TokenBucket;

/// Connections that pass at once are those of this part of a second: more would delay the traffic of others, and less
/// would be lost to the resolution of timers.
const BURSTS_PER_SECOND: u32 = 10;

/// Rate at which connections are accepted. Clones share it.
#[derive(Clone)]
pub struct AcceptRate(Arc<AcceptRateState>);

struct AcceptRateState {
    clock: Arc<dyn Clock>,
    bucket: LeafMutex<AcceptBucket>,
}

impl AcceptRate {
    /// No limit, until [`AcceptRate::set`].
    pub fn new(clock: Arc<dyn Clock>) -> AcceptRate {
        let bucket = LeafMutex::new(AcceptBucket::new(0));
        AcceptRate(Arc::new(AcceptRateState { clock, bucket }))
    }

    /// Changes the rate, in connections per second; 0 means no limit. A change does not refill the burst.
    pub(crate) fn set(&self, per_second: u32) {
        let now = self.0.clock.now();
        self.0.bucket.lock().set(per_second, now);
    }

    /// Milliseconds until the next connection may be accepted; zero if it may be now.
    pub(crate) fn delay(&self) -> u64 {
        let now = self.0.clock.now();
        self.0.bucket.lock().delay(now)
    }

    /// Charges an accepted connection.
    pub(crate) fn charge(&self) {
        let now = self.0.clock.now();
        self.0.bucket.lock().charge(now);
    }
}

impl fmt::Debug for AcceptRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AcceptRate").field(&self.0.bucket.lock().per_second).finish()
    }
}

/// State of an [`AcceptRate`].
struct AcceptBucket {
    per_second: u32,
    bucket: TokenBucket,
}

impl AcceptBucket {
    fn new(per_second: u32) -> AcceptBucket {
        let bucket = match per_second {
            0 => TokenBucket::unlimited(),
            rate => TokenBucket::new(rate, rate.div_ceil(BURSTS_PER_SECOND)),
        };
        AcceptBucket { per_second, bucket }
    }

    fn set(&mut self, per_second: u32, now: Millis) {
        if self.per_second != per_second {
            let earlier = std::mem::replace(self, AcceptBucket::new(per_second));
            self.bucket.carry(&earlier.bucket, now);
        }
    }

    fn delay(&self, now: Millis) -> u64 {
        self.bucket.millis_until(1, now)
    }

    fn charge(&mut self, now: Millis) {
        self.bucket.charge(1, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// Accepts as many of `waiting` connections as the rate permits from `from` to `to`, as one listener does, and
    /// returns when each was accepted.
    fn accepted(bucket: &mut AcceptBucket, waiting: usize, from: u64, to: u64) -> Vec<u64> {
        let (mut times, mut now) = (Vec::new(), from);
        while now < to && times.len() < waiting {
            match bucket.delay(Millis(now)) {
                0 => {
                    bucket.charge(Millis(now));
                    times.push(now);
                }
                delay => now += delay,
            }
        }
        times
    }

    #[test]
    fn a_storm_is_accepted_at_the_rate_and_evenly() {
        let mut bucket = AcceptBucket::new(1_000);
        let times = accepted(&mut bucket, 15_000, 0, 60_000);
        assert_eq!(times.len(), 15_000);
        assert_eq!(times.last(), Some(&14_900), "15 000 at 1 000 a second, 100 of them at once");
        let most = (0..150).map(|tenth| times.iter().filter(|at| **at / 100 == tenth).count()).max();
        assert_eq!(most, Some(199), "in a tenth of a second: the burst and the rate");
        let after_the_burst = times.iter().filter(|at| **at >= 1_000).collect::<Vec<_>>();
        assert!(after_the_burst.windows(2).all(|two| two[1] - two[0] == 1), "one each millisecond");
    }

    #[test]
    fn a_pause_adds_no_more_than_a_tenth_of_a_second() {
        let mut bucket = AcceptBucket::new(500);
        assert_eq!(accepted(&mut bucket, 1_000, 0, 1).len(), 50);
        assert_eq!(accepted(&mut bucket, 1_000, 60_000, 60_001).len(), 50);
    }

    #[test]
    fn a_low_rate_admits_single_connections() {
        let mut bucket = AcceptBucket::new(2);
        assert_eq!(accepted(&mut bucket, 4, 0, 10_000), [0, 500, 1_000, 1_500]);
        assert_eq!(accepted(&mut AcceptBucket::new(1), 2, 0, 10_000), [0, 1_000]);
    }

    #[test]
    fn no_rate_admits_everything() {
        assert_eq!(accepted(&mut AcceptBucket::new(0), 100_000, 0, 1).len(), 100_000);
    }

    #[test]
    fn listeners_that_accept_at_the_same_time_delay_the_next_connections() {
        let mut bucket = AcceptBucket::new(10);
        (0..4).for_each(|_| bucket.charge(Millis(0)));
        assert_eq!(bucket.delay(Millis(0)), 400, "a debt of three and one token");
        assert_eq!(bucket.delay(Millis(400)), 0);
    }

    #[test]
    fn a_changed_rate_applies_at_once_and_refills_nothing() {
        let clock = Arc::new(ManualClock::new());
        let rate = AcceptRate::new(clock.clone());
        rate.set(1);
        rate.charge();
        assert_eq!(rate.delay(), 1_000);
        rate.clone().set(100);
        assert_eq!(rate.delay(), 10);
        rate.set(100);
        clock.advance(5);
        assert_eq!(rate.delay(), 5, "the same rate again changes nothing");
        rate.set(0);
        assert_eq!(rate.delay(), 0);
        rate.charge();
        rate.set(1);
        assert_eq!((rate.delay(), format!("{rate:?}")), (0, "AcceptRate(1)".to_owned()));
        rate.charge();
        assert_eq!(rate.delay(), 1_000);
    }
}
