//! Results of a bench and how they are printed: one line per metric, `name value unit budget ratio ok|MISS`.
//!
//! `ratio` is the value divided by its budget, so a budget is met up to 1. A metric without a budget shows `-`.

use std::fmt::Write as _;

/// One measured value.
struct Measurement {
    name: String,
    value: f64,
    unit: &'static str,
    budget: Option<f64>,
}

impl Measurement {
    /// Name, value, unit, budget, ratio and verdict as they are printed.
    fn cells(&self) -> [String; 6] {
        let (budget, ratio, verdict) = match self.budget {
            Some(budget) => {
                let within_budget = self.value <= budget;
                // 0 of 0 counts as within budget.
                let ratio = if within_budget && budget == 0.0 { 1.0 } else { self.value / budget };
                let ratio = format!("{ratio:.2}");
                (format_value(budget), ratio, if within_budget { "ok" } else { "MISS" })
            }
            None => ("-".into(), "-".into(), "-"),
        };
        [self.name.clone(), format_value(self.value), self.unit.into(), budget, ratio, verdict.into()]
    }
}

/// Four significant digits below 1000, whole numbers above.
fn format_value(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Results of a run, in the order in which they were measured.
#[derive(Default)]
pub(crate) struct BenchReport {
    results: Vec<Measurement>,
    print_at_end: bool,
}

impl BenchReport {
    /// A report that prints each value when it is added, or only at the end (`print_at_end`).
    pub(crate) fn new(quiet: bool) -> Self {
        Self { results: Vec::new(), print_at_end: quiet }
    }

    /// Adds a value without a budget.
    pub(crate) fn info(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.push(Measurement { name: name.into(), value, unit, budget: None });
    }

    /// Adds a value that must be at most `budget`.
    pub(crate) fn check(&mut self, name: impl Into<String>, value: f64, unit: &'static str, budget: f64) {
        self.push(Measurement { name: name.into(), value, unit, budget: Some(budget) });
    }

    fn push(&mut self, result: Measurement) {
        let [name, value, unit, budget, ratio, verdict] = result.cells();
        let line = format!("{name:<36} {value:>10} {unit:<11} {budget:>8} {ratio:>6} {verdict}");
        if self.print_at_end {
            print_progress(&line);
        } else {
            print_result(&line);
        }
        self.results.push(result);
    }

    /// Number of values that miss their budget.
    pub(crate) fn misses(&self) -> usize {
        self.results.iter().filter(|f| f.budget.is_some_and(|budget| f.value > budget)).count()
    }

    /// The results as a Markdown table.
    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from("| metric | value | unit | budget | ratio | |\n");
        text.push_str("| --- | ---: | --- | ---: | ---: | --- |\n");
        for result in &self.results {
            let _ = writeln!(text, "| {} |", result.cells().join(" | "));
        }
        text
    }
}

/// Prints a line of the results.
#[allow(clippy::print_stdout, reason = "the program's output; every bench prints through here")]
pub(crate) fn print_result(line: &str) {
    println!("{line}");
}

/// Prints a line of progress to standard error.
#[allow(clippy::print_stderr, reason = "the program's progress; every bench prints through here")]
pub(crate) fn print_progress(line: &str) {
    eprintln!("# {line}");
}

/// The middle value; the mean of the two middle ones for an even count; 0 for none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::{BenchReport, median};

    #[test]
    fn a_value_above_its_budget_is_a_miss() {
        let mut report = BenchReport::new(true);
        report.check("a", 1.5, "x", 1.5);
        report.check("b", 1.6, "x", 1.5);
        report.info("c", 9.0, "ms");
        assert_eq!(report.misses(), 1);
        let table = report.markdown();
        assert!(table.contains("| a | 1.500 | x | 1.500 | 1.00 | ok |"), "{table}");
        assert!(table.contains("| b | 1.600 | x | 1.500 | 1.07 | MISS |"), "{table}");
        assert!(table.contains("| c | 9.000 | ms | - | - | - |"), "{table}");
    }

    #[test]
    fn median_of_even_and_odd() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).abs() < 1e-9);
    }
}
