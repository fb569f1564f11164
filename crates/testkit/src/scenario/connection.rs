//! Connection of a scenario's client: byte stream, login, and received events that are not processed yet.
//!
//! RFC 6120, sections 4 to 7: header, STARTTLS if offered, SCRAM (the strongest offered) or PLAIN under TLS, binding.
//! [`crate::server::StreamClient`] is for tests of single bytes on our own server; this one logs in to any server.
//!
//! # Pitfalls
//!
//! Certificates are not verified, since scenarios run against servers with self-signed ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cluster::memory::Bus;
use sasl::Mechanism;
use sasl::client::{Gs2, ScramClient};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::ServerName;
use xml::{Limits, ScanOutcome, Scanner};

use super::expected_element::ExpectedElement;
use crate::tls::accept_any_certificate;

/// Timeout for expected input, on a busy machine too. Only failing scenarios wait this long.
pub(super) const RECEIVE_TIMEOUT: Duration = Duration::from_secs(120);
/// Rounds of the runtime without input and without envelopes in transit, after which nodes in memory will send
/// nothing more.
const IDLE_ROUNDS: u32 = 256;

pub(super) trait ScenarioIo: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ScenarioIo for T {}

/// Event from the server.
pub(super) enum ScenarioEvent {
    Header,
    Element(ExpectedElement),
    Closed,
}

/// A connected client.
pub(super) struct ScenarioConnection {
    io: Box<dyn ScenarioIo>,
    scanner: Scanner,
    input: Vec<u8>,
    secure: bool,
    /// The network between nodes in memory. Whether they send anything is certain then, so no time passes.
    bus: Option<Bus>,
    /// Whether it has a resource, bound or resumed.
    pub(super) bound: bool,
    /// Its full address.
    pub(super) full: String,
    /// Stream features received last.
    pub(super) offered: ExpectedElement,
    /// Elements received while something else was awaited.
    pub(super) unread: VecDeque<ExpectedElement>,
}

/// Reason for which a login failed.
pub(super) enum LoginFailure {
    /// The server sent this condition.
    Condition(String),
    /// Any other reason.
    Broken(String),
}

impl From<String> for LoginFailure {
    fn from(message: String) -> LoginFailure {
        LoginFailure::Broken(message)
    }
}

impl ScenarioConnection {
    /// Logs in, from the first byte to the stream features after authentication.
    pub(super) async fn login(
        (io, bus): (Box<dyn ScenarioIo>, Option<Bus>),
        domain: &str,
        user: &str,
        password: &str,
    ) -> Result<ScenarioConnection, LoginFailure> {
        let mut connection = ScenarioConnection::begin((io, bus), domain).await?;
        let features = connection.offered.clone();
        connection.authenticate(&features, user, password).await?;
        connection.offered = connection.open(domain).await?;
        Ok(connection)
    }

    /// Opens the stream, from the first byte to the features before authentication, under TLS if offered.
    pub(super) async fn begin(
        (io, bus): (Box<dyn ScenarioIo>, Option<Bus>),
        domain: &str,
    ) -> Result<ScenarioConnection, LoginFailure> {
        let offered = ExpectedElement::read("<none/>")?;
        let mut connection = ScenarioConnection {
            io,
            scanner: Scanner::new(),
            input: Vec::new(),
            secure: false,
            bus,
            bound: false,
            full: String::new(),
            offered,
            unread: VecDeque::new(),
        };
        let mut features = connection.open(domain).await?;
        if features.child("starttls").is_some() {
            connection = connection.start_tls(domain).await?;
            features = connection.open(domain).await?;
        }
        connection.offered = features;
        Ok(connection)
    }

    async fn open(&mut self, domain: &str) -> Result<ExpectedElement, LoginFailure> {
        self.scanner = Scanner::new();
        let header = format!(
            "<?xml version='1.0'?><stream:stream to='{domain}' version='1.0' xmlns='jabber:client' \
             xmlns:stream='http://etherx.jabber.org/streams'>"
        );
        self.send(&header).await?;
        match self.receive().await? {
            ScenarioEvent::Header => {}
            _ => return Err("the server did not open its stream".to_owned().into()),
        }
        let features = self.element().await?;
        match features.name.as_str() {
            "features" => Ok(features),
            _ => Err(refusal(&features)),
        }
    }

