//! HTTP connections served by hyper: HTTP/1.1 for pages and commands, HTTP/2 for everything.
//!
//! Requests for BOSH and WebSocket arrive here on connections that began with other requests, and in HTTP/2, where a
//! WebSocket begins with an extended CONNECT (RFC 8441). The same rules apply as in `net::http`.
//!
//! Not implemented: HTTP/2 without TLS by `Upgrade: h2c` (RFC 9113 has removed it); prior knowledge is supported. Reporting
//! that the kernel has taken a BOSH response: it counts as sent when hyper takes its body.
//!
//! # Pitfalls
//!
//! `Host` is a header in HTTP/1.1 and `:authority` in HTTP/2.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use net::bosh::{BoshResponse, PendingResponse, RequestSource};
use net::http::{
    BOSH_PAGE, HttpHandler as _, HttpSettings, MIN_GZIP_BYTES, MalformedForwarded, PREFLIGHT_HEADERS,
    RemoteClient, Route, SECURITY_HEADERS, StreamIo,
};
use net::websocket::{self, Handshake};
use net::{ConnectionPermit, SharedListenerConfig, Stream};
use streams::C2sConnection;

use super::write_stall::{self, StreamExecutor, UpgradeFlag, WriteStallIo};
use super::{HttpListenerHandler, feature_routes};

/// Concurrent requests of one HTTP/2 connection. A BOSH session has at most three.
const MAX_CONCURRENT_STREAMS: u32 = 64;
/// Maximum bytes of a request head.
const MAX_HEAD_BYTES: u32 = 16 * 1024;

/// Serves a connection to its end. `permit` is its permit of the HTTP connection limit.
pub(super) async fn serve(handler: Arc<HttpListenerHandler>, stream: Stream, permit: ConnectionPermit) {
    let info = stream.info();
    let direct = RemoteClient { peer: info.peer, secure: info.secure };
    let port = stream.listener_config().clone();
    let settings = handler.web.http.settings();
    let mut builder = auto::Builder::new(StreamExecutor(handler.web.runtime.clone()));
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(u64::from(settings.idle_timeout_seconds)))
        .max_buf_size(MAX_HEAD_BYTES as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES)
        .keep_alive_interval(Duration::from_secs(u64::from(settings.idle_timeout_seconds)))
        .keep_alive_timeout(Duration::from_secs(20))
        .enable_connect_protocol();
    let (shared, upgrade) = (handler.clone(), UpgradeFlag::default());
    let stall = Duration::from_secs(u64::from(settings.write_stall_timeout_seconds));
    let io = TokioIo::new(WriteStallIo::new(StreamIo::new(stream), stall, &upgrade));
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, port, upgrade) = (shared.clone(), port.clone(), upgrade.clone());
        async move {
            let response = Box::pin(handle_request(handler, direct, port, request)).await;
            upgrade.observe(&response);
            Ok::<_, Infallible>(write_stall::watch(response, stall))
        }
    });
    let mut stop = handler.web.stop.subscribe();
    let connection = Box::pin(builder.serve_connection_with_upgrades(io, service));
    let _count = HyperConnectionGuard::new(&handler);
    if let Err(error) = run_until_shutdown(connection, &mut stop).await {
        tracing::debug!(peer = %direct.peer, %error, "an HTTP connection failed");
    }
    drop(permit);
}

type HyperConnection<'a, S> = auto::UpgradeableConnection<'a, TokioIo<WriteStallIo>, S, StreamExecutor>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Runs a connection to its end, which comes earlier when the node stops.
async fn run_until_shutdown<S, F>(
    connection: std::pin::Pin<Box<HyperConnection<'_, S>>>,
    stop: &mut tokio::sync::watch::Receiver<bool>,
) -> Result<(), BoxError>
where
    S: hyper::service::Service<Request<Incoming>, Response = Response<Body>, Error = Infallible, Future = F>,
    F: Future<Output = Result<Response<Body>, Infallible>> + Send + 'static,
{
    let mut connection = connection;
    tokio::select! {
        done = connection.as_mut() => return done,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// Counts a connection while it exists.
struct HyperConnectionGuard<'a>(&'a HttpListenerHandler);

impl HyperConnectionGuard<'_> {
    fn new(handler: &HttpListenerHandler) -> HyperConnectionGuard<'_> {
        handler.web.hyper_connections.fetch_add(1, Ordering::Relaxed);
        HyperConnectionGuard(handler)
    }
}

