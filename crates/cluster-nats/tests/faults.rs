//! Faults on a real NATS server: it restarts or is gone, nodes are cut off, killed, restarted, and named twice.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests wait for real processes, which no clock of ours moves; the lints exempt functions marked as tests, not what those call"
)]

mod harness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::conformance::{InboxRecorder, test_claim, test_envelope};
use cluster::{AddressLocation, Cluster, EnvelopeClass, RefusalReason};
use harness::{
    Nodes, attach, deployment, left, name, new_runtime, settings, shared_server, start, start_on,
    undelivered, wait_until,
};
use test_databases::{NatsServer, Proxy};
use throng_cluster_nats::NatsCluster;

fn send(from: &Arc<NatsCluster>, to: &str, text: &str) -> Result<(), RefusalReason> {
    let envelope = test_envelope(from.node(), EnvelopeClass::Message, text);
    from.deliver(name(to), envelope).map(drop).map_err(|refused| refused.reason)
}

fn has(inbox: &InboxRecorder, from: &str, text: &str) -> bool {
    inbox.texts(name(from)).iter().any(|known| known == text)
}

/// All members but one have lost it.
const DETECTION: std::ops::Range<u64> = 6..15;

#[test]
fn a_restart_of_nats_loses_nothing_and_ends_no_membership() {
    let server = NatsServer::start();
    let nodes = Nodes::start(&server.url(), &["a", "b"]);
    let [one, two] = [&nodes.0[0], &nodes.0[1]];
    let [inbox, other] = [attach(one), attach(two)];
    let mut sent = Vec::new();
    let mut send_some = |count: usize| {
        for _ in 0..count {
            let text = sent.len().to_string();
            send(one, "b", &text).unwrap();
            two.claim(test_claim(sent.len() as u64, 1, 1));
            sent.push(text);
        }
    };
    for stop in [NatsServer::stop, NatsServer::kill] {
        send_some(100);
        stop(&server);
        assert!(wait_until(|| !one.status().connected && !two.status().connected));
        assert!(one.status().problem().is_some());
        send_some(100);
        server.run();
        assert!(wait_until(|| one.status().problem().is_none() && two.status().problem().is_none()));
        send_some(100);
        nodes.wait_until_quiet();
    }
    assert_eq!(other.texts(name("a")), sent);
    assert_eq!(inbox.claims().len(), sent.len());
    assert!(left(&inbox).is_empty() && left(&other).is_empty());
}

