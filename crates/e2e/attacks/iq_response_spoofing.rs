//! Spoofed IQ responses.
//!
//! Done: an unrelated user answers the server's ping to an idle client; answers a request between two others before
//! its recipient does; sends unsolicited results with guessed ids; answers with the server's address in `from`.
//!
//! Rule: RFC 6120, sections 8.1.2.1 and 8.2.3; XEP-0199, section 7. Smack accepted a roster from any sender
//! (CVE-2014-0364).
//!
//! Right: only the recipient of a request can answer it, a response always has the address of its real sender, and
//! no response is itself answered.

use testkit::server::run_until_idle;

use crate::support::{ask, friends, pair, read_until_end, start_server};

#[tokio::test]
async fn an_idle_client_is_not_kept_alive_by_other_users() {
    let server = start_server();
    let (mut mallory, mut victim) = pair(&server).await;
    let limits = server.node.limits();
    // A client that responds is not pinged again.
    for _ in 0..limits.idle_ping_seconds.div_ceil(30) {
        mallory.sync().await;
        server.advance(30).await;
    }
    mallory.sync().await;
    let question = victim.element().await;
    assert!(question.has("urn:xmpp:ping"), "{}", question.0);
    let id = question.attr("id").unwrap();
    for from in ["", "from='juliet@example.com/balcony'", "from='juliet@example.com'", "from='example.com'"] {
        let mut attacker = server.login("romeo", "other").await;
        for to in ["to='juliet@example.com/balcony'", "to='example.com'", "to='juliet@example.com'", ""] {
            let _ = attacker.try_send(format!("<iq type='result' {from} {to} id='{id}'/>")).await;
        }
        run_until_idle().await;
    }
    for _ in 0..=limits.ping_timeout_seconds.div_ceil(20) {
        mallory.sync().await;
        server.advance(20).await;
    }
    let seen = read_until_end(&mut victim).await;
    assert!(seen.iter().any(|one| one.has("connection-timeout")), "{seen:?}");
}

#[tokio::test]
async fn a_response_carries_the_address_of_its_real_sender() {
    let server = start_server();
    let (mut romeo, mut juliet) = friends(&server).await;
    server.create_user("mallory").await;
    let mut mallory = server.login("mallory", "x").await;
    romeo.send("<iq type='get' id='secret-1' to='juliet@example.com/balcony'><query xmlns='jabber:iq:version'/></iq>").await;
    run_until_idle().await;
    let reply = |id: &str| {
        format!(
            "<iq type='result' id='{id}' to='romeo@example.com/orchard'><query xmlns='jabber:iq:version'><name>evil</name></query></iq>"
        )
    };
    mallory.send(reply("secret-1")).await;
    mallory.send("<iq type='error' id='secret-1' to='romeo@example.com/orchard'><error type='cancel'><item-not-found xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>").await;
    assert_eq!(mallory.sync().await, [], "an answer is not answered");
    for seen in romeo.sync().await {
        assert_eq!(seen.attr("from").as_deref(), Some("mallory@example.com/x"), "{}", seen.0);
    }
    let asked = juliet.sync().await;
    assert_eq!(asked.len(), 1, "{asked:?}");
    juliet.send(reply("secret-1").replace("evil", "good")).await;
    juliet.sync().await;
    let seen = romeo.sync().await;
    assert!(
        seen.len() == 1
            && seen[0].has("good")
            && seen[0].attr("from").as_deref() == Some("juliet@example.com/balcony")
    );
}

//= https://www.rfc-editor.org/rfc/rfc6120#section-10.3.3
//= type=test
//# If the IQ stanza is of type "error" or "result", the server MUST handle the error or result in accordance with
//# the payload of the associated IQ stanza or type "get" or "set"
//= https://www.rfc-editor.org/rfc/rfc6121#section-2.1.6
//= type=test
//# Implementation Note: There is no error case for client processing of roster pushes; if the server receives an IQ
//# of type "error" in response to a roster push then it SHOULD ignore the error.
#[tokio::test]
async fn unsolicited_responses_have_no_effect() {
    let server = start_server();
    let (mut romeo, mut juliet) = pair(&server).await;
    for to in [
        "",
        "to='example.com'",
        "to='romeo@example.com'",
        "to='nobody@example.com'",
        "to='juliet@example.com'",
        "to='juliet@example.com/gone'",
    ] {
        for payload in [
            "",
            "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'><jid>juliet@example.com/x</jid></bind>",
            "<query xmlns='jabber:iq:roster'><item jid='a@b'/></query>",
        ] {
            romeo.send(format!("<iq type='result' {to} id='x'>{payload}</iq>")).await;
            romeo.send(format!("<iq type='error' {to} id='x'>{payload}<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></iq>")).await;
            romeo.send(format!("<message type='error' {to} id='x'><error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error></message>")).await;
            romeo.send(format!("<presence type='error' {to} id='x'/>")).await;
        }
    }
    let seen = romeo.sync().await;
    assert!(
        seen.iter().all(|one| one.attr("from").is_some_and(|from| from.starts_with("romeo@"))),
        "{seen:?}"
    );
    assert!(juliet.sync().await.iter().all(|one| one.attr("type").as_deref() == Some("error")));
    let roster = ask(&mut romeo, "r", "<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>").await;
    assert!(!roster.has("<item"), "{}", roster.0);
}
