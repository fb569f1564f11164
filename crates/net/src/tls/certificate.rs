//! Server certificate with its key: loading, names, and the tls-server-end-point hash.
//!
//! Names come from the subject alternative names only (RFC 6120, section 13.7.1.2): dNSName, id-on-dnsSRV,
//! id-on-xmppAddr. The common name is ignored, as RFC 9525 requires. x509-cert does the parsing.
//!
//! # Pitfalls
//!
//! A certificate file is the leaf first, then the chain. Another order is served as found, and clients refuse it.

use std::path::Path;
use std::sync::Arc;

use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::Certificate as Parsed;
use x509_cert::der::asn1::{Ia5StringRef, ObjectIdentifier, Utf8StringRef};
use x509_cert::der::{AnyRef, Decode, Encode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// id-on-xmppAddr (RFC 6120, section 13.7.1.4).
const XMPP_ADDR: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.8.5");
/// id-on-dnsSRV, RFC 4985.
const DNS_SRV: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.8.7");

/// Names in a certificate, as written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateNames {
    pub(crate) dns: Vec<String>,
    /// Without the `_service.` prefix.
    pub(crate) srv: Vec<String>,
    pub(crate) xmpp: Vec<String>,
    pub(crate) emails: Vec<String>,
}

/// Reads the subject alternative names.
pub(crate) fn names(parsed: &Parsed) -> CertificateNames {
    let mut names = CertificateNames::default();
    let Ok(Some((_, SubjectAltName(found)))) = parsed.tbs_certificate().get_extension::<SubjectAltName>()
    else {
        return names;
    };
    for name in &found {
        match name {
            GeneralName::DnsName(name) => names.dns.push(name.as_str().to_owned()),
            GeneralName::Rfc822Name(name) => names.emails.push(name.as_str().to_owned()),
            GeneralName::OtherName(other) => {
                let value = AnyRef::from(&other.value);
                if other.type_id == XMPP_ADDR
                    && let Ok(text) = value.decode_as::<Utf8StringRef<'_>>()
                {
                    names.xmpp.push(text.as_str().to_owned());
                } else if other.type_id == DNS_SRV
                    && let Ok(text) = value.decode_as::<Ia5StringRef<'_>>()
                    && let Some((_, domain)) = text.as_str().split_once('.')
                {
                    names.srv.push(domain.to_owned());
                }
            }
            _ => {}
        }
    }
    names
}

/// Parses one DER certificate.
pub(crate) fn parse(der: &[u8]) -> Result<Parsed, String> {
    Parsed::from_der(der).map_err(|error| format!("not an X.509 certificate: {error}"))
}

/// RFC 5929, section 4.1: the hash of the certificate with the hash function of its signature; SHA-256 replaces MD5 and
/// SHA-1. `None` if the signature has no single hash function (Ed25519) or an unsupported one.
fn tls_server_end_point(parsed: &Parsed, der: &[u8]) -> Option<Box<[u8]>> {
    let algorithm = parsed.signature_algorithm();
    let mut oid = algorithm.oid.to_string();
    if oid == "1.2.840.113549.1.1.10" {
        oid = pss_hash(&algorithm.parameters.as_ref()?.to_der().ok()?)?.to_string();
    }
    let hash = match oid.as_str() {
        // md5, sha1 and sha256 with RSA; ecdsa with sha1 and sha256; the hashes themselves (from PSS parameters).
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2"
        | "1.3.14.3.2.26"
        | "2.16.840.1.101.3.4.2.1" => &digest::SHA256,
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" | "2.16.840.1.101.3.4.2.2" => &digest::SHA384,
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" | "2.16.840.1.101.3.4.2.3" => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(hash, der).as_ref().into())
}

/// Hash of RSASSA-PSS parameters (RFC 4055, section 3.1): field `[0]` holds an AlgorithmIdentifier; absent means SHA-1.
fn pss_hash(parameters: &[u8]) -> Option<ObjectIdentifier> {
    let sequence = AnyRef::from_der(parameters).ok()?;
    if sequence.value().first() != Some(&0xa0) {
        return ObjectIdentifier::new("1.3.14.3.2.26").ok();
    }
    let (first, _) = AnyRef::from_der_partial(sequence.value()).ok()?;
    let identifier = AnyRef::from_der(first.value()).ok()?;
    Some(ObjectIdentifier::from_der_partial(identifier.value()).ok()?.0)
}

/// A certificate that the server can present.
#[derive(Debug)]
pub(crate) struct ServerCertificate {
    pub(crate) key: Arc<CertifiedKey>,
    pub(crate) names: CertificateNames,
    pub(crate) end_point: Option<Box<[u8]>>,
    /// Fingerprint of the whole certificate.
    pub(crate) sha256: Box<[u8]>,
    /// Start of validity in seconds since 1970.
    pub(crate) not_before: u64,
    /// End of validity in seconds since 1970.
    pub(crate) not_after: u64,
}

impl ServerCertificate {
    /// Loads a chain and its key from PEM files. The error names the file and the fix.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<ServerCertificate, String> {
        let at = certificate.display();
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
            .and_then(Iterator::collect)
            .map_err(|error| format!("certificate {at}: {}", pem_reason(&error)))?;
        let Some(leaf) = chain.first() else {
            return Err(format!("certificate {at}: the file has no CERTIFICATE block"));
        };
        let parsed = parse(leaf).map_err(|error| format!("certificate {at}: {error}"))?;
        let (names, end_point) = (names(&parsed), tls_server_end_point(&parsed, leaf));
        let sha256 = digest::digest(&digest::SHA256, leaf).as_ref().into();
        let validity = parsed.tbs_certificate().validity();
        let not_before = validity.not_before.to_unix_duration().as_secs();
        let not_after = validity.not_after.to_unix_duration().as_secs();
        let shown = key.display();
        let key = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| format!("key {shown}: {}", pem_reason(&error)))?;
        let signer = rustls::crypto::ring::sign::any_supported_type(&key)
            .map_err(|error| format!("key {shown}: {error}"))?;
        let key = CertifiedKey::new(chain, signer);
        match key.keys_match() {
            // Unknown means that this key type cannot be checked; the first handshake will.
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(format!("key {shown}: it does not match certificate {at}")),
        }
        Ok(ServerCertificate { key: Arc::new(key), names, end_point, sha256, not_before, not_after })
    }

    /// All names that a client may request.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &str> {
        let CertificateNames { dns, srv, xmpp, .. } = &self.names;
        dns.iter().chain(srv).chain(xmpp).map(String::as_str)
    }
}

