//! Limits of bytestreams and refusals of their activation (XEP-0065, section 6.3.5): what the proxy's listener and the
//! engine, which know nothing of each other, have in common.

/// Limits of one activation; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BytestreamLimits {
    /// Active bytestreams of one user.
    pub bytestreams_per_user: u32,
    /// Active bytestreams of the service.
    pub bytestreams: u32,
    /// Bytes per second of one user, in both directions of all bytestreams.
    pub bytes_per_second_per_user: u32,
    /// Bytes per second of the service.
    pub bytes_per_second: u32,
    /// Seconds without a byte in either direction, after which the bytestream is closed.
    pub idle_seconds: u32,
}

/// Reason for refusing an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationRefusal {
    /// No connection has this destination.
    NotConnected,
    /// Only one party is connected.
    OneParty,
    /// The user has too many active bytestreams.
    UserLimit,
    /// The service has too many active bytestreams.
    ServiceLimit,
}
