//! `Range` (RFC 9110, section 14), `If-Match` (section 13.1.1) and `If-None-Match` (section 13.1.2).
//!
//! Not implemented: several ranges in one request, which receive the whole file, as section 14.2 permits.

use std::ops::Range;

/// The part of a file that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// All of it.
    Whole,
    /// This part; never empty.
    Part(Range<u64>),
    /// A part that does not exist.
    Unsatisfiable,
}

/// Reads the value of `Range`. What is malformed is ignored (section 14.2).
pub(super) fn requested_range(value: Option<&str>, size: u64) -> RequestedRange {
    let parsed = value.and_then(|value| parse(value.trim(), size));
    match parsed {
        None => RequestedRange::Whole,
        Some(range) if range.start < range.end => RequestedRange::Part(range),
        Some(_) => RequestedRange::Unsatisfiable,
    }
}

/// The range, cut to the size; `None` if the value is malformed.
fn parse(value: &str, size: u64) -> Option<Range<u64>> {
    let (unit, ranges) = value.split_once('=')?;
    if !unit.eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = ranges.trim().split_once('-')?;
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A position beyond every size.
        is_number.then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (first.trim(), last.trim()) {
        ("", last) => Some(size.saturating_sub(number(last)?)..size),
        (first, "") => Some(number(first)?..size),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then(|| first..last.saturating_add(1).min(size))
        }
    }
}

/// Whether a value of `If-Match` has this entity tag, which includes the quotes.
pub(super) fn match_has(value: &str, tag: &str) -> bool {
    value.trim() == "*" || value.split(',').any(|one| one.trim() == tag)
}

/// Whether a value of `If-None-Match` has this entity tag, which includes the quotes.
pub(super) fn none_match_has(value: &str, tag: &str) -> bool {
    let is_tag = |one: &str| one.strip_prefix("W/").unwrap_or(one) == tag;
    value.trim() == "*" || value.split(',').map(str::trim).any(is_tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_9110_section_14_1_2_ranges() {
        use RequestedRange::{Part, Unsatisfiable, Whole};
        for (value, want) in [
            ("bytes=0-499", Part(0..500)),
            ("bytes=500-999", Part(500..1000)),
            ("bytes=-500", Part(9500..10000)),
            ("bytes=9500-", Part(9500..10000)),
            ("bytes=0-0", Part(0..1)),
            ("bytes=-1", Part(9999..10000)),
            ("Bytes=9999-99999", Part(9999..10000)),
            ("bytes=-99999", Part(0..10000)),
            ("bytes=0-99999999999999999999999", Part(0..10000)),
            ("bytes=10000-", Unsatisfiable),
            ("bytes=99999999999999999999999-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=500-499", Whole),
            ("bytes=0-1,5-6", Whole),
            ("bytes=-", Whole),
            ("bytes=a-b", Whole),
            ("bytes=+1-2", Whole),
            ("items=0-1", Whole),
            ("0-1", Whole),
            ("", Whole),
        ] {
            assert_eq!(requested_range(Some(value), 10_000), want, "{value}");
        }
        assert_eq!(requested_range(None, 10_000), Whole);
        assert_eq!(requested_range(Some("bytes=0-"), 0), Unsatisfiable);
    }

    #[test]
    fn rfc_9110_section_13_1_1_tags_are_compared_strongly() {
        for value in ["\"a\"", "\"b\", \"a\"", "*"] {
            assert!(match_has(value, "\"a\""), "{value}");
        }
        for value in ["", "W/\"a\"", "\"b\""] {
            assert!(!match_has(value, "\"a\""), "{value}");
        }
    }

    #[test]
    fn rfc_9110_section_13_1_2_tags_are_compared_weakly() {
        for value in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*", " * "] {
            assert!(none_match_has(value, "\"a\""), "{value}");
        }
        for value in ["", "a", "\"b\"", "\"aa\""] {
            assert!(!none_match_has(value, "\"a\""), "{value}");
        }
    }
}
