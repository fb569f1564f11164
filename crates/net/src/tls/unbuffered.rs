//! Driver of rustls's *unbuffered* connection: records in, records out, all in the lent buffers.
//!
//! The buffered connection of rustls needs about 4 kB more per idle session. The unbuffered API is less used and may
//! change, so nothing else in the crate touches it.
//!
//! # Pitfalls
//!
//! While a handshake message is incomplete, rustls remembers positions inside the record buffer. So unfinished records
//! are stashed and loaded unchanged, and every call gets all of them, even calls that only encrypt. With other bytes it
//! panics.
//!
//! Encoded records must be sent in order: everything goes through `Scratch::encrypted`. rustls allocates each record,
//! decrypted or encrypted: one allocation and one copy per record, not per element.

use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{ProtocolVersion, ServerConfig, SupportedCipherSuite};

use crate::error::NetError;
use crate::scratch::Scratch;
use crate::tls::ClientCertificate;
use crate::tls::certificate::ServerCertificate;
use crate::tls::handshake_capture::{self, HandshakeCapture};

/// Maximum plaintext of a record (RFC 8446, section 5.1).
const MAX_FRAGMENT_BYTES: usize = 16_384;
/// Upper bound of what any cipher suite adds to a record.
const MAX_OVERHEAD_BYTES: usize = 128;

/// Channel binding data of a stream (RFC 5056).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelBinding<'a> {
    /// `tls-exporter` (RFC 9266); TLS 1.3 only.
    pub exporter: Option<&'a [u8; 32]>,
    /// `tls-server-end-point` (RFC 5929, section 4).
    pub server_end_point: Option<&'a [u8]>,
}

/// Negotiated TLS parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsInfo<'a> {
    /// `TLSv1.2` or `TLSv1.3`.
    pub version: &'static str,
    /// Registered name of the cipher suite.
    pub cipher_suite: &'static str,
    /// Server name requested by the client (SNI).
    pub server_name: Option<&'a str>,
    /// Negotiated protocol (ALPN), such as `h2`; `None` if the client offered none.
    pub alpn_protocol: Option<&'a [u8]>,
}

/// Goal of driving the connection once rustls is ready to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriveGoal {
    /// Decrypt until there is plaintext.
    Read,
    /// Encrypt the output.
    Encrypt,
    /// Send close_notify.
    CloseNotify,
}

/// Result of driving the TLS connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DriveOutcome {
    /// Decrypted bytes were appended to the input.
    pub(crate) plaintext: bool,
    /// The peer sent close_notify.
    pub(crate) closed: bool,
}

/// A TLS session with the data of its handshake.
pub(crate) struct TlsSession {
    connection: UnbufferedServerConnection,
    /// Keeps an old generation of files alive until its last connection ends.
    certificate: Option<Arc<ServerCertificate>>,
    exporter: Option<[u8; 32]>,
    client_certificate: Option<Box<ClientCertificate>>,
    /// Domain whose certificate is used if the client sends no name. Dropped after the handshake.
    default_domain: Option<Box<str>>,
    server_name: Option<Box<str>>,
    secure: bool,
    /// rustls reported an error. Its view of the record buffer is undefined then, so it is not called again.
    broken: bool,
}

impl TlsSession {
    pub(crate) fn new(config: Arc<ServerConfig>, domain: Option<&str>) -> Result<TlsSession, NetError> {
        Ok(TlsSession {
            connection: UnbufferedServerConnection::new(config)?,
            certificate: None,
            exporter: None,
            client_certificate: None,
            default_domain: domain.map(Box::from),
            server_name: None,
            secure: false,
            broken: false,
        })
    }

    /// True once the handshake is complete.
    pub(crate) fn is_secure(&self) -> bool {
        self.secure
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

    /// Only after the handshake: before it the client has not proved possession of the key.
    pub(crate) fn client_certificate(&self) -> Option<&ClientCertificate> {
        self.client_certificate.as_deref().filter(|_| self.secure)
    }

    pub(crate) fn tls_info(&self) -> Option<TlsInfo<'_>> {
        Some(TlsInfo {
            version: match self.connection.protocol_version()? {
                ProtocolVersion::TLSv1_3 => "TLSv1.3",
                ProtocolVersion::TLSv1_2 => "TLSv1.2",
                _ => "unknown",
            },
            cipher_suite: self.connection.negotiated_cipher_suite()?.suite().as_str().unwrap_or("unknown"),
            server_name: self.server_name.as_deref(),
            alpn_protocol: self.connection.alpn_protocol(),
        })
    }

