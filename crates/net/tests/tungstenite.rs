//! Interoperability with tungstenite: its client connects to our stream, and its server reads the same bytes.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test may fail loudly")]

mod support;

use std::future::poll_fn;
use std::io::{Cursor, Read, Write};
use std::task::{Context, Poll, Waker};

use futures_util::{SinkExt, StreamExt};
use proptest::prelude::*;
use support::websocket::{accepted, frame};
use support::*;
use throng_net::websocket::{Handshake, HttpVersion, WebSocketSettings, accept};
use throng_net::{Scratch, Stream, StreamEvent, with_scratch};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::frame::{CloseFrame, Frame};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocket};
use tokio_tungstenite::tungstenite::{self, Message};

const OPEN: &str = "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='example.org' version='1.0'/>";

/// The server's side of the handshake, as an HTTP server performs it.
async fn upgrade(server: &mut Stream) {
    server.set_raw();
    let mut have = 0;
    poll_fn(|cx| {
        with_scratch(|scratch| {
            while let Poll::Ready(bytes) = server.poll_bytes(cx, scratch, have) {
                let bytes = bytes.unwrap();
                let mut headers = [httparse::EMPTY_HEADER; 32];
                let mut request = httparse::Request::new(&mut headers);
                let httparse::Status::Complete(head) = request.parse(bytes).unwrap() else {
                    have = bytes.len();
                    continue;
                };
                let method = request.method.unwrap();
                let headers = request.headers.iter().map(|header| (header.name, header.value));
                let handshake = Handshake { method, version: HttpVersion::Http11, headers };
                let accepted = accept(handshake, &WebSocketSettings::default()).unwrap();
                server.consume(head, scratch);
                let mut answer = Vec::new();
                accepted.write(&mut answer);
                server.queue(&answer, scratch);
                server.set_websocket(accepted);
                let _ = server.poll_flush(cx, scratch);
                server.release_buffers(scratch).unwrap();
                return Poll::Ready(());
            }
            server.release_buffers(scratch).unwrap();
            Poll::Pending
        })
    })
    .await;
}

#[tokio::test]
async fn tungstenites_client_talks_to_our_stream() {
    let (mut server, io) = Stream::memory(port(|_| {}), 16_384);
    server.set_authenticated();
    let mut request = "ws://example.org/ws".into_client_request().unwrap();
    request.headers_mut().insert("Sec-WebSocket-Protocol", "xmpp".parse().unwrap());
    let (client, ()) = tokio::join!(tokio_tungstenite::client_async(request, io), upgrade(&mut server));
    let (mut client, response) = client.unwrap();
    assert_eq!(response.headers()["sec-websocket-protocol"], "xmpp");
    client.send(Message::text(OPEN)).await.unwrap();
    assert!(matches!(next(&mut server).await.unwrap(), OwnedEvent::Open(_)));
    send(&mut server, b"<?xml version='1.0'?><stream:stream id='1'><stream:features/>").await.unwrap();
    assert_eq!(
        client.next().await.unwrap().unwrap(),
        Message::text("<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' id='1'/>")
    );
    let features = "<stream:features xmlns:stream='http://etherx.jabber.org/streams'/>";
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text(features));
    for size in [0, 1, 100, 125, 126, 127, 60_000, 65_535, 65_536, 200_000] {
        let text = format!("<m>{}</m>", "x".repeat(size));
        let (sent, got) = tokio::join!(client.send(Message::text(text.clone())), next(&mut server));
        sent.unwrap();
        assert_eq!(got.unwrap(), element(&text));
        let (sent, got) = tokio::join!(send(&mut server, text.as_bytes()), client.next());
        sent.unwrap();
        assert_eq!(
            got.unwrap().unwrap(),
            Message::text(text.replacen("<m>", "<m xmlns='jabber:client'>", 1))
        );
    }
    // Fragments with a ping in between; the library answers pings itself.
    let part =
        |opcode, text: &'static str, last| Message::Frame(Frame::message(text, OpCode::Data(opcode), last));
    client.send(part(Data::Text, "<frag", false)).await.unwrap();
    client.send(Message::Ping("are you there?".into())).await.unwrap();
    client.send(part(Data::Continue, "mented/>", true)).await.unwrap();
    assert_eq!(next(&mut server).await.unwrap(), element("<fragmented/>"));
    assert!(now(&mut server).await.is_none());
    assert_eq!(client.next().await.unwrap().unwrap(), Message::Pong("are you there?".into()));
    let frame = CloseFrame { code: CloseCode::Away, reason: "the tab is gone".into() };
    client.close(Some(frame)).await.unwrap();
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Eof);
    let Message::Close(Some(answer)) = client.next().await.unwrap().unwrap() else { panic!("no answer") };
    assert_eq!(answer.code, CloseCode::Away);
    shutdown(&mut server).await.unwrap();
    assert!(client.next().await.is_none(), "the connection is over without an error");
}

