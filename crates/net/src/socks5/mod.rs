//! Proxy of SOCKS5 bytestreams: XEP-0065 1.8.2, sections 6 and 10, the part that is not XMPP.
//!
//! Two parties connect to a listener and name the same destination, a SHA-1 digest. When the requester activates it over
//! XMPP ([`Socks5Proxy::activate`]), the proxy relays bytes in both directions until both are closed. The task of the
//! first party owns both sockets. A bytestream without unwritten bytes owns no buffer; one party that does not read holds
//! back the other.
//!
//! Not implemented: UDP (section 8), authentication of the connections, a destination whose parties are connected to
//! different nodes.
//!
//! # Pitfalls
//!
//! The digest identifies the parties, not the service, so all domains of the node share the listeners and the table.
//! Nothing is known about a connection before its activation: the pairing time and the limits of connections are all that
//! bounds it.

mod handshake;
mod relay;
mod table;
#[cfg(test)]
mod tests;

pub use handshake::BytestreamDestination;
pub use table::{ActivationRefusal, BytestreamLimits, Socks5Counts, Socks5Outcome, Socks5Proxy};
