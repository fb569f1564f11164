//! An XMPP stream over TLS 1.2 or 1.3, from the first byte (XEP-0368) or after STARTTLS (RFC 6120 §5).
//!
//! rustls's *unbuffered* connection is driven here: records are read into and written from the worker's buffers, so an
//! idle connection owns keys and state, about 3 kB, instead of 7 kB. The handshake runs inside `poll_event`.
//!
//! Left out: resumption and early data (see `tls/config.rs`), kernel TLS.
//! Trap 1: rustls remembers positions inside the record buffer while a handshake message is incomplete, so unfinished
//! records are stashed and loaded unchanged, and every call gets all of them, also the calls that only encrypt. With
//! other bytes it panics.
//! Trap 2: whatever rustls encoded must reach the wire before anything it encodes later: everything goes through
//! `sealed`, and what waits in `unsent` goes first.
//! Trap 3: rustls allocates each decrypted record (one allocation and one copy per record, not per element).

use crate::error::NetError;
use crate::facts::{Facts, Transport};
use crate::pool::Block;
use crate::scratch::{READ_BYTES, Scratch};
use crate::stream::shared::{Found, Shared, poll_drain};
use crate::stream::wire::{AnyWire, Wire};
use crate::tls::ClientCertificate;
use crate::tls::certificate::Certificate;
use crate::tls::told::{self, Told};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{ProtocolVersion, ServerConfig, SupportedCipherSuite};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// Largest plaintext of a record (RFC 8446 §5.1).
const FRAGMENT_BYTES: usize = 16_384;
/// More than any cipher suite adds to a record.
const OVERHEAD_BYTES: usize = 128;

/// A peer behind TLS.
pub struct Tls {
    wire: AnyWire,
    pub(crate) shared: Shared,
    connection: UnbufferedServerConnection,
    /// Records that have no end yet.
    records: Option<Box<Block>>,
    /// What the handshake showed. The certificate keeps an old generation alive until its last connection ends.
    certificate: Option<Arc<Certificate>>,
    exporter: Option<[u8; 32]>,
    client: Option<Box<ClientCertificate>>,
    domain: Option<Box<str>>,
    server_name: Option<Box<str>>,
    secure: bool,
    /// rustls reported an error. Its idea of the record buffer is undefined then, so it is not called again.
    broken: bool,
}

/// Channel binding data of a stream (RFC 5056).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelBinding<'a> {
    /// `tls-exporter` (RFC 9266); TLS 1.3 only.
    pub exporter: Option<&'a [u8; 32]>,
    /// `tls-server-end-point` (RFC 5929 §4).
    pub server_end_point: Option<&'a [u8]>,
}

/// What was negotiated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsFacts<'a> {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// The cipher suite's registered name.
    pub cipher_suite: &'static str,
    /// The name that the client asked for (SNI).
    pub server_name: Option<&'a str>,
}

/// What to do once rustls is ready to write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Job {
    /// Nothing: decrypt until there is plaintext.
    Read,
    /// Encrypt the output.
    Seal,
    /// Say close_notify.
    Farewell,
}

