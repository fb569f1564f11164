//! Streams of clients: negotiation, then the pump between a connection and the engine.
//!
//! RFC 6120 sections 4 to 7. A [`c2s::C2sConnection`] is one future for the whole life of a connection; it owns no
//! buffer while quiet, and what negotiation needs is boxed and dropped at bind. Knows no feature and no storage.
//!
//! Left out: server-to-server streams, components; two SHOULDs of RFC 6120: stanzas do not get the
//! `xml:lang` of their stream (section 8.1.5: it would move every position in every head, for an attribute that hardly
//! any client reads), and the `from` of the header is not compared with who authenticates (section 6.4.6: nothing is
//! ever believed of it). A failed login has no text beside its condition.
//!
//! The trap: everything a connection may have to wait for is polled from one place, [`c2s::C2sConnection::poll`].
//! Whoever adds a wait must also say who wakes the task: the socket, the link, or the sweep through the link.

pub mod c2s;
mod closing;
pub mod context;
mod detached;
mod negotiate;
mod session_io;
mod stream_management;

pub use c2s::C2sConnection;
pub use context::{AuthPolicy, C2sContext, NegotiationPolicy, TlsPolicy};
