//! Parser of a client's `<body/>`: attributes as values, payloads as items for the stream (XEP-0124, sections 6 and 7;
//! XEP-0206, section 2).
//!
//! `xml::Reader` reads the start tag, `xml::Scanner` splits the payloads; no tree is built. The inside of payloads is
//! validated where elements of all transports are.
//!
//! Not implemented: encodings other than UTF-8.
//!
//! # Pitfalls
//!
//! Payloads depend on the namespaces of the wrapper. The usual wrapper declares only its own, which stands for
//! `jabber:client` (XEP-0206, section 2), so the bytes pass unchanged; all others are rewritten by `xml::normalise`.

use std::borrow::Cow;
use std::sync::Arc;

use xml::{Attr, Limits, NamespaceContext, Ns, Reader, ScanOutcome, Scanner, StartTag};

/// Maximum request id (section 14.1): 2^53 - 1.
pub(super) const MAX_RID: u64 = 9_007_199_254_740_991;
/// Maximum bytes of the `content` attribute, which is sent to the client as `Content-Type`.
const MAX_CONTENT_TYPE_BYTES: usize = 128;
/// Maximum bytes of an XML declaration.
const MAX_DECLARATION_BYTES: usize = 256;

/// Reason for refusing a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoshRequestError {
    /// Invalid BOSH or XML.
    Malformed,
    /// A limit is exceeded.
    TooLarge,
}

impl From<xml::Error> for BoshRequestError {
    fn from(error: xml::Error) -> BoshRequestError {
        match error.kind() {
            xml::StreamErrorKind::PolicyViolation => BoshRequestError::TooLarge,
            _ => BoshRequestError::Malformed,
        }
    }
}

/// A request. Invalid numbers set `bad`.
pub(super) struct BoshRequest<'a> {
    /// The session; the inner option is empty if no session can have this identifier.
    pub(super) sid: Option<Option<u128>>,
    pub(super) rid: Option<u64>,
    pub(super) ack: Option<u64>,
    pub(super) pause: Option<u32>,
    pub(super) key: Option<&'a str>,
    pub(super) newkey: Option<&'a str>,
    pub(super) terminate: bool,
    pub(super) restart: bool,
    /// The payloads as items (see [`push_item`]); a restart has none. Empty until [`BoshRequest::read_payloads`].
    pub(super) items: Result<Vec<u8>, BoshRequestError>,
    tag: StartTag<'a>,
    /// What follows the start tag.
    rest: &'a [u8],
    /// All numbers are valid.
    is_sound: bool,
}

impl<'a> BoshRequest<'a> {
    /// Reads the start tag of a body.
    pub(super) fn read_head(body: &'a [u8], limits: &Limits) -> Result<BoshRequest<'a>, BoshRequestError> {
        let start = skip_declaration(body)?;
        // A longer tag is refused below, so the rest of the body is not searched.
        let most =
            start.saturating_add(usize::from(limits.start_tag_bytes)).saturating_add(1).min(body.len());
        let is_cut = most < body.len();
        let error = if is_cut { BoshRequestError::TooLarge } else { BoshRequestError::Malformed };
        let end = tag_end(&body[..most], start).ok_or(error)?;
        let tag = Reader::open_tag(&body[start..end], limits)?;
        if !tag.is("body", Ns::HttpBind) {
            return Err(BoshRequestError::Malformed);
        }
        let mut request = BoshRequest {
            sid: None,
            rid: None,
            ack: None,
            pause: None,
            key: None,
            newkey: None,
            terminate: false,
            restart: false,
            items: Ok(Vec::new()),
            tag,
            rest: &body[end..],
            is_sound: true,
        };
        for attr in request.tag.attrs() {
            if attr.prefix.is_some() {
                request.restart |=
                    attr.ns.id == Some(Ns::XBosh) && attr.name == "restart" && parse_boolean(attr.raw);
                continue;
            }
            match attr.name {
                "sid" => request.sid = Some(parse_sid(attr.raw)),
                "rid" => request.rid = parse_number(attr.raw).filter(|rid| (1..=MAX_RID).contains(rid)),
                "ack" => request.ack = parse_number(attr.raw),
                "pause" => {
                    let pause = parse_number(attr.raw).map(|n| u32::try_from(n).unwrap_or(u32::MAX));
                    request.is_sound &= pause.is_some();
                    request.pause = pause;
                }
                "key" => request.key = Some(attr.raw),
                "newkey" => request.newkey = Some(attr.raw),
                "type" => request.terminate = attr.raw == "terminate",
                _ => {}
            }
        }
        Ok(request)
    }

    /// Reads the payloads. Errors are stored in `items`, because the session must end. Payloads may take `most` bytes after they
    /// are rewritten without the wrapper's prefixes.
    pub(super) fn read_payloads(&mut self, limits: &Limits, most: usize) {
        self.items = if !self.is_sound {
            Err(BoshRequestError::Malformed)
        } else if self.tag.empty {
            if leading_whitespace(self.rest) == self.rest.len() {
                Ok(Vec::new())
            } else {
                Err(BoshRequestError::Malformed)
            }
        } else {
            parse_items(self.rest, &self.tag, limits, most)
        };
        if self.restart && self.items.is_ok() {
            // XEP-0206, section 5: payloads of a restart belong neither to the old stream nor to the new one.
            self.items = Ok(Vec::new());
        }
    }

    /// Whether the request only polls for a response.
    pub(super) fn is_empty(&self) -> bool {
        !self.restart && self.items.as_ref().is_ok_and(Vec::is_empty)
    }

    fn attr(&self, name: &str) -> Option<Attr<'a>> {
        self.tag.attr(name)
    }

