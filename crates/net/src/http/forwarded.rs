//! Who is behind a proxy: `Forwarded` (RFC 7239), or `X-Forwarded-For` and `X-Forwarded-Proto`.
//!
//! Each proxy appends whom it talks to. So the list is believed from its end, for as long as the names in it are proxies
//! that we trust; the first that is not is the client. Nothing is believed when the connection itself does not come from a
//! trusted address.
//! `Forwarded` wins where both are there. A client's port is kept where the header has one.
//!
//! Left out: `by`, `host`, obfuscated identifiers (`_hidden`, `unknown`): they name nobody, so the proxy before counts.
//! The trap: a client can write these headers itself. A trusted proxy must append to them or replace them, and must set
//! or remove `X-Forwarded-Proto`.

use crate::networks::Networks;
use std::net::{IpAddr, SocketAddr};

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The client's address.
    pub peer: SocketAddr,
    /// Its side is encrypted.
    pub secure: bool,
}

impl Remote {
    /// Who sent a request with these headers (names in any case) over a connection of `self`.
    pub fn behind<'a>(
        self,
        trusted: &Networks,
        headers: impl Iterator<Item = (&'a str, &'a [u8])> + Clone,
    ) -> Remote {
        if trusted.is_empty() || !trusted.contains(self.peer.ip()) {
            return self;
        }
        let all = |wanted: &'static str| {
            let found = headers.clone().filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
            found.filter_map(|(_, value)| std::str::from_utf8(value).ok())
        };
        let mut remote = self;
        let mut elements = all("forwarded").flat_map(|value| split(value, ',')).collect::<Vec<_>>();
        if !elements.is_empty() {
            while let Some(element) = elements.pop()
                && trusted.contains(remote.peer.ip())
            {
                let find = |wanted: &str| {
                    let pairs = split(element, ';').filter_map(|pair| pair.split_once('='));
                    let mut found = pairs.filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
                    found.next().map(|(_, value)| unquote(value.trim()))
                };
                if let Some(proto) = find("proto") {
                    remote.secure = is_secure(proto);
                }
                let Some(peer) = find("for").and_then(address) else { break };
                remote.peer = peer;
            }
            return remote;
        }
        let mut hops = all("x-forwarded-for").flat_map(|value| value.split(',')).collect::<Vec<_>>();
        while let Some(hop) = hops.pop()
            && trusted.contains(remote.peer.ip())
        {
            let Some(peer) = address(hop.trim()) else { break };
            remote.peer = peer;
        }
        if let Some(proto) = all("x-forwarded-proto").last() {
            remote.secure = is_secure(proto.rsplit(',').next().unwrap_or_default().trim());
        }
        remote
    }
}

fn is_secure(proto: &str) -> bool {
    proto.eq_ignore_ascii_case("https") || proto.eq_ignore_ascii_case("wss")
}

/// Cuts at a separator outside of quotes.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let (mut quoted, mut escaped) = (false, false);
        let end = text.find(|c| {
            let inside = quoted;
            match c {
                _ if escaped => escaped = false,
                '\\' if quoted => escaped = true,
                '"' => quoted = !quoted,
                _ => {}
            }
            c == separator && !inside
        });
        let (part, more) = match end {
            Some(end) => (&text[..end], text.get(end + separator.len_utf8()..)),
            None => (text, None),
        };
        rest = more;
        Some(part.trim())
    })
    .filter(|part| !part.is_empty())
}

fn unquote(text: &str) -> &str {
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`. Without a port it is 0.
fn address(text: &str) -> Option<SocketAddr> {
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

    fn remote(from: &str, headers: &[(&str, &str)]) -> (String, bool) {
        let mut trusted = Networks::NONE;
        trusted.add("127.0.0.0/8").unwrap();
        trusted.add("10.0.0.0/8").unwrap();
        let here = Remote { peer: from.parse().unwrap(), secure: false };
        let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        let found = here.behind(&trusted, headers);
        (found.peer.to_string(), found.secure)
    }

    fn is(peer: &str, secure: bool) -> (String, bool) {
        (peer.to_owned(), secure)
    }

    #[test]
    fn a_stranger_is_who_he_is_whatever_he_writes() {
        let headers =
            [("X-Forwarded-For", "192.0.2.9"), ("X-Forwarded-Proto", "https"), ("Forwarded", "for=::1")];
        assert_eq!(remote("198.51.100.1:7", &headers), is("198.51.100.1:7", false));
        let nobody = Remote { peer: "127.0.0.1:7".parse().unwrap(), secure: false };
        let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
        assert_eq!(nobody.behind(&Networks::NONE, headers), nobody);
    }

    #[test]
    fn the_last_address_that_is_no_proxy_is_the_client() {
        let of = |value: &str| remote("127.0.0.1:7", &[("x-forwarded-for", value)]).0;
        assert_eq!(of("192.0.2.1"), "192.0.2.1:0");
        assert_eq!(of("203.0.113.9, 192.0.2.1"), "192.0.2.1:0", "the first was written by the client");
        assert_eq!(of("203.0.113.9, 192.0.2.1, 10.0.0.3, 10.1.2.3"), "192.0.2.1:0");
        assert_eq!(of("10.0.0.9, 10.0.0.3"), "10.0.0.9:0", "proxies only");
        assert_eq!(of("192.0.2.1, garbage"), "127.0.0.1:7", "nothing behind garbage is believed");
        assert_eq!(of("192.0.2.1, garbage, 10.0.0.3"), "10.0.0.3:0");
        assert_eq!(of("192.0.2.1:4711"), "192.0.2.1:4711");
        assert_eq!(of("[2001:db8::1]:80"), "[2001:db8::1]:80");
        assert_eq!(of("2001:db8::1"), "[2001:db8::1]:0");
        assert_eq!(of(""), "127.0.0.1:7");
        let lines = [("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "192.0.2.1, 10.0.0.3")];
        assert_eq!(remote("10.9.9.9:1", &lines).0, "192.0.2.1:0", "lines are one list");
    }

    #[test]
    fn encryption_is_what_the_nearest_proxy_says() {
        let of = |value: &str| remote("127.0.0.1:7", &[("X-Forwarded-Proto", value)]).1;
        assert!(of("https") && of("HTTPS") && of("http, https") && of("wss"));
        assert!(!of("http") && !of("https, http") && !of("") && !of("httpsx"));
    }

    #[test]
    fn the_standard_header_wins() {
        let of =
            |value: &str| remote("127.0.0.1:7", &[("X-Forwarded-For", "203.0.113.1"), ("Forwarded", value)]);
        assert_eq!(of("for=192.0.2.60;proto=https;by=203.0.113.43"), is("192.0.2.60:0", true));
        assert_eq!(of("For=\"[2001:db8:cafe::17]:4711\""), is("[2001:db8:cafe::17]:4711", false));
        assert_eq!(of("for=192.0.2.43, for=\"10.0.0.2\";proto=https"), is("192.0.2.43:0", true));
        assert_eq!(of("for=192.0.2.1;proto=http, for=192.0.2.43;proto=https"), is("192.0.2.43:0", true));
        assert_eq!(of("for=unknown, for=10.0.0.2"), is("10.0.0.2:0", false));
        assert_eq!(of("for=_hidden;proto=https"), is("127.0.0.1:7", true));
        assert_eq!(
            of("for=\"192.0.2.1, 192.0.2.2\";host=\"a;b,c\\\"\", for=10.0.0.2"),
            is("10.0.0.2:0", false)
        );
    }
}
