//! [`AcceptRate`]: the rate at which all listeners of a node together accept connections.
//!
//! When a node dies, its clients connect to the others at once. Above the rate a listener accepts later: the kernel's
//! backlog holds the connections, and their clients wait. None is refused, because a refused client tries again.
//!
//! Each listener reserves a turn before it accepts, and keeps it until a connection takes it. Turns are due in the order of
//! their reservation, so that a crowd on one listener does not delay the others for long, and a listener without clients
//! holds one turn at most.
//!
//! A connection from a proxy takes its turn before its client's address is known. If that is refused, the [`AcceptCharge`]
//! gives the turn back.

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

    /// Milliseconds until `turn` is due; zero if it is. Reserves one if there is none, or if the rate was changed since.
    pub(crate) fn delay(&self, turn: &mut Option<AcceptTurn>) -> u64 {
        let now = self.0.clock.now();
        self.0.bucket.lock().delay(turn, now)
    }

    /// The charge of a turn that a connection has taken.
    pub(crate) fn charge(&self, turn: AcceptTurn) -> AcceptCharge {
        AcceptCharge { rate: self.clone(), turn: Some(turn) }
    }

    fn refund(&self, turn: AcceptTurn) {
        let now = self.0.clock.now();
        self.0.bucket.lock().refund(turn, now);
    }
}

/// Turn of a connection that may still be refused. Dropping it gives the turn back.
#[derive(Debug)]
pub struct AcceptCharge {
    rate: AcceptRate,
    /// Absent when it is settled.
    turn: Option<AcceptTurn>,
}

impl AcceptCharge {
    /// The connection is admitted and has used its turn.
    pub fn settle(mut self) {
        self.turn = None;
    }
}

impl Drop for AcceptCharge {
    fn drop(&mut self) {
        if let Some(turn) = self.turn.take() {
            self.rate.refund(turn);
        }
    }
}

/// A listener's right to accept a connection at a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptTurn {
    due: Millis,
    /// [`AcceptBucket::changes`] at the reservation.
    changes: u32,
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
    /// Times that the rate was changed.
    changes: u32,
}

impl AcceptBucket {
    fn new(per_second: u32) -> AcceptBucket {
        let bucket = match per_second {
            0 => TokenBucket::unlimited(),
            rate => TokenBucket::new(rate, rate.div_ceil(BURSTS_PER_SECOND)),
        };
        AcceptBucket { per_second, bucket, changes: 0 }
    }

    fn set(&mut self, per_second: u32, now: Millis) {
        if self.per_second != per_second {
            let earlier = std::mem::replace(self, AcceptBucket::new(per_second));
            self.bucket.carry(&earlier.bucket, now);
            self.changes = earlier.changes.wrapping_add(1);
        }
    }

    fn delay(&mut self, turn: &mut Option<AcceptTurn>, now: Millis) -> u64 {
        let reserved = turn.take().filter(|turn| turn.changes == self.changes);
        let reserved = *turn.insert(reserved.unwrap_or_else(|| self.reserve(now)));
        // Without a debt all reserved turns are due: refunds have paid for them.
        reserved.due.since(now).min(self.bucket.millis_until(0, now))
    }

    /// Gives a turn back, unless the rate was changed since its reservation: it was not taken from this bucket.
    fn refund(&mut self, turn: AcceptTurn, now: Millis) {
        if turn.changes == self.changes {
            self.bucket.refund(1, now);
        }
    }

