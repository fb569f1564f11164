//! SQL injection and wildcards.
//!
//! Done: quotes, comments, wildcards, NUL and line ends in searches, resources, roster names and groups, private
//! values, page markers and API parameters, against the real database; then the stored values are read back.
//!
//! Rule: CWE-89; ejabberd's pubsub inserted page markers into SQL (release 26.07); connectors of Openfire and
//! Tigase had similar bugs.
//!
//! Right: values are returned unchanged, a wildcard matches only itself, and no account is lost.

use crate::support::ProgramUnderAttack;

const VALUES: [&str; 12] = [
    "'; DROP TABLE accounts; --",
    "' OR '1'='1",
    "\" OR \"\"=\"",
    "%",
    "_____",
    "*",
    "romeo' UNION SELECT 1,2,3 --",
    "\\",
    "x'); DELETE FROM roster; --",
    "?1 :a @b $1",
    "[a-z]",
    "/**/",
];

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&apos;").replace('"', "&quot;")
}

#[test]
fn values_are_never_read_as_sql_or_patterns() {
    let program = ProgramUnderAttack::start("queries", "admins = ['romeo@localhost']\n", "");
    let mut romeo = program.login("romeo", "x");
    let mut ask = |id: &str, request: String| {
        romeo.send(request.replace("ID", id));
        let mut all = String::new();
        // A push may precede the response.
        while !all.contains(&format!("id='{id}'")) || !all.ends_with('>') {
            all += &romeo.until(">");
        }
        all
    };
    for (n, value) in VALUES.iter().enumerate() {
        let text = escape(value);
        let search = format!(
            "<iq type='set' id='ID' to='localhost'><query xmlns='jabber:iq:search'><first>{text}</first><nick>{text}</nick></query></iq>"
        );
        let found = ask(&format!("s{n}"), search);
        assert!(!found.contains("<item"), "{value}: {found}");
        let set = format!(
            "<iq type='set' id='ID'><query xmlns='jabber:iq:roster'><item jid='u{n}@other.test' name='{text}'><group>{text}</group></item></query></iq>"
        );
        ask(&format!("r{n}"), set);
        let set = format!(
            "<iq type='set' id='ID'><query xmlns='jabber:iq:private'><a xmlns='urn:x:{n}'>{text}</a></query></iq>"
        );
        ask(&format!("p{n}"), set);
    }
    romeo.send("<iq type='get' id='all'><query xmlns='jabber:iq:roster'/></iq>");
    let roster = romeo.until("</query></iq>");
    assert_eq!(roster.matches("<group>").count(), VALUES.len(), "{roster}");
    for (n, value) in VALUES.iter().enumerate() {
        romeo.send(format!(
            "<iq type='get' id='g{n}'><query xmlns='jabber:iq:private'><a xmlns='urn:x:{n}'/></query></iq>"
        ));
        let kept = romeo.until("</query></iq>");
        let read =
            kept.replace("&apos;", "'").replace("&quot;", "\"").replace("&#39;", "'").replace("&#34;", "\"");
        assert!(read.contains(&format!(">{value}</a>")), "{value}: {kept}");
    }
    // Parameters of the API, encoded as required.
    let token = program.run_ok(&["token", "add", "reader", "--scope", "read"]);
    let token = token.split_whitespace().find(|word| word.starts_with("throng_")).expect("a token");
    let get = |path: &str| {
        program.http(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"))
    };
    for value in VALUES {
        let encoded: String = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for path in [
            format!("/api/v1/accounts?search={encoded}"),
            format!("/api/v1/accounts?after={encoded}"),
            format!("/api/v1/accounts?domain={encoded}"),
            format!("/api/v1/accounts?order={encoded}"),
            format!("/api/v1/accounts/{encoded}"),
            format!("/api/v1/accounts/romeo@localhost/roster?after={encoded}"),
            format!("/api/v1/sessions?after={encoded}"),
            format!("/api/v1/audit?after={encoded}"),
        ] {
            let answer = get(&path);
            let fine = answer.starts_with("HTTP/1.1 2") || answer.starts_with("HTTP/1.1 4");
            assert!(fine, "{path}: {answer}");
            assert!(
                !path.contains("search=") || !answer.contains("romeo@") && !answer.contains("juliet@"),
                "{path}: {answer}"
            );
        }
    }
    let all = get("/api/v1/accounts");
    assert!(all.contains("romeo@localhost") && all.contains("juliet@localhost"), "{all}");
    drop(program.login("juliet", "x"));
}
