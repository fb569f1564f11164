//! HTML report of a run: one file without scripts that loads nothing.
//!
//! Its Content-Security-Policy permits only the style sheet of the page. The markup is also well-formed XML, so that a
//! test can parse it.

use std::fmt::Write as _;

use super::curves;
use super::escape::escape;
use super::model::RunRecord;
use super::series::{gauge_title, timing_title};
use super::table;
use super::unit::{DisplayUnit, bytes, date, digits, grouped, short, span, time};
use super::verdict::{VerdictGrade, verdict};
use crate::measure::{Gauge, Timing};

const STYLE: &str = include_str!("page.css");

/// Document around the content.
pub(super) fn frame(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <meta name=\"color-scheme\" content=\"light dark\"/><title>{title}</title><style>{STYLE}</style></head>\n\
         <body>{body}</body></html>\n"
    )
}

/// Complete page of a run.
pub(super) fn html(run: &RunRecord) -> String {
    let tables = table::all(run);
    let sections = curves::sections(run);
    let mut body = String::new();
    header(&mut body, run);
    body.push_str("<nav aria-label=\"Sections\">");
    for section in sections.iter().filter(|s| s.charts.iter().any(|c| !c.is_empty())) {
        let _ = write!(body, "<a href=\"#{}\">{}</a> ", section.id, section.title);
    }
    body.push_str("<a href=\"#tables\">Tables</a></nav><main>\n");
    for section in &sections {
        charts(&mut body, section);
    }
    body.push_str("<section id=\"tables\"><h2>Tables</h2>\n");
    for (title, id, content) in &tables {
        let _ = writeln!(body, "<section class=\"tables\" id=\"{id}\"><h3>{title}</h3>{content}</section>");
    }
    if tables.is_empty() {
        body.push_str("<p class=\"none\">Nothing was measured.</p>");
    }
    body.push_str("</section>\n");
    log(&mut body, run);
    body.push_str("</main>\n");
    footer(&mut body, run);
    frame(&format!("{} · {} · {}", run.about.plan, name(run), date(run.about.started)), &body)
}

/// Display name of the server.
pub(super) fn name(run: &RunRecord) -> &str {
    if run.about.label.is_empty() { &run.about.target } else { &run.about.label }
}

