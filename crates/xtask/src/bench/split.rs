//! Cuts what a server sends into elements. It trusts the server: it finds ends, it checks nothing.
//!
//! Stream headers and XML declarations are skipped wherever they stand between elements, because a stream restarts after SASL.

use memchr::{memchr, memchr3};

/// What stands at the beginning of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// White space, an XML declaration or a stream header, of this length.
    Skip(usize),
    /// A complete element of this length.
    Element(usize),
    /// The end of the stream.
    End,
    /// More bytes are needed.
    More,
}

/// Tells what `bytes` begin with.
pub(crate) fn piece(bytes: &[u8]) -> Piece {
    let Some(&first) = bytes.first() else { return Piece::More };
    if first != b'<' {
        return Piece::Skip(memchr(b'<', bytes).unwrap_or(bytes.len()));
    }
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        // `at` is on a `<`.
        let Some(length) = tag_length(&bytes[at..]) else { return Piece::More };
        let tag = &bytes[at..at + length];
        match tag[1] {
            b'/' if depth == 0 => return Piece::End,
            b'/' => depth -= 1,
            b'?' if depth == 0 => return Piece::Skip(length),
            b'?' | b'!' => {}
            _ if tag.starts_with(b"<stream:stream") => return Piece::Skip(at + length),
            _ if tag[length - 2] == b'/' => {}
            _ => depth += 1,
        }
        at += length;
        if depth == 0 {
            return Piece::Element(at);
        }
        let Some(next) = memchr(b'<', &bytes[at..]) else { return Piece::More };
        at += next;
    }
}

/// The length of the tag at the beginning, through its `>`; a `>` in quotes does not count.
fn tag_length(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        let hit = at + memchr3(b'>', b'\'', b'"', &bytes[at..])?;
        at = hit + 1;
        match bytes[hit] {
            b'>' => return (at > 2).then_some(at),
            quote => at += memchr(quote, &bytes[at..])? + 1,
        }
        if at >= bytes.len() {
            return None;
        }
    }
}

/// The value of an attribute of the first tag, as written.
pub(crate) fn attribute<'a>(element: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let tag = &element[..tag_length(element)?];
    let mut at = 0;
    loop {
        at += memchr::memmem::find(&tag[at..], name.as_bytes())?;
        let before = at.checked_sub(1).is_some_and(|i| tag[i].is_ascii_whitespace());
        at += name.len();
        if before && tag.get(at) == Some(&b'=') {
            let quote = *tag.get(at + 1)?;
            let value = &tag[at + 2..];
            return Some(&value[..memchr(quote, value)?]);
        }
    }
}

/// The text directly behind `<name>` (or the first tag that begins so), up to the next tag.
pub(crate) fn text<'a>(element: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let from = memchr::memmem::find(element, format!("<{name}").as_bytes())?;
    let from = from + tag_length(&element[from..])?;
    Some(&element[from..from + memchr(b'<', &element[from..])?])
}

#[cfg(test)]
mod tests {
    use super::{Piece, attribute, piece, text};

    #[test]
    fn pieces() {
        let header = "<stream:stream xmlns='jabber:client' id='>'>";
        let cases = [
            ("", Piece::More),
            ("<", Piece::More),
            ("  \n<a/>", Piece::Skip(3)),
            ("<?xml version='1.0'?><a/>", Piece::Skip(21)),
            (header, Piece::Skip(header.len())),
            ("<ok/><b/>", Piece::Element(5)),
            ("<a b='>'><c/><d>x</d></a>tail", Piece::Element(25)),
            ("<a b='/>'></a>", Piece::Element(14)),
            ("<a><b></a", Piece::More),
            ("<a b='>", Piece::More),
            ("</stream:stream>", Piece::End),
        ];
        for (input, expected) in cases {
            assert_eq!(piece(input.as_bytes()), expected, "{input}");
        }
    }

    #[test]
    fn every_prefix_of_an_element_needs_more() {
        let element = b"<message to=\"a\" from='b>'><body>x &lt;</body><active xmlns='c'/></message>";
        for end in 0..element.len() {
            assert_eq!(piece(&element[..end]), Piece::More, "{end}");
        }
        assert_eq!(piece(element), Piece::Element(element.len()));
    }

    #[test]
    fn attributes_and_text() {
        let iq = b"<iq xid='no' id=\"b1\" type='result'><bind xmlns='x'><jid>u@h/r</jid></bind></iq>";
        assert_eq!(attribute(iq, "id"), Some(&b"b1"[..]));
        assert_eq!(attribute(iq, "type"), Some(&b"result"[..]));
        assert_eq!(attribute(iq, "to"), None);
        assert_eq!(text(iq, "jid"), Some(&b"u@h/r"[..]));
        assert_eq!(text(iq, "body"), None);
    }
}
