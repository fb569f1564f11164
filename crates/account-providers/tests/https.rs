//! The HTTP provider over TLS: which certificates are trusted, and that nothing is sent to others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code outside of test functions")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use account_providers::http_service::{HttpAccounts, HttpOperations, HttpServiceSettings};
use account_providers::limiter::RequestLimits;
use account_providers::{HttpUrl, TrustedRoots, client_config};
use base::{ManualClock, Secret};
use environment::account_provider::{AccountProvider, PasswordCheck, ProviderErrorKind};
use jid::Jid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use throng_account_providers as account_providers;

/// A service that accepts every password.
struct TlsService {
    address: SocketAddr,
    /// Its certificate, which is its own authority, in a file.
    authorities: PathBuf,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
}

impl Drop for TlsService {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.authorities);
    }
}

fn make_certificate() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

impl TlsService {
    fn start(name: &str) -> TlsService {
        let (certificate, key) = make_certificate();
        let authorities =
            std::env::temp_dir().join(format!("throng-https-{}-{name}.pem", std::process::id()));
        std::fs::write(&authorities, &certificate).unwrap();
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, requests) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (accepted, answered) = (connections.clone(), requests.clone());
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                accepted.fetch_add(1, Ordering::SeqCst);
                let (tls, answered) = (ServerConnection::new(config.clone()).unwrap(), answered.clone());
                std::thread::spawn(move || serve(StreamOwned::new(tls, socket), &answered));
            }
        });
        TlsService { address, authorities, connections, requests }
    }

    fn provider(&self, url: &str, roots: TrustedRoots) -> HttpAccounts {
        let settings = HttpServiceSettings {
            url: HttpUrl::parse(url).unwrap(),
            token: Some(Secret::from("s3rver")),
            operations: HttpOperations { check_password: true, ..HttpOperations::default() },
            cache: Duration::ZERO,
            limits: RequestLimits { deadline: Duration::from_secs(5), ..RequestLimits::default() },
        };
        HttpAccounts::new(&settings, Some(client_config(&roots).unwrap()), Arc::new(ManualClock::new()))
            .unwrap()
    }
}

fn serve(mut stream: StreamOwned<ServerConnection, TcpStream>, answered: &AtomicUsize) {
    let mut request = Vec::new();
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        request.push(byte[0]);
        // The body is an object without others inside.
        if request.ends_with(b"}") {
            request.clear();
            answered.fetch_add(1, Ordering::SeqCst);
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"valid\":true}";
            if stream.write_all(response).is_err() {
                return;
            }
        }
    }
}

async fn check(provider: &HttpAccounts) -> Result<PasswordCheck, ProviderErrorKind> {
    let romeo = Jid::parse("romeo@example.net").unwrap();
    let checked = provider.check_password(romeo.as_ref(), Secret::from("0rchard")).await;
    checked.map_err(|error| error.kind)
}

#[tokio::test]
async fn a_service_with_a_trusted_certificate_is_used_over_one_connection() {
    let service = TlsService::start("trusted");
    let url = format!("https://{}/xmpp", service.address);
    let provider = service.provider(&url, TrustedRoots::File(service.authorities.clone()));
    for _ in 0..3 {
        assert!(matches!(check(&provider).await, Ok(PasswordCheck::Valid(_))));
    }
    assert_eq!(service.connections.load(Ordering::SeqCst), 1);
    assert_eq!(service.requests.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_service_that_is_not_trusted_receives_no_request() {
    let (service, other) = (TlsService::start("one"), TlsService::start("other"));
    let url = format!("https://{}", service.address);
    let named = format!("https://localhost:{}", service.address.port());
    for (url, roots) in [
        (&url, TrustedRoots::File(other.authorities.clone())),
        (&named, TrustedRoots::File(service.authorities.clone())),
    ] {
        assert_eq!(check(&service.provider(url, roots)).await, Err(ProviderErrorKind::Unavailable), "{url}");
    }
    assert_eq!(service.requests.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_service_without_tls_receives_no_request() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let plain = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut first = [0; 1];
        socket.read_exact(&mut first).unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        first[0]
    });
    let service = TlsService::start("plain");
    let roots = TrustedRoots::File(service.authorities.clone());
    let provider = service.provider(&format!("https://{address}"), roots);
    assert_eq!(check(&provider).await, Err(ProviderErrorKind::Unavailable));
    // A TLS record, not a request.
    assert_eq!(plain.join().unwrap(), 22);
}

#[test]
fn authorities_that_cannot_be_read_are_refused_with_the_name_of_the_file() {
    let file = std::env::temp_dir().join(format!("throng-https-{}-none.pem", std::process::id()));
    for content in [None, Some(""), Some("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")] {
        match content {
            Some(content) => std::fs::write(&file, content).unwrap(),
            None => drop(std::fs::remove_file(&file)),
        }
        let error = client_config(&TrustedRoots::File(file.clone())).unwrap_err();
        assert!(error.contains(&file.display().to_string()), "{error}");
    }
    std::fs::remove_file(&file).unwrap();
}
