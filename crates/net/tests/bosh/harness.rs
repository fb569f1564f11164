//! Test harness: a session table with a manual clock, and both sides of each session.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use base::clock::ManualClock;
use base::lock::LeafMutex;
use throng_net::bosh::{BoshResponse, BoshSessionTable, BoshSettings, PendingResponse, RequestSource};
use throng_net::{
    ListenerConfig, ListenerKind, NetError, SharedListenerConfig, Stream, StreamEvent, with_scratch,
};

pub(crate) const NS: &str = "http://jabber.org/protocol/httpbind";
/// First request id of `BoshHarness::open`.
pub(crate) const RID: u64 = 1_573_741_820;
/// First output of the stream of `BoshHarness::open`.
pub(crate) const WELCOME: &str = "<?xml version='1.0'?><stream:stream xmlns='jabber:client' \
     xmlns:stream='http://etherx.jabber.org/streams' id='ServerStreamID' from='example.com' version='1.0' xml:lang='en'>\
     <stream:features><mechanisms xmlns='urn:ietf:params:xml:ns:xmpp-sasl'><mechanism>SCRAM-SHA-1</mechanism>\
     </mechanisms></stream:features>";

pub(crate) struct BoshHarness {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) sessions: Arc<BoshSessionTable>,
    pub(crate) admits: Arc<AtomicBool>,
    streams: Arc<LeafMutex<VecDeque<Stream>>>,
    port: SharedListenerConfig,
}

impl BoshHarness {
    pub(crate) fn new() -> BoshHarness {
        BoshHarness::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut BoshSettings)) -> BoshHarness {
        let mut settings = BoshSettings::default();
        change(&mut settings);
        let clock = Arc::new(ManualClock::new());
        let streams: Arc<LeafMutex<VecDeque<Stream>>> = Arc::default();
        let admits = Arc::new(AtomicBool::new(true));
        let (list, open) = (streams.clone(), admits.clone());
        let start = Box::new(move |stream| {
            if open.load(SeqCst) {
                list.lock().push_back(stream);
            }
            open.load(SeqCst)
        });
        let sessions = BoshSessionTable::new(settings, clock.clone(), start);
        let port =
            Arc::new(ListenerConfig::new(ListenerKind::Http, SocketAddr::from(([127, 0, 0, 1], 5280))));
        BoshHarness { clock, sessions, admits, streams, port }
    }

    pub(crate) fn origin(&self) -> RequestSource {
        RequestSource {
            peer: SocketAddr::from(([192, 0, 2, 1], 4711)),
            listener: self.port.clone(),
            secure: false,
        }
    }

    /// Sends a request; the response is polled immediately and on demand.
    pub(crate) fn post(&self, body: &str) -> PostedRequest {
        self.post_from(self.origin(), body.as_bytes())
    }

    pub(crate) fn post_from(&self, origin: RequestSource, body: &[u8]) -> PostedRequest {
        let flag = Arc::new(CountingWaker::default());
        let exchange = self.sessions.handle_request(origin, body);
        let mut post = PostedRequest { exchange: Some(exchange), answer: None, flag };
        post.fetch();
        post
    }

    /// Stream of the oldest session that was not taken yet.
    pub(crate) fn server(&self) -> ServerStream {
        ServerStream { stream: self.streams.lock().pop_front().unwrap() }
    }

    pub(crate) fn started(&self) -> usize {
        self.streams.lock().len()
    }

    /// Advances the clock by seconds, with a sweep each.
    pub(crate) fn advance(&self, seconds: u64) {
        for _ in 0..seconds {
            self.clock.advance(1000);
            self.sessions.sweep();
        }
    }

    /// A typical session, with the stream open and one request held.
    pub(crate) fn open(&self) -> OpenSession<'_> {
        let mut open = self.open_with("wait='60' hold='1' ver='1.6'");
        open.held = Some(open.post(""));
        open
    }

    /// A session with these attributes; its first request is answered.
    pub(crate) fn open_with(&self, attributes: &str) -> OpenSession<'_> {
        let mut post = self.post(&format!(
            "<body to='example.com' {attributes} rid='{RID}' xml:lang='en' xmpp:version='1.0' xmlns='{NS}' \
             xmlns:xmpp='urn:xmpp:xbosh'/>"
        ));
        let mut server = self.server();
        assert!(matches!(&server.read()[..], [BoshServerEvent::Open(_)]));
        server.send(WELCOME);
        let created = post.text();
        let sid = value(&created, "sid").unwrap().to_owned();
        OpenSession { harness: self, server, sid, rid: RID, created, held: None }
    }
}

