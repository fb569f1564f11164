//! Formatting of numbers for people: thousands separators, bytes, durations.

/// Separates thousands with spaces.
pub(crate) fn whole(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Formats bytes in bytes, kB or MB, which are powers of 1000.
pub(crate) fn bytes(value: f64) -> String {
    match value {
        v if v < 10_000.0 => format!("{} B", whole(v)),
        v if v < 10_000_000.0 => format!("{} kB", whole(v / 1e3)),
        v => format!("{} MB", whole(v / 1e6)),
    }
}

/// Formats a number of seconds in its two largest units.
pub(crate) fn span(seconds: f64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    if seconds < 10.0 {
        let text = format!("{seconds:.3}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        return format!("{text} s");
    }
    let mut left = seconds.max(0.0) as u64;
    let mut parts = Vec::new();
    for (unit, name) in UNITS {
        if left >= unit && parts.len() < 2 {
            parts.push(format!("{} {name}", left / unit));
        }
        left %= unit;
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units() {
        let spans = [0.0, 0.25, 9.0, 61.0, 3_600.0, 90_061.0].map(span);
        assert_eq!(spans, ["0 s", "0.25 s", "9 s", "1 min 1 s", "1 h", "1 d 1 h"]);
    }
}
