//! Permissions of NATS users, on real NATS servers: those of docs/cluster.md suffice, and without any of them a node is not ready.
#![allow(clippy::unwrap_used, reason = "the lints exempt functions marked as tests, not what those call")]

mod harness;

use cluster::Cluster;
use harness::{Nodes, deployment, runtime, settings, start, wait_until};
use test_databases::{NatsServer, NatsSetup};
use throng_cluster_nats::{NatsCredentials, NatsError, NatsSettings, check_connection};

/// As in docs/cluster.md, which a test compares.
const PUBLISH: [&str; 11] = [
    "throng.>",
    "$KV.*.*",
    "$JS.API.INFO",
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.CREATE.*",
    "$JS.API.STREAM.UPDATE.*",
    "$JS.API.CONSUMER.CREATE.*",
    "$JS.API.CONSUMER.CREATE.*.*.$KV.*.>",
    "$JS.API.CONSUMER.DELETE.*.*",
    "$JS.API.DIRECT.GET.*.>",
    "$JS.FC.>",
];
const SUBSCRIBE: [&str; 2] = ["throng.>", "_INBOX.>"];
/// What the check does not need: it uses a bucket of its own, with few changes, and watches it once.
const RARE: [&str; 5] = [
    "$JS.API.STREAM.INFO.*",
    "$JS.API.STREAM.UPDATE.*",
    "$JS.API.CONSUMER.CREATE.*.*.$KV.*.>",
    "$JS.API.CONSUMER.DELETE.*.*",
    "$JS.FC.>",
];

fn list(subjects: &[&str]) -> String {
    let quoted: Vec<String> = subjects.iter().map(|subject| format!("\"{subject}\"")).collect();
    quoted.join(", ")
}

/// A user `number` with these permissions.
fn user(number: usize, publish: &[&str], subscribe: &[&str]) -> String {
    format!(
        "{{ user: u{number}, password: p, permissions: {{ publish: {{ allow: [{}] }}, subscribe: {{ allow: [{}] }} }} }}",
        list(publish),
        list(subscribe)
    )
}

fn server(users: &[String]) -> NatsServer {
    let configuration = format!("authorization {{ users: [ {} ] }}", users.join(", "));
    NatsServer::start_with(&NatsSetup { configuration, ..NatsSetup::default() })
}

fn settings_of(number: usize, server: &NatsServer, node: &str, deployment: u64) -> NatsSettings {
    let credentials = NatsCredentials::UserPassword(format!("u{number}"), "p".into());
    NatsSettings { credentials, ..settings(&server.url(), node, deployment) }
}

fn without<'a>(subjects: &[&'a str], one: &str) -> Vec<&'a str> {
    subjects.iter().copied().filter(|subject| *subject != one).collect()
}

#[test]
fn the_documented_permissions_suffice() {
    let text = include_str!("../../../docs/cluster.md");
    for subject in PUBLISH.iter().chain(&SUBSCRIBE) {
        assert!(text.contains(&format!("\"{subject}\"")), "{subject} is not documented");
    }
    let server = server(&[user(0, &PUBLISH, &SUBSCRIBE)]);
    let deployment = deployment();
    let with = |node| settings_of(0, &server, node, deployment);
    let checked = runtime().block_on(check_connection(&with("a")));
    assert!(checked.is_ok(), "{checked:?}\n{}", server.log());
    let nodes = Nodes(["a", "b"].map(|node| start(with(node))).into());
    nodes.wait_until_connected();
    assert!(wait_until(|| nodes.0.iter().all(|node| node.status().problem().is_none())));
    server.stop();
    server.run();
    assert!(wait_until(|| nodes.0.iter().all(|node| node.status().problem().is_none())));
    runtime().block_on(nodes.0[1].leave());
    assert!(wait_until(|| nodes.0[0].members().len() == 1));
    assert!(!server.log().contains("Violation"), "{}", server.log());
}

#[test]
fn without_any_of_the_permissions_the_check_fails() {
    let needed: Vec<(Vec<&str>, Vec<&str>)> = PUBLISH
        .into_iter()
        .filter(|subject| !RARE.contains(subject))
        .map(|subject| (without(&PUBLISH, subject), SUBSCRIBE.to_vec()))
        .chain(SUBSCRIBE.map(|subject| (PUBLISH.to_vec(), without(&SUBSCRIBE, subject))))
        .collect();
    let users: Vec<String> = needed
        .iter()
        .enumerate()
        .map(|(number, (publish, subscribe))| user(number, publish, subscribe))
        .collect();
    let server = server(&users);
    for (number, permissions) in needed.iter().enumerate() {
        let checked = runtime().block_on(check_connection(&settings_of(
            number,
            &server,
            &format!("n{number}"),
            number as u64,
        )));
        assert!(
            matches!(
                checked,
                Err(NatsError::Subject(_) | NatsError::Bucket { .. } | NatsError::JetStream(_))
            ),
            "{checked:?} with {permissions:?}"
        );
    }
}

#[test]
fn a_node_that_may_not_subscribe_or_publish_is_not_ready_and_no_member() {
    let server = server(&[
        user(0, &PUBLISH, &SUBSCRIBE),
        user(1, &PUBLISH, &without(&SUBSCRIBE, "throng.>")),
        user(2, &without(&PUBLISH, "throng.>"), &SUBSCRIBE),
        user(3, &without(&PUBLISH, "$JS.API.DIRECT.GET.*.>"), &SUBSCRIBE),
    ]);
    let deployment = deployment();
    let nodes = Nodes(
        (0..4).map(|number| start(settings_of(number, &server, &format!("n{number}"), deployment))).collect(),
    );
    assert!(wait_until(|| nodes.0[0].status().problem().is_none()));
    for node in &nodes.0[1..3] {
        // Longer than everything else takes.
        assert!(
            wait_until(|| node.status().problem() == Some("messages of NATS to this node do not arrive"))
        );
    }
    assert!(nodes.0[3].status().problem().is_some());
    // The server says what it does not permit, so another connection would not help.
    assert!(wait_until(|| nodes.0[2].status().failed_announcements >= 3));
    assert_eq!(nodes.0[2].status().connections, 1);
    assert_eq!(nodes.0[0].members().len(), 1);
    assert_eq!(nodes.0[1].members().len(), 1);
}
