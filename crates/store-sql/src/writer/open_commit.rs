//! Outcome of a transaction whose COMMIT was not answered: what the database shows of it, and when it counts as not stored.
//!
//! A server that accepts writes knows whether the transaction was committed. A read-only one, such as a standby after a
//! failover, may be behind: it may apply the commit after the look. Therefore a transaction counts as not stored only when
//! read-only servers have not shown it for longer than they may lag, without a break; and even then it is in doubt, because
//! the server that becomes the primary may have it.
//!
//! # Pitfalls
//!
//! The time in which no server can be reached does not count, however long it is: a standby that is reached afterwards may
//! be as far behind as one that is reached at once.

use std::time::Duration;

use tokio::time::Instant;

/// What one look at the database has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommitProbe {
    Committed,
    /// It was rolled back.
    RolledBack,
    /// The server is read-only and does not have it, but may receive it later.
    Inconclusive,
}

/// What all looks have shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CommitOutcome {
    /// The last look has failed, or there was none.
    Unknown,
    /// All looks since then have found a read-only server that does not have it.
    InconclusiveSince(Instant),
    Committed,
    /// It has ended without a commit.
    RolledBack,
    /// It counts as not stored, but may be stored.
    InDoubt,
}

impl CommitOutcome {
    /// The outcome after another look, which `None` says has failed.
    #[must_use = "the outcome stays the same until this one is set"]
    pub(super) fn after(
        self,
        probe: Option<CommitProbe>,
        now: Instant,
        max_standby_lag: Duration,
    ) -> CommitOutcome {
        match (self, probe) {
            (CommitOutcome::Committed | CommitOutcome::RolledBack | CommitOutcome::InDoubt, _) => self,
            (_, Some(CommitProbe::Committed)) => CommitOutcome::Committed,
            (_, Some(CommitProbe::RolledBack)) => CommitOutcome::RolledBack,
            (_, None) => CommitOutcome::Unknown,
            (CommitOutcome::Unknown, Some(CommitProbe::Inconclusive)) => {
                CommitOutcome::InconclusiveSince(now)
            }
            (CommitOutcome::InconclusiveSince(since), Some(CommitProbe::Inconclusive)) => {
                match now.saturating_duration_since(since) >= max_standby_lag {
                    true => CommitOutcome::InDoubt,
                    false => self,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAG: Duration = Duration::from_secs(60);

    #[test]
    fn every_sighting_after_every_outcome() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let since = |seconds| CommitOutcome::InconclusiveSince(at(seconds));
        let sightings = [
            None,
            Some(CommitProbe::Committed),
            Some(CommitProbe::RolledBack),
            Some(CommitProbe::Inconclusive),
        ];
        use CommitOutcome::{Committed, InDoubt, RolledBack, Unknown};
        // Before, the second of the look, and the outcome after each of the sightings.
        for (before, second, after) in [
            (Unknown, 100, [Unknown, Committed, RolledBack, since(100)]),
            (since(100), 100, [Unknown, Committed, RolledBack, since(100)]),
            (since(100), 159, [Unknown, Committed, RolledBack, since(100)]),
            (since(100), 160, [Unknown, Committed, RolledBack, InDoubt]),
            (since(100), 500, [Unknown, Committed, RolledBack, InDoubt]),
            (Committed, 500, [Committed; 4]),
            (RolledBack, 500, [RolledBack; 4]),
            (InDoubt, 500, [InDoubt; 4]),
        ] {
            for (probe, after) in sightings.into_iter().zip(after) {
                let outcome = before.after(probe, at(second), LAG);
                assert_eq!(outcome, after, "{probe:?} after {before:?} at {second}");
            }
        }
    }

    /// The standby applies the commit a moment after the first look, and is unreachable in between.
    #[test]
    fn the_time_without_a_server_does_not_count() {
        let start = Instant::now();
        let mut outcome = CommitOutcome::Unknown;
        let mut look = |millis, probe| {
            outcome = outcome.after(probe, start + Duration::from_millis(millis), LAG);
            outcome
        };
        look(0, Some(CommitProbe::Inconclusive));
        for second in 1..900 {
            look(second * 1000, None);
        }
        let undecided = look(900_000, Some(CommitProbe::Inconclusive));
        assert_eq!(undecided, CommitOutcome::InconclusiveSince(start + Duration::from_secs(900)));
        assert_eq!(look(900_250, Some(CommitProbe::Committed)), CommitOutcome::Committed);
    }
}
