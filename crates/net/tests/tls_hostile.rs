//! Hostile TLS input: split, damaged, endless, forged.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

mod support;

use rustls::version::{TLS12, TLS13};
use support::tls::*;
use support::*;
use throng_net::{ListenerKind, NetError, Stream, with_scratch};
use tokio::io::AsyncReadExt;

const OPEN: &str = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";

async fn next_event(server: &mut Stream) -> OwnedEvent {
    support::next(server).await.unwrap()
}

/// First flight of a client, as bytes.
fn hello() -> Vec<u8> {
    let name = rustls::pki_types::ServerName::try_from("example.org").unwrap();
    let config = std::sync::Arc::new(RustlsTestClient::default().config());
    let mut client = rustls::ClientConnection::new(config, name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

fn memory_tls() -> (Stream, throng_net::Pipe) {
    let (mut server, io) = Stream::memory(port(|_| {}), 200_000);
    with_scratch(|scratch| server.start_tls(&CONFIG, None, scratch)).unwrap();
    (server, io)
}

#[tokio::test]
async fn a_handshake_interrupted_at_any_byte_ends_without_an_error() {
    let hello = hello();
    for cut in 0..=hello.len() {
        let (mut server, mut io) = memory_tls();
        write(&mut io, &hello[..cut]).await;
        assert!(now(&mut server).await.is_none(), "cut at {cut}");
        assert_eq!(server.is_idle(), cut == 0 || cut == hello.len(), "cut at {cut}");
        drop(io);
        let end = support::next(&mut server).await;
        assert!(matches!(end, Ok(OwnedEvent::Eof) | Err(NetError::Io(_))), "cut at {cut}: {end:?}");
        assert!(!server.info().secure);
    }
}

#[tokio::test]
async fn a_damaged_hello_is_an_error_with_an_alert_or_waits() {
    let hello = hello();
    let mut alerts = 0;
    for at in 0..hello.len() {
        let (mut server, mut io) = memory_tls();
        let mut bytes = hello.clone();
        bytes[at] ^= 0xff;
        write(&mut io, &bytes).await;
        match now(&mut server).await {
            None => {}
            Some(Err(NetError::Tls(_))) => {
                drop(server);
                let mut answer = Vec::new();
                io.read_to_end(&mut answer).await.unwrap();
                alerts += usize::from(answer.first() == Some(&21));
            }
            Some(other) => panic!("byte {at}: {other:?}"),
        }
    }
    assert!(alerts > 50, "only {alerts} damaged hellos were answered with an alert");
}

#[tokio::test]
async fn a_record_that_never_ends_is_bounded() {
    // A hello of 64 kB that keeps announcing more.
    let (mut server, mut io) = memory_tls();
    let mut record = vec![22, 3, 1, 0x40, 0];
    record.extend([1, 0, 0xff, 0xff]);
    record.resize(5 + 0x4000, 0);
    let mut sent = 0;
    let error = loop {
        write(&mut io, &record).await;
        sent += record.len();
        record[5..9].fill(0);
        match now(&mut server).await {
            None => assert!(sent < 200_000, "{sent} bytes were swallowed"),
            Some(Err(error)) => break error,
            Some(Ok(event)) => panic!("{event:?}"),
        }
    };
    assert!(matches!(error, NetError::Tls(_) | NetError::TooLong), "{error}");
}

#[tokio::test]
async fn garbage_in_mid_stream_ends_it() {
    for version in [&TLS12, &TLS13] {
        let client = RustlsTestClient { version: Some(version), ..RustlsTestClient::default() };
        let (mut server, done, client) = connect(&CONFIG, ListenerKind::C2sTls, client).await;
        done.unwrap();
        let mut client = client.unwrap();
        write(&mut client, OPEN.as_bytes()).await;
        assert_eq!(next_event(&mut server).await, OwnedEvent::Open(OPEN.into()));
        // A well-formed record with invalid contents.
        let (io, _) = client.get_mut();
        write(io, &[&[23, 3, 3, 0, 40][..], &[7; 40]].concat()).await;
        assert!(matches!(support::next(&mut server).await, Err(NetError::Tls(_))));
        assert!(matches!(support::next(&mut server).await, Err(NetError::Closed)));
        // No more output is possible, but closing must work.
        shutdown(&mut server).await.unwrap();
        let mut rest = Vec::new();
        let end = client.read_to_end(&mut rest).await;
        assert!(end.unwrap_err().to_string().contains("BadRecordMac"), "the client must learn why");
    }
}

/// A client that writes its own TLS 1.3 records, to send what no library sends.
struct Forger {
    key: ring::aead::LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
    io: throng_net::Pipe,
}

impl Forger {
    async fn connect() -> (Stream, Forger) {
        let (mut server, io) = memory_tls();
        let provider = rustls::crypto::CryptoProvider {
            cipher_suites: vec![rustls::crypto::ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256],
            ..rustls::crypto::ring::default_provider()
        };
        let mut config =
            RustlsTestClient { provider: Some(provider), ..RustlsTestClient::default() }.config();
        config.enable_secret_extraction = true;
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let name = rustls::pki_types::ServerName::try_from("example.org").unwrap();
        let (done, client) = tokio::join!(handshake(&mut server), connector.connect(name, io));
        done.unwrap();
        let (io, connection) = client.unwrap().into_inner();
        let (sequence, secrets) = connection.dangerous_extract_secrets().unwrap().tx;
        let rustls::ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } = secrets else { panic!() };
        let key = ring::aead::UnboundKey::new(&ring::aead::CHACHA20_POLY1305, key.as_ref()).unwrap();
        let iv = iv.as_ref().try_into().unwrap();
        (server, Forger { key: ring::aead::LessSafeKey::new(key), iv, sequence, io })
    }

    /// RFC 8446, section 5.2: a record with this inner content type.
    fn record(&mut self, kind: u8, content: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(byte, count)| *byte ^= count);
        self.sequence += 1;
        let mut inner = [content, &[kind]].concat();
        let header = [23, 3, 3, 0, u8::try_from(inner.len() + 16).unwrap()];
        let nonce = ring::aead::Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, ring::aead::Aad::from(header), &mut inner).unwrap();
        [&header[..], &inner].concat()
    }
}

