//! Secrets of a TLS 1.3 connection, captured from rustls at the end of its handshake, and their derivation (RFC 8446,
//! section 7).
//!
//! rustls passes them to a key log from inside the call that completes the handshake, on the same thread: the traffic
//! secrets, which `records.rs` uses, and the exporter secret, from which the channel binding `tls-exporter` (RFC 9266)
//! is derived at once. The unbuffered connection of rustls 0.23 offers no other access to the latter.
//!
//! Not implemented: TLS 1.2. Its exporter is sound only with RFC 7627, which cannot be detected from outside.
//!
//! # Pitfalls
//!
//! Captured secrets are stored in the thread. They must be taken right after the call that produced them.

use std::cell::Cell;

use ring::{digest, hmac};

/// Maximum hash size of TLS 1.3, in bytes (SHA-384).
const MAX_HASH_BYTES: usize = 48;

/// A secret of the key schedule; its length names the hash.
#[derive(Clone, Copy)]
pub struct TrafficSecret {
    bytes: [u8; MAX_HASH_BYTES],
    length: u8,
}

/// Secrets captured from a handshake.
#[derive(Clone, Copy, Default)]
pub struct CapturedSecrets {
    /// Value of `tls-exporter`.
    pub exporter: Option<[u8; 32]>,
    /// Traffic secret of the client.
    pub client: Option<TrafficSecret>,
    /// Traffic secret of the server.
    pub server: Option<TrafficSecret>,
}

impl CapturedSecrets {
    /// Adds the secrets of a later call.
    pub fn add(&mut self, later: CapturedSecrets) {
        self.exporter = later.exporter.or(self.exporter);
        self.client = later.client.or(self.client);
        self.server = later.server.or(self.server);
    }
}

thread_local! {
    static CAPTURED: Cell<CapturedSecrets> = const { Cell::new(CapturedSecrets { exporter: None, client: None, server: None }) };
}

/// Takes the secrets captured on this thread since the last call.
pub fn take() -> CapturedSecrets {
    CAPTURED.take()
}

/// Key log that captures the secrets.
#[derive(Debug)]
pub struct SecretCapture;

impl rustls::KeyLog for SecretCapture {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let secret = TrafficSecret::new(secret);
        let mut captured = CAPTURED.get();
        match label {
            "EXPORTER_SECRET" => captured.exporter = secret.and_then(|secret| secret.exporter()),
            "CLIENT_TRAFFIC_SECRET_0" => captured.client = secret,
            "SERVER_TRAFFIC_SECRET_0" => captured.server = secret,
            _ => {}
        }
        CAPTURED.set(captured);
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, "EXPORTER_SECRET" | "CLIENT_TRAFFIC_SECRET_0" | "SERVER_TRAFFIC_SECRET_0")
    }
}

impl TrafficSecret {
    /// `None` unless the length is that of SHA-256 or SHA-384.
    pub fn new(from: &[u8]) -> Option<TrafficSecret> {
        let mut bytes = [0; MAX_HASH_BYTES];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        let secret = TrafficSecret { bytes, length: u8::try_from(from.len()).ok()? };
        secret.hash().map(|_| secret)
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    fn hash(&self) -> Option<hmac::Algorithm> {
        match self.length {
            32 => Some(hmac::HMAC_SHA256),
            48 => Some(hmac::HMAC_SHA384),
            _ => None,
        }
    }

    /// HKDF-Expand-Label of RFC 8446, section 7.1, for at most one block of the hash: one HMAC.
    pub(crate) fn expand(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Option<()> {
        let mut info = Vec::with_capacity(128);
        info.extend(u16::try_from(out.len()).ok()?.to_be_bytes());
        info.push(u8::try_from(b"tls13 ".len() + label.len()).ok()?);
        info.extend(b"tls13 ");
        info.extend(label);
        info.push(u8::try_from(context.len()).ok()?);
        info.extend(context);
        // Block number (RFC 5869, section 2.3).
        info.push(1);
        let block = hmac::sign(&hmac::Key::new(self.hash()?, self.as_bytes()), &info);
        out.copy_from_slice(block.as_ref().get(..out.len())?);
        Some(())
    }

    /// Secret after a key update (RFC 8446, section 7.2).
    pub(crate) fn next(&self) -> Option<TrafficSecret> {
        let mut next = *self;
        self.expand(b"traffic upd", b"", next.bytes.get_mut(..usize::from(self.length))?)?;
        Some(next)
    }

    /// RFC 9266, section 2 with RFC 8446, section 7.5: label `EXPORTER-Channel-Binding`, empty context.
    fn exporter(&self) -> Option<[u8; 32]> {
        let empty = digest::digest(self.hash()?.digest_algorithm(), b"");
        let mut derived = *self;
        let out = derived.bytes.get_mut(..usize::from(self.length))?;
        self.expand(b"EXPORTER-Channel-Binding", empty.as_ref(), out)?;
        let mut value = [0; 32];
        derived.expand(b"exporter", empty.as_ref(), &mut value)?;
        Some(value)
    }
}
