//! What is known about a connection before a byte of it was read.
//!
//! Facts that all connections of a listener share sit in one [`ListenerConfig`]; a stream keeps a pointer to it and 18 bytes
//! for its peer. Left out: IPv6 scope ids of link-local peers (they are not kept).
//! Trap: [`ConnectionInfo`] is built on demand, so its address cannot be compared by reference.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use xml::Limits;

/// What a listener is for. The layer above starts the matching negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListenerKind {
    /// Clients, plaintext first (RFC 6120, port 5222).
    C2s,
    /// Clients, TLS at once (XEP-0368, port 5223).
    C2sTls,
    /// Servers, plaintext first (port 5269).
    S2s,
    /// Servers, TLS at once (XEP-0368, port 5270).
    S2sTls,
    /// External components (XEP-0114).
    Component,
    /// HTTP; its connections never become a [`crate::Stream`] here.
    Http,
    /// HTTP over TLS.
    Https,
}

impl ListenerKind {
    /// True where the first bytes are a TLS record.
    pub const fn is_direct_tls(self) -> bool {
        matches!(self, ListenerKind::C2sTls | ListenerKind::S2sTls | ListenerKind::Https)
    }

    /// The word used for it in the configuration file and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            ListenerKind::C2s => "c2s",
            ListenerKind::C2sTls => "c2s-tls",
            ListenerKind::S2s => "s2s",
            ListenerKind::S2sTls => "s2s-tls",
            ListenerKind::Component => "component",
            ListenerKind::Http => "http",
            ListenerKind::Https => "https",
        }
    }
}

/// Facts and limits shared by all connections of one listener.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// What it is for.
    pub kind: ListenerKind,
    /// The address it is bound to (with the real port number where 0 was asked for).
    pub local_address: SocketAddr,
    /// XML limits of authenticated streams.
    pub limits: Limits,
    /// XML limits before [`crate::Stream::set_authenticated`]; they cap what a stranger can make us hold.
    pub unauthenticated_limits: Limits,
    /// Most bytes that may wait for one peer. More ends its stream.
    pub max_unsent_bytes: u32,
}

impl ListenerConfig {
    /// Elements of a stranger may be this long. RFC 6120 §13.12 forbids limits below 10 000 bytes.
    pub const UNAUTHENTICATED_ELEMENT_BYTES: u32 = 16_384;
    /// What may wait for one peer unless the port says otherwise. A safety net: whoever queues keeps a measure of its own
    /// and adds one answer to it, of which a large roster makes the largest (5000 contacts are a megabyte).
    pub const MAX_UNSENT_BYTES: u32 = 4_194_304;

    /// A port with default limits.
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
            max_unsent_bytes: ListenerConfig::MAX_UNSENT_BYTES,
        }
    }
}

/// How the bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Plain TCP.
    Tcp,
    /// TLS, from the first byte or after STARTTLS.
    Tls,
    /// A pipe inside the process.
    Memory,
    /// WebSocket (RFC 7395) over any of these; [`ConnectionInfo::secure`] tells whether it is encrypted.
    WebSocket,
    /// HTTP requests that wait for their answers.
    Bosh,
}

impl Transport {
    /// Whether a stream over it may get TLS by STARTTLS. What came by HTTP has TLS below it or not at all (RFC 7395 section
    /// 3.9, XEP-0206 section 8).
    pub const fn has_starttls(self) -> bool {
        matches!(self, Transport::Tcp | Transport::Memory)
    }

    /// The word used for it in metrics and in lists of sessions.
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

/// What a session may want to know about its transport.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionInfo<'a> {
    /// Who is at the other end. IPv4 addresses that arrived through an IPv6 socket are shown as IPv4.
    pub peer: SocketAddr,
    /// The listener's facts.
    pub listener: &'a ListenerConfig,
    /// How the bytes travel.
    pub transport: Transport,
    /// True when nobody between the ends can read or change the stream: TLS is up.
    pub secure: bool,
}

/// A peer address in 18 bytes instead of 32.
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

/// A port as streams hold it.
pub type SharedListenerConfig = Arc<ListenerConfig>;
