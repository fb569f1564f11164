//! Abandoned connections before authentication.
//!
//! Done: four thousand connections are opened and left at each stage before a login: after nothing, a stream
//! header, half an element, half a SASL exchange, half a TLS handshake, a WebSocket handshake, a BOSH session, a
//! failed login.
//!
//! Rule: RFC 6120, section 13.12; CVE-2026-43506 (Prosody leaked memory for each), OF-2896 (Openfire), and
//! out-of-memory errors of Openfire 4.4.2 by clients that stay connected after a failed login.
//!
//! Right: no memory leak: the second round needs no more memory than the first, and no connection is counted any
//! more.

use throng_e2e::wait;

use crate::support::{ProgramUnderAttack, RawSocket, frame};

const EACH: usize = 250;

fn round(program: &ProgramUnderAttack) {
    let header = "<stream:stream to='localhost' version='1.0' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>";
    let auth = "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism=";
    // n,,n=romeo,r=abcdefghijklmnop
    let scram = format!("{header}{auth}'SCRAM-SHA-1'>biwsbj1yb21lbyxyPWFiY2RlZmdoaWprbG1ub3A=</auth>");
    let failed = format!("{header}{auth}'PLAIN'>AG5vYm9keQB3cm9uZw==</auth>");
    let open = "<open xmlns='urn:ietf:params:xml:ns:xmpp-framing' to='localhost' version='1.0'/>";
    let body = "<body rid='1' to='localhost' wait='1' hold='1' ver='1.11' xmlns='http://jabber.org/protocol/httpbind'/>";
    let half = format!(
        "{header}<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='PLAIN'>{}",
        "A".repeat(4_000)
    );
    let stages: [(u16, Vec<u8>, &str); 8] = [
        (program.c2s, Vec::new(), ""),
        (program.c2s, header.into(), "</stream:features>"),
        (program.c2s, half.into(), "</stream:features>"),
        (program.c2s, scram.into(), "<challenge"),
        (program.c2s, failed.into(), ""),
        (program.direct, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(), ""),
        (
            program.http,
            format!("POST /bosh HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                .into(),
            "HTTP/1.1 200",
        ),
        (program.http, b"GET /console/ind".to_vec(), ""),
    ];
    for (port, bytes, until) in &stages {
        let mut all: Vec<RawSocket> = (0..EACH).map(|_| program.connect(*port)).collect();
        for connection in &mut all {
            connection.send(bytes);
        }
        for connection in all.iter_mut().filter(|_| !until.is_empty()) {
            connection.until(until);
        }
    }
    let mut all: Vec<RawSocket> = (0..EACH).map(|_| program.websocket("")).collect();
    for connection in &mut all {
        connection.send(frame(0x81, open.len() as u64, open.as_bytes()));
        connection.until("features");
    }
    drop(all);
    // BOSH sessions time out; all others end with their sockets.
    wait("connections that end", || {
        (program.metric("throng_connections") <= (EACH * 2) as f64).then_some(())
    });
}

#[test]
fn abandoned_connections_are_freed() {
    let limits = "[limits]\nlogin_failures_per_address = 1000000\nlogin_failures_per_address_and_account = 1000000\nlogin_failures_per_account = 1000000\n";
    let program = ProgramUnderAttack::start("abandon", limits, "");
    assert!(program.get("/metrics").1.contains("\nthrong_connections "), "the gauge has another name");
    round(&program);
    let before = program.resident();
    round(&program);
    let grown = program.resident().saturating_sub(before);
    // A leak of one kilobyte per connection would exceed this.
    assert!(grown < 12 << 20, "{} kB more are resident after a second round", grown >> 10);
}
