//! Writers of the storage alone: the ignored tests of `store-sql/tests/writes_per_second.rs`, as a program of their own, so
//! that this one needs no database client.
//!
//! This file compares the names of their figures with the budgets.

use anyhow::Result;

use super::super::figures::{Figure, MeasuringTest};
use super::super::report::{BenchReport, print_progress};
use super::DatabaseBenchArgs;

/// Databases that are measured: those of the tests' names.
const DATABASES: [&str; 2] = ["postgres", "mariadb"];

/// Smallest rates on PostgreSQL.
const RATE_BUDGETS: [(&str, f64); 4] = [
    ("messages", 20_000.0),
    ("roster", 10_000.0),
    ("messages.delayed", 5_000.0),
    ("roster.delayed", 5_000.0),
];
/// 99th percentile at half of the rate, without delay, in milliseconds.
const TIME_BUDGET_MS: f64 = 25.0;

/// Measures and reports.
pub(super) fn measure(args: &DatabaseBenchArgs, report: &mut BenchReport) -> Result<()> {
    for database in DATABASES {
        print_progress(&format!("the writers alone on {database}"));
        for Figure { name, value, unit } in figures(args, database)? {
            add(report, database, &name, value, unit);
        }
    }
    Ok(())
}

fn add(report: &mut BenchReport, database: &str, name: &str, value: f64, unit: &'static str) {
    let full = format!("databases.writers.{database}.{name}");
    let judged = database == "postgres";
    let rate_budget = name
        .strip_suffix(".rate")
        .and_then(|what| RATE_BUDGETS.iter().find_map(|(budget, rate)| (*budget == what).then_some(*rate)));
    let is_judged_time = name.ends_with(".p99") && !name.contains("delayed");
    match rate_budget.filter(|_| judged) {
        Some(budget) => {
            report.info(full.clone(), value, unit);
            // Budgets are upper bounds.
            report.check(full.replace(".rate", ".time"), 1e6 / value, "us/write", 1e6 / budget);
        }
        None if judged && is_judged_time => report.check(full, value, unit, TIME_BUDGET_MS),
        None => report.info(full, value, unit),
    }
}

/// Runs the test of a database.
fn figures(args: &DatabaseBenchArgs, database: &str) -> Result<Vec<Figure>> {
    let test = MeasuringTest {
        package: "throng-store-sql",
        target: &["--test", "writes_per_second"],
        name: &format!("measure_writes_on_{database}"),
        profile: &args.writers_profile,
        units: &["write/s", "ms", "write/commit"],
    };
    test.run()
}

#[cfg(test)]
mod tests {
    use super::{BenchReport, add};

    #[test]
    fn only_figures_of_postgresql_have_budgets() {
        let mut report = BenchReport::new(true);
        for database in ["postgres", "mariadb"] {
            add(&mut report, database, "messages.rate", 19_000.0, "write/s");
            add(&mut report, database, "messages.p99", 26.0, "ms");
            add(&mut report, database, "messages.delayed.p99", 26.0, "ms");
            add(&mut report, database, "messages.delayed.rate", 5_001.0, "write/s");
        }
        assert_eq!(report.misses(), 2);
    }
}