#[test]
fn without_nats_the_others_are_gone_after_ten_seconds_and_it_heals() {
    let server = NatsServer::start();
    let nodes = Nodes::start(&server.url(), &["a", "b", "c"]);
    let inboxes: Vec<_> = nodes.0.iter().map(attach).collect();
    let claim = test_claim(9, 1, 1);
    nodes.0.iter().for_each(|node| node.claim(claim));
    nodes.wait_until_quiet();
    server.kill();
    let begun = Instant::now();
    send(&nodes.0[0], "b", "returns").unwrap();
    assert!(wait_until(|| inboxes.iter().all(|inbox| left(inbox).len() == 2)));
    assert!(DETECTION.contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(undelivered(&inboxes[0]), ["returns"]);
    for (node, inbox) in nodes.0.iter().zip(&inboxes) {
        assert!(left(inbox).iter().all(|(_, claims, orderly)| *claims == [claim] && !orderly));
        assert_eq!(node.locate(9, None), AddressLocation::Here);
        assert_eq!(node.status().problem(), Some("no connection to NATS"));
    }
    assert_eq!(send(&nodes.0[0], "b", "x"), Err(RefusalReason::UnknownNode));
    let begun = Instant::now();
    server.run();
    nodes.wait_until_connected();
    assert!(begun.elapsed() < Duration::from_secs(15), "healed after {:?}", begun.elapsed());
    nodes.wait_until_quiet();
    for node in &nodes.0 {
        assert_eq!(node.locate(9, None).other_nodes(node.node()).count(), 2);
    }
    send(&nodes.0[0], "b", "again").unwrap();
    assert!(wait_until(|| has(&inboxes[1], "a", "again")));
}

/// A node reaches NATS through a proxy that carries nothing for a while, or refuses it.
fn cut_and_heal(cut: fn(&Proxy), heal: fn(&Proxy)) {
    let proxy = Proxy::start(shared_server().address());
    let deployment = deployment();
    let nodes = Nodes(vec![
        start(settings(&shared_server().url(), "a", deployment)),
        start(settings(&format!("nats://{}", proxy.address()), "b", deployment)),
        start(settings(&shared_server().url(), "c", deployment)),
    ]);
    nodes.wait_until_connected();
    let inboxes: Vec<_> = nodes.0.iter().map(attach).collect();
    nodes.0[1].claim(test_claim(4, 1, 1));
    nodes.wait_until_quiet();
    cut(&proxy);
    let begun = Instant::now();
    send(&nodes.0[0], "b", "lost").unwrap();
    send(&nodes.0[1], "c", "lost, too").unwrap();
    assert!(wait_until(|| left(&inboxes[0]).len() == 1 && left(&inboxes[2]).len() == 1));
    assert!(DETECTION.contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(left(&inboxes[0]), [(name("b"), vec![test_claim(4, 1, 1)], false)]);
    assert!(wait_until(|| left(&inboxes[1]).len() == 2), "it considers the others gone, too");
    assert_eq!(
        (undelivered(&inboxes[0]), undelivered(&inboxes[1])),
        (vec!["lost".into()], vec!["lost, too".into()])
    );
    assert!(wait_until(|| nodes.0[1].status().problem().is_some()));
    heal(&proxy);
    let begun = Instant::now();
    nodes.wait_until_connected();
    assert!(begun.elapsed() < Duration::from_secs(15), "healed after {:?}", begun.elapsed());
    nodes.wait_until_quiet();
    assert_eq!(nodes.0[0].locate(4, None).home(name("a")), Some(name("b")));
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 1)] {
        let text = format!("{from} to {to}");
        send(&nodes.0[from], nodes.0[to].node().as_str(), &text).unwrap();
        let from = nodes.0[from].node();
        assert!(wait_until(|| has(&inboxes[to], from.as_str(), &text)));
    }
}

#[test]
fn a_node_that_is_refused_by_nats_is_cut_off_and_heals() {
    cut_and_heal(|proxy| proxy.refuse(true), |proxy| proxy.refuse(false));
}

#[test]
fn a_node_whose_connection_is_silent_is_cut_off_and_heals() {
    cut_and_heal(
        |proxy| {
            proxy.refuse_new(true);
            proxy.strand();
        },
        |proxy| proxy.refuse_new(false),
    );
}

#[test]
fn connections_that_break_all_the_time_lose_and_reorder_nothing() {
    let proxies = [Proxy::start(shared_server().address()), Proxy::start(shared_server().address())];
    let deployment = deployment();
    let node =
        |node, proxy: &Proxy| start(settings(&format!("nats://{}", proxy.address()), node, deployment));
    let nodes = Nodes(vec![node("a", &proxies[0]), node("b", &proxies[1])]);
    nodes.wait_until_connected();
    let inboxes: Vec<_> = nodes.0.iter().map(attach).collect();
    let mut sent = Vec::new();
    for round in 0..30 {
        for number in 0..100 {
            let text = format!("{round} {number}");
            send(&nodes.0[0], "b", &text).unwrap();
            send(&nodes.0[1], "a", &text).unwrap();
            sent.push(text);
        }
        proxies[round % 2].cut();
        std::thread::sleep(Duration::from_millis(20));
    }
    nodes.wait_until_quiet();
    assert_eq!(inboxes[0].texts(name("b")), sent);
    assert_eq!(inboxes[1].texts(name("a")), sent);
    assert!(left(&inboxes[0]).is_empty());
}

