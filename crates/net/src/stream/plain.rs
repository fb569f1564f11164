//! An XMPP stream without encryption, over TCP or over memory (RFC 6120 §4.2: one endless document per direction).
//!
//! Left out: TLS (`stream/tls.rs`), into which `Stream::start_tls` turns this.
//! Trap: an idle stream must own no buffer. Everything that reads or queues holds the scratch, and lets go of it as
//! soon as nothing of this stream is left there.

use crate::error::NetError;
use crate::facts::SharedPort;
use crate::scratch::{READ_BYTES, Scratch};
use crate::stream::shared::{Found, Shared, poll_drain};
use crate::stream::wire::Wire;
use std::net::SocketAddr;
use std::task::{Context, Poll, ready};

/// A plaintext peer.
pub struct Plain<W> {
    pub(crate) wire: W,
    pub(crate) shared: Shared,
}

#[allow(private_bounds, reason = "the trait is how this crate's peers share code; nobody else implements it")]
impl<W: Wire> Plain<W> {
    pub(crate) fn new(wire: W, port: SharedPort, peer: SocketAddr) -> Plain<W> {
        Plain { wire, shared: Shared::new(port, peer) }
    }

    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<Found, NetError>> {
        self.shared.check_input()?;
        self.shared.hold(lent)?;
        loop {
            if let Some(found) = self.shared.scan(lent)? {
                return Poll::Ready(Ok(found));
            }
            if self.shared.is_ended() {
                return Poll::Ready(Ok(Found::Eof));
            }
            let limit = self.shared.input_limit();
            let Scratch { input, pool, .. } = &mut *lent;
            let room = input.room(limit, pool);
            if room.is_empty() {
                return Poll::Ready(Err(self.shared.fail(NetError::TooLong, lent)));
            }
            match self.wire.poll_read(cx, room) {
                Poll::Pending => {
                    if !self.shared.has_queued() {
                        self.shared.release(lent);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => self.shared.ended(),
                Poll::Ready(Ok(count)) => lent.input.filled(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.shared.fail(error.into(), lent))),
            }
        }
    }

    /// Reads once and throws it away.
    pub(crate) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        self.shared.hold(lent)?;
        let Scratch { input, pool, .. } = &mut *lent;
        input.clear(pool);
        let read = self.wire.poll_read(cx, input.room(READ_BYTES, pool));
        if !self.shared.has_queued() {
            self.shared.release(lent);
        }
        read.map_err(NetError::from)
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
        let queued = self.shared.has_queued();
        if queued {
            self.shared.hold(lent)?;
            self.shared.encode(lent)?;
        } else if self.shared.unsent.is_none() {
            return Poll::Ready(Ok(()));
        }
        // Without a holding the output buffer may be another stream's.
        let mut nothing = Vec::new();
        let Scratch { output, pool, .. } = &mut *lent;
        let fresh = if queued { output } else { &mut nothing };
        let done = poll_drain(&mut self.wire, cx, &mut self.shared.unsent, fresh, pool);
        if queued {
            self.shared.queue_is_out(lent);
        }
        done
    }

    pub(crate) fn park(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.holds() {
            self.shared.hold(lent)?;
            if self.shared.has_queued() {
                self.shared.encode(lent)?;
                self.shared.stash_queued(lent);
            }
            self.shared.release(lent);
        }
        Ok(())
    }

    pub(crate) fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        if self.shared.has_farewell() && !self.shared.is_shut() {
            self.shared.hold(lent)?;
            self.shared.farewell(lent)?;
        }
        self.shared.shut();
        ready!(self.poll_flush(cx, lent))?;
        self.wire.poll_shutdown(cx).map_err(NetError::from)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.shared.is_idle()
    }
}
