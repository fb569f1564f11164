//! Three NATS servers that are a cluster: nodes on different ones, and the loss of any.
#![allow(clippy::unwrap_used, reason = "the lints exempt functions marked as tests, not what those call")]

mod harness;

use std::time::Duration;

use async_nats::jetstream::{self, kv, stream::StorageType};
use cluster::conformance::{test_claim, test_envelope};
use cluster::{AddressLocation, Cluster, EnvelopeClass};
use harness::{Nodes, attach, deployment, left, name, runtime, settings, start, wait_until};
use test_databases::NatsServer;
use throng_cluster_nats::NatsSettings;

/// A node that prefers one of the servers.
fn settings_on(servers: &[NatsServer; 3], first: usize, node: &str, deployment: u64) -> NatsSettings {
    let servers = (0..3).map(|number| servers[(first + number) % 3].url()).collect();
    NatsSettings { servers, ..settings("", node, deployment) }
}

fn copies(url: &str, deployment: u64) -> Option<usize> {
    runtime().block_on(async {
        let context = jetstream::new(Box::pin(async_nats::connect(url)).await.ok()?);
        let mut stream = context.get_stream(format!("KV_throng-{deployment:016x}")).await.ok()?;
        stream.info().await.ok().map(|info| info.config.num_replicas)
    })
}

#[test]
fn a_bucket_with_one_copy_gets_three() {
    let servers = NatsServer::start_cluster();
    let deployment = deployment();
    let created = || {
        runtime().block_on(async {
            let context = jetstream::new(Box::pin(async_nats::connect(servers[0].url())).await.unwrap());
            let config = kv::Config {
                bucket: format!("throng-{deployment:016x}"),
                history: 1,
                max_age: Duration::from_secs(10),
                storage: StorageType::File,
                num_replicas: 1,
                ..kv::Config::default()
            };
            context.create_key_value(config).await.is_ok()
        })
    };
    assert!(wait_until(created), "the servers have elected a leader");
    let nodes = Nodes(vec![start(settings_on(&servers, 0, "a", deployment))]);
    assert!(wait_until(|| copies(&servers[1].url(), deployment) == Some(3)));
    assert!(wait_until(|| nodes.0[0].status().problem().is_none()));
}

#[test]
fn nodes_go_on_when_any_of_three_servers_is_lost() {
    let servers = NatsServer::start_cluster();
    let deployment = deployment();
    let names = ["a", "b", "c"];
    let nodes =
        Nodes((0..3).map(|number| start(settings_on(&servers, number, names[number], deployment))).collect());
    nodes.wait_until_connected();
    let inboxes: Vec<_> = nodes.0.iter().map(attach).collect();
    assert!(wait_until(|| copies(&servers[0].url(), deployment) == Some(3)));
    let mut sent = Vec::new();
    let mut send_some = || {
        for _ in 0..50 {
            let text = sent.len().to_string();
            for (from, to) in [(0, "b"), (1, "c"), (2, "a")] {
                let envelope = test_envelope(nodes.0[from].node(), EnvelopeClass::Message, &text);
                nodes.0[from].deliver(name(to), envelope).unwrap();
            }
            nodes.0[0].claim(test_claim(sent.len() as u64, 1, 1));
            sent.push(text);
        }
    };
    for server in &servers {
        assert!(wait_until(|| nodes.0.iter().all(|node| node.status().problem().is_none())));
        send_some();
        server.kill();
        send_some();
        nodes.wait_until_quiet();
        // Longer than a record lives: it is written to the others.
        let written = nodes.0[0].status().announcements;
        assert!(wait_until(|| nodes.0[0].status().announcements >= written + 5));
        assert!(wait_until(|| nodes.0.iter().all(|node| node.status().problem().is_none())));
        server.run();
    }
    nodes.wait_until_quiet();
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        assert_eq!(inboxes[to].texts(name(names[from])), sent);
    }
    assert!(inboxes.iter().all(|inbox| left(inbox).is_empty()), "no membership ended");
    assert!(wait_until(|| nodes.0[2].locate(149, None) != AddressLocation::Nowhere));
}