impl Tls {
    pub(crate) fn new(
        config: Arc<ServerConfig>,
        domain: Option<&str>,
        wire: AnyWire,
        shared: Shared,
    ) -> Result<Tls, NetError> {
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Tls {
            wire,
            shared,
            connection,
            records: None,
            certificate: None,
            exporter: None,
            client: None,
            domain: domain.map(Box::from),
            server_name: None,
            secure: false,
            broken: false,
        })
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        self.shared.facts(Transport::Tls, self.secure)
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.records.is_none() && self.shared.is_idle()
    }

    pub(crate) fn channel_binding(&self) -> ChannelBinding<'_> {
        if !self.secure {
            return ChannelBinding::default();
        }
        ChannelBinding {
            exporter: self.exporter.as_ref(),
            server_end_point: self
                .certificate
                .as_ref()
                .and_then(|certificate| certificate.end_point.as_deref()),
        }
    }

    /// Only after the handshake: before it the client has not proved that it has the key.
    pub(crate) fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.client.as_deref().filter(|_| self.secure)
    }

    pub(crate) fn tls_facts(&self) -> Option<TlsFacts<'_>> {
        Some(TlsFacts {
            version: match self.connection.protocol_version()? {
                ProtocolVersion::TLSv1_3 => "TLSv1.3",
                ProtocolVersion::TLSv1_2 => "TLSv1.2",
                _ => "unknown",
            },
            cipher_suite: self.connection.negotiated_cipher_suite()?.suite().as_str().unwrap_or("unknown"),
            server_name: self.server_name.as_deref(),
        })
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
            let decrypted = if lent.records.is_empty() { Ok(false) } else { self.turn(Job::Read, lent) };
            if decrypted.is_err() {
                self.encode_alert(lent);
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
                Ok(true) => continue,
                Ok(false) if self.shared.is_ended() => continue,
                Ok(false) => {}
            }
            let Scratch { records, pool, .. } = &mut *lent;
            let room = records.room(READ_BYTES, pool);
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

    /// Lets rustls work on the buffered records until the job is done. True when plaintext was added to the input.
    fn turn(&mut self, job: Job, lent: &mut Scratch) -> Result<bool, NetError> {
        if self.broken {
            return Err(NetError::Closed);
        }
        let turned = self.turn_unless_broken(job, lent);
        self.broken = turned.is_err();
        turned
    }

    fn turn_unless_broken(&mut self, job: Job, lent: &mut Scratch) -> Result<bool, NetError> {
        let mut plaintext = false;
        loop {
            let Scratch { records, input, output, sealed, pool, .. } = &mut *lent;
            let handshaking = !self.secure;
            let mut told = None;
            let UnbufferedStatus { mut discard, state } = if handshaking {
                let (status, heard) = told::listen(self.domain.take(), || {
                    self.connection.process_tls_records(records.data_mut())
                });
                told = Some(heard);
                status
            } else {
                self.connection.process_tls_records(records.data_mut())
            };
            let mut done = false;
            match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        input.append(record.payload, pool);
                        discard += record.discard;
                    }
                    plaintext = true;
                    done = job == Job::Read;
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(sealed, OVERHEAD_BYTES, |into| encoded(data.encode(into)))?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    match job {
                        Job::Read => {}
                        Job::Seal => {
                            for fragment in output.chunks(FRAGMENT_BYTES) {
                                encrypt(&mut traffic, fragment, sealed)?;
                            }
                        }
                        Job::Farewell => append(sealed, OVERHEAD_BYTES, |into| {
                            traffic.queue_close_notify(into).map_err(|error| required(&error))
                        })?,
                    }
                    done = true;
                }
                Ok(ConnectionState::PeerClosed) => self.shared.ended(),
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => done = true,
                // Early data is not configured; what rustls may add later is not asked for.
                Ok(_) => return Err(NetError::Closed),
                Err(error) => return Err(error.into()),
            }
            records.consume(discard);
            if let Some(told) = told {
                self.note(told);
            }
            if done {
                return Ok(plaintext);
            }
        }
    }

    /// Keeps what one step of the handshake told.
    fn note(&mut self, told: Told) {
        self.domain = told.domain;
        if told.certificate.is_some() {
            self.certificate = told.certificate;
            self.server_name = told.server_name;
        }
        if told.client.is_some() {
            self.client = told.client;
        }
        if let (Some(secret), Some(SupportedCipherSuite::Tls13(suite))) =
            (told.exporter_secret, self.connection.negotiated_cipher_suite())
        {
            self.exporter = told::exporter(suite, &secret);
        }
        if !self.connection.is_handshaking() {
            self.secure = true;
            self.domain = None;
        }
    }

    /// After an error rustls may have an alert to send. It hands out what it wants to send before it looks at input,
    /// so the records are not shown to it again: with the wrong ones it would panic.
    fn encode_alert(&mut self, lent: &mut Scratch) {
        while self.connection.wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) =
                self.connection.process_tls_records(&mut []).state
            else {
                return;
            };
            if append(&mut lent.sealed, OVERHEAD_BYTES, |into| encoded(data.encode(into))).is_err() {
                return;
            }
        }
    }

    pub(crate) fn queue(&mut self, bytes: &[u8], lent: &mut Scratch) {
        if self.hold(lent).is_ok() {
            self.shared.queue(bytes, lent);
        }
    }

    /// Moves the output into records. During the handshake nothing can be said, and nothing should have been queued.
    fn seal(&mut self, lent: &mut Scratch) -> Result<(), NetError> {
        if self.shared.has_queued() {
            self.hold(lent)?;
            let sealed = if self.secure { self.turn(Job::Seal, lent).map(drop) } else { Ok(()) };
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
            self.seal(lent)?;
            self.shared.shut();
            // A connection that failed has said its alert; it has no farewell.
            if self.secure {
                let _ = self.turn(Job::Farewell, lent);
            }
            self.park(lent)?;
        }
        let Scratch { pool, .. } = &mut *lent;
        ready!(poll_drain(&mut self.wire, cx, &mut self.shared.unsent, &mut Vec::new(), pool))?;
        self.wire.poll_shutdown(cx).map_err(NetError::from)
    }
}

/// The size that is needed, if that was the fault.
fn encoded(result: Result<usize, EncodeError>) -> Result<usize, Option<usize>> {
    result.map_err(|error| match error {
        EncodeError::InsufficientSize(need) => Some(need.required_size),
        EncodeError::AlreadyEncoded => None,
    })
}

fn required(error: &EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(need) => Some(need.required_size),
        EncryptError::EncryptExhausted => None,
    }
}

fn encrypt<D>(
    traffic: &mut WriteTraffic<'_, D>,
    fragment: &[u8],
    sealed: &mut Vec<u8>,
) -> Result<(), NetError> {
    let size = fragment.len() + OVERHEAD_BYTES;
    append(sealed, size, |into| traffic.encrypt(fragment, into).map_err(|error| required(&error)))
}

/// Appends what `encode` writes. It gets `size` bytes, or as many as it says it needs.
fn append(
    sealed: &mut Vec<u8>,
    size: usize,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), NetError> {
    let start = sealed.len();
    let mut size = size;
    for _ in 0..2 {
        sealed.resize(start + size, 0);
        match encode(sealed.get_mut(start..).unwrap_or_default()) {
            Ok(count) => {
                sealed.truncate(start + count);
                return Ok(());
            }
            Err(Some(required)) => size = required,
            Err(None) => break,
        }
    }
    sealed.truncate(start);
    Err(NetError::Closed)
}
