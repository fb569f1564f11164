//! Client behind a reverse proxy that chooses its own address.
//!
//! Done: behind a proxy that sets `X-Forwarded-For`, requests with the client's own `Forwarded`, with forged
//! elements before the proxy's, with bytes that are not UTF-8, and with `X-Forwarded-Proto` although the operator
//! configured no such header; then the same without a trusted proxy.
//!
//! Rule: RFC 7239, section 8.1: clients can write these headers unless a trusted proxy replaces them. ejabberd
//! (`trusted_proxies`), Prosody and many frameworks had to fix the precedence of several such headers.
//!
//! Right: the address is the right-most one in the configured header that is not a trusted proxy's; no other header
//! counts; TLS is what the server sees or the configured header states.

use crate::support::ProgramUnderAttack;

/// A stream that ends with an error is logged with the address of its peer.
fn stream_error_from(program: &ProgramUnderAttack, headers: &[u8]) -> String {
    let body = "<body rid='1' to='nowhere.example' wait='1' hold='1' ver='1.6' xml:lang='en' \
                xmlns='http://jabber.org/protocol/httpbind' xmlns:xmpp='urn:xmpp:xbosh' xmpp:version='1.0'/>";
    let mut request = b"POST /bosh HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".to_vec();
    request.extend_from_slice(headers);
    request.extend_from_slice(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    let mut connection = program.connect(program.http);
    connection.send(&request);
    connection.rest()
}

const DEBUG: &str = "[log]\nlevel = 'info,throng_streams=debug'\n";
const PROXY: &str = "[http]\ntrusted_proxies = ['127.0.0.1']\nclient_address_header = 'X-Forwarded-For'\n";

#[test]
fn only_the_named_header_of_a_trusted_proxy_counts() {
    let program = ProgramUnderAttack::start("address", &format!("{DEBUG}{PROXY}"), "");
    for (headers, expected) in [
        (&b"Forwarded: for=203.0.113.1\r\nX-Forwarded-For: 192.0.2.1\r\n"[..], "192.0.2.1"),
        (b"X-Forwarded-For: 203.0.113.2, 192.0.2.2\r\n", "192.0.2.2"),
        (b"X-Forwarded-For: 203.0.113.3\r\nX-Forwarded-For: 192.0.2.3\r\n", "192.0.2.3"),
        (b"X-Forwarded-For: \xff\xfe, 192.0.2.4\r\n", "192.0.2.4"),
        (b"X-Real-IP: 203.0.113.5\r\nX-Forwarded-For: 192.0.2.5, 127.0.0.1\r\n", "192.0.2.5"),
    ] {
        stream_error_from(&program, headers);
        program.wait_for_log(&format!("peer={expected}:0"));
    }
    assert!(!program.log().contains("203.0.113."), "{}", program.log());
}

#[test]
fn without_a_trusted_proxy_no_header_counts() {
    let program = ProgramUnderAttack::start("address-none", DEBUG, "");
    stream_error_from(
        &program,
        b"Forwarded: for=203.0.113.1\r\nX-Forwarded-For: 203.0.113.2\r\nX-Real-IP: 203.0.113.3\r\n",
    );
    program.wait_for_log("peer=127.0.0.1:");
    assert!(!program.log().contains("203.0.113."), "{}", program.log());
}

#[test]
fn an_unconfigured_scheme_header_is_ignored() {
    let program = ProgramUnderAttack::start("address-tls", PROXY, "tls = 'required'\n");
    for headers in [&b"X-Forwarded-Proto: https\r\n"[..], b"Forwarded: for=192.0.2.1;proto=https\r\n"] {
        let answer = stream_error_from(&program, headers);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
}
