//! HTTP routes of features ([`feature_api::http_route`]) on every HTTP listener.
//!
//! # Pitfalls
//!
//! A response is sent before the request's body is read if the handler does not read it. Hyper then closes the
//! connection.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use feature_api::http_route::{
    HttpBodyError, HttpBodyStream, HttpRouteBody, HttpRouteRequest, MatchedHttpRoute,
};
use hyper::body::{Body as _, Incoming};
use net::http::{AllowedOrigins, HttpSettings, RemoteClient};
use throng_core::Node;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Bytes per second that a client must send at least, on average: below, connections are held to no purpose.
const MIN_BYTES_PER_SECOND: u64 = 1024;
/// Time for a body of any length.
const MAX_TRANSFER: Duration = Duration::from_secs(30 * 24 * 3600);
/// Request headers that a page of another origin may send.
const CORS_REQUEST_HEADERS: &str = "Authorization, Content-Type, Range, If-None-Match";
/// Response headers that a page of another origin may read.
const CORS_RESPONSE_HEADERS: &str = "Content-Length, Content-Range, Content-Disposition, ETag, Retry-After";

/// Answers a request.
pub(super) async fn answer(
    node: &Arc<Node>,
    matched: MatchedHttpRoute,
    request: Request<Incoming>,
    remote: RemoteClient,
    settings: &HttpSettings,
) -> Response<Body> {
    let MatchedHttpRoute { host, route, path } = matched;
    let cors = granted_origin(&request, settings);
    let methods = route.spec.methods;
    let method = methods.iter().find(|method| **method == request.method().as_str()).unwrap_or(&"other");
    let mut response = if request.method() == Method::OPTIONS {
        plain(StatusCode::NO_CONTENT, "")
    } else if !methods.contains(&request.method().as_str()) {
        plain(StatusCode::METHOD_NOT_ALLOWED, "this method is not available here\n")
    } else if cors.is_err() && !matches!(*request.method(), Method::GET | Method::HEAD) {
        plain(StatusCode::FORBIDDEN, "this origin is not allowed\n")
    } else {
        let is_head = request.method() == Method::HEAD;
        let length = request.body().size_hint().exact();
        let received = ByteCounter { node: node.clone(), labels: [route.spec.prefix, "in"] };
        let request = request.map(|body| request_body(body, length, settings, received));
        let request = HttpRouteRequest {
            node: node.clone(),
            host,
            request,
            path,
            peer: remote.peer.ip(),
            secure: remote.secure,
        };
        let (mut head, body) = route.handler.answer(request).await.into_parts();
        // RFC 9110, section 8.6: a response without content has no length.
        let has_length = head.headers.contains_key(header::CONTENT_LENGTH)
            || matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
            || head.status.is_informational();
        if let Some(length) = body.length().filter(|_| !has_length) {
            head.headers.insert(header::CONTENT_LENGTH, length.into());
        }
        let sent = ByteCounter { node: node.clone(), labels: [route.spec.prefix, "out"] };
        let body = if is_head { Body::empty() } else { response_body(body, sent) };
        Response::from_parts(head, body)
    };
    add_cors(response.headers_mut(), cors.ok().flatten(), methods, &settings.allowed_origins);
    if response.status() == StatusCode::METHOD_NOT_ALLOWED
        && let Ok(allow) = HeaderValue::try_from(allowed_methods(methods))
    {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    node.metrics.http_route_requests.inc([route.spec.prefix, method, status_class(response.status())]);
    response
}

/// The class of a status (RFC 9110, section 15) as a label.
fn status_class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// Counts the bytes of a body.
struct ByteCounter {
    node: Arc<Node>,
    labels: [&'static str; 2],
}

impl ByteCounter {
    fn add(&self, chunk: &Bytes) {
        self.node.metrics.http_route_bytes.add(self.labels, chunk.len() as u64);
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

fn allowed_methods(methods: &[&str]) -> String {
    [methods, &["OPTIONS"]].concat().join(", ")
}

/// The origin to name in the response; an error if pages of this origin may not use the route.
fn granted_origin(
    request: &Request<Incoming>,
    settings: &HttpSettings,
) -> Result<Option<HeaderValue>, net::http::ForbiddenOrigin> {
    let headers = request.headers();
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = request.uri().authority().map(|authority| authority.as_str()).or(text(header::HOST));
    if headers.get_all(header::ORIGIN).iter().nth(1).is_some() {
        return Err(net::http::ForbiddenOrigin);
    }
    let granted = settings.allowed_origins.header(text(header::ORIGIN), host)?;
    Ok(granted.and_then(|origin| HeaderValue::try_from(origin).ok()))
}

fn add_cors(
    headers: &mut HeaderMap,
    origin: Option<HeaderValue>,
    methods: &[&str],
    allowed: &AllowedOrigins,
) {
    // Also without an origin: a cache must not answer a page with a response that names none.
    if *allowed != AllowedOrigins::Any {
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
    }
    let Some(origin) = origin else { return };
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    if let Ok(methods) = HeaderValue::try_from(allowed_methods(methods)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_HEADERS, CORS_REQUEST_HEADERS),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, CORS_RESPONSE_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, "7200"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn request_body(
    body: Incoming,
    length: Option<u64>,
    settings: &HttpSettings,
    received: ByteCounter,
) -> HttpRouteBody {
    if length == Some(0) {
        return HttpRouteBody::Empty;
    }
    let pause = Duration::from_secs(settings.body_timeout_seconds.into());
    let transfer = Duration::from_secs(length.unwrap_or(0) / MIN_BYTES_PER_SECOND);
    let deadline = TransferDeadline::new(Instant::now(), pause.saturating_add(transfer));
    let chunks = TimedBody {
        body,
        pause,
        next: Box::pin(sleep(pause)),
        end: Box::pin(sleep_until(deadline.at)),
        deadline,
        is_waiting: false,
        received,
    };
    HttpRouteBody::Stream { chunks: Box::pin(chunks), length }
}

fn response_body(body: HttpRouteBody, sent: ByteCounter) -> Body {
    match body {
        HttpRouteBody::Empty => Body::empty(),
        HttpRouteBody::Full(bytes) => {
            sent.add(&bytes);
            Body::from(bytes)
        }
        HttpRouteBody::Stream { chunks, .. } => Body::from_stream(CountedBody { chunks, sent }),
    }
}

/// The body of a response whose bytes are counted.
struct CountedBody {
    chunks: HttpBodyStream,
    sent: ByteCounter,
}

impl futures_core::Stream for CountedBody {
    type Item = Result<Bytes, HttpBodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.chunks.as_mut().poll_next(cx);
        if let Poll::Ready(Some(Ok(chunk))) = &next {
            self.sent.add(chunk);
        }
        next
    }
}

/// When a whole body must have arrived. The time in which the handler wants no chunk is added: a slow disk is not the client's
/// fault.
struct TransferDeadline {
    at: Instant,
    /// When the handler received the last chunk, until it wants the next one.
    handling_since: Option<Instant>,
}

impl TransferDeadline {
    fn new(now: Instant, transfer: Duration) -> TransferDeadline {
        // The length that a client announces must not overflow the clock.
        let transfer = transfer.min(MAX_TRANSFER);
        TransferDeadline { at: now + transfer, handling_since: Some(now) }
    }

    /// The handler wants a chunk.
    fn resume(&mut self, now: Instant) {
        if let Some(since) = self.handling_since.take() {
            self.at += now.saturating_duration_since(since);
        }
    }

    /// The handler has received a chunk.
    fn pause(&mut self, now: Instant) {
        self.handling_since = Some(now);
    }
}

/// The body of a request, with a deadline for each chunk and for the whole.
struct TimedBody {
    body: Incoming,
    /// Time for a chunk.
    pause: Duration,
    next: Pin<Box<Sleep>>,
    /// Follows `deadline` when it elapses.
    end: Pin<Box<Sleep>>,
    deadline: TransferDeadline,
    /// Whether the handler waits for the next chunk.
    is_waiting: bool,
    received: ByteCounter,
}

impl futures_core::Stream for TimedBody {
    type Item = Result<Bytes, HttpBodyError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.deadline.resume(Instant::now());
        loop {
            while self.end.as_mut().poll(cx).is_ready() {
                let deadline = self.deadline.at;
                if self.end.deadline() >= deadline {
                    return Poll::Ready(Some(Err(HttpBodyError::Timeout)));
                }
                self.end.as_mut().reset(deadline);
            }
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    // Trailers are ignored.
                    let Some(chunk) = frame.into_data().ok().filter(|chunk| !chunk.is_empty()) else {
                        continue;
                    };
                    self.is_waiting = false;
                    self.deadline.pause(Instant::now());
                    self.received.add(&chunk);
                    return Poll::Ready(Some(Ok(chunk)));
                }
                Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(HttpBodyError::Incomplete))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => {
                    // From when the handler waits for the client, not from when the client waited for the handler.
                    if !std::mem::replace(&mut self.is_waiting, true) {
                        let deadline = Instant::now() + self.pause;
                        self.next.as_mut().reset(deadline);
                    }
                    return match self.next.as_mut().poll(cx) {
                        Poll::Ready(()) => Poll::Ready(Some(Err(HttpBodyError::Timeout))),
                        Poll::Pending => Poll::Pending,
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_which_the_handler_stores_a_chunk_is_not_counted_as_the_clients() {
        let start = Instant::now();
        let second = |number| start + Duration::from_secs(number);
        let mut deadline = TransferDeadline::new(start, Duration::from_secs(10));
        deadline.resume(second(5));
        assert_eq!(deadline.at, second(15), "it began late");
        // Polled again while it waits for the client.
        deadline.resume(second(7));
        assert_eq!(deadline.at, second(15));
        deadline.pause(second(8));
        deadline.resume(second(48));
        assert_eq!(deadline.at, second(55));
        assert!(TransferDeadline::new(start, Duration::MAX).at < start + 2 * MAX_TRANSFER);
    }
}