    /// Takes a token whether available or not. The turn is due when the debt is paid.
    fn reserve(&mut self, now: Millis) -> AcceptTurn {
        self.bucket.charge(1, now);
        AcceptTurn { due: now.plus(self.bucket.millis_until(0, now)), changes: self.changes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    /// Accepts `waiting` connections from `now` on, as one listener does, and returns when each was accepted.
    fn accepted(bucket: &mut AcceptBucket, waiting: usize, mut now: u64) -> Vec<u64> {
        let accept = || {
            let mut turn = None;
            now += bucket.delay(&mut turn, Millis(now));
            assert_eq!(bucket.delay(&mut turn, Millis(now)), 0, "due after the delay");
            now
        };
        std::iter::repeat_with(accept).take(waiting).collect()
    }

    #[test]
    fn a_storm_is_accepted_at_the_rate_and_evenly() {
        let times = accepted(&mut AcceptBucket::new(1_000), 15_000, 0);
        assert_eq!(times.last(), Some(&14_900), "15 000 at 1 000 a second, 100 of them at once");
        let most = (0..150).map(|tenth| times.iter().filter(|at| **at / 100 == tenth).count()).max();
        assert_eq!(most, Some(199), "in a tenth of a second: the burst and the rate");
        let later = times.iter().filter(|at| **at > 0).collect::<Vec<_>>();
        assert!(later.windows(2).all(|two| two[1] - two[0] == 1), "one each millisecond");
    }

    #[test]
    fn a_pause_adds_no_more_than_a_tenth_of_a_second() {
        let mut bucket = AcceptBucket::new(500);
        for now in [0, 60_000] {
            let times = accepted(&mut bucket, 52, now);
            assert_eq!((times[49], times[50], times[51]), (now, now + 2, now + 4));
        }
    }

    #[test]
    fn a_low_rate_admits_single_connections() {
        assert_eq!(accepted(&mut AcceptBucket::new(2), 4, 0), [0, 500, 1_000, 1_500]);
        assert_eq!(accepted(&mut AcceptBucket::new(1), 2, 7), [7, 1_007]);
    }

    #[test]
    fn no_rate_admits_everything() {
        assert_eq!(accepted(&mut AcceptBucket::new(0), 100_000, 3).last(), Some(&3));
    }

    #[test]
    fn turns_are_due_in_the_order_of_their_reservation() {
        let mut bucket = AcceptBucket::new(10);
        let mut turns = [None; 4];
        let delays = turns.each_mut().map(|turn| bucket.delay(turn, Millis(0)));
        assert_eq!(delays, [0, 100, 200, 300]);
        // The first listener accepts and waits again: it is the last.
        turns[0] = None;
        assert_eq!(turns.each_mut().map(|turn| bucket.delay(turn, Millis(150))), [250, 0, 50, 150]);
    }

    #[test]
    fn a_refunded_turn_is_for_the_next_connection_at_once() {
        let clock = Arc::new(ManualClock::new());
        let rate = AcceptRate::new(clock.clone());
        rate.set(1);
        let (mut first, mut second, mut third) = (None, None, None);
        assert_eq!((rate.delay(&mut first), rate.delay(&mut second)), (0, 1_000));
        let refused = rate.charge(first.take().unwrap());
        drop(refused);
        assert_eq!(rate.delay(&mut second), 0, "reserved before the refund");
        rate.charge(second.take().unwrap()).settle();
        assert_eq!(rate.delay(&mut third), 1_000, "an admitted connection keeps its turn");
        clock.advance(60_000);
        // Refunds add nothing to a full burst.
        (0..9).for_each(|_| drop(rate.charge(third.unwrap())));
        assert_eq!((rate.delay(&mut None), rate.delay(&mut None)), (0, 1_000));
    }

    #[test]
    fn a_turn_of_an_earlier_rate_is_not_refunded() {
        let rate = AcceptRate::new(Arc::new(ManualClock::new()));
        let mut unlimited = None;
        assert_eq!(rate.delay(&mut unlimited), 0);
        rate.set(1);
        assert_eq!((rate.delay(&mut None), rate.delay(&mut None)), (0, 1_000));
        drop(rate.charge(unlimited.unwrap()));
        assert_eq!(rate.delay(&mut None), 2_000);
    }

    #[test]
    fn a_changed_rate_applies_at_once_and_refills_nothing() {
        let clock = Arc::new(ManualClock::new());
        let rate = AcceptRate::new(clock.clone());
        rate.set(1);
        let (mut first, mut second) = (None, None);
        assert_eq!((rate.delay(&mut first), rate.delay(&mut second)), (0, 1_000));
        clock.advance(400);
        assert_eq!(rate.delay(&mut second), 600);
        rate.clone().set(1);
        assert_eq!(rate.delay(&mut second), 600, "the same rate again changes nothing");
        rate.set(100);
        assert_eq!(rate.delay(&mut second), 16, "a debt of 0.6 and a token");
        rate.set(0);
        assert_eq!((rate.delay(&mut second), rate.delay(&mut None)), (0, 0));
        rate.set(5);
        assert_eq!((rate.delay(&mut None), rate.delay(&mut None)), (0, 200));
        assert_eq!(format!("{rate:?}"), "AcceptRate(5)");
    }
}
