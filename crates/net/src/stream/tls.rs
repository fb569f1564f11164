//! XMPP stream over TLS 1.2 or 1.3, from the first byte (XEP-0368) or after STARTTLS (RFC 6120, section 5).
//!
//! Records are read into and written from the worker's buffers, so an idle connection owns keys and state, about 3 kB,
//! instead of 7 kB. The handshake runs inside `poll_event`. rustls itself is driven in `tls/unbuffered.rs`.
//!
//! Not implemented: resumption and early data (see `tls/config.rs`), kernel TLS.
//!
//! # Pitfalls
//!
//! Bytes in `unsent` are already encrypted and leave first. Output queued during the handshake is dropped.

use crate::buffer_pool::BufferBlock;
use crate::connection_info::{ConnectionInfo, Transport};
use crate::error::NetError;
use crate::scratch::{READ_BUFFER_BYTES, Scratch};
use crate::stream::byte_stream::{AnyByteStream, ByteStream};
use crate::stream::document_stream::{DocumentStream, ScanEvent, poll_drain};
use crate::tls::unbuffered::{DriveGoal, DriveOutcome, TlsSession};
use rustls::ServerConfig;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Maximum bytes of an unfinished handshake, which an unauthenticated client can occupy. Client certificates with their
/// chain fit.
const MAX_HANDSHAKE_BYTES: usize = 32_768;

/// A stream over TLS.
pub struct TlsStream {
    io: AnyByteStream,
    pub(crate) shared: DocumentStream,
    pub(crate) session: TlsSession,
    /// Incomplete records.
    unfinished_records: Option<Box<BufferBlock>>,
}

impl TlsStream {
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        domain: Option<&str>,
        wire: AnyByteStream,
        shared: DocumentStream,
    ) -> Result<TlsStream, NetError> {
        Ok(TlsStream {
            io: wire,
            shared,
            session: TlsSession::new(config, domain)?,
            unfinished_records: None,
        })
    }

    pub(crate) fn info(&self) -> ConnectionInfo<'_> {
        self.shared.info(Transport::Tls, self.session.is_secure())
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.unfinished_records.is_none() && self.shared.is_idle()
    }

    fn acquire_buffers(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.acquire_buffers(lent)?
            && let Some(block) = self.unfinished_records.take()
        {
            lent.records.restore_block(block, &mut lent.pool);
        }
        Ok(())
    }

    fn stash_and_release(&mut self, lent: &mut Scratch) {
        // Only data of the holding: `release_buffers` checked it, or this call acquired it.
        self.unfinished_records = lent.records.take_block(&mut lent.pool);
        self.shared.release_buffers(lent);
    }

    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<ScanEvent, NetError>> {
        self.shared.check_input()?;
        self.acquire_buffers(lent)?;
        loop {
            if let Some(found) = self.shared.scan(lent)? {
                return Poll::Ready(Ok(found));
            }
            if self.shared.is_ended() {
                return Poll::Ready(Ok(ScanEvent::Eof));
            }
            let decrypted = if lent.records.is_empty() {
                Ok(DriveOutcome::default())
            } else {
                self.drive(DriveGoal::Read, lent)
            };
            if decrypted.is_err() {
                self.session.encode_alert(lent);
            }
            if !lent.encrypted.is_empty() || self.shared.unsent.is_some() {
                let Scratch { encrypted: sealed, pool, .. } = &mut *lent;
                // Pending is fine: the response is stashed and this task is woken when it can be written.
                if let Poll::Ready(Err(error)) =
                    poll_drain(&mut self.io, cx, &mut self.shared.unsent, sealed, pool)
                    && decrypted.is_ok()
                {
                    return Poll::Ready(Err(self.shared.fail(error, lent)));
                }
            }
            match decrypted {
                Err(error) => return Poll::Ready(Err(self.shared.fail(error, lent))),
                Ok(DriveOutcome { plaintext: false, closed: false }) => {}
                Ok(_) => continue,
            }
            let Scratch { records, pool, .. } = &mut *lent;
            let room = records.spare_capacity(
                if self.session.is_secure() { READ_BUFFER_BYTES } else { MAX_HANDSHAKE_BYTES },
                pool,
            );
            if room.is_empty() {
                return Poll::Ready(Err(self.shared.fail(NetError::TooLong, lent)));
            }
            match self.io.poll_read(cx, room) {
                Poll::Pending => {
                    if !self.shared.has_queued() {
                        self.stash_and_release(lent);
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Ok(0)) => self.shared.set_ended(),
                Poll::Ready(Ok(count)) => lent.records.commit(count),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.shared.fail(error.into(), lent))),
            }
        }
    }

    /// Reads once and discards the bytes; further records are not decrypted.
    pub(crate) fn poll_discard(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<usize, NetError>> {
        self.acquire_buffers(lent)?;
        let Scratch { input, records, pool, .. } = &mut *lent;
        input.clear(pool);
        records.clear(pool);
        let read = self.io.poll_read(cx, records.spare_capacity(READ_BUFFER_BYTES, pool));
        if !self.shared.has_queued() {
            self.stash_and_release(lent);
        }
        read.map_err(NetError::from)
    }

    fn drive(&mut self, job: DriveGoal, lent: &mut Scratch) -> Result<DriveOutcome, NetError> {
        let turned = self.session.drive(job, lent)?;
        if turned.closed {
            self.shared.set_ended();
        }
        Ok(turned)
    }

    pub(crate) fn queue(&mut self, bytes: &[u8], lent: &mut Scratch) {
        if self.acquire_buffers(lent).is_ok() {
            self.shared.queue(bytes, lent);
        }
    }

    /// Encrypts queued output into records.
    fn encrypt_queued(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.has_queued() {
            self.acquire_buffers(lent)?;
            self.shared.encode(lent)?;
            let sealed = if self.session.is_secure() {
                self.drive(DriveGoal::Encrypt, lent).map(drop)
            } else {
                Ok(())
            };
            self.shared.discard_queued(lent);
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
        self.acquire_buffers(lent)?;
        self.encrypt_queued(lent)?;
        let Scratch { encrypted: sealed, pool, .. } = &mut *lent;
        let done = poll_drain(&mut self.io, cx, &mut self.shared.unsent, sealed, pool);
        if lent.input.is_empty() && lent.records.is_empty() {
            self.stash_and_release(lent);
        }
        done
    }

    pub(crate) fn release_buffers(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.holds_buffers() {
            self.acquire_buffers(lent)?;
            self.encrypt_queued(lent)?;
            DocumentStream::stash_unsent(&mut self.shared.unsent, &lent.encrypted, &mut lent.pool);
            lent.encrypted.clear();
            self.stash_and_release(lent);
        }
        Ok(())
    }

    pub(crate) fn poll_shutdown(
        &mut self,
        cx: &mut Context<'_>,
        lent: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        if !self.shared.is_write_closed() {
            self.acquire_buffers(lent)?;
            self.shared.queue_closing_frame(lent)?;
            self.encrypt_queued(lent)?;
            self.shared.set_write_closed();
            // A connection that failed has sent its alert; no close_notify follows.
            if self.session.is_secure() {
                let _ = self.drive(DriveGoal::CloseNotify, lent);
            }
            self.release_buffers(lent)?;
        }
        let Scratch { pool, .. } = &mut *lent;
        ready!(poll_drain(&mut self.io, cx, &mut self.shared.unsent, &mut Vec::new(), pool))?;
        self.io.poll_shutdown(cx).map_err(NetError::from)
    }
}
