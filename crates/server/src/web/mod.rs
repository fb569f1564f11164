//! HTTP of a node: BOSH and WebSocket go to the engine, the rest to the crate `api`.
//!
//! A connection begins as a lean [`net::http::Connection`]. What that does not serve goes on under hyper, see `library`; the
//! same requests for BOSH and WebSocket may come in there, and mean the same.
//!
//! Each listener has a gate of its own for HTTP connections, so that operators get in by another door when clients have taken
//! everything; a session passes the gate of XMPP besides, by its real address.
//!
//! The trap: [`Web`] is made before the doors are, since a reload must know both; without doors nothing is let in.

mod library;

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use axum::Router;
use base::clock::Clock;
use net::bosh::{Exchange, Origin, Sessions};
use net::http::{Connection as Http1, Http, Remote, Site};
use net::{Accepted, Gate, Networks, Pass, Stream, proxy_protocol};
use parking_lot::RwLock;
use streams::{Connection, TlsPolicy};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::config;
use crate::reload::Door;

/// Time for the header of a proxy, which sends it at once.
const PROXY_PATIENCE: Duration = Duration::from_secs(5);

/// What all HTTP listeners share.
pub(crate) struct Web {
    pub(crate) http: Arc<Http>,
    pub(crate) bosh: Arc<Sessions>,
    public_url: RwLock<Option<String>>,
    /// Addresses that may read `/metrics`.
    metrics_allow: RwLock<Networks>,
    /// Of XMPP.
    pub(crate) gate: Gate,
    doors: OnceLock<Vec<Arc<Door>>>,
    router: OnceLock<Router>,
    runtime: Handle,
    stop: watch::Sender<bool>,
    /// Connections that the library serves.
    pages: AtomicUsize,
}

impl Web {
    /// Before the node listens.
    pub(crate) fn new(config: &config::Http, clock: Arc<dyn Clock>, gate: Gate, runtime: Handle) -> Arc<Web> {
        Arc::new_cyclic(|web: &Weak<Web>| {
            let web = web.clone();
            let start = move |stream| web.upgrade().is_some_and(|web| web.begin(stream));
            Web {
                http: Http::new(config.settings.clone(), clock.clone()),
                bosh: Sessions::new(config.bosh, clock, Box::new(start)),
                public_url: RwLock::new(config.public_url.clone()),
                metrics_allow: RwLock::new(config.metrics_allow.clone()),
                gate,
                doors: OnceLock::new(),
                router: OnceLock::new(),
                runtime,
                stop: watch::Sender::new(false),
                pages: AtomicUsize::new(0),
            }
        })
    }

    /// Says which doors there are, and who answers for other paths. Counts once.
    pub(crate) fn open(&self, doors: Vec<Arc<Door>>, router: Router) {
        let _ = self.doors.set(doors);
        let _ = self.router.set(router);
    }

    /// Takes another configuration.
    pub(crate) fn change(&self, config: &config::Http) {
        self.http.change(config.settings.clone());
        self.public_url.write().clone_from(&config.public_url);
        self.metrics_allow.write().clone_from(&config.metrics_allow);
        self.bosh.change(config.bosh);
    }

    /// Once a second.
    pub(crate) fn sweep(&self) {
        self.http.sweep();
        self.bosh.sweep();
    }

    /// The node stops: connections end as soon as what they were asked is answered.
    pub(crate) fn drain(&self) {
        self.http.drain();
        self.stop.send_replace(true);
    }

