//! HTTP/1.1 for BOSH and WebSocket: RFC 9110, RFC 9112, over any [`Stream`]; everything else is handed on.
//!
//! A [`HttpConnection`] is one future for a connection of a listener. It owns no buffer while it waits, so a BOSH session with its
//! held request costs little more than its socket. What it does not know itself (other paths, HTTP/2) it gives away with
//! every byte that was read: [`HttpHandler::passthrough`] puts [`Bytes`] under a library of HTTP.
//!
//! | File | What |
//! | --- | --- |
//! | `head` | the head of a request, and what makes it a risk |
//! | `look` | what a head asks for |
//! | `body` | lengths and chunks |
//! | `forwarded` | the client behind a proxy |
//! | `origins` | which web pages may come |
//! | `reply` | answers, gzip |
//! | `alarms` | deadlines, one sweep a second |
//! | `connection` | the future |
//! | `bytes` | a stream for a library |
//!
//! The trap: what comes in here may come through the library too, on a connection that began with a page. Whoever changes a
//! rule changes it for both.

mod async_io;
mod body;
mod classify;
mod connection;
#[cfg(test)]
mod connection_tests;
mod deadlines;
mod forwarded;
mod handler;
#[cfg(test)]
mod harness;
mod head;
mod origins;
mod response;

pub use async_io::StreamIo;
pub use connection::HttpConnection;
pub use forwarded::{
    AddressHeader, MalformedForwarded, RemoteClient, SchemeHeader, TrustedProxies, has_passed_a_proxy,
};
pub use handler::{HttpCounts, HttpHandler, HttpSettings, HttpShared};
pub use head::Route;
pub use origins::{AllowedOrigins, ForbiddenOrigin};
pub use response::{MIN_GZIP_BYTES, PREFLIGHT_HEADERS, SECURITY_HEADERS, gzip};

/// What a browser sees at the path of BOSH.
pub const BOSH_PAGE: &str =
    "This is a BOSH connection manager (XEP-0124). XMPP clients talk to it with POST.\n";

/// True when a value of `Accept-Encoding` takes gzip.
pub fn accepts_gzip(value: &[u8]) -> bool {
    head::accepts_gzip(value)
}
