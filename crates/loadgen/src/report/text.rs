//! Summary table at the end of a run, for a terminal of 80 columns and for `summary.txt`.
//!
//! Not implemented: values over time; the page has them.
//!
//! # Pitfalls
//!
//! Names must be sanitized for a terminal before they are written.

use std::fmt::Write as _;

use super::model::RunRecord;
use super::page::name;
use super::series::{timing_title, timings, transactions};
use super::table::means;
use super::unit::{DisplayUnit, bytes, clock, date, digits, grouped, plain, span, time};
use super::verdict::{VerdictGrade, total, verdict};
use crate::measure::{Counter, Gauge, Timing};

/// Timings that are also shown separately for the time after all arrivals.
const DELIVERIES: [Timing; 9] = [
    Timing::Message,
    Timing::MessageSameNode,
    Timing::MessageCrossNode,
    Timing::Presence,
    Timing::PresenceSameNode,
    Timing::PresenceCrossNode,
    Timing::RoomMessage,
    Timing::RoomPresence,
    Timing::NodeEvent,
];
/// Width of the table.
const WIDTH: usize = 80;

/// Fits a name into `columns` columns.
pub(super) fn fit(text: &str, columns: usize) -> String {
    let text = super::escape::shortened(&plain(text), columns);
    let missing = columns.saturating_sub(text.chars().count());
    text + &" ".repeat(missing)
}

/// Wraps text between words with hanging indentation.
pub(super) fn wrapped(text: &str, first: &str, rest: &str) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut columns = line.chars().count();
    let mut empty = true;
    for word in plain(text).split([' ', '\n']) {
        let length = word.chars().count();
        if !empty && columns + 1 + length > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = rest.to_owned();
            columns = line.chars().count();
            empty = true;
        }
        if !empty {
            line.push(' ');
            columns += 1;
        }
        line.push_str(word);
        columns += length;
        empty = false;
    }
    lines + line.trim_end() + "\n"
}

/// Builds the summary table.
pub(super) fn text(run: &RunRecord) -> String {
    let about = &run.about;
    let mut text = wrapped(&format!("{} against {}", about.plan, name(run)), "", "  ");
    text += &wrapped(
        &format!(
            "{}, {}, {}",
            date(about.started),
            span(about.length),
            if about.end.is_empty() { "unknown end" } else { &about.end }
        ),
        "",
        "  ",
    );
    if let Some(used) = used(run) {
        text += &wrapped(&format!("Logins: {used}"), "", "  ");
    }
    let verdict = verdict(run);
    text.push('\n');
    text += &wrapped(&verdict.line, "", "  ");
    for (grade, point) in &verdict.points {
        text += &wrapped(point, if *grade == VerdictGrade::Good { "  + " } else { "  ! " }, "    ");
    }
    for warning in &run.warnings {
        text += &wrapped(warning, "  ! ", "    ");
    }
    thresholds(&mut text, run);
    times(&mut text, run);
    steps(&mut text, run);
    counts(&mut text, run);
    failures(&mut text, run);
    errors(&mut text, run);
    machines(&mut text, run);
    text.replace(['\u{a0}', '\u{202f}'], " ")
}

/// Protection of connections and login mechanisms, the most frequent first; `None` without a login.
pub(super) fn used(run: &RunRecord) -> Option<String> {
    let mut kinds: Vec<(&String, &u64)> = run.totals.used.iter().collect();
    kinds.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let text = match kinds.as_slice() {
        [] => return None,
        [(kind, _)] => plain(kind),
        kinds => kinds
            .iter()
            .map(|(kind, count)| format!("{}\u{a0}× {}", grouped(**count), plain(kind)))
            .collect::<Vec<_>>()
            .join("; "),
    };
    let requested = &run.about.security;
    Some(if requested.is_empty() { text } else { format!("{text} (security {})", plain(requested)) })
}

fn thresholds(text: &mut String, run: &RunRecord) {
    if run.thresholds.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{:<45} {:>14} {:>16}", "Fails on", "measured", "");
    for threshold in &run.thresholds {
        let _ = writeln!(
            text,
            "{} {:>14} {:>16}",
            fit(&threshold.expression, 45),
            plain(&threshold.measured),
            if threshold.missed { "FAILED" } else { "passed" }
        );
    }
}

