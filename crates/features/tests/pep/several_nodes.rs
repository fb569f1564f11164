//! Personal eventing in a cluster: requests, events and last items, wherever the users are.

use testkit::TestNodes;

use super::*;

struct Cluster(TestNodes);

impl Cluster {
    fn new(count: usize) -> Cluster {
        let nodes = TestNodes::new(count, ALL);
        people(nodes.node(0));
        nodes.settle();
        Cluster(nodes)
    }

    fn connect(&self, at: usize, user: &str, resource: &str, nodes: &[&str]) -> (NodeClient, Vec<String>) {
        let client = self.0.node(at % self.0.alive().len()).connect(user, resource);
        self.0.settle();
        client.send(&presence(nodes));
        self.0.settle();
        let mut received = client.recv();
        answer_query(&client, &received, nodes);
        self.0.settle();
        received.extend(client.recv());
        (client, events(&received))
    }

    fn request(&self, client: &NodeClient, to: &str, kind: &str, content: &str) -> Vec<String> {
        let to = if to.is_empty() { String::new() } else { format!(" to='{to}'") };
        client
            .send(&format!("<iq type='{kind}'{to} id='r1'><pubsub xmlns='{PUBSUB}'>{content}</pubsub></iq>"));
        self.0.settle();
        client.recv()
    }
}

#[test]
fn users_on_all_nodes_of_a_cluster() {
    for count in 1..=3 {
        let cluster = Cluster::new(count);
        let (juliet, _) = cluster.connect(0, "juliet", "balcony", &[TUNE]);
        let (chamber, _) = cluster.connect(1, "juliet", "chamber", &[TUNE]);
        let (romeo, _) = cluster.connect(1, "romeo", "orchard", &[TUNE]);
        let (nurse, _) = cluster.connect(2, "nurse", "chamber", &[TUNE]);
        let (benvolio, _) = cluster.connect(2, "benvolio", "street", &[TUNE]);
        let want = [format!("{TUNE} 1")];
        let received = cluster.request(&juliet, "", "set", &publish_request(TUNE, "1"));
        assert!(answer(received.clone()).contains("type='result'"), "{received:?}");
        assert_eq!(events(&received), want, "{count}");
        for client in [&chamber, &romeo, &nurse] {
            assert_eq!(events(&client.recv()), want, "{count}: {}", client.full());
        }
        assert!(benvolio.recv().is_empty());
        let items = cluster.request(&romeo, "juliet@example.com", "get", &format!("<items node='{TUNE}'/>"));
        assert!(items.concat().contains(TUNE_PAYLOAD), "{items:?}");
        let refused =
            cluster.request(&benvolio, "juliet@example.com", "get", &format!("<items node='{TUNE}'/>"));
        assert!(refused.concat().contains("<item-not-found "), "{refused:?}");
        for at in 0..count {
            let (_, last) = cluster.connect(at, "romeo", &format!("late{at}"), &[TUNE]);
            assert_eq!(last, want, "{count}: late on {at}");
            let (_, none) = cluster.connect(at, "benvolio", &format!("late{at}"), &[TUNE]);
            assert!(none.is_empty());
        }
    }
}

#[test]
fn requests_are_answered_wherever_the_owner_of_the_nodes_is() {
    for count in 2..=3 {
        for (own, other) in (0..count).flat_map(|own| (0..count).map(move |other| (own, other))) {
            let cluster = Cluster::new(count);
            let at = format!("{count} nodes, juliet at {own}, romeo at {other}");
            let (juliet, _) = cluster.connect(own, "juliet", "balcony", &[]);
            let (romeo, _) = cluster.connect(other, "romeo", "orchard", &[]);
            let answered = |client: &NodeClient, to: &str, kind: &str, content: &str| {
                let received = cluster.request(client, to, kind, content);
                let answers: Vec<&String> = received.iter().filter(|one| one.starts_with("<iq ")).collect();
                assert_eq!(answers.len(), 1, "{at}: {content}: {received:?}");
                assert_eq!(attribute(answers[0], "to"), client.full(), "{at}: {content}");
                answers[0].clone()
            };
            for (to, id) in [("", "1"), ("juliet@example.com", "2")] {
                let published = answered(&juliet, to, "set", &publish_request(TUNE, id));
                assert!(published.contains("type='result'"), "{at}: {published}");
            }
            let items = answered(&romeo, "juliet@example.com", "get", &format!("<items node='{TUNE}'/>"));
            assert!(items.contains("<item id='2'"), "{at}: {items}");
            let refused = answered(&romeo, "juliet@example.com", "set", &publish_request(TUNE, "3"));
            assert!(refused.contains("<forbidden "), "{at}: {refused}");
            // What one node changes, all others know: they do not act as a second owner.
            let subscribe = format!("<subscribe node='{TUNE}' jid='romeo@example.com'/>");
            let subscribed = answered(&romeo, "juliet@example.com", "set", &subscribe);
            assert!(subscribed.contains("subscription='subscribed'"), "{at}: {subscribed}");
            romeo.recv();
            answered(&juliet, "", "set", &publish_request(TUNE, "4"));
            assert_eq!(events(&romeo.recv()), [format!("{TUNE} 4")], "{at}");
        }
    }
}

