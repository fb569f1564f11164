//! Verdict on a run: whether its metrics can be trusted and what they show, as one line and a few findings.
//!
//! The generator is judged first: if it was late itself, times are partly its own. Lost messages, lost sessions, failed
//! logins, and late answers follow.
//!
//! # Pitfalls
//!
//! The limits (5 ms of lateness at p99, 90 % of a core) must equal those of the warnings during the run.

use super::model::RunRecord;
use super::unit::{grouped, plain, share, time};
use crate::measure::{Counter, Timing, TimingSummary};

/// Lateness at p99 above which a generator is late, in microseconds.
pub(super) const LATE: u64 = 5_000;
/// CPU of one worker above which it is too busy, in cores.
pub(super) const BUSY: f64 = 0.9;
/// Wait of logins for the generator's own keys at p99 above which the generator limits the login rate, in microseconds.
const LATE_KEYS: u64 = 100_000;
/// Busy seconds from which the generator counts as busy; a single one is the start or a neighbour.
const BUSY_SECONDS: u64 = 3;
/// Share of answers that must be in time for a server to have kept up.
const ENOUGH: f64 = 0.99;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictGrade {
    /// As expected.
    Good,
    /// The metrics need care.
    Doubtful,
    /// A failure.
    Bad,
}

/// Verdict on a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunVerdict {
    /// Worst grade of the findings.
    pub grade: VerdictGrade,
    /// One sentence.
    pub line: String,
    /// Findings, each a sentence.
    pub points: Vec<(VerdictGrade, String)>,
}

/// Total of a counter.
pub(super) fn total(run: &RunRecord, counter: Counter) -> u64 {
    run.totals.counters.get(counter.name()).map_or(0, |c| c.total)
}

/// `1 message`, `2 messages`.
pub(super) fn many(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { more })
}

/// Error kinds that do not indicate a fault of the server.
const HARMLESS: [&str; 8] = [
    "register:exists",
    "nobody-online",
    "nobody-offline",
    "no-previous-destination",
    "no-previous-contact",
    "no-contact",
    "no-online-contact",
    "no-partner",
];

/// Most frequent kind of error and its count.
pub(crate) fn most_frequent(run: &RunRecord) -> Option<(&str, u64)> {
    let kinds = run.totals.errors.iter().map(|(kind, count)| (kind.as_str(), count.total));
    let kinds = kinds.filter(|(kind, count)| *count > 0 && !HARMLESS.contains(kind));
    // On a tie, the first one.
    kinds.rev().max_by_key(|(_, count)| *count)
}

/// Reason why times of this run are partly the generator's own; `None` if it was on time.
pub(super) fn late(run: &RunRecord) -> Option<String> {
    let p99 = |timing: Timing| run.totals.timings.get(timing.name()).map_or(0, |total| total.summary.p99);
    let lateness = p99(Timing::Lateness);
    let busy = busy_seconds(run);
    if lateness > LATE {
        Some(format!("its lateness was {} at p99", time(lateness as f64)))
    } else if let Some(keys) = late_keys(run) {
        Some(format!("logins waited {} at p99 for its key derivation", time(keys.p99 as f64)))
    } else if busy >= BUSY_SECONDS {
        Some(format!("a worker was busy in {}", many(busy, "second", "seconds")))
    } else {
        None
    }
}

/// Wait of logins for the generator's own keys, if it limited their rate: at least 1 % of logins, and above the limit.
pub(crate) fn late_keys(run: &RunRecord) -> Option<TimingSummary> {
    let waits = run.totals.timings.get(Timing::Derive.name())?.summary;
    let logins = total(run, Counter::Logins) + total(run, Counter::LoginErrors);
    (waits.p99 > LATE_KEYS && waits.count.saturating_mul(100) >= logins).then_some(waits)
}

fn busy_seconds(run: &RunRecord) -> u64 {
    run.seconds.iter().filter(|s| s.busiest_cpu > BUSY).count() as u64
}

