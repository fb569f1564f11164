//! Whether the figures of a run can be believed, and what they say, in one line and a few points.
//!
//! The first question is about the generator: if it was late itself, times are partly its own. Then come lost messages,
//! lost sessions, failed logins, and answers that were too late.
//!
//! Trap: the limits (5 ms of lateness at p99, 90 % of a core) are those that the run warns by; keep them the same.

use crate::measure::{Counter, Timing};

use super::model::Run;
use super::unit::{grouped, share, time};

/// Lateness at p99 from which a generator is late, in microseconds.
pub(super) const LATE: u64 = 5_000;
/// CPU of one worker from which it is too busy, in cores.
pub(super) const BUSY: f64 = 0.9;
/// Seconds of that from which it counts; one alone is the start or a neighbour.
const BUSY_SECONDS: u64 = 3;
/// The share of answers that must be in time for a server to have kept up.
const ENOUGH: f64 = 0.99;

/// How good or bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Good,
    /// The figures need care.
    Doubtful,
    /// Something broke.
    Bad,
}

/// What is said of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The worst of the points.
    pub grade: Grade,
    /// One sentence.
    pub line: String,
    /// Single findings, each a sentence.
    pub points: Vec<(Grade, String)>,
}

/// A counter's total.
pub(super) fn total(run: &Run, counter: Counter) -> u64 {
    run.totals.counters.get(counter.name()).map_or(0, |c| c.total)
}

/// `1 message`, `2 messages`.
pub(super) fn many(count: u64, one: &str, more: &str) -> String {
    format!("{} {}", grouped(count), if count == 1 { one } else { more })
}

/// Judges a run.
pub fn verdict(run: &Run) -> Verdict {
    let mut points = Vec::new();
    generator(run, &mut points);
    server(run, &mut points);
    let grade = points.iter().map(|p: &(Grade, String)| p.0).max().unwrap_or(Grade::Doubtful);
    let late = points.iter().any(|p| p.0 == Grade::Doubtful && p.1.starts_with("The generator"));
    let measured = run.totals.timings.values().any(|t| t.summary.count > 0);
    let line = match grade {
        _ if !measured => "Nothing was measured.",
        Grade::Bad if late => "The server did not keep up, and the generator was late as well.",
        Grade::Bad => "The server did not keep up.",
        Grade::Doubtful if late => "The generator was late: the times are partly its own.",
        Grade::Doubtful => "The server kept up, with reservations.",
        Grade::Good => "The server kept up.",
    };
    Verdict { grade: if measured { grade } else { Grade::Doubtful }, line: line.to_owned(), points }
}

fn generator(run: &Run, points: &mut Vec<(Grade, String)>) {
    if run.about.end != "finished" && !run.about.end.is_empty() {
        points.push((
            Grade::Doubtful,
            format!("The run ended early: {}.", run.about.end.trim_end_matches('.')),
        ));
    }
    for worker in &run.workers {
        if let Some((second, users)) = worker.died {
            points.push((
                Grade::Doubtful,
                format!(
                    "Worker {} died in second {second}, and {} with it.",
                    worker.name,
                    many(u64::from(users), "user", "users")
                ),
            ));
        }
    }
    let lateness = run.totals.timings.get(Timing::Lateness.name()).map(|t| t.summary).unwrap_or_default();
    let busy = run.seconds.iter().filter(|s| s.busiest_cpu > BUSY).count() as u64;
    if lateness.p99 > LATE {
        points.push((
            Grade::Doubtful,
            format!(
                "The generator was late by {} at p99, more than {}.",
                time(lateness.p99 as f64),
                time(LATE as f64)
            ),
        ));
    }
    if busy >= BUSY_SECONDS {
        points.push((
            Grade::Doubtful,
            format!(
                "The generator had a worker above {:.0}\u{a0}% of a core in {}.",
                BUSY * 100.0,
                many(busy, "second", "seconds")
            ),
        ));
    }
    if lateness.count > 0 && lateness.p99 <= LATE && busy < BUSY_SECONDS {
        points.push((Grade::Good, format!("Generator on time: {} late at p99.", time(lateness.p99 as f64))));
    }
}

fn server(run: &Run, points: &mut Vec<(Grade, String)>) {
    let (good, late, missing) =
        (total(run, Counter::Acceptable), total(run, Counter::Unacceptable), total(run, Counter::Timeouts));
    let all = good + late + missing;
    if all > 0 {
        let enough = good as f64 >= all as f64 * ENOUGH;
        points.push((
            if enough { Grade::Good } else { Grade::Bad },
            format!(
                "{} of the answers came within {}.",
                share(good, all),
                time(run.about.acceptable_ms as f64 * 1e3)
            ),
        ));
    }
    if missing > 0 {
        points.push((Grade::Bad, format!("{} never came.", many(missing, "answer", "answers"))));
    }
    let (sent, lost) = (total(run, Counter::MessagesSent), total(run, Counter::MessagesLost));
    if lost > 0 {
        points
            .push((Grade::Bad, format!("{} of {} lost.", grouped(lost), many(sent, "message", "messages"))));
    } else if sent > 0 {
        points.push((Grade::Good, format!("No message lost of {}.", grouped(sent))));
    }
    for (counter, one, more) in [
        (Counter::MessagesDuplicate, "message arrived twice", "messages arrived twice"),
        (Counter::MessagesReordered, "message arrived out of order", "messages arrived out of order"),
        (Counter::SessionsLost, "session was lost", "sessions were lost"),
        (Counter::LoginErrors, "login failed", "logins failed"),
        (Counter::ConnectErrors, "connection failed", "connections failed"),
    ] {
        let count = total(run, counter);
        if count > 0 {
            points.push((Grade::Bad, format!("{}.", many(count, one, more))));
        }
    }
    let skipped = total(run, Counter::Skipped);
    if skipped > 0 {
        points.push((
            Grade::Doubtful,
            format!(
                "{} left out, since the socket was full.",
                many(skipped, "thing due was", "things due were")
            ),
        ));
    }
}
