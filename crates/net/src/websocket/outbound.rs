//! Outbound half of a WebSocket, from the text of an XML document to frames: RFC 7395, sections 3.3 to 3.6.
//!
//! The layers above queue the same text for all transports: `<?xml?><stream:stream …>`, elements, `</stream:stream>`.
//! It is split here when it is sent: the header becomes `<open/>`, the end `<close/>`, and each element one message
//! with the declarations of the header. A message is compressed if that was negotiated and pays off.
//!
//! Not implemented: fragmentation; a message is one frame.
//!
//! # Pitfalls
//!
//! Text may arrive in parts, and an incomplete element waits in `unfinished` for the rest. Everything else waits in the
//! lent output, of which a part may be frames already.

use std::cell::RefCell;

use xml::{Limits, ScanOutcome, Scanner};

use crate::scratch;
use crate::websocket::deflate::{MIN_DEFLATE_BYTES, deflate};
use crate::websocket::frame::{self, CLOSE, PONG, TEXT};
use crate::websocket::start_tag;

const CLOSE_TAG: &[u8] = b"</stream:stream>";
const HEADER: &[u8] = b"<stream:stream";
const DECLARATION: &[u8] = b"<?xml";
const DEFAULT_NAMESPACE: &[u8] = b" xmlns='jabber:client'";
const STREAM_NAMESPACE: &[u8] = b" xmlns:stream='http://etherx.jabber.org/streams'";
/// The server's own output is not limited: a stanza that was admitted may have been wrapped several times.
const OUTPUT_LIMITS: Limits = Limits { element_bytes: u32::MAX, depth: u8::MAX, ..Limits::DEFAULT };

