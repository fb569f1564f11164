//! Test client of streams: sends bytes, receives stream events.
//!
//! Not implemented: reconnecting, typed stanzas.
//!
//! # Pitfalls
//!
//! A method that waits for input panics after [`RECEIVE_TIMEOUT`], so that a test fails instead of hanging; no test may
//! rely on that duration.

use std::task::Poll;
use std::time::Duration;

use sasl::client::{Gs2, ScramClient};
use sasl::{Mechanism, channel_binding};
use stanza::StreamCondition;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use xml::{Limits, NamespaceContext, Ns, ScanOutcome, Scanner, Tree};

use super::tls::{self, TlsClientSettings};

/// Timeout for input that is expected immediately.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(120);

/// Stream header for `example.com`.
pub const STREAM_HEADER: &str = "<?xml version='1.0'?><stream:stream to='example.com' version='1.0' \
                        xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";

/// Byte stream to the server.
pub(super) trait ClientIo: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ClientIo for T {}

/// Event received from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceivedEvent {
    /// A stream header.
    Header(ReceivedElement),
    /// A first-level element.
    Element(ReceivedElement),
    /// `</stream:stream>`
    Close,
    /// The end of the connection.
    Eof,
}

/// Element or stream header as text, with accessors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedElement(pub String);

impl ReceivedElement {
    fn with_node<T>(&self, question: impl FnOnce(xml::TreeNode<'_>) -> T) -> T {
        let scope = NamespaceContext::client();
        let text = if self.0.starts_with("<stream:stream") {
            format!("{}</stream:stream>", self.0)
        } else {
            self.0.clone()
        };
        let limits = Limits { element_bytes: 17 << 20, ..Limits::CEILING };
        let tree = Tree::parse(text.as_bytes(), &scope, &limits)
            .unwrap_or_else(|error| panic!("the server said what is no element ({error}): {text}"));
        question(tree.root())
    }

    /// Local name of the element.
    pub fn name(&self) -> String {
        self.with_node(|root| root.name().to_owned())
    }

    /// Attribute of the element; `xml:lang` by that name.
    pub fn attr(&self, name: &str) -> Option<String> {
        self.with_node(|root| {
            if name == "xml:lang" { root.lang() } else { root.attr(name) }.map(std::borrow::Cow::into_owned)
        })
    }

    /// Text directly inside the element.
    pub fn text(&self) -> String {
        self.with_node(|root| root.text().into_owned())
    }

    /// Names of the children.
    pub fn children(&self) -> Vec<String> {
        self.with_node(|root| root.child_elements().map(|c| c.name().to_owned()).collect())
    }

    /// Texts of all elements with this name, at any depth.
    pub fn all(&self, name: &str) -> Vec<String> {
        fn walk(node: xml::TreeNode<'_>, name: &str, out: &mut Vec<String>) {
            for child in node.child_elements() {
                if child.name() == name {
                    out.push(child.text().into_owned());
                }
                walk(child, name, out);
            }
        }
        let mut out = Vec::new();
        self.with_node(|root| walk(root, name, &mut out));
        out
    }

    /// Defined condition of a stream error, stanza error or SASL failure: the first child of the element, or of its
    /// `<error/>`.
    pub fn condition(&self) -> Option<String> {
        self.with_node(|root| {
            let inner = if root.ns() == Some(Ns::Client) { root.child("error", Ns::Client)? } else { root };
            inner.child_elements().next().map(|c| c.name().to_owned())
        })
    }

    /// The `type` of a stanza error.
    pub fn error_type(&self) -> Option<String> {
        self.with_node(|root| root.child("error", Ns::Client)?.attr("type").map(std::borrow::Cow::into_owned))
    }

    /// Whether the text contains `part`.
    pub fn has(&self, part: &str) -> bool {
        self.0.contains(part)
    }
}

/// Client of a test node.
pub struct StreamClient {
    /// `None` while TLS is negotiated.
    io: Option<Box<dyn ClientIo>>,
    scanner: Scanner,
    input: Vec<u8>,
    domain: String,
    certificate: Option<Vec<u8>>,
    exporter: Vec<u8>,
    end_point: Vec<u8>,
    /// The full address, once bound.
    pub jid: String,
}

impl StreamClient {
    pub(super) fn new(io: Box<dyn ClientIo>, domain: &str, certificate: Option<Vec<u8>>) -> StreamClient {
        StreamClient {
            io: Some(io),
            scanner: Scanner::new(),
            input: Vec::new(),
            domain: domain.to_owned(),
            certificate,
            exporter: Vec::new(),
            end_point: Vec::new(),
            jid: String::new(),
        }
    }

