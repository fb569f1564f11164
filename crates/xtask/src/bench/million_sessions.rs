//! `bench million-sessions`: memory, presence, messages and a message to all with a million sessions in one process.
//!
//! The ignored test `e2e/tests/million_sessions.rs` measures, as a program of its own: it says what is measured and what is not. This
//! file compares its figures with the budgets. It takes several minutes and needs about 12 GB.

use anyhow::Result;

use super::figures::{Figure, MeasuringTest};
use super::report::BenchReport;

/// The flags of `bench million-sessions`.
#[derive(clap::Args, Clone)]
pub(crate) struct MillionSessionsArgs {
    /// Cargo profile with which the measuring program is built.
    #[arg(long, value_name = "PROFILE", default_value = "dist")]
    profile: String,
}

/// Octets of a session in the process, its contacts and queues included.
const SESSION_BUDGET: f64 = 2_000.0;

/// Measures and reports.
pub(super) fn run(args: &MillionSessionsArgs, report: &mut BenchReport) -> Result<()> {
    let test = MeasuringTest {
        package: "throng-e2e",
        target: &["--test", "million_sessions"],
        name: "measure_a_million_sessions",
        profile: &args.profile,
        units: &["us", "B", "s"],
    };
    for Figure { name, value, unit } in test.run()? {
        let full = format!("million-sessions.{name}");
        if name == "memory.session" {
            report.check(full, value, unit, SESSION_BUDGET);
        } else {
            report.info(full, value, unit);
        }
    }
    Ok(())
}
