//! Interface between the proxy of SOCKS5 bytestreams (XEP-0065), which answers requests, and the program that has the
//! listeners and relays the bytes.
//!
//! The program provides a [`BytestreamRelay`] in the [`crate::node_extensions`].

use std::net::SocketAddr;
use std::sync::Arc;

use jid::JidRef;

/// Limits of a bytestream; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayLimits {
    /// Active bytestreams of one user.
    pub sessions_per_user: u32,
    /// Active bytestreams of the service.
    pub sessions: u32,
    /// Bytes per second of one user, in both directions of all bytestreams.
    pub bytes_per_second_per_user: u32,
    /// Bytes per second of the service.
    pub bytes_per_second: u32,
    /// Seconds without a byte in either direction, after which the bytestream is closed.
    pub idle_seconds: u32,
}

/// Reason for refusing an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RelayRefusal {
    /// No connection has this destination.
    NotConnected,
    /// Only one of two parties is connected.
    OneParty,
    /// The user, or the service, has too many active bytestreams.
    TooMany,
}

/// Relays bytes between two parties that have connected to the same destination.
pub trait BytestreamRelay: Send + Sync {
    /// Addresses at which it listens; none if it does not.
    fn addresses(&self) -> Vec<SocketAddr>;

    /// Activates the bytestream of a destination, the SHA-1 digest, for a user (a bare address) of a service.
    ///
    /// # Errors
    /// The reason.
    fn activate(
        &self,
        destination: [u8; 20],
        service: &str,
        user: JidRef<'_>,
        limits: &RelayLimits,
    ) -> Result<(), RelayRefusal>;
}

/// The type under which a program provides it.
pub type SharedBytestreamRelay = Arc<dyn BytestreamRelay>;
