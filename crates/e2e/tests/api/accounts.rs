//! Tests of accounts over HTTP.

use serde_json::{Value, json};
use throng_api::auth::TokenScope;

use crate::common::{ADMIN, api_request};
use crate::fixture;

fn jids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|i| i["jid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_account_is_created_changed_and_removed() {
    let fixture = fixture().await;
    let user = fixture.sign_in().await;
    let new = json!({ "jid": "Juliet@example.com", "password": "b4lcony", "given_name": "Juliet", "surname": "Capulet" });
    let made =
        api_request("POST /api/v1/accounts").signed_in_as(&user).json(new.clone()).send_to(&fixture).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.header("location"), "/api/v1/accounts/juliet@example.com");
    assert_eq!(made.json()["jid"], "juliet@example.com");
    let again = api_request("POST /api/v1/accounts").signed_in_as(&user).json(new).send_to(&fixture).await;
    assert_eq!(again.problem(), (409, "conflict".to_owned()));

    let path = "/api/v1/accounts/juliet@example.com";
    let juliet = api_request(&format!("GET {path}")).signed_in_as(&user).send_to(&fixture).await.json();
    assert_eq!(juliet["created"], 1_767_225_600);
    assert_eq!(
        (&juliet["disabled"], &juliet["contacts"], &juliet["last_seen"]),
        (&json!(false), &json!(0), &Value::Null)
    );
    for (verb, shut) in [("disable", true), ("enable", false)] {
        let done = api_request(&format!("POST {path}/{verb}")).signed_in_as(&user).send_to(&fixture).await;
        assert_eq!((done.status.as_u16(), done.text.as_str()), (204, ""));
        assert_eq!(
            api_request(&format!("GET {path}")).signed_in_as(&user).send_to(&fixture).await.json()["disabled"],
            shut
        );
    }
    let changed = api_request(&format!("PUT {path}/password"))
        .signed_in_as(&user)
        .json(json!({ "password": "0rchard!" }));
    assert_eq!(changed.send_to(&fixture).await.status, 204);
    let jid = jid::Jid::parse("juliet@example.com").unwrap();
    let login = fixture.engine.stores.logins.secrets(jid.as_ref()).await.unwrap().unwrap();
    assert_eq!(login.credentials, b"0rchard!", "the test's keys are the password");
    assert_eq!(
        api_request(&format!("DELETE {path}")).signed_in_as(&user).send_to(&fixture).await.status,
        204
    );
    for line in [
        format!("GET {path}"),
        format!("DELETE {path}"),
        format!("POST {path}/disable"),
        format!("GET {path}/sessions"),
    ] {
        assert_eq!(
            api_request(&line).signed_in_as(&user).send_to(&fixture).await.problem(),
            (404, "item-not-found".to_owned()),
            "{line}"
        );
    }
    let (log, _) = throng_commands::audit::audit_log(&fixture.engine.node).newest(20);
    let log: Vec<_> = log
        .iter()
        .map(|e| format!("{} {} {} {} {}", e.actor, e.interface, e.action, e.subject, e.outcome))
        .collect();
    for line in [
        "admin@example.com http add-user juliet@example.com done",
        "admin@example.com http add-user juliet@example.com conflict",
        "admin@example.com http change-user-password juliet@example.com done",
        "admin@example.com http delete-user juliet@example.com item-not-found",
    ] {
        assert!(log.iter().any(|l| l == line), "{line} is not in {log:#?}");
    }
    assert!(
        !format!("{:?}", throng_commands::audit::audit_log(&fixture.engine.node).newest(20))
            .contains("0rchard")
    );
}

