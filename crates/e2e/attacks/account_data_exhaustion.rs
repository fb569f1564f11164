//! Unlimited data of one account.
//!
//! Done: one account stores private values, blocks addresses, adds contacts with many long groups, uploads vCards
//! and binds resources without end.
//!
//! Rule: RFC 6120, section 13.12 (limits on what one entity may use); flooding clients exhausted the memory of
//! Openfire (OF-835).
//!
//! Right: each kind of data has a limit; requests above it get an error, existing data stays intact, and all
//! sessions continue.

use testkit::server::{ReceivedElement, StreamClient};

use crate::support::{ask, assert_alive, start_server};

async fn fill(
    client: &mut StreamClient,
    most: usize,
    request: impl Fn(usize) -> String,
) -> (usize, ReceivedElement) {
    for n in 0..most {
        let answer = ask(client, "f", &format!("<iq type='set' id='f'>{}</iq>", request(n))).await;
        if answer.attr("type").as_deref() == Some("error") {
            return (n, answer);
        }
    }
    panic!("{most} were taken");
}

#[tokio::test]
async fn private_values_are_bounded_in_number_and_size() {
    let server = start_server();
    server.create_user("romeo").await;
    let mut romeo = server.login("romeo", "x").await;
    let (taken, refused) = fill(&mut romeo, 2_000, |n| {
        format!("<query xmlns='jabber:iq:private'><a xmlns='urn:flood:{n}'>x</a></query>")
    })
    .await;
    assert!((10..2_000).contains(&taken), "{taken}");
    assert_eq!(refused.condition().as_deref(), Some("resource-constraint"));
    let text = "x".repeat(60_000);
    let (taken, _) = fill(&mut romeo, 100, |n| {
        format!("<query xmlns='jabber:iq:private'><a xmlns='urn:flood:{n}'>{text}</a></query>")
    })
    .await;
    assert!(taken <= 3, "{taken}");
    let kept = ask(
        &mut romeo,
        "g",
        "<iq type='get' id='g'><query xmlns='jabber:iq:private'><a xmlns='urn:flood:9'/></query></iq>",
    )
    .await;
    assert!(kept.has(">x</a>"), "{}", kept.0);
    assert_alive(&mut romeo).await;
}

#[tokio::test]
async fn blocklists_are_bounded() {
    let server = start_server();
    server.create_user("romeo").await;
    let mut romeo = server.login("romeo", "x").await;
    let (taken, _) = fill(&mut romeo, 200, |n| {
        let items: String = (0..100).map(|m| format!("<item jid='u{n}-{m}@example.net'/>")).collect();
        format!("<block xmlns='urn:xmpp:blocking'>{items}</block>")
    })
    .await;
    assert!(taken < 200, "{taken}");
    let all: String = (0..3_000).map(|n| format!("<item jid='v{n}@example.net'/>")).collect();
    let answer = ask(
        &mut romeo,
        "b",
        &format!("<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'>{all}</block></iq>"),
    )
    .await;
    assert_eq!(answer.attr("type").as_deref(), Some("error"));
    assert_alive(&mut romeo).await;
}

#[tokio::test]
async fn contacts_and_their_groups_are_bounded() {
    let server = start_server();
    server.create_user("romeo").await;
    let mut romeo = server.login("romeo", "x").await;
    let groups = |count: usize| (0..count).map(|n| format!("<group>g{n}</group>")).collect::<String>();
    for item in [
        format!("<item jid='a@example.net'>{}</item>", groups(5_000)),
        format!("<item jid='a@example.net' name='{}'/>", "n".repeat(200_000)),
        format!("<item jid='a@example.net'><group>{}</group></item>", "g".repeat(200_000)),
        "<item jid='a@example.net'/><item jid='b@example.net'/>".to_owned(),
        format!("<item jid='{}@example.net'/>", "a".repeat(1_100)),
        "<item jid='a@example.net'><group/></item>".to_owned(),
    ] {
        let answer = ask(
            &mut romeo,
            "r",
            &format!("<iq type='set' id='r'><query xmlns='jabber:iq:roster'>{item}</query></iq>"),
        )
        .await;
        let short: String = item.chars().take(60).collect();
        assert_eq!(answer.attr("type").as_deref(), Some("error"), "{short}");
    }
    let roster = ask(&mut romeo, "g", "<iq type='get' id='g'><query xmlns='jabber:iq:roster'/></iq>").await;
    assert!(!roster.has("<item"), "{}", roster.0);
}

#[tokio::test]
async fn vcards_are_bounded() {
    let server = start_server();
    server.create_user("romeo").await;
    let mut romeo = server.login("romeo", "x").await;
    for card in [
        format!("<PHOTO><TYPE>image/png</TYPE><BINVAL>{}</BINVAL></PHOTO>", "QUFB".repeat(50_000)),
        "<EMAIL><USERID>a@b</USERID></EMAIL>".repeat(4_000),
        format!("<FN>{}</FN>", "x".repeat(200_000)),
    ] {
        let request = format!("<iq type='set' id='v'><vCard xmlns='vcard-temp'>{card}</vCard></iq>");
        let answer = ask(&mut romeo, "v", &request).await;
        assert_eq!(answer.attr("type").as_deref(), Some("error"), "{}", &card[..60]);
    }
    assert_alive(&mut romeo).await;
}

#[tokio::test]
async fn resources_are_bounded_and_existing_ones_stay() {
    let server = start_server();
    server.create_user("romeo").await;
    let limit = usize::from(server.node.limits().sessions_per_account);
    let mut all = Vec::new();
    for n in 0..limit {
        all.push(server.login("romeo", &format!("r{n}")).await);
    }
    let mut one_more = server.connect();
    one_more.open().await;
    one_more.authenticate(sasl::Mechanism::ScramSha1, "romeo", testkit::server::PASSWORD).await.unwrap();
    one_more.open().await;
    let refused = one_more.bind("more").await.unwrap_err();
    assert_eq!(refused.condition().as_deref(), Some("resource-constraint"));
    for client in &mut all {
        assert_alive(client).await;
    }
}
