//! Inbound half of a WebSocket, from frames to events: RFC 6455, sections 5 and 6.2; RFC 7395, sections 3.3 and 3.4.
//!
//! All work is done in place, in the lent input: `[message so far][gap][unread frames]`. A payload is unmasked as it
//! arrives and moved to the message so far; the gap is left by headers and control frames. Before more is read the gap
//! is closed, which moves only an unfinished header (at most 139 bytes, with a control frame's payload). So a message
//! in many small fragments costs no more than its bytes.
//!
//! One message is one element, parsable alone. `<open/>` becomes the start tag that TCP would carry, so that the layers
//! above read one kind of header. A declaration of `jabber:client` on an element is removed: that header declares it
//! for all elements, and a receiver on TCP does not need it. An element without it is understood in the same way. A
//! message of white space only is ignored, although section 3.8 forbids clients to send one.
//!
//! Not implemented: validation inside elements, which `xml::Reader` does for all transports.
//!
//! # Pitfalls
//!
//! After an error nothing here may be called again; `DocumentStream` ensures that.

use std::ops::Range;

use xml::{Event, Limits, NamespaceContext, Reader, ScanOutcome, Scanner};

use crate::error::NetError;
use crate::scratch::InputBuffer;
use crate::websocket::deflate::{self, inflate};
use crate::websocket::frame::{self, CLOSE, CONTINUATION, Header, MAX_CONTROL_BYTES, PING, TEXT};
use crate::websocket::{Violation, start_tag};

/// Next event in the input.
pub(crate) enum InboundEvent {
    /// More bytes are needed.
    More,
    /// Start tag of the stream, in the lent text.
    Open,
    /// An element: in the input or, if it was compressed, in the lent text.
    Element { start: usize, end: usize, inflated: bool },
    /// `<close/>`
    Close,
    /// A ping, to be answered with the same payload.
    Ping([u8; MAX_CONTROL_BYTES], u8),
    /// Closing handshake of the peer, with its code.
    CloseFrame(Option<u16>),
}

/// Error that ends the stream, with the close code.
pub(crate) struct InboundError {
    pub(crate) error: NetError,
    pub(crate) code: u16,
}

impl From<Violation> for InboundError {
    fn from(violation: Violation) -> InboundError {
        InboundError { code: violation.code, error: NetError::WebSocket(violation) }
    }
}

impl From<xml::Error> for InboundError {
    fn from(error: xml::Error) -> InboundError {
        let code = match error {
            xml::Error::TooLarge => 1009,
            xml::Error::BadUtf8 => 1007,
            // An XML error, not one of WebSocket: the stream error is more specific than a code.
            _ => 1000,
        };
        InboundError { code, error: NetError::Xml(error) }
    }
}

/// The payload of a data frame is arriving.
const FRAME: u8 = 1;
/// That frame is the last of its message.
const LAST: u8 = 2;
/// A message has begun.
const MESSAGE: u8 = 4;
/// The message is compressed.
const DEFLATED: u8 = 8;
/// `<open/>` was read.
const OPENED: u8 = 16;
/// `<close/>` was read: further messages are dropped.
const CLOSED: u8 = 32;
/// Compression was negotiated.
const COMPRESSION: u8 = 64;

/// Inbound half of a WebSocket.
pub(crate) struct Inbound {
    /// Maximum size of a message in bytes.
    limit: u32,
    /// Missing bytes of the current frame's payload.
    remaining: u32,
    /// Bytes of the message so far.
    message_bytes: u32,
    /// Size of the gap after the message so far.
    dead_bytes: u32,
    /// Masking key, rotated to the next byte.
    key: [u8; 4],
    flags: u8,
}

/// Kind of a whole message.
enum MessageContent {
    Nothing,
    Open(Vec<u8>),
    Element(Range<usize>),
    Close,
}

