//! Buffering shared by all transports of a stream: reading until there is an event, queueing, flushing, closing.
//!
//! A transport defines how bytes arrive and leave ([`TransportLayer`]): unchanged, as TLS records, or as BOSH bodies.
//! This file decides for all of them when buffers are acquired and released, what is stashed, and which limits apply.
//!
//! # Pitfalls
//!
//! An idle stream must own no buffer. Reading and queueing hold the scratch; it is released as soon as it has no bytes
//! of this stream.
//!
//! A stream that holds no buffers may still have stashed output to send. The lent buffers may belong to another stream
//! then: [`DocumentStream::is_holder`] says whether they may be used.

use std::io;
use std::task::{Context, Poll, ready};

use crate::buffer_pool::{BufferBlock, BufferPool};
use crate::error::NetError;
use crate::scratch::{self, InputBuffer, READ_BUFFER_BYTES, Scratch};
use crate::stream::byte_stream::ByteStream;
use crate::stream::document_stream::{DocumentStream, ScanEvent};

/// One transport under a [`BufferedStream`]. Except in `poll_send`, the stream holds the scratch during every call that
/// has it as a parameter.
pub(crate) trait TransportLayer {
    /// Loads what [`TransportLayer::stash`] has stored, when the stream acquires the scratch.
    fn restore(&mut self, _scratch: &mut Scratch) {}

    /// Stores input other than `Scratch::input` before the scratch is released.
    fn stash(&mut self, _scratch: &mut Scratch) {}

    /// True if nothing is stashed.
    fn is_idle(&self) -> bool {
        true
    }

    /// Next event in the input that was read; `None` if more is needed.
    fn next_event(
        &mut self,
        shared: &mut DocumentStream,
        scratch: &mut Scratch,
    ) -> Result<Option<ScanEvent>, NetError> {
        shared.scan(scratch)
    }

    /// Reads once and appends to the input, or sets the end of it. Ready does not mean that there is an event.
    fn poll_fill(
        &mut self,
        shared: &mut DocumentStream,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>>;

    /// Reads once into a buffer whose content is discarded; 0 is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Encodes queued output for the wire, into the buffer [`TransportLayer::encoded`]. Output that can never be sent
    /// is discarded.
    fn encode(&mut self, shared: &mut DocumentStream, scratch: &mut Scratch) -> Result<(), NetError>;

    /// Buffer with the encoded output, and the pool.
    fn encoded(scratch: &mut Scratch) -> (&mut Vec<u8>, &mut BufferPool);

    /// Sends stashed output and then, if the stream is the holder, the encoded one. What remains is stashed.
    fn poll_send(
        &mut self,
        shared: &mut DocumentStream,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>>;

    /// A flush has found nothing to send.
    fn nothing_to_send(&mut self) {}

    /// Sends or stashes the transport's own closing message, after all queued output.
    fn finish(&mut self, shared: &mut DocumentStream, scratch: &mut Scratch) -> Result<(), NetError>;

    /// Ends the outgoing direction, when everything has left.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// A stream over one transport.
pub struct BufferedStream<T> {
    pub(crate) transport: T,
    pub(crate) shared: DocumentStream,
}

#[allow(
    private_bounds,
    reason = "the trait is how this crate's transports share code; nobody else implements it"
)]
impl<T: TransportLayer> BufferedStream<T> {
    pub(crate) fn new(transport: T, shared: DocumentStream) -> BufferedStream<T> {
        BufferedStream { transport, shared }
    }

    /// True if this stream owns no buffer.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.is_idle() && self.transport.is_idle()
    }

    fn acquire_buffers(&mut self, scratch: &mut Scratch) -> Result<(), NetError> {
        if self.shared.acquire_buffers(scratch)? {
            self.transport.restore(scratch);
        }
        Ok(())
    }

    /// Stashes unread input and releases the scratch. Output must have been sent or stashed.
    fn stash_input(&mut self, scratch: &mut Scratch) {
        if self.shared.is_holder(scratch) {
            self.transport.stash(scratch);
        }
        self.shared.release_buffers(scratch);
    }

