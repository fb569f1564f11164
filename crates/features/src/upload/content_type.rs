//! Types of files, and what a browser may do with them.
//!
//! Files come from users and may be served by the host of the chat and the console. A browser must not run anything of
//! them as a page, a script or a style of that host.

/// Maximum bytes of a type.
const MAX_BYTES: usize = 100;

/// A type as it is compared and signed; `None` if its type or subtype is no token (RFC 9110, section 8.3.1) or a parameter has
/// other than printable characters. Parameters are not parsed: they are not served.
pub(super) fn normalize(written: &str) -> Option<String> {
    let written = written.trim();
    let (essence, parameters) = match written.split_once(';') {
        Some((essence, parameters)) => (essence.trim(), parameters.trim()),
        None => (written, ""),
    };
    let (kind, subtype) = essence.split_once('/')?;
    let printable = parameters.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if written.len() > MAX_BYTES || !is_token(kind) || !is_token(subtype) || !printable {
        return None;
    }
    let essence = essence.to_ascii_lowercase();
    Some(if parameters.is_empty() { essence } else { format!("{essence}; {parameters}") })
}

/// RFC 9110, section 5.6.2.
fn is_token(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(known)
}

/// Whether two normalised types are the same. Case matters in no parameter that is in use, such as `charset`.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let without_spaces = |text: &str| text.to_ascii_lowercase().replace(' ', "");
    without_spaces(one) == without_spaces(other)
}

/// Headers with which a file is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedType {
    /// `Content-Type`.
    pub(super) content_type: String,
    /// Whether a browser shows it instead of saving it.
    pub(super) inline: bool,
}

/// How a file with a normalised type is served. An empty type is unknown.
///
/// Parameters are not served, except the character set of plain text: browsers take the last type of a header with commas
/// (Fetch standard, "extract a MIME type"), so a parameter could contain a type that they run.
pub(super) fn served(content_type: &str) -> ServedType {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let (kind, subtype) = essence.split_once('/').unwrap_or_default();
    let is_active = ["xml", "html", "script", "css", "wasm", "shockwave", "svg"]
        .iter()
        .any(|active| subtype.contains(active));
    let of = |content_type: &str, inline| ServedType { content_type: content_type.to_owned(), inline };
    match kind {
        _ if is_active => of("application/octet-stream", false),
        "image" | "audio" | "video" => of(essence, true),
        "text" if subtype == "plain" => of(&plain_text(content_type), true),
        "text" | "message" | "multipart" | "" => of("application/octet-stream", false),
        _ => of(essence, false),
    }
}

/// The type of plain text with its character set, if it has a valid one.
fn plain_text(content_type: &str) -> String {
    let parameters = content_type.split(';').skip(1);
    let charset = parameters.filter_map(|one| one.split_once('=')).find_map(|(name, value)| {
        let is_charset = name.trim().eq_ignore_ascii_case("charset") && is_token(value.trim());
        is_charset.then(|| value.trim())
    });
    match charset {
        Some(charset) => format!("text/plain; charset={charset}"),
        None => "text/plain".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_normalised_and_cannot_inject_a_header() {
        assert_eq!(normalize(" Image/JPEG ").as_deref(), Some("image/jpeg"));
        assert_eq!(normalize("text/plain;charset=UTF-8").as_deref(), Some("text/plain; charset=UTF-8"));
        for wrong in [
            "",
            "image",
            "image/",
            "/jpeg",
            "a/b\r\nX: y",
            "a/b; c=\r\nX: y",
            "a b/c",
            "é/x",
            &"a/".repeat(60),
        ] {
            assert_eq!(normalize(wrong), None, "{wrong:?}");
        }
        assert!(is_same("text/plain; charset=utf-8", "text/plain;charset=UTF-8"));
        assert!(!is_same("text/plain", "text/html"));
    }

    #[test]
    fn a_parameter_cannot_add_another_type() {
        for (written, want) in [
            ("image/png; a=b,text/html", "image/png"),
            ("application/x; a=b,text/javascript", "application/x"),
            ("text/plain; a=b,text/css", "text/plain"),
            ("text/plain; charset=utf-8,text/css", "text/plain"),
            ("text/plain; a=b; Charset=utf-8", "text/plain; charset=utf-8"),
            ("video/mp4; codecs=\"avc1, mp4a\"", "video/mp4"),
        ] {
            let normal = normalize(written).unwrap();
            assert_eq!(served(&normal).content_type, want, "{written}");
            assert!(is_same(written, &normal), "a PUT has the same type");
        }
    }

    #[test]
    fn a_browser_shows_media_and_plain_text_and_nothing_active() {
        for inline in
            ["image/png", "image/jpeg", "audio/ogg", "video/mp4", "text/plain", "text/plain; charset=utf-8"]
        {
            assert_eq!(served(inline), ServedType { content_type: inline.to_owned(), inline: true });
        }
        for saved in
            ["application/pdf", "application/zip", "application/octet-stream", "model/stl", "font/woff2"]
        {
            assert_eq!(served(saved), ServedType { content_type: saved.to_owned(), inline: false });
        }
        for active in [
            "text/html",
            "text/html; charset=utf-8",
            "image/svg+xml",
            "application/xhtml+xml",
            "text/xml",
            "text/css",
            "text/javascript",
            "application/javascript",
            "application/ecmascript",
            "application/x-shockwave-flash",
            "application/wasm",
            "message/rfc822",
            "multipart/related",
            "text/calendar",
            "",
        ] {
            let want = ServedType { content_type: "application/octet-stream".to_owned(), inline: false };
            assert_eq!(served(active), want, "{active}");
        }
    }
}
