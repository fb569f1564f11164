//! Cross-site request forgery against the console.
//!
//! Done: an administrator is signed in; requests with the cookie arrive from another site: without the CSRF token,
//! with a wrong one, with that of another session, with simple content types, as GET that changes something, with a
//! method override; then the cookie is used after signing out.
//!
//! Rule: OWASP on cross-site request forgery; CVE-2015-6973 (Openfire), ejabberd's web admin before release 26.07.
//!
//! Right: nothing changes without the token of the same session, the cookie is `HttpOnly` and `SameSite=Strict`,
//! and it is invalid after the session.

use crate::support::{PROGRAM_PASSWORD, ProgramUnderAttack};

struct SignedIn {
    cookie: String,
    token: String,
}

fn request(program: &ProgramUnderAttack, line: &str, headers: &str, body: &str) -> String {
    program.http(&format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    ))
}

fn sign_in(program: &ProgramUnderAttack) -> SignedIn {
    let body = format!("{{\"jid\":\"romeo@localhost\",\"password\":\"{PROGRAM_PASSWORD}\"}}");
    let answer = request(program, "POST /api/v1/session", "Content-Type: application/json\r\n", &body);
    let cookie = answer.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("set-cookie").then(|| value.to_owned())
    });
    let cookie = cookie.unwrap_or_else(|| panic!("no cookie: {answer}"));
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let token = answer.split("\"csrf\":\"").nth(1).and_then(|rest| rest.split('"').next());
    SignedIn {
        cookie: cookie.split(';').next().unwrap().to_owned(),
        token: token.unwrap_or_else(|| panic!("no token: {answer}")).to_owned(),
    }
}

#[test]
fn a_cross_site_request_changes_nothing() {
    let program = ProgramUnderAttack::start("csrf", "admins = ['romeo@localhost']\n", "");
    let (one, other) = (sign_in(&program), sign_in(&program));
    let create = "{\"jid\":\"evil@localhost\",\"password\":\"C4lliope+co\"}";
    let json = "Content-Type: application/json\r\n";
    let cookie = format!("Cookie: {}\r\n", one.cookie);
    let wrong = format!("X-CSRF-Token: {}\r\n", "A".repeat(one.token.len()));
    let of_other = format!("X-CSRF-Token: {}\r\n", other.token);
    let right = format!("X-CSRF-Token: {}\r\n", one.token);
    let foreign = "Origin: https://evil.example\r\n";
    for (line, headers) in [
        ("POST /api/v1/accounts", format!("{cookie}{json}")),
        ("POST /api/v1/accounts", format!("{cookie}{json}{wrong}")),
        ("POST /api/v1/accounts", format!("{cookie}{json}{of_other}")),
        ("POST /api/v1/accounts", format!("{cookie}{json}X-CSRF-Token: \r\n")),
        ("POST /api/v1/accounts", format!("{cookie}{json}{right}{foreign}")),
        ("POST /api/v1/accounts", format!("{cookie}{json}{right}Sec-Fetch-Site: cross-site\r\n")),
        ("POST /api/v1/accounts", format!("{cookie}{json}{right}Sec-Fetch-Site: same-site\r\n")),
        ("POST /api/v1/accounts", format!("{cookie}{json}{right}Origin: null\r\n")),
        ("POST /api/v1/accounts", format!("{cookie}{right}Content-Type: text/plain\r\n")),
        (
            "POST /api/v1/accounts",
            format!("{cookie}{right}Content-Type: application/x-www-form-urlencoded\r\n"),
        ),
        ("GET /api/v1/accounts/evil@localhost", format!("{cookie}{json}X-HTTP-Method-Override: POST\r\n")),
        ("POST /api/v1/accounts?_csrf=1", format!("{cookie}{json}")),
        ("POST /api/v1/commands/add-user", format!("{cookie}{json}")),
        ("POST /api/v1/accounts/bulk", format!("{cookie}Content-Type: application/x-ndjson\r\n")),
        ("POST /api/v1/reload", format!("{cookie}{foreign}")),
        ("DELETE /api/v1/accounts/juliet@localhost", cookie.clone()),
        ("PUT /api/v1/accounts/juliet@localhost/password", format!("{cookie}{json}")),
    ] {
        let answer = request(&program, line, &headers, create);
        assert!(answer.starts_with("HTTP/1.1 4"), "{line} {headers}: {answer}");
    }
    let all = request(&program, "GET /api/v1/accounts", &cookie, "");
    assert!(all.starts_with("HTTP/1.1 200") && !all.contains("evil@") && all.contains("juliet@"), "{all}");
    // The page itself can use it until it signs out.
    let good = request(
        &program,
        "POST /api/v1/accounts",
        &format!("{cookie}{json}{right}Origin: http://localhost\r\n"),
        create,
    );
    assert!(good.starts_with("HTTP/1.1 20"), "{good}");
    let out = request(&program, "DELETE /api/v1/session", &format!("{cookie}{right}"), "");
    assert!(out.starts_with("HTTP/1.1 2"), "{out}");
    let after = request(&program, "GET /api/v1/accounts", &cookie, "");
    assert!(after.starts_with("HTTP/1.1 401"), "{after}");
    let still = request(&program, "GET /api/v1/accounts", &format!("Cookie: {}\r\n", other.cookie), "");
    assert!(still.starts_with("HTTP/1.1 200"), "{still}");
}
