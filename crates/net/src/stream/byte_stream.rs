//! Byte transports under a stream: a TCP socket, a pipe in memory, or a foreign duplex stream.
//!
//! Not implemented: TLS, which is a stream of its own over these.
//!
//! # Pitfalls
//!
//! tokio's `poll_read` clears the readiness after a short read, so a caller that stops at a short read saves the read
//! that would return EAGAIN.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use base::count::Counter;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::stream::memory::Pipe;

static BYTES_READ: Counter = Counter::new();
static BYTES_WRITTEN: Counter = Counter::new();

/// Bytes read from and written to TCP connections of streams by this process, including TLS.
pub fn tcp_bytes() -> [u64; 2] {
    [BYTES_READ.get(), BYTES_WRITTEN.get()]
}

fn count_bytes(counter: &Counter, done: &Poll<io::Result<usize>>) {
    if let Poll::Ready(Ok(bytes)) = done {
        counter.add(*bytes as u64);
    }
}

/// A byte transport.
pub(crate) trait ByteStream {
    /// Reads once. 0 is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;
    /// Writes once.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Ends the outgoing direction.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl ByteStream for TcpStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        let read = AsyncRead::poll_read(Pin::new(self), cx, &mut buffer).map_ok(|()| buffer.filled().len());
        count_bytes(&BYTES_READ, &read);
        read
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = AsyncWrite::poll_write(Pin::new(self), cx, bytes);
        count_bytes(&BYTES_WRITTEN, &written);
        written
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(self), cx)
    }
}

impl ByteStream for Pipe {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        Pipe::poll_read(self, cx, into).map(Ok)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pipe::poll_write(self, cx, bytes)
    }

    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.close();
        Poll::Ready(Ok(()))
    }
}

/// A foreign byte stream, such as an upgraded HTTP connection.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

impl ByteStream for Box<dyn Duplex> {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        AsyncRead::poll_read(Pin::new(self), cx, &mut buffer).map_ok(|()| buffer.filled().len())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match AsyncWrite::poll_write(Pin::new(self), cx, bytes) {
            // It may buffer the bytes until it is flushed.
            Poll::Ready(Ok(count)) => match AsyncWrite::poll_flush(Pin::new(self), cx) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => Poll::Ready(Ok(count)),
            },
            other => other,
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        AsyncWrite::poll_shutdown(Pin::new(self), cx)
    }
}

/// Either transport, for streams that run over both.
pub(crate) enum AnyByteStream {
    Tcp(TcpStream),
    Memory(Pipe),
}

impl ByteStream for AnyByteStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            AnyByteStream::Tcp(wire) => ByteStream::poll_read(wire, cx, into),
            AnyByteStream::Memory(wire) => ByteStream::poll_read(wire, cx, into),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            AnyByteStream::Tcp(wire) => ByteStream::poll_write(wire, cx, bytes),
            AnyByteStream::Memory(wire) => ByteStream::poll_write(wire, cx, bytes),
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            AnyByteStream::Tcp(wire) => ByteStream::poll_shutdown(wire, cx),
            AnyByteStream::Memory(wire) => ByteStream::poll_shutdown(wire, cx),
        }
    }
}
