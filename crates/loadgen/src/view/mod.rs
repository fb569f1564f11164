//! The person in front of it: live figures on a terminal, plain lines elsewhere.
//!
//! The caller calls [`LiveView::update`] once a second with the run so far and with what only it knows ([`Live`]), and
//! [`LiveView::finish`] once. On a terminal the block is redrawn in place, without the alternate screen, so that the last
//! state stays above the summary. Elsewhere one line is written every five seconds and at each change of the phase.
//!
//! Left out: keys. Ctrl-C is the caller's; it sets [`Live::stopping`] and the view says what is waited for.
//!
//! Nothing of the terminal is changed for longer than a redraw, and the cursor always waits on the free line below the
//! block, so a program that is killed leaves the terminal as it was.
//!
//! Traps: writes go to what the caller gives, but size and "is it a terminal" are those of standard output. Something
//! that is typed or printed between two redraws moves the block: the caller keeps its own lines back meanwhile.

mod draw;
mod fields;
mod line;
mod live_figures;
mod plain;
mod sparkline;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};

use crate::measure::TimingSummary;
use crate::report::model::RunRecord;

use draw::TerminalCapabilities;
use plain::PlainLog;

/// What the view shows beside the run itself. Times are seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveContext {
    /// Index of the phase, from 0.
    pub phase: usize,
    /// How many phases there are; 0 if nobody knows.
    pub phases: usize,
    /// Its name; also `waiting for workers`, `holding`, `draining`, where no phase is running.
    pub phase_name: String,
    /// Since the phase began.
    pub phase_elapsed: f64,
    /// Length of the phase, if it is known.
    pub phase_expected: Option<f64>,
    /// Since the run began.
    pub elapsed: f64,
    /// Length of the whole run, if it is known.
    pub expected: Option<f64>,
    /// Connections asked for.
    pub connections: u32,
    /// Workers that have not died.
    pub workers_alive: usize,
    /// Workers that the run began with.
    pub workers: usize,
    /// Histograms of the last 10 s, merged, by name of the timing. Empty: the view makes do with single seconds.
    pub recent: BTreeMap<String, TimingSummary>,
    /// Ctrl-C was pressed: the run is ending in order.
    pub stopping: bool,
}

/// The view of a run under way.
#[derive(Debug)]
pub struct LiveView {
    mode: ViewMode,
    /// Colours are wanted (`NO_COLOR`, <https://no-color.org>).
    colour: bool,
    /// The locale is one of UTF-8.
    unicode: bool,
}

#[derive(Debug)]
enum ViewMode {
    Quiet,
    Plain(PlainLog),
    /// Redrawn in place: columns of each line that stands there now.
    Block(Vec<usize>),
}

impl LiveView {
    /// Plain lines if `plain` or if standard output is no terminal (or one that calls itself dumb); nothing at all if
    /// `quiet`.
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

    /// Shows the state; once a second.
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
                let lines = draw::picture(run, live, screen, ended);
                let text = redraw(drawn, &lines, width);
                let bare = |line: &String| line::columns(&line::safe(line));
                *drawn = lines.iter().map(bare).collect();
                // In one piece, so that no half picture is ever seen.
                out.write_all(text.as_bytes())?;
                out.flush()
            }
        }
    }
}

/// Draws `lines` where `drawn` stands; the cursor is below it before and after.
fn redraw(drawn: &[usize], lines: &[String], width: usize) -> String {
    // A terminal that became narrower has broken lines that were wider.
    let above: usize = drawn.iter().map(|columns| columns.div_ceil(width.max(1)).max(1)).sum();
    let mut text = String::from("\r");
    if above > 0 {
        let _ = write!(text, "\x1b[{above}A");
    }
    for line in lines {
        // Cleared first: behind a full line, clearing to its end would take its last character.
        text.push_str("\x1b[K");
        text.push_str(line);
        text.push_str("\r\n");
    }
    // What is left of a higher picture, and a `^C` that the terminal has echoed.
    text.push_str("\x1b[J");
    text
}

/// Columns and lines of the terminal; 80 and 24 where it does not say.
fn size() -> (usize, usize) {
    let known = rustix::termios::tcgetwinsize(io::stdout()).ok();
    let or = |value: Option<u16>, otherwise: usize| match value {
        None | Some(0) => otherwise,
        Some(value) => usize::from(value),
    };
    (or(known.map(|size| size.ws_col), 80), or(known.map(|size| size.ws_row), 24))
}

/// Any value but none says that there shall be no colour.
fn colour(no_color: Option<&str>) -> bool {
    no_color.is_none_or(str::is_empty)
}

/// A locale such as `en_GB.UTF-8`.
fn unicode(locale: Option<&str>) -> bool {
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
