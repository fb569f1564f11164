//! WebSocket client that looks like a TCP client: the text of an XML document in, the text of one out.
//!
//! Text leaves immediately, as fragments of a message whose element is incomplete; so the tests that split input split
//! messages too. This is written for tests only, with none of the server's code but its scanner.
//!
//! # Pitfalls
//!
//! A header is only recognised when complete, so it leaves in one piece. The test kit includes this file by its path:
//! this crate's tests cannot use the test kit, which depends on this crate.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use xml::{Limits, ScanOutcome, Scanner};

use super::net::websocket::{AcceptedHandshake, Handshake, HttpVersion, WebSocketSettings, accept};

const FRAMING: &str = "urn:ietf:params:xml:ns:xmpp-framing";

thread_local! {
    /// Documents from servers, unchanged, for tests that read them themselves.
    pub static DOCUMENTS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Server's response to a client that offers everything.
pub fn accepted(settings: &WebSocketSettings) -> AcceptedHandshake {
    let headers = [
        ("Host", "example.org"),
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Protocol", "xmpp"),
        ("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits"),
    ];
    let headers = headers.map(|(name, value)| (name, value.as_bytes()));
    accept(Handshake { method: "GET", version: HttpVersion::Http11, headers }, settings).unwrap()
}

/// A client frame.
pub fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let key = [0x37, 0xfa, 0x21, payload.len() as u8];
    let mut out = vec![first];
    match payload.len() {
        short @ 0..=125 => out.push(0x80 | short as u8),
        middle @ 126..=0xFFFF => {
            out.push(0x80 | 126);
            out.extend((middle as u16).to_be_bytes());
        }
        long => {
            out.push(0x80 | 127);
            out.extend((long as u64).to_be_bytes());
        }
    }
    out.extend(key);
    out.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
    out
}

/// A server frame: first byte, payload, total size.
pub fn parse(bytes: &[u8]) -> Option<(u8, &[u8], usize)> {
    let short = *bytes.get(1)?;
    assert!(short < 128, "a frame of a server has no mask");
    let (size, length) = match short {
        126 => (4, usize::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap()))),
        127 => (10, u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap()) as usize),
        short => (2, usize::from(short)),
    };
    Some((bytes[0], bytes.get(size..size + length)?, size + length))
}

pub fn deflated(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 64);
    Compress::new(Compression::best(), false).compress_vec(text, &mut out, FlushCompress::Sync).unwrap();
    assert_eq!(out.split_off(out.len() - 4), [0, 0, 255, 255]);
    out
}

pub fn inflated(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 << 20);
    let whole = [bytes, &[0, 0, 255, 255]].concat();
    Decompress::new(false).decompress_vec(&whole, &mut out, FlushDecompress::Sync).unwrap();
    out
}

