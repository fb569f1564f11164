//! Tables of the page: those of a Tsung report, extended by percentiles, and those of the server and the generator.
//!
//! # Pitfalls
//!
//! A table scrolls inside its box on a small screen, so the box must be focusable by keyboard.

use std::fmt::Write as _;

use super::escape::escape;
use super::model::{RunRecord, ServerSample};
use super::series::{counter_title, gauge_title, ordered, timing_title, timings, transactions};
use super::unit::{self, DisplayUnit, bytes, clock, digits, grouped, short, time};
use super::verdict::total;
use crate::measure::{Counter, Gauge};

/// HTML table under construction. The first column names the row.
pub(super) struct HtmlTable {
    html: String,
    rows: usize,
}

impl HtmlTable {
    /// Starts a table with a caption and column titles.
    pub(super) fn new(caption: &str, columns: &[&str]) -> Self {
        let caption = escape(caption);
        let mut html = format!(
            "<div class=\"scroll\" role=\"region\" aria-label=\"{caption}\" tabindex=\"0\"><table><caption>{caption}</caption>\
             <thead><tr>"
        );
        for column in columns {
            let _ = write!(html, "<th scope=\"col\">{}</th>", escape(column));
        }
        html.push_str("</tr></thead><tbody>");
        Self { html, rows: 0 }
    }

    pub(super) fn row(&mut self, name: &str, cells: &[String]) {
        let _ = write!(self.html, "<tr><th scope=\"row\">{}</th>", escape(name));
        for cell in cells {
            let _ = write!(self.html, "<td>{}</td>", escape(cell));
        }
        self.html.push_str("</tr>");
        self.rows += 1;
    }

    /// Returns the table, or an empty string without rows.
    pub(super) fn end(mut self) -> String {
        if self.rows == 0 {
            return String::new();
        }
        self.html.push_str("</tbody></table></div>\n");
        self.html
    }
}

const TIMES: [&str; 13] = [
    "Timing",
    "Count",
    "Mean",
    "Deviation",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "Max",
    "Highest 10-s mean",
    "Lowest 10-s mean",
    "Highest rate",
    "Mean rate",
];

fn times(run: &RunRecord, caption: &str, names: &[&str]) -> String {
    let mut table = HtmlTable::new(caption, &TIMES);
    for name in names {
        let Some(total) = run.totals.timings.get(*name) else { continue };
        let s = &total.summary;
        let mut cells = vec![grouped(s.count), time(s.mean), time(s.deviation)];
        cells.extend([s.p50, s.p90, s.p99, s.p999, s.max].map(|us| time(us as f64)));
        cells.extend([time(total.highest_10s), time(total.lowest_10s)]);
        cells.extend([total.highest_rate, total.mean_rate].map(|r| DisplayUnit::Rate.show(r)));
        table.row(&timing_title(name), &cells);
    }
    table.end()
}

/// Timings of the seconds after the last arrival.
fn after_arrivals(run: &RunRecord) -> String {
    let columns = ["Timing", "Count", "Mean", "Deviation", "p50", "p90", "p99", "p99.9", "Max"];
    let mut table = HtmlTable::new("Response times after all users had arrived", &columns);
    for name in timings(run) {
        let Some(s) = run.totals.after_arrivals.get(name) else { continue };
        let mut cells = vec![grouped(s.count), time(s.mean), time(s.deviation)];
        cells.extend([s.p50, s.p90, s.p99, s.p999, s.max].map(|us| time(us as f64)));
        table.row(&timing_title(name), &cells);
    }
    table.end()
}

/// All tables in the order of their sections: (title, id, content).
pub(super) fn all(run: &RunRecord) -> Vec<(&'static str, &'static str, String)> {
    let mut sections = vec![
        ("Thresholds", "thresholds", thresholds(run)),
        (
            "Response times",
            "times",
            times(run, "Response times, measured from the moment when an action was due", &timings(run)),
        ),
        ("After arrivals", "after-arrivals", after_arrivals(run)),
        ("Steps", "steps", steps(run)),
        ("Transactions", "transactions", times(run, "Transactions of the plan", &transactions(run))),
        ("Failures", "failures", failures(run)),
        ("Counters", "counters", counters(run)),
        ("Errors", "errors", errors(run)),
        ("Network", "network", network(run)),
        ("Server", "server", server(run)),
        ("Generator", "generator", workers(run)),
        ("Phases", "phases", phases(run)),
    ];
    sections.retain(|(_, _, html)| !html.is_empty());
    sections
}

