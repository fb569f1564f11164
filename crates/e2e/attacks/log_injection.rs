//! Log injection.
//!
//! Done: line ends, terminal escapes and complete forged lines in user names, resources, stream headers, paths,
//! header fields, forwarded addresses and sign-in names; then the log is read.
//!
//! Rule: CWE-117; operators and fail2ban read the log (RFC 6120, section 13.12; a client's name filled the log of
//! ejabberd 16.03 with crash reports).
//!
//! Right: no line of the log begins with text of a client, no control character is written, and a failed login is
//! one line.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use crate::support::ProgramUnderAttack;

const FORGED: &str = "2026-01-01T00:00:00Z INFO forged: line";

#[test]
fn client_input_cannot_forge_a_log_line() {
    let program = ProgramUnderAttack::start("log", "admins = ['romeo@localhost']\n", "");
    for ending in ["\n", "\r\n", "\r", "\u{85}", "\u{2028}", "\u{1b}[2K\u{1b}[1A", "\u{7}", "\u{0}"] {
        let word = format!("x{ending}{FORGED}{ending}");
        // SASL: Base64 can carry every byte.
        let mut xmpp = program.connect(program.c2s);
        xmpp.send("<stream:stream to='localhost' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>");
        xmpp.until("</stream:features>");
        for message in [
            format!("\0{word}\0password"),
            format!("{word}\0romeo\0password"),
            format!("n,,n={word},r=abcdefghijklmnop"),
        ] {
            let mechanism = if message.starts_with("n,,") { "SCRAM-SHA-1" } else { "PLAIN" };
            let text = BASE64_STANDARD.encode(message);
            xmpp.send(format!(
                "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='{mechanism}'>{text}</auth>"
            ));
            xmpp.until(">");
        }
        drop(xmpp);
        let escaped = word.replace('\u{1b}', "&#27;").replace('\n', "&#10;").replace('\r', "&#13;");
        let mut xmpp = program.connect(program.c2s);
        xmpp.send(format!(
            "<stream:stream to='{escaped}' from='{escaped}' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"
        ));
        xmpp.half_close();
        xmpp.rest();
        let mut http = program.connect(program.http);
        http.send(format!(
            "GET /{word} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {word}\r\nForwarded: for=\"{word}\"\r\nUser-Agent: {word}\r\nConnection: close\r\n\r\n"
        ));
        http.half_close();
        http.rest();
        let json = word
            .replace('\u{1b}', "\\u001b")
            .replace('\n', "\\n")
            .replace('\r', "\\r")
            .replace('\0', "\\u0000")
            .replace('\u{7}', "\\u0007");
        let body = format!("{{\"jid\":\"{json}@localhost\",\"password\":\"{json}\"}}");
        let answer = program.http(&format!(
            "POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ));
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    let log = program.log();
    let bad = |c: char| c.is_control() && c != '\n' && c != '\t' || matches!(c, '\u{2028}' | '\u{2029}');
    assert!(
        !log.contains(bad),
        "{}",
        log.lines().find(|line| line.contains(bad)).unwrap_or_default().escape_debug()
    );
    for line in log.lines() {
        assert!(!line.trim_start().starts_with("2026-01-01T00:00:00Z"), "{line}");
    }
}
