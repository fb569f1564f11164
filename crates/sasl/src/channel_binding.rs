//! Channel binding data (RFC 5056): tls-exporter (RFC 9266) and tls-server-end-point (RFC 5929, section 4), and the
//! list of their names for XEP-0440 (1.0.0).
//!
//! The TLS library computes the exporter; this module defines the label. The certificate hash is computed here, because
//! the hash function depends on the certificate's own signature.
//!
//! Not implemented: tls-unique. It is undefined for TLS 1.3 and broken in earlier versions without the extended master
//! secret.
//!
//! # Pitfalls
//!
//! Under TLS 1.2 the exporter is unique to the connection only with the extended master secret (RFC 9266, section 2).
//! Supply it only then, or under TLS 1.3.

use ring::digest;

/// Name of the channel binding of RFC 9266.
pub const TLS_EXPORTER: &str = "tls-exporter";
/// Name of the channel binding of RFC 5929, section 4.
pub const TLS_SERVER_END_POINT: &str = "tls-server-end-point";
/// Label for the TLS library's exporter; the context is present and empty (RFC 9266, section 2).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";
/// Bytes to request from the exporter.
pub const EXPORTER_BYTES: usize = 32;

/// Channel binding data of a stream. Empty without TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelBindingData {
    /// [`EXPORTER_BYTES`] from the TLS exporter.
    pub exporter: Option<Vec<u8>>,
    /// [`server_end_point`] of the certificate that this stream was served with.
    pub server_end_point: Option<Vec<u8>>,
}

impl ChannelBindingData {
    /// Whether there is no data: `-PLUS` mechanisms must not be offered.
    pub const fn is_empty(&self) -> bool {
        self.exporter.is_none() && self.server_end_point.is_none()
    }

    /// Data of the channel binding `name`, if this stream has it.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        match name {
            TLS_EXPORTER => self.exporter.as_deref(),
            TLS_SERVER_END_POINT => self.server_end_point.as_deref(),
            _ => None,
        }
    }

    /// Names for `<sasl-channel-binding/>` (XEP-0440), strongest first. Advertise them only when a `-PLUS` mechanism is
    /// offered.
    pub fn types(&self) -> impl Iterator<Item = &'static str> {
        [TLS_EXPORTER, TLS_SERVER_END_POINT].into_iter().filter(|name| self.get(name).is_some())
    }
}

/// The tls-server-end-point data of a DER certificate: its hash, with the hash function of its own signature, or
/// SHA-256 where that is MD5 or SHA-1 (RFC 5929, section 4.1).
///
/// `None` where the RFC defines nothing (Ed25519 and other algorithms that name no single hash), for SHA-224, which
/// ring does not have, and for bytes that are not a certificate.
pub fn server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let algorithm = signature_hash(certificate)?;
    Some(digest::digest(algorithm, certificate).as_ref().to_vec())
}

/// Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signature } (RFC 5280, section 4.1).
fn signature_hash(certificate: &[u8]) -> Option<&'static digest::Algorithm> {
    let mut rest = certificate;
    let mut body = element(&mut rest, SEQUENCE)?;
    element(&mut body, SEQUENCE)?;
    let mut algorithm = element(&mut body, SEQUENCE)?;
    element(&mut body, BIT_STRING)?;
    if !rest.is_empty() || !body.is_empty() {
        return None;
    }
    let oid = element(&mut algorithm, OBJECT_IDENTIFIER)?;
    if oid == RSASSA_PSS {
        return pss_hash(algorithm);
    }
    SIGNATURES.iter().find(|(known, _)| *known == oid).map(|(_, hash)| *hash)
}

/// `RSASSA-PSS-params ::= SEQUENCE { [0] hashAlgorithm DEFAULT sha1, … }` (RFC 4055, section 3.1).
fn pss_hash(mut parameters: &[u8]) -> Option<&'static digest::Algorithm> {
    let mut fields = element(&mut parameters, SEQUENCE)?;
    let Some(mut hash) = element(&mut fields, CONTEXT_0) else { return Some(&digest::SHA256) };
    let mut identifier = element(&mut hash, SEQUENCE)?;
    let oid = element(&mut identifier, OBJECT_IDENTIFIER)?;
    HASHES.iter().find(|(known, _)| *known == oid).map(|(_, hash)| *hash)
}

const SEQUENCE: u8 = 0x30;
const BIT_STRING: u8 = 0x03;
const OBJECT_IDENTIFIER: u8 = 0x06;
const CONTEXT_0: u8 = 0xa0;

/// Splits one DER element of type `tag` off `rest` and returns its content. An element of another type stays in `rest`.
fn element<'a>(rest: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (&found, after) = rest.split_first()?;
    let (&first, after) = after.split_first()?;
    if found != tag {
        return None;
    }
    let (len, after) = match first {
        0..=0x7f => (usize::from(first), after),
        // Long form; four bytes of length hold any certificate.
        0x81..=0x84 => {
            let (len, after) = after.split_at_checked(usize::from(first & 0x7f))?;
            (len.iter().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte)), after)
        }
        _ => return None,
    };
    let (content, after) = after.split_at_checked(len)?;
    *rest = after;
    Some(content)
}

const RSASSA_PSS: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 10];

/// Signature algorithms and the hash function for the binding, which is not always their own.
const SIGNATURES: &[(&[u8], &digest::Algorithm)] = &[
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4], &digest::SHA256), // md5WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 5], &digest::SHA256), // sha1WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11], &digest::SHA256), // sha256WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12], &digest::SHA384), // sha384WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 13], &digest::SHA512), // sha512WithRSAEncryption
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], &digest::SHA256),          // ecdsa-with-SHA1
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2], &digest::SHA256),       // ecdsa-with-SHA256
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3], &digest::SHA384),       // ecdsa-with-SHA384
    (&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 4], &digest::SHA512),       // ecdsa-with-SHA512
    (&[0x2a, 0x86, 0x48, 0xce, 0x38, 4, 3], &digest::SHA256),          // dsa-with-SHA1
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 3, 2], &digest::SHA256),       // dsa-with-SHA256
];

/// Hash functions named in the parameters of RSASSA-PSS.
const HASHES: &[(&[u8], &digest::Algorithm)] = &[
    (&[0x2b, 0x0e, 3, 2, 0x1a], &digest::SHA256), // id-sha1
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1], &digest::SHA256), // id-sha256
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2], &digest::SHA384), // id-sha384
    (&[0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3], &digest::SHA512), // id-sha512
];
