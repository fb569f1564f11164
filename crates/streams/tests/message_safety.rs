//! Tests of what an acknowledgement to a sender means (XEP-0198, `throng_core::message_backup`): the recipient's client has
//! the message, or a backup of it is stored. In memory; the feature that stores is a stub.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::cell::Cell;
use std::sync::Arc;

use feature_api::feature::{Feature, FeatureBuilder};
use jid::Jid;
use stanza::StanzaKindSet;
use testkit::server::{
    PIPE_BYTES, ReceivedEvent, StreamClient, TestServer, TestServerConfig, run_until_idle,
};
use throng_core::hooks::{DeliverCtx, Flow, Interest, Phase, StopReason};
use throng_core::message_backup::{BeginBackups, CHECKS_PER_PASS, MessageBackup};
use throng_core::session::{StreamManagementConfig, ToRewrite};
use throng_core::{Account, Node, NodeLimits, Session, SharedStanza};

const NS: &str = "xmlns='urn:xmpp:sm:3'";
const MESSAGE: &str = "<message to='juliet@example.com/balcony' type='chat'><body>x</body></message>";

static SM: Feature = Feature {
    name: "sm",
    build: |builder: &mut FeatureBuilder<'_>| {
        let management =
            StreamManagementConfig { resume_seconds: 0, unacked_bytes: 20_000, location: String::new() };
        builder.provide(management);
        builder.message_backup(Arc::new(CountingBackup));
        builder.deliver(
            Phase::Notify,
            Interest::kinds(StanzaKindSet::MESSAGES),
            |ctx: &mut DeliverCtx<'_>| match ctx.session.resource() {
                "consumer" => Flow::Stop(StopReason::Consumed),
                _ => Flow::Next,
            },
        );
    },
    ..Feature::EMPTY
};

thread_local! {
    /// Backups that were stored, and removed.
    static BACKUPS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// Messages that no session holds any more.
    static ABANDONED: Cell<usize> = const { Cell::new(0) };
}

/// Stores at once, and counts.
struct CountingBackup;

impl MessageBackup for CountingBackup {
    fn back_up(&self, _: &Arc<Node>, _: &Arc<Account>, begin_backups: BeginBackups<'_>) {
        let messages = begin_backups();
        let (stored, removed) = BACKUPS.get();
        BACKUPS.set((stored + messages.len(), removed));
        messages.iter().for_each(SharedStanza::settle_delivery);
    }

    fn remove_backups(&self, _: &Arc<Node>, _: &Arc<Account>, messages: Vec<SharedStanza>) {
        let (stored, removed) = BACKUPS.get();
        BACKUPS.set((stored, removed + messages.len()));
    }

    fn abandon_backup(&self, _: &Arc<Node>, _: &Arc<Account>, _: &SharedStanza) {
        ABANDONED.set(ABANDONED.get() + 1);
    }

    fn row_of(&self, _: &Jid, _: &SharedStanza) -> Option<u64> {
        None
    }

    fn adopt_backup(&self, _: &Node, _: &Jid, _: &SharedStanza, _: u64) {}
    fn release_backup(&self, _: &Jid, _: &SharedStanza) {}
}

async fn enable(client: &mut StreamClient) {
    client.send(format!("<enable {NS}/>")).await;
    assert_eq!(client.element().await.name(), "enabled");
}

/// A sender with stream management, and a recipient with or without.
async fn start(managed: bool) -> (TestServer, StreamClient, StreamClient) {
    start_with(managed, PIPE_BYTES).await
}

/// As [`start`], with a connection to the recipient that takes this many bytes which are not read.
async fn start_with(managed: bool, capacity: usize) -> (TestServer, StreamClient, StreamClient) {
    BACKUPS.set((0, 0));
    ABANDONED.set(0);
    let limits = NodeLimits { sessions_per_account: 1000, ..NodeLimits::default() };
    let server = TestServerConfig { features: vec![&SM], limits, ..TestServerConfig::default() }.start();
    server.create_user("juliet").await;
    server.create_user("romeo").await;
    let mut romeo = server.login("romeo", "orchard").await;
    enable(&mut romeo).await;
    let mut juliet = server.connect_with(capacity);
    juliet.login("juliet", "balcony").await;
    if managed {
        enable(&mut juliet).await;
    }
    (server, romeo, juliet)
}

