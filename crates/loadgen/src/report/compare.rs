//! Comparison of runs: a table for the terminal, and a page with their curves in shared charts.
//!
//! The first run is the baseline of all ratios. Runs of workloads `tigase-roster-N` are also plotted against the size
//! of the roster, one line per server, because the server in the published test failed at that.
//!
//! # Pitfalls
//!
//! Runs of different plans, scales or sizes can be compared, but the result means little; differences are reported
//! first.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::chart::{Chart, ChartAxis, ChartCurve, CurveStyle};
use super::escape::escape;
use super::model::RunRecord;
use super::page::{frame, name};
use super::series::{
    CurvePoint, MOST_STEPS, SeriesBuckets, counter_title, timing_title, timings, transactions,
};
use super::text::fit;
use super::unit::{DisplayUnit, date, grouped, plain, ratio};
use super::verdict::{late, verdict};
use crate::measure::{Counter, Gauge, Timing, TimingSummary};

/// Widths of the name column and of a run column.
const NAME: usize = 34;
const RUN: usize = 22;
/// Maximum number of runs with overlaid curves; more cannot be distinguished.
const MOST_CURVES: usize = 7;

/// One row: name, unit, and a value for each run.
struct RunComparisonRow {
    name: String,
    unit: DisplayUnit,
    values: Vec<Option<f64>>,
}

/// Metrics of runs with their ratios to the first. Rows without any value are omitted.
pub(super) fn text(runs: &[RunRecord]) -> String {
    let mut text = String::new();
    // Differences that make the metrics below hard to compare come first.
    for difference in differences(runs) {
        let _ = writeln!(text, "! {}", plain(&difference));
    }
    let mut line = |name: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>RUN$}")).collect();
        text.push_str(format!("{}{cells}", fit(name, NAME)).trim_end());
        text.push('\n');
    };
    let about = |pick: fn(&RunRecord) -> String| -> Vec<String> {
        runs.iter().map(|run| fit(&plain(&pick(run)), RUN).trim_end().to_owned()).collect()
    };
    line("", &about(|run| name(run).to_owned()));
    line("Plan", &about(|run| run.about.plan.clone()));
    line("Began", &about(|run| date(run.about.started)));
    line("Ended", &about(|run| run.about.end.clone()));
    let ratios = Ratios::new(runs);
    for row in rows(runs) {
        let cells: Vec<String> = ratios.cells(&row);
        line(&row.name, &cells);
    }
    text.replace(['\u{a0}', '\u{202f}'], " ")
}

/// Runs whose ratio to the first is meaningful.
struct Ratios {
    /// Whether the load was the same.
    same: Vec<bool>,
    /// Whether the generator was on time both in this run and in the first.
    on_time: Vec<bool>,
}

impl Ratios {
    fn new(runs: &[RunRecord]) -> Self {
        let first = runs.first();
        let with_first = |is: &dyn Fn(&RunRecord, &RunRecord) -> bool| -> Vec<bool> {
            runs.iter().map(|run| first.is_some_and(|first| is(first, run))).collect()
        };
        Self {
            same: with_first(&|first, run| {
                DIFFERENCES.iter().all(|(_, pick)| same(&pick(first), &pick(run)))
            }),
            on_time: with_first(&|first, run| late(first).is_none() && late(run).is_none()),
        }
    }

    /// Values with their ratios to the first where those are meaningful.
    fn cells(&self, row: &RunComparisonRow) -> Vec<String> {
        let first = row.values.first().copied().flatten();
        let cell = |(index, value): (usize, &Option<f64>)| {
            let means = self.same[index] && (row.unit != DisplayUnit::Time || self.on_time[index]);
            match (value, first) {
                (None, _) => "–".to_owned(),
                (Some(value), Some(first)) if index > 0 && means => {
                    format!("{} ×{}", row.unit.show(*value), ratio(first, *value))
                }
                (Some(value), _) => row.unit.show(*value),
            }
        };
        row.values.iter().enumerate().map(cell).collect()
    }
}

