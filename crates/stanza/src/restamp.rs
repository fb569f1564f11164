//! Rewrites the addresses in a start tag and leaves the rest of the stanza untouched.
//!
//! RFC 6120 section 8.1.2.1: the server stamps `from` on what a client sends. The new attributes stand first,
//! so that [`Head::insert_at`] stays a place where `to` can be put in while writing.

use xml::Ns;

use crate::head::{Child, Head, Short, Span};

/// Which addresses to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Addresses<'a> {
    /// The new `from`; `None` removes it.
    pub from: Option<&'a str>,
    /// The new `to`; `None` removes it.
    pub to: Option<&'a str>,
}

/// Appends the stanza with new addresses to `out` (cleared first) and returns its head.
pub fn restamp(bytes: &[u8], head: &Head, new: Addresses<'_>, out: &mut Vec<u8>) -> Head {
    out.clear();
    let name_end = usize::from(head.name_end);
    let tag_end = usize::from(head.tag_end);
    out.extend_from_slice(&bytes[..name_end]);
    let mut result = *head;
    result.from = put(out, b" from='", new.from, &mut result.from_attr);
    result.to = put(out, b" to='", new.to, &mut result.to_attr);
    // The old attributes, in order of their position.
    let (mut a, mut b) = (head.from_attr, head.to_attr);
    if a.start > b.start {
        std::mem::swap(&mut a, &mut b);
    }
    let mut at = name_end;
    for gone in [a, b] {
        if gone.end != 0 {
            out.extend_from_slice(&bytes[at..usize::from(gone.start)]);
            at = usize::from(gone.end);
        }
    }
    out.extend_from_slice(&bytes[at..]);
    let delta = out.len() as i64 - bytes.len() as i64;
    let inserted = (result.from_attr.len() + result.to_attr.len()) as i64;
    let shift = |span: Short| {
        if span.end == 0 {
            return span;
        }
        let mut by = inserted;
        for gone in [a, b] {
            if gone.end != 0 && gone.end <= span.start {
                by -= gone.len() as i64;
            }
        }
        Short { start: (i64::from(span.start) + by) as u16, end: (i64::from(span.end) + by) as u16 }
    };
    result.id = shift(head.id);
    result.lang = shift(head.lang);
    result.tag_end = (tag_end as i64 + delta) as u16;
    let far =
        |s: Span| Span { start: (i64::from(s.start) + delta) as u32, end: (i64::from(s.end) + delta) as u32 };
    if let Some(first) = &mut result.first {
        first.name = far(first.name);
        first.span = far(first.span);
    }
    result
}

/// Writes the stanza with one more child behind the others to `out` (cleared first) and returns its head.
///
/// `child` is one whole element that declares its own namespace, `ns` the number of that namespace; it is not
/// checked. No `<body/>` of the content namespace: [`Head::has_body`] stays as it is.
pub fn append_child(bytes: &[u8], head: &Head, child: &[u8], ns: Ns, out: &mut Vec<u8>) -> Head {
    let mut result = *head;
    out.clear();
    out.reserve(bytes.len() + child.len() + 16);
    let at = match head.append_at(bytes) {
        Some(at) => {
            out.extend_from_slice(&bytes[..at]);
            at
        }
        None => {
            // `<message/>` has to open first.
            let slash = usize::from(head.tag_end).saturating_sub(2);
            out.extend_from_slice(&bytes[..slash]);
            out.push(b'>');
            result.tag_end = (slash + 1) as u16;
            result.empty = false;
            bytes.len()
        }
    };
    let start = out.len();
    out.extend_from_slice(child);
    if head.empty {
        out.extend_from_slice(b"</");
        out.extend_from_slice(&bytes[1..usize::from(head.name_end)]);
        out.push(b'>');
    } else {
        out.extend_from_slice(&bytes[at..]);
    }
    let bit = ns.bit();
    result.payloads[0] |= bit as u64;
    result.payloads[1] |= (bit >> 64) as u64;
    if head.children == 0 {
        let name = child.iter().skip(1).take_while(|b| !matches!(b, b' ' | b'/' | b'>')).count();
        result.first = Some(Child {
            ns: Some(ns),
            name: Span { start: (start + 1) as u32, end: (start + 1 + name) as u32 },
            span: Span { start: start as u32, end: (start + child.len()) as u32 },
        });
    }
    result.children = head.children.saturating_add(1);
    result
}

impl Short {
    fn len(self) -> usize {
        usize::from(self.end.saturating_sub(self.start))
    }
}

fn put(out: &mut Vec<u8>, open: &[u8], value: Option<&str>, whole: &mut Short) -> Short {
    *whole = Short::default();
    let Some(value) = value else { return Short::default() };
    let start = out.len();
    out.extend_from_slice(open);
    let from = out.len();
    xml::escape::attr(value, out);
    let to = out.len();
    out.push(b'\'');
    *whole = Short { start: start as u16, end: out.len() as u16 };
    Short { start: from as u16, end: to as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Element;
    use xml::{Limits, Scope};

    fn check(text: &str, from: Option<&str>, to: Option<&str>, expect: &str) {
        let scope = Scope::client();
        let limits = Limits::default();
        let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
        let mut out = Vec::new();
        let moved = restamp(text.as_bytes(), &head, Addresses { from, to }, &mut out);
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
            let scope = Scope::client();
            let limits = Limits::default();
            let Ok(Element::Stanza(head)) = Element::read(text.as_bytes(), &scope, &limits) else { panic!() };
            let mut out = b"old".to_vec();
            let moved = append_child(text.as_bytes(), &head, child.as_bytes(), Ns::StanzaId, &mut out);
            assert_eq!(std::str::from_utf8(&out).unwrap(), expect.replace("{}", child));
            let Ok(Element::Stanza(fresh)) = Element::read(&out, &scope, &limits) else { panic!() };
            assert_eq!(format!("{moved:?}"), format!("{fresh:?}"), "spans moved as if read anew");
        }
    }
}
