//! TLS tests: versions, names, channel binding, client certificates, reload. `tls_hostile.rs` has invalid input.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

mod support;

use std::os::unix::fs::PermissionsExt;

use ring::digest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use support::tls::*;
use support::*;
use throng_net::tls::{CertificateFiles, TlsConfig, TlsReloadOutcome, TlsSettings};
use throng_net::{ChannelBinding, ListenerKind, NetError, Stream, Transport, with_scratch};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const OPEN: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";

fn presented<I>(client: &TlsStream<I>) -> CertificateDer<'static> {
    client.get_ref().1.peer_certificates().unwrap()[0].clone()
}

fn stored(files: &CertificateFiles) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(&files.certificate).unwrap()
}

#[tokio::test]
async fn both_ends_export_the_same_binding_on_tls_13() {
    for fragment in [None, Some(64)] {
        let client = RustlsTestClient { version: Some(&TLS13), fragment, ..RustlsTestClient::default() };
        let (server, done, client) = connect(&CONFIG, ListenerKind::C2sTls, client).await;
        done.unwrap();
        let client = client.unwrap();
        let theirs: [u8; 32] = client
            .get_ref()
            .1
            .export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(b""))
            .unwrap();
        let binding = server.channel_binding();
        assert_eq!(binding.exporter, Some(&theirs));
        let hash = digest::digest(&digest::SHA256, &presented(&client));
        assert_eq!(binding.server_end_point, Some(hash.as_ref()));
        let info = server.tls_info().unwrap();
        assert_eq!((info.version, info.server_name), ("TLSv1.3", Some("example.org")));
        assert!(info.cipher_suite.starts_with("TLS13_"), "{info:?}");
        assert!(server.info().secure && server.info().transport == Transport::Tls);
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-13.9.5
//= type=test
//# Because of known security vulnerabilities, XMPP servers and clients MUST NOT request, offer, or use SSL 2.0.
#[tokio::test]
async fn every_cipher_suite_works_and_binds() {
    for suite in rustls::crypto::ring::ALL_CIPHER_SUITES {
        let (server, io) = tcp_pair().await;
        let peer = server.peer_addr().unwrap();
        let mut server =
            Stream::tls(server, peer, port(|port| port.kind = ListenerKind::C2sTls), &CONFIG).unwrap();
        let provider = rustls::crypto::CryptoProvider {
            cipher_suites: vec![*suite],
            ..rustls::crypto::ring::default_provider()
        };
        if suite.suite().as_str().unwrap().contains("RSA") {
            // The server's certificate is ECDSA; there is no common cipher suite.
            continue;
        }
        let client = RustlsTestClient { provider: Some(provider), ..RustlsTestClient::default() }.connect(io);
        let (done, client) = tokio::join!(handshake(&mut server), client);
        done.unwrap();
        let client = client.unwrap();
        let theirs: [u8; 32] = client
            .get_ref()
            .1
            .export_keying_material([0; 32], b"EXPORTER-Channel-Binding", Some(b""))
            .unwrap();
        let ours = server.channel_binding().exporter;
        assert_eq!(ours, suite.tls13().map(|_| &theirs), "{suite:?}");
    }
}

#[tokio::test]
async fn tls_12_has_the_end_point_but_no_exporter() {
    let client = RustlsTestClient { version: Some(&TLS12), ..RustlsTestClient::default() };
    let (server, done, client) = connect(&CONFIG, ListenerKind::C2sTls, client).await;
    done.unwrap();
    let hash = digest::digest(&digest::SHA256, &presented(&client.unwrap()));
    let expected = ChannelBinding { exporter: None, server_end_point: Some(hash.as_ref()) };
    assert_eq!(server.channel_binding(), expected);
    assert_eq!(server.tls_info().unwrap().version, "TLSv1.2");
}

#[tokio::test]
async fn alpn_must_be_xmpp_or_absent() {
    let accepted: &[(ListenerKind, &[&str], Option<&str>)] = &[
        (ListenerKind::C2sTls, &["xmpp-client"], Some("xmpp-client")),
        (ListenerKind::C2sTls, &["http/1.1", "xmpp-client"], Some("xmpp-client")),
        (ListenerKind::C2sTls, &[], None),
        (ListenerKind::S2sTls, &["xmpp-server"], Some("xmpp-server")),
    ];
    for (kind, offer, chosen) in accepted {
        let client = RustlsTestClient { alpn: offer, ..RustlsTestClient::default() };
        let (_server, done, client) = connect(&CONFIG, *kind, client).await;
        done.unwrap();
        let client = client.unwrap();
        assert_eq!(client.get_ref().1.alpn_protocol(), chosen.map(str::as_bytes), "{kind:?} {offer:?}");
    }
    let refused: &[(ListenerKind, &[&str])] = &[
        (ListenerKind::C2sTls, &["http/1.1"]),
        (ListenerKind::C2sTls, &["xmpp-server"]),
        (ListenerKind::S2sTls, &["xmpp-client"]),
    ];
    for (kind, offer) in refused {
        let client = RustlsTestClient { alpn: offer, ..RustlsTestClient::default() };
        let (_server, done, client) = connect(&CONFIG, *kind, client).await;
        assert!(matches!(done, Err(NetError::Tls(_))), "{done:?}");
        let alert = client.unwrap_err().to_string();
        assert!(alert.contains("NoApplicationProtocol"), "the client must learn why: {alert}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-5.4.3.1
//= type=test
//# When using any of the mandatory-to-implement (MTI) ciphersuites specified under Section 13.8, the receiving
//# entity MUST present a certificate.
//= https://www.rfc-editor.org/rfc/rfc6120#section-13.7.1.2.1
//= type=test
//# Support for the DNS-ID identifier type [PKIX] is REQUIRED in XMPP client and server software implementations.
#[tokio::test]
async fn sni_selects_the_certificate() {
    let directory = CertificateDir::new();
    let plain = directory.certificate("plain", &["example.org", "conference.example.org"]);
    let wild = directory.certificate("wild", &["*.example.net"]);
    let config = TlsConfig::load(TlsSettings {
        domains: domains(&["a.example.net", "example.org", "elsewhere.example"]),
        certificates: vec![plain.clone(), wild.clone()],
        ..TlsSettings::default()
    })
    .unwrap();
    assert_eq!(config.uncovered_domains(), ["elsewhere.example"]);
    let cases: [(Option<&'static str>, &CertificateFiles); 6] = [
        (Some("example.org"), &plain),
        (Some("Conference.Example.ORG"), &plain),
        (Some("b.example.net"), &wild),
        // The default is the certificate of the first domain.
        (Some("elsewhere.example"), &wild),
        (Some("two.labels.example.net"), &wild),
        (None, &wild),
    ];
    for (name, files) in cases {
        let client = RustlsTestClient { name, nameless: name.is_none(), ..RustlsTestClient::default() };
        let (_server, done, client) = connect(&config, ListenerKind::C2sTls, client).await;
        done.unwrap();
        assert_eq!(presented(&client.unwrap()), stored(files), "asked for {name:?}");
    }
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-5.4.3.1
//= type=test
//# The receiving entity SHOULD choose which certificate to present based on the domainpart contained in the 'to'
//# attribute of the initial stream header
#[tokio::test]
async fn without_sni_the_stream_header_selects_the_certificate() {
    let directory = CertificateDir::new();
    let files = [directory.certificate("a", &["a.example"]), directory.certificate("b", &["b.example"])];
    let config = TlsConfig::load(TlsSettings {
        domains: domains(&["a.example", "b.example"]),
        certificates: files.to_vec(),
        ..TlsSettings::default()
    })
    .unwrap();
    let cases = [(true, "b.example", 1), (true, "nowhere.example", 0), (false, "b.example", 0)];
    for (nameless, domain, expected) in cases {
        let (mut server, io) = Stream::memory(port(|_| {}), 16_384);
        with_scratch(|scratch| server.start_tls(&config, Some(domain), scratch)).unwrap();
        let client = RustlsTestClient { nameless, name: Some("a.example"), ..RustlsTestClient::default() };
        let (done, client) = tokio::join!(handshake(&mut server), client.connect(io));
        done.unwrap();
        assert_eq!(presented(&client.unwrap()), stored(&files[expected]));
    }
}

#[tokio::test]
async fn new_certificate_files_apply_to_new_connections_and_broken_ones_are_ignored() {
    let directory = CertificateDir::new();
    let first = directory.certificate("served", &["example.org"]);
    let config = TlsConfig::load(TlsSettings {
        domains: domains(&["example.org"]),
        certificates: vec![first.clone()],
        ..TlsSettings::default()
    })
    .unwrap();
    let before = stored(&first);
    let (mut old_server, done, old_client) =
        connect(&config, ListenerKind::C2sTls, RustlsTestClient::default()).await;
    done.unwrap();
    let mut old_client = old_client.unwrap();
    assert_eq!(config.reload(), TlsReloadOutcome::Unchanged);

    // Half-way through a renewal: the certificate is replaced, the key not yet.
    let next = directory.certificate("next", &["example.org"]);
    std::fs::rename(&next.certificate, &first.certificate).unwrap();
    let TlsReloadOutcome::Rejected(reason) = config.reload() else {
        panic!("a pair that does not match was taken")
    };
    assert!(reason.contains("served.key") && reason.contains("does not match"), "{reason}");
    assert_eq!(config.reload(), TlsReloadOutcome::Unchanged, "the same fault is reported once");
    let (_server, done, client) = connect(&config, ListenerKind::C2sTls, RustlsTestClient::default()).await;
    done.unwrap();
    assert_eq!(presented(&client.unwrap()), before);

    std::fs::rename(&next.key, &first.key).unwrap();
    assert_eq!(config.reload(), TlsReloadOutcome::Reloaded);
    let (_server, done, client) = connect(&config, ListenerKind::C2sTls, RustlsTestClient::default()).await;
    done.unwrap();
    let after = stored(&first);
    assert_ne!(before, after);
    assert_eq!(presented(&client.unwrap()), after);

    std::fs::remove_file(&first.key).unwrap();
    assert!(matches!(config.reload(), TlsReloadOutcome::Rejected(reason) if reason.contains("served.key")));

    // The old connection is not affected.
    write(&mut old_client, OPEN.as_bytes()).await;
    assert_eq!(next_event(&mut old_server).await, OwnedEvent::Open(OPEN.into()));
    let hash = digest::digest(&digest::SHA256, &before);
    assert_eq!(old_server.channel_binding().server_end_point, Some(hash.as_ref()));
}

async fn next_event(server: &mut Stream) -> OwnedEvent {
    support::next(server).await.unwrap()
}

#[test]
fn unusable_files_are_named() {
    let directory = CertificateDir::new();
    let good = directory.certificate("good", &["example.org"]);
    let missing = directory.0.join("missing.pem");
    let empty = directory.write("empty", "", "");
    let not_pem =
        directory.write("noise", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "x");
    let cases = [
        (CertificateFiles { certificate: missing.clone(), ..good.clone() }, "missing.pem"),
        (CertificateFiles { key: missing, ..good.clone() }, "missing.pem"),
        (CertificateFiles { certificate: empty.certificate, ..good.clone() }, "empty.pem"),
        (CertificateFiles { key: empty.key, ..good.clone() }, "empty.key"),
        (not_pem, "noise.pem"),
        (
            CertificateFiles { key: directory.certificate("other", &["example.org"]).key, ..good },
            "does not match",
        ),
    ];
    for (files, part) in cases {
        let settings = TlsSettings { certificates: vec![files], ..TlsSettings::default() };
        let error = TlsConfig::load(settings).unwrap_err().to_string();
        assert!(error.contains(part), "{error:?} does not say {part:?}");
    }
}

#[test]
fn a_self_signed_certificate_is_kept_private_and_renewed_for_new_domains() {
    let directory = CertificateDir::new();
    let home = directory.0.join("not/there/yet");
    let read = || std::fs::read_to_string(home.join("self-signed-cert.pem")).unwrap();
    let config = TlsConfig::load(self_signed(&home, &["example.org"])).unwrap();
    assert!(config.uncovered_domains().is_empty());
    let first = read();
    let mode = std::fs::metadata(home.join("self-signed-key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    TlsConfig::load(self_signed(&home, &["example.org"])).unwrap();
    assert_eq!(read(), first, "a restart must not change the certificate");
    let config = TlsConfig::load(self_signed(&home, &["example.org", "example.net"])).unwrap();
    assert!(config.uncovered_domains().is_empty());
    assert_ne!(read(), first);
    // A damaged pair is replaced.
    std::fs::write(home.join("self-signed-key.pem"), "").unwrap();
    TlsConfig::load(self_signed(&home, &["example.org", "example.net"])).unwrap();
    let mode = std::fs::metadata(home.join("self-signed-key.pem")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// 2026-11-22.
const NOW: u64 = 1_795_305_600;
const DAY: u64 = 86_400;

#[test]
fn a_self_signed_certificate_is_recognised_and_valid_for_thirteen_months() {
    use x509_cert::der::Decode;
    let directory = CertificateDir::new();
    let names = ["example.org", "b\u{fc}cher.example", "192.0.2.1"];
    let config = TlsConfig::load_at(self_signed(&directory.0, &names), NOW).unwrap();
    assert!(config.uncovered_domains().is_empty());
    let [shown] = config.certificates().try_into().unwrap();
    assert!(shown.is_self_signed && shown.file == directory.0.join("self-signed-cert.pem"));
    assert_eq!((shown.not_before, shown.not_after), (NOW - DAY, NOW + 395 * DAY));
    let pem = CertificateDer::from_pem_file(&shown.file).unwrap();
    let hash = digest::digest(&digest::SHA256, &pem);
    let plain: String = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(shown.sha256.replace(':', ""), plain);
    assert_eq!(shown.sha256.len(), 95, "{}", shown.sha256);
    let parsed = x509_cert::Certificate::from_der(&pem).unwrap();
    let subject = parsed.tbs_certificate().subject().to_string();
    assert!(
        subject.contains("CN=example.org") && subject.contains("O=Throng self-signed certificate"),
        "{subject}"
    );
    assert_eq!(parsed.tbs_certificate().issuer().to_string(), subject);
    for name in ["example.org", "xn--bcher-kva.example", "b\u{fc}cher.example", "192.0.2.1"] {
        assert!(shown.names.iter().any(|known| known == name), "{name} is not in {:?}", shown.names);
    }
    // It is stored, with addresses and other scripts.
    TlsConfig::load_at(self_signed(&directory.0, &names), NOW + DAY).unwrap();
    assert_eq!(CertificateDer::from_pem_file(&shown.file).unwrap(), pem);
}

#[test]
fn a_self_signed_certificate_is_renewed_with_its_key_before_it_expires() {
    let directory = CertificateDir::new();
    let config = TlsConfig::load_at(self_signed(&directory.0, &["example.org"]), NOW).unwrap();
    let key = || std::fs::read_to_string(directory.0.join("self-signed-key.pem")).unwrap();
    let (first, first_key) = (config.certificates().remove(0), key());
    assert_eq!(config.reload_at(NOW + 364 * DAY), TlsReloadOutcome::Unchanged);
    let later = NOW + 365 * DAY;
    assert_eq!(config.reload_at(later), TlsReloadOutcome::Reloaded, "30 days before the end");
    let second = config.certificates().remove(0);
    assert_eq!(second.not_after, later + 395 * DAY);
    assert_ne!(first.sha256, second.sha256);
    assert_eq!(key(), first_key, "who trusts the key notices nothing");
    assert_eq!(config.reload_at(later), TlsReloadOutcome::Unchanged);
}

#[test]
fn a_failed_renewal_retains_the_certificate_and_is_retried_after_an_hour() {
    let directory = CertificateDir::new();
    let home = directory.0.join("home");
    let config = TlsConfig::load_at(self_signed(&home, &["example.org"]), NOW).unwrap();
    std::fs::remove_dir_all(&home).unwrap();
    // No directory can be created there.
    std::fs::write(&home, "").unwrap();
    let later = NOW + 380 * DAY;
    assert!(
        matches!(config.reload_at(later), TlsReloadOutcome::Rejected(reason) if reason.contains("self-signed"))
    );
    assert_eq!(config.reload_at(later + 5), TlsReloadOutcome::Unchanged, "it is said once an hour");
    assert!(matches!(config.reload_at(later + 3600), TlsReloadOutcome::Rejected(_)));
    std::fs::remove_file(&home).unwrap();
    assert_eq!(config.reload_at(later + 7200), TlsReloadOutcome::Reloaded);
}

#[test]
fn a_certificate_without_expiry_is_replaced_and_inspection_writes_nothing() {
    let directory = CertificateDir::new();
    let endless = directory.certificate("endless", &["example.org"]);
    let home = directory.0.join("home");
    assert!(TlsConfig::inspect(self_signed(&home, &["example.org"])).unwrap().is_none());
    assert!(!home.exists());
    std::fs::create_dir(&home).unwrap();
    std::fs::copy(&endless.certificate, home.join("self-signed-cert.pem")).unwrap();
    std::fs::copy(&endless.key, home.join("self-signed-key.pem")).unwrap();
    assert!(TlsConfig::inspect(self_signed(&home, &["example.org"])).unwrap().is_none(), "valid until 4096");
    let config = TlsConfig::load(self_signed(&home, &["example.org"])).unwrap();
    let shown = config.certificates().remove(0);
    assert!(shown.not_after - shown.not_before < 398 * DAY);
    let seen = TlsConfig::inspect(self_signed(&home, &["example.org"])).unwrap().unwrap();
    assert_eq!(seen.certificates(), [shown]);
}

#[tokio::test]
async fn starttls_goes_from_plaintext_to_tls() {
    let (server, mut io) = tcp_pair().await;
    let peer = server.peer_addr().unwrap();
    let mut server = Stream::tcp(server, peer, port(|_| {}));
    write(&mut io, format!("{OPEN}<starttls/>").as_bytes()).await;
    assert_eq!(next_event(&mut server).await, OwnedEvent::Open(OPEN.into()));
    assert_eq!(next_event(&mut server).await, element("<starttls/>"));
    assert!(!server.info().secure);
    assert_eq!(server.channel_binding(), ChannelBinding::default());
    with_scratch(|scratch| {
        // Not flushed, but it must leave before the first record.
        server.queue(b"<proceed/>", scratch);
        server.start_tls(&CONFIG, Some("example.org"), scratch).unwrap();
        server.release_buffers(scratch).unwrap();
    });
    assert!(!server.info().secure, "no handshake, no security");
    let talk = async {
        assert_eq!(read_exactly(&mut io, 10).await, b"<proceed/>");
        RustlsTestClient::default().connect(io).await.unwrap()
    };
    let (done, mut client) = tokio::join!(handshake(&mut server), talk);
    done.unwrap();
    assert!(server.info().secure);
    write(&mut client, OPEN.as_bytes()).await;
    assert_eq!(next_event(&mut server).await, OwnedEvent::Open(OPEN.into()));
    let again = with_scratch(|scratch| server.start_tls(&CONFIG, None, scratch));
    assert!(matches!(again, Err(NetError::AlreadyEncrypted)));
    send(&mut server, b"<still-here/>").await.unwrap();
    assert_eq!(read_exactly(&mut client, 13).await, b"<still-here/>");
}

#[tokio::test]
async fn plaintext_after_starttls_is_refused() {
    // In one read with it, and split, so that the rest is stashed when TLS begins.
    for (behind, parked) in
        [("<auth>now</auth>", false), ("<au", true), ("<auth>now</auth>", true), (" ", false)]
    {
        let (mut server, mut io) = Stream::memory(port(|_| {}), 16_384);
        write(&mut io, format!("{OPEN}<starttls/>{behind}").as_bytes()).await;
        let refused = std::future::poll_fn(|cx| {
            with_scratch(|scratch| {
                for _ in 0..2 {
                    assert!(server.poll_event(cx, scratch).is_ready());
                }
                if parked {
                    server.release_buffers(scratch).unwrap();
                }
                std::task::Poll::Ready(server.start_tls(&CONFIG, None, scratch))
            })
        })
        .await;
        assert!(matches!(refused, Err(NetError::PlaintextAfterStartTls)), "{behind:?} {parked}: {refused:?}");
    }
}

#[tokio::test]
async fn plaintext_instead_of_a_handshake_never_becomes_an_event() {
    // These bytes were still in the kernel when TLS began.
    let (mut server, mut io) = Stream::memory(port(|_| {}), 16_384);
    write(&mut io, format!("{OPEN}<starttls/>").as_bytes()).await;
    next_event(&mut server).await;
    next_event(&mut server).await;
    write(&mut io, b"<auth>injected</auth>").await;
    with_scratch(|scratch| server.start_tls(&CONFIG, None, scratch)).unwrap();
    assert!(matches!(support::next(&mut server).await, Err(NetError::Tls(_))));
}

/// An authority and certificates signed by it.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::new(params, key), pem }
    }

    fn sign(
        &self,
        change: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        change(&mut params);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

fn xmpp_address(text: &str) -> rcgen::SanType {
    let value = rcgen::OtherNameValue::Utf8String(text.to_owned());
    rcgen::SanType::OtherName((vec![1, 3, 6, 1, 5, 5, 7, 8, 5], value))
}

#[tokio::test]
async fn only_a_trusted_client_certificate_provides_names() {
    let directory = CertificateDir::new();
    let (ours, foreign) = (Authority::new(), Authority::new());
    let bundle = directory.0.join("authorities.pem");
    std::fs::write(&bundle, &ours.pem).unwrap();
    let config = TlsConfig::load(TlsSettings {
        client_authorities: Some(bundle.clone()),
        server_authorities: Some(bundle),
        ..self_signed(&directory.0, &["example.org"])
    })
    .unwrap();
    let romeo = |params: &mut rcgen::CertificateParams| {
        params.subject_alt_names = vec![
            xmpp_address("romeo@example.org"),
            xmpp_address("montague@example.org"),
            rcgen::SanType::Rfc822Name("romeo@mail.example".try_into().unwrap()),
        ];
    };
    let server_only = |params: &mut rcgen::CertificateParams| {
        params.subject_alt_names = vec![rcgen::SanType::DnsName("example.net".try_into().unwrap())];
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    };
    for version in [&TLS12, &TLS13] {
        let mut seen = Vec::new();
        let attempts = [
            (ListenerKind::C2sTls, Some(ours.sign(romeo))),
            (ListenerKind::C2sTls, Some(foreign.sign(romeo))),
            (ListenerKind::C2sTls, None),
            (ListenerKind::C2sTls, Some(ours.sign(server_only))),
            (ListenerKind::S2sTls, Some(ours.sign(server_only))),
            (ListenerKind::S2sTls, Some(foreign.sign(server_only))),
        ];
        for (kind, certificate) in attempts {
            let client =
                RustlsTestClient { version: Some(version), certificate, ..RustlsTestClient::default() };
            let (server, done, client) = connect(&config, kind, client).await;
            done.unwrap();
            client.unwrap();
            seen.push(server.client_certificate().cloned());
        }
        let first = seen[0].as_ref().unwrap();
        assert_eq!(first.xmpp_addresses, ["romeo@example.org", "montague@example.org"]);
        assert_eq!(first.emails, ["romeo@mail.example"]);
        assert_eq!(seen[1..4], [None, None, None]);
        assert_eq!(seen[4].as_ref().unwrap().domains, ["example.net"]);
        assert_eq!(seen[5], None);
    }
}

#[tokio::test]
async fn without_authorities_no_client_certificate_is_requested() {
    let certificate = Some(Authority::new().sign(|_| {}));
    let client = RustlsTestClient { certificate, ..RustlsTestClient::default() };
    let (server, done, _client) = connect(&CONFIG, ListenerKind::C2sTls, client).await;
    done.unwrap();
    assert_eq!(server.client_certificate(), None);
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-4.4
//= type=test
//# to help prevent a truncation attack the party that is closing the stream MUST send a TLS close_notify alert and
//# MUST receive a responding close_notify alert from the other party before terminating the underlying TCP
//# connection
#[tokio::test]
async fn both_sides_send_close_notify() {
    for version in [&TLS12, &TLS13] {
        let client = RustlsTestClient { version: Some(version), ..RustlsTestClient::default() };
        let (mut server, done, client) = connect(&CONFIG, ListenerKind::C2sTls, client).await;
        done.unwrap();
        let mut client = client.unwrap();
        shutdown(&mut server).await.unwrap();
        let mut rest = Vec::new();
        // rustls answers a missing close_notify with an error here.
        client.read_to_end(&mut rest).await.unwrap();
        tokio::io::AsyncWriteExt::shutdown(&mut client).await.unwrap();
        assert_eq!(next_event(&mut server).await, OwnedEvent::Eof);
    }
}

#[tokio::test]
async fn key_updates_work_while_the_stream_runs() {
    let client = RustlsTestClient { version: Some(&TLS13), ..RustlsTestClient::default() };
    let (mut server, done, client) = connect(&CONFIG, ListenerKind::C2sTls, client).await;
    done.unwrap();
    let mut client: TlsStream<TcpStream> = client.unwrap();
    write(&mut client, OPEN.as_bytes()).await;
    assert_eq!(next_event(&mut server).await, OwnedEvent::Open(OPEN.into()));
    for n in 0..3 {
        client.get_mut().1.refresh_traffic_keys().unwrap();
        let text = format!("<m n='{n}'/>");
        write(&mut client, text.as_bytes()).await;
        assert_eq!(next_event(&mut server).await, element(&text));
        send(&mut server, text.as_bytes()).await.unwrap();
        assert_eq!(read_exactly(&mut client, text.len()).await, text.as_bytes());
    }
    assert!(server.is_idle());
}

#[tokio::test]
async fn every_connection_does_a_full_handshake() {
    let config = std::sync::Arc::new(RustlsTestClient::default().config());
    for version in 0..2 {
        let (server, io) = tcp_pair().await;
        let peer = server.peer_addr().unwrap();
        let mut server = Stream::tls(server, peer, port(|_| {}), &CONFIG).unwrap();
        let connector = tokio_rustls::TlsConnector::from(config.clone());
        let name = rustls::pki_types::ServerName::try_from("example.org").unwrap();
        let (done, client) = tokio::join!(handshake(&mut server), connector.connect(name, io));
        done.unwrap();
        let client = client.unwrap();
        let kind = client.get_ref().1.handshake_kind();
        assert_ne!(kind, Some(rustls::HandshakeKind::Resumed), "connection {version}");
        assert!(server.channel_binding().server_end_point.is_some());
    }
}
