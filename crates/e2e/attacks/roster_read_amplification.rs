//! Requests about a user with a large roster.
//!
//! Done: an account that is nobody's contact sends presence probes, last activity and disco queries and
//! subscription stanzas to an offline user with 5 000 contacts, and to an account that does not exist. Queries also
//! go to a connected user.
//!
//! Rule: RFC 6121, section 4.3.2, XEP-0012, section 7, and XEP-0030, section 8, require a check of one
//! subscription, so one roster entry is read; RFC 6120, section 13.11, requires bounded work. The work must be the
//! same for accounts that do not exist, or it reveals them.
//!
//! Right: no request makes the server read a roster; the store calls are the same whether or not the account exists
//! or is connected, for the first request and for later ones.

use testkit::server::StreamClient;

use crate::support::{start_server, user_with_large_roster};

const QUESTIONS: &[&str] = &[
    "<presence type='probe' to='ADDRESS' id='1'/>",
    "<presence type='probe' to='ADDRESS/balcony' id='2'/>",
    "<iq type='get' to='ADDRESS' id='3'><query xmlns='jabber:iq:last'/></iq>",
    "<iq type='get' to='ADDRESS/balcony' id='4'><query xmlns='jabber:iq:last'/></iq>",
    "<iq type='get' to='ADDRESS' id='5'><query xmlns='http://jabber.org/protocol/disco#info'/></iq>",
    "<iq type='get' to='ADDRESS' id='6'><query xmlns='http://jabber.org/protocol/disco#items'/></iq>",
    "<iq type='get' to='ADDRESS/balcony' id='7'><query xmlns='jabber:iq:version'/></iq>",
    "<presence type='unsubscribe' to='ADDRESS' id='8'/>",
    "<presence type='subscribed' to='ADDRESS' id='9'/>",
    "<presence to='ADDRESS' id='10'/>",
];

#[tokio::test]
async fn a_probe_reads_one_contact() {
    let server = start_server();
    user_with_large_roster(&server, "juliet").await;
    server.create_user("mallory").await;
    let mut mallory = server.login("mallory", "cellar").await;
    mallory.send("<presence/>").await;
    warm(&mut mallory).await;
    for question in QUESTIONS.iter().chain(&["<presence type='subscribe' to='ADDRESS' id='11'/>"]) {
        let mut seen = Vec::new();
        for address in ["juliet@example.com", "nobody@example.com"] {
            server.store_calls();
            mallory.send(question.replace("ADDRESS", address)).await;
            mallory.sync().await;
            seen.push(server.store_calls());
        }
        for calls in &seen {
            assert!(!calls.contains(&"roster.get"), "{question}: {calls:?}");
        }
        if QUESTIONS.contains(question) {
            assert_eq!(seen[0], seen[1], "{question}: the calls tell who exists");
        }
    }
}

/// The refusal of a probe is a stanza to the prober, whose own blocklist is read for the first one. Data of the own account
/// tell nothing about others.
async fn warm(client: &mut StreamClient) {
    client.send("<presence type='probe' to='somebody@example.com'/>").await;
    // The size of the own roster is read before it grows for the first time.
    client.send("<presence type='subscribed' to='somebody@example.com'/>").await;
    client.sync().await;
}

/// Requests and stanzas of a user who may not see the account's presence.
const QUERIES: &[&str] = &[
    "<iq type='get' to='ADDRESS' id='1'><query xmlns='jabber:iq:last'/></iq>",
    "<iq type='get' to='ADDRESS/balcony' id='1'><query xmlns='jabber:iq:last'/></iq>",
    "<iq type='get' to='ADDRESS' id='1'><query xmlns='http://jabber.org/protocol/disco#info'/></iq>",
    "<iq type='get' to='ADDRESS' id='1'><ping xmlns='urn:xmpp:ping'/></iq>",
    "<presence type='probe' to='ADDRESS' id='1'/>",
    "<presence type='probe' to='ADDRESS/balcony' id='1'/>",
];

/// A connected account, an offline one and a missing one.
const OWNERS: [&str; 3] = ["nurse@example.com", "juliet@example.com", "nobody@example.com"];

#[tokio::test]
async fn a_query_costs_the_same_whether_or_not_the_account_is_connected() {
    for query in QUERIES {
        // A new node for each query, so that its caches are empty.
        let server = start_server();
        for user in ["juliet", "nurse", "mallory"] {
            server.create_user(user).await;
        }
        let mut nurse = server.login("nurse", "balcony").await;
        nurse.send("<presence/>").await;
        nurse.sync().await;
        let mut mallory = server.login("mallory", "cellar").await;
        warm(&mut mallory).await;
        let mut rounds = Vec::new();
        for round in ["first", "second"] {
            let mut seen = Vec::new();
            for address in OWNERS {
                server.store_calls();
                mallory.send(query.replace("ADDRESS", address)).await;
                let answers: Vec<String> = mallory.sync().await.into_iter().map(|seen| seen.0).collect();
                let refused = answers.iter().all(|answer| answer.contains("type='error'"));
                assert!(refused && answers.len() == usize::from(query.starts_with("<iq")), "{answers:?}");
                seen.push((answers.concat().replace(address, "ADDRESS"), server.store_calls()));
            }
            assert_eq!(seen[0], seen[1], "{query}, {round}: tells who is connected");
            assert_eq!(seen[1], seen[2], "{query}, {round}: tells who exists");
            rounds.push(seen.swap_remove(0).1);
        }
        assert!(rounds[0].len() > rounds[1].len(), "{query}: what was read of the blocklist is kept");
    }
}

#[tokio::test]
async fn a_blocked_sender_does_not_learn_who_is_connected() {
    for stanza in QUERIES.iter().chain(&["<message type='chat' to='ADDRESS' id='1'><body>x</body></message>"])
    {
        let server = start_server();
        for user in ["juliet", "nurse", "mallory"] {
            server.create_user(user).await;
        }
        let mallory = vec![server.address("mallory")];
        for owner in ["juliet", "nurse"] {
            let (owner, none) = (server.address(owner), store::Unblock::These(Vec::new()));
            server
                .stores
                .blocklists
                .update_blocklist(owner.as_ref(), mallory.clone(), none, 9)
                .await
                .unwrap();
        }
        let mut nurse = server.login("nurse", "balcony").await;
        nurse.send("<presence/>").await;
        nurse.sync().await;
        let mut mallory = server.login("mallory", "cellar").await;
        warm(&mut mallory).await;
        for round in ["first", "second"] {
            let mut seen = Vec::new();
            for address in &OWNERS[..2] {
                server.store_calls();
                mallory.send(stanza.replace("ADDRESS", address)).await;
                let answers = mallory.sync().await.into_iter().map(|answer| {
                    (answer.name(), answer.condition(), answer.attr("from").map(|a| a.replace(address, "")))
                });
                seen.push((answers.collect::<Vec<_>>(), server.store_calls()));
            }
            assert_eq!(seen[0], seen[1], "{stanza}, {round}: tells who is connected");
        }
    }
}
