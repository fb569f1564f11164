//! Events of a [`Reader`](crate::Reader): tags, attributes, text, namespaces, all borrowed from the element's bytes.
//!
//! XML 1.0, sections 2.4, 2.7, 3.1 and 3.3.3; Namespaces in XML 1.0, section 6.
//!
//! Not implemented: anything that would need memory. Attributes are parsed from the tag on each access.
//!
//! # Pitfalls
//!
//! Offsets count from the start of the reader's bytes, not from the start of the tag.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memchr;

use crate::byte_search::find1;
use crate::escape::{self, UnescapedChars};
use crate::name::{self, QName};
use crate::{MAX_ATTRIBUTE_PREFIXES, NamespaceContext, Ns};

/// A namespace: its number, if it is known, and its name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Namespace<'a> {
    /// The number of a known namespace.
    pub id: Option<Ns>,
    /// The name as written, with references unexpanded; for a known namespace the name itself. Empty: none.
    pub text: &'a str,
}

impl<'a> Namespace<'a> {
    /// No namespace.
    pub const NONE: Namespace<'static> = Namespace { id: None, text: "" };

    /// A known namespace.
    pub const fn known(ns: Ns) -> Namespace<'static> {
        Namespace { id: Some(ns), text: ns.as_str() }
    }

    /// A namespace name as written in a declaration.
    pub(crate) fn from_raw(raw: &'a str) -> Namespace<'a> {
        if let Some(ns) = Ns::from_str(raw) {
            return Namespace::known(ns);
        }
        if !needs_expansion(raw) {
            return Namespace { id: None, text: raw };
        }
        // References and line ends could hide a known name from all but the receiving client.
        let mut room = [0; 96];
        let mut length = 0;
        for c in UnescapedChars::new(raw, true).flatten() {
            let Some(space) = room.get_mut(length..length + c.len_utf8()) else {
                return Namespace { id: None, text: raw };
            };
            c.encode_utf8(space);
            length += c.len_utf8();
        }
        match std::str::from_utf8(&room[..length]).ok().and_then(Ns::from_str) {
            Some(ns) => Namespace::known(ns),
            None => Namespace { id: None, text: raw },
        }
    }

    /// Whether there is no namespace.
    pub const fn is_none(&self) -> bool {
        self.text.is_empty()
    }

    /// The namespace name with references expanded.
    pub fn name(&self) -> Cow<'a, str> {
        escape::unescape_attr(self.text).unwrap_or(Cow::Borrowed(self.text))
    }
}

fn needs_expansion(raw: &str) -> bool {
    raw.bytes().any(|b| b == b'&' || b < b' ')
}

impl PartialEq for Namespace<'_> {
    fn eq(&self, other: &Namespace<'_>) -> bool {
        if self.id.is_some() || other.id.is_some() {
            return self.id == other.id;
        }
        self.text == other.text
            || ((needs_expansion(self.text) || needs_expansion(other.text))
                && UnescapedChars::new(self.text, true)
                    .flatten()
                    .eq(UnescapedChars::new(other.text, true).flatten()))
    }
}

impl Eq for Namespace<'_> {}

impl PartialEq<Ns> for Namespace<'_> {
    fn eq(&self, other: &Ns) -> bool {
        self.id == Some(*other)
    }
}

/// One event of a [`Reader`](crate::Reader).
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// A start tag or an empty-element tag.
    Start(StartTag<'a>),
    /// Character data or a CDATA section. Adjacent pieces are not joined, and a section may be empty.
    Text(Text<'a>),
    /// The end of the innermost open element; also returned for an empty-element tag.
    End,
}

/// A prefix used by attributes, other than `xml` and `xmlns`, and the offset of its namespace name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BoundPrefix {
    pub(crate) prefix_at: u32,
    /// Offset after the opening quote of the declaration's value; 0 when the stream header declares the prefix.
    pub(crate) value_at: u32,
}

/// The prefixes of the attributes of a tag.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BoundPrefixes {
    pub(crate) list: [BoundPrefix; MAX_ATTRIBUTE_PREFIXES],
    pub(crate) count: u8,
}

/// An event of [`Reader::next_outline`](crate::Reader::next_outline).
#[derive(Clone, Debug)]
pub enum Outline<'a> {
    /// A start tag or an empty-element tag.
    Start(TagOutline<'a>),
    /// Character data or a CDATA section.
    Text,
    /// The end of the innermost open element; also returned for an empty-element tag.
    End,
}

