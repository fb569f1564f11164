//! Value parsers of the command line: durations, fixed and random, and kinds of transport protection.

use crate::control::chaos::ChaosAction;
use crate::plan::{SECURITIES, TimeSpan, TransportSecurity};

/// A failure to cause and its time.
pub(super) fn chaos(text: &str) -> Result<ChaosAction, String> {
    ChaosAction::parse(text, duration_ms)
}

/// Milliseconds of `90`, `90s`, `250ms`, `1.5m`, `2h`; without a unit: seconds.
pub(super) fn duration_ms(text: &str) -> Result<u64, String> {
    span(text).map(|ms| ms.round() as u64)
}

/// A fixed duration, or a random one: `2s..4s` (as in a plan) or `2s-4s` uniform, `~3s` exponential.
pub(super) fn time(text: &str) -> Result<TimeSpan, String> {
    if let Some(mean) = text.strip_prefix('~') {
        return Ok(TimeSpan::Exponential(span(mean)?));
    }
    match text.split_once("..").or_else(|| text.split_once('-')) {
        Some((from, to)) => Ok(TimeSpan::Uniform(span(from)?, span(to)?)),
        None => Ok(TimeSpan::Fixed(span(text)?)),
    }
}

fn span(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 1.0,
        "" | "s" => 1_000.0,
        "m" | "min" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return Err(format!("\"{text}\" has an unknown unit; write it as 250ms, 90s, 10m or 2h")),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| format!("\"{text}\" is not a duration; write it as 250ms, 90s, 10m or 2h"))?;
    Ok(number * factor)
}

/// Parses `auto`, `none`, `starttls`, `direct`, and the other words that a plan takes.
pub(super) fn security(text: &str) -> Result<TransportSecurity, String> {
    let known = SECURITIES.iter().find(|(word, _)| *word == text);
    known.map(|(_, security)| *security).ok_or_else(|| "write auto, none, starttls or direct".to_owned())
}

/// Rejects `--tls`: the flag is named like the key of a plan.
pub(super) fn renamed_security(text: &str) -> Result<TransportSecurity, String> {
    Err(format!("--tls was renamed; use --security {text}"))
}

/// Rejects `--patience` of a worker.
pub(super) fn renamed_patience(text: &str) -> Result<u64, String> {
    Err(format!("--patience was renamed; use --retry-for {text}"))
}

/// Rejects `--stay` of a worker.
pub(super) fn renamed_stay(_: &str) -> Result<bool, String> {
    Err("--stay was renamed; use --rejoin".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time() {
        for (text, ms) in
            [("90", 90_000), ("250ms", 250), ("1.5m", 90_000), ("2h", 7_200_000), ("0.5 s", 500), ("0", 0)]
        {
            assert_eq!(duration_ms(text), Ok(ms), "{text}");
        }
        for text in ["", "s", "-1", "5 days", "1..2s", "~3s"] {
            assert!(duration_ms(text).unwrap_err().contains("10m or 2h"), "{text}");
        }
        assert_eq!(time("2s-4s"), Ok(TimeSpan::Uniform(2_000.0, 4_000.0)));
        assert_eq!(time("0.5s..4s"), Ok(TimeSpan::Uniform(500.0, 4_000.0)));
        assert_eq!(time("~500ms"), Ok(TimeSpan::Exponential(500.0)));
        assert_eq!(time("3"), Ok(TimeSpan::Fixed(3_000.0)));
    }
}
