//! A session as a stream: items in, answers out. XEP-0124, XEP-0206.
//!
//! Output is written into the answer of the oldest request that waits. While none waits, the layer above is to keep what it
//! has ([`Stream::takes_output`]): what is still in its queue when the client does not come back goes elsewhere, what is in
//! an answer is lost with it.
//!
//! Left out: STARTTLS (XEP-0206 section 2: encryption is HTTP's). Trap: a flush is done when nothing can be sent, too;
//! there is no way to wait for a request without one, and reading must go on meanwhile.
//!
//! [`Stream::takes_output`]: crate::Stream::takes_output

use super::Origin;
use super::answer::{self, Cut};
use super::parts::Read;
use super::request::{self, ITEM, Item};
use super::session::Session;
use crate::error::NetError;
use crate::facts::{Facts, Transport};
use crate::scratch::{self, Scratch};
use crate::stream::shared::{Found, Shared};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Output that may wait for a request before reading stops, in bytes.
const UNSENT: usize = 8 * 1024;

/// A peer behind BOSH.
pub struct Bosh {
    session: Arc<Session>,
    pub(crate) shared: Shared,
    /// The client closed its stream.
    closed: bool,
}

impl Bosh {
    pub(super) fn new(session: Arc<Session>, origin: Origin) -> Bosh {
        let mut shared = Shared::new(origin.port, origin.peer);
        shared.behind_proxy(origin.peer, origin.secure);
        Bosh { session, shared, closed: false }
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        self.shared.facts(Transport::Bosh, false)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.shared.is_idle()
    }

    /// Whether a request waits for what could be said now.
    pub(crate) fn takes_output(&mut self) -> bool {
        self.session.ready(None)
    }

    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<Found, NetError>> {
        self.shared.check_input()?;
        self.shared.hold(lent)?;
        loop {
            if self.closed {
                lent.input.clear(&mut lent.pool);
                return Poll::Ready(Ok(Found::Eof));
            }
            if let Some(found) = self.item(lent)? {
                return Poll::Ready(Ok(found));
            }
            match self.session.read(cx.waker()) {
                Read::Items(items) => lent.input.append(&items, &mut lent.pool),
                Read::End => return Poll::Ready(Ok(Found::Eof)),
                Read::Nothing => {
                    if !self.shared.has_queued() {
                        self.shared.release(lent);
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    /// The next item that was read already.
    fn item(&mut self, lent: &mut Scratch) -> Result<Option<Found>, NetError> {
        let Some((item, length)) = request::first(lent.input.data()) else { return Ok(None) };
        let start = lent.input.position() + ITEM;
        lent.input.consume(ITEM + length);
        match item {
            Item::Open => Ok(Some(Found::Open(start, start + length))),
            Item::Element if length > self.shared.limits().element_bytes as usize => {
                Err(self.shared.fail(xml::Error::TooLarge.into(), lent))
            }
            Item::Element => Ok(Some(Found::Element(start, start + length))),
            Item::Close => {
                self.closed = true;
                Ok(Some(Found::Close))
            }
        }
    }

    pub(crate) fn queue(&mut self, bytes: &[u8], lent: &mut Scratch) {
        if self.shared.hold(lent).is_ok() {
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
            self.shared.hold(lent)?;
        } else if self.shared.unsent.is_none() {
            self.session.settle();
            return Poll::Ready(Ok(()));
        }
        if !self.session.ready(Some(cx.waker())) || !self.say(lent, false) {
            self.stash(lent);
            let much = self.shared.unsent() > UNSENT;
            return if much { Poll::Pending } else { Poll::Ready(Ok(())) };
        }
        Poll::Ready(Ok(()))
    }

    /// Puts everything that waits into an answer. At the end of the stream it is kept for a request that may come.
    fn say(&mut self, lent: &mut Scratch, last: bool) -> bool {
        let queued = self.shared.has_queued();
        if let Some(block) = &mut self.shared.unsent
            && queued
        {
            block.append(&lent.output);
            self.shared.unqueue(lent);
        }
        // Without a holding the buffers may be another stream's.
        let mut own = Vec::new();
        let Scratch { output, sealed, .. } = &mut *lent;
        let payload = if self.shared.holds() { sealed } else { &mut own };
        payload.clear();
        let cut = match &self.shared.unsent {
            Some(block) => answer::cut(block.data(), payload),
            None if queued => answer::cut(output, payload),
            None => Cut::default(),
        };
        if last || cut.closed {
            self.session.finish(&cut, payload, self.closed);
        } else if !self.session.deliver(&cut, payload) {
            scratch::empty(payload);
            return false;
        }
        scratch::empty(payload);
        if let Some(block) = self.shared.unsent.take() {
            lent.pool.give(block);
        }
        if self.shared.holds() {
            self.shared.queue_is_out(lent);
        }
        true
    }

    /// Moves what is queued to what waits.
    fn stash(&mut self, lent: &mut Scratch) {
        self.shared.stash_queued(lent);
        if self.shared.holds() && lent.input.is_empty() {
            self.shared.release(lent);
        }
    }

    pub(crate) fn park(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.holds() {
            self.shared.hold(lent)?;
            self.stash(lent);
            self.shared.release(lent);
        }
        Ok(())
    }

    pub(crate) fn poll_shutdown(
        &mut self,
        _cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        if !self.shared.is_shut() {
            self.shared.shut();
            self.shared.check_output()?;
            if self.shared.has_queued() {
                self.shared.hold(lent)?;
            }
            self.say(lent, true);
        }
        Poll::Ready(Ok(()))
    }

    /// There is nothing behind the end of a session.
    pub(crate) fn poll_discard(
        &mut self,
        _cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        self.park(lent)?;
        Poll::Ready(Ok(0))
    }
}

impl Drop for Bosh {
    fn drop(&mut self) {
        self.session.finish(&Cut::default(), b"", self.closed);
    }
}
