//! Step table of the published BOSH benchmark: count, errors, mean, deviation and length of its seven steps.
//!
//! The published tool measures from sending a request to receiving its response. Here a message is measured from its
//! due time to its arrival at the other user, and presence to its reflection, because a BOSH request is answered when
//! there is data to send and not when it was processed. Length is the mean size of the answer in bytes: the body of the
//! HTTP response, or the element over WebSocket.
//!
//! Not implemented: runs over TCP, which have the table of timings.
//!
//! # Pitfalls
//!
//! Message errors are the messages that bounced and those that were lost; the latter are known only at the end of the
//! run.

use serde::{Deserialize, Serialize};

use super::model::RunRecord;
use crate::measure::{Counter, Timing};

/// One step. Times are in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRow {
    /// `initiate`, `authenticate`, `bind`, `session`, `roster`, `presence` or `message`.
    pub name: String,
    /// Successful answers.
    pub count: u64,
    /// Failures.
    pub errors: u64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Mean length of an answer in bytes.
    pub length: f64,
    /// 50th percentile.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

const STEPS: [(&str, Timing, Counter, &[Counter]); 7] = [
    ("initiate", Timing::Initiate, Counter::InitiateBytes, &[Counter::InitiateErrors]),
    ("authenticate", Timing::Authenticate, Counter::AuthenticateBytes, &[Counter::AuthenticateErrors]),
    ("bind", Timing::Bind, Counter::BindBytes, &[Counter::BindErrors]),
    ("session", Timing::OpenSession, Counter::SessionBytes, &[Counter::SessionErrors]),
    ("roster", Timing::Roster, Counter::RosterBytes, &[Counter::RosterErrors]),
    ("presence", Timing::PresenceEcho, Counter::PresenceBytes, &[Counter::PresenceErrors]),
    ("message", Timing::Message, Counter::MessageBytes, &[Counter::MessagesRefused, Counter::MessagesLost]),
];

/// Returns the table; empty for a run over TCP.
pub fn steps(run: &RunRecord) -> Vec<StepRow> {
    let counted = |counter: Counter| run.totals.counters.get(counter.name()).map_or(0, |found| found.total);
    let begun =
        run.totals.timings.contains_key(Timing::Initiate.name()) || counted(Counter::HttpRequests) > 0;
    if !begun {
        return Vec::new();
    }
    STEPS
        .iter()
        .map(|(name, timing, bytes, errors)| {
            let summary =
                run.totals.timings.get(timing.name()).map(|total| total.summary).unwrap_or_default();
            StepRow {
                name: (*name).to_owned(),
                count: summary.count,
                errors: errors.iter().map(|counter| counted(*counter)).sum(),
                mean: summary.mean,
                deviation: summary.deviation,
                length: counted(*bytes) as f64 / summary.count.max(1) as f64,
                p50: summary.p50,
                p90: summary.p90,
                p99: summary.p99,
                p999: summary.p999,
                max: summary.max,
            }
        })
        .collect()
}

/// Whether a counter is shown only in this table.
pub(super) fn is_part(name: &str) -> bool {
    STEPS.iter().any(|(_, _, bytes, errors)| {
        bytes.name() == name || (errors.len() == 1 && errors.iter().any(|counter| counter.name() == name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::TimingSummary;
    use crate::report::model::{CounterTotal, TimingTotal};

    #[test]
    fn each_step_has_its_count_errors_and_length() {
        let mut run = RunRecord::default();
        assert_eq!(steps(&run), []);
        let summary = TimingSummary {
            count: 4,
            mean: 2_000.0,
            deviation: 500.0,
            p99: 3_000,
            ..TimingSummary::default()
        };
        for timing in [Timing::Initiate, Timing::Message] {
            let total = TimingTotal { summary, ..TimingTotal::default() };
            run.totals.timings.insert(timing.name().to_owned(), total);
        }
        for (counter, total) in [
            (Counter::InitiateBytes, 1_000),
            (Counter::InitiateErrors, 3),
            (Counter::MessagesRefused, 1),
            (Counter::MessagesLost, 2),
        ] {
            run.totals
                .counters
                .insert(counter.name().to_owned(), CounterTotal { total, ..CounterTotal::default() });
        }
        let table = steps(&run);
        let names: Vec<&str> = table.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["initiate", "authenticate", "bind", "session", "roster", "presence", "message"]);
        assert_eq!((table[0].count, table[0].errors, table[0].length, table[0].p99), (4, 3, 250.0, 3_000));
        assert_eq!((table[6].count, table[6].errors, table[6].length), (4, 3, 0.0));
        assert_eq!((table[1].count, table[1].errors), (0, 0));
        let (text, page) = (crate::report::text(&run), crate::report::html(&run));
        assert!(text.contains("\ninitiate "), "{text}");
        assert!(page.contains("<th scope=\"row\">initiate</th>"));
        assert!(is_part("roster_bytes") && is_part("bind_errors") && !is_part("messages_lost"));
    }
}
