//! HTTP request smuggling.
//!
//! Done: two lengths, a length with chunked coding, unusual spellings of `chunked`, chunk sizes with signs,
//! extensions and overflow, folded lines, bare line feeds, white space before the colon, NUL and CR in values, a
//! body after GET, HTTP/0.9; after each a second request that must not be served.
//!
//! Rule: RFC 9112, sections 5.1, 5.2, 6.1, 6.3, 7.1 and 11.2. If a proxy parses a request differently, one user's
//! bytes become the header of another's request (CVE-2019-18277 of HAProxy, CVE-2022-26377 of Apache).
//!
//! Right: such a request is refused and its connection closed, or it gets one response and the second request is
//! read where every parser begins it.

use crate::support::ProgramUnderAttack;

const SECOND: &str =
    "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Smuggled: yes\r\nConnection: close\r\n\r\n";

#[test]
fn ambiguous_request_lengths_are_refused() {
    let program = ProgramUnderAttack::start("smuggle", "", "");
    for path in ["/bosh", "/api/v1/session", "/ws", "/console/index.html"] {
        let post = |fields: &str, body: &str| {
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{body}")
        };
        for attack in [
            post("Content-Length: 4\r\nContent-Length: 0\r\n", "abcd"),
            post("Content-Length: 4, 0\r\n", "abcd"),
            post("Content-Length: +4\r\n", "abcd"),
            post("Content-Length: 0x4\r\n", "abcd"),
            post("Content-Length: -1\r\n", ""),
            post("Content-Length: 18446744073709551616\r\n", ""),
            post("Content-Length: 4 \r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"),
            post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"),
            post("Transfer-Encoding: identity\r\nContent-Length: 0\r\n", ""),
            post("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"),
            post("Transfer-Encoding:\u{b}chunked\r\n", "0\r\n\r\n"),
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n"),
            post("X: y\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            post("Transfer-Encoding: chunked\r\n", "+0\r\n\r\n"),
            post("Transfer-Encoding: chunked\r\n", "10000000000000000\r\n\r\n"),
            post("Transfer-Encoding: chunked\r\n", "0x0\r\n\r\n"),
            post("Transfer-Encoding: chunked\r\n", "1\nx\n0\n\n"),
            post("Content-Length: 0\r\n\u{0}: x\r\n", ""),
            post("Content-Length: 0\r\nX: a\rContent-Length: 5\r\n", ""),
            format!("POST {path} HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n"),
            format!("POST {path} HTTP/1.1\r\nContent-Length: 0\r\n\r\n"),
            format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nContent-Length: 0\r\n\r\n"),
            format!("POST {path}\r\n"),
            format!("POST {path} HTTP/3.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
            format!("POST {path} HTTP/1.1 x\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
            format!("POST  {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"),
        ] {
            let mut connection = program.connect(program.http);
            connection.send(format!("{attack}{SECOND}"));
            // A server that waits for more input has not answered.
            connection.half_close();
            let answers = connection.rest();
            let first = answers.get(9..12).unwrap_or("").to_owned();
            let count = answers.matches("HTTP/1.1 ").count();
            assert!(first.is_empty() || first.starts_with(['4', '5']), "{path} {attack:?}: {answers}");
            let smuggled = answers.contains("HTTP/1.1 200 ");
            assert!(!smuggled && count <= 1, "{path} {attack:?}: {answers}");
        }
    }
}

#[test]
fn a_body_is_not_the_next_request() {
    let program = ProgramUnderAttack::start("bodies", "", "");
    for fields in
        [format!("Content-Length: {}\r\n", SECOND.len()), "Transfer-Encoding: chunked\r\n".to_owned()]
    {
        let chunked = fields.starts_with('T');
        let body =
            if chunked { format!("{:x}\r\n{SECOND}\r\n0\r\n\r\n", SECOND.len()) } else { SECOND.to_owned() };
        for line in ["GET /healthz", "POST /bosh", "PUT /metrics", "DELETE /nothing"] {
            let mut connection = program.connect(program.http);
            connection.send(format!("{line} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n{body}"));
            connection.half_close();
            let answers = connection.rest();
            assert!(answers.matches("HTTP/1.1 ").count() <= 1, "{line} {fields}: {answers}");
        }
    }
}
