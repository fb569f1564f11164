//! HTTP routes of features: a method and a path prefix, served by every `http` and `https` listener beside the routes of
//! the server.
//!
//! A feature declares an [`HttpRouteSpec`] and registers a handler with
//! [`crate::feature::FeatureBuilder::http_route`]. The path of a request is `/PREFIX/DOMAIN/REST`, so that the domains of
//! a node share one public URL ([`Node::http_route_url`]); the domain is percent-encoded. The types are those of the crate `http`; bodies are streams of
//! chunks in both directions, so a handler holds one chunk at a time.
//!
//! The listener answers methods that are not declared, and requests of other web origins (CORS) by `[http]
//! allowed_origins`. It bounds the time of a request body.
//!
//! # Pitfalls
//!
//! The body has not been read when the handler is called: check its length and everything else first. A body that is
//! dropped unread closes the connection.
//!
//! Any client that reaches the listener can send anything. A handler authenticates requests itself.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use base::percent_encoding::{percent_decode, percent_encode};
use base::spawn::BoxFuture;
use bytes::Bytes;
use futures_core::Stream;

use crate::host::Host;
use crate::node::Node;
use crate::public_url::SharedPublicUrl;

/// Declaration of a route.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpRouteSpec {
    /// First segment of the path: small letters and `-`.
    pub prefix: &'static str,
    /// Methods that the handler answers, in upper case.
    pub methods: &'static [&'static str],
    /// One sentence for the documentation.
    pub doc: &'static str,
}

/// Prefixes that the server uses itself.
const RESERVED_PREFIXES: &[&str] = &[
    "api",
    "assets",
    "bosh",
    "chat",
    "console",
    "healthz",
    "http-bind",
    "metrics",
    "readyz",
    "ws",
    "xmpp-websocket",
];

impl HttpRouteSpec {
    /// Whether the prefix can be used.
    pub(crate) fn is_valid(&self) -> bool {
        let known = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        !self.prefix.is_empty() && self.prefix.bytes().all(known) && !RESERVED_PREFIXES.contains(&self.prefix)
    }
}

/// Chunks of a body, none of them empty.
pub type HttpBodyStream = Pin<Box<dyn Stream<Item = Result<Bytes, HttpBodyError>> + Send>>;

/// The body of a request or response.
#[derive(Default)]
pub enum HttpRouteBody {
    /// No body.
    #[default]
    Empty,
    /// The whole body.
    Full(Bytes),
    /// Chunks that are read when the receiver takes them.
    Stream {
        /// The chunks.
        chunks: HttpBodyStream,
        /// Bytes of all chunks, if known.
        length: Option<u64>,
    },
}

impl HttpRouteBody {
    /// Bytes of the body, if known.
    pub fn length(&self) -> Option<u64> {
        match self {
            HttpRouteBody::Empty => Some(0),
            HttpRouteBody::Full(bytes) => Some(bytes.len() as u64),
            HttpRouteBody::Stream { length, .. } => *length,
        }
    }

    /// The next chunk; `None` at the end.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, HttpBodyError>> {
        match self {
            HttpRouteBody::Empty => None,
            HttpRouteBody::Full(_) => match std::mem::take(self) {
                HttpRouteBody::Full(bytes) if !bytes.is_empty() => Some(Ok(bytes)),
                _ => None,
            },
            HttpRouteBody::Stream { chunks, .. } => {
                std::future::poll_fn(|cx| chunks.as_mut().poll_next(cx)).await
            }
        }
    }
}

impl std::fmt::Debug for HttpRouteBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HttpRouteBody({:?})", self.length())
    }
}

/// Why a body ended before its end.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum HttpBodyError {
    /// The connection was closed, or the body is malformed.
    #[error("the body is incomplete")]
    Incomplete,
    /// It did not arrive in time.
    #[error("the body was not received in time")]
    TooSlow,
    /// Its source failed, such as a disk.
    #[error("{0}")]
    Source(String),
}

/// A request to a route.
pub struct HttpRouteRequest {
    /// The node.
    pub node: Arc<Node>,
    /// The host of the domain in the path.
    pub host: Arc<Host>,
    /// The request. Its URI is the whole one.
    pub request: http::Request<HttpRouteBody>,
    /// The path after the domain, without the slash between them, still percent-encoded.
    pub path: String,
    /// Address of the client, behind trusted reverse proxies.
    pub peer: IpAddr,
    /// Whether the client's connection is encrypted.
    pub secure: bool,
}

/// Answers requests to a route; implemented by closures of the same signature.
pub trait HttpRouteHandler: Send + Sync {
    /// Answers a request. Dropped if the client closes the connection.
    fn answer(&self, request: HttpRouteRequest) -> BoxFuture<'static, http::Response<HttpRouteBody>>;
}

impl<F> HttpRouteHandler for F
where
    F: Fn(HttpRouteRequest) -> BoxFuture<'static, http::Response<HttpRouteBody>> + Send + Sync,
{
    fn answer(&self, request: HttpRouteRequest) -> BoxFuture<'static, http::Response<HttpRouteBody>> {
        self(request)
    }
}

/// A route of a host.
#[derive(Clone)]
pub struct HttpRoute {
    /// The feature that provides it.
    pub feature: &'static str,
    /// Its declaration.
    pub spec: &'static HttpRouteSpec,
    /// Its handler.
    pub handler: Arc<dyn HttpRouteHandler>,
}

/// The route of a request.
pub struct MatchedHttpRoute {
    /// The host of the domain in the path.
    pub host: Arc<Host>,
    /// The route.
    pub route: HttpRoute,
    /// The path after the domain.
    pub path: String,
}

impl Node {
    /// The route for the path of a request.
    pub fn match_http_route(&self, path: &str) -> Option<MatchedHttpRoute> {
        let (prefix, rest) = path.strip_prefix('/')?.split_once('/')?;
        let (domain, rest) = rest.split_once('/')?;
        let host = self.host(&percent_decode(domain)?)?;
        let route = host.http_routes.iter().find(|route| route.spec.prefix == prefix)?.clone();
        Some(MatchedHttpRoute { host, route, path: rest.to_owned() })
    }

    /// Public address of a route of a domain, without a trailing slash; `None` if clients cannot reach one.
    pub fn http_route_url(&self, host: &Host, route: &HttpRouteSpec) -> Option<String> {
        let base = self.extensions.get::<SharedPublicUrl>()?.base(host.domain())?;
        Some(format!("{base}/{}/{}", route.prefix, percent_encode(host.domain())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_prefix_is_one_word_that_the_server_does_not_use() {
        let valid = |prefix| HttpRouteSpec { prefix, methods: &["GET"], doc: "" }.is_valid();
        assert!(valid("upload") && valid("bits-of-binary"));
        assert!(!valid("http-bind") && !valid("readyz"));
        assert!(!valid("") && !valid("api") && !valid("a/b") && !valid("%2e") && !valid("Upload"));
    }

    #[test]
    fn a_whole_body_is_one_chunk() {
        let mut body = HttpRouteBody::Full(Bytes::from_static(b"abc"));
        assert_eq!(body.length(), Some(3));
        let mut chunk = || {
            let next = std::pin::pin!(body.chunk()).poll(&mut Context::from_waker(Waker::noop()));
            let Poll::Ready(chunk) = next else { panic!("it is there") };
            chunk
        };
        assert_eq!((chunk(), chunk()), (Some(Ok(Bytes::from_static(b"abc"))), None));
    }
}
