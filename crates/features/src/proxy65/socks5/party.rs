//! A connected party: its connection with its permits.

use base::connection_limits::ConnectionPermit;
use feature_api::listener::ConnectionIo;

pub(super) struct Party {
    pub(super) io: Box<dyn ConnectionIo>,
    /// Counts the connection.
    pub(super) permit: ConnectionPermit,
    /// Counts it among those without an active bytestream.
    pub(super) unactivated: ConnectionPermit,
}
