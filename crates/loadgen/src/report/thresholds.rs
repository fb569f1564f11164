//! Pass or fail of a run: its thresholds ([`crate::plan::Threshold`]), failed logins, and how it ended.
//!
//! Not implemented: thresholds on a part of the run.
//!
//! # Pitfalls
//!
//! A time that was never measured fails its threshold: a check that passes because nothing happened would hide exactly
//! that.

use super::model::{RunRecord, ThresholdRun};
use super::unit::{digits, grouped, time};
use super::verdict::{many, most_frequent, total};
use crate::measure::{Counter, TimingSummary};
use crate::plan::{PARTS, Statistic, Threshold, ThresholdSubject};

/// Evaluates the thresholds of a run.
pub(crate) fn evaluate(thresholds: &[Threshold], run: &RunRecord) -> Vec<ThresholdRun> {
    thresholds.iter().map(|threshold| one(threshold, run)).collect()
}

fn one(threshold: &Threshold, run: &RunRecord) -> ThresholdRun {
    let expression = threshold.text.clone();
    let Some(measured) = measured(threshold, run) else {
        return ThresholdRun { expression, measured: "nothing was measured".to_owned(), missed: true };
    };
    ThresholdRun {
        expression,
        measured: shown(threshold, measured),
        missed: threshold.comparison.holds(measured, threshold.value),
    }
}

/// Measured value; `None` if there are no samples.
fn measured(threshold: &Threshold, run: &RunRecord) -> Option<f64> {
    let count = match &threshold.subject {
        ThresholdSubject::Timing(name) => {
            let total = run.totals.timings.get(name).filter(|total| total.summary.count > 0);
            match (threshold.statistic, total) {
                (Statistic::Count | Statistic::Rate, total) => total.map_or(0, |total| total.summary.count),
                (statistic, total) => return total.map(|total| of_time(statistic, &total.summary)),
            }
        }
        ThresholdSubject::Gauge(name) => {
            return Some(run.totals.gauges.get(name).copied().unwrap_or(0) as f64);
        }
        ThresholdSubject::Counter(name) => {
            let count = run.totals.counters.get(name).map_or(0, |counter| counter.total);
            if threshold.statistic == Statistic::Share {
                let (_, whole) = PARTS.iter().find(|(part, _)| part.name() == name)?;
                let whole: u64 = whole.iter().map(|counter| total(run, *counter)).sum();
                return (whole > 0).then(|| count as f64 / whole as f64);
            }
            count
        }
        ThresholdSubject::Errors => run.totals.errors.values().map(|error| error.total).sum(),
        ThresholdSubject::Error(kind) => run.totals.errors.get(kind).map_or(0, |error| error.total),
    };
    match threshold.statistic {
        Statistic::Rate => (run.about.length > 0.0).then(|| count as f64 / run.about.length),
        _ => Some(count as f64),
    }
}

fn of_time(statistic: Statistic, summary: &TimingSummary) -> f64 {
    match statistic {
        Statistic::P50 => summary.p50 as f64,
        Statistic::P90 => summary.p90 as f64,
        Statistic::P99 => summary.p99 as f64,
        Statistic::P999 => summary.p999 as f64,
        Statistic::Min => summary.min as f64,
        Statistic::Max => summary.max as f64,
        _ => summary.mean,
    }
}

fn shown(threshold: &Threshold, measured: f64) -> String {
    match (&threshold.subject, threshold.statistic) {
        (_, Statistic::Rate) => format!("{}/s", digits(measured)),
        (_, Statistic::Share) => format!("{} %", digits(measured * 100.0)),
        (ThresholdSubject::Timing(_), statistic) if statistic != Statistic::Count => time(measured),
        _ => grouped(measured.max(0.0) as u64),
    }
    .replace(['\u{a0}', '\u{202f}'], " ")
}