fn times(text: &mut String, run: &RunRecord) {
    let names: Vec<&str> = timings(run).into_iter().chain(transactions(run)).collect();
    if names.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:<21} {:>10} {:>8} {:>7} {:>7} {:>7} {:>7} {:>6}",
        "Time", "count", "mean", "p50", "p90", "p99", "p99.9", "max"
    );
    let rows = names.into_iter().flat_map(|name| {
        let after =
            run.totals.after_arrivals.get(name).filter(|_| DELIVERIES.iter().any(|it| it.name() == name));
        let whole = (timing_title(name), &run.totals.timings[name].summary);
        std::iter::once(whole).chain(after.map(|after| ("… after arrivals".to_owned(), after)))
    });
    for (title, s) in rows {
        // Without the space before the unit, so that seven values fit.
        let cell = |us: f64| time(us).replace('\u{a0}', "");
        let _ = writeln!(
            text,
            "{} {:>10} {:>8} {:>7} {:>7} {:>7} {:>7} {:>6}",
            fit(&title, 21),
            s.count,
            cell(s.mean),
            cell(s.p50 as f64),
            cell(s.p90 as f64),
            cell(s.p99 as f64),
            cell(s.p999 as f64),
            cell(s.max as f64)
        );
    }
}

/// Step table of the published BOSH benchmark.
fn steps(text: &mut String, run: &RunRecord) {
    let steps = super::bosh_steps::steps(run);
    if steps.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:<13} {:>9} {:>7} {:>8} {:>9} {:>7} {:>6} {:>6} {:>7}",
        "Step", "count", "errors", "mean", "deviation", "length", "p50", "p99", "max"
    );
    for step in steps {
        let cell = |us: f64| time(us).replace('\u{a0}', "");
        let _ = writeln!(
            text,
            "{:<13} {:>9} {:>7} {:>8} {:>9} {:>7.0} {:>6} {:>6} {:>7}",
            step.name,
            step.count,
            step.errors,
            cell(step.mean),
            cell(step.deviation),
            step.length,
            cell(step.p50 as f64),
            cell(step.p99 as f64),
            cell(step.max as f64)
        );
    }
}