#[tokio::test]
async fn pages_go_through_all_accounts_in_either_order() {
    let fixture = fixture().await;
    for n in 0..25 {
        // Created in reverse alphabetical order.
        fixture.account(&format!("{}{n}@example.com", char::from(b'z' - n)), "x").await;
    }
    let secret = fixture.token("reader", &[TokenScope::Read]).await;
    for order in ["name", "created"] {
        let (mut all, mut after) = (Vec::new(), String::new());
        for pages in 0.. {
            let line = format!("GET /api/v1/accounts?order={order}&limit=10{after}");
            let page = api_request(&line).bearer(&secret).send_to(&fixture).await.json();
            assert_eq!(page.get("total").is_some(), pages == 0, "counting is for the first page");
            all.extend(jids(&page));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={}", next.replace(' ', "%20")),
                None => break,
            }
        }
        assert_eq!(all.len(), 26);
        match order {
            "name" => assert!(all.is_sorted()),
            _ => assert_eq!((all[0].as_str(), all[1].as_str()), (ADMIN, "z0@example.com")),
        }
    }
    // No account is repeated if one is removed in between.
    let first = api_request("GET /api/v1/accounts?limit=3").bearer(&secret).send_to(&fixture).await.json();
    let gone = jid::Jid::parse(&jids(&first)[2]).unwrap();
    fixture.engine.stores.accounts.remove(gone.as_ref()).await.unwrap();
    let next = first["next"].as_str().unwrap().replace(' ', "%20");
    let second = api_request(&format!("GET /api/v1/accounts?limit=3&after={next}"))
        .bearer(&secret)
        .send_to(&fixture)
        .await
        .json();
    assert!(jids(&first).iter().all(|jid| !jids(&second).contains(jid)));
    assert_eq!(jids(&second).len(), 3);
}

#[tokio::test]
async fn a_search_matches_prefixes_and_complete_addresses() {
    let fixture = fixture().await;
    let user = fixture.sign_in().await;
    for (jid, name) in [
        ("romeo@example.com", "Romeo Montague"),
        ("juliet@example.com", "Juliet"),
        ("romeo@example.net", "Other"),
    ] {
        let new = json!({ "jid": jid, "password": "secret", "given_name": name });
        assert_eq!(
            api_request("POST /api/v1/accounts").signed_in_as(&user).json(new).send_to(&fixture).await.status,
            201
        );
    }
    for (query, expected) in [
        ("search=rom", vec!["romeo@example.com"]),
        ("search=ROMEO%20MON", vec!["romeo@example.com"]),
        ("search=romeo@example.net", vec!["romeo@example.net"]),
        ("search=rom&domain=example.net", vec!["romeo@example.net"]),
        ("search=jul", vec!["juliet@example.com"]),
        ("search=%25", vec![]),
        ("search=nobody", vec![]),
        ("domain=example.org", vec![]),
    ] {
        let page = api_request(&format!("GET /api/v1/accounts?{query}"))
            .signed_in_as(&user)
            .send_to(&fixture)
            .await
            .json();
        assert_eq!(jids(&page), expected, "{query}");
    }
}

#[tokio::test]
async fn malformed_input_is_a_bad_request() {
    let fixture = fixture().await;
    let user = fixture.sign_in().await;
    for (query, expected) in [
        ("limit=0", 400),
        ("limit=501", 400),
        ("limit=x", 400),
        ("limit=-1", 400),
        ("limit=5&limit=6", 400),
        ("order=age", 400),
        ("after=nonsense", 400),
        ("order=created&after=x", 400),
        ("domain=elsewhere.example", 404),
        ("domain=%00", 404),
    ] {
        let answer =
            api_request(&format!("GET /api/v1/accounts?{query}")).signed_in_as(&user).send_to(&fixture).await;
        assert_eq!(answer.problem().0, expected, "{query}");
    }
    for (line, expected) in [
        ("GET /api/v1/accounts/example.com", 400),
        ("GET /api/v1/accounts/a@example.com%2Fx", 400),
        ("GET /api/v1/accounts/%ff@example.com", 400),
        ("GET /api/v1/accounts/a@b@c", 400),
        ("GET /api/v1/accounts/nobody@example.com", 404),
        ("GET /api/v1/accounts/nobody@elsewhere.example", 404),
        ("POST /api/v1/accounts/nobody@elsewhere.example/disable", 404),
        ("GET /api/v1/accounts/a@example.com/x", 404),
        ("GET /api/v1/nothing", 404),
        ("GET /api/v1/", 404),
        ("GET /api/v1", 404),
        ("PATCH /api/v1/accounts", 405),
    ] {
        assert_eq!(
            api_request(line).signed_in_as(&user).send_to(&fixture).await.problem().0,
            expected,
            "{line}"
        );
    }
    for body in [
        json!({}),
        json!([]),
        json!({ "jid": "x", "password": "y" }),
        json!({ "jid": "a@example.com", "password": 7 }),
    ] {
        let answer = api_request("POST /api/v1/accounts")
            .signed_in_as(&user)
            .json(body.clone())
            .send_to(&fixture)
            .await;
        assert_eq!(answer.problem().0, 400, "{body}");
    }
    let empty = json!({ "jid": "a@example.com", "password": "" });
    assert_eq!(
        api_request("POST /api/v1/accounts")
            .signed_in_as(&user)
            .json(empty)
            .send_to(&fixture)
            .await
            .problem()
            .0,
        400
    );
    let elsewhere = json!({ "jid": "a@elsewhere.example", "password": "secret" });
    assert_eq!(
        api_request("POST /api/v1/accounts")
            .signed_in_as(&user)
            .json(elsewhere)
            .send_to(&fixture)
            .await
            .problem()
            .0,
        404
    );
}

