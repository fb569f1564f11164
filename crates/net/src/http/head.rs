//! Request head: the fields in use, and strict checks against ambiguous requests (RFC 9110, RFC 9112).
//!
//! Refused: more than 16 kB or 64 fields, line ends other than CRLF, folded lines, no `Host` or two in HTTP/1.1, an
//! invalid or repeated length, a length beside chunks, other codings, chunks in HTTP/1.0, unknown expectations. So the
//! end of a request is unambiguous (section 11.2, "Request Smuggling").
//!
//! Not implemented: requests that are not for BOSH or WebSocket; the HTTP library parses them itself.
//!
//! # Pitfalls
//!
//! Paths are compared as written. `//bosh`, `/bosh/..` and `/%62osh` are other paths, and must stay that.

use super::forwarded::{MalformedForwarded, RemoteClient, TrustedProxies};
use super::origins::{AllowedOrigins, Cors};

/// Maximum size of a head in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Maximum number of fields in a head.
const MAX_FIELDS: usize = 64;

/// Purpose of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/bosh`, `/http-bind`.
    Bosh,
    /// `/ws`, `/xmpp-websocket`.
    WebSocket,
    /// Everything else.
    Other,
}

impl Route {
    /// Route of a path. A query and one trailing slash are ignored.
    pub fn of(path: &str) -> Route {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        match path.strip_suffix('/').unwrap_or(path) {
            "/bosh" | "/http-bind" => Route::Bosh,
            "/ws" | "/xmpp-websocket" => Route::WebSocket,
            _ => Route::Other,
        }
    }
}

/// Reason for refusing a request. Its connection ends with the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpRejection {
    pub(crate) status: u16,
    pub(crate) reason: &'static str,
}

const fn rejection(status: u16, reason: &'static str) -> HttpRejection {
    HttpRejection { status, reason }
}

pub(crate) const TOO_LARGE: HttpRejection = rejection(431, "the request head is too large");

/// Request method, as far as this crate distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HttpMethod {
    Get,
    Head,
    Post,
    Options,
    Other,
}

/// How a body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyLength {
    Known(u64),
    Chunked,
}

/// Data of a head that is needed after the head is consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpRequest {
    pub(crate) route: Route,
    pub(crate) method: HttpMethod,
    pub(crate) length: BodyLength,
    /// The client sends the body only after a `100 Continue`.
    pub(crate) expects_continue: bool,
    pub(crate) remote: RemoteClient,
    pub(crate) response_options: ResponseOptions,
    /// Size of the head in bytes.
    pub(crate) head_bytes: usize,
}

/// Options of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResponseOptions {
    pub(crate) cors: Cors,
    pub(crate) gzip: bool,
    /// Another request may follow.
    pub(crate) keep_alive: bool,
    /// A response to an HTTP/1.0 client must say that the connection stays open.
    pub(crate) http_1_0: bool,
    /// Omit the body (HEAD).
    pub(crate) head_only: bool,
}

/// A head and its fields.
pub(crate) struct RequestFields<'a, 'b> {
    pub(crate) request: httparse::Request<'a, 'b>,
}

