//! What a handshake tells besides the bytes: the chosen certificate, the exporter secret, the client's certificate.
//!
//! rustls calls back from inside `process_tls_records`, on the same thread, with no word about which connection it is
//! for. So the stream opens an ear ([`capture`]) around that call, and the callbacks speak into it.
//!
//! The exporter (RFC 9266, `tls-exporter`): the unbuffered connection of rustls 0.23 has no `export_keying_material`,
//! but its key log says `EXPORTER_SECRET` for TLS 1.3, from which RFC 8446 §7.5 gives the value. TLS 1.2 has no such
//! secret: with its master secret the value would be sound only together with RFC 7627, which cannot be seen from
//! outside, so there it is left out, and clients use `tls-server-end-point`.
//! Trap: the secret is as good as the session's keys for anyone who wants to bind to it. It lives for one call.

use crate::tls::certificate::ServerCertificate;
use crate::tls::client_certificate::ClientCertificate;
use rustls::Tls13CipherSuite;
use rustls::crypto::tls13::OkmBlock;
use std::cell::RefCell;
use std::sync::Arc;
use zeroize::Zeroizing;

/// What was told during one call.
#[derive(Default)]
pub(crate) struct HandshakeCapture {
    /// The domain of the stream header, for clients that do not send SNI.
    pub(crate) domain: Option<Box<str>>,
    pub(crate) certificate: Option<Arc<ServerCertificate>>,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) exporter_secret: Option<Zeroizing<Vec<u8>>>,
    pub(crate) client: Option<Box<ClientCertificate>>,
}

thread_local! {
    static CAPTURE: RefCell<Option<HandshakeCapture>> = const { RefCell::new(None) };
}

/// Runs `work` with an open ear, and returns what was told. `domain` is lent to the certificate choice and returned.
pub(crate) fn capture<R>(domain: Option<Box<str>>, work: impl FnOnce() -> R) -> (R, HandshakeCapture) {
    CAPTURE.set(Some(HandshakeCapture { domain, ..HandshakeCapture::default() }));
    let result = work();
    (result, CAPTURE.take().unwrap_or_default())
}

/// Speaks into the ear, if one is open.
pub(crate) fn record<R>(what: impl FnOnce(&mut HandshakeCapture) -> R) -> Option<R> {
    CAPTURE.with_borrow_mut(|ear| ear.as_mut().map(what))
}

/// The key log that keeps the exporter secret and nothing else.
#[derive(Debug)]
pub(crate) struct ExporterLog;

impl rustls::KeyLog for ExporterLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            record(|told| told.exporter_secret = Some(Zeroizing::new(secret.to_vec())));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

/// RFC 9266 §4: 32 bytes for the label `EXPORTER-Channel-Binding` and an empty context.
pub(crate) fn exporter(suite: &Tls13CipherSuite, secret: &[u8]) -> Option<[u8; 32]> {
    let empty = suite.common.hash_provider.hash(&[]);
    let empty = empty.as_ref();
    let mut derived = Zeroizing::new(vec![0; empty.len()]);
    expand_label(suite, secret, b"EXPORTER-Channel-Binding", empty, &mut derived)?;
    let mut value = [0; 32];
    expand_label(suite, &derived, b"exporter", empty, &mut value)?;
    Some(value)
}

/// HKDF-Expand-Label of RFC 8446 §7.1.
fn expand_label(
    suite: &Tls13CipherSuite,
    secret: &[u8],
    label: &[u8],
    context: &[u8],
    out: &mut [u8],
) -> Option<()> {
    let length = u16::try_from(out.len()).ok()?.to_be_bytes();
    let label_length = [u8::try_from(b"tls13 ".len() + label.len()).ok()?];
    let context_length = [u8::try_from(context.len()).ok()?];
    let info: [&[u8]; 6] = [&length, &label_length, b"tls13 ", label, &context_length, context];
    suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret)).expand_slice(&info, out).ok()
}
