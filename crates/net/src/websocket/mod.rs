//! WebSocket framing: RFC 7395 (XMPP over WebSocket) over RFC 6455 (WebSocket), with optional RFC 7692 (compression).
//!
//! A connection begins as HTTP. The HTTP server calls [`accept`] for the request, sends the response of
//! [`AcceptedHandshake`], and switches the stream with [`crate::Stream::set_websocket`]. From then on WebSocket is a
//! framing of the stream's bytes, like the endless document of TCP: the layers above receive the same events and queue
//! the same text. `inbound` converts frames to events, `outbound` text to frames; `frame` has the format of both.
//!
//! Closing: `</stream:stream>` becomes `<close/>`, and shutting the stream down sends the closing handshake, without
//! waiting for the client's half of either. A client's `Close` is answered immediately; a stream that was not closed
//! before counts as cut off, so a session with stream management can be resumed (RFC 7395, section 3.6).
//!
//! Not implemented: pings from the server. Browsers expose neither pings nor pongs to pages; the idle probe of the
//! stream layer works on all transports (RFC 7395, section 3.8 names both ways). Pings of the peer are answered.
//!
//! # Pitfalls
//!
//! `Origin` is not checked here. The HTTP server must check which pages may connect.

mod deflate;
mod frame;
mod handshake;
mod inbound;
mod outbound;
mod start_tag;

use inbound::{Inbound, InboundError, InboundEvent};
use outbound::Outbound;
use xml::Limits;

use crate::error::NetError;
use crate::scratch::Scratch;
use crate::stream::document_stream::ScanEvent;

pub use handshake::{
    AcceptedHandshake, Handshake, HttpVersion, RejectedHandshake, WebSocketSettings, accept,
};

/// Violation of RFC 6455 by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Close code (RFC 6455, section 7.4.1): 1002, 1003 or 1007.
    pub code: u16,
    /// The violated rule, in a few words.
    pub reason: &'static str,
}

impl Violation {
    pub(crate) const fn new(code: u16, reason: &'static str) -> Violation {
        Violation { code, reason }
    }

    pub(crate) const fn protocol(reason: &'static str) -> Violation {
        Violation { code: 1002, reason }
    }
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.reason)
    }
}

/// WebSocket framing of one stream.
pub(crate) struct WebSocket {
    inbound: Inbound,
    outbound: Outbound,
    /// URI that the client is redirected to.
    see_other_uri: Option<Box<str>>,
}

impl WebSocket {
    /// `queued` bytes of the output are not text: the handshake response.
    pub(crate) fn new(accepted: AcceptedHandshake, queued: u32) -> WebSocket {
        let compression = accepted.is_compressed();
        let settings = accepted.settings;
        WebSocket {
            inbound: Inbound::new(settings.message_bytes, compression),
            outbound: Outbound::new(compression, queued),
            see_other_uri: settings.see_other_uri.map(String::into_boxed_str),
        }
    }

    /// Next item in the lent input, which the stream holds. Responses to control frames go to the lent output.
    pub(crate) fn scan(
        &mut self,
        scratch: &mut Scratch,
        limits: &Limits,
    ) -> Result<Option<ScanEvent>, NetError> {
        loop {
            let step = match self.inbound.step(&mut scratch.input, &mut scratch.text, limits) {
                Ok(step) => step,
                Err(InboundError { error, code }) => {
                    self.outbound.set_code(code);
                    return Err(error);
                }
            };
            return Ok(Some(match step {
                InboundEvent::More => return Ok(None),
                InboundEvent::Ping(bytes, length) => {
                    self.encode(scratch)?;
                    let payload = bytes.get(..usize::from(length)).unwrap_or_default();
                    self.outbound.pong(payload, &mut scratch.output);
                    continue;
                }
                InboundEvent::Open if self.see_other_uri.is_some() => {
                    self.encode(scratch)?;
                    let uri = self.see_other_uri.as_deref().unwrap_or_default();
                    Outbound::see_other(uri, &mut scratch.output);
                    self.outbound.close(None, &mut scratch.output);
                    ScanEvent::Eof
                }
                InboundEvent::Open => ScanEvent::Rewritten(true),
                InboundEvent::Element { inflated: true, start, end } => {
                    scratch.text.truncate(end);
                    scratch.text.drain(..start);
                    ScanEvent::Rewritten(false)
                }
                InboundEvent::Element { start, end, .. } => ScanEvent::Element(start, end),
                InboundEvent::Close => ScanEvent::Close,
                InboundEvent::CloseFrame(code) => {
                    // Section 5.5.1: the reply echoes the received code; without one it is 1000, normal closure.
                    self.encode(scratch)?;
                    self.outbound.close(code, &mut scratch.output);
                    ScanEvent::Eof
                }
            }));
        }
    }

    /// Encodes queued text as frames.
    pub(crate) fn encode(&mut self, scratch: &mut Scratch) -> Result<(), NetError> {
        self.outbound.encode(&mut scratch.output, &mut scratch.text).map_err(NetError::from)
    }

    /// Queues the closing handshake after the pending output.
    pub(crate) fn queue_close(&mut self, scratch: &mut Scratch) -> Result<(), NetError> {
        self.encode(scratch)?;
        self.outbound.close(None, &mut scratch.output);
        Ok(())
    }

    /// Whether a response to a control frame is pending.
    pub(crate) fn is_urgent(&self) -> bool {
        self.outbound.is_urgent()
    }

    /// The urgent output has left.
    pub(crate) fn clear_urgent(&mut self) {
        self.outbound.clear_urgent();
    }

    /// Queued bytes outside of the lent output.
    pub(crate) fn waiting(&self) -> usize {
        self.outbound.waiting()
    }

    /// The lent output has left.
    pub(crate) fn sent(&mut self) {
        self.outbound.sent();
    }

    /// A new stream follows.
    pub(crate) fn restart(&mut self) {
        self.inbound.restart();
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_idle_websocket_costs_little_more_than_tcp() {
        assert!(size_of::<super::WebSocket>() <= 96, "{}", size_of::<super::WebSocket>());
    }
}