    /// BOSH version; a client that does not send it expects HTTP errors (section 17.1).
    pub(super) fn version(&self) -> Option<(u32, u32)> {
        let attr = self.attr("ver")?;
        let (major, minor) = attr.raw.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }

    /// A numeric attribute of the session request; `None` if absent, an error if invalid.
    pub(super) fn number_attr(&self, name: &str) -> Result<Option<u64>, BoshRequestError> {
        match self.attr(name) {
            None => Ok(None),
            Some(attr) => parse_number(attr.raw).map(Some).ok_or(BoshRequestError::Malformed),
        }
    }

    pub(super) fn to(&self) -> Option<Cow<'a, str>> {
        self.attr("to").map(|attr| attr.value()).filter(|to| !to.is_empty())
    }

    /// `Content-Type` of all responses, if it is a valid header value.
    pub(super) fn content_type(&self) -> Result<Option<Arc<str>>, BoshRequestError> {
        let Some(attr) = self.attr("content") else { return Ok(None) };
        let value = attr.value();
        if value == super::BoshResponse::DEFAULT_CONTENT_TYPE || value.is_empty() {
            return Ok(None);
        }
        if !is_valid_content_type(&value) {
            return Err(BoshRequestError::Malformed);
        }
        Ok(Some(value.as_ref().into()))
    }

    /// The start tag of the stream that the client would open over TCP. `to` is used if the request has none.
    pub(super) fn stream_header(&self, to: Option<&str>) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(
            b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'",
        );
        let mut put = |name: &str, value: &str| {
            out.push(b' ');
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b"='");
            xml::escape::attr(value, &mut out);
            out.push(b'\'');
        };
        if let Some(to) = self.to().or_else(|| to.map(Cow::Borrowed)) {
            put("to", &to);
        }
        if let Some(from) = self.attr("from") {
            put("from", &from.value());
        }
        let version = self.tag.attrs().find(|a| a.name == "version" && a.ns.id == Some(Ns::XBosh));
        // Only legacy clients omit it, and they mean 1.0.
        put("version", &version.map_or(Cow::Borrowed("1.0"), |attr| attr.value()));
        if let Some(lang) = self.tag.lang() {
            put("xml:lang", &lang);
        }
        out.push(b'>');
        out
    }
}

/// Whether a text may be sent as `Content-Type`.
pub(super) fn is_valid_content_type(value: &str) -> bool {
    let printable = value.bytes().all(|b| matches!(b, b' '..=b'~'));
    printable && value.len() <= MAX_CONTENT_TYPE_BYTES && value.contains('/')
}

/// Kind of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadItem {
    /// Start tag of a stream.
    Open,
    /// An element.
    Element,
    /// End of the client's stream.
    Close,
}

/// Bytes before an item: its length, and its kind in the two highest bits.
pub(super) const ITEM_HEADER_BYTES: usize = 4;

/// Appends an item to those that the stream has not read. False, and nothing is appended, if it has 2^30 bytes or more,
/// which no body may have.
pub(super) fn push_item(items: &mut Vec<u8>, item: PayloadItem, bytes: &[u8]) -> bool {
    let Some(length) = u32::try_from(bytes.len()).ok().filter(|length| length >> 30 == 0) else {
        return false;
    };
    let word = (item as u32) << 30 | length;
    items.extend_from_slice(&word.to_le_bytes());
    items.extend_from_slice(bytes);
    true
}

/// Kind and length of the first item; its bytes follow after [`ITEM_HEADER_BYTES`].
pub(super) fn first_item(items: &[u8]) -> Option<(PayloadItem, usize)> {
    let word = u32::from_le_bytes(*items.first_chunk()?);
    let item = match word >> 30 {
        0 => PayloadItem::Open,
        1 => PayloadItem::Element,
        _ => PayloadItem::Close,
    };
    Some((item, (word & 0x3fff_ffff) as usize))
}

