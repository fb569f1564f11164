//! Opening handshake: RFC 6455, section 4.2; RFC 8441, section 5 (HTTP/2); RFC 7395, section 3.1 (the subprotocol
//! `xmpp`); RFC 7692, section 7.1 (negotiation of compression).
//!
//! A pure function from a request to a response. It reads headers only; the caller checks the path and `Origin`.
//!
//! Not implemented: compression windows below 32 kB, which the deflate library cannot be limited to; such an offer is
//! declined.
//!
//! # Pitfalls
//!
//! A header may be repeated, and each may be a list. A token is searched in all of them.

#[cfg(test)]
#[path = "handshake_tests.rs"]
mod tests;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::digest;

/// GUID appended to the key (RFC 6455, section 1.3).
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The subprotocol of RFC 7395.
const SUBPROTOCOL: &str = "xmpp";
/// The version of RFC 6455.
const VERSION: &str = "13";
/// The extension of RFC 7692.
const PERMESSAGE_DEFLATE: &str = "permessage-deflate";

/// Settings of the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSocketSettings {
    /// Maximum bytes of one message, after decompression. The listener's element limit applies too; the smaller one
    /// wins.
    pub message_bytes: u32,
    /// Whether compression is negotiated with clients that offer it (RFC 7692). Off by default: each message costs
    /// processor time, and over TLS its length reveals something about secrets in it (RFC 7692, section 8).
    pub compression: bool,
    /// Redirection: the first `<open/>` is answered by `<close see-other-uri='…'/>` (RFC 7395, section 3.6.1).
    pub see_other_uri: Option<String>,
}

impl Default for WebSocketSettings {
    fn default() -> WebSocketSettings {
        WebSocketSettings {
            message_bytes: xml::Limits::DEFAULT.element_bytes,
            compression: false,
            see_other_uri: None,
        }
    }
}

/// HTTP version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.0, which has no upgrade.
    Http10,
    /// HTTP/1.1: `GET` with `Upgrade`.
    Http11,
    /// HTTP/2: `CONNECT` with `:protocol` (RFC 8441). The caller has compared the protocol with `websocket`.
    Http2,
}

/// A WebSocket handshake request.
#[derive(Clone, Copy, Debug)]
pub struct Handshake<'a, H> {
    /// `GET`, or `CONNECT` in HTTP/2.
    pub method: &'a str,
    /// HTTP version of the request.
    pub version: HttpVersion,
    /// Header names, in any case, and values.
    pub headers: H,
}

/// An accepted handshake and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedHandshake {
    /// Value of `Sec-WebSocket-Accept`; `None` in HTTP/2.
    accept_key: Option<String>,
    extensions: Option<&'static str>,
    pub(crate) settings: WebSocketSettings,
}

/// A rejected handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RejectedHandshake {
    /// Status of the response: 400, 405, 426 or 505.
    pub status: u16,
    /// One sentence for the body of the response.
    pub reason: &'static str,
}

impl RejectedHandshake {
    /// Header that the response requires, name and value (RFC 6455, section 4.4; RFC 9110, sections 10.2.1 and
    /// 15.5.22).
    pub fn header(&self) -> Option<(&'static str, &'static str)> {
        match self.status {
            426 => Some(("Sec-WebSocket-Version", VERSION)),
            405 => Some(("Allow", "GET")),
            _ => None,
        }
    }
}

const fn reject<T>(status: u16, reason: &'static str) -> Result<T, RejectedHandshake> {
    Err(RejectedHandshake { status, reason })
}

/// Checks a request (RFC 6455, section 4.2.1; RFC 7395, section 3.1).
///
/// # Errors
/// [`RejectedHandshake`]: not a WebSocket handshake, another version, or no offer of the subprotocol `xmpp`.
pub fn accept<'a, H>(
    request: Handshake<'_, H>,
    settings: &WebSocketSettings,
) -> Result<AcceptedHandshake, RejectedHandshake>
where
    H: IntoIterator<Item = (&'a str, &'a [u8])>,
{
    let upgrades = match (request.version, request.method) {
        (HttpVersion::Http10, _) => return reject(505, "WebSocket requires HTTP/1.1."),
        (HttpVersion::Http11, "GET") => true,
        (HttpVersion::Http2, "CONNECT") => false,
        _ => return reject(405, "a WebSocket handshake uses GET, or CONNECT in HTTP/2."),
    };
    let (mut upgrade, mut connection, mut subprotocol) = (false, false, false);
    let mut host = 0;
    let (mut version, mut key, mut doubled) = (None, None, false);
    let mut deflate = None;
    for (name, value) in request.headers {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        if is("Upgrade") {
            upgrade |= list_members(value).any(|token| token.eq_ignore_ascii_case(b"websocket"));
        } else if is("Connection") {
            connection |= list_members(value).any(|token| token.eq_ignore_ascii_case(b"upgrade"));
        } else if is("Host") {
            host += 1;
        } else if is("Sec-WebSocket-Key") {
            doubled |= key.replace(value.trim_ascii()).is_some();
        } else if is("Sec-WebSocket-Version") {
            doubled |= version.replace(value.trim_ascii()).is_some();
        } else if is("Sec-WebSocket-Protocol") {
            // Subprotocol names are case-sensitive (RFC 6455, section 4.1, item 10).
            subprotocol |= list_members(value).any(|token| token == SUBPROTOCOL.as_bytes());
        } else if is("Sec-WebSocket-Extensions") {
            let Some(found) = negotiate_deflate(value) else {
                return reject(400, "Sec-WebSocket-Extensions is malformed.");
            };
            deflate = deflate.or(found);
        }
    }
    if doubled {
        return reject(400, "a header of the handshake is repeated.");
    }
    if upgrades && !(upgrade && connection) {
        return reject(400, "not a WebSocket handshake: Upgrade and Connection do not request one.");
    }
    if upgrades && host != 1 {
        return reject(400, "a request must have exactly one Host header.");
    }
    if version != Some(VERSION.as_bytes()) {
        return reject(426, "this server supports version 13 of WebSocket.");
    }
    let key = match key {
        _ if !upgrades => None,
        Some(key) if BASE64.decode(key).is_ok_and(|nonce| nonce.len() == 16) => Some(accept_key(key)),
        _ => return reject(400, "Sec-WebSocket-Key is not 16 bytes in Base64."),
    };
    if !subprotocol {
        return reject(400, "this WebSocket requires the subprotocol xmpp, which the client did not offer.");
    }
    let extensions = deflate.filter(|_| settings.compression);
    Ok(AcceptedHandshake { accept_key: key, extensions, settings: settings.clone() })
}

