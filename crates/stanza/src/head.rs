//! Stanza heads: kind, type and positions of one stanza, from one validating pass (RFC 6120, sections 8.1 and 8.2).
//!
//! [`Element::read`] builds no tree and does not allocate. It validates the whole element (well-formedness, namespaces,
//! limits) with `xml::Reader` and records the positions that routing needs.
//!
//! # Pitfalls
//!
//! Spans cover *raw* bytes. A value with `&` in it must be unescaped before use; [`Head::to`] and the other accessors
//! do that, the `raw_` ones do not.

use std::borrow::Cow;

use xml::{CheckedText, Limits, NamespaceContext, Ns, Outline, Reader};

use crate::kind::{IqType, MessageType, PresenceType, StanzaKind};
use crate::payload_set::PayloadSet;

/// A range of bytes; the empty range means *absent*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// A range inside a start tag, which is at most 64 kB long; `end == 0` means *absent*.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ShortSpan {
    pub(crate) start: u16,
    pub(crate) end: u16,
}

impl Span {
    /// The bytes of the span.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// The text of the span; empty if it is not UTF-8, which a read element never is.
    pub fn str(self, bytes: &[u8]) -> &str {
        std::str::from_utf8(self.of(bytes)).unwrap_or_default()
    }

    pub(crate) fn new(range: std::ops::Range<usize>) -> Option<Span> {
        Some(Span { start: u32::try_from(range.start).ok()?, end: u32::try_from(range.end).ok()? })
    }

    /// The span moved by this number of bytes, forward or back.
    pub(crate) fn shifted(self, by: isize) -> Option<Span> {
        Span::new((self.start as usize).checked_add_signed(by)?..(self.end as usize).checked_add_signed(by)?)
    }

    /// Whether the span is empty.
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

impl ShortSpan {
    pub(crate) fn get(self, bytes: &[u8]) -> Option<&str> {
        if self.end == 0 {
            return None;
        }
        std::str::from_utf8(bytes.get(self.start as usize..self.end as usize)?).ok()
    }

    pub(crate) fn new(range: std::ops::Range<usize>) -> Option<ShortSpan> {
        Some(ShortSpan { start: u16::try_from(range.start).ok()?, end: u16::try_from(range.end).ok()? })
    }

    /// The span moved by this number of bytes, forward or back.
    pub(crate) fn shifted(self, by: isize) -> Option<ShortSpan> {
        ShortSpan::new(
            usize::from(self.start).checked_add_signed(by)?..usize::from(self.end).checked_add_signed(by)?,
        )
    }
}

/// The first child element of a stanza: the payload of an IQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// Namespace, if known to the server.
    pub ns: Option<Ns>,
    /// Local name.
    pub name: Span,
    /// The whole child, tags included.
    pub span: Span,
}

/// Kind, type and positions of one stanza. Valid only for the bytes that it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// Kind and type.
    pub kind: StanzaKind,
    /// Namespaces of the child elements by which stanzas are selected.
    pub(crate) payloads: PayloadSet,
    /// The first child element.
    pub first_child: Option<Child>,
    pub(crate) to: ShortSpan,
    pub(crate) from: ShortSpan,
    pub(crate) id: ShortSpan,
    pub(crate) lang: ShortSpan,
    /// The whole attribute and the white space before it.
    pub(crate) to_attr: ShortSpan,
    pub(crate) from_attr: ShortSpan,
    /// One past `<name`.
    pub(crate) name_end: u16,
    /// One past the `>` of the start tag.
    pub(crate) tag_end: u16,
    /// Number of child elements, at most 65 535.
    pub child_count: u16,
    /// The start tag ends in `/>`.
    pub(crate) empty: bool,
    /// A `<body/>` in the content namespace is among the children.
    pub has_body: bool,
}

impl Head {
    /// The namespaces of its children, as far as stanzas are selected by them.
    pub fn payloads(&self) -> PayloadSet {
        self.payloads
    }

