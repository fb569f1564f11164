//! Network layer: listeners and streams, from the socket to the XML element.
//!
//! [`Stream`] is the one type that the layers above drive; it is an enum of transports and yields [`StreamEvent`]s.
//! [`Scratch`] holds the buffers, one per worker thread. Routing, accounts and sessions are outside of this crate.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod bosh;
mod buffer_pool;
mod connection_info;
mod error;
pub mod http;
mod listener;
mod networks;
pub mod proxy_protocol;
mod scratch;
mod stream;
pub mod tls;
pub mod websocket;

pub use base::accept_rate::AcceptRate;
pub use base::connection_limits::{
    ConnectionCounts, ConnectionLimiter, ConnectionLimits, ConnectionPermit, ConnectionRefusal,
};
pub use connection_info::{
    ConnectionInfo, ListenerConfig, ListenerKind, SharedListenerConfig, Transport, UnsentLimit,
};
pub use error::NetError;
pub use listener::{AcceptedConnection, BACKLOG, Listener, ListenerConfigCell, ListenerCounts, RemoteRole};
pub use networks::Networks;
pub use scratch::{READ_BUFFER_BYTES, Scratch, with_scratch};
pub use stream::byte_stream::{Duplex, tcp_bytes};
pub use stream::memory::Pipe;
pub use stream::{Stream, StreamEvent};
pub use tls::{ChannelBinding, TlsInfo};
