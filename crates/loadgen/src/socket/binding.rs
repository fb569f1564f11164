//! Channel bindings: `tls-exporter` (RFC 9266) and `tls-server-end-point` (RFC 5929 section 4).
//!
//! The unbuffered connection of rustls 0.23 exports no keying material. Its key log says the exporter secret of TLS 1.3
//! though, from inside the call that completes the handshake and on the same thread; the value is derived from it at once
//! with RFC 8446 section 7.5. Written apart from the server's: a mistake that both share would hide itself.
//!
//! Left out: `tls-unique` and the exporter of TLS 1.2 (sound only with RFC 7627, which cannot be seen from outside); there
//! `tls-server-end-point` is what remains.
//! Trap: the value waits in the thread. It must be taken after the very call that made it.

use ring::{digest, hmac};
use std::cell::Cell;

thread_local! {
    static HEARD: Cell<Option<[u8; 32]>> = const { Cell::new(None) };
}

/// The value that the last call of rustls on this thread brought.
pub(super) fn take_exporter() -> Option<[u8; 32]> {
    HEARD.take()
}

/// The key log that derives the binding and keeps no secret.
#[derive(Debug)]
pub(super) struct ExporterLog;

impl rustls::KeyLog for ExporterLog {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if self.will_log(label) {
            HEARD.set(exporter(secret));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

/// RFC 9266 section 2: 32 bytes, label `EXPORTER-Channel-Binding`, empty context. The length of the secret names the hash.
fn exporter(secret: &[u8]) -> Option<[u8; 32]> {
    let (hash, mac) = match secret.len() {
        32 => (&digest::SHA256, hmac::HMAC_SHA256),
        48 => (&digest::SHA384, hmac::HMAC_SHA384),
        _ => return None,
    };
    let empty = digest::digest(hash, b"");
    let derived = expand_label(mac, secret, b"EXPORTER-Channel-Binding", empty.as_ref(), secret.len())?;
    let value = expand_label(mac, derived.as_ref(), b"exporter", empty.as_ref(), 32)?;
    value.as_ref().get(..32)?.try_into().ok()
}

/// HKDF-Expand-Label of RFC 8446 section 7.1, for at most one block of the hash: one HMAC.
fn expand_label(
    mac: hmac::Algorithm,
    secret: &[u8],
    label: &[u8],
    context: &[u8],
    length: usize,
) -> Option<hmac::Tag> {
    let mut info = Vec::with_capacity(128);
    info.extend(u16::try_from(length).ok()?.to_be_bytes());
    info.push(u8::try_from(b"tls13 ".len() + label.len()).ok()?);
    info.extend(b"tls13 ");
    info.extend(label);
    info.push(u8::try_from(context.len()).ok()?);
    info.extend(context);
    // The number of the block (RFC 5869 section 2.3).
    info.push(1);
    Some(hmac::sign(&hmac::Key::new(mac, secret), &info))
}

/// The hash of the certificate with the hash function of its signature; MD5 and SHA-1 become SHA-256 (RFC 5929 section
/// 4.1). `None` where that is not one known function.
pub(super) fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // Certificate ::= SEQUENCE { tbsCertificate SEQUENCE, signatureAlgorithm SEQUENCE { OID, parameters }, … }
    let (_, outer, _) = element(certificate)?;
    let (_, _, after) = element(outer)?;
    let (_, algorithm, _) = element(after)?;
    let (_, mut name, parameters) = element(algorithm)?;
    if name == RSA_PSS {
        name = pss_hash(parameters)?;
    }
    Some(digest::digest(hash_of(name)?, certificate).as_ref().to_vec())
}

/// id-RSASSA-PSS.
const RSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0a];
/// id-sha1.
const SHA1: &[u8] = &[0x2b, 0x0e, 3, 2, 0x1a];

fn hash_of(name: &[u8]) -> Option<&'static digest::Algorithm> {
    const SHA256: &digest::Algorithm = &digest::SHA256;
    Some(match name {
        // RSA PKCS #1: MD5, SHA-1, SHA-256, SHA-384, SHA-512.
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4 | 5 | 11] => SHA256,
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12] => &digest::SHA384,
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13] => &digest::SHA512,
        // ECDSA: SHA-1, SHA-256, SHA-384, SHA-512.
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2] => SHA256,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => &digest::SHA384,
        [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4] => &digest::SHA512,
        // The hash functions themselves, from the parameters of PSS.
        _ if name == SHA1 => SHA256,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => SHA256,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => &digest::SHA384,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => &digest::SHA512,
        _ => return None,
    })
}

/// RSASSA-PSS-params (RFC 4055 section 3.1): field `[0]` names the hash; absent it is SHA-1.
fn pss_hash(parameters: &[u8]) -> Option<&[u8]> {
    let (_, fields, _) = element(parameters)?;
    match element(fields) {
        Some((0xa0, field, _)) => {
            let (_, algorithm, _) = element(field)?;
            Some(element(algorithm)?.1)
        }
        _ => Some(SHA1),
    }
}

/// The first element of DER: tag, content, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = der.split_first()?;
    let (&short, rest) = rest.split_first()?;
    let (length, rest) = match short {
        0..=0x7f => (usize::from(short), rest),
        0x81..=0x83 => {
            let (long, rest) = rest.split_at_checked(usize::from(short & 0x7f))?;
            (long.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}
