//! Human-readable numbers: a unit chosen by magnitude and three significant digits.
//!
//! Input is in microseconds for times, bytes for memory (units of 1000) and seconds for durations. A no-break space
//! precedes the unit.
//!
//! # Pitfalls
//!
//! Shares must be rounded away from the extremes: 99 999 of 100 000 must never read "100 %", nor 1 of them "0 %".

use time::OffsetDateTime;

/// Unit of the values of an axis or a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisplayUnit {
    /// Plain number.
    Count,
    /// Number per second.
    Rate,
    /// Microseconds.
    Time,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    ByteRate,
    /// Processor cores.
    Cores,
}

impl DisplayUnit {
    /// Formats a value with its unit.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Count => short(value),
            Self::Rate => format!("{}/s", short(value)),
            Self::Time => time(value),
            Self::Bytes => bytes(value),
            Self::ByteRate => format!("{}/s", bytes(value)),
            Self::Cores => digits(value),
        }
    }

    /// Formats a value on an axis, whose title has the unit if it is the same along the axis.
    pub(super) fn tick(self, value: f64) -> String {
        match self {
            Self::Rate => short(value),
            Self::ByteRate => bytes(value),
            other => other.show(value),
        }
    }

    /// Title at the top of the axis.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Count | Self::Time | Self::Bytes => "",
            Self::Rate | Self::ByteRate => "per second",
            Self::Cores => "cores",
        }
    }
}

