//! Order of the stanzas of one sender to one session when the home of its account moves: RFC 6121, section 8.1, and RFC 6120,
//! section 10.1.
//!
//! Juliet has sessions on three nodes. Her home has sent a stanza of Romeo's to the third one, where it is late, and her session on the
//! home ends.

use testkit::{NodeClient, TestNodes};
use throng_core::SharedStanza;
use throng_e2e::chain_observer::observed_features;

fn online(nodes: &TestNodes, node: usize, user: &str, resource: &str) -> NodeClient {
    let client = nodes.node(node).connect(user, resource);
    client.send("<presence/>");
    nodes.settle();
    client.recv();
    nodes.settle();
    client
}

fn ids(client: &NodeClient) -> Vec<String> {
    let id = |text: &String| {
        let stanza = SharedStanza::parse(text.as_bytes())?;
        stanza.head().id(stanza.bytes()).map(|id| id.to_string())
    };
    client.recv().iter().filter_map(id).collect()
}

/// Sends one stanza before the home moves and one after it. Returns their ids in the order in which they arrived.
fn order_of(sender_node: usize, first: &str, second: &str) -> Vec<String> {
    let nodes = TestNodes::new(4, &observed_features());
    for user in ["romeo", "juliet"] {
        nodes.node(0).create_user(user);
    }
    nodes.node(0).befriend("romeo", "juliet");
    let juliet = [0, 1, 2].map(|node| online(&nodes, node, "juliet", &format!("at-{node}")));
    let romeo = online(&nodes, sender_node, "romeo", "orchard");
    juliet.iter().for_each(|client| drop(client.recv()));
    nodes.settle();
    let send = |stanza: &str, id: &str| {
        romeo.send(&stanza.replacen(' ', &format!(" to='juliet@example.com/at-2' id='{id}' "), 1));
    };
    let step = |count| {
        for _ in 0..count {
            nodes.step();
            romeo.recv();
        }
    };
    nodes.cut(0, 2);
    send(first, "first");
    step(4);
    juliet[0].close();
    step(4);
    send(second, "second");
    step(8);
    let mut received = ids(&juliet[2]);
    nodes.heal(0, 2);
    for _ in 0..3 {
        nodes.settle();
        romeo.recv();
        received.extend(ids(&juliet[2]));
    }
    received.retain(|id| matches!(id.as_str(), "first" | "second"));
    received
}

const MESSAGE: &str = "<message type='chat'><body>Hello</body></message>";
const REQUEST: &str = "<iq type='get'><ping xmlns='urn:xmpp:ping'/></iq>";
const PRESENCE: &str = "<presence xml:lang='en'/>";

#[test]
fn a_stanza_does_not_overtake_one_that_its_senders_node_has_sent_as_the_home() {
    for first in [MESSAGE, REQUEST, PRESENCE] {
        assert_eq!(order_of(0, first, MESSAGE), ["first", "second"], "{first}");
    }
}

#[test]
fn a_stanza_does_not_overtake_one_that_the_former_home_has_sent_on() {
    for first in [MESSAGE, REQUEST, PRESENCE] {
        assert_eq!(order_of(3, first, MESSAGE), ["first", "second"], "{first}");
    }
}
