//! Connection metadata known before the first byte is read: peer address, listener, transport.
//!
//! Settings that all connections of a listener share live in one [`ListenerConfig`]; a stream keeps a pointer to it and
//! 18 bytes for its peer.
//!
//! Not implemented: IPv6 scope ids of link-local peers.
//!
//! # Pitfalls
//!
//! [`ConnectionInfo`] is built on demand, so its address cannot be compared by reference.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use xml::Limits;

/// Purpose of a listener. The layer above starts the matching negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenerKind {
    /// Clients, plaintext first (RFC 6120, port 5222).
    C2s,
    /// Clients, direct TLS (XEP-0368, port 5223).
    C2sTls,
    /// Servers, plaintext first (port 5269).
    S2s,
    /// Servers, direct TLS (XEP-0368, port 5270).
    S2sTls,
    /// External components (XEP-0114).
    Component,
    /// HTTP; its connections never become a [`crate::Stream`] in this crate.
    Http,
    /// HTTP over TLS.
    Https,
    /// A service with a protocol of its own, by its name; its connections never become a [`crate::Stream`].
    Service(&'static str),
}

impl ListenerKind {
    /// True if the first bytes are a TLS record.
    pub const fn is_direct_tls(self) -> bool {
        matches!(self, ListenerKind::C2sTls | ListenerKind::S2sTls | ListenerKind::Https)
    }

    /// Name in the configuration file and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            ListenerKind::C2s => "c2s",
            ListenerKind::C2sTls => "c2s-tls",
            ListenerKind::S2s => "s2s",
            ListenerKind::S2sTls => "s2s-tls",
            ListenerKind::Component => "component",
            ListenerKind::Http => "http",
            ListenerKind::Https => "https",
            ListenerKind::Service(name) => name,
        }
    }
}

/// A limit of unsent bytes that all generations of a listener's settings share, so that existing connections have room for
/// stanzas that a reload admits. It only grows: a lower limit would end connections for what was queued before.
#[derive(Clone, Debug)]
pub struct UnsentLimit(Arc<AtomicU32>);

impl UnsentLimit {
    /// A limit in bytes.
    pub fn new(bytes: u32) -> UnsentLimit {
        UnsentLimit(Arc::new(AtomicU32::new(bytes)))
    }

    /// The limit in bytes.
    pub fn bytes(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Raises the limit to these bytes, unless it is higher.
    pub fn raise(&self, bytes: u32) {
        self.0.fetch_max(bytes, Ordering::Relaxed);
    }
}

/// Settings and limits shared by all connections of one listener.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// Purpose of the listener.
    pub kind: ListenerKind,
    /// Bound address, with the real port number if port 0 was requested.
    pub local_address: SocketAddr,
    /// XML limits of authenticated streams.
    pub limits: Limits,
    /// XML limits before [`crate::Stream::set_authenticated`]; they cap the memory that an unauthenticated client can
    /// occupy.
    pub unauthenticated_limits: Limits,
    /// Maximum number of unsent bytes per peer. Exceeding it ends the stream.
    pub max_unsent_bytes: UnsentLimit,
}

impl ListenerConfig {
    /// Maximum element size before authentication, in bytes. RFC 6120, section 13.12 forbids limits below 10 000 bytes.
    pub const UNAUTHENTICATED_ELEMENT_BYTES: u32 = 16_384;
    /// Default limit of unsent bytes per peer. It is a safety net: the layer above limits its own queue and adds one
    /// response to it. A server adds the size of its largest stanza.
    pub const MAX_UNSENT_BYTES: u32 = 4_194_304;

    /// A listener with default limits.
    pub fn new(kind: ListenerKind, local: SocketAddr) -> ListenerConfig {
        let limits = Limits::default();
        let mut early_limits = Limits::default();
        early_limits.element_bytes =
            early_limits.element_bytes.min(ListenerConfig::UNAUTHENTICATED_ELEMENT_BYTES);
        ListenerConfig {
            kind,
            local_address: local,
            limits,
            unauthenticated_limits: early_limits,
            max_unsent_bytes: UnsentLimit::new(ListenerConfig::MAX_UNSENT_BYTES),
        }
    }
}

/// Transport of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Plain TCP.
    Tcp,
    /// TLS, from the first byte or after STARTTLS.
    Tls,
    /// A pipe inside the process.
    Memory,
    /// WebSocket (RFC 7395) over any of these; [`ConnectionInfo::secure`] reports whether it is encrypted.
    WebSocket,
    /// BOSH: HTTP requests held until there is a response.
    Bosh,
}

impl Transport {
    /// Whether STARTTLS is available. Transports over HTTP have TLS below them or none (RFC 7395, section 3.9;
    /// XEP-0206, section 8).
    pub const fn has_starttls(self) -> bool {
        matches!(self, Transport::Tcp | Transport::Memory)
    }

    /// Name in metrics and in session lists.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Memory => "memory",
            Transport::Bosh => "bosh",
            Transport::WebSocket => "websocket",
        }
    }
}

/// Transport properties of a session.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionInfo<'a> {
    /// Address of the remote end. An IPv4 address accepted on an IPv6 socket is reported as IPv4.
    pub peer: SocketAddr,
    /// Settings of the listener.
    pub listener: &'a ListenerConfig,
    /// Transport of the stream.
    pub transport: Transport,
    /// True if TLS is established, so that no third party can read or change the stream.
    pub secure: bool,
}

/// Peer address in 18 bytes instead of 32.
#[derive(Clone, Copy)]
pub(crate) struct CompactSocketAddr {
    ip: [u8; 16],
    port: u16,
}

impl CompactSocketAddr {
    pub(crate) fn new(address: SocketAddr) -> CompactSocketAddr {
        let ip = match address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        CompactSocketAddr { ip: ip.octets(), port: address.port() }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V6(Ipv6Addr::from(self.ip)).to_canonical(), self.port)
    }
}

/// Listener settings as streams hold them.
pub type SharedListenerConfig = Arc<ListenerConfig>;
