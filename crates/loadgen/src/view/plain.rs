//! Plain output for logs and pipes: a line every five seconds of the run, at each change of the phase, and at the end.
//!
//! Values are separated by two spaces and each follows its name, so that `grep` and `awk` find them; rates are means of
//! the last five seconds. A warning is written once, on its own line, although the values in it keep changing.
//!
//! # Pitfalls
//!
//! Thousands are grouped by one space from 10 000 on, so columns are separated by two spaces and not by one.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::LiveContext;
use super::line::{ascii, safe};
use super::live_metrics::LiveMetrics;
use crate::measure::{Counter, Gauge, Timing};
use crate::report::model::RunRecord;
use crate::report::unit::{digits, grouped, short, time};

/// Seconds of the run between two lines.
const EVERY: f64 = 5.0;
/// Length of the start of a warning whose digits identify it (which worker); later ones are values that change.
const BEGINNING: usize = 24;

/// State of what has been written.
#[derive(Debug, Default)]
pub(super) struct PlainLog {
    phase: Option<(usize, String)>,
    step: u64,
    warnings: BTreeSet<String>,
}

impl PlainLog {
    /// Returns the lines that are due.
    pub(super) fn update(&mut self, run: &RunRecord, live: &LiveContext) -> Vec<String> {
        let mut lines = self.warnings(run);
        let step = (live.elapsed.max(0.0) / EVERY) as u64;
        let phase = (live.phase, live.phase_name.clone());
        if step > self.step || self.phase.as_ref() != Some(&phase) {
            lines.push(state(run, live));
        }
        self.step = step;
        self.phase = Some(phase);
        lines
    }

    /// Returns the last lines.
    pub(super) fn finish(&mut self, run: &RunRecord, live: &LiveContext) -> Vec<String> {
        let mut lines = self.warnings(run);
        lines.push(end(run, live));
        lines
    }

    fn warnings(&mut self, run: &RunRecord) -> Vec<String> {
        let mut new = Vec::new();
        for warning in &run.warnings {
            let is_digit = |index: usize, c: char| index >= BEGINNING && (c.is_ascii_digit() || c == '.');
            let key: String = warning
                .chars()
                .enumerate()
                .filter(|(index, c)| !is_digit(*index, *c))
                .map(|(_, c)| c)
                .collect();
            if self.warnings.insert(key) {
                new.push(format!("  ! {}", safe(warning)));
            }
        }
        new
    }
}

/// Formats the seconds of the run, aligned for the first hours.
fn at(live: &LiveContext) -> String {
    format!("{:>5} s", live.elapsed.max(0.0) as u64)
}

fn state(run: &RunRecord, live: &LiveContext) -> String {
    let metrics = LiveMetrics::new(run, live);
    let mut phase = safe(&live.phase_name);
    if live.phases > 0 {
        phase += &format!(" {}/{}", (live.phase + 1).min(live.phases), live.phases);
    }
    let gauge = |gauge| grouped(metrics.gauge(gauge));
    let mut fields = vec![
        at(live),
        phase.trim().to_owned(),
        format!("users {}", gauge(Gauge::Users)),
        format!("online {}", gauge(Gauge::Online)),
        format!("acceptable {}", gauge(Gauge::Acceptable)),
        format!("logins {}/s", short(metrics.mean_rate(Counter::Logins))),
        format!("messages {}/s", short(metrics.mean_rate(Counter::MessagesDelivered))),
        format!("in flight {}", gauge(Gauge::UnderWay)),
    ];
    let shown = [
        (Timing::Login, "login"),
        (Timing::Message, "message"),
        (Timing::RoomMessage, "room message"),
        (Timing::NodeEvent, "event"),
    ];
    let times: String = shown
        .into_iter()
        .filter_map(|(timing, name)| Some((name, metrics.recent(timing.name())?)))
        .map(|(name, summary)| format!(" {name} {}", time(summary.p99 as f64)))
        .collect();
    if !times.is_empty() {
        fields.push(format!("p99{times}"));
    }
    if metrics.total(Counter::NodePublications) > 0 {
        for (name, counter) in [
            ("items", Counter::NodePublications),
            ("events", Counter::NodeEvents),
            ("events lost", Counter::NodeEventsLost),
            ("events duplicated", Counter::NodeEventsDuplicate),
            ("events out of order", Counter::NodeEventsReordered),
        ] {
            fields.push(format!("{name} {}", grouped(metrics.total(counter))));
        }
    }
    fields.push(format!("errors {}", grouped(metrics.errors().1)));
    let lost = metrics.total(Counter::SessionsLost);
    if lost > 0 {
        fields.push(format!("sessions lost {}", grouped(lost)));
    }
    if let Some(late) = metrics.lateness() {
        fields.push(format!("late p99 {}", time(late as f64)));
    }
    fields.push(format!("CPU {} %", digits(metrics.busiest() * 100.0)));
    if let Some(server) = metrics.server() {
        fields.push(format!("server CPU {} %", digits(server.cpu * 100.0)));
    }
    if live.workers_alive < live.workers {
        fields.push(format!("workers {} of {}", live.workers_alive, live.workers));
    }
    if live.stopping {
        fields.push("ending".to_owned());
    }
    safe(&fields.join("  "))
}

fn end(run: &RunRecord, live: &LiveContext) -> String {
    let metrics = LiveMetrics::new(run, live);
    let mut fields = vec![
        at(live),
        format!("end: {}", if run.about.end.is_empty() { "finished" } else { run.about.end.as_str() }),
    ];
    for (name, counter) in [
        ("logins", Counter::Logins),
        ("sent", Counter::MessagesSent),
        ("delivered", Counter::MessagesDelivered),
        ("lost", Counter::MessagesLost),
        ("duplicated", Counter::MessagesDuplicate),
        ("out of order", Counter::MessagesReordered),
        ("refused", Counter::MessagesRefused),
        ("sessions lost", Counter::SessionsLost),
    ] {
        fields.push(format!("{name} {}", grouped(metrics.total(counter))));
    }
    if metrics.total(Counter::RoomMessagesSent) > 0 {
        for (name, counter) in [
            ("room messages", Counter::RoomMessagesSent),
            ("room copies", Counter::RoomCopies),
            ("room copies lost", Counter::RoomCopiesLost),
            ("room copies duplicated", Counter::RoomCopiesDuplicate),
            ("room copies out of order", Counter::RoomCopiesReordered),
        ] {
            fields.push(format!("{name} {}", grouped(metrics.total(counter))));
        }
    }
    fields.push(format!("errors {}", grouped(metrics.errors().1)));
    safe(&fields.join("  "))
}

/// Writes lines in a form that the output can show.
pub(super) fn write(out: &mut dyn Write, lines: &[String], unicode: bool) -> io::Result<()> {
    let mut text = String::new();
    for line in lines {
        text.push_str(&if unicode { line.clone() } else { ascii(line) });
        text.push('\n');
    }
    out.write_all(text.as_bytes())?;
    out.flush()
}