/// Property of a run that decides whether another run had the same load.
#[derive(Clone, Debug, PartialEq)]
enum RunProperty {
    Word(String),
    /// Equal within 2 %: peak of users online, of which some servers lose a few.
    About(f64),
    /// Equal within a factor of two: servers encode the same roster differently.
    Roughly(f64),
    /// Unknown: the run was written by an older version or did not do this.
    Unknown,
}

impl RunProperty {
    fn show(&self) -> String {
        match self {
            Self::Word(word) => plain(word),
            Self::About(number) | Self::Roughly(number) => grouped(number.round().max(0.0) as u64),
            Self::Unknown => "not known".to_owned(),
        }
    }
}

fn same(a: &RunProperty, b: &RunProperty) -> bool {
    let within = |a: f64, b: f64, share: f64| (a - b).abs() <= share * a.abs().max(b.abs());
    match (a, b) {
        (RunProperty::Unknown, _) | (_, RunProperty::Unknown) => true,
        (RunProperty::About(a), RunProperty::About(b)) => within(*a, *b, 0.02),
        (RunProperty::Roughly(a), RunProperty::Roughly(b)) => within(*a, *b, 0.5),
        (a, b) => a == b,
    }
}

type Pick = fn(&RunRecord) -> RunProperty;

/// Properties that two runs must share for a ratio between them to be meaningful.
const DIFFERENCES: [(&str, Pick); 7] = [
    ("their plan", |run| {
        // The roster size is a property of its own.
        RunProperty::Word(roster(run).map_or_else(|| run.about.plan.clone(), |_| "tigase-roster".to_owned()))
    }),
    ("the contacts of each user", |run| match run.about.roster.or_else(|| roster(run)) {
        Some(contacts) => RunProperty::Word(contacts.to_string()),
        None => RunProperty::Unknown,
    }),
    ("the bytes of a roster", |run| {
        let bytes = run.totals.counters.get(Counter::RosterBytes.name()).map(|counter| counter.total);
        let count = run.totals.timings.get(Timing::Roster.name()).map(|timing| timing.summary.count);
        match (bytes, count) {
            (Some(bytes), Some(count)) if count > 0 => RunProperty::Roughly(bytes as f64 / count as f64),
            _ => RunProperty::Unknown,
        }
    }),
    ("the requested connections", |run| RunProperty::Word(run.about.connections.to_string())),
    ("the users online", |run| match run.totals.gauges.get(Gauge::Online.name()) {
        Some(most) => RunProperty::About(*most as f64),
        None => RunProperty::Unknown,
    }),
    ("their time scale", |run| RunProperty::Word(run.about.time_scale.to_string())),
    ("their security", security),
];

/// Protection of most connections, with the mechanism, which costs more than TLS.
fn security(run: &RunRecord) -> RunProperty {
    let most = run.totals.used.iter().max_by_key(|(_, count)| **count);
    most.map_or(RunProperty::Unknown, |(used, _)| RunProperty::Word(used.clone()))
}

