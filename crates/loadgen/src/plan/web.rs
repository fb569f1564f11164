//! Transport of a stream: TCP, BOSH (XEP-0124, XEP-0206) or WebSocket (RFC 7395), and its location on an HTTP server.
//!
//! Not implemented: proxies, and discovery of a server's addresses (XEP-0156).
//!
//! # Pitfalls
//!
//! A BOSH user opens two sockets, so a server with 20 000 files has room for fewer than 10 000 users; `sockets` bounds
//! the open sockets of a whole run.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{TransportSecurity, addresses};

/// Transport of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamTransport {
    /// TCP, with TLS according to [`TransportSecurity`].
    #[default]
    Tcp,
    /// Requests over HTTP/1.1 (XEP-0124, XEP-0206).
    Bosh,
    /// WebSocket over HTTP/1.1 (RFC 7395).
    WebSocket,
}

impl StreamTransport {
    /// Maximum number of sockets per user.
    pub fn sockets(self) -> u32 {
        if self == Self::Bosh { 2 } else { 1 }
    }

    /// Whether the transport runs over HTTP.
    pub fn is_web(self) -> bool {
        self != Self::Tcp
    }
}

/// Parameters of BOSH and WebSocket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpBinding {
    /// Transport of the stream.
    pub transport: StreamTransport,
    /// Path on the HTTP server; empty selects the default, see [`HttpBinding::path`].
    pub path: String,
    /// `Host` of the requests; empty selects the first address.
    pub host: String,
    /// BOSH: longest time that the server may hold a request, in seconds.
    pub wait_s: u32,
    /// BOSH: idle time after which a socket without a request is closed, in milliseconds.
    pub keep_alive_ms: u64,
    /// BOSH: sockets of all users together, above which one is closed as soon as it has no request. `None`: two per
    /// user.
    pub sockets: Option<u32>,
}

impl Default for HttpBinding {
    fn default() -> Self {
        Self {
            transport: StreamTransport::Tcp,
            path: String::new(),
            host: String::new(),
            wait_s: 60,
            keep_alive_ms: 60_000,
            sockets: None,
        }
    }
}

impl HttpBinding {
    /// Configured path, or the usual default.
    pub fn path(&self) -> &str {
        match (self.path.as_str(), self.transport) {
            ("", StreamTransport::WebSocket) => "/xmpp-websocket",
            ("", _) => "/http-bind",
            (path, _) => path,
        }
    }
}

/// A parsed address with a scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetUrl {
    /// `http`, `https`: BOSH. `ws`, `wss`: WebSocket.
    pub transport: StreamTransport,
    /// TLS or none.
    pub security: TransportSecurity,
    /// Host and port as written.
    pub host: String,
    /// Path; empty if none was given.
    pub path: String,
    /// Resolved addresses.
    pub addresses: Vec<SocketAddr>,
}

/// Parses `http://host:port/path` (BOSH) or `ws://host:port/path` (WebSocket), or their TLS forms `https` and `wss`.
/// `None` for text without such a scheme.
///
/// # Errors
/// One sentence with its fix: no host, or one that does not resolve.
pub fn endpoint(text: &str) -> Option<Result<TargetUrl, String>> {
    let (scheme, rest) = text.trim().split_once("://")?;
    let (transport, security, port) = match scheme {
        "http" => (StreamTransport::Bosh, TransportSecurity::None, 80),
        "https" => (StreamTransport::Bosh, TransportSecurity::Direct, 443),
        "ws" => (StreamTransport::WebSocket, TransportSecurity::None, 80),
        "wss" => (StreamTransport::WebSocket, TransportSecurity::Direct, 443),
        _ => {
            return Some(Err(format!(
                "\"{text}\" has an unknown scheme; http and https are BOSH, ws and wss WebSocket"
            )));
        }
    };
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let after_address = host.rsplit(']').next().unwrap_or(host);
    let located = if after_address.contains(':') { host.to_owned() } else { format!("{host}:{port}") };
    if host.is_empty() || path.contains([' ', '\r', '\n']) {
        return Some(Err(format!(
            "\"{text}\" is not a URL; write one such as {scheme}://127.0.0.1:5280/http-bind"
        )));
    }
    Some(addresses(&located).map(|addresses| TargetUrl {
        transport,
        security,
        host: host.to_owned(),
        path: path.to_owned(),
        addresses,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_schemes_select_the_transport() {
        for (text, transport, security, address, path) in [
            (
                "http://127.0.0.1:5280/http-bind",
                StreamTransport::Bosh,
                TransportSecurity::None,
                "127.0.0.1:5280",
                "/http-bind",
            ),
            (
                "https://127.0.0.1/b?x=1",
                StreamTransport::Bosh,
                TransportSecurity::Direct,
                "127.0.0.1:443",
                "/b?x=1",
            ),
            ("ws://[::1]:80", StreamTransport::WebSocket, TransportSecurity::None, "[::1]:80", ""),
            ("wss://[::1]/ws", StreamTransport::WebSocket, TransportSecurity::Direct, "[::1]:443", "/ws"),
        ] {
            let found = endpoint(text).unwrap().unwrap();
            assert_eq!(
                (found.transport, found.security, found.path.as_str()),
                (transport, security, path),
                "{text}"
            );
            assert_eq!(found.addresses, [address.parse().unwrap()]);
        }
        assert_eq!(endpoint("127.0.0.1:5222"), None);
        for wrong in ["ftp://a/", "http:///x", "http://127.0.0.1/a b"] {
            assert!(endpoint(wrong).unwrap().is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_paths_default_to_the_usual_ones() {
        let web = |transport| HttpBinding { transport, ..HttpBinding::default() };
        assert_eq!(web(StreamTransport::Bosh).path(), "/http-bind");
        assert_eq!(web(StreamTransport::WebSocket).path(), "/xmpp-websocket");
        assert_eq!(HttpBinding { path: "/x".to_owned(), ..HttpBinding::default() }.path(), "/x");
    }
}