    async fn start_tls(mut self, domain: &str) -> Result<ScenarioConnection, LoginFailure> {
        self.send("<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/>").await?;
        let answer = self.element().await?;
        if answer.name != "proceed" {
            return Err(refusal(&answer));
        }
        self.io = encrypt(self.io, domain).await?;
        self.secure = true;
        Ok(self)
    }

    async fn authenticate(
        &mut self,
        features: &ExpectedElement,
        user: &str,
        password: &str,
    ) -> Result<(), LoginFailure> {
        let offered: Vec<&str> = features
            .child("mechanisms")
            .map(|m| m.children.iter().map(|c| c.text.as_str()).collect())
            .unwrap_or_default();
        let known = [Mechanism::ScramSha256, Mechanism::ScramSha1];
        let Some(mechanism) = known.into_iter().find(|m| offered.contains(&m.name())) else {
            if self.secure && offered.contains(&"PLAIN") {
                self.auth("PLAIN", &sasl::client::plain(None, user, password)).await?;
                let answer = self.element().await?;
                return if answer.name == "success" { Ok(()) } else { Err(refusal(&answer)) };
            }
            return Err(format!("the server offers only {}", offered.join(", ")).into());
        };
        let hash = mechanism.hash().ok_or("not SCRAM".to_owned())?;
        let mut scram = ScramClient::new(hash, Gs2::None, user, password);
        self.auth(mechanism.name(), &scram.client_first()).await?;
        let challenge = self.element().await?;
        if challenge.name != "challenge" {
            return Err(refusal(&challenge));
        }
        let bad = |_| "the server does not speak SCRAM".to_owned();
        let data = sasl::encoding::decode_response(&challenge.text)
            .map_err(|_| "the challenge is not base 64".to_owned())?;
        let last = scram.client_final(&data, None).map_err(bad)?;
        let text = sasl::encoding::encode_additional_data(Some(&last));
        self.send(&format!("<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{text}</response>")).await?;
        let answer = self.element().await?;
        if answer.name == "success" { Ok(()) } else { Err(refusal(&answer)) }
    }

    async fn auth(&mut self, mechanism: &str, initial: &[u8]) -> Result<(), String> {
        let text = sasl::encoding::encode_additional_data(Some(initial));
        let ns = "urn:ietf:params:xml:ns:xmpp-sasl";
        self.send(&format!("<auth xmlns='{ns}' mechanism='{mechanism}'>{text}</auth>")).await
    }

    /// Requests a resource.
    pub(super) async fn bind(&mut self, resource: &str) -> Result<(), LoginFailure> {
        let wanted =
            if resource.is_empty() { String::new() } else { format!("<resource>{resource}</resource>") };
        self.send(&format!(
            "<iq type='set' id='bind'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'>{wanted}</bind></iq>"
        ))
        .await?;
        let answer = self.element().await?;
        let jid = answer.child("bind").and_then(|bind| bind.child("jid"));
        self.full = jid.ok_or_else(|| refusal(&answer))?.text.clone();
        self.bound = true;
        Ok(())
    }

    pub(super) async fn send(&mut self, text: &str) -> Result<(), String> {
        let write = async {
            self.io.write_all(text.as_bytes()).await?;
            self.io.flush().await
        };
        let written = tokio::time::timeout(RECEIVE_TIMEOUT, write)
            .await
            .map_err(|_| "the server does not read".to_owned())?;
        written.map_err(|error| format!("the connection is gone: {error}"))
    }

    /// Next event from the connection, whatever is in [`ScenarioConnection::unread`].
    pub(super) async fn receive(&mut self) -> Result<ScenarioEvent, String> {
        if let Some(bus) = self.bus.clone() {
            return self.receive_until_idle(&bus).await;
        }
        let received = tokio::time::timeout(RECEIVE_TIMEOUT, self.receive_from_stream()).await;
        received.map_err(|_| format!("nothing came within {} s", RECEIVE_TIMEOUT.as_secs()))?
    }

    async fn receive_until_idle(&mut self, bus: &Bus) -> Result<ScenarioEvent, String> {
        let mut received = std::pin::pin!(self.receive_from_stream());
        let mut idle = 0;
        while idle < IDLE_ROUNDS {
            let polled = std::future::poll_fn(|cx| Poll::Ready(received.as_mut().poll(cx))).await;
            if let Poll::Ready(event) = polled {
                return event;
            }
            idle = if bus.step() { 0 } else { idle + 1 };
            tokio::task::yield_now().await;
        }
        Err("nothing came, and all nodes are idle".to_owned())
    }

