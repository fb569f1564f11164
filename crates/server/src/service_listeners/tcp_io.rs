//! A TCP socket as the transport of a feature's connection.
//!
//! # Pitfalls
//!
//! Features count their bytes themselves: these are not among those of [`net::tcp_bytes`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use feature_api::listener::ConnectionIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(super) struct TcpIo(pub(super) TcpStream);

impl ConnectionIo for TcpIo {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut buffer = ReadBuf::new(into);
        Pin::new(&mut self.0).poll_read(cx, &mut buffer).map_ok(|()| buffer.filled().len())
    }

    fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.0.poll_peek(cx, &mut ReadBuf::new(&mut [0]))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.0).poll_write(cx, bytes) {
            Poll::Ready(Ok(0)) if !bytes.is_empty() => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => written,
        }
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