fn counts(text: &mut String, run: &RunRecord) {
    let most = |gauge: Gauge| run.totals.gauges.get(gauge.name()).copied().unwrap_or(0);
    let _ = writeln!(text, "\n{:<30} {:>14} {:>16} {:>16}", "Count", "total", "highest rate", "mean rate");
    for counter in [
        Counter::UsersStarted,
        Counter::Connections,
        Counter::ConnectErrors,
        Counter::Logins,
        Counter::LoginErrors,
        Counter::SessionsLost,
        Counter::MessagesSent,
        Counter::MessagesDelivered,
        Counter::MessagesLost,
        Counter::MessagesWaiting,
        Counter::MessagesDuplicate,
        Counter::MessagesReordered,
        Counter::MessagesRefused,
        Counter::RoomJoins,
        Counter::RoomJoinErrors,
        Counter::RoomMessagesSent,
        Counter::RoomMessagesRefused,
        Counter::RoomMessagesUnreceived,
        Counter::RoomCopies,
        Counter::RoomCopiesLost,
        Counter::RoomCopiesDuplicate,
        Counter::RoomCopiesReordered,
        Counter::RoomSenderReordered,
        Counter::RoomCopiesOutside,
        Counter::RoomHistory,
        Counter::NodeSubscriptions,
        Counter::NodeUnsubscriptions,
        Counter::NodeSubscriptionErrors,
        Counter::NodePublications,
        Counter::NodePublicationsRefused,
        Counter::NodePublicationsUnreceived,
        Counter::NodeEvents,
        Counter::NodeEventsLost,
        Counter::NodeEventsDuplicate,
        Counter::NodeEventsReordered,
        Counter::NodePublisherReordered,
        Counter::NodeEventsOutside,
        Counter::NodeLastItems,
        Counter::PresenceReceived,
        Counter::Timeouts,
        Counter::Unacceptable,
        Counter::BytesOut,
        Counter::BytesIn,
    ] {
        let zero_matters = matches!(
            counter,
            Counter::MessagesLost | Counter::MessagesDuplicate | Counter::MessagesReordered
        ) && total(run, Counter::MessagesSent) > 0
            || matches!(
                counter,
                Counter::RoomCopiesLost | Counter::RoomCopiesDuplicate | Counter::RoomCopiesReordered
            ) && total(run, Counter::RoomMessagesSent) > 0
            || matches!(
                counter,
                Counter::NodeEventsLost | Counter::NodeEventsDuplicate | Counter::NodeEventsReordered
            ) && total(run, Counter::NodePublications) > 0;
        let Some(found) =
            run.totals.counters.get(counter.name()).copied().or(zero_matters.then(Default::default))
        else {
            continue;
        };
        if found.total == 0 && !zero_matters {
            continue;
        }
        let is_bytes = matches!(counter, Counter::BytesOut | Counter::BytesIn);
        let unit = if is_bytes { DisplayUnit::ByteRate } else { DisplayUnit::Rate };
        let _ = writeln!(
            text,
            "{} {:>14} {:>16} {:>16}",
            fit(counter.title(), 30),
            if is_bytes { bytes(found.total as f64) } else { grouped(found.total) },
            unit.show(found.highest_rate),
            unit.show(found.mean_rate)
        );
    }
    let _ = writeln!(
        text,
        "\nMaximum: {} users, {} connected, {} online, {} with acceptable responses",
        most(Gauge::Users),
        most(Gauge::Connected),
        most(Gauge::Online),
        most(Gauge::Acceptable)
    );
}

/// Failures that the run caused, and the account of each message.
fn failures(text: &mut String, run: &RunRecord) {
    if !run.about.failover {
        return;
    }
    text.push('\n');
    for event in &run.chaos {
        let line = format!("{}  {}: {}", clock(event.at), event.action, event.result);
        text.push_str(&wrapped(&line, "", "  "));
    }
    let _ = writeln!(text, "{:<45} {:>14}", "Account of the failures", "total");
    for counter in super::FAILURE_COUNTERS {
        let _ = writeln!(text, "{} {:>14}", fit(counter.title(), 45), grouped(total(run, counter)));
    }
}

fn errors(text: &mut String, run: &RunRecord) {
    let mut kinds: Vec<_> = run.totals.errors.iter().filter(|(_, e)| e.total > 0).collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.1.total));
    if kinds.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{:<45} {:>14} {:>16}", "Error", "total", "first seen");
    for (kind, found) in kinds.iter().take(20) {
        let first = run.seconds.iter().find(|s| s.errors.contains_key(*kind)).map(|s| clock(f64::from(s.at)));
        let _ = writeln!(
            text,
            "{} {:>14} {:>16}",
            fit(kind, 45),
            grouped(found.total),
            first.unwrap_or_default()
        );
    }
    if kinds.len() > 20 {
        let _ = writeln!(text, "and {} more kinds", kinds.len() - 20);
    }
}

fn machines(text: &mut String, run: &RunRecord) {
    text.push('\n');
    if let Some((high, _, mean)) = means(&run.server, |s| s.cpu) {
        let rss = run.server.iter().map(|s| s.rss).max().unwrap_or(0);
        let _ = writeln!(
            text,
            "Server:    CPU {} cores on average, {} in the highest 10 s; memory at most {}",
            digits(mean),
            digits(high),
            bytes(rss as f64)
        );
    }
    if run.workers.is_empty() {
        return;
    }
    let cpu: f64 = run.workers.iter().map(|w| w.cpu).sum();
    let rss: u64 = run.workers.iter().map(|w| w.rss).sum();
    let _ = writeln!(
        text,
        "Generator: CPU {} in {} worker{}, busiest {} of a core; memory at most {}",
        time(cpu * 1e6),
        run.workers.len(),
        if run.workers.len() == 1 { "" } else { "s" },
        digits(run.seconds.iter().map(|s| s.busiest_cpu).fold(0.0, f64::max)),
        bytes(rss as f64)
    );
    if let Some(keys) = keys(run) {
        text.push_str(&wrapped(&keys, "           ", "           "));
    }
    if let Some(late) = run.totals.timings.get(Timing::Lateness.name()) {
        let _ = writeln!(
            text,
            "           lateness {} at p50, {} at p99, {} at most",
            time(late.summary.p50 as f64),
            time(late.summary.p99 as f64),
            time(late.summary.max as f64)
        );
    }
}