fn rows(runs: &[RunRecord]) -> Vec<RunComparisonRow> {
    let mut rows = Vec::new();
    let mut add = |name: String, unit: DisplayUnit, pick: &dyn Fn(&RunRecord) -> Option<f64>| {
        let values: Vec<_> = runs.iter().map(pick).collect();
        if values.iter().any(Option::is_some) {
            rows.push(RunComparisonRow { name, unit, values });
        }
    };
    for gauge in [Gauge::Online, Gauge::Acceptable] {
        let title = format!("{}, most", gauge.title());
        add(title, DisplayUnit::Count, &|run| run.totals.gauges.get(gauge.name()).map(|most| *most as f64));
    }
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        for timing in timings(run).into_iter().chain(transactions(run)) {
            if !names.contains(&timing) {
                names.push(timing);
            }
        }
    }
    type StatisticFn = fn(&TimingSummary) -> f64;
    let statistics: [(&str, StatisticFn); 4] = [
        ("mean", |s| s.mean),
        ("p50", |s| s.p50 as f64),
        ("p99", |s| s.p99 as f64),
        ("max", |s| s.max as f64),
    ];
    for timing in names {
        for (statistic, pick) in statistics {
            let title = format!("{}, {statistic}", timing_title(timing));
            add(title, DisplayUnit::Time, &|run| {
                let summary = &run.totals.timings.get(timing)?.summary;
                (summary.count > 0).then(|| pick(summary))
            });
        }
    }
    for counter in Counter::ALL {
        let title = counter_title(counter.name());
        add(title, DisplayUnit::Count, &|run| {
            run.totals.counters.get(counter.name()).map(|counter| counter.total as f64)
        });
    }
    let kinds: BTreeSet<&String> = runs.iter().flat_map(|run| run.totals.errors.keys()).collect();
    for kind in kinds {
        add(format!("Error {}", plain(kind)), DisplayUnit::Count, &|run| {
            run.totals.errors.get(kind).map(|error| error.total as f64)
        });
    }
    add("Server CPU, mean".into(), DisplayUnit::Cores, &|run| {
        let sum: f64 = run.server.iter().map(|sample| sample.cpu).sum();
        (!run.server.is_empty()).then(|| sum / run.server.len() as f64)
    });
    add("Server memory, maximum".into(), DisplayUnit::Bytes, &|run| {
        run.server.iter().map(|sample| sample.rss).max().map(|bytes| bytes as f64)
    });
    add("Generator CPU, s".into(), DisplayUnit::Count, &|run| {
        (!run.workers.is_empty()).then(|| run.workers.iter().map(|worker| worker.cpu).sum())
    });
    rows
}

/// Differences that make runs hard to compare, the most serious first.
fn differences(runs: &[RunRecord]) -> Vec<String> {
    let mut found = Vec::new();
    let mut without = false;
    for (what, pick) in DIFFERENCES {
        let traits: Vec<RunProperty> = runs.iter().map(pick).collect();
        if traits.iter().any(|one| traits.iter().any(|other| !same(one, other))) {
            let mut values: Vec<String> = Vec::new();
            for value in traits.iter().map(RunProperty::show) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            found.push(format!("the runs differ in {what}: {}", values.join(" / ")));
            without = true;
        }
    }
    if without {
        found.push("no ratios are shown for runs that differ, since they would be meaningless".to_owned());
    }
    let limits: BTreeSet<u64> = runs.iter().map(|run| run.about.acceptable_ms).collect();
    if limits.len() > 1 {
        let limits: Vec<String> = limits.iter().map(|ms| format!("{ms} ms")).collect();
        found.push(format!("the runs differ in the limit of acceptable responses: {}", limits.join(" / ")));
    }
    for run in runs {
        if let Some(reason) = late(run) {
            found.push(format!(
                "the generator of {} ({}) was the bottleneck ({reason}): no ratios of its times are shown",
                plain(name(run)),
                plain(&run.about.plan)
            ));
        }
    }
    let warned: Vec<String> = runs
        .iter()
        .filter(|run| !run.warnings.is_empty())
        .map(|run| format!("{} ({})", plain(name(run)), plain(&run.about.plan)))
        .collect();
    if !warned.is_empty() {
        found.push(format!("runs with warnings: {}", warned.join(", ")));
    }
    found
}

