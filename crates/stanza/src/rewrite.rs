//! Rewriting of the addresses in a start tag (RFC 6120, section 8.1.2.1: the server stamps `from` on client stanzas).
//!
//! The rest of the stanza is copied unchanged. The new attributes come first, so that `to` can still be inserted at
//! [`Head::attr_insert_offset`] while writing.

use xml::Ns;

use crate::head::{Child, Head, ShortSpan, Span};

/// Which addresses to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewAddresses<'a> {
    /// The new `from`; `None` removes it.
    pub from: Option<&'a str>,
    /// The new `to`; `None` removes it.
    pub to: Option<&'a str>,
}

/// Replaces `out` with the stanza under its new addresses and returns its head.
///
/// # Errors
/// If the start tag becomes too long for a head; `out` is then unusable. A stanza admitted within
/// [`Limits::DEFAULT`](xml::Limits::DEFAULT) has room for two addresses.
pub fn rewrite_addresses(
    bytes: &[u8],
    head: &Head,
    new: NewAddresses<'_>,
    out: &mut Vec<u8>,
) -> Result<Head, xml::Error> {
    try_rewrite(bytes, head, new, out).ok_or(xml::Error::TagTooLong)
}

fn try_rewrite(bytes: &[u8], head: &Head, new: NewAddresses<'_>, out: &mut Vec<u8>) -> Option<Head> {
    out.clear();
    let name_end = usize::from(head.name_end);
    let tag_end = usize::from(head.tag_end);
    out.extend_from_slice(bytes.get(..name_end)?);
    let mut result = *head;
    (result.from, result.from_attr) = write_attr(out, b" from='", new.from)?;
    (result.to, result.to_attr) = write_attr(out, b" to='", new.to)?;
    // The old attributes in document order.
    let (mut a, mut b) = (head.from_attr, head.to_attr);
    if a.start > b.start {
        std::mem::swap(&mut a, &mut b);
    }
    let mut at = name_end;
    for gone in [a, b] {
        if gone.end != 0 {
            out.extend_from_slice(bytes.get(at..usize::from(gone.start))?);
            at = usize::from(gone.end);
        }
    }
    out.extend_from_slice(bytes.get(at..)?);
    // A vector has at most isize::MAX bytes.
    let delta = out.len().cast_signed() - bytes.len().cast_signed();
    let inserted = (result.from_attr.len() + result.to_attr.len()).cast_signed();
    let shift = |span: ShortSpan| {
        if span.end == 0 {
            return Some(span);
        }
        let mut by = inserted;
        for gone in [a, b] {
            if gone.end != 0 && gone.end <= span.start {
                by -= gone.len().cast_signed();
            }
        }
        span.shifted(by)
    };
    result.id = shift(head.id)?;
    result.lang = shift(head.lang)?;
    result.tag_end = u16::try_from(tag_end.checked_add_signed(delta)?).ok()?;
    if let Some(first) = &mut result.first_child {
        first.name = first.name.shifted(delta)?;
        first.span = first.span.shifted(delta)?;
    }
    Some(result)
}

/// Replaces `out` with the stanza and one more child after the others, and returns its head.
///
/// `child` is one whole element that declares its own namespace; `ns` is the number of that namespace. It is not
/// validated. It must not be a `<body/>` of the content namespace: [`Head::has_body`] stays as it is.
///
/// # Errors
/// If the stanza becomes too long for a head, which is far beyond what is admitted.
pub fn append_child(
    bytes: &[u8],
    head: &Head,
    child: &[u8],
    ns: Ns,
    out: &mut Vec<u8>,
) -> Result<Head, xml::Error> {
    try_append(bytes, head, child, ns, out).ok_or(xml::Error::TooLarge)
}