/// Reasons why the run failed, the most serious first; empty if it passed. Failed logins are a failure unless a
/// threshold limits them.
pub(crate) fn failures(thresholds: &[Threshold], run: &RunRecord) -> Vec<String> {
    let mut found = Vec::new();
    let frequent = most_frequent(run)
        .map(|(kind, count)| format!(" (most frequent error: {kind}, {})", many(count, "time", "times")));
    let mut frequent = frequent.unwrap_or_default();
    if !matches!(run.about.end.as_str(), "finished" | "interrupted" | "") {
        found.push(run.about.end.clone());
    }
    let (failed, logins) = (total(run, Counter::LoginErrors), total(run, Counter::Logins));
    if failed > 0
        && found.is_empty()
        && !thresholds.iter().any(|threshold| threshold.is_about(Counter::LoginErrors))
    {
        found.push(format!(
            "{} of {} failed{}",
            grouped(failed),
            many(failed + logins, "login", "logins"),
            std::mem::take(&mut frequent)
        ));
    }
    for threshold in run.thresholds.iter().filter(|threshold| threshold.missed) {
        found.push(format!(
            "{}: {}{}",
            threshold.expression,
            threshold.measured,
            std::mem::take(&mut frequent)
        ));
    }
    found.iter().map(|text| text.replace(['\u{a0}', '\u{202f}'], " ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Gauge, Timing, TimingHistogram};
    use crate::report::model::{CounterTotal, TimingTotal};

    fn run() -> RunRecord {
        let mut run = RunRecord::default();
        run.about.length = 10.0;
        run.about.end = "finished".to_owned();
        let mut histogram = TimingHistogram::new();
        (1..=1_000).for_each(|ms| histogram.record(ms * 1_000));
        let total = TimingTotal { summary: histogram.summary(), ..TimingTotal::default() };
        run.totals.timings.insert(Timing::Message.name().to_owned(), total);
        for (counter, total) in
            [(Counter::Logins, 98), (Counter::LoginErrors, 2), (Counter::MessagesSent, 500)]
        {
            let total = CounterTotal { total, ..CounterTotal::default() };
            run.totals.counters.insert(counter.name().to_owned(), total);
        }
        for (kind, total) in [("login:not-authorized", 2), ("timeout", 1), ("nobody-online", 9)] {
            run.totals.errors.insert(kind.to_owned(), CounterTotal { total, ..CounterTotal::default() });
        }
        run.totals.gauges.insert(Gauge::Online.name().to_owned(), 98);
        run
    }

    fn of(text: &str) -> (String, bool) {
        let found = evaluate(&[Threshold::parse(text).unwrap()], &run());
        (found[0].measured.clone(), found[0].missed)
    }

    #[test]
    fn each_statistic_is_compared_with_the_measurement() {
        for (text, measured, missed) in [
            ("p50(message) > 499ms", "500 ms", true),
            ("p99(message) > 1s", "990 ms", false),
            ("max(message) >= 1s", "1 s", true),
            ("mean(message) < 400ms", "500 ms", false),
            ("count(message) == 1000", "1000", true),
            ("rate(message) < 100.5", "100/s", true),
            ("share(login_errors) > 1.9%", "2 %", true),
            ("share(messages_lost) > 0%", "0 %", false),
            ("count(messages_lost) > 0", "0", false),
            ("count(errors) > 11", "12", true),
            ("count(error:timeout) != 1", "1", false),
            ("max(online) < 99", "98", true),
        ] {
            assert_eq!(of(text), (measured.to_owned(), missed), "{text}");
        }
    }

    #[test]
    fn a_threshold_on_an_unmeasured_metric_fails() {
        assert_eq!(of("p99(presence) > 1s"), ("nothing was measured".to_owned(), true));
        assert_eq!(of("share(iq_errors) > 1%"), ("nothing was measured".to_owned(), true));
    }

    #[test]
    fn failed_logins_fail_the_run_unless_a_threshold_permits_them() {
        let found = failures(&[], &run());
        assert_eq!(found, ["2 of 100 logins failed (most frequent error: login:not-authorized, 2 times)"]);
        let with = |text: &str| {
            let thresholds = [Threshold::parse(text).unwrap()];
            let mut run = run();
            run.thresholds = evaluate(&thresholds, &run);
            failures(&thresholds, &run)
        };
        assert_eq!(with("count(login_errors) > 2"), [""; 0]);
        let missed = with("share(login_errors) > 1%");
        assert!(
            missed[0].starts_with("share(login_errors) > 1%: 2 % (most frequent error: login:"),
            "{missed:?}"
        );
        assert_eq!(with("p50(message) > 1ms").len(), 2);
    }
}