impl<'a> RequestFields<'a, '_> {
    /// All fields; names in any case.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + Clone {
        self.request.headers.iter().map(|header| (header.name, header.value))
    }

    fn all(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// Value of a field that may occur once; `None` if it is repeated.
    pub(crate) fn get(&self, name: &'static str) -> Option<&'a str> {
        let mut all = self.all(name);
        let value = all.next()?;
        if all.next().is_some() { None } else { std::str::from_utf8(value).ok() }
    }

    /// Whether a list field contains this token.
    fn list_contains(&self, name: &'static str, word: &str) -> bool {
        let words = self.all(name).flat_map(|value| value.split(|byte| *byte == b','));
        words.into_iter().any(|value| value.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
    }
}

/// Settings that decide about a request.
pub(crate) struct RequestPolicy<'a> {
    pub(crate) origins: &'a AllowedOrigins,
    pub(crate) proxies: &'a TrustedProxies,
    pub(crate) gzip: bool,
    pub(crate) bosh: bool,
    pub(crate) websocket: bool,
}

/// Result of scanning the first bytes.
pub(crate) enum HeadScan {
    /// Incomplete. Empty lines before a request must be skipped (RFC 9112, section 2.2).
    More { skip: usize },
    /// HTTP/2 connection preface (RFC 9113, section 3.4).
    Http2,
    /// A whole head of this size.
    Head(usize),
}

/// Searches the end of a head. `seen` bytes were scanned before.
pub(crate) fn scan_head(bytes: &[u8], seen: usize) -> Result<HeadScan, HttpRejection> {
    let skip = bytes.chunks(2).take_while(|pair| *pair == b"\r\n").count() * 2;
    if skip > 0 {
        return Ok(HeadScan::More { skip });
    }
    match bytes.first() {
        None => return Ok(HeadScan::More { skip: 0 }),
        // Refuse TLS or noise on this port without waiting for more.
        Some(byte) if !byte.is_ascii_uppercase() && !byte.is_ascii_lowercase() && *byte != b'\r' => {
            return Err(rejection(400, "the request is not HTTP"));
        }
        Some(_) => {}
    }
    let preface = b"PRI * HTTP/2.0\r\n";
    if bytes.starts_with(preface) {
        return Ok(HeadScan::Http2);
    }
    let from = seen.saturating_sub(3);
    let fresh = bytes.get(from..).unwrap_or_default();
    let end = fresh.windows(4).position(|window| window == b"\r\n\r\n").map(|at| from + at + 4);
    match end {
        Some(end) if end <= MAX_HEAD_BYTES => Ok(HeadScan::Head(end)),
        Some(_) => Err(TOO_LARGE),
        None if bytes.len() >= MAX_HEAD_BYTES => Err(TOO_LARGE),
        None => Ok(HeadScan::More { skip: 0 }),
    }
}

/// Parses a whole head. `handle` gets the fields while they exist; `None` for requests that are not BOSH or WebSocket.
pub(crate) fn parse_head<T>(
    head: &[u8],
    rules: &RequestPolicy<'_>,
    remote: RemoteClient,
    handle: impl FnOnce(HttpRequest, &RequestFields<'_, '_>) -> T,
) -> Result<Option<T>, HttpRejection> {
    let mut storage = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut storage);
    match request.parse(head) {
        Ok(httparse::Status::Complete(bytes)) if bytes == head.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(TOO_LARGE),
        _ => return Err(rejection(400, "the request head is malformed")),
    }
    let bare = head.windows(2).any(|pair| pair[1] == b'\n' && pair[0] != b'\r');
    if bare {
        return Err(rejection(400, "a line of the request head does not end with CRLF"));
    }
    let fields = RequestFields { request };
    let (target, path) = split_target(fields.request.path.unwrap_or_default());
    let route = match Route::of(path) {
        Route::Bosh if rules.bosh => Route::Bosh,
        Route::WebSocket if rules.websocket => Route::WebSocket,
        _ => return Ok(None),
    };
    let request = interpret(&fields, rules, remote, route, target, head.len())?;
    Ok(Some(handle(request, &fields)))
}

/// Authority and path of a request target: `/path` or `http://authority/path` (RFC 9112, section 3.2).
fn split_target(target: &str) -> (Option<&str>, &str) {
    let Some(rest) = target.strip_prefix("http://").or_else(|| target.strip_prefix("https://")) else {
        return (None, target);
    };
    let at = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(at).unwrap_or((rest, ""));
    (Some(authority), path)
}

fn interpret(
    fields: &RequestFields<'_, '_>,
    rules: &RequestPolicy<'_>,
    remote: RemoteClient,
    route: Route,
    authority: Option<&str>,
    bytes: usize,
) -> Result<HttpRequest, HttpRejection> {
    let old = fields.request.version == Some(0);
    let hosts = fields.all("host").count();
    if hosts > 1 || (hosts == 0 && !old) {
        return Err(rejection(400, "a request must have exactly one Host header"));
    }
    let length = body_length(fields, old)?;
    let expects = match fields.get("expect") {
        None if fields.all("expect").next().is_none() => false,
        Some(value) if value.eq_ignore_ascii_case("100-continue") => !old,
        _ => return Err(rejection(417, "the only supported expectation is 100-continue")),
    };
    let coded = fields.all("content-encoding").any(|value| !value.eq_ignore_ascii_case(b"identity"));
    if coded {
        return Err(rejection(415, "request bodies must not be compressed"));
    }
    let method = match fields.request.method.unwrap_or_default() {
        "GET" => HttpMethod::Get,
        "HEAD" => HttpMethod::Head,
        "POST" => HttpMethod::Post,
        "OPTIONS" => HttpMethod::Options,
        _ => HttpMethod::Other,
    };
    let host = authority.or_else(|| fields.get("host"));
    let origin = fields.get("origin");
    let doubled = origin.is_none() && fields.all("origin").next().is_some();
    let cors = if doubled { None } else { rules.origins.cors(origin, host) };
    let Some(cors) = cors else {
        return Err(rejection(403, "this origin is not allowed"));
    };
    let keep = if old {
        fields.list_contains("connection", "keep-alive")
    } else {
        !fields.list_contains("connection", "close")
    };
    let gzip = rules.gzip && fields.all("accept-encoding").any(accepts_gzip);
    let options = ResponseOptions {
        cors,
        gzip,
        keep_alive: keep,
        http_1_0: old,
        head_only: method == HttpMethod::Head,
    };
    let remote = rules
        .proxies
        .client(remote, fields.iter())
        .map_err(|MalformedForwarded| rejection(400, MalformedForwarded::REASON))?;
    Ok(HttpRequest {
        route,
        method,
        length,
        expects_continue: expects,
        remote,
        response_options: options,
        head_bytes: bytes,
    })
}

