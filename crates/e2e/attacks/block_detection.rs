//! Detection of being blocked.
//!
//! Done: after being blocked, a contact observes whether the victim connects, changes presence and disconnects;
//! sends messages of every type, requests, probes and subscription requests, also to full addresses and from
//! another resource; and compares the responses with those for an account that does not exist.
//!
//! Rule: XEP-0191, sections 3.3 and 7; RFC 6121, section 8.5.
//!
//! Right: nothing arrives in either direction, and responses are those for an account that does not exist.

use testkit::server::{ReceivedElement, StreamClient};

use crate::support::{ask, assert_alive, assert_well_formed, friends, start_server};

async fn answers(client: &mut StreamClient, stanzas: &[String]) -> Vec<String> {
    for stanza in stanzas {
        client.send(stanza).await;
    }
    let seen = assert_alive(client).await;
    seen.into_iter().map(|ReceivedElement(text)| text).collect()
}

#[tokio::test]
async fn a_block_is_not_observable() {
    let server = start_server();
    let (mut romeo, mut juliet) = friends(&server).await;
    let mut tablet = server.login("romeo", "tablet").await;
    tablet.send("<presence/>").await;
    tablet.sync().await;
    ask(
        &mut juliet,
        "b",
        "<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'><item jid='romeo@example.com'/></block></iq>",
    )
    .await;
    juliet.sync().await;
    // The contact receives the victim's unavailable presence, and nothing after it.
    let responses = romeo.sync().await;
    let of_juliet =
        responses.iter().filter(|one| one.attr("from").is_some_and(|from| from.starts_with("juliet@")));
    assert!(
        of_juliet.map(|one| one.attr("type")).all(|kind| kind.as_deref() == Some("unavailable")),
        "{responses:?}"
    );
    tablet.sync().await;
    juliet.send("<presence><status>secret</status></presence>").await;
    juliet.send("<presence type='unavailable'/>").await;
    juliet.send("<presence><status>secret again</status></presence>").await;
    juliet.sync().await;
    let mut phone = server.login("juliet", "phone").await;
    phone.send("<presence/>").await;
    phone.sync().await;
    for client in [&mut romeo, &mut tablet] {
        assert!(client.sync().await.iter().all(|one| !one.has("juliet@")));
        client.send("<presence/>").await;
        assert!(client.sync().await.iter().all(|one| !one.has("juliet@")));
    }
    let attempt = |name: &str| {
        let mut all = Vec::new();
        for to in [
            format!("{name}@example.com"),
            format!("{name}@example.com/balcony"),
            format!("{name}@example.com/gone"),
        ] {
            for kind in ["normal", "chat", "headline"] {
                all.push(format!("<message to='{to}' type='{kind}' id='m'><body>x</body></message>"));
            }
            all.push(format!("<iq to='{to}' type='get' id='i'><query xmlns='jabber:iq:version'/></iq>"));
            // Without last activity: XEP-0012 requires `forbidden` where XEP-0191 requires `service-unavailable`.
            all.push(format!("<iq to='{to}' type='get' id='i'><vCard xmlns='vcard-temp'/></iq>"));
            all.push(format!("<iq to='{to}' type='set' id='i'><x xmlns='urn:x'/></iq>"));
            all.push(format!("<presence to='{to}'/>"));
        }
        all
    };
    let one = answers(&mut romeo, &attempt("juliet")).await;
    let other = answers(&mut romeo, &attempt("nobody")).await;
    let errors = |all: &[String], name: &str| -> Vec<String> {
        all.iter()
            .filter(|text| text.starts_with("<iq"))
            .map(|text| text.replace(&format!("{name}@"), "NAME@"))
            .collect()
    };
    assert_eq!(errors(&one, "juliet"), errors(&other, "nobody"));
    for client in [&mut juliet, &mut phone] {
        for seen in client.sync().await {
            assert_well_formed(&seen.0);
            let sender = seen.attr("from").unwrap_or_default();
            assert!(!sender.starts_with("romeo@"), "{}", seen.0);
        }
    }
}
