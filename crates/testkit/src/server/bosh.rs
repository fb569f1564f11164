//! BOSH clients of tests (XEP-0124, XEP-0206): the text of a stream document on one side, requests on the other.
//!
//! A client of a test writes and reads as over TCP. [`BoshClientIo`] turns this into requests without HTTP, holds one
//! request whenever it is polled, and joins the payloads of the answers to a document again.
//!
//! Not implemented: timeouts, which the tests of the transport cover.
//!
//! # Pitfalls
//!
//! A broken connection does not exist here. Dropping the client ends the session by a request outside of its window,
//! which the stream sees as a lost connection.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use net::bosh::{BoshSessionTable, PendingResponse, RequestSource};
use stanza::stream::StreamHeader;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use xml::{Limits, Reader, ScanOutcome, Scanner};

use super::websocket::DOCUMENTS;

const NS: &str = "http://jabber.org/protocol/httpbind";
/// Concurrent requests.
const REQUESTS: usize = 2;
const FIRST: u64 = 1000;

enum DocumentPart {
    Open(String),
    Element(Vec<u8>),
    Close,
}

/// Client side of a session.
pub(super) struct BoshClientIo {
    sessions: Arc<BoshSessionTable>,
    origin: RequestSource,
    scanner: Scanner,
    written: Vec<u8>,
    pieces: VecDeque<DocumentPart>,
    waiting: VecDeque<PendingResponse>,
    sid: Option<String>,
    rid: u64,
    /// Stream header to insert before the next payload.
    header: Option<String>,
    received: VecDeque<u8>,
    ended: bool,
}

impl BoshClientIo {
    pub(super) fn new(sessions: Arc<BoshSessionTable>, origin: RequestSource) -> BoshClientIo {
        BoshClientIo {
            sessions,
            origin,
            scanner: Scanner::new(),
            written: Vec::new(),
            pieces: VecDeque::new(),
            waiting: VecDeque::new(),
            sid: None,
            rid: FIRST,
            header: None,
            received: VecDeque::new(),
            ended: false,
        }
    }