/// Judges a run.
pub fn verdict(run: &RunRecord) -> RunVerdict {
    let mut points = Vec::new();
    let late = late(run).is_some();
    failures(run, &mut points);
    generator(run, &mut points);
    server(run, late, &mut points);
    let grade = points.iter().map(|p: &(VerdictGrade, String)| p.0).max().unwrap_or(VerdictGrade::Doubtful);
    let missed = run.thresholds.iter().any(|threshold| threshold.missed);
    let measured = run.totals.timings.values().any(|t| t.summary.count > 0);
    let line = match grade {
        _ if !measured => "Nothing was measured.",
        VerdictGrade::Bad if late => {
            "Some actions failed, and the generator was late: the times include its own delays."
        }
        VerdictGrade::Bad if missed => "The run missed its thresholds.",
        VerdictGrade::Bad => "The server did not keep up.",
        VerdictGrade::Doubtful if late => "The generator was late: the times include its own delays.",
        VerdictGrade::Doubtful => "The server kept up, with reservations.",
        VerdictGrade::Good => "The server kept up.",
    };
    RunVerdict { grade: if measured { grade } else { VerdictGrade::Doubtful }, line: line.to_owned(), points }
}

/// Findings that a reader wants first: the most frequent error and the missed thresholds.
fn failures(run: &RunRecord, points: &mut Vec<(VerdictGrade, String)>) {
    if let Some((kind, count)) = most_frequent(run) {
        let first = run.seconds.iter().find(|second| second.errors.contains_key(kind));
        let since = first.map(|second| format!(", first in second {}", second.at)).unwrap_or_default();
        let text = format!("Most frequent error: {}, {}{since}.", plain(kind), many(count, "time", "times"));
        points.push((VerdictGrade::Doubtful, text));
    }
    for threshold in run.thresholds.iter().filter(|threshold| threshold.missed) {
        points.push((
            VerdictGrade::Bad,
            format!("Failed on {}: {}.", plain(&threshold.expression), plain(&threshold.measured)),
        ));
    }
}

fn generator(run: &RunRecord, points: &mut Vec<(VerdictGrade, String)>) {
    if run.about.end != "finished" && !run.about.end.is_empty() {
        points.push((
            VerdictGrade::Doubtful,
            format!("The run ended early: {}.", run.about.end.trim_end_matches('.')),
        ));
    }
    for worker in &run.workers {
        if let Some((second, users)) = worker.died {
            points.push((
                VerdictGrade::Doubtful,
                format!(
                    "Worker {} died in second {second}, and {} with it.",
                    worker.name,
                    many(u64::from(users), "user", "users")
                ),
            ));
        }
    }
    let lateness = run.totals.timings.get(Timing::Lateness.name()).map(|t| t.summary).unwrap_or_default();
    let busy = busy_seconds(run);
    if let Some(keys) = late_keys(run) {
        points.push((
            VerdictGrade::Doubtful,
            format!(
                "The generator had to derive {} for logins, which waited {} at p99 for them: the generator \
                 limited the login rate.",
                many(total(run, Counter::KeysDerived), "key", "keys"),
                time(keys.p99 as f64)
            ),
        ));
    }
    if lateness.p99 > LATE {
        points.push((
            VerdictGrade::Doubtful,
            format!(
                "The generator's lateness was {} at p99, more than {}.",
                time(lateness.p99 as f64),
                time(LATE as f64)
            ),
        ));
    }
    if busy >= BUSY_SECONDS {
        points.push((
            VerdictGrade::Doubtful,
            format!(
                "The generator had a worker above {:.0}\u{a0}% of a core in {}.",
                BUSY * 100.0,
                many(busy, "second", "seconds")
            ),
        ));
    }
    if lateness.count > 0 && lateness.p99 <= LATE && busy < BUSY_SECONDS {
        points.push((
            VerdictGrade::Good,
            format!("Generator on time: lateness {} at p99.", time(lateness.p99 as f64)),
        ));
    }
}

