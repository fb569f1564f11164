//! Layout of the live view, as lines that fit a terminal.
//!
//! [`render`] depends on the run and the terminal only; the caller moves the cursor. With too few columns the least
//! important values are omitted, with too few lines whole lines are.
//!
//! # Pitfalls
//!
//! More lines than the terminal has cannot be redrawn, because the cursor does not move above the first.

use super::fields::{self, StatusField};
use super::line::{StyledLine, TextStyle, columns, fit, safe, wrapped};
use super::live_metrics::{BUSY, LATE_US, LiveMetrics};
use super::table::table;
use super::{LiveContext, sparkline};
use crate::measure::{Counter, Gauge, Timing};
use crate::report::model::{RunRecord, SecondReport};
use crate::report::unit::{DisplayUnit, bytes, clock, digits, grouped, short, time};

/// Capabilities of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TerminalCapabilities {
    pub(super) width: usize,
    /// Lines; the last one stays free for the cursor.
    pub(super) height: usize,
    /// Whether colours are enabled.
    pub(super) colour: bool,
    /// Whether it shows more than ASCII.
    pub(super) unicode: bool,
}

/// Lines with their importance: 0 is kept longest.
#[derive(Default)]
pub(super) struct PrioritizedLines(Vec<(u8, StyledLine)>);

impl PrioritizedLines {
    pub(super) fn push(&mut self, keep: u8, line: StyledLine) {
        self.0.push((keep, line));
    }

    fn extend(&mut self, keep: u8, lines: impl IntoIterator<Item = StyledLine>) {
        self.0.extend(lines.into_iter().map(|line| (keep, line)));
    }

    fn at_most(mut self, most: usize) -> Vec<StyledLine> {
        while self.0.len() > most {
            let least = self.0.iter().map(|(keep, _)| *keep).max().unwrap_or(0);
            let Some(index) = self.0.iter().rposition(|(keep, _)| *keep == least) else { break };
            self.0.remove(index);
        }
        self.0.into_iter().map(|(_, line)| line).collect()
    }
}

/// Builds the lines; `ended` means that nothing will change any more.
pub(super) fn render(
    run: &RunRecord,
    live: &LiveContext,
    screen: TerminalCapabilities,
    ended: bool,
) -> Vec<String> {
    let metrics = LiveMetrics::new(run, live);
    let width = screen.width.max(1);
    let mut lines = PrioritizedLines::default();
    lines.push(0, title(&metrics, width));
    if !ended {
        lines.push(1, progress(&metrics, width));
    }
    lines.extend(1, users(&metrics, width));
    lines.extend(3, rates(&metrics, width, ended));
    if !ended {
        table(&mut lines, &metrics, width);
    }
    lines.extend(2, counts(&metrics, width));
    errors(&mut lines, &metrics, width);
    lines.extend(3, generator(&metrics, width));
    lines.extend(5, server(&metrics, width));
    sparks(&mut lines, &metrics, screen);
    if !ended {
        // The summary that follows lists them all, in full.
        warnings(&mut lines, &metrics, screen);
    }
    lines.push(1, hint(&metrics, width, ended));
    let lines = lines.at_most(screen.height.saturating_sub(1).max(1));
    lines.iter().map(|line| line.render(width, screen.colour, screen.unicode)).collect()
}

/// Label of the first column.
pub(super) fn label(text: &str) -> String {
    format!("{text:<12}")
}