#[tokio::test]
async fn tungstenite_understands_our_closing_handshake() {
    let (mut server, io) = Stream::memory(port(|_| {}), 16_384);
    server.set_websocket(accepted(&WebSocketSettings::default()));
    let mut client = tokio_tungstenite::WebSocketStream::from_raw_socket(io, Role::Client, None).await;
    client.send(Message::text(OPEN)).await.unwrap();
    assert!(matches!(next(&mut server).await.unwrap(), OwnedEvent::Open(_)));
    with_scratch(|scratch| {
        server.queue(b"</stream:stream>", scratch);
        server.release_buffers(scratch).unwrap();
    });
    shutdown(&mut server).await.unwrap();
    let close = "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>";
    assert_eq!(client.next().await.unwrap().unwrap(), Message::text(close));
    let Message::Close(Some(frame)) = client.next().await.unwrap().unwrap() else { panic!("no Close") };
    assert_eq!(frame.code, CloseCode::Normal);
    assert!(client.next().await.is_none());
    assert_eq!(next(&mut server).await.unwrap(), OwnedEvent::Eof, "the library has answered");
}

/// Bytes that were already written.
struct Recorded(Cursor<Vec<u8>>);

impl Read for Recorded {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Texts that the library reads, until it fails or the connection ends.
fn theirs(bytes: &[u8]) -> Vec<String> {
    let recorded = Recorded(Cursor::new(bytes.to_vec()));
    let mut socket = WebSocket::from_raw_socket(recorded, Role::Server, None);
    let mut texts = Vec::new();
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => texts.push(text.to_string()),
            Ok(Message::Binary(_)) => texts.push("binary".to_owned()),
            Ok(_) => {}
            Err(tungstenite::Error::WriteBufferFull(_)) => panic!("nothing is written"),
            Err(_) => return texts,
        }
    }
}

/// Elements that our stream reads, and whether it failed.
fn ours(bytes: &[u8]) -> (Vec<String>, bool) {
    let (mut stream, mut pipe) = Stream::memory(port(|_| {}), 1 << 20);
    stream.set_websocket(accepted(&WebSocketSettings::default()));
    let (mut cx, mut scratch) = (Context::from_waker(Waker::noop()), Scratch::new());
    assert!(pipe.poll_write(&mut cx, &[&frame(0x81, OPEN.as_bytes()), bytes].concat()).is_ready());
    pipe.close();
    let mut elements = Vec::new();
    loop {
        match stream.poll_event(&mut cx, &mut scratch) {
            Poll::Ready(Ok(StreamEvent::Open(_))) => {}
            Poll::Ready(Ok(StreamEvent::Element(bytes))) => {
                elements.push(String::from_utf8(bytes.to_vec()).unwrap());
            }
            Poll::Ready(Ok(StreamEvent::Eof)) => return (elements, false),
            Poll::Ready(Err(_)) => return (elements, true),
            other => panic!("{other:?}"),
        }
    }
}

#[derive(Clone, Debug)]
enum Piece {
    Whole(u16),
    Fragments(Vec<u16>),
    Control(u8, u8),
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = prop_oneof![
        (0_u16..400).prop_map(Piece::Whole),
        prop::collection::vec(0_u16..200, 1..5).prop_map(Piece::Fragments),
        (prop::sample::select(&[0x89_u8, 0x8A][..]), 0_u8..=125)
            .prop_map(|(first, size)| Piece::Control(first, size)),
    ];
    prop::collection::vec(piece, 0..12)
}

/// Bytes sent by a client, and the texts in them.
fn spoken(pieces: &[Piece]) -> (Vec<u8>, Vec<String>) {
    let (mut bytes, mut texts) = (Vec::new(), Vec::new());
    for (n, piece) in pieces.iter().enumerate() {
        let element = |sizes: &[u16]| {
            let size: u16 = sizes.iter().sum();
            format!("<m n='{n}'>{}</m>", "é".repeat(usize::from(size)))
        };
        match piece {
            Piece::Control(first, size) => bytes.extend(frame(*first, &vec![b'c'; usize::from(*size)])),
            Piece::Whole(size) => {
                texts.push(element(&[*size]));
                bytes.extend(frame(0x81, texts.last().unwrap().as_bytes()));
            }
            Piece::Fragments(sizes) => {
                texts.push(element(sizes));
                let mut rest = texts.last().unwrap().as_bytes();
                let mut first = 0x01;
                for size in sizes {
                    let (part, after) = rest.split_at(usize::from(*size).min(rest.len()));
                    bytes.extend(frame(first, part));
                    bytes.extend(frame(0x8A, b"between"));
                    (rest, first) = (after, 0x00);
                }
                bytes.extend(frame(0x80, rest));
            }
        }
    }
    (bytes, texts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_implementations_read_the_same_messages(pieces in pieces()) {
        let (bytes, texts) = spoken(&pieces);
        prop_assert_eq!(&theirs(&bytes), &texts);
        prop_assert_eq!(ours(&bytes), (texts, false));
    }

    /// We are stricter and may stop earlier, but every element that we read must be read by the library too.
    #[test]
    fn corrupted_frames_end_the_stream_without_other_events(
        pieces in pieces(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let (mut bytes, _) = spoken(&pieces);
        prop_assume!(!bytes.is_empty());
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (theirs, (ours, _)) = (theirs(&bytes), ours(&bytes));
        prop_assert!(theirs.starts_with(&ours), "ours: {:?}, theirs: {:?}", ours, theirs);
    }
}
