//! Runs side by side: a table for the terminal, and a page with their curves in common charts.
//!
//! The first run is what the others are compared with; ratios are theirs to its. Runs of workloads `tigase-roster-N` are
//! also drawn against the size of the roster, one line for each server, since that is where the published server broke.
//!
//! Trap: runs of different plans, scales or sizes can be put side by side, but say little; what differs is called out first.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::measure::{Counter, Gauge, Summary};

use super::chart::{Axis, Chart, Line, Look};
use super::escape::escape;
use super::model::Run;
use super::page::{frame, name};
use super::series::{MOST_STEPS, Point, Steps, counter_title, timing_title, timings, transactions};
use super::text::fit;
use super::unit::{Unit, date, plain, ratio};
use super::verdict::verdict;

/// Columns of a name and of a run in the table.
const NAME: usize = 34;
const RUN: usize = 22;
/// Runs whose curves are drawn over one another at most; more could not be told apart.
const MOST_CURVES: usize = 7;

/// One row: what it is called, its unit, a value for each run.
struct Row {
    name: String,
    unit: Unit,
    values: Vec<Option<f64>>,
}

/// Figures of runs with their ratios to the first. What no run has is left out.
pub(super) fn text(runs: &[Run]) -> String {
    let mut text = String::new();
    let mut line = |name: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>RUN$}")).collect();
        text.push_str(format!("{}{cells}", fit(name, NAME)).trim_end());
        text.push('\n');
    };
    let about = |pick: fn(&Run) -> String| -> Vec<String> {
        runs.iter().map(|run| fit(&plain(&pick(run)), RUN).trim_end().to_owned()).collect()
    };
    line("", &about(|run| name(run).to_owned()));
    line("Plan", &about(|run| run.about.plan.clone()));
    line("Began", &about(|run| date(run.about.started)));
    line("Ended", &about(|run| run.about.end.clone()));
    for row in rows(runs) {
        let cells: Vec<String> = cells(&row);
        line(&row.name, &cells);
    }
    for difference in differences(runs) {
        let _ = writeln!(text, "! {difference}");
    }
    text.replace(['\u{a0}', '\u{202f}'], " ")
}

/// Values with their ratios to the first.
fn cells(row: &Row) -> Vec<String> {
    let first = row.values.first().copied().flatten();
    let cell = |(index, value): (usize, &Option<f64>)| match (value, first) {
        (None, _) => "–".to_owned(),
        (Some(value), Some(first)) if index > 0 => {
            format!("{} ×{}", row.unit.show(*value), ratio(first, *value))
        }
        (Some(value), _) => row.unit.show(*value),
    };
    row.values.iter().enumerate().map(cell).collect()
}

fn rows(runs: &[Run]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: String, unit: Unit, pick: &dyn Fn(&Run) -> Option<f64>| {
        let values: Vec<_> = runs.iter().map(pick).collect();
        if values.iter().any(Option::is_some) {
            rows.push(Row { name, unit, values });
        }
    };
    for gauge in [Gauge::Online, Gauge::Acceptable] {
        let title = format!("{}, most", gauge.title());
        add(title, Unit::Count, &|run| run.totals.gauges.get(gauge.name()).map(|most| *most as f64));
    }
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        for timing in timings(run).into_iter().chain(transactions(run)) {
            if !names.contains(&timing) {
                names.push(timing);
            }
        }
    }
    type Figure = fn(&Summary) -> f64;
    let figures: [(&str, Figure); 4] = [
        ("mean", |s| s.mean),
        ("p50", |s| s.p50 as f64),
        ("p99", |s| s.p99 as f64),
        ("max", |s| s.max as f64),
    ];
    for timing in names {
        for (figure, pick) in figures {
            let title = format!("{}, {figure}", timing_title(timing));
            add(title, Unit::Time, &|run| {
                let summary = &run.totals.timings.get(timing)?.summary;
                (summary.count > 0).then(|| pick(summary))
            });
        }
    }
    for counter in Counter::ALL {
        let title = counter_title(counter.name());
        add(title, Unit::Count, &|run| {
            run.totals.counters.get(counter.name()).map(|counter| counter.total as f64)
        });
    }
    let kinds: BTreeSet<&String> = runs.iter().flat_map(|run| run.totals.errors.keys()).collect();
    for kind in kinds {
        add(format!("Error {}", plain(kind)), Unit::Count, &|run| {
            run.totals.errors.get(kind).map(|error| error.total as f64)
        });
    }
    add("CPU of the server, mean".into(), Unit::Cores, &|run| {
        let sum: f64 = run.server.iter().map(|sample| sample.cpu).sum();
        (!run.server.is_empty()).then(|| sum / run.server.len() as f64)
    });
    add("Memory of the server, most".into(), Unit::Bytes, &|run| {
        run.server.iter().map(|sample| sample.rss).max().map(|bytes| bytes as f64)
    });
    add("CPU of the generator, s".into(), Unit::Count, &|run| {
        (!run.workers.is_empty()).then(|| run.workers.iter().map(|worker| worker.cpu).sum())
    });
    rows
}

