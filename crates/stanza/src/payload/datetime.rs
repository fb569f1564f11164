//! Dates and times as text, always in UTC: XEP-0082 1.1.1, section 3.2 (DateTime).
//!
//! The calendar is the proleptic Gregorian one; Unix time has no leap seconds.

use time::OffsetDateTime;

/// Last second that has a year of four digits.
const LAST: i64 = 253_402_300_799;

/// Formats milliseconds since the Unix epoch as `2002-09-10T23:08:25Z`, with milliseconds only if `fraction` is set. Times after
/// the year 9999 become its last second.
pub fn format_utc(unix_millis: u64, fraction: bool) -> String {
    let seconds = i64::try_from(unix_millis / 1000).unwrap_or(LAST).min(LAST);
    let moment = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = moment.to_calendar_date();
    let (month, (h, m, s)) = (u8::from(month), moment.to_hms());
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
        assert_eq!(format_utc(u64::MAX, false), "9999-12-31T23:59:59Z");
    }
}
