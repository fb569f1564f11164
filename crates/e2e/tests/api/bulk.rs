//! Tests of bulk operations on accounts: streamed both ways, repeated, aborted, and with garbage as input.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::Request;
use http_body_util::BodyExt as _;
use jid::Jid;
use serde_json::{Value, json};
use throng_api::auth::TokenScope;
use tower::ServiceExt as _;

use crate::common::{ApiFixture, ApiReply, api_request};
use crate::fixture;

fn lines(answer: &ApiReply) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn send(fixture: &ApiFixture, secret: &str, query: &str, body: impl Into<Body>) -> ApiReply {
    let line = format!("POST /api/v1/accounts/bulk{query}");
    api_request(&line).bearer(secret).text("application/x-ndjson", body).send_to(fixture).await
}

/// An account with the next `ring` accounts as contacts.
fn account(n: usize, of: usize, ring: usize) -> String {
    let roster: Vec<Value> = (1..=ring / 2)
        .flat_map(|d| [(n + d) % of, (n + of - d) % of])
        .map(|c| json!({ "jid": format!("user{c}@example.com"), "name": format!("User {c}"), "groups": ["Ring"] }))
        .collect();
    json!({ "jid": format!("user{n}@example.com"), "password": "secret", "roster": roster }).to_string()
        + "\n"
}

#[tokio::test]
async fn ten_thousand_accounts_with_rosters_are_created_and_the_call_is_repeatable() {
    let fixture = fixture().await;
    let password_or_prompt = fixture.token("bulk", &[TokenScope::Accounts]).await;
    let body: String = (0..10_000).map(|n| account(n, 10_000, 24)).collect();
    let first = lines(&send(&fixture, &password_or_prompt, "", body.clone()).await);
    assert_eq!(first.len(), 10_001);
    assert_eq!(first[7], json!({ "line": 8, "result": "created", "jid": "user7@example.com" }));
    assert_eq!(first[10_000], json!({ "result": "done", "created": 10_000, "exists": 0, "failed": 0 }));
    let stores = &fixture.engine.stores;
    for n in [0, 4_999, 9_999] {
        let jid = Jid::parse(&format!("user{n}@example.com")).unwrap();
        let login = stores.logins.secrets(jid.as_ref()).await.unwrap().unwrap();
        let roster = stores.roster.get(login.id).await.unwrap().items;
        assert_eq!((roster.len(), login.credentials.as_slice()), (24, &b"secret"[..]));
        let item = &roster[0];
        assert_eq!((item.subscription.as_str(), item.groups.as_slice()), ("both", &["Ring".to_owned()][..]));
    }
    let again = send(&fixture, &password_or_prompt, "?results=failed", body).await;
    let again = lines(&again);
    assert_eq!(again.len(), 1);
    assert_eq!(again[0], json!({ "result": "done", "created": 0, "exists": 10_000, "failed": 0 }));
    let (log, _) = throng_commands::audit::audit_log(&fixture.engine.node).newest(2);
    let log: Vec<_> = log
        .iter()
        .map(|e| (e.actor.as_str(), e.action.as_str(), e.subject.as_str(), e.outcome.as_str()))
        .collect();
    assert_eq!(
        log,
        [
            ("token:bulk", "account bulk", "10000 accounts", "done"),
            ("token:bulk", "account bulk", "0 accounts", "done"),
        ]
    );
}

