//! What is kept of a run: the model, its JSON, the page for the reader, the comparison of two.

mod file;
pub mod model;

pub use file::{Paths, json, read, write};

use model::Run;

/// A short table of the run for the terminal.
pub fn text(run: &Run) -> String {
    format!("{}\n", run.about.plan)
}

/// The page of the run: complete HTML without anything from outside.
pub fn html(run: &Run) -> String {
    run.about.plan.clone()
}
