//! Password guesses that are spread over the nodes of a cluster.
//!
//! Done: guesses at one account from one address, at one account from many addresses, and at many accounts from one address,
//! each on the next of two to five nodes; as many guesses on every node at the same time, in every window; a flood of guesses from
//! many addresses; then the owner logs in on a node that the owner has not used before.
//!
//! Rule: RFC 6120, section 13.12, leaves limits on guesses to the server; a limit that each node counts alone grows with the
//! number of nodes.
//!
//! Right: guesses one after the other are limited as on one node. What parallel guesses exceed a limit by extends the
//! time for which further ones are refused, so that in the long run as few are answered as on one node. The owner can log in on
//! every node, and a flood costs a bounded number of messages between nodes.

use cluster::UsageKind;
use sasl::{Mechanism, client::plain, encoding};
use testkit::server::{PASSWORD, TestServer, TestServers};
use throng_core::NodeLimits;

use crate::support::ClientTransport;

const WINDOW: u32 = 60;

async fn start(count: usize) -> TestServers {
    let mut setup = ClientTransport::Tcp.setup();
    setup.policy.allow_plain_without_tls = true;
    setup.limits = NodeLimits {
        login_window_seconds: WINDOW,
        login_failures_per_address_and_account: 5,
        login_failures_per_address: 20,
        login_accounts_per_address: 10,
        login_failures_per_account: 20,
        ..NodeLimits::default()
    };
    let servers = setup.start_cluster(count);
    servers.nodes[0].create_user("juliet").await;
    servers
}

/// Whether a guess was answered, or refused because of a limit.
async fn guess(server: &TestServer, peer: &str, user: &str, password: &str) -> bool {
    let mut client = server.connect_from(peer);
    client.open().await;
    let initial = encoding::encode_challenge(&plain(None, user, password));
    client
        .send(format!(
            "<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='{}'>{initial}</auth>",
            Mechanism::Plain.name()
        ))
        .await;
    let answer = client.element().await;
    answer.name() == "success" || answer.condition().as_deref() == Some("not-authorized")
}

/// The nodes learn of what was guessed.
async fn report(servers: &TestServers) {
    servers.nodes[0].clock.advance(100);
    servers.settle().await;
}

#[tokio::test]
async fn guesses_on_one_node_after_the_other_are_limited_as_on_one() {
    for count in [1, 2, 3, 5] {
        let servers = start(count).await;
        let mut answered = [0; 3];
        for n in 0..60 {
            let server = &servers.nodes[n % count];
            let many = format!("198.51.100.{n}");
            // One account from one address; one account from many addresses; many accounts from one address.
            let attempts = [
                ("192.0.2.1", "juliet".to_owned()),
                (&many[..], "romeo".to_owned()),
                ("192.0.2.3", format!("user{n}")),
            ];
            for (answered, (peer, user)) in answered.iter_mut().zip(attempts) {
                *answered += usize::from(guess(server, peer, &user, "wrong").await);
            }
            report(&servers).await;
        }
        assert_eq!(answered[..2], [5, 20], "{count} nodes");
        assert!(
            (8..=13).contains(&answered[2]),
            "{count} nodes: {} accounts where 10 are allowed",
            answered[2]
        );
        for server in &servers.nodes {
            assert!(!guess(server, "192.0.2.1", "juliet", PASSWORD).await, "the right password, too");
        }
    }
}

#[tokio::test]
async fn guesses_on_all_nodes_at_once_gain_nothing_in_the_long_run() {
    const WINDOWS: usize = 20;
    let servers = start(5).await;
    let mut answered = 0;
    for _window in 0..WINDOWS {
        for server in &servers.nodes {
            for _ in 0..8 {
                answered += usize::from(guess(server, "192.0.2.1", "juliet", "wrong").await);
            }
        }
        report(&servers).await;
        servers.advance(WINDOW).await;
    }
    assert_eq!(answered, WINDOWS * 5);
}

#[tokio::test]
async fn the_owner_of_an_attacked_account_is_known_on_every_node() {
    let servers = start(3).await;
    assert!(guess(&servers.nodes[0], "203.0.113.7", "juliet", PASSWORD).await);
    report(&servers).await;
    for n in 0..40 {
        guess(&servers.nodes[n % 3], &format!("198.51.100.{n}"), "juliet", "wrong").await;
        report(&servers).await;
    }
    for server in &servers.nodes {
        assert!(!guess(server, "192.0.2.9", "juliet", PASSWORD).await, "a new address");
        assert!(guess(server, "203.0.113.7", "juliet", PASSWORD).await, "that of the owner");
    }
}

#[tokio::test]
async fn a_flood_of_guesses_costs_one_message_in_a_tenth_of_a_second() {
    let servers = start(2).await;
    let reports = || {
        let metrics = &servers.nodes[0].node.metrics;
        metrics.cluster_usage_reports.get([UsageKind::LoginAttempts.as_str()])
    };
    for n in 0..400 {
        let user = if n % 10 == 0 { "juliet".to_owned() } else { format!("user{n}") };
        guess(&servers.nodes[0], &format!("198.51.{}.{}", n / 200, n % 200), &user, "wrong").await;
        servers.settle().await;
        if n % 100 == 99 {
            servers.nodes[0].clock.advance(100);
            servers.settle().await;
        }
    }
    assert!((1..=5).contains(&reports()), "{} reports", reports());
    assert!(!guess(&servers.nodes[1], "203.0.113.7", "juliet", PASSWORD).await, "and limits the other node");
}
