//! The table of `bench peers`: a row per metric, a column per server, factors to the first column, and expected
//! factors.
//!
//! A value is the median of its rounds. A ratio is the median of the ratios of each round, because the machine changes
//! between rounds.

use std::fmt::Write as _;

use super::super::report::median;

/// Expected factor of some columns to the first, at least.
pub(super) struct ExpectedFactor {
    pub(super) min_factor: f64,
    /// The columns, counted from 0.
    pub(super) columns: &'static [usize],
    /// Their name.
    pub(super) columns_name: &'static str,
}

/// One metric of all servers.
pub(super) struct ComparisonRow {
    title: String,
    /// By column and round; all columns have the same rounds.
    values: Vec<Vec<f64>>,
    expected: Option<ExpectedFactor>,
}

impl ComparisonRow {
    /// A row without values.
    pub(super) fn new(what: impl Into<String>, columns: usize, expected: Option<ExpectedFactor>) -> Self {
        Self { title: what.into(), values: vec![Vec::new(); columns], expected }
    }

    /// Adds the next round's value of a column.
    pub(super) fn push(&mut self, column: usize, value: f64) {
        self.values[column].push(value);
    }

    /// Factor of a column to the first.
    fn ratio(&self, column: usize) -> f64 {
        median(self.values[column].iter().zip(&self.values[0]).map(|(value, first)| value / first).collect())
    }

    /// The columns below their expectation.
    fn missed(&self) -> Option<Vec<usize>> {
        let expected = self.expected.as_ref()?;
        Some(
            expected
                .columns
                .iter()
                .copied()
                .filter(|column| self.ratio(*column) < expected.min_factor)
                .collect(),
        )
    }
}

/// The table in Markdown, and the number of rows below their expectation.
pub(super) fn markdown(names: &[String], rows: &[ComparisonRow]) -> (String, usize) {
    let mut text = format!(
        "| | {} | expected | met |\n| --- |{} --- | --- |\n",
        names.join(" | "),
        " ---: |".repeat(names.len())
    );
    let mut misses = 0;
    for row in rows {
        let _ = write!(text, "| {} |", row.title);
        for (column, values) in row.values.iter().enumerate() {
            let value = number(median(values.clone()));
            let _ = match column {
                0 => write!(text, " {value} |"),
                _ => write!(text, " {value} ({} ×) |", number(row.ratio(column))),
            };
        }
        let (expected, met) = match (&row.expected, row.missed()) {
            (Some(expected), Some(missed)) => {
                let met = if missed.is_empty() {
                    "yes".to_owned()
                } else {
                    misses += 1;
                    let missed: Vec<&str> = missed.iter().map(|column| names[*column].as_str()).collect();
                    format!("**no**: {}", missed.join(", "))
                };
                (format!("≥ {} ×, {}", number(expected.min_factor), expected.columns_name), met)
            }
            _ => ("–".to_owned(), "–".to_owned()),
        };
        let _ = writeln!(text, " {expected} | {met} |");
    }
    (text, misses)
}

/// Three significant digits, whole numbers from 100 on; no zeros after the point of a whole number.
fn number(value: f64) -> String {
    let text = match value.abs() {
        v if v >= 100.0 => return format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{ComparisonRow, ExpectedFactor, markdown, number};

    fn row(first: &[f64], second: &[f64]) -> ComparisonRow {
        let expected = ExpectedFactor { min_factor: 4.0, columns: &[1], columns_name: "all" };
        let mut row = ComparisonRow::new("message, µs", 2, Some(expected));
        for (column, values) in [first, second].into_iter().enumerate() {
            values.iter().for_each(|value| row.push(column, *value));
        }
        row
    }

    #[test]
    fn a_row_shows_the_expected_factor_and_the_peers_below_it() {
        let names = ["Throng".to_owned(), "other".to_owned()];
        let rows = [row(&[2.0], &[8.0]), row(&[2.0], &[7.9]), ComparisonRow::new("login, ms", 2, None)];
        let (text, misses) = markdown(&names, &rows);
        assert_eq!(misses, 1);
        assert!(text.contains("| message, µs | 2 | 8 (4 ×) | ≥ 4 ×, all | yes |"), "{text}");
        assert!(text.contains("| message, µs | 2 | 7.9 (3.95 ×) | ≥ 4 ×, all | **no**: other |"), "{text}");
        assert!(text.contains("| – | – |"), "{text}");
    }

    #[test]
    fn the_ratio_is_that_of_the_rounds() {
        // The machine was slow in the second round for both.
        let row = row(&[1.0, 10.0, 1.0], &[5.0, 50.0, 5.0]);
        assert!((row.ratio(1) - 5.0).abs() < 1e-9);
        assert_eq!(row.missed(), Some(Vec::new()));
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in
            [(1611.4, "1611"), (47.05, "47.0"), (4.0, "4"), (2.346, "2.35"), (0.1444, "0.144")]
        {
            assert!(number(value).starts_with(text.trim_end_matches(".0")), "{value}: {}", number(value));
        }
    }
}