    /// Value of `to`.
    pub fn to<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        Self::text(self.to.get(bytes)?)
    }

    /// Value of `from`.
    pub fn from<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        Self::text(self.from.get(bytes)?)
    }

    /// Value of `id`.
    pub fn id<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        Self::text(self.id.get(bytes)?)
    }

    /// Value of `xml:lang`.
    pub fn lang<'a>(&self, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
        Self::text(self.lang.get(bytes)?)
    }

    /// The raw attribute text of `from`. This server stamps the same text for the same address.
    pub fn raw_from<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        self.from.get(bytes)
    }

    /// The raw attribute text of `id`, still escaped, for copying into a reply.
    pub fn raw_id<'a>(&self, bytes: &'a [u8]) -> Option<&'a str> {
        self.id.get(bytes)
    }

    /// Unescapes a raw attribute value.
    fn text(raw: &str) -> Option<Cow<'_, str>> {
        xml::escape::unescape_attr(raw).ok()
    }

    /// Offset after `<name`, where attributes may be inserted.
    pub fn attr_insert_offset(&self) -> usize {
        usize::from(self.name_end)
    }

    /// Whether the stanza is an empty-element tag.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// The bytes between start and end tag; empty for an empty-element tag.
    pub fn inner_xml<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        if self.empty {
            return &[];
        }
        let end = bytes.iter().rposition(|b| *b == b'<').unwrap_or(0);
        bytes.get(usize::from(self.tag_end)..end).unwrap_or_default()
    }

    /// Offset of the end tag, where children may be appended; `None` for an empty-element tag.
    pub fn child_append_offset(&self, bytes: &[u8]) -> Option<usize> {
        if self.empty { None } else { bytes.iter().rposition(|b| *b == b'<') }
    }

    pub(crate) fn with_kind(kind: StanzaKind) -> Head {
        Head {
            kind,
            payloads: PayloadSet::NONE,
            first_child: None,
            to: ShortSpan::default(),
            from: ShortSpan::default(),
            id: ShortSpan::default(),
            lang: ShortSpan::default(),
            to_attr: ShortSpan::default(),
            from_attr: ShortSpan::default(),
            name_end: 0,
            tag_end: 0,
            child_count: 0,
            empty: false,
            has_body: false,
        }
    }
}

/// A validated first-level element of a stream.
#[derive(Debug)]
pub enum Element<'a> {
    /// A stanza in the content namespace.
    Stanza(Head),
    /// A stanza with a `type` that its kind does not have; must be answered with `bad-request`.
    UnknownType(Head),
    /// A stanza that uses namespace prefixes of the stream header; normalise it and read it again.
    NotSelfContained,
    /// Anything else: SASL, STARTTLS, stream management.
    Other {
        /// Namespace, if known.
        ns: Option<Ns>,
        /// Namespace as text.
        ns_text: &'a str,
        /// Local name.
        name: &'a str,
    },
}

