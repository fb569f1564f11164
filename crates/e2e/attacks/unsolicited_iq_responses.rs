//! Unsolicited IQ responses.
//!
//! Done: a sender in nobody's roster sends thousands of IQ results and errors to the full address of a detached
//! session, and to that of a client that reads slowly, until their queues for responses are full.
//!
//! Rule: RFC 6120, section 8.2.3, has no response without a request; RFC 6121, section 8.5.3.1, delivers results
//! and errors to a full address from any sender. A server that closes a stream because its client does not read
//! responses lets anybody close it.
//!
//! Right: unsolicited responses are dropped first; the session stays, can be resumed, and receives every response
//! that it requested.

use testkit::server::{StreamClient, TestServer, run_until_idle};

use crate::support::{ask, enable_resumption, friends, resume, start_server};

const NS: &str = "xmlns='urn:xmpp:sm:3'";

/// Ten megabytes of IQ responses.
async fn flood(attacker: &mut StreamClient) {
    let text = "x".repeat(10_000);
    for n in 0..1000 {
        let (kind, rest) = match n % 2 {
            0 => ("result", String::new()),
            _ => (
                "error",
                "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>".to_owned(),
            ),
        };
        attacker
            .send(format!(
                "<iq to='juliet@example.com/balcony' type='{kind}' id='{n}'><x xmlns='u:x'>{text}</x>{rest}</iq>"
            ))
            .await;
    }
    assert_eq!(attacker.sync().await, []);
}

async fn unsubscribed_sender(server: &TestServer) -> StreamClient {
    server.create_user("attacker").await;
    server.login("attacker", "street").await
}

#[tokio::test]
async fn a_detached_session_survives_and_receives_the_requested_response() {
    let server = start_server();
    let (mut romeo, mut juliet) = friends(&server).await;
    let mut attacker = unsubscribed_sender(&server).await;
    let id = enable_resumption(&mut juliet).await;
    juliet.send("<iq to='romeo@example.com/orchard' type='get' id='asked'><q xmlns='u:q'/></iq>").await;
    assert_eq!(romeo.element().await.attr("id").as_deref(), Some("asked"));
    drop(juliet);
    run_until_idle().await;
    flood(&mut attacker).await;
    let most = u64::from(server.node.limits().queue_control_bytes) / 2;
    assert!(server.node.backlog.bytes() <= most, "{}", server.node.backlog.bytes());
    romeo.send("<iq to='juliet@example.com/balcony' type='result' id='asked'><q xmlns='u:q'/></iq>").await;
    romeo.sync().await;
    assert_eq!(server.node.routing_table.sessions(), 3, "the session waits");
    let (mut juliet, answer) = resume(&server, "juliet", &id).await;
    assert_eq!(answer.name(), "resumed");
    let (mut handled, mut asked) = (0, false);
    while !asked {
        let seen = juliet.element().await;
        match seen.name().as_str() {
            "r" => juliet.send(format!("<a {NS} h='{handled}'/>")).await,
            _ => {
                handled += 1;
                asked = seen.attr("id").as_deref() == Some("asked");
            }
        }
    }
}

#[tokio::test]
async fn a_slow_client_is_not_disconnected_by_unsolicited_responses() {
    let server = start_server();
    for user in ["juliet", "nurse"] {
        server.create_user(user).await;
    }
    let mut attacker = unsubscribed_sender(&server).await;
    let mut juliet = server.connect_with(4096);
    juliet.login("juliet", "balcony").await;
    flood(&mut attacker).await;
    // It reads again and receives the response to its own request without a stream error.
    let answer =
        ask(&mut juliet, "own", "<iq type='get' id='own'><query xmlns='jabber:iq:roster'/></iq>").await;
    assert_eq!(answer.attr("type").as_deref(), Some("result"));
    assert_eq!(server.node.routing_table.sessions(), 2);
}