fn server(run: &RunRecord, late_itself: bool, points: &mut Vec<(VerdictGrade, String)>) {
    let (good, late, missing) =
        (total(run, Counter::Acceptable), total(run, Counter::Unacceptable), total(run, Counter::Timeouts));
    let all = good + late + missing;
    if all > 0 {
        let enough = good as f64 >= all as f64 * ENOUGH;
        let grade = match (enough, late_itself) {
            (true, _) => VerdictGrade::Good,
            // The delay may have been in the generator.
            (false, true) => VerdictGrade::Doubtful,
            (false, false) => VerdictGrade::Bad,
        };
        let whose = if !enough && late_itself { ", including delays of the generator" } else { "" };
        points.push((
            grade,
            format!(
                "{} of the responses arrived within {}{whose}.",
                share(good, all),
                time(run.about.acceptable_ms as f64 * 1e3)
            ),
        ));
    }
    if missing > 0 {
        points.push((VerdictGrade::Bad, format!("{} never came.", many(missing, "answer", "answers"))));
    }
    let (sent, lost) = (total(run, Counter::MessagesSent), total(run, Counter::MessagesLost));
    if lost > 0 {
        points.push((
            VerdictGrade::Bad,
            format!("{} of {} lost.", grouped(lost), many(sent, "message", "messages")),
        ));
    } else if sent > 0 {
        points.push((VerdictGrade::Good, format!("None of {} messages was lost.", grouped(sent))));
    }
    rooms(run, points);
    nodes(run, points);
    if run.about.failover {
        let lost = total(run, Counter::AcknowledgedLost);
        points.push(match lost {
            0 => (VerdictGrade::Good, "No message was lost that the server had acknowledged.".to_owned()),
            _ => {
                let (one, more) = ("acknowledged message was lost", "acknowledged messages were lost");
                (VerdictGrade::Bad, format!("{}.", many(lost, one, more)))
            }
        });
    }
    for (counter, one, more) in [
        (Counter::MessagesDuplicate, "message arrived twice", "messages arrived twice"),
        (Counter::MessagesReordered, "message arrived out of order", "messages arrived out of order"),
        (Counter::RoomJoinErrors, "join of a room failed", "joins of rooms failed"),
        (Counter::RoomMessagesRefused, "room message was refused", "room messages were refused"),
        (Counter::RoomMessagesUnreceived, "room message reached nobody", "room messages reached nobody"),
        (
            Counter::RoomCopiesDuplicate,
            "copy of a room message arrived twice",
            "copies of room messages arrived twice",
        ),
        (
            Counter::RoomCopiesReordered,
            "copy arrived out of the room's order",
            "copies arrived out of the room's order",
        ),
        (
            Counter::RoomSenderReordered,
            "copy arrived out of the sender's order",
            "copies arrived out of the sender's order",
        ),
        (Counter::NodeSubscriptionErrors, "subscription to a node failed", "subscriptions to nodes failed"),
        (Counter::NodePublicationsRefused, "item was refused", "items were refused"),
        (Counter::NodePublicationsUnreceived, "item reached nobody", "items reached nobody"),
        (Counter::NodeEventsDuplicate, "event arrived twice", "events arrived twice"),
        (
            Counter::NodeEventsReordered,
            "event arrived out of the node's order",
            "events arrived out of the node's order",
        ),
        (
            Counter::NodePublisherReordered,
            "event arrived out of its publisher's order",
            "events arrived out of their publishers' order",
        ),
        (Counter::SessionsLost, "session was lost", "sessions were lost"),
        (Counter::LoginErrors, "login failed", "logins failed"),
        (Counter::ConnectErrors, "connection failed", "connections failed"),
    ] {
        let count = total(run, counter);
        // A run that causes failures loses sessions.
        let expected =
            run.about.failover && matches!(counter, Counter::SessionsLost | Counter::ConnectErrors);
        if count > 0 {
            let grade = if expected { VerdictGrade::Doubtful } else { VerdictGrade::Bad };
            points.push((grade, format!("{}.", many(count, one, more))));
        }
    }
    let skipped = total(run, Counter::Skipped);
    if skipped > 0 {
        points.push((
            VerdictGrade::Doubtful,
            format!("{} skipped because the socket was full.", many(skipped, "action was", "actions were")),
        ));
    }
}

/// Events of PubSub nodes that subscribers did not receive.
fn nodes(run: &RunRecord, points: &mut Vec<(VerdictGrade, String)>) {
    let (events, lost) = (total(run, Counter::NodeEvents), total(run, Counter::NodeEventsLost));
    if lost > 0 {
        let all = many(events + lost, "event", "events");
        points.push((VerdictGrade::Bad, format!("{} of {all} of nodes lost.", grouped(lost))));
    } else if events > 0 {
        points.push((VerdictGrade::Good, format!("None of {} events of nodes was lost.", grouped(events))));
    }
}

/// Copies of room messages that occupants did not receive.
fn rooms(run: &RunRecord, points: &mut Vec<(VerdictGrade, String)>) {
    let (copies, lost) = (total(run, Counter::RoomCopies), total(run, Counter::RoomCopiesLost));
    if lost > 0 {
        let all = many(copies + lost, "copy of room messages", "copies of room messages");
        points.push((VerdictGrade::Bad, format!("{} of {all} lost.", grouped(lost))));
    } else if copies > 0 {
        points.push((
            VerdictGrade::Good,
            format!("None of {} copies of room messages was lost.", grouped(copies)),
        ));
    }
}
