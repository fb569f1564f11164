//! Writers of the storage alone: the ignored tests of `store-sql/tests/writes_per_second.rs`, as a program of their own, so
//! that this one needs no database client.
//!
//! Each prints lines `figure NAME VALUE UNIT`, whose names this file compares with the budgets.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

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
        for (name, value, unit) in figures(args, database)? {
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
fn figures(args: &DatabaseBenchArgs, database: &str) -> Result<Vec<(String, f64, &'static str)>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut test = Command::new(cargo);
    test.args(["test", "--quiet", "--profile", &args.writers_profile, "--package", "throng-store-sql"])
        .args(["--test", "writes_per_second", "--", "--ignored", "--nocapture", "--exact"])
        .arg(format!("measure_writes_on_{database}"))
        .current_dir(crate::tidy::root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = test.spawn().context("cargo cannot be started")?;
    let output = child.stdout.take().context("the output of cargo is not a pipe")?;
    let mut found = Vec::new();
    for line in BufReader::new(output).lines() {
        found.extend(figure(&line?));
    }
    let status = child.wait()?;
    ensure!(status.success() && !found.is_empty(), "the writers on {database} ended with {status}");
    Ok(found)
}

/// Name, value and unit of a line.
fn figure(line: &str) -> Option<(String, f64, &'static str)> {
    // The name of the test may be on the same line.
    let mut words = line.split_once("figure ")?.1.split_whitespace();
    let (name, value) = (words.next()?, words.next()?.parse().ok()?);
    let unit =
        ["write/s", "ms", "write/commit"].into_iter().find(|unit| words.clone().next() == Some(*unit))?;
    Some((name.to_owned(), value, unit))
}

#[cfg(test)]
mod tests {
    use super::{BenchReport, add, figure};

    #[test]
    fn lines_of_the_test_are_read() {
        let read = figure("test one ... figure messages.rate 45100 write/s").unwrap();
        assert_eq!((read.0.as_str(), read.2), ("messages.rate", "write/s"));
        assert!((read.1 - 45_100.0).abs() < 1e-9);
        assert_eq!(figure("running 1 test"), None);
    }

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
