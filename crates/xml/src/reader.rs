//! Validating pull reader for one complete element: XML 1.0 (fourth edition), Namespaces in XML 1.0 (third edition),
//! and the restrictions of RFC 6120, section 11.
//!
//! Not implemented: finding the end of the element, which the [`Scanner`](crate::Scanner) does.
//!
//! # Pitfalls
//!
//! The reader does not allocate: open elements and declarations live in arrays sized by the hard limits of `limits.rs`,
//! about 900 bytes on the stack. Moving and copying the reader and its events is a large part of its cost, so run
//! `cargo bench -p throng-xml` before making either larger.

use memchr::memchr;

use crate::byte_search::{find1, find3};
use crate::checked_text::CheckedText;
use crate::event::{AttributeSpans, BoundPrefix, BoundPrefixes, Outline, TagOutline, attributes, quoted};
use crate::name::{self, QName};
use crate::{
    Error, Event, Limits, MAX_ATTRIBUTE_PREFIXES, MAX_ATTRIBUTES, MAX_DEPTH, MAX_NAMESPACE_BYTES,
    MAX_PREFIXES, Namespace, NamespaceContext, Ns, Restriction, StartTag, Text, escape, namespace_context,
    narrowing,
};

const UNFINISHED: Error = Error::NotWellFormed("the element is unfinished");
const DUPLICATE: Error = Error::NotWellFormed("an attribute appears twice");

/// A namespace declaration in force.
#[derive(Clone, Copy, Default)]
struct Declaration {
    /// Offset of the prefix; meaningless when its length is 0, which declares the default namespace.
    prefix_at: u32,
    /// Offset after the opening quote.
    value_at: u32,
    prefix_len: u16,
    /// Number of enclosing elements.
    depth: u8,
    id: Option<Ns>,
}

#[derive(Clone, Copy)]
enum ReaderState {
    Before,
    Inside,
    /// An empty-element tag was returned, its end was not.
    Empty,
    Done,
    Failed,
}

/// One step of the reader.
enum Step<'a> {
    Start(TagOutline<'a>),
    Text(Text<'a>),
    End,
    Done,
}

/// Reads and validates exactly one complete element. Does not allocate.
pub struct Reader<'a> {
    text: &'a str,
    scope: &'a NamespaceContext,
    limits: Limits,
    pos: usize,
    depth: usize,
    decls: usize,
    state: ReaderState,
    portable: bool,
    /// Whether a tab, line feed or carriage return occurs anywhere, so that values need normalising.
    spaced: bool,
    /// Offsets of the names of the open elements.
    names: [u32; MAX_DEPTH as usize],
    decl: [Declaration; MAX_PREFIXES as usize],
}

const _: () = assert!(size_of::<Reader<'_>>() <= 1024 && size_of::<Event<'_>>() <= 192);

