//! Client-to-server streams: stream negotiation, then the I/O of a bound session.
//!
//! RFC 6120, sections 4 to 7. A [`c2s::C2sConnection`] is one future for the whole life of a connection. It holds no
//! buffers while idle, and its negotiation state is boxed and dropped at bind. It knows no feature and no storage.
//!
//! Not implemented: server-to-server streams; components; two SHOULDs of RFC 6120. Stanzas do not get the `xml:lang` of
//! their stream (section 8.1.5), since that would shift every offset in every stanza header for an attribute that
//! hardly any client reads. The `from` of the stream header is not compared with the authenticated identity
//! (section 6.4.6), since it is never trusted. A failed login has no text beside its condition.
//!
//! # Pitfalls
//!
//! Everything that a connection may wait for is polled in one place, [`c2s::C2sConnection::poll`]. A new wait also
//! needs a source of wake-ups: the socket, the outbox, or the periodic sweep through the outbox.

mod bosh_forwarding;
pub mod c2s;
mod closing;
pub mod context;
mod detached;
mod drained;
mod negotiate;
mod session_io;
mod stream_management;
mod unfinished;

pub use bosh_forwarding::connect_bosh_sessions;
pub use c2s::C2sConnection;
pub use context::{
    AuthPolicy, C2sContext, ImportedKeyShapes, NegotiationPolicy, TlsPolicy, set_stanza_limits,
};
pub use drained::{announce_drain, take_offered_sessions};
