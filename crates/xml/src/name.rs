//! Characters and names: XML 1.0, sections 2.2 and 2.3; Namespaces in XML 1.0, sections 3 and 4.
//!
//! Not implemented: name characters that only the fifth edition allows; see [`name_chars`].
//!
//! # Pitfalls
//!
//! `name_end` requires bytes of text already validated as UTF-8.

use crate::{Error, name_chars};

pub(crate) const START: u8 = 1;
pub(crate) const NAME: u8 = 2;
pub(crate) const SPACE: u8 = 4;
const HIGH: u8 = 8;
const URI: u8 = 16;

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    let mut b = 0u8;
    loop {
        table[b as usize] = match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => START | NAME | URI,
            b'0'..=b'9' | b'-' | b'.' => NAME | URI,
            b' ' | b'\t' | b'\n' | b'\r' => SPACE,
            b'!' | b'#'..=b',' | b'/' | b':' | b';' | b'=' | b'?' | b'@' | b'[' | b']' | b'~' => URI,
            0x80.. => HIGH | URI,
            _ => 0,
        };
        if b == u8::MAX {
            return table;
        }
        b += 1;
    }
}

pub(crate) static CLASS: [u8; 256] = classes();

/// One byte of the production S.
#[inline]
pub(crate) fn is_space(byte: u8) -> bool {
    CLASS[usize::from(byte)] & SPACE != 0
}

/// Whether this byte is allowed in a namespace name: unreserved, reserved and `%` (RFC 3986, section 2), or beyond
/// ASCII.
pub(crate) fn is_uri_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & URI != 0
}

/// Whether a name can begin with this byte. For characters beyond ASCII only the reader can decide.
#[inline]
pub(crate) fn is_name_start_byte(byte: u8) -> bool {
    CLASS[usize::from(byte)] & (START | HIGH) != 0
}

/// Whether this byte can follow the name in a start tag.
pub(crate) fn is_delimiter(byte: Option<&u8>) -> bool {
    byte.is_some_and(|&b| b == b'>' || b == b'/' || is_space(b))
}

/// The production Char (XML 1.0, section 2.2): whether a text may contain this character.
pub const fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}' | '\u{10000}'..)
}

/// End of the NCName that begins at `at`; `at` itself if none begins there.
#[inline(always)]
pub(crate) fn ncname_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    match bytes.get(at) {
        Some(&b) if CLASS[usize::from(b)] & START != 0 => {}
        Some(&b) if b >= 0x80 => return ncname_end_high(text, at, true),
        _ => return at,
    }
    let mut i = at + 1;
    while let Some(&b) = bytes.get(i) {
        let class = CLASS[usize::from(b)];
        if class & NAME == 0 {
            if class & HIGH != 0 {
                return ncname_end_high(text, i, false);
            }
            break;
        }
        i += 1;
    }
    i
}

#[cold]
fn ncname_end_high(text: &str, at: usize, mut first: bool) -> usize {
    let Some(rest) = text.get(at..) else { return at };
    for (i, c) in rest.char_indices() {
        let fits = match c {
            '\0'..='\x7F' => CLASS[c as usize] & if first { START } else { NAME } != 0,
            _ if first => name_chars::is_name_start_char(c),
            _ => name_chars::is_name_char(c),
        };
        if !fits {
            return at + i;
        }
        first = false;
    }
    text.len()
}

/// The error for a character beyond ASCII that this reader does not accept there.
#[cold]
fn beyond(text: &str, at: usize, first: bool) -> Error {
    match text.get(at..).and_then(|rest| rest.chars().next()) {
        Some(c) if name_chars::is_of_fifth_edition(c, first) => Error::NameOfFifthEdition,
        _ => Error::NotWellFormed("a character that no name has"),
    }
}

/// A qualified name: offsets of its local part and its end.
#[derive(Clone, Copy)]
pub(crate) struct QName {
    /// Offset of the local part; equal to the start if there is no prefix.
    pub(crate) local: usize,
    pub(crate) end: usize,
}

/// Reads the QName at `at`.
#[inline(always)]
pub(crate) fn qname(text: &str, at: usize, longest: usize) -> Result<QName, Error> {
    let high = |at: usize| text.as_bytes().get(at).is_some_and(|b| *b >= 0x80);
    let mut end = ncname_end(text, at);
    if high(end) {
        return Err(beyond(text, end, end == at));
    }
    if end == at {
        return Err(Error::NotWellFormed("a name was expected"));
    }
    let mut local = at;
    if text.as_bytes().get(end) == Some(&b':') {
        local = end + 1;
        end = ncname_end(text, local);
        if high(end) {
            return Err(beyond(text, end, end == local));
        }
        if end == local || text.as_bytes().get(end) == Some(&b':') {
            return Err(Error::BadNamespace("a colon in a name must separate two names"));
        }
    }
    if end - at > longest {
        return Err(Error::NameTooLong);
    }
    Ok(QName { local, end })
}

/// Rejects U+FFFE and U+FFFF, the two three-byte code points that are not Char. Call it after a byte 0xEF.
#[cold]
pub(crate) fn contains_noncharacter(bytes: &[u8]) -> bool {
    bytes.windows(3).any(|w| w[0] == 0xEF && w[1] == 0xBF && w[2] >= 0xBE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_the_production_ends() {
        for (text, end) in [
            ("abc>", 3),
            ("a-b.c_1 ", 7),
            ("-a", 0),
            ("1", 0),
            ("é1·x=", 6),
            ("·x", 0),
            ("a×", 1),
            ("a:b", 1),
            ("", 0),
            ("\u{10000}", 0),
            ("a\u{EFFFF}", 1),
            ("\u{2C00}", 0),
            ("a\u{203F}b", 1),
            ("\u{4E00}\u{3099}", 6),
        ] {
            assert_eq!(ncname_end(text, 0), end, "{text}");
        }
    }

    #[test]
    fn a_name_ends_at_every_ascii_byte_that_is_no_name_character() {
        for b in 1..0x80u8 {
            let long = format!("abcdefgh{}ijklmnopqrst", char::from(b));
            let expected = if CLASS[usize::from(b)] & NAME != 0 { long.len() } else { 8 };
            assert_eq!(ncname_end(&long, 0), expected, "{long:?}");
        }
    }

    #[test]
    fn qualified_names_have_at_most_one_colon_with_names_on_both_sides() {
        assert!(qname("a:b ", 0, 9).is_ok_and(|q| q.local == 2 && q.end == 3));
        for text in [":a", "a:", "a:b:c", "a::b", "a:1"] {
            assert!(qname(text, 0, 9).is_err(), "{text}");
        }
        assert_eq!(qname("abcd", 0, 3).err(), Some(Error::NameTooLong));
    }
}
