//! Tests of what an acknowledgement to a sender means (XEP-0198, `throng_core::message_backup`): the recipient's client has
//! the message, or a backup of it is stored. In memory; the feature that stores is a stub.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

use std::cell::Cell;
use std::sync::Arc;

use feature_api::feature::{Feature, FeatureBuilder};
use testkit::server::{StreamClient, TestServer, TestServerConfig, run_until_idle};
use throng_core::message_backup::MessageBackup;
use throng_core::session::StreamManagementConfig;
use throng_core::{Account, Node, SharedStanza};

const NS: &str = "xmlns='urn:xmpp:sm:3'";
const MESSAGE: &str = "<message to='juliet@example.com/balcony' type='chat'><body>x</body></message>";

static SM: Feature = Feature {
    name: "sm",
    build: |builder: &mut FeatureBuilder<'_>| {
        let management =
            StreamManagementConfig { resume_seconds: 0, unacked_bytes: 20_000, location: String::new() };
        builder.provide(management);
        builder.message_backup(Arc::new(CountingBackup));
    },
    ..Feature::EMPTY
};

thread_local! {
    /// Backups that were stored, and removed.
    static BACKUPS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

/// Stores at once, and counts.
struct CountingBackup;

impl MessageBackup for CountingBackup {
    fn back_up(&self, _: &Arc<Node>, _: &Arc<Account>, messages: Vec<SharedStanza>) {
        let (stored, removed) = BACKUPS.get();
        BACKUPS.set((stored + messages.len(), removed));
        messages.iter().for_each(SharedStanza::settle_delivery);
    }

    fn remove_backups(&self, _: &Arc<Node>, _: &Arc<Account>, messages: Vec<SharedStanza>) {
        let (stored, removed) = BACKUPS.get();
        BACKUPS.set((stored, removed + messages.len()));
    }

    fn abandon_backup(&self, _: &Arc<Node>, _: &Arc<Account>, _: &SharedStanza) {}
}

async fn enable(client: &mut StreamClient) {
    client.send(format!("<enable {NS}/>")).await;
    assert_eq!(client.element().await.name(), "enabled");
}

/// A sender with stream management, and a recipient with or without.
async fn start(managed: bool) -> (TestServer, StreamClient, StreamClient) {
    BACKUPS.set((0, 0));
    let server = TestServerConfig { features: vec![&SM], ..TestServerConfig::default() }.start();
    server.create_user("juliet").await;
    server.create_user("romeo").await;
    let mut romeo = server.login("romeo", "orchard").await;
    enable(&mut romeo).await;
    let mut juliet = server.login("juliet", "balcony").await;
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
