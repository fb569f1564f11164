//! HTTP/1.1 for BOSH and WebSocket (RFC 9110, RFC 9112), over any [`crate::Stream`]; everything else is passed on.
//!
//! An [`HttpConnection`] is one future per connection of a listener. It owns no buffer while it waits, so a BOSH
//! session with its held request costs little more than its socket. Other requests (other paths, HTTP/2) are passed on
//! with every byte that was read: [`HttpHandler::passthrough`] runs an HTTP library over [`StreamIo`].
//!
//! | File | Content |
//! | --- | --- |
//! | `head` | the head of a request, with strict checks |
//! | `classify` | the kind of a request |
//! | `body` | lengths and chunks |
//! | `forwarded` | the client of a reverse proxy |
//! | `origins` | permitted web origins |
//! | `response` | responses, gzip |
//! | `connection` | the future |
//! | `async_io` | a stream for an HTTP library |
//!
//! # Pitfalls
//!
//! The same requests can arrive through the HTTP library, on a connection that began with a page. A changed rule must
//! be changed for both.

mod async_io;
mod body;
mod classify;
mod connection;
#[cfg(test)]
mod connection_tests;
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

/// Page for browsers that open the BOSH path.
pub const BOSH_PAGE: &str = "This is a BOSH connection manager (XEP-0124). XMPP clients use POST.\n";

/// True if an `Accept-Encoding` value accepts gzip.
pub fn accepts_gzip(value: &[u8]) -> bool {
    head::accepts_gzip(value)
}
