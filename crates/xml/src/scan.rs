//! Scanner for element boundaries in a byte stream (RFC 6120, sections 4 and 11).
//!
//! Not implemented: anything inside an element but its nesting. The [`Reader`](crate::Reader) validates names,
//! attributes, references, characters and end tags, so an `Element` is not yet known to be well-formed.
//!
//! # Pitfalls
//!
//! The scanner owns no bytes. It remembers how far it has scanned the *same* bytes, so after dropping exactly `skip`
//! bytes the caller must pass the remaining bytes again, unchanged, with more appended.

use memchr::memchr;

use crate::byte_search::{find1, find3};
use crate::{Error, Limits, Restriction, name, narrowing};

/// Longest qualified name of a stream element, in bytes; it is stored for comparison with the end tag.
const STREAM_NAME: usize = 40;
/// Longest XML declaration and longest end tag of the stream, in bytes. Real ones have about 40 and 16.
const DECLARATION: usize = 256;

const NO_NAME: Error = Error::NotWellFormed("a name was expected");

/// Result of a scan. Offsets count from the start of the `input` of that call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanOutcome {
    /// Nothing complete yet. Drop `skip` bytes, then call again with more bytes appended.
    More {
        /// Bytes that can be dropped: white space between elements, or an XML declaration.
        skip: usize,
    },
    /// The start tag of the stream element. Consume `end` bytes.
    Open {
        /// Offset of `<`.
        start: usize,
        /// Offset after `>`.
        end: usize,
    },
    /// A complete first-level element. Consume `end` bytes.
    Element {
        /// Offset of `<`.
        start: usize,
        /// Offset after the last `>`.
        end: usize,
    },
    /// The end tag of the stream element. Consume `end` bytes.
    Close {
        /// Offset after `>`.
        end: usize,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanState {
    /// First byte of a document: the only position of an XML declaration.
    Document,
    /// After the declaration or white space: the stream element must follow.
    Prolog,
    /// Between first-level elements.
    Between,
    /// The stream element has ended.
    Closed,
    /// In character data of an element.
    Content,
    /// In a start tag, outside quotes.
    Tag,
    /// In a start tag, inside `'`.
    Single,
    /// In a start tag, inside `"`.
    Double,
    /// In an end tag.
    EndTag,
    /// In a CDATA section.
    Cdata,
    /// An earlier call failed.
    Failed(Error),
}

/// Resumable scanner for element boundaries. Plain data, at most 96 bytes, no heap.
#[derive(Clone, Copy, Debug)]
pub struct Scanner {
    state: ScanState,
    /// Number of open elements, the stream element excluded.
    depth: u8,
    /// Whether the tag in progress is the stream element's.
    header: bool,
    /// Whether there is no stream element around the elements.
    fragment: bool,
    name_len: u8,
    /// Bytes of the unfinished input already scanned.
    scanned: u32,
    name: [u8; STREAM_NAME],
}

const _: () = assert!(size_of::<Scanner>() <= 96);

impl Default for Scanner {
    fn default() -> Scanner {
        Scanner::new()
    }
}

impl Scanner {
    /// Expects an XML document: an optional declaration, the stream header, then elements.
    pub const fn new() -> Scanner {
        Scanner {
            state: ScanState::Document,
            depth: 0,
            header: false,
            fragment: false,
            name_len: 0,
            scanned: 0,
            name: [0; STREAM_NAME],
        }
    }

    /// Expects elements with no stream around them: stored stanzas, output of the server itself. Their depth may reach
    /// [`Limits::depth`], whose ceiling is the reader's.
    pub const fn fragment() -> Scanner {
        let mut scanner = Scanner::new();
        scanner.state = ScanState::Between;
        scanner.fragment = true;
        scanner
    }

    /// Expects one element, optionally after an XML declaration: a standalone document such as a WebSocket message.
    pub const fn standalone() -> Scanner {
        let mut scanner = Scanner::fragment();
        scanner.state = ScanState::Document;
        scanner
    }

    /// Expects a new document, as after STARTTLS or SASL. Discards all state, unfinished input included.
    pub fn restart(&mut self) {
        *self = if self.fragment { Scanner::fragment() } else { Scanner::new() };
    }

    /// Scans for the next boundary. `input[0]` is the first byte not yet consumed. An error is final: it is returned
    /// until [`restart`](Scanner::restart).
    pub fn scan(&mut self, input: &[u8], limits: &Limits) -> Result<ScanOutcome, Error> {
        let result = self.advance(input, limits);
        if let Err(error) = result {
            self.state = ScanState::Failed(error);
        }
        result
    }

    fn advance(&mut self, input: &[u8], limits: &Limits) -> Result<ScanOutcome, Error> {
        let mut start = 0;
        match self.state {
            ScanState::Failed(error) => return Err(error),
            ScanState::Document => {
                let Some(after) = self.document(input)? else { return Ok(ScanOutcome::More { skip: 0 }) };
                start = after;
            }
            _ => {}
        }
        if matches!(self.state, ScanState::Prolog | ScanState::Between | ScanState::Closed) {
            start += input.get(start..).map_or(0, spaces);
            self.scanned = 0;
            let Some(&first) = input.get(start) else { return Ok(ScanOutcome::More { skip: start }) };
            if self.state == ScanState::Closed {
                return Err(Error::NotWellFormed("data after the end of the stream"));
            }
            if first != b'<' {
                return Err(Error::NotWellFormed("text between elements"));
            }
            let Some(&second) = input.get(start + 1) else { return Ok(ScanOutcome::More { skip: start }) };
            match second {
                b'!' => {
                    let Some(&third) = input.get(start + 2) else {
                        return Ok(ScanOutcome::More { skip: start });
                    };
                    return Err(match third {
                        b'-' => Error::Restricted(Restriction::Comment),
                        b'[' => Error::NotWellFormed("a CDATA section between elements"),
                        _ => declaration_error(third),
                    });
                }
                b'?' => return Err(Error::Restricted(Restriction::ProcessingInstruction)),
                b'/' => {
                    if self.fragment || self.state == ScanState::Prolog {
                        return Err(Error::NotWellFormed("an end tag without a start tag"));
                    }
                    self.state = ScanState::EndTag;
                    self.scanned = 2;
                }
                _ if !name::is_name_start_byte(second) => return Err(NO_NAME),
                _ => {
                    self.header = self.state == ScanState::Prolog && !self.fragment;
                    self.depth = u8::from(!self.header);
                    self.state = ScanState::Tag;
                    self.scanned = 1;
                }
            }
        }
        self.element(input, start, limits)
    }

    /// Scans one element, or the stream's start or end tag, that begins at `start`.
    fn element(&mut self, input: &[u8], start: usize, limits: &Limits) -> Result<ScanOutcome, Error> {
        let all = input.get(start..).unwrap_or_default();
        // Scan no further than the limit, so that the result does not depend on how the input was split.
        let mut i = self.scanned as usize;
        let mut at = self.state;
        let mut depth = usize::from(self.depth);
        let closing = at == ScanState::EndTag && depth == 0;
        let limit = if closing { DECLARATION } else { limits.element_bytes as usize };
        let bytes = all.get(..limit).unwrap_or(all);
        let deepest = if self.fragment { usize::from(limits.depth) } else { limits.depth_max() };
        if depth > deepest {
            return Err(Error::TooDeep);
        }
        loop {
            match at {
                ScanState::Content => {
                    let Some(found) = find1(bytes, i, b'<') else {
                        i = bytes.len();
                        break;
                    };
                    i = found;
                    match bytes.get(i + 1) {
                        None => break,
                        Some(b'/') => {
                            i += 2;
                            at = ScanState::EndTag;
                        }
                        Some(b'!') => match cdata(bytes, i)? {
                            None => break,
                            Some(after) => {
                                i = after;
                                at = ScanState::Cdata;
                            }
                        },
                        Some(b'?') => return Err(Error::Restricted(Restriction::ProcessingInstruction)),
                        Some(&first) if !name::is_name_start_byte(first) => return Err(NO_NAME),
                        Some(_) => {
                            if depth == deepest {
                                return Err(Error::TooDeep);
                            }
                            depth += 1;
                            i += 1;
                            at = ScanState::Tag;
                        }
                    }
                }
                ScanState::Tag => {
                    let Some(found) = find3(bytes, i, [b'>', b'"', b'\'']) else {
                        i = bytes.len();
                        break;
                    };
                    i = found + 1;
                    match bytes[found] {
                        b'"' => at = ScanState::Double,
                        b'\'' => at = ScanState::Single,
                        _ => {
                            let empty = found > 0 && bytes[found - 1] == b'/';
                            if self.header {
                                self.opened(bytes, i, empty)?;
                                return Ok(ScanOutcome::Open { start, end: start + i });
                            }
                            depth -= usize::from(empty);
                            if depth == 0 {
                                return Ok(self.finished(start, i));
                            }
                            at = ScanState::Content;
                        }
                    }
                }
                ScanState::Single | ScanState::Double => {
                    let quote = if at == ScanState::Single { b'\'' } else { b'"' };
                    let Some(found) = find1(bytes, i, quote) else {
                        i = bytes.len();
                        break;
                    };
                    i = found + 1;
                    at = ScanState::Tag;
                }
                ScanState::EndTag => {
                    let Some(found) = find1(bytes, i, b'>') else {
                        i = bytes.len();
                        break;
                    };
                    i = found + 1;
                    if depth == 0 {
                        return self.closed(bytes, i).map(|()| ScanOutcome::Close { end: start + i });
                    }
                    depth -= 1;
                    if depth == 0 {
                        return Ok(self.finished(start, i));
                    }
                    at = ScanState::Content;
                }
                ScanState::Cdata => {
                    let Some(found) = find1(bytes, i, b'>') else {
                        i = bytes.len();
                        break;
                    };
                    i = found + 1;
                    if bytes.get(found - 2..found) == Some(b"]]") {
                        at = ScanState::Content;
                    }
                }
                // These states never reach this loop.
                ScanState::Document
                | ScanState::Prolog
                | ScanState::Between
                | ScanState::Closed
                | ScanState::Failed(_) => break,
            }
        }
        if all.len() > bytes.len() {
            return Err(Error::TooLarge);
        }
        self.state = at;
        self.depth = narrowing::depth_u8(depth);
        self.scanned = narrowing::offset_u32(i);
        Ok(ScanOutcome::More { skip: start })
    }

    fn finished(&mut self, start: usize, length: usize) -> ScanOutcome {
        self.state = ScanState::Between;
        self.depth = 0;
        self.scanned = 0;
        ScanOutcome::Element { start, end: start + length }
    }

    /// Stores the name of the stream element for its end tag.
    fn opened(&mut self, bytes: &[u8], end: usize, empty: bool) -> Result<(), Error> {
        if empty {
            return Err(Error::InvalidXml("the stream element is empty"));
        }
        let name = bytes.get(1..end).unwrap_or_default();
        let length = name.iter().position(|&b| b == b'>' || name::is_space(b)).unwrap_or(name.len());
        let room = self.name.get_mut(..length).ok_or(Error::NameTooLong)?;
        room.copy_from_slice(&name[..length]);
        self.name_len = narrowing::depth_u8(length);
        self.state = ScanState::Between;
        self.header = false;
        self.scanned = 0;
        Ok(())
    }

    /// Compares the end tag of the stream with its start tag.
    fn closed(&mut self, bytes: &[u8], end: usize) -> Result<(), Error> {
        let name = self.name.get(..usize::from(self.name_len)).unwrap_or_default();
        let rest = bytes.get(2..end - 1).and_then(|tag| tag.strip_prefix(name));
        if rest.is_none_or(|rest| spaces(rest) != rest.len()) {
            return Err(Error::NotWellFormed("the end tag does not match the stream element"));
        }
        self.state = ScanState::Closed;
        self.scanned = 0;
        Ok(())
    }

    /// Reads the XML declaration, if there is one. Returns its end, or `None` for more input.
    fn document(&mut self, input: &[u8]) -> Result<Option<usize>, Error> {
        const OPENING: &[u8] = b"<?xml";
        match input {
            [] => return Ok(None),
            // Byte order marks of UTF-16 and UTF-32, and ASCII in either.
            [0xFE | 0xFF | 0x00, ..] | [b'<', 0x00, ..] => return Err(Error::UnsupportedEncoding),
            // `<?xml-stylesheet` and the like are processing instructions.
            _ if input.starts_with(OPENING) => match input.get(OPENING.len()) {
                None => return Ok(None),
                Some(&b) if name::is_space(b) => {}
                Some(_) => return Err(Error::Restricted(Restriction::ProcessingInstruction)),
            },
            _ if OPENING.starts_with(input) => return Ok(None),
            [b'<', b'?', ..] => return Err(Error::Restricted(Restriction::ProcessingInstruction)),
            _ => {
                self.state = ScanState::Prolog;
                return Ok(Some(0));
            }
        }
        let window = input.get(..DECLARATION).unwrap_or(input);
        let Some(end) = memchr(b'>', window).map(|i| i + 1) else {
            return if input.len() > DECLARATION { Err(Error::TooLarge) } else { Ok(None) };
        };
        declaration(&input[OPENING.len()..end])?;
        self.state = ScanState::Prolog;
        Ok(Some(end))
    }
}

/// Length of the white space at the start.
fn spaces(bytes: &[u8]) -> usize {
    bytes.iter().position(|&b| !name::is_space(b)).unwrap_or(bytes.len())
}

/// XMLDecl without its first five bytes (XML 1.0, section 2.8; RFC 6120, sections 11.5 and 11.6).
fn declaration(bytes: &[u8]) -> Result<(), Error> {
    const BAD: Error = Error::NotWellFormed("a bad XML declaration");
    let mut rest = bytes.strip_suffix(b"?>").ok_or(BAD)?;
    let mut next = |wanted: &[u8]| -> Result<Option<&[u8]>, Error> {
        let space = spaces(rest);
        let Some(after) = rest[space..].strip_prefix(wanted) else { return Ok(None) };
        if space == 0 {
            return Err(BAD);
        }
        let after = after[spaces(after)..].strip_prefix(b"=").ok_or(BAD)?;
        let after = &after[spaces(after)..];
        let (&quote, after) = after.split_first().ok_or(BAD)?;
        if quote != b'"' && quote != b'\'' {
            return Err(BAD);
        }
        let length = memchr(quote, after).ok_or(BAD)?;
        rest = &after[length + 1..];
        Ok(Some(&after[..length]))
    };
    let version = next(b"version")?.ok_or(BAD)?;
    // XML 1.0 (fifth edition) accepts any 1.x; RFC 6120, section 11.7, covers 1.0 only.
    if version != b"1.0" {
        return Err(Error::InvalidXml("the version of XML is not 1.0"));
    }
    if next(b"encoding")?.is_some_and(|e| !e.eq_ignore_ascii_case(b"UTF-8")) {
        return Err(Error::UnsupportedEncoding);
    }
    // A standalone declaration is ignored, as section 11.5 allows.
    if next(b"standalone")?.is_some_and(|s| s != b"yes" && s != b"no") {
        return Err(BAD);
    }
    if spaces(rest) == rest.len() { Ok(()) } else { Err(BAD) }
}

/// The error for `<!` followed by this byte.
fn declaration_error(third: u8) -> Error {
    if third.is_ascii_uppercase() {
        Error::Restricted(Restriction::Doctype)
    } else {
        Error::NotWellFormed("bad markup after <!")
    }
}

/// At `<!` in content: the offset after `<![CDATA[`, or `None` for more input.
#[cold]
fn cdata(bytes: &[u8], at: usize) -> Result<Option<usize>, Error> {
    const OPENING: &[u8] = b"<![CDATA[";
    let rest = bytes.get(at..).unwrap_or_default();
    if rest.starts_with(OPENING) {
        return Ok(Some(at + OPENING.len()));
    }
    if OPENING.starts_with(rest) {
        return Ok(None);
    }
    Err(match rest.get(2) {
        Some(b'-') => Error::Restricted(Restriction::Comment),
        Some(b'[') | None => Error::NotWellFormed("a bad CDATA section"),
        Some(&third) => declaration_error(third),
    })
}
