//! Usage reports: what clients have used up of limits on one node, for the other nodes, so that a client which spreads its
//! attempts over the nodes of a cluster gets no more than on one node.
//!
//! A crate that enforces a limit registers a [`UsageReporter`]. It collects what must be reported, bounded and summed by key, and
//! requests a report ([`UsageReports::schedule`]); the crate `peers` sends one of each kind at most once in
//! [`base::report_schedule::INTERVAL_MILLIS`]. A flood thus costs a bounded number of messages of bounded size.
//!
//! # Pitfalls
//!
//! A report may be lost, and comes after the event. Limits must hold on each node without it; the loss of one makes a limit
//! weaker, at most as weak as without any reports.

use std::sync::Arc;

use base::ReportSchedule;
use base::lock::LeafMutex;

/// What is reported. The number of a kind is part of the protocol between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum UsageKind {
    /// Results of logins.
    LoginAttempts = 1,
    /// Rates that sessions had spent when they ended or lost their connection.
    SpentRates = 2,
}

impl UsageKind {
    /// All kinds.
    pub const ALL: [UsageKind; 2] = [UsageKind::LoginAttempts, UsageKind::SpentRates];

    /// Label value for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            UsageKind::LoginAttempts => "login-attempts",
            UsageKind::SpentRates => "spent-rates",
        }
    }
}

/// What was collected since the last report.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    /// Its octets; empty: nothing.
    pub octets: Vec<u8>,
    /// Events that are not reported, because too many were collected.
    pub dropped: u64,
}

/// Reports one kind of usage, and receives the reports of other nodes. Must not block.
pub trait UsageReporter: Send + Sync {
    /// What it reports.
    fn kind(&self) -> UsageKind;

    /// Removes what was collected.
    fn take_report(&self) -> UsageReport;

    /// Another node has reported. False if the octets are no report.
    fn on_report(&self, octets: &[u8]) -> bool;
}

/// The reporters of a node.
#[derive(Default)]
pub struct UsageReports {
    schedule: Arc<ReportSchedule>,
    reporters: LeafMutex<Vec<Arc<dyn UsageReporter>>>,
}

impl UsageReports {
    /// When reports are sent.
    pub fn schedule(&self) -> &Arc<ReportSchedule> {
        &self.schedule
    }

    /// Adds a reporter; replaces that of the same kind.
    pub fn register(&self, reporter: Arc<dyn UsageReporter>) {
        let mut reporters = self.reporters.lock();
        reporters.retain(|one| one.kind() != reporter.kind());
        reporters.push(reporter);
    }

    /// All reporters.
    pub fn reporters(&self) -> Vec<Arc<dyn UsageReporter>> {
        self.reporters.lock().clone()
    }

    /// Another node has sent a report. False if it is none. A kind that has no reporter here is ignored: the node may be
    /// newer.
    pub fn on_report(&self, octets: &[u8]) -> bool {
        let Some((kind, octets)) = octets.split_first() else { return false };
        let reporter = self.reporters().into_iter().find(|one| one.kind() as u8 == *kind);
        reporter.is_none_or(|reporter| reporter.on_report(octets))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo(UsageKind, LeafMutex<Vec<u8>>);

    impl UsageReporter for Echo {
        fn kind(&self) -> UsageKind {
            self.0
        }
        fn take_report(&self) -> UsageReport {
            UsageReport { octets: std::mem::take(&mut self.1.lock()), dropped: 0 }
        }
        fn on_report(&self, octets: &[u8]) -> bool {
            self.1.lock().extend(octets);
            octets != [0]
        }
    }

    #[test]
    fn a_report_reaches_the_reporter_of_its_kind_and_others_are_ignored() {
        let reports = UsageReports::default();
        let echo = |kind| Arc::new(Echo(kind, LeafMutex::default()));
        reports.register(echo(UsageKind::LoginAttempts));
        let [attempts, rates] = UsageKind::ALL.map(echo);
        for one in [&attempts, &rates] {
            reports.register(one.clone());
        }
        assert_eq!(reports.reporters().len(), 2, "one for each kind");
        assert!(reports.on_report(&[1, 7, 8]) && reports.on_report(&[2, 9]));
        assert!(reports.on_report(&[200, 1]), "of a newer node");
        assert!(!reports.on_report(&[]) && !reports.on_report(&[2, 0]));
        assert_eq!(attempts.take_report().octets, [7, 8]);
        assert_eq!(rates.take_report().octets, [9, 0]);
        let names = UsageKind::ALL.map(UsageKind::as_str);
        assert_ne!(names[0], names[1]);
    }
}
