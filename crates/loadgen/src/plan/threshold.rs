//! Conditions on which a run fails, for use in CI: `p99(message) > 50ms`, `count(messages_lost) > 0`, `rate(logins) <
//! 100`.
//!
//! ```text
//! condition  = statistic "(" name ")" comparison number [unit]
//! statistic  = p50 | p90 | p99 | p99.9 | mean | min | max     of a timing: us, ms, s, m, h
//!            | count | rate                                   of a counter, a timing or errors; rate is a second's mean
//!            | share                                          of a counter in what it is a part of: %
//!            | max                                            of a gauge
//! comparison = > | >= | < | <= | == | !=
//! ```
//!
//! Names are those of `run.json`; `errors` is all errors, `error:KIND` those of one kind, `tr:NAME` a transaction. The
//! comparison with the measurements is in [`crate::report::thresholds`].
//!
//! Not implemented: arithmetic, and more than one comparison; several conditions are given separately.
//!
//! # Pitfalls
//!
//! A condition states when the run *fails*, as the name of its flag says, not what must hold.

use serde::{Deserialize, Serialize};

use super::error::nearest;
use crate::measure::{Counter, Gauge, Timing};

/// One condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// Source text.
    pub text: String,
    /// Statistic to compare.
    pub statistic: Statistic,
    /// Measurement that it is computed from.
    pub subject: ThresholdSubject,
    /// Comparison operator.
    pub comparison: ThresholdOperator,
    /// Limit: microseconds for times, a fraction of 1 for shares.
    pub value: f64,
}

/// A statistic of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Statistic {
    /// Median.
    P50,
    /// 90th percentile.
    P90,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
    /// Mean.
    Mean,
    /// Minimum.
    Min,
    /// Maximum.
    Max,
    /// Total count.
    Count,
    /// Mean rate per second.
    Rate,
    /// Share of the whole.
    Share,
}

/// Measurement of a threshold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThresholdSubject {
    /// A timing or transaction, by name.
    Timing(String),
    /// A counter.
    Counter(String),
    /// A gauge.
    Gauge(String),
    /// All errors.
    Errors,
    /// Errors of one kind.
    Error(String),
}

/// Comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ThresholdOperator {
    /// `>`
    More,
    /// `>=`
    AtLeast,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `==`
    Equal,
    /// `!=`
    Other,
}

impl ThresholdOperator {
    /// Whether the comparison holds.
    pub fn holds(self, measured: f64, value: f64) -> bool {
        match self {
            Self::More => measured > value,
            Self::AtLeast => measured >= value,
            Self::Less => measured < value,
            Self::AtMost => measured <= value,
            Self::Equal => measured == value,
            Self::Other => measured != value,
        }
    }
}

const STATISTICS: &[(&str, Statistic)] = &[
    ("p50", Statistic::P50),
    ("p90", Statistic::P90),
    ("p99", Statistic::P99),
    ("p99.9", Statistic::P999),
    ("mean", Statistic::Mean),
    ("min", Statistic::Min),
    ("max", Statistic::Max),
    ("count", Statistic::Count),
    ("rate", Statistic::Rate),
    ("share", Statistic::Share),
];

/// Two-character operators come first, or `>=` would be read as `>`.
const COMPARISONS: &[(&str, ThresholdOperator)] = &[
    (">=", ThresholdOperator::AtLeast),
    ("<=", ThresholdOperator::AtMost),
    ("==", ThresholdOperator::Equal),
    ("!=", ThresholdOperator::Other),
    (">", ThresholdOperator::More),
    ("<", ThresholdOperator::Less),
];

const TIMES: &[(&str, f64)] =
    &[("us", 1.0), ("µs", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 60e6), ("min", 60e6), ("h", 3_600e6)];

/// Counters that are parts of a whole, and the counters that make up the whole.
pub(crate) const PARTS: &[(Counter, &[Counter])] = &[
    (Counter::LoginErrors, &[Counter::Logins, Counter::LoginErrors]),
    (Counter::ConnectErrors, &[Counter::Connections, Counter::ConnectErrors]),
    (Counter::SessionsLost, &[Counter::Logins]),
    (Counter::MessagesLost, &[Counter::MessagesSent]),
    (Counter::MessagesDuplicate, &[Counter::MessagesSent]),
    (Counter::MessagesReordered, &[Counter::MessagesSent]),
    (Counter::MessagesRefused, &[Counter::MessagesSent]),
    (Counter::RoomJoinErrors, &[Counter::RoomJoins, Counter::RoomJoinErrors]),
    (Counter::RoomMessagesRefused, &[Counter::RoomMessagesSent]),
    (Counter::RoomMessagesUnreceived, &[Counter::RoomMessagesSent]),
    (Counter::RoomCopiesLost, &[Counter::RoomCopies, Counter::RoomCopiesLost]),
    (Counter::RoomCopiesDuplicate, &[Counter::RoomCopies]),
    (Counter::RoomCopiesReordered, &[Counter::RoomCopies]),
    (Counter::RoomSenderReordered, &[Counter::RoomCopies]),
    (Counter::NodeSubscriptionErrors, &[Counter::NodeSubscriptions, Counter::NodeSubscriptionErrors]),
    (Counter::NodePublicationsRefused, &[Counter::NodePublications]),
    (Counter::NodePublicationsUnreceived, &[Counter::NodePublications]),
    (Counter::NodeEventsLost, &[Counter::NodeEvents, Counter::NodeEventsLost]),
    (Counter::NodeEventsDuplicate, &[Counter::NodeEvents]),
    (Counter::NodeEventsReordered, &[Counter::NodeEvents]),
    (Counter::NodePublisherReordered, &[Counter::NodeEvents]),
    (Counter::IqErrors, &[Counter::IqSent]),
    (Counter::Timeouts, &[Counter::Acceptable, Counter::Unacceptable, Counter::Timeouts]),
    (Counter::Unacceptable, &[Counter::Acceptable, Counter::Unacceptable, Counter::Timeouts]),
];

