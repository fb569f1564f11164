//! Parser of the Prometheus text format (exposition format 0.0.4): names, labels, values, and which are counters.
//!
//! Not implemented: buckets of histograms (their count and sum are kept), timestamps, exemplars.
//!
//! # Pitfalls
//!
//! The value of a label may contain spaces and braces, so a line is split after the closing quote, not at the first
//! space.

use std::collections::BTreeMap;

/// Longest name with labels that is kept.
const LONGEST: usize = 200;

/// One scrape of a page, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MetricsScrape {
    /// Name with labels, value, and whether it is a counter.
    values: Vec<(String, f64, bool)>,
}

impl MetricsScrape {
    /// Parses a page; malformed lines are skipped.
    pub(super) fn read(text: &str) -> Self {
        let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
        let mut values = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(comment) = line.strip_prefix('#') {
                let mut words = comment.split_ascii_whitespace();
                if words.next() == Some("TYPE")
                    && let (Some(name), Some(kind)) = (words.next(), words.next())
                {
                    kinds.insert(name, kind);
                }
                continue;
            }
            let Some((series, value)) = split(line) else { continue };
            let name = series.split('{').next().unwrap_or_default();
            if series.len() > LONGEST || name.ends_with("_bucket") {
                continue;
            }
            let family = |end: &str| name.strip_suffix(end).and_then(|family| kinds.get(family).copied());
            let grows = match kinds.get(name).copied().or_else(|| family("_total")) {
                Some("counter") => true,
                Some(_) => false,
                // Parts of a histogram or summary, and names with a telling suffix.
                None => {
                    family("_count").or_else(|| family("_sum")).is_some_and(|kind| kind != "gauge")
                        || name.ends_with("_total")
                }
            };
            values.push((series.to_owned(), value, grows));
        }
        Self { values }
    }

    /// Values to chart: counters as rates per second since an earlier scrape, everything else as it is.
    pub(super) fn since(&self, earlier: &Self, seconds: f64) -> Vec<(String, f64)> {
        let before: BTreeMap<&str, f64> =
            earlier.values.iter().map(|(name, value, _)| (name.as_str(), *value)).collect();
        let chart = |(name, value, grows): &(String, f64, bool)| {
            if !grows {
                return Some((name.clone(), *value));
            }
            let grown = value - before.get(name.as_str())?;
            // A counter that fell was reset to zero.
            let grown = if grown < 0.0 { *value } else { grown };
            (seconds > 0.0).then(|| (format!("{name}/s"), grown / seconds))
        };
        self.values.iter().filter_map(chart).collect()
    }
}

/// Splits a line into name with labels and value; `None` for empty and malformed lines and values that cannot be
/// charted.
fn split(line: &str) -> Option<(&str, f64)> {
    let end = match line.find('{') {
        Some(open) => {
            let mut quoted = false;
            let mut escaped = false;
            let close = line[open..].char_indices().find(|(_, c)| {
                let ends = !quoted && *c == '}';
                if *c == '"' && !escaped {
                    quoted = !quoted;
                }
                escaped = quoted && *c == '\\' && !escaped;
                ends
            })?;
            open + close.0 + 1
        }
        None => line.find([' ', '\t'])?,
    };
    let (series, rest) = line.split_at(end);
    let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
    value.is_finite().then_some((series, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"
# HELP requests Requests.
# TYPE requests counter
requests_total{method="get",path="/a b}\"c"} 10 1395066363000
requests_total{method="put"} 3
# TYPE memory gauge
memory 1.5e3
# TYPE times histogram
times_bucket{le="1"} 4
times_count 4
times_sum 2.5
strange{ 7
nothing
no_number x
not NaN
untyped_total 1
plain -2
"#;

    #[test]
    fn names_labels_and_kinds_are_read() {
        let page = MetricsScrape::read(PAGE);
        let found: Vec<_> = page.values.iter().map(|(n, v, g)| (n.as_str(), *v, *g)).collect();
        let expected = [
            (r#"requests_total{method="get",path="/a b}\"c"}"#, 10.0, true),
            (r#"requests_total{method="put"}"#, 3.0, true),
            ("memory", 1_500.0, false),
            ("times_count", 4.0, true),
            ("times_sum", 2.5, true),
            ("untyped_total", 1.0, true),
            ("plain", -2.0, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn counters_become_rates_and_a_restart_begins_at_zero() {
        let earlier = MetricsScrape::read("# TYPE a counter\na 10\nb_total 100\nc 5\n");
        let later = MetricsScrape::read("# TYPE a counter\na 30\nb_total 8\nc 6\nd_total 1\n");
        let found = later.since(&earlier, 2.0);
        let expected = [("a/s", 10.0), ("b_total/s", 4.0), ("c", 6.0)];
        assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value)));
    }
}