#[test]
fn three_nodes_join_leave_are_killed_and_return() {
    let url = shared_server().url();
    let deployment = deployment();
    let process = new_runtime();
    let killed = start_on(settings(&url, "b", deployment), process.handle());
    let nodes = Nodes(vec![start(settings(&url, "a", deployment)), start(settings(&url, "c", deployment))]);
    assert!(wait_until(|| nodes.0.iter().all(|node| node.members().len() == 3)));
    let inboxes: Vec<_> = nodes.0.iter().map(attach).collect();
    let inbox_of_killed = attach(&killed);
    let claim = test_claim(5, 1, 1);
    killed.claim(claim);
    assert!(wait_until(|| nodes.0[0].locate(5, None) != AddressLocation::Nowhere));
    send(&killed, "a", "safe").unwrap();
    assert!(wait_until(|| has(&inboxes[0], "b", "safe")));
    process.shutdown_background();
    let begun = Instant::now();
    send(&nodes.0[0], "b", "returns").unwrap();
    assert!(wait_until(|| inboxes.iter().all(|inbox| left(inbox) == [(name("b"), vec![claim], false)])));
    assert!(DETECTION.contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert_eq!(undelivered(&inboxes[0]), ["returns"]);
    assert!(inbox_of_killed.texts(name("a")).is_empty());
    // It returns, and another one comes.
    let again = start(settings(&url, "b", deployment));
    let fourth = start(settings(&url, "d", deployment));
    let more = Nodes(vec![again, fourth]);
    assert!(wait_until(|| nodes.0.iter().chain(&more.0).all(|node| node.members().len() == 4)));
    send(&nodes.0[0], "b", "welcome back").unwrap();
    let inbox = attach(&more.0[0]);
    // Envelopes before there is an inbox are refused.
    send(&nodes.0[0], "b", "now").unwrap();
    assert!(wait_until(|| has(&inbox, "a", "now")));
    // One leaves, and restarts at once.
    more.0[1].claim(test_claim(6, 1, 1));
    assert!(wait_until(|| nodes.0[0].locate(6, None) != AddressLocation::Nowhere));
    harness::runtime().block_on(more.0[1].leave());
    assert!(wait_until(|| left(&inboxes[0]).contains(&(name("d"), vec![test_claim(6, 1, 1)], true))));
    let fourth = Nodes(vec![start(settings(&url, "d", deployment))]);
    assert!(wait_until(|| nodes.0.iter().chain(&fourth.0).all(|node| node.members().len() == 4)));
}

#[test]
fn a_second_process_with_the_same_name_takes_it_over() {
    let url = shared_server().url();
    let deployment = deployment();
    let nodes = Nodes(vec![start(settings(&url, "a", deployment)), start(settings(&url, "b", deployment))]);
    nodes.wait_until_connected();
    let inbox = attach(&nodes.0[0]);
    let second = Nodes(vec![start(settings(&url, "b", deployment))]);
    assert!(wait_until(|| nodes.0[1].status().superseded));
    assert!(nodes.0[1].status().problem().is_some_and(|problem| problem.contains("name of this node")));
    assert!(wait_until(|| nodes.0[0].members().len() == 2 && second.0[0].members().len() == 2));
    assert_eq!(left(&inbox).len(), 1);
    assert_eq!(nodes.0[1].members().len(), 1);
    assert_eq!(second.0[0].status().problem(), None);
}

#[test]
fn a_node_starts_without_nats_and_joins_when_it_is_there() {
    let server = NatsServer::start();
    server.kill();
    let deployment = deployment();
    let nodes = Nodes(["a", "b"].map(|node| start(settings(&server.url(), node, deployment))).into());
    let claim = test_claim(3, 1, 1);
    nodes.0[0].claim(claim);
    assert_eq!(nodes.0[0].locate(3, None), AddressLocation::Here);
    assert_eq!(nodes.0[0].members().len(), 1);
    assert!(nodes.0[0].status().problem().is_some());
    server.run();
    nodes.wait_until_connected();
    assert!(wait_until(|| nodes.0[1].locate(3, None) != AddressLocation::Nowhere));
    server.kill();
    // A node that cannot reach the others leaves all the same.
    harness::runtime().block_on(nodes.0[1].leave());
    assert!(nodes.0[1].members().is_empty());
}
