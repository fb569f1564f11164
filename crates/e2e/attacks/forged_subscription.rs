//! Subscription without the owner's approval.
//!
//! Done: `subscribed` without a request, to oneself, from a full address, on behalf of others; a roster set with
//! `subscription='both'`, `ask`, `approved`; a roster set and a roster get for another account; removal of oneself
//! from another's roster; a stored request that a third user answers.
//!
//! Rule: RFC 6121, sections 2.1.2.5, 2.1.5, 2.3.1, 3.1.5, 3.1.6 and 3.4; CVE-2015-8688 and CVE-2016-9928 (rosters
//! changed by others).
//!
//! Right: a subscription needs the owner's own `subscribed` to a request, or a pre-approval; nobody reads or writes
//! another user's roster.

use crate::support::{ask, pair, start_server};

const GET: &str = "<iq type='get' id='g'><query xmlns='jabber:iq:roster'/></iq>";

#[tokio::test]
async fn a_user_cannot_grant_itself_a_subscription() {
    let server = start_server();
    let (mut romeo, mut juliet) = pair(&server).await;
    for client in [&mut romeo, &mut juliet] {
        client.send("<presence/>").await;
        client.sync().await;
    }
    let item = |more: &str| {
        format!("<query xmlns='jabber:iq:roster'><item jid='juliet@example.com' {more}/></query>")
    };
    for attack in [
        format!("<iq type='set' id='a'>{}</iq>", item("subscription='both'")),
        format!("<iq type='set' id='a'>{}</iq>", item("subscription='to' ask='subscribe' approved='true'")),
        format!("<iq type='set' id='a' to='juliet@example.com'>{}</iq>", item("subscription='both'")),
        format!("<iq type='set' id='a' to='example.com'>{}</iq>", item("subscription='both'")),
        format!("<iq type='set' id='a' to='juliet@example.com'>{}</iq>", item("subscription='remove'")),
        "<iq type='get' id='a' to='juliet@example.com'><query xmlns='jabber:iq:roster'/></iq>".to_owned(),
        "<iq type='get' id='a' to='juliet@example.com/balcony'><query xmlns='jabber:iq:roster'/></iq>"
            .to_owned(),
        "<presence type='subscribed' to='juliet@example.com'/>".to_owned(),
        "<presence type='subscribed' to='romeo@example.com'/>".to_owned(),
        "<presence type='subscribed' to='romeo@example.com/orchard'/>".to_owned(),
        "<presence type='unsubscribed' to='juliet@example.com'/>".to_owned(),
        "<presence type='subscribe' to='romeo@example.com'/>".to_owned(),
        "<presence type='subscribed' to='example.com'/>".to_owned(),
        "<presence type='subscribed' from='juliet@example.com' to='romeo@example.com'/>".to_owned(),
    ] {
        if romeo.try_send(&attack).await.is_err() {
            break;
        }
        if attack.contains("from='juliet") {
            romeo = server.login("romeo", "orchard").await;
            continue;
        }
        romeo.sync().await;
    }
    juliet.send("<presence><status>secret</status></presence>").await;
    for seen in juliet.sync().await {
        assert!(!seen.has("jabber:iq:roster"), "a push of another's making: {}", seen.0);
    }
    assert!(romeo.sync().await.iter().all(|seen| !seen.has("secret")));
    let roster = ask(&mut juliet, "g", GET).await;
    assert!(!roster.has("<item"), "{}", roster.0);
    let roster = ask(&mut romeo, "g", GET).await;
    for state in ["'both'", "'to'", "'from'"] {
        assert!(!roster.has(state), "{}", roster.0);
    }
}

//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.3
//= type=test
//# Above all, the contact's server MUST NOT automatically approve subscription requests on the contact's behalf --
//# unless the contact has
//= https://www.rfc-editor.org/rfc/rfc6121#section-3.1.3
//= type=test
//# Instead, if a subscription request requires approval then the contact's server MUST deliver that request to the
//# contact's available resource(s) for approval or denial by the contact.
#[tokio::test]
async fn a_third_party_cannot_answer_a_subscription_request() {
    let server = start_server();
    let (mut romeo, mut juliet) = pair(&server).await;
    server.create_user("mallory").await;
    let mut mallory = server.login("mallory", "x").await;
    for client in [&mut romeo, &mut juliet, &mut mallory] {
        client.send("<presence/>").await;
        client.sync().await;
    }
    romeo.send("<presence type='subscribe' to='juliet@example.com'/>").await;
    romeo.sync().await;
    for from in ["", "from='mallory@example.com'", "from='mallory@example.com/x'"] {
        mallory.send(format!("<presence type='subscribed' {from} to='romeo@example.com'/>")).await;
    }
    mallory.sync().await;
    let roster = ask(&mut romeo, "g", GET).await;
    assert!(roster.has("subscription='none'") && !roster.has("mallory"), "{}", roster.0);
}
