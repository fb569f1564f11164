//! What needs no run: the list of workloads, the comparison of two runs, a report written again.

use std::fmt::Write as _;
use std::path::Path;

use super::{Failure, out};
use crate::measure::{Counter, Summary, Timing};
use crate::report::model::Run;
use crate::{plan, report};

/// `throng load --list`.
pub(super) fn list() -> Result<(), Failure> {
    let workloads = plan::workloads();
    let width = workloads.iter().map(|workload| workload.name.len()).max().unwrap_or(0);
    for workload in workloads {
        out::line(&format!("{:width$}  {}", workload.name, workload.title));
        out::line(&format!("{:width$}  {}", "", workload.about));
    }
    Ok(())
}

/// `throng load compare`.
pub(super) fn compare(first: &Path, second: &Path) -> Result<(), Failure> {
    let (first, second) = (report::read(first)?, report::read(second)?);
    out::text(&side_by_side(&first, &second));
    Ok(())
}

/// A figure of a timing.
type Figure = fn(&Summary) -> f64;
/// A figure of a run, if it has it.
type Sample = fn(&Run) -> Option<f64>;
/// How a figure is written.
type Shown = fn(f64) -> String;

/// Figures of two runs with the ratio of the second to the first. What neither has is left out.
fn side_by_side(first: &Run, second: &Run) -> String {
    let mut text = String::new();
    let mut row = |name: &str, one: &str, two: &str, ratio: &str| {
        let _ = writeln!(text, "{name:<44} {one:>16} {two:>16} {ratio:>9}");
    };
    row("", &cut(&first.about.label), &cut(&second.about.label), "ratio");
    row("plan", &cut(&first.about.plan), &cut(&second.about.plan), "");
    row("end", &cut(&first.about.end), &cut(&second.about.end), "");
    for timing in Timing::ALL {
        let of = |run: &Run| run.totals.timings.get(timing.name()).map(|total| total.summary);
        let (one, two) = (of(first), of(second));
        if one.is_none() && two.is_none() {
            continue;
        }
        let figures: [(&str, Figure); 4] = [
            ("mean", |summary| summary.mean),
            ("p50", |summary| summary.p50 as f64),
            ("p99", |summary| summary.p99 as f64),
            ("max", |summary| summary.max as f64),
        ];
        for (name, figure) in figures {
            let ms = |us: f64| format!("{:.3} ms", us / 1_000.0);
            let (one, two) = (one.as_ref().map(figure), two.as_ref().map(figure));
            row(&format!("{}, {name}", timing.title()), &said(one, ms), &said(two, ms), &ratio(one, two));
        }
    }
    for counter in Counter::ALL {
        let of = |run: &Run| run.totals.counters.get(counter.name()).map(|total| total.total as f64);
        let (one, two) = (of(first), of(second));
        if one.is_some() || two.is_some() {
            let whole = |count: f64| format!("{count:.0}");
            row(counter.title(), &said(one, whole), &said(two, whole), &ratio(one, two));
        }
    }
    let samples: [(&str, Sample, Shown); 3] = [
        ("CPU of the server, mean", server_cpu, |cores| format!("{cores:.3} cores")),
        ("Memory of the server, highest", server_memory, |bytes| format!("{:.1} MB", bytes / 1e6)),
        ("CPU of the generator", generator_cpu, |seconds| format!("{seconds:.2} s")),
    ];
    for (name, of, shown) in samples {
        let (one, two) = (of(first), of(second));
        if one.is_some() || two.is_some() {
            row(name, &said(one, shown), &said(two, shown), &ratio(one, two));
        }
    }
    text
}

fn server_cpu(run: &Run) -> Option<f64> {
    let sum: f64 = run.server.iter().map(|sample| sample.cpu).sum();
    (!run.server.is_empty()).then(|| sum / run.server.len() as f64)
}

fn server_memory(run: &Run) -> Option<f64> {
    run.server.iter().map(|sample| sample.rss).max().map(|bytes| bytes as f64)
}

fn generator_cpu(run: &Run) -> Option<f64> {
    (!run.workers.is_empty()).then(|| run.workers.iter().map(|worker| worker.cpu).sum())
}

fn said(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "–".to_owned(), shown)
}

fn ratio(one: Option<f64>, two: Option<f64>) -> String {
    match (one, two) {
        (Some(one), Some(two)) if one > 0.0 => format!("{:.2}", two / one),
        _ => String::new(),
    }
}

/// As much as a column holds.
fn cut(text: &str) -> String {
    text.chars().take(16).collect()
}

/// `throng load report`.
pub(super) fn report(path: &Path) -> Result<(), Failure> {
    let run = report::read(path)?;
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let paths = report::write(folder, &run)?;
    out::text(&report::text(&run));
    out::line(&format!("Report: {}", paths.html.display()));
    Ok(())
}

/// A moment (seconds since 1970) as a part of a file name, in UTC: `2026-11-22-093000`.
pub(super) fn stamp(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // From days to a date: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", civil_from_days.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let of_era = z.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}-{hour:02}{minute:02}{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{CounterTotal, TimingTotal};

    #[test]
    fn two_runs_stand_side_by_side() {
        let mut first = Run::default();
        first.about.label = "a".to_owned();
        let total = CounterTotal { total: 200, ..CounterTotal::default() };
        first.totals.counters.insert("messages_sent".to_owned(), total);
        let mut second = first.clone();
        second.totals.counters.get_mut("messages_sent").unwrap().total = 50;
        let summary = Summary { count: 1, p99: 1_500, ..Summary::default() };
        let login = TimingTotal { summary, ..TimingTotal::default() };
        second.totals.timings.insert("login".to_owned(), login);
        let text = side_by_side(&first, &second);
        let words = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            line[start.len()..].split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("Messages sent"), "200 50 0.25");
        assert_eq!(words("Whole login, p99"), "– 1.500 ms");
        assert!(!text.contains("Bind"));
    }

    #[test]
    fn moments_are_named_by_their_date() {
        assert_eq!(stamp(0), "1970-01-01-000000");
        assert_eq!(stamp(951_782_399), "2000-02-28-235959");
        assert_eq!(stamp(951_782_400), "2000-02-29-000000");
        assert_eq!(stamp(1_795_339_800), "2026-11-22-093000");
    }
}
