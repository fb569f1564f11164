//! Client address from a reverse proxy: `X-Forwarded-For` and `X-Forwarded-Proto`, or `Forwarded` (RFC 7239).
//!
//! The operator names the header that the proxy sets. Only that one is read: a proxy that sets `X-Forwarded-For` passes
//! on a `Forwarded` written by its client. Nothing is read unless the connection itself comes from a trusted address,
//! and nothing by default.
//!
//! Each proxy appends the address of its peer. So the list is read from its end while its addresses are trusted
//! proxies; the first other address is the client. Several lines of the header are one list (RFC 9110, section 5.2). A
//! client's port is used if the header has one. A `Forwarded` that violates the grammar of section 4 is refused: an
//! open quote from the client would swallow what the proxy appended.
//!
//! Not implemented: `by`, `host`, obfuscated identifiers (`_hidden`, `unknown`): they have no address, so the proxy
//! before them counts as the client.
//!
//! # Pitfalls
//!
//! A client can write these headers itself. The proxy must append to or replace the named address header, and must
//! replace the named scheme header.

use std::net::{IpAddr, SocketAddr};

use crate::networks::Networks;

/// Headers added by proxies. A client that talks to this server directly never sends them.
const PROXY_HEADERS: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-proto", "x-real-ip", "via"];

/// The client that sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteClient {
    /// The client's address.
    pub peer: SocketAddr,
    /// Its connection is encrypted.
    pub secure: bool,
}

/// The header with the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressHeader {
    /// `X-Forwarded-For`: a list of addresses.
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// The header that reports whether the client uses TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemeHeader {
    /// `X-Forwarded-Proto`.
    XForwardedProto,
    /// `proto` of `Forwarded` (RFC 7239). Only beside [`AddressHeader::Forwarded`].
    Forwarded,
}

/// Trusted reverse proxies and the headers that they set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustedProxies {
    /// Addresses that may report a client: with these headers, or with the PROXY protocol.
    pub trusted: Networks,
    /// The header with the client's address; `None`: the proxy counts as the client.
    pub address: Option<AddressHeader>,
    /// The header with the client's scheme; `None`: only the connection itself decides.
    pub scheme: Option<SchemeHeader>,
}

/// The named header violates its grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedForwarded;

impl MalformedForwarded {
    /// One sentence for the client.
    pub const REASON: &'static str = "the header Forwarded is malformed";
}

impl TrustedProxies {
    /// No proxy is trusted.
    pub const NONE: TrustedProxies = TrustedProxies { trusted: Networks::NONE, address: None, scheme: None };

    /// Whether any request header is read.
    pub fn reads_headers(&self) -> bool {
        !self.trusted.is_empty() && (self.address.is_some() || self.scheme.is_some())
    }

    /// The client of a request with these headers (names in any case) over a connection from `direct`.
    ///
    /// # Errors
    /// The named header is malformed, and its sender is trusted.
    pub fn client<'a>(
        &self,
        direct: RemoteClient,
        headers: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
    ) -> Result<RemoteClient, MalformedForwarded> {
        if !self.reads_headers() || !self.trusted.contains(direct.peer.ip()) {
            return Ok(direct);
        }
        let all = |wanted: &'static str| {
            let found = headers.clone().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value)
        };
        let mut remote = direct;
        match self.address {
            None => {}
            Some(AddressHeader::XForwardedFor) => {
                let hops: Vec<&[u8]> = all("x-forwarded-for").flat_map(|v| v.split(|b| *b == b',')).collect();
                // RFC 9110, section 5.6.1: empty list elements are ignored.
                let hops = hops.into_iter().rev().map(<[u8]>::trim_ascii).filter(|hop| !hop.is_empty());
                for hop in hops {
                    if !self.trusted.contains(remote.peer.ip()) {
                        break;
                    }
                    let Some(peer) = std::str::from_utf8(hop).ok().and_then(parse_address) else { break };
                    remote.peer = peer;
                }
            }
            Some(AddressHeader::Forwarded) => {
                let mut elements = Vec::new();
                for value in all("forwarded") {
                    elements.extend(parse_forwarded(value).ok_or(MalformedForwarded)?);
                }
                for element in elements.into_iter().rev() {
                    if !self.trusted.contains(remote.peer.ip()) {
                        break;
                    }
                    if self.scheme == Some(SchemeHeader::Forwarded) {
                        remote.secure = element.proto.is_some_and(is_secure);
                    }
                    let Some(peer) = element.client.and_then(parse_address) else { break };
                    remote.peer = peer;
                }
            }
        }
        if self.scheme == Some(SchemeHeader::XForwardedProto)
            && let Some(proto) = all("x-forwarded-proto").last()
        {
            let last = proto.rsplit(|b| *b == b',').next().unwrap_or_default().trim_ascii();
            remote.secure = std::str::from_utf8(last).is_ok_and(is_secure);
        }
        Ok(remote)
    }
}

