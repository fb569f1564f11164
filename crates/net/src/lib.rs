//! Listeners and streams: everything between a socket and an XML element.
//!
//! [`Stream`] is the one type that the layers above drive; it is an enum over equal transports and speaks in
//! [`Event`]s. [`Scratch`] holds the buffers, one per worker thread. Knows nothing about routing, accounts or sessions.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod bosh;
mod error;
mod facts;
mod gate;
pub mod http;
mod listener;
mod networks;
mod pool;
pub mod proxy_protocol;
mod scratch;
mod stream;
pub mod tls;
pub mod websocket;

pub use error::NetError;
pub use facts::{Facts, Kind, Port, SharedPort, Transport};
pub use gate::{Gate, GateCounts, GateLimits, Pass, Refused};
pub use listener::{Accepted, BACKLOG, Listener, ListenerCounts, PortSlot};
pub use networks::Networks;
pub use scratch::{READ_BYTES, Scratch, with_scratch};
pub use stream::memory::Pipe;
pub use stream::wire::{Duplex, traffic};
pub use stream::{Event, Stream};
pub use tls::{ChannelBinding, TlsFacts};
