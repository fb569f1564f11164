//! Arrival schedule of users: open-loop and driven by the clock, whatever the server does.
//!
//! Every worker walks the whole schedule with the same random numbers and takes its own arrivals, so workers need no
//! coordination and never disagree.
//!
//! Not implemented: `wait_all_end` across workers; each waits for its own users.
//!
//! # Pitfalls
//!
//! Times are computed from the start of a phase, not summed, so that rounding does not drift.

use super::rng::Rng;
use crate::plan::{ArrivalPhase, LoadPlan};

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScheduledArrival {
    /// Microseconds after the start of the run.
    pub(crate) at: u64,
    /// Index of the session.
    pub(crate) session: u16,
}

/// The schedule.
pub(crate) struct ArrivalSchedule<'p> {
    plan: &'p LoadPlan,
    rng: Rng,
    phase: usize,
    /// Start of the phase, in microseconds.
    from: u64,
    /// Arrivals of the phase so far.
    done: u64,
    /// Sum of the random intervals of the phase so far, in seconds.
    waited: f64,
    next: Option<ScheduledArrival>,
    /// End of the last phase, once it is known.
    end: Option<u64>,
    /// The phase is over and waits for its users to end.
    held: bool,
    /// The phase's concurrency limit admits another user.
    room: bool,
    /// Arrival of the last user of such a phase.
    last: u64,
    /// Index in `starts`, which are sorted.
    start: usize,
    starts: Vec<ScheduledArrival>,
}

impl<'p> ArrivalSchedule<'p> {
    /// The schedule of a plan.
    pub(crate) fn new(plan: &'p LoadPlan) -> Self {
        let mut starts: Vec<_> = plan
            .starts
            .iter()
            .map(|start| ScheduledArrival { at: start.at_ms * 1_000, session: start.session })
            .collect();
        starts.sort_by_key(|start| start.at);
        let mut arrivals = Self {
            plan,
            rng: Rng::new(plan.options.seed ^ 0xA44),
            phase: 0,
            from: 0,
            done: 0,
            waited: 0.0,
            next: None,
            end: None,
            held: false,
            room: true,
            last: 0,
            start: 0,
            starts,
        };
        arrivals.prepare();
        arrivals
    }

    /// Index of the current phase; the number of phases when all are over.
    pub(crate) fn phase(&self) -> usize {
        self.phase
    }

    /// End of the last phase in microseconds, once all users have arrived.
    pub(crate) fn end(&self) -> Option<u64> {
        if self.start < self.starts.len() { None } else { self.end }
    }

    /// Whether the phase waits only for its users (`wait_all_end`); [`resume`](Self::resume) continues.
    pub(crate) fn awaits_users(&self) -> bool {
        self.held
    }

    /// Starts the next phase: the users of this one have ended at `now`.
    pub(crate) fn resume(&mut self, now: u64) {
        if self.held {
            self.held = false;
            self.begin(now);
        }
    }

    /// Limit of users between their arrival and their first pause, in the current phase.
    pub(crate) fn concurrency(&self) -> Option<u32> {
        self.plan.phases.get(self.phase)?.concurrency
    }

    /// Sets whether another user may arrive in a phase with a concurrency limit.
    pub(crate) fn set_room(&mut self, room: bool) {
        self.room = room;
    }

    fn is_full(&self) -> bool {
        !self.room && self.concurrency().is_some()
    }