fn title(metrics: &LiveMetrics<'_>, width: usize) -> StyledLine {
    let (about, live) = (&metrics.run.about, metrics.live);
    let times = match live.expected {
        Some(expected) => format!("{} / {}", clock(live.elapsed), clock(expected)),
        None => clock(live.elapsed),
    };
    let target = match (about.label.as_str(), about.target.as_str()) {
        ("", target) => safe(target),
        (label, target) if label == target || target.is_empty() => safe(label),
        (label, target) => format!("{} ({})", safe(label), safe(target)),
    };
    let room = width.saturating_sub(columns(&times) + 2);
    let plan = fit(&safe(&about.plan), room);
    let mut line = StyledLine::of(TextStyle::Bold, &plan);
    if room > columns(&plan) + 16 || columns(&plan) + 9 + columns(&target) <= room {
        line.add(TextStyle::Normal, &fit(&format!(" against {target}"), room - columns(&plan)));
    }
    let gap = width.saturating_sub(line.columns() + columns(&times));
    line.and(TextStyle::Normal, &" ".repeat(gap)).and(TextStyle::Normal, &times)
}

fn progress(metrics: &LiveMetrics<'_>, width: usize) -> StyledLine {
    let live = metrics.live;
    let share = live.phase_expected.filter(|e| *e > 0.0).map(|e| (live.phase_elapsed / e).clamp(0.0, 1.0));
    let mut text = String::new();
    if live.phases > 0 {
        text = format!("phase {} of {} ", (live.phase + 1).min(live.phases), live.phases);
    }
    text += &fit(&safe(&live.phase_name), 24.min(width / 3));
    text = format!("{} {}", text.trim_end(), clock(live.phase_elapsed));
    if let Some(expected) = live.phase_expected {
        text += &format!(" / {}", clock(expected));
    }
    let room = width.saturating_sub(columns(&text) + 1).min(60);
    // Without a known end there is no progress to show.
    let Some(share) = share.filter(|_| room >= 6) else { return StyledLine::of(TextStyle::Normal, &text) };
    let full = (share * room as f64).floor() as usize;
    StyledLine::of(TextStyle::Good, &"█".repeat(full))
        .and(TextStyle::Dim, &"░".repeat(room - full))
        .and(TextStyle::Normal, &format!(" {text}"))
}

fn users(metrics: &LiveMetrics<'_>, width: usize) -> Vec<StyledLine> {
    let gauge = |gauge| grouped(metrics.gauge(gauge));
    let mut acceptable = gauge(Gauge::Acceptable);
    if metrics.live.connections > 0 {
        acceptable += &format!(" of {}", grouped(u64::from(metrics.live.connections)));
    }
    let all = vec![
        StatusField::new(2, "", gauge(Gauge::Users)),
        StatusField::new(3, "connected", gauge(Gauge::Connected)),
        StatusField::new(0, "online", gauge(Gauge::Online)),
        StatusField::new(1, "acceptable", acceptable),
    ];
    fields::lines(&label("Users"), all, width, if width < 60 { 2 } else { 1 })
}

fn rates(metrics: &LiveMetrics<'_>, width: usize, ended: bool) -> Vec<StyledLine> {
    if ended {
        return Vec::new();
    }
    let rate = |counter| short(metrics.rate(counter));
    let all = vec![
        StatusField::new(4, "arrivals", rate(Counter::UsersStarted)),
        StatusField::new(1, "logins", rate(Counter::Logins)),
        StatusField::new(3, "presence", rate(Counter::PresenceReceived)),
        StatusField::new(2, "sent", rate(Counter::MessagesSent)),
        StatusField::new(0, "delivered", rate(Counter::MessagesDelivered)),
        StatusField::new(
            5,
            "in",
            bytes(metrics.rate(Counter::BytesIn)) + ", out " + &bytes(metrics.rate(Counter::BytesOut)),
        ),
    ];
    fields::lines(&label("Per second"), all, width, 2)
}

