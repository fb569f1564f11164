//! Cross-site WebSocket hijacking.
//!
//! Done: handshakes with the origin of another page, of a look-alike and without one; invalid handshakes (another
//! version, no key, another method, no subprotocol).
//!
//! Rule: RFC 6455, sections 4.2 and 10.2; RFC 7395, section 3.1.
//!
//! Right: if `allowed_origins` is set, other origins get 403; only a complete handshake is accepted.

use crate::support::ProgramUnderAttack;

fn handshake(extra: &str) -> String {
    format!(
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: xmpp\r\n{extra}\r\n"
    )
}

#[test]
fn pages_that_are_not_listed_get_no_websocket() {
    let program =
        ProgramUnderAttack::start("origin", "[http]\nallowed_origins = ['https://chat.example.org']\n", "");
    for (origin, good) in [
        ("https://chat.example.org", true),
        ("http://localhost", true),
        ("https://evil.example", false),
        ("https://chat.example.org.evil.example", false),
        ("https://evil.example/https://chat.example.org", false),
        ("https://chat.example.org@evil.example", false),
        ("http://chat.example.org", false),
        ("https://chat.example.org:444", false),
        ("null", false),
        ("", false),
        ("file://", false),
    ] {
        for path in ["ws", "bosh"] {
            let mut connection = program.connect(program.http);
            let request = match path {
                "ws" => handshake(&format!("Origin: {origin}\r\n")),
                _ => format!(
                    "POST /bosh HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nContent-Length: 1\r\n\r\nx"
                ),
            };
            connection.send(request);
            let answer = connection.until("\r\n\r\n");
            assert_eq!(!answer.starts_with("HTTP/1.1 403"), good, "{path} {origin}: {answer}");
        }
    }
}

#[test]
fn only_a_valid_handshake_is_upgraded() {
    let program = ProgramUnderAttack::start("handshake", "", "");
    let whole = handshake("");
    for attack in [
        whole.replace("Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8"),
        whole.replace("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", ""),
        whole.replace("dGhlIHNhbXBsZSBub25jZQ==", "short"),
        whole.replace("Sec-WebSocket-Protocol: xmpp\r\n", ""),
        whole.replace("Protocol: xmpp", "Protocol: chat"),
        whole.replace("Upgrade: websocket\r\n", ""),
        whole.replace("Connection: Upgrade", "Connection: close"),
        whole.replace("GET /ws", "POST /ws"),
        whole.replace("HTTP/1.1", "HTTP/1.0"),
        whole.replace("Host: localhost\r\n", ""),
    ] {
        let mut connection = program.connect(program.http);
        connection.send(&attack);
        connection.half_close();
        let answer = connection.rest();
        let refused = answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 505");
        assert!(refused, "{attack}: {answer}");
    }
    let mut connection = program.connect(program.http);
    connection.send(&whole);
    assert!(connection.until("\r\n\r\n").starts_with("HTTP/1.1 101"));
}
