//! Connection of an HTTP listener, as one future: BOSH requests are answered, WebSocket upgrades are detached,
//! everything else is passed to an HTTP library.
//!
//! RFC 9112; XEP-0124, sections 4 and 11 (persistent connections, pipelining, HTTP/1.0). While a request is held the
//! connection keeps reading: a pipelined request counts immediately, and the end of the connection is noticed.
//! Responses leave in the order of the requests.
//!
//! Not implemented: HTTP/2 and all other paths, see [`HttpHandler::passthrough`].
//!
//! Long because a connection is one state machine: reading, answering and closing depend on one another.
//!
//! # Pitfalls
//!
//! A half-closed connection counts as broken, as with most servers: a client that is gone looks the same.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use base::connection_limits::ConnectionPermit;
use base::deadlines::{Deadline, NEVER};

use super::body::{BodyDecoder, BodyError};
use super::classify::{NEEDS_TLS, RequestKind, bad_body, classify};
use super::forwarded::RemoteClient;
use super::handler::HttpHandler;
use super::head::{self, BodyLength, HeadScan, HttpMethod, HttpRejection, HttpRequest, ResponseOptions};
use super::origins::Cors;
use super::response;
use crate::bosh::{BoshResponse, RequestSource};
use crate::scratch::{Scratch, with_scratch};
use crate::stream::Stream;
use crate::websocket::AcceptedHandshake;

/// Maximum number of pending requests per connection.
const MAX_PIPELINED: usize = 4;
/// Steps of one poll before it yields to other tasks.
const MAX_STEPS_PER_POLL: usize = 64;
/// Seconds of the lingering close: further input is discarded, because a reset could overtake the response.
const LINGER_SECONDS: u32 = 2;
/// Maximum bytes discarded during the lingering close.
const MAX_DISCARD_BYTES: usize = 1 << 20;

/// A connection of an HTTP listener.
pub struct HttpConnection<S: HttpHandler> {
    /// `None` after the connection was handed over.
    stream: Option<Stream>,
    permit: Option<ConnectionPermit>,
    handler: Arc<S>,
    deadline: Deadline,
    /// The request that is answered next.
    current: Option<QueuedResponse<S::ResponseFuture>>,
    /// Pipelined requests after it.
    #[allow(
        clippy::box_collection,
        reason = "absent from nearly all connections, which then pay 8 bytes and not 32"
    )]
    queued: Option<Box<VecDeque<QueuedResponse<S::ResponseFuture>>>>,
    /// A request whose body is incomplete.
    partial: Option<Box<PartialRequest>>,
    /// Unread bytes that were already scanned.
    scanned: usize,
    /// Bytes discarded during the lingering close; while writing is blocked, the unsent bytes.
    progress: usize,
    /// Purpose of the deadline.
    deadline_kind: DeadlineKind,
    phase: Phase,
    /// The next request must wait until all responses are sent.
    stalled: bool,
}

/// A request in the order of responses.
enum QueuedResponse<E> {
    Pending(E, ResponseOptions),
    Ready(Vec<u8>, KeepAlive),
    /// In the output of the connection.
    Written(E),
}

/// Whether the connection stays open.
type KeepAlive = bool;

/// A request with an incomplete body.
struct PartialRequest {
    request: HttpRequest,
    decoder: BodyDecoder,
    body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DeadlineKind {
    Nothing,
    Head,
    Body,
    Idle,
    Write,
    Linger,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No request has arrived yet.
    New,
    Open,
    /// No further request is read.
    Last,
    /// The outgoing direction is being closed.
    Shutting,
    Shut,
}

enum ConnectionStep {
    Again,
    Sleep,
    Done,
}

impl<S: HttpHandler> HttpConnection<S> {
    /// An accepted connection.
    pub fn new(mut stream: Stream, permit: ConnectionPermit, handler: Arc<S>) -> HttpConnection<S> {
        stream.set_raw();
        let http = handler.shared();
        http.counters.connections.fetch_add(1, Relaxed);
        let deadline = http.deadlines.add();
        deadline.set(http.clock.now_seconds().saturating_add(http.settings().header_timeout_seconds));
        HttpConnection {
            stream: Some(stream),
            permit: Some(permit),
            handler,
            deadline,
            current: None,
            queued: None,
            partial: None,
            scanned: 0,
            progress: 0,
            deadline_kind: DeadlineKind::Head,
            phase: Phase::New,
            stalled: false,
        }
    }

