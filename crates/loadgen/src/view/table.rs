//! Table of the view: durations over the last ten seconds, one row per kind and transaction.
//!
//! With too few columns the least important values are omitted. A row stays when nothing of its kind has happened for
//! ten seconds, so that rows do not appear and disappear.
//!
//! # Pitfalls
//!
//! Names of transactions come from plans; they are cut and sanitized like all names.

use super::draw::{PrioritizedLines, label};
use super::line::{StyledLine, TextStyle, columns, fit, safe};
use super::live_metrics::LiveMetrics;
use crate::measure::Timing;
use crate::report::unit::{grouped, time};

/// Columns in order of importance: name, position, value.
type Column = (&'static str, u8, fn(&crate::measure::TimingSummary) -> String);
const COLUMNS: [Column; 5] = [
    ("p99", 3, |s| time(s.p99 as f64)),
    ("p50", 1, |s| time(s.p50 as f64)),
    ("max", 4, |s| time(s.max as f64)),
    ("count", 0, |s| grouped(s.count)),
    ("p90", 2, |s| time(s.p90 as f64)),
];
/// Width of each column.
const CELL: usize = 10;
/// Minimum width of a name.
const NAME: usize = 12;

/// Adds rows for everything timed so far; no table before the first value.
pub(super) fn table(lines: &mut PrioritizedLines, metrics: &LiveMetrics<'_>, width: usize) {
    let mut rows: Vec<(u8, String, String)> = Vec::new();
    for (keep, timing, title) in [
        (4, Timing::Login, "login"),
        (4, Timing::Message, "message"),
        (4, Timing::RoomMessage, "room message"),
        (4, Timing::NodeEvent, "event"),
        (5, Timing::NodePublish, "publication"),
        (5, Timing::NodeSubscribe, "subscription"),
        (5, Timing::RoomJoin, "room join"),
        (5, Timing::Presence, "presence"),
        (6, Timing::Roster, "roster"),
        (6, Timing::Ping, "ping"),
    ] {
        rows.push((keep, timing.name().to_owned(), title.to_owned()));
    }
    // Includes those without values in the last ten seconds, so that rows do not come and go.
    let mut transactions: Vec<&String> =
        metrics.run.totals.timings.keys().chain(metrics.live.recent.keys()).collect();
    transactions.sort_unstable();
    transactions.dedup();
    for name in transactions {
        if let Some(title) = name.strip_prefix("tr:") {
            rows.push((7, name.clone(), format!("“{title}”")));
        }
    }
    let known = |name: &str| {
        metrics.run.totals.timings.get(name).is_some_and(|t| t.summary.count > 0)
            || metrics.recent(name).is_some()
    };
    rows.retain(|(_, name, _)| known(name));
    if rows.is_empty() {
        return;
    }
    let mut shown: Vec<&Column> =
        COLUMNS.iter().take((width.saturating_sub(NAME) / CELL).min(COLUMNS.len())).collect();
    shown.sort_by_key(|column| column.1);
    let name_columns = (width - shown.len() * CELL).min(30);
    let cell = |text: &str| {
        let text = fit(&safe(text), CELL - 1);
        " ".repeat(CELL - columns(&text)) + &text
    };
    let header = label("Last 10 s");
    let mut line = StyledLine::of(TextStyle::Dim, &header);
    line.add(TextStyle::Normal, &" ".repeat(name_columns.saturating_sub(columns(&header))));
    shown.iter().for_each(|column| line.add(TextStyle::Dim, &cell(column.0)));
    lines.push(4, line);
    for (keep, name, title) in rows {
        let title = fit(&safe(&format!("  {title}")), name_columns);
        let mut line = StyledLine::of(TextStyle::Normal, &title);
        line.add(TextStyle::Normal, &" ".repeat(name_columns - columns(&title)));
        let summary = metrics.recent(&name);
        for column in &shown {
            line.add(TextStyle::Normal, &cell(&summary.as_ref().map_or("–".to_owned(), column.2)));
        }
        lines.push(keep, line);
    }
}
