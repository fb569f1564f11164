//! HTTP/1.1 client for one server: connections are kept and reused, a request is repeated if a kept connection was closed in
//! the meantime. A request that must not be processed twice has a connection of its own.
//!
//! A connection is driven by the request that uses it, so there are no tasks; hyper does the protocol.
//!
//! Not implemented: redirects, because a service of passwords must not send them elsewhere; proxies; compression.
//!
//! # Pitfalls
//!
//! Deadlines are those of the caller ([`crate::limiter`]). A request that is dropped closes its connection.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use base::lock::LeafMutex;
use bytes::Bytes;
use environment::account_provider::{ProviderError, ProviderErrorKind};
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Largest response in bytes. JWKS documents of large services have some dozens of kilobytes.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;
/// Kept connections.
const MAX_IDLE: usize = 16;

/// Address of a service: `https://host[:port]/path` or, for services on the same machine or network, `http://…`.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    tls: bool,
    host: String,
    port: u16,
    /// Begins with `/`; does not end with it, unless that is all.
    path: String,
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl HttpUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// One sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<HttpUrl, String> {
        let uri: http::Uri =
            text.parse().map_err(|error| format!("\"{text}\" is not a valid URL: {error}"))?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(format!("\"{text}\" must begin with https:// or http://")),
        };
        let authority = uri.authority().ok_or_else(|| format!("\"{text}\" has no host"))?;
        if authority.as_str().contains('@') {
            return Err(
                "a URL must not contain a user name or a password; [auth.http] has token_file for a token"
                    .to_owned(),
            );
        }
        if !has_valid_port(authority) {
            return Err(format!("\"{text}\" has an invalid port"));
        }
        if uri.query().is_some() {
            return Err(format!("\"{text}\" must not have a query"));
        }
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let path = match uri.path().trim_end_matches('/') {
            "" => "/".to_owned(),
            path => path.to_owned(),
        };
        Ok(HttpUrl { tls, host: authority.host().to_owned(), port, path })
    }

    /// Whether requests are encrypted.
    pub const fn is_encrypted(&self) -> bool {
        self.tls
    }

    /// Whether the host is this machine.
    pub fn is_loopback(&self) -> bool {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
    }

    fn authority(&self) -> String {
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => self.host.clone(),
            (_, port) => format!("{}:{port}", self.host),
        }
    }

    /// The path of an operation.
    fn path_of(&self, operation: &str) -> String {
        match operation {
            "" => self.path.clone(),
            operation => format!("{}/{operation}", self.path.trim_end_matches('/')),
        }
    }
}

/// Whether the port, if there is one, is a number of a port.
pub(crate) fn has_valid_port(authority: &http::uri::Authority) -> bool {
    let rest = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
    rest.is_empty() || authority.port_u16().is_some_and(|port| port != 0)
}

/// A response whose body was read.
#[derive(Debug)]
pub(crate) struct JsonResponse {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

type TransportIo = TokioIo<Box<dyn Transport>>;

struct HttpConnection {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TransportIo, Full<Bytes>>,
}

/// Client of one service.
pub(crate) struct ServiceClient {
    url: HttpUrl,
    tls: Option<Arc<ClientConfig>>,
    authorization: Option<HeaderValue>,
    idle: LeafMutex<Vec<HttpConnection>>,
}

/// Connection of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionUse {
    /// A kept one, if there is one. The request is repeated if the server closes it without a response.
    Kept,
    /// Another one, so that the request is sent once (RFC 9110, section 9.2.2).
    Fresh,
}

/// Error of an attempt.
enum AttemptError {
    /// The kept connection was closed before the response began.
    Stale,
    Failed(ProviderError),
}

impl ServiceClient {
    /// No connection is made yet. `tls` must be present if the URL begins with `https`. `authorization` is the value of that
    /// header.
    pub(crate) fn new(
        url: HttpUrl,
        tls: Option<Arc<ClientConfig>>,
        authorization: Option<HeaderValue>,
    ) -> ServiceClient {
        ServiceClient { url, tls, authorization, idle: LeafMutex::default() }
    }

    /// The URL.
    pub(crate) fn url(&self) -> &HttpUrl {
        &self.url
    }

    /// Reads a resource.
    pub(crate) async fn get(&self) -> Result<JsonResponse, ProviderError> {
        self.request(&Method::GET, "", Bytes::new(), ConnectionUse::Kept).await
    }

    /// Sends a JSON document to an operation of the service.
    pub(crate) async fn post(
        &self,
        operation: &str,
        document: Vec<u8>,
        connection: ConnectionUse,
    ) -> Result<JsonResponse, ProviderError> {
        self.request(&Method::POST, operation, Bytes::from(document), connection).await
    }

    async fn request(
        &self,
        method: &Method,
        operation: &str,
        body: Bytes,
        connection: ConnectionUse,
    ) -> Result<JsonResponse, ProviderError> {
        // Not in the condition of the loop: the lock would be held in its body.
        let kept = || match connection {
            ConnectionUse::Kept => self.idle.lock().pop(),
            ConnectionUse::Fresh => None,
        };
        while let Some(connection) = kept() {
            match Box::pin(self.attempt(connection, method, operation, body.clone())).await {
                Ok(response) => return Ok(response),
                Err(AttemptError::Stale) => {}
                Err(AttemptError::Failed(error)) => return Err(error),
            }
        }
        // Boxed: handshakes are large and rare.
        let connection = Box::pin(self.connect()).await?;
        match Box::pin(self.attempt(connection, method, operation, body)).await {
            Ok(response) => Ok(response),
            Err(AttemptError::Failed(error)) => Err(error),
            Err(AttemptError::Stale) => Err(self.failed("closed the connection without a response")),
        }
    }

