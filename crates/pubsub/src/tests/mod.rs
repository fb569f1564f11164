//! Tests from the examples of XEP-0060, on nodes without sockets.

mod abuse;
mod access;
mod collection_graph;
mod collections;
mod commands;
mod discovery;
mod items;
mod limits;
mod owner;
mod persistence;
mod publishing;
mod several_nodes;
mod subscribing;

use feature_api::EnabledFeature;
use feature_api::feature::{FeatureOptions, OptionValue};
use testkit::{NodeClient, TestNode};
use throng_core::NodeLimits;

use crate::FEATURE;
use crate::options::PubSubLimits;

const SERVICE: &str = "pubsub.example.com";
const NODE: &str = "princely_musings";
const STANZAS: &str = "urn:ietf:params:xml:ns:xmpp-stanzas";
const ERRORS: &str = "http://jabber.org/protocol/pubsub#errors";
const ENTRY: &str = "<entry xmlns='http://www.w3.org/2005/Atom'><title>Soliloquy</title></entry>";

/// Limits of the state machine's tests.
pub(crate) fn limits() -> PubSubLimits {
    PubSubLimits {
        items: 100,
        default_items: 10,
        payload_bytes: 1_000,
        affiliations: 10,
        special_subscriptions: 10,
        subscriptions_per_user_and_node: 3,
        form_fields: 64,
        batch_items: 5,
    }
}

/// A node with PubSub and the users of the examples.
struct Denmark {
    engine: TestNode,
}

impl Denmark {
    fn new() -> Denmark {
        Denmark::with(&[])
    }

    fn with(options: &[(&str, OptionValue)]) -> Denmark {
        let mut enabled =
            EnabledFeature { feature: &FEATURE, options: FeatureOptions::defaults(FEATURE.options) };
        for (key, value) in options {
            enabled.options.set(FEATURE.options, key, value.clone()).unwrap();
        }
        let engine = TestNode::start(&[enabled], NodeLimits::default());
        for user in ["hamlet", "francisco", "bernardo", "horatio", "bard"] {
            engine.create_user(user);
        }
        Denmark { engine }
    }

    /// A session of a user that is available, so that it receives messages to its bare address.
    fn connect(&self, user: &str) -> NodeClient {
        self.connect_as(user, "elsinore")
    }

    fn connect_as(&self, user: &str, resource: &str) -> NodeClient {
        let client = self.engine.connect(user, resource);
        make_available(&self.engine, &client);
        client
    }

    /// Hamlet, who has created the node with these fields of its configuration.
    fn node(&self, fields: &[(&str, &str)]) -> NodeClient {
        let hamlet = self.connect("hamlet");
        let created = create(&hamlet, NODE, fields);
        assert!(created.contains("type='result'"), "{created}");
        hamlet
    }
}

/// In place of the feature of presence.
fn make_available(engine: &TestNode, client: &NodeClient) {
    let full = jid::Jid::parse(client.full()).unwrap();
    let account = engine.node.routing_table.find(full.as_ref()).unwrap();
    let session = account.session(full.resource().unwrap()).unwrap();
    session.set_available(throng_core::SharedStanza::parse(b"<presence/>").unwrap(), 0);
    engine.node.announce_readiness(&account);
}

/// A form that is submitted.
fn form(kind: &str, fields: &[(&str, &str)]) -> String {
    let fields: String = fields
        .iter()
        .map(|(var, value)| {
            let values: String = value.split('|').map(|one| format!("<value>{one}</value>")).collect();
            format!("<field var='{var}'>{values}</field>")
        })
        .collect();
    format!(
        "<x xmlns='jabber:x:data' type='submit'><field var='FORM_TYPE' type='hidden'>\
         <value>http://jabber.org/protocol/pubsub#{kind}</value></field>{fields}</x>"
    )
}

/// Sends a request and returns everything that its sender receives.
fn request_all(client: &NodeClient, kind: &str, ns: &str, content: &str) -> Vec<String> {
    client.request(&format!(
        "<iq type='{kind}' to='{SERVICE}' id='r1'><pubsub xmlns='http://jabber.org/protocol/pubsub{ns}'>{content}\
         </pubsub></iq>"
    ))
}

