//! Exhaustion of an account's offline storage.
//!
//! Done: a sender in nobody's roster sends large and small messages to an account without a resource until no more
//! are accepted.
//!
//! Rule: XEP-0160, section 2, requires messages to be refused when the store is full, and section 5 permits limits;
//! a limit on the number of messages alone lets one sender store some hundred megabytes for each account and
//! exclude messages of others.
//!
//! Right: stored messages are limited in bytes as well; one sender has a share and is refused beyond it as if the
//! store were full; messages of others are stored and delivered. A large message is delivered even if all budgets
//! for queued stanzas are full.

use testkit::server::TestServerConfig;

use crate::support::{ClientTransport, start_server};

#[tokio::test]
async fn one_sender_is_limited_to_its_share_of_the_offline_store() {
    let server = start_server();
    for user in ["juliet", "nurse", "attacker"] {
        server.create_user(user).await;
    }
    let (mut attacker, mut nurse) = (server.login("attacker", "1").await, server.login("nurse", "1").await);
    let mut kept = 0;
    let mut refused = 0;
    for size in [100_000, 10] {
        let body = "x".repeat(size);
        for _ in 0..600 {
            attacker
                .send(format!("<message to='juliet@example.com' type='chat'><body>{body}</body></message>"))
                .await;
            let answers = attacker.sync().await;
            match answers.first() {
                None => kept += size,
                Some(error) => {
                    assert_eq!(error.condition().as_deref(), Some("service-unavailable"));
                    refused += 1;
                }
            }
        }
    }
    assert!(kept <= 5 << 20 && kept > 4 << 20 && refused > 600, "{kept} {refused}");
    nurse.send("<message to='juliet@example.com' type='chat' id='nurse'><body>Madam!</body></message>").await;
    assert_eq!(nurse.sync().await, []);
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send("<presence/>").await;
    loop {
        let seen = juliet.element().await;
        if seen.name() == "message" && seen.attr("id").as_deref() == Some("nurse") {
            break;
        }
    }
}

#[tokio::test]
async fn a_large_message_reaches_its_recipient_while_the_budgets_are_full() {
    let limits = throng_core::NodeLimits {
        backlog_bytes: 1_000,
        backlog_bytes_per_account: 1_000,
        backlog_bytes_per_sender: 1_000,
        ..throng_core::NodeLimits::default()
    };
    let server = TestServerConfig { limits, ..ClientTransport::Tcp.setup() }.start();
    for user in ["juliet", "attacker"] {
        server.create_user(user).await;
    }
    let mut attacker = server.login("attacker", "1").await;
    let body = "x".repeat(100_000);
    for n in 0..5 {
        attacker
            .send(format!(
                "<message to='juliet@example.com' type='chat' id='{n}'><body>{body}</body></message>"
            ))
            .await;
    }
    assert_eq!(attacker.sync().await, []);
    let mut juliet = server.login("juliet", "balcony").await;
    juliet.send("<presence/>").await;
    let mut ids = Vec::new();
    while ids.len() < 5 {
        let seen = juliet.element().await;
        if seen.name() == "message" {
            ids.push(seen.attr("id").expect("an id"));
        }
    }
    assert_eq!(ids, ["0", "1", "2", "3", "4"]);
    assert_eq!(server.node.backlog.bytes(), 0);
}