/// Formats three significant digits without trailing zeros.
pub(crate) fn digits(value: f64) -> String {
    let size = value.abs();
    // The thresholds are where rounding would yield a fourth digit.
    let text = match size {
        _ if size >= 99.95 => format!("{value:.0}"),
        _ if size >= 9.995 => format!("{value:.1}"),
        _ if size >= 0.01 || size == 0.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Scales by steps of 1000 and appends the letter of the step.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    for &(size, unit) in steps {
        if value.abs() >= size * 0.9995 {
            return format!("{}\u{a0}{unit}", digits(value / size));
        }
    }
    digits(value)
}

/// Formats a number, abbreviated from ten thousand on: 1234, 12.3 k, 4.5 M.
pub(crate) fn short(value: f64) -> String {
    if value.abs() < 9_999.5 {
        return if value.abs() < 99.95 { digits(value) } else { format!("{value:.0}") };
    }
    scaled(value, &[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")])
}

/// Formats bytes.
pub(crate) fn bytes(value: f64) -> String {
    if value.abs() < 999.5 {
        return format!("{}\u{a0}B", digits(value));
    }
    scaled(value, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")])
}

/// Formats microseconds.
pub(crate) fn time(us: f64) -> String {
    match us.abs() {
        0.0 => "0".to_owned(),
        size if size < 999.5 => format!("{}\u{a0}µs", digits(us)),
        size if size < 999_500.0 => format!("{}\u{a0}ms", digits(us / 1e3)),
        size if size < 600e6 => format!("{}\u{a0}s", digits(us / 1e6)),
        size if size < 7_200e6 => format!("{}\u{a0}min", digits(us / 60e6)),
        _ => format!("{}\u{a0}h", digits(us / 3_600e6)),
    }
}

/// Formats an integer with its thousands grouped.
pub(crate) fn grouped(value: u64) -> String {
    let digits = value.to_string();
    if digits.len() <= 4 {
        return digits;
    }
    let mut text = String::with_capacity(digits.len() * 2);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// Formats a share in per cent.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    match percent {
        _ if part >= whole => "100\u{a0}%".to_owned(),
        _ if part == 0 => "0\u{a0}%".to_owned(),
        _ if percent > 99.99 => "more than 99.99\u{a0}%".to_owned(),
        _ if percent < 0.01 => "less than 0.01\u{a0}%".to_owned(),
        _ if percent > 99.0 => format!("{:.2}\u{a0}%", (percent * 100.0).floor() / 100.0),
        _ => format!("{}\u{a0}%", digits(percent)),
    }
}

/// Formats the ratio of `new` to `old`.
pub(super) fn ratio(old: f64, new: f64) -> String {
    if old == new {
        return "1.00".to_owned();
    }
    if old == 0.0 || !old.is_finite() || !new.is_finite() {
        return "–".to_owned();
    }
    let ratio = new / old;
    if ratio >= 99.95 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
}

/// Formats a duration in seconds as a clock: 0:05, 12:34, 1:02:03.
pub(crate) fn clock(seconds: f64) -> String {
    let all = if seconds.is_finite() { seconds.max(0.0).round() as u64 } else { 0 };
    let (hours, minutes, seconds) = (all / 3_600, all / 60 % 60, all % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Formats a duration in seconds with units: 45 s, 12 min 34 s, 1 h 20 min.
pub(super) fn span(seconds: f64) -> String {
    let all = if seconds.is_finite() { seconds.max(0.0).round() as u64 } else { 0 };
    let (hours, minutes, rest) = (all / 3_600, all / 60 % 60, all % 60);
    match (hours, minutes, rest) {
        (0, 0, _) => format!("{rest}\u{a0}s"),
        (0, _, 0) => format!("{minutes}\u{a0}min"),
        (0, _, _) => format!("{minutes}\u{a0}min {rest}\u{a0}s"),
        (_, 0, _) => format!("{hours}\u{a0}h"),
        _ => format!("{hours}\u{a0}h {minutes}\u{a0}min"),
    }
}

/// Date and time of seconds since 1970; the epoch if they are out of the range of a date.
pub(crate) fn utc(unix: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(unix).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// Formats seconds since 1970 as date and time in UTC.
pub(super) fn date(unix: i64) -> String {
    let at = utc(unix);
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", at.hour(), at.minute())
}

/// Sanitizes text for a terminal: control characters, which could be commands to it, become visible.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::{bytes, clock, date, digits, grouped, plain, ratio, share, short, span, time};

    fn same(found: String, expected: &str) {
        assert_eq!(found.replace(['\u{a0}', '\u{202f}'], " "), expected);
    }

    #[test]
    fn units_follow_the_size_and_never_show_a_thousand_of_the_smaller() {
        same(time(0.0), "0");
        same(time(0.5), "0.5 µs");
        same(time(999.4), "999 µs");
        same(time(999.6), "1 ms");
        same(time(1_234.0), "1.23 ms");
        same(time(999_600.0), "1 s");
        same(time(59_940_000.0), "59.9 s");
        same(time(1_800e6), "30 min");
        same(bytes(0.0), "0 B");
        same(bytes(999.7), "1 kB");
        same(bytes(999_700.0), "1 MB");
        same(bytes(12_345_678.0), "12.3 MB");
        same(short(1_234.0), "1234");
        same(short(12_340.0), "12.3 k");
        same(short(999_999.0), "1 M");
        same(digits(9.999), "10");
        same(digits(-2.50), "-2.5");
    }

    #[test]
    fn shares_never_round_to_all_or_nothing() {
        same(share(99_999, 100_000), "more than 99.99 %");
        same(share(99_989, 100_000), "99.98 %");
        same(share(1, 1_000_000), "less than 0.01 %");
        same(share(5, 5), "100 %");
        same(share(0, 5), "0 %");
        same(share(0, 0), "–");
        same(share(1, 3), "33.3 %");
    }

    #[test]
    fn counts_clocks_and_dates_are_formatted() {
        same(grouped(1_234_567), "1 234 567");
        same(grouped(1_234), "1234");
        same(ratio(2.0, 5.0), "2.50");
        same(ratio(0.0, 5.0), "–");
        same(ratio(0.0, 0.0), "1.00");
        same(clock(3_723.4), "1:02:03");
        same(clock(f64::NAN), "0:00");
        same(span(754.0), "12 min 34 s");
        same(span(4_800.0), "1 h 20 min");
        same(date(0), "1970-01-01 00:00 UTC");
        same(date(1_795_305_600), "2026-11-22 00:00 UTC");
        same(date(951_782_400), "2000-02-29 00:00 UTC");
        same(plain("a\u{1b}[31mb\n"), "a\u{fffd}[31mb\u{fffd}");
    }
}
