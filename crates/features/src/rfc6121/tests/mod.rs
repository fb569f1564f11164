//! Tests of RFC 6121, section by section, with users of two virtual hosts.
//!
//! The names are those of the examples: Juliet of example.com and Romeo of example.net.

mod logins;
mod presence;
mod roster;
mod subscription;
mod two_users_model;

use feature_api::feature::Feature;
use testkit::{NodeClient, TestNode};
use throng_core::session::StreamManagementTerms;

/// The three features, in registry order.
const FEATURES: [&Feature; 3] =
    [&super::roster::FEATURE, &super::subscription::FEATURE, &super::presence::FEATURE];

const JULIET: &str = "juliet@example.com";
const ROMEO: &str = "romeo@example.net";

/// Juliet and Romeo have accounts and no subscriptions.
fn two_unrelated_users() -> TestNode {
    let engine = TestNode::new(&FEATURES);
    engine.create_user(JULIET);
    engine.create_user(ROMEO);
    engine
}

/// Connects, requests the roster, becomes available, and drops the received stanzas.
fn online(engine: &TestNode, name: &str, resource: &str) -> NodeClient {
    let client = engine.connect(name, resource);
    client.send("<iq id='r' type='get'><query xmlns='jabber:iq:roster'/></iq>");
    client.send("<presence/>");
    client.recv();
    client
}

/// Detaches a session, as if its connection were lost while its stream can be resumed (XEP-0198).
fn detach(engine: &TestNode, client: &NodeClient) {
    let terms = StreamManagementTerms { resume_seconds: 60, unacked_bytes: 1 << 20, sm2: false };
    assert!(client.session.outbox.enable_management(terms, [1; 16]));
    assert!(engine.node.detach_session(&client.session));
}

/// Forty users in nobody's roster each send a large presence with these attributes: together twice what a queue
/// holds.
fn send_presence_of_many(engine: &TestNode, attributes: &str) {
    let status = "x".repeat(16_000);
    for n in 0..40 {
        let name = format!("user{n}@example.org");
        engine.create_user(&name);
        let client = engine.connect(&name, "x");
        client.send(&format!("<presence {attributes}><status>{status}</status></presence>"));
    }
}

/// Number of stanzas from this address that wait for a detached session.
fn count_queued_from(client: &NodeClient, from: &str) -> usize {
    let from = format!(" from='{from}'");
    client.recv().iter().filter(|stanza| stanza.contains(&from)).count()
}

/// Replaces random and counted parts with `*`, so that stanzas can be compared: ids of pushes, versions, stamps.
fn without_random_parts(stanzas: Vec<String>) -> Vec<String> {
    stanzas
        .into_iter()
        .map(|stanza| {
            let stanza = blank(&stanza, " ver='");
            let stanza = blank(&stanza, " stamp='");
            if stanza.contains(" type='set'") { blank(&stanza, " id='") } else { stanza }
        })
        .collect()
}

fn blank(text: &str, before: &str) -> String {
    let Some(start) = text.find(before).map(|at| at + before.len()) else { return text.to_owned() };
    let end = text[start..].find('\'').map_or(text.len(), |at| start + at);
    format!("{}*{}", &text[..start], &text[end..])
}

/// A push as a client receives it.
fn push(to: &str, item: &str) -> String {
    format!("<iq type='set' id='*' to='{to}'><query xmlns='jabber:iq:roster' ver='*'>{item}</query></iq>")
}

/// Condition of the only stanza, which must be an error.
fn error(stanzas: &[String]) -> (String, String) {
    assert_eq!(stanzas.len(), 1, "{stanzas:?}");
    assert!(stanzas[0].contains("type='error'"), "{stanzas:?}");
    let kind = stanzas[0].split("<error type='").nth(1).unwrap().split('\'').next().unwrap();
    let rest = stanzas[0].split("<error type='").nth(1).unwrap();
    let condition = rest.split('<').nth(1).unwrap().split(' ').next().unwrap();
    (kind.to_owned(), condition.to_owned())
}

fn is(kind: &str, condition: &str) -> (String, String) {
    (kind.to_owned(), condition.to_owned())
}

fn without_id(stanza: &str) -> String {
    match stanza.split_once(" id='") {
        Some((before, rest)) => format!("{before}{}", rest.split_once('\'').unwrap().1),
        None => stanza.to_owned(),
    }
}