/// Hint on the syntax for error messages.
const FORM: &str = "write it as 'p99(message) > 50ms' or 'count(messages_lost) > 0'";

impl Threshold {
    /// Parses a condition.
    ///
    /// # Errors
    /// One sentence that says what is wrong and which names exist.
    pub fn parse(text: &str) -> Result<Threshold, String> {
        let text = text.trim();
        let wrong = |what: String| Err(format!("\"{text}\": {what}"));
        let Some((head, rest)) = text.split_once('(') else {
            return wrong(format!("there is no statistic with a name in brackets; {FORM}"));
        };
        // A transaction may contain brackets in its name: the last one before the comparison ends it.
        let split = COMPARISONS.iter().filter_map(|(sign, _)| rest.find(sign)).min();
        let Some((inner, tail)) = split.and_then(|at| rest.split_at_checked(at)) else {
            return wrong(format!("there is no comparison (>, >=, <, <=, ==, !=); {FORM}"));
        };
        let Some(name) = inner.trim_end().strip_suffix(')') else {
            return wrong(format!("the closing bracket after the name is missing; {FORM}"));
        };
        let head = head.trim();
        let Some((_, statistic)) = STATISTICS.iter().find(|(word, _)| *word == head) else {
            let known = STATISTICS.iter().map(|(word, _)| *word);
            let list: Vec<&str> = known.clone().collect();
            let near = nearest(head, known);
            return wrong(format!("there is no statistic \"{head}\"; known are {}{near}", list.join(", ")));
        };
        let Some((sign, comparison)) = COMPARISONS.iter().find(|(sign, _)| tail.starts_with(sign)) else {
            return wrong(format!("there is no comparison; {FORM}"));
        };
        let number = tail.get(sign.len()..).unwrap_or_default().trim();
        let parsed = subject(*statistic, name.trim())
            .and_then(|subject| Ok((value(*statistic, &subject, number)?, subject)));
        match parsed {
            Ok((value, subject)) => Ok(Threshold {
                text: text.to_owned(),
                statistic: *statistic,
                subject,
                comparison: *comparison,
                value,
            }),
            Err(what) => wrong(what),
        }
    }

    /// Whether the condition is about this counter.
    pub(crate) fn is_about(&self, counter: Counter) -> bool {
        matches!(&self.subject, ThresholdSubject::Counter(name) if name == counter.name())
    }
}

fn subject(statistic: Statistic, name: &str) -> Result<ThresholdSubject, String> {
    let timing = || {
        let transaction = name.strip_prefix("tr:").is_some_and(|name| !name.is_empty());
        (transaction || Timing::ALL.iter().any(|timing| timing.name() == name))
            .then(|| ThresholdSubject::Timing(name.to_owned()))
    };
    let counter = || {
        Counter::ALL
            .iter()
            .any(|counter| counter.name() == name)
            .then(|| ThresholdSubject::Counter(name.to_owned()))
    };
    let gauge = || {
        Gauge::ALL.iter().any(|gauge| gauge.name() == name).then(|| ThresholdSubject::Gauge(name.to_owned()))
    };
    let error = || match name.strip_prefix("error:") {
        Some(kind) if !kind.is_empty() => Some(ThresholdSubject::Error(kind.to_owned())),
        _ => (name == "errors").then_some(ThresholdSubject::Errors),
    };
    let timings = || Timing::ALL.iter().map(|timing| timing.name());
    let counters = || Counter::ALL.iter().map(|counter| counter.name());
    let gauges = || Gauge::ALL.iter().map(|gauge| gauge.name());
    let (found, known): (Option<ThresholdSubject>, Vec<&str>) = match statistic {
        Statistic::Share => (
            counter().filter(|_| PARTS.iter().any(|(part, _)| part.name() == name)),
            PARTS.iter().map(|(part, _)| part.name()).collect(),
        ),
        Statistic::Count | Statistic::Rate => (
            error().or_else(counter).or_else(timing),
            ["errors", "error:KIND"]
                .into_iter()
                .chain(counters())
                .chain(timings())
                .chain(["tr:NAME"])
                .collect(),
        ),
        Statistic::Max => (timing().or_else(gauge), timings().chain(gauges()).chain(["tr:NAME"]).collect()),
        _ => (timing(), timings().chain(["tr:NAME"]).collect()),
    };
    found.ok_or_else(|| {
        let near = nearest(name, known.iter().copied());
        format!(
            "the metric \"{name}\" does not exist or lacks this statistic; known are {}{near}",
            known.join(", ")
        )
    })
}