#[tokio::test]
async fn invalid_accounts_do_not_stop_the_others() {
    let fixture = fixture().await;
    let password_or_prompt = fixture.token("bulk", &[TokenScope::Accounts]).await;
    fixture.account("there@example.com", "old").await;
    let mut body = Vec::new();
    for line in [
        json!({ "jid": "a@example.com", "password": "one" }).to_string().into_bytes(),
        b"{".to_vec(),
        json!({ "jid": "b@example.com" }).to_string().into_bytes(),
        json!({ "jid": "b@example.com", "password": "x", "admin": true }).to_string().into_bytes(),
        json!({ "jid": "example.com", "password": "x" }).to_string().into_bytes(),
        json!({ "jid": "b@elsewhere.example", "password": "x" }).to_string().into_bytes(),
        json!({ "jid": "b@example.com", "password": "" }).to_string().into_bytes(),
        json!({ "jid": "b@example.com", "password": "x", "roster": [{ "jid": "@" }] }).to_string().into_bytes(),
        json!({ "jid": "b@example.com", "password": "x", "roster": [{ "jid": "a@x", "groups": vec!["g"; 33] }] }).to_string().into_bytes(),
        json!({ "jid": "there@example.com", "password": "new" }).to_string().into_bytes(),
        vec![b'x'; 3 << 20],
        vec![0xff, 0xfe],
        b"".to_vec(),
        json!({ "jid": "a@example.com", "password": "two" }).to_string().into_bytes(),
        json!({ "jid": "c@example.net", "password": "x", "roster": [
            { "jid": "friend@far.example", "subscription": "to" }, { "jid": "none@far.example", "subscription": "none" },
        ] }).to_string().into_bytes(),
    ] {
        body.extend(line);
        body.push(b'\n');
    }
    body.pop();
    let results = lines(&send(&fixture, &password_or_prompt, "", body).await);
    let short: Vec<String> = results
        .iter()
        .map(|l| format!("{} {}", l["result"].as_str().unwrap(), l["condition"].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        short,
        [
            "created ",
            "failed bad-request",
            "failed bad-request",
            "failed bad-request",
            "failed bad-request",
            "failed item-not-found",
            "failed not-acceptable",
            "failed bad-request",
            "failed bad-request",
            "exists ",
            "failed not-acceptable",
            "failed bad-request",
            "exists ",
            "created ",
            "done ",
        ]
    );
    assert_eq!(results[13]["line"], 14, "a blank line is none");
    let jid = |text: &str| Jid::parse(text).unwrap();
    let stores = &fixture.engine.stores;
    let there = stores.logins.secrets(jid("there@example.com").as_ref()).await.unwrap().unwrap();
    assert_eq!(there.credentials, b"old");
    let c = stores.logins.secrets(jid("c@example.net").as_ref()).await.unwrap().unwrap();
    let roster = stores.roster.get(c.id).await.unwrap().items;
    let states: Vec<_> = roster.iter().map(|i| i.subscription.as_str()).collect();
    assert_eq!(states, ["to", "none"]);
}

#[tokio::test]
async fn the_bulk_call_checks_scope_options_and_content_type() {
    let fixture = fixture().await;
    let reader = fixture.token("reader", &[TokenScope::Read]).await;
    let password_or_prompt = fixture.token("bulk", &[TokenScope::Accounts]).await;
    assert_eq!(send(&fixture, &reader, "", account(1, 2, 0)).await.problem().0, 403);
    assert_eq!(send(&fixture, &password_or_prompt, "?results=none", account(1, 2, 0)).await.problem().0, 400);
    let json = api_request("POST /api/v1/accounts/bulk")
        .bearer(&password_or_prompt)
        .text("application/json", account(1, 2, 0));
    assert_eq!(json.send_to(&fixture).await.problem().0, 415);
    let empty = lines(&send(&fixture, &password_or_prompt, "", "").await);
    assert_eq!(empty, [json!({ "result": "done", "created": 0, "exists": 0, "failed": 0 })]);
}

#[tokio::test]
async fn a_store_that_fails_stops_the_call_with_a_last_line() {
    let fixture = fixture().await;
    let password_or_prompt = fixture.token("bulk", &[TokenScope::Accounts]).await;
    fixture.engine.set_store_failing(true);
    let results = lines(&send(&fixture, &password_or_prompt, "", account(1, 2, 0)).await);
    assert_eq!(
        (results.len(), &results[0]["result"], &results[0]["created"]),
        (1, &json!("stopped"), &json!(0))
    );
    assert!(results[0]["condition"].as_str().is_some());
}

/// An endless request body that counts how many items were consumed.
struct EndlessBody {
    taken: Arc<AtomicUsize>,
}

impl futures_core::Stream for EndlessBody {
    type Item = Result<Bytes, Infallible>;
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let n = self.taken.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Bytes::from(account(n, 1_000_000, 0)))))
    }
}

#[tokio::test]
async fn the_request_is_read_only_as_fast_as_the_response_and_a_disconnect_ends_it() {
    let fixture = fixture().await;
    let secret = fixture.token("bulk", &[TokenScope::Accounts]).await;
    let taken = Arc::new(AtomicUsize::new(0));
    let start = |taken: &Arc<AtomicUsize>| {
        let request = Request::post("/api/v1/accounts/bulk")
            .header("authorization", format!("Bearer {secret}"))
            .header("content-type", "application/x-ndjson");
        let request = request.body(Body::from_stream(EndlessBody { taken: taken.clone() })).unwrap();
        fixture.router.clone().oneshot(request)
    };
    let mut answer = start(&taken).await.unwrap();
    assert_eq!(taken.load(Ordering::Relaxed), 0);
    answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(taken.load(Ordering::Relaxed), 500, "one batch for one piece");
    answer.body_mut().frame().await.unwrap().unwrap();
    assert_eq!(taken.load(Ordering::Relaxed), 1_000);
    let other = start(&taken).await.unwrap();
    assert_eq!(other.status(), 200);
    assert_eq!(start(&taken).await.unwrap().status(), 503, "two at a time");
    drop((answer, other));
    let (log, _) = throng_commands::audit::audit_log(&fixture.engine.node).newest(2);
    assert!(log.iter().all(|e| e.outcome == "cancelled"), "{log:?}");
    assert_eq!(start(&taken).await.unwrap().status(), 200);
    assert_eq!(fixture.engine.stores.accounts.count("example.com").await.unwrap(), 1_001);
}
