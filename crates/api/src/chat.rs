//! `/chat`: a small chat client in the browser, for everybody who has an account.
//!
//! The page's sources are in `chat/` of the repository and part of the program. It is built on strophe.js, which comes from npm
//! when the server is built (`build.rs`); without it there is a page that says what to do. The client logs in over WebSocket
//! (RFC 7395) and falls back to BOSH (XEP-0124), at `../ws` and `../bosh` of the page's own address. Nothing here knows an
//! account: the browser logs in as any client does.
//!
//! The trap: addresses in the page are relative, so that it works behind a proxy that puts the node below a path. That needs
//! the slash: `/chat` redirects to `/chat/`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use throng_core::Node;

use crate::Api;
use crate::assets::Asset;

/// strophe.js, or nothing.
const LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/strophe.js"));

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

static INDEX: Asset = Asset::new("", HTML, include_bytes!("../../../chat/index.html"));
static MISSING: Asset = Asset::new("", HTML, include_bytes!("../../../chat/missing.html"));
static FILES: [Asset; 8] = [
    Asset::new("chat.css", "text/css; charset=utf-8", include_bytes!("../../../chat/chat.css")),
    Asset::new("icon.svg", "image/svg+xml", include_bytes!("../../../chat/icon.svg")),
    Asset::new("main.js", SCRIPT, include_bytes!("../../../chat/main.js")),
    Asset::new("session.js", SCRIPT, include_bytes!("../../../chat/session.js")),
    Asset::new("stanzas.js", SCRIPT, include_bytes!("../../../chat/stanzas.js")),
    Asset::new("model.js", SCRIPT, include_bytes!("../../../chat/model.js")),
    Asset::new("view.js", SCRIPT, include_bytes!("../../../chat/view.js")),
    Asset::new("strophe.js", SCRIPT, LIBRARY),
];

/// The routes of this file.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new()
        .route("/chat", get(redirect))
        .route("/chat/", get(index))
        .route("/chat/settings.json", get(settings))
        .route("/chat/{file}", get(file))
}

/// Relative: whoever stands in front of the node may have put it below a path.
async fn redirect() -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, HeaderValue::from_static("chat/"))]).into_response()
}

async fn index(asked: HeaderMap) -> Response {
    page(LIBRARY).answer(&asked)
}

/// The page for a build with or without the library.
fn page(library: &[u8]) -> &'static Asset {
    if library.is_empty() { &MISSING } else { &INDEX }
}

/// What the page cannot know: the domain of an address that was typed without one.
async fn settings(State(api): State<Arc<Api>>, uri: Uri, asked: HeaderMap) -> Response {
    let host = uri.host().or_else(|| asked.get(header::HOST).and_then(|host| host.to_str().ok()));
    let domain = domain(&api.node, host.unwrap_or_default());
    ([(header::CACHE_CONTROL, "no-cache")], Json(serde_json::json!({ "domain": domain }))).into_response()
}

/// The domain that the address of the page stands for: itself, what is left without its first label (`chat.example.org`), or
/// the only one there is. The list of all is nobody's business.
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

async fn file(Path(name): Path<String>, asked: HeaderMap) -> Response {
    match FILES.iter().find(|file| file.name == name && !file.bytes.is_empty()) {
        Some(file) => file.answer(&asked),
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_asks_for_is_there() {
        let index = std::str::from_utf8(INDEX.bytes).unwrap();
        let named = |text: &'static str, before: &str, after: char| -> Vec<&'static str> {
            text.split(before).skip(1).filter_map(|rest| rest.split(after).next()).collect()
        };
        let mut asked = named(index, " src=\"", '"');
        asked.extend(named(index, "<link rel=\"stylesheet\" href=\"", '"'));
        for file in &FILES {
            if file.kind == SCRIPT && file.name != "strophe.js" {
                asked.extend(named(std::str::from_utf8(file.bytes).unwrap(), " from \"./", '"'));
            }
        }
        assert!(asked.len() >= 9, "{asked:?}");
        for name in asked {
            assert!(FILES.iter().any(|file| file.name == name), "{name} is not served");
        }
    }

    #[test]
    fn the_page_needs_nothing_that_the_policy_forbids() {
        for page in [&INDEX, &MISSING] {
            let text = std::str::from_utf8(page.bytes).unwrap();
            for forbidden in
                ["<style", " style=", " onclick", "javascript:", "http://", "https://", "<script>"]
            {
                assert!(!text.contains(forbidden), "{forbidden}");
            }
        }
    }

    #[test]
    fn without_the_library_the_page_says_what_to_do() {
        let text = |asset: &Asset| std::str::from_utf8(asset.bytes).unwrap().to_owned();
        assert!(text(page(b"")).contains("chat/fetch.sh"));
        assert!(text(page(b"code")).contains("id=\"sign-in\""));
    }

    #[test]
    fn the_address_of_the_page_names_the_domain() {
        let engine = testkit::Engine::new(&[]);
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
        // Which others there are is not told.
        assert_eq!(domain(&engine.node, "127.0.0.1:5280"), None);
        assert_eq!(domain(&engine.node, ""), None);
    }
}