    fn io(&mut self) -> &mut Box<dyn ClientIo> {
        self.io.as_mut().expect("a connection")
    }

    /// Sends bytes.
    ///
    /// # Panics
    /// If the connection is closed, or the server does not read.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).await.expect("a connection");
    }

    /// As [`StreamClient::send`], where the server may have closed the connection.
    ///
    /// # Errors
    /// If it is closed.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        let io = self.io();
        let write = async {
            io.write_all(bytes.as_ref()).await?;
            io.flush().await
        };
        tokio::time::timeout(RECEIVE_TIMEOUT, write).await.expect("the server does not read")
    }

    /// Closes the direction to the server; answers can still be read.
    pub async fn half_close(&mut self) {
        let _ = self.io().shutdown().await;
    }

    /// Next event.
    ///
    /// # Panics
    /// If none arrives, or it is not XML.
    pub async fn receive(&mut self) -> ReceivedEvent {
        let received = tokio::time::timeout(RECEIVE_TIMEOUT, self.receive_with_timeout()).await;
        received.unwrap_or_else(|_| panic!("nothing came; unread: {}", String::from_utf8_lossy(&self.input)))
    }

    async fn receive_with_timeout(&mut self) -> ReceivedEvent {
        let limits = Limits { element_bytes: 17 << 20, ..Limits::CEILING };
        loop {
            let found = self.scanner.scan(&self.input, &limits).expect("the server speaks XML");
            let text = |from: usize, to: usize| {
                ReceivedElement(String::from_utf8(self.input[from..to].to_vec()).expect("UTF-8"))
            };
            let (received, used) = match found {
                ScanOutcome::More { skip } => (None, skip),
                ScanOutcome::Open { start, end } => (Some(ReceivedEvent::Header(text(start, end))), end),
                ScanOutcome::Element { start, end } => (Some(ReceivedEvent::Element(text(start, end))), end),
                ScanOutcome::Close { end } => (Some(ReceivedEvent::Close), end),
            };
            self.input.drain(..used);
            if self.input.is_empty() {
                // Tests measure memory.
                self.input.shrink_to(65_536);
            }
            if let Some(received) = received {
                return received;
            }
            let io = self.io.as_mut().expect("a connection");
            self.input.reserve(4096);
            if !matches!(io.read_buf(&mut self.input).await, Ok(1..)) {
                return ReceivedEvent::Eof;
            }
        }
    }

    /// Next event if it is available: `None` if the server has sent nothing more.
    pub async fn try_receive(&mut self) -> Option<ReceivedEvent> {
        let mut hear = std::pin::pin!(self.receive_with_timeout());
        std::future::poll_fn(|cx| {
            Poll::Ready(match hear.as_mut().poll(cx) {
                Poll::Ready(received) => Some(received),
                Poll::Pending => None,
            })
        })
        .await
    }

    /// Next event, which must be an element.
    ///
    /// # Panics
    /// If it is not.
    pub async fn element(&mut self) -> ReceivedElement {
        match self.receive().await {
            ReceivedEvent::Element(seen) => seen,
            other => panic!("expected an element, received {other:?}"),
        }
    }

    /// Next event, which must be a stream header.
    ///
    /// # Panics
    /// If it is not.
    pub async fn header(&mut self) -> ReceivedElement {
        match self.receive().await {
            ReceivedEvent::Header(seen) => seen,
            other => panic!("expected a stream header, received {other:?}"),
        }
    }

    /// Asserts that the next event is an element with the same meaning as `text`.
    ///
    /// # Panics
    /// If it is not.
    pub async fn expect(&mut self, text: &str) {
        let seen = self.element().await;
        crate::assert_same(&[&seen.0], &[text]);
    }

    /// Rest of the input as raw text, until the connection ends.
    ///
    /// # Panics
    /// If it does not end.
    pub async fn read_to_end(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.input);
        let read = tokio::time::timeout(RECEIVE_TIMEOUT, self.io().read_to_end(&mut rest)).await;
        let _ = read.expect("the connection does not end");
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Asserts that the stream ends with only this error: error, closing tag, end of the connection.
    ///
    /// # Panics
    /// If it does not.
    #[track_caller]
    pub fn expect_stream_error(
        &mut self,
        condition: StreamCondition,
    ) -> impl Future<Output = ReceivedElement> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let mut received = self.receive().await;
            if let ReceivedEvent::Header(_) = received {
                received = self.receive().await;
            }
            let ReceivedEvent::Element(error) = received else {
                panic!("{caller}: expected an error, received {received:?}")
            };
            assert_eq!(error.name(), "error", "{caller}: {}", error.0);
            assert_eq!(error.condition().as_deref(), Some(condition.as_str()), "{caller}: {}", error.0);
            assert_eq!(self.receive().await, ReceivedEvent::Close, "{caller}");
            assert_eq!(self.receive().await, ReceivedEvent::Eof, "{caller}");
            error
        }
    }

    /// Asserts that the stream ends without an error.
    ///
    /// # Panics
    /// If it does not.
    pub async fn expect_end(&mut self) {
        assert_eq!(self.receive().await, ReceivedEvent::Close);
        assert_eq!(self.receive().await, ReceivedEvent::Eof);
    }

    /// Expects a new document.
    pub fn restart(&mut self) {
        self.scanner = Scanner::new();
    }

    /// Sends a header for the default domain; returns the server's header and features.
    pub async fn open(&mut self) -> (ReceivedElement, ReceivedElement) {
        let header = STREAM_HEADER.replace("example.com", &self.domain);
        self.open_with(&header).await
    }

    /// As [`StreamClient::open`], with another header.
    pub async fn open_with(&mut self, header: &str) -> (ReceivedElement, ReceivedElement) {
        self.restart();
        self.send(header).await;
        let header = self.header().await;
        let features = self.element().await;
        assert_eq!(features.name(), "features");
        (header, features)
    }

    /// Negotiates STARTTLS on an open stream; a new header must follow.
    ///
    /// # Panics
    /// If it is refused.
    pub async fn start_tls(&mut self, client: &TlsClientSettings) {
        self.send("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>").await;
        self.expect("<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>").await;
        self.handshake(client).await.expect("a handshake");
    }

    /// Performs only the TLS handshake.
    ///
    /// # Errors
    /// If it fails; the connection is closed then.
    ///
    /// # Panics
    /// If the test has no certificates.
    pub async fn handshake(&mut self, client: &TlsClientSettings) -> std::io::Result<()> {
        let io = self.io.take().expect("a connection");
        let certificate = self.certificate.clone().expect("certificates");
        let shaken = tls::connect(io, &self.domain, &certificate, client);
        let (stream, exporter, end_point) =
            tokio::time::timeout(RECEIVE_TIMEOUT, shaken).await.expect("a handshake that ends")?;
        (self.exporter, self.end_point) = (exporter, end_point);
        self.io = Some(Box::new(stream));
        self.restart();
        Ok(())
    }

    /// Makes one attempt to authenticate on an open stream.
    ///
    /// # Errors
    /// The condition of the failure.
    pub async fn authenticate(
        &mut self,
        mechanism: Mechanism,
        user: &str,
        password: &str,
    ) -> Result<(), String> {
        let first = match mechanism {
            Mechanism::Plain => sasl::client::plain(None, user, password),
            Mechanism::External => sasl::client::external(None),
            Mechanism::Anonymous => sasl::client::anonymous("test"),
            Mechanism::OauthBearer => sasl::client::oauth_bearer(None, password),
            _ => return self.scram(mechanism, channel_binding::TLS_EXPORTER, user, password).await,
        };
        self.auth(mechanism, &first).await;
        let answer = self.element().await;
        if answer.name() == "success" { Ok(()) } else { Err(answer.condition().unwrap_or_default()) }
    }

    /// Channel binding data of this client's TLS: `tls-exporter` or `tls-server-end-point`.
    pub fn binding(&self, kind: &str) -> &[u8] {
        if kind == channel_binding::TLS_EXPORTER { &self.exporter } else { &self.end_point }
    }

    /// Authenticates with SCRAM, with this type of channel binding if the mechanism has one.
    ///
    /// # Errors
    /// The condition of the failure.
    ///
    /// # Panics
    /// If the server does not prove that it knows the password.
    pub async fn scram(
        &mut self,
        mechanism: Mechanism,
        kind: &str,
        user: &str,
        password: &str,
    ) -> Result<(), String> {
        let data = self.binding(kind).to_vec();
        let gs2 = if mechanism.is_plus() { Gs2::Bound { name: kind.to_owned(), data } } else { Gs2::None };
        let mut scram = ScramClient::new(mechanism.hash().expect("SCRAM"), gs2, user, password);
        self.auth(mechanism, &scram.client_first()).await;
        let challenge = self.element().await;
        if challenge.name() != "challenge" {
            return Err(challenge.condition().unwrap_or_default());
        }
        let data = sasl::encoding::decode_response(&challenge.text()).expect("base 64");
        let last = scram.client_final(&data, None).expect("a challenge");
        let text = sasl::encoding::encode_additional_data(Some(&last));
        self.send(format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{text}</response>")).await;
        let answer = self.element().await;
        if answer.name() != "success" {
            return Err(answer.condition().unwrap_or_default());
        }
        let proof = sasl::encoding::decode_response(&answer.text()).expect("base 64");
        scram.verify(&proof).expect("the server's proof");
        Ok(())
    }

    /// Sends `<auth/>` with an initial response.
    pub async fn auth(&mut self, mechanism: Mechanism, initial: &[u8]) {
        let (name, text) = (mechanism.name(), sasl::encoding::encode_additional_data(Some(initial)));
        self.send(format!("<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='{name}'>{text}</auth>"))
            .await;
    }

    /// Requests a resource.
    ///
    /// # Errors
    /// The reply, if it is an error.
    pub async fn bind(&mut self, resource: &str) -> Result<String, ReceivedElement> {
        let wanted =
            if resource.is_empty() { String::new() } else { format!("<resource>{resource}</resource>") };
        self.send(format!(
            "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>{wanted}</bind></iq>"
        ))
        .await;
        let answer = self.element().await;
        if answer.attr("type").as_deref() != Some("result") {
            return Err(answer);
        }
        self.jid = answer.all("jid").concat();
        Ok(self.jid.clone())
    }

    /// Logs in, from the first byte to a bound resource, with SCRAM-SHA-1.
    ///
    /// # Panics
    /// If it fails.
    pub async fn login(&mut self, user: &str, resource: &str) {
        self.open().await;
        self.finish_login(Mechanism::ScramSha1, user, resource).await;
    }

    /// Logs in, from an open stream to a bound resource.
    ///
    /// # Panics
    /// If it fails.
    pub async fn finish_login(&mut self, mechanism: Mechanism, user: &str, resource: &str) {
        self.authenticate(mechanism, user, super::PASSWORD).await.expect("a login");
        self.open().await;
        self.bind(resource).await.expect("a resource");
    }

    /// Waits until everything sent before is handled: an answered request on a bound stream. Returns the elements
    /// received before the answer.
    pub async fn sync(&mut self) -> Vec<ReceivedElement> {
        self.send("<iq type='get' id='sync'><nothing xmlns='urn:example:nothing'/></iq>").await;
        let mut before = Vec::new();
        loop {
            let seen = self.element().await;
            if seen.name() == "iq" && seen.attr("id").as_deref() == Some("sync") {
                return before;
            }
            before.push(seen);
        }
    }
}
