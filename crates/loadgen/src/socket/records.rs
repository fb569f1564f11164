//! The records of TLS 1.3 once the handshake is done (RFC 8446 sections 4.6, 5 and 6), in half a kilobyte a connection.
//!
//! rustls's state costs 4 kB a connection: two expanded keys, the key schedule, the certificates, empty queues. What must
//! be known is two secrets, keys and counters. rustls shakes hands, this goes on. Keys are expanded for each record:
//! seal or open, a stanza costs 1 µs, less than the system call that brings it. Text is decrypted in place, not into a vector of its own.
//!
//! Left out: own key updates (after 24 million records, RFC 8446 section 5.5; no run sends that many on one connection),
//! client authentication after the handshake (refused as RFC 8446 section 4.6.2 has it), padding.
//!
//! Trap: rustls is still needed for tickets, which come right behind the handshake. Its rest is kept until the first
//! text: what comes later is let pass, and a server that sends tickets that late is not resumed.

use super::scratch::SealedBuffer;
use super::secrets::TrafficSecret;
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::client::ClientConnectionData;
use rustls::kernel::KernelConnection;
use rustls::{AlertDescription, CipherSuite, Error, InvalidMessage};

const HEADER_BYTES: usize = 5;
const TAG_BYTES: usize = 16;
/// RFC 8446 section 5.2.
const MOST_CIPHERTEXT: usize = 16_384 + 256;
/// RFC 8446 section 5.1, with the type.
const MOST_PLAINTEXT: usize = 16_384 + 1;
/// A ticket has 64 KiB at most.
const MOST_HANDSHAKE: usize = 65_536 + 512;

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// The type of application data, and the outer type of everything.
pub(super) const TEXT: u8 = 23;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// What ended the connection, and the alert to say so with.
pub(super) struct RecordError {
    alert: Option<AlertDescription>,
    pub(super) error: Error,
}

impl RecordError {
    fn new(alert: AlertDescription, error: impl Into<Error>) -> RecordError {
        RecordError { alert: Some(alert), error: error.into() }
    }

    fn decode() -> RecordError {
        RecordError::new(AlertDescription::DecodeError, InvalidMessage::MessageTooShort)
    }

    fn unexpected() -> RecordError {
        let why = Error::General("a TLS message that does not belong here".into());
        RecordError::new(AlertDescription::UnexpectedMessage, why)
    }
}

/// What came of the records.
#[derive(Default)]
pub(super) struct OpenedRecords {
    /// Bytes of whole records.
    pub(super) consumed: usize,
    /// Bytes of text.
    pub(super) bytes: usize,
    /// close_notify came.
    pub(super) closed: bool,
}

/// The keys of one direction.
struct DirectionKeys {
    secret: TrafficSecret,
    key: [u8; 32],
    iv: [u8; 12],
    sequence: u64,
}

impl DirectionKeys {
    /// RFC 8446 section 7.3.
    fn new(secret: TrafficSecret, algorithm: &'static aead::Algorithm) -> Option<DirectionKeys> {
        let mut way = DirectionKeys { secret, key: [0; 32], iv: [0; 12], sequence: 0 };
        secret.expand(b"key", b"", way.key.get_mut(..algorithm.key_len())?)?;
        secret.expand(b"iv", b"", &mut way.iv)?;
        Some(way)
    }

    /// The keys after an update (RFC 8446 section 7.2).
    fn next(&self, algorithm: &'static aead::Algorithm) -> Option<DirectionKeys> {
        DirectionKeys::new(self.secret.next()?, algorithm)
    }

    fn key(&self, algorithm: &'static aead::Algorithm) -> Option<LessSafeKey> {
        let key = UnboundKey::new(algorithm, self.key.get(..algorithm.key_len())?).ok()?;
        Some(LessSafeKey::new(key))
    }

    /// The nonce of the next record (RFC 8446 section 5.3).
    fn nonce(&mut self) -> Option<Nonce> {
        let mut nonce = self.iv;
        for (to, from) in nonce.iter_mut().skip(4).zip(self.sequence.to_be_bytes()) {
            *to ^= from;
        }
        self.sequence = self.sequence.checked_add(1)?;
        Some(Nonce::assume_unique_for_key(nonce))
    }
}

/// A connection after its handshake.
pub(super) struct RecordLayer {
    algorithm: &'static aead::Algorithm,
    ours: DirectionKeys,
    theirs: DirectionKeys,
    /// The beginning of a handshake message.
    begun: Vec<u8>,
    /// For tickets, until there is text.
    tickets: Option<Box<KernelConnection<ClientConnectionData>>>,
}

