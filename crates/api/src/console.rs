//! The operator's page at `/`, with what belongs to it below `/console/`: the files of the folder `console` of the repository,
//! inside the program. For everybody: they hold no figures and no secrets, those come from `/api/v1`.
//!
//! Each file is packed with gzip once and has the hash of its content as ETag (RFC 9110 section 8.8.3), so a browser that
//! has it is told so in one small answer, and never mixes files of two versions.
//!
//! The trap: a file that is added to the folder must be added to [`FILES`]; a test compares the two. Paths are looked up in
//! that list and are never paths of the disk.

use std::io::Write;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use flate2::Compression;
use flate2::write::GzEncoder;
use ring::digest::{SHA256, digest};

use crate::Api;

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
    "app/keys.js",
    "app/main.js",
    "app/notice.js",
    "app/paging.js",
    "app/scale.js",
    "app/series.js",
    "app/table.js",
    "app/theme.js",
    "view/account_acts.js",
    "view/audit.js",
    "view/board.js",
    "view/commands.js",
    "view/concerns.js",
    "view/domain_names.js",
    "view/domains.js",
    "view/log.js",
    "view/messages.js",
    "view/nodes.js",
    "view/overview.js",
    "view/session_table.js",
    "view/sessions.js",
    "view/sign_in.js",
    "view/tokens.js",
    "view/user.js",
    "view/users.js",
];

/// What the page may do: load from here and ask here. No inline script or style, no frame around it, no markup from texts.
pub(crate) const POLICY: &str = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; \
                                 frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A file as it leaves.
struct Packed {
    path: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    gzip: Vec<u8>,
    etag: String,
}

static PACKED: LazyLock<Vec<Packed>> = LazyLock::new(|| FILES.iter().map(pack).collect());

fn pack(&(path, plain): &(&'static str, &'static [u8])) -> Packed {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing into memory does not fail; if it did, the plain file would be sent.
    let gzip = encoder.write_all(plain).and_then(|()| encoder.finish()).unwrap_or_default();
    let etag = format!("\"{}\"", &URL_SAFE_NO_PAD.encode(digest(&SHA256, plain).as_ref())[..22]);
    Packed { path, kind: kind(path), plain, gzip, etag }
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

/// The routes of this file.
pub(crate) fn routes() -> Router<Arc<Api>> {
    Router::new().route("/", get(page)).route("/console/{*path}", get(file))
}

async fn page(headers: HeaderMap) -> Response {
    answer("index.html", &headers)
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    answer(&path, &headers)
}

fn answer(path: &str, asked: &HeaderMap) -> Response {
    let Some(file) = PACKED.iter().find(|file| file.path == path) else {
        return (StatusCode::NOT_FOUND, "there is no such file\n").into_response();
    };
    let said = |name: HeaderName| asked.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let known =
        said(header::IF_NONE_MATCH).split(',').any(|tag| tag.trim().trim_start_matches("W/") == file.etag);
    let packed = !file.gzip.is_empty()
        && file.gzip.len() < file.plain.len()
        && takes_gzip(said(header::ACCEPT_ENCODING));
    let mut response = match (known, packed) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => file.gzip.as_slice().to_vec().into_response(),
        (false, false) => file.plain.into_response(),
    };
    let headers = response.headers_mut();
    let mut set =
        |name: HeaderName, value: &'static str| headers.insert(name, HeaderValue::from_static(value));
    // Asked for each time and mostly answered with "not modified": an upgraded node shows its own page at once.
    set(header::CACHE_CONTROL, "no-cache");
    set(header::VARY, "accept-encoding");
    set(header::CONTENT_TYPE, file.kind);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_FRAME_OPTIONS, "DENY");
    set(header::REFERRER_POLICY, "no-referrer");
    set(HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    set(HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()");
    if packed && !known {
        set(header::CONTENT_ENCODING, "gzip");
    }
    if let Ok(etag) = HeaderValue::from_str(&file.etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

/// RFC 9110 section 12.5.3, as far as browsers use it: gzip by name or `*`, unless its weight is 0.
fn takes_gzip(accepted: &str) -> bool {
    accepted.split(',').any(|part| {
        let (name, weight) = part.split_once(';').unwrap_or((part, ""));
        let weight = weight.trim().trim_start_matches("q=");
        matches!(name.trim(), "gzip" | "*") && !matches!(weight, "0" | "0.0" | "0.00" | "0.000")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

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

    fn asked(name: HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn every_file_of_the_folder_is_inside_and_known_to_the_page() {
        let mut there = BTreeSet::new();
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console"), "", &mut there);
        let inside: BTreeSet<String> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(there, inside);
        // What is not asked for at once is asked for in a chain, one round trip for each link of it.
        let page = std::str::from_utf8(FILES[0].1).unwrap();
        for path in inside.iter().filter(|path| *path != "index.html") {
            assert!(page.contains(&format!("\"/console/{path}\"")), "index.html does not name {path}");
        }
    }

    #[test]
    fn the_page_stands_on_its_own_and_is_light() {
        let (mut plain, mut gzip) = (0, 0);
        for file in PACKED.iter() {
            let text = std::str::from_utf8(file.plain).unwrap();
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
            assert_ne!(file.kind, "application/octet-stream", "{}", file.path);
            plain += file.plain.len();
            gzip += file.gzip.len();
        }
        assert!(plain < 200_000 && gzip < 80_000, "{plain} bytes, packed {gzip}");
    }

    #[test]
    fn answers_are_strict_and_fresh() {
        let response = answer("index.html", &HeaderMap::new());
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
            let response = answer("index.html", &asked(header::IF_NONE_MATCH, &tags));
            assert_eq!(response.status(), StatusCode::NOT_MODIFIED, "{tags}");
        }
        assert_eq!(answer("index.html", &asked(header::IF_NONE_MATCH, "\"x\"")).status(), StatusCode::OK);
    }

    #[test]
    fn gzip_is_sent_to_who_takes_it() {
        for (accepted, packed) in [
            ("gzip, deflate, br", true),
            ("br;q=1, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("br", false),
            ("", false),
        ] {
            let response = answer("app/main.js", &asked(header::ACCEPT_ENCODING, accepted));
            assert_eq!(response.headers().contains_key(header::CONTENT_ENCODING), packed, "{accepted}");
        }
    }

    #[test]
    fn no_path_leaves_the_list() {
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
            assert_eq!(answer(path, &HeaderMap::new()).status(), StatusCode::NOT_FOUND, "{path}");
        }
    }
}
