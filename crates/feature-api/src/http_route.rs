//! HTTP routes of features: methods below a path prefix, served by every `http` and `https` listener beside the routes
//! of the server.
//!
//! A feature declares an [`HttpRouteSpec`] and registers a handler with
//! `FeatureBuilder::http_route`. The path of a request is `/PREFIX/DOMAIN/REST`, so that the domains of
//! a node share one public URL ([`http_route_url`]); the domain is percent-encoded. The types are those of the crate `http`; bodies are streams of
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
use std::sync::Arc;

use base::percent_encoding::{percent_decode, percent_encode};
use base::spawn::BoxFuture;
use environment::public_url::SharedPublicUrl;
use throng_core::{Host, Node};

pub use environment::{HttpBodyError, HttpBodyStream, HttpRouteBody};

/// Declaration of a route.
#[derive(Debug, PartialEq, Eq)]
pub struct HttpRouteSpec {
    /// First segment of the path: lower-case letters and `-`.
    pub prefix: &'static str,
    /// Methods that the handler answers, in upper case.
    pub methods: &'static [&'static str],
    /// One sentence for the documentation.
    pub doc: &'static str,
}

/// A request to a route.
pub struct HttpRouteRequest {
    /// The node.
    pub node: Arc<Node>,
    /// The host of the domain in the path.
    pub host: Arc<Host>,
    /// The request, with its complete URI.
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

/// The routes of a host, among its extensions.
#[derive(Default)]
pub(crate) struct HttpRoutes(pub(crate) Vec<HttpRoute>);

/// The route for the path of a request.
pub fn match_http_route(node: &Node, path: &str) -> Option<MatchedHttpRoute> {
    let (prefix, rest) = path.strip_prefix('/')?.split_once('/')?;
    let (domain, rest) = rest.split_once('/')?;
    let host = node.host(&percent_decode(domain)?)?;
    let routes = host.extensions.get::<HttpRoutes>()?;
    let route = routes.0.iter().find(|route| route.spec.prefix == prefix)?.clone();
    Some(MatchedHttpRoute { host, route, path: rest.to_owned() })
}

/// Public URL of a route of a domain, without a trailing slash; `None` if clients cannot reach one.
pub fn http_route_url(node: &Node, host: &Host, route: &HttpRouteSpec) -> Option<String> {
    let base = node.extensions.get::<SharedPublicUrl>()?.base(host.domain())?;
    Some(format!("{base}/{}/{}", route.prefix, percent_encode(host.domain())))
}
