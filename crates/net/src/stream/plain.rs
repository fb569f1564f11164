//! Unencrypted XMPP stream over TCP or memory (RFC 6120, section 4.2: one endless document per direction).
//!
//! Not implemented: TLS (`stream/tls.rs`), into which `Stream::start_tls` converts this.
//!
//! # Pitfalls
//!
//! An idle stream must own no buffer. Reading and queueing hold the scratch, and release it as soon as it has no bytes
//! of this stream.

use crate::connection_info::SharedListenerConfig;
use crate::error::NetError;
use crate::scratch::{READ_BUFFER_BYTES, Scratch};
use crate::stream::byte_stream::ByteStream;
use crate::stream::document_stream::{DocumentStream, ScanEvent, poll_drain};
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

/// A plaintext stream.
pub struct PlainStream<W> {
    pub(crate) io: W,
    pub(crate) shared: DocumentStream,
}

#[allow(private_bounds, reason = "the trait is how this crate's peers share code; nobody else implements it")]
impl<W: ByteStream> PlainStream<W> {
    pub(crate) fn new(wire: W, port: SharedListenerConfig, peer: SocketAddr) -> PlainStream<W> {
        PlainStream { io: wire, shared: DocumentStream::new(port, peer) }
    }

    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<ScanEvent, NetError>> {
        self.shared.check_input()?;
        self.shared.acquire_buffers(lent)?;
        loop {
            if let Some(found) = self.shared.scan(lent)? {
                return Poll::Ready(Ok(found));
            }
            if self.shared.is_ended() {
                return Poll::Ready(Ok(ScanEvent::Eof));
            }
            let limit = self.shared.input_limit();
            let Scratch { input, pool, .. } = &mut *lent;
            let room = input.spare_capacity(limit, pool);
            if room.is_empty() {
                return Poll::Ready(Err(self.shared.fail(NetError::TooLong, lent)));
            }
            match self.io.poll_read(cx, room) {
                Poll::Pending => {
                    if !self.shared.has_queued() {
                        self.shared.release_buffers(lent);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => self.shared.set_ended(),
                Poll::Ready(Ok(count)) => lent.input.commit(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.shared.fail(error.into(), lent))),
            }
        }
    }

    /// Reads once and discards the bytes.
    pub(crate) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        self.shared.acquire_buffers(lent)?;
        let Scratch { input, pool, .. } = &mut *lent;
        input.clear(pool);
        let read = self.io.poll_read(cx, input.spare_capacity(READ_BUFFER_BYTES, pool));
        if !self.shared.has_queued() {
            self.shared.release_buffers(lent);
        }
        read.map_err(NetError::from)
    }

    pub(crate) fn queue(&mut self, bytes: &[u8], lent: &mut Scratch) {
        if self.shared.acquire_buffers(lent).is_ok() {
            self.shared.queue(bytes, lent);
        }
    }

    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        self.shared.check_output()?;
        let queued = self.shared.has_queued();
        if queued {
            self.shared.acquire_buffers(lent)?;
            self.shared.encode(lent)?;
        } else if self.shared.unsent.is_none() {
            return Poll::Ready(Ok(()));
        }
        // Without a holding the output buffer may belong to another stream.
        let mut nothing = Vec::new();
        let Scratch { output, pool, .. } = &mut *lent;
        let fresh = if queued { output } else { &mut nothing };
        let done = poll_drain(&mut self.io, cx, &mut self.shared.unsent, fresh, pool);
        if queued {
            self.shared.finish_queued(lent);
        }
        done
    }

    pub(crate) fn release_buffers(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.holds_buffers() {
            self.shared.acquire_buffers(lent)?;
            if self.shared.has_queued() {
                self.shared.encode(lent)?;
                self.shared.stash_queued(lent);
            }
            self.shared.release_buffers(lent);
        }
        Ok(())
    }

    pub(crate) fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        if self.shared.has_closing_frame() && !self.shared.is_write_closed() {
            self.shared.acquire_buffers(lent)?;
            self.shared.queue_closing_frame(lent)?;
        }
        self.shared.set_write_closed();
        ready!(self.poll_flush(cx, lent))?;
        self.io.poll_shutdown(cx).map_err(NetError::from)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.shared.is_idle()
    }
}
