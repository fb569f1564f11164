//! Tests of commands over HTTP.

use serde_json::{Value, json};
use throng_api::auth::TokenScope;

use crate::common::{ADMIN, api_request};
use crate::fixture;

#[tokio::test]
async fn commands_are_described_and_used() {
    let fixture = fixture().await;
    let user = fixture.sign_in().await;
    let list = api_request("GET /api/v1/commands").signed_in_as(&user).send_to(&fixture).await.json();
    let names: Vec<&str> =
        list["items"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    for name in ["add-user", "announce", "set-motd", "get-online-users-list", "restart"] {
        assert!(names.contains(&name), "{name} is not in {names:?}");
    }
    let one = api_request("GET /api/v1/commands/change-password-policy")
        .signed_in_as(&user)
        .send_to(&fixture)
        .await
        .json();
    assert_eq!(
        (&one["scope"], &one["module"], &one["changes"]),
        (&json!("node"), &json!("administration"), &json!(true))
    );
    assert_eq!(one["present"]["length"], json!(["8"]));
    // A form with nothing to edit is a valid answer too.
    let motd = api_request("GET /api/v1/commands/edit-motd").signed_in_as(&user).send_to(&fixture).await;
    assert_eq!((motd.status.as_u16(), &motd.json()["present"]), (200, &json!({ "text": [] })));
    let length = &one["input"][0];
    assert_eq!(
        (&length["type"], &length["minimum"], &length["maximum"]),
        (&json!("int"), &json!(1), &json!(256))
    );

    let run = async |name: &str, body: Value| {
        api_request(&format!("POST /api/v1/commands/{name}"))
            .signed_in_as(&user)
            .json(body)
            .send_to(&fixture)
            .await
    };
    let policy = json!({ "length": 12, "different": "5", "no-name": true });
    let done = run("change-password-policy", policy).await;
    assert_eq!((done.status.as_u16(), done.json()["note"].as_str().is_some()), (200, true));
    let now = run("get-password-policy", json!({})).await.json();
    assert_eq!(now, json!({ "length": 12, "different": 5, "no-name": true }));
    let users = json!({ "user": ["admin@example.com", "nobody@example.com"] });
    assert_eq!(run("get-user-roster", users).await.problem(), (404, "item-not-found".to_owned()));
    // An empty body is equivalent to no fields.
    let online =
        api_request("POST /api/v1/commands/get-online-users-num").signed_in_as(&user).send_to(&fixture).await;
    assert_eq!(online.json(), json!({ "number": 0 }));
}

#[tokio::test]
async fn errors_name_the_condition_and_hide_secrets() {
    let fixture = fixture().await;
    let user = fixture.sign_in().await;
    let secret = "s3cr3t-".repeat(600);
    for (name, body, expected) in [
        ("add-user", json!({ "user": "a@example.com" }), (400, "bad-request")),
        ("add-user", json!({ "user": "a@example.com", "password": secret }), (400, "bad-request")),
        (
            "add-user",
            json!({ "user": "a@example.com", "password": "s3cr3t", "password-verify": "other" }),
            (422, "not-acceptable"),
        ),
        ("add-user", json!({ "usr": "a@example.com" }), (400, "bad-request")),
        ("add-user", json!([]), (400, "bad-request")),
        ("add-user", json!({ "user": { "a": 1 } }), (400, "bad-request")),
        ("add-user", json!({ "user": ["a@example.com", ["b"]] }), (400, "bad-request")),
        ("delete-user", json!({ "user": "nobody@example.com" }), (404, "item-not-found")),
        ("no-such-command", json!({}), (404, "item-not-found")),
        ("restart", json!({ "delay": 0 }), (400, "bad-request")),
    ] {
        let answer = api_request(&format!("POST /api/v1/commands/{name}"))
            .signed_in_as(&user)
            .json(body.clone())
            .send_to(&fixture)
            .await;
        assert_eq!(answer.problem(), (expected.0, expected.1.to_owned()), "{name} {body:.80}");
        assert!(!answer.text.contains("s3cr3t"), "{}", answer.text);
    }
    let line = "POST /api/v1/commands/add-user?domain=elsewhere.example";
    assert_eq!(
        api_request(line).signed_in_as(&user).json(json!({})).send_to(&fixture).await.problem().0,
        404
    );
    let garbage = api_request("POST /api/v1/commands/add-user")
        .signed_in_as(&user)
        .text("application/json", vec![0xff; 10]);
    assert_eq!(garbage.send_to(&fixture).await.problem().0, 400);
}

#[tokio::test]
async fn no_command_changes_an_administrators_account_without_the_scope_admin() {
    let fixture = fixture().await;
    // Configured as administrator but not in force; a change of the file would restore it.
    let named = jid::Jid::parse("former@example.com").unwrap();
    fixture.engine.node.set_configured_admins([jid::Jid::parse(ADMIN).unwrap(), named]);
    let list = api_request("GET /api/v1/commands")
        .signed_in_as(&fixture.sign_in().await)
        .send_to(&fixture)
        .await
        .json();
    let mut tried = 0;
    for command in list["items"].as_array().unwrap() {
        let (name, scope) = (command["name"].as_str().unwrap(), command["scope"].as_str().unwrap());
        let fields = command["input"].as_array().unwrap();
        let about = fields.iter().find(|f| matches!(f["type"].as_str(), Some("jid" | "jids")));
        // Rooms and PubSub nodes have addresses, too, and no account is changed with them.
        let is_about_account = command["changes"] == true
            && scope != "admin"
            && !name.contains("-room")
            && !name.contains("-pubsub-");
        let (Some(about), true) = (about, is_about_account) else { continue };
        tried += 1;
        let scopes: Vec<TokenScope> =
            TokenScope::ALL.into_iter().filter(|scope| *scope != TokenScope::Admin).collect();
        let secret = fixture.token(&format!("all-but-admin-{name}"), &scopes).await;
        for target in [ADMIN, "Admin@EXAMPLE.com", "admin@example.com/console", "former@example.com"] {
            let mut body = json!({});
            body[about["name"].as_str().unwrap()] = json!(target);
            for field in fields.iter().filter(|f| f["type"] == "secret") {
                body[field["name"].as_str().unwrap()] = json!("mine now");
            }
            let line = format!("POST /api/v1/commands/{name}");
            let answer = api_request(&line).bearer(&secret).json(body).send_to(&fixture).await;
            assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{name} {target}");
            assert!(answer.text.contains("scope \\\"admin\\\""), "{}", answer.text);
        }
        let (log, _) = throng_commands::audit::audit_log(&fixture.engine.node).newest(1);
        assert_eq!((log[0].action.as_str(), log[0].outcome.as_str()), (name, "forbidden"));
    }
    assert!(tried >= 6, "{tried}");
}

#[tokio::test]
async fn a_token_for_accounts_does_not_become_an_administrator() {
    let fixture = fixture().await;
    let former = jid::Jid::parse("former@example.com").unwrap();
    fixture.engine.node.set_configured_admins([former]);
    let accounts =
        fixture.token("accounts", &[TokenScope::Accounts, TokenScope::Sessions, TokenScope::Read]).await;
    let path = format!("/api/v1/accounts/{ADMIN}");
    for (line, body) in [
        (format!("PUT {path}/password"), json!({ "password": "mine now" })),
        (format!("DELETE {path}"), json!({})),
        (format!("POST {path}/disable"), json!({})),
        (format!("POST {path}/enable"), json!({})),
        (format!("DELETE /api/v1/sessions/{ADMIN}%2Fx"), json!({})),
        ("POST /api/v1/accounts".to_owned(), json!({ "jid": "former@example.com", "password": "mine now" })),
    ] {
        let answer = api_request(&line).bearer(&accounts).json(body).send_to(&fixture).await;
        assert_eq!(answer.problem(), (403, "forbidden".to_owned()), "{line}");
    }
    let bulk = "{\"jid\":\"former@example.com\",\"password\":\"mine now\"}\n{\"jid\":\"romeo@example.com\",\"password\":\"x\"}\n";
    let answer =
        api_request("POST /api/v1/accounts/bulk").bearer(&accounts).text("application/x-ndjson", bulk);
    let text = answer.send_to(&fixture).await.text;
    assert!(text.contains("\"condition\":\"forbidden\"") && text.contains("\"created\":1"), "{text}");
    assert_eq!(fixture.try_sign_in(ADMIN, "mine now").await.status, 401);
    let admin = fixture.token("admin", &[TokenScope::Admin]).await;
    let done =
        api_request(&format!("PUT {path}/password")).bearer(&admin).json(json!({ "password": "a new one" }));
    assert_eq!(done.send_to(&fixture).await.status, 204);
    let new = json!({ "jid": "former@example.com", "password": "a new one" });
    assert_eq!(
        api_request("POST /api/v1/accounts").bearer(&admin).json(new).send_to(&fixture).await.status,
        201
    );
}

#[tokio::test]
async fn each_command_requires_its_scope_of_a_token() {
    let fixture = fixture().await;
    let list = api_request("GET /api/v1/commands")
        .signed_in_as(&fixture.sign_in().await)
        .send_to(&fixture)
        .await
        .json();
    let mut secrets = Vec::new();
    for scope in TokenScope::ALL {
        secrets.push((scope, fixture.token(scope.as_str(), &[scope]).await));
    }
    for command in list["items"].as_array().unwrap() {
        let name = command["name"].as_str().unwrap();
        let needs = command["scope"].as_str().unwrap();
        assert_eq!(needs == "read", command["changes"] == false, "{name}");
        for (scope, secret) in &secrets {
            let line = format!("POST /api/v1/commands/{name}");
            // An unknown field: with permission the field check rejects it, so nothing is executed.
            let answer = api_request(&line)
                .bearer(secret)
                .json(json!({ "no such field": "x" }))
                .send_to(&fixture)
                .await;
            let may = *scope == TokenScope::Admin || scope.as_str() == needs;
            assert_eq!(answer.status.as_u16(), if may { 400 } else { 403 }, "{name} with {scope:?}");
        }
    }
}
