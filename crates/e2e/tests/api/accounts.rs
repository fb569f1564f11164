//! Accounts over HTTP.

use crate::common::{ADMIN, ask};
use crate::world;
use serde_json::{Value, json};
use throng_api::auth::Scope;

fn jids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|i| i["jid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_account_lives_and_dies() {
    let world = world().await;
    let who = world.sign_in().await;
    let new = json!({ "jid": "Juliet@example.com", "password": "b4lcony", "given_name": "Juliet", "surname": "Capulet" });
    let made = ask("POST /api/v1/accounts").by(&who).json(new.clone()).to(&world).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.header("location"), "/api/v1/accounts/juliet@example.com");
    assert_eq!(made.json()["jid"], "juliet@example.com");
    let again = ask("POST /api/v1/accounts").by(&who).json(new).to(&world).await;
    assert_eq!(again.problem(), (409, "conflict".to_owned()));

    let path = "/api/v1/accounts/juliet@example.com";
    let juliet = ask(&format!("GET {path}")).by(&who).to(&world).await.json();
    assert_eq!(juliet["created"], 1_767_225_600);
    assert_eq!(
        (&juliet["disabled"], &juliet["contacts"], &juliet["last_seen"]),
        (&json!(false), &json!(0), &Value::Null)
    );
    for (verb, shut) in [("disable", true), ("enable", false)] {
        let done = ask(&format!("POST {path}/{verb}")).by(&who).to(&world).await;
        assert_eq!((done.status.as_u16(), done.text.as_str()), (204, ""));
        assert_eq!(ask(&format!("GET {path}")).by(&who).to(&world).await.json()["disabled"], shut);
    }
    let changed = ask(&format!("PUT {path}/password")).by(&who).json(json!({ "password": "0rchard!" }));
    assert_eq!(changed.to(&world).await.status, 204);
    let jid = jid::Jid::parse("juliet@example.com").unwrap();
    let login = world.engine.stores.logins.secrets(jid.as_ref()).await.unwrap().unwrap();
    assert_eq!(login.credentials, b"0rchard!", "the test's keys are the password");
    assert_eq!(ask(&format!("DELETE {path}")).by(&who).to(&world).await.status, 204);
    for line in [
        format!("GET {path}"),
        format!("DELETE {path}"),
        format!("POST {path}/disable"),
        format!("GET {path}/sessions"),
    ] {
        assert_eq!(
            ask(&line).by(&who).to(&world).await.problem(),
            (404, "item-not-found".to_owned()),
            "{line}"
        );
    }
    let (log, _) = world.engine.node.audit.newest(20);
    let log: Vec<_> =
        log.iter().map(|e| format!("{} {} {} {} {}", e.who, e.interface, e.what, e.on, e.outcome)).collect();
    for line in [
        "admin@example.com http add-user juliet@example.com done",
        "admin@example.com http add-user juliet@example.com conflict",
        "admin@example.com http change-user-password juliet@example.com done",
        "admin@example.com http delete-user juliet@example.com item-not-found",
    ] {
        assert!(log.iter().any(|l| l == line), "{line} is not in {log:#?}");
    }
    assert!(!format!("{:?}", world.engine.node.audit.newest(20)).contains("0rchard"));
}