/// A validated start tag without its attributes.
#[derive(Clone, Debug)]
pub struct TagOutline<'a> {
    /// Local part of the name.
    pub name: &'a str,
    /// Prefix of the name as written.
    pub prefix: Option<&'a str>,
    /// Namespace of the element.
    pub ns: Namespace<'a>,
    /// Whether it is an empty-element tag, `<a/>`.
    pub empty: bool,
    /// Range of the tag, from `<` up to and including `>`.
    pub tag: Range<usize>,
    /// No value needs references expanded or white space normalised.
    pub plain: bool,
}

/// Where an attribute, or a namespace declaration, is.
#[derive(Clone, Debug)]
pub struct AttributeSpans {
    /// Start of the white space before the name.
    pub blank_start: usize,
    /// The name, prefix included.
    pub name: Range<usize>,
    /// The value, without the quotes.
    pub value: Range<usize>,
}

/// The value whose opening quote is directly before `at`.
pub(crate) fn quoted(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or_default();
    let quote = text.as_bytes().get(at.wrapping_sub(1)).copied().unwrap_or_default();
    memchr(quote, rest.as_bytes()).and_then(|end| rest.get(..end)).unwrap_or_default()
}

/// A validated start tag.
#[derive(Clone, Debug)]
pub struct StartTag<'a> {
    /// Local part of the name.
    pub name: &'a str,
    /// Prefix of the name as written.
    pub prefix: Option<&'a str>,
    /// Namespace of the element.
    pub ns: Namespace<'a>,
    /// Whether it is an empty-element tag, `<a/>`.
    pub empty: bool,
    /// Range of the tag, from `<` up to and including `>`.
    pub tag: Range<usize>,
    pub(crate) text: &'a str,
    pub(crate) scope: &'a NamespaceContext,
    pub(crate) bound_prefixes: BoundPrefixes,
    /// No value needs references expanded or white space normalised.
    pub(crate) plain: bool,
}

impl<'a> StartTag<'a> {
    /// Whether it has this name in this namespace.
    pub fn is(&self, name: &str, ns: Ns) -> bool {
        self.ns.id == Some(ns) && self.name == name
    }

    /// The attributes in document order, without namespace declarations.
    pub fn attrs(&self) -> Attrs<'_, 'a> {
        self.iter(false)
    }

    /// The namespace declarations in document order. `name` is the declared prefix and `prefix` is `xmlns`; for the
    /// default namespace `name` is `xmlns` and there is no prefix.
    pub fn declarations(&self) -> Attrs<'_, 'a> {
        self.iter(true)
    }

    fn iter(&self, declarations: bool) -> Attrs<'_, 'a> {
        Attrs { start: self, at: self.name_end(), declarations }
    }

    /// Offset after the name.
    pub(crate) fn name_end(&self) -> usize {
        self.tag.start + 1 + self.prefix.map_or(0, |p| p.len() + 1) + self.name.len()
    }

    /// The attribute of this name in no namespace.
    pub fn attr(&self, name: &str) -> Option<Attr<'a>> {
        self.attrs().find(|a| a.prefix.is_none() && a.name == name)
    }

    /// The value of `xml:lang` on this element itself.
    pub fn lang(&self) -> Option<Cow<'a, str>> {
        self.attrs().find(|a| a.name == "lang" && a.ns.id == Some(Ns::Xml)).map(|a| a.value())
    }

    fn resolve(&self, prefix: &str) -> Namespace<'a> {
        let BoundPrefixes { list, count } = &self.bound_prefixes;
        let bound = list.get(..usize::from(*count)).unwrap_or_default();
        for b in bound {
            let written = self.text.get(b.prefix_at as usize..).unwrap_or_default();
            if !written.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(':')) {
                continue;
            }
            return match b.value_at {
                0 => self.scope.namespace(prefix).unwrap_or(Namespace::NONE),
                at => Namespace::from_raw(quoted(self.text, at as usize)),
            };
        }
        Namespace::NONE
    }
}

/// An attribute.
#[derive(Clone, Debug)]
pub struct Attr<'a> {
    /// Local part of the name.
    pub name: &'a str,
    /// Prefix as written.
    pub prefix: Option<&'a str>,
    /// Namespace; none without a prefix.
    pub ns: Namespace<'a>,
    /// The value as written between the quotes.
    pub raw: &'a str,
    /// Offset of the name, prefix included.
    pub name_start: usize,
    /// Range of the value, without the quotes.
    pub value_range: Range<usize>,
    plain: bool,
}

