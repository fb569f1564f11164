//! Properties of a WebSocket that reads arbitrary bytes. Used by the fuzz target and by `tests/property.rs`.
//!
//! As in `body.rs` one stream reads the bytes at once and one in pieces. With the first bit of the first byte the rest
//! is a list of `first byte, length, payload` that is framed here, so that a fuzzer need not guess masks and lengths;
//! without it the rest is sent unchanged.
//!
//! # Pitfalls
//!
//! Pongs are not compared: of several pings that are read together only one is answered.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use throng_net::websocket::{Handshake, HttpVersion, WebSocketSettings, accept};
use throng_net::{ListenerConfig, ListenerKind, Pipe, Scratch, Stream, StreamEvent};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    Open(Vec<u8>),
    Element(Vec<u8>),
    Close,
    Eof,
    Failed(String),
}

struct Side {
    stream: Stream,
    pipe: Pipe,
    got: Vec<Got>,
    out: Vec<u8>,
}

impl Side {
    fn new(compression: bool) -> Side {
        let mut port = ListenerConfig::new(ListenerKind::Http, ([127, 0, 0, 1], 5280).into());
        port.unauthenticated_limits.element_bytes = 512;
        port.unauthenticated_limits.depth = 8;
        let headers = [
            ("Host", "a"),
            ("Upgrade", "websocket"),
            ("Connection", "upgrade"),
            ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Protocol", "xmpp"),
            ("Sec-WebSocket-Extensions", "permessage-deflate"),
        ];
        let headers = headers.map(|(name, value)| (name, value.as_bytes()));
        let request = Handshake { method: "GET", version: HttpVersion::Http11, headers };
        let accepted =
            accept(request, &WebSocketSettings { compression, ..WebSocketSettings::default() }).unwrap();
        let (mut stream, pipe) = Stream::memory(Arc::new(port), 1 << 22);
        stream.set_websocket(accepted);
        Side { stream, pipe, got: Vec::new(), out: Vec::new() }
    }

    fn feed(&mut self, bytes: &[u8], scratch: &mut Scratch) {
        let mut cx = Context::from_waker(Waker::noop());
        let written = self.pipe.poll_write(&mut cx, bytes);
        assert!(matches!(written, Poll::Ready(Ok(count)) if count == bytes.len()));
        while !matches!(self.got.last(), Some(Got::Eof | Got::Failed(_))) {
            let got = match self.stream.poll_event(&mut cx, scratch) {
                Poll::Pending => break,
                Poll::Ready(Ok(StreamEvent::Eof)) => Got::Eof,
                Poll::Ready(Ok(StreamEvent::Open(bytes))) => Got::Open(bytes.to_vec()),
                Poll::Ready(Ok(StreamEvent::Element(bytes))) => {
                    assert!(bytes.len() <= 512 && std::str::from_utf8(bytes).is_ok());
                    Got::Element(bytes.to_vec())
                }
                Poll::Ready(Ok(StreamEvent::Close)) => Got::Close,
                Poll::Ready(Err(error)) => Got::Failed(error.to_string()),
            };
            self.got.push(got);
            self.stream.queue(b"<a/>", scratch);
            if self.got.len().is_multiple_of(2) {
                self.stream.release_buffers(scratch).unwrap();
            }
        }
        assert!(matches!(self.stream.poll_flush(&mut cx, scratch), Poll::Ready(Ok(()))));
        self.stream.release_buffers(scratch).unwrap();
        self.read();
    }

    fn read(&mut self) {
        let mut bytes = vec![0; 65_536];
        let mut cx = Context::from_waker(Waker::noop());
        while let Poll::Ready(count @ 1..) = self.pipe.poll_read(&mut cx, &mut bytes) {
            self.out.extend(&bytes[..count]);
        }
    }

    /// The frames sent, without pongs. All are complete, and nothing follows the closing handshake.
    fn frames(&self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        let mut rest = &self.out[..];
        while let [first, length @ 0..=125, after @ ..] = rest {
            assert!(matches!(first, 0x81 | 0x88 | 0x8A), "{first:x}");
            let (payload, after) = after.split_at(usize::from(*length));
            if *first != 0x8A {
                frames.push([&[*first][..], payload].concat());
            }
            assert!(*first != 0x88 || after.is_empty(), "something follows the closing handshake");
            rest = after;
        }
        assert!(rest.is_empty(), "half a frame");
        frames
    }
}

/// Bytes that a client would send.
fn framed(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let [first, length, after @ ..] = rest {
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        out.push(*first);
        match payload.len() {
            short @ 0..=125 => out.push(0x80 | short as u8),
            long => out.extend([0xFE, 0, long as u8]),
        }
        let key = [*first, 0x55, *length, 0xAA];
        out.extend(key);
        out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        rest = after;
    }
    out
}

/// Panics if a property is violated. The first two bytes choose the form and the size of the pieces.
pub(crate) fn check(data: &[u8]) {
    let [form, size, bytes @ ..] = data else { return };
    let bytes = &bytes[..bytes.len().min(20_000)];
    let bytes = if form & 1 == 0 { bytes.to_vec() } else { framed(bytes) };
    let mut scratch = Scratch::new();
    let (mut whole, mut cut) = (Side::new(form & 2 != 0), Side::new(form & 2 != 0));
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        cut.feed(piece, &mut scratch);
        // The other stream uses the buffers in between.
        whole.feed(b"", &mut scratch);
    }
    whole.feed(&bytes, &mut scratch);
    assert_eq!(whole.got, cut.got);
    let mut cx = Context::from_waker(Waker::noop());
    for side in [&mut whole, &mut cut] {
        // The final output can always be sent.
        assert!(matches!(side.stream.poll_shutdown(&mut cx, &mut scratch), Poll::Ready(Ok(()))));
        side.stream.release_buffers(&mut scratch).unwrap();
        side.read();
    }
    assert_eq!(whole.frames(), cut.frames());
    assert_eq!(whole.frames().last().unwrap()[0], 0x88);
}