fn pem_reason(error: &rustls::pki_types::pem::Error) -> String {
    match error {
        rustls::pki_types::pem::Error::Io(error) => error.to_string(),
        rustls::pki_types::pem::Error::NoItemsFound => {
            "the file has nothing usable; PEM is expected".to_owned()
        }
        other => format!("not PEM: {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generated certificate with this kind of key, and its DER.
    fn made(algorithm: &'static rcgen::SignatureAlgorithm) -> (Parsed, Vec<u8>) {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["example.org".to_owned()]).unwrap();
        params.subject_alt_names.push(rcgen::SanType::OtherName((
            vec![1, 3, 6, 1, 5, 5, 7, 8, 5],
            rcgen::OtherNameValue::Utf8String("chat.example.org".to_owned()),
        )));
        let der = params.self_signed(&key).unwrap().der().to_vec();
        (parse(&der).unwrap(), der)
    }

    #[test]
    fn the_end_point_uses_the_hash_of_the_signature() {
        let (parsed, der) = made(&rcgen::PKCS_ECDSA_P256_SHA256);
        assert_eq!(
            tls_server_end_point(&parsed, &der).as_deref(),
            Some(digest::digest(&digest::SHA256, &der).as_ref())
        );
        let (parsed, der) = made(&rcgen::PKCS_ECDSA_P384_SHA384);
        assert_eq!(
            tls_server_end_point(&parsed, &der).as_deref(),
            Some(digest::digest(&digest::SHA384, &der).as_ref())
        );
        let (parsed, der) = made(&rcgen::PKCS_ED25519);
        assert_eq!(tls_server_end_point(&parsed, &der), None, "RFC 5929 leaves it undefined");
    }

    #[test]
    fn pss_parameters_name_their_hash() {
        let sha512 = [0x30, 15, 0xa0, 13, 0x30, 11, 6, 9, 0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, 3];
        assert_eq!(pss_hash(&sha512).unwrap().to_string(), "2.16.840.1.101.3.4.2.3");
        // Empty, or with a salt length only: SHA-1, replaced by SHA-256.
        for parameters in [&[0x30, 0][..], &[0x30, 5, 0xa2, 3, 2, 1, 20]] {
            assert_eq!(pss_hash(parameters).unwrap().to_string(), "1.3.14.3.2.26");
        }
        for garbage in [&[][..], &[0x30, 2, 0xa0], &[0x30, 2, 0xa0, 0], &[0x30, 4, 0xa0, 2, 0x30, 0]] {
            assert_eq!(pss_hash(garbage), None);
        }
    }

    //= https://www.rfc-editor.org/rfc/rfc6120#section-13.7.1.2.1
    //= type=test
    //# Support for the DNS-ID identifier type [PKIX] is REQUIRED in XMPP client and server software
    //# implementations.
    #[test]
    fn all_kinds_of_names_are_read() {
        let (parsed, _) = made(&rcgen::PKCS_ECDSA_P256_SHA256);
        let names = names(&parsed);
        assert_eq!(names.dns, ["example.org"]);
        assert_eq!(names.xmpp, ["chat.example.org"]);
    }

    #[test]
    fn damaged_certificates_are_errors() {
        let (_, der) = made(&rcgen::PKCS_ECDSA_P256_SHA256);
        for cut in 0..der.len() {
            assert!(parse(&der[..cut]).is_err());
        }
        for at in 0..der.len() {
            let mut der = der.clone();
            der[at] ^= 0x55;
            if let Ok(parsed) = parse(&der) {
                let _ = (names(&parsed), tls_server_end_point(&parsed, &der));
            }
        }
    }
}