    async fn element(&mut self) -> Result<ExpectedElement, String> {
        match self.receive().await? {
            ScenarioEvent::Element(shape) => Ok(shape),
            _ => Err("the server ended the stream".to_owned()),
        }
    }

    async fn receive_from_stream(&mut self) -> Result<ScenarioEvent, String> {
        let limits = Limits { element_bytes: 17 << 20, ..Limits::CEILING };
        loop {
            let found = self
                .scanner
                .scan(&self.input, &limits)
                .map_err(|e| format!("the server sent no XML: {e}"))?;
            let (received, used) = match found {
                ScanOutcome::More { skip } => (None, skip),
                ScanOutcome::Open { end, .. } => (Some(ScenarioEvent::Header), end),
                ScanOutcome::Element { start, end } => {
                    let text = String::from_utf8_lossy(&self.input[start..end]).into_owned();
                    let shape = ExpectedElement::read(&text)?;
                    let inside = |name| shape.name == "success" && shape.child(name).is_some();
                    self.bound |= shape.name == "resumed" || inside("bound") || inside("resumed");
                    (Some(ScenarioEvent::Element(shape)), end)
                }
                ScanOutcome::Close { end } => (Some(ScenarioEvent::Closed), end),
            };
            self.input.drain(..used);
            if let Some(received) = received {
                return Ok(received);
            }
            let mut buffer = vec![0; 16_384];
            match self.io.read(&mut buffer).await {
                Ok(0) | Err(_) => return Ok(ScenarioEvent::Closed),
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
            }
        }
    }

    /// Waits until the server has answered a request; earlier elements are stored.
    pub(super) async fn sync(&mut self, id: &str) -> Result<(), String> {
        self.send(&format!("<iq type='get' id='{id}'><ping xmlns='urn:xmpp:ping'/></iq>")).await?;
        loop {
            let shape = self.element().await?;
            if shape.name == "iq" && shape.attrs.get("id").is_some_and(|i| i == id) {
                return Ok(());
            }
            self.unread.push_back(shape);
        }
    }
}

/// Starts TLS over a byte stream.
pub(super) async fn encrypt(io: Box<dyn ScenarioIo>, domain: &str) -> Result<Box<dyn ScenarioIo>, String> {
    let name = ServerName::try_from(domain.to_owned()).map_err(|error| format!("{domain}: {error}"))?;
    let shaken = tokio_rustls::TlsConnector::from(Arc::new(accept_any_certificate(&[]))).connect(name, io);
    let stream = tokio::time::timeout(RECEIVE_TIMEOUT, shaken)
        .await
        .map_err(|_| "the handshake does not end".to_owned())?;
    Ok(Box::new(stream.map_err(|error| format!("the handshake failed: {error}"))?))
}

/// Requests a WebSocket from an HTTP server (RFC 6455, section 4.1) and wraps it as the text of a stream document.
pub(super) async fn open_websocket(
    mut io: Box<dyn ScenarioIo>,
    place: &str,
) -> Result<Box<dyn ScenarioIo>, String> {
    let (host, path) = place.split_once('/').unwrap_or((place, "ws"));
    let request = format!(
        "GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Protocol: xmpp\r\n\r\n"
    );
    let broken = |error: std::io::Error| format!("the connection is gone: {error}");
    io.write_all(request.as_bytes()).await.map_err(broken)?;
    io.flush().await.map_err(broken)?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = tokio::time::timeout(RECEIVE_TIMEOUT, io.read_u8()).await;
        head.push(byte.map_err(|_| "no answer over HTTP".to_owned())?.map_err(broken)?);
    }
    let head = String::from_utf8_lossy(&head);
    // The accept value for the key of section 1.3.
    if !head.starts_with("HTTP/1.1 101 ") || !head.contains(": s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n") {
        return Err(format!("no WebSocket: {head}"));
    }
    Ok(Box::new(crate::server::Framed::new(io, false)))
}

/// Condition of a stream error, SASL failure or stanza error.
pub(super) fn condition(shape: &ExpectedElement) -> String {
    let inner = shape.child("error").unwrap_or(shape);
    inner.children.first().map_or_else(|| inner.name.clone(), |c| c.name.clone())
}

fn refusal(shape: &ExpectedElement) -> LoginFailure {
    LoginFailure::Condition(condition(shape))
}
