//! The published workloads and the generator's own, by name.

use super::{Arguments, Mistake, Plan, Preparation};

/// A workload that the program knows by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub title: &'static str,
    /// One line: where it comes from and what it shows.
    pub about: &'static str,
}

/// All workloads, in the order of the list that users see.
pub fn workloads() -> Vec<Workload> {
    Vec::new()
}

/// The plan of a named workload and what it needs on the server. A name that is unknown, or known and not possible in
/// this version, is one mistake that says so.
pub fn named(name: &str, _arguments: &Arguments) -> Result<(Plan, Option<Preparation>), Vec<Mistake>> {
    Err(vec![Mistake::of_plan(format!("there is no workload \"{name}\""))])
}