/// Whether a request has passed a proxy, whatever it claims about its client. Over loopback such a request is not
/// local.
pub fn has_passed_a_proxy<'a>(mut names: impl Iterator<Item = &'a str>) -> bool {
    names.any(|name| PROXY_HEADERS.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

fn is_secure(proto: &str) -> bool {
    proto.eq_ignore_ascii_case("https") || proto.eq_ignore_ascii_case("wss")
}

/// One element of `Forwarded`, written by one proxy.
#[derive(Default)]
struct ForwardedElement<'a> {
    client: Option<&'a str>,
    proto: Option<&'a str>,
}

/// Elements of one `Forwarded` line (RFC 7239, section 4); `None` if malformed. Unquoted colons and brackets are
/// accepted, because some proxies omit the quotes around an address with a port.
fn parse_forwarded(value: &[u8]) -> Option<Vec<ForwardedElement<'_>>> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let bare = |byte: u8| token(byte) || b":[]".contains(&byte);
    let text = std::str::from_utf8(value).ok()?;
    let mut elements = Vec::new();
    let mut element = ForwardedElement::default();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t']);
        if rest.starts_with([';', ',']) || rest.is_empty() {
            if !rest.starts_with(';') {
                elements.push(std::mem::take(&mut element));
            }
            match rest.get(1..) {
                Some(more) => rest = more,
                None => return Some(elements),
            }
            continue;
        }
        let (name, more) = rest.split_once('=')?;
        if name.is_empty() || !name.bytes().all(token) {
            return None;
        }
        let (value, more) = match more.strip_prefix('"') {
            Some(quoted) => {
                let mut escaped = false;
                let end = quoted.bytes().position(|byte| {
                    let closes = byte == b'"' && !escaped;
                    escaped = byte == b'\\' && !escaped;
                    closes
                })?;
                (&quoted[..end], &quoted[end + 1..])
            }
            None => more.split_at(more.bytes().position(|byte| !bare(byte)).unwrap_or(more.len())),
        };
        if name.eq_ignore_ascii_case("for") {
            // Section 4: each parameter occurs once.
            element.client.replace(value).is_none().then_some(())?;
        } else if name.eq_ignore_ascii_case("proto") {
            element.proto.replace(value).is_none().then_some(())?;
        }
        rest = more.trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with([';', ',']) {
            return None;
        }
    }
}

