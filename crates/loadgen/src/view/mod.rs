//! Live view of a run: metrics on a terminal, plain lines elsewhere.
//!
//! The caller calls [`LiveView::update`] once a second with the run so far and the context that only it knows
//! ([`LiveContext`]), and [`LiveView::finish`] once. On a terminal the block is redrawn in place, without the alternate
//! screen, so that the last state stays above the summary. Elsewhere one line is written every five seconds and at each
//! change of the phase.
//!
//! Not implemented: keys. The caller handles Ctrl-C; it sets [`LiveContext::stopping`] and the view shows what the run
//! is waiting for.
//!
//! The terminal state is changed only during a redraw, and the cursor always rests on the free line below the block, so
//! a killed program leaves the terminal intact.
//!
//! # Pitfalls
//!
//! Writes go to the caller's writer, but the size and the terminal check are those of standard output. Anything typed
//! or printed between two redraws shifts the block, so the caller holds its own lines back meanwhile.

mod draw;
mod fields;
mod line;
mod live_metrics;
mod plain;
mod sparkline;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use draw::TerminalCapabilities;
use plain::PlainLog;

use crate::measure::TimingSummary;
use crate::report::model::RunRecord;

/// Context of the view beside the run itself. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveContext {
    /// Index of the phase, from 0.
    pub phase: usize,
    /// Number of phases; 0 if unknown.
    pub phases: usize,
    /// Name of the phase, or `waiting for workers`, `holding`, `draining` when none is running.
    pub phase_name: String,
    /// Time since the start of the phase.
    pub phase_elapsed: f64,
    /// Expected length of the phase, if known.
    pub phase_expected: Option<f64>,
    /// Time since the start of the run.
    pub elapsed: f64,
    /// Expected length of the run, if known.
    pub expected: Option<f64>,
    /// Connections requested.
    pub connections: u32,
    /// Live workers.
    pub workers_alive: usize,
    /// Workers at the start of the run.
    pub workers: usize,
    /// Merged histograms of the last 10 s by name of the timing. If empty, the view falls back to single seconds.
    pub recent: BTreeMap<String, TimingSummary>,
    /// Whether Ctrl-C was pressed and the run is shutting down in order.
    pub stopping: bool,
}

/// View of a run in progress.
#[derive(Debug)]
pub struct LiveView {
    mode: ViewMode,
    /// Whether colours are enabled (`NO_COLOR`, <https://no-color.org>).
    colour: bool,
    /// Whether the locale uses UTF-8.
    unicode: bool,
}

#[derive(Debug)]
enum ViewMode {
    Quiet,
    Plain(PlainLog),
    /// Redrawn in place: widths of the lines on the screen, in columns.
    Block(Vec<usize>),
}

impl LiveView {
    /// Plain lines if `plain`, or if standard output is not a terminal (or is a dumb one); no output if `quiet`.
    pub fn new(plain: bool, quiet: bool) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let terminal = io::stdout().is_terminal() && set("TERM").is_some_and(|term| term != "dumb");
        let mode = match (quiet, plain || !terminal) {
            (true, _) => ViewMode::Quiet,
            (false, true) => ViewMode::Plain(PlainLog::default()),
            (false, false) => ViewMode::Block(Vec::new()),
        };
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        Self { mode, colour: colour(set("NO_COLOR").as_deref()), unicode: unicode(locale.as_deref()) }
    }

    /// Shows the state; call it once a second.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn update(&mut self, out: &mut dyn Write, run: &RunRecord, live: &LiveContext) -> io::Result<()> {
        self.show(out, run, live, size(), false)
    }

    /// Shows the last state and leaves the cursor on a free line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(&mut self, out: &mut dyn Write, run: &RunRecord, live: &LiveContext) -> io::Result<()> {
        self.show(out, run, live, size(), true)
    }

    fn show(
        &mut self,
        out: &mut dyn Write,
        run: &RunRecord,
        live: &LiveContext,
        (width, height): (usize, usize),
        ended: bool,
    ) -> io::Result<()> {
        match &mut self.mode {
            ViewMode::Quiet => Ok(()),
            ViewMode::Plain(said) => {
                let lines = if ended { said.finish(run, live) } else { said.update(run, live) };
                plain::write(out, &lines, self.unicode)
            }
            ViewMode::Block(drawn) => {
                let screen =
                    TerminalCapabilities { width, height, colour: self.colour, unicode: self.unicode };
                let lines = draw::render(run, live, screen, ended);
                let text = redraw(drawn, &lines, width);
                let bare = |line: &String| line::columns(&line::safe(line));
                *drawn = lines.iter().map(bare).collect();
                // A single write, so that no partial frame is visible.
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }
}

/// Replaces `drawn` with `lines`; the cursor is below the block before and after.
fn redraw(drawn: &[usize], lines: &[String], width: usize) -> String {
    // A terminal that became narrower has wrapped the wider lines.
    let above: usize = drawn.iter().map(|columns| columns.div_ceil(width.max(1)).max(1)).sum();
    let mut text = String::from("\r");
    if above > 0 {
        let _ = write!(text, "\x1b[{above}A");
    }
    for line in lines {
        // Cleared first: after a full line, clearing to its end would erase its last character.
        text.push_str("\x1b[K");
        text.push_str(line);
        text.push_str("\r\n");
    }
    // Clears the rest of a taller block, and a `^C` echoed by the terminal.
    text.push_str("\x1b[J");
    text
}

/// Columns and lines of the terminal; 80 and 24 if unknown.
fn size() -> (usize, usize) {
    let known = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let or = |value: Option<u16>, otherwise: usize| match value {
        None | Some(0) => otherwise,
        Some(value) => usize::from(value),
    };
    (or(known.map(|size| size.ws_col), 80), or(known.map(|size| size.ws_row), 24))
}

/// Any non-empty value of `NO_COLOR` disables colours.
fn colour(no_color: Option<&str>) -> bool {
    no_color.is_none_or(str::is_empty)
}

/// Whether a locale such as `en_GB.UTF-8` uses UTF-8.
fn unicode(locale: Option<&str>) -> bool {
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
