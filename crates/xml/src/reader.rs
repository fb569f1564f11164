//! Validating pull reader over one complete element: XML 1.0 (fifth edition), Namespaces in XML 1.0 (third edition), and
//! the restrictions of RFC 6120 section 11.
//!
//! Left out: finding the end of the element, which is the [`Scanner`](crate::Scanner)'s work.
//! Trap: no heap. Open elements, declarations and attributes in progress live in arrays whose sizes are the hard limits
//! of `limit.rs`; the whole reader is about 1.3 kB on the stack, and its zeroing is part of its price.

use memchr::{memchr, memchr3};

use crate::event::Bound;
use crate::name::{self, QName};
use crate::{
    Error, Event, Limits, MAX_ATTRIBUTE_PREFIXES, MAX_ATTRIBUTES, MAX_DEPTH, MAX_NAMESPACE_BYTES,
    MAX_PREFIXES, Namespace, Ns, Restriction, Scope, Start, Text, escape, scope,
};

const UNFINISHED: Error = Error::NotWellFormed("the element is unfinished");
const DUPLICATE: Error = Error::NotWellFormed("an attribute appears twice");

/// An open element.
#[derive(Clone, Copy, Default)]
struct Frame {
    name_at: u32,
    name_len: u16,
    /// Declarations in force outside it.
    decls: u8,
}

/// A namespace declaration in force.
#[derive(Clone, Copy, Default)]
struct Decl {
    prefix_at: u32,
    value_at: u32,
    prefix_len: u16,
    value_len: u16,
    id: Option<Ns>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Inside,
    /// An empty-element tag was told, its end was not.
    Empty,
    Done,
    Failed(Error),
}

/// Reads exactly one complete element and checks it on the way. No heap.
pub struct Reader<'a> {
    text: &'a str,
    scope: &'a Scope,
    limits: Limits,
    pos: usize,
    depth: usize,
    decls: usize,
    state: State,
    portable: bool,
    frames: [Frame; MAX_DEPTH as usize],
    decl: [Decl; MAX_PREFIXES as usize],
    /// Where the attribute names of the tag in progress begin.
    attrs: [u32; MAX_ATTRIBUTES as usize],
}

