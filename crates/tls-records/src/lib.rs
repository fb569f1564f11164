//! TLS 1.3 records after the handshake (RFC 8446, sections 4.6, 5 and 6), over ring, for clients with many connections.
//!
//! rustls performs the handshake and reports its secrets to a [`SecretCapture`]. A [`RecordLayer`] made of them
//! replaces rustls: half a kilobyte for each connection instead of 4 kB. The crate is bytes in and bytes out; sockets
//! belong to its caller.
//!
//! Not implemented: handshakes, TLS 1.2, servers.
//!
//! # Pitfalls
//!
//! The caller takes the secrets right after the call of rustls that completed the handshake ([`take_secrets`]).

mod records;
mod sealed_buffer;
mod secrets;
#[cfg(test)]
mod tests;

pub use records::{OpenedRecords, RecordError, RecordLayer};
pub use sealed_buffer::SealedBuffer;
pub use secrets::{CapturedSecrets, SecretCapture, TrafficSecret, take as take_secrets};