/// Thresholds of the run and whether they were missed.
fn thresholds(run: &RunRecord) -> String {
    let mut table = HtmlTable::new("Failure conditions of the run", &["Fails on", "Measured", "Result"]);
    for threshold in &run.thresholds {
        let result = if threshold.missed { "failed" } else { "passed" };
        table.row(&threshold.expression, &[threshold.measured.clone(), result.to_owned()]);
    }
    table.end()
}

/// Failures that the run caused, and the account of each message.
fn failures(run: &RunRecord) -> String {
    if !run.about.failover {
        return String::new();
    }
    let mut events = HtmlTable::new("Failures that the run caused", &["At", "Action", "Result"]);
    for event in &run.chaos {
        events.row(&clock(event.at), &[event.action.clone(), event.result.clone()]);
    }
    let mut table = HtmlTable::new("Account of the failures", &["", "Total"]);
    for counter in super::FAILURE_COUNTERS {
        table.row(counter.title(), &[grouped(total(run, counter))]);
    }
    events.end() + &table.end()
}

/// Step table of the published BOSH benchmark, with percentiles.
fn steps(run: &RunRecord) -> String {
    let columns =
        ["Step", "Count", "Errors", "Mean", "Deviation", "Length", "p50", "p90", "p99", "p99.9", "Max"];
    let mut table = HtmlTable::new("Steps of the published BOSH test", &columns);
    for step in super::bosh_steps::steps(run) {
        let mut cells =
            vec![grouped(step.count), grouped(step.errors), time(step.mean), time(step.deviation)];
        cells.push(bytes(step.length));
        cells.extend([step.p50, step.p90, step.p99, step.p999, step.max].map(|us| time(us as f64)));
        table.row(&step.name, &cells);
    }
    table.end()
}

fn is_network(name: &str) -> bool {
    [Counter::StanzasOut, Counter::StanzasIn, Counter::BytesOut, Counter::BytesIn]
        .iter()
        .any(|c| c.name() == name)
}

fn counters(run: &RunRecord) -> String {
    let known: Vec<&str> = Counter::ALL.iter().map(|c| c.name()).collect();
    let mut table = HtmlTable::new("Counters", &["Counter", "Total", "Highest rate", "Mean rate"]);
    for name in ordered(run.totals.counters.keys(), &known) {
        let total = run.totals.counters[name];
        if total.total > 0 && !is_network(name) && !super::bosh_steps::is_part(name) {
            table.row(
                &counter_title(name),
                &[
                    grouped(total.total),
                    DisplayUnit::Rate.show(total.highest_rate),
                    DisplayUnit::Rate.show(total.mean_rate),
                ],
            );
        }
    }
    let known: Vec<&str> = Gauge::ALL.iter().map(|g| g.name()).collect();
    let mut gauges = HtmlTable::new("Gauges", &["Maximum", "Most"]);
    for name in ordered(run.totals.gauges.keys(), &known) {
        gauges.row(&gauge_title(name), &[grouped(u64::try_from(run.totals.gauges[name]).unwrap_or(0))]);
    }
    table.end() + &gauges.end()
}

fn errors(run: &RunRecord) -> String {
    let mut kinds: Vec<_> = run.totals.errors.iter().filter(|(_, total)| total.total > 0).collect();
    kinds.sort_by_key(|kind| std::cmp::Reverse(kind.1.total));
    let mut table = HtmlTable::new("Errors by kind", &["Error", "Total", "Highest rate", "First seen"]);
    for (name, total) in kinds {
        let first = run.seconds.iter().find(|s| s.errors.contains_key(name)).map(|s| clock(f64::from(s.at)));
        table.row(
            name,
            &[grouped(total.total), DisplayUnit::Rate.show(total.highest_rate), first.unwrap_or_default()],
        );
    }
    table.end()
}

fn network(run: &RunRecord) -> String {
    let mut table = HtmlTable::new("Network", &["", "Total", "Highest rate", "Mean rate"]);
    for (counter, unit) in [
        (Counter::BytesOut, DisplayUnit::ByteRate),
        (Counter::BytesIn, DisplayUnit::ByteRate),
        (Counter::StanzasOut, DisplayUnit::Rate),
        (Counter::StanzasIn, DisplayUnit::Rate),
    ] {
        let Some(total) = run.totals.counters.get(counter.name()).filter(|c| c.total > 0) else { continue };
        let sum = if unit == DisplayUnit::Rate { grouped(total.total) } else { bytes(total.total as f64) };
        table.row(counter.title(), &[sum, unit.show(total.highest_rate), unit.show(total.mean_rate)]);
    }
    table.end()
}

