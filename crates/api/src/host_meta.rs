//! `/.well-known/host-meta` and `/.well-known/host-meta.json`: discovery of BOSH and WebSocket for web clients.
//! XEP-0156 1.4.0, RFC 6415. Public, with cross-origin access.
//!
//! The addresses are those of `[http] public_url`, or else those under which the client sent its request over TLS.
//! Section 3.2 allows `https` and `wss` only, so a request without TLS gets nothing unless the address is configured.
//!
//! Not implemented: the TXT records of earlier versions.
//!
//! # Pitfalls
//!
//! `Host` is chosen by the client. It is used for a link only if it is nothing but a host and a port.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::json;

use crate::{Api, RequestPeer};

/// A link relation and an address.
type LinkRelation = (&'static str, String);

/// The routes of this file.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/.well-known/host-meta", get(xrd)).route("/.well-known/host-meta.json", get(jrd))
}

async fn xrd(State(api): State<Arc<Api>>, peer: RequestPeer, uri: Uri, headers: HeaderMap) -> Response {
    answer(links(&api, peer, &uri, &headers), "application/xrd+xml; charset=utf-8", to_xrd)
}

async fn jrd(State(api): State<Arc<Api>>, peer: RequestPeer, uri: Uri, headers: HeaderMap) -> Response {
    answer(links(&api, peer, &uri, &headers), "application/json", to_jrd)
}

fn links(api: &Api, peer: RequestPeer, uri: &Uri, headers: &HeaderMap) -> Vec<LinkRelation> {
    let host = request_authority(uri, headers);
    let mut links = api.process.connection_alternatives(host.as_ref().map(Authority::as_str), peer.secure);
    links.retain(|(_, url)| url.starts_with("https://") || url.starts_with("wss://"));
    links
}

/// The authority of the request: `:authority` of HTTP/2 or `Host`.
pub(crate) fn request_authority(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let named = headers.get(header::HOST).and_then(|value| value.to_str().ok()?.parse::<Authority>().ok());
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    uri.authority().cloned().or(named).filter(|authority| authority.as_str().bytes().all(plain))
}

fn answer(links: Vec<LinkRelation>, kind: &'static str, write: fn(&[LinkRelation]) -> String) -> Response {
    let open = (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    if links.is_empty() {
        let text = "no public URL with TLS is known: send the request over https, or set [http] public_url\n";
        return (StatusCode::NOT_FOUND, [open], text).into_response();
    }
    let fields =
        [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=300"), (header::VARY, "Host"), open];
    (fields, write(&links)).into_response()
}

fn to_xrd(links: &[LinkRelation]) -> String {
    let mut text =
        "<?xml version='1.0' encoding='utf-8'?>\n<XRD xmlns='http://docs.oasis-open.org/ns/xri/xrd-1.0'>\n"
            .to_owned();
    for (rel, href) in links {
        // Neither has a character that would need escaping: the host was validated, the rest is ours or the
        // operator's.
        let href = href.replace('&', "&amp;").replace('\'', "&apos;").replace('<', "&lt;");
        text.push_str(&format!("  <Link rel='{rel}' href='{href}'/>\n"));
    }
    text + "</XRD>\n"
}

fn to_jrd(links: &[LinkRelation]) -> String {
    let list: Vec<_> = links.iter().map(|(rel, href)| json!({ "rel": rel, "href": href })).collect();
    json!({ "links": list }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_specification_are_written() {
        let links = [
            ("urn:xmpp:alt-connections:xbosh", "https://web.example.com:5280/bosh".to_owned()),
            ("urn:xmpp:alt-connections:websocket", "wss://web.example.com:443/ws".to_owned()),
        ];
        assert_eq!(
            to_xrd(&links),
            "<?xml version='1.0' encoding='utf-8'?>\n<XRD xmlns='http://docs.oasis-open.org/ns/xri/xrd-1.0'>\n  \
             <Link rel='urn:xmpp:alt-connections:xbosh' href='https://web.example.com:5280/bosh'/>\n  \
             <Link rel='urn:xmpp:alt-connections:websocket' href='wss://web.example.com:443/ws'/>\n</XRD>\n"
        );
        let value: serde_json::Value = serde_json::from_str(&to_jrd(&links)).unwrap();
        assert_eq!(value["links"][0]["rel"], "urn:xmpp:alt-connections:xbosh");
        assert_eq!(value["links"][1]["href"], "wss://web.example.com:443/ws");
    }

    #[test]
    fn only_a_valid_authority_is_accepted_as_host() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, value.parse().unwrap());
            request_authority(&Uri::from_static("/"), &headers).map(|authority| authority.to_string())
        };
        assert_eq!(of("xmpp.example.org:5443").as_deref(), Some("xmpp.example.org:5443"));
        assert_eq!(of("[2001:db8::1]:443").as_deref(), Some("[2001:db8::1]:443"));
        for value in ["user@example.org", "a'b", "a/b", "", "a b", "a%20b"] {
            assert_eq!(of(value), None, "{value}");
        }
        let uri = Uri::from_static("https://h2.example.org/.well-known/host-meta");
        assert_eq!(request_authority(&uri, &HeaderMap::new()).unwrap().as_str(), "h2.example.org");
    }
}