impl RecordLayer {
    /// `None` for a cipher suite that is not known here.
    pub(super) fn new(
        suite: CipherSuite,
        ours: TrafficSecret,
        theirs: TrafficSecret,
        tickets: Option<Box<KernelConnection<ClientConnectionData>>>,
    ) -> Option<RecordLayer> {
        let algorithm = RecordLayer::algorithm(suite)?;
        let (ours, theirs) = (DirectionKeys::new(ours, algorithm)?, DirectionKeys::new(theirs, algorithm)?);
        Some(RecordLayer { algorithm, ours, theirs, begun: Vec::new(), tickets })
    }

    /// A cipher suite of TLS 1.3 that can be gone on with.
    pub(super) fn knows(suite: CipherSuite) -> bool {
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

    pub(super) fn held(&self) -> usize {
        self.begun.capacity()
    }

    /// Appends a record. False: it cannot be made.
    pub(super) fn seal(&mut self, kind: u8, data: &[u8], sealed: &mut SealedBuffer) -> bool {
        let inner = data.len() + 1;
        let Ok(length) = u16::try_from(inner + TAG_BYTES) else { return false };
        let [high, low] = length.to_be_bytes();
        let header = [TEXT, 3, 3, high, low];
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

    /// Appends close_notify.
    pub(super) fn seal_close_notify(&mut self, sealed: &mut SealedBuffer) -> bool {
        self.seal(ALERT, &[1, 0], sealed)
    }

    /// Opens all whole records; answers and alerts are in `sealed` then.
    pub(super) fn open(
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
        // Expanded once for all that came together, unless the keys change.
        let mut key = None;
        while let Some(([kind, _, _, high, low], body)) =
            records.get_mut(opened.consumed..).and_then(<[u8]>::split_first_chunk_mut)
        {
            // Everything is encrypted now, and looks like text. The version is not to be looked at.
            if *kind != TEXT {
                return Err(RecordError::unexpected());
            }
            let header = [TEXT, 3, 3, *high, *low];
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            if length > MOST_CIPHERTEXT {
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
            if plain.len() > MOST_PLAINTEXT {
                let why = Error::PeerSentOversizedRecord;
                return Err(RecordError::new(AlertDescription::RecordOverflow, why));
            }
            // Zeros behind the type are padding.
            let Some(end) = plain.iter().rposition(|&byte| byte != 0) else {
                return Err(RecordError::unexpected());
            };
            let (plain, kind) = (plain.get(..end).unwrap_or_default(), plain.get(end).copied());
            match kind {
                _ if !self.begun.is_empty() && kind != Some(HANDSHAKE) => {
                    return Err(RecordError::unexpected());
                }
                Some(TEXT) => {
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

    /// Reads handshake messages; true when the keys of the other side changed.
    fn handshake(&mut self, data: &[u8], sealed: &mut SealedBuffer) -> Result<bool, RecordError> {
        if data.is_empty() {
            // RFC 8446 section 5.1: no empty fragments.
            return Err(RecordError::unexpected());
        }
        let mut joined = std::mem::take(&mut self.begun);
        joined.extend_from_slice(data);
        let mut rest = joined.as_slice();
        let mut changed = false;
        while let Some((&[kind, first, high, low], behind)) = rest.split_first_chunk() {
            let length = u32::from_be_bytes([0, first, high, low]) as usize;
            if length > MOST_HANDSHAKE {
                let why = InvalidMessage::HandshakePayloadTooLarge;
                return Err(RecordError::new(AlertDescription::DecodeError, why));
            }
            let Some((message, behind)) = behind.split_at_checked(length) else { break };
            match kind {
                NEW_SESSION_TICKET => {
                    if let Some(tickets) = &mut self.tickets {
                        tickets
                            .handle_new_session_ticket(message)
                            .map_err(|error| RecordError::new(AlertDescription::DecodeError, error))?;
                    }
                }
                // RFC 8446 section 5.1: nothing may follow it in its record.
                KEY_UPDATE if behind.is_empty() => {
                    self.update(message, sealed)?;
                    changed = true;
                }
                _ => return Err(RecordError::unexpected()),
            }
            rest = behind;
        }
        self.begun = rest.to_vec();
        Ok(changed)
    }

    /// RFC 8446 section 4.6.3.
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

    /// Goes on with new keys for what is said here, after it was announced.
    pub(super) fn update_own_keys(&mut self) -> Option<()> {
        self.ours = self.ours.next(self.algorithm)?;
        Some(())
    }
}

/// Reads an alert (RFC 8446 section 6); true for close_notify.
fn alert(message: &[u8]) -> Result<bool, RecordError> {
    let &[_, what] = message else { return Err(RecordError::decode()) };
    match AlertDescription::from(what) {
        AlertDescription::CloseNotify => Ok(true),
        AlertDescription::UserCanceled => Ok(false),
        // Errors are not answered.
        what => Err(RecordError { alert: None, error: Error::AlertReceived(what) }),
    }
}
