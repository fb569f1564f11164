//! Messages that fill a detached session.
//!
//! Done: a sender in nobody's roster sends messages to the full addresses of sessions that lost their connection
//! and can be resumed (XEP-0198), first to fill one session, then to use as much memory as there are such sessions.
//! Several such senders direct presence at one of them, each less than a sender's share and together more than the
//! queue.
//!
//! Rule: XEP-0198, section 5, lets a server keep undelivered stanzas and sets no bound; ejabberd's `max_ack_queue`
//! and Prosody's `smacks_max_queue_size` do, and end the session, which is the attacker's goal.
//!
//! Right: one sender has a share of each queue and a budget for all queues; messages beyond them go to the store,
//! the session can be resumed, and the client gets every message once and in order. Presence that the client did
//! not request is dropped first, and its loss ends no session.

use testkit::server::{StreamClient, TestServer, run_until_idle};

use crate::support::{enable_resumption, resume, start_server};

const NS: &str = "xmlns='urn:xmpp:sm:3'";

/// Logs in and drops the connection; returns the identifier for resumption.
async fn detached(server: &TestServer, user: &str, resource: &str) -> String {
    let mut client = server.login(user, resource).await;
    client.send("<iq type='get' id='roster'><query xmlns='jabber:iq:roster'/></iq>").await;
    client.send("<presence/>").await;
    client.sync().await;
    let id = enable_resumption(&mut client).await;
    drop(client);
    run_until_idle().await;
    id
}

async fn fill(attacker: &mut StreamClient, to: &str, count: u32) {
    let body = "x".repeat(20_000);
    for n in 0..count {
        attacker.send(format!("<message to='{to}' type='chat' id='{n}'><body>{body}</body></message>")).await;
    }
    assert_eq!(attacker.sync().await, [], "all of it is accepted");
}

#[tokio::test]
async fn a_detached_session_filled_by_others_is_resumed_in_order() {
    let server = start_server();
    for user in ["juliet", "nurse", "attacker"] {
        server.create_user(user).await;
    }
    let id = detached(&server, "juliet", "balcony").await;
    let mut attacker = server.login("attacker", "street").await;
    let mut nurse = server.login("nurse", "room").await;
    // More than a session's queue holds, and less than the offline store holds.
    fill(&mut attacker, "juliet@example.com/balcony", 60).await;
    nurse.send("<message to='juliet@example.com' type='chat' id='nurse'><body>Madam!</body></message>").await;
    nurse.sync().await;
    let half = u64::from(server.node.limits().queue_message_bytes) / 2;
    assert!(server.node.backlog.bytes() <= half + 1024, "{}", server.node.backlog.bytes());
    assert_eq!(server.node.routing_table.sessions(), 3);
    let (mut juliet, answer) = resume(&server, "juliet", &id).await;
    assert_eq!(answer.name(), "resumed");
    let (mut ids, mut handled) = (Vec::new(), 0);
    while ids.len() < 61 {
        let seen = juliet.element().await;
        match seen.name().as_str() {
            "message" => {
                handled += 1;
                ids.push(seen.attr("id").expect("an id"));
            }
            "r" => juliet.send(format!("<a {NS} h='{handled}'/>")).await,
            other => panic!("{other}"),
        }
    }
    let expected: Vec<String> = (0..60).map(|n| n.to_string()).chain(["nurse".to_owned()]).collect();
    assert_eq!(ids, expected);
    juliet.send(format!("<a {NS} h='{handled}'/>")).await;
    run_until_idle().await;
    assert_eq!(server.node.backlog.bytes(), 0);
}

#[tokio::test]
async fn presence_of_others_does_not_end_a_detached_session() {
    // Errors to a bare address are delivered by the subscription feature, not by the routing rules.
    for start in ["to='juliet@example.com/balcony'", "to='juliet@example.com' type='error'"] {
        let server = start_server();
        server.create_user("juliet").await;
        let id = detached(&server, "juliet", "balcony").await;
        let status = "x".repeat(16_000);
        for n in 0..40 {
            let user = format!("attacker{n}");
            server.create_user(&user).await;
            let mut attacker = server.login(&user, "street").await;
            attacker.send(format!("<presence {start}><status>{status}</status></presence>")).await;
            attacker.sync().await;
        }
        let waiting = server.node.backlog.bytes();
        let quarter = u64::from(server.node.limits().queue_presence_bytes) / 4;
        assert!(waiting > quarter / 2 && waiting <= quarter, "{start}: {waiting}");
        let (_juliet, answer) = resume(&server, "juliet", &id).await;
        assert_eq!(answer.name(), "resumed", "{start}");
    }
}

#[tokio::test]
async fn one_sender_is_limited_over_all_detached_sessions() {
    const SESSIONS: u32 = 40;
    let server = start_server();
    server.create_user("attacker").await;
    let mut attacker = server.login("attacker", "street").await;
    for n in 0..SESSIONS {
        let user = format!("victim{n}");
        server.create_user(&user).await;
        detached(&server, &user, "phone").await;
        fill(&mut attacker, &format!("{user}@example.com/phone"), 26).await;
    }
    let limits = server.node.limits().clone();
    let waiting = server.node.backlog.bytes();
    let most = u64::from(limits.backlog_bytes_per_sender);
    assert!(waiting <= most && waiting > most / 2, "{waiting}");
    assert_eq!(server.node.routing_table.sessions(), SESSIONS as usize + 1);
    server.advance(301).await;
    run_until_idle().await;
    assert_eq!((server.node.backlog.bytes(), server.node.routing_table.sessions()), (0, 1));
}

#[tokio::test]
async fn an_account_is_limited_over_all_its_detached_sessions() {
    let server = start_server();
    for user in ["juliet", "attacker"] {
        server.create_user(user).await;
    }
    let mut accomplices = Vec::new();
    for n in 0..8 {
        let user = format!("accomplice{n}");
        server.create_user(&user).await;
        accomplices.push(server.login(&user, "x").await);
    }
    for n in 0..8 {
        let resource = format!("phone{n}");
        detached(&server, "juliet", &resource).await;
        // IQ responses are not stored offline.
        let answer = format!(
            "<iq type='result' id='1' to='juliet@example.com/{resource}'><x xmlns='u:x'>{}</x></iq>",
            "x".repeat(20_000)
        );
        for accomplice in &mut accomplices {
            for _ in 0..20 {
                accomplice.send(&answer).await;
            }
            assert_eq!(accomplice.sync().await, []);
        }
    }
    // Each session accepts a minimum of presence, because a session that loses presence cannot be resumed.
    let floors = 8 * u64::from(throng_core::session::backlog::UNCOUNTED_QUEUE_BYTES);
    let most = u64::from(server.node.limits().backlog_bytes_per_account) + floors;
    let waiting = server.node.backlog.bytes();
    assert!(waiting <= most && waiting > most / 2, "{waiting}");
}