impl Inbound {
    pub(crate) fn new(limit: u32, compression: bool) -> Inbound {
        let state = if compression { COMPRESSION } else { 0 };
        Inbound { limit, remaining: 0, message_bytes: 0, dead_bytes: 0, key: [0; 4], flags: state }
    }

    fn has_flag(&self, state: u8) -> bool {
        self.flags & state != 0
    }

    /// A new stream follows (RFC 7395, section 3.7).
    pub(crate) fn restart(&mut self) {
        self.flags &= !(OPENED | CLOSED);
    }

    /// Processes received bytes. Must be called until it returns `More`.
    pub(crate) fn step(
        &mut self,
        input: &mut InputBuffer,
        text: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<InboundEvent, InboundError> {
        loop {
            if self.has_flag(FRAME) {
                self.take_payload(input);
                if self.remaining > 0 {
                    self.close_gap(input);
                    return Ok(InboundEvent::More);
                }
                self.flags &= !FRAME;
                if self.has_flag(LAST) {
                    if let Some(step) = self.take_message(input, text, limits)? {
                        return Ok(step);
                    }
                    continue;
                }
            }
            let done = self.message_bytes as usize + self.dead_bytes as usize;
            let raw = input.data().get(done..).unwrap_or_default();
            let header = Header::read(raw)?;
            let Some(header) = header else {
                self.close_gap(input);
                return Ok(InboundEvent::More);
            };
            if header.opcode < CLOSE {
                self.begin_frame(&header, limits)?;
                self.skip(header.size, input);
                continue;
            }
            // At most 125, as `Header::read` has checked.
            let length = u8::try_from(header.length)
                .map_err(|_| Violation::protocol("a control frame is longer than 125 bytes"))?;
            let end = header.size + usize::from(length);
            let Some(sent) = raw.get(header.size..end) else {
                self.close_gap(input);
                return Ok(InboundEvent::More);
            };
            let mut bytes = [0; MAX_CONTROL_BYTES];
            let payload = bytes.get_mut(..sent.len()).unwrap_or_default();
            payload.copy_from_slice(sent);
            frame::apply_mask(payload, header.key);
            let step = match header.opcode {
                CLOSE => Some(InboundEvent::CloseFrame(frame::parse_close_code(payload)?)),
                PING => Some(InboundEvent::Ping(bytes, length)),
                // Unsolicited pongs are permitted (RFC 6455, section 5.5.3).
                _ => None,
            };
            self.skip(end, input);
            if let Some(step) = step {
                return Ok(step);
            }
        }
    }

    /// Skips bytes after the message so far that are no longer needed.
    fn skip(&mut self, count: usize, input: &mut InputBuffer) {
        if self.message_bytes == 0 {
            input.consume(count);
        } else {
            // Below the size of a buffer; a read is at most 64 kB.
            self.dead_bytes = self.dead_bytes.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        }
    }

    /// Checks the header of a data frame against the frames before it and the limit.
    fn begin_frame(&mut self, header: &Header, limits: &Limits) -> Result<(), InboundError> {
        match (header.opcode == CONTINUATION, self.has_flag(MESSAGE)) {
            (true, false) => {
                return Err(Violation::protocol("a continuation frame without a message to continue").into());
            }
            (false, true) => {
                return Err(
                    Violation::protocol("a message begins before the previous one is complete").into()
                );
            }
            _ => {}
        }
        debug_assert!(matches!(header.opcode, CONTINUATION | TEXT), "others were refused");
        if header.compressed && !self.has_flag(COMPRESSION) {
            return Err(
                Violation::protocol("a message is compressed, but compression was not negotiated").into()
            );
        }
        let room = self.limit.min(limits.element_bytes) - self.message_bytes.min(self.limit);
        let length = u32::try_from(header.length).ok().filter(|length| *length <= room);
        self.remaining = length.ok_or(xml::Error::TooLarge)?;
        self.key = header.key;
        self.flags = self.flags & !LAST | FRAME | MESSAGE;
        self.flags |= if header.fin { LAST } else { 0 } | if header.compressed { DEFLATED } else { 0 };
        Ok(())
    }

    /// Unmasks received payload bytes and moves them to the message so far.
    fn take_payload(&mut self, input: &mut InputBuffer) {
        let (to, from) = (self.message_bytes as usize, (self.message_bytes + self.dead_bytes) as usize);
        let data = input.data_mut();
        let arrived = u32::try_from(data.len().saturating_sub(from)).unwrap_or(u32::MAX).min(self.remaining);
        let count = arrived as usize;
        if self.dead_bytes > 0 {
            data.copy_within(from..from + count, to);
        }
        frame::apply_mask(data.get_mut(to..to + count).unwrap_or_default(), self.key);
        self.key = frame::rotate_key(self.key, count);
        self.message_bytes += arrived;
        self.remaining -= arrived;
    }

    fn close_gap(&mut self, input: &mut InputBuffer) {
        input.remove(self.message_bytes as usize, self.dead_bytes as usize);
        self.dead_bytes = 0;
    }

    /// Handles a whole message. It is consumed, but its bytes stay in place until the next read.
    fn take_message(
        &mut self,
        input: &mut InputBuffer,
        text: &mut Vec<u8>,
        limits: &Limits,
    ) -> Result<Option<InboundEvent>, InboundError> {
        let length = self.message_bytes as usize;
        let inflated = self.has_flag(DEFLATED);
        let at = if inflated { 0 } else { input.position() };
        let judged = if self.has_flag(CLOSED) {
            MessageContent::Nothing
        } else if inflated {
            let limit = self.limit.min(limits.element_bytes) as usize;
            inflate(input.data().get(..length).unwrap_or_default(), limit, text).map_err(
                |fault| match fault {
                    deflate::InflateError::TooLarge => InboundError::from(xml::Error::TooLarge),
                    deflate::InflateError::Malformed => {
                        Violation::new(1007, "a compressed message cannot be decompressed").into()
                    }
                },
            )?;
            self.parse_message(text, limits)?
        } else {
            self.parse_message(input.data_mut().get_mut(..length).unwrap_or_default(), limits)?
        };
        input.consume(length + self.dead_bytes as usize);
        (self.message_bytes, self.dead_bytes) = (0, 0);
        self.flags &= !(MESSAGE | DEFLATED | LAST);
        Ok(match judged {
            MessageContent::Nothing => None,
            MessageContent::Open(tag) => {
                self.flags |= OPENED;
                text.clear();
                text.extend_from_slice(&tag);
                Some(InboundEvent::Open)
            }
            MessageContent::Element(range) => {
                Some(InboundEvent::Element { start: at + range.start, end: at + range.end, inflated })
            }
            MessageContent::Close => {
                self.flags |= CLOSED;
                Some(InboundEvent::Close)
            }
        })
    }

    /// One message, one document, one element (RFC 7395, section 3.3.3).
    fn parse_message(&self, message: &mut [u8], limits: &Limits) -> Result<MessageContent, InboundError> {
        if std::str::from_utf8(message).is_err() {
            return Err(xml::Error::BadUtf8.into());
        }
        if message.trim_ascii().is_empty() {
            return Ok(MessageContent::Nothing);
        }
        if message.first() != Some(&b'<') {
            return Err(xml::Error::NotWellFormed("a message does not begin with <").into());
        }
        let (start, end) = match Scanner::standalone().scan(message, limits)? {
            ScanOutcome::Element { start, end } => (start, end),
            _ => {
                return Err(xml::Error::NotWellFormed("a message does not contain a complete element").into());
            }
        };
        if !message.get(end..).unwrap_or_default().trim_ascii().is_empty() {
            return Err(xml::Error::NotWellFormed("a message contains more than one element").into());
        }
        let element = message.get(start..end).unwrap_or_default();
        let name = element.get(1..start_tag::name_end(element)).unwrap_or_default();
        let local = name.rsplit(|&byte| byte == b':').next().unwrap_or_default();
        if !self.has_flag(OPENED) {
            return match local {
                b"open" => Ok(MessageContent::Open(stream_start_tag(element, limits)?)),
                // Before `<open/>` only the connection can be closed.
                b"close" if is_framing_element(element, limits)? => Ok(MessageContent::Close),
                _ => Err(xml::Error::InvalidXml("the first message is not <open/>").into()),
            };
        }
        match local {
            b"open" if is_framing_element(element, limits)? => {
                return Err(xml::Error::InvalidXml("<open/> was sent again without a stream restart").into());
            }
            b"close" if is_framing_element(element, limits)? => return Ok(MessageContent::Close),
            _ => {}
        }
        let Some(cut) = start_tag::redundant_declaration(element) else {
            return Ok(MessageContent::Element(start..end));
        };
        // The bytes before the declaration are fewer than those after it.
        message.copy_within(start..start + cut.start, start + cut.len());
        Ok(MessageContent::Element(start + cut.len()..end))
    }
}

fn start_tag(element: &[u8]) -> &[u8] {
    start_tag::attributes(element).tag_end().and_then(|end| element.get(..end)).unwrap_or(element)
}

/// Whether an element is in the namespace of `<open/>` and `<close/>`.
fn is_framing_element(element: &[u8], limits: &Limits) -> Result<bool, xml::Error> {
    let framed = Reader::open_tag(start_tag(element), limits)?.ns.name() == start_tag::FRAMING;
    if framed {
        require_empty(element, limits)?;
    }
    Ok(framed)
}

/// `<open/>` and `<close/>` must be empty (RFC 7395, appendix A); no later layer validates them.
fn require_empty(element: &[u8], limits: &Limits) -> Result<(), xml::Error> {
    let scope = NamespaceContext::empty();
    let mut reader = Reader::new(element, &scope, limits)?;
    let mut elements = 0_usize;
    while let Some(event) = reader.next()? {
        let content = match event {
            Event::Start(_) => {
                elements += 1;
                elements > 1
            }
            Event::Text(text) => !text.unescape().trim_ascii().is_empty(),
            Event::End => false,
        };
        if content {
            return Err(xml::Error::InvalidXml("<open/> and <close/> must be empty"));
        }
    }
    Ok(())
}

/// Start tag that TCP would carry (RFC 7395, section 3.3.2: the same attributes with the same meaning). A wrong
/// namespace yields a tag that is refused with `invalid-namespace`, as section 3.3.2 requires.
fn stream_start_tag(element: &[u8], limits: &Limits) -> Result<Vec<u8>, xml::Error> {
    let start = Reader::open_tag(start_tag(element), limits)?;
    let ns = start.ns.name();
    // Attributes of any other element belong to its namespace.
    if ns == start_tag::FRAMING {
        require_empty(element, limits)?;
    }
    let mut out = Vec::with_capacity(element.len() + 96);
    out.extend_from_slice(b"<stream:stream");
    for attr in start.attrs() {
        match attr.prefix {
            None => {}
            Some("xml") if attr.name == "lang" => {}
            Some(_) => continue,
        }
        out.push(b' ');
        if attr.prefix.is_some() {
            out.extend_from_slice(b"xml:");
        }
        out.extend_from_slice(attr.name.as_bytes());
        out.extend_from_slice(b"='");
        xml::escape::attr(&attr.value(), &mut out);
        out.push(b'\'');
    }
    out.extend_from_slice(b" xmlns='");
    if ns == start_tag::FRAMING {
        out.extend_from_slice(b"jabber:client");
    } else {
        xml::escape::attr(&ns, &mut out);
    }
    out.extend_from_slice(b"' xmlns:stream='http://etherx.jabber.org/streams'>");
    Ok(out)
}
