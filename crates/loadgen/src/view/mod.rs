//! The person in front of it: live figures on a terminal, plain lines elsewhere.
//!
//! The caller calls [`View::update`] once a second with the run so far and with what only it knows ([`Live`]), and
//! [`View::finish`] once. On a terminal the block is redrawn in place, without the alternate screen, so that the last
//! state stays above the summary. Elsewhere one line is written every five seconds and at each change of the phase.
//!
//! Left out: keys. Ctrl-C is the caller's; it sets [`Live::stopping`] and the view says what is waited for.
//!
//! Trap: writes go to what the caller gives, but width and "is it a terminal" are those of standard output.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::measure::Summary;
use crate::report::model::Run;

/// What the view shows beside the run itself. Times are seconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Live {
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
    pub recent: BTreeMap<String, Summary>,
    /// Ctrl-C was pressed: the run is ending in order.
    pub stopping: bool,
}

/// The view of a run under way.
#[derive(Debug)]
pub struct View {
    plain: bool,
    quiet: bool,
}

impl View {
    /// Plain lines if `plain` or if standard output is no terminal; nothing at all if `quiet`.
    pub fn new(plain: bool, quiet: bool) -> Self {
        Self { plain, quiet }
    }

    /// Shows the state; once a second.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn update(&mut self, out: &mut dyn Write, run: &Run, live: &Live) -> io::Result<()> {
        if self.quiet || !self.plain {
            return Ok(());
        }
        writeln!(out, "{:.0} s {} {}", live.elapsed, live.phase_name, run.seconds.len())
    }

    /// Shows the last state and leaves the cursor on a free line.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn finish(&mut self, out: &mut dyn Write, run: &Run, live: &Live) -> io::Result<()> {
        self.update(out, run, live)
    }
}
