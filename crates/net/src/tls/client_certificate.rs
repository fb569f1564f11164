//! Client certificates: optional, verified against a bundle of authorities, and mapped to names for SASL EXTERNAL
//! (XEP-0178 v1.2; RFC 6120, section 13.7.2).
//!
//! An invalid certificate does not end the handshake: the peer is treated as one without a certificate, and can still
//! use a password (clients) or dialback (servers).
//!
//! Not implemented: revocation lists.
//!
//! # Pitfalls
//!
//! rustls stores the raw chain, some kilobytes, for the life of the connection; request certificates only where
//! EXTERNAL is offered.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use crate::tls::certificate;
use crate::tls::handshake_capture;

/// Names in a verified certificate, whose holder proved possession of the key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertificate {
    /// id-on-xmppAddr entries, not normalised: whole addresses for users, domains for servers.
    pub xmpp_addresses: Vec<String>,
    /// dNSName and id-on-dnsSRV domains, possibly with a `*.` prefix (RFC 6120, section 13.7.1.2).
    pub domains: Vec<String>,
    /// rfc822Name entries. At most a hint: an e-mail address is not an XMPP address.
    pub emails: Vec<String>,
}

/// Verifies chains against one bundle, but lets the handshake go on with an invalid one.
#[derive(Debug)]
pub(crate) struct LenientClientVerifier {
    strict: Arc<dyn ClientCertVerifier>,
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
    /// Peers are servers, whose certificates often allow only server use.
    servers: bool,
}

impl LenientClientVerifier {
    /// Loads the authorities from a PEM file.
    pub(crate) fn load(
        path: &Path,
        servers: bool,
        provider: &Arc<CryptoProvider>,
    ) -> Result<LenientClientVerifier, String> {
        let at = path.display();
        let mut roots = RootCertStore::empty();
        let found =
            CertificateDer::pem_file_iter(path).map_err(|error| format!("authorities {at}: {error}"))?;
        for der in found {
            let der = der.map_err(|error| format!("authorities {at}: {error}"))?;
            roots.add(der).map_err(|error| format!("authorities {at}: {error}"))?;
        }
        if roots.is_empty() {
            return Err(format!("authorities {at}: the file has no CERTIFICATE block"));
        }
        let roots = Arc::new(roots);
        let strict = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .allow_unauthenticated()
            .build()
            .map_err(|error| format!("authorities {at}: {error}"))?;
        Ok(LenientClientVerifier { strict, roots, provider: provider.clone(), servers })
    }

    fn is_trusted(&self, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>], now: UnixTime) -> bool {
        if self.strict.verify_client_cert(leaf, chain, now).is_ok() {
            return true;
        }
        let algorithms = self.provider.signature_verification_algorithms.all;
        self.servers
            && ParsedCertificate::try_from(leaf).is_ok_and(|parsed| {
                verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, chain, now, algorithms)
                    .is_ok()
            })
    }
}

impl ClientCertVerifier for LenientClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // A public bundle has a hundred names; sending them costs a packet per handshake and is of no use to servers.
        if self.servers { &[] } else { self.strict.root_hint_subjects() }
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        if self.is_trusted(leaf, chain, now)
            && let Ok(parsed) = certificate::parse(leaf)
        {
            let certificate::CertificateNames { mut dns, srv, xmpp, emails: mail } =
                certificate::names(&parsed);
            dns.extend(srv);
            let client = ClientCertificate { xmpp_addresses: xmpp, domains: dns, emails: mail };
            handshake_capture::record(|capture| capture.client = Some(Box::new(client)));
        }
        // The handshake goes on either way; only the names recorded above count as proven.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}
