//! Tests of an account's roster over HTTP (RFC 6121, section 2): states, pages, search.

use serde_json::{Value, json};
use store::{RosterItem, RosterUpdate, Subscription};
use throng_api::auth::TokenScope;

use crate::common::{ApiFixture, api_request};
use crate::fixture;

const JULIET: &str = "juliet@example.com";

async fn put(fixture: &ApiFixture, contact: &str, name: &str, groups: &[&str], subscription: Subscription) {
    let owner = jid::Jid::parse(JULIET).unwrap();
    let id = fixture.engine.stores.accounts.get(owner.as_ref()).await.unwrap().unwrap().id;
    let contact = jid::Jid::parse(contact).unwrap();
    let mut item = RosterItem::new(contact.clone());
    item.name = (!name.is_empty()).then(|| name.to_owned());
    item.groups = groups.iter().map(|group| (*group).to_owned()).collect();
    item.subscription = subscription;
    item.request = subscription.contains(Subscription::PENDING_IN).then(Vec::new);
    let change = Box::new(move |_| RosterUpdate::Put(item));
    fixture.engine.stores.roster.update(id, &contact, change).await.unwrap();
}

async fn page(fixture: &ApiFixture, secret: &str, query: &str) -> Value {
    let answer = api_request(&format!("GET /api/v1/accounts/{JULIET}/roster?{query}"))
        .bearer(secret)
        .send_to(fixture)
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn jids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["jid"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_roster_lists_the_entries_visible_to_its_owner() {
    let fixture = fixture().await;
    let password_or_prompt = fixture.token("reader", &[TokenScope::Read]).await;
    let path = format!("GET /api/v1/accounts/{JULIET}/roster");
    let missing = api_request(&path).bearer(&password_or_prompt).send_to(&fixture).await;
    assert_eq!(missing.problem(), (404, "item-not-found".to_owned()));
    fixture.account(JULIET, "x").await;
    assert_eq!(
        page(&fixture, &password_or_prompt, "").await,
        json!({ "items": [], "next": null, "total": 0 })
    );

    let listed = Subscription::IN_ROSTER;
    put(&fixture, "romeo@example.net", "Romeo", &["Lovers"], listed | Subscription::BOTH).await;
    put(&fixture, "nurse@example.com", "", &[], listed | Subscription::PENDING_OUT | Subscription::APPROVED)
        .await;
    put(&fixture, "paris@example.com", "", &[], listed | Subscription::PENDING_IN).await;
    // A subscription request from a user outside the roster is not a contact.
    put(&fixture, "tybalt@example.com", "", &[], Subscription::PENDING_IN).await;
    let all = page(&fixture, &password_or_prompt, "").await;
    assert_eq!(
        all["items"],
        json!([
            { "jid": "nurse@example.com", "name": "", "groups": [], "subscription": "none", "ask": true, "approved": true, "request": false },
            { "jid": "paris@example.com", "name": "", "groups": [], "subscription": "none", "ask": false, "approved": false, "request": true },
            { "jid": "romeo@example.net", "name": "Romeo", "groups": ["Lovers"], "subscription": "both", "ask": false, "approved": false, "request": false },
        ])
    );
    assert_eq!((&all["total"], &all["next"]), (&json!(3), &Value::Null));
    for (search, found) in
        [("ROM", "romeo@example.net"), ("lovers", "romeo@example.net"), ("nurse%40", "nurse@example.com")]
    {
        let page = page(&fixture, &password_or_prompt, &format!("search={search}")).await;
        assert_eq!((jids(&page), &page["total"]), (vec![found], &json!(1)), "{search}");
    }
    // Rosters are visible with the read scope and with no lesser one.
    let other = fixture.token("other", &[TokenScope::Messages]).await;
    assert_eq!(
        api_request(&path).bearer(&other).send_to(&fixture).await.problem(),
        (403, "forbidden".to_owned())
    );
}

#[tokio::test]
async fn pages_neither_repeat_nor_skip_remaining_entries() {
    let fixture = fixture().await;
    fixture.account(JULIET, "x").await;
    let password_or_prompt = fixture.token("reader", &[TokenScope::Read]).await;
    for n in 0..7 {
        put(&fixture, &format!("c{n}@example.com"), "", &[], Subscription::IN_ROSTER).await;
    }
    let first = page(&fixture, &password_or_prompt, "limit=3").await;
    assert_eq!(
        (jids(&first), &first["total"]),
        (vec!["c0@example.com", "c1@example.com", "c2@example.com"], &json!(7))
    );
    // The last contact of the page is removed, and one before it is added.
    let after = first["next"].as_str().unwrap().to_owned();
    put(&fixture, &after, "", &[], Subscription::NONE).await;
    put(&fixture, "a@example.com", "", &[], Subscription::IN_ROSTER).await;
    let second = page(&fixture, &password_or_prompt, &format!("limit=3&after={after}")).await;
    assert_eq!(jids(&second), ["c3@example.com", "c4@example.com", "c5@example.com"]);
    let third =
        page(&fixture, &password_or_prompt, &format!("limit=3&after={}", second["next"].as_str().unwrap()))
            .await;
    assert_eq!((jids(&third), &third["next"]), (vec!["c6@example.com"], &Value::Null));
    assert_eq!(jids(&page(&fixture, &password_or_prompt, "after=zzz").await), Vec::<&str>::new());
    let path = format!("GET /api/v1/accounts/{JULIET}/roster?limit=0");
    assert_eq!(api_request(&path).bearer(&password_or_prompt).send_to(&fixture).await.problem().0, 400);
}
