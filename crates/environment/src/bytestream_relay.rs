//! Interface between the proxy of SOCKS5 bytestreams (XEP-0065), which answers requests, and the program that has the
//! listeners and relays the bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use base::{ActivationRefusal, BytestreamLimits};
use jid::JidRef;

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
        limits: &BytestreamLimits,
    ) -> Result<(), ActivationRefusal>;
}

/// The type under which a program provides it.
pub type SharedBytestreamRelay = Arc<dyn BytestreamRelay>;
