//! Bodies of HTTP requests and responses: chunks in both directions, so that a handler holds one chunk at a time.

use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;

/// Chunks of a body, none of them empty.
pub type HttpBodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, HttpBodyError>> + Send>>;

/// The body of a request or response.
#[derive(Default)]
pub enum HttpRouteBody {
    /// No body.
    #[default]
    Empty,
    /// The whole body.
    Full(Bytes),
    /// Chunks that are read when the receiver takes them.
    Stream {
        /// The chunks.
        chunks: HttpBodyStream,
        /// Bytes of all chunks, if known.
        length: Option<u64>,
    },
}

impl HttpRouteBody {
    /// Bytes of the body, if known.
    pub fn length(&self) -> Option<u64> {
        match self {
            HttpRouteBody::Empty => Some(0),
            HttpRouteBody::Full(bytes) => Some(bytes.len() as u64),
            HttpRouteBody::Stream { length, .. } => *length,
        }
    }

    /// The next chunk; `None` at the end.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, HttpBodyError>> {
        match self {
            HttpRouteBody::Empty => None,
            HttpRouteBody::Full(_) => match std::mem::take(self) {
                HttpRouteBody::Full(bytes) if !bytes.is_empty() => Some(Ok(bytes)),
                _ => None,
            },
            HttpRouteBody::Stream { chunks, .. } => {
                std::future::poll_fn(|cx| chunks.as_mut().poll_next(cx)).await
            }
        }
    }
}

impl std::fmt::Debug for HttpRouteBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpRouteBody({:?})", self.length())
    }
}

/// Why a body ended before its end.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum HttpBodyError {
    /// The connection was closed, or the body is malformed.
    #[error("the body is incomplete")]
    Incomplete,
    /// It did not arrive in time.
    #[error("the body was not received in time")]
    Timeout,
    /// Its source failed, such as a disk.
    #[error("{0}")]
    Source(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_whole_body_is_one_chunk() {
        let mut body = HttpRouteBody::Full(Bytes::from_static(b"abc"));
        assert_eq!(body.length(), Some(3));
        let mut chunk = || {
            let next = std::pin::pin!(body.chunk()).poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(chunk) = next else { panic!("it is there") };
            chunk
        };
        assert_eq!((chunk(), chunk()), (Some(Ok(Bytes::from_static(b"abc"))), None));
    }
}
