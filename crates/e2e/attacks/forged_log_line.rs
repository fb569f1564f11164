//! Log entry forged by a client.
//!
//! Done: a report of abuse (XEP-0377) whose text and reason contain line ends, a complete entry of the audit log,
//! terminal escape sequences and bidirectional controls; user names of logins, resources and command names with the
//! same content; a name of 200 kB. With text and JSON logs.
//!
//! Rule: RFC 6120, section 13, and CWE-117; CVE-2021-42574 (bidirectional controls), CVE-2025-58160 (terminals).
//! Logs are read in terminals and by programs that ban addresses.
//!
//! Right: text of a client stays within its own field: one line per event; invisible characters are escaped in the
//! text log.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::support::{PROGRAM_PASSWORD, ProgramUnderAttack};

/// The characters of it that XML 1.0 allows.
const FORGED: &str = "x&#10;2026-11-22T00:00:00.000000Z  INFO throng::audit: command who=\"operator\" outcome=\"done\"&#13;&#x9b;2K&#x202e;&#x2028;&#x85;";

fn login(program: &ProgramUnderAttack, plain: &str) -> String {
    let mut client = program.connect(program.c2s);
    let open = "<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='localhost' version='1.0'>";
    client.send(open);
    client.until("</stream:features>");
    client.send(format!(
        "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{}</auth>",
        STANDARD.encode(plain)
    ));
    let answer = client.until(">");
    if !answer.contains("<success") {
        return answer;
    }
    client.send(open);
    client.until("</stream:features>");
    client.send("<iq type='set' id='b'><bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/></iq>");
    client.until("</iq>");
    client.send(format!(
        "<iq type='set' id='block'><block xmlns='urn:xmpp:blocking'><item jid='juliet@localhost'><report xmlns='urn:xmpp:reporting:1' \
         reason='urn:xmpp:reporting:spam{FORGED}'><text>{FORGED}</text></report></item></block></iq>"
    ));
    client.until("id='block'")
}

fn attack(format: &str) -> String {
    let program = ProgramUnderAttack::start(
        &format!("log-{format}"),
        &format!("[log]\nlevel = 'debug'\nformat = '{format}'\n"),
        "",
    );
    for name in ["a\nb", "\x1b[2J", "\u{202e}", "x\r\n2026  INFO throng::audit: command", &"y".repeat(9_000)]
    {
        login(&program, &format!("\0{name}\0secret"));
    }
    login(&program, &format!("\0romeo\0{PROGRAM_PASSWORD}"));
    program.wait_for_log("abuse was reported");
    let mut web = program.connect(program.http);
    web.send("POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 76\r\n\r\n");
    web.send(format!(
        "{:<76}",
        "{\"jid\":\"x\\u000a\\u001b[2J\\u202e INFO throng::audit: command\",\"password\":\"y\"}"
    ));
    web.rest();
    program.log()
}

#[test]
fn client_values_stay_in_their_field() {
    for format in ["text", "json"] {
        let log = attack(format);
        for line in log.lines() {
            let unsafe_one = line.chars().find(|c| base::printable::is_unsafe(*c));
            assert_eq!(unsafe_one, None, "{line}");
            assert!(line.len() < 8_192, "{} bytes: {line:.200}", line.len());
            match format {
                // The greeting is not part of the log.
                "json" if !line.starts_with('{') => assert!(!line.contains("INFO"), "{line}"),
                "json" => drop(
                    serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|e| panic!("{e}: {line}")),
                ),
                // Only lines of the log begin with a time.
                _ => assert!(!line.starts_with("2026-11-22T00:00:00.000000Z"), "{line}"),
            }
            assert!(!line.contains("  INFO throng::audit: command who=\"operator\""), "{line}");
        }
        assert!(log.contains("abuse was reported"), "{log}");
    }
}
