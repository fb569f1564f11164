//! `bench directory`: memory, look-ups, snapshots and changes of the cluster's directory with ten million claims of five nodes.
//!
//! The ignored test `cluster-nats/src/protocol/core/tests/directory_costs.rs` measures, as a program of its own: it says what is
//! measured and what is not. This file compares its figures with the budgets. It takes about a minute.

use anyhow::Result;

use super::figures::{Figure, MeasuringTest};
use super::report::BenchReport;

/// The flags of `bench directory`.
#[derive(clap::Args, Clone)]
pub(crate) struct DirectoryBenchArgs {
    /// Cargo profile with which the measuring program is built.
    #[arg(long, value_name = "PROFILE", default_value = "dist")]
    profile: String,
}

/// Greatest values: octets for each claim, nanoseconds of a look-up, seconds of writing and applying the snapshots for a node.
const BUDGETS: [(&str, f64); 5] = [
    ("memory.allocated", 18.0),
    ("lookup.present", 200.0),
    ("lookup.absent", 200.0),
    ("snapshot.write", 5.0),
    ("snapshot.apply", 5.0),
];

/// Measures and reports.
pub(super) fn run(args: &DirectoryBenchArgs, report: &mut BenchReport) -> Result<()> {
    let test = MeasuringTest {
        package: "throng-cluster-nats",
        target: &["--lib"],
        name: "protocol::core::tests::directory_costs::measure_the_directory",
        profile: &args.profile,
        units: &["ns", "B", "kB", "s", "percent"],
    };
    test.run()?.into_iter().for_each(|figure| add(report, figure));
    Ok(())
}

fn add(report: &mut BenchReport, Figure { name, value, unit }: Figure) {
    let full = format!("directory.{name}");
    match BUDGETS.iter().find(|(budget, _)| *budget == name) {
        Some((_, budget)) => report.check(full, value, unit, *budget),
        None => report.info(full, value, unit),
    }
}

#[cfg(test)]
mod tests {
    use super::{BenchReport, Figure, add};

    #[test]
    fn figures_have_the_budgets_of_their_names() {
        let mut report = BenchReport::new(true);
        for (name, value) in [("lookup.present", 201.0), ("lookup.absent", 199.0), ("floor.line", 900.0)] {
            add(&mut report, Figure { name: name.into(), value, unit: "ns" });
        }
        assert_eq!(report.misses(), 1);
    }
}
