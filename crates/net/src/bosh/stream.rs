//! BOSH session as a stream: items in, responses out (XEP-0124, XEP-0206).
//!
//! Output is written into the response of the oldest waiting request. While none waits, or too many bytes in responses
//! are unsent, the layer above should keep its output queued ([`Stream::accepts_output`]): queued stanzas of a client that
//! does not return are rerouted, and their number is limited. A flush is complete when the output is in a response; [`Stream::unflushed`] says what the kernel has not taken of it.
//!
//! Not implemented: STARTTLS (XEP-0206, section 2: encryption is up to HTTP).
//!
//! # Pitfalls
//!
//! A flush also completes if nothing can be sent: without a request there is nothing to wait for, and reading must go
//! on meanwhile.
//!
//! [`Stream::accepts_output`]: crate::Stream::accepts_output
//! [`Stream::unflushed`]: crate::Stream::unflushed

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::RequestSource;
use super::request::{self, ITEM_HEADER_BYTES, PayloadItem};
use super::response::{self, ExtractedElements};
use super::session::BoshSession;
use super::session_types::PayloadRead;
use crate::buffer_pool::BufferPool;
use crate::error::NetError;
use crate::scratch::{self, Scratch};
use crate::stream::buffered::{BufferedStream, TransportLayer};
use crate::stream::document_stream::{DocumentStream, ScanEvent};

/// Bytes of output that may wait for a response before reading stops.
const MAX_QUEUED_BYTES: usize = 8 * 1024;

/// Bodies of requests and responses.
pub struct BoshTransport {
    session: Arc<BoshSession>,
    /// The client closed its stream.
    closed: bool,
}

/// Stream over BOSH.
pub(crate) type BoshStream = BufferedStream<BoshTransport>;

impl BoshStream {
    pub(super) fn bosh(session: Arc<BoshSession>, origin: RequestSource) -> BoshStream {
        let mut shared = DocumentStream::new(origin.listener, origin.peer);
        shared.set_proxied_client(origin.peer, origin.secure);
        BufferedStream::new(BoshTransport { session, closed: false }, shared)
    }

    /// Whether a request waits for output, and the client receives earlier output.
    pub(crate) fn accepts_output(&mut self) -> bool {
        self.transport.session.accepts_output(None)
    }

    /// Bytes in responses that the kernel has not taken. If there are any, the task is woken when they become fewer.
    pub(crate) fn unsent_response_bytes(&self) -> usize {
        self.transport.session.unsent_bytes()
    }
}

impl BoshTransport {
    /// Puts all pending output into a response. At the end of the stream it is stored for a later request.
    fn send_queued(&mut self, shared: &mut DocumentStream, scratch: &mut Scratch, last: bool) -> bool {
        let queued = shared.has_queued();
        if let Some(block) = &mut shared.unsent
            && queued
        {
            block.append(&scratch.output);
            shared.discard_queued(scratch);
        }
        // Without a holding the buffers may belong to another stream.
        let holder = shared.is_holder(scratch);
        let mut own = Vec::new();
        let Scratch { output, encrypted, .. } = &mut *scratch;
        let payload = if holder { encrypted } else { &mut own };
        payload.clear();
        let cut = match &shared.unsent {
            Some(block) => response::extract_elements(block.data(), payload),
            None if queued => response::extract_elements(output, payload),
            None => ExtractedElements::default(),
        };
        if last || cut.closed {
            self.session.finish(&cut, payload, self.closed);
        } else if !self.session.deliver(&cut, payload) {
            scratch::clear_and_shrink(payload);
            return false;
        }
        scratch::clear_and_shrink(payload);
        if let Some(block) = shared.unsent.take() {
            scratch.pool.recycle(block);
        }
        if holder {
            shared.discard_queued(scratch);
        }
        true
    }
}

impl TransportLayer for BoshTransport {
    /// Next item that was already read.
    fn next_event(
        &mut self,
        shared: &mut DocumentStream,
        scratch: &mut Scratch,
    ) -> Result<Option<ScanEvent>, NetError> {
        if self.closed {
            scratch.input.clear(&mut scratch.pool);
            return Ok(Some(ScanEvent::Eof));
        }
        let Some((item, length)) = request::first_item(scratch.input.data()) else { return Ok(None) };
        let start = scratch.input.position() + ITEM_HEADER_BYTES;
        scratch.input.consume(ITEM_HEADER_BYTES + length);
        match item {
            PayloadItem::Open => Ok(Some(ScanEvent::Open(start, start + length))),
            PayloadItem::Element if length > shared.limits().element_bytes as usize => {
                Err(shared.fail(xml::Error::TooLarge.into(), scratch))
            }
            PayloadItem::Element => Ok(Some(ScanEvent::Element(start, start + length))),
            PayloadItem::Close => {
                self.closed = true;
                Ok(Some(ScanEvent::Close))
            }
        }
    }

    fn poll_fill(
        &mut self,
        shared: &mut DocumentStream,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        match self.session.read(cx.waker()) {
            PayloadRead::Items(items) => scratch.input.append(&items, &mut scratch.pool),
            PayloadRead::End => shared.set_ended(),
            PayloadRead::Nothing => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    /// No bytes follow the end of a session.
    fn poll_read(&mut self, _cx: &mut Context<'_>, _into: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }

    /// Responses are made when a request waits.
    fn encode(&mut self, _shared: &mut DocumentStream, _scratch: &mut Scratch) -> Result<(), NetError> {
        Ok(())
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
        if !self.session.accepts_output(Some(cx.waker())) || !self.send_queued(shared, scratch, false) {
            shared.stash_queued(scratch);
            if shared.unsent() > MAX_QUEUED_BYTES {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn nothing_to_send(&mut self) {
        self.session.answer_excess_requests();
    }

    fn finish(&mut self, shared: &mut DocumentStream, scratch: &mut Scratch) -> Result<(), NetError> {
        self.send_queued(shared, scratch, true);
        Ok(())
    }

    fn poll_shutdown(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for BoshTransport {
    fn drop(&mut self) {
        self.session.finish(&ExtractedElements::default(), b"", self.closed);
    }
}