fn try_append(bytes: &[u8], head: &Head, child: &[u8], ns: Ns, out: &mut Vec<u8>) -> Option<Head> {
    let mut result = *head;
    out.clear();
    out.reserve(bytes.len() + child.len() + 16);
    let at = match head.child_append_offset(bytes) {
        Some(at) => {
            out.extend_from_slice(&bytes[..at]);
            at
        }
        None => {
            // An empty-element tag needs a start and an end tag first.
            let slash = usize::from(head.tag_end).checked_sub(2)?;
            out.extend_from_slice(bytes.get(..slash)?);
            out.push(b'>');
            result.tag_end = head.tag_end - 1;
            result.empty = false;
            bytes.len()
        }
    };
    let start = out.len();
    out.extend_from_slice(child);
    if head.empty {
        out.extend_from_slice(b"</");
        out.extend_from_slice(bytes.get(1..usize::from(head.name_end))?);
        out.push(b'>');
    } else {
        out.extend_from_slice(&bytes[at..]);
    }
    record_child(&mut result, child, start, ns)?;
    Some(result)
}

/// [`append_child`] in a buffer with room after the stanza of `length` bytes. `None`, and nothing has changed, if there is
/// not enough of it, or the stanza is an empty-element tag.
pub fn append_child_in_place(
    buffer: &mut [u8],
    length: usize,
    head: &Head,
    child: &[u8],
    ns: Ns,
) -> Option<Head> {
    let at = head.child_append_offset(buffer.get(..length)?)?;
    let whole = buffer.get_mut(..length.checked_add(child.len())?)?;
    let mut result = *head;
    record_child(&mut result, child, at, ns)?;
    whole.copy_within(at..length, at + child.len());
    whole[at..at + child.len()].copy_from_slice(child);
    Some(result)
}

/// Records a last child that begins at `start`.
fn record_child(head: &mut Head, child: &[u8], start: usize, ns: Ns) -> Option<()> {
    head.payloads.insert(ns);
    if head.child_count == 0 {
        let name = child.iter().skip(1).take_while(|b| !matches!(b, b' ' | b'/' | b'>')).count();
        head.first_child = Some(Child {
            ns: Some(ns),
            name: Span::new(start + 1..start + 1 + name)?,
            span: Span::new(start..start + child.len())?,
        });
    }
    head.child_count = head.child_count.saturating_add(1);
    Some(())
}

impl ShortSpan {
    fn len(self) -> usize {
        usize::from(self.end.saturating_sub(self.start))
    }
}