/// An open session.
pub(crate) struct OpenSession<'w> {
    pub(crate) harness: &'w BoshHarness,
    pub(crate) server: ServerStream,
    pub(crate) sid: String,
    /// Id of the latest request.
    pub(crate) rid: u64,
    /// Response to the session request.
    pub(crate) created: String,
    pub(crate) held: Option<PostedRequest>,
}

impl OpenSession<'_> {
    /// Next request with these payloads.
    pub(crate) fn post(&mut self, payload: &str) -> PostedRequest {
        self.post_with("", payload)
    }

    /// Next request with further attributes.
    pub(crate) fn post_with(&mut self, attributes: &str, payload: &str) -> PostedRequest {
        self.rid += 1;
        self.post_rid(self.rid, attributes, payload)
    }

    pub(crate) fn post_rid(&self, rid: u64, attributes: &str, payload: &str) -> PostedRequest {
        self.harness.post(&self.body(rid, attributes, payload))
    }

    pub(crate) fn body(&self, rid: u64, attributes: &str, payload: &str) -> String {
        format!("<body rid='{rid}' sid='{}' {attributes} xmlns='{NS}'>{payload}</body>", self.sid)
    }

    pub(crate) fn held(&mut self) -> &mut PostedRequest {
        self.held.as_mut().unwrap()
    }

    /// Whether the table still has it.
    pub(crate) fn is_alive(&self) -> bool {
        self.harness.sessions.counts().sessions > 0
    }
}

/// A waker that counts.
#[derive(Default)]
pub(crate) struct CountingWaker(AtomicUsize);

impl CountingWaker {
    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A request under way. Dropping it breaks its connection.
pub(crate) struct PostedRequest {
    exchange: Option<PendingResponse>,
    pub(crate) answer: Option<BoshResponse>,
    pub(crate) flag: Arc<CountingWaker>,
}

impl PostedRequest {
    /// Whether it was answered; the response counts as sent then.
    pub(crate) fn poll(&mut self) -> bool {
        let is_answered = self.fetch();
        if is_answered {
            self.send();
        }
        is_answered
    }

    /// Whether it was answered; the response is not sent yet.
    pub(crate) fn fetch(&mut self) -> bool {
        if self.answer.is_none()
            && let Some(exchange) = &mut self.exchange
        {
            let waker = Waker::from(self.flag.clone());
            if let Poll::Ready(answer) = exchange.poll_response(&mut Context::from_waker(&waker)) {
                self.answer = Some(answer);
            }
        }
        self.answer.is_some()
    }

    /// The kernel has taken the response.
    pub(crate) fn send(&mut self) {
        self.exchange.take().iter_mut().for_each(PendingResponse::response_sent);
    }

    pub(crate) fn waits(&mut self) -> bool {
        !self.poll()
    }

    pub(crate) fn answer(&mut self) -> BoshResponse {
        assert!(self.poll(), "there is no answer");
        self.answer.clone().unwrap()
    }

    /// Text of the response.
    pub(crate) fn text(&mut self) -> String {
        String::from_utf8(self.answer().body.to_vec()).unwrap()
    }
}

/// Result of a read by the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BoshServerEvent {
    Open(String),
    Element(String),
    Close,
    Eof,
}

pub(crate) fn element(text: &str) -> BoshServerEvent {
    BoshServerEvent::Element(text.to_owned())
}