const HANDSHAKE: u8 = 22;
const DATA: u8 = 23;
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 1];

#[tokio::test]
async fn a_partial_handshake_message_does_not_block_output() {
    let (mut server, mut forger) = Forger::connect().await;
    let half = [forger.record(DATA, OPEN.as_bytes()), forger.record(HANDSHAKE, &KEY_UPDATE[..3])].concat();
    write(&mut forger.io, &half).await;
    assert_eq!(next_event(&mut server).await, OwnedEvent::Open(OPEN.into()));
    assert!(now(&mut server).await.is_none());
    assert!(!server.is_idle(), "the half message is kept");
    send(&mut server, b"<m/>").await.unwrap();
    let rest = forger.record(HANDSHAKE, &KEY_UPDATE[3..]);
    write(&mut forger.io, &rest).await;
    assert!(now(&mut server).await.is_none());
    assert!(server.is_idle(), "the update was taken");
    shutdown(&mut server).await.unwrap();
}

#[tokio::test]
async fn a_partial_handshake_message_after_bad_xml_is_harmless() {
    let (mut server, mut forger) = Forger::connect().await;
    let bytes = [forger.record(DATA, b"<!DOCTYPE x>"), forger.record(HANDSHAKE, &KEY_UPDATE[..3])].concat();
    for byte in &bytes {
        write(&mut forger.io, &[*byte]).await;
        if let Some(got) = now(&mut server).await {
            assert!(matches!(got, Err(NetError::Xml(_) | NetError::Closed)), "{got:?}");
        }
    }
    send(&mut server, b"<stream:error/>").await.unwrap();
    shutdown(&mut server).await.unwrap();
}

#[tokio::test]
async fn data_inside_a_handshake_message_ends_the_stream() {
    let (mut server, mut forger) = Forger::connect().await;
    let bytes = [
        forger.record(HANDSHAKE, &KEY_UPDATE[..3]),
        forger.record(DATA, OPEN.as_bytes()),
        forger.record(HANDSHAKE, &KEY_UPDATE[3..]),
    ];
    write(&mut forger.io, &bytes.concat()).await;
    assert!(matches!(support::next(&mut server).await, Err(NetError::Tls(_))));
    assert!(send(&mut server, b"<late/>").await.is_err());
    shutdown(&mut server).await.unwrap();
}