/// Cost of the generator's own key derivation; `None` without any.
pub(super) fn keys(run: &RunRecord) -> Option<String> {
    let derived = total(run, Counter::KeysDerived);
    if derived == 0 {
        return None;
    }
    let ahead = total(run, Counter::KeysAhead);
    let mut text = format!("keys (SCRAM): {} derived", grouped(derived));
    if ahead > 0 {
        text.push_str(&format!(", {} of them before the run", grouped(ahead)));
    }
    text.push_str(&format!("; {} of CPU in the run", time(total(run, Counter::KeysCpu) as f64)));
    if let Some(waits) = run.totals.timings.get(Timing::Derive.name()).map(|waits| waits.summary) {
        text.push_str(&format!(
            "; logins waited {} at p50, {} at p99, {} at most",
            time(waits.p50 as f64),
            time(waits.p99 as f64),
            time(waits.max as f64)
        ));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::TimingSummary;
    use crate::report::model::{ChaosEvent, CounterTotal, RunInfo, TimingTotal};

    fn run() -> RunRecord {
        let mut run = RunRecord::default();
        for (timing, p99) in
            [(Timing::Message, 900), (Timing::MessageSameNode, 400), (Timing::MessageCrossNode, 950)]
        {
            let summary = TimingSummary { count: 10, p50: 100, p99, ..TimingSummary::default() };
            run.totals
                .timings
                .insert(timing.name().into(), TimingTotal { summary, ..TimingTotal::default() });
            run.totals.after_arrivals.insert(timing.name().into(), summary);
        }
        run
    }

    fn count(run: &mut RunRecord, counter: Counter, total: u64) {
        let total = CounterTotal { total, ..CounterTotal::default() };
        run.totals.counters.insert(counter.name().into(), total);
    }

    #[test]
    fn deliveries_between_nodes_are_beside_those_on_the_same_node() {
        let text = text(&run());
        for (row, p99) in [("Message, same node", "400µs"), ("Message, cross-node", "950µs")] {
            let line = text.lines().find(|line| line.starts_with(row)).unwrap();
            assert!(line.contains(p99), "{line}");
        }
        assert_eq!(text.matches("… after arrivals").count(), 3);
        assert!(!text.contains("Account of the failures"));
    }

    #[test]
    fn a_run_with_failures_accounts_for_its_messages() {
        let mut run = run();
        run.about = RunInfo { failover: true, ..RunInfo::default() };
        let action = "kill process 4711".to_owned();
        run.chaos = vec![ChaosEvent { at: 30.0, action, result: "done".to_owned() }];
        count(&mut run, Counter::AcknowledgedLost, 3);
        count(&mut run, Counter::DuplicateOtherId, 2);
        count(&mut run, Counter::SessionsLost, 600);
        let text = text(&run);
        assert!(text.contains("kill process 4711: done"), "{text}");
        for (row, total) in [
            ("Acknowledged messages lost", "3"),
            ("… with another stanza-id", "2"),
            ("… with the same stanza-id", "0"),
            ("Sessions lost", "600"),
        ] {
            let mut lines = text.lines().skip_while(|line| !line.starts_with("Account of the failures"));
            let line = lines.find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{row}: {text}"));
            assert!(line.ends_with(total), "{line}");
        }
        assert!(text.contains("3 acknowledged messages were lost."), "{text}");
        let page = crate::report::html(&run);
        assert!(page.contains("Failures that the run caused") && page.contains("kill process 4711"));
    }
}