    /// True if it owns no buffer.
    #[cfg(test)]
    pub(super) fn owns_no_buffer(&self) -> bool {
        self.stream.as_ref().is_some_and(Stream::is_idle) && self.partial.is_none() && self.queued.is_none()
    }

    fn step(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> ConnectionStep {
        let now = self.handler.shared().clock.now_seconds();
        let Some(stream) = &mut self.stream else { return ConnectionStep::Done };
        if matches!(self.phase, Phase::Shutting | Phase::Shut) {
            return self.linger(now, cx, scratch);
        }
        match stream.poll_flush(cx, scratch) {
            Poll::Ready(Err(_)) => return ConnectionStep::Done,
            Poll::Pending => {
                let unsent = stream.unsent();
                // A slow reader is not a dead one.
                if self.deadline_kind != DeadlineKind::Write || unsent < self.progress {
                    self.deadline_kind = DeadlineKind::Nothing;
                    self.progress = unsent;
                    self.set_deadline(DeadlineKind::Write, now);
                } else if self.deadline.has_elapsed(now) {
                    self.handler.shared().counters.timeouts.fetch_add(1, Relaxed);
                    return ConnectionStep::Done;
                }
                return ConnectionStep::Sleep;
            }
            Poll::Ready(Ok(())) if self.deadline_kind == DeadlineKind::Write => {
                self.set_deadline(DeadlineKind::Nothing, now)
            }
            Poll::Ready(Ok(())) => {}
        }
        if let Some(QueuedResponse::Written(response)) = &mut self.current {
            self.handler.response_sent(response);
            self.current = self.next_queued();
        }
        if self.queue_next_response(cx, scratch) {
            return ConnectionStep::Again;
        }
        if self.current.is_none() {
            let quiet = self.partial.is_none() && self.scanned == 0;
            if self.phase == Phase::Last || (quiet && self.handler.shared().is_draining()) {
                self.progress = 0;
                self.phase = Phase::Shutting;
                self.set_deadline(DeadlineKind::Linger, now);
                return ConnectionStep::Again;
            }
            if std::mem::take(&mut self.stalled) {
                self.scanned = 0;
            }
        }
        self.read(now, cx, scratch)
    }

    /// Sets the deadline, unless it is already set for the same purpose.
    fn set_deadline(&mut self, due: DeadlineKind, now: u32) {
        if self.deadline_kind == due {
            return;
        }
        self.deadline_kind = due;
        let settings = self.handler.shared().settings();
        let seconds = match due {
            DeadlineKind::Nothing => return self.deadline.set(NEVER),
            DeadlineKind::Head => settings.header_timeout_seconds,
            DeadlineKind::Body => settings.body_timeout_seconds,
            DeadlineKind::Idle => settings.idle_timeout_seconds,
            DeadlineKind::Write => settings.write_stall_timeout_seconds,
            DeadlineKind::Linger => LINGER_SECONDS,
        };
        self.deadline.set(now.saturating_add(seconds));
    }

    /// The request after the one that is answered next.
    fn next_queued(&mut self) -> Option<QueuedResponse<S::ResponseFuture>> {
        let next = self.queued.as_mut().and_then(|queued| queued.pop_front());
        if next.is_none() {
            self.queued = None;
        }
        next
    }

    /// Writes the next response into the output, if there is one. All output was flushed before.
    fn queue_next_response(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let answer = match &mut self.current {
            None | Some(QueuedResponse::Written(_)) => return false,
            Some(QueuedResponse::Ready(..)) => None,
            Some(QueuedResponse::Pending(exchange, _)) => match Pin::new(exchange).poll(cx) {
                Poll::Pending => return false,
                Poll::Ready(answer) => Some(answer),
            },
        };
        let mut written = None;
        let keep = match (self.current.take(), answer) {
            (Some(QueuedResponse::Ready(bytes, keep)), _) => {
                stream.queue(&bytes, scratch);
                keep
            }
            (Some(QueuedResponse::Pending(response, mut options)), Some(answer)) => {
                // Without a response the connection is closed; other pending requests break with it.
                if !answer.close {
                    let http = self.handler.shared();
                    options.keep_alive &= self.phase != Phase::Last && !http.is_draining();
                    let content =
                        answer.content_type.as_deref().unwrap_or(BoshResponse::DEFAULT_CONTENT_TYPE);
                    let mut out = Vec::with_capacity(512 + answer.body.len());
                    response::write_response(
                        &mut out,
                        &*http.clock,
                        answer.status,
                        content,
                        &answer.body,
                        &options,
                        &[],
                    );
                    stream.queue(&out, scratch);
                    written = Some(QueuedResponse::Written(response));
                }
                options.keep_alive && !answer.close
            }
            _ => true,
        };
        if !keep {
            self.queued = None;
            self.phase = Phase::Last;
        }
        self.current = written.or_else(|| self.next_queued());
        true
    }

    /// Adds a request to the order of responses.
    fn enqueue(&mut self, turn: QueuedResponse<S::ResponseFuture>) {
        let keep = match &turn {
            QueuedResponse::Pending(_, options) => options.keep_alive,
            QueuedResponse::Ready(_, keep) => *keep,
            QueuedResponse::Written(_) => true,
        };
        self.phase = if keep { Phase::Open } else { Phase::Last };
        if self.current.is_none() {
            self.current = Some(turn);
        } else {
            self.queued.get_or_insert_default().push_back(turn);
        }
    }

    fn read(&mut self, now: u32, cx: &mut Context<'_>, scratch: &mut Scratch) -> ConnectionStep {
        let Some(stream) = &mut self.stream else { return ConnectionStep::Done };
        let waiting = self.current.iter().len() + self.queued.as_ref().map_or(0, |queued| queued.len());
        let bytes = match stream.poll_bytes(cx, scratch, self.scanned) {
            Poll::Pending => return self.wait_for_input(now, scratch),
            Poll::Ready(Err(_)) => return ConnectionStep::Done,
            Poll::Ready(Ok(bytes)) if bytes.len() <= self.scanned => return ConnectionStep::Done,
            Poll::Ready(Ok(bytes)) => bytes,
        };
        if self.stalled || self.phase == Phase::Last || waiting >= MAX_PIPELINED {
            // It is parsed when its turn comes; until then only the end of the connection matters.
            self.scanned = bytes.len();
            self.stalled = true;
            return ConnectionStep::Again;
        }
        let settings = self.handler.shared().settings();
        let limit = settings.bosh_body_bytes.unwrap_or(0);
        if let Some(partial) = &mut self.partial {
            let taken = partial.decoder.feed(bytes, &mut partial.body, limit);
            let done = partial.decoder.is_done();
            match taken {
                Ok(count) => stream.consume(count, scratch),
                Err(fault) => return self.reject(bad_body(fault), scratch),
            }
            self.scanned = 0;
            if done && let Some(partial) = self.partial.take() {
                let exchange =
                    handle_bosh_body(&*self.handler, stream, &partial.request.remote, &partial.body);
                self.enqueue(QueuedResponse::Pending(exchange, partial.request.response_options));
                self.set_deadline(DeadlineKind::Nothing, now);
            }
            return ConnectionStep::Again;
        }
        let end = match head::scan_head(bytes, self.scanned) {
            Err(refusal) => return self.reject(refusal, scratch),
            Ok(HeadScan::More { skip: 0 }) => {
                self.scanned = bytes.len();
                return ConnectionStep::Again;
            }
            Ok(HeadScan::More { skip }) => {
                stream.consume(skip, scratch);
                self.scanned = 0;
                return ConnectionStep::Again;
            }
            Ok(HeadScan::Http2) => 0,
            Ok(HeadScan::Head(end)) => end,
        };
        let found = match bytes.get(..end).filter(|head| !head.is_empty()) {
            None => Ok(RequestKind::Passthrough),
            Some(head) => classify(head, &settings, stream),
        };
        match found {
            Err(refusal) => self.reject(refusal, scratch),
            Ok(RequestKind::Bosh(request)) => self.bosh_request(request, limit, now, scratch),
            // The rest must wait until no response is pending.
            Ok(_) if waiting > 0 => {
                self.scanned = bytes.len();
                self.stalled = true;
                ConnectionStep::Again
            }
            Ok(RequestKind::Passthrough) => self.hand_over(scratch),
            Ok(RequestKind::WebSocket(request, accepted)) => self.upgrade(&request, *accepted, scratch),
            Ok(RequestKind::Rejected(request, rejected)) => {
                let mut more = Vec::new();
                if let Some((name, value)) = rejected.header() {
                    more.push((name, value));
                }
                self.reject_with(&request.response_options, rejected.status, rejected.reason, &more, scratch)
            }
        }
    }

    /// Waits for input, and sets the deadline for it.
    fn wait_for_input(&mut self, now: u32, scratch: &mut Scratch) -> ConnectionStep {
        let http = self.handler.shared();
        let due = if self.partial.is_some() {
            DeadlineKind::Body
        } else if self.current.is_some() {
            // A head received after a held request is bounded in bytes, and by that request.
            DeadlineKind::Nothing
        } else if self.scanned > 0 || self.phase == Phase::New {
            DeadlineKind::Head
        } else {
            DeadlineKind::Idle
        };
        if self.deadline_kind != due {
            self.set_deadline(due, now);
            return ConnectionStep::Sleep;
        }
        if !self.deadline.has_elapsed(now) {
            return ConnectionStep::Sleep;
        }
        if due == DeadlineKind::Idle {
            self.phase = Phase::Last;
            return ConnectionStep::Again;
        }
        http.counters.timeouts.fetch_add(1, Relaxed);
        if due == DeadlineKind::Head && self.scanned == 0 {
            // No byte was received: there is no client to answer.
            return ConnectionStep::Done;
        }
        self.reject(HttpRejection { status: 408, reason: "the request was not received in time" }, scratch)
    }

    fn bosh_request(
        &mut self,
        request: HttpRequest,
        limit: usize,
        now: u32,
        scratch: &mut Scratch,
    ) -> ConnectionStep {
        self.permit.iter_mut().for_each(ConnectionPermit::mark_authenticated);
        let http = self.handler.shared();
        http.counters.requests.fetch_add(1, Relaxed);
        if request.method != HttpMethod::Post {
            return self.non_post_request(request, scratch);
        }
        if self.handler.needs_tls() && !request.remote.secure {
            return self.reject(NEEDS_TLS, scratch);
        }
        if matches!(request.length, BodyLength::Known(length) if length > limit as u64) {
            return self.reject(bad_body(BodyError::TooLong), scratch);
        }
        let Some(stream) = &mut self.stream else { return ConnectionStep::Done };
        stream.consume(request.head_bytes, scratch);
        self.scanned = 0;
        if let BodyLength::Known(length) = request.length {
            // Polled again for the bytes after the head, which are usually there already. The length is below the
            // limit, as checked before.
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            let rest = match length {
                0 => Some(&[][..]),
                _ => stream.unread(scratch).get(..length),
            };
            if let Some(body) = rest {
                let exchange = handle_bosh_body(&*self.handler, stream, &request.remote, body);
                stream.consume(length, scratch);
                self.enqueue(QueuedResponse::Pending(exchange, request.response_options));
                self.set_deadline(DeadlineKind::Nothing, now);
                return ConnectionStep::Again;
            }
        }
        if request.expects_continue && self.current.is_none() && stream.unread(scratch).is_empty() {
            stream.queue(b"HTTP/1.1 100 Continue\r\n\r\n", scratch);
        }
        let decoder = match request.length {
            BodyLength::Known(length) => BodyDecoder::length(length),
            BodyLength::Chunked => BodyDecoder::chunked(),
        };
        self.partial = Some(Box::new(PartialRequest { request, decoder, body: Vec::new() }));
        self.set_deadline(DeadlineKind::Body, now);
        ConnectionStep::Again
    }

    /// Answers requests to the BOSH path that are not BOSH.
    fn non_post_request(&mut self, mut request: HttpRequest, scratch: &mut Scratch) -> ConnectionStep {
        let Some(stream) = &mut self.stream else { return ConnectionStep::Done };
        stream.consume(request.head_bytes, scratch);
        self.scanned = 0;
        // An unused body is not read.
        request.response_options.keep_alive &=
            request.length == BodyLength::Known(0) && !self.handler.shared().is_draining();
        let options = &request.response_options;
        let clock = &*self.handler.shared().clock;
        let mut out = Vec::with_capacity(512);
        match request.method {
            HttpMethod::Options => response::write_preflight(&mut out, clock, options),
            HttpMethod::Get | HttpMethod::Head => {
                response::write_response(
                    &mut out,
                    clock,
                    200,
                    response::TEXT_PLAIN,
                    super::BOSH_PAGE.as_bytes(),
                    options,
                    &[],
                );
            }
            _ => {
                let allow = [("Allow", "POST, GET, HEAD, OPTIONS")];
                response::write_response(
                    &mut out,
                    clock,
                    405,
                    response::TEXT_PLAIN,
                    b"BOSH requests use POST.\n",
                    options,
                    &allow,
                );
            }
        }
        self.enqueue(QueuedResponse::Ready(out, request.response_options.keep_alive));
        ConnectionStep::Again
    }

    fn upgrade(
        &mut self,
        request: &HttpRequest,
        accepted: AcceptedHandshake,
        scratch: &mut Scratch,
    ) -> ConnectionStep {
        let handler = self.handler.clone();
        handler.shared().counters.requests.fetch_add(1, Relaxed);
        if handler.needs_tls() && !request.remote.secure {
            return self.reject(NEEDS_TLS, scratch);
        }
        let Some(permit) = handler.acquire_permit(&request.remote) else {
            return self
                .reject(HttpRejection { status: 503, reason: "the server has too many sessions" }, scratch);
        };
        let Some(mut stream) = self.stream.take() else { return ConnectionStep::Done };
        stream.consume(request.head_bytes, scratch);
        let mut out = Vec::with_capacity(256);
        accepted.write(&mut out);
        stream.queue(&out, scratch);
        stream.set_websocket(accepted);
        stream.set_proxied_client(request.remote.peer, request.remote.secure);
        if stream.release_buffers(scratch).is_ok() {
            handler.shared().counters.upgraded.fetch_add(1, Relaxed);
            handler.websocket(stream, permit);
        }
        ConnectionStep::Done
    }

    fn hand_over(&mut self, scratch: &mut Scratch) -> ConnectionStep {
        let (Some(mut stream), Some(mut permit)) = (self.stream.take(), self.permit.take()) else {
            return ConnectionStep::Done;
        };
        permit.mark_authenticated();
        if stream.release_buffers(scratch).is_ok() {
            self.handler.shared().counters.handed_over.fetch_add(1, Relaxed);
            self.handler.passthrough(stream, permit);
        }
        ConnectionStep::Done
    }

    /// Rejects a request with a reason, and ends the connection.
    fn reject(&mut self, refusal: HttpRejection, scratch: &mut Scratch) -> ConnectionStep {
        let cors = Cors::NoHeader;
        let options =
            ResponseOptions { cors, gzip: false, keep_alive: false, http_1_0: false, head_only: false };
        self.reject_with(&options, refusal.status, refusal.reason, &[], scratch)
    }

    fn reject_with(
        &mut self,
        options: &ResponseOptions,
        status: u16,
        reason: &str,
        more: &[(&str, &str)],
        scratch: &mut Scratch,
    ) -> ConnectionStep {
        let http = self.handler.shared();
        http.counters.refused.fetch_add(1, Relaxed);
        if self.current.is_some() {
            // The rejection would overtake pending responses, and those cannot be awaited any more.
            return ConnectionStep::Done;
        }
        let options = ResponseOptions { keep_alive: false, gzip: false, ..options.clone() };
        let mut out = Vec::with_capacity(256);
        response::write_response(
            &mut out,
            &*http.clock,
            status,
            response::TEXT_PLAIN,
            format!("{reason}\n").as_bytes(),
            &options,
            more,
        );
        if let Some(stream) = &mut self.stream {
            stream.queue(&out, scratch);
        }
        self.partial = None;
        self.phase = Phase::Last;
        ConnectionStep::Again
    }

    /// After the last response: closes the outgoing direction and waits for the peer's end.
    fn linger(&mut self, now: u32, cx: &mut Context<'_>, scratch: &mut Scratch) -> ConnectionStep {
        let Some(stream) = &mut self.stream else { return ConnectionStep::Done };
        if self.phase == Phase::Shutting {
            match stream.poll_shutdown(cx, scratch) {
                Poll::Ready(Ok(())) => self.phase = Phase::Shut,
                Poll::Ready(Err(_)) => return ConnectionStep::Done,
                Poll::Pending => {}
            }
        }
        if self.deadline.has_elapsed(now) {
            return ConnectionStep::Done;
        }
        while self.phase == Phase::Shut {
            match stream.poll_discard(cx, scratch) {
                Poll::Ready(Ok(0) | Err(_)) => return ConnectionStep::Done,
                Poll::Ready(Ok(count)) => self.progress += count,
                Poll::Pending => break,
            }
            if self.progress > MAX_DISCARD_BYTES {
                return ConnectionStep::Done;
            }
        }
        ConnectionStep::Sleep
    }
}

impl<S: HttpHandler> Future for HttpConnection<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.deadline.register(cx);
        with_scratch(|scratch| {
            for _ in 0..MAX_STEPS_PER_POLL {
                match this.step(cx, scratch) {
                    ConnectionStep::Again => {}
                    ConnectionStep::Done => return Poll::Ready(()),
                    ConnectionStep::Sleep => return this.release_buffers(scratch),
                }
            }
            cx.waker().wake_by_ref();
            this.release_buffers(scratch)
        })
    }
}

impl<S: HttpHandler> HttpConnection<S> {
    fn release_buffers(&mut self, scratch: &mut Scratch) -> Poll<()> {
        match self.stream.as_mut().map(|stream| stream.release_buffers(scratch)) {
            Some(Ok(())) => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl<S: HttpHandler> Drop for HttpConnection<S> {
    fn drop(&mut self) {
        self.handler.shared().counters.connections.fetch_sub(1, Relaxed);
    }
}

fn handle_bosh_body<S: HttpHandler>(
    handler: &S,
    stream: &Stream,
    remote: &RemoteClient,
    body: &[u8],
) -> S::ResponseFuture {
    let origin = RequestSource {
        peer: remote.peer,
        listener: stream.listener_config().clone(),
        secure: remote.secure,
    };
    handler.bosh_request(origin, body)
}
