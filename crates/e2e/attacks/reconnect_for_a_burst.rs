//! Reconnecting to get a new burst.
//!
//! Done: a client floods until its burst is used up, reconnects and continues: after closing the stream, after
//! cutting the connection, by replacing its own resource, under another resource, over TCP, WebSocket and BOSH; by
//! resuming the stream; with many sessions that flood and reconnect together; at another node of a cluster, before and after
//! that node learns of it.
//!
//! Rule: RFC 6120, section 13.12 (limits on what an account may send in a given time). A limit that a new
//! connection resets is ineffective; ejabberd's shapers and Prosody's `mod_limits` count by connection.
//!
//! Right: the account continues with the rest of its burst, or with its debt, until it is refilled. What many sessions
//! have spent is summed, on all nodes. Other users are not affected.

use testkit::server::{ReceivedEvent, StreamClient, TestServer, TestServers, run_until_idle};
use throng_core::NodeLimits;

use crate::support::{ClientTransport, assert_alive, enable_resumption, resume};

const BURST: usize = 50;

/// A node that answers [`BURST`] requests at once and five a second, with both users.
async fn start(transport: ClientTransport) -> TestServer {
    let mut setup = transport.setup();
    setup.limits = NodeLimits { stanzas_per_second: 5, stanzas_burst: BURST as u32, ..NodeLimits::default() };
    let server = setup.start();
    for user in ["mallory", "juliet"] {
        server.create_user(user).await;
    }
    server
}

fn requests(count: usize) -> String {
    (0..count).map(|n| format!("<iq type='get' id='{n}'><ping xmlns='urn:xmpp:ping'/></iq>")).collect()
}

/// Sends this and counts the responses while the clock stands still.
async fn flood(client: &mut StreamClient, count: usize) -> usize {
    client.send(requests(count)).await;
    let mut answers = 0;
    for _ in 0..4 {
        run_until_idle().await;
        while let Some(received) = client.try_receive().await {
            answers += usize::from(matches!(received, ReceivedEvent::Element(seen) if seen.name() == "iq"));
        }
    }
    answers
}

#[tokio::test]
async fn reconnecting_does_not_refill_the_burst() {
    for transport in ClientTransport::ALL {
        let server = start(transport).await;
        let mut mallory = server.login("mallory", "cellar").await;
        assert_eq!(
            flood(&mut mallory, BURST * 2).await,
            BURST + 1,
            "{transport:?}: a burst, and one that makes the debt"
        );
        let mut earlier = Vec::new();
        for resource in ["cellar", "cellar", "attic", "roof"] {
            earlier.push(mallory);
            mallory = server.login("mallory", resource).await;
            assert_eq!(flood(&mut mallory, BURST).await, 0, "{transport:?}: {resource}");
            let close = if transport == ClientTransport::WebSocket {
                "<close xmlns='urn:ietf:params:xml:ns:xmpp-framing'/>"
            } else {
                "</stream:stream>"
            };
            let _ = mallory.try_send(close).await;
            run_until_idle().await;
        }
        drop(earlier);
        let mut juliet = server.login("juliet", "balcony").await;
        assert_eq!(flood(&mut juliet, BURST).await, BURST, "{transport:?}");
        assert_alive(&mut juliet).await;
        drop(mallory);
        server.advance(60).await;
        let mut mallory = server.login("mallory", "cellar").await;
        assert_eq!(flood(&mut mallory, BURST).await, BURST, "{transport:?}: it is there again");
    }
}

#[tokio::test]
async fn resuming_does_not_refill_the_burst() {
    let server = start(ClientTransport::Tcp).await;
    let mut mallory = server.login("mallory", "cellar").await;
    let previd = enable_resumption(&mut mallory).await;
    assert_eq!(flood(&mut mallory, BURST * 2).await, BURST + 1);
    for _ in 0..3 {
        drop(mallory);
        run_until_idle().await;
        let (client, answer) = resume(&server, "mallory", &previd).await;
        mallory = client;
        assert_eq!(answer.name(), "resumed");
        run_until_idle().await;
        // Unacknowledged stanzas are sent again.
        while mallory.try_receive().await.is_some() {}
        assert_eq!(flood(&mut mallory, BURST).await, 0);
    }
}