impl<'a> Attr<'a> {
    /// The value with references expanded and white space normalised. Allocates only if that changes it.
    pub fn value(&self) -> Cow<'a, str> {
        if self.plain {
            return Cow::Borrowed(self.raw);
        }
        // The reader has validated every reference, so the fallback is never taken.
        escape::unescape_attr(self.raw).unwrap_or(Cow::Borrowed(self.raw))
    }
}

/// Iterator over the attributes, or the namespace declarations, of a tag.
#[derive(Clone, Debug)]
pub struct Attrs<'s, 'a> {
    start: &'s StartTag<'a>,
    at: usize,
    declarations: bool,
}

impl Attrs<'_, '_> {
    /// Continues at this offset, which must be after an attribute.
    pub(crate) const fn resume_at(&mut self, at: usize) {
        self.at = at;
    }
}

impl<'a> Iterator for Attrs<'_, 'a> {
    type Item = Attr<'a>;

    fn next(&mut self) -> Option<Attr<'a>> {
        let text = self.start.text;
        loop {
            let (name_start, q, value_at, value_end) = attribute(text, self.at)?;
            self.at = value_end + 1;
            let name = text.get(q.local..q.end)?;
            let prefix = if q.local > name_start { text.get(name_start..q.local - 1) } else { None };
            let declaration = prefix == Some("xmlns") || (prefix.is_none() && name == "xmlns");
            if declaration != self.declarations {
                continue;
            }
            let ns = match prefix {
                _ if declaration => Namespace::known(Ns::Xmlns),
                None => Namespace::NONE,
                Some("xml") => Namespace::known(Ns::Xml),
                Some(prefix) => self.start.resolve(prefix),
            };
            let raw = text.get(value_at..value_end)?;
            let plain = self.start.plain;
            return Some(Attr { name, prefix, ns, raw, name_start, value_range: value_at..value_end, plain });
        }
    }
}

/// The first attribute at or after `at` in a validated tag: offset of its name, its name, range of its value.
#[inline]
fn attribute(text: &str, mut at: usize) -> Option<(usize, QName, usize, usize)> {
    let bytes = text.as_bytes();
    while name::is_space(*bytes.get(at)?) {
        at += 1;
    }
    let q = name::qname(text, at, usize::MAX).ok()?;
    let mut value_at = q.end + 2;
    let mut quote = *bytes.get(q.end + 1)?;
    if bytes.get(q.end) != Some(&b'=') || !matches!(quote, b'"' | b'\'') {
        // White space around the equals sign.
        value_at = q.end + 1 + bytes.get(q.end..)?.iter().position(|&b| matches!(b, b'"' | b'\''))?;
        quote = *bytes.get(value_at - 1)?;
    }
    let value_end = find1(bytes, value_at, quote)?;
    Some((at, q, value_at, value_end))
}

/// The attributes after `at` in a validated tag, declarations included: offset and name of each.
pub(crate) fn attributes(text: &str, mut at: usize) -> impl Iterator<Item = (usize, QName)> {
    std::iter::from_fn(move || {
        let (name_at, q, _, value_end) = attribute(text, at)?;
        at = value_end + 1;
        Some((name_at, q))
    })
}

/// A piece of character data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    pub(crate) raw: &'a str,
    pub(crate) at: usize,
    pub(crate) cdata: bool,
    pub(crate) plain: bool,
}

impl<'a> Text<'a> {
    /// As written; for a CDATA section, the content of its brackets.
    pub const fn raw(&self) -> &'a str {
        self.raw
    }

    /// Whether it is a CDATA section, whose [`raw`](Text::raw) is not escaped.
    pub const fn is_cdata(&self) -> bool {
        self.cdata
    }

    /// Range of the raw text.
    pub const fn range(&self) -> Range<usize> {
        self.at..self.at + self.raw.len()
    }

    /// The unescaped text. Allocates only if it contains references or carriage returns.
    pub fn unescape(&self) -> Cow<'a, str> {
        if self.plain {
            return Cow::Borrowed(self.raw);
        }
        if self.cdata {
            return escape::normalise_line_ends(self.raw);
        }
        // The reader has validated every reference, so the fallback is never taken.
        escape::unescape(self.raw).unwrap_or(Cow::Borrowed(self.raw))
    }
}
