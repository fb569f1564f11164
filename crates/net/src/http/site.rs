//! What HTTP connections share: settings that a reload swaps, deadlines, figures; and what is done with requests.
//!
//! The trap: [`Http::sweep`] is the only clock that connections have. Without it nothing is ever late.

use super::alarms::Alarms;
use super::forwarded::{Proxies, Remote};
use super::origins::Origins;
use crate::bosh::{Answer, Origin};
use crate::gate::Pass;
use crate::stream::Stream;
use crate::websocket;
use base::clock::Clock;
use parking_lot::RwLock;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What an operator may set. A connection looks at it with each request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Pages that may use BOSH and WebSocket.
    pub allowed_origins: Origins,
    /// Reverse proxies and the headers that they set.
    pub proxies: Proxies,
    /// Whether answers are compressed for clients that ask for it.
    pub gzip: bool,
    /// Most bytes of a BOSH body; none: no BOSH.
    pub bosh: Option<usize>,
    /// WebSocket; none: no WebSocket.
    pub websocket: Option<websocket::Settings>,
    /// Seconds from the first byte of a head to its last; of a new connection from the start, with TLS.
    pub header_timeout_seconds: u32,
    /// Seconds for a body.
    pub body_timeout_seconds: u32,
    /// Seconds that a connection stays without a request.
    pub idle_timeout_seconds: u32,
    /// Seconds without progress while an answer is not taken.
    pub write_stall_timeout_seconds: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allowed_origins: Origins::Any,
            proxies: Proxies::NONE,
            gzip: true,
            bosh: Some(crate::bosh::Settings::default().body_bytes),
            websocket: Some(websocket::Settings::default()),
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
    pub late: u64,
    /// Connections that became a WebSocket.
    pub upgraded: u64,
    /// Connections that were handed on.
    pub handed_over: u64,
}

/// What all HTTP connections of a node share.
pub struct Http {
    settings: RwLock<Arc<Settings>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) alarms: Arc<Alarms>,
    draining: AtomicBool,
    pub(crate) tally: Tally,
}

#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) connections: AtomicU64,
    pub(crate) requests: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) late: AtomicU64,
    pub(crate) upgraded: AtomicU64,
    pub(crate) handed_over: AtomicU64,
}

impl Http {
    /// Shared by all listeners of a node.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Arc<Http> {
        Arc::new(Http {
            settings: RwLock::new(Arc::new(settings)),
            clock,
            alarms: Arc::default(),
            draining: AtomicBool::new(false),
            tally: Tally::default(),
        })
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.read().clone()
    }

    /// Takes other settings, for the next request of each connection.
    pub fn change(&self, settings: Settings) {
        *self.settings.write() = Arc::new(settings);
    }

    /// To be called once a second: ends what is late.
    pub fn sweep(&self) {
        self.alarms.sweep(self.clock.seconds());
    }

    /// The node stops: a connection ends as soon as what it was asked is answered.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
        self.alarms.ring();
    }

    /// Whether the node stops.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    /// The figures now.
    pub fn counts(&self) -> HttpCounts {
        let Tally { connections, requests, refused, late, upgraded, handed_over } = &self.tally;
        HttpCounts {
            connections: connections.load(Relaxed),
            requests: requests.load(Relaxed),
            refused: refused.load(Relaxed),
            late: late.load(Relaxed),
            upgraded: upgraded.load(Relaxed),
            handed_over: handed_over.load(Relaxed),
        }
    }
}

/// What one listener does with requests.
pub trait Site: Send + Sync + 'static {
    /// A BOSH request that waits; dropped when its connection breaks.
    type Exchange: Future<Output = Answer> + Send + Unpin;
    /// What it shares with others.
    fn http(&self) -> &Http;
    /// Whether sessions have to be encrypted.
    fn needs_tls(&self) -> bool;
    /// One BOSH request with its whole body.
    fn exchange(&self, origin: Origin, body: &[u8]) -> Self::Exchange;
    /// A place for a session from there; none: it is full.
    fn enter(&self, remote: &Remote) -> Option<Pass>;
    /// A stream that has become a WebSocket; its answer is queued.
    fn websocket(&self, stream: Stream, pass: Pass);
    /// A connection with something else: another path, HTTP/2. Nothing of it is consumed.
    fn other(&self, stream: Stream, pass: Pass);
}
