//! BOSH session as a stream: items in, responses out (XEP-0124, XEP-0206).
//!
//! Output is written into the response of the oldest waiting request. While none waits, the layer above should keep its
//! output queued ([`Stream::accepts_output`]): queued stanzas of a client that does not return are rerouted, those in a
//! response are lost with it.
//!
//! Not implemented: STARTTLS (XEP-0206, section 2: encryption is up to HTTP).
//!
//! # Pitfalls
//!
//! A flush also completes if nothing can be sent: without a request there is nothing to wait for, and reading must go
//! on meanwhile.
//!
//! [`Stream::accepts_output`]: crate::Stream::accepts_output

use super::RequestSource;
use super::request::{self, ITEM_HEADER_BYTES, PayloadItem};
use super::response::{self, ExtractedElements};
use super::session::BoshSession;
use super::session_types::PayloadRead;
use crate::connection_info::{ConnectionInfo, Transport};
use crate::error::NetError;
use crate::scratch::{self, Scratch};
use crate::stream::document_stream::{DocumentStream, ScanEvent};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Bytes of output that may wait for a request before reading stops.
const MAX_UNSENT_BYTES: usize = 8 * 1024;

/// Stream over BOSH.
pub struct BoshStream {
    session: Arc<BoshSession>,
    pub(crate) shared: DocumentStream,
    /// The client closed its stream.
    closed: bool,
}

impl BoshStream {
    pub(super) fn new(session: Arc<BoshSession>, origin: RequestSource) -> BoshStream {
        let mut shared = DocumentStream::new(origin.listener, origin.peer);
        shared.set_proxied_client(origin.peer, origin.secure);
        BoshStream { session, shared, closed: false }
    }

    pub(crate) fn info(&self) -> ConnectionInfo<'_> {
        self.shared.info(Transport::Bosh, false)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.shared.is_idle()
    }

    /// Whether a request waits for output.
    pub(crate) fn accepts_output(&mut self) -> bool {
        self.session.has_waiting_request(None)
    }

    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<ScanEvent, NetError>> {
        self.shared.check_input()?;
        self.shared.acquire_buffers(lent)?;
        loop {
            if self.closed {
                lent.input.clear(&mut lent.pool);
                return Poll::Ready(Ok(ScanEvent::Eof));
            }
            if let Some(found) = self.next_item(lent)? {
                return Poll::Ready(Ok(found));
            }
            match self.session.read(cx.waker()) {
                PayloadRead::Items(items) => lent.input.append(&items, &mut lent.pool),
                PayloadRead::End => return Poll::Ready(Ok(ScanEvent::Eof)),
                PayloadRead::Nothing => {
                    if !self.shared.has_queued() {
                        self.shared.release_buffers(lent);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// Next item that was already read.
    fn next_item(&mut self, lent: &mut Scratch) -> Result<Option<ScanEvent>, NetError> {
        let Some((item, length)) = request::first_item(lent.input.data()) else { return Ok(None) };
        let start = lent.input.position() + ITEM_HEADER_BYTES;
        lent.input.consume(ITEM_HEADER_BYTES + length);
        match item {
            PayloadItem::Open => Ok(Some(ScanEvent::Open(start, start + length))),
            PayloadItem::Element if length > self.shared.limits().element_bytes as usize => {
                Err(self.shared.fail(xml::Error::TooLarge.into(), lent))
            }
            PayloadItem::Element => Ok(Some(ScanEvent::Element(start, start + length))),
            PayloadItem::Close => {
                self.closed = true;
                Ok(Some(ScanEvent::Close))
            }
        }
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
        if self.shared.has_queued() {
            self.shared.acquire_buffers(lent)?;
        } else if self.shared.unsent.is_none() {
            self.session.answer_excess_requests();
            return Poll::Ready(Ok(()));
        }
        if !self.session.has_waiting_request(Some(cx.waker())) || !self.send_queued(lent, false) {
            self.stash_queued(lent);
            let much = self.shared.unsent() > MAX_UNSENT_BYTES;
            return if much { Poll::Pending } else { Poll::Ready(Ok(())) };
        }
        Poll::Ready(Ok(()))
    }

    /// Puts all pending output into a response. At the end of the stream it is stored for a later request.
    fn send_queued(&mut self, lent: &mut Scratch, last: bool) -> bool {
        let queued = self.shared.has_queued();
        if let Some(block) = &mut self.shared.unsent
            && queued
        {
            block.append(&lent.output);
            self.shared.discard_queued(lent);
        }
        // Without a holding the buffers may belong to another stream.
        let mut own = Vec::new();
        let Scratch { output, encrypted: sealed, .. } = &mut *lent;
        let payload = if self.shared.holds_buffers() { sealed } else { &mut own };
        payload.clear();
        let cut = match &self.shared.unsent {
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
        if let Some(block) = self.shared.unsent.take() {
            lent.pool.recycle(block);
        }
        if self.shared.holds_buffers() {
            self.shared.finish_queued(lent);
        }
        true
    }

    /// Moves queued output to pending output.
    fn stash_queued(&mut self, lent: &mut Scratch) {
        self.shared.stash_queued(lent);
        if self.shared.holds_buffers() && lent.input.is_empty() {
            self.shared.release_buffers(lent);
        }
    }

    pub(crate) fn release_buffers(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.holds_buffers() {
            self.shared.acquire_buffers(lent)?;
            self.stash_queued(lent);
            self.shared.release_buffers(lent);
        }
        Ok(())
    }

    pub(crate) fn poll_shutdown(
        &mut self,
        _cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        if !self.shared.is_write_closed() {
            self.shared.set_write_closed();
            self.shared.check_output()?;
            if self.shared.has_queued() {
                self.shared.acquire_buffers(lent)?;
            }
            self.send_queued(lent, true);
        }
        Poll::Ready(Ok(()))
    }

    /// No bytes follow the end of a session.
    pub(crate) fn poll_discard(
        &mut self,
        _cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        self.release_buffers(lent)?;
        Poll::Ready(Ok(0))
    }
}

impl Drop for BoshStream {
    fn drop(&mut self) {
        self.session.finish(&ExtractedElements::default(), b"", self.closed);
    }
}