thread_local! {
    static DEFLATED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Outbound half of a WebSocket.
pub(crate) struct Outbound {
    /// Text of an incomplete element.
    unfinished: Vec<u8>,
    /// Bytes of the output that are frames.
    framed: u32,
    /// Position of the last pong, if nothing follows it; 0 for none.
    pong: u32,
    /// Close code.
    code: u16,
    compression: bool,
    /// The closing handshake was queued: nothing may follow.
    ended: bool,
    /// Output is pending that the layers above do not know of.
    urgent: bool,
}

impl Outbound {
    /// `framed` bytes of the output are not text.
    pub(crate) fn new(compression: bool, framed: u32) -> Outbound {
        Outbound {
            unfinished: Vec::new(),
            framed,
            pong: 0,
            code: 1000,
            compression,
            ended: false,
            urgent: false,
        }
    }

    /// Bytes of text outside of the output.
    pub(crate) fn waiting(&self) -> usize {
        self.unfinished.len()
    }

    /// Whether output should be sent without a request of the layers above.
    pub(crate) fn is_urgent(&self) -> bool {
        self.urgent
    }

    /// Sets the close code.
    pub(crate) fn set_code(&mut self, code: u16) {
        self.code = code;
    }

    /// The output was sent or stashed.
    pub(crate) fn sent(&mut self) {
        (self.framed, self.pong) = (0, 0);
    }

    /// The urgent output has left.
    pub(crate) fn clear_urgent(&mut self) {
        self.urgent = false;
    }

    /// Encodes the text in the output as frames. `spare` is working space.
    pub(crate) fn encode(&mut self, output: &mut Vec<u8>, spare: &mut Vec<u8>) -> Result<(), xml::Error> {
        let framed = self.framed as usize;
        if output.len() <= framed {
            return Ok(());
        }
        if self.ended {
            output.truncate(framed);
            return Ok(());
        }
        self.pong = 0;
        spare.clear();
        let fresh = output.get(framed..).unwrap_or_default();
        let done = if self.unfinished.is_empty() {
            let used = self.frame_complete(fresh, spare);
            if let Ok(used) = used {
                self.unfinished = fresh.get(used..).unwrap_or_default().to_vec();
            }
            used
        } else {
            let mut whole = std::mem::take(&mut self.unfinished);
            whole.extend_from_slice(fresh);
            let used = self.frame_complete(&whole, spare);
            if let Ok(used) = used {
                whole.drain(..used);
                self.unfinished = whole;
            }
            used
        };
        if framed == 0 {
            std::mem::swap(output, spare);
        } else {
            output.truncate(framed);
            output.extend_from_slice(spare);
        }
        // The listener's limit of unsent bytes is a u32.
        self.framed = scratch::len_u32(output);
        done.map(drop)
    }

    /// Answers a ping. Only the last one of several needs an answer (RFC 6455, section 5.5.3).
    pub(crate) fn pong(&mut self, payload: &[u8], output: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        if self.pong != 0 {
            output.truncate(self.pong as usize - 1);
        }
        self.pong = scratch::len_u32(output).saturating_add(1);
        frame::write_header(PONG, false, payload.len(), output);
        output.extend_from_slice(payload);
        self.framed = scratch::len_u32(output);
        self.urgent = true;
    }

    /// Queues the closing handshake, by default with the code set before.
    pub(crate) fn close(&mut self, code: Option<u16>, output: &mut Vec<u8>) {
        if self.ended {
            return;
        }
        frame::write_header(CLOSE, false, 2, output);
        output.extend_from_slice(&code.unwrap_or(self.code).to_be_bytes());
        self.framed = scratch::len_u32(output);
        (self.ended, self.urgent) = (true, true);
        self.unfinished = Vec::new();
    }

    /// Redirects the client (RFC 7395, section 3.6.1).
    pub(crate) fn see_other(uri: &str, output: &mut Vec<u8>) {
        let mut text = format!("<close xmlns='{}' see-other-uri='", start_tag::FRAMING).into_bytes();
        xml::escape::attr(uri, &mut text);
        text.extend_from_slice(b"'/>");
        frame::write_header(TEXT, false, text.len(), output);
        output.extend_from_slice(&text);
    }

    /// Writes frames for all complete items; returns the number of text bytes that they cover.
    fn frame_complete(&mut self, text: &[u8], out: &mut Vec<u8>) -> Result<usize, xml::Error> {
        let mut at = 0;
        loop {
            let rest = text.get(at..).unwrap_or_default();
            let rest = rest.trim_ascii_start();
            at = text.len() - rest.len();
            if rest.is_empty() {
                return Ok(at);
            }
            // An incomplete prefix of one of them.
            if [DECLARATION, HEADER, CLOSE_TAG]
                .iter()
                .any(|whole| rest.len() < whole.len() && whole.starts_with(rest))
            {
                return Ok(at);
            }
            if rest.starts_with(DECLARATION) {
                let Some(end) = rest.windows(2).position(|pair| pair == b"?>") else { return Ok(at) };
                at += end + 2;
            } else if rest.starts_with(CLOSE_TAG) {
                self.message([b"<close xmlns='", start_tag::FRAMING.as_bytes(), b"'/>"], out);
                at += CLOSE_TAG.len();
            } else if start_tag::name_end(rest) == HEADER.len() && rest.starts_with(HEADER) {
                let Some(end) = start_tag::attributes(rest).tag_end() else { return Ok(at) };
                self.open(rest, out);
                at += end;
            } else {
                match Scanner::fragment().scan(rest, &OUTPUT_LIMITS)? {
                    ScanOutcome::Element { start, end } => {
                        self.element(rest.get(start..end).unwrap_or_default(), out);
                        at += end;
                    }
                    _ => return Ok(at),
                }
            }
        }
    }

    /// `<stream:stream …>` as `<open …/>`: the same attributes, and the one declaration that it needs.
    fn open(&mut self, header: &[u8], out: &mut Vec<u8>) {
        let mut attributes = Vec::with_capacity(256);
        for attribute in start_tag::attributes(header) {
            if attribute.name != b"xmlns" && !attribute.name.starts_with(b"xmlns:") {
                attributes.extend_from_slice(header.get(attribute.whole).unwrap_or_default());
            }
        }
        attributes.extend_from_slice(b"/>");
        self.message([b"<open xmlns='urn:ietf:params:xml:ns:xmpp-framing'", &attributes, b""], out);
    }

    /// One element, with the declarations of the stream header on TCP (RFC 7395, section 3.3.3).
    fn element(&mut self, element: &[u8], out: &mut Vec<u8>) {
        let name_end = start_tag::name_end(element);
        let (name, rest) = element.split_at(name_end);
        let (wanted, declaration) = if name.starts_with(b"<stream:") {
            self.note_stream_error(element);
            (&b"xmlns:stream"[..], STREAM_NAMESPACE)
        } else {
            (&b"xmlns"[..], DEFAULT_NAMESPACE)
        };
        let declared = start_tag::attributes(element).any(|attribute| attribute.name == wanted);
        self.message([name, if declared { b"" } else { declaration }, rest], out);
    }

    /// A stream error determines the close code (RFC 6455, section 7.4.1), unless WebSocket was violated.
    fn note_stream_error(&mut self, element: &[u8]) {
        if self.code == 1000 && element.starts_with(b"<stream:error") {
            let says = |name: &[u8]| element.windows(name.len()).any(|window| window == name);
            self.code = if says(b"<system-shutdown ") {
                1001
            } else if says(b"<policy-violation ") {
                1008
            } else if says(b"<internal-server-error ") {
                1011
            } else {
                1000
            };
        }
    }

    /// One message in one frame.
    fn message(&mut self, parts: [&[u8]; 3], out: &mut Vec<u8>) {
        let length = parts.iter().map(|part| part.len()).sum();
        if self.compression && length >= MIN_DEFLATE_BYTES {
            let done = DEFLATED.with_borrow_mut(|made| {
                made.clear();
                let good = deflate(parts, made) && made.len() < length;
                if good {
                    frame::write_header(TEXT, true, made.len(), out);
                    out.extend_from_slice(made);
                }
                scratch::clear_and_shrink(made);
                good
            });
            if done {
                return;
            }
        }
        frame::write_header(TEXT, false, length, out);
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }
}