impl<'a> Reader<'a> {
    /// A reader over `bytes`, which must be one element from `<` to its last `>`. Checks length, UTF-8 and characters
    /// immediately, everything else while reading.
    pub fn new(bytes: &'a [u8], scope: &'a NamespaceContext, limits: &Limits) -> Result<Reader<'a>, Error> {
        Ok(Reader::over(CheckedText::new(bytes, limits)?, scope, limits))
    }

    /// A reader over one element, built in place: moving a reader out of a result costs a tenth of reading a message.
    #[inline(always)]
    pub fn over(checked: CheckedText<'a>, scope: &'a NamespaceContext, limits: &Limits) -> Reader<'a> {
        Reader {
            text: checked.text,
            scope,
            limits: *limits,
            pos: 0,
            depth: 0,
            decls: 0,
            state: ReaderState::Before,
            portable: true,
            spaced: checked.spaced,
            names: [0; MAX_DEPTH as usize],
            decl: [Declaration { prefix_at: 0, value_at: 0, prefix_len: 0, depth: 0, id: None };
                MAX_PREFIXES as usize],
        }
    }

    /// Reads the start tag of a stream; `bytes` must contain nothing else.
    pub fn open_tag(bytes: &'a [u8], limits: &Limits) -> Result<StartTag<'a>, Error> {
        let mut reader = Reader::new(bytes, &namespace_context::EMPTY, limits)?;
        if bytes.first() != Some(&b'<') {
            return Err(Error::NotWellFormed("a tag was expected"));
        }
        let mut bound = BoundPrefixes::default();
        let tag = reader.start_tag(true, &mut bound, |_| {})?;
        if reader.pos == bytes.len() {
            Ok(reader.start_event(tag, bound))
        } else {
            Err(Error::NotWellFormed("data after the tag"))
        }
    }

    /// The next event, or `None` after the element; only then is the whole element known to be valid. After an error
    /// every call fails.
    #[allow(
        clippy::should_implement_trait,
        reason = "an Iterator would yield Option<Result>, which reads worse here"
    )]
    pub fn next(&mut self) -> Result<Option<Event<'a>>, Error> {
        let mut bound = BoundPrefixes::default();
        Ok(Some(match self.step(&mut bound, |_| {})? {
            Step::Start(tag) => Event::Start(self.start_event(tag, bound)),
            Step::Text(text) => Event::Text(text),
            Step::End => Event::End,
            Step::Done => return Ok(None),
        }))
    }

    /// As [`Reader::next`], for a caller that needs positions only. The attributes of a start tag, declarations included,
    /// are passed to `on_attribute` in document order while the tag is read, so that they are not parsed twice. A later
    /// attribute, or the rest of the tag, may still turn out to be invalid.
    #[inline(always)]
    pub fn next_outline(
        &mut self,
        on_attribute: impl FnMut(AttributeSpans),
    ) -> Result<Option<Outline<'a>>, Error> {
        // The prefixes of attributes are checked, and then not needed.
        Ok(Some(match self.step(&mut BoundPrefixes::default(), on_attribute)? {
            Step::Start(tag) => Outline::Start(tag),
            Step::Text(_) => Outline::Text,
            Step::End => Outline::End,
            Step::Done => return Ok(None),
        }))
    }

    #[inline(always)]
    fn step(
        &mut self,
        bound: &mut BoundPrefixes,
        on_attribute: impl FnMut(AttributeSpans),
    ) -> Result<Step<'a>, Error> {
        // Early returns leave this state, so no result needs to be inspected or copied.
        let state = std::mem::replace(&mut self.state, ReaderState::Failed);
        let bytes = self.text.as_bytes();
        match state {
            ReaderState::Inside => {}
            ReaderState::Before => {
                if bytes.first() != Some(&b'<') {
                    return Err(Error::NotWellFormed("an element was expected"));
                }
            }
            ReaderState::Empty => {
                self.pop();
                self.state = ReaderState::Inside;
                return Ok(Step::End);
            }
            ReaderState::Done => {
                self.state = ReaderState::Done;
                return Ok(Step::Done);
            }
            ReaderState::Failed => return Err(Error::NotWellFormed("the element was refused before")),
        }
        if self.depth == 0 && self.pos > 0 {
            if self.pos < bytes.len() {
                return Err(Error::NotWellFormed("data after the element"));
            }
            self.state = ReaderState::Done;
            return Ok(Step::Done);
        }
        let step = if *bytes.get(self.pos).ok_or(UNFINISHED)? != b'<' {
            Step::Text(self.character_data()?)
        } else {
            match *bytes.get(self.pos + 1).ok_or(UNFINISHED)? {
                b'/' => {
                    self.end_tag()?;
                    Step::End
                }
                b'!' => Step::Text(self.cdata()?),
                b'?' => return Err(Error::Restricted(Restriction::ProcessingInstruction)),
                _ => return self.start_tag(false, bound, on_attribute).map(Step::Start),
            }
        };
        self.state = ReaderState::Inside;
        Ok(step)
    }

    /// Reads to the end of the innermost open element and validates what it skips. Right after `StartTag` that is the
    /// element just opened.
    pub fn skip(&mut self) -> Result<(), Error> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside {
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Number of open elements: 1 after the first `StartTag`, 0 after the last `End`.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Offset after the last event.
    pub const fn position(&self) -> usize {
        self.pos
    }

    /// Whether the element declares every namespace that it uses: the root has no prefix and every prefix is declared
    /// inside. The default namespace and `xml` do not count. Meaningful once `next` has returned `None`.
    pub const fn is_self_contained(&self) -> bool {
        self.portable
    }

    #[inline(always)]
    fn slice(&self, from: usize, to: usize) -> &'a str {
        // Both offsets are next to ASCII delimiters, so they are character boundaries.
        self.text.get(from..to).unwrap_or_default()
    }

    fn pop(&mut self) {
        self.depth -= 1;
        while self.decls > 0 && usize::from(self.decl[self.decls - 1].depth) >= self.depth {
            self.decls -= 1;
        }
    }

    fn end_tag(&mut self) -> Result<(), Error> {
        const MISMATCH: Error = Error::NotWellFormed("an end tag does not match its start tag");
        let bytes = self.text.as_bytes();
        let open = self.depth.checked_sub(1).and_then(|i| self.names.get(i)).ok_or(MISMATCH)?;
        let open = bytes.get(*open as usize..).unwrap_or_default();
        let at = self.pos + 2;
        let mut end = find1(bytes, at, b'>').ok_or(UNFINISHED)?;
        self.pos = end + 1;
        while name::is_space(bytes[end - 1]) {
            end -= 1;
        }
        // The byte after these in the start tag shows whether its name ends there.
        if end == at || !open.starts_with(&bytes[at..end]) || !name::is_delimiter(open.get(end - at)) {
            return Err(MISMATCH);
        }
        self.pop();
        Ok(())
    }

    fn character_data(&mut self) -> Result<Text<'a>, Error> {
        let bytes = self.text.as_bytes();
        let at = self.pos;
        let mut i = at;
        let mut plain = !self.spaced;
        loop {
            i = find3(bytes, i, [b'<', b'&', b']']).ok_or(UNFINISHED)?;
            match bytes[i] {
                b'<' => break,
                b'&' => {
                    plain = false;
                    i = escape::reference(self.text, i)?.1;
                }
                _ if bytes[i..].starts_with(b"]]>") => {
                    return Err(Error::NotWellFormed("]]> in character data"));
                }
                _ => i += 1,
            }
        }
        self.pos = i;
        Ok(Text { raw: self.slice(at, i), at, cdata: false, plain })
    }

    fn cdata(&mut self) -> Result<Text<'a>, Error> {
        const OPENING: &[u8] = b"<![CDATA[";
        let bytes = self.text.as_bytes();
        let rest = &bytes[self.pos..];
        if !rest.starts_with(OPENING) {
            return Err(match rest.get(2) {
                Some(b'-') => Error::Restricted(Restriction::Comment),
                Some(b'A'..=b'Z') => Error::Restricted(Restriction::Doctype),
                _ => Error::NotWellFormed("bad markup after <!"),
            });
        }
        if self.depth == 0 {
            return Err(Error::NotWellFormed("an element was expected"));
        }
        let at = self.pos + OPENING.len();
        let mut i = at;
        loop {
            i += memchr(b']', &bytes[i..]).ok_or(UNFINISHED)?;
            if bytes[i..].starts_with(b"]]>") {
                break;
            }
            i += 1;
        }
        self.pos = i + 3;
        Ok(Text { raw: self.slice(at, i), at, cdata: true, plain: !self.spaced })
    }

    fn start_event(&self, tag: TagOutline<'a>, bound_prefixes: BoundPrefixes) -> StartTag<'a> {
        let TagOutline { name, prefix, ns, empty, tag, plain } = tag;
        StartTag { name, prefix, ns, empty, tag, plain, text: self.text, scope: self.scope, bound_prefixes }
    }

    /// Reads a start tag.
    #[inline(always)]
    fn start_tag(
        &mut self,
        header: bool,
        bound: &mut BoundPrefixes,
        mut on_attribute: impl FnMut(AttributeSpans),
    ) -> Result<TagOutline<'a>, Error> {
        let bytes = self.text.as_bytes();
        let tag_at = self.pos;
        let longest = usize::from(self.limits.name_bytes);
        if self.depth >= self.limits.depth_max() {
            return Err(Error::TooDeep);
        }
        let q = name::qname(self.text, tag_at + 1, longest)?;
        let most = self.limits.attributes_max();
        let mut count = 0;
        let mut prefixed = false;
        let mut plain = !self.spaced;
        let mut seen = 0u64;
        let mut i = q.end;
        let empty = loop {
            let before = i;
            while bytes.get(i).is_some_and(|&b| name::is_space(b)) {
                i += 1;
            }
            match bytes.get(i).ok_or(UNFINISHED)? {
                b'>' => {
                    i += 1;
                    break false;
                }
                b'/' => {
                    if bytes.get(i + 1) != Some(&b'>') {
                        return Err(Error::NotWellFormed("a slash in a tag"));
                    }
                    i += 2;
                    break true;
                }
                _ if before == i => return Err(Error::NotWellFormed("white space is missing in a tag")),
                _ => {}
            }
            let name_at = i;
            let a = name::qname(self.text, name_at, longest)?;
            if count >= most {
                return Err(Error::TooManyAttributes);
            }
            // Most names differ in length or in first or last letter and need no comparison.
            let mark = mark(bytes[name_at], bytes[a.end - 1], a.end - name_at);
            if seen & mark != 0 && self.is_duplicate_attribute(q.end, name_at, a) {
                return Err(DUPLICATE);
            }
            seen |= mark;
            count += 1;
            let value_at = equals(bytes, a.end)?;
            let (value_end, references) = self.attribute_value(value_at)?;
            plain &= !references;
            on_attribute(AttributeSpans {
                blank_start: before,
                name: name_at..a.end,
                value: value_at..value_end,
            });
            if a.local > name_at {
                match &bytes[name_at..a.local - 1] {
                    b"xmlns" => self.declare(a.local, a.end, value_at, value_end)?,
                    b"xml" => {}
                    _ => prefixed = true,
                }
            } else if &bytes[name_at..a.end] == b"xmlns" {
                self.declare(a.end, a.end, value_at, value_end)?;
            }
            i = value_end + 1;
        };
        let (prefix, ns) = if q.local > tag_at + 1 {
            let prefix = self.slice(tag_at + 1, q.local - 1);
            self.portable &= self.depth > 0;
            let ns = match prefix {
                "xml" => Namespace::known(Ns::Xml),
                "xmlns" => return Err(Error::BadNamespace("an element in the namespace of declarations")),
                _ => self.prefix(prefix, header)?,
            };
            (Some(prefix), ns)
        } else {
            (None, self.default_namespace())
        };
        if prefixed {
            self.bind(q.end, bound)?;
        }
        if self.depth == 0 && i - tag_at > usize::from(self.limits.start_tag_bytes) {
            return Err(Error::TagTooLong);
        }
        self.names[self.depth] = narrowing::offset_u32(tag_at + 1);
        self.depth += 1;
        self.pos = i;
        self.state = if empty { ReaderState::Empty } else { ReaderState::Inside };
        Ok(TagOutline { name: self.slice(q.local, q.end), prefix, ns, empty, plain, tag: tag_at..i })
    }

    /// Whether the attribute name at `name_at` also occurs between `from` and itself. Reads the preceding attributes
    /// again, which only names with the same mark require.
    #[cold]
    fn is_duplicate_attribute(&self, from: usize, name_at: usize, q: QName) -> bool {
        let name = &self.text.as_bytes()[name_at..q.end];
        attributes(self.text, from)
            .take_while(|(at, _)| *at < name_at)
            .any(|(at, q)| self.text.as_bytes().get(at..q.end) == Some(name))
    }

    /// Validates the value that begins at `at`, after its quote. Returns the offset of its closing quote and whether it
    /// contains references.
    #[inline(always)]
    fn attribute_value(&self, at: usize) -> Result<(usize, bool), Error> {
        let bytes = self.text.as_bytes();
        let quote = bytes[at - 1];
        let mut i = at;
        let mut references = false;
        loop {
            i = find3(bytes, i, [quote, b'&', b'<']).ok_or(UNFINISHED)?;
            match bytes[i] {
                b'&' => {
                    references = true;
                    i = escape::reference(self.text, i)?.1;
                }
                b'<' => return Err(Error::NotWellFormed("< in an attribute value")),
                _ => return Ok((i, references)),
            }
        }
    }

    /// Records a namespace declaration (Namespaces in XML 1.0, sections 2.2 and 3). An empty prefix declares the
    /// default.
    fn declare(&mut self, prefix_at: usize, prefix_end: usize, at: usize, end: usize) -> Result<(), Error> {
        const RESERVED: Error = Error::BadNamespace("a reserved prefix or namespace");
        if end - at > MAX_NAMESPACE_BYTES {
            return Err(Error::NameTooLong);
        }
        let prefix = self.slice(prefix_at, prefix_end);
        let ns = Namespace::from_raw(self.slice(at, end));
        if ns.id.is_none() && !is_uri(ns.text) {
            return Err(Error::BadNamespaceName);
        }
        match (prefix, ns.id) {
            ("xml", Some(Ns::Xml)) => return Ok(()),
            ("xml" | "xmlns", _) | (_, Some(Ns::Xml | Ns::Xmlns)) => return Err(RESERVED),
            _ if ns.is_none() && !prefix.is_empty() => {
                return Err(Error::BadNamespace("a prefix cannot be undeclared"));
            }
            _ => {}
        }
        if self.decls >= self.limits.prefixes_max() {
            return Err(Error::TooManyPrefixes);
        }
        self.decl[self.decls] = Declaration {
            prefix_at: narrowing::offset_u32(prefix_at),
            value_at: narrowing::offset_u32(at),
            prefix_len: narrowing::name_len_u16(prefix_end - prefix_at),
            depth: narrowing::depth_u8(self.depth),
            id: ns.id,
        };
        self.decls += 1;
        Ok(())
    }

    fn find_declaration(&self, prefix: &str) -> Option<&Declaration> {
        self.decl[..self.decls].iter().rev().find(|d| {
            let at = d.prefix_at as usize;
            usize::from(d.prefix_len) == prefix.len() && self.text.get(at..at + prefix.len()) == Some(prefix)
        })
    }

    fn declared_namespace(&self, decl: &Declaration) -> Namespace<'a> {
        match decl.id {
            Some(ns) => Namespace::known(ns),
            None => Namespace { id: None, text: quoted(self.text, decl.value_at as usize) },
        }
    }

    fn default_namespace(&self) -> Namespace<'a> {
        match self.decl[..self.decls].iter().rev().find(|d| d.prefix_len == 0) {
            Some(decl) => self.declared_namespace(decl),
            None => self.scope.default_namespace(),
        }
    }

    fn prefix(&mut self, prefix: &str, header: bool) -> Result<Namespace<'a>, Error> {
        if let Some(decl) = self.find_declaration(prefix) {
            return Ok(self.declared_namespace(decl));
        }
        self.portable = false;
        self.scope.namespace(prefix).ok_or(if header {
            Error::BadNamespacePrefix
        } else {
            Error::BadNamespace("an undeclared prefix")
        })
    }

    /// Resolves the prefixes of the attributes and rejects equal expanded names.
    #[cold]
    fn bind(&mut self, from: usize, bound: &mut BoundPrefixes) -> Result<(), Error> {
        let mut seen = [("", Namespace::NONE); MAX_ATTRIBUTE_PREFIXES];
        let mut used = 0;
        let mut alias = false;
        for (at, prefix, _) in prefixed(self.text, from) {
            if seen[..used].iter().any(|(p, _)| *p == prefix) {
                continue;
            }
            if used == MAX_ATTRIBUTE_PREFIXES {
                return Err(Error::TooManyPrefixes);
            }
            let value_at = self.find_declaration(prefix).map_or(0, |decl| decl.value_at);
            let ns = self.prefix(prefix, false)?;
            alias |= seen[..used].iter().any(|(_, other)| *other == ns);
            seen[used] = (prefix, ns);
            bound.list[used] = BoundPrefix { prefix_at: narrowing::offset_u32(at), value_at };
            used += 1;
        }
        if alias {
            let mut names = [("", Namespace::NONE); MAX_ATTRIBUTES as usize];
            for (i, (_, prefix, local)) in prefixed(self.text, from).enumerate() {
                let name = (local, self.prefix(prefix, false)?);
                if names[..i].contains(&name) {
                    return Err(DUPLICATE);
                }
                names[i] = name;
            }
        }
        bound.count = narrowing::depth_u8(used);
        Ok(())
    }
}