/// The stream's side.
pub(crate) struct ServerStream {
    pub(crate) stream: Stream,
}

impl ServerStream {
    pub(crate) fn next(&mut self) -> Option<Result<BoshServerEvent, NetError>> {
        self.next_with(Waker::noop())
    }

    pub(crate) fn next_with(&mut self, waker: &Waker) -> Option<Result<BoshServerEvent, NetError>> {
        let mut cx = Context::from_waker(waker);
        with_scratch(|scratch| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let got = match self.stream.poll_event(&mut cx, scratch) {
                Poll::Pending => None,
                Poll::Ready(Err(error)) => Some(Err(error)),
                Poll::Ready(Ok(StreamEvent::Open(bytes))) => Some(Ok(BoshServerEvent::Open(text(bytes)))),
                Poll::Ready(Ok(StreamEvent::Element(bytes))) => {
                    Some(Ok(BoshServerEvent::Element(text(bytes))))
                }
                Poll::Ready(Ok(StreamEvent::Close)) => Some(Ok(BoshServerEvent::Close)),
                Poll::Ready(Ok(StreamEvent::Eof)) => Some(Ok(BoshServerEvent::Eof)),
            };
            self.stream.release_buffers(scratch).unwrap();
            got
        })
    }

    /// Steps of a session's task that is woken without output: reads everything, then flushes.
    pub(crate) fn drain_events(&mut self) -> Vec<BoshServerEvent> {
        let got = self.read();
        self.flush().unwrap();
        got
    }

    /// Reads everything available.
    pub(crate) fn read(&mut self) -> Vec<BoshServerEvent> {
        let mut got = Vec::new();
        while let Some(event) = self.next() {
            let event = event.unwrap();
            let end = event == BoshServerEvent::Eof;
            got.push(event);
            if end {
                break;
            }
        }
        got
    }

    /// Queues and flushes.
    pub(crate) fn send(&mut self, text: &str) {
        self.queue(text);
        self.flush().unwrap();
    }

    pub(crate) fn queue(&mut self, text: &str) {
        with_scratch(|scratch| {
            self.stream.queue(text.as_bytes(), scratch);
            self.stream.release_buffers(scratch).unwrap();
        });
    }

    /// True if output could leave.
    pub(crate) fn flush(&mut self) -> Result<bool, NetError> {
        self.flush_with(Waker::noop())
    }

    pub(crate) fn flush_with(&mut self, waker: &Waker) -> Result<bool, NetError> {
        let mut cx = Context::from_waker(waker);
        with_scratch(|scratch| {
            let done = match self.stream.poll_flush(&mut cx, scratch) {
                Poll::Ready(Ok(())) => Ok(true),
                Poll::Ready(Err(error)) => Err(error),
                Poll::Pending => Ok(false),
            };
            self.stream.release_buffers(scratch)?;
            done
        })
    }

    pub(crate) fn shutdown(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        with_scratch(|scratch| {
            assert!(matches!(self.stream.poll_shutdown(&mut cx, scratch), Poll::Ready(Ok(()))));
            assert!(matches!(self.stream.poll_discard(&mut cx, scratch), Poll::Ready(Ok(0))));
            self.stream.release_buffers(scratch).unwrap();
        });
    }
}

/// Value of an attribute of the outermost tag.
pub(crate) fn value<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let tag = &text[..text.find('>').unwrap()];
    let at = tag.find(&format!(" {name}='"))? + name.len() + 3;
    tag[at..].split('\'').next()
}

/// Content of a response's wrapper.
pub(crate) fn payload(text: &str) -> &str {
    let start = text.find('>').unwrap() + 1;
    if text[..start].ends_with("/>") { "" } else { text[start..].strip_suffix("</body>").unwrap() }
}

/// Condition of a terminating response.
pub(crate) fn terminated(text: &str) -> &str {
    assert_eq!(value(text, "type"), Some("terminate"), "{text}");
    value(text, "condition").unwrap_or_default()
}