/// Highest and lowest mean of ten consecutive seconds, and the mean of all.
pub(super) fn means(samples: &[ServerSample], pick: fn(&ServerSample) -> f64) -> Option<(f64, f64, f64)> {
    let mut sums: std::collections::BTreeMap<u32, (f64, u32)> = std::collections::BTreeMap::new();
    for sample in samples {
        let entry = sums.entry(sample.at / 10).or_default();
        entry.0 += pick(sample);
        entry.1 += 1;
    }
    let means = sums.values().map(|(sum, count)| sum / f64::from(*count));
    let all = samples.iter().map(pick).sum::<f64>() / samples.len().max(1) as f64;
    let high = means.clone().fold(f64::MIN, f64::max);
    (!samples.is_empty()).then(|| (high, means.fold(f64::MAX, f64::min), all))
}

fn server(run: &RunRecord) -> String {
    let mut table = HtmlTable::new(
        "Server monitoring",
        &["", "Highest 10-s mean", "Lowest 10-s mean", "Mean", "Highest", "At the end"],
    );
    type Figure = fn(&ServerSample) -> f64;
    let rows: [(&str, DisplayUnit, Figure); 6] = [
        ("CPU, cores", DisplayUnit::Cores, |s| s.cpu),
        ("Resident memory", DisplayUnit::Bytes, |s| s.rss as f64),
        ("Proportional memory", DisplayUnit::Bytes, |s| s.pss as f64),
        ("Threads", DisplayUnit::Count, |s| f64::from(s.threads)),
        ("Open files", DisplayUnit::Count, |s| f64::from(s.files)),
        ("Memory of TCP sockets (machine)", DisplayUnit::Bytes, |s| s.sockets as f64),
    ];
    for (name, unit, pick) in rows {
        let highest = run.server.iter().map(pick).fold(0.0, f64::max);
        if let (Some((high, low, mean)), Some(last), true) =
            (means(&run.server, pick), run.server.last(), highest > 0.0)
        {
            table.row(name, &[high, low, mean, highest, pick(last)].map(|v| unit.show(v)));
        }
    }
    table.end() + &constants(run)
}

/// Metrics that never changed, which have no curve.
fn constants(run: &RunRecord) -> String {
    let mut table = HtmlTable::new("Scraped metrics that stayed the same", &["Metric", "Value"]);
    for (name, values) in run.scraped.iter().filter(|(_, values)| !varies(values)).take(60) {
        if let Some((_, value)) = values.first() {
            table.row(name, &[short(*value)]);
        }
    }
    table.end()
}

/// Whether the values of a series differ.
pub(super) fn varies(values: &[(u32, f64)]) -> bool {
    values.windows(2).any(|pair| pair[0].1 != pair[1].1)
}

fn workers(run: &RunRecord) -> String {
    let mut table = HtmlTable::new(
        "Workers of the generator",
        &[
            "Worker",
            "Process",
            "Most users",
            "CPU",
            "CPU, share of a core",
            "Highest memory",
            "Memory per user",
            "Died",
        ],
    );
    for worker in &run.workers {
        let per_user = (worker.users > 0)
            .then(|| bytes(worker.rss.saturating_sub(worker.rss_empty) as f64 / f64::from(worker.users)));
        let share = (run.about.length > 0.0)
            .then(|| format!("{}\u{a0}%", digits(worker.cpu / run.about.length * 100.0)));
        table.row(
            &worker.name,
            &[
                worker.pid.to_string(),
                grouped(u64::from(worker.users)),
                time(worker.cpu * 1e6),
                share.unwrap_or_default(),
                bytes(worker.rss as f64),
                per_user.unwrap_or_default(),
                worker.died.map_or("no".to_owned(), |(second, users)| {
                    format!("at {} with {} users", clock(f64::from(second)), grouped(u64::from(users)))
                }),
            ],
        );
    }
    table.end()
}

fn phases(run: &RunRecord) -> String {
    let mut table = HtmlTable::new("Phases", &["Phase", "Began at", "Lasted"]);
    let ends = run.phases.iter().skip(1).map(|p| f64::from(p.from)).chain([run.about.length]);
    for (phase, end) in run.phases.iter().zip(ends) {
        let from = f64::from(phase.from);
        table.row(&phase.name, &[clock(from), unit::span(end - from)]);
    }
    table.end()
}
