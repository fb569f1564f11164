//! Same-origin check of requests, as far as the browser indicates it: Fetch Metadata (`Sec-Fetch-Site`) and `Origin`
//! (RFC 6454, section 7).
//!
//! Programs send neither, and are accepted: they have no cookie of another user.
//!
//! # Pitfalls
//!
//! Behind a proxy that terminates TLS the scheme of `Origin` is not ours, so only host and port are compared.

use axum::http::header::{HOST, ORIGIN};
use axum::http::request::Parts;

/// Whether no header indicates that another site made this request.
pub(crate) fn same_origin(parts: &Parts) -> bool {
    let text = |name: &str| parts.headers.get(name).map(|v| v.as_bytes());
    if text("sec-fetch-site").is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        return false;
    }
    let Some(origin) = text(ORIGIN.as_str()) else { return true };
    let host = parts.uri.authority().map(|a| a.as_str().as_bytes()).or_else(|| text(HOST.as_str()));
    let Some((scheme, host)) = scheme_of(origin).zip(host) else { return false };
    let Some(authority) = origin.get(scheme.len() + 3..) else { return false };
    without_default(scheme, authority).eq_ignore_ascii_case(without_default(scheme, host))
}

fn scheme_of(origin: &[u8]) -> Option<&'static str> {
    ["https", "http"]
        .into_iter()
        .find(|s| origin.strip_prefix(s.as_bytes()).is_some_and(|r| r.starts_with(b"://")))
}

/// Removes the default port. Browsers omit it in `Origin`; proxies may leave it in `Host`.
fn without_default<'a>(scheme: &str, authority: &'a [u8]) -> &'a [u8] {
    let port: &[u8] = if scheme == "https" { b":443" } else { b":80" };
    authority.strip_suffix(port).unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;

    fn ours(pairs: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri("/api/v1/session");
        for (name, value) in pairs {
            request = request.header(*name, *value);
        }
        same_origin(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn cross_site_requests_are_recognized() {
        let host = ("host", "console.example:8443");
        for good in [
            &[host] as &[_],
            &[host, ("origin", "https://console.example:8443")],
            &[host, ("origin", "http://Console.Example:8443"), ("sec-fetch-site", "same-origin")],
            &[host, ("sec-fetch-site", "none")],
            &[("host", "console.example:443"), ("origin", "https://console.example")],
        ] {
            assert!(ours(good), "{good:?}");
        }
        for bad in [
            &[host, ("origin", "https://evil.example:8443")] as &[_],
            &[host, ("origin", "https://console.example")],
            &[host, ("origin", "null")],
            &[host, ("origin", "https://console.example:8443.evil.example")],
            &[host, ("origin", "ftp://console.example:8443")],
            &[host, ("sec-fetch-site", "same-site")],
            &[host, ("sec-fetch-site", "cross-site")],
            &[("origin", "https://console.example:8443")],
        ] {
            assert!(!ours(bad), "{bad:?}");
        }
    }
}
