//! Files that are part of the program: with an entity tag, compressed when asked, and with headers that tie a page down.
//!
//! A page of ours runs its own scripts and styles and nothing else, talks to its own node and nobody else, and stands in no
//! frame of others (Content Security Policy Level 3). Left out: ranges and times of change; the tag is enough for files of
//! some kilobytes.
//!
//! The trap: the tag is computed from the content, so the same address may answer anew after an upgrade. A browser asks each
//! time (`no-cache`) and mostly hears 304.

use std::io::Write as _;
use std::sync::OnceLock;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;

/// What a page may do: its own files, requests to its own node, pictures in data URLs. `form-action` keeps a password out of
/// an address if the script did not run.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'none'; base-uri 'none'; frame-ancestors 'none'";
/// Below this many bytes compression saves less than it says.
const WORTH_IT: usize = 1_000;

/// One file.
pub(crate) struct Asset {
    /// Its path below the page's.
    pub(crate) name: &'static str,
    /// `Content-Type`.
    pub(crate) kind: &'static str,
    /// Its content.
    pub(crate) bytes: &'static [u8],
    made: OnceLock<Made>,
}

/// What is computed when somebody asks for the first time.
struct Made {
    tag: HeaderValue,
    gzip: Option<Bytes>,
}

impl Asset {
    pub(crate) const fn new(name: &'static str, kind: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, kind, bytes, made: OnceLock::new() }
    }

    fn made(&self) -> &Made {
        self.made.get_or_init(|| {
            let digest = ring::digest::digest(&ring::digest::SHA256, self.bytes);
            let tag = format!("\"{}\"", URL_SAFE_NO_PAD.encode(&digest.as_ref()[..12]));
            let tag = HeaderValue::from_str(&tag).unwrap_or(HeaderValue::from_static("\"-\""));
            Made { tag, gzip: compressed(self.bytes) }
        })
    }

    /// The answer to a request with these headers.
    pub(crate) fn answer(&self, asked: &HeaderMap) -> Response<Body> {
        let made = self.made();
        let mut answer = Response::new(Body::empty());
        let headers = answer.headers_mut();
        headers.insert(header::ETAG, made.tag.clone());
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
        if knows(asked, &made.tag) {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            return answer;
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        *answer.body_mut() = match &made.gzip {
            Some(gzip) if takes_gzip(asked) => {
                headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
                Body::from(gzip.clone())
            }
            _ => Body::from(self.bytes),
        };
        answer
    }
}

fn compressed(bytes: &[u8]) -> Option<Bytes> {
    if bytes.len() < WORTH_IT {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

/// RFC 9110 section 13.1.2, with weak comparison.
fn knows(asked: &HeaderMap, tag: &HeaderValue) -> bool {
    let Ok(tag) = tag.to_str() else { return false };
    asked.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').map(str::trim).any(|one| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag)
    })
}

/// RFC 9110 section 12.5.3; `gzip;q=0` is a refusal.
fn takes_gzip(asked: &HeaderMap) -> bool {
    asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').any(|one| {
            let mut parts = one.split(';').map(str::trim);
            let named = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
            let refused =
                parts.any(|part| part.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok()) == Some(0.0));
            named && !refused
        })
    })
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    static LONG: Asset = Asset::new("long.js", "text/javascript; charset=utf-8", &[b'x'; 4_000]);
    static SHORT: Asset = Asset::new("short.js", "text/javascript; charset=utf-8", b"1");

    fn asked(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    async fn body(answer: Response<Body>) -> Vec<u8> {
        answer.into_body().collect().await.unwrap().to_bytes().to_vec()
    }

    #[tokio::test]
    async fn a_file_comes_compressed_only_to_those_who_ask() {
        let plain = LONG.answer(&asked(&[]));
        assert_eq!(plain.headers().get(header::CONTENT_ENCODING), None);
        assert_eq!(body(plain).await, LONG.bytes);
        let small = LONG.answer(&asked(&[("accept-encoding", "br, gzip;q=0.5")]));
        assert_eq!(small.headers()[header::CONTENT_ENCODING], "gzip");
        let mut text = Vec::new();
        std::io::Read::read_to_end(
            &mut flate2::read::GzDecoder::new(body(small).await.as_slice()),
            &mut text,
        )
        .unwrap();
        assert_eq!(text, LONG.bytes);
        let refused = LONG.answer(&asked(&[("accept-encoding", "gzip;q=0")]));
        assert_eq!(refused.headers().get(header::CONTENT_ENCODING), None);
        let short = SHORT.answer(&asked(&[("accept-encoding", "gzip")]));
        assert_eq!(short.headers().get(header::CONTENT_ENCODING), None, "one byte is not compressed");
    }

    #[tokio::test]
    async fn what_a_browser_has_is_not_sent_again() {
        let first = LONG.answer(&asked(&[]));
        let tag = first.headers()[header::ETAG].to_str().unwrap().to_owned();
        for known in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".to_owned()] {
            let again = LONG.answer(&asked(&[("if-none-match", &known)]));
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
            assert!(body(again).await.is_empty());
        }
        let other = LONG.answer(&asked(&[("if-none-match", "\"other\"")]));
        assert_eq!(other.status(), StatusCode::OK);
        assert_ne!(SHORT.answer(&asked(&[])).headers()[header::ETAG].to_str().unwrap(), tag);
    }

    #[test]
    fn nothing_foreign_runs_in_a_page() {
        let answer = SHORT.answer(&asked(&[]));
        let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        for part in
            ["default-src 'none'", "script-src 'self'", "form-action 'none'", "frame-ancestors 'none'"]
        {
            assert!(policy.contains(part), "{policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        assert_eq!(answer.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
    }
}