fn counts(metrics: &LiveMetrics<'_>, width: usize) -> Vec<StyledLine> {
    let total = |keep, name: &str, counter| StatusField::new(keep, name, grouped(metrics.total(counter)));
    let bad = |keep, name: &str, counter| {
        let count = metrics.total(counter);
        StatusField::unwanted(keep, name, count, grouped(count))
    };
    let mut all = vec![
        total(0, "delivered", Counter::MessagesDelivered),
        StatusField::new(1, "in flight", grouped(metrics.gauge(Gauge::UnderWay))),
        bad(3, "duplicated", Counter::MessagesDuplicate),
        bad(4, "out of order", Counter::MessagesReordered),
        bad(5, "refused", Counter::MessagesRefused),
        bad(2, "sessions lost", Counter::SessionsLost),
    ];
    if metrics.total(Counter::RoomJoins) > 0 {
        all.push(total(0, "room copies", Counter::RoomCopies));
        all.push(bad(3, "room copies duplicated", Counter::RoomCopiesDuplicate));
    }
    if metrics.total(Counter::NodePublications) > 0 {
        all.push(total(0, "events", Counter::NodeEvents));
        all.push(bad(3, "events duplicated", Counter::NodeEventsDuplicate));
    }
    if metrics.total(Counter::NodeEventsLost) > 0 {
        all.push(bad(0, "events lost", Counter::NodeEventsLost));
    }
    if metrics.total(Counter::RoomCopiesLost) > 0 {
        all.push(bad(0, "room copies lost", Counter::RoomCopiesLost));
    }
    // Known only at the end; a zero before that would be a claim.
    if metrics.total(Counter::MessagesLost) > 0 {
        all.push(bad(0, "lost", Counter::MessagesLost));
    }
    fields::lines(&label("So far"), all, width, if width < 60 { 3 } else { 2 })
}

fn errors(lines: &mut PrioritizedLines, metrics: &LiveMetrics<'_>, width: usize) {
    let (kinds, all) = metrics.errors();
    let head = label("Errors");
    if kinds.is_empty() {
        lines.push(3, StyledLine::of(TextStyle::Dim, &head).and(TextStyle::Normal, "0"));
        return;
    }
    let mut found = vec![StatusField::unwanted(0, "", all, format!("{} in all", grouped(all)))];
    // A kind may contain text from the server; half a line suffices to identify it.
    let room = (width - columns(&head).min(width)).saturating_sub(20).clamp(8, 48);
    for (index, (kind, count)) in kinds.iter().take(4).enumerate() {
        found.push(StatusField::new(1 + index as u8, &fit(&safe(kind), room), grouped(*count)));
    }
    let rows = fields::lines(&head, found, width, 3);
    rows.into_iter().enumerate().for_each(|(index, row)| lines.push(if index == 0 { 2 } else { 5 }, row));
}

fn generator(metrics: &LiveMetrics<'_>, width: usize) -> Vec<StyledLine> {
    let (live, busiest) = (metrics.live, metrics.busiest());
    let late = metrics.lateness();
    let shown = late.map_or("–".to_owned(), |late| time(late as f64));
    let all = vec![
        StatusField::new(1, "late p99", shown).bad_if(late.is_some_and(|late| late > LATE_US)),
        StatusField::new(0, "CPU", format!("{} %", digits(busiest * 100.0))).bad_if(busiest > BUSY),
        StatusField::new(
            2,
            "memory",
            bytes(metrics.second.map_or(0.0, |second| second.generator_rss as f64)),
        ),
        StatusField::new(3, "workers", format!("{} of {}", live.workers_alive, live.workers))
            .bad_if(live.workers_alive < live.workers),
    ];
    fields::lines(&label("Generator"), all, width, 1)
}

fn server(metrics: &LiveMetrics<'_>, width: usize) -> Vec<StyledLine> {
    let Some(sample) = metrics.server() else { return Vec::new() };
    let all = vec![
        StatusField::new(0, "CPU", format!("{} %", digits(sample.cpu * 100.0))),
        StatusField::new(1, "memory", bytes(sample.rss as f64)),
        StatusField::new(2, "files", grouped(u64::from(sample.files))),
        StatusField::new(3, "threads", grouped(u64::from(sample.threads))),
    ];
    fields::lines(&label("Server"), all, width, 1)
}

