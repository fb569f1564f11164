//! Proxy of SOCKS5 bytestreams: XEP-0065 1.8.2, sections 6 and 10, the part that is not XMPP.
//!
//! Two parties connect to a listener and name the same destination, a SHA-1 digest. When the requester activates it over
//! XMPP ([`Socks5Proxy::activate`]), the proxy relays bytes in both directions until both are closed. The task of the
//! first party owns both sockets. A bytestream without unwritten bytes owns no buffer; one party that does not read holds
//! back the other.
//!
//! | File | Contents |
//! | --- | --- |
//! | `handshake` | messages of SOCKS5 |
//! | `connection` | a connection until it has named its destination |
//! | `table` | bytestreams that wait for activation, active ones |
//! | `limits` | limits of an activation, reasons for refusing it |
//! | `permit` | what users and services have in use, rates |
//! | `pending` | the task before the activation |
//! | `relay` | the task after the activation |
//! | `party` | a connection with its permits |
//! | `metrics` | outcomes and counts |
//!
//! Not implemented: UDP (section 8), authentication of the connections, a destination whose parties are connected to
//! different nodes. Active bytestreams are neither listed nor drained at a shutdown; they outlive the account and the
//! domain for which they were activated, until a party closes or the idle limit.
//!
//! # Pitfalls
//!
//! The digest identifies the parties, not the service, so all domains of the node share the listeners and the table.
//! Nothing is known about a connection before its activation: the activation timeout and the limits of connections are
//! all that bounds it.

mod connection;
mod handshake;
mod limits;
mod metrics;
mod party;
mod pending;
mod permit;
mod relay;
mod table;
#[cfg(test)]
mod tests;

pub(super) use handshake::BytestreamDestination;
pub(super) use limits::{ActivationRefusal, BytestreamLimits};
pub(super) use metrics::Socks5Outcome;
pub(super) use table::Socks5Proxy;
