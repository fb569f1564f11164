//! Questions about somebody whose roster is large.
//!
//! Done: an account that is nobody's contact sends presence probes, last-activity and disco queries and subscription stanzas to
//! a user who is offline and has 5 000 contacts, and the same to an account that does not exist. Queries go to a user who is
//! connected, too.
//!
//! Rule: RFC 6121 section 4.3.2, XEP-0012 section 7 and XEP-0030 section 8 have one subscription checked, so one entry of the
//! roster is read; section 13.11 of RFC 6120 asks for bounded work. The same for accounts that do not exist, or work tells them apart.
//!
//! Right: no question makes the server read a roster; the calls to the store are the same whether or not there is an account,
//! and for repeated queries whether or not it is connected.

use crate::support::{user_with_large_roster, wire};

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
async fn a_question_reads_one_contact() {
    let wire = wire();
    user_with_large_roster(&wire, "juliet").await;
    wire.user("mallory").await;
    let mut mallory = wire.login("mallory", "cellar").await;
    mallory.send("<presence/>").await;
    mallory.sync().await;
    for question in QUESTIONS.iter().chain(&["<presence type='subscribe' to='ADDRESS' id='11'/>"]) {
        let mut seen = Vec::new();
        for address in ["juliet@example.com", "nobody@example.com"] {
            wire.store_calls();
            mallory.send(question.replace("ADDRESS", address)).await;
            mallory.sync().await;
            seen.push(wire.store_calls());
        }
        for calls in &seen {
            assert!(!calls.contains(&"roster.get"), "{question}: {calls:?}");
        }
        if QUESTIONS.contains(question) {
            assert_eq!(seen[0], seen[1], "{question}: the calls tell who exists");
        }
    }
}

#[tokio::test]
async fn a_query_costs_the_same_whether_or_not_the_account_is_connected() {
    let wire = wire();
    for user in ["juliet", "nurse", "mallory"] {
        wire.user(user).await;
    }
    let mut nurse = wire.login("nurse", "balcony").await;
    nurse.send("<presence/>").await;
    nurse.sync().await;
    let mut mallory = wire.login("mallory", "cellar").await;
    for (to, query) in [
        ("ADDRESS", "<query xmlns='jabber:iq:last'/>"),
        ("ADDRESS/balcony", "<query xmlns='jabber:iq:last'/>"),
        ("ADDRESS", "<query xmlns='http://jabber.org/protocol/disco#info'/>"),
        ("ADDRESS", "<ping xmlns='urn:xmpp:ping'/>"),
    ] {
        let mut seen = Vec::new();
        for address in ["nurse@example.com", "juliet@example.com", "nobody@example.com"] {
            let question =
                format!("<iq type='get' to='{}' id='1'>{query}</iq>", to.replace("ADDRESS", address));
            // The first question about an absent account reads its blocklist, which is kept then.
            mallory.send(&question).await;
            mallory.element().await;
            wire.store_calls();
            mallory.send(&question).await;
            let answer = mallory.element().await.0;
            assert!(answer.contains("type='error'"), "{answer}");
            seen.push((answer.replace(address, "ADDRESS"), wire.store_calls()));
        }
        assert_eq!(seen[0], seen[1], "{query} to {to}: tells who is connected");
        assert_eq!(seen[1], seen[2], "{query} to {to}: tells who exists");
    }
}
