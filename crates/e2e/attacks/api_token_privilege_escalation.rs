//! API token for accounts that makes its owner an administrator.
//!
//! Done: with an API token of the scopes `accounts`, `sessions` and `read`: set the password of an administrator;
//! create, one by one and in bulk, disable and remove an account that the configuration lists as administrator;
//! then register that name in-band.
//!
//! Rule: `docs/api.md`: no scope except `admin` includes others; RFC 6749, section 3.3, defines scopes the same
//! way. The management APIs of ejabberd and MongooseIM had commands that exceeded the rights of their callers.
//!
//! Right: 403 for each request, no change, and an entry in the audit log; in-band registration answers `conflict`.

use crate::support::ProgramUnderAttack;

#[test]
fn a_token_for_accounts_does_not_reach_an_administrators_account() {
    let program = ProgramUnderAttack::start(
        "token",
        "admins = ['boss@localhost', 'juliet@localhost']\n[modules]\nregistration = { open = true, allow_without_tls = true }\n",
        "",
    );
    let made = program.run_ok(&["token", "add", "hands", "--scope", "accounts,sessions,read"]);
    let token = made.split_whitespace().find(|word| word.starts_with("throng_")).expect("a token").to_owned();
    let ask = |line: &str, kind: &str, body: &str| {
        program.http(&format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    };
    let json = "application/json";
    for (line, body) in [
        ("PUT /api/v1/accounts/juliet@localhost/password", "{\"password\":\"mine now\"}"),
        (
            "POST /api/v1/commands/change-user-password",
            "{\"user\":\"juliet@localhost\",\"password\":\"mine now\"}",
        ),
        ("POST /api/v1/accounts", "{\"jid\":\"boss@localhost\",\"password\":\"mine now\"}"),
        ("POST /api/v1/commands/add-user", "{\"user\":\"boss@localhost\",\"password\":\"mine now\"}"),
        ("POST /api/v1/accounts/juliet@localhost/disable", "{}"),
        ("POST /api/v1/accounts/juliet@localhost/enable", "{}"),
        ("DELETE /api/v1/accounts/juliet@localhost", ""),
        ("POST /api/v1/commands/delete-user", "{\"user\":[\"romeo@localhost\",\"juliet@localhost\"]}"),
        ("POST /api/v1/commands/end-user-session", "{\"user\":\"juliet@localhost/x\"}"),
        ("POST /api/v1/tokens", "{\"name\":\"more\",\"scopes\":[\"admin\"]}"),
        ("POST /api/v1/commands/edit-admin", "{\"admin\":\"romeo@localhost\"}"),
    ] {
        let answer = ask(line, json, body);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{line}: {answer}");
    }
    let lines = "{\"jid\":\"boss@localhost\",\"password\":\"mine now\"}\n{\"jid\":\"nurse@localhost\",\"password\":\"x\"}\n";
    let answer = ask("POST /api/v1/accounts/bulk", "application/x-ndjson", lines);
    assert!(answer.contains("\"condition\":\"forbidden\"") && answer.contains("\"created\":1"), "{answer}");
    let shown = program.run_ok(&["account", "list"]);
    assert!(shown.contains("romeo@localhost") && shown.contains("juliet@localhost"), "{shown}");
    assert!(!shown.contains("boss@localhost"), "{shown}");
    program.wait_for_log("throng::audit: command who=\"token:hands\" interface=\"http\" from=\"127.0.0.1\" command=\"change-user-password\" on=\"juliet@localhost\" outcome=\"forbidden\"");

    let mut attacker = program.connect(program.c2s);
    attacker.send("<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' to='localhost' version='1.0'>");
    attacker.until("</stream:features>");
    attacker.send(
        "<iq type='set' id='r'><query xmlns='jabber:iq:register'><username>Boss</username><password>mine now, really</password></query></iq>",
    );
    let answer = attacker.until("</iq>");
    assert!(answer.contains("<conflict"), "{answer}");
}