/// Splits the content of the wrapper.
///
/// # Pitfalls
///
/// A prefix of the wrapper may stand for kilobytes of namespace, and a body can hold tens of thousands of elements that
/// use it. So the sum is bounded, and each element by the rest of that sum.
fn parse_items(
    rest: &[u8],
    tag: &StartTag<'_>,
    limits: &Limits,
    most: usize,
) -> Result<Vec<u8>, BoshRequestError> {
    // Each element is limited where it is read: that limit depends on whether the client is authenticated by then.
    let limits = Limits { element_bytes: u32::MAX >> 2, ..*limits };
    let mut scanner = Scanner::fragment();
    let mut out = Vec::new();
    let mut scope = None;
    let mut portable = Vec::new();
    let mut at = 0;
    loop {
        at += leading_whitespace(&rest[at..]);
        let here = &rest[at..];
        if let Some(end) = here.strip_prefix(b"</") {
            return if is_wrapper_end(end, tag) { Ok(out) } else { Err(BoshRequestError::Malformed) };
        }
        let ScanOutcome::Element { start, end } = scanner.scan(here, &limits)? else {
            return Err(BoshRequestError::Malformed);
        };
        let element = &here[start..end];
        if out.is_empty() {
            out.reserve_exact(rest.len() - at);
            if needs_wrapper_namespaces(tag) {
                scope = Some(inner_scope(tag, &limits)?);
            }
        }
        let fits = match &scope {
            None => push_item(&mut out, PayloadItem::Element, element),
            Some(scope) => {
                let left = most.saturating_sub(out.len() + ITEM_HEADER_BYTES);
                let limits = Limits { element_bytes: u32::try_from(left).unwrap_or(u32::MAX >> 2), ..limits };
                portable.clear();
                xml::normalise(element, scope, &limits, &mut portable)?;
                push_item(&mut out, PayloadItem::Element, &portable)
            }
        };
        if !fits {
            return Err(xml::Error::TooLarge.into());
        }
        at += end;
    }
}

/// Whether payloads may have another meaning without their wrapper.
fn needs_wrapper_namespaces(tag: &StartTag<'_>) -> bool {
    tag.prefix.is_some()
        || tag.declarations().any(|d| match d.prefix {
            None => false,
            Some(_) => d.name != "stream" || d.value() != Ns::Stream.as_str(),
        })
}

/// Namespaces that a wrapper puts in scope for its payloads, with `jabber:client` in place of its own.
fn inner_scope(tag: &StartTag<'_>, limits: &Limits) -> Result<NamespaceContext, BoshRequestError> {
    let mut text = b"<s".to_vec();
    let mut put = |prefix: Option<&str>, value: &str| {
        text.extend_from_slice(b" xmlns");
        if let Some(prefix) = prefix {
            text.push(b':');
            text.extend_from_slice(prefix.as_bytes());
        }
        text.extend_from_slice(b"='");
        xml::escape::attr(value, &mut text);
        text.push(b'\'');
    };
    let mut default = None;
    for declared in tag.declarations() {
        match declared.prefix {
            None => default = Some(declared.value()),
            Some(_) => put(Some(declared.name), &declared.value()),
        }
    }
    let default = default.filter(|ns| ns != Ns::HttpBind.as_str());
    put(None, default.as_deref().unwrap_or(Ns::Client.as_str()));
    text.push(b'>');
    Ok(NamespaceContext::from_open_tag(&text, limits)?)
}

/// Whether these bytes, after `</`, end the wrapper and the document.
fn is_wrapper_end(bytes: &[u8], tag: &StartTag<'_>) -> bool {
    let prefix = tag.prefix.unwrap_or_default().as_bytes();
    let name = match bytes.strip_prefix(prefix) {
        Some(rest) if !prefix.is_empty() => rest.strip_prefix(b":"),
        other => other,
    };
    let Some(rest) = name.and_then(|rest| rest.strip_prefix(tag.name.as_bytes())) else { return false };
    let rest = &rest[leading_whitespace(rest)..];
    rest.strip_prefix(b">").is_some_and(|rest| leading_whitespace(rest) == rest.len())
}

/// Start of the document element: after white space or an XML declaration.
fn skip_declaration(body: &[u8]) -> Result<usize, BoshRequestError> {
    if let Some(rest) = body.strip_prefix(b"<?xml") {
        let window = &rest[..rest.len().min(MAX_DECLARATION_BYTES)];
        let end = window.windows(2).position(|pair| pair == b"?>").ok_or(BoshRequestError::Malformed)?;
        let after = b"<?xml".len() + end + 2;
        return Ok(after + leading_whitespace(&body[after..]));
    }
    Ok(leading_whitespace(body))
}

/// Position after the `>` of the tag that begins at `start`.
pub(super) fn tag_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut quote = 0;
    for (at, &byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            b'>' if quote == 0 => return Some(at + 1),
            b'\'' | b'"' if quote == 0 => quote = byte,
            _ if byte == quote => quote = 0,
            _ => {}
        }
    }
    None
}

pub(super) fn leading_whitespace(bytes: &[u8]) -> usize {
    bytes.iter().position(|b| !matches!(b, b' ' | b'\t' | b'\r' | b'\n')).unwrap_or(bytes.len())
}

fn parse_number(raw: &str) -> Option<u64> {
    if raw.is_empty() || raw.len() > 19 || !raw.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    raw.parse().ok()
}

fn parse_boolean(raw: &str) -> bool {
    matches!(raw, "true" | "1")
}

/// Parses 32 hexadecimal digits.
fn parse_sid(raw: &str) -> Option<u128> {
    let valid = raw.len() == 32 && raw.bytes().all(|b| b.is_ascii_hexdigit());
    if valid { u128::from_str_radix(raw, 16).ok() } else { None }
}
