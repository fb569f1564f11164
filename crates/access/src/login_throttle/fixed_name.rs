//! A name in a fixed number of bytes, for tables of fixed memory that compare names and not only their hashes.

use ring::digest::{SHA256, digest};

/// Longest name that is kept as text, in bytes.
const MAX_TEXT: usize = 47;
/// First byte of a name that is kept as its digest.
const DIGEST: u8 = 255;

/// A name of any length in 48 bytes: its text up to 47 bytes, and otherwise its SHA-256.
///
/// Two names are equal if their texts are, or if they have the same SHA-256, for which nobody can find a second name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FixedName([u8; MAX_TEXT + 1]);

impl FixedName {
    /// The empty name.
    pub(super) const EMPTY: FixedName = FixedName([0; MAX_TEXT + 1]);

    /// The name of this text.
    pub(super) fn new(text: &str) -> FixedName {
        let mut bytes = [0; MAX_TEXT + 1];
        match u8::try_from(text.len()) {
            Ok(length) if text.len() <= MAX_TEXT => {
                bytes[0] = length;
                bytes[1..=text.len()].copy_from_slice(text.as_bytes());
            }
            _ => {
                let digest = digest(&SHA256, text.as_bytes());
                bytes[0] = DIGEST;
                bytes[1..=digest.as_ref().len()].copy_from_slice(digest.as_ref());
            }
        }
        FixedName(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_equal_only_if_their_texts_are() {
        let longest = "a".repeat(MAX_TEXT);
        let names = [
            "",
            "a",
            "b",
            "a\0",
            &longest,
            &format!("{longest}a"),
            &format!("{longest}b"),
            &"a".repeat(254),
            &"a".repeat(255),
            &"a".repeat(256),
            &"a".repeat(100_000),
        ];
        for (n, one) in names.iter().enumerate() {
            for (m, other) in names.iter().enumerate() {
                assert_eq!(FixedName::new(one) == FixedName::new(other), n == m, "{n} and {m}");
            }
        }
        assert_eq!(FixedName::new(""), FixedName::EMPTY);
    }
}
