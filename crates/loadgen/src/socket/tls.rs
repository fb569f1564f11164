//! TLS over a non-blocking socket: the handshake, and all of TLS 1.2, with rustls's *unbuffered* connection; TLS 1.3
//! records are handled by `tls_records` after the handshake.
//!
//! rustls implements RFC 8446 and RFC 5246; this file manages the buffers. rustls's buffered connection would keep
//! 8 kB.
//!
//! Not implemented: early data, and sending before the handshake is complete.
//!
//! # Pitfalls
//!
//! 1. rustls remembers positions in the incoming records while a handshake message is incomplete. Records that it has
//!    not discarded must be passed to it again unchanged, from the same first byte, in every call.
//! 2. It returns everything to be sent before it processes input, and all of it must be sent in that order.
//! 3. After an error only its alert may be requested, with empty input, and only while there is something to send:
//!    otherwise it looks for the input that it remembers and panics.
//! 4. TLS 1.3 is taken over at the only moment at which rustls has sent its Finished and has not processed another
//!    record: both counters are then 0.

use std::io;
use std::os::fd::BorrowedFd;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};
use rustls::{HandshakeKind, ProtocolVersion};
use tls_records::{CapturedSecrets, RecordError, RecordLayer, SealedBuffer};

use super::client::SharedTlsClient;
use super::scratch::{WireBytes, WorkerBuffers};
use super::{NegotiatedTls, ReadEnd, ReadOutcome, WriteOutcome, end_point, receive, send};

/// Largest plaintext of a record (RFC 8446, section 5.1).
const FRAGMENT_BYTES: usize = 16_384;
/// Maximum ciphertext that waits for the kernel. Data adds at most one record; more means that a peer requests key
/// updates endlessly (RFC 8446, section 4.6.3) and reads nothing.
const UNSENT_BYTES: usize = 65_536;

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TlsStage {
    /// Handshake or open.
    Going,
    /// The peer sent close_notify.
    Closed,
    /// Failed; nothing is decrypted or encrypted any more.
    Broken,
}

/// Data to be written once rustls is ready.
enum PendingTlsWrite<'a> {
    /// At most [`FRAGMENT_BYTES`].
    Data(&'a [u8]),
    CloseNotify,
}

/// Implementation of the record layer.
enum TlsLayer {
    /// rustls: the handshake, and TLS 1.2.
    Rustls(Box<UnbufferedClientConnection>),
    /// TLS 1.3 after the handshake. Not boxed: it is the bulk of an established connection.
    Own(RecordLayer),
    /// During the switch, and after it failed.
    Gone,
}

/// State of a TLS connection.
pub(super) struct TlsConnection {
    layer: TlsLayer,
    /// Incomplete records.
    unprocessed: Vec<u8>,
    /// Records that the kernel did not accept.
    unsent: Vec<u8>,
    /// `None` until the handshake is complete.
    negotiated: Option<NegotiatedTls>,
    exporter: Option<[u8; 32]>,
    end_point: Option<Box<[u8]>>,
    stage: TlsStage,
    /// close_notify was sent.
    close_notify_sent: bool,
    /// Tickets are wanted.
    resumption: bool,
}

impl std::fmt::Debug for TlsConnection {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // rustls's state has no Debug, and contains secrets.
        to.debug_struct("Tls").field("stage", &self.stage).field("held", &self.held()).finish_non_exhaustive()
    }
}

/// Result of processing records with rustls.
#[derive(Default)]
struct ProcessedRecords {
    bytes: usize,
    /// Bytes of processed records.
    consumed: usize,
}

