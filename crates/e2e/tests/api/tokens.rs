//! Tests of tokens and the audit log over HTTP.

use serde_json::{Value, json};
use throng_api::auth::TokenScope;

use crate::common::{ADMIN, api_request};
use crate::fixture;

#[tokio::test]
async fn a_token_is_created_used_and_removed() {
    let fixture = fixture().await;
    let user = fixture.sign_in().await;
    let new = json!({ "name": "backup", "scopes": ["read"], "expires": 1_767_225_700 });
    let made =
        api_request("POST /api/v1/tokens").signed_in_as(&user).json(new.clone()).send_to(&fixture).await;
    assert_eq!(made.status, 201, "{made:?}");
    let secret = made.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(
        api_request("POST /api/v1/tokens").signed_in_as(&user).json(new).send_to(&fixture).await.problem().0,
        409
    );
    let list = api_request("GET /api/v1/tokens").signed_in_as(&user).send_to(&fixture).await;
    assert_eq!(
        list.json()["items"],
        json!([
            { "name": "backup", "scopes": ["read"], "created": 1_767_225_600, "expires": 1_767_225_700 }
        ])
    );
    assert!(!list.text.contains(&secret));
    assert_eq!(api_request("GET /api/v1/accounts").bearer(&secret).send_to(&fixture).await.status, 200);
    assert_eq!(api_request("GET /api/v1/tokens").bearer(&secret).send_to(&fixture).await.problem().0, 403);
    fixture.engine.advance(100);
    assert_eq!(
        api_request("GET /api/v1/accounts").bearer(&secret).send_to(&fixture).await.problem().0,
        401,
        "it has expired"
    );
    assert_eq!(
        api_request("DELETE /api/v1/tokens/backup").signed_in_as(&user).send_to(&fixture).await.status,
        204
    );
    assert_eq!(
        api_request("DELETE /api/v1/tokens/backup").signed_in_as(&user).send_to(&fixture).await.problem().0,
        404
    );
    for (body, expected) in [
        (json!({ "name": "x", "scopes": [] }), 422),
        (json!({ "name": "x", "scopes": ["all"] }), 400),
        (json!({ "name": "x y", "scopes": ["read"] }), 422),
        (json!({ "name": "x", "scopes": ["read"], "expires": 5 }), 422),
        (json!({ "name": "x", "scopes": "read" }), 400),
    ] {
        assert_eq!(
            api_request("POST /api/v1/tokens")
                .signed_in_as(&user)
                .json(body.clone())
                .send_to(&fixture)
                .await
                .problem()
                .0,
            expected,
            "{body}"
        );
    }
}

#[tokio::test]
async fn the_audit_log_records_caller_action_and_address() {
    let fixture = fixture().await;
    let user = fixture.sign_in().await;
    let secret = fixture.token("provision", &[TokenScope::Accounts, TokenScope::Read]).await;
    let new = json!({ "jid": "juliet@example.com", "password": "s3cr3t" });
    api_request("POST /api/v1/accounts")
        .bearer(&secret)
        .json(new)
        .from("2001:db8::7")
        .send_to(&fixture)
        .await;
    api_request("DELETE /api/v1/accounts/romeo@example.com").signed_in_as(&user).send_to(&fixture).await;
    api_request("POST /api/v1/commands/restart").bearer(&secret).send_to(&fixture).await;
    fixture.try_sign_in(ADMIN, "guess").await;
    fixture.try_sign_in("nobody@example.com", "guess").await;
    let log = api_request("GET /api/v1/audit").bearer(&secret).send_to(&fixture).await.json();
    let lines: Vec<String> = log["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| {
            ["who", "interface", "from", "what", "on", "outcome"]
                .map(|k| e[k].as_str().unwrap().to_owned())
                .join(" | ")
        })
        .collect();
    assert_eq!(
        lines,
        [
            "admin@example.com | http | 192.0.2.7 | sign-in |  | done",
            "token:provision | http | 2001:db8::7 | add-user | juliet@example.com | done",
            "admin@example.com | http | 192.0.2.7 | delete-user | romeo@example.com | item-not-found",
            "token:provision | http | 192.0.2.7 | restart |  | forbidden",
            "admin@example.com | http | 192.0.2.7 | sign-in |  | not-authorized",
        ],
        "unauthenticated clients cannot fill it"
    );
    assert_eq!(log["next"], "test:5");
    let after =
        api_request("GET /api/v1/audit?after=test:3&limit=1").bearer(&secret).send_to(&fixture).await.json();
    assert_eq!((after["items"][0]["number"].as_u64(), after["items"][1].clone()), (Some(4), Value::Null));
    for query in ["after=-1", "after=x", "limit=0"] {
        assert_eq!(
            api_request(&format!("GET /api/v1/audit?{query}"))
                .signed_in_as(&user)
                .send_to(&fixture)
                .await
                .problem()
                .0,
            400
        );
    }
}
