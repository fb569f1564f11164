//! Channel binding `tls-server-end-point` (RFC 5929, section 4): a hash of the server's certificate.
//!
//! Parses only as much of X.509 as is needed to find the signature algorithm (RFC 5280, section 4.1).
//!
//! Not implemented: signatures without a single known hash function, such as Ed25519; `tls-unique` (RFC 5929, section
//! 3), which rustls does not expose, so this is the only binding of TLS 1.2.
//!
//! # Pitfalls
//!
//! MD5 and SHA-1 are replaced by SHA-256, also in the parameters of RSASSA-PSS.

use ring::digest;

/// Hash of the certificate with the hash function of its signature; SHA-256 replaces MD5 and SHA-1 (RFC 5929, section
/// 4.1). `None` if there is no single known function.
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
        // Hash functions from the parameters of PSS.
        _ if name == SHA1 => SHA256,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 1] => SHA256,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 2] => &digest::SHA384,
        [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3] => &digest::SHA512,
        _ => return None,
    })
}

/// RSASSA-PSS-params (RFC 4055, section 3.1): field `[0]` names the hash; SHA-1 if absent.
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

/// First element of DER: tag, content, and the bytes after it.
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