#[tokio::test]
async fn many_sessions_that_reconnect_do_not_get_a_burst_each() {
    const SESSIONS: usize = 8;
    for transport in ClientTransport::ALL {
        let server = start(transport).await;
        let mut answered = Vec::new();
        for _round in 0..4 {
            let mut sessions = Vec::new();
            let mut answers = 0;
            for n in 0..SESSIONS {
                let mut mallory = server.login("mallory", &format!("cellar {n}")).await;
                answers += flood(&mut mallory, BURST).await;
                sessions.push(mallory);
            }
            answered.push(answers);
            drop(sessions);
            run_until_idle().await;
            // The time in which one session's burst is refilled.
            server.advance(BURST as u32 / 5).await;
        }
        assert_eq!(answered[0], SESSIONS * BURST, "{transport:?}: each client of a user has its burst");
        for again in &answered[1..] {
            assert!(*again <= BURST, "{transport:?}: {answered:?}: all together one burst at most");
        }
        let mut juliet = server.login("juliet", "balcony").await;
        assert_eq!(flood(&mut juliet, BURST).await, BURST, "{transport:?}");
    }
}

/// Nodes of a cluster with [`start`]'s limits and users.
async fn start_cluster(count: usize) -> TestServers {
    let mut setup = ClientTransport::Tcp.setup();
    setup.limits = NodeLimits { stanzas_per_second: 5, stanzas_burst: BURST as u32, ..NodeLimits::default() };
    let servers = setup.start_cluster(count);
    for user in ["mallory", "juliet"] {
        servers.nodes[0].create_user(user).await;
    }
    servers.settle().await;
    servers
}

#[tokio::test]
async fn reconnecting_at_another_node_does_not_refill_the_burst() {
    for (count, reported_before) in [(2, true), (2, false), (3, true), (3, false)] {
        let servers = start_cluster(count).await;
        // A session that stays keeps the account known on each node.
        let mut idle = Vec::new();
        for (n, server) in servers.nodes.iter().enumerate() {
            idle.push(server.login("mallory", &format!("idle {n}")).await);
        }
        servers.advance(3).await;
        // The next report is due.
        servers.nodes[0].clock.advance(100);
        let mut mallory = servers.nodes[0].login("mallory", "cellar").await;
        assert_eq!(flood(&mut mallory, BURST * 2).await, BURST + 1);
        for n in 1..2 * count {
            drop(mallory);
            run_until_idle().await;
            if reported_before {
                servers.settle().await;
            }
            mallory = servers.nodes[n % count].login("mallory", "cellar").await;
            // The new session ends the earlier one, whose connection was not read while it was in debt.
            for _ in 0..2 {
                servers.settle().await;
                servers.nodes[0].clock.advance(100);
            }
            let answers = flood(&mut mallory, BURST).await;
            // A session that learns of its debt after its start reads one more stanza.
            assert!(answers <= 1, "{answers}: {count} nodes, node {}", n % count);
            // Less than a second: nothing is refilled.
            servers.nodes[0].clock.advance(100);
        }
        assert_alive(&mut servers.nodes[1].login("juliet", "balcony").await).await;
        // What others have spent is not that of sessions that were idle meanwhile.
        servers.advance(3).await;
        for client in &mut idle {
            while client.try_receive().await.is_some() {}
            assert_eq!(flood(client, BURST).await, BURST, "{count} nodes");
        }
    }
}

#[tokio::test]
async fn many_sessions_that_reconnect_at_other_nodes_do_not_get_a_burst_each() {
    const SESSIONS: usize = 6;
    let servers = start_cluster(3).await;
    let mut answered = Vec::new();
    for round in 0..4 {
        let (mut sessions, mut answers) = (Vec::new(), 0);
        for n in 0..SESSIONS {
            let server = &servers.nodes[(n + round) % 3];
            let mut mallory = server.login("mallory", &format!("cellar {n}")).await;
            answers += flood(&mut mallory, BURST).await;
            sessions.push(mallory);
        }
        answered.push(answers);
        drop(sessions);
        servers.settle().await;
        servers.nodes[0].clock.advance(100);
        servers.settle().await;
        // The time in which one session's burst is refilled.
        servers.advance(BURST as u32 / 5).await;
    }
    assert_eq!(answered[0], SESSIONS * BURST, "each client of a user has its burst");
    for again in &answered[1..] {
        assert!(*again <= BURST, "{answered:?}: all together one burst at most");
    }
}
