//! Clocks: a monotonic count of milliseconds and the wall clock, passed in as a value.
//!
//! [`SystemClock`] is the only clock of the server; clippy rejects `Instant::now` and `SystemTime::now` everywhere
//! else. The load generator, the benches and the process metrics read clocks of their own. [`ManualClock`] stands still
//! until a test moves it.
//!
//! # Pitfalls
//!
//! [`Clock::now`] is for durations and timeouts, [`Clock::unix_millis`] for timestamps that leave the process. The wall
//! clock may jump back; never subtract two of its readings.

use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic milliseconds since the clock was created. Times of different clocks are not comparable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// The time at which the clock was created.
    pub const ZERO: Millis = Millis(0);
    /// A time that is never reached; means "no deadline".
    pub const NEVER: Millis = Millis(u64::MAX);

    /// Milliseconds from `earlier` to `self`; zero if `earlier` is the later one.
    pub const fn since(self, earlier: Millis) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time `ms` milliseconds later; saturates at [`Millis::NEVER`].
    #[must_use]
    pub const fn plus(self, ms: u64) -> Millis {
        Millis(self.0.saturating_add(ms))
    }

    /// Whole seconds since the clock was created; saturates at `u32::MAX` (136 years).
    pub const fn seconds(self) -> u32 {
        let seconds = self.0 / 1000;
        if seconds > u32::MAX as u64 { u32::MAX } else { seconds as u32 }
    }
}

impl Add<Duration> for Millis {
    type Output = Millis;
    fn add(self, span: Duration) -> Millis {
        self.plus(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Source of time.
pub trait Clock: Send + Sync {
    /// Monotonic time since the clock was created. Never goes back.
    fn now(&self) -> Millis;

    /// Wall clock: milliseconds since 1970-01-01T00:00:00Z. May jump.
    fn unix_millis(&self) -> u64;

    /// [`Clock::now`] in microseconds, for durations below a millisecond. A clock may have no finer resolution than
    /// that.
    fn now_micros(&self) -> u64 {
        self.now().0.saturating_mul(1000)
    }

    /// [`Clock::now`] in whole seconds, for fields that must store a time in four bytes.
    fn now_seconds(&self) -> u32 {
        self.now().seconds()
    }
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Millis {
        (**self).now()
    }

    fn unix_millis(&self) -> u64 {
        (**self).unix_millis()
    }

    fn now_micros(&self) -> u64 {
        (**self).now_micros()
    }
}

/// The operating system's clocks.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    made: Instant,
}

impl SystemClock {
    /// A clock that starts at zero. A process creates one and shares it.
    #[allow(clippy::disallowed_methods, reason = "the one place where time is read")]
    pub fn new() -> SystemClock {
        SystemClock { made: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> SystemClock {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Millis {
        Millis(u64::try_from(self.made.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn now_micros(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    #[allow(clippy::disallowed_methods, reason = "the one place where time is read")]
    fn unix_millis(&self) -> u64 {
        // A machine set to before 1970 reads as 1970 instead of failing.
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    unix: AtomicU64,
}

impl ManualClock {
    /// Initial wall clock of a `ManualClock`: 2026-01-01T00:00:00Z.
    pub const START_UNIX_MILLIS: u64 = 1_767_225_600_000;

    /// Monotonic time zero, wall clock [`ManualClock::START_UNIX_MILLIS`].
    pub const fn new() -> ManualClock {
        ManualClock { now: AtomicU64::new(0), unix: AtomicU64::new(ManualClock::START_UNIX_MILLIS) }
    }

    /// Advances both clocks by `ms` milliseconds.
    pub fn advance(&self, ms: u64) {
        self.now.fetch_add(ms, Ordering::SeqCst);
        self.unix.fetch_add(ms, Ordering::SeqCst);
    }

    /// Advances the monotonic clock to `to` and the wall clock by the same amount. Does nothing if `to` is in the past:
    /// a monotonic clock cannot go back.
    pub fn set(&self, to: Millis) {
        let ahead = to.0.saturating_sub(self.now.fetch_max(to.0, Ordering::SeqCst));
        self.unix.fetch_add(ahead, Ordering::SeqCst);
    }

    /// Sets only the wall clock, forward or back, as an administrator or NTP may.
    pub fn set_unix_millis(&self, unix_millis: u64) {
        self.unix.store(unix_millis, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Millis {
        Millis(self.now.load(Ordering::SeqCst))
    }

    fn unix_millis(&self) -> u64 {
        self.unix.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn millis_saturate_at_both_ends() {
        assert_eq!(Millis(5).since(Millis(9)), 0);
        assert_eq!(Millis(9).since(Millis(5)), 4);
        assert_eq!(Millis::NEVER.plus(1), Millis::NEVER);
        assert_eq!(Millis(1) + Duration::from_secs(2), Millis(2001));
        assert_eq!(Millis(1) + Duration::MAX, Millis::NEVER);
        assert_eq!(Millis(1999).seconds(), 1);
        assert_eq!(Millis::NEVER.seconds(), u32::MAX);
    }

    #[test]
    fn manual_clock_moves_only_when_advanced() {
        let clock = ManualClock::new();
        assert_eq!((clock.now(), clock.unix_millis()), (Millis(0), ManualClock::START_UNIX_MILLIS));
        clock.advance(1500);
        assert_eq!((clock.now(), clock.now_seconds()), (Millis(1500), 1));
        assert_eq!(clock.unix_millis(), ManualClock::START_UNIX_MILLIS + 1500);
        clock.set(Millis(1000));
        assert_eq!(clock.now(), Millis(1500), "monotonic time does not go back");
        clock.set(Millis(2500));
        assert_eq!(clock.unix_millis(), ManualClock::START_UNIX_MILLIS + 2500);
        clock.set_unix_millis(7);
        assert_eq!((clock.now(), clock.unix_millis()), (Millis(2500), 7));
    }

    #[test]
    fn the_system_clock_starts_near_zero_and_is_monotonic() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let first = clock.now();
        assert!(first.0 < 60_000);
        assert!(clock.now() >= first);
        assert!(clock.now_micros() >= first.0 * 1000);
        assert!(clock.unix_millis() > 1_700_000_000_000);
    }
}
