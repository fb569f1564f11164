//! Capture of handshake data from rustls callbacks: the chosen certificate, the exporter secret, the client's
//! certificate.
//!
//! rustls calls back from inside `process_tls_records`, on the same thread, without identifying the connection. So the
//! stream wraps that call in [`capture`], and the callbacks [`record`] into a thread-local.
//!
//! `tls-exporter` (RFC 9266): the unbuffered connection of rustls 0.23 has no `export_keying_material`, but its key log
//! provides `EXPORTER_SECRET` for TLS 1.3, from which RFC 8446, section 7.5 derives the value.
//!
//! Not implemented: `tls-exporter` with TLS 1.2, which has no such secret: a value from its master secret would be
//! sound only together with RFC 7627, which cannot be observed from outside. Clients use `tls-server-end-point` there.
//!
//! # Pitfalls
//!
//! For channel binding the secret is as sensitive as the session keys. It lives for one call.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::Tls13CipherSuite;
use rustls::crypto::tls13::OkmBlock;
use zeroize::Zeroizing;

use crate::tls::certificate::ServerCertificate;
use crate::tls::client_certificate::ClientCertificate;

/// Data captured during one call.
#[derive(Default)]
pub(crate) struct HandshakeCapture {
    /// Domain of the stream header, for clients that do not send SNI.
    pub(crate) domain: Option<Box<str>>,
    pub(crate) certificate: Option<Arc<ServerCertificate>>,
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) exporter_secret: Option<Zeroizing<Vec<u8>>>,
    pub(crate) client: Option<Box<ClientCertificate>>,
}

thread_local! {
    static CAPTURE: RefCell<Option<HandshakeCapture>> = const { RefCell::new(None) };
}

/// Runs `work` and returns the captured data. `domain` is lent to the certificate selection and returned.
pub(crate) fn capture<R>(domain: Option<Box<str>>, work: impl FnOnce() -> R) -> (R, HandshakeCapture) {
    CAPTURE.set(Some(HandshakeCapture { domain, ..HandshakeCapture::default() }));
    let result = work();
    (result, CAPTURE.take().unwrap_or_default())
}

/// Records into the current capture, if there is one.
pub(crate) fn record<R>(what: impl FnOnce(&mut HandshakeCapture) -> R) -> Option<R> {
    CAPTURE.with_borrow_mut(|capture| capture.as_mut().map(what))
}

/// Key log that stores only the exporter secret.
#[derive(Debug)]
pub(crate) struct ExporterLog;

impl rustls::KeyLog for ExporterLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            record(|capture| capture.exporter_secret = Some(Zeroizing::new(secret.to_vec())));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

/// RFC 9266, section 4: 32 bytes for the label `EXPORTER-Channel-Binding` and an empty context.
pub(crate) fn exporter(suite: &Tls13CipherSuite, secret: &[u8]) -> Option<[u8; 32]> {
    let empty = suite.common.hash_provider.hash(&[]);
    let empty = empty.as_ref();
    let mut derived = Zeroizing::new(vec![0; empty.len()]);
    expand_label(suite, secret, b"EXPORTER-Channel-Binding", empty, &mut derived)?;
    let mut value = [0; 32];
    expand_label(suite, &derived, b"exporter", empty, &mut value)?;
    Some(value)
}

/// HKDF-Expand-Label (RFC 8446, section 7.1).
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