fn header(body: &mut String, run: &RunRecord) {
    let about = &run.about;
    let _ = write!(
        body,
        "<header><p class=\"kind\">Load test</p><h1>{} <span>against {}</span></h1>",
        escape(&about.plan),
        escape(name(run))
    );
    if !about.title.is_empty() {
        let _ = write!(body, "<p class=\"title\">{}</p>", escape(&about.title));
    }
    let verdict = verdict(run);
    let (class, mark) = match verdict.grade {
        VerdictGrade::Good => ("good", "✓"),
        VerdictGrade::Doubtful => ("doubtful", "!"),
        VerdictGrade::Bad => ("bad", "✗"),
    };
    let _ = write!(
        body,
        "<div class=\"verdict {class}\"><p><b aria-hidden=\"true\">{mark}</b> {}</p><ul>",
        escape(&verdict.line)
    );
    for (grade, point) in &verdict.points {
        let class = if *grade == VerdictGrade::Good { "" } else { " class=\"not\"" };
        let _ = write!(body, "<li{class}>{}</li>", escape(point));
    }
    body.push_str("</ul></div>");
    if !run.warnings.is_empty() {
        body.push_str("<div class=\"warnings\" role=\"note\"><h2>Warnings about these results</h2><ul>");
        for warning in &run.warnings {
            let _ = write!(body, "<li>{}</li>", escape(warning));
        }
        body.push_str("</ul></div>");
    }
    tiles(body, run);
    body.push_str("<dl class=\"summary\">");
    let mut summary = vec![
        ("Server", format!("{} at {}", name(run), about.target)),
        ("Began", date(about.started)),
        (
            "Lasted",
            format!(
                "{}, {}",
                span(about.length),
                if about.end.is_empty() { "unknown end" } else { &about.end }
            ),
        ),
        ("Connections requested", grouped(u64::from(about.connections))),
    ];
    if let Some(used) = super::text::used(run) {
        summary.push(("Logins", used));
    }
    if let Some(keys) = super::text::keys(run) {
        summary.push(("Generator load", keys));
    }
    if about.time_scale != 1.0 && about.time_scale > 0.0 {
        summary.push(("Time scale", format!("{} times faster than the plan", digits(about.time_scale))));
    }
    if about.cores > 0 {
        summary
            .push(("Generator's machine", format!("{} cores, {}", about.cores, bytes(about.memory as f64))));
    }
    for (name, value) in summary {
        let _ = write!(body, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    }
    body.push_str("</dl></header>\n");
}

/// Key metrics: (title, value, note below it).
fn key_figures(run: &RunRecord) -> Vec<(String, String, String)> {
    let mut tiles = Vec::new();
    let most = |gauge: Gauge| run.totals.gauges.get(gauge.name()).copied().unwrap_or(0);
    if most(Gauge::Online) > 0 {
        tiles.push((
            format!("{}, most", gauge_title(Gauge::Online.name())),
            grouped(most(Gauge::Online).unsigned_abs()),
            format!("{} with acceptable responses", grouped(most(Gauge::Acceptable).unsigned_abs())),
        ));
    }
    for timing in [Timing::Login, Timing::Message, Timing::Presence, Timing::Roster] {
        if let Some(total) = run.totals.timings.get(timing.name()).filter(|t| t.summary.count > 0) {
            let s = total.summary;
            tiles.push((
                format!("{}, p99", timing_title(timing.name())),
                time(s.p99 as f64),
                format!("p50 {}, max {}", time(s.p50 as f64), time(s.max as f64)),
            ));
        }
    }
    use crate::measure::Counter::{Logins, MessagesDelivered};
    for (counter, title) in [(Logins, "Logins"), (MessagesDelivered, "Messages delivered")] {
        if let Some(total) = run.totals.counters.get(counter.name()).filter(|c| c.total > 0) {
            tiles.push((
                title.to_owned(),
                short(total.total as f64),
                format!(
                    "mean {}, highest {}",
                    DisplayUnit::Rate.show(total.mean_rate),
                    DisplayUnit::Rate.show(total.highest_rate)
                ),
            ));
        }
    }
    let errors: u64 = run.totals.errors.values().map(|e| e.total).sum();
    if !run.seconds.is_empty() {
        let kinds = run.totals.errors.values().filter(|e| e.total > 0).count();
        let below = match kinds {
            0 => "of any kind".to_owned(),
            1 => "of one kind".to_owned(),
            kinds => format!("of {kinds} kinds"),
        };
        tiles.push(("Errors".to_owned(), grouped(errors), below));
    }
    if let Some((high, _, mean)) = table::means(&run.server, |s| s.cpu) {
        tiles.push((
            "Server CPU, mean".to_owned(),
            format!("{} cores", digits(mean)),
            format!("highest 10 s: {}", digits(high)),
        ));
        let rss = run.server.iter().map(|s| s.rss).max().unwrap_or(0);
        let users = u64::try_from(most(Gauge::Online)).unwrap_or(0);
        let first = run.server.first().map_or(0, |s| s.rss);
        let each = rss
            .saturating_sub(first)
            .checked_div(users)
            .map(|each| format!("{} more per user online", bytes(each as f64)));
        tiles.push(("Server memory, maximum".to_owned(), bytes(rss as f64), each.unwrap_or_default()));
    }
    if let Some(total) = run.totals.timings.get(Timing::Lateness.name()).filter(|t| t.summary.count > 0) {
        tiles.push((
            "Generator late, p99".to_owned(),
            time(total.summary.p99 as f64),
            format!("max {}", time(total.summary.max as f64)),
        ));
    }
    tiles
}

fn tiles(body: &mut String, run: &RunRecord) {
    body.push_str("<ul class=\"tiles\" aria-label=\"Key metrics\">");
    for (title, figure, below) in key_figures(run) {
        let _ = write!(
            body,
            "<li><span>{}</span> <strong>{}</strong> <small>{}</small></li>",
            escape(&title),
            escape(&figure),
            escape(&below)
        );
    }
    body.push_str("</ul>");
}

fn charts(body: &mut String, section: &curves::ChartSection) {
    let (full, empty): (Vec<_>, Vec<_>) = section.charts.iter().partition(|chart| !chart.is_empty());
    if section.charts.is_empty() || (full.is_empty() && section.folded) {
        return;
    }
    let _ = write!(body, "<section id=\"{}\"><h2>{}</h2>", section.id, section.title);
    if section.folded {
        let _ = write!(body, "<details><summary>{} charts</summary>", full.len());
    }
    if !full.is_empty() {
        body.push_str("<div class=\"charts\">\n");
        full.iter().for_each(|chart| body.push_str(&chart.figure()));
        body.push_str("</div>");
    }
    if section.folded {
        body.push_str("</details>");
    }
    if !empty.is_empty() {
        let names: Vec<String> = empty.iter().map(|c| escape(&c.title).into_owned()).collect();
        let _ = write!(body, "<p class=\"none\">No data for: {}.</p>", names.join(", "));
    }
    body.push_str("</section>\n");
}

fn log(body: &mut String, run: &RunRecord) {
    /// Maximum number of log lines in the page.
    const MOST: usize = 200;
    if run.log.is_empty() {
        return;
    }
    body.push_str("<section id=\"log\"><h2>Log</h2><pre tabindex=\"0\">");
    for line in run.log.iter().take(MOST) {
        let _ = writeln!(body, "{}", escape(line));
    }
    body.push_str("</pre>");
    if run.log.len() > MOST {
        let _ = write!(body, "<p>{} more lines are in run.json.</p>", run.log.len() - MOST);
    }
    body.push_str("</section>\n");
}

fn footer(body: &mut String, run: &RunRecord) {
    let about = &run.about;
    let _ = write!(
        body,
        "<footer><p>Created by throng load {}. Times are measured from the moment when an action was due by \
         the plan, not from when it was sent. A p99 of 5&#160;ms means that 99 of 100 took at most 5&#160;ms. All metrics per second are in run.json beside this page.</p>",
        escape(&about.version)
    );
    if !about.command.is_empty() {
        let _ = write!(body, "<p>Command: <code>{}</code></p>", escape(&about.command));
    }
    body.push_str("</footer>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_script_and_its_policy_permits_none() {
        let mut run = RunRecord::default();
        run.about.plan = "<script>alert(1)</script>".to_owned();
        let page = html(&run);
        assert!(!page.contains("<script") && !page.contains("javascript:"), "{page}");
        let (_, policy) = page.split_once("Content-Security-Policy\" content=\"").unwrap();
        let (policy, _) = policy.split_once('"').unwrap();
        assert_eq!(
            policy, "default-src 'none'; style-src 'unsafe-inline'",
            "scripts have no source but the default"
        );
    }
}