/// RFC 9112, section 6.3, without the leniency.
fn body_length(fields: &RequestFields<'_, '_>, old: bool) -> Result<BodyLength, HttpRejection> {
    let mut lengths = fields.all("content-length");
    let known = match (lengths.next(), lengths.next()) {
        (None, _) => None,
        (Some(text), None) => Some(text),
        (Some(_), Some(_)) => {
            return Err(rejection(400, "a request must not have two Content-Length headers"));
        }
    };
    let mut codings = fields.all("transfer-encoding");
    match (codings.next(), codings.next()) {
        (None, _) => {}
        (Some(_), _) if known.is_some() => {
            return Err(rejection(400, "a request must not have both Content-Length and Transfer-Encoding"));
        }
        (Some(_), _) if old => return Err(rejection(400, "HTTP/1.0 has no transfer codings")),
        (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => return Ok(BodyLength::Chunked),
        _ => return Err(rejection(501, "the only supported transfer coding is chunked")),
    }
    let Some(text) = known else { return Ok(BodyLength::Known(0)) };
    let digits = !text.is_empty() && text.len() <= 18 && text.iter().all(u8::is_ascii_digit);
    let value = std::str::from_utf8(text).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    value.map(BodyLength::Known).ok_or(rejection(400, "Content-Length is not a number"))
}

/// Whether an `Accept-Encoding` value (RFC 9110, section 12.5.3) accepts gzip.
pub(crate) fn accepts_gzip(value: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(value) else { return false };
    text.split(',').any(|one| {
        let mut parts = one.split(';').map(str::trim);
        let named = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        named && weight.is_none_or(|weight| weight.parse::<f32>().is_ok_and(|weight| weight > 0.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: RequestPolicy<'_> = RequestPolicy {
        origins: &AllowedOrigins::Any,
        proxies: &TrustedProxies::NONE,
        gzip: true,
        bosh: true,
        websocket: true,
    };

    fn from() -> RemoteClient {
        RemoteClient { peer: "192.0.2.1:1".parse().unwrap(), secure: false }
    }

    fn parse(head: &str) -> Result<Option<HttpRequest>, u16> {
        let end = match scan_head(head.as_bytes(), 0).map_err(|refusal| refusal.status)? {
            HeadScan::Head(end) => end,
            HeadScan::Http2 | HeadScan::More { .. } => return Ok(None),
        };
        let read = parse_head(&head.as_bytes()[..end], &RULES, from(), |request, _| request);
        read.map_err(|refusal| refusal.status)
    }

    fn post(more: &str) -> Result<Option<HttpRequest>, u16> {
        parse(&format!("POST /bosh HTTP/1.1\r\nHost: example.org\r\n{more}\r\n"))
    }

    #[test]
    fn the_example_of_the_specification_is_read() {
        // XEP-0124, example 1.
        let request = parse(
            "POST /http-bind HTTP/1.1\r\nHost: httpcm.example.com\r\nAccept-Encoding: gzip, deflate\r\n\
             Content-Type: text/xml; charset=utf-8\r\nContent-Length: 483\r\n\r\n<body",
        );
        let request = request.unwrap().unwrap();
        assert_eq!(request.route, Route::Bosh);
        assert_eq!((request.method, request.length), (HttpMethod::Post, BodyLength::Known(483)));
        let ResponseOptions { gzip, keep_alive: keep, http_1_0: old, head_only: bare, .. } =
            request.response_options;
        assert_eq!([gzip, keep, old, bare], [true, true, false, false]);
    }

    #[test]
    fn paths_are_compared_as_they_are_written() {
        for path in ["/bosh", "/bosh/", "/http-bind", "/bosh?x=1", "/http-bind/?"] {
            assert_eq!(Route::of(path), Route::Bosh, "{path}");
        }
        for path in ["/ws", "/ws/", "/xmpp-websocket", "/ws?token=x"] {
            assert_eq!(Route::of(path), Route::WebSocket, "{path}");
        }
        for path in [
            "",
            "/",
            "//bosh",
            "/bosh//",
            "/bosh/..",
            "/bosh/../bosh",
            "/./bosh",
            "/%62osh",
            "/bosh%2f",
            "/BOSH",
            "/bosh;x",
            "/wss",
            "bosh",
            "*",
            "/bosh/x",
            "/ws/../bosh",
        ] {
            assert_eq!(Route::of(path), Route::Other, "{path}");
        }
        assert!(parse("POST http://example.org/bosh HTTP/1.1\r\nHost: other\r\n\r\n").unwrap().is_some());
        assert!(parse("POST http://example.org HTTP/1.1\r\nHost: x\r\n\r\n").unwrap().is_none());
        assert!(parse("GET /metrics HTTP/1.1\r\n\r\n").unwrap().is_none(), "that is for others to judge");
    }

    #[test]
    fn ambiguous_request_lengths_in_a_head_are_refused() {
        for (more, status) in [
            ("Content-Length: 5\r\nContent-Length: 5\r\n", 400),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", 400),
            ("Content-Length: 5, 5\r\n", 400),
            ("Content-Length: +5\r\n", 400),
            ("Content-Length: -5\r\n", 400),
            ("Content-Length: 0x5\r\n", 400),
            ("Content-Length: 5 5\r\n", 400),
            ("Content-Length:\r\n", 400),
            ("Content-Length: 99999999999999999999\r\n", 400),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", 400),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 501),
            ("Transfer-Encoding: gzip, chunked\r\n", 501),
            ("Transfer-Encoding: xchunked\r\n", 501),
            ("Transfer-Encoding: chunked, identity\r\n", 501),
            ("Transfer-Encoding : chunked\r\n", 400),
            ("Transfer-Encoding: chunked\r\n folded\r\n", 400),
            ("X: a\r\n\tb\r\n", 400),
            ("X: a\nContent-Length: 5\r\n", 400),
            ("X: a\rContent-Length: 5\r\n", 400),
            ("X: a\0b\r\n", 400),
            ("Host: other.example\r\n", 400),
            ("Expect: something\r\n", 417),
            ("Content-Encoding: gzip\r\n", 415),
        ] {
            assert_eq!(post(more).map(|_| ()), Err(status), "{more:?}");
        }
        let old = "POST /bosh HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(parse(old).map(|_| ()), Err(400));
        assert_eq!(parse("POST /bosh HTTP/1.1\r\n\r\n").map(|_| ()), Err(400), "no Host");
        assert_eq!(parse("POST /bosh HTTP/1.1\r\nHost: x\r\n\n").map(|_| ()), Ok(()), "not finished");
        let chunked = post("Transfer-Encoding: Chunked\r\n").unwrap().unwrap();
        assert_eq!(chunked.length, BodyLength::Chunked);
    }

    #[test]
    fn floods_of_fields_are_refused() {
        let many = "X: y\r\n".repeat(MAX_FIELDS);
        assert_eq!(post(&many).map(|_| ()), Err(431));
        assert!(post(&"X: y\r\n".repeat(MAX_FIELDS - 1)).is_ok());
        assert_eq!(post(&format!("X: {}\r\n", "y".repeat(MAX_HEAD_BYTES))).map(|_| ()), Err(431));
        let endless = format!("POST /bosh HTTP/1.1\r\nX: {}", "y".repeat(MAX_HEAD_BYTES));
        assert_eq!(scan_head(endless.as_bytes(), 0).map(|_| ()).unwrap_err().status, 431);
    }

    #[test]
    fn keep_alive_follows_the_http_version() {
        let keep = |head: &str| parse(head).unwrap().unwrap().response_options.keep_alive;
        assert!(keep("POST /bosh HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert!(!keep("POST /bosh HTTP/1.1\r\nHost: x\r\nConnection: foo, Close\r\n\r\n"));
        assert!(!keep("POST /bosh HTTP/1.0\r\n\r\n"));
        assert!(keep("POST /bosh HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
    }

    #[test]
    fn gzip_is_used_only_if_accepted() {
        for value in ["gzip", "deflate, gzip;q=0.5", "GZIP", "br, gzip"] {
            assert!(accepts_gzip(value.as_bytes()), "{value}");
        }
        for value in ["", "deflate", "gzip;q=0", "gzip; q=0.000", "x-gzipped", "identity"] {
            assert!(!accepts_gzip(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn the_end_of_a_head_is_found_at_every_split() {
        let head = b"GET /ws HTTP/1.1\r\nHost: x\r\n\r\n";
        for cut in 1..head.len() {
            assert!(matches!(scan_head(&head[..cut], 0), Ok(HeadScan::More { skip: 0 })), "{cut}");
            assert!(matches!(scan_head(head, cut), Ok(HeadScan::Head(end)) if end == head.len()), "{cut}");
        }
        assert!(matches!(scan_head(b"\r\n\r\nGET", 0), Ok(HeadScan::More { skip: 4 })));
        assert!(matches!(scan_head(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0), Ok(HeadScan::Http2)));
        assert_eq!(scan_head(b"\x16\x03\x01", 0).err().unwrap().status, 400, "TLS on a plain port");
    }
}
