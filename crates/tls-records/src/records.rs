//! Record layer of TLS 1.3 after the handshake (RFC 8446, sections 4.6, 5 and 6), in half a kilobyte per connection.
//!
//! rustls performs the handshake; this module handles records afterwards. The state of rustls costs 4 kB per
//! connection: two expanded keys, the key schedule, the certificates, empty queues. This needs only two secrets, keys
//! and counters. Keys are expanded for each record: sealing or opening a stanza costs 1 µs, less than the system call
//! that reads it. Plaintext is decrypted in place, not into a separate vector.
//!
//! Not implemented: own key updates (after 24 million records, RFC 8446, section 5.5; no run sends that many on one
//! connection), post-handshake client authentication (refused as RFC 8446, section 4.6.2 requires), padding.
//!
//! # Pitfalls
//!
//! rustls is still needed for tickets, which arrive right after the handshake. Its remaining state is kept until the
//! first application data; later tickets are ignored, so a server that sends them that late is not resumed.

use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::{AlertDescription, CipherSuite, Error, InvalidMessage};

use crate::sealed_buffer::SealedBuffer;
use crate::secrets::TrafficSecret;

const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
/// RFC 8446, section 5.2.
const MAX_CIPHERTEXT: usize = 16_384 + 256;
/// RFC 8446, section 5.1, including the type.
const MAX_INNER_PLAINTEXT: usize = 16_384 + 1;
/// A ticket has at most 64 KiB.
const MAX_HANDSHAKE_BYTES: usize = 65_536 + 512;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// Content type of application data, and outer type of all records.
pub(crate) const APPLICATION_DATA: u8 = 23;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// Error that ended the connection, and the alert that reports it.
#[derive(Debug)]
pub struct RecordError {
    alert: Option<AlertDescription>,
    /// Error to report.
    pub error: Error,
}

impl RecordError {
    fn new(alert: AlertDescription, error: impl Into<Error>) -> RecordError {
        RecordError { alert: Some(alert), error: error.into() }
    }

    fn decode() -> RecordError {
        RecordError::new(AlertDescription::DecodeError, InvalidMessage::MessageTooShort)
    }

    fn unexpected() -> RecordError {
        let why = Error::General("unexpected TLS message".into());
        RecordError::new(AlertDescription::UnexpectedMessage, why)
    }
}

/// Result of opening records.
#[derive(Debug, Default)]
pub struct OpenedRecords {
    /// Bytes of complete records.
    pub consumed: usize,
    /// Bytes of application data.
    pub bytes: usize,
    /// close_notify was received.
    pub closed: bool,
}

/// Keys of one direction.
struct DirectionKeys {
    secret: TrafficSecret,
    key: [u8; 32],
    iv: [u8; 12],
    sequence: u64,
}

impl DirectionKeys {
    /// RFC 8446, section 7.3.
    fn new(secret: TrafficSecret, algorithm: &'static aead::Algorithm) -> Option<DirectionKeys> {
        let mut way = DirectionKeys { secret, key: [0; 32], iv: [0; 12], sequence: 0 };
        secret.expand(b"key", b"", way.key.get_mut(..algorithm.key_len())?)?;
        secret.expand(b"iv", b"", &mut way.iv)?;
        Some(way)
    }

    /// Keys after an update (RFC 8446, section 7.2).
    fn next(&self, algorithm: &'static aead::Algorithm) -> Option<DirectionKeys> {
        DirectionKeys::new(self.secret.next()?, algorithm)
    }

    fn key(&self, algorithm: &'static aead::Algorithm) -> Option<LessSafeKey> {
        let key = UnboundKey::new(algorithm, self.key.get(..algorithm.key_len())?).ok()?;
        Some(LessSafeKey::new(key))
    }

    /// Nonce of the next record (RFC 8446, section 5.3).
    fn nonce(&mut self) -> Option<Nonce> {
        let mut nonce = self.iv;
        for (to, from) in nonce.iter_mut().skip(4).zip(self.sequence.to_be_bytes()) {
            *to ^= from;
        }
        self.sequence = self.sequence.checked_add(1)?;
        Some(Nonce::assume_unique_for_key(nonce))
    }
}

/// State of a connection after its handshake.
pub struct RecordLayer {
    algorithm: &'static aead::Algorithm,
    ours: DirectionKeys,
    theirs: DirectionKeys,
    /// Start of an incomplete handshake message.
    incomplete_message: Vec<u8>,
    /// For tickets, until application data arrives.
    tickets: Option<Box<KernelConnection<ClientConnectionData>>>,
}

