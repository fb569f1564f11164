//! Properties of HTTP listeners for arbitrary bytes. Used by the fuzz target and by `tests/http.rs`.
//!
//! The first byte selects how the rest is split. The same bytes mean the same requests however they are split, no body
//! exceeds the limit, every response is HTTP, and a connection ends by its deadlines.
//!
//! # Pitfalls
//!
//! Bytes passed to the HTTP library are not checked further.
#![allow(clippy::disallowed_types, reason = "the test holds its locks around calls of the product")]

use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::clock::ManualClock;
use parking_lot::Mutex;
use throng_net::bosh::{BoshResponse, RequestSource};
use throng_net::http::{HttpConnection, HttpHandler, HttpSettings, HttpShared, RemoteClient};
use throng_net::{ConnectionLimiter, ConnectionPermit, ListenerConfig, ListenerKind, Pipe, Stream};

/// Maximum size of a body here.
const LIMIT: usize = 512;

/// A listener that answers every request immediately.
struct FuzzHandler {
    http: Arc<HttpShared>,
    limiter: ConnectionLimiter,
    seen: Mutex<Vec<HandledRequest>>,
}

/// Effect of a client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandledRequest {
    /// A BOSH request with this body.
    Body(Vec<u8>),
    /// A WebSocket.
    WebSocket,
    /// A request for the HTTP library.
    Other,
}

impl HttpHandler for FuzzHandler {
    type ResponseFuture = Ready<BoshResponse>;
    fn shared(&self) -> &HttpShared {
        &self.http
    }

    fn needs_tls(&self) -> bool {
        false
    }

    fn bosh_request(&self, _: RequestSource, body: &[u8]) -> Ready<BoshResponse> {
        assert!(body.len() <= LIMIT);
        self.seen.lock().push(HandledRequest::Body(body.to_vec()));
        ready(BoshResponse { status: 200, body: b"<body/>"[..].into(), content_type: None, close: false })
    }

    fn response_sent(&self, _: &mut Ready<BoshResponse>) {}

    fn acquire_permit(&self, remote: &RemoteClient) -> Option<ConnectionPermit> {
        self.limiter.try_acquire(remote.peer.ip()).ok()
    }

    fn websocket(&self, _: Stream, _: ConnectionPermit) {
        self.seen.lock().push(HandledRequest::WebSocket);
    }

    fn passthrough(&self, _: Stream, _: ConnectionPermit) {
        self.seen.lock().push(HandledRequest::Other);
    }
}

/// Sends the bytes in pieces of `size`; returns the effects and the responses.
pub(crate) fn run(bytes: &[u8], size: usize) -> (Vec<HandledRequest>, String) {
    let clock = Arc::new(ManualClock::new());
    let settings = HttpSettings { bosh_body_bytes: Some(LIMIT), gzip: false, ..HttpSettings::default() };
    let http = HttpShared::new(settings, clock.clone());
    let handler =
        Arc::new(FuzzHandler { http, limiter: ConnectionLimiter::default(), seen: Mutex::default() });
    let port = Arc::new(ListenerConfig::new(ListenerKind::Http, "127.0.0.1:5280".parse().unwrap()));
    let (stream, mut pipe) = Stream::memory(port, 1 << 20);
    let permit = handler.limiter.try_acquire("127.0.0.1".parse().unwrap()).unwrap();
    let mut connection = Some(HttpConnection::new(stream, permit, handler.clone()));
    let mut output = Vec::new();
    let mut poll_once = |connection: &mut Option<HttpConnection<FuzzHandler>>, pipe: &mut Pipe| {
        let mut cx = Context::from_waker(Waker::noop());
        // Twice as many as the fair share of steps could need.
        for _ in 0..8 {
            if let Some(future) = connection
                && Pin::new(future).poll(&mut cx).is_ready()
            {
                *connection = None;
            }
        }
        let mut buffer = [0; 4096];
        while let Poll::Ready(count @ 1..) = pipe.poll_read(&mut cx, &mut buffer) {
            output.extend_from_slice(&buffer[..count]);
        }
    };
    for piece in bytes.chunks(size.max(1)) {
        let _ = pipe.poll_write(&mut Context::from_waker(Waker::noop()), piece);
        poll_once(&mut connection, &mut pipe);
    }
    for _ in 0..200 {
        clock.advance(1000);
        handler.http.sweep();
        poll_once(&mut connection, &mut pipe);
    }
    assert!(connection.is_none(), "every connection ends by its deadlines");
    assert_eq!(handler.limiter.counts().connections, 0);
    let output = String::from_utf8(output).unwrap();
    assert!(output.is_empty() || output.starts_with("HTTP/1.1 "), "{output}");
    let seen = handler.seen.lock().clone();
    (seen, output)
}

/// Panics if a property is violated.
pub(crate) fn check(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else { return };
    let (whole, _) = run(bytes, usize::MAX);
    let (cut, _) = run(bytes, usize::from(*size));
    assert_eq!(whole, cut, "{:?}", String::from_utf8_lossy(bytes));
}