async fn expect_message(juliet: &mut StreamClient, managed: bool) {
    assert_eq!(juliet.element().await.name(), "message");
    if managed {
        assert_eq!(juliet.element().await.name(), "r");
    }
}

#[tokio::test]
async fn a_message_is_acknowledged_to_its_sender_when_the_recipient_has_acknowledged_it() {
    let (server, mut romeo, mut juliet) = start(true).await;
    romeo.send(format!("{MESSAGE}<r {NS}/>")).await;
    romeo.expect(&format!("<a {NS} h='0'/>")).await;
    expect_message(&mut juliet, true).await;
    run_until_idle().await;
    assert_eq!(romeo.try_receive().await, None, "it would be lost with the process");
    juliet.send(format!("<a {NS} h='1'/>")).await;
    romeo.expect(&format!("<a {NS} h='1'/>")).await;
    // No count is sent without a request.
    romeo.send(MESSAGE).await;
    expect_message(&mut juliet, true).await;
    juliet.send(format!("<a {NS} h='2'/>")).await;
    run_until_idle().await;
    assert_eq!(romeo.try_receive().await, None);
    server.advance(1).await;
    server.node.back_up_overdue();
    assert_eq!(BACKUPS.get(), (0, 0));
}

#[tokio::test]
async fn without_stream_management_the_message_is_safe_when_it_is_written() {
    let (server, mut romeo, mut juliet) = start(false).await;
    romeo.send(MESSAGE).await;
    expect_message(&mut juliet, false).await;
    romeo.send(format!("<r {NS}/>")).await;
    romeo.expect(&format!("<a {NS} h='1'/>")).await;
    server.advance(1).await;
    server.node.back_up_overdue();
    assert_eq!(BACKUPS.get(), (0, 0));
}

#[tokio::test]
async fn a_backup_makes_the_message_of_a_slow_client_safe_and_is_removed_when_it_has_it() {
    let (server, mut romeo, mut juliet) = start(true).await;
    romeo.send(format!("{MESSAGE}{MESSAGE}<r {NS}/>")).await;
    romeo.expect(&format!("<a {NS} h='0'/>")).await;
    server.advance(1).await;
    server.node.back_up_overdue();
    romeo.expect(&format!("<a {NS} h='2'/>")).await;
    assert_eq!(BACKUPS.get(), (2, 0));
    assert_eq!(juliet.element().await.name(), "message");
    juliet.send(format!("<a {NS} h='1'/>")).await;
    run_until_idle().await;
    assert_eq!(BACKUPS.get(), (2, 1));
    juliet.send(format!("<a {NS} h='2'/>")).await;
    run_until_idle().await;
    assert_eq!(BACKUPS.get(), (2, 2));
}

#[tokio::test]
async fn a_stream_that_is_closed_in_order_learns_the_final_count() {
    let (_server, mut romeo, mut juliet) = start(true).await;
    romeo.send(format!("{MESSAGE}</stream:stream>")).await;
    expect_message(&mut juliet, true).await;
    run_until_idle().await;
    assert_eq!(romeo.try_receive().await, None, "it waits for the receipt");
    juliet.send(format!("<a {NS} h='1'/>")).await;
    romeo.expect(&format!("<a {NS} h='1'/>")).await;
}

fn session(server: &TestServer, resource: &str) -> Option<Arc<Session>> {
    server.node.routing_table.find(server.address("juliet").as_ref())?.session(resource)
}

/// Stanzas that an outbox holds: in its queue, and what the kernel has not taken.
fn held(session: &Session) -> usize {
    let count = Cell::new(0);
    session.outbox.find_held(|_| {
        count.set(count.get() + 1);
        false
    });
    count.get()
}

/// Identifiers of the stanzas that were received.
async fn received_ids(client: &mut StreamClient) -> Vec<usize> {
    let mut ids = Vec::new();
    while let Some(ReceivedEvent::Element(element)) = client.try_receive().await {
        ids.extend(element.attr("id").map(|id| id.parse::<usize>().unwrap()));
    }
    ids
}