    /// Next event, after as many reads as it takes. While input is incomplete and nothing is queued, the scratch is
    /// released.
    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<ScanEvent, NetError>> {
        self.shared.check_input()?;
        self.acquire_buffers(scratch)?;
        loop {
            if let Some(found) = self.transport.next_event(&mut self.shared, scratch)? {
                return Poll::Ready(Ok(found));
            }
            if self.shared.is_ended() {
                return Poll::Ready(Ok(ScanEvent::Eof));
            }
            match self.transport.poll_fill(&mut self.shared, cx, scratch) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.shared.fail(error, scratch))),
                Poll::Pending => {
                    if !self.shared.has_queued() {
                        self.stash_input(scratch);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Reads once and discards the bytes.
    pub(crate) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        self.acquire_buffers(scratch)?;
        let Scratch { input, records, pool, .. } = &mut *scratch;
        input.clear(pool);
        records.clear(pool);
        let read = self.transport.poll_read(cx, input.spare_capacity(READ_BUFFER_BYTES, pool));
        if !self.shared.has_queued() {
            self.stash_input(scratch);
        }
        read.map_err(NetError::from)
    }

    pub(crate) fn queue(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        if self.acquire_buffers(scratch).is_ok() {
            self.shared.queue(bytes, scratch);
        }
    }

    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        self.shared.check_output()?;
        if self.shared.has_queued() {
            self.acquire_buffers(scratch)?;
            self.transport.encode(&mut self.shared, scratch)?;
        } else if self.shared.unsent.is_none() {
            self.transport.nothing_to_send();
            return Poll::Ready(Ok(()));
        }
        let done = self.transport.poll_send(&mut self.shared, cx, scratch);
        if self.shared.is_holder(scratch) {
            self.shared.discard_queued(scratch);
            if scratch.input.is_empty() && scratch.records.is_empty() {
                self.stash_input(scratch);
            }
        }
        done
    }

    /// Moves unread input and unsent output into blocks, and releases the scratch.
    pub(crate) fn release_buffers(&mut self, scratch: &mut Scratch) -> Result<(), NetError> {
        if self.shared.holds_buffers() {
            self.acquire_buffers(scratch)?;
            if self.shared.has_queued() {
                self.transport.encode(&mut self.shared, scratch)?;
            }
            let (encoded, pool) = T::encoded(scratch);
            DocumentStream::stash_unsent(&mut self.shared.unsent, encoded, pool);
            encoded.clear();
            self.shared.discard_queued(scratch);
            self.stash_input(scratch);
        }
        Ok(())
    }

    /// Flushes, and ends the outgoing direction.
    pub(crate) fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        if !self.shared.is_write_closed() {
            self.shared.check_output()?;
            self.acquire_buffers(scratch)?;
            self.shared.queue_closing_frame(scratch)?;
            self.transport.finish(&mut self.shared, scratch)?;
            self.shared.set_write_closed();
        }
        let flushed = self.poll_flush(cx, scratch);
        self.release_buffers(scratch)?;
        ready!(flushed)?;
        self.transport.poll_shutdown(cx).map_err(NetError::from)
    }
}

/// Reads once into a buffer that may hold `limit` bytes, and notes the end of input.
pub(crate) fn poll_fill_from(
    wire: &mut impl ByteStream,
    shared: &mut DocumentStream,
    cx: &mut Context<'_>,
    buffer: &mut InputBuffer,
    limit: usize,
    pool: &mut BufferPool,
) -> Poll<Result<(), NetError>> {
    let room = buffer.spare_capacity(limit, pool);
    if room.is_empty() {
        return Poll::Ready(Err(NetError::TooLong));
    }
    match ready!(wire.poll_read(cx, room))? {
        0 => shared.set_ended(),
        count => buffer.commit(count),
    }
    Poll::Ready(Ok(()))
}

/// Sends stashed output and then, if the stream is the holder, the encoded one of a transport over bytes.
pub(crate) fn poll_send_encoded<T: TransportLayer>(
    wire: &mut impl ByteStream,
    shared: &mut DocumentStream,
    cx: &mut Context<'_>,
    scratch: &mut Scratch,
) -> Poll<Result<(), NetError>> {
    let mut nothing = Vec::new();
    let holder = shared.is_holder(scratch);
    let (encoded, pool) = T::encoded(scratch);
    poll_drain(wire, cx, &mut shared.unsent, if holder { encoded } else { &mut nothing }, pool)
}

/// Writes unsent bytes and then `fresh`; the remainder is stashed. `fresh` is empty afterwards.
pub(crate) fn poll_drain(
    wire: &mut impl ByteStream,
    cx: &mut Context<'_>,
    unsent: &mut Option<Box<BufferBlock>>,
    fresh: &mut Vec<u8>,
    pool: &mut BufferPool,
) -> Poll<Result<(), NetError>> {
    if unsent.is_none() {
        let mut sent = 0;
        let done = loop {
            let Some(rest) = fresh.get(sent..).filter(|rest| !rest.is_empty()) else {
                break Poll::Ready(Ok(()));
            };
            match wire.poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => break Poll::Ready(Err(NetError::Closed)),
                Poll::Ready(Ok(count)) => sent += count,
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    *unsent = pool.store(rest);
                    break Poll::Pending;
                }
            }
        };
        scratch::clear_and_shrink(fresh);
        return done;
    }
    DocumentStream::stash_unsent(unsent, fresh, pool);
    scratch::clear_and_shrink(fresh);
    while let Some(block) = unsent {
        match ready!(wire.poll_write(cx, block.data()))? {
            0 => return Poll::Ready(Err(NetError::Closed)),
            count => block.consume(count),
        }
        if block.len() == 0
            && let Some(block) = unsent.take()
        {
            pool.recycle(block);
        }
    }
    Poll::Ready(Ok(()))
}
