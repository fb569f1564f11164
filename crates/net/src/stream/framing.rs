//! How the bytes of a connection are cut into what the layer above sees.
//!
//! TCP, TLS and memory carry bytes; what the bytes mean is a matter of its own: an endless XML document (RFC 6120 section
//! 4.2), or HTTP, which whoever serves it cuts itself until the connection turns into a stream, or a WebSocket (RFC 7395).
//!
//! The trap: output is always the text of an XML document, whole elements at a time; a framing that needs their boundaries
//! finds them when the output is flushed or parked, and not before.

use crate::websocket::WebSocket;
use xml::Scanner;

/// What the bytes are.
pub(crate) enum Framing {
    /// One document.
    Xml(Scanner),
    /// Bytes for somebody who cuts them himself; he waits for more than so many.
    Raw(usize),
    /// One document in each message.
    WebSocket(Box<WebSocket>),
}