fn value(statistic: Statistic, subject: &ThresholdSubject, text: &str) -> Result<f64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && !".-+_".contains(c)).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim();
    let number: f64 = number
        .replace('_', "")
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
        .ok_or_else(|| format!("\"{text}\" is not a number; {FORM}"))?;
    let time = matches!(subject, ThresholdSubject::Timing(_))
        && !matches!(statistic, Statistic::Count | Statistic::Rate);
    if time {
        let factor = TIMES.iter().find(|(word, _)| *word == unit).map(|(_, factor)| factor);
        return factor.map(|factor| number * factor).ok_or_else(|| {
            format!("a time requires a unit: us, ms, s, m or h, such as {number}ms; not \"{text}\"")
        });
    }
    match (statistic, unit) {
        (Statistic::Share, "%") => Ok(number / 100.0),
        (Statistic::Share, _) => {
            Err(format!("a share must be given in percent, such as {number}%; not \"{text}\""))
        }
        (_, "") | (Statistic::Rate, "/s") => Ok(number),
        _ => Err(format!("this is a count and cannot have the unit \"{unit}\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Statistic, ThresholdSubject, ThresholdOperator, f64) {
        let found = Threshold::parse(text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.text, text.trim());
        (found.statistic, found.subject, found.comparison, found.value)
    }

    #[test]
    fn statistics_names_comparisons_and_units() {
        let timing = |name: &str| ThresholdSubject::Timing(name.to_owned());
        let counter = |name: &str| ThresholdSubject::Counter(name.to_owned());
        let cases = [
            ("p99(message) > 50ms", (Statistic::P99, timing("message"), ThresholdOperator::More, 50_000.0)),
            (
                " p99.9( login )>=1.5s ",
                (Statistic::P999, timing("login"), ThresholdOperator::AtLeast, 1_500_000.0),
            ),
            (
                "mean(tr:look (at) it) < 3us",
                (Statistic::Mean, timing("tr:look (at) it"), ThresholdOperator::Less, 3.0),
            ),
            (
                "max(online) < 1_000",
                (Statistic::Max, ThresholdSubject::Gauge("online".into()), ThresholdOperator::Less, 1_000.0),
            ),
            ("max(roster) <= 1m", (Statistic::Max, timing("roster"), ThresholdOperator::AtMost, 60e6)),
            (
                "count(errors) != 0",
                (Statistic::Count, ThresholdSubject::Errors, ThresholdOperator::Other, 0.0),
            ),
            (
                "count(error:login:not-authorized) > 2",
                (
                    Statistic::Count,
                    ThresholdSubject::Error("login:not-authorized".into()),
                    ThresholdOperator::More,
                    2.0,
                ),
            ),
            ("rate(logins) < 100/s", (Statistic::Rate, counter("logins"), ThresholdOperator::Less, 100.0)),
            ("rate(message) == 5", (Statistic::Rate, timing("message"), ThresholdOperator::Equal, 5.0)),
            (
                "share(login_errors) > 0.5%",
                (Statistic::Share, counter("login_errors"), ThresholdOperator::More, 0.005),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn errors_list_the_known_names() {
        let cases: [(&str, &[&str]); 11] = [
            ("", &["no statistic with a name in brackets", "p99(message) > 50ms"]),
            ("p99 message > 50ms", &["no statistic with a name in brackets"]),
            ("p98(message) > 50ms", &["no statistic \"p98\"", "p99.9, mean", "did you mean"]),
            ("p99(mesage) > 50ms", &["\"mesage\"", "known are connect, tls", "did you mean \"message\"?"]),
            ("p99(logins) > 50ms", &["\"logins\"", "did you mean \"login\"?"]),
            ("share(logins) > 5%", &["\"logins\"", "known are login_errors"]),
            ("p99(message) = 50ms", &["no comparison"]),
            ("p99(message > 50ms", &["closing bracket after the name"]),
            ("p99(message) > fast", &["\"fast\" is not a number"]),
            ("p99(message) > 50", &["a time requires a unit", "50ms"]),
            ("count(messages_lost) > 5ms", &["cannot have the unit \"ms\""]),
        ];
        for (text, parts) in cases {
            let error = Threshold::parse(text).expect_err(text);
            for part in parts {
                assert!(error.contains(part), "{text}: no {part:?} in {error}");
            }
        }
        assert!(Threshold::parse("share(timeouts) > 1").unwrap_err().contains("in percent, such as 1%"));
    }
}
