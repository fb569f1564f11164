//! Reflected content in HTTP responses.
//!
//! Done: scripts in paths, queries, headers and JSON; another host in `Host`; line ends in values; methods that
//! echo; framing, sniffing and cross-origin reads of every kind of page.
//!
//! Rule: OWASP; Openfire's console had a dozen such bugs (CVE-2017-15911, CVE-2019-20363 to 20366), ejabberd's
//! pages as well (release 26.07: a URL value in a page, uploads without headers).
//!
//! Right: nothing of the request is returned as markup, pages have a Content-Security-Policy, other origins cannot
//! read the API, and `Host` has no effect except in links.

use crate::support::ProgramUnderAttack;

const SCRIPT: &str = "<script>alert(1)</script>";

#[test]
fn no_request_data_is_reflected_as_markup() {
    let program = ProgramUnderAttack::start("reflect", "", "");
    for path in [
        "/",
        "/console/",
        "/chat",
        "/api/v1/",
        "/api/v1/accounts/",
        "/.well-known/",
        "/metrics",
        "/bosh",
        "/ws",
        "/nothing/",
    ] {
        for tail in [
            "%3Cscript%3Ealert(1)%3C/script%3E",
            "?q=%3Cscript%3Ealert(1)%3C/script%3E",
            "<script>alert(1)</script>",
            "%0d%0aX-Evil:%20yes",
        ] {
            for method in ["GET", "POST", "TRACE", "OPTIONS"] {
                let request = format!(
                    "{method} {path}{tail} HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nReferer: {SCRIPT}\r\n\
                     User-Agent: {SCRIPT}\r\nX-Evil-Marker: {SCRIPT}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                );
                let answer = program.http(&request);
                let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
                let head = head.to_ascii_lowercase();
                assert!(
                    !head.contains("x-evil") && !head.contains("alert(1)"),
                    "{method} {path}{tail}: {answer}"
                );
                let markup = head.contains("content-type: text/html") || !head.contains("content-type: ");
                assert!(!(markup && body.contains("alert(1)")), "{method} {path}{tail}: {answer}");
                assert!(!body.contains("X-Evil-Marker"), "{method} {path}{tail}: {answer}");
            }
        }
    }
}

#[test]
fn every_page_has_security_headers() {
    let program = ProgramUnderAttack::start("headers", "", "");
    for path in ["/", "/console/app/main.js", "/console/icon.svg", "/chat/"] {
        let (status, answer) = program.get(path);
        if status != 200 {
            continue;
        }
        let head = answer.split_once("\r\n\r\n").unwrap().0.to_ascii_lowercase();
        assert!(head.contains("content-security-policy: "), "{path}: {head}");
        assert!(head.contains("frame-ancestors 'none'"), "{path}: {head}");
        assert!(head.contains("x-content-type-options: nosniff"), "{path}: {head}");
        assert!(!head.contains("access-control-allow-origin"), "{path}: {head}");
        assert!(!head.contains("\r\nserver: ") && !head.contains("x-powered-by"), "{path}: {head}");
    }
    assert_eq!(program.get("/").0, 200);
}

#[test]
fn a_cross_origin_page_cannot_read_the_api() {
    let program = ProgramUnderAttack::start("cors", "", "");
    for path in
        ["/api/v1/accounts", "/api/v1/session", "/api/v1/openapi.json", "/metrics", "/console/index.html"]
    {
        for method in ["GET", "OPTIONS"] {
            let answer = program.http(&format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nOrigin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n\
                 Access-Control-Request-Headers: authorization\r\nConnection: close\r\n\r\n"
            ));
            assert!(
                !answer.to_ascii_lowercase().contains("access-control-allow-"),
                "{method} {path}: {answer}"
            );
        }
    }
}

#[test]
fn the_host_header_is_never_trusted() {
    let program =
        ProgramUnderAttack::start("host", "[http]\npublic_url = 'https://xmpp.example.org:5443'\n", "");
    for host in [
        "evil.example",
        "localhost.evil.example",
        "localhost:80@evil.example",
        "'><script>",
        "evil.example/../x",
    ] {
        for path in ["/.well-known/host-meta", "/.well-known/host-meta.json", "/", "/chat", "/console"] {
            let answer =
                program.http(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
            assert!(!answer.contains("evil") && !answer.contains("'><script>"), "{path} {host}: {answer}");
        }
    }
    let (_, answer) = program.get("/.well-known/host-meta");
    assert!(answer.contains("xmpp.example.org"), "{answer}");
}
