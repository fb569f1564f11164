//! The roster of an account over HTTP (RFC 6121 section 2): states, pages, a search.

use serde_json::{Value, json};
use store::{Change, RosterItem, Subscription};
use throng_api::auth::Scope;

use crate::common::{World, ask};
use crate::world;

const JULIET: &str = "juliet@example.com";

async fn put(world: &World, contact: &str, name: &str, groups: &[&str], subscription: Subscription) {
    let owner = jid::Jid::parse(JULIET).unwrap();
    let id = world.engine.stores.accounts.show(owner.as_ref()).await.unwrap().unwrap().id;
    let contact = jid::Jid::parse(contact).unwrap();
    let mut item = RosterItem::new(contact.clone());
    item.name = (!name.is_empty()).then(|| name.to_owned());
    item.groups = groups.iter().map(|group| (*group).to_owned()).collect();
    item.subscription = subscription;
    item.request = subscription.has(Subscription::PENDING_IN).then(Vec::new);
    let change = Box::new(move |_| Change::Put(item));
    world.engine.stores.roster.change(id, &contact, change).await.unwrap();
}

async fn page(world: &World, secret: &str, query: &str) -> Value {
    let answer = ask(&format!("GET /api/v1/accounts/{JULIET}/roster?{query}")).bearer(secret).to(world).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

fn jids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["jid"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_roster_shows_what_its_owner_sees() {
    let world = world().await;
    let secret = world.token("reader", &[Scope::Read]).await;
    let path = format!("GET /api/v1/accounts/{JULIET}/roster");
    let missing = ask(&path).bearer(&secret).to(&world).await;
    assert_eq!(missing.problem(), (404, "item-not-found".to_owned()));
    world.account(JULIET, "x").await;
    assert_eq!(page(&world, &secret, "").await, json!({ "items": [], "next": null, "total": 0 }));

    let listed = Subscription::IN_ROSTER;
    put(&world, "romeo@example.net", "Romeo", &["Lovers"], listed | Subscription::BOTH).await;
    put(&world, "nurse@example.com", "", &[], listed | Subscription::ASK | Subscription::APPROVED).await;
    put(&world, "paris@example.com", "", &[], listed | Subscription::PENDING_IN).await;
    // A request of somebody who is not in the roster is no contact.
    put(&world, "tybalt@example.com", "", &[], Subscription::PENDING_IN).await;
    let all = page(&world, &secret, "").await;
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
        let page = page(&world, &secret, &format!("search={search}")).await;
        assert_eq!((jids(&page), &page["total"]), (vec![found], &json!(1)), "{search}");
    }
    // A roster is no secret of the API's readers, and of nobody else.
    let other = world.token("other", &[Scope::Messages]).await;
    assert_eq!(ask(&path).bearer(&other).to(&world).await.problem(), (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn pages_neither_repeat_nor_hide_what_stays() {
    let world = world().await;
    world.account(JULIET, "x").await;
    let secret = world.token("reader", &[Scope::Read]).await;
    for n in 0..7 {
        put(&world, &format!("c{n}@example.com"), "", &[], Subscription::IN_ROSTER).await;
    }
    let first = page(&world, &secret, "limit=3").await;
    assert_eq!(
        (jids(&first), &first["total"]),
        (vec!["c0@example.com", "c1@example.com", "c2@example.com"], &json!(7))
    );
    // The last of the page goes, and one in front comes.
    let after = first["next"].as_str().unwrap().to_owned();
    put(&world, &after, "", &[], Subscription::NONE).await;
    put(&world, "a@example.com", "", &[], Subscription::IN_ROSTER).await;
    let second = page(&world, &secret, &format!("limit=3&after={after}")).await;
    assert_eq!(jids(&second), ["c3@example.com", "c4@example.com", "c5@example.com"]);
    let third = page(&world, &secret, &format!("limit=3&after={}", second["next"].as_str().unwrap())).await;
    assert_eq!((jids(&third), &third["next"]), (vec!["c6@example.com"], &Value::Null));
    assert_eq!(jids(&page(&world, &secret, "after=zzz").await), Vec::<&str>::new());
    let path = format!("GET /api/v1/accounts/{JULIET}/roster?limit=0");
    assert_eq!(ask(&path).bearer(&secret).to(&world).await.problem().0, 400);
}