#[tokio::test]
async fn pages_go_through_all_accounts_in_either_order() {
    let world = world().await;
    for n in 0..25 {
        // Created from z to a.
        world.account(&format!("{}{n}@example.com", char::from(b'z' - n)), "x").await;
    }
    let secret = world.token("reader", &[Scope::Read]).await;
    for order in ["name", "created"] {
        let (mut all, mut after) = (Vec::new(), String::new());
        for pages in 0.. {
            let line = format!("GET /api/v1/accounts?order={order}&limit=10{after}");
            let page = ask(&line).bearer(&secret).to(&world).await.json();
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
    // None is repeated when one goes in between.
    let first = ask("GET /api/v1/accounts?limit=3").bearer(&secret).to(&world).await.json();
    let gone = jid::Jid::parse(&jids(&first)[2]).unwrap();
    world.engine.stores.accounts.remove(gone.as_ref()).await.unwrap();
    let next = first["next"].as_str().unwrap().replace(' ', "%20");
    let second =
        ask(&format!("GET /api/v1/accounts?limit=3&after={next}")).bearer(&secret).to(&world).await.json();
    assert!(jids(&first).iter().all(|jid| !jids(&second).contains(jid)));
    assert_eq!(jids(&second).len(), 3);
}

#[tokio::test]
async fn a_search_finds_beginnings_and_whole_addresses() {
    let world = world().await;
    let who = world.sign_in().await;
    for (jid, name) in [
        ("romeo@example.com", "Romeo Montague"),
        ("juliet@example.com", "Juliet"),
        ("romeo@example.net", "Other"),
    ] {
        let new = json!({ "jid": jid, "password": "secret", "given_name": name });
        assert_eq!(ask("POST /api/v1/accounts").by(&who).json(new).to(&world).await.status, 201);
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
        let page = ask(&format!("GET /api/v1/accounts?{query}")).by(&who).to(&world).await.json();
        assert_eq!(jids(&page), expected, "{query}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_a_bad_request() {
    let world = world().await;
    let who = world.sign_in().await;
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
        let answer = ask(&format!("GET /api/v1/accounts?{query}")).by(&who).to(&world).await;
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
        assert_eq!(ask(line).by(&who).to(&world).await.problem().0, expected, "{line}");
    }
    for body in [
        json!({}),
        json!([]),
        json!({ "jid": "x", "password": "y" }),
        json!({ "jid": "a@example.com", "password": 7 }),
    ] {
        let answer = ask("POST /api/v1/accounts").by(&who).json(body.clone()).to(&world).await;
        assert_eq!(answer.problem().0, 400, "{body}");
    }
    let empty = json!({ "jid": "a@example.com", "password": "" });
    assert_eq!(ask("POST /api/v1/accounts").by(&who).json(empty).to(&world).await.problem().0, 400);
    let elsewhere = json!({ "jid": "a@elsewhere.example", "password": "secret" });
    assert_eq!(ask("POST /api/v1/accounts").by(&who).json(elsewhere).to(&world).await.problem().0, 404);
}

#[tokio::test]
async fn a_token_may_what_its_scopes_say() {
    let world = world().await;
    let reader = world.token("reader", &[Scope::Read]).await;
    let accounts = world.token("accounts", &[Scope::Accounts]).await;
    let admin = world.token("admin", &[Scope::Admin]).await;
    let status = async |line: &str, secret: &str| ask(line).bearer(secret).to(&world).await.status.as_u16();
    let get = format!("GET /api/v1/accounts/{ADMIN}");
    assert_eq!(
        [status(&get, &reader).await, status(&get, &accounts).await, status(&get, &admin).await],
        [200, 403, 200]
    );
    world.account("juliet@example.com", "x").await;
    let shut = "POST /api/v1/accounts/juliet@example.com/disable";
    assert_eq!(
        [status(shut, &reader).await, status(shut, &accounts).await, status(shut, &admin).await],
        [403, 204, 204]
    );
    let denied = ask(shut).bearer(&reader).to(&world).await;
    assert_eq!(denied.problem(), (403, "forbidden".to_owned()));
    assert!(denied.text.contains("\\\"accounts\\\""), "{}", denied.text);
    for line in [&get, shut, "GET /api/v1/accounts", "GET /api/v1/sessions", "GET /api/v1/commands"] {
        assert_eq!(ask(line).to(&world).await.problem(), (401, "not-authorized".to_owned()), "{line}");
    }
    let (log, _) = world.engine.node.audit.newest(1);
    assert_eq!((log[0].who.as_str(), log[0].what.as_str()), ("token:admin", "disable-user"));
}

#[tokio::test]
async fn nobody_locks_themselves_out_and_a_new_password_ends_sessions() {
    let world = world().await;
    let who = world.sign_in().await;
    for line in [format!("DELETE /api/v1/accounts/{ADMIN}"), format!("POST /api/v1/accounts/{ADMIN}/disable")]
    {
        assert_eq!(ask(&line).by(&who).to(&world).await.problem(), (403, "not-allowed".to_owned()));
    }
    let line = format!("PUT /api/v1/accounts/{ADMIN}/password");
    let done = ask(&line).by(&who).json(json!({ "password": "another one" })).to(&world).await;
    assert_eq!(done.status, 204);
    assert_eq!(ask("GET /api/v1/session").by(&who).to(&world).await.status, 401);
    assert_eq!(world.try_sign_in(ADMIN, "another one").await.status, 201);
}
