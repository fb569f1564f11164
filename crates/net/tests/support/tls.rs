//! Certificates, configurations and clients for the TLS tests.

// The file and not the crate, which depends on this one.
#[path = "../../../testkit/src/tls.rs"]
#[allow(clippy::expect_used, reason = "tests of this crate use the verifier only")]
mod accept_any;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, SupportedProtocolVersion};
use throng_net::tls::{CertificateFiles, TlsConfig, TlsSettings};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;

/// A directory that is removed after the test.
pub struct CertificateDir(pub PathBuf);

impl CertificateDir {
    pub fn new() -> CertificateDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("throng-net-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        CertificateDir(path)
    }

    /// A certificate for these names, as files.
    pub fn certificate(&self, file: &str, domains: &[&str]) -> CertificateFiles {
        let names: Vec<String> = domains.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        self.write(file, &made.cert.pem(), &made.signing_key.serialize_pem())
    }

    pub fn write(&self, file: &str, certificate: &str, key: &str) -> CertificateFiles {
        let files = CertificateFiles {
            certificate: self.0.join(format!("{file}.pem")),
            key: self.0.join(format!("{file}.key")),
        };
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        files
    }
}

impl Drop for CertificateDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub fn domains(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

pub fn self_signed(directory: &Path, names: &[&str]) -> TlsSettings {
    TlsSettings {
        domains: domains(names),
        self_signed_directory: directory.to_owned(),
        ..TlsSettings::default()
    }
}

/// One configuration shared by most tests; generating keys takes time.
pub static CONFIG: LazyLock<TlsConfig> = LazyLock::new(|| {
    let directory = CertificateDir::new();
    TlsConfig::load(self_signed(&directory.0, &["example.org"])).unwrap()
});

/// Options of a test client.
#[derive(Default)]
pub struct RustlsTestClient {
    pub version: Option<&'static SupportedProtocolVersion>,
    pub alpn: &'static [&'static str],
    pub name: Option<&'static str>,
    /// Send no SNI.
    pub nameless: bool,
    pub certificate: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    /// Another choice of cipher suites.
    pub provider: Option<rustls::crypto::CryptoProvider>,
    /// Split handshake messages and records into pieces of this size.
    pub fragment: Option<usize>,
}

impl RustlsTestClient {
    pub fn config(self) -> ClientConfig {
        let provider = Arc::new(self.provider.unwrap_or_else(rustls::crypto::ring::default_provider));
        let versions = self.version.map_or_else(|| rustls::ALL_VERSIONS.to_vec(), |version| vec![version]);
        let versions: Vec<_> = versions
            .into_iter()
            .filter(|version| provider.cipher_suites.iter().any(|suite| suite.version() == *version))
            .collect();
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&versions)
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(accept_any::AcceptAnyCertificate(provider)));
        let mut config = match self.certificate {
            Some((certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config.enable_sni = !self.nameless;
        config.max_fragment_size = self.fragment;
        config
    }

    pub async fn connect<I: AsyncRead + AsyncWrite + Unpin>(self, io: I) -> std::io::Result<TlsStream<I>> {
        let name = ServerName::try_from(self.name.unwrap_or("example.org")).unwrap();
        TlsConnector::from(Arc::new(self.config())).connect(name, io).await
    }
}

/// Runs the server's side of a handshake.
pub async fn handshake(server: &mut Stream) -> Result<(), NetError> {
    poll_fn(|cx| {
        with_scratch(|scratch| {
            let polled = match server.poll_event(cx, scratch) {
                Poll::Ready(Ok(event)) => panic!("{event:?} before the end of the handshake"),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending if server.info().secure => Poll::Ready(Ok(())),
                Poll::Pending => Poll::Pending,
            };
            server.release_buffers(scratch)?;
            polled
        })
    })
    .await
}

/// A direct TLS connection over TCP.
pub async fn connect(
    config: &TlsConfig,
    kind: ListenerKind,
    client: RustlsTestClient,
) -> (Stream, Result<(), NetError>, std::io::Result<TlsStream<tokio::net::TcpStream>>) {
    let (server, io) = tcp_pair().await;
    let peer = server.peer_addr().unwrap();
    let mut server = Stream::tls(server, peer, port(|port| port.kind = kind), config).unwrap();
    // The client's error closes the socket, which ends a server that waits for more.
    let (done, client) = tokio::join!(handshake(&mut server), client.connect(io));
    (server, done, client)
}

/// TLS 1.3 from the first byte over TCP.
pub async fn tls(port: SharedListenerConfig) -> StreamPair {
    let (server, io) = tcp_pair().await;
    let peer = server.peer_addr().unwrap();
    let mut server = Stream::tls(server, peer, port, &CONFIG).unwrap();
    let (done, client) = tokio::join!(handshake(&mut server), RustlsTestClient::default().connect(io));
    done.unwrap();
    StreamPair { server, client: Box::new(client.unwrap()) }
}

/// TLS 1.2 by STARTTLS over memory.
pub async fn starttls12(port: SharedListenerConfig) -> StreamPair {
    let (mut server, io) = Stream::memory(port, 16_384);
    with_scratch(|scratch| server.start_tls(&CONFIG, None, scratch)).unwrap();
    let client = RustlsTestClient { version: Some(&rustls::version::TLS12), ..RustlsTestClient::default() };
    let (done, client) = tokio::join!(handshake(&mut server), client.connect(io));
    done.unwrap();
    StreamPair { server, client: Box::new(client.unwrap()) }
}
