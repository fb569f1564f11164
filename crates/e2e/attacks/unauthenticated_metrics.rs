//! Public access to metrics.
//!
//! Done: `/metrics` is requested through a reverse proxy on the same machine, over HTTP/1.1 with each header that
//! such a proxy adds, and with a public `Host` and no such header, without a token, with invalid tokens and with
//! tokens of other scopes.
//!
//! Rule: no specification; in Prometheus' security model, everybody who reaches metrics can read them, and
//! advisories of Openfire and ejabberd concern pages meant for operators. Numbers of users, failed logins and
//! queues help attackers.
//!
//! Right: 403 with one sentence; health checks stay public; local requests may read metrics.

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
