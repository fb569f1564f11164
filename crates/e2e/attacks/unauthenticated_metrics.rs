//! Metrics readable by everybody.
//!
//! Done: `/metrics` is asked for through a reverse proxy on the same machine, by HTTP/1.1 and with each header that such a proxy
//! adds, and with a public `Host` and no such header, without a token and with tokens that are none or are for something else.
//!
//! Rule: no specification; Prometheus' own security model calls metrics readable for whoever reaches them, and Openfire's and
//! ejabberd's advisories have pages that were meant for operators. Numbers of users, of failed logins and of queues help attackers.
//!
//! Right: 403 with one sentence; health checks stay open; the machine itself may read them.

use crate::support::ProgramUnderAttack;

#[test]
fn metrics_are_refused_through_a_proxy() {
    let program = ProgramUnderAttack::start("metrics", "", "");
    assert_eq!(program.get("/metrics").0, 200, "on the machine itself");
    for header in [
        "X-Forwarded-For: 192.0.2.1",
        "Forwarded: for=192.0.2.1",
        "X-Real-IP: 192.0.2.1",
        "Via: 1.1 proxy",
        "X-Forwarded-For: 127.0.0.1",
        "x-forwarded-for: 192.0.2.1\r\nAuthorization: Bearer throng_no",
    ] {
        let ask = |path: &str| {
            program.http(&format!(
                "GET {path} HTTP/1.1\r\nHost: localhost\r\n{header}\r\nConnection: close\r\n\r\n"
            ))
        };
        let answer = ask("/metrics");
        assert!(answer.starts_with("HTTP/1.1 403 "), "{header}: {answer}");
        assert!(!answer.contains("# TYPE") && answer.contains("metrics_allow"), "{header}: {answer}");
        assert!(ask("/healthz").starts_with("HTTP/1.1 200 "), "{header}");
    }
    for host in ["xmpp.example.org", "xmpp.example.org:5443", "localhost.example.org"] {
        let answer =
            program.http(&format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 403 "), "{host}: {answer}");
    }
    assert_eq!(program.metric("throng_scrapes_refused_total"), 9.0);
}
