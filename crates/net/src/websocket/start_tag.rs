//! Raw attributes of a start tag, as written: for adding and removing declarations.
//!
//! Not implemented: validation. `xml::Reader` validates client input afterwards; a tag that is not well-formed ends the
//! iteration early and is refused there.
//!
//! # Pitfalls
//!
//! A `>` or a `xmlns=` may be part of a value, so never search the text without iterating over the attributes.

use std::ops::Range;

/// Namespace of `<open/>` and `<close/>` (RFC 7395, section 3.3.1).
pub(crate) const FRAMING: &str = "urn:ietf:params:xml:ns:xmpp-framing";

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute<'a> {
    pub(crate) name: &'a [u8],
    /// Raw value between the quotes.
    pub(crate) value: &'a [u8],
    /// Its range, with the white space before it.
    pub(crate) whole: Range<usize>,
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Size of `<name` at the start of a tag.
pub(crate) fn name_end(tag: &[u8]) -> usize {
    tag.iter().position(|&byte| is_space(byte) || byte == b'>' || byte == b'/').unwrap_or(tag.len())
}

/// Iterates over the attributes of the start tag at the beginning of `element`; further bytes are ignored.
pub(crate) fn attributes(element: &[u8]) -> Attributes<'_> {
    Attributes { bytes: element, at: name_end(element) }
}

/// Iterator of [`attributes`].
pub(crate) struct Attributes<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Attributes<'_> {
    /// Size of the whole tag, after all attributes; `None` if it has no end.
    pub(crate) fn tag_end(mut self) -> Option<usize> {
        while self.next().is_some() {}
        let rest = self.bytes.get(self.at..)?;
        let spaces = rest.iter().position(|&byte| !is_space(byte))?;
        let end = match rest.get(spaces..)? {
            [b'>', ..] => 1,
            [b'/', b'>', ..] => 2,
            _ => return None,
        };
        Some(self.at + spaces + end)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let start = self.at;
        let find = |from: usize, wanted: &dyn Fn(u8) -> bool| -> Option<usize> {
            Some(from + self.bytes.get(from..)?.iter().position(|&byte| wanted(byte))?)
        };
        let name = find(start, &|byte| !is_space(byte))?;
        if matches!(self.bytes.get(name), Some(b'>' | b'/')) {
            return None;
        }
        let name_end = find(name, &|byte| is_space(byte) || byte == b'=' || byte == b'>')?;
        let equals = find(name_end, &|byte| !is_space(byte))?;
        let quote = find(equals + 1, &|byte| !is_space(byte))?;
        let mark = *self.bytes.get(quote)?;
        if self.bytes.get(equals) != Some(&b'=') || !matches!(mark, b'\'' | b'"') {
            return None;
        }
        let end = find(quote + 1, &|byte| byte == mark)?;
        self.at = end + 1;
        Some(Attribute {
            name: self.bytes.get(name..name_end)?,
            value: self.bytes.get(quote + 1..end)?,
            whole: start..end + 1,
        })
    }
}

/// Range of a redundant declaration in a start tag: the default namespace `jabber:client`, which the stream header
/// declares for all elements. A receiver on TCP does not need it.
pub(crate) fn redundant_declaration(element: &[u8]) -> Option<Range<usize>> {
    let found = attributes(element).find(|attribute| attribute.name == b"xmlns")?;
    let next = element.get(found.whole.end).copied()?;
    let apart = is_space(next) || next == b'/' || next == b'>';
    (found.value == b"jabber:client" && apart).then_some(found.whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_iterated_in_document_order() {
        let tag = b"<a b='1>' c = \"x='2'\"\n\txmlns:d=''/><e f='g'/>";
        let found: Vec<_> = attributes(tag).map(|a| (a.name, a.value)).collect();
        assert_eq!(found, [(&b"b"[..], &b"1>"[..]), (b"c", b"x='2'"), (b"xmlns:d", b"")]);
        assert_eq!(attributes(tag).tag_end(), Some(35));
        assert_eq!(attributes(b"<a>").tag_end(), Some(3));
        assert_eq!(attributes(b"<a b='c' >d").tag_end(), Some(10));
        for cut in [&b"<a"[..], b"<a b", b"<a b=", b"<a b='c", b"<a b='c'", b"<a b='c'/"] {
            assert_eq!(attributes(cut).tag_end(), None, "{}", String::from_utf8_lossy(cut));
        }
    }

    #[test]
    fn only_a_repeated_declaration_is_redundant() {
        let cut = |text: &str| {
            redundant_declaration(text.as_bytes())
                .map(|range| format!("{}{}", &text[..range.start], &text[range.end..]))
        };
        assert_eq!(cut("<iq xmlns='jabber:client'/>").unwrap(), "<iq/>");
        assert_eq!(cut("<iq id='1'  xmlns = \"jabber:client\" to='a'>").unwrap(), "<iq id='1' to='a'>");
        for other in [
            "<iq/>",
            "<iq xmlns='jabber:server'/>",
            "<iq id=\" xmlns='jabber:client'\"/>",
            "<iq><query xmlns='jabber:client'/></iq>",
            "<iq xmlns='jabber:client'id='1'/>",
            "<iq xmlns:a='jabber:client'/>",
        ] {
            assert_eq!(cut(other), None, "{other}");
        }
    }
}
