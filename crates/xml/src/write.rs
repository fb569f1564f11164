//! XML writer: appends escaped, balanced elements to a byte vector (XML 1.0, sections 2.4 and 3.1).
//!
//! Attributes are quoted with `'`, like the examples of the RFCs.
//!
//! Not implemented: prefixes. Every namespace is written as a default one; RFC 6120, section 4.8.4, requires no more.
//!
//! # Pitfalls
//!
//! Names and raw bytes are trusted. Text and values from outside must go through `text` and `attr`.

use crate::{Ns, escape};

/// Names of open elements stored without heap.
const INLINE: usize = 12;

/// Appends XML to a vector owned by the caller. An element without content becomes an empty-element tag.
///
/// Call order: `start`, `attr`, `ns` and `xmlns`, then `text`, `raw` and children, then `end`.
pub struct Writer<'v> {
    out: &'v mut Vec<u8>,
    depth: usize,
    /// Whether the last start tag still lacks its `>`.
    open: bool,
    /// Ranges of the open elements' names in `out`.
    names: [(usize, usize); INLINE],
    deeper: Vec<(usize, usize)>,
}

impl<'v> Writer<'v> {
    /// Appends to what `out` already holds.
    pub fn new(out: &'v mut Vec<u8>) -> Writer<'v> {
        Writer { out, depth: 0, open: false, names: [(0, 0); INLINE], deeper: Vec::new() }
    }

    /// Starts an element. `name` must be a valid name.
    pub fn start(&mut self, name: &str) -> &mut Self {
        self.content();
        self.out.push(b'<');
        let place = (self.out.len(), name.len());
        self.out.extend_from_slice(name.as_bytes());
        match self.names.get_mut(self.depth) {
            Some(slot) => *slot = place,
            None => self.deeper.push(place),
        }
        self.depth += 1;
        self.open = true;
        self
    }

    /// Starts an element in a namespace: `start` and `ns`.
    pub fn start_ns(&mut self, name: &str, ns: Ns) -> &mut Self {
        self.start(name).ns(ns)
    }

    /// Writes an attribute; allowed only between `start` and the first content. `name` must be a valid name.
    pub fn attr(&mut self, name: &str, value: &str) -> &mut Self {
        debug_assert!(self.open, "an attribute behind content");
        self.out.push(b' ');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"='");
        escape::attr(value, self.out);
        self.out.push(b'\'');
        self
    }

    /// Writes an attribute with a raw, already escaped value; see [`escape::raw_attr_value`].
    pub fn attr_raw(&mut self, name: &str, raw: &str) -> &mut Self {
        debug_assert!(self.open, "an attribute behind content");
        self.out.push(b' ');
        self.out.extend_from_slice(name.as_bytes());
        escape::raw_attr_value(raw, self.out);
        self
    }

    /// Writes an attribute if there is a value.
    pub fn attr_opt(&mut self, name: &str, value: Option<&str>) -> &mut Self {
        if let Some(value) = value {
            self.attr(name, value);
        }
        self
    }

    /// Declares the default namespace.
    pub fn ns(&mut self, ns: Ns) -> &mut Self {
        self.attr("xmlns", ns.as_str())
    }

    /// Declares the default namespace by name.
    pub fn xmlns(&mut self, ns: &str) -> &mut Self {
        self.attr("xmlns", ns)
    }

    /// Writes character data, escaped. Empty text writes nothing.
    pub fn text(&mut self, text: &str) -> &mut Self {
        if !text.is_empty() {
            self.content();
            escape::text(text, self.out);
        }
        self
    }

    /// Writes bytes verbatim: whole elements or escaped text. Empty bytes write nothing.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        if !bytes.is_empty() {
            self.content();
            self.out.extend_from_slice(bytes);
        }
        self
    }

    /// Writes a whole element that contains only text.
    pub fn text_element(&mut self, name: &str, text: &str) -> &mut Self {
        self.start(name).text(text).end()
    }

    /// Writes a whole empty element in a namespace.
    pub fn empty_element(&mut self, name: &str, ns: Ns) -> &mut Self {
        self.start_ns(name, ns).end()
    }

    /// Ends the innermost open element. Does nothing if none is open, which is a bug of the caller.
    pub fn end(&mut self) -> &mut Self {
        debug_assert!(self.depth > 0, "an end without a start");
        let Some(depth) = self.depth.checked_sub(1) else { return self };
        self.depth = depth;
        let (at, length) = match self.names.get(depth) {
            Some(&place) => place,
            None => self.deeper.pop().unwrap_or_default(),
        };
        if self.open {
            self.open = false;
            self.out.extend_from_slice(b"/>");
        } else {
            self.out.extend_from_slice(b"</");
            self.out.extend_from_within(at..at + length);
            self.out.push(b'>');
        }
        self
    }

    /// Ends every open element.
    pub fn finish(&mut self) {
        while self.depth > 0 {
            self.end();
        }
    }

    /// Number of open elements.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    fn content(&mut self) {
        if self.open {
            self.open = false;
            self.out.push(b'>');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_balanced_escaped_and_self_closing() {
        let mut out = b"before".to_vec();
        let mut w = Writer::new(&mut out);
        w.start("iq").attr("to", "a'b").attr_opt("id", None).attr_opt("type", Some("result"));
        w.start_ns("query", Ns::Version).text_element("name", "<T&T>").text_element("os", "").end();
        w.empty_element("ping", Ns::Ping).raw(b"<x/>").text("");
        w.finish();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "before<iq to='a&apos;b' type='result'><query xmlns='jabber:iq:version'><name>&lt;T&amp;T&gt;</name>\
             <os/></query><ping xmlns='urn:xmpp:ping'/><x/></iq>"
        );
    }

    #[test]
    fn deep_elements_keep_their_names() {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        for i in 0..30 {
            w.start(&format!("e{i}"));
        }
        assert_eq!(w.depth(), 30);
        w.text("x").finish();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.contains("<e29>x</e29></e28>")
                && text.ends_with("</e12></e11></e10></e9></e8></e7></e6></e5></e4></e3></e2></e1></e0>")
        );
    }
}
