//! Test harness: a connection in memory with a manual clock and manually answered BOSH requests.
//!
//! # Pitfalls
//!
//! Nothing runs in the background; every method that sends, reads or advances the clock polls until no task is woken.
#![allow(clippy::disallowed_types, reason = "the test holds these locks around calls of the product")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use base::clock::ManualClock;
use base::connection_limits::{ConnectionLimiter, ConnectionPermit};
use parking_lot::Mutex;

use super::*;
use crate::bosh::{BoshResponse, RequestSource};
use crate::connection_info::{ListenerConfig, ListenerKind};
use crate::stream::Stream;
use crate::stream::memory::Pipe;

/// A request as received by the handler.
pub(super) struct ReceivedRequest {
    pub(super) body: String,
    pub(super) origin: RequestSource,
    slot: Arc<Mutex<ResponseSlot>>,
}

#[derive(Default)]
pub(super) struct ResponseSlot {
    answer: Option<BoshResponse>,
    waker: Option<Waker>,
    sent: bool,
    gone: bool,
}

impl ReceivedRequest {
    pub(super) fn answer(&self, text: &str) {
        self.respond(BoshResponse {
            status: 200,
            body: text.as_bytes().into(),
            content_type: None,
            close: false,
        });
    }

    pub(super) fn respond(&self, answer: BoshResponse) {
        let mut slot = self.slot.lock();
        slot.answer = Some(answer);
        slot.waker.take().into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.slot.lock().gone
    }

    pub(super) fn is_sent(&self) -> bool {
        self.slot.lock().sent
    }
}

pub(super) struct ManualResponse(Arc<Mutex<ResponseSlot>>);

impl Future for ManualResponse {
    type Output = BoshResponse;
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<BoshResponse> {
        let mut slot = self.0.lock();
        match slot.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for ManualResponse {
    fn drop(&mut self) {
        self.0.lock().gone = true;
    }
}

pub(super) struct FakeHandler {
    pub(super) http: Arc<HttpShared>,
    pub(super) limiter: ConnectionLimiter,
    pub(super) tls: bool,
    pub(super) full: bool,
    pub(super) requests: Mutex<Vec<ReceivedRequest>>,
    pub(super) websockets: Mutex<Vec<Stream>>,
    pub(super) others: Mutex<Vec<Stream>>,
}

impl HttpHandler for FakeHandler {
    type ResponseFuture = ManualResponse;
    fn shared(&self) -> &HttpShared {
        &self.http
    }

    fn needs_tls(&self) -> bool {
        self.tls
    }

    fn bosh_request(&self, origin: RequestSource, body: &[u8]) -> ManualResponse {
        let slot = Arc::new(Mutex::new(ResponseSlot::default()));
        let body = String::from_utf8_lossy(body).into_owned();
        self.requests.lock().push(ReceivedRequest { body, origin, slot: slot.clone() });
        ManualResponse(slot)
    }

    fn response_sent(&self, response: &mut ManualResponse) {
        let mut slot = response.0.lock();
        assert!(!slot.sent && !slot.gone, "reported once");
        slot.sent = true;
    }

    fn acquire_permit(&self, remote: &RemoteClient) -> Option<ConnectionPermit> {
        if self.full { None } else { self.limiter.try_acquire(remote.peer.ip()).ok() }
    }

    fn websocket(&self, stream: Stream, _pass: ConnectionPermit) {
        self.websockets.lock().push(stream);
    }

    fn passthrough(&self, stream: Stream, _pass: ConnectionPermit) {
        self.others.lock().push(stream);
    }
}

#[derive(Default)]
struct Woken(AtomicBool);
impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
    }
}

pub(super) struct ConnectionHarness {
    pub(super) connection: Option<HttpConnection<FakeHandler>>,
    pub(super) pipe: Pipe,
    pub(super) handler: Arc<FakeHandler>,
    clock: Arc<ManualClock>,
    woken: Arc<Woken>,
}

impl ConnectionHarness {
    pub(super) fn new() -> ConnectionHarness {
        ConnectionHarness::with(HttpSettings::default(), |_| {})
    }

    pub(super) fn with(settings: HttpSettings, change: impl FnOnce(&mut FakeHandler)) -> ConnectionHarness {
        let clock = Arc::new(ManualClock::new());
        clock.advance(1_000_000);
        let http = HttpShared::new(settings, clock.clone());
        let mut handler = FakeHandler {
            http,
            limiter: ConnectionLimiter::default(),
            tls: false,
            full: false,
            requests: Mutex::default(),
            websockets: Mutex::default(),
            others: Mutex::default(),
        };
        change(&mut handler);
        let handler = Arc::new(handler);
        let port = Arc::new(ListenerConfig::new(ListenerKind::Http, "127.0.0.1:5280".parse().unwrap()));
        let (stream, pipe) = Stream::memory_with_peer(port, 20_000, "192.0.2.1:4711".parse().unwrap());
        let permit = handler.limiter.try_acquire("192.0.2.1".parse().unwrap()).unwrap();
        let connection = Some(HttpConnection::new(stream, permit, handler.clone()));
        let mut run = ConnectionHarness { connection, pipe, handler, clock, woken: Arc::default() };
        run.woken.0.store(true, SeqCst);
        run.poll_until_idle();
        run
    }

    /// Polls while the task is woken.
    pub(super) fn poll_until_idle(&mut self) {
        let waker = Waker::from(self.woken.clone());
        while self.woken.0.swap(false, SeqCst) {
            let Some(connection) = &mut self.connection else { return };
            if Pin::new(connection).poll(&mut Context::from_waker(&waker)).is_ready() {
                self.connection = None;
            }
        }
    }

    pub(super) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let mut rest = bytes.as_ref();
        while !rest.is_empty() {
            match self.pipe.poll_write(&mut Context::from_waker(Waker::noop()), rest) {
                Poll::Ready(Ok(count)) => rest = &rest[count..],
                Poll::Ready(Err(_)) => return,
                Poll::Pending => {}
            }
            self.poll_until_idle();
        }
    }

    /// Bytes received. Ends with `#` if the connection was closed.
    pub(super) fn read(&mut self) -> String {
        let mut text = String::new();
        let mut buffer = [0; 5000];
        loop {
            self.poll_until_idle();
            match self.pipe.poll_read(&mut Context::from_waker(Waker::noop()), &mut buffer) {
                Poll::Ready(0) => return text + "#",
                Poll::Ready(count) => text += &String::from_utf8_lossy(&buffer[..count]),
                Poll::Pending => return text,
            }
        }
    }

    pub(super) fn post(&mut self, body: &str) {
        self.send(format!("POST /bosh HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    }

    pub(super) fn bodies(&self) -> Vec<String> {
        self.handler.requests.lock().iter().map(|request| request.body.clone()).collect()
    }

    pub(super) fn answer(&mut self, at: usize, text: &str) {
        self.handler.requests.lock()[at].answer(text);
    }

    /// Advances the clock second by second.
    pub(super) fn advance(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.clock.advance(1000);
            self.handler.http.sweep();
            self.poll_until_idle();
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.connection.is_none()
    }

    pub(super) fn owns_nothing(&self) -> bool {
        let connection = self.connection.as_ref().unwrap();
        connection.owns_no_buffer()
    }
}

/// Status and body of one response.
pub(super) fn parts(text: &str) -> (u16, &str) {
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, text.split_once("\r\n\r\n").map_or("", |(_, body)| body))
}