impl AcceptedHandshake {
    /// Writes the HTTP/1.1 response, including the final empty line. Switch the stream as soon as it is queued, so that
    /// nothing else is queued in between.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n",
        );
        for (name, value) in self.headers() {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// Headers of the response besides `Upgrade` and `Connection`, for an HTTP library; names in lower case. The status
    /// is 101 in HTTP/1.1 and 200 in HTTP/2.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let key = self.accept_key.as_deref().map(|key| ("sec-websocket-accept", key));
        let extensions = self.extensions.map(|value| ("sec-websocket-extensions", value));
        key.into_iter().chain([("sec-websocket-protocol", SUBPROTOCOL)]).chain(extensions)
    }

    /// Whether compression was negotiated.
    pub fn is_compressed(&self) -> bool {
        self.extensions.is_some()
    }
}

/// `Sec-WebSocket-Accept` (RFC 6455, section 4.2.2, item 5.4).
fn accept_key(key: &[u8]) -> String {
    let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(GUID);
    BASE64.encode(context.finish())
}

/// Members of a comma-separated list without empty ones (RFC 9110, section 5.6.1).
fn list_members(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).filter(|token| !token.is_empty())
}

/// Response to the first acceptable compression offer in one `Sec-WebSocket-Extensions`, if there is one. `None` if the
/// header is malformed, which fails the handshake (RFC 6455, section 9.1).
#[allow(clippy::option_option, reason = "malformed is another thing than nothing to take")]
fn negotiate_deflate(value: &[u8]) -> Option<Option<&'static str>> {
    let value = std::str::from_utf8(value).ok()?;
    let mut taken = None;
    // No registered parameter has a comma in a quoted value.
    for extension in value.split(',') {
        let mut parts = extension.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        if name.is_empty() && parts.next().is_none() {
            continue;
        }
        if !is_token(name) {
            return None;
        }
        let mut params = DeflateParams::default();
        for part in parts {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name.trim(), Some(unquoted(value.trim())?)),
                None => (part, None),
            };
            if !is_token(name) {
                return None;
            }
            params.take(name, value);
        }
        if name.eq_ignore_ascii_case(PERMESSAGE_DEFLATE) && taken.is_none() {
            taken = params.answer();
        }
    }
    Some(taken)
}

/// Parameters of one compression offer (RFC 7692, section 7.1).
#[derive(Default)]
struct DeflateParams {
    seen: u8,
    /// A parameter is unknown, repeated, out of range, or unsupported: the offer is declined.
    declined: bool,
}

/// `server_max_window_bits` was offered; only deflate's maximum can be selected.
const SERVER_BITS: u8 = 4;

impl DeflateParams {
    fn take(&mut self, name: &str, value: Option<&str>) {
        let bits = |value: &str| matches!(value, "8" | "9" | "10" | "11" | "12" | "13" | "14" | "15");
        let (flag, good) = match (name, value) {
            ("server_no_context_takeover", None) => (1, true),
            ("client_no_context_takeover", None) => (2, true),
            ("server_max_window_bits", Some(value)) => (SERVER_BITS, value == "15"),
            ("client_max_window_bits", value) => (8, value.is_none_or(bits)),
            _ => (0, false),
        };
        self.declined |= !good || self.seen & flag != 0;
        self.seen |= flag;
    }

    fn answer(&self) -> Option<&'static str> {
        match (self.declined, self.seen & SERVER_BITS != 0) {
            (true, _) => None,
            (_, false) => Some("permessage-deflate; server_no_context_takeover; client_no_context_takeover"),
            (_, true) => Some(
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                 server_max_window_bits=15",
            ),
        }
    }
}

/// Whether this is a token (RFC 9110, section 5.6.2).
fn is_token(text: &str) -> bool {
    let byte = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    !text.is_empty() && text.bytes().all(byte)
}

/// A parameter value, which must be a token without its quotes (RFC 6455, section 9.1).
fn unquoted(value: &str) -> Option<&str> {
    let inner = value.strip_prefix('"').map_or(Some(value), |rest| rest.strip_suffix('"'))?;
    is_token(inner).then_some(inner)
}
