//! Sources of stanzas that do not come from a client's stream, as labels of metrics.

/// What sends stanzas that do not come from a client's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StanzaSource {
    /// A service of this server.
    Service,
    /// A multicast whose copy for one recipient is routed separately.
    Multicast,
    /// A component.
    Component,
    /// Another server.
    RemoteServer,
    /// Another node, or what has returned from one.
    Node,
}

impl StanzaSource {
    /// All sources.
    pub const ALL: [StanzaSource; 5] = [
        StanzaSource::Service,
        StanzaSource::Multicast,
        StanzaSource::Component,
        StanzaSource::RemoteServer,
        StanzaSource::Node,
    ];

    /// Name in the metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            StanzaSource::Service => "service",
            StanzaSource::Multicast => "multicast",
            StanzaSource::Component => "component",
            StanzaSource::RemoteServer => "remote-server",
            StanzaSource::Node => "node",
        }
    }
}
