//! WebSocket: RFC 7395 (XMPP over WebSocket) over RFC 6455 (WebSocket), with RFC 7692 (compression) where it is switched on.
//!
//! A connection begins as HTTP. Whoever serves that asks [`accept`] whether a request may become a WebSocket, answers as
//! [`Accepted`] says, and turns the stream with [`crate::Stream::set_websocket`]. From then on WebSocket is a framing of the
//! stream's bytes like the endless document of TCP: the layers above see the same events and queue the same text.
//! `inbound` makes events of frames, `outbound` frames of text, `frame` knows the bytes of both.
//!
//! The end: `</stream:stream>` becomes `<close/>`, and shutting the stream down says the closing handshake, without waiting
//! for the client's half of either. A client that says `Close` gets its answer at once, and what it had not closed before is
//! cut: a session with stream management can be resumed (RFC 7395 section 3.6).
//!
//! Left out: pings of our own. Browsers show a page neither pings nor their answers; the engine's idle probe asks all
//! transports alike (RFC 7395 section 3.8 names both ways). Pings of the peer are answered.
//!
//! The trap: nothing here looks at `RequestSource`. Whoever serves HTTP knows which pages may speak to it.

mod deflate;
mod frame;
mod handshake;
mod inbound;
mod outbound;
mod start_tag;

pub use handshake::{
    AcceptedHandshake, Handshake, HttpVersion, RejectedHandshake, WebSocketSettings, accept,
};

use crate::error::NetError;
use crate::scratch::Scratch;
use crate::stream::document_stream::ScanEvent;
use inbound::{Inbound, InboundError, InboundEvent};
use outbound::Outbound;
use xml::Limits;

/// A rule of RFC 6455 that a client broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// What the connection is closed with (RFC 6455 section 7.4.1): 1002, 1003 or 1007.
    pub code: u16,
    /// Which rule, in a few words.
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

/// The framing of one stream.
pub(crate) struct WebSocket {
    inbound: Inbound,
    outbound: Outbound,
    /// Where the client is sent instead.
    see_other_uri: Option<Box<str>>,
}

impl WebSocket {
    /// `queued` bytes of the output are no text: the answer to the handshake.
    pub(crate) fn new(accepted: AcceptedHandshake, queued: u32) -> WebSocket {
        let compression = accepted.is_compressed();
        let settings = accepted.settings;
        WebSocket {
            inbound: Inbound::new(settings.message_bytes, compression),
            outbound: Outbound::new(compression, queued),
            see_other_uri: settings.see_other_uri.map(String::into_boxed_str),
        }
    }

    /// The next thing in the lent input, which the stream holds. Answers to control frames go to the lent output.
    pub(crate) fn scan(
        &mut self,
        lent: &mut Scratch,
        limits: &Limits,
    ) -> Result<Option<ScanEvent>, NetError> {
        loop {
            let step = match self.inbound.step(&mut lent.input, &mut lent.text, limits) {
                Ok(step) => step,
                Err(InboundError { error, code }) => {
                    self.outbound.set_code(code);
                    return Err(error);
                }
            };
            return Ok(Some(match step {
                InboundEvent::More => return Ok(None),
                InboundEvent::Ping(bytes, length) => {
                    self.encode(lent)?;
                    let payload = bytes.get(..usize::from(length)).unwrap_or_default();
                    self.outbound.pong(payload, &mut lent.output);
                    continue;
                }
                InboundEvent::Open if self.see_other_uri.is_some() => {
                    self.encode(lent)?;
                    let uri = self.see_other_uri.as_deref().unwrap_or_default();
                    Outbound::see_other(uri, &mut lent.output);
                    self.outbound.close(None, &mut lent.output);
                    ScanEvent::Eof
                }
                InboundEvent::Open => ScanEvent::Rewritten(true),
                InboundEvent::Element { inflated: true, start, end } => {
                    lent.text.truncate(end);
                    lent.text.drain(..start);
                    ScanEvent::Rewritten(false)
                }
                InboundEvent::Element { start, end, .. } => ScanEvent::Element(start, end),
                InboundEvent::Close => ScanEvent::Close,
                InboundEvent::CloseFrame(code) => {
                    // Section 5.5.1: the answer has the code that came; without one it has that of a normal end.
                    self.encode(lent)?;
                    self.outbound.close(code, &mut lent.output);
                    ScanEvent::Eof
                }
            }));
        }
    }

    /// Turns what is queued into frames.
    pub(crate) fn encode(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        self.outbound.encode(&mut lent.output, &mut lent.text).map_err(NetError::from)
    }

    /// Says the closing handshake behind what is queued.
    pub(crate) fn queue_close(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        self.encode(lent)?;
        self.outbound.close(None, &mut lent.output);
        Ok(())
    }

    /// Whether the closing handshake was said.
    pub(crate) fn is_ended(&self) -> bool {
        self.outbound.is_ended()
    }

    /// Whether an answer to a control frame waits.
    pub(crate) fn is_urgent(&self) -> bool {
        self.outbound.is_urgent()
    }

    /// It does no more.
    pub(crate) fn clear_urgent(&mut self) {
        self.outbound.clear_urgent();
    }

    /// Queued bytes that are not in the lent output.
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
mod size {
    #[test]
    fn an_idle_websocket_costs_little_more_than_tcp() {
        assert!(size_of::<super::WebSocket>() <= 96, "{}", size_of::<super::WebSocket>());
    }
}