fn sparks(lines: &mut PrioritizedLines, metrics: &LiveMetrics<'_>, screen: TerminalCapabilities) {
    // A second without deliveries counts as zero once messages have been sent.
    let any = metrics.total(Counter::MessagesSent) > 0;
    let count =
        |s: &SecondReport| s.counters.get(Counter::MessagesDelivered.name()).copied().unwrap_or(0) as f64;
    let delivered = metrics.minute(|s| any.then(|| count(s)));
    let p99 = metrics
        .minute(|s| s.timings.get(Timing::Message.name()).filter(|t| t.count > 0).map(|t| t.p99 as f64));
    let curves: [(&str, Vec<Option<f64>>, DisplayUnit); 2] =
        [("Delivered/s", delivered, DisplayUnit::Count), ("Message p99", p99, DisplayUnit::Time)];
    for (name, values, unit) in curves {
        if values.iter().all(Option::is_none) {
            continue;
        }
        let head = label(name);
        let room = screen.width.saturating_sub(columns(&head) + 14).min(60);
        if room < 5 {
            continue;
        }
        let shown = &values[values.len().saturating_sub(room)..];
        let highest = shown.iter().flatten().copied().fold(0.0, f64::max);
        let bars = sparkline::line(&values, room, screen.unicode);
        let line = StyledLine::of(TextStyle::Dim, &head)
            .and(TextStyle::Good, &bars)
            .and(TextStyle::Dim, " up to ")
            .and(TextStyle::Normal, &unit.show(highest));
        lines.push(6, line);
    }
}

fn warnings(lines: &mut PrioritizedLines, metrics: &LiveMetrics<'_>, screen: TerminalCapabilities) {
    let (limits, all) = (metrics.limits(), &metrics.run.warnings);
    let older = all.len().saturating_sub(2);
    // Two lines for each if they fit, besides the hint and the free line.
    let free = screen.height.saturating_sub(lines.0.len() + 2);
    let most = if free >= 2 * (limits.len() + all.len() - older) + usize::from(older > 0) { 2 } else { 1 };
    let mut say = |keep: u8, text: &str| {
        for (index, row) in wrapped(text, screen.width.saturating_sub(2), most).into_iter().enumerate() {
            let mark = if index == 0 { "! " } else { "  " };
            lines.push(keep, StyledLine::of(TextStyle::Bad, &format!("{mark}{row}")));
        }
    };
    limits.iter().for_each(|limit| say(1, limit));
    all[older..].iter().for_each(|warning| say(4, warning));
    if older > 0 {
        let text = format!("  and {older} earlier warning{}", if older == 1 { "" } else { "s" });
        lines.push(7, StyledLine::of(TextStyle::Dim, &text));
    }
}

fn hint(metrics: &LiveMetrics<'_>, width: usize, ended: bool) -> StyledLine {
    let live = metrics.live;
    if ended {
        return match metrics.run.about.end.as_str() {
            "" | "finished" => StyledLine::of(TextStyle::Dim, "The run has finished."),
            "interrupted" => StyledLine::of(TextStyle::Dim, "The run was ended early."),
            reason => StyledLine::of(TextStyle::Bad, &format!("The run ended: {reason}")),
        };
    }
    if live.stopping {
        let under_way = grouped(metrics.gauge(Gauge::UnderWay));
        let again = "Ctrl-C again stops immediately";
        let forms = [
            format!("Ending: waiting for {under_way} messages in flight, then streams are closed; {again}"),
            format!("Ending: {under_way} messages in flight; {again}"),
            format!("Ending; {again}"),
        ];
        let form = forms.iter().find(|form| columns(form) <= width).unwrap_or(&forms[2]);
        return StyledLine::of(TextStyle::Bold, form);
    }
    StyledLine::of(TextStyle::Dim, "Ctrl-C ends the run gracefully")
}