    /// Lets rustls process the buffered records until the goal is reached.
    pub(crate) fn drive(&mut self, goal: DriveGoal, scratch: &mut Scratch) -> Result<DriveOutcome, NetError> {
        if self.broken {
            return Err(NetError::Closed);
        }
        let outcome = self.drive_unless_broken(goal, scratch);
        self.broken = outcome.is_err();
        outcome
    }

    fn drive_unless_broken(
        &mut self,
        goal: DriveGoal,
        scratch: &mut Scratch,
    ) -> Result<DriveOutcome, NetError> {
        let mut outcome = DriveOutcome::default();
        loop {
            let Scratch { records, input, output, encrypted, pool, .. } = &mut *scratch;
            let handshaking = !self.secure;
            let mut captured = None;
            let UnbufferedStatus { mut discard, state } = if handshaking {
                let (status, capture) = handshake_capture::capture(self.default_domain.take(), || {
                    self.connection.process_tls_records(records.data_mut())
                });
                captured = Some(capture);
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
                    outcome.plaintext = true;
                    done = goal == DriveGoal::Read;
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(encrypted, MAX_OVERHEAD_BYTES, |into| encoded(data.encode(into)))?;
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                    match goal {
                        DriveGoal::Read => {}
                        DriveGoal::Encrypt => {
                            for fragment in output.chunks(MAX_FRAGMENT_BYTES) {
                                encrypt(&mut traffic, fragment, encrypted)?;
                            }
                        }
                        DriveGoal::CloseNotify => append(encrypted, MAX_OVERHEAD_BYTES, |into| {
                            traffic.queue_close_notify(into).map_err(|error| required_size(&error))
                        })?,
                    }
                    done = true;
                }
                Ok(ConnectionState::PeerClosed) => outcome.closed = true,
                Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => done = true,
                // Early data is not configured; states that rustls may add later are not expected.
                Ok(_) => return Err(NetError::Closed),
                Err(error) => return Err(error.into()),
            }
            records.consume(discard);
            if let Some(captured) = captured {
                self.apply_capture(captured);
            }
            if done {
                return Ok(outcome);
            }
        }
    }

    /// Stores the data captured in one handshake step.
    fn apply_capture(&mut self, captured: HandshakeCapture) {
        self.default_domain = captured.domain;
        if captured.certificate.is_some() {
            self.certificate = captured.certificate;
            self.server_name = captured.server_name;
        }
        if captured.client.is_some() {
            self.client_certificate = captured.client;
        }
        if let (Some(secret), Some(SupportedCipherSuite::Tls13(suite))) =
            (captured.exporter_secret, self.connection.negotiated_cipher_suite())
        {
            self.exporter = handshake_capture::exporter(suite, &secret);
        }
        if !self.connection.is_handshaking() {
            self.secure = true;
            self.default_domain = None;
        }
    }

    /// After an error rustls may have an alert to send. It returns pending output before it reads input, so the records
    /// are not passed again: with the wrong ones it would panic.
    pub(crate) fn encode_alert(&mut self, scratch: &mut Scratch) {
        while self.connection.wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) =
                self.connection.process_tls_records(&mut []).state
            else {
                return;
            };
            if append(&mut scratch.encrypted, MAX_OVERHEAD_BYTES, |into| encoded(data.encode(into))).is_err()
            {
                return;
            }
        }
    }
}

/// The required size, if the buffer was too small.
fn encoded(result: Result<usize, EncodeError>) -> Result<usize, Option<usize>> {
    result.map_err(|error| match error {
        EncodeError::InsufficientSize(need) => Some(need.required_size),
        EncodeError::AlreadyEncoded => None,
    })
}

fn required_size(error: &EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(need) => Some(need.required_size),
        EncryptError::EncryptExhausted => None,
    }
}

fn encrypt<D>(
    traffic: &mut WriteTraffic<'_, D>,
    fragment: &[u8],
    encrypted: &mut Vec<u8>,
) -> Result<(), NetError> {
    let size = fragment.len() + MAX_OVERHEAD_BYTES;
    append(encrypted, size, |into| traffic.encrypt(fragment, into).map_err(|error| required_size(&error)))
}

/// Appends the output of `encode`. It gets `size` bytes, or the size that it requires.
fn append(
    encrypted: &mut Vec<u8>,
    size: usize,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), NetError> {
    let start = encrypted.len();
    let mut size = size;
    for _ in 0..2 {
        encrypted.resize(start + size, 0);
        match encode(encrypted.get_mut(start..).unwrap_or_default()) {
            Ok(count) => {
                encrypted.truncate(start + count);
                return Ok(());
            }
            Err(Some(required)) => size = required,
            Err(None) => break,
        }
    }
    encrypted.truncate(start);
    Err(NetError::Closed)
}
