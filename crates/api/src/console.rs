//! The operator console at `/` and its files below `/console/`: the folder `console` of the repository, embedded in
//! the program. Public: the files contain no metrics and no secrets, which come from `/api/v1`.
//!
//! # Pitfalls
//!
//! A file that is added to the folder must be added to [`FILES`]; a test compares the two.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::Api;
use crate::assets::CompressedAsset;

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../console/", $path)))),*]
    };
}

/// Path below the folder, and content.
static FILES: &[(&str, &[u8])] = files![
    "index.html",
    "icon.svg",
    "style/base.css",
    "style/charts.css",
    "style/layout.css",
    "style/parts.css",
    "app/address.js",
    "app/api.js",
    "app/chart.js",
    "app/dialog.js",
    "app/dom.js",
    "app/format.js",
    "app/shortcuts.js",
    "app/main.js",
    "app/toast.js",
    "app/nodes.js",
    "app/paging.js",
    "app/scale.js",
    "app/series.js",
    "app/table.js",
    "app/theme.js",
    "view/account_actions.js",
    "view/audit.js",
    "view/overview_charts.js",
    "view/commands.js",
    "view/health_warnings.js",
    "view/domain_metrics.js",
    "view/domain_names.js",
    "view/domains.js",
    "view/events.js",
    "view/log.js",
    "view/messages.js",
    "view/nodes.js",
    "view/overview.js",
    "view/pubsub.js",
    "view/rooms.js",
    "view/roster.js",
    "view/session_table.js",
    "view/sessions.js",
    "view/sign_in.js",
    "view/tokens.js",
    "view/user.js",
    "view/users.js",
];

/// Policy of the page: loads from and requests to this origin only. No inline script or style, no framing, no markup
/// from texts.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; \
                                 frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

static ASSETS: LazyLock<Vec<CompressedAsset>> = LazyLock::new(|| {
    FILES.iter().map(|(path, plain)| CompressedAsset::new(path, without_comments(path, plain))).collect()
});

/// A script without its comments. Lines retain their numbers, so that a browser's error names the right one. Computed
/// once per process and leaked.
fn without_comments(path: &str, plain: &'static [u8]) -> &'static [u8] {
    match std::str::from_utf8(plain) {
        Ok(text) if path.ends_with(".js") => {
            let lines =
                text.split('\n').map(|line| if line.trim_start().starts_with("//") { "" } else { line });
            lines.collect::<Vec<_>>().join("\n").into_bytes().leak()
        }
        _ => plain,
    }
}

/// The routes of this file.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/", get(page)).route("/console/{*path}", get(file))
}

async fn page(headers: HeaderMap) -> Response {
    asset_response("index.html", &headers)
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
    use axum::http::{HeaderName, HeaderValue, header};
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    fn walk(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    fn header_map(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn every_console_file_is_embedded_and_referenced_by_the_page() {
        let mut there = BTreeSet::new();
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console"), "", &mut there);
        let inside: BTreeSet<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(there, inside);
        // Modules that are not preloaded load in a chain, one round trip for each link.
        let page = std::str::from_utf8(FILES[0].1).unwrap();
        for path in inside.iter().filter(|path| *path != "index.html") {
            assert!(page.contains(&format!("\"/console/{path}\"")), "index.html does not name {path}");
        }
    }

    #[test]
    fn the_page_is_self_contained_and_small() {
        let (mut plain, mut gzip) = (0, 0);
        for file in ASSETS.iter() {
            let text = std::str::from_utf8(file.content).unwrap();
            let links = text.replace("http://www.w3.org/", "");
            assert!(
                !links.contains("http://") && !links.contains("https://"),
                "{} names another host",
                file.path
            );
            for word in ["innerHTML", "eval(", "style=\"", "javascript:", "document.write"] {
                let allowed = file.path == "app/dom.js" && word == "innerHTML";
                assert!(
                    allowed || !text.contains(word),
                    "{} has {word}, which the policy refuses",
                    file.path
                );
            }
            assert_ne!(file.content_type, "application/octet-stream", "{}", file.path);
            plain += file.content.len();
            gzip += file.gzip.len();
        }
        assert!(plain < 170_000 && gzip < 60_000, "{plain} bytes, packed {gzip}");
    }

    #[test]
    fn scripts_are_served_without_comments_and_with_their_line_numbers() {
        let text = b"//! About.\n\nconst a = \"//b\"; // c\n  /// More.\n  a();\n";
        assert_eq!(without_comments("a.js", text), b"\n\nconst a = \"//b\"; // c\n\n  a();\n");
        assert_eq!(without_comments("a.css", text), text);
        for ((path, plain), file) in FILES.iter().zip(ASSETS.iter()) {
            let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines(plain), lines(file.content), "{path}");
        }
    }

    #[test]
    fn responses_have_security_and_cache_headers() {
        let response = asset_response("index.html", &HeaderMap::new());
        assert_eq!(response.status(), StatusCode::OK);
        let headers = response.headers();
        assert_eq!(headers[header::CONTENT_TYPE], "text/html; charset=utf-8");
        assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let policy = headers[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(!headers.contains_key(header::CONTENT_ENCODING));

        let etag = headers[header::ETAG].to_str().unwrap().to_owned();
        for tags in [etag.clone(), format!("W/{etag}"), format!("\"x\", {etag}")] {
            let response = asset_response("index.html", &header_map(header::IF_NONE_MATCH, &tags));
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{tags}");
        }
        assert_eq!(
            asset_response("index.html", &header_map(header::IF_NONE_MATCH, "\"x\"")).status(),
            StatusCode::OK
        );
    }

    #[test]
    fn gzip_is_sent_to_clients_that_accept_it() {
        for (accepted, packed) in [
            ("gzip, deflate, br", true),
            ("br;q=1, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let response = asset_response("app/main.js", &header_map(header::ACCEPT_ENCODING, accepted));
            assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), packed, "{accepted}");
        }
    }

    #[test]
    fn only_listed_paths_are_served() {
        for path in [
            "",
            "/",
            "../Cargo.toml",
            "app/../index.html",
            "app//main.js",
            "./index.html",
            "app",
            "INDEX.HTML",
        ] {
            assert_eq!(asset_response(path, &HeaderMap::new()).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }
}