#[test]
fn nodes_in_service_discovery_are_known_on_every_node_of_a_cluster() {
    let cluster = Cluster::new(3);
    let commands = "http://jabber.org/protocol/commands";
    for at in 0..3 {
        let (juliet, _) = cluster.connect(at, "juliet", &format!("at{at}"), &[]);
        cluster.request(&juliet, "", "set", &publish_request(TUNE, "1"));
        for to in ["", " to='juliet@example.com'"] {
            for (what, node, want) in [
                ("info", TUNE, "type='leaf'"),
                ("items", TUNE, "name='1'"),
                ("info", commands, "type='command-list'"),
                ("items", commands, "type='result'"),
                ("info", "none", "<item-not-found "),
            ] {
                juliet.send(&format!(
                    "<iq type='get'{to} id='d'><query xmlns='http://jabber.org/protocol/disco#{what}' node='{node}'/></iq>"
                ));
                cluster.0.settle();
                let received = answer(juliet.recv());
                assert!(received.contains(want), "{at}, {what} {node}{to}: {received}");
            }
        }
    }
}

#[test]
fn a_photo_is_converted_and_announced_on_every_node_of_a_cluster() {
    let metadata = "urn:xmpp:avatar:metadata";
    for (count, at) in [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
        let cluster = Cluster::new(count);
        let (juliet, _) = cluster.connect(at, "juliet", "balcony", &[]);
        let (chamber, _) = cluster.connect(at + 1, "juliet", "chamber", &[metadata]);
        let (romeo, _) = cluster.connect(at + 2, "romeo", "orchard", &[metadata]);
        juliet.send(&format!("<iq type='set' id='v'>{}</iq>", avatars::VCARD));
        cluster.0.settle();
        let want = [format!("{metadata} {}", avatars::SHA1)];
        for client in [&chamber, &romeo] {
            let received = client.recv();
            assert_eq!(events(&received), want, "{count}, {at}: {}", client.full());
            for resource in ["balcony", "chamber"] {
                let from = format!("from='juliet@example.com/{resource}'");
                let is_announced = |one: &String| one.contains(&from) && one.contains(avatars::SHA1);
                assert!(received.iter().any(is_announced), "{count}, {at}, {resource}: {received:?}");
            }
        }
    }
}

#[test]
fn an_event_is_one_envelope_for_each_node_with_contacts() {
    let cluster = Cluster::new(3);
    let (juliet, _) = cluster.connect(0, "juliet", "balcony", &[]);
    let clients: Vec<NodeClient> = (0..6)
        .map(|i| cluster.connect(1, if i % 2 == 0 { "romeo" } else { "nurse" }, &format!("r{i}"), &[TUNE]).0)
        .collect();
    cluster.request(&juliet, "", "set", &publish_request(TUNE, "1"));
    cluster.0.take_envelopes();
    cluster.request(&juliet, "", "set", &publish_request(TUNE, "2"));
    // At most: the request to the owner, the answer, and the event for the node with the contacts.
    let envelopes = cluster.0.take_envelopes();
    assert!(envelopes <= 3, "{envelopes}");
    for client in clients {
        assert_eq!(events(&client.recv()).last().unwrap(), &format!("{TUNE} 2"));
    }
}

#[test]
fn a_blocked_contact_on_another_node_receives_nothing() {
    let cluster = Cluster::new(2);
    let (juliet, _) = cluster.connect(0, "juliet", "balcony", &[]);
    let (romeo, _) = cluster.connect(1, "romeo", "orchard", &[TUNE]);
    juliet.send(
        "<iq type='set' id='b'><block xmlns='urn:xmpp:blocking'><item jid='romeo@example.com'/></block></iq>",
    );
    cluster.0.settle();
    romeo.recv();
    cluster.request(&juliet, "", "set", &publish_request(TUNE, "1"));
    assert!(events(&romeo.recv()).is_empty());
    let (_, last) = cluster.connect(1, "romeo", "late", &[TUNE]);
    assert!(last.is_empty());
}