impl TlsConnection {
    pub(super) fn new(
        client: &SharedTlsClient,
        name: &str,
        alpn: Option<&[u8]>,
    ) -> io::Result<TlsConnection> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "the domain is not a valid TLS server name")
        })?;
        let config = client.config();
        let connection = match alpn {
            Some(protocol) => {
                UnbufferedClientConnection::new_with_alpn(config, name, vec![protocol.to_vec()])
            }
            None => UnbufferedClientConnection::new(config, name),
        };
        Ok(TlsConnection {
            layer: TlsLayer::Rustls(Box::new(connection.map_err(failure)?)),
            unprocessed: Vec::new(),
            unsent: Vec::new(),
            negotiated: None,
            exporter: None,
            end_point: None,
            stage: TlsStage::Going,
            close_notify_sent: false,
            resumption: client.resumes(),
        })
    }

    /// Sends the first message of the handshake.
    pub(super) fn begin(
        &mut self,
        descriptor: BorrowedFd<'_>,
        scratch: &mut WorkerBuffers,
    ) -> io::Result<WriteOutcome> {
        let WorkerBuffers { sealed, wire, .. } = scratch;
        sealed.clear();
        let mut found = ProcessedRecords::default();
        let result = self.advance(&mut [], sealed, &mut found, &mut |_| {});
        self.settle(result, descriptor, sealed, wire)?;
        Ok(WriteOutcome { taken: 0, blocked: !self.unsent.is_empty() })
    }

    pub(super) fn read(
        &mut self,
        descriptor: BorrowedFd<'_>,
        scratch: &mut WorkerBuffers,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<ReadOutcome> {
        self.check()?;
        let WorkerBuffers { input, sealed, wire } = scratch;
        sealed.clear();
        let start = self.unprocessed.len();
        let room = input.get_mut(start..start + WorkerBuffers::READ_BYTES).unwrap_or_default();
        let mut outcome = ReadOutcome {
            bytes: 0,
            end: ReadEnd::Blocked,
            established: false,
            blocked: !self.unsent.is_empty(),
        };
        let count = match receive(descriptor, room)? {
            None => return Ok(outcome),
            Some(0) => {
                outcome.end = if self.stage == TlsStage::Closed { ReadEnd::Closed } else { ReadEnd::Cut };
                return Ok(outcome);
            }
            Some(count) => count,
        };
        wire.received += count as u64;
        if self.stage == TlsStage::Closed {
            // Data after close_notify is ignored (RFC 8446, section 6.1).
            outcome.end = ReadEnd::Closed;
            return Ok(outcome);
        }
        let handshaking = self.negotiated.is_none();
        let records = input.get_mut(..start + count).unwrap_or_default();
        if let Some(front) = records.get_mut(..start) {
            front.copy_from_slice(&self.unprocessed);
        }
        let mut found = ProcessedRecords::default();
        let result = self.advance(records, sealed, &mut found, sink);
        let rest = records.get(found.consumed..).unwrap_or_default();
        self.settle(result, descriptor, sealed, wire)?;
        self.keep(rest)?;
        outcome.bytes = found.bytes;
        outcome.established = handshaking && self.negotiated.is_some();
        outcome.blocked = !self.unsent.is_empty();
        outcome.end = match self.stage {
            TlsStage::Closed => ReadEnd::Closed,
            _ if count == WorkerBuffers::READ_BYTES => ReadEnd::More,
            _ => ReadEnd::Blocked,
        };
        Ok(outcome)
    }

    pub(super) fn write(
        &mut self,
        descriptor: BorrowedFd<'_>,
        data: &[u8],
        scratch: &mut WorkerBuffers,
    ) -> io::Result<WriteOutcome> {
        self.check()?;
        let WorkerBuffers { sealed, wire, .. } = scratch;
        sealed.clear();
        if !self.emit(descriptor, sealed, wire)? {
            return Ok(WriteOutcome { taken: 0, blocked: true });
        }
        if !data.is_empty() && (self.negotiated.is_none() || self.close_notify_sent) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let mut taken = 0;
        for fragment in data.chunks(FRAGMENT_BYTES) {
            self.seal(&PendingTlsWrite::Data(fragment), descriptor, sealed, wire)?;
            taken += fragment.len();
            if !self.unsent.is_empty() {
                return Ok(WriteOutcome { taken, blocked: true });
            }
        }
        Ok(WriteOutcome { taken, blocked: false })
    }

    pub(super) fn close_notify(
        &mut self,
        descriptor: BorrowedFd<'_>,
        scratch: &mut WorkerBuffers,
    ) -> io::Result<WriteOutcome> {
        self.check()?;
        let WorkerBuffers { sealed, wire, .. } = scratch;
        sealed.clear();
        if self.negotiated.is_some() && !self.close_notify_sent {
            self.close_notify_sent = true;
            self.seal(&PendingTlsWrite::CloseNotify, descriptor, sealed, wire)?;
        }
        Ok(WriteOutcome { taken: 0, blocked: !self.emit(descriptor, sealed, wire)? })
    }

    pub(super) fn is_secure(&self) -> bool {
        self.negotiated.is_some() && self.stage != TlsStage::Broken
    }

    pub(super) fn negotiated_tls(&self) -> Option<NegotiatedTls> {
        self.negotiated.filter(|_| self.is_secure())
    }

    pub(super) fn exporter(&self) -> Option<[u8; 32]> {
        self.exporter.filter(|_| self.is_secure())
    }

    pub(super) fn server_end_point(&self) -> Option<Vec<u8>> {
        self.end_point.as_deref().filter(|_| self.is_secure()).map(<[u8]>::to_vec)
    }

    pub(super) fn held(&self) -> usize {
        let begun = if let TlsLayer::Own(records) = &self.layer { records.allocated_bytes() } else { 0 };
        self.unprocessed.capacity() + self.unsent.capacity() + begun
    }

    fn check(&self) -> io::Result<()> {
        if self.stage == TlsStage::Broken { Err(io::ErrorKind::NotConnected.into()) } else { Ok(()) }
    }

    /// Processes all complete records. Data to be sent is then in `sealed`.
    fn advance(
        &mut self,
        records: &mut [u8],
        sealed: &mut SealedBuffer,
        found: &mut ProcessedRecords,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        self.advance_rustls(records, sealed, found, sink)?;
        if let TlsLayer::Own(layer) = &mut self.layer {
            let rest = records.get_mut(found.consumed..).unwrap_or_default();
            let opened = layer.open(rest, sealed, sink).map_err(|fault: RecordError| failure(fault.error))?;
            found.consumed += opened.consumed;
            found.bytes += opened.bytes;
            if opened.closed {
                self.stage = TlsStage::Closed;
            }
        }
        Ok(())
    }

    /// Runs rustls until it needs more records, or has finished its part.
    fn advance_rustls(
        &mut self,
        records: &mut [u8],
        sealed: &mut SealedBuffer,
        found: &mut ProcessedRecords,
        sink: &mut dyn FnMut(&[u8]),
    ) -> io::Result<()> {
        let mut captured = CapturedSecrets::default();
        while let TlsLayer::Rustls(connection) = &mut self.layer {
            let rest = records.get_mut(found.consumed..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state } = connection.process_tls_records(rest);
            // Taken also on failure, so that no other connection gets them.
            captured.add(tls_records::take_secrets());
            let mut waits = false;
            match state.map_err(failure)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(failure)?;
                        discard += record.discard;
                        found.bytes += record.payload.len();
                        sink(record.payload);
                    }
                }
                ConnectionState::EncodeTlsData(data) => encode(data, sealed)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.stage = TlsStage::Closed,
                ConnectionState::BlockedHandshake
                | ConnectionState::WriteTraffic(_)
                | ConnectionState::Closed => waits = true,
                // Early data is for servers; states of a later rustls are not expected.
                _ => return Err(io::ErrorKind::Unsupported.into()),
            }
            found.consumed += discard;
            if self.negotiated.is_none() && !connection.is_handshaking() && !connection.wants_write() {
                self.establish(captured)?;
            }
            if waits {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Stores the handshake's results, and releases rustls if it was TLS 1.3.
    fn establish(&mut self, captured: CapturedSecrets) -> io::Result<()> {
        let TlsLayer::Rustls(connection) = std::mem::replace(&mut self.layer, TlsLayer::Gone) else {
            return Ok(());
        };
        let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
        let version = connection.protocol_version();
        let certificate = connection.peer_certificates().and_then(<[_]>::first);
        self.end_point =
            certificate.and_then(|der| end_point::server_end_point(der)).map(Vec::into_boxed_slice);
        self.exporter = captured.exporter;
        self.negotiated = Some(NegotiatedTls {
            version: match version {
                Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
                Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
                _ => "unknown",
            },
            cipher: suite.and_then(|suite| suite.as_str()).unwrap_or("unknown"),
            resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        });
        self.layer = match (captured.client, captured.server, suite) {
            (Some(ours), Some(theirs), Some(suite)) if RecordLayer::supports(suite) => {
                let tickets = if self.resumption {
                    let (_, rest) = connection.dangerous_into_kernel_connection().map_err(failure)?;
                    Some(Box::new(rest))
                } else {
                    None
                };
                RecordLayer::new(suite, ours, theirs, tickets).map_or(TlsLayer::Gone, TlsLayer::Own)
            }
            _ => TlsLayer::Rustls(connection),
        };
        Ok(())
    }

    /// Sends what rustls left in `sealed`, and its alert after a failure.
    fn settle(
        &mut self,
        result: io::Result<()>,
        descriptor: BorrowedFd<'_>,
        sealed: &mut SealedBuffer,
        wire: &mut WireBytes,
    ) -> io::Result<()> {
        if result.is_err() {
            self.stage = TlsStage::Broken;
            self.unprocessed = Vec::new();
            if let TlsLayer::Rustls(connection) = &mut self.layer {
                while connection.wants_write() {
                    let Ok(ConnectionState::EncodeTlsData(data)) =
                        connection.process_tls_records(&mut []).state
                    else {
                        break;
                    };
                    if encode(data, sealed).is_err() {
                        break;
                    }
                }
            }
            // The failure is reported; whether the alert was sent is irrelevant.
            let _ = self.emit(descriptor, sealed, wire);
            return result;
        }
        self.emit(descriptor, sealed, wire).map(drop)
    }

    /// Stores incomplete records for the next read.
    fn keep(&mut self, rest: &[u8]) -> io::Result<()> {
        if rest.is_empty() || self.stage == TlsStage::Closed {
            self.unprocessed = Vec::new();
            return Ok(());
        }
        if rest.len() > WorkerBuffers::KEPT_BYTES {
            self.stage = TlsStage::Broken;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "TLS message too long"));
        }
        self.unprocessed.clear();
        self.unprocessed.extend_from_slice(rest);
        Ok(())
    }

    /// Performs the write and sends the records; what the kernel does not accept goes to `unsent`.
    fn seal(
        &mut self,
        job: &PendingTlsWrite<'_>,
        descriptor: BorrowedFd<'_>,
        sealed: &mut SealedBuffer,
        wire: &mut WireBytes,
    ) -> io::Result<()> {
        let result = match &mut self.layer {
            TlsLayer::Own(records) => {
                let sealed = match job {
                    PendingTlsWrite::Data(data) => records.seal_data(data, sealed),
                    PendingTlsWrite::CloseNotify => records.seal_close_notify(sealed),
                };
                if sealed { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
            }
            _ => self.seal_rustls(job, sealed),
        };
        self.settle(result, descriptor, sealed, wire)
    }

    fn seal_rustls(&mut self, job: &PendingTlsWrite<'_>, sealed: &mut SealedBuffer) -> io::Result<()> {
        while let TlsLayer::Rustls(connection) = &mut self.layer {
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut self.unprocessed);
            let mut done = false;
            match state.map_err(failure)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    done = true;
                    let written = match job {
                        PendingTlsWrite::Data(data) => {
                            sealed.append(|into| traffic.encrypt(data, into).map_err(|error| room(&error)))
                        }
                        PendingTlsWrite::CloseNotify => sealed
                            .append(|into| traffic.queue_close_notify(into).map_err(|error| room(&error))),
                    };
                    if !written {
                        break;
                    }
                }
                ConnectionState::EncodeTlsData(data) => encode(data, sealed)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => self.stage = TlsStage::Closed,
                // Reading leaves no complete record, so no other state can occur.
                _ => break,
            }
            self.unprocessed.drain(..discard.min(self.unprocessed.len()));
            if done {
                return Ok(());
            }
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    /// Sends `unsent` and then `sealed`; true if everything was sent.
    fn emit(
        &mut self,
        descriptor: BorrowedFd<'_>,
        sealed: &mut SealedBuffer,
        wire: &mut WireBytes,
    ) -> io::Result<bool> {
        if !self.unsent.is_empty() {
            let count = send(descriptor, &self.unsent, wire)?;
            self.unsent.drain(..count);
            if self.unsent.is_empty() {
                self.unsent = Vec::new();
            }
        }
        let mut fresh = sealed.bytes();
        if self.unsent.is_empty() && !fresh.is_empty() {
            let count = send(descriptor, fresh, wire)?;
            fresh = fresh.get(count..).unwrap_or_default();
        }
        if self.unsent.len() + fresh.len() > UNSENT_BYTES {
            self.stage = TlsStage::Broken;
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the peer sends requests without reading responses",
            ));
        }
        self.unsent.extend_from_slice(fresh);
        sealed.clear();
        Ok(self.unsent.is_empty())
    }
}

fn failure(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn encode(mut data: EncodeTlsData<'_, ClientConnectionData>, sealed: &mut SealedBuffer) -> io::Result<()> {
    let written = sealed.append(|into| {
        data.encode(into).map_err(|error| match error {
            EncodeError::InsufficientSize(size) => Some(size.required_size),
            EncodeError::AlreadyEncoded => None,
        })
    });
    if written { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Required size, if the error was a small buffer.
fn room(error: &EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(size) => Some(size.required_size),
        EncryptError::EncryptExhausted => None,
    }
}