    /// Splits the written bytes into elements.
    fn split_document(&mut self) -> io::Result<()> {
        loop {
            // A new document may begin at any element boundary.
            if self.written.starts_with(b"<?xml") || self.written.starts_with(b"<stream:stream") {
                self.scanner.restart();
            }
            let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, format!("{error}"));
            let limits = Limits { element_bytes: 17 << 20, ..Limits::CEILING };
            let done = match self.scanner.scan(&self.written, &limits).map_err(wrong)? {
                ScanOutcome::More { skip } => {
                    self.written.drain(..skip);
                    return Ok(());
                }
                ScanOutcome::Open { start, end } => {
                    let tag = String::from_utf8_lossy(&self.written[start..end]).into_owned();
                    self.pieces.push_back(DocumentPart::Open(tag));
                    end
                }
                ScanOutcome::Element { start, end } => {
                    self.pieces.push_back(DocumentPart::Element(self.written[start..end].to_vec()));
                    end
                }
                ScanOutcome::Close { end } => {
                    self.pieces.push_back(DocumentPart::Close);
                    end
                }
            };
            self.written.drain(..done);
        }
    }

    fn post(&mut self, attributes: &str, payload: &[u8]) {
        let sid = self.sid.as_ref().map(|sid| format!("sid='{sid}'")).unwrap_or_default();
        let mut body = format!(
            "<body rid='{}' {sid} {attributes} xmlns='{NS}' xmlns:stream='http://etherx.jabber.org/streams'>",
            self.rid
        )
        .into_bytes();
        body.extend_from_slice(payload);
        body.extend_from_slice(b"</body>");
        self.rid += 1;
        self.waiting.push_back(self.sessions.handle_request(self.origin.clone(), &body));
    }

    /// Processes answers and sends requests until there is no progress.
    fn drive(&mut self, cx: &mut Context<'_>) {
        loop {
            while let Some(Poll::Ready(answer)) =
                self.waiting.front_mut().map(|first| Pin::new(first).poll(cx))
            {
                self.waiting.pop_front().iter_mut().for_each(PendingResponse::response_sent);
                self.on_response(&String::from_utf8_lossy(&answer.body));
            }
            if self.ended || !self.send() {
                return;
            }
        }
    }

    /// Sends one request if permitted and there is data to send or no request in progress.
    fn send(&mut self) -> bool {
        if self.waiting.len() >= REQUESTS || (self.sid.is_none() && !self.waiting.is_empty()) {
            return false;
        }
        match self.pieces.pop_front() {
            Some(DocumentPart::Open(tag)) => {
                let opening = StreamHeader::read(tag.as_bytes(), &Limits::CEILING).unwrap_or_default();
                let attr = |name: &str, value: Option<String>| {
                    value.map(|value| format!(" {name}='{value}'")).unwrap_or_default()
                };
                let (to, lang) = (attr("to", opening.to), attr("xml:lang", opening.lang));
                let from = attr("from", opening.from);
                self.header = Some(String::new());
                if self.sid.is_some() {
                    self.post(
                        &format!("{to}{from}{lang} xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh'"),
                        b"",
                    );
                } else {
                    let version = opening.version.map(|(major, minor)| format!("{major}.{minor}"));
                    let version = attr("xmpp:version", version);
                    self.post(
                        &format!("{to}{from}{lang}{version} wait='60' hold='1' ver='1.6' xmlns:xmpp='urn:xmpp:xbosh'"),
                        b"",
                    );
                }
            }
            Some(DocumentPart::Element(mut payload)) => {
                while let Some(DocumentPart::Element(more)) = self.pieces.front() {
                    payload.extend_from_slice(more);
                    self.pieces.pop_front();
                }
                self.post("", &payload);
            }
            Some(DocumentPart::Close) => self.post("type='terminate'", b""),
            None if self.waiting.is_empty() && self.sid.is_some() => self.post("", b""),
            None => return false,
        }
        true
    }

    /// Converts an answer into a part of the document.
    fn on_response(&mut self, text: &str) {
        DOCUMENTS.with_borrow_mut(|all| all.iter_mut().for_each(|all| all.push(text.to_owned())));
        let end = text.find('>').map_or(text.len(), |end| end + 1);
        let tag = text[..end].strip_suffix("/>").map_or(text[..end].to_owned(), |tag| format!("{tag}>"));
        let start = Reader::open_tag(tag.as_bytes(), &Limits::CEILING).expect("an answer is XML");
        let get = |name: &str| start.attr(name).map(|attr| attr.value().into_owned());
        if let Some(sid) = get("sid") {
            self.sid = Some(sid);
        }
        let payload = text[end..].strip_suffix("</body>").unwrap_or_default();
        let over = get("type").is_some();
        if (!payload.is_empty() || over) && self.header.take().is_some() {
            let mut header = Vec::new();
            let from = get("from").unwrap_or_else(|| "example.com".to_owned());
            let id = get("authid").unwrap_or_else(|| "again".to_owned());
            stanza::stream::write_header(&mut header, &from, None, &id, "en");
            self.received.extend(header);
        }
        let mut scanner = Scanner::fragment();
        let limits = Limits { depth: u8::MAX, ..Limits::CEILING };
        let mut rest = payload;
        while let Ok(ScanOutcome::Element { end, .. }) = scanner.scan(rest.as_bytes(), &limits) {
            self.received.extend(rest[..end].replacen(" xmlns='jabber:client'", "", 1).bytes());
            rest = &rest[end..];
        }
        if over {
            // Any other end than that of the stream counts as a broken connection.
            if !matches!(
                get("condition").as_deref(),
                Some("item-not-found" | "policy-violation" | "other-request")
            ) {
                self.received.extend(b"</stream:stream>");
            }
            self.ended = true;
        }
    }
}

impl AsyncRead for BoshClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.drive(cx);
        if self.received.is_empty() && !self.ended {
            return Poll::Pending;
        }
        let count = buffer.remaining().min(self.received.len());
        let bytes: Vec<u8> = self.received.drain(..count).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BoshClientIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if !self.ended {
            self.written.extend_from_slice(bytes);
            self.split_document()?;
            self.drive(cx);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for BoshClientIo {
    fn drop(&mut self) {
        // Written data is sent, as by a socket.
        self.drive(&mut Context::from_waker(Waker::noop()));
        if self.sid.is_some() && !self.ended {
            self.rid += 1000;
            self.post("", b"");
        }
    }
}
