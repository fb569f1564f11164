//! What HTTP connections share: settings that a reload swaps, deadlines, figures; and what is done with requests.
//!
//! The trap: [`HttpShared::sweep`] is the only clock that connections have. Without it nothing is ever late.

use super::deadlines::Deadlines;
use super::forwarded::{RemoteClient, TrustedProxies};
use super::origins::AllowedOrigins;
use crate::bosh::{BoshResponse, RequestSource};
use crate::connection_limits::ConnectionPermit;
use crate::stream::Stream;
use crate::websocket;
use base::clock::Clock;
use parking_lot::RwLock;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What an operator may set. A connection looks at it with each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// Pages that may use BOSH and WebSocket.
    pub allowed_origins: AllowedOrigins,
    /// Reverse proxies and the headers that they set.
    pub proxies: TrustedProxies,
    /// Whether answers are compressed for clients that ask for it.
    pub gzip: bool,
    /// Most bytes of a BOSH body; none: no BOSH.
    pub bosh_body_bytes: Option<usize>,
    /// WebSocket; none: no WebSocket.
    pub websocket: Option<websocket::WebSocketSettings>,
    /// Seconds from the first byte of a head to its last; of a new connection from the start, with TLS.
    pub header_timeout_seconds: u32,
    /// Seconds for a body.
    pub body_timeout_seconds: u32,
    /// Seconds that a connection stays without a request.
    pub idle_timeout_seconds: u32,
    /// Seconds without progress while an answer is not taken.
    pub write_stall_timeout_seconds: u32,
}

impl Default for HttpSettings {
    fn default() -> HttpSettings {
        HttpSettings {
            allowed_origins: AllowedOrigins::Any,
            proxies: TrustedProxies::NONE,
            gzip: true,
            bosh_body_bytes: Some(crate::bosh::BoshSettings::default().body_bytes),
            websocket: Some(websocket::WebSocketSettings::default()),
            header_timeout_seconds: 10,
            body_timeout_seconds: 30,
            idle_timeout_seconds: 75,
            write_stall_timeout_seconds: 30,
        }
    }
}

/// Figures, since the start but for the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpCounts {
    /// Connections now that are served here: new ones, and those of BOSH.
    pub connections: u64,
    /// Requests for BOSH and WebSocket.
    pub requests: u64,
    /// Requests that were refused: malformed, too large, of a page that may not.
    pub refused: u64,
    /// Connections that were too late with a head, a body, or with reading.
    pub timeouts: u64,
    /// Connections that became a WebSocket.
    pub upgraded: u64,
    /// Connections that were handed on.
    pub handed_over: u64,
}

/// What all HTTP connections of a node share.
pub struct HttpShared {
    settings: RwLock<Arc<HttpSettings>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) deadlines: Arc<Deadlines>,
    draining: AtomicBool,
    pub(crate) counters: HttpCounters,
}

#[derive(Default)]
pub(crate) struct HttpCounters {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) timeouts: AtomicU64,
    pub(crate) upgraded: AtomicU64,
    pub(crate) handed_over: AtomicU64,
}

impl HttpShared {
    /// Shared by all listeners of a node.
    pub fn new(settings: HttpSettings, clock: Arc<dyn Clock>) -> Arc<HttpShared> {
        Arc::new(HttpShared {
            settings: RwLock::new(Arc::new(settings)),
            clock,
            deadlines: Arc::default(),
            draining: AtomicBool::new(false),
            counters: HttpCounters::default(),
        })
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<HttpSettings> {
        self.settings.read().clone()
    }

    /// Takes other settings, for the next request of each connection.
    pub fn set_settings(&self, settings: HttpSettings) {
        *self.settings.write() = Arc::new(settings);
    }

    /// To be called once a second: ends what is late.
    pub fn sweep(&self) {
        self.deadlines.sweep(self.clock.now_seconds());
    }

    /// The node stops: a connection ends as soon as what it was asked is answered.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.deadlines.wake_all();
    }

    /// Whether the node stops.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// The figures now.
    pub fn counts(&self) -> HttpCounts {
        let HttpCounters { connections, requests, refused, timeouts: late, upgraded, handed_over } =
            &self.counters;
        HttpCounts {
            connections: connections.load(Relaxed),
            requests: requests.load(Relaxed),
            refused: refused.load(Relaxed),
            timeouts: late.load(Relaxed),
            upgraded: upgraded.load(Relaxed),
            handed_over: handed_over.load(Relaxed),
        }
    }
}

/// What one listener does with requests.
pub trait HttpHandler: Send + Sync + 'static {
    /// A BOSH request that waits; dropped when its connection breaks.
    type ResponseFuture: Future<Output = BoshResponse> + Send + Unpin;
    /// What it shares with others.
    fn shared(&self) -> &HttpShared;
    /// Whether sessions have to be encrypted.
    fn needs_tls(&self) -> bool;
    /// One BOSH request with its whole body.
    fn bosh_request(&self, origin: RequestSource, body: &[u8]) -> Self::ResponseFuture;
    /// A place for a session from there; none: it is full.
    fn acquire_permit(&self, remote: &RemoteClient) -> Option<ConnectionPermit>;
    /// A stream that has become a WebSocket; its answer is queued.
    fn websocket(&self, stream: Stream, pass: ConnectionPermit);
    /// A connection with something else: another path, HTTP/2. Nothing of it is consumed.
    fn passthrough(&self, stream: Stream, pass: ConnectionPermit);
}