    /// Whether somebody still waits for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.bosh.counts().held > 0 || self.http.counts().connections > 0 || self.pages() > 0
    }

    /// Connections that the library serves.
    pub(crate) fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Whether an address that is not this machine's may read `/metrics`.
    pub(crate) fn may_scrape(&self, address: IpAddr) -> bool {
        self.metrics_allow.read().contains(address)
    }

    /// Where clients find BOSH and WebSocket of this node (XEP-0156): at its public address, or else where they asked.
    pub(crate) fn alternatives(&self, host: Option<&str>, secure: bool) -> Vec<(&'static str, String)> {
        let scheme = if secure { "https" } else { "http" };
        let base = match (&*self.public_url.read(), host) {
            (Some(url), _) => url.clone(),
            (None, Some(host)) => format!("{scheme}://{host}"),
            (None, None) => return Vec::new(),
        };
        let settings = self.http.settings();
        let mut links = Vec::new();
        if settings.bosh.is_some() {
            links.push(("urn:xmpp:alt-connections:xbosh", format!("{base}/bosh")));
        }
        // https becomes wss, http becomes ws.
        if settings.websocket.is_some()
            && let Some(rest) = base.strip_prefix("http")
        {
            links.push(("urn:xmpp:alt-connections:websocket", format!("ws{rest}/ws")));
        }
        links
    }

    /// Starts the stream of a BOSH session.
    fn begin(&self, stream: Stream) -> bool {
        let local = stream.port().local;
        let door = self.doors.get().into_iter().flatten().find(|door| door.port.get().local == local);
        let Some(door) = door else { return false };
        let Some(pass) = self.enter(&stream) else { return false };
        self.runtime.spawn(Connection::new(stream, pass, door.service()));
        true
    }

    fn enter(&self, stream: &Stream) -> Option<Pass> {
        self.admit(stream.facts().peer.ip())
    }

    fn admit(&self, peer: IpAddr) -> Option<Pass> {
        if self.http.is_draining() || !self.gate.has_room() {
            return None;
        }
        self.gate.enter(peer).ok()
    }
}

/// One HTTP listener.
pub(crate) struct Place {
    pub(crate) web: Arc<Web>,
    pub(crate) door: Arc<Door>,
}

impl Place {
    /// Serves a connection from its first byte.
    pub(crate) fn serve(self: &Arc<Self>, stream: Stream, pass: Pass) {
        self.web.runtime.spawn(Http1::new(stream, pass, self.clone()));
    }
}

impl Site for Place {
    type Exchange = Exchange;

    fn http(&self) -> &Http {
        &self.web.http
    }

    fn needs_tls(&self) -> bool {
        self.door.service().policy.tls == TlsPolicy::Required
    }

    fn exchange(&self, origin: Origin, body: &[u8]) -> Exchange {
        self.web.bosh.exchange(origin, body)
    }

    fn enter(&self, remote: &Remote) -> Option<Pass> {
        self.web.admit(remote.peer.ip())
    }

    fn websocket(&self, stream: Stream, pass: Pass) {
        self.web.runtime.spawn(Connection::new(stream, pass, self.door.service()));
    }

    fn other(&self, stream: Stream, pass: Pass) {
        let place = Place { web: self.web.clone(), door: self.door.clone() };
        self.web.runtime.spawn(library::serve(Arc::new(place), stream, pass));
    }
}

/// Makes a stream of a connection that a proxy makes for a client. None: it is of no use.
pub(crate) async fn introduce(accepted: Accepted, door: &Door, http: &Http) -> Option<(Stream, Pass)> {
    let mut accepted = accepted;
    let mut encrypted = false;
    let from = accepted.peer;
    if !http.settings().proxies.trusted.contains(from.ip()) {
        tracing::info!(peer = %from, "refused: only [http] trusted_proxies may connect where proxy_protocol is on");
        return None;
    }
    let read = proxy_protocol::read(&mut accepted.socket);
    match tokio::time::timeout(PROXY_PATIENCE, read).await {
        Ok(Ok(proxy_protocol::Announced::Client { peer, secure })) => {
            (accepted.peer, encrypted) = (peer, secure)
        }
        Ok(Ok(proxy_protocol::Announced::Itself)) => {}
        Ok(Err(error)) => {
            tracing::debug!(peer = %from, %error, "a proxy sent no proper PROXY header");
            return None;
        }
        Err(_) => return None,
    }
    // The gate counts the refusal.
    accepted.pass.identify(accepted.peer.ip()).ok()?;
    let peer = accepted.peer;
    let (mut stream, pass) = stream(accepted, door)?;
    if encrypted {
        stream.behind_proxy(peer, true);
    }
    Some((stream, pass))
}

/// Makes a stream of an accepted connection.
pub(crate) fn stream(accepted: Accepted, door: &Door) -> Option<(Stream, Pass)> {
    let made = accepted.into_stream(door.service().tls.as_deref());
    made.map_err(|error| tracing::warn!(%error, "a connection could not be served")).ok()
}