#[tokio::test]
async fn a_token_is_limited_to_its_scopes() {
    let fixture = fixture().await;
    let reader = fixture.token("reader", &[TokenScope::Read]).await;
    let account_admin = fixture.token("accounts", &[TokenScope::Accounts]).await;
    let admin = fixture.token("admin", &[TokenScope::Admin]).await;
    let status = async |line: &str, secret: &str| {
        api_request(line).bearer(secret).send_to(&fixture).await.status.as_u16()
    };
    let get = format!("GET /api/v1/accounts/{ADMIN}");
    assert_eq!(
        [status(&get, &reader).await, status(&get, &account_admin).await, status(&get, &admin).await],
        [200, 403, 200]
    );
    fixture.account("juliet@example.com", "x").await;
    let shut = "POST /api/v1/accounts/juliet@example.com/disable";
    assert_eq!(
        [status(shut, &reader).await, status(shut, &account_admin).await, status(shut, &admin).await],
        [403, 204, 204]
    );
    let denied = api_request(shut).bearer(&reader).send_to(&fixture).await;
    assert_eq!(denied.problem(), (403, "forbidden".to_owned()));
    assert!(denied.text.contains("\\\"accounts\\\""), "{}", denied.text);
    for line in [&get, shut, "GET /api/v1/accounts", "GET /api/v1/sessions", "GET /api/v1/commands"] {
        assert_eq!(
            api_request(line).send_to(&fixture).await.problem(),
            (401, "not-authorized".to_owned()),
            "{line}"
        );
    }
    let (log, _) = throng_commands::audit::audit_log(&fixture.engine.node).newest(1);
    assert_eq!((log[0].actor.as_str(), log[0].action.as_str()), ("token:admin", "disable-user"));
}

#[tokio::test]
async fn administrators_cannot_lock_themselves_out_and_a_new_password_ends_sessions() {
    let fixture = fixture().await;
    let user = fixture.sign_in().await;
    for line in [format!("DELETE /api/v1/accounts/{ADMIN}"), format!("POST /api/v1/accounts/{ADMIN}/disable")]
    {
        assert_eq!(
            api_request(&line).signed_in_as(&user).send_to(&fixture).await.problem(),
            (403, "not-allowed".to_owned())
        );
    }
    let line = format!("PUT /api/v1/accounts/{ADMIN}/password");
    let done = api_request(&line)
        .signed_in_as(&user)
        .json(json!({ "password": "another one" }))
        .send_to(&fixture)
        .await;
    assert_eq!(done.status, 204);
    assert_eq!(api_request("GET /api/v1/session").signed_in_as(&user).send_to(&fixture).await.status, 401);
    assert_eq!(fixture.try_sign_in(ADMIN, "another one").await.status, 201);
}