/// Parses `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`. The default port is 0.
fn parse_address(text: &str) -> Option<SocketAddr> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip.to_canonical(), 0));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    Some(SocketAddr::new(inside.parse::<IpAddr>().ok()?.to_canonical(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const XFF: (Option<AddressHeader>, Option<SchemeHeader>) =
        (Some(AddressHeader::XForwardedFor), Some(SchemeHeader::XForwardedProto));
    const RFC7239: (Option<AddressHeader>, Option<SchemeHeader>) =
        (Some(AddressHeader::Forwarded), Some(SchemeHeader::Forwarded));

    fn remote(
        from: &str,
        (address, scheme): (Option<AddressHeader>, Option<SchemeHeader>),
        headers: &[(&str, &[u8])],
    ) -> Result<(String, bool), MalformedForwarded> {
        let mut trusted = Networks::NONE;
        trusted.add("127.0.0.0/8").unwrap();
        trusted.add("10.0.0.0/8").unwrap();
        let proxies = TrustedProxies { trusted, address, scheme };
        let here = RemoteClient { peer: from.parse().unwrap(), secure: false };
        let found = proxies.client(here, headers.iter().copied())?;
        Ok((found.peer.to_string(), found.secure))
    }

    fn is(peer: &str, secure: bool) -> Result<(String, bool), MalformedForwarded> {
        Ok((peer.to_owned(), secure))
    }

    #[test]
    fn headers_of_an_untrusted_peer_are_ignored() {
        let headers: [(&str, &[u8]); 3] =
            [("X-Forwarded-For", b"192.0.2.9"), ("X-Forwarded-Proto", b"https"), ("Forwarded", b"for=\"::1")];
        for named in [XFF, RFC7239] {
            assert_eq!(remote("198.51.100.1:7", named, &headers), is("198.51.100.1:7", false));
        }
        let nobody = RemoteClient { peer: "127.0.0.1:7".parse().unwrap(), secure: false };
        assert_eq!(TrustedProxies::NONE.client(nobody, headers.into_iter()), Ok(nobody));
    }

    #[test]
    fn only_the_named_headers_are_read() {
        let headers: [(&str, &[u8]); 3] = [
            ("X-Forwarded-For", b"192.0.2.1"),
            ("X-Forwarded-Proto", b"https"),
            ("Forwarded", b"for=203.0.113.9;proto=https"),
        ];
        let of = |named| remote("127.0.0.1:7", named, &headers);
        assert_eq!(of((Some(AddressHeader::XForwardedFor), None)), is("192.0.2.1:0", false));
        assert_eq!(of(XFF), is("192.0.2.1:0", true));
        assert_eq!(of((Some(AddressHeader::Forwarded), None)), is("203.0.113.9:0", false));
        assert_eq!(of(RFC7239), is("203.0.113.9:0", true));
        assert_eq!(of((None, Some(SchemeHeader::XForwardedProto))), is("127.0.0.1:7", true));
        assert_eq!(of((None, None)), is("127.0.0.1:7", false), "none by default");
        // The nginx example sets X-Forwarded-For and passes on other headers of the client.
        let forged: [(&str, &[u8]); 2] = [("forwarded", b"for=127.0.0.1"), ("x-forwarded-for", b"192.0.2.1")];
        assert_eq!(remote("127.0.0.1:7", XFF, &forged), is("192.0.2.1:0", false));
    }

    #[test]
    fn the_last_address_that_is_no_proxy_is_the_client() {
        let of = |value: &str| {
            remote("127.0.0.1:7", XFF, &[("x-forwarded-for", value.as_bytes())]).map(|found| found.0)
        };
        let is = |peer: &str| Ok(peer.to_owned());
        assert_eq!(of("192.0.2.1"), is("192.0.2.1:0"));
        assert_eq!(of("203.0.113.9, 192.0.2.1"), is("192.0.2.1:0"), "the first was written by the client");
        assert_eq!(of("203.0.113.9, 192.0.2.1, 10.0.0.3, 10.1.2.3"), is("192.0.2.1:0"));
        assert_eq!(of("10.0.0.9, 10.0.0.3"), is("10.0.0.9:0"), "proxies only");
        assert_eq!(of("192.0.2.1, garbage"), is("127.0.0.1:7"), "nothing before garbage is believed");
        assert_eq!(of("192.0.2.1, garbage, 10.0.0.3"), is("10.0.0.3:0"));
        assert_eq!(of("garbage, 192.0.2.1"), is("192.0.2.1:0"));
        assert_eq!(of("192.0.2.1, "), is("192.0.2.1:0"), "empty elements do not count");
        assert_eq!(of("192.0.2.1:4711"), is("192.0.2.1:4711"));
        assert_eq!(of("[2001:db8::1]:80"), is("[2001:db8::1]:80"));
        assert_eq!(of("2001:db8::1"), is("[2001:db8::1]:0"));
        assert_eq!(of("::ffff:192.0.2.1"), is("192.0.2.1:0"));
        assert_eq!(of(""), is("127.0.0.1:7"));
        let lines: [(&str, &[u8]); 2] =
            [("X-Forwarded-For", b"203.0.113.9"), ("X-Forwarded-For", b"192.0.2.1, 10.0.0.3")];
        assert_eq!(remote("10.9.9.9:1", XFF, &lines).unwrap().0, "192.0.2.1:0", "lines are one list");
    }

    #[test]
    fn bytes_of_the_client_do_not_hide_what_the_proxy_appended() {
        // If a line that is not UTF-8 were ignored, its sender would count as the proxy itself.
        let of = |value: &[u8]| remote("127.0.0.1:7", XFF, &[("x-forwarded-for", value)]).unwrap().0;
        assert_eq!(of(b"\xff\xfe, 192.0.2.1"), "192.0.2.1:0");
        assert_eq!(of(b"\xc3, 10.0.0.3, 192.0.2.1, 10.0.0.4"), "192.0.2.1:0");
        assert_eq!(of(b"\", 192.0.2.1"), "192.0.2.1:0", "this header has no quotes");
    }

    #[test]
    fn encryption_is_reported_by_the_nearest_proxy() {
        let of =
            |value: &str| remote("127.0.0.1:7", XFF, &[("X-Forwarded-Proto", value.as_bytes())]).unwrap().1;
        assert!(of("https") && of("HTTPS") && of("http, https") && of("wss"));
        assert!(!of("http") && !of("https, http") && !of("") && !of("httpsx"));
    }

    #[test]
    fn the_examples_of_rfc_7239_are_read() {
        let of = |value: &str| remote("127.0.0.1:7", RFC7239, &[("Forwarded", value.as_bytes())]);
        assert_eq!(of("for=192.0.2.60;proto=https;by=203.0.113.43"), is("192.0.2.60:0", true));
        assert_eq!(of("For=\"[2001:db8:cafe::17]:4711\""), is("[2001:db8:cafe::17]:4711", false));
        assert_eq!(of("for=192.0.2.43, for=\"10.0.0.2\";proto=https"), is("192.0.2.43:0", false));
        assert_eq!(of("for=192.0.2.1;proto=http, for=192.0.2.43;proto=https"), is("192.0.2.43:0", true));
        assert_eq!(of("for=unknown, for=10.0.0.2"), is("10.0.0.2:0", false));
        assert_eq!(of("for=_hidden;proto=https"), is("127.0.0.1:7", true));
        assert_eq!(of("for=192.0.2.1:80"), is("192.0.2.1:80", false));
        assert_eq!(
            of("for=\"192.0.2.1, 192.0.2.2\";host=\"a;b,c\\\"\", for=10.0.0.2"),
            is("10.0.0.2:0", false)
        );
        let secure = RemoteClient { peer: "10.0.0.1:7".parse().unwrap(), secure: true };
        let mut proxies = TrustedProxies { address: RFC7239.0, scheme: RFC7239.1, ..TrustedProxies::NONE };
        proxies.trusted.add("10.0.0.0/8").unwrap();
        let found = proxies.client(secure, [("forwarded", b"for=192.0.2.1" as &[u8])].into_iter()).unwrap();
        assert!(!found.secure, "TLS between the proxies is not TLS of the client");
    }

    #[test]
    fn a_quote_of_the_client_does_not_swallow_what_the_proxy_appended() {
        let of = |value: &str| remote("127.0.0.1:7", RFC7239, &[("Forwarded", value.as_bytes())]);
        for value in [
            "for=203.0.113.9;x=\", for=192.0.2.1",
            "for=203.0.113.9;x=\", for=\"[2001:db8::1]\"",
            "for=203.0.113.9;x=\"\\, for=192.0.2.1",
            "for=203.0.113.9;for=127.0.0.1, for=192.0.2.1",
            "for",
            "=1",
            "for=1.2.3.4 5",
            "for=\"1.2.3.4\"5",
            "for=(1.2.3.4)",
        ] {
            assert_eq!(of(value), Err(MalformedForwarded), "{value}");
        }
        assert_eq!(
            remote("127.0.0.1:7", RFC7239, &[("Forwarded", b"for=\xff, for=192.0.2.1")]),
            Err(MalformedForwarded)
        );
        assert_eq!(of("for=203.0.113.9;x=\", \", for=192.0.2.1"), is("192.0.2.1:0", false));
    }

    #[test]
    fn requests_through_a_proxy_are_recognised() {
        assert!(has_passed_a_proxy(["host", "X-Forwarded-For"].into_iter()));
        assert!(has_passed_a_proxy(["via"].into_iter()) && has_passed_a_proxy(["Forwarded"].into_iter()));
        assert!(!has_passed_a_proxy(["host", "accept", "x-forwarded"].into_iter()));
    }
}