    async fn connect(&self) -> Result<HttpConnection, ProviderError> {
        let host = self.url.host.trim_start_matches('[').trim_end_matches(']');
        let unreachable = |error: &dyn fmt::Display| {
            let text = format!("cannot connect to {}: {error}", self.url);
            ProviderError::new(ProviderErrorKind::Unavailable, text)
        };
        let socket = TcpStream::connect((host, self.url.port)).await.map_err(|error| unreachable(&error))?;
        // Requests are small and each waits for its response.
        socket.set_nodelay(true).map_err(|error| unreachable(&error))?;
        let transport: Box<dyn Transport> = match (&self.tls, self.url.tls) {
            (_, false) => Box::new(socket),
            (None, true) => return Err(unreachable(&"TLS is not configured")),
            (Some(tls), true) => {
                let name = ServerName::try_from(host.to_owned()).map_err(|error| unreachable(&error))?;
                let connector = tokio_rustls::TlsConnector::from(tls.clone());
                Box::new(connector.connect(name, socket).await.map_err(|error| unreachable(&error))?)
            }
        };
        let handshake = http1::handshake(TokioIo::new(transport)).await;
        let (sender, connection) = handshake.map_err(|error| unreachable(&error))?;
        Ok(HttpConnection { sender, connection })
    }

    /// Sends a request, and keeps the connection if the whole response was read.
    async fn attempt(
        &self,
        mut used: HttpConnection,
        method: &Method,
        operation: &str,
        body: Bytes,
    ) -> Result<JsonResponse, AttemptError> {
        let request = self.build(method, operation, body).map_err(AttemptError::Failed)?;
        let HttpConnection { sender, connection } = &mut used;
        let exchange = async {
            // Fails if a kept connection was closed; nothing was sent then.
            sender.ready().await.map_err(|_| AttemptError::Stale)?;
            let response = match sender.send_request(request).await {
                Ok(response) => response,
                Err(error) if error.is_incomplete_message() || error.is_canceled() || error.is_closed() => {
                    return Err(AttemptError::Stale);
                }
                Err(error) => {
                    return Err(AttemptError::Failed(self.failed(&format!("sent no response: {error}"))));
                }
            };
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|error| {
                AttemptError::Failed(self.failed(&format!("sent half a response: {error}")))
            })?;
            Ok(JsonResponse { status, body: body.to_bytes() })
        };
        let response = drive(connection, pin!(exchange)).await?;
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE && !used.sender.is_closed() {
            idle.push(used);
        }
        drop(idle);
        Ok(response)
    }

    fn build(
        &self,
        method: &Method,
        operation: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ProviderError> {
        let mut request = Request::builder()
            .method(method)
            .uri(self.url.path_of(operation))
            .header(header::HOST, self.url.authority())
            .header(header::ACCEPT, "application/json");
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        request
            .body(Full::new(body))
            .map_err(|error| self.failed(&format!("cannot be sent a request: {error}")))
    }

    fn failed(&self, what: &str) -> ProviderError {
        ProviderError::new(ProviderErrorKind::InvalidResponse, format!("{} {what}", self.url))
    }
}

/// Runs an exchange together with the connection that it uses.
async fn drive<T>(
    connection: &mut Connection<TransportIo, Full<Bytes>>,
    mut exchange: Pin<&mut impl Future<Output = T>>,
) -> T {
    let mut open = true;
    std::future::poll_fn(|cx| {
        if let Poll::Ready(output) = exchange.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        if open && Pin::new(&mut *connection).poll(cx).is_ready() {
            // Its end wakes the exchange, which knows the reason.
            open = false;
        }
        exchange.as_mut().poll(cx)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed_and_shown() {
        for (text, shown, path) in [
            ("https://auth.example.net", "https://auth.example.net/", "/check_password"),
            ("https://auth.example.net/", "https://auth.example.net/", "/check_password"),
            (
                "https://auth.example.net:8443/xmpp/",
                "https://auth.example.net:8443/xmpp",
                "/xmpp/check_password",
            ),
            ("http://127.0.0.1:80/a/b", "http://127.0.0.1/a/b", "/a/b/check_password"),
            ("http://[::1]:8080", "http://[::1]:8080/", "/check_password"),
        ] {
            let url = HttpUrl::parse(text).unwrap();
            assert_eq!((url.to_string().as_str(), url.path_of("check_password").as_str()), (shown, path));
        }
        for wrong in [
            "",
            "auth.example.net",
            "/auth",
            "ftp://a.org",
            "https://user:x@a.org",
            "https://a.org/?x=1",
            "https://a.org:",
            "https://a.org:x",
            "https://a.org:0",
            "https://a.org:65536",
        ] {
            assert!(HttpUrl::parse(wrong).is_err(), "{wrong}");
        }
        assert!(HttpUrl::parse("http://[::1]:8080").unwrap().is_loopback());
        assert!(HttpUrl::parse("http://localhost").unwrap().is_loopback());
        assert!(!HttpUrl::parse("http://127.0.0.1.example.net").unwrap().is_loopback());
    }
}
