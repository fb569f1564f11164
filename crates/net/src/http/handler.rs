//! Shared state of HTTP connections (reloadable settings, deadlines, metrics) and the handler of their requests.
//!
//! # Pitfalls
//!
//! [`HttpShared::sweep`] is the only clock of the connections. Without it no deadline elapses.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use base::clock::Clock;
use base::connection_limits::ConnectionPermit;
use base::deadlines::Deadlines;
use base::lock::LeafRwLock;

use super::forwarded::{RemoteClient, TrustedProxies};
use super::origins::AllowedOrigins;
use crate::bosh::{BoshResponse, RequestSource};
use crate::stream::Stream;
use crate::websocket;

/// Settings of the operator, read for each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpSettings {
    /// Web origins that may use BOSH and WebSocket.
    pub allowed_origins: AllowedOrigins,
    /// Reverse proxies and the headers that they set.
    pub proxies: TrustedProxies,
    /// Whether responses are compressed for clients that accept it.
    pub gzip: bool,
    /// Maximum bytes of a BOSH body; `None` disables BOSH.
    pub bosh_body_bytes: Option<usize>,
    /// WebSocket settings; `None` disables WebSocket.
    pub websocket: Option<websocket::WebSocketSettings>,
    /// Seconds from the first to the last byte of a head; for a new connection from its start, including TLS.
    pub header_timeout_seconds: u32,
    /// Seconds for a body.
    pub body_timeout_seconds: u32,
    /// Seconds that a connection may stay without a request.
    pub idle_timeout_seconds: u32,
    /// Seconds without progress while a response is not read.
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

/// Metrics; all but the first count since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpCounts {
    /// Current connections that are served here: new ones, and those of BOSH.
    pub connections: u64,
    /// Requests for BOSH and WebSocket.
    pub requests: u64,
    /// Refused requests: malformed, too large, or from a forbidden origin.
    pub refused: u64,
    /// Connections that timed out in a head, a body, or while reading a response.
    pub timeouts: u64,
    /// Connections that became a WebSocket.
    pub upgraded: u64,
    /// Connections passed to the HTTP library.
    pub handed_over: u64,
}

/// State shared by all HTTP connections of a node.
pub struct HttpShared {
    settings: LeafRwLock<Arc<HttpSettings>>,
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
    /// State for all listeners of a node.
    pub fn new(settings: HttpSettings, clock: Arc<dyn Clock>) -> Arc<HttpShared> {
        Arc::new(HttpShared {
            settings: LeafRwLock::new(Arc::new(settings)),
            clock,
            deadlines: Arc::default(),
            draining: AtomicBool::new(false),
            counters: HttpCounters::default(),
        })
    }

    /// Current settings.
    pub fn settings(&self) -> Arc<HttpSettings> {
        self.settings.read().clone()
    }

    /// Replaces the settings, starting with the next request of each connection.
    pub fn set_settings(&self, settings: HttpSettings) {
        *self.settings.write() = Arc::new(settings);
    }

    /// Must be called once a second: ends connections that are late.
    pub fn sweep(&self) {
        self.deadlines.sweep(self.clock.now_seconds());
    }

    /// Shuts down: a connection ends once its pending requests are answered.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.deadlines.wake_all();
    }

    /// Whether the node is shutting down.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// Current metrics.
    pub fn counts(&self) -> HttpCounts {
        let HttpCounters { connections, requests, refused, timeouts: timed_out, upgraded, handed_over } =
            &self.counters;
        HttpCounts {
            connections: connections.load(Relaxed),
            requests: requests.load(Relaxed),
            refused: refused.load(Relaxed),
            timeouts: timed_out.load(Relaxed),
            upgraded: upgraded.load(Relaxed),
            handed_over: handed_over.load(Relaxed),
        }
    }
}

/// Handler of the requests of one listener.
pub trait HttpHandler: Send + Sync + 'static {
    /// A pending BOSH response; dropped when it was sent or its connection breaks.
    type ResponseFuture: Future<Output = BoshResponse> + Send + Unpin;
    /// State shared with other listeners.
    fn shared(&self) -> &HttpShared;
    /// Whether sessions must be encrypted.
    fn needs_tls(&self) -> bool;
    /// Handles one BOSH request with its whole body.
    fn bosh_request(&self, origin: RequestSource, body: &[u8]) -> Self::ResponseFuture;
    /// The kernel has taken a BOSH response.
    fn response_sent(&self, response: &mut Self::ResponseFuture);
    /// Permit for a session of this client; `None` at the limit.
    fn acquire_permit(&self, remote: &RemoteClient) -> Option<ConnectionPermit>;
    /// Takes a stream that has become a WebSocket; its response is queued.
    fn websocket(&self, stream: Stream, permit: ConnectionPermit);
    /// Takes a connection with other requests: another path, HTTP/2. Nothing of it is consumed.
    fn passthrough(&self, stream: Stream, permit: ConnectionPermit);
}
