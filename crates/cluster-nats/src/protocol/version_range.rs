//! Versions of a wire form that a node reads, in its record as `1-2`, or `1` for a single one.

use std::fmt;

/// The versions, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VersionRange {
    pub(crate) oldest: u8,
    pub(crate) newest: u8,
}

impl VersionRange {
    pub(crate) const fn only(version: u8) -> VersionRange {
        VersionRange { oldest: version, newest: version }
    }

    /// Reads the text of a record.
    pub(crate) fn parse(text: &str) -> Option<VersionRange> {
        let (oldest, newest) = text.split_once('-').unwrap_or((text, text));
        let range = VersionRange { oldest: oldest.parse().ok()?, newest: newest.parse().ok()? };
        (range.oldest <= range.newest).then_some(range)
    }

    pub(crate) fn contains(self, version: u8) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The version in which two nodes communicate: the highest that both read.
    pub(crate) fn common(self, other: VersionRange) -> Option<u8> {
        let newest = self.newest.min(other.newest);
        (self.contains(newest) && other.contains(newest)).then_some(newest)
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.oldest, self.newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nodes_use_the_highest_version_that_both_read() {
        let common = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| VersionRange::parse(text).unwrap());
            assert_eq!(one.common(other), other.common(one));
            one.common(other)
        };
        assert_eq!(common("1", "1"), Some(1));
        assert_eq!(common("1-2", "2-3"), Some(2));
        assert_eq!(common("1-9", "2-3"), Some(3));
        assert_eq!(common("1", "2-3"), None);
    }

    #[test]
    fn a_range_is_read_as_it_was_written() {
        for range in [VersionRange::only(3), VersionRange { oldest: 1, newest: 255 }] {
            assert_eq!(VersionRange::parse(&range.to_string()), Some(range));
        }
        for text in ["", "-", "1-", "-1", "2-1", "1-256", "1-2-3", "x"] {
            assert_eq!(VersionRange::parse(text), None, "{text}");
        }
    }
}
