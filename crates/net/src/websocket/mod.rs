//! WebSocket: RFC 7395 (XMPP over WebSocket) over RFC 6455 (WebSocket), with RFC 7692 (compression) where it is switched on.
//!
//! A connection begins as HTTP. Whoever serves that asks [`accept`] whether a request may become a WebSocket, answers as
//! [`Accepted`] says, and turns the stream with [`crate::Stream::set_websocket`]. From then on WebSocket is a framing of the
//! stream's bytes like the endless document of TCP: the layers above see the same events and queue the same text.
//!
//! Left out: pings of our own. Browsers show a page neither pings nor their answers; the engine's idle probe asks all
//! transports alike (RFC 7395 section 3.8 names both ways). Pings of the peer are answered.
//!
//! The trap: nothing here looks at `Origin`. Whoever serves HTTP knows which pages may speak to it.

mod handshake;

pub use handshake::{Accepted, Handshake, Rejected, Settings, Version, accept};
