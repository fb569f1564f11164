//! TLS 1.2 or 1.3 under an XMPP stream, from the first byte (XEP-0368) or after STARTTLS (RFC 6120, section 5).
//!
//! Records are read into and written from the worker's buffers, so an idle connection owns keys and state, about 3 kB,
//! instead of 7 kB. The handshake runs inside `poll_event`. rustls itself is driven in `tls/unbuffered.rs`.
//!
//! Not implemented: resumption and early data (see `tls/config.rs`), kernel TLS.
//!
//! # Pitfalls
//!
//! Stashed output is already encrypted and leaves first. Output queued during the handshake is dropped.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConfig;

use crate::buffer_pool::{BufferBlock, BufferPool};
use crate::connection_info::{ConnectionInfo, Transport};
use crate::error::NetError;
use crate::scratch::{READ_BUFFER_BYTES, Scratch};
use crate::stream::buffered::{
    BufferedStream, TransportLayer, poll_drain, poll_fill_from, poll_send_encoded,
};
use crate::stream::byte_stream::{AnyByteStream, ByteStream};
use crate::stream::document_stream::DocumentStream;
use crate::tls::unbuffered::{DriveGoal, DriveOutcome, TlsSession};

/// Maximum bytes of an unfinished handshake, which an unauthenticated client can occupy. Client certificates with their
/// chain fit.
const MAX_HANDSHAKE_BYTES: usize = 32_768;

/// TLS records over bytes.
pub struct TlsTransport {
    io: AnyByteStream,
    pub(crate) session: TlsSession,
    /// Incomplete records.
    unfinished_records: Option<Box<BufferBlock>>,
}

/// A stream over TLS.
pub(crate) type TlsStream = BufferedStream<TlsTransport>;

impl TlsStream {
    pub(crate) fn tls(
        config: Arc<ServerConfig>,
        domain: Option<&str>,
        wire: AnyByteStream,
        shared: DocumentStream,
    ) -> Result<TlsStream, NetError> {
        let session = TlsSession::new(config, domain)?;
        Ok(BufferedStream::new(TlsTransport { io: wire, session, unfinished_records: None }, shared))
    }

    pub(crate) fn info(&self) -> ConnectionInfo<'_> {
        self.shared.info(Transport::Tls, self.transport.session.is_secure())
    }
}

impl TlsTransport {
    fn drive(
        &mut self,
        goal: DriveGoal,
        shared: &mut DocumentStream,
        scratch: &mut Scratch,
    ) -> Result<DriveOutcome, NetError> {
        let outcome = self.session.drive(goal, scratch)?;
        if outcome.closed {
            shared.set_ended();
        }
        Ok(outcome)
    }
}

impl TransportLayer for TlsTransport {
    fn restore(&mut self, scratch: &mut Scratch) {
        if let Some(block) = self.unfinished_records.take() {
            scratch.records.restore_block(block, &mut scratch.pool);
        }
    }

    fn stash(&mut self, scratch: &mut Scratch) {
        self.unfinished_records = scratch.records.take_block(&mut scratch.pool);
    }

    fn is_idle(&self) -> bool {
        self.unfinished_records.is_none()
    }

    /// Decrypts the records at hand; reads if there is nothing in them.
    fn poll_fill(
        &mut self,
        shared: &mut DocumentStream,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        let decrypted = if scratch.records.is_empty() {
            Ok(DriveOutcome::default())
        } else {
            self.drive(DriveGoal::Read, shared, scratch)
        };
        if decrypted.is_err() {
            self.session.encode_alert(scratch);
        }
        if !scratch.encrypted.is_empty() || shared.unsent.is_some() {
            let Scratch { encrypted, pool, .. } = &mut *scratch;
            // Pending is fine: the response is stashed and this task is woken when it can be written.
            if let Poll::Ready(Err(error)) = poll_drain(&mut self.io, cx, &mut shared.unsent, encrypted, pool)
                && decrypted.is_ok()
            {
                return Poll::Ready(Err(error));
            }
        }
        let DriveOutcome { plaintext, closed } = decrypted?;
        if plaintext || closed {
            return Poll::Ready(Ok(()));
        }
        let limit = if self.session.is_secure() { READ_BUFFER_BYTES } else { MAX_HANDSHAKE_BYTES };
        poll_fill_from(&mut self.io, shared, cx, &mut scratch.records, limit, &mut scratch.pool)
    }

    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        self.io.poll_read(cx, into)
    }

    /// Encrypts queued output into records.
    fn encode(&mut self, shared: &mut DocumentStream, scratch: &mut Scratch) -> Result<(), NetError> {
        shared.encode(scratch)?;
        let encrypted = if self.session.is_secure() {
            self.drive(DriveGoal::Encrypt, shared, scratch).map(drop)
        } else {
            Ok(())
        };
        shared.discard_queued(scratch);
        encrypted
    }

    fn encoded(scratch: &mut Scratch) -> (&mut Vec<u8>, &mut BufferPool) {
        (&mut scratch.encrypted, &mut scratch.pool)
    }

    fn poll_send(
        &mut self,
        shared: &mut DocumentStream,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), NetError>> {
        poll_send_encoded::<Self>(&mut self.io, shared, cx, scratch)
    }

    fn finish(&mut self, shared: &mut DocumentStream, scratch: &mut Scratch) -> Result<(), NetError> {
        if shared.has_queued() {
            self.encode(shared, scratch)?;
        }
        // A connection that failed has sent its alert; no close_notify follows.
        if self.session.is_secure() {
            let _ = self.drive(DriveGoal::CloseNotify, shared, scratch);
        }
        DocumentStream::stash_unsent(&mut shared.unsent, &scratch.encrypted, &mut scratch.pool);
        scratch.encrypted.clear();
        Ok(())
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io.poll_shutdown(cx)
    }
}
