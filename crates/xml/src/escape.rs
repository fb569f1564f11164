//! References and escapes: XML 1.0, sections 2.4, 2.11 (line ends), 3.3.3 (attribute values), 4.1 and 4.6.
//!
//! Not implemented: entities beyond the five predefined ones (RFC 6120, section 11.1).
//!
//! # Pitfalls
//!
//! A literal carriage return or, in attributes, a line end or tab does not survive a reader, so both escaping functions
//! turn them into references. Characters that XML cannot represent become U+FFFD.

use std::borrow::Cow;

use memchr::{memchr, memchr2};

use crate::byte_search::plain_words;
use crate::{Error, Restriction, name};

const AMP: Error = Error::NotWellFormed("an ampersand without a reference");

/// Appends `text` as character data.
pub fn text(text: &str, out: &mut Vec<u8>) {
    write(text, out, false);
}

/// Appends `value` as an attribute value, valid in either kind of quote; the quotes themselves are not written.
pub fn attr(value: &str, out: &mut Vec<u8>) {
    write(value, out, true);
}

/// Appends `=` and a quoted value, copied verbatim from another attribute. Such a value contains at most one kind of
/// quote, so it needs no escaping and keeps its length.
pub fn raw_attr_value(raw: &str, out: &mut Vec<u8>) {
    let quote = if memchr(b'\'', raw.as_bytes()).is_some() { b'"' } else { b'\'' };
    out.extend_from_slice(&[b'=', quote]);
    out.extend_from_slice(raw.as_bytes());
    out.push(quote);
}

fn write(text: &str, out: &mut Vec<u8>, attribute: bool) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len());
    let mut done = 0;
    // Addresses and most text have nothing to escape, which a word shows at once.
    let plain = plain_words(bytes);
    for (i, &b) in bytes.iter().enumerate().skip(plain) {
        // The common case is one comparison: letters and most punctuation are above '>'.
        if b > b'>' && b != 0xEF {
            continue;
        }
        let (replacement, length): (&[u8], usize) = match b {
            b'&' => (b"&amp;", 1),
            b'<' => (b"&lt;", 1),
            b'>' => (b"&gt;", 1),
            b'\'' if attribute => (b"&apos;", 1),
            b'"' if attribute => (b"&quot;", 1),
            b'\r' => (b"&#13;", 1),
            b'\n' if attribute => (b"&#10;", 1),
            b'\t' if attribute => (b"&#9;", 1),
            b'\n' | b'\t' => continue,
            0..0x20 => ("\u{FFFD}".as_bytes(), 1),
            0xEF if matches!(bytes.get(i + 1..i + 3), Some([0xBF, 0xBE | 0xBF])) => {
                ("\u{FFFD}".as_bytes(), 3)
            }
            _ => continue,
        };
        out.extend_from_slice(&bytes[done..i]);
        out.extend_from_slice(replacement);
        done = i + length;
    }
    out.extend_from_slice(&bytes[done..]);
}

/// Expands the references in character data and normalises its line ends.
pub fn unescape(raw: &str) -> Result<Cow<'_, str>, Error> {
    expand(raw, false)
}

/// Expands the references in an attribute value and replaces its literal white space with spaces.
pub fn unescape_attr(raw: &str) -> Result<Cow<'_, str>, Error> {
    expand(raw, true)
}

/// Normalises line ends only, as a CDATA section requires.
pub(crate) fn normalise_line_ends(raw: &str) -> Cow<'_, str> {
    if memchr(b'\r', raw.as_bytes()).is_none() {
        return Cow::Borrowed(raw);
    }
    Cow::Owned(raw.replace("\r\n", "\n").replace('\r', "\n"))
}

fn expand(raw: &str, attribute: bool) -> Result<Cow<'_, str>, Error> {
    let plain = if attribute {
        !raw.bytes().any(|b| b < b' ' || b == b'&')
    } else {
        memchr2(b'&', b'\r', raw.as_bytes()).is_none()
    };
    if plain {
        return Ok(Cow::Borrowed(raw));
    }
    let mut out = String::with_capacity(raw.len());
    for c in UnescapedChars::new(raw, attribute) {
        out.push(c?);
    }
    Ok(Cow::Owned(out))
}

/// Iterator over the characters of escaped text. Does not allocate, so the reader compares namespace names with it.
pub(crate) struct UnescapedChars<'a> {
    raw: &'a str,
    at: usize,
    attribute: bool,
}

