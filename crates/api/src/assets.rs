//! Static files of pages, embedded in the program: compressed with gzip once, with an entity tag and security
//! headers.
//!
//! Each file has the hash of its content as its ETag (RFC 9110, section 8.8.3), so a browser that has it receives a
//! small "not modified" response, and never mixes files of two versions. Each page has its own policy (Content
//! Security Policy Level 3).
//!
//! Not implemented: ranges and modification times; the files have some kilobytes.
//!
//! # Pitfalls
//!
//! Files are looked up in a list. The path of a request must never become a path of the file system.

use std::io::Write;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};
use serde_json::Value;

/// An embedded file.
pub(crate) struct CompressedAsset {
    /// Path relative to the page.
    pub(crate) path: &'static str,
    /// `Content-Type`, derived from the file extension.
    pub(crate) content_type: &'static str,
    /// Its content.
    pub(crate) content: &'static [u8],
    /// The same with gzip; empty if that is not shorter.
    pub(crate) gzip: Vec<u8>,
    etag: String,
}

impl CompressedAsset {
    pub(crate) fn new(path: &'static str, plain: &'static [u8]) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Writing into memory does not fail; if it did, the uncompressed file would be sent.
        let gzip = encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap_or_default();
        let gzip = if gzip.len() < plain.len() { gzip } else { Vec::new() };
        let etag = format!("\"{}\"", &URL_SAFE_NO_PAD.encode(digest(&SHA256, plain).as_ref())[..22]);
        CompressedAsset { path, content_type: content_type(path), content: plain, gzip, etag }
    }

    /// Response to a request with these headers, for a page with this policy.
    pub(crate) fn response(&self, policy: &'static str, headers: &HeaderMap) -> Response {
        let value =
            |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let known = etag_matches(value(header::IF_NONE_MATCH), &self.etag);
        let packed = !self.gzip.is_empty() && accepts_gzip(value(header::ACCEPT_ENCODING));
        let mut response = match (known, packed) {
            (true, _) => StatusCode::NOT_MODIFIED.into_response(),
            (false, true) => self.gzip.clone().into_response(),
            (false, false) => self.content.into_response(),
        };
        let headers = response.headers_mut();
        let mut set =
            |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
        // Revalidated each time, mostly with "not modified": an upgraded node shows its own page immediately.
        set(header::CACHE_CONTROL, "no-cache");
        set(header::VARY, "accept-encoding");
        set(header::CONTENT_TYPE, self.content_type);
        set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
        set(header::CONTENT_SECURITY_POLICY, policy);
        set(header::X_FRAME_OPTIONS, "DENY");
        set(header::REFERRER_POLICY, "no-referrer");
        set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
        set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
        set(HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
        if packed && !known {
            set(header::CONTENT_ENCODING, "gzip");
        }
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(header::ETAG, etag);
        }
        response
    }
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// Minimum size of a compressed body, in bytes.
const MIN_GZIP_BYTES: usize = 4096;

/// `If-None-Match` with weak comparison; RFC 9110, section 13.1.2.
fn etag_matches(tags: &str, etag: &str) -> bool {
    tags.split(',').map(str::trim).any(|tag| tag == "*" || tag.trim_start_matches("W/") == etag)
}

/// JSON response, compressed where that is worth it and the client accepts it. Not for responses that contain secrets
/// beside text that the client chose (BREACH).
pub(crate) fn json_response(value: &Value, headers: &HeaderMap) -> Response {
    let plain = value.to_string().into_bytes();
    let accept_encoding =
        headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let packed = (plain.len() > MIN_GZIP_BYTES && accepts_gzip(accept_encoding)).then(|| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(4));
        encoder.write_all(&plain).and_then(|()| encoder.finish()).ok()
    });
    let kind = [(header::CONTENT_TYPE, "application/json"), (header::VARY, "accept-encoding")];
    match packed.flatten() {
        Some(packed) => (kind, [(header::CONTENT_ENCODING, "gzip")], packed).into_response(),
        None => (kind, plain).into_response(),
    }
}

/// Content negotiation as far as browsers use it: gzip by name or `*`, unless its weight is 0. RFC 9110, section
/// 12.5.3.
fn accepts_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let weight = weight.trim().trim_start_matches("q=");
        matches!(name.trim(), "gzip" | "*") && !matches!(weight, "0" | "0.0" | "0.00" | "0.000")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_data_is_compressed_for_clients_that_accept_gzip() {
        let packed = |count: u32, accepts: Option<&'static str>| {
            let headers = accepts.map(|it| (header::ACCEPT_ENCODING, HeaderValue::from_static(it)));
            let response = json_response(&Value::from_iter(0..count), &headers.into_iter().collect());
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
            response.headers().get(header::CONTENT_ENCODING).is_some_and(|it| it == "gzip")
        };
        assert!(packed(5_000, Some("gzip, br")));
        assert!(!packed(5_000, Some("br")) && !packed(5_000, None) && !packed(5, Some("gzip")));
    }

    #[test]
    fn an_unchanged_asset_is_not_sent_again() {
        for known in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*"] {
            assert!(etag_matches(known, "\"a\""), "{known}");
        }
        for unknown in ["", "a", "\"b\""] {
            assert!(!etag_matches(unknown, "\"a\""), "{unknown}");
        }
        let (one, two) = (CompressedAsset::new("a.js", b"1"), CompressedAsset::new("a.js", b"2"));
        assert_ne!(one.etag, two.etag, "another content is another version");
        assert!(one.gzip.is_empty(), "a byte is not packed");
    }
}
