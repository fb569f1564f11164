//! `bench subscriptions`: plain subscriptions of PubSub nodes in large numbers, on the disk and in memory.
//!
//! The ignored tests `store-sql/tests/subscriptions_at_scale.rs` measure, as programs of their own: they say what is measured and
//! what is not. This file compares their figures with the budgets. A billion subscriptions (`--nodes 1000000`) take about
//! 10 GB while they are written.

use std::path::PathBuf;

use anyhow::Result;

use super::figures::{Figure, MeasuringTest};
use super::report::{BenchReport, print_progress};

/// The flags of `bench subscriptions`.
#[derive(clap::Args, Clone)]
pub(crate) struct SubscriptionBenchArgs {
    /// Nodes.
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    nodes: u32,
    /// Subscribers of each node.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    each: u32,
    /// Addresses of which each node has some as subscribers.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    subscribers: u32,
    /// `sqlite` or `postgres`.
    #[arg(long, value_name = "DATABASE", default_value = "sqlite", value_parser = ["sqlite", "postgres"])]
    database: String,
    /// Folder for the database.
    #[arg(long, value_name = "PATH")]
    folder: Option<PathBuf>,
    /// Cargo profile with which the measuring program is built.
    #[arg(long, value_name = "PROFILE", default_value = "dist")]
    profile: String,
}

/// Greatest values of what is named so, in its unit.
const BUDGETS: [(&str, f64); 12] = [
    ("disk.subscription", 6.0),
    ("disk.total", 6.0),
    ("start.time", 5.0),
    ("start.memory", 1024.0),
    ("traffic.memory", 1024.0),
    ("page.subscribers.cold.p99", 5.0),
    ("page.subscribers.warm.p99", 5.0),
    ("page.nodes.cold.p99", 5.0),
    ("page.nodes.warm.p99", 5.0),
    ("read_online.first.p99", 10.0),
    ("intersection.p99", 5.0),
    // Milliseconds for a thousand, from the rate below.
    ("subscribe.thousand", 200.0),
];

/// Measures and reports.
pub(super) fn run(args: &SubscriptionBenchArgs, report: &mut BenchReport) -> Result<()> {
    print_progress(&format!(
        "{} nodes with {} of {} subscribers each on {}",
        args.nodes, args.each, args.subscribers, args.database
    ));
    let mut environment = vec![
        ("SUBSCRIPTION_NODES", args.nodes.to_string()),
        ("SUBSCRIPTION_EACH", args.each.to_string()),
        ("SUBSCRIPTION_SUBSCRIBERS", args.subscribers.to_string()),
    ];
    environment.extend(args.folder.iter().map(|folder| ("TMPDIR", folder.display().to_string())));
    let test = MeasuringTest {
        package: "throng-store-sql",
        target: &["--test", "subscriptions_at_scale"],
        name: &format!("measure_subscriptions_on_{}", args.database),
        profile: &args.profile,
        units: &["B", "GB", "MB", "s", "ms", "subscriptions", "subscriptions/s", "change/s", "commits"],
    };
    test.run_with(&environment)?.into_iter().for_each(|figure| add(report, figure));
    Ok(())
}

fn add(report: &mut BenchReport, Figure { name, value, unit }: Figure) {
    let mut check = |name: &str, value: f64, unit| {
        let full = format!("subscriptions.{name}");
        match BUDGETS.iter().find(|(budget, _)| *budget == name) {
            Some((_, budget)) => report.check(full, value, unit, *budget),
            None => report.info(full, value, unit),
        }
    };
    check(&name, value, unit);
    // A budget is a greatest value, so a rate becomes a time.
    if name == "subscribe.rate" {
        check("subscribe.thousand", 1e6 / value, "ms");
    }
}

#[cfg(test)]
mod tests {
    use super::{BenchReport, Figure, add};

    #[test]
    fn figures_have_the_budgets_of_their_names() {
        let mut report = BenchReport::new(true);
        for (name, value, unit) in [
            ("disk.subscription", 6.5, "B"),
            ("start.time", 0.1, "s"),
            ("subscribe.rate", 4000.0, "change/s"),
            ("bulk.time", 900.0, "s"),
        ] {
            add(&mut report, Figure { name: name.into(), value, unit });
        }
        assert_eq!(report.misses(), 2);
    }
}
