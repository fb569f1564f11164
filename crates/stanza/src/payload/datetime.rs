//! Dates and times as text, always in UTC: XEP-0082 1.1.1, section 3.2 (DateTime).
//!
//! The calendar is the proleptic Gregorian one; Unix time has no leap seconds.

/// Formats milliseconds since the Unix epoch as `2002-09-10T23:08:25Z`, with milliseconds only if `fraction` is set.
pub fn format_utc(unix_millis: u64, fraction: bool) -> String {
    let seconds = unix_millis / 1000;
    let (days, second) = ((seconds / 86_400) as i64, seconds % 86_400);
    // Conversion from days to a date by Howard Hinnant's `civil_from_days`.
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + i64::from(month <= 2);
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    if fraction {
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{:03}Z", unix_millis % 1000)
    } else {
        format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::format_utc;

    #[test]
    fn dates_are_written_in_utc_with_and_without_milliseconds() {
        assert_eq!(format_utc(0, false), "1970-01-01T00:00:00Z");
        assert_eq!(format_utc(1_031_699_305_000, false), "2002-09-10T23:08:25Z");
        assert_eq!(format_utc(951_782_400_007, true), "2000-02-29T00:00:00.007Z");
        assert_eq!(format_utc(4_102_444_799_000, false), "2099-12-31T23:59:59Z");
    }
}
