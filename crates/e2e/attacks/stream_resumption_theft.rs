//! Resumption of another user's session.
//!
//! Done: a user who knows the identifier of another user's session (XEP-0198) requests its resumption, on every
//! kind of connection, while its owner is connected and after the connection is lost; then with the own identifier
//! and a false count.
//!
//! Rule: XEP-0198, sections 5 and 10 (only the authenticated owner can resume a session).
//!
//! Right: `item-not-found` for the other user, nothing of the session's queue is sent, and the owner can resume.

use sasl::Mechanism;
use testkit::server::{PASSWORD, StreamClient, run_until_idle};

use crate::support::{ClientTransport, pair};

async fn resume(client: &mut StreamClient, id: &str) -> testkit::server::ReceivedElement {
    client.send(format!("<resume xmlns='urn:xmpp:sm:3' h='0' previd='{id}'/>")).await;
    client.element().await
}

#[tokio::test]
async fn only_the_owner_resumes_a_session() {
    for transport in ClientTransport::ALL {
        let server = transport.start();
        let (mut romeo, mut juliet) = pair(&server).await;
        server.create_user("mallory").await;
        juliet.send("<presence/>").await;
        juliet.sync().await;
        juliet.send("<enable xmlns='urn:xmpp:sm:3' resume='true'/>").await;
        let id = juliet.element().await.attr("id").expect("an identifier");
        let mut attacker = server.connect();
        let mut steal = async || {
            attacker = server.connect();
            attacker.open().await;
            attacker.authenticate(Mechanism::ScramSha1, "mallory", PASSWORD).await.expect("a login");
            attacker.open().await;
            let answer = resume(&mut attacker, &id).await;
            assert_eq!(answer.name(), "failed", "{transport:?}: {}", answer.0);
            assert_eq!(answer.condition().as_deref(), Some("item-not-found"), "{transport:?}");
            assert!(answer.attr("h").is_none(), "{transport:?}: {}", answer.0);
            attacker.bind("x").await.expect("a session of one's own");
            assert!(attacker.jid.starts_with("mallory@"), "{transport:?}: {}", attacker.jid);
            assert_eq!(attacker.sync().await, [], "{transport:?}");
        };
        steal().await;
        // The connection is lost, and a message waits in the detached session.
        drop(juliet);
        run_until_idle().await;
        romeo.send("<message to='juliet@example.com' type='chat'><body>secret</body></message>").await;
        romeo.sync().await;
        steal().await;
        let mut juliet = server.connect();
        juliet.open().await;
        juliet.authenticate(Mechanism::ScramSha1, "juliet", PASSWORD).await.expect("a login");
        juliet.open().await;
        assert_eq!(resume(&mut juliet, &id).await.name(), "resumed", "{transport:?}");
        let mut all = String::new();
        while !all.contains("secret") {
            all += &juliet.element().await.0;
        }
    }
}

#[tokio::test]
async fn malformed_resumption_ids_are_rejected() {
    let server = ClientTransport::Tcp.start();
    server.create_user("mallory").await;
    for id in [
        "",
        "x",
        "../../etc/passwd",
        "balcony",
        "juliet@example.com/balcony",
        &"A".repeat(5_000),
        "' or 1=1 --",
    ] {
        let mut client = server.connect();
        client.open().await;
        client.authenticate(Mechanism::ScramSha1, "mallory", PASSWORD).await.expect("a login");
        client.open().await;
        let id = id.replace('\'', "&apos;");
        assert_eq!(resume(&mut client, &id).await.condition().as_deref(), Some("item-not-found"), "{id}");
    }
}