/// The answer among what a client has received.
fn answer_of(received: Vec<String>) -> String {
    let answer = received.iter().find(|one| one.starts_with("<iq "));
    answer.unwrap_or_else(|| panic!("no answer: {received:?}")).clone()
}

fn set(client: &NodeClient, content: &str) -> String {
    answer_of(request_all(client, "set", "", content))
}

fn get(client: &NodeClient, content: &str) -> String {
    answer_of(request_all(client, "get", "", content))
}

fn owner_set(client: &NodeClient, content: &str) -> String {
    answer_of(request_all(client, "set", "#owner", content))
}

fn owner_get(client: &NodeClient, content: &str) -> String {
    answer_of(request_all(client, "get", "#owner", content))
}

fn create(client: &NodeClient, node: &str, fields: &[(&str, &str)]) -> String {
    let configure = match fields.is_empty() {
        true => String::new(),
        false => format!("<configure>{}</configure>", form("node_config", fields)),
    };
    set(client, &format!("<create node='{node}'/>{configure}"))
}

fn configure(client: &NodeClient, fields: &[(&str, &str)]) -> String {
    owner_set(client, &format!("<configure node='{NODE}'>{}</configure>", form("node_config", fields)))
}

/// Subscribes a client's bare address.
fn subscribe(client: &NodeClient) -> String {
    set(client, &format!("<subscribe node='{NODE}' jid='{}'/>", client.bare()))
}

fn publish(client: &NodeClient, id: &str) -> String {
    set(client, &format!("<publish node='{NODE}'><item id='{id}'>{ENTRY}</item></publish>"))
}

fn affiliate(owner: &NodeClient, user: &str, affiliation: &str) -> String {
    owner_set(
        owner,
        &format!(
            "<affiliations node='{NODE}'><affiliation jid='{user}@example.com' affiliation='{affiliation}'/>\
             </affiliations>"
        ),
    )
}

/// What a client has received, without the ids of messages, which are generated.
fn events(client: &NodeClient) -> Vec<String> {
    client.recv().into_iter().map(|one| without_id(&one)).collect()
}

fn without_id(stanza: &str) -> String {
    let Some(start) = stanza.find(" id='").filter(|start| *start < stanza.find('>').unwrap_or(0)) else {
        return stanza.to_owned();
    };
    let end = start + 5 + stanza[start + 5..].find('\'').unwrap() + 1;
    format!("{}{}", &stanza[..start], &stanza[end..])
}

/// A message with an event, as it is received.
fn event(to: &NodeClient, content: &str) -> String {
    event_to(to.bare().as_str(), content)
}

fn event_to(to: &str, content: &str) -> String {
    format!(
        "<message from='{SERVICE}' to='{to}' type='headline'>\
         <event xmlns='http://jabber.org/protocol/pubsub#event'>{content}</event></message>"
    )
}

/// An event with one item.
fn item_event(to: &NodeClient, id: &str) -> String {
    event(to, &format!("<items node='{NODE}'><item id='{id}'>{ENTRY}</item></items>"))
}

/// Asserts that an answer is an error with this type, condition, and PubSub's own condition.
#[track_caller]
fn assert_error(answer: &str, kind: &str, condition: &str, own: &str) {
    let own = if own.is_empty() { String::new() } else { format!("<{own} xmlns='{ERRORS}'") };
    let start = format!("<error type='{kind}'><{condition} xmlns='{STANZAS}'");
    let error = answer.find("<error ").map_or("", |start| &answer[start..]);
    assert!(error.starts_with(&start) && error.contains(&own), "{answer} is not {start}…{own}");
}

/// Asserts that an answer is a result with this payload.
#[track_caller]
fn assert_result(to: &NodeClient, answer: &str, payload: &str) {
    let want = format!("<iq type='result' from='{SERVICE}' to='{}' id='r1'>{payload}</iq>", to.full());
    testkit::assert_same(&[answer], &[want]);
}

/// The value of the first attribute of this name.
fn attribute(stanza: &str, name: &str) -> String {
    let start = stanza.find(&format!(" {name}='")).unwrap_or_else(|| panic!("no {name} in {stanza}"));
    let rest = &stanza[start + name.len() + 3..];
    rest[..rest.find('\'').unwrap()].to_owned()
}
