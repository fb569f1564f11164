//! Tests of server trust, client certificates, and certificate hashes.

use ring::digest;
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;

use super::*;
use crate::socket::end_point::server_end_point;

/// Result of a handshake with this trust and name.
fn attempt(made: &Made, trust: ServerTrust, name: &str) -> io::Result<()> {
    let config = server_config(made);
    let (address, server) = serve(move |listener| {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
        while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
    });
    let mut peer = Client::connect(address).with_tls(&client(|options| options.trust = trust), name, false);
    let result = peer.handshake();
    drop(peer);
    server.join().unwrap();
    result
}

#[test]
fn certificates_are_verified_as_configured() {
    let own = self_signed(NAME);
    let (authority, leaf) = signed(NAME);
    let (other_authority, _) = signed(NAME);
    let own_pem = own.identity.certificates.clone();
    let good = [
        (&own, ServerTrust::Any, NAME),
        (&own, ServerTrust::Any, "other.test"),
        (&own, ServerTrust::Any, "127.0.0.1"),
        (&own, ServerTrust::Pem(own_pem.clone()), NAME),
        (&leaf, ServerTrust::Pem(authority.clone()), NAME),
        (&leaf, ServerTrust::Pem([own_pem.clone(), authority.clone()].concat()), NAME),
    ];
    for (made, trust, name) in good {
        attempt(made, trust.clone(), name).unwrap_or_else(|error| panic!("{name} {trust:?}: {error}"));
    }
    let bad = [
        (&own, ServerTrust::Pem(own_pem.clone()), "other.test"),
        (&own, ServerTrust::Pem(authority.clone()), NAME),
        (&leaf, ServerTrust::Pem(authority), "other.test"),
        (&leaf, ServerTrust::Pem(other_authority), NAME),
        (&leaf, ServerTrust::Pem(own_pem), NAME),
    ];
    for (made, trust, name) in bad {
        let error = attempt(made, trust, name).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let inner = error.get_ref().unwrap().downcast_ref::<rustls::Error>();
        assert!(matches!(inner, Some(rustls::Error::InvalidCertificate(_))), "{error}");
    }
}

#[test]
fn inconsistent_options_are_refused() {
    let made = self_signed(NAME);
    let other = self_signed(NAME);
    let refused = |change: &dyn Fn(&mut TlsOptions)| {
        let mut options = TlsOptions::default();
        change(&mut options);
        let error = SharedTlsClient::new(&options).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    };
    refused(&|options| (options.tls12, options.tls13) = (false, false));
    refused(&|options| options.trust = ServerTrust::Pem(b"no PEM".to_vec()));
    refused(&|options| options.trust = ServerTrust::Pem(made.identity.key.clone()));
    refused(&|options| {
        let key = made.identity.certificates.clone();
        options.identity = Some(ClientCertificatePem { key, ..made.identity.clone() });
    });
    refused(&|options| {
        let key = other.identity.key.clone();
        options.identity = Some(ClientCertificatePem { key, ..made.identity.clone() });
    });
    let (address, server) = serve(|listener| drop(listener.accept().unwrap()));
    let mut peer = Client::connect(address);
    let error = peer.socket.start_tls(&client(|_| {}), "no name", None, &mut peer.scratch).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(!peer.socket.is_secure());
    server.join().unwrap();
}