/// What makes two runs hard to compare.
fn differences(runs: &[Run]) -> Vec<String> {
    let mut found = Vec::new();
    let mut check = |what: &str, pick: &dyn Fn(&Run) -> String| {
        let values: BTreeSet<String> = runs.iter().map(pick).collect();
        if values.len() > 1 {
            let values: Vec<String> = values.into_iter().map(|value| plain(&value)).collect();
            found.push(format!("the runs differ in {what}: {}", values.join(", ")));
        }
    };
    // The size of the roster is what such runs are put side by side for.
    check("their plan", &|run| match roster(run) {
        Some(_) => "tigase-roster".to_owned(),
        None => run.about.plan.clone(),
    });
    check("the connections asked for", &|run| run.about.connections.to_string());
    check("their time scale", &|run| run.about.time_scale.to_string());
    check("the limit of what is acceptable", &|run| format!("{} ms", run.about.acceptable_ms));
    let warned: Vec<String> = runs
        .iter()
        .filter(|run| !run.warnings.is_empty())
        .map(|run| format!("{} ({})", plain(name(run)), plain(&run.about.plan)))
        .collect();
    if !warned.is_empty() {
        found.push(format!("runs with warnings of their own: {}", warned.join(", ")));
    }
    found
}

/// The page.
pub(super) fn html(runs: &[Run]) -> String {
    let roster = roster_charts(runs);
    let charts = if roster.is_empty() { curves(runs) } else { roster };
    let mut body = String::from(
        "<header><p class=\"kind\">Load tests</p><h1>Side by side</h1></header><main>\n\
         <section><h2>Charts</h2><div class=\"charts\">\n",
    );
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
    let differences = differences(runs);
    if !differences.is_empty() {
        body.push_str("<div class=\"warnings\" role=\"note\"><h2>Before you compare</h2><ul>");
        for difference in differences {
            let _ = write!(body, "<li>{}</li>", escape(&difference));
        }
        body.push_str("</ul></div>");
    }
    body.push_str(
        "</section>\n<section id=\"tables\"><h2>Table</h2><div class=\"scroll\"><table><thead><tr><th></th>",
    );
    for run in runs {
        let _ = write!(body, "<th>{}<br/>{}</th>", escape(name(run)), escape(&run.about.plan));
    }
    body.push_str("</tr></thead><tbody>\n");
    for row in rows(runs) {
        let _ = write!(body, "<tr><th scope=\"row\">{}</th>", escape(&row.name));
        for cell in cells(&row) {
            let _ = write!(body, "<td>{}</td>", escape(&cell));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</tbody></table></div></section></main>\n");
    frame("Load tests side by side", &body)
}

/// What charts show of a timing over the runs.
const SHOWN: [(&str, &str); 4] = [
    ("login", "Whole login, p99"),
    ("presence", "Presence delivery, p99"),
    ("message", "Message delivery, p99"),
    ("roster", "Roster, p99"),
];

/// The size of the roster in the name of a workload.
fn roster(run: &Run) -> Option<u32> {
    run.about.plan.strip_prefix("tigase-roster-")?.parse().ok()
}

/// p99 against the size of the roster, a line for each server. Empty unless two sizes at least are there.
pub(super) fn roster_charts(runs: &[Run]) -> Vec<Chart> {
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
    let axis = Axis {
        from: f64::from(*first),
        to: f64::from(*last),
        ticks: sizes.iter().map(|size| (f64::from(*size), size.to_string())).collect(),
        title: "contacts".to_owned(),
        gap: f64::MAX,
    };
    let line = |index: usize, server: &&str, pick: &dyn Fn(&Run) -> Option<f64>| {
        let mut points: Vec<Point> = runs
            .iter()
            .filter(|run| name(run) == *server)
            .filter_map(|run| Some((f64::from(roster(run)?), pick(run)?)))
            .map(|(x, y)| Point { x, low: y, y, high: y })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        Line { name: (*server).to_owned(), look: Look::Kind(index), points }
    };
    let chart = |id: &str, title: &str, unit: Unit, log: bool, pick: &dyn Fn(&Run) -> Option<f64>| Chart {
        id: format!("roster-{id}"),
        title: title.to_owned(),
        note: "Against the number of contacts of each user.".to_owned(),
        unit,
        log,
        axis: axis.clone(),
        lines: servers.iter().enumerate().map(|(index, server)| line(index, server, pick)).collect(),
        phases: Vec::new(),
        limit: None,
        marks: true,
    };
    let mut charts: Vec<Chart> = SHOWN
        .iter()
        .map(|(timing, title)| {
            chart(timing, title, Unit::Time, true, &|run| {
                let summary = &run.totals.timings.get(*timing)?.summary;
                (summary.count > 0).then_some(summary.p99 as f64)
            })
        })
        .collect();
    charts.push(chart("acceptable", "Online with acceptable answers, most", Unit::Count, false, &|run| {
        run.totals.gauges.get(Gauge::Acceptable.name()).map(|most| *most as f64)
    }));
    charts.push(chart("cpu", "CPU of the server, mean", Unit::Cores, false, &|run| {
        let sum: f64 = run.server.iter().map(|sample| sample.cpu).sum();
        (!run.server.is_empty()).then(|| sum / run.server.len() as f64)
    }));
    charts.push(chart("memory", "Memory of the server, most", Unit::Bytes, false, &|run| {
        run.server.iter().map(|sample| sample.rss).max().map(|bytes| bytes as f64)
    }));
    charts
}

/// Curves of all runs over the time of each.
fn curves(runs: &[Run]) -> Vec<Chart> {
    let runs = &runs[..runs.len().min(MOST_CURVES)];
    let steps: Vec<Steps> = runs.iter().map(|run| Steps::new(run, MOST_STEPS)).collect();
    let length = steps.iter().map(|steps| f64::from(steps.end)).fold(1.0, f64::max);
    let step = steps.iter().map(|steps| steps.width).max().unwrap_or(1);
    let chart =
        |id: &str, title: &str, unit: Unit, log: bool, points: &dyn Fn(Steps, &Run) -> Vec<Point>| Chart {
            id: format!("both-{id}"),
            title: title.to_owned(),
            note: String::new(),
            unit,
            log,
            axis: Axis::time(length, step),
            lines: runs
                .iter()
                .zip(&steps)
                .enumerate()
                .map(|(index, (run, steps))| Line {
                    name: format!("{} {}", index + 1, name(run)),
                    look: Look::Kind(index),
                    points: points(*steps, run),
                })
                .collect(),
            phases: Vec::new(),
            limit: None,
            marks: false,
        };
    let mut charts =
        vec![chart("online", "Online", Unit::Count, false, &|steps, run| steps.gauge(run, Gauge::Online))];
    for (timing, title) in SHOWN {
        charts.push(chart(timing, title, Unit::Time, true, &|steps, run| {
            steps.timing(run, timing, |summary| summary.p99 as f64)
        }));
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::{CounterTotal, Second, TimingTotal};

    fn run(plan: &str, label: &str, p99: u64) -> Run {
        let mut run = Run::default();
        run.about.plan = plan.to_owned();
        run.about.label = label.to_owned();
        let summary = Summary { count: 1, p99, mean: 1.0, ..Summary::default() };
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
    fn two_runs_stand_side_by_side_with_ratios() {
        let mut second = run("steady", "b", 50);
        second.totals.timings.clear();
        let text = text(&[run("steady", "a", 200), second]);
        assert_eq!(words(&text, "Messages sent"), "200 50 ×0.25");
        assert_eq!(words(&text, "Whole login, p99"), "200 µs –");
        assert!(!text.contains("Bind") && !text.contains("differ"), "{text}");
    }

    #[test]
    fn what_differs_is_called_out() {
        let mut other = run("steady", "b", 1);
        other.about.connections = 7;
        other.warnings.push("late".into());
        let text = text(&[run("idle", "a", 1), other]);
        for words in [
            "their plan: idle, steady",
            "the connections asked for: 0, 7",
            "warnings of their own: b (steady)",
        ] {
            assert!(text.contains(words), "{words} in {text}");
        }
    }

    #[test]
    fn rosters_become_a_line_for_each_server() {
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
        hostile.seconds.push(Second { at: 3, ..Second::default() });
        hostile.totals.errors.insert("<i>".into(), CounterTotal::default());
        for runs in [vec![hostile.clone(), run("steady", "b", 1)], vec![hostile; 9]] {
            let page = html(&runs);
            for words in ["<script>alert", "2J<b>", "<i>", "http:"] {
                assert!(!page.contains(words), "{words}");
            }
            let whole = page.split_once("<body>").unwrap().1.rsplit_once("<script>").unwrap().0;
            roxmltree::Document::parse(&format!("<body>{whole}</body>")).unwrap();
            assert!(!text(&runs).contains('\u{1b}'));
        }
    }
}
