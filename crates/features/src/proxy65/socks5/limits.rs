//! Limits of an activation, and the reasons for refusing it: XEP-0065, section 6.3.5.

/// Limits of one activation; 0 means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BytestreamLimits {
    /// Active bytestreams of one user.
    pub(crate) bytestreams_per_user: u32,
    /// Active bytestreams of the service.
    pub(crate) bytestreams: u32,
    /// Bytes per second of one user, in both directions of all bytestreams.
    pub(crate) bytes_per_second_per_user: u32,
    /// Bytes per second of the service.
    pub(crate) bytes_per_second: u32,
    /// Seconds without a byte in either direction, after which the bytestream is closed.
    pub(crate) idle_seconds: u32,
}

/// Reason for refusing an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActivationRefusal {
    /// No connection has this destination.
    NotConnected,
    /// Only one party is connected.
    OneParty,
    /// The user has too many active bytestreams.
    UserLimit,
    /// The service has too many active bytestreams.
    ServiceLimit,
}