/// The comparison as a page.
pub(super) fn html(runs: &[RunRecord]) -> String {
    let roster = roster_charts(runs);
    let charts = if roster.is_empty() { curves(runs) } else { roster };
    let mut body =
        String::from("<header><p class=\"kind\">Load tests</p><h1>Side by side</h1></header><main>\n");
    let differences = differences(runs);
    if !differences.is_empty() {
        body.push_str("<div class=\"warnings\" role=\"note\"><h2>Before you compare</h2><ul>");
        for difference in differences {
            let _ = write!(body, "<li>{}</li>", escape(&difference));
        }
        body.push_str("</ul></div>");
    }
    body.push_str("<section><h2>Charts</h2><div class=\"charts\">\n");
    for chart in charts.iter().filter(|chart| !chart.is_empty()) {
        body.push_str(&chart.figure());
    }
    body.push_str("</div></section>\n<section><h2>Runs</h2><ul>");
    for run in runs {
        let _ = write!(
            body,
            "<li><b>{}</b> against {}: {}</li>",
            escape(&run.about.plan),
            escape(name(run)),
            escape(&verdict(run).line)
        );
    }
    body.push_str("</ul>");
    body.push_str(
        "</section>\n<section id=\"tables\"><h2>Table</h2><div class=\"scroll\"><table><thead><tr><th></th>",
    );
    for run in runs {
        let _ = write!(body, "<th>{}<br/>{}</th>", escape(name(run)), escape(&run.about.plan));
    }
    body.push_str("</tr></thead><tbody>\n");
    let ratios = Ratios::new(runs);
    for row in rows(runs) {
        let _ = write!(body, "<tr><th scope=\"row\">{}</th>", escape(&row.name));
        for cell in ratios.cells(&row) {
            let _ = write!(body, "<td>{}</td>", escape(&cell));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody></table></div></section></main>\n");
    frame("Load tests side by side", &body)
}

/// Charts of a timing over the runs.
const SHOWN: [(&str, &str); 4] = [
    ("login", "Whole login, p99"),
    ("presence", "Presence delivery, p99"),
    ("message", "Message delivery, p99"),
    ("roster", "Roster, p99"),
];

/// Roster size in the name of a workload.
fn roster(run: &RunRecord) -> Option<u32> {
    run.about.plan.strip_prefix("tigase-roster-")?.parse().ok()
}

/// Charts of p99 against the size of the roster, one line per server. Empty with fewer than two sizes.
pub(super) fn roster_charts(runs: &[RunRecord]) -> Vec<Chart> {
    let sizes: BTreeSet<u32> = runs.iter().filter_map(roster).collect();
    let (Some(first), Some(last)) = (sizes.first(), sizes.last()) else { return Vec::new() };
    if sizes.len() < 2 || sizes.len() > 50 {
        return Vec::new();
    }
    let mut servers: Vec<&str> = Vec::new();
    for run in runs.iter().filter(|run| roster(run).is_some()) {
        if !servers.contains(&name(run)) {
            servers.push(name(run));
        }
    }
    let axis = ChartAxis {
        from: f64::from(*first),
        to: f64::from(*last),
        ticks: sizes.iter().map(|size| (f64::from(*size), size.to_string())).collect(),
        title: "contacts".to_owned(),
        gap: f64::MAX,
        shutdown: f64::MAX,
    };
    let line = |index: usize, server: &&str, pick: &dyn Fn(&RunRecord) -> Option<f64>| {
        let mut points: Vec<CurvePoint> = runs
            .iter()
            .filter(|run| name(run) == *server)
            .filter_map(|run| Some((f64::from(roster(run)?), pick(run)?)))
            .map(|(x, y)| CurvePoint { x, low: y, y, high: y })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        ChartCurve { name: (*server).to_owned(), look: CurveStyle::Kind(index), points }
    };
    let chart =
        |id: &str, title: &str, unit: DisplayUnit, log: bool, pick: &dyn Fn(&RunRecord) -> Option<f64>| {
            Chart {
                id: format!("roster-{id}"),
                title: title.to_owned(),
                note: "By number of contacts per user.".to_owned(),
                unit,
                log,
                axis: axis.clone(),
                lines: servers.iter().enumerate().map(|(index, server)| line(index, server, pick)).collect(),
                phases: Vec::new(),
                limit: None,
                marks: true,
            }
        };
    let mut charts: Vec<Chart> = SHOWN
        .iter()
        .map(|(timing, title)| {
            chart(timing, title, DisplayUnit::Time, true, &|run| {
                let summary = &run.totals.timings.get(*timing)?.summary;
                (summary.count > 0).then_some(summary.p99 as f64)
            })
        })
        .collect();
    charts.push(chart(
        "acceptable",
        "Online with acceptable responses, maximum",
        DisplayUnit::Count,
        false,
        &|run| run.totals.gauges.get(Gauge::Acceptable.name()).map(|most| *most as f64),
    ));
    charts.push(chart("cpu", "Server CPU, mean", DisplayUnit::Cores, false, &|run| {
        let sum: f64 = run.server.iter().map(|sample| sample.cpu).sum();
        (!run.server.is_empty()).then(|| sum / run.server.len() as f64)
    }));
    charts.push(chart("memory", "Server memory, maximum", DisplayUnit::Bytes, false, &|run| {
        run.server.iter().map(|sample| sample.rss).max().map(|bytes| bytes as f64)
    }));
    charts
}

/// Charts of all runs over the time of each.
fn curves(runs: &[RunRecord]) -> Vec<Chart> {
    let runs = &runs[..runs.len().min(MOST_CURVES)];
    let steps: Vec<SeriesBuckets> = runs.iter().map(|run| SeriesBuckets::new(run, MOST_STEPS)).collect();
    let length = steps.iter().map(|steps| f64::from(steps.end)).fold(1.0, f64::max);
    let step = steps.iter().map(|steps| steps.width).max().unwrap_or(1);
    let chart = |id: &str,
                 title: &str,
                 unit: DisplayUnit,
                 log: bool,
                 points: &dyn Fn(SeriesBuckets, &RunRecord) -> Vec<CurvePoint>| Chart {
        id: format!("both-{id}"),
        title: title.to_owned(),
        note: String::new(),
        unit,
        log,
        axis: ChartAxis::time(length, step),
        lines: runs
            .iter()
            .zip(&steps)
            .enumerate()
            .map(|(index, (run, steps))| ChartCurve {
                name: format!("{} {}", index + 1, name(run)),
                look: CurveStyle::Kind(index),
                points: points(*steps, run),
            })
            .collect(),
        phases: Vec::new(),
        limit: None,
        marks: false,
    };
    let mut charts = vec![chart("online", "Online", DisplayUnit::Count, false, &|steps, run| {
        steps.gauge(run, Gauge::Online)
    })];
    for (timing, title) in SHOWN {
        charts.push(chart(timing, title, DisplayUnit::Time, true, &|steps, run| {
            steps.timing(run, timing, |summary| summary.p99 as f64)
        }));
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{CounterTotal, SecondReport, TimingTotal};

    fn run(plan: &str, label: &str, p99: u64) -> RunRecord {
        let mut run = RunRecord::default();
        run.about.plan = plan.to_owned();
        run.about.label = label.to_owned();
        let summary = TimingSummary { count: 1, p99, mean: 1.0, ..TimingSummary::default() };
        run.totals.timings.insert("login".into(), TimingTotal { summary, ..TimingTotal::default() });
        let total = CounterTotal { total: p99, ..CounterTotal::default() };
        run.totals.counters.insert("messages_sent".into(), total);
        run
    }

    fn words(text: &str, start: &str) -> String {
        let line =
            text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start} in {text}"));
        line[start.len()..].split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn two_runs_are_compared_with_ratios() {
        let mut second = run("steady", "b", 50);
        second.totals.timings.clear();
        let text = text(&[run("steady", "a", 200), second]);
        assert_eq!(words(&text, "Messages sent"), "200 50 ×0.25");
        assert_eq!(words(&text, "Whole login, p99"), "200 µs –");
        assert!(!text.contains("Bind") && !text.contains("differ"), "{text}");
    }

    #[test]
    fn differences_between_runs_are_listed() {
        let mut other = run("steady", "b", 1);
        other.about.connections = 7;
        other.warnings.push("late".into());
        let text = text(&[run("idle", "a", 1), other]);
        for words in [
            "their plan: idle / steady",
            "the requested connections: 0 / 7",
            "runs with warnings: b (steady)",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
        assert!(text.starts_with("! the runs differ in their plan"), "a warning stands first: {text}");
        assert_eq!(text.matches('×').count(), 0, "no ratio between different loads: {text}");
    }

    #[test]
    fn runs_with_other_users_security_or_rosters_are_not_the_same_load() {
        let with = |online: i64, used: &str, roster: u64| {
            let mut run = run("steady", used, 100);
            run.totals.gauges.insert("online".to_owned(), online);
            run.totals.used.insert(used.to_owned(), 5);
            let total = CounterTotal { total: roster, ..CounterTotal::default() };
            run.totals.counters.insert("roster_bytes".to_owned(), total);
            let summary = TimingSummary { count: 10, ..TimingSummary::default() };
            run.totals.timings.insert("roster".to_owned(), TimingTotal { summary, ..TimingTotal::default() });
            run
        };
        let first = with(2_000, "no TLS, PLAIN", 10_000);
        let like = text(&[first.clone(), with(1_990, "no TLS, PLAIN", 14_000)]);
        assert!(!like.contains("differ") && like.contains("×1"), "{like}");
        for (other, words) in [
            (with(1_900, "no TLS, PLAIN", 10_000), "the users online: 2000 / 1900"),
            (
                with(2_000, "STARTTLS, TLSv1.3, PLAIN", 10_000),
                "security: no TLS, PLAIN / STARTTLS, TLSv1.3, PLAIN",
            ),
            (with(2_000, "no TLS, PLAIN", 400), "the bytes of a roster: 1000 / 40"),
        ] {
            let text = text(&[first.clone(), other]);
            assert!(text.contains(words) && !text.contains('×'), "{words} in {text}");
        }
    }

    #[test]
    fn times_of_a_late_generator_have_no_ratio() {
        let mut late = run("steady", "b", 50);
        let summary = TimingSummary { count: 9, p99: 6_000, ..TimingSummary::default() };
        late.totals.timings.insert("lateness".into(), TimingTotal { summary, ..TimingTotal::default() });
        let text = text(&[run("steady", "a", 200), late]);
        assert!(
            text.starts_with(
                "! the generator of b (steady) was the bottleneck (its lateness was 6 ms at p99)"
            ),
            "{text}"
        );
        assert_eq!(words(&text, "Whole login, p99"), "200 µs 50 µs");
        assert_eq!(words(&text, "Messages sent"), "200 50 ×0.25");
    }

    #[test]
    fn roster_costs_are_one_curve_for_each_server() {
        let mut runs = Vec::new();
        for size in [50, 0, 10] {
            runs.push(run(&format!("tigase-roster-{size}"), "one", 100 + size));
            runs.push(run(&format!("tigase-roster-{size}"), "two", 900 + size));
        }
        let charts = roster_charts(&runs);
        let login = charts.iter().find(|chart| chart.id == "roster-login").unwrap();
        assert_eq!(login.lines.len(), 2);
        let points: Vec<_> = login.lines[1].points.iter().map(|point| (point.x, point.y)).collect();
        assert_eq!(points, [(0.0, 900.0), (10.0, 910.0), (50.0, 950.0)]);
        assert!(roster_charts(&runs[..1]).is_empty());
        assert!(roster_charts(&[run("steady", "a", 1), run("idle", "a", 2)]).is_empty());
    }

    #[test]
    fn the_page_holds_hostile_names_and_loads_nothing() {
        let mut hostile = run("<script>alert(1)</script>", "a\u{1b}[2J<b>", 5);
        hostile.seconds.push(SecondReport { at: 3, ..SecondReport::default() });
        hostile.totals.errors.insert("<i>".into(), CounterTotal::default());
        for runs in [vec![hostile.clone(), run("steady", "b", 1)], vec![hostile; 9]] {
            let page = html(&runs);
            for words in ["<script", "2J<b>", "<i>", "http:"] {
                assert!(!page.contains(words), "{words}");
            }
            let whole = page.split_once("<body>").unwrap().1.rsplit_once("</body>").unwrap().0;
            roxmltree::Document::parse(&format!("<body>{whole}</body>")).unwrap();
            assert!(!text(&runs).contains('\u{1b}'));
        }
    }
}