impl RecordLayer {
    /// `None` for an unsupported cipher suite.
    pub fn new(
        suite: CipherSuite,
        ours: TrafficSecret,
        theirs: TrafficSecret,
        tickets: Option<Box<KernelConnection<ClientConnectionData>>>,
    ) -> Option<RecordLayer> {
        let algorithm = RecordLayer::algorithm(suite)?;
        let (ours, theirs) = (DirectionKeys::new(ours, algorithm)?, DirectionKeys::new(theirs, algorithm)?);
        Some(RecordLayer { algorithm, ours, theirs, incomplete_message: Vec::new(), tickets })
    }

    /// Whether this is a supported cipher suite of TLS 1.3.
    pub fn supports(suite: CipherSuite) -> bool {
        RecordLayer::algorithm(suite).is_some()
    }

    fn algorithm(suite: CipherSuite) -> Option<&'static aead::Algorithm> {
        match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256 => Some(&aead::AES_128_GCM),
            CipherSuite::TLS13_AES_256_GCM_SHA384 => Some(&aead::AES_256_GCM),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => Some(&aead::CHACHA20_POLY1305),
            _ => None,
        }
    }

    /// Bytes allocated for an incomplete handshake message.
    pub fn allocated_bytes(&self) -> usize {
        self.incomplete_message.capacity()
    }

    /// Appends a record with application data, at most 16 KiB; false if it cannot be sealed.
    pub fn seal_data(&mut self, data: &[u8], sealed: &mut SealedBuffer) -> bool {
        self.seal(APPLICATION_DATA, data, sealed)
    }

    /// Appends a record of any content type; false if it cannot be sealed.
    pub(crate) fn seal(&mut self, kind: u8, data: &[u8], sealed: &mut SealedBuffer) -> bool {
        let inner = data.len() + 1;
        let Ok(length) = u16::try_from(inner + TAG_BYTES) else { return false };
        let [high, low] = length.to_be_bytes();
        let header = [APPLICATION_DATA, 3, 3, high, low];
        let (Some(key), Some(nonce)) = (self.ours.key(self.algorithm), self.ours.nonce()) else {
            return false;
        };
        let mut nonce = Some(nonce);
        let size = HEADER_BYTES + inner + TAG_BYTES;
        sealed.append(|into| {
            let into = into.get_mut(..size).ok_or(Some(size))?;
            let (head, rest) = into.split_at_mut_checked(HEADER_BYTES).ok_or(None)?;
            let (text, tag) = rest.split_at_mut_checked(inner).ok_or(None)?;
            let (end, plain) = text.split_last_mut().ok_or(None)?;
            head.copy_from_slice(&header);
            plain.copy_from_slice(data);
            *end = kind;
            let nonce = nonce.take().ok_or(None)?;
            let made = key.seal_in_place_separate_tag(nonce, Aad::from(header), text).map_err(|_| None)?;
            tag.copy_from_slice(made.as_ref());
            Ok(size)
        })
    }

    /// Appends close_notify; false if it cannot be sealed.
    pub fn seal_close_notify(&mut self, sealed: &mut SealedBuffer) -> bool {
        self.seal(ALERT, &[1, 0], sealed)
    }

    /// Opens all complete records, in place; responses and alerts are then in `sealed`. `sink` receives application
    /// data.
    ///
    /// # Errors
    /// The connection has failed; an alert for the peer is in `sealed`.
    pub fn open(
        &mut self,
        records: &mut [u8],
        sealed: &mut SealedBuffer,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<OpenedRecords, RecordError> {
        let result = self.open_all(records, sealed, sink);
        if let Err(RecordError { alert: Some(alert), .. }) = &result {
            self.seal(ALERT, &[2, u8::from(*alert)], sealed);
        }
        result
    }

    fn open_all(
        &mut self,
        records: &mut [u8],
        sealed: &mut SealedBuffer,
        sink: &mut dyn FnMut(&[u8]),
    ) -> Result<OpenedRecords, RecordError> {
        let mut opened = OpenedRecords::default();
        // Expanded once per call, unless the keys change.
        let mut key = None;
        while let Some(([kind, _, _, high, low], body)) =
            records.get_mut(opened.consumed..).and_then(<[u8]>::split_first_chunk_mut)
        {
            // All records are encrypted now and have the outer type of application data. The version must be ignored.
            if *kind != APPLICATION_DATA {
                return Err(RecordError::unexpected());
            }
            let header = [APPLICATION_DATA, 3, 3, *high, *low];
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MAX_CIPHERTEXT {
                let why = InvalidMessage::MessageTooLarge;
                return Err(RecordError::new(AlertDescription::RecordOverflow, why));
            }
            let Some(body) = body.get_mut(..length) else { break };
            opened.consumed += HEADER_BYTES + length;
            if key.is_none() {
                key = self.theirs.key(self.algorithm);
            }
            let nonce = self.theirs.nonce();
            let (Some(opener), Some(nonce)) = (&key, nonce) else {
                return Err(RecordError::new(AlertDescription::InternalError, Error::EncryptError));
            };
            let plain = opener
                .open_in_place(nonce, Aad::from(header), body)
                .map_err(|_| RecordError::new(AlertDescription::BadRecordMac, Error::DecryptError))?;
            if plain.len() > MAX_INNER_PLAINTEXT {
                let why = Error::PeerSentOversizedRecord;
                return Err(RecordError::new(AlertDescription::RecordOverflow, why));
            }
            // Zeros after the type are padding.
            let Some(end) = plain.iter().rposition(|&byte| byte != 0) else {
                return Err(RecordError::unexpected());
            };
            let (plain, kind) = (plain.get(..end).unwrap_or_default(), plain.get(end).copied());
            match kind {
                _ if !self.incomplete_message.is_empty() && kind != Some(HANDSHAKE) => {
                    return Err(RecordError::unexpected());
                }
                Some(APPLICATION_DATA) => {
                    self.tickets = None;
                    if !plain.is_empty() {
                        opened.bytes += plain.len();
                        sink(plain);
                    }
                }
                Some(ALERT) => {
                    opened.closed = alert(plain)?;
                    if opened.closed {
                        break;
                    }
                }
                Some(HANDSHAKE) => {
                    if self.handshake(plain, sealed)? {
                        key = None;
                    }
                }
                _ => return Err(RecordError::unexpected()),
            }
        }
        Ok(opened)
    }

    /// Reads handshake messages; true if the peer's keys changed.
    fn handshake(&mut self, data: &[u8], sealed: &mut SealedBuffer) -> Result<bool, RecordError> {
        if data.is_empty() {
            // RFC 8446, section 5.1: no empty fragments.
            return Err(RecordError::unexpected());
        }
        let mut joined = std::mem::take(&mut self.incomplete_message);
        joined.extend_from_slice(data);
        let mut rest = joined.as_slice();
        let mut changed = false;
        while let Some((&[kind, first, high, low], following)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes([0, first, high, low]) as usize;
            if length > MAX_HANDSHAKE_BYTES {
                let why = InvalidMessage::HandshakePayloadTooLarge;
                return Err(RecordError::new(AlertDescription::DecodeError, why));
            }
            let Some((message, following)) = following.split_at_checked(length) else { break };
            match kind {
                NEW_SESSION_TICKET => {
                    if let Some(tickets) = &mut self.tickets {
                        tickets
                            .handle_new_session_ticket(message)
                            .map_err(|error| RecordError::new(AlertDescription::DecodeError, error))?;
                    }
                }
                // RFC 8446, section 5.1: nothing may follow it in its record.
                KEY_UPDATE if following.is_empty() => {
                    self.update(message, sealed)?;
                    changed = true;
                }
                _ => return Err(RecordError::unexpected()),
            }
            rest = following;
        }
        self.incomplete_message = rest.to_vec();
        Ok(changed)
    }

    /// Handles a key update (RFC 8446, section 4.6.3).
    fn update(&mut self, message: &[u8], sealed: &mut SealedBuffer) -> Result<(), RecordError> {
        let failed = || RecordError::new(AlertDescription::InternalError, Error::EncryptError);
        self.theirs = self.theirs.next(self.algorithm).ok_or_else(failed)?;
        match message {
            [0] => Ok(()),
            [1] => {
                if !self.seal(HANDSHAKE, &[KEY_UPDATE, 0, 0, 1, 0], sealed) {
                    return Err(failed());
                }
                self.update_own_keys().ok_or_else(failed)
            }
            _ => Err(RecordError::decode()),
        }
    }

    /// Switches to new sending keys, after the update was announced.
    pub(crate) fn update_own_keys(&mut self) -> Option<()> {
        self.ours = self.ours.next(self.algorithm)?;
        Some(())
    }
}

/// Reads an alert (RFC 8446, section 6); true for close_notify.
fn alert(message: &[u8]) -> Result<bool, RecordError> {
    let &[_, what] = message else { return Err(RecordError::decode()) };
    match AlertDescription::from(what) {
        AlertDescription::CloseNotify => Ok(true),
        AlertDescription::UserCanceled => Ok(false),
        // Error alerts are not answered.
        what => Err(RecordError { alert: None, error: Error::AlertReceived(what) }),
    }
}