#[tokio::test]
async fn what_a_client_that_always_reads_slowly_has_read_is_safe_and_is_not_delivered_again() {
    const AHEAD: usize = 150;
    let (server, mut romeo, mut juliet) = start_with(false, 1024).await;
    let bound = session(&server, "balcony").unwrap();
    let body = "x".repeat(200);
    let mut read = 0;
    for id in 0..10 * AHEAD {
        let message =
            format!("<message to='juliet@example.com/balcony' id='{id}'><body>{body}</body></message>");
        romeo.send(message).await;
        run_until_idle().await;
        if id >= AHEAD {
            assert_eq!(juliet.element().await.attr("id"), Some(read.to_string()));
            read += 1;
        }
        assert!(held(&bound) <= AHEAD + 1, "{} messages are held after {id}", held(&bound));
    }
    drop(juliet);
    run_until_idle().await;
    let returned = received_ids(&mut romeo).await;
    // What was read or is in the pipe is not among them.
    assert!(returned.len() > 10 && returned.iter().all(|id| *id >= read), "{read} {returned:?}");
}

#[tokio::test]
async fn messages_that_the_kernel_has_not_taken_when_a_stream_ends_are_left_to_their_backups() {
    for broken in [false, true] {
        let (server, _romeo, mut juliet) = start_with(false, 1024).await;
        let bound = session(&server, "balcony").unwrap();
        juliet.send("</stream:stream>").await;
        // In the same poll.
        for _ in 0..10 {
            let from = "from='romeo@example.com/orchard' to='juliet@example.com/balcony'";
            let text = format!("<message {from}><body>{}</body></message>", "x".repeat(300));
            let message = SharedStanza::parse(text.as_bytes()).unwrap();
            assert!(message.track_delivery(server.node.clock.now()) && message.begin_backup());
            assert!(server.node.enqueue(&bound, message, ToRewrite::None));
        }
        if broken {
            drop(juliet);
        }
        run_until_idle().await;
        assert!(session(&server, "balcony").is_none());
        let (removed, abandoned) = (BACKUPS.get().1, ABANDONED.get());
        assert_eq!(removed + abandoned, 10);
        assert!(removed <= if broken { 0 } else { 2 }, "{removed} are lost");
    }
}

#[tokio::test]
async fn a_message_that_a_handler_consumes_for_one_resource_is_not_safe_before_another_has_it() {
    let (server, mut romeo, mut juliet) = start(true).await;
    let _consumer = server.login("juliet", "consumer").await;
    for resource in ["consumer", "balcony"] {
        let bound = session(&server, resource).unwrap();
        bound.set_available(SharedStanza::parse(b"<presence/>").unwrap(), 0);
    }
    romeo
        .send(format!("<message to='juliet@example.com' type='chat'><body>x</body></message><r {NS}/>"))
        .await;
    romeo.expect(&format!("<a {NS} h='0'/>")).await;
    expect_message(&mut juliet, true).await;
    run_until_idle().await;
    assert_eq!(romeo.try_receive().await, None);
    juliet.send(format!("<a {NS} h='1'/>")).await;
    romeo.expect(&format!("<a {NS} h='1'/>")).await;
    // The handler consumes it, and the other resource does not accept it.
    session(&server, "balcony").unwrap().outbox.close_and_drain();
    romeo
        .send(format!("<message to='juliet@example.com' type='chat'><body>x</body></message><r {NS}/>"))
        .await;
    romeo.expect(&format!("<a {NS} h='2'/>")).await;
}

#[tokio::test]
async fn a_pass_checks_a_bounded_number_of_sessions() {
    let (server, ..) = start(false).await;
    let mut clients = Vec::new();
    for n in 0..CHECKS_PER_PASS + 10 {
        let mut client = server.login("juliet", &n.to_string()).await;
        enable(&mut client).await;
        let bound = session(&server, &n.to_string()).unwrap();
        let message = SharedStanza::parse(MESSAGE.as_bytes()).unwrap();
        assert!(message.track_delivery(server.node.clock.now()));
        assert!(server.node.enqueue(&bound, message, ToRewrite::None));
        server.node.watch_delivery(&bound);
        clients.push(client);
    }
    run_until_idle().await;
    server.advance(1).await;
    assert!(server.node.back_up_overdue());
    assert_eq!(BACKUPS.get(), (CHECKS_PER_PASS, 0));
    assert!(!server.node.back_up_overdue());
    assert_eq!(BACKUPS.get(), (CHECKS_PER_PASS + 10, 0));
}
