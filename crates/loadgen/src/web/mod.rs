//! What a web client puts between its stanzas and the socket: HTTP/1.1, BOSH bodies, WebSocket frames. Pure functions.
//!
//! [`http`] writes requests and finds answers (RFC 9112), [`bosh`] writes and reads bodies (XEP-0124 1.11, XEP-0206 1.4),
//! [`websocket`] makes frames and finds messages (RFC 6455, RFC 7395), [`qualify`] gives stanzas the namespace that on TCP
//! their stream gives them. The connections are in [`crate::engine`]. Nothing is shared with the server's own code.
//!
//! Left out: proxies, cookies, compression of either kind, HTTP/2.
//! Trap: all of these look at bytes that may be incomplete and keep nothing; the caller gives the same bytes again with
//! more behind them.

pub mod bosh;
pub mod http;
pub mod qualify;
pub mod websocket;