impl<'a> Reader<'a> {
    /// A reader over `bytes`, which must be one element from `<` to its last `>`. Checks length, UTF-8 and characters at
    /// once, everything else as it goes.
    pub fn new(bytes: &'a [u8], scope: &'a Scope, limits: &Limits) -> Result<Reader<'a>, Error> {
        if bytes.len() > limits.element_bytes as usize {
            return Err(Error::TooLarge);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| Error::BadUtf8)?;
        check_characters(bytes)?;
        Ok(Reader {
            text,
            scope,
            limits: *limits,
            pos: 0,
            depth: 0,
            decls: 0,
            state: State::Before,
            portable: true,
            frames: [Frame::default(); MAX_DEPTH as usize],
            decl: [Decl::default(); MAX_PREFIXES as usize],
            attrs: [0; MAX_ATTRIBUTES as usize],
        })
    }

    /// Reads the start tag of a stream, which is all that `bytes` may hold.
    pub fn open_tag(bytes: &'a [u8], limits: &Limits) -> Result<Start<'a>, Error> {
        let mut reader = Reader::new(bytes, &scope::NOTHING, limits)?;
        let start = reader.start_tag(true)?;
        if reader.pos < bytes.len() { Err(Error::NotWellFormed("data after the tag")) } else { Ok(start) }
    }

    /// The next event, or `None` behind the element. Only then is the whole element known to be good. An error is final.
    #[allow(
        clippy::should_implement_trait,
        reason = "an Iterator would yield Option<Result>, which reads worse here"
    )]
    pub fn next(&mut self) -> Result<Option<Event<'a>>, Error> {
        let result = self.advance();
        if let Err(error) = result {
            self.state = State::Failed(error);
        }
        result
    }

    /// Reads on to the end of the innermost open element, checking what it passes. Right after `Start` that is the
    /// element which has just begun.
    pub fn skip(&mut self) -> Result<(), Error> {
        let outside = self.depth.saturating_sub(1);
        while self.depth > outside {
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Elements that are open: 1 after the first `Start`, 0 after the last `End`.
    pub const fn depth(&self) -> usize {
        self.depth
    }

    /// Offset behind the last event.
    pub const fn position(&self) -> usize {
        self.pos
    }

    /// Does the element carry every declaration that it uses? True when the root has no prefix and every prefix was
    /// declared inside; the default namespace and `xml` do not count. Meaningful once `next` answered `None`.
    pub const fn portable(&self) -> bool {
        self.portable
    }

    #[inline]
    fn byte(&self, at: usize) -> Option<u8> {
        self.text.as_bytes().get(at).copied()
    }

    fn slice(&self, from: usize, to: usize) -> &'a str {
        // Both ends are next to ASCII delimiters, so they are character boundaries.
        self.text.get(from..to).unwrap_or_default()
    }

    fn advance(&mut self) -> Result<Option<Event<'a>>, Error> {
        match self.state {
            State::Inside => {}
            State::Before => {
                if self.byte(0) != Some(b'<') {
                    return Err(Error::NotWellFormed("an element was expected"));
                }
                self.state = State::Inside;
            }
            State::Empty => {
                self.state = State::Inside;
                self.pop();
                return Ok(Some(Event::End));
            }
            State::Done => return Ok(None),
            State::Failed(error) => return Err(error),
        }
        if self.depth == 0 && self.pos > 0 {
            if self.pos < self.text.len() {
                return Err(Error::NotWellFormed("data after the element"));
            }
            self.state = State::Done;
            return Ok(None);
        }
        match self.byte(self.pos).ok_or(UNFINISHED)? {
            b'<' => match self.byte(self.pos + 1).ok_or(UNFINISHED)? {
                b'/' => self.end_tag().map(|()| Some(Event::End)),
                b'!' => self.cdata().map(|text| Some(Event::Text(text))),
                b'?' => Err(Error::Restricted(Restriction::ProcessingInstruction)),
                _ => {
                    let start = self.start_tag(false)?;
                    if start.empty {
                        self.state = State::Empty;
                    }
                    Ok(Some(Event::Start(start)))
                }
            },
            _ => self.character_data().map(|text| Some(Event::Text(text))),
        }
    }

    fn pop(&mut self) {
        self.depth -= 1;
        self.decls = usize::from(self.frames[self.depth].decls);
    }

    fn end_tag(&mut self) -> Result<(), Error> {
        const MISMATCH: Error = Error::NotWellFormed("an end tag does not match its start tag");
        let frame = self.depth.checked_sub(1).and_then(|i| self.frames.get(i)).ok_or(MISMATCH)?;
        let bytes = self.text.as_bytes();
        let name_at = frame.name_at as usize;
        let name = &bytes[name_at..name_at + usize::from(frame.name_len)];
        let at = self.pos + 2;
        let mut end = at + name.len();
        if bytes.get(at..end) != Some(name) {
            return Err(MISMATCH);
        }
        loop {
            match bytes.get(end) {
                Some(b'>') => break,
                Some(&b) if name::is_space(b) => end += 1,
                Some(_) => return Err(MISMATCH),
                None => return Err(UNFINISHED),
            }
        }
        self.pos = end + 1;
        self.pop();
        Ok(())
    }

    fn character_data(&mut self) -> Result<Text<'a>, Error> {
        let bytes = self.text.as_bytes();
        let at = self.pos;
        let mut i = at;
        loop {
            i += memchr3(b'<', b'&', b']', &bytes[i..]).ok_or(UNFINISHED)?;
            match bytes[i] {
                b'<' => break,
                b'&' => i = escape::reference(self.text, i)?.1,
                _ if bytes[i..].starts_with(b"]]>") => {
                    return Err(Error::NotWellFormed("]]> in character data"));
                }
                _ => i += 1,
            }
        }
        self.pos = i;
        Ok(Text { raw: self.slice(at, i), at, cdata: false })
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
        Ok(Text { raw: self.slice(at, i), at, cdata: true })
    }

    fn start_tag(&mut self, header: bool) -> Result<Start<'a>, Error> {
        let bytes = self.text.as_bytes();
        let tag_at = self.pos;
        let longest = usize::from(self.limits.name_bytes);
        if self.depth >= self.limits.depth_max() {
            return Err(Error::TooDeep);
        }
        let outside = self.decls;
        let q = name::qname(self.text, tag_at + 1, longest)?;
        let most = self.limits.attributes_max();
        let mut count = 0;
        let mut prefixed = false;
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
            // Most tags have names that differ in length or first or last letter, and need no comparison.
            let mark = mark(bytes[name_at], bytes[a.end - 1], a.end - name_at);
            if seen & mark != 0 && self.repeated(count, &bytes[name_at..a.end]) {
                return Err(DUPLICATE);
            }
            seen |= mark;
            self.attrs[count] = name_at as u32;
            count += 1;
            let value_at = equals(bytes, a.end)?;
            let value_end = self.attribute_value(value_at)?;
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
        let mut start = Start {
            name: self.slice(q.local, q.end),
            prefix: None,
            ns: Namespace::NONE,
            empty,
            tag: tag_at..i,
            text: self.text,
            scope: self.scope,
            bound: [Bound::default(); MAX_ATTRIBUTE_PREFIXES],
            bounds: 0,
        };
        if q.local > tag_at + 1 {
            let prefix = self.slice(tag_at + 1, q.local - 1);
            start.prefix = Some(prefix);
            start.ns = match prefix {
                "xml" => Namespace::known(Ns::Xml),
                "xmlns" => return Err(Error::BadNamespace("an element in the namespace of declarations")),
                _ => self.prefix(prefix, header)?,
            };
            self.portable &= self.depth > 0;
        } else {
            start.ns = self.default_namespace();
        }
        if prefixed {
            self.bind(&mut start, count)?;
        }
        self.frames[self.depth] =
            Frame { name_at: tag_at as u32 + 1, name_len: (q.end - tag_at - 1) as u16, decls: outside as u8 };
        self.depth += 1;
        self.pos = i;
        Ok(start)
    }

    /// Is this name among the first `count` attributes of the tag in progress?
    fn repeated(&self, count: usize, name: &[u8]) -> bool {
        let bytes = self.text.as_bytes();
        self.attrs[..count].iter().any(|&at| {
            let at = at as usize;
            bytes.get(at..at + name.len()) == Some(name)
                && bytes.get(at + name.len()).is_some_and(|&b| b == b'=' || name::is_space(b))
        })
    }

    /// Checks the value that begins at `at`, behind its quote. Answers where its closing quote is.
    fn attribute_value(&self, at: usize) -> Result<usize, Error> {
        let bytes = self.text.as_bytes();
        let quote = bytes[at - 1];
        let mut i = at;
        loop {
            i += memchr3(quote, b'&', b'<', bytes.get(i..).ok_or(UNFINISHED)?).ok_or(UNFINISHED)?;
            match bytes[i] {
                b'&' => i = escape::reference(self.text, i)?.1,
                b'<' => return Err(Error::NotWellFormed("< in an attribute value")),
                _ => return Ok(i),
            }
        }
    }

    /// Takes a namespace declaration (Namespaces in XML 1.0 sections 2.2 and 3). An empty prefix declares the default.
    fn declare(&mut self, prefix_at: usize, prefix_end: usize, at: usize, end: usize) -> Result<(), Error> {
        const RESERVED: Error = Error::BadNamespace("a reserved prefix or namespace");
        if end - at > MAX_NAMESPACE_BYTES {
            return Err(Error::NameTooLong);
        }
        let prefix = self.slice(prefix_at, prefix_end);
        let ns = Namespace::written(self.slice(at, end));
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
        self.decl[self.decls] = Decl {
            prefix_at: prefix_at as u32,
            value_at: at as u32,
            prefix_len: (prefix_end - prefix_at) as u16,
            value_len: (end - at) as u16,
            id: ns.id,
        };
        self.decls += 1;
        Ok(())
    }

    fn declared(&self, prefix: &str) -> Option<&Decl> {
        self.decl[..self.decls].iter().rev().find(|d| {
            let at = d.prefix_at as usize;
            usize::from(d.prefix_len) == prefix.len() && self.text.get(at..at + prefix.len()) == Some(prefix)
        })
    }

    fn meaning(&self, decl: &Decl) -> Namespace<'a> {
        if let Some(ns) = decl.id {
            return Namespace::known(ns);
        }
        let at = decl.value_at as usize;
        Namespace { id: None, text: self.slice(at, at + usize::from(decl.value_len)) }
    }

    fn default_namespace(&self) -> Namespace<'a> {
        match self.decl[..self.decls].iter().rev().find(|d| d.prefix_len == 0) {
            Some(decl) => self.meaning(decl),
            None => self.scope.default_namespace(),
        }
    }

    fn prefix(&mut self, prefix: &str, header: bool) -> Result<Namespace<'a>, Error> {
        if let Some(decl) = self.declared(prefix) {
            return Ok(self.meaning(decl));
        }
        self.portable = false;
        self.scope.namespace(prefix).ok_or(if header {
            Error::BadNamespacePrefix
        } else {
            Error::BadNamespace("an undeclared prefix")
        })
    }

    /// Resolves the prefixes of the attributes and compares their expanded names.
    #[cold]
    fn bind(&mut self, start: &mut Start<'a>, count: usize) -> Result<(), Error> {
        let mut spaces = [Namespace::NONE; MAX_ATTRIBUTE_PREFIXES];
        let mut used = 0;
        let mut alias = false;
        for i in 0..count {
            let Some((prefix_at, q)) = self.prefixed(i) else { continue };
            let prefix = self.slice(prefix_at, q.local - 1);
            let known = start.bound[..used].iter().any(|b| {
                let at = b.prefix_at as usize;
                self.slice(at, at + usize::from(b.prefix_len)) == prefix
            });
            if known {
                continue;
            }
            if used == MAX_ATTRIBUTE_PREFIXES {
                return Err(Error::TooManyPrefixes);
            }
            let mut bound = Bound {
                prefix_at: prefix_at as u32,
                prefix_len: prefix.len() as u16,
                header: true,
                ..Bound::default()
            };
            if let Some(decl) = self.declared(prefix) {
                (bound.value_at, bound.value_len, bound.header) = (decl.value_at, decl.value_len, false);
            }
            let ns = self.prefix(prefix, false)?;
            alias |= spaces[..used].contains(&ns);
            spaces[used] = ns;
            start.bound[used] = bound;
            used += 1;
        }
        start.bounds = used as u8;
        if alias {
            let mut before: [(&str, Namespace<'_>); MAX_ATTRIBUTES as usize] =
                [("", Namespace::NONE); MAX_ATTRIBUTES as usize];
            let mut length = 0;
            for i in 0..count {
                let Some((prefix_at, q)) = self.prefixed(i) else { continue };
                let ns = self.prefix(self.slice(prefix_at, q.local - 1), false)?;
                let name = (self.slice(q.local, q.end), ns);
                if before[..length].contains(&name) {
                    return Err(DUPLICATE);
                }
                before[length] = name;
                length += 1;
            }
        }
        Ok(())
    }

    /// Attribute `i` of the tag in progress, if its prefix is neither `xml` nor `xmlns`.
    fn prefixed(&self, i: usize) -> Option<(usize, QName)> {
        let at = self.attrs[i] as usize;
        let q = name::qname(self.text, at, usize::MAX).ok()?;
        let prefix = if q.local > at { self.slice(at, q.local - 1) } else { "" };
        (!matches!(prefix, "" | "xml" | "xmlns")).then_some((at, q))
    }
}

/// One bit for the first and last byte and the length of a name.
#[inline]
const fn mark(first: u8, last: u8, length: usize) -> u64 {
    let mixed = (first as u32).wrapping_add(last as u32 * 3).wrapping_add(length as u32 * 11);
    1 << (mixed % 64)
}

/// Behind an attribute's name: passes `=` and the opening quote. Answers where the value begins.
#[inline]
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

/// The production Char over bytes that are UTF-8: no control characters but three, no U+FFFE and U+FFFF.
fn check_characters(bytes: &[u8]) -> Result<(), Error> {
    let mut control = false;
    let mut maybe = false;
    // No early exit: so it compiles to a few vector instructions a line.
    for &b in bytes {
        control |= (b < b' ') & (b != b'\t') & (b != b'\n') & (b != b'\r');
        maybe |= b == 0xEF;
    }
    if control || (maybe && name::has_noncharacter(bytes)) { Err(Error::BadCharacter) } else { Ok(()) }
}
