//! `/chat`: a small chat client in the browser, for every user with an account.
//!
//! The page's sources are in `chat/` of the repository and embedded in the program. It is built on strophe.js, which
//! comes from npm when the server is built (`build.rs`); without it a page explains what to do. The client logs in
//! over WebSocket (RFC 7395) and falls back to BOSH (XEP-0124), at `../ws` and `../bosh` of the page's own address.
//! Nothing here knows an account: the browser logs in like any client.
//!
//! # Pitfalls
//!
//! Addresses in the page are relative, so that it works behind a proxy that mounts the node below a path. That
//! requires the slash: `/chat` redirects to `/chat/`.

use std::sync::{Arc, LazyLock};

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use throng_core::Node;

use crate::Api;
use crate::assets::CompressedAsset;

/// strophe.js, or empty.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/strophe.js"));

/// Policy of the page: its own files, requests to its own node, images in data URLs. `form-action` keeps a password
/// out of an address if the script did not run. Trusted types would stop strophe.js, which parses every stanza as a
/// document.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        [$(($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../chat/", $path)))),*]
    };
}

/// Path below `/chat/`, and content.
static FILES: [(&str, &[u8]); 9] = files![
    "index.html",
    "missing.html",
    "chat.css",
    "icon.svg",
    "main.js",
    "model.js",
    "session.js",
    "stanzas.js",
    "view.js",
];

static ASSETS: LazyLock<Vec<CompressedAsset>> = LazyLock::new(|| {
    let library = (!LIBRARY.is_empty()).then_some(("strophe.js", LIBRARY));
    FILES.into_iter().chain(library).map(|(path, plain)| CompressedAsset::new(path, plain)).collect()
});

/// The routes of this file.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/chat", get(redirect))
        .route("/chat/", get(index))
        .route("/chat/settings.json", get(settings))
        .route("/chat/{file}", get(file))
}

/// Relative: a proxy in front of the node may have mounted it below a path.
async fn redirect() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, HeaderValue::from_static("chat/"))]).into_response()
}

async fn index(headers: HeaderMap) -> Response {
    asset_response(page(LIBRARY), &headers)
}

/// The page for a build with or without the library.
fn page(library: &[u8]) -> &'static str {
    if library.is_empty() { "missing.html" } else { "index.html" }
}

/// Settings that the page cannot know: the domain of an address that was typed without one.
async fn settings(State(api): State<Arc<Api>>, uri: Uri, headers: HeaderMap) -> Response {
    let host = uri.host().or_else(|| headers.get(header::HOST).and_then(|host| host.to_str().ok()));
    let domain = domain(&api.node, host.unwrap_or_default());
    ([(header::CACHE_CONTROL, "no-cache")], Json(serde_json::json!({ "domain": domain }))).into_response()
}

/// The domain for the page's host name: the name itself, the name without its first label (`chat.example.org`), or
/// the only domain served. The list of all domains is not published.
fn domain(node: &Node, host: &str) -> Option<String> {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| match port.parse::<u16>() {
        Ok(_) => name,
        Err(_) => host,
    });
    let name = name.to_ascii_lowercase();
    let parent = name.split_once('.').map(|(_, rest)| rest);
    let named = [Some(name.as_str()), parent].into_iter().flatten().find_map(|name| node.host(name));
    let only = || match node.hosts().as_slice() {
        [only] => Some(Arc::clone(only)),
        _ => None,
    };
    named.or_else(only).map(|host| host.jid.domain().to_owned())
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    asset_response(&path, &headers)
}

fn asset_response(path: &str, headers: &HeaderMap) -> Response {
    match ASSETS.iter().find(|file| file.path == path) {
        Some(file) => file.response(CONTENT_SECURITY_POLICY, headers),
        None => (StatusCode::NOT_FOUND, "file not found\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &str) -> &'static str {
        let (_, bytes) = FILES.iter().find(|(name, _)| *name == path).unwrap();
        std::str::from_utf8(bytes).unwrap()
    }

    #[test]
    fn every_file_referenced_by_the_page_is_served() {
        let named = |text: &'static str, before: &str| -> Vec<&'static str> {
            text.split(before).skip(1).filter_map(|rest| rest.split('"').next()).collect()
        };
        let mut referenced = named(text("index.html"), " src=\"");
        referenced.extend(named(text("index.html"), "<link rel=\"stylesheet\" href=\""));
        for (path, _) in FILES.iter().filter(|(path, _)| path.ends_with(".js")) {
            referenced.extend(named(text(path), " from \"./"));
        }
        assert!(referenced.len() >= 9, "{referenced:?}");
        for name in referenced {
            assert!(
                name == "strophe.js" || FILES.iter().any(|(path, _)| *path == name),
                "{name} is not served"
            );
        }
    }

    #[test]
    fn the_pages_obey_the_content_security_policy() {
        for page in ["index.html", "missing.html"] {
            for forbidden in
                ["<style", " style=", " onclick", "javascript:", "http://", "https://", "<script>"]
            {
                assert!(!text(page).contains(forbidden), "{page} has {forbidden}");
            }
        }
        assert!(
            !CONTENT_SECURITY_POLICY.contains("unsafe")
                && CONTENT_SECURITY_POLICY.starts_with("default-src 'none'; ")
        );
        let answer = asset_response("main.js", &HeaderMap::new());
        assert_eq!(answer.headers()[header::CONTENT_SECURITY_POLICY], CONTENT_SECURITY_POLICY);
    }

    #[test]
    fn a_library_that_was_fetched_is_in_the_next_build() {
        let fetched = concat!(env!("CARGO_MANIFEST_DIR"), "/../../chat/node_modules/strophe.js/strophe.js");
        assert_eq!(!LIBRARY.is_empty(), std::path::Path::new(fetched).is_file());
    }

    #[test]
    fn without_the_library_the_page_explains_the_fix() {
        assert!(text(page(b"")).contains("chat/fetch.sh"));
        assert!(text(page(b"code")).contains("id=\"sign-in\""));
    }

    #[test]
    fn the_address_of_the_page_names_the_domain() {
        let engine = testkit::TestNode::new(&[]);
        engine.reload(&["one.example"], &[]);
        let only = "one.example".to_owned();
        for host in [
            only.clone(),
            format!("{only}:5280"),
            format!("Chat.{only}"),
            "127.0.0.1:5280".into(),
            "[::1]".into(),
        ] {
            assert_eq!(domain(&engine.node, &host).as_deref(), Some(only.as_str()), "{host}");
        }
        engine.reload(&["one.example", "two.example"], &[]);
        assert_eq!(domain(&engine.node, "two.example:443").as_deref(), Some("two.example"));
        assert_eq!(domain(&engine.node, "chat.one.example").as_deref(), Some("one.example"));
        // The other domains are not revealed.
        assert_eq!(domain(&engine.node, "127.0.0.1:5280"), None);
        assert_eq!(domain(&engine.node, ""), None);
    }
}