/// Writes an attribute. Returns the spans of its value and of the whole attribute.
fn write_attr(out: &mut Vec<u8>, open: &[u8], value: Option<&str>) -> Option<(ShortSpan, ShortSpan)> {
    let Some(value) = value else { return Some(Default::default()) };
    let start = out.len();
    out.extend_from_slice(open);
    let from = out.len();
    xml::escape::attr(value, out);
    let to = out.len();
    out.push(b'\'');
    Some((ShortSpan::new(from..to)?, ShortSpan::new(start..out.len())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Element;
    use xml::{Limits, NamespaceContext};

    fn check(text: &str, from: Option<&str>, to: Option<&str>, expect: &str) {
        let scope = NamespaceContext::client();
        let limits = Limits::default();
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
        let mut out = Vec::new();
        let moved = rewrite_addresses(text.as_bytes(), &head, NewAddresses { from, to }, &mut out).unwrap();
        assert_eq!(std::str::from_utf8(&out).unwrap(), expect);
        let Ok(Element::Stanza(fresh)) = Element::read(&out, &scope, &limits) else { panic!() };
        assert_eq!(format!("{moved:?}"), format!("{fresh:?}"), "spans moved as if read anew");
    }

    #[test]
    fn addresses_are_replaced_and_spans_follow() {
        let from = Some("romeo@example.net/orchard");
        check(
            "<message><body>x</body></message>",
            from,
            None,
            "<message from='romeo@example.net/orchard'><body>x</body></message>",
        );
        check(
            "<message id='1' to='A@b'   from='x@y' xml:lang='en'\n type='chat'><body>x</body></message>",
            from,
            Some("a@b"),
            "<message from='romeo@example.net/orchard' to='a@b' id='1' xml:lang='en'\n type='chat'><body>x</body></message>",
        );
        check("<presence to=\"a@b\" id='2'/>", None, None, "<presence id='2'/>");
        check(
            "<iq from='x@y' id='1' to='a@b' type='get'><query xmlns='jabber:iq:roster'/></iq>",
            Some("a@b/it's"),
            Some("c@d"),
            "<iq from='a@b/it&apos;s' to='c@d' id='1' type='get'><query xmlns='jabber:iq:roster'/></iq>",
        );
    }

    #[test]
    fn a_start_tag_that_becomes_too_long_is_refused_and_never_wraps() {
        let limits = Limits::CEILING;
        let scope = NamespaceContext::client();
        for length in (65_400..65_536).chain([32_768]) {
            let text = format!("<message id='{}'/>", "x".repeat(length - 16));
            assert_eq!(text.len(), length);
            let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
            let mut out = Vec::new();
            let new =
                NewAddresses { from: Some("romeo@example.net/orchard"), to: Some("juliet@example.com") };
            match rewrite_addresses(text.as_bytes(), &head, new, &mut out) {
                Ok(moved) => {
                    let Ok(Element::Stanza(fresh)) = Element::read(&out, &scope, &limits) else { panic!() };
                    assert_eq!(format!("{moved:?}"), format!("{fresh:?}"));
                }
                Err(error) => assert!(error == xml::Error::TagTooLong && length + 60 > 65_535, "{length}"),
            }
            let child = b"<delay xmlns='urn:xmpp:delay'/>";
            let moved = append_child(text.as_bytes(), &head, child, Ns::Delay, &mut out).unwrap();
            let Ok(Element::Stanza(fresh)) = Element::read(&out, &scope, &limits) else { panic!() };
            assert_eq!(format!("{moved:?}"), format!("{fresh:?}"));
        }
    }

    #[test]
    fn an_admitted_stanza_has_room_for_the_longest_addresses() {
        // Each part as long as RFC 7622 allows, in characters whose escaped form is longest.
        let longest = format!("{}@{}/{}", "l".repeat(1023), "d".repeat(1023), "'".repeat(1023));
        let length = usize::from(Limits::DEFAULT.start_tag_bytes);
        let text = format!("<message id='{}'/>", "x".repeat(length - 16));
        let (scope, limits) = (NamespaceContext::client(), Limits::DEFAULT);
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
        let mut out = Vec::new();
        let new = NewAddresses { from: Some(&longest), to: Some(&longest) };
        rewrite_addresses(text.as_bytes(), &head, new, &mut out).unwrap();
        assert!(Element::read(&out, &scope, &Limits::CEILING).is_ok());
    }

    #[test]
    fn a_child_is_appended_and_spans_follow() {
        let child = "<stanza-id xmlns='urn:xmpp:sid:0' id='1' by='a@b'/>";
        for (text, expect) in [
            ("<message to='a@b'><body>x</body></message>", "<message to='a@b'><body>x</body>{}</message>"),
            ("<message to='a@b' />", "<message to='a@b' >{}</message>"),
            ("<message></message>", "<message>{}</message>"),
            ("<message>\n<x xmlns='u:v'/>\n</message >", "<message>\n<x xmlns='u:v'/>\n{}</message >"),
            (
                "<message><body><![CDATA[</message>]]></body></message>",
                "<message><body><![CDATA[</message>]]></body>{}</message>",
            ),
        ] {
            let scope = NamespaceContext::client();
            let limits = Limits::default();
            let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
            let mut out = b"old".to_vec();
            let moved =
                append_child(text.as_bytes(), &head, child.as_bytes(), Ns::StanzaId, &mut out).unwrap();
            assert_eq!(std::str::from_utf8(&out).unwrap(), expect.replace("{}", child));
            let Ok(Element::Stanza(fresh)) = Element::read(&out, &scope, &limits) else { panic!() };
            assert_eq!(format!("{moved:?}"), format!("{fresh:?}"), "spans moved as if read anew");
            for room in [0, child.len() - 1, child.len(), child.len() + 9] {
                let mut buffer = text.as_bytes().to_vec();
                buffer.resize(text.len() + room, b'?');
                let moved =
                    append_child_in_place(&mut buffer, text.len(), &head, child.as_bytes(), Ns::StanzaId);
                assert_eq!(moved.is_some(), room >= child.len() && !head.empty, "{text} {room}");
                match moved {
                    Some(moved) => {
                        assert_eq!(&buffer[..text.len() + child.len()], out);
                        assert_eq!(format!("{moved:?}"), format!("{fresh:?}"));
                    }
                    None => assert_eq!(&buffer[..text.len()], text.as_bytes(), "nothing has changed"),
                }
            }
        }
    }
}
