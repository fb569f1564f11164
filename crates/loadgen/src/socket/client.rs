//! TLS configuration shared by all connections of a run: trust, client certificate, versions, and resumable sessions.
//!
//! Server names are checked as DNS names (RFC 9525).
//!
//! Not implemented: revocation, SNI that differs from the domain.
//!
//! # Pitfalls
//!
//! By default any certificate is accepted, since servers under test use self-signed ones. The handshake's signature is
//! still checked, so its CPU cost is measured as in a real client.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tls_records::SecretCapture;

use super::tickets::SessionTickets;

/// Trust in server certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerTrust {
    /// Any certificate, whatever its names and dates. The handshake's signature is checked.
    #[default]
    Any,
    /// Trust anchors in PEM: certificate authorities, or a server's own certificate (then only that one, with the right
    /// name).
    Pem(Vec<u8>),
}

/// A client certificate for SASL EXTERNAL (XEP-0178).
#[derive(Clone, PartialEq, Eq)]
pub struct ClientCertificatePem {
    /// Certificate chain in PEM, the client's own certificate first.
    pub certificates: Vec<u8>,
    /// Private key in PEM.
    pub key: Vec<u8>,
}

impl std::fmt::Debug for ClientCertificatePem {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Identity").finish_non_exhaustive()
    }
}

/// Options for a [`SharedTlsClient`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Trust in server certificates.
    pub trust: ServerTrust,
    /// Client certificate, if the server may request one.
    pub identity: Option<ClientCertificatePem>,
    /// Resume sessions of earlier connections of any user.
    pub resumption: bool,
    /// Offer TLS 1.2.
    pub tls12: bool,
    /// Offer TLS 1.3.
    pub tls13: bool,
}

impl Default for TlsOptions {
    fn default() -> Self {
        TlsOptions { trust: ServerTrust::Any, identity: None, resumption: true, tls12: true, tls13: true }
    }
}

/// Shared part of TLS connections. Clones share everything.
#[derive(Clone, Debug)]
pub struct SharedTlsClient {
    config: Arc<ClientConfig>,
    resumption: bool,
}

impl SharedTlsClient {
    /// Parses certificates and keys.
    ///
    /// # Errors
    /// InvalidInput with the reason: no certificate or key in the PEM, key and certificate do not match, no TLS
    /// version.
    pub fn new(options: &TlsOptions) -> io::Result<SharedTlsClient> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions: &[_] = match (options.tls12, options.tls13) {
            (true, true) => &[&TLS13, &TLS12],
            (false, true) => &[&TLS13],
            (true, false) => &[&TLS12],
            (false, false) => return Err(wrong("no TLS version is allowed")),
        };
        let verifier = Verifier::new(&options.trust, Arc::clone(&provider))?;
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .map_err(wrong)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &options.identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let key = PrivateKeyDer::from_pem_slice(&identity.key)
                    .map_err(|error| wrong(format!("no private key in the client's PEM: {error}")))?;
                builder.with_client_auth_cert(certificates(&identity.certificates)?, key).map_err(wrong)?
            }
        };
        config.resumption = if options.resumption {
            Resumption::store(Arc::new(SessionTickets::default()))
        } else {
            Resumption::disabled()
        };
        config.key_log = Arc::new(SecretCapture);
        // `tls_records` takes over after the handshake.
        config.enable_secret_extraction = true;
        Ok(SharedTlsClient { config: Arc::new(config), resumption: options.resumption })
    }

    pub(super) fn resumes(&self) -> bool {
        self.resumption
    }

    pub(super) fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }
}

fn wrong(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

fn certificates(pem: &[u8]) -> io::Result<Vec<CertificateDer<'static>>> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| wrong(format!("bad PEM: {error}")))?;
    if found.is_empty() { Err(wrong("no certificate in the PEM")) } else { Ok(found) }
}

/// Certificate verifier for a [`ServerTrust`].
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` accepts any certificate.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are trusted as such. webpki does not accept a self-signed one as an authority.
    known: Vec<CertificateDer<'static>>,
}

impl Verifier {
    fn new(trust: &ServerTrust, provider: Arc<CryptoProvider>) -> io::Result<Verifier> {
        let ServerTrust::Pem(pem) = trust else {
            return Ok(Verifier { provider, authorities: None, known: Vec::new() });
        };
        let known = certificates(pem)?;
        let mut roots = RootCertStore::empty();
        for certificate in &known {
            roots.add(certificate.clone()).map_err(wrong)?;
        }
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Verifier { provider, authorities: Some(authorities), known })
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        if self.known.iter().any(|known| known == end_entity) {
            let parsed = rustls::server::ParsedCertificate::try_from(end_entity)?;
            rustls::client::verify_server_name(&parsed, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
