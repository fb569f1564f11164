//! Conversation tests of personal eventing, from the examples of XEP-0163 1.2.2, with all features.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod access;
mod accounts;
mod avatars;
mod bookmarks;
mod interest;
mod notifications;
mod profiles;
mod several_nodes;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use feature_api::EnabledFeature;
use feature_api::feature::{Feature, FeatureOptions, OptionValue};
use jid::Jid;
use testkit::{NodeClient, TestNode};
use throng_core::NodeLimits;
use throng_features::caps::hash::{CapsAlgorithm, HashedIdentity, xep_0115_input};
use throng_features::registry::ALL;

const TUNE: &str = "http://jabber.org/protocol/tune";
const PUBSUB: &str = "http://jabber.org/protocol/pubsub";
const TUNE_PAYLOAD: &str =
    "<tune xmlns='http://jabber.org/protocol/tune'><artist>Gerald Finzi</artist></tune>";

/// A node with the users of the examples: nurse and romeo see the presence of juliet, benvolio does not.
fn verona() -> TestNode {
    let engine = TestNode::new(ALL);
    people(&engine);
    engine
}

/// The same with an option of a feature.
fn verona_with(feature: &str, option: &str, value: i64) -> TestNode {
    let enabled = |feature: &&'static Feature| EnabledFeature {
        feature,
        options: FeatureOptions::defaults(feature.options),
    };
    let mut enabled: Vec<EnabledFeature> = ALL.iter().map(enabled).collect();
    let one = enabled.iter_mut().find(|one| one.feature.name == feature).unwrap();
    one.options.set(one.feature.options, option, OptionValue::Int(value)).unwrap();
    let engine = TestNode::start(&enabled, NodeLimits::default());
    people(&engine);
    engine
}

/// Runs the tasks of a node whose tasks may wait until none continues.
fn settle(engine: &TestNode) {
    (0..20).for_each(|_| engine.run_tasks());
}

fn people(engine: &TestNode) {
    for user in ["juliet", "romeo", "nurse", "benvolio"] {
        engine.create_user(user);
    }
    engine.befriend("juliet", "romeo");
    engine.befriend("juliet", "nurse");
    engine.edit_roster_item("juliet", "nurse@example.com", |item| item.groups = vec!["Servants".into()]);
}

fn ver(features: &[&str]) -> String {
    let identity = HashedIdentity { category: "client", kind: "pc", lang: "", name: "" };
    BASE64_STANDARD.encode(CapsAlgorithm::Sha1.digest(&xep_0115_input(&[identity], features, &[])))
}

fn features_of(nodes: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = nodes.iter().map(|node| format!("{node}+notify")).collect();
    all.push("http://jabber.org/protocol/disco#info".to_owned());
    all.sort_unstable();
    all
}

/// Presence with the capabilities of a client that is interested in these nodes.
fn presence(nodes: &[&str]) -> String {
    let features = features_of(nodes);
    let features: Vec<&str> = features.iter().map(String::as_str).collect();
    format!(
        "<presence><c xmlns='http://jabber.org/protocol/caps' hash='sha-1' node='http://c' ver='{}'/></presence>",
        ver(&features)
    )
}

/// Answers the query for capabilities among what a client has received; whether there was one.
fn answer_query(client: &NodeClient, received: &[String], nodes: &[&str]) -> bool {
    let Some(query) = received.iter().find(|one| one.starts_with("<iq ") && one.contains("disco#info"))
    else {
        return false;
    };
    let id = attribute(query, "id");
    let features: String = features_of(nodes).iter().map(|var| format!("<feature var='{var}'/>")).collect();
    client.send(&format!(
        "<iq to='example.com' type='result' id='{id}'><query xmlns='http://jabber.org/protocol/disco#info'>\
         <identity category='client' type='pc'/>{features}</query></iq>"
    ));
    true
}

/// A session that is available, and whose client is interested in these nodes.
fn connect(engine: &TestNode, user: &str, resource: &str, nodes: &[&str]) -> NodeClient {
    let client = engine.connect(user, resource);
    become_available(&client, nodes);
    client
}

/// Sends presence, answers the query for capabilities, and returns everything that the client has received.
fn become_available(client: &NodeClient, nodes: &[&str]) -> Vec<String> {
    client.send(&presence(nodes));
    let mut received = client.recv();
    answer_query(client, &received, nodes);
    received.extend(client.recv());
    received
}

fn pubsub(client: &NodeClient, to: &str, kind: &str, ns: &str, content: &str) -> Vec<String> {
    let to = if to.is_empty() { String::new() } else { format!(" to='{to}'") };
    client.request(&format!(
        "<iq type='{kind}'{to} id='r1'><pubsub xmlns='{PUBSUB}{ns}'>{content}</pubsub></iq>"
    ))
}

fn answer(received: Vec<String>) -> String {
    received.iter().find(|one| one.starts_with("<iq ")).unwrap_or_else(|| panic!("{received:?}")).clone()
}

fn set(client: &NodeClient, content: &str) -> String {
    answer(pubsub(client, "", "set", "", content))
}

fn get(client: &NodeClient, to: &str, content: &str) -> String {
    answer(pubsub(client, to, "get", "", content))
}

fn publish_request(node: &str, id: &str) -> String {
    format!("<publish node='{node}'><item id='{id}'>{TUNE_PAYLOAD}</item></publish>")
}

/// Publishes, and returns everything that the client has received.
fn publish(client: &NodeClient, node: &str, id: &str) -> Vec<String> {
    let received = pubsub(client, "", "set", "", &publish_request(node, id));
    assert!(answer(received.clone()).contains("type='result'"), "{received:?}");
    received
}

fn form(kind: &str, fields: &[(&str, &str)]) -> String {
    let field =
        |(var, value): &(&str, &str)| format!("<field var='pubsub#{var}'><value>{value}</value></field>");
    let fields: String = fields.iter().map(field).collect();
    format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE' type='hidden'><value>{PUBSUB}#{kind}</value>\
         </field>{fields}</x>"
    )
}

fn create(client: &NodeClient, node: &str, fields: &[(&str, &str)]) {
    let configure = form("node_config", fields);
    let answer = set(client, &format!("<create node='{node}'/><configure>{configure}</configure>"));
    assert!(answer.contains("type='result'"), "{answer}");
}

/// Events among what a client has received: `NODE id` for each item.
fn events(received: &[String]) -> Vec<String> {
    let messages = received.iter().filter(|one| one.starts_with("<message ") && one.contains("pubsub#event"));
    messages
        .map(|one| {
            let items = one.split("<items").nth(1).unwrap_or_default();
            let item = items.split("<item ").nth(1).map(|item| attribute(&format!(" {item}"), "id"));
            format!("{} {}", attribute(items, "node"), item.unwrap_or_default())
        })
        .collect()
}

fn attribute(stanza: &str, name: &str) -> String {
    let start = stanza.find(&format!(" {name}='")).unwrap_or_else(|| panic!("no {name} in {stanza}"));
    let rest = &stanza[start + name.len() + 3..];
    rest[..rest.find('\'').unwrap()].to_owned()
}
