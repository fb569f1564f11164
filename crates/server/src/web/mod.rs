//! HTTP of a node: BOSH and WebSocket are handled by the engine, other requests by the crate `api`.
//!
//! A connection begins as a lean [`net::http::HttpConnection`]. Requests that it does not serve are passed to hyper,
//! see `hyper_server`; requests for BOSH and WebSocket may arrive there too, and mean the same.
//!
//! Each listener has its own limit of HTTP connections, so that operators get in on another listener when clients
//! have exhausted one; a session counts against the XMPP limits besides, with its real address.
//!
//! # Pitfalls
//!
//! [`HttpFrontend`] is created before the listeners are, since a reload must know both; without listeners no request
//! is accepted.

mod feature_routes;
mod hyper_server;
pub(crate) mod public_url;
mod write_stall;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use axum::Router;
use base::clock::Clock;
use base::lock::LeafRwLock;
use net::bosh::{BoshSessionTable, PendingResponse, RequestSource};
use net::http::{HttpConnection as Http1, HttpHandler, HttpShared, RemoteClient};
use net::{
    AcceptedConnection, ConnectionLimiter, ConnectionPermit, Networks, RemoteRole, Stream, proxy_protocol,
};
use streams::{C2sConnection, TlsPolicy};
use throng_core::public_url::PublicUrl;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::config;
use crate::reload::ListenerState;

/// Timeout of a PROXY header, which the proxy sends immediately.
const PROXY_HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// State shared by all HTTP listeners.
pub(crate) struct HttpFrontend {
    pub(crate) http: Arc<HttpShared>,
    pub(crate) bosh: Arc<BoshSessionTable>,
    public_url: LeafRwLock<Option<String>>,
    /// Addresses that may read `/metrics`.
    metrics_allow: LeafRwLock<Networks>,
    /// Connection limits of XMPP.
    pub(crate) xmpp_limiter: ConnectionLimiter,
    listeners: OnceLock<Vec<Arc<ListenerState>>>,
    router: OnceLock<Router>,
    runtime: Handle,
    stop: watch::Sender<bool>,
    /// The node drains: requests are answered, and no stream begins.
    refuses_streams: AtomicBool,
    /// Connections served by hyper.
    hyper_connections: AtomicUsize,
}

impl HttpFrontend {
    /// Creates the frontend, before the node listens.
    pub(crate) fn new(
        config: &config::HttpConfig,
        clock: Arc<dyn Clock>,
        limiter: ConnectionLimiter,
        runtime: Handle,
    ) -> Arc<HttpFrontend> {
        Arc::new_cyclic(|web: &Weak<HttpFrontend>| {
            let web = web.clone();
            let start = move |stream| web.upgrade().is_some_and(|web| web.start_bosh_stream(stream));
            HttpFrontend {
                http: HttpShared::new(config.settings.clone(), clock.clone()),
                bosh: BoshSessionTable::new(config.bosh, clock, Box::new(start)),
                public_url: LeafRwLock::new(config.public_url.clone()),
                metrics_allow: LeafRwLock::new(config.metrics_allow.clone()),
                xmpp_limiter: limiter,
                listeners: OnceLock::new(),
                router: OnceLock::new(),
                runtime,
                stop: watch::Sender::new(false),
                refuses_streams: AtomicBool::new(false),
                hyper_connections: AtomicUsize::new(0),
            }
        })
    }

    /// Sets the listeners, and the router of other paths. Only the first call has an effect.
    pub(crate) fn set_listeners(&self, listeners: Vec<Arc<ListenerState>>, router: Router) {
        let _ = self.listeners.set(listeners);
        let _ = self.router.set(router);
    }

    /// Applies another configuration.
    pub(crate) fn reconfigure(&self, config: &config::HttpConfig) {
        self.http.set_settings(config.settings.clone());
        self.public_url.write().clone_from(&config.public_url);
        self.metrics_allow.write().clone_from(&config.metrics_allow);
        self.bosh.set_settings(config.bosh);
    }

    /// Checks deadlines; called once a second.
    pub(crate) fn sweep(&self) {
        self.http.sweep();
        self.bosh.sweep();
    }

    /// From now on, no stream begins. Pages, the API and metrics are still served.
    pub(crate) fn refuse_streams(&self) {
        self.refuses_streams.store(true, Ordering::Relaxed);
    }

    /// Begins the shutdown: connections end as soon as pending requests are answered.
    pub(crate) fn drain(&self) {
        self.http.drain();
        self.stop.send_replace(true);
    }

    /// Whether a client still waits for a response.
    pub(crate) fn is_busy(&self) -> bool {
        self.bosh.counts().held > 0 || self.http.counts().connections > 0 || self.hyper_connections() > 0
    }

    /// Number of connections served by hyper.
    pub(crate) fn hyper_connections(&self) -> usize {
        self.hyper_connections.load(Ordering::Relaxed)
    }

    /// Whether a non-local address may read `/metrics`.
    pub(crate) fn may_scrape(&self, address: IpAddr) -> bool {
        self.metrics_allow.read().contains(address)
    }