impl Drop for HyperConnectionGuard<'_> {
    fn drop(&mut self) {
        self.0.web.hyper_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn handle_request(
    handler: Arc<HttpListenerHandler>,
    direct: RemoteClient,
    port: SharedListenerConfig,
    mut request: Request<Incoming>,
) -> Response<Body> {
    if !has_one_host(&request) {
        let mut response =
            text_response(StatusCode::BAD_REQUEST, "the request must have exactly one Host header");
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    let settings = handler.web.http.settings();
    let remote = match settings.proxies.reads_headers() {
        false => direct,
        true => {
            let list: Vec<(&str, &[u8])> = header_pairs(request.headers()).collect();
            match settings.proxies.client(direct, list.iter().copied()) {
                Ok(remote) => remote,
                Err(MalformedForwarded) => {
                    return text_response(StatusCode::BAD_REQUEST, MalformedForwarded::REASON);
                }
            }
        }
    };
    let transport = TransportRequest { handler, remote, port, settings };
    match Route::of(request.uri().path()) {
        Route::Bosh if transport.settings.bosh_body_bytes.is_some() => transport.bosh(request).await,
        Route::WebSocket if transport.settings.websocket.is_some() => transport.websocket(request),
        _ => {
            let node = transport.handler.listener.service().node.clone();
            if let Some(matched) = feature_api::http_route::match_http_route(&node, request.uri().path()) {
                if transport.handler.needs_tls() && !remote.secure {
                    let reason = "this listener requires encryption: use https";
                    return text_response(StatusCode::FORBIDDEN, reason);
                }
                return feature_routes::answer(&node, matched, request, remote, &transport.settings).await;
            }
            let Some(router) = transport.handler.web.router.get() else {
                return text_response(StatusCode::SERVICE_UNAVAILABLE, "not yet");
            };
            let names = request.headers().keys().map(HeaderName::as_str);
            let proxied = remote.peer == direct.peer && net::http::has_passed_a_proxy(names);
            let peer = api::RequestPeer { address: remote.peer.ip(), secure: remote.secure, proxied };
            request.extensions_mut().insert(peer);
            match TowerToHyperService::new(router.clone()).call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
    }
}

/// RFC 9112, section 3.2: exactly one `Host` in HTTP/1.1. Hyper leaves that to its caller.
fn has_one_host<B>(request: &Request<B>) -> bool {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    hosts == 1 || hosts == 0 && request.version() != Version::HTTP_11
}

fn header_pairs(headers: &HeaderMap) -> impl Iterator<Item = (&str, &[u8])> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

fn text_response(status: StatusCode, reason: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(format!("{reason}\n")));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// An early response that rejects a request.
type ErrorResponse = Box<Response<Body>>;

fn error_response(status: StatusCode, reason: &str) -> ErrorResponse {
    Box::new(text_response(status, reason))
}

/// A request for BOSH or WebSocket, with the data needed to check it.
struct TransportRequest {
    handler: Arc<HttpListenerHandler>,
    remote: RemoteClient,
    port: SharedListenerConfig,
    settings: Arc<HttpSettings>,
}

impl TransportRequest {
    /// Checks the origin of the page and the required encryption; returns the origin to name in responses, or the
    /// rejection.
    fn check(
        &self,
        request: &Request<Incoming>,
        session: bool,
    ) -> Result<Option<HeaderValue>, ErrorResponse> {
        let headers = request.headers();
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let host = request.uri().authority().map(|authority| authority.as_str()).or(text(header::HOST));
        let single = headers.get_all(header::ORIGIN).iter().count() <= 1;
        let granted =
            self.settings.allowed_origins.header(text(header::ORIGIN), host).ok().filter(|_| single);
        let Some(granted) = granted else {
            return Err(error_response(StatusCode::FORBIDDEN, "this origin is not allowed"));
        };
        if session && self.handler.needs_tls() && !self.remote.secure {
            let reason = "this listener requires encryption: use https or wss";
            return Err(error_response(StatusCode::FORBIDDEN, reason));
        }
        Ok(granted.and_then(|value| HeaderValue::try_from(value).ok()))
    }

    async fn bosh(&self, request: Request<Incoming>) -> Response<Body> {
        let post = request.method() == Method::POST;
        let granted = match self.check(&request, post) {
            Ok(granted) => granted,
            Err(refused) => return *refused,
        };
        let gzip = self.settings.gzip
            && request
                .headers()
                .get_all(header::ACCEPT_ENCODING)
                .iter()
                .any(|v| net::http::accepts_gzip(v.as_bytes()));
        let mut response = if post {
            match self.read_body(request).await {
                Ok(body) => {
                    let RemoteClient { peer, secure } = self.remote;
                    let origin = RequestSource { peer, listener: self.port.clone(), secure };
                    let mut pending = self.handler.bosh_request(origin, &body);
                    let answer = (&mut pending).await;
                    bosh_response(&answer, gzip, pending)
                }
                Err(refused) => *refused,
            }
        } else {
            non_post_response(request.method())
        };
        let headers = response.headers_mut();
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        for (name, value) in SECURITY_HEADERS {
            headers.insert(HeaderName::from_static(header_name(name)), HeaderValue::from_static(value));
        }
        if let Some(origin) = granted {
            if origin != "*" {
                headers.append(header::VARY, HeaderValue::from_static("Origin"));
            }
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        }
        response
    }

    /// Reads the whole body, if it has a valid size and arrives in time.
    async fn read_body(&self, request: Request<Incoming>) -> Result<axum::body::Bytes, ErrorResponse> {
        let limit = self.settings.bosh_body_bytes.unwrap_or(0);
        let too_long = || error_response(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long");
        let coded = request.headers().get(header::CONTENT_ENCODING).is_some_and(|v| v != "identity");
        if coded {
            return Err(error_response(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "request bodies must not be compressed",
            ));
        }
        let body = request.into_body();
        if hyper::body::Body::size_hint(&body).lower() > limit as u64 {
            return Err(too_long());
        }
        let timeout = Duration::from_secs(u64::from(self.settings.body_timeout_seconds));
        let collected = pin!(Limited::new(body, limit).collect());
        match tokio::time::timeout(timeout, collected).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
            Ok(Err(_)) => Err(error_response(StatusCode::BAD_REQUEST, "the body is incomplete")),
            Err(_) => {
                Err(error_response(StatusCode::REQUEST_TIMEOUT, "the request was not received in time"))
            }
        }
    }

    fn websocket(&self, mut request: Request<Incoming>) -> Response<Body> {
        if let Err(refused) = self.check(&request, true) {
            return *refused;
        }
        let Some(settings) = &self.settings.websocket else {
            return text_response(StatusCode::NOT_FOUND, "WebSocket is not available at this path");
        };
        let version = match request.version() {
            Version::HTTP_11 => websocket::HttpVersion::Http11,
            Version::HTTP_2 => {
                let protocol = request.extensions().get::<hyper::ext::Protocol>();
                if protocol.is_none_or(|protocol| protocol.as_str() != "websocket") {
                    return text_response(
                        StatusCode::BAD_REQUEST,
                        "WebSocket over HTTP/2 requires CONNECT with :protocol",
                    );
                }
                websocket::HttpVersion::Http2
            }
            _ => websocket::HttpVersion::Http10,
        };
        let handshake = Handshake {
            method: request.method().as_str(),
            version,
            headers: header_pairs(request.headers()),
        };
        let accepted = match websocket::accept(handshake, settings) {
            Ok(accepted) => accepted,
            Err(rejected) => {
                let status = StatusCode::from_u16(rejected.status).unwrap_or(StatusCode::BAD_REQUEST);
                let mut response = text_response(status, rejected.reason);
                if let Some((name, value)) = rejected.header() {
                    let name = HeaderName::from_static(header_name(name));
                    response.headers_mut().insert(name, HeaderValue::from_static(value));
                }
                return response;
            }
        };
        let Some(permit) = self.handler.acquire_permit(&self.remote) else {
            return text_response(StatusCode::SERVICE_UNAVAILABLE, "the server has too many sessions");
        };
        let mut response = Response::new(Body::empty());
        if version == websocket::HttpVersion::Http11 {
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        }
        for (name, value) in accepted.headers() {
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(HeaderName::from_static(name), value);
            }
        }
        let upgrade = hyper::upgrade::on(&mut request);
        let (remote, port, service) = (self.remote, self.port.clone(), self.handler.listener.service());
        self.handler.web.runtime.spawn(async move {
            let Ok(upgraded) = upgrade.await else { return };
            let mut stream = Stream::from_duplex(Box::new(TokioIo::new(upgraded)), remote.peer, port);
            stream.set_proxied_client(remote.peer, remote.secure);
            stream.set_websocket(accepted);
            Box::pin(C2sConnection::new(stream, permit, service)).await;
        });
        response
    }
}

/// Converts our names of headers into the case that the `http` crate requires.
fn header_name(name: &'static str) -> &'static str {
    match name {
        "X-Content-Type-Options" => "x-content-type-options",
        "Content-Security-Policy" => "content-security-policy",
        "Access-Control-Allow-Methods" => "access-control-allow-methods",
        "Access-Control-Allow-Headers" => "access-control-allow-headers",
        "Access-Control-Max-Age" => "access-control-max-age",
        "Sec-WebSocket-Version" => "sec-websocket-version",
        "Allow" => "allow",
        other => other,
    }
}

/// Body of a BOSH response. Dropped before hyper has taken it, the response was not sent.
struct BoshResponseBody {
    bytes: Option<Bytes>,
    pending: PendingResponse,
}

impl hyper::body::Body for BoshResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = self.bytes.take();
        if bytes.is_some() {
            self.pending.response_sent();
        }
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Converts a BOSH response.
fn bosh_response(answer: &BoshResponse, gzip: bool, pending: PendingResponse) -> Response<Body> {
    let compressed = gzip && answer.body.len() > MIN_GZIP_BYTES;
    let bytes = if compressed { net::http::gzip(&answer.body) } else { answer.body.to_vec() };
    let body = BoshResponseBody { bytes: Some(bytes.into()), pending };
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let headers = response.headers_mut();
    let content = answer.content_type.as_deref().unwrap_or(BoshResponse::DEFAULT_CONTENT_TYPE);
    if let Ok(content) = HeaderValue::try_from(content) {
        headers.insert(header::CONTENT_TYPE, content);
    }
    if gzip {
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    if compressed {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// Responds to requests to the BOSH path with other methods than POST.
fn non_post_response(method: &Method) -> Response<Body> {
    match *method {
        Method::OPTIONS => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            for (name, value) in PREFLIGHT_HEADERS {
                let name = HeaderName::from_static(header_name(name));
                response.headers_mut().insert(name, HeaderValue::from_static(value));
            }
            response
        }
        Method::GET | Method::HEAD => text_response(StatusCode::OK, BOSH_PAGE.trim_end()),
        _ => {
            let mut response = text_response(StatusCode::METHOD_NOT_ALLOWED, "BOSH requests use POST.");
            let allow = HeaderValue::from_static("POST, GET, HEAD, OPTIONS");
            response.headers_mut().insert(header::ALLOW, allow);
            response
        }
    }
}
