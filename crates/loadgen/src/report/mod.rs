//! What is kept of a run: the model, its JSON, the page for the reader, the comparison of two.
//!
//! [`write`] makes the files of a run, [`read`] brings its JSON back. Everything else turns a [`model::Run`] into text:
//! [`text`] for the terminal, [`html`] for the browser, [`verdict`] into one sentence, [`compare()`] several side by side.
//!
//! Left out: pictures as files; a browser prints the page. Trap: a run can come from a file that somebody else wrote, so
//! no name and no number in it is trusted.

pub mod bosh_steps;
mod chart;
mod compare;
mod curves;
mod escape;
mod file;
pub mod model;
mod page;
mod series;
mod table;
mod text;
pub(crate) mod thresholds;
mod tick;
pub(crate) mod unit;
pub(crate) mod verdict;

pub use file::{ReportPaths, json, read, write};
pub use verdict::{RunVerdict, VerdictGrade, verdict};

use model::RunRecord;

/// A short table of the run for a terminal of 80 columns.
pub fn text(run: &RunRecord) -> String {
    text::text(run)
}

/// How the connections of a run were protected and how its users logged in; `None` without a login.
pub fn used(run: &RunRecord) -> Option<String> {
    text::used(run)
}

/// The page of the run: complete HTML without anything from outside.
pub fn html(run: &RunRecord) -> String {
    page::html(run)
}

/// Runs side by side for a terminal, with ratios to the first.
pub fn compare(runs: &[RunRecord]) -> String {
    compare::text(runs)
}

/// Runs side by side as a page: their curves in common charts, or against the size of the roster where they differ in it.
pub fn compare_html(runs: &[RunRecord]) -> String {
    compare::html(runs)
}
