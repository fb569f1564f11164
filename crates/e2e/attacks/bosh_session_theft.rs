//! Takeover of a BOSH session.
//!
//! Done: requests with guessed and altered session ids, with request ids that overflow, skip or go back, for a
//! stream of another domain, with the session id in other attributes; attempts to end, restart and pause a session
//! without its id; content types that inject headers.
//!
//! Rule: XEP-0124, sections 14, 15 and 19; session ids of ejabberd were predictable (release 26.07).
//!
//! Right: such requests find no session, the session continues, and no client controls a response header.

use crate::support::ProgramUnderAttack;

const NS: &str = "http://jabber.org/protocol/httpbind";

fn post(program: &ProgramUnderAttack, body: &str) -> String {
    program.http(&format!(
        "POST /bosh HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ))
}

fn begin(program: &ProgramUnderAttack) -> String {
    let answer = post(
        program,
        &format!("<body rid='1000' to='localhost' wait='1' hold='1' ver='1.11' xmlns='{NS}'/>"),
    );
    let sid = answer
        .split(" sid='")
        .nth(1)
        .and_then(|rest| rest.split('\'').next())
        .unwrap_or_else(|| panic!("{answer}"));
    sid.to_owned()
}

#[test]
fn a_session_is_unreachable_without_its_sid() {
    let program = ProgramUnderAttack::start("bosh-theft", "", "");
    let sid = begin(&program);
    let flipped = |at: usize| {
        let mut bytes = sid.clone().into_bytes();
        bytes[at] = if bytes[at] == b'a' { b'b' } else { b'a' };
        String::from_utf8(bytes).unwrap()
    };
    for guess in [
        String::new(),
        flipped(0),
        flipped(sid.len() - 1),
        sid.to_ascii_uppercase() + "x",
        sid[..sid.len() - 1].to_owned(),
        format!("{sid}0"),
        format!(" {sid}"),
        "*".to_owned(),
        "A".repeat(10_000),
    ] {
        for attributes in
            ["", "type='terminate'", "xmpp:restart='true' xmlns:xmpp='urn:xmpp:xbosh'", "pause='60'"]
        {
            let answer =
                post(&program, &format!("<body rid='1001' sid='{guess}' {attributes} xmlns='{NS}'/>"));
            let refused = answer.contains("item-not-found")
                || answer.contains("bad-request")
                || answer.starts_with("HTTP/1.1 4");
            assert!(refused, "{guess} {attributes}: {answer}");
        }
    }
    // The session is unchanged: it accepts its next request.
    let auth = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>AG5vYm9keQB3cm9uZw==</auth>";
    let answer = post(&program, &format!("<body rid='1001' sid='{sid}' xmlns='{NS}'>{auth}</body>"));
    assert!(answer.contains("not-authorized") && !answer.contains("terminate"), "{answer}");
}

#[test]
fn request_ids_are_bounded() {
    let program = ProgramUnderAttack::start("bosh-rid", "", "");
    for rid in [
        "0",
        "-1",
        "9007199254740992",
        "18446744073709551616",
        "1e3",
        "0x10",
        "",
        " 5",
        "99999999999999999999999999",
    ] {
        let answer = post(
            &program,
            &format!("<body rid='{rid}' to='localhost' wait='1' hold='1' ver='1.11' xmlns='{NS}'/>"),
        );
        let taken = answer.contains(" sid='");
        assert!(!taken || matches!(rid, "0" | " 5"), "{rid}: {answer}");
    }
    for rid in ["1002000", "9007199254740991", "9007199254740992", "1000000000000000000000", "-1", "x"] {
        let sid = begin(&program);
        let answer = post(&program, &format!("<body rid='{rid}' sid='{sid}' xmlns='{NS}'/>"));
        assert!(answer.contains("terminate") || answer.starts_with("HTTP/1.1 4"), "{rid}: {answer}");
    }
    assert_eq!(program.get("/healthz").0, 200);
}

#[test]
fn a_client_cannot_inject_headers_by_content_type() {
    let program = ProgramUnderAttack::start("bosh-type", "", "");
    for value in [
        "application/xml",
        "text/html",
        "text/html&#13;&#10;X-Evil: yes",
        "text/html&#10;X-Evil: yes",
        "text/xml; charset=utf-8&#13;&#10;&#13;&#10;&lt;script>",
        "\u{e9}",
    ] {
        let attributes = format!("rid='1000' to='localhost' wait='1' hold='1' ver='1.11' content='{value}'");
        let answer = post(&program, &format!("<body {attributes} xmlns='{NS}'/>"));
        let head = answer.split_once("\r\n\r\n").unwrap().0.to_ascii_lowercase();
        assert!(!head.contains("x-evil"), "{value}: {head}");
        // A browser executes nothing of it, for any content type.
        assert!(head.contains("nosniff") && head.contains("content-security-policy: "), "{value}: {head}");
    }
}
