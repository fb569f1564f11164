//! Clients that do not read their responses: `[http] write_stall_timeout_seconds` for connections served by hyper, which has
//! no deadline for writes.
//!
//! A connection whose peer takes no bytes ends ([`WriteStallIo`]). In HTTP/2 a peer may take bytes of the connection and
//! none of a stream; that stream is reset ([`StreamExecutor`], [`watch`]), because others on the connection, such as a
//! WebSocket, are alive.
//!
//! # Pitfalls
//!
//! Hyper reads the next chunk of a body as soon as the peer's window has room for one byte of the last one. So the last byte
//! of a body is a chunk of its own: the rest has then been taken.
//!
//! A connection that became a WebSocket has the deadlines of its session.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Response, StatusCode, header};
use base::lock::LeafMutex;
use hyper::body::{Body as _, Frame, SizeHint};
use net::http::StreamIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::{Instant, Sleep, sleep};

/// Bytes of a response of HTTP/2 that may wait without a deadline. Up to 64 of them wait on a connection.
const UNWATCHED_BYTES: u64 = 4096;

/// A connection that fails when its peer takes no bytes for a time.
pub(super) struct WriteStallIo {
    io: StreamIo,
    timeout: Duration,
    is_upgraded: Arc<AtomicBool>,
    /// Bytes that waited after the last write.
    unsent: usize,
    deadline: Option<Pin<Box<Sleep>>>,
}

/// Ends the deadline of a connection that is not HTTP any more.
#[derive(Clone, Default)]
pub(super) struct UpgradeFlag(Arc<AtomicBool>);

impl UpgradeFlag {
    /// Notes the response to an upgrade.
    pub(super) fn observe<B>(&self, response: &Response<B>) {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl WriteStallIo {
    pub(super) fn new(io: StreamIo, timeout: Duration, upgrade: &UpgradeFlag) -> WriteStallIo {
        WriteStallIo { io, timeout, is_upgraded: upgrade.0.clone(), unsent: 0, deadline: None }
    }

    /// Checks the deadline after a write or flush with this result.
    fn check<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let unsent = self.io.unsent();
        let progressed = unsent != self.unsent;
        self.unsent = unsent;
        if unsent == 0 || self.is_upgraded.load(Ordering::Relaxed) {
            self.deadline = None;
            return result;
        }
        let timeout = self.timeout;
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(timeout)));
        if progressed {
            deadline.as_mut().reset(Instant::now() + timeout);
        }
        match deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => result,
        }
    }
}

impl AsyncRead for WriteStallIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for WriteStallIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.check(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, parts);
        this.check(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.io).poll_flush(cx);
        this.check(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let closed = Pin::new(&mut this.io).poll_shutdown(cx);
        this.check(cx, closed)
    }
}

tokio::task_local! {
    /// The response of the HTTP/2 stream whose task runs.
    static RESPONSE: Arc<ResponseDeadline>;
}

/// The time at which the peer must have taken more of a response; `None` while nothing waits for the peer.
#[derive(Default)]
struct ResponseDeadline(LeafMutex<Option<Instant>>);

/// Runs the tasks of HTTP/2 streams, and ends those whose peer takes nothing: hyper then resets the stream.
#[derive(Clone)]
pub(super) struct StreamExecutor(pub(super) Handle);

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future + Send + 'static,
{
    fn execute(&self, future: F) {
        drop(self.0.spawn(StreamTask { task: Box::pin(future), response: Arc::default(), timer: None }));
    }
}

/// The task of a stream, until its end or the deadline of its response.
struct StreamTask<F> {
    task: Pin<Box<F>>,
    response: Arc<ResponseDeadline>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Future for StreamTask<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let StreamTask { task, response, timer } = self.get_mut();
        if RESPONSE.sync_scope(response.clone(), || task.as_mut().poll(cx)).is_ready() {
            return Poll::Ready(());
        }
        let Some(at) = *response.0.lock() else {
            *timer = None;
            return Poll::Pending;
        };
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }
}

/// Gives a response a deadline if it is the one of an HTTP/2 stream.
pub(super) fn watch(response: Response<Body>, timeout: Duration) -> Response<Body> {
    let Ok(deadline) = RESPONSE.try_with(Arc::clone) else { return response };
    let length = response.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length = response.body().size_hint().exact().or_else(|| length.and_then(|text| text.parse().ok()));
    if response.body().is_end_stream() || length.is_some_and(|bytes| bytes <= UNWATCHED_BYTES) {
        return response;
    }
    response.map(|body| Body::new(WatchedBody { body, left: length, last: None, timeout, deadline }))
}

/// A body that sets the deadline of its response with each chunk.
struct WatchedBody {
    body: Body,
    /// Bytes of the chunks that were not read yet, if known.
    left: Option<u64>,
    /// The last byte of the body, when the others have been read.
    last: Option<Bytes>,
    timeout: Duration,
    deadline: Arc<ResponseDeadline>,
}

impl WatchedBody {
    /// The chunk without the last byte of the body, which follows later.
    fn without_last_byte(&mut self, mut chunk: Bytes) -> Bytes {
        let length = chunk.len() as u64;
        let left = self.left.map(|left| left.saturating_sub(length));
        if self.left.is_some() && left == Some(0) && chunk.len() > 1 {
            self.last = Some(chunk.split_off(chunk.len() - 1));
        }
        self.left = left;
        chunk
    }
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        let next = match this.last.take() {
            Some(last) => Poll::Ready(Some(Ok(Frame::data(last)))),
            None => Pin::new(&mut this.body).poll_frame(cx),
        };
        let waits = matches!(next, Poll::Ready(Some(Ok(_))));
        *this.deadline.0.lock() = waits.then(|| Instant::now() + this.timeout);
        next.map_ok(|frame| frame.map_data(|chunk| this.without_last_byte(chunk)))
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.last {
            Some(last) => SizeHint::with_exact(last.len() as u64),
            None => self.body.size_hint(),
        }
    }
}
