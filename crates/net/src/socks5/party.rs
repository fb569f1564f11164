//! A connected party: its socket, and the permits that count it.
//!
//! # Pitfalls
//!
//! The proxy counts the bytes that it relays. [`crate::tcp_bytes`] counts those of streams, so a [`PartySocket`] must not
//! be a [`crate::stream::byte_stream::AnyByteStream`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::Pipe;
use crate::connection_limits::ConnectionPermit;

pub(super) struct Party {
    pub(super) socket: PartySocket,
    /// Counts the connection.
    pub(super) permit: Option<ConnectionPermit>,
    /// Counts it among those without an active bytestream.
    pub(super) unactivated: ConnectionPermit,
}

/// The transport of a party.
pub(super) enum PartySocket {
    Tcp(TcpStream),
    /// Of a test.
    #[cfg_attr(not(test), allow(dead_code, reason = "tests run over memory"))]
    Memory(Pipe),
}

impl PartySocket {
    /// Reads once. 0 is the end.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            PartySocket::Tcp(socket) => {
                let mut buffer = ReadBuf::new(into);
                Pin::new(socket).poll_read(cx, &mut buffer).map_ok(|()| buffer.filled().len())
            }
            PartySocket::Memory(pipe) => pipe.poll_read(cx, into).map(Ok),
        }
    }

    /// Like [`PartySocket::poll_read`], but the bytes stay.
    pub(super) fn poll_peek(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self {
            PartySocket::Tcp(socket) => socket.poll_peek(cx, &mut ReadBuf::new(&mut [0])),
            PartySocket::Memory(pipe) => pipe.poll_peek(cx).map(Ok),
        }
    }

    /// Writes once, at least one byte.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = match self {
            PartySocket::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            PartySocket::Memory(pipe) => pipe.poll_write(cx, bytes),
        };
        match written {
            Poll::Ready(Ok(0)) if !bytes.is_empty() => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => written,
        }
    }

    /// Ends the outgoing direction.
    pub(super) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            PartySocket::Tcp(socket) => Pin::new(socket).poll_shutdown(cx),
            PartySocket::Memory(pipe) => {
                pipe.close();
                Poll::Ready(Ok(()))
            }
        }
    }
}
