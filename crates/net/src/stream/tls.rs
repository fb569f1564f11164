//! An XMPP stream over TLS 1.2 or 1.3, from the first byte (XEP-0368) or after STARTTLS (RFC 6120 §5).
//!
//! Records are read into and written from the worker's buffers, so an idle connection owns keys and state, about 3 kB,
//! instead of 7 kB. The handshake runs inside `poll_event`. rustls itself is driven in `tls/records.rs`.
//!
//! Left out: resumption and early data (see `tls/config.rs`), kernel TLS.
//! Trap: what waits in `unsent` is encrypted already and goes first. During the handshake nothing can be said; what is
//! queued then is dropped.

use crate::error::NetError;
use crate::facts::{Facts, Transport};
use crate::pool::Block;
use crate::scratch::{READ_BYTES, Scratch};
use crate::stream::shared::{Found, Shared, poll_drain};
use crate::stream::wire::{AnyWire, Wire};
use crate::tls::records::{Job, Session, Turned};
use rustls::ServerConfig;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Most bytes of an unfinished handshake; they cost memory for a stranger. Client certificates with their chain fit.
const HANDSHAKE_BYTES: usize = 32_768;

/// A peer behind TLS.
pub struct Tls {
    wire: AnyWire,
    pub(crate) shared: Shared,
    pub(crate) session: Session,
    /// Records that have no end yet.
    records: Option<Box<Block>>,
}

impl Tls {
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        domain: Option<&str>,
        wire: AnyWire,
        shared: Shared,
    ) -> Result<Tls, NetError> {
        Ok(Tls { wire, shared, session: Session::new(config, domain)?, records: None })
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        self.shared.facts(Transport::Tls, self.session.is_secure())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.records.is_none() && self.shared.is_idle()
    }

    fn hold(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.hold(lent)?
            && let Some(block) = self.records.take()
        {
            lent.records.load(block, &mut lent.pool);
        }
        Ok(())
    }

    fn release(&mut self, lent: &mut Scratch) {
        // Only what the holding owns: `park` checked it, or this very call took it.
        self.records = lent.records.stash(&mut lent.pool);
        self.shared.release(lent);
    }

    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<Found, NetError>> {
        self.shared.check_input()?;
        self.hold(lent)?;
        loop {
            if let Some(found) = self.shared.scan(lent)? {
                return Poll::Ready(Ok(found));
            }
            if self.shared.is_ended() {
                return Poll::Ready(Ok(Found::Eof));
            }
            let decrypted =
                if lent.records.is_empty() { Ok(Turned::default()) } else { self.turn(Job::Read, lent) };
            if decrypted.is_err() {
                self.session.encode_alert(lent);
            }
            if !lent.sealed.is_empty() || self.shared.unsent.is_some() {
                let Scratch { sealed, pool, .. } = &mut *lent;
                // Pending is fine: the answer is stashed and this task is woken when it can go out.
                if let Poll::Ready(Err(error)) =
                    poll_drain(&mut self.wire, cx, &mut self.shared.unsent, sealed, pool)
                    && decrypted.is_ok()
                {
                    return Poll::Ready(Err(self.shared.fail(error, lent)));
                }
            }
            match decrypted {
                Err(error) => return Poll::Ready(Err(self.shared.fail(error, lent))),
                Ok(Turned { plaintext: false, closed: false }) => {}
                Ok(_) => continue,
            }
            let Scratch { records, pool, .. } = &mut *lent;
            let room =
                records.room(if self.session.is_secure() { READ_BYTES } else { HANDSHAKE_BYTES }, pool);
            if room.is_empty() {
                return Poll::Ready(Err(self.shared.fail(NetError::TooLong, lent)));
            }
            match self.wire.poll_read(cx, room) {
                Poll::Pending => {
                    if !self.shared.has_queued() {
                        self.release(lent);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => self.shared.ended(),
                Poll::Ready(Ok(count)) => lent.records.filled(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.shared.fail(error.into(), lent))),
            }
        }
    }

    /// Reads once and throws it away, records and all: nothing that follows is decrypted.
    pub(crate) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        self.hold(lent)?;
        let Scratch { input, records, pool, .. } = &mut *lent;
        input.clear(pool);
        records.clear(pool);
        let read = self.wire.poll_read(cx, records.room(READ_BYTES, pool));
        if !self.shared.has_queued() {
            self.release(lent);
        }
        read.map_err(NetError::from)
    }

    fn turn(&mut self, job: Job, lent: &mut Scratch) -> Result<Turned, NetError> {
        let turned = self.session.turn(job, lent)?;
        if turned.closed {
            self.shared.ended();
        }
        Ok(turned)
    }

    pub(crate) fn queue(&mut self, bytes: &[u8], lent: &mut Scratch) {
        if self.hold(lent).is_ok() {
            self.shared.queue(bytes, lent);
        }
    }

    /// Moves the output into records.
    fn seal(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.has_queued() {
            self.hold(lent)?;
            self.shared.encode(lent)?;
            let sealed = if self.session.is_secure() { self.turn(Job::Seal, lent).map(drop) } else { Ok(()) };
            self.shared.unqueue(lent);
            sealed?;
        }
        Ok(())
    }

    pub(crate) fn poll_flush(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        self.shared.check_output()?;
        if !self.shared.has_queued() && self.shared.unsent.is_none() {
            return Poll::Ready(Ok(()));
        }
        self.hold(lent)?;
        self.seal(lent)?;
        let Scratch { sealed, pool, .. } = &mut *lent;
        let done = poll_drain(&mut self.wire, cx, &mut self.shared.unsent, sealed, pool);
        if lent.input.is_empty() && lent.records.is_empty() {
            self.release(lent);
        }
        done
    }

    pub(crate) fn park(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.holds() {
            self.hold(lent)?;
            self.seal(lent)?;
            Shared::stash_unsent(&mut self.shared.unsent, &lent.sealed, &mut lent.pool);
            lent.sealed.clear();
            self.release(lent);
        }
        Ok(())
    }

    pub(crate) fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        if !self.shared.is_shut() {
            self.hold(lent)?;
            self.shared.farewell(lent)?;
            self.seal(lent)?;
            self.shared.shut();
            // A connection that failed has said its alert; it has no farewell.
            if self.session.is_secure() {
                let _ = self.turn(Job::Farewell, lent);
            }
            self.park(lent)?;
        }
        let Scratch { pool, .. } = &mut *lent;
        ready!(poll_drain(&mut self.wire, cx, &mut self.shared.unsent, &mut Vec::new(), pool))?;
        self.wire.poll_shutdown(cx).map_err(NetError::from)
    }
}
