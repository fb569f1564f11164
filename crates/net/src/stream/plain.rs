//! Unencrypted transport of an XMPP stream over TCP or memory (RFC 6120, section 4.2: one endless document per
//! direction): bytes arrive and leave as they are.
//!
//! Not implemented: TLS (`stream/tls.rs`), into which `Stream::start_tls` converts this.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use crate::buffer_pool::BufferPool;
use crate::connection_info::SharedListenerConfig;
use crate::error::NetError;
use crate::scratch::Scratch;
use crate::stream::buffered::{BufferedStream, TransportLayer, poll_fill_from, poll_send_encoded};
use crate::stream::byte_stream::ByteStream;
use crate::stream::document_stream::DocumentStream;

/// Bytes without encryption.
pub struct PlainTransport<W> {
    pub(crate) io: W,
}

/// A plaintext stream.
pub(crate) type PlainStream<W> = BufferedStream<PlainTransport<W>>;

#[allow(
    private_bounds,
    reason = "the trait is how this crate's transports share code; nobody else implements it"
)]
impl<W: ByteStream> PlainStream<W> {
    pub(crate) fn plain(wire: W, port: SharedListenerConfig, peer: SocketAddr) -> PlainStream<W> {
        BufferedStream::new(PlainTransport { io: wire }, DocumentStream::new(port, peer))
    }
}

impl<W: ByteStream> TransportLayer for PlainTransport<W> {
    fn poll_fill(
        &mut self,
        shared: &mut DocumentStream,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        let limit = shared.input_limit();
        poll_fill_from(&mut self.io, shared, cx, &mut scratch.input, limit, &mut scratch.pool)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_read(cx, into)
    }

    fn encode(&mut self, shared: &mut DocumentStream, scratch: &mut Scratch) -> Result<(), NetError> {
        shared.encode(scratch)
    }

    fn encoded(scratch: &mut Scratch) -> (&mut Vec<u8>, &mut BufferPool) {
        (&mut scratch.output, &mut scratch.pool)
    }

    fn poll_send(
        &mut self,
        shared: &mut DocumentStream,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        poll_send_encoded::<Self>(&mut self.io, shared, cx, scratch)
    }

    /// TCP has no closing message.
    fn finish(&mut self, _shared: &mut DocumentStream, _scratch: &mut Scratch) -> Result<(), NetError> {
        Ok(())
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_shutdown(cx)
    }
}
