//! Path traversal.
//!
//! Done: requests for system files and for protected pages with `..`, with percent-encoded and doubly encoded dots
//! and slashes, with backslashes, NUL and overlong UTF-8, below each path that the HTTP listener serves.
//!
//! Rule: RFC 3986, section 7.3; such paths opened Openfire's console (CVE-2008-6508, CVE-2023-32315); the file
//! modules of ejabberd and Prosody had similar bugs.
//!
//! Right: such a path does not exist: a 4xx response without any content of other files.

use crate::support::ProgramUnderAttack;

#[test]
fn no_path_escapes_its_folder() {
    let program = ProgramUnderAttack::start("paths", "", "");
    let ups = [
        "../",
        "..%2f",
        "%2e%2e/",
        "%2e%2e%2f",
        "..%252f",
        "%252e%252e/",
        "..\\",
        "..%5c",
        "..;/",
        "%u002e%u002e/",
        "..%c0%af",
        "..%00/",
        "./..//",
    ];
    for folder in ["/", "/console/", "/chat/", "/api/v1/", "/.well-known/", "/metrics/"] {
        for up in ups {
            for target in ["etc/passwd", "throng.toml", "data/throng.sqlite", "api/v1/accounts", "metrics"] {
                let path = format!("{folder}{}{target}", up.repeat(6));
                let (status, answer) = program.get(&path);
                let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                assert!(!body.contains("root:") && !body.contains("domains ="), "{path}: {answer}");
                assert!(!body.contains("SQLite format") && !body.contains("romeo"), "{path}: {answer}");
                assert!(!body.contains("# TYPE"), "{path}: {answer}");
                assert!((300..500).contains(&status), "{path}: {answer}");
            }
        }
    }
    assert_eq!(program.get("/healthz").0, 200);
}
