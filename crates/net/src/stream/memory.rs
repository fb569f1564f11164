//! Pipe in memory that behaves like a socket: bounded both ways, half-close, wake-ups, short reads and writes.
//!
//! [`crate::Stream::memory`] puts an XMPP stream on one end; a test or an in-process client holds the other, which is
//! also a tokio `AsyncRead + AsyncWrite`, so any client library can use it.
//!
//! Not implemented: delay and loss; the test kit adds them.
//!
//! # Pitfalls
//!
//! Each end supports one reader and one writer; only the last waker is stored.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use base::lock::LeafMutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// One direction of the pipe.
#[derive(Default)]
struct PipeDirection {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// The writing end is closed.
    finished: bool,
    /// The reading end was dropped; writing fails.
    broken: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl PipeDirection {
    fn wake(&mut self) {
        self.reader.take().into_iter().chain(self.writer.take()).for_each(Waker::wake);
    }
}

/// One end of a pipe. Dropping it is like closing a socket.
pub struct Pipe {
    directions: Arc<[LeafMutex<PipeDirection>; 2]>,
    /// Index of the direction that this end reads; it writes the other one.
    reads: usize,
}

impl Pipe {
    /// Two connected ends. Each direction holds at most `capacity` unread bytes.
    pub fn pair(capacity: usize) -> (Pipe, Pipe) {
        let direction =
            || LeafMutex::new(PipeDirection { capacity: capacity.max(1), ..PipeDirection::default() });
        let directions = Arc::new([direction(), direction()]);
        (Pipe { directions: directions.clone(), reads: 0 }, Pipe { directions, reads: 1 })
    }

    fn incoming(&self) -> &LeafMutex<PipeDirection> {
        &self.directions[self.reads & 1]
    }

    fn outgoing(&self) -> &LeafMutex<PipeDirection> {
        &self.directions[(self.reads + 1) & 1]
    }

    /// Reads at most `into.len()` available bytes. 0 means that the other end is closed (or `into` is empty).
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<usize> {
        let mut direction = self.incoming().lock();
        if direction.bytes.is_empty() && !direction.finished && !into.is_empty() {
            direction.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = into.len().min(direction.bytes.len());
        for (to, from) in into.iter_mut().zip(direction.bytes.drain(..count)) {
            *to = from;
        }
        direction.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(count)
    }

    /// Number of available bytes, which stay. 0 means that the other end is closed.
    pub fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<usize> {
        let mut direction = self.incoming().lock();
        if direction.bytes.is_empty() && !direction.finished {
            direction.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(direction.bytes.len())
    }

    /// Writes as much as fits, at least one byte. Fails with `BrokenPipe` if the other end was dropped.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut direction = self.outgoing().lock();
        if direction.finished || direction.broken {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(direction.capacity - direction.bytes.len());
        if count == 0 && !bytes.is_empty() {
            direction.writer = Some(cx.waker().clone());
            return Poll::Pending;
        }
        direction.bytes.extend(bytes.get(..count).unwrap_or_default());
        direction.reader.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(count))
    }

    /// Closes the outgoing direction. Bytes already written can still be read.
    pub fn close(&mut self) {
        let mut direction = self.outgoing().lock();
        direction.finished = true;
        direction.wake();
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.close();
        let mut direction = self.incoming().lock();
        direction.broken = true;
        direction.bytes = VecDeque::new();
        direction.wake();
    }
}

impl AsyncRead for Pipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pipe::poll_read(&mut self, cx, buffer.initialize_unfilled());
        read.map(|count| {
            buffer.advance(count);
            Ok(())
        })
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pipe::poll_write(&mut self, cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_pipe_waits_and_a_dropped_end_breaks_it() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut here, mut there) = Pipe::pair(4);
        assert!(matches!(here.poll_write(&mut cx, b"123456"), Poll::Ready(Ok(4))));
        assert!(here.poll_write(&mut cx, b"56").is_pending());
        let mut buffer = [0; 3];
        assert_eq!(there.poll_read(&mut cx, &mut buffer), Poll::Ready(3));
        assert!(matches!(here.poll_write(&mut cx, b"56"), Poll::Ready(Ok(2))));
        here.close();
        assert_eq!(there.poll_read(&mut cx, &mut buffer), Poll::Ready(3));
        assert_eq!(&buffer, b"456");
        assert_eq!(there.poll_read(&mut cx, &mut buffer), Poll::Ready(0));
        assert!(matches!(there.poll_write(&mut cx, b"x"), Poll::Ready(Ok(1))), "the other direction is open");
        drop(here);
        assert!(matches!(there.poll_write(&mut cx, b"x"), Poll::Ready(Err(_))));
    }
}