    /// Time of the next arrival or end of a phase.
    pub(crate) fn next_at(&self) -> Option<u64> {
        let start = self.starts.get(self.start).map(|start| start.at);
        let arrival = if self.held || self.next.is_some() && self.is_full() {
            None
        } else {
            self.next.map(|next| next.at).or_else(|| self.phase_end())
        };
        match (start, arrival) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Takes the next arrival that is due at `now`, of any worker. Call until `None`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<ScheduledArrival> {
        if let Some(start) = self.starts.get(self.start)
            && start.at <= now
            && self.next.is_none_or(|next| start.at <= next.at)
        {
            self.start += 1;
            return Some(*start);
        }
        loop {
            if self.held || self.end.is_some() {
                return None;
            }
            if let Some(next) = self.next {
                if next.at > now || self.is_full() {
                    return None;
                }
                self.done += 1;
                // Closed-loop arrivals are due when there is room.
                let at = if self.concurrency().is_some() { now } else { next.at };
                self.last = at;
                self.prepare();
                return Some(ScheduledArrival { at, ..next });
            }
            let end = self.phase_end()?;
            if end > now {
                return None;
            }
            if self.plan.phases[self.phase].wait_all_end {
                self.held = true;
                return None;
            }
            self.begin(end);
        }
    }

    fn begin(&mut self, from: u64) {
        self.phase += 1;
        self.from = from;
        self.done = 0;
        self.waited = 0.0;
        self.prepare();
    }

    /// End of a phase whose arrivals are complete.
    fn phase_end(&self) -> Option<u64> {
        let phase = self.plan.phases.get(self.phase)?;
        Some(match phase.duration_ms {
            Some(ms) => self.from + ms * 1_000,
            None if phase.concurrency.is_some() => self.last.max(self.from),
            None => self.from + self.offset(phase, self.done.saturating_sub(1)),
        })
    }

    /// Microseconds from the start of a phase to its arrival `index`.
    fn offset(&self, phase: &ArrivalPhase, index: u64) -> u64 {
        if phase.rate <= 0.0 {
            return 0;
        }
        if phase.poisson {
            return (self.waited * 1e6) as u64;
        }
        let batch = u64::from(phase.batch.max(1));
        ((index / batch * batch) as f64 / phase.rate * 1e6) as u64
    }

    fn prepare(&mut self) {
        self.next = None;
        let Some(phase) = self.plan.phases.get(self.phase) else {
            self.end.get_or_insert(self.from);
            return;
        };
        let full = phase.max_users.is_some_and(|most| self.done >= u64::from(most));
        if !phase.arrives() || full || (phase.max_users.is_none() && phase.duration_ms.is_none()) {
            return;
        }
        if phase.poisson && self.done.is_multiple_of(u64::from(phase.batch.max(1))) {
            self.waited += self.rng.exponential(f64::from(phase.batch.max(1)) / phase.rate);
        }
        let offset = if phase.concurrency.is_some() {
            self.last.saturating_sub(self.from)
        } else {
            self.offset(phase, self.done)
        };
        if phase.duration_ms.is_some_and(|ms| offset >= ms * 1_000) {
            return;
        }
        let session = self.session(phase);
        self.next = Some(ScheduledArrival { at: self.from + offset, session });
    }

    fn session(&mut self, phase: &ArrivalPhase) -> u16 {
        let own = || self.plan.sessions.iter().map(|session| session.weight).collect();
        let weights: Vec<f64> = phase.weights.clone().unwrap_or_else(own);
        if weights.len() < 2 {
            return 0;
        }
        let mut left = self.rng.unit() * weights.iter().sum::<f64>();
        for (index, weight) in weights.iter().enumerate() {
            left -= weight;
            if left < 0.0 {
                return index as u16;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::{ArrivalSchedule, ScheduledArrival};
    use crate::plan::{
        AccountSource, ArrivalPhase, LoadPlan, PlanOptions, PlanTarget, TestAccounts, UserSession, UserStart,
    };

    fn phase(rate: f64) -> ArrivalPhase {
        ArrivalPhase {
            name: String::new(),
            duration_ms: None,
            rate,
            batch: 1,
            poisson: false,
            max_users: None,
            weights: None,
            wait_all_end: false,
            concurrency: None,
        }
    }

    fn plan(phases: Vec<ArrivalPhase>, weights: &[f64]) -> LoadPlan {
        let session = |weight: &f64| UserSession {
            name: String::new(),
            weight: *weight,
            accept_subscriptions: false,
            steps: vec![],
        };
        LoadPlan {
            name: String::new(),
            title: String::new(),
            target: PlanTarget {
                addresses: vec![],
                domain: String::new(),
                security: Default::default(),
                tls: Default::default(),
                sources: vec![],
                web: Default::default(),
            },
            accounts: TestAccounts { source: AccountSource::Anonymous { count: 1 }, domain: String::new() },
            phases,
            starts: vec![],
            sessions: weights.iter().map(session).collect(),
            transactions: vec![],
            options: PlanOptions::default(),
        }
    }

    fn all(arrivals: &mut ArrivalSchedule<'_>) -> Vec<u64> {
        std::iter::from_fn(|| arrivals.pop(u64::MAX)).map(|arrival| arrival.at).collect()
    }

    #[test]
    fn even_arrivals_do_not_drift() {
        let plan = plan(vec![ArrivalPhase { max_users: Some(1_000_000), ..phase(222.0) }], &[1.0]);
        let times = all(&mut ArrivalSchedule::new(&plan));
        assert_eq!(times.len(), 1_000_000);
        assert_eq!(times[222 * 1_000], 1_000_000_000);
    }

    #[test]
    fn phases_run_in_sequence_and_batches_arrive_together() {
        let first = ArrivalPhase { duration_ms: Some(4_000), batch: 10, ..phase(5.0) };
        let pause = ArrivalPhase { duration_ms: Some(1_000), ..phase(0.0) };
        let last = ArrivalPhase { max_users: Some(3), ..phase(1.0) };
        let plan = plan(vec![first, pause, last], &[1.0]);
        let mut arrivals = ArrivalSchedule::new(&plan);
        assert_eq!(arrivals.pop(0), Some(ScheduledArrival { at: 0, session: 0 }));
        let times = all(&mut arrivals);
        assert_eq!(times[..9], [0; 9]);
        assert_eq!(times[9..19], [2_000_000; 10]);
        assert_eq!(times[19..], [5_000_000, 6_000_000, 7_000_000]);
        assert_eq!((arrivals.end(), arrivals.phase()), (Some(7_000_000), 3));
    }

    #[test]
    fn poisson_arrivals_match_rate_and_weights_on_every_worker() {
        let plan =
            plan(vec![ArrivalPhase { max_users: Some(100_000), poisson: true, ..phase(50.0) }], &[1.0, 3.0]);
        let (mut one, mut other) = (ArrivalSchedule::new(&plan), ArrivalSchedule::new(&plan));
        let (mut second, mut last) = (0, 0);
        for _ in 0..100_000 {
            let arrival = one.pop(u64::MAX).unwrap();
            assert_eq!(other.pop(u64::MAX), Some(arrival));
            second += u32::from(arrival.session == 1);
            last = arrival.at;
        }
        assert!((last as f64 / 2e9 - 1.0).abs() < 0.02, "{last}");
        assert!(second.abs_diff(75_000) < 1_000, "{second}");
    }

    #[test]
    fn a_phase_can_wait_for_its_users() {
        let first = ArrivalPhase { max_users: Some(2), wait_all_end: true, ..phase(1.0) };
        let plan = plan(vec![first, ArrivalPhase { max_users: Some(1), ..phase(1.0) }], &[1.0]);
        let mut arrivals = ArrivalSchedule::new(&plan);
        assert_eq!(all(&mut arrivals), [0, 1_000_000]);
        assert!(arrivals.awaits_users() && arrivals.next_at().is_none());
        arrivals.resume(9_000_000);
        assert_eq!(all(&mut arrivals), [9_000_000]);
        assert_eq!(arrivals.end(), Some(9_000_000));
    }

    #[test]
    fn users_of_a_phase_with_bounded_concurrency_arrive_when_a_slot_is_free() {
        let first = ArrivalPhase { max_users: Some(3), concurrency: Some(2), ..phase(0.0) };
        let pause = ArrivalPhase { duration_ms: Some(1_000), ..phase(0.0) };
        let last = ArrivalPhase { max_users: Some(1), ..phase(1.0) };
        let plan = plan(vec![first, pause, last], &[1.0]);
        let mut arrivals = ArrivalSchedule::new(&plan);
        assert_eq!(arrivals.concurrency(), Some(2));
        assert_eq!(arrivals.pop(10), Some(ScheduledArrival { at: 10, session: 0 }));
        assert_eq!(arrivals.next_at(), Some(10), "there is room for another");
        assert!(arrivals.pop(20).is_some());
        arrivals.set_room(false);
        assert_eq!((arrivals.next_at(), arrivals.pop(30)), (None, None));
        arrivals.set_room(true);
        assert_eq!(arrivals.pop(40), Some(ScheduledArrival { at: 40, session: 0 }));
        arrivals.set_room(false);
        // The pause counts from the last arrival.
        assert_eq!(arrivals.next_at(), Some(40));
        assert_eq!(arrivals.pop(50), None);
        assert_eq!(arrivals.next_at(), Some(1_000_040));
        assert_eq!(arrivals.pop(1_000_040), Some(ScheduledArrival { at: 1_000_040, session: 0 }));
    }

    #[test]
    fn single_users_start_at_their_time() {
        let mut with = plan(vec![ArrivalPhase { max_users: Some(2), ..phase(1.0) }], &[1.0, 1.0]);
        with.starts = vec![UserStart { at_ms: 5_000, session: 1 }, UserStart { at_ms: 500, session: 1 }];
        let mut arrivals = ArrivalSchedule::new(&with);
        assert_eq!(all(&mut arrivals), [0, 500_000, 1_000_000, 5_000_000]);
        assert_eq!(arrivals.end(), Some(1_000_000));
    }
}
