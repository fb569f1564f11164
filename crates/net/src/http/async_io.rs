//! Adapter from a raw stream to tokio's `AsyncRead` and `AsyncWrite`, for the HTTP library that serves other requests.
//!
//! Reading copies once more than a socket would; it is meant for pages and commands, not for sessions.
//!
//! # Pitfalls
//!
//! Nothing may stay in the lent buffers between two calls, so every call releases them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::error::NetError;
use crate::scratch::with_scratch;
use crate::stream::Stream;

/// Bytes that may wait for the peer before writing waits too.
const MAX_UNSENT_BYTES: usize = 65_536;

/// A stream read and written through tokio's traits.
pub struct StreamIo(Stream);

impl StreamIo {
    /// Wraps a stream; unconsumed input comes first.
    pub fn new(mut stream: Stream) -> StreamIo {
        stream.set_raw();
        StreamIo(stream)
    }

    /// Bytes that wait for the peer.
    pub fn unsent(&self) -> usize {
        self.0.unsent()
    }

    fn poll_queue(&mut self, cx: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let stream = &mut self.0;
        with_scratch(|scratch| {
            if stream.unsent() >= MAX_UNSENT_BYTES {
                // Flush completely before accepting more: half of a large response is no reason to request the next
                // piece.
                ready!(stream.poll_flush(cx, scratch)).map_err(to_io_error)?;
            }
            let mut taken = 0;
            for part in parts {
                let room = MAX_UNSENT_BYTES.saturating_sub(taken);
                let part = part.get(..room).unwrap_or(part);
                stream.queue(part, scratch);
                taken += part.len();
            }
            let sent = stream.poll_flush(cx, scratch);
            stream.release_buffers(scratch).map_err(to_io_error)?;
            match sent {
                Poll::Ready(Err(error)) => Poll::Ready(Err(to_io_error(error))),
                // The remainder is in a block, and the task is woken when it can be written.
                _ => Poll::Ready(Ok(taken)),
            }
        })
    }
}

fn to_io_error(error: NetError) -> io::Error {
    match error {
        NetError::Io(error) => error,
        error => io::Error::other(error),
    }
}

impl AsyncRead for StreamIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        with_scratch(|scratch| {
            let read = match stream.poll_bytes(cx, scratch, 0) {
                Poll::Ready(Ok(bytes)) => {
                    let count = bytes.len().min(buffer.remaining());
                    buffer.put_slice(bytes.get(..count).unwrap_or_default());
                    stream.consume(count, scratch);
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(to_io_error(error))),
                Poll::Pending => Poll::Pending,
            };
            stream.release_buffers(scratch).map_err(to_io_error)?;
            read
        })
    }
}

impl AsyncWrite for StreamIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.get_mut().poll_queue(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_queue(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        with_scratch(|scratch| stream.poll_flush(cx, scratch).map_err(to_io_error))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.get_mut().0;
        with_scratch(|scratch| {
            let done = stream.poll_shutdown(cx, scratch).map_err(to_io_error);
            stream.release_buffers(scratch).map_err(to_io_error)?;
            done
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_info::{ListenerConfig, ListenerKind};
    use std::sync::Arc;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn bytes_pass_whole_in_both_directions() {
        let port = Arc::new(ListenerConfig::new(ListenerKind::Http, "127.0.0.1:80".parse().unwrap()));
        let (stream, mut there) = Stream::memory(port, 1000);
        let mut here = StreamIo::new(stream);
        let sent: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        let work = async {
            let mut back = vec![0; sent.len()];
            here.read_exact(&mut back).await.unwrap();
            assert_eq!(back, sent);
            here.write_all(&back).await.unwrap();
            here.shutdown().await.unwrap();
            assert_eq!(here.read(&mut [0; 9]).await.unwrap(), 0, "the other end has closed");
        };
        let other = async {
            let (mut got, mut at) = (Vec::new(), 0);
            while at < sent.len() {
                let end = (at + 777).min(sent.len());
                there.write_all(&sent[at..end]).await.unwrap();
                at = end;
            }
            there.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, sent);
            there.close();
        };
        tokio::join!(work, other);
    }
}
