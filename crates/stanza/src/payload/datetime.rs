//! Dates and times as text: XEP-0082 1.1.1, section 3.2 (DateTime). They are written in UTC and read with any offset.
//!
//! The calendar is the proleptic Gregorian one; Unix time has no leap seconds.
//!
//! Not implemented: the profiles Date and Time, years without exactly four digits.

use time::{Date, Month, OffsetDateTime};

/// Last second that has a year of four digits.
const LAST: i64 = 253_402_300_799;

/// Formats milliseconds since the Unix epoch as `2002-09-10T23:08:25Z`, with milliseconds only if `fraction` is set.
/// Times after the year 9999 become its last second.
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

/// Parses `2002-09-10T23:08:25Z` or `2002-09-10T18:08:25.123-05:00` to milliseconds since the Unix epoch, negative before 1970.
/// Digits of the fraction after the third are ignored. `None` if the text is not a DateTime.
pub fn parse_datetime(text: &str) -> Option<i64> {
    let (date, rest) = text.split_once('T')?;
    let (clock, zone) = rest.split_at(rest.find(['Z', '+', '-'])?);
    let (clock, millis) = match clock.split_once('.') {
        None => (clock, 0),
        Some((clock, fraction)) => (clock, millis_of(fraction)?),
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let narrow = |number: u16| u8::try_from(number).ok();
    let month = Month::try_from(narrow(month)?).ok()?;
    let date = Date::from_calendar_date(i32::from(year), month, narrow(day)?).ok()?;
    let moment = date.with_hms(narrow(hour)?, narrow(minute)?, narrow(second)?).ok()?.assume_utc();
    let offset = match zone.strip_prefix('+') {
        Some(east) => minutes_of(east)?,
        None if zone == "Z" => 0,
        None => -minutes_of(zone.strip_prefix('-')?)?,
    };
    Some((moment.unix_timestamp() - offset * 60) * 1000 + millis)
}

/// Numbers with exactly these counts of digits.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u16; N]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; N];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && is_digits(part))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Milliseconds of a fraction of a second.
fn millis_of(fraction: &str) -> Option<i64> {
    let digits = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    is_digits(fraction).then(|| digits.fold(0, |millis, digit| millis * 10 + i64::from(digit - b'0')))
}

/// Minutes of an offset from UTC, at most 14 hours.
fn minutes_of(offset: &str) -> Option<i64> {
    let [hours, minutes] = numbers(offset, ':', [2, 2])?;
    let total = i64::from(hours) * 60 + i64::from(minutes);
    (minutes < 60 && total <= 14 * 60).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::{format_utc, parse_datetime};

    #[test]
    fn section_3_2_the_same_moment_is_read_in_utc_and_with_an_offset() {
        // The examples of the section.
        assert_eq!(parse_datetime("1969-07-21T02:56:15Z"), Some(-14_159_025_000));
        assert_eq!(parse_datetime("1969-07-20T21:56:15-05:00"), Some(-14_159_025_000));
        assert_eq!(parse_datetime("2002-09-11T04:38:25.5+05:30"), Some(1_031_699_305_500));
        assert_eq!(parse_datetime("2002-09-10T23:08:25.0019Z"), Some(1_031_699_305_001));
        assert_eq!(parse_datetime("0000-01-01T00:00:00+14:00"), Some(-62_167_269_600_000));
    }

    #[test]
    fn message_ids_round_trip() {
        let mut random = fastrand::Rng::with_seed(82);
        for _ in 0..2_000 {
            let millis = random.u64(..=253_402_300_799_999);
            let read = |fraction| parse_datetime(&format_utc(millis, fraction)).map(i64::unsigned_abs);
            assert_eq!(read(true), Some(millis));
            assert_eq!(read(false), Some(millis / 1000 * 1000));
        }
    }

    #[test]
    fn text_that_is_not_a_date_and_time_is_refused() {
        for text in [
            "",
            "T",
            "2002-09-10",
            "23:08:25Z",
            "2002-09-10T23:08:25",
            "2002-09-10T23:08Z",
            "2002-09-10T23:08:25:00Z",
            "2002-09-10 23:08:25Z",
            "2002-9-10T23:08:25Z",
            "02-09-10T23:08:25Z",
            "-002-09-10T23:08:25Z",
            "12002-09-10T23:08:25Z",
            "2002-13-10T23:08:25Z",
            "2002-00-10T23:08:25Z",
            "2002-02-29T23:08:25Z",
            "2002-09-10T24:00:00Z",
            "2002-09-10T23:60:25Z",
            "2002-09-10T23:08:60Z",
            "2002-09-10T23:08:25.Z",
            "2002-09-10T23:08:25.-1Z",
            "2002-09-10T23:08:25z",
            "2002-09-10T23:08:25ZZ",
            "2002-09-10T23:08:25+",
            "2002-09-10T23:08:25+05",
            "2002-09-10T23:08:25+0530",
            "2002-09-10T23:08:25+05:60",
            "2002-09-10T23:08:25+14:01",
            "2002-09-10T23:08:25--05:00",
            "2002-09-10T+3:08:25Z",
            "2002-09-10T\u{662}3:08:25Z",
        ] {
            assert_eq!(parse_datetime(text), None, "{text:?}");
        }
    }

    #[test]
    fn dates_are_written_in_utc_with_and_without_milliseconds() {
        assert_eq!(format_utc(0, false), "1970-01-01T00:00:00Z");
        assert_eq!(format_utc(1_031_699_305_000, false), "2002-09-10T23:08:25Z");
        assert_eq!(format_utc(951_782_400_007, true), "2000-02-29T00:00:00.007Z");
        assert_eq!(format_utc(4_102_444_799_000, false), "2099-12-31T23:59:59Z");
        assert_eq!(format_utc(u64::MAX, false), "9999-12-31T23:59:59Z");
    }
}
