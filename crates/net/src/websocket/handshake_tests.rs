//! Tests of the opening handshake: the examples of the RFCs, and each condition violated once.

use super::*;

const HEADERS: [(&str, &str); 7] = [
    ("Host", "example.com"),
    ("Upgrade", "websocket"),
    ("Connection", "Upgrade"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Origin", "http://example.com"),
    ("Sec-WebSocket-Protocol", "xmpp"),
    ("Sec-WebSocket-Version", "13"),
];

fn judge(
    version: HttpVersion,
    method: &str,
    headers: &[(&str, &str)],
    compression: bool,
) -> Result<AcceptedHandshake, RejectedHandshake> {
    let headers = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    accept(
        Handshake { method, version, headers },
        &WebSocketSettings { compression, ..WebSocketSettings::default() },
    )
}

/// The example with one header replaced or removed.
fn with(name: &str, value: Option<&str>) -> Result<AcceptedHandshake, RejectedHandshake> {
    let mut headers: Vec<_> = HEADERS.into_iter().filter(|(other, _)| *other != name).collect();
    headers.extend(value.map(|value| (name, value)));
    judge(HttpVersion::Http11, "GET", &headers, false)
}

#[test]
fn example_of_rfc_7395_section_3_1() {
    let accepted = judge(HttpVersion::Http11, "GET", &HEADERS, false).unwrap();
    let mut out = Vec::new();
    accepted.write(&mut out);
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nsec-websocket-protocol: xmpp\r\n\r\n"
    );
}

/// RFC 8441, section 5.1, with the subprotocol `xmpp`.
#[test]
fn http_2_has_neither_key_nor_upgrade() {
    let headers = [
        ("sec-websocket-protocol", "chat, xmpp"),
        ("sec-websocket-extensions", "permessage-deflate"),
        ("sec-websocket-version", "13"),
        ("origin", "http://www.example.com"),
    ];
    let accepted = judge(HttpVersion::Http2, "CONNECT", &headers, false).unwrap();
    assert_eq!(accepted.headers().collect::<Vec<_>>(), [("sec-websocket-protocol", "xmpp")]);
    assert_eq!(judge(HttpVersion::Http2, "GET", &HEADERS, false).unwrap_err().status, 405);
}

#[test]
fn header_lists_and_letter_case_follow_http() {
    for (name, value) in [
        ("Upgrade", "h2c, WebSocket"),
        ("Connection", "keep-alive, upgrade"),
        ("Sec-WebSocket-Protocol", "chat,xmpp , other"),
        ("Sec-WebSocket-Version", " 13 "),
        ("Origin", "https://elsewhere.example"),
    ] {
        assert!(with(name, Some(value)).is_ok(), "{name}: {value}");
    }
    assert!(with("Origin", None).is_ok());
}

#[test]
fn each_requirement_of_the_handshake_is_checked() {
    for (name, value, status) in [
        ("Host", None, 400),
        ("Upgrade", None, 400),
        ("Upgrade", Some("websockets"), 400),
        ("Connection", Some("close"), 400),
        ("Sec-WebSocket-Key", None, 400),
        ("Sec-WebSocket-Key", Some("dGhlIHNhbXBsZQ=="), 400),
        ("Sec-WebSocket-Key", Some("dGhlIHNhbXBsZSBub25jZQ"), 400),
        ("Sec-WebSocket-Key", Some("\r\n"), 400),
        ("Sec-WebSocket-Protocol", None, 400),
        ("Sec-WebSocket-Protocol", Some("XMPP"), 400),
        ("Sec-WebSocket-Protocol", Some("xmpp2, mqtt"), 400),
        ("Sec-WebSocket-Version", None, 426),
        ("Sec-WebSocket-Version", Some("8"), 426),
        ("Sec-WebSocket-Version", Some("13, 8"), 426),
        ("Sec-WebSocket-Extensions", Some("permessage deflate"), 400),
        ("Sec-WebSocket-Extensions", Some("permessage-deflate; client_max_window_bits=\"1"), 400),
    ] {
        assert_eq!(with(name, value).unwrap_err().status, status, "{name}: {value:?}");
    }
    let twice = [&HEADERS[..], &[("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")]].concat();
    assert_eq!(judge(HttpVersion::Http11, "GET", &twice, false).unwrap_err().status, 400);
    assert_eq!(judge(HttpVersion::Http11, "POST", &HEADERS, false).unwrap_err().status, 405);
    assert_eq!(judge(HttpVersion::Http10, "GET", &HEADERS, false).unwrap_err().status, 505);
    let other = with("Sec-WebSocket-Version", Some("8")).unwrap_err();
    assert_eq!(other.header(), Some(("Sec-WebSocket-Version", "13")), "RFC 6455 section 4.4");
}

fn deflate(value: &str) -> Option<&'static str> {
    let headers = [&HEADERS[..], &[("Sec-WebSocket-Extensions", value)]].concat();
    assert!(
        !judge(HttpVersion::Http11, "GET", &headers, false).unwrap().is_compressed(),
        "it is off by default"
    );
    judge(HttpVersion::Http11, "GET", &headers, true).unwrap().extensions
}

/// RFC 7692, sections 7.1 and 7.1.3.
#[test]
fn the_first_acceptable_compression_offer_is_used() {
    let plain = Some("permessage-deflate; server_no_context_takeover; client_no_context_takeover");
    for value in [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits; server_no_context_takeover",
        "permessage-deflate; client_max_window_bits=10",
        "x-other; a=b, , permessage-deflate",
        "permessage-deflate; client_max_window_bits; server_max_window_bits=10, permessage-deflate; client_max_window_bits",
    ] {
        assert_eq!(deflate(value), plain, "{value}");
    }
    assert!(deflate("permessage-deflate; server_max_window_bits=\"15\"").unwrap().ends_with("=15"));
    for value in [
        "x-webkit-deflate-frame",
        "permessage-deflate; server_max_window_bits=10",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; client_max_window_bits=16",
        "permessage-deflate; client_max_window_bits=08",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; client_no_context_takeover; client_no_context_takeover",
        "permessage-deflate; unknown",
    ] {
        assert_eq!(deflate(value), None, "{value}");
    }
}
