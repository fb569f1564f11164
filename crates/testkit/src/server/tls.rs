//! Certificates and client TLS for [`super::TestServer`].
//!
//! Not implemented: TLS other than rustls's.
//!
//! # Pitfalls
//!
//! Certificates are generated for every node, so a client trusts only its own node.

use std::sync::Arc;

use net::tls::{TlsConfig, TlsSettings};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    OtherNameValue, SanType,
};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use super::{ScratchDir, TestServerConfig};
use crate::server::client::ClientIo;

/// Certificate of a client, as PEM.
#[derive(Clone, Debug)]
pub struct TlsClientIdentity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// Authority that issues client certificates.
pub struct ClientAuthority(CertifiedIssuer<'static, KeyPair>);

impl ClientAuthority {
    /// Generates an authority.
    /// The authority's own certificate.
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn new() -> ClientAuthority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        ClientAuthority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its own certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Issues a certificate with these addresses as `id-on-xmppAddr` (RFC 6120, section 13.7.1.4).
    ///
    /// # Panics
    /// If the system has no randomness.
    pub fn issue(&self, addresses: &[&str]) -> TlsClientIdentity {
        let mut params = CertificateParams::default();
        params.subject_alt_names = addresses
            .iter()
            .map(|text| {
                SanType::OtherName((
                    vec![1, 3, 6, 1, 5, 5, 7, 8, 5],
                    OtherNameValue::Utf8String((*text).to_owned()),
                ))
            })
            .collect();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        TlsClientIdentity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

impl Default for ClientAuthority {
    fn default() -> ClientAuthority {
        ClientAuthority::new()
    }
}

/// Settings of a client's TLS handshake.
#[derive(Clone, Debug, Default)]
pub struct TlsClientSettings {
    /// Use TLS 1.2 instead of 1.3.
    pub tls12: bool,
    /// Protocols to offer (RFC 7301).
    pub alpn: Vec<&'static str>,
    /// Certificate to present if requested.
    pub identity: Option<TlsClientIdentity>,
}

/// The server's TLS configuration and its certificate.
pub(super) fn server(setup: &TestServerConfig) -> (Arc<TlsConfig>, Vec<u8>) {
    let directory = ScratchDir::new();
    let authorities = setup.client_authority.as_ref().map(|pem| {
        let path = directory.0.join("clients.pem");
        std::fs::write(&path, pem).expect("a writable directory");
        path
    });
    let config = TlsConfig::load(TlsSettings {
        domains: setup.domains.iter().map(|d| (*d).to_owned()).collect(),
        self_signed_directory: directory.0.clone(),
        client_authorities: authorities,
        ..TlsSettings::default()
    })
    .expect("a TLS configuration");
    let path = directory.0.join("self-signed-cert.pem");
    let certificate = CertificateDer::from_pem_file(path).expect("the certificate just made");
    (Arc::new(config), certificate.to_vec())
}

/// Performs the handshake; also returns the channel binding data: `tls-exporter`, then `tls-server-end-point`.
pub(super) async fn connect(
    io: Box<dyn ClientIo>,
    domain: &str,
    certificate: &[u8],
    client: &TlsClientSettings,
) -> std::io::Result<(TlsStream<Box<dyn ClientIo>>, Vec<u8>, Vec<u8>)> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate.to_vec())).expect("a certificate");
    let versions = if client.tls12 { &[&rustls::version::TLS12] } else { &[&rustls::version::TLS13] };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .expect("versions of the provider")
        .with_root_certificates(roots);
    let mut config = match &client.identity {
        Some(identity) => {
            let shown = CertificateDer::from_pem_slice(identity.certificate.as_bytes()).expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(vec![shown], key).expect("a pair")
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = client.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(domain.to_owned()).expect("a domain");
    let stream = TlsConnector::from(Arc::new(config)).connect(name, io).await?;
    let (_, session) = stream.get_ref();
    let exporter = session
        // RFC 9266, section 2.
        .export_keying_material([0_u8; 32], b"EXPORTER-Channel-Binding", None)
        .expect("a finished handshake");
    // RFC 5929, section 4.1: the hash function of the signature, which is ECDSA with SHA-256 here.
    let end_point = ring::digest::digest(&ring::digest::SHA256, certificate).as_ref().to_vec();
    Ok((stream, exporter.to_vec(), end_point))
}
