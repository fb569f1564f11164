//! Metrics of the proxy: outcomes and counts.

/// Result of a connection or bytestream: the label `outcome` in the metrics. Each connection counts until the
/// activation; then both count as one bytestream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Socks5Outcome {
    /// Both parties closed their direction.
    Finished,
    /// A connection failed.
    Failed,
    /// No byte passed for too long.
    Idle,
    /// It was not activated in time, or the handshake took too long.
    Expired,
    /// The party left before the activation.
    Abandoned,
    /// The handshake was invalid or refused.
    Rejected,
    /// Two parties are connected already.
    Duplicate,
    /// Too many bytes were sent before the activation.
    TooMuchEarlyData,
    /// Too many connections have no active bytestream, in total or from one address.
    UnactivatedLimit,
}

impl Socks5Outcome {
    /// All outcomes, in the order of their discriminants.
    pub(crate) const ALL: [Socks5Outcome; 9] = [
        Socks5Outcome::Finished,
        Socks5Outcome::Failed,
        Socks5Outcome::Idle,
        Socks5Outcome::Expired,
        Socks5Outcome::Abandoned,
        Socks5Outcome::Rejected,
        Socks5Outcome::Duplicate,
        Socks5Outcome::TooMuchEarlyData,
        Socks5Outcome::UnactivatedLimit,
    ];

    /// The label value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Socks5Outcome::Finished => "finished",
            Socks5Outcome::Failed => "failed",
            Socks5Outcome::Idle => "idle",
            Socks5Outcome::Expired => "expired",
            Socks5Outcome::Abandoned => "abandoned",
            Socks5Outcome::Rejected => "rejected",
            Socks5Outcome::Duplicate => "duplicate",
            Socks5Outcome::TooMuchEarlyData => "early-data",
            Socks5Outcome::UnactivatedLimit => "unactivated-limit",
        }
    }
}

/// Metrics of a [`super::Socks5Proxy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Socks5Counts {
    /// Active bytestreams.
    pub(crate) active: usize,
    /// Destinations that wait for activation.
    pub(crate) waiting: usize,
    /// Activated bytestreams, since the start.
    pub(crate) activated: u64,
    /// Relayed bytes, since the start.
    pub(crate) bytes: u64,
    /// Ended connections and bytestreams, in the order of [`Socks5Outcome::ALL`], since the start.
    pub(crate) ended: [u64; Socks5Outcome::ALL.len()],
}
