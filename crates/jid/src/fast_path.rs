//! Fast path: recognises ASCII parts already in normal form by comparing byte ranges.
//!
//! For ASCII the profiles of RFC 7622 reduce to small sets: width mapping, normalisation and the bidi rule do nothing,
//! and case mapping affects only `A`-`Z`. A part that passes here is exactly what the slow path in `prep` would return;
//! the tests of `prep` compare the two.
//!
//! # Pitfalls
//!
//! The loops examine every byte, with no early `return`, so that the compiler can vectorise them.

use crate::MAX_PART;

/// Whether `part` is an ASCII localpart in normal form: the ASCII7 set of RFC 8264, section 9.11, without the
/// characters excluded by RFC 7622, section 3.3.1, and without capitals.
#[inline]
pub(crate) fn local(part: &[u8]) -> bool {
    !part.is_empty() && part.len() <= MAX_PART && part.iter().fold(true, |good, &b| good & local_byte(b))
}

#[inline]
fn local_byte(b: u8) -> bool {
    matches!(b, b'!' | b'#'..=b'%' | b'('..=b'.' | b'0'..=b'9' | b';' | b'=' | b'?' | b'['..=b'~')
}

/// Whether `part` is an ASCII resourcepart in normal form: the FreeformClass of RFC 8264, section 4.3, allows every
/// printable ASCII character and the space.
#[inline]
pub(crate) fn resource(part: &[u8]) -> bool {
    !part.is_empty()
        && part.len() <= MAX_PART
        && part.iter().fold(true, |good, &b| good & matches!(b, b' '..=b'~'))
}

/// Whether `part` is a domain in normal form made of lower-case NR-LDH labels (RFC 5890, section 2.3.1). IPv4 addresses
/// have that form too. A-labels and IP literals do not; they take the slow path.
#[inline]
pub(crate) fn domain(part: &[u8]) -> bool {
    let (Some(&first), Some(&last)) = (part.first(), part.last()) else { return false };
    if part.len() > MAX_LABEL {
        return labels(part);
    }
    // A name of at most 63 octets has no label that is too long. Empty labels and hyphens at the edge of a label need
    // two adjacent characters out of `-` and `.`; so does `--`, which only the slow loop can decide.
    let good = part.iter().fold(true, |good, &b| good & ldh_or_dot(b));
    let pairs = part.windows(2).fold(false, |bad, two| bad | (is_mark(two[0]) & is_mark(two[1])));
    if good & !pairs & !is_mark(first) & !is_mark(last) { true } else { labels(part) }
}

/// The complete rules for NR-LDH labels, label by label.
#[cold]
fn labels(part: &[u8]) -> bool {
    part.len() <= MAX_NAME
        && part.split(|&b| b == b'.').all(|label| {
            (1..=MAX_LABEL).contains(&label.len())
                && label.iter().all(|&b| b != b'.' && ldh_or_dot(b))
                && label.first() != Some(&b'-')
                && label.last() != Some(&b'-')
                && label.get(2..4) != Some(b"--")
        })
}

/// Maximum octets of a label (RFC 1034, section 3.1).
pub(crate) const MAX_LABEL: usize = 63;
/// Maximum octets of a name in its textual DNS form without the final dot (RFC 1034, section 3.1: 255 on the wire).
pub(crate) const MAX_NAME: usize = 253;

#[inline]
fn ldh_or_dot(b: u8) -> bool {
    matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.')
}

#[inline]
fn is_mark(b: u8) -> bool {
    matches!(b, b'-' | b'.')
}
