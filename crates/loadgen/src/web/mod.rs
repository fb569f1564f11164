//! Protocols between a web client's stanzas and its socket: HTTP/1.1, BOSH bodies, WebSocket frames. Pure functions.
//!
//! [`http`] writes requests and finds responses (RFC 9112), [`bosh`] writes and reads bodies (XEP-0124, version 1.11;
//! XEP-0206, version 1.4), [`websocket`] writes frames and finds messages (RFC 6455, RFC 7395), [`qualify`] adds the
//! namespace that stanzas inherit from their stream on TCP. The connections are in [`crate::engine`]. No code is shared
//! with the server.
//!
//! Not implemented: proxies, cookies, compression of either kind, HTTP/2.
//!
//! # Pitfalls
//!
//! These functions get bytes that may be incomplete and keep no state; the caller passes the same bytes again with more
//! after them.

pub mod bosh;
pub mod http;
pub mod qualify;
pub mod websocket;
