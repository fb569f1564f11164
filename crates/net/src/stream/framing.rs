//! Framing: how the bytes of a connection are split into events for the layer above.
//!
//! TCP, TLS and memory carry bytes. Framing is independent of them: an endless XML document (RFC 6120, section 4.2);
//! HTTP, whose server splits the bytes itself until the connection becomes a stream; or a WebSocket (RFC 7395).
//!
//! # Pitfalls
//!
//! Output is always the text of an XML document, whole elements at a time. A framing that needs their boundaries finds
//! them only when the output is flushed or the buffers are released.

use xml::Scanner;

use crate::websocket::WebSocket;

/// Framing of the bytes.
pub(crate) enum Framing {
    /// One endless document.
    Xml(Scanner),
    /// Raw bytes; the owner frames them and waits until more than this number are buffered.
    Raw(usize),
    /// One document per message.
    WebSocket(Box<WebSocket>),
}
