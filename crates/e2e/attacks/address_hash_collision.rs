//! Account whose address has the same hash as a contact's.
//!
//! Done: two user names have the same FNV-1a hash, with any domain after them; such a pair is found in two minutes.
//! The owner of the second name, unknown to the victim, requests what the owner of the first may see: presence by a
//! probe, an IQ response of the client, last activity, resources. Then the victim adds the second name to the
//! roster as well.
//!
//! Rule: RFC 6121, sections 4.3.2 and 8.5.3.1: probes and requests of entities without a subscription get nothing.
//! A hash that everybody can compute does not identify anybody (CWE-328).
//!
//! Right: the second user gets what any user without a subscription gets, and a contact with the same hash does not
//! overwrite another one.

use testkit::server::StreamClient;

use crate::support::{ask, bare, befriend, start_server};

/// The 64-bit FNV-1a hash of both is 0x13d1292628146d0f.
const CONTACT: &str = "c4wqycgar3xuc";
const MALLORY: &str = "3emlz6uquh2dh";

/// The victim as seen by a client: presence returned for a probe, and the responses to three requests.
async fn seen(client: &mut StreamClient, victim: &StreamClient) -> (bool, [bool; 3]) {
    let (full, bare) = (&victim.jid, bare(victim));
    client.send(format!("<presence type='probe' to='{bare}'/>")).await;
    let seen = client.sync().await;
    let present = seen.iter().any(|seen| {
        seen.name() == "presence" && seen.attr("type").is_none() && seen.attr("from").as_ref() == Some(full)
    });
    let mut answers = [false; 3];
    let requests = [
        format!("<iq type='get' id='last' to='{bare}'><query xmlns='jabber:iq:last'/></iq>"),
        format!(
            "<iq type='get' id='info' to='{bare}'><query xmlns='http://jabber.org/protocol/disco#info'/></iq>"
        ),
        format!(
            "<iq type='get' id='items' to='{bare}'><query xmlns='http://jabber.org/protocol/disco#items'/></iq>"
        ),
    ];
    for (answer, (id, request)) in answers.iter_mut().zip(["last", "info", "items"].iter().zip(requests)) {
        let reply = ask(client, id, &request).await;
        // An empty list of items reveals nothing (XEP-0030 section 8).
        *answer = reply.condition().is_none() && (*id != "items" || reply.has("<item "));
    }
    (present, answers)
}

/// Whether a request of the client reaches the victim's client.
async fn reaches(client: &mut StreamClient, victim: &mut StreamClient) -> bool {
    let full = victim.jid.clone();
    client
        .send(format!("<iq type='get' id='to-client' to='{full}'><query xmlns='jabber:iq:version'/></iq>"))
        .await;
    client.sync().await;
    victim.sync().await.iter().any(|seen| seen.attr("id").as_deref() == Some("to-client"))
}

#[tokio::test]
async fn a_name_with_the_hash_of_a_contact_is_no_contact() {
    let server = start_server();
    for user in ["juliet", CONTACT, MALLORY] {
        server.create_user(user).await;
    }
    let mut juliet = server.login("juliet", "balcony").await;
    let mut contact = server.login(CONTACT, "one").await;
    let mut mallory = server.login(MALLORY, "other").await;
    for client in [&mut juliet, &mut contact, &mut mallory] {
        client.send("<presence/>").await;
        client.sync().await;
    }
    befriend(&mut juliet, &mut contact).await;

    assert_eq!(seen(&mut contact, &juliet).await, (true, [true; 3]), "the contact sees her");
    assert!(reaches(&mut contact, &mut juliet).await);
    assert_eq!(seen(&mut mallory, &juliet).await, (false, [false; 3]));
    assert!(!reaches(&mut mallory, &mut juliet).await);

    let name = bare(&mallory);
    let item =
        format!("<iq type='set' id='add'><query xmlns='jabber:iq:roster'><item jid='{name}'/></query></iq>");
    assert_eq!(ask(&mut juliet, "add", &item).await.condition(), None);
    assert_eq!(
        seen(&mut contact, &juliet).await,
        (true, [true; 3]),
        "the other entry did not overwrite this one"
    );
    assert_eq!(seen(&mut mallory, &juliet).await, (false, [false; 3]));
}
