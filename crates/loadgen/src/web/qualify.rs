//! Stanzas as standalone documents: each declares the namespace that it inherits from the stream on TCP.
//!
//! Required by RFC 7395, section 3.3.3 and XEP-0206 (version 1.4), section 4. Elements that declare a default namespace
//! are unchanged.
//!
//! Not implemented: prefixes declared by the stream; the generator uses none.
//!
//! # Pitfalls
//!
//! Raw text of a plan may be an incomplete element or no element at all. Incomplete text waits for its rest; malformed
//! text is sent as it is, since a plan may test how a server handles it.

use xml::{Limits, ScanOutcome, Scanner};

const LIMITS: Limits = Limits { element_bytes: 17 << 20, ..Limits::CEILING };

/// Passes each complete element of `text` to `each` in two parts, before and after the point where the declaration is
/// inserted. Returns the number of bytes consumed.
pub fn elements(text: &[u8], mut each: impl FnMut(&[u8], &[u8])) -> usize {
    let mut scanner = Scanner::fragment();
    let mut at = 0;
    while at < text.len() {
        match scanner.scan(&text[at..], &LIMITS) {
            Ok(ScanOutcome::Element { start, end }) => {
                let element = &text[at + start..at + end];
                let (before, behind) = element.split_at(place(element));
                each(before, behind);
                at += end;
            }
            Ok(ScanOutcome::More { skip }) => return at + skip,
            Ok(ScanOutcome::Open { .. } | ScanOutcome::Close { .. }) | Err(_) => {
                each(&text[at..], b"");
                return text.len();
            }
        }
    }
    at
}

/// Declaration inserted between the two parts of an element.
pub const DECLARATION: &[u8] = b" xmlns='jabber:client'";

/// Appends the complete elements of `text` with their namespace; returns the number of bytes consumed.
pub fn append(text: &[u8], out: &mut Vec<u8>) -> usize {
    elements(text, |before, behind| join(before, behind, out))
}

/// Appends one element from its two parts.
pub fn join(before: &[u8], behind: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(before);
    if !behind.is_empty() {
        out.extend_from_slice(DECLARATION);
        out.extend_from_slice(behind);
    }
}

/// Position after the name of an element that needs the declaration; the end of one that has a default namespace.
fn place(element: &[u8]) -> usize {
    let name = element.iter().position(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'/' | b'>'));
    let name = name.unwrap_or(element.len());
    if declares(&element[name..]) { element.len() } else { name }
}

/// Whether the rest of a start tag after its name declares a default namespace.
fn declares(mut tag: &[u8]) -> bool {
    loop {
        let blank = tag.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
        tag = &tag[blank..];
        let Some(equals) = tag.iter().position(|byte| matches!(byte, b'=' | b'>')) else { return false };
        if tag[equals] == b'>' {
            return false;
        }
        if tag[..equals].trim_ascii() == b"xmlns" {
            return true;
        }
        let value = tag[equals + 1..].trim_ascii_start();
        let Some((quote, rest)) = value.split_first() else { return false };
        let Some(end) = memchr::memchr(*quote, rest) else { return false };
        tag = &rest[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::append;

    fn qualified(text: &str) -> (String, usize) {
        let mut out = Vec::new();
        let taken = append(text.as_bytes(), &mut out);
        (String::from_utf8(out).unwrap(), taken)
    }

    #[test]
    fn stanzas_get_their_namespace_and_others_keep_theirs() {
        for (given, wanted) in [
            ("<presence/>", "<presence xmlns='jabber:client'/>"),
            (
                "<iq type='get'><query xmlns='a'/></iq>",
                "<iq xmlns='jabber:client' type='get'><query xmlns='a'/></iq>",
            ),
            (
                "<auth xmlns='urn:a' mechanism='PLAIN'>AA==</auth>",
                "<auth xmlns='urn:a' mechanism='PLAIN'>AA==</auth>",
            ),
            ("<r a=\"x>' xmlns='y\" xmlns = 'urn:r'/>", "<r a=\"x>' xmlns='y\" xmlns = 'urn:r'/>"),
            ("<message to='xmlns=1'/>", "<message xmlns='jabber:client' to='xmlns=1'/>"),
            ("<message\nxmlns:a='b'/>", "<message xmlns='jabber:client'\nxmlns:a='b'/>"),
            ("<message>x</message>", "<message xmlns='jabber:client'>x</message>"),
        ] {
            assert_eq!(qualified(given), (wanted.to_owned(), given.len()));
        }
    }

    #[test]
    fn several_stanzas_are_split_and_an_incomplete_one_waits() {
        let (out, taken) = qualified("<iq/><message to='a'>");
        assert_eq!((out.as_str(), taken), ("<iq xmlns='jabber:client'/>", 5));
        assert_eq!(qualified("<presence/> \n").0, "<presence xmlns='jabber:client'/>");
    }

    #[test]
    fn text_that_is_no_element_is_unchanged() {
        assert_eq!(qualified("</stream:stream>"), ("</stream:stream>".to_owned(), 16));
        assert_eq!(qualified("<iq/>text").0, "<iq xmlns='jabber:client'/>text");
    }
}