pub struct Framed<I> {
    io: I,
    scanner: Scanner,
    deflate: bool,
    /// Text that is not completely sent.
    text: Vec<u8>,
    /// Bytes of it that were sent as fragments.
    fragments: usize,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    decoded: Vec<u8>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Framed<I> {
    pub fn new(io: I, deflate: bool) -> Framed<I> {
        Framed {
            io,
            scanner: Scanner::new(),
            deflate,
            text: Vec::new(),
            fragments: 0,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            decoded: Vec::new(),
        }
    }

    fn message(&mut self, text: &[u8]) {
        let sent = std::mem::take(&mut self.fragments);
        let frame = match (sent, self.deflate) {
            (0, true) => frame(0xC1, &deflated(text)),
            (0, false) => frame(0x81, text),
            _ => frame(0x80, &text[sent..]),
        };
        self.outgoing.extend(frame);
    }

    fn deliver(&mut self) {
        while !self.text.is_empty() {
            let space = self.text.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            if space < self.text.len() && self.fragments == 0 {
                self.text.drain(..space);
            }
            if self.text.starts_with(b"<?xml") {
                self.scanner.restart();
            }
            match self.scanner.scan(&self.text, &Limits { element_bytes: 17 << 20, ..Limits::DEFAULT }) {
                Ok(ScanOutcome::More { skip }) => {
                    let space = self.text[..skip].iter().all(u8::is_ascii_whitespace);
                    if skip > 0 && space && self.text.len() == skip {
                        let space = std::mem::take(&mut self.text);
                        self.message(&space);
                        return;
                    }
                    self.text.drain(..skip);
                    let known = self.text.len() > 2
                        && !matches!(self.text[1], b'/' | b'?' | b'!')
                        && !self.text.starts_with(b"<stream:stream")
                        && !b"<stream:stream".starts_with(&self.text[..]);
                    if known && self.text.len() > self.fragments {
                        let first = if self.fragments == 0 { 0x01 } else { 0x00 };
                        self.outgoing.extend(frame(first, &self.text[self.fragments..]));
                        self.fragments = self.text.len();
                    }
                    return;
                }
                Ok(ScanOutcome::Open { start, end }) => {
                    let tag = String::from_utf8(self.text[start..end].to_vec()).unwrap();
                    let open = tag
                        .replace("<stream:stream", &format!("<open xmlns='{FRAMING}'"))
                        .replace(" xmlns='jabber:client'", "")
                        .replace(" xmlns:stream='http://etherx.jabber.org/streams'", "")
                        .replace('>', "/>");
                    let good = tag.starts_with("<stream:stream");
                    self.message(if good { &open } else { &tag }.as_bytes());
                    self.text.drain(..end);
                }
                Ok(ScanOutcome::Element { start, end }) => {
                    assert_eq!(start, 0, "white space was skipped before");
                    let element: Vec<u8> = self.text.drain(..end).collect();
                    self.message(&element);
                }
                Ok(ScanOutcome::Close { end }) => {
                    self.message(format!("<close xmlns='{FRAMING}'/>").as_bytes());
                    self.text.drain(..end);
                    self.scanner.restart();
                }
                Err(_) => {
                    let garbage = std::mem::take(&mut self.text);
                    if !garbage.is_empty() {
                        self.message(&garbage);
                    }
                    return;
                }
            }
        }
    }

    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.outgoing.is_empty() {
            let count = ready!(Pin::new(&mut self.io).poll_write(cx, &self.outgoing))?;
            self.outgoing.drain(..count);
        }
        Poll::Ready(Ok(()))
    }

    fn decode(&mut self) {
        while let Some((first, payload, size)) = parse(&self.incoming) {
            let payload = match first {
                0x81 => payload.to_vec(),
                0xC1 => inflated(payload),
                _ => Vec::new(),
            };
            self.incoming.drain(..size);
            let text = String::from_utf8(payload).unwrap();
            if !text.is_empty() {
                DOCUMENTS.with_borrow_mut(|all| all.iter_mut().for_each(|all| all.push(text.clone())));
            }
            let tcp = if text.starts_with("<close ") {
                "</stream:stream>".to_owned()
            } else if let Some(rest) = text.strip_prefix(&format!("<open xmlns='{FRAMING}'")) {
                let rest = rest.strip_suffix("/>").unwrap();
                let stream = "http://etherx.jabber.org/streams";
                format!(
                    "<?xml version='1.0'?><stream:stream xmlns='jabber:client' xmlns:stream='{stream}'{rest}>"
                )
            } else {
                text.replacen(" xmlns='jabber:client'", "", 1).replacen(
                    " xmlns:stream='http://etherx.jabber.org/streams'",
                    "",
                    1,
                )
            };
            self.decoded.extend(tcp.into_bytes());
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Framed<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.drain(cx))?;
        let count = bytes.len().min(8192);
        self.text.extend(&bytes[..count]);
        self.deliver();
        match self.drain(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(count)),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(cx))?;
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.drain(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Framed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.decoded.is_empty() {
            let mut bytes = [0; 8192];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.incoming.extend(read.filled());
            this.decode();
        }
        let count = buffer.remaining().min(this.decoded.len());
        buffer.put_slice(&this.decoded[..count]);
        this.decoded.drain(..count);
        Poll::Ready(Ok(()))
    }
}