impl<'a> Element<'a> {
    /// Reads and validates one complete element.
    ///
    /// # Errors
    /// Errors of `xml::Reader`: not well-formed, restricted, over a limit, a start tag above 64 kB.
    pub fn read(
        bytes: &'a [u8],
        scope: &'a NamespaceContext,
        limits: &Limits,
    ) -> Result<Element<'a>, xml::Error> {
        let mut reader = Reader::over(CheckedText::new(bytes, limits)?, scope, limits);
        let mut head = Head::with_kind(StanzaKind::Message(MessageType::Normal));
        let mut ty = None;
        let mut too_long = false;
        let first = reader.next_outline(|attribute| {
            let mut span = |range| {
                let span = ShortSpan::new(range);
                too_long |= span.is_none();
                span.unwrap_or_default()
            };
            let value = span(attribute.value.clone());
            match bytes.get(attribute.name) {
                Some(b"to") => {
                    head.to = value;
                    head.to_attr = span(attribute.blank_start..attribute.value.end + 1);
                }
                Some(b"from") => {
                    head.from = value;
                    head.from_attr = span(attribute.blank_start..attribute.value.end + 1);
                }
                Some(b"id") => head.id = value,
                Some(b"type") => ty = Some(attribute.value),
                Some(b"xml:lang") => head.lang = value,
                _ => {}
            }
        })?;
        let Some(Outline::Start(root)) = first else {
            return Err(xml::Error::NotWellFormed("no element"));
        };
        if root.ns.id != Some(Ns::Client) || !matches!(root.name, "message" | "presence" | "iq") {
            let (ns, ns_text, name) = (root.ns.id, root.ns.text, root.name);
            while reader.next()?.is_some() {}
            return Ok(Element::Other { ns, ns_text, name });
        }
        if too_long {
            return Err(xml::Error::TagTooLong);
        }
        head.empty = root.empty;
        head.name_end = u16::try_from(1 + root.name.len()).map_err(|_| xml::Error::TagTooLong)?;
        head.tag_end = u16::try_from(root.tag.end).map_err(|_| xml::Error::TagTooLong)?;
        let prefixed = root.prefix.is_some();
        let (name, plain) = (root.name, root.plain);
        Self::children(&mut reader, &mut head)?;
        if prefixed || !reader.is_self_contained() {
            return Ok(Element::NotSelfContained);
        }
        let ty = ty.and_then(|ty| std::str::from_utf8(bytes.get(ty)?).ok());
        let ty =
            ty.map(|ty| if plain { Cow::Borrowed(ty) } else { Head::text(ty).unwrap_or(Cow::Borrowed(ty)) });
        match StanzaKind::parse(name, ty.as_deref()) {
            Some(Ok(kind)) => {
                head.kind = kind;
                Ok(Element::Stanza(head))
            }
            _ => {
                head.kind = match name {
                    "presence" => StanzaKind::Presence(PresenceType::Available),
                    _ => StanzaKind::Iq(IqType::Get),
                };
                Ok(Element::UnknownType(head))
            }
        }
    }

    fn children(reader: &mut Reader<'a>, head: &mut Head) -> Result<(), xml::Error> {
        let mut depth = 1usize;
        let mut payloads = PayloadSet::NONE;
        while let Some(event) = reader.next_outline(|_| {})? {
            match event {
                Outline::Start(start) => {
                    if depth == 1 {
                        let ns = start.ns.id;
                        if let Some(ns) = ns {
                            payloads.insert(ns);
                        }
                        head.has_body |= ns == Some(Ns::Client) && start.name == "body";
                        if head.child_count == 0 {
                            let name = start.tag.start + 1 + start.prefix.map_or(0, |p| p.len() + 1);
                            let span = |range| Span::new(range).ok_or(xml::Error::TooLarge);
                            head.first_child = Some(Child {
                                ns,
                                name: span(name..name + start.name.len())?,
                                span: span(start.tag.clone())?,
                            });
                        }
                        head.child_count = head.child_count.saturating_add(1);
                    }
                    depth += 1;
                }
                Outline::End => {
                    depth -= 1;
                    if depth == 1
                        && head.child_count == 1
                        && let Some(first) = &mut head.first_child
                    {
                        first.span.end =
                            u32::try_from(reader.position()).map_err(|_| xml::Error::TooLarge)?;
                    }
                }
                Outline::Text => {}
            }
        }
        head.payloads = payloads;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn head(text: &str) -> Head {
        match Element::read(text.as_bytes(), &NamespaceContext::client(), &Limits::default()).unwrap() {
            Element::Stanza(head) => head,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn finds_addresses_and_payload() {
        let text = "<iq to='juliet@im.example.com' id=\"a&amp;b\" type='get' xml:lang='en'><query xmlns='jabber:iq:roster'/></iq>";
        let h = head(text);
        assert_eq!(h.kind, StanzaKind::Iq(IqType::Get));
        assert_eq!(h.to(text.as_bytes()).as_deref(), Some("juliet@im.example.com"));
        assert_eq!(h.id(text.as_bytes()).as_deref(), Some("a&b"));
        assert_eq!(h.lang(text.as_bytes()).as_deref(), Some("en"));
        assert!(h.from(text.as_bytes()).is_none());
        let first = h.first_child.unwrap();
        assert_eq!(first.ns, Some(Ns::Roster));
        assert_eq!(first.name.str(text.as_bytes()), "query");
        assert_eq!(first.span.str(text.as_bytes()), "<query xmlns='jabber:iq:roster'/>");
        assert_eq!(h.child_count, 1);
    }

    #[test]
    fn the_body_is_recorded_and_the_inner_bytes_are_found() {
        let text = "<message to='a@b'><body>hi</body><active xmlns='http://jabber.org/protocol/chatstates'/></message>";
        let h = head(text);
        assert!(h.has_body);
        assert_eq!(h.child_count, 2);
        assert_eq!(
            std::str::from_utf8(h.inner_xml(text.as_bytes())).unwrap(),
            "<body>hi</body><active xmlns='http://jabber.org/protocol/chatstates'/>"
        );
        assert!(head("<presence/>").is_empty());
    }

    #[test]
    fn other_elements_and_unknown_types_are_distinguished() {
        let scope = NamespaceContext::client();
        let limits = Limits::default();
        let sasl = b"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'/>";
        assert!(matches!(
            Element::read(sasl, &scope, &limits),
            Ok(Element::Other { ns: Some(Ns::Sasl), name: "auth", .. })
        ));
        assert!(matches!(Element::read(b"<iq id='1'/>", &scope, &limits), Ok(Element::UnknownType(_))));
        assert!(matches!(
            Element::read(b"<message xmlns='jabber:server'/>", &scope, &limits),
            Ok(Element::Other { .. })
        ));
        assert!(matches!(
            Element::read(b"<message><stream:x/></message>", &scope, &limits),
            Ok(Element::NotSelfContained)
        ));
    }

    #[test]
    fn a_head_is_small() {
        assert!(size_of::<Head>() <= 80, "{}", size_of::<Head>());
    }
}