/// Attributes with a prefix other than `xml` and `xmlns`: offset, prefix, local part.
fn prefixed(text: &str, from: usize) -> impl Iterator<Item = (usize, &str, &str)> {
    attributes(text, from).filter_map(|(at, q)| {
        let prefix = text.get(at..q.local.checked_sub(1)?)?;
        (!matches!(prefix, "" | "xml" | "xmlns")).then_some((at, prefix, text.get(q.local..q.end)?))
    })
}

/// One bit derived from the first byte, last byte and length of a name.
#[inline]
const fn mark(first: u8, last: u8, length: usize) -> u64 {
    let mixed = (first as usize).wrapping_add(last as usize * 3).wrapping_add(length.wrapping_mul(11));
    1 << (mixed % 64)
}

/// Skips `=` and the opening quote after an attribute's name. Returns the offset of the value.
#[inline(always)]
fn equals(bytes: &[u8], mut at: usize) -> Result<usize, Error> {
    if bytes.get(at) != Some(&b'=') {
        while bytes.get(at).is_some_and(|&b| name::is_space(b)) {
            at += 1;
        }
        if *bytes.get(at).ok_or(UNFINISHED)? != b'=' {
            return Err(Error::NotWellFormed("an attribute without a value"));
        }
    }
    at += 1;
    while bytes.get(at).is_some_and(|&b| name::is_space(b)) {
        at += 1;
    }
    match bytes.get(at).ok_or(UNFINISHED)? {
        b'"' | b'\'' => Ok(at + 1),
        _ => Err(Error::NotWellFormed("an attribute value without quotes")),
    }
}

/// Whether a namespace name consists of URI characters (RFC 3986, section 2) and characters beyond ASCII. Namespaces in
/// XML 1.0, section 2.2, requires a URI reference. Expat joins namespace and local name with a separator chosen by its
/// user among the other characters (clients use a space, `}` or `|`), and fails on a namespace name that contains it.
fn is_uri(raw: &str) -> bool {
    if !raw.contains('&') {
        return raw.bytes().all(name::is_uri_byte);
    }
    // The reader has validated every reference.
    escape::UnescapedChars::new(raw, true).flatten().all(|c| u8::try_from(c).map_or(true, name::is_uri_byte))
}
