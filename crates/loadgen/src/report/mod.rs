//! Report of a run: the model, its JSON, the HTML page, the comparison of runs.
//!
//! [`write()`] creates the files of a run, [`read`] loads its JSON. Everything else turns a [`model::RunRecord`] into
//! text: [`text()`] for the terminal, [`html`] for the browser, [`verdict()`] into one sentence, [`compare()`] several
//! side by side.
//!
//! Not implemented: image files; a browser prints the page.
//!
//! # Pitfalls
//!
//! A run can come from a file that somebody else wrote, so no name and no number in it is trusted.

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

use model::RunRecord;

use crate::measure::Counter;

pub use file::{ReportPaths, json, read, write};
pub use verdict::{RunVerdict, VerdictGrade, verdict};

/// Account of a run with failures, in its order.
const FAILURE_COUNTERS: [Counter; 14] = [
    Counter::SessionsLost,
    Counter::SessionsResumed,
    Counter::SessionsReplaced,
    Counter::UsersAway,
    Counter::MessagesSent,
    Counter::MessagesAcknowledged,
    Counter::MessagesResent,
    Counter::MessagesDelivered,
    Counter::MessagesRefused,
    Counter::AcknowledgedLost,
    Counter::UnacknowledgedLost,
    Counter::DuplicateSameId,
    Counter::DuplicateOtherId,
    Counter::DuplicateUnknownId,
];

/// Summary table of the run for a terminal of 80 columns.
pub fn text(run: &RunRecord) -> String {
    text::text(run)
}

/// Protection of the connections of a run and its login mechanisms; `None` without a login.
pub fn used(run: &RunRecord) -> Option<String> {
    text::used(run)
}

/// HTML report of the run, complete without external resources.
pub fn html(run: &RunRecord) -> String {
    page::html(run)
}

/// Runs side by side for a terminal, with ratios to the first.
pub fn compare(runs: &[RunRecord]) -> String {
    compare::text(runs)
}

/// Runs side by side as a page: their curves in shared charts, or against the roster size where they differ in it.
pub fn compare_html(runs: &[RunRecord]) -> String {
    compare::html(runs)
}
