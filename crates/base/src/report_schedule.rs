//! When a node sends what it has collected for the other nodes: as soon as there is something, but at most once in
//! [`INTERVAL_MILLIS`], so that a flood of events costs a bounded number of messages.

use std::task::{Context, Poll, Waker};

use crate::clock::Millis;
use crate::lock::LeafMutex;

/// Least time between two reports, in milliseconds.
pub const INTERVAL_MILLIS: u64 = 100;

/// Schedule of the reports of a node. What is collected is elsewhere.
#[derive(Debug, Default)]
pub struct ReportSchedule(LeafMutex<ScheduleState>);

#[derive(Debug, Default)]
struct ScheduleState {
    /// Something was collected since the last report.
    requested: bool,
    /// Earliest time of the next report.
    next: Millis,
    /// The task that sends reports.
    waker: Option<Waker>,
}

impl ReportSchedule {
    /// Something was collected. Must be called after it was, and not under a lock.
    pub fn request(&self) {
        let mut state = self.0.lock();
        let first = !std::mem::replace(&mut state.requested, true);
        let waker = state.waker.take_if(|_| first);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Time of the next report; pending while there is nothing to report. For one task.
    pub fn poll_due(&self, cx: &Context<'_>) -> Poll<Millis> {
        let mut state = self.0.lock();
        if state.requested {
            return Poll::Ready(state.next);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether a report must be sent now. Later requests are for the next one.
    pub fn begin(&self, now: Millis) -> bool {
        let mut state = self.0.lock();
        let due = state.requested && state.next <= now;
        if due {
            state.requested = false;
            state.next = now.plus(INTERVAL_MILLIS);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_report_is_due_at_once_and_further_ones_after_the_interval() {
        let schedule = ReportSchedule::default();
        let cx = Context::from_waker(Waker::noop());
        assert_eq!(schedule.poll_due(&cx), Poll::Pending);
        assert!(!schedule.begin(Millis(1_000)), "nothing was collected");
        schedule.request();
        schedule.request();
        assert_eq!(schedule.poll_due(&cx), Poll::Ready(Millis::ZERO));
        assert!(schedule.begin(Millis(1_000)) && !schedule.begin(Millis(5_000)));
        assert_eq!(schedule.poll_due(&cx), Poll::Pending);
        schedule.request();
        assert_eq!(schedule.poll_due(&cx), Poll::Ready(Millis(1_000 + INTERVAL_MILLIS)));
        assert!(
            !schedule.begin(Millis(999 + INTERVAL_MILLIS)) && schedule.begin(Millis(1_000 + INTERVAL_MILLIS))
        );
    }

    #[test]
    fn a_flood_of_requests_causes_ten_reports_a_second() {
        let schedule = ReportSchedule::default();
        let reports = (0..10_000).filter(|ms| {
            (0..10).for_each(|_| schedule.request());
            schedule.begin(Millis(*ms))
        });
        assert_eq!(reports.count(), 100);
    }
}