#[test]
fn a_client_certificate_is_sent_on_request() {
    for tls13 in [true, false] {
        let (authority, user) = signed("romeo.test");
        let made = self_signed(NAME);
        let config = move || {
            let mut roots = RootCertStore::empty();
            use rustls::pki_types::pem::PemObject as _;
            roots.add(CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            ServerConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_client_cert_verifier(verifier.build().unwrap())
                .with_single_cert(vec![made.certificate.clone()], made.key.clone_key())
                .unwrap()
        };
        let (address, server) =
            serve_tls(config(), |stream| stream.conn.peer_certificates().unwrap()[0].clone());
        let identity = Some(user.identity.clone());
        let mut peer =
            Client::secure(address, &client(|options| (options.identity, options.tls13) = (identity, tls13)));
        assert_eq!(server.join().unwrap(), user.certificate);
        // With TLS 1.3 tickets may still arrive; only the end matters.
        assert_eq!(peer.read_end().unwrap(), ReadEnd::Cut);

        // Without one the server refuses: within the handshake of TLS 1.2, after it in TLS 1.3.
        let (address, server) = serve({
            let config = config();
            move |listener| {
                let (mut stream, _) = listener.accept().unwrap();
                let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
                while connection.is_handshaking() && connection.complete_io(&mut stream).is_ok() {}
                connection.is_handshaking()
            }
        });
        let mut peer =
            Client::connect(address).with_tls(&client(|options| options.tls13 = tls13), NAME, false);
        let error = peer.read_end().unwrap_err();
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        assert!(matches!(inner, Some(rustls::Error::AlertReceived(_))), "{error}");
        assert!(server.join().unwrap());
    }
}

/// DER encoding of a tag with its content.
fn der(tag: u8, content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=127 => out.push(short as u8),
        long @ 128..=255 => out.extend([0x81, long as u8]),
        long => out.extend([0x82, (long >> 8) as u8, long as u8]),
    }
    out.extend(content);
    out
}

/// Certificate with the parts that the hash examines: RFC 5280, section 4.1.
fn certificate(algorithm: &[u8], parameters: &[u8], body: usize) -> Vec<u8> {
    let algorithm = der(0x30, &[&der(6, &[algorithm]), parameters]);
    der(0x30, &[&der(0x30, &[&vec![0x55; body]]), &algorithm, &der(3, &[&[0; 65]])])
}

#[test]
fn the_end_point_is_hashed_as_the_certificate_was_signed() {
    let rsa = |last: u8| vec![0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last];
    let ecdsa = |last: u8| vec![0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, last];
    let sha2 = |last: u8| vec![0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, last];
    let (sha256, sha384, sha512) = (&digest::SHA256, &digest::SHA384, &digest::SHA512);
    let cases = [
        (rsa(4), sha256),
        (rsa(5), sha256),
        (rsa(11), sha256),
        (rsa(12), sha384),
        (rsa(13), sha512),
        (vec![0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1], sha256),
        (ecdsa(2), sha256),
        (ecdsa(3), sha384),
        (ecdsa(4), sha512),
    ];
    for body in [3, 200, 1_000] {
        for (algorithm, hash) in &cases {
            let made = certificate(algorithm, &[5, 0], body);
            let expected = digest::digest(hash, &made);
            assert_eq!(server_end_point(&made).as_deref(), Some(expected.as_ref()), "{algorithm:x?}");
            assert_eq!(server_end_point(&made[..made.len() - 1]), None, "cut off");
        }
    }
    // RSASSA-PSS: the hash is in the parameters; the default is SHA-1, thus SHA-256.
    for (name, hash) in [(sha2(1), sha256), (sha2(2), sha384), (sha2(3), sha512)] {
        let parameters = der(0x30, &[&der(0xa0, &[&der(0x30, &[&der(6, &[&name])])])]);
        let made = certificate(&rsa(10), &parameters, 300);
        assert_eq!(server_end_point(&made).as_deref(), Some(digest::digest(hash, &made).as_ref()));
    }
    let made = certificate(&rsa(10), &der(0x30, &[]), 300);
    assert_eq!(server_end_point(&made).as_deref(), Some(digest::digest(sha256, &made).as_ref()));
    // Ed25519 has no separate hash function.
    assert_eq!(server_end_point(&certificate(&[0x2b, 0x65, 0x70], &[], 100)), None);
    for garbage in [&b""[..], b"0", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"\x30\x02\x30\x00"] {
        assert_eq!(server_end_point(garbage), None);
    }
}
