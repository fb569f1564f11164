//! Tests of sessions over HTTP without connection tasks; the test with a complete node has connections.

use std::collections::BTreeSet;

use serde_json::Value;
use throng_api::auth::TokenScope;

use crate::common::{ApiFixture, ApiReply, ApiRequest, api_request};
use crate::fixture;

/// Sends a request and advances the node's clock, because connections without a task never answer.
async fn patiently(fixture: &ApiFixture, request: ApiRequest<'_>) -> ApiReply {
    let mut answer = std::pin::pin!(request.send_to(fixture));
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return answer,
            () = tokio::task::yield_now() => fixture.engine.advance(1),
        }
    }
}

fn jids(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|i| i["jid"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn pages_go_through_all_sessions_once() {
    let fixture = fixture().await;
    let secret = fixture.token("reader", &[TokenScope::Read]).await;
    let mut clients = Vec::new();
    for n in 0..60 {
        let name = format!("user{n}{}", if n % 2 == 0 { "" } else { "@example.net" });
        fixture.engine.create_user(&name);
        for resource in ["phone", "Büro"] {
            clients.push(fixture.engine.connect(&name, resource));
        }
    }
    let (mut all, mut after, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let line = format!("GET /api/v1/sessions?limit=7{after}");
        let page = patiently(&fixture, api_request(&line).bearer(&secret)).await.json();
        assert_eq!(page["total"], 120);
        assert!(jids(&page).len() <= 8, "two of one account stay together");
        all.extend(jids(&page));
        pages += 1;
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert!((15..=18).contains(&pages), "{pages}");
    assert_eq!((all.len(), all.iter().collect::<BTreeSet<_>>().len()), (120, 120));
    for (query, count) in [
        ("search=user7@", 2),
        ("search=USER7@", 2),
        ("search=phone", 60),
        ("search=b%C3%BCro&domain=example.com", 30),
        ("domain=example.org", 0),
        ("domain=Example.NET", 60),
    ] {
        let line = format!("GET /api/v1/sessions?limit=500&{query}");
        let page = patiently(&fixture, api_request(&line).bearer(&secret)).await.json();
        assert_eq!(jids(&page).len(), count, "{query}");
        assert_eq!(page["next"], Value::Null);
    }
    for query in ["after=x", "after=-1", "limit=0"] {
        let answer =
            api_request(&format!("GET /api/v1/sessions?{query}")).bearer(&secret).send_to(&fixture).await;
        assert_eq!(answer.problem().0, 400, "{query}");
    }
}

#[tokio::test]
async fn a_session_is_described_in_full() {
    let fixture = fixture().await;
    let secret = fixture.token("reader", &[TokenScope::Read]).await;
    fixture.engine.create_user("juliet");
    fixture.engine.advance(100);
    let juliet = fixture.engine.connect("juliet", "balcony");
    fixture.engine.advance(50);
    juliet.send("<presence><priority>5</priority><c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='https://gajim.org' ver='66/0NaeaBKkwk85efJTGmU47vXI='/></presence>");
    let line = "GET /api/v1/accounts/juliet@example.com/sessions";
    let page = patiently(&fixture, api_request(line).bearer(&secret)).await.json();
    let session = &page["items"][0];
    assert_eq!(session["jid"], "juliet@example.com/balcony");
    assert_eq!(session["client"], "https://gajim.org");
    assert_eq!(session["priority"], 5);
    assert_eq!(session["transport"], Value::Null, "nobody answers for it here");
    let since = session["since"].as_u64().unwrap();
    assert!((1_767_225_700..=1_767_225_702).contains(&since), "{since}");
    assert_eq!(page["total"], 1);
}

#[tokio::test]
async fn a_session_is_ended_by_its_full_address() {
    let fixture = fixture().await;
    let secret = fixture.token("sessions", &[TokenScope::Sessions]).await;
    fixture.engine.create_user("juliet");
    let balcony = fixture.engine.connect("juliet", "balcony/left");
    let chamber = fixture.engine.connect("juliet", "chamber");
    for (line, expected) in [
        ("DELETE /api/v1/sessions/juliet@example.com", 400),
        ("DELETE /api/v1/sessions/juliet@example.com%2Felsewhere", 404),
        ("DELETE /api/v1/sessions/juliet@elsewhere.example%2Fx", 404),
        ("DELETE /api/v1/sessions/juliet@example.com%2Fbalcony%2Fleft", 204),
        ("DELETE /api/v1/sessions/juliet@example.com%2Fbalcony%2Fleft", 404),
    ] {
        let answer = api_request(line).bearer(&secret).send_to(&fixture).await;
        assert_eq!(answer.status.as_u16(), expected, "{line} {answer:?}");
    }
    assert!(balcony.session.is_ended() && !chamber.session.is_ended());
}