    /// Discovery of BOSH and WebSocket of this node (XEP-0156): at its public address, or else at the address of the
    /// request.
    pub(crate) fn alternatives(&self, host: Option<&str>, secure: bool) -> Vec<(&'static str, String)> {
        let scheme = if secure { "https" } else { "http" };
        let base = match (&*self.public_url.read(), host) {
            (Some(url), _) => url.clone(),
            (None, Some(host)) => format!("{scheme}://{host}"),
            (None, None) => return Vec::new(),
        };
        let settings = self.http.settings();
        let mut links = Vec::new();
        if settings.bosh_body_bytes.is_some() {
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
    fn start_bosh_stream(&self, stream: Stream) -> bool {
        let local = stream.listener_config().local_address;
        let listener_state = self
            .listeners
            .get()
            .into_iter()
            .flatten()
            .find(|listener_state| listener_state.listener_config.get().local_address == local);
        let Some(listener_state) = listener_state else { return false };
        let Some(permit) = self.admit_stream(&stream) else { return false };
        self.runtime.spawn(C2sConnection::new(stream, permit, listener_state.service()));
        true
    }

    fn admit_stream(&self, stream: &Stream) -> Option<ConnectionPermit> {
        self.admit(stream.info().peer.ip())
    }

    fn admit(&self, peer: IpAddr) -> Option<ConnectionPermit> {
        let refused = self.refuses_streams.load(Ordering::Relaxed) || self.http.is_draining();
        if refused || !self.xmpp_limiter.has_capacity() {
            return None;
        }
        self.xmpp_limiter.try_acquire(peer).ok()
    }
}

impl PublicUrl for HttpFrontend {
    fn base(&self, domain: &str) -> Option<String> {
        if let Some(url) = &*self.public_url.read() {
            return Some(url.clone());
        }
        let listeners = self.listeners.get()?;
        let addresses = listeners
            .iter()
            .filter(|one| !one.is_proxied())
            .map(|one| (one.listen.kind, one.listener_config.get().local_address))
            .collect::<Vec<_>>();
        public_url::of_listeners(&addresses, domain)
    }
}

/// One HTTP listener.
pub(crate) struct HttpListenerHandler {
    pub(crate) web: Arc<HttpFrontend>,
    pub(crate) listener: Arc<ListenerState>,
}

impl HttpListenerHandler {
    /// Serves a connection from its first byte.
    pub(crate) fn serve(self: &Arc<Self>, stream: Stream, permit: ConnectionPermit) {
        self.web.runtime.spawn(Http1::new(stream, permit, self.clone()));
    }
}

impl HttpHandler for HttpListenerHandler {
    type ResponseFuture = PendingResponse;

    fn shared(&self) -> &HttpShared {
        &self.web.http
    }

    fn needs_tls(&self) -> bool {
        self.listener.service().policy.tls == TlsPolicy::Required
    }

    fn bosh_request(&self, origin: RequestSource, body: &[u8]) -> PendingResponse {
        self.web.bosh.handle_request(origin, body)
    }

    fn response_sent(&self, response: &mut PendingResponse) {
        response.response_sent();
    }

    fn acquire_permit(&self, remote: &RemoteClient) -> Option<ConnectionPermit> {
        self.web.admit(remote.peer.ip())
    }

    fn websocket(&self, stream: Stream, permit: ConnectionPermit) {
        self.web.runtime.spawn(C2sConnection::new(stream, permit, self.listener.service()));
    }

    fn passthrough(&self, stream: Stream, permit: ConnectionPermit) {
        let handler = HttpListenerHandler { web: self.web.clone(), listener: self.listener.clone() };
        self.web.runtime.spawn(hyper_server::serve(Arc::new(handler), stream, permit));
    }
}

/// Role of an address that connects to a listener.
pub(crate) fn remote_role(peer: IpAddr, listener_state: &ListenerState, http: &HttpShared) -> RemoteRole {
    if !listener_state.is_proxied() {
        RemoteRole::Client
    } else if http.settings().proxies.trusted.contains(peer) {
        RemoteRole::Proxy
    } else {
        RemoteRole::Untrusted
    }
}

/// Accepts a connection that a proxy makes for a client. `None` if it cannot be served.
pub(crate) async fn accept_proxied(
    accepted: AcceptedConnection,
    listener_state: &ListenerState,
) -> Option<(Stream, ConnectionPermit)> {
    let mut accepted = accepted;
    let mut encrypted = false;
    let from = accepted.peer;
    let mut client = from;
    let read = proxy_protocol::read_header(&mut accepted.socket);
    match tokio::time::timeout(PROXY_HEADER_TIMEOUT, read).await {
        Ok(Ok(proxy_protocol::ProxyHeader::Proxied { peer, secure })) => (client, encrypted) = (peer, secure),
        Ok(Ok(proxy_protocol::ProxyHeader::Local)) => {}
        Ok(Err(error)) => {
            tracing::debug!(peer = %from, %error, "a proxy sent an invalid PROXY protocol header");
            return None;
        }
        Err(_) => return None,
    }
    // The limiter counts the refusal.
    accepted.set_client_address(client).ok()?;
    let (mut stream, permit) = into_stream(accepted, listener_state)?;
    if encrypted {
        stream.set_proxied_client(client, true);
    }
    Some((stream, permit))
}

/// Makes a stream of an accepted connection.
pub(crate) fn into_stream(
    accepted: AcceptedConnection,
    listener_state: &ListenerState,
) -> Option<(Stream, ConnectionPermit)> {
    let made = accepted.into_stream(listener_state.service().tls.as_deref());
    made.map_err(|error| tracing::warn!(%error, "cannot serve a connection")).ok()
}
