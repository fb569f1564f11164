//! A name in a fixed number of bytes, for tables of fixed memory that compare names and not only their hashes.

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

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

    /// Appends its octets: the first is the length of a text, or 255 before a digest.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let length = if self.0[0] == DIGEST { SHA256_OUTPUT_LEN } else { usize::from(self.0[0]) };
        out.extend(self.0.iter().take(1 + length));
    }

    /// Reads the octets of [`FixedName::encode`], and returns the rest. `None` if they are none.
    pub(super) fn decode(input: &[u8]) -> Option<(FixedName, &[u8])> {
        let first = *input.first()?;
        let length = match first {
            DIGEST => SHA256_OUTPUT_LEN,
            length => Some(usize::from(length)).filter(|length| *length <= MAX_TEXT)?,
        };
        let (octets, rest) = input.split_at_checked(1 + length)?;
        let mut bytes = [0; MAX_TEXT + 1];
        bytes.get_mut(..octets.len())?.copy_from_slice(octets);
        Some((FixedName(bytes), rest))
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

    #[test]
    fn a_name_is_read_as_it_was_written_and_anything_else_is_refused() {
        for text in ["", "a", &"a".repeat(MAX_TEXT), &"a".repeat(1_000)] {
            let mut octets = Vec::new();
            FixedName::new(text).encode(&mut octets);
            assert!((0..octets.len()).all(|length| FixedName::decode(&octets[..length]).is_none()), "{text}");
            octets.push(7);
            assert_eq!(FixedName::decode(&octets), Some((FixedName::new(text), &[7][..])), "{text}");
        }
        for first in 48..DIGEST {
            assert_eq!(FixedName::decode(&[&[first][..], &[0; 300]].concat()), None);
        }
    }
}