impl<'a> UnescapedChars<'a> {
    pub(crate) const fn new(raw: &'a str, attribute: bool) -> UnescapedChars<'a> {
        UnescapedChars { raw, at: 0, attribute }
    }
}

impl Iterator for UnescapedChars<'_> {
    type Item = Result<char, Error>;

    fn next(&mut self) -> Option<Result<char, Error>> {
        let c = self.raw.get(self.at..)?.chars().next()?;
        if c == '&' {
            return match reference(self.raw, self.at) {
                Ok((c, end)) => {
                    self.at = end;
                    Some(Ok(c))
                }
                Err(error) => {
                    self.at = self.raw.len();
                    Some(Err(error))
                }
            };
        }
        self.at += c.len_utf8();
        if c == '\r' && self.raw.as_bytes().get(self.at) == Some(&b'\n') {
            self.at += 1;
        }
        Some(Ok(match c {
            '\r' | '\n' | '\t' if self.attribute => ' ',
            '\r' => '\n',
            c => c,
        }))
    }
}

/// Parses the reference whose `&` is at `at`: its character and the offset after its `;`.
pub(crate) fn reference(text: &str, at: usize) -> Result<(char, usize), Error> {
    let rest = text.get(at + 1..).unwrap_or_default();
    for (name, c) in [("amp;", '&'), ("lt;", '<'), ("gt;", '>'), ("quot;", '"'), ("apos;", '\'')] {
        if rest.starts_with(name) {
            return Ok((c, at + 1 + name.len()));
        }
    }
    let Some(number) = rest.strip_prefix('#') else {
        let end = name::ncname_end(rest, 0);
        // A colon is a name character in XML 1.0, so `&a:b;` is an entity reference too.
        let entity = end > 0 && matches!(rest.as_bytes().get(end), Some(b';' | b':'));
        return Err(if entity { Error::Restricted(Restriction::Entity) } else { AMP });
    };
    let (digits, radix, before) = match number.strip_prefix('x') {
        Some(hex) => (hex, 16, at + 3),
        None => (number, 10, at + 2),
    };
    let mut value: u32 = 0;
    let mut length = 0;
    for digit in digits.chars().map_while(|c| c.to_digit(radix)) {
        // There may be many leading zeros; the value saturates beyond the last code point.
        value = value.saturating_mul(radix).saturating_add(digit);
        length += 1;
    }
    if length == 0 || digits.as_bytes().get(length) != Some(&b';') {
        return Err(AMP);
    }
    let c = char::from_u32(value).filter(|&c| name::is_char(c)).ok_or(Error::BadCharacter)?;
    Ok((c, before + length + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(s: &str, attribute: bool) -> String {
        let mut out = Vec::new();
        write(s, &mut out, attribute);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn escaped_text_reads_back_the_same() {
        for s in ["", "plain", "a<b>&c\"d'e", "x\r\ny\rz\n\t", "é😀\u{FFFD}", "]]>"] {
            assert_eq!(unescape(&written(s, false)).unwrap(), s);
            assert_eq!(unescape_attr(&written(s, true)).unwrap(), s);
        }
    }

    #[test]
    fn characters_that_xml_cannot_carry_are_replaced() {
        assert_eq!(written("a\0b\u{1F}\u{FFFF}c\u{FFFE}", false), "a\u{FFFD}b\u{FFFD}\u{FFFD}c\u{FFFD}");
    }

    #[test]
    fn literal_white_space_is_normalised() {
        assert_eq!(unescape("a\r\nb\rc\nd\te").unwrap(), "a\nb\nc\nd\te");
        assert_eq!(unescape_attr("a\r\nb\rc\nd\te&#10;").unwrap(), "a b c d e\n");
        assert_eq!(normalise_line_ends("a\r\nb\r"), "a\nb\n");
    }

    #[test]
    fn references_follow_the_grammar() {
        assert_eq!(unescape("&#x41;&#65;&#0000065;&#x1F600;").unwrap(), "AAA😀");
        for bad in ["&", "&;", "& amp;", "&#;", "&#x;", "&#X41;", "&#6 5;", "&amp", "&#65", "&1;"] {
            assert_eq!(unescape(bad), Err(AMP), "{bad}");
        }
        for bad in ["&#0;", "&#x1F;", "&#xD800;", "&#xFFFF;", "&#x110000;", "&#99999999999999999999;"] {
            assert_eq!(unescape(bad), Err(Error::BadCharacter), "{bad}");
        }
        for bad in ["&nbsp;", "&AMP;", "&a:b;"] {
            assert_eq!(unescape(bad), Err(Error::Restricted(Restriction::Entity)), "{bad}");
        }
    }
}
