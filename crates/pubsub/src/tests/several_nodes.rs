//! PubSub in a cluster: subscribers on all nodes, owners that change, and one message for each node of the cluster.

use testkit::TestNodes;

use super::*;

const NODES: usize = 8;

fn name(number: usize) -> String {
    format!("node{number}")
}

struct Cluster {
    nodes: TestNodes,
}

impl Cluster {
    fn new(count: usize) -> Cluster {
        let nodes = TestNodes::new(count, &[&FEATURE]);
        for user in ["hamlet", "francisco", "bernardo"] {
            nodes.node(0).create_user(user);
        }
        Cluster { nodes }
    }

    fn connect(&self, node: usize, user: &str) -> NodeClient {
        let client = self.nodes.node(node).connect(user, "elsinore");
        self.nodes.settle();
        make_available(self.nodes.node(node), &client);
        self.nodes.settle();
        client
    }

    /// Sends a request; what its sender receives.
    fn request(&self, client: &NodeClient, kind: &str, ns: &str, content: &str) -> Vec<String> {
        client.send(&format!(
            "<iq type='{kind}' to='{SERVICE}' id='r1'><pubsub xmlns='http://jabber.org/protocol/pubsub{ns}'>{content}\
             </pubsub></iq>"
        ));
        self.nodes.settle();
        client.recv()
    }

    fn set(&self, client: &NodeClient, content: &str) -> String {
        answer_of(self.request(client, "set", "", content))
    }

    fn get(&self, client: &NodeClient, content: &str) -> String {
        answer_of(self.request(client, "get", "", content))
    }

    fn create(&self, client: &NodeClient, number: usize) {
        let answer = self.set(client, &format!("<create node='{}'/>", name(number)));
        assert!(answer.contains("type='result'"), "{answer}");
    }

    fn subscribe(&self, client: &NodeClient, number: usize) {
        let content = format!("<subscribe node='{}' jid='{}'/>", name(number), client.bare());
        let answer = self.set(client, &content);
        assert!(answer.contains("subscription='subscribed'"), "{answer}");
    }

    fn publish(&self, client: &NodeClient, number: usize, id: &str) -> String {
        self.set(
            client,
            &format!("<publish node='{}'><item id='{id}'>{ENTRY}</item></publish>", name(number)),
        )
    }

    /// Number of PubSub nodes that each cluster node owns.
    fn owned(&self) -> Vec<usize> {
        let of_node = |index: &usize| {
            let node = &self.nodes.node(*index).node;
            let key = |number| jid::Jid::parse(&format!("{SERVICE}/{}", name(number))).unwrap();
            (0..NODES)
                .filter(|number| !crate::node_directory::is_owned_elsewhere(node, &key(*number)))
                .count()
        };
        self.nodes.alive().iter().map(of_node).collect()
    }
}

#[test]
fn subscribers_on_all_nodes_receive_the_same_events_in_the_same_order() {
    for count in [1, 2, 3] {
        let cluster = Cluster::new(count);
        assert!(cluster.owned().iter().all(|nodes| *nodes > 0), "{:?}", cluster.owned());
        let hamlet = cluster.connect(0, "hamlet");
        let francisco = cluster.connect(1 % count, "francisco");
        let bernardo = cluster.connect(2 % count, "bernardo");
        for number in 0..NODES {
            cluster.create(&hamlet, number);
            [&hamlet, &francisco, &bernardo].iter().for_each(|client| cluster.subscribe(client, number));
            for id in ["1", "2", "3"] {
                hamlet.send(&format!(
                    "<iq type='set' to='{SERVICE}' id='p'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
                     <publish node='{}'><item id='{id}'>{ENTRY}</item></publish></pubsub></iq>",
                    name(number)
                ));
            }
            cluster.nodes.settle();
            for client in [&hamlet, &francisco, &bernardo] {
                let messages = client.recv().into_iter().filter(|one| one.starts_with("<message"));
                let ids: Vec<String> = messages
                    .map(|one| {
                        attribute(
                            one.split("<item ").nth(1).map(|rest| format!(" {rest}")).as_deref().unwrap(),
                            "id",
                        )
                    })
                    .collect();
                assert_eq!(ids, ["1", "2", "3"], "{count} nodes, node {number}, {}", client.full());
            }
        }
        let own = cluster.get(&francisco, "<subscriptions/>");
        assert_eq!(own.matches("<subscription ").count(), NODES, "{own}");
    }
}

#[test]
fn an_event_is_one_message_for_each_node_with_subscribers() {
    let cluster = Cluster::new(2);
    let hamlet = cluster.connect(0, "hamlet");
    let users: Vec<NodeClient> = (0..20)
        .map(|number| {
            cluster.nodes.node(0).create_user(&format!("user{number}"));
            cluster.connect(1, &format!("user{number}"))
        })
        .collect();
    for number in 0..NODES {
        cluster.create(&hamlet, number);
        users.iter().for_each(|user| cluster.subscribe(user, number));
    }
    for number in 0..NODES {
        cluster.nodes.take_envelopes();
        cluster.publish(&hamlet, number, "1");
        let envelopes = cluster.nodes.take_envelopes();
        // The request, its answer and the event.
        assert!(envelopes <= 6, "node {number}: {envelopes} envelopes for {} subscribers", users.len());
        assert!(users.iter().all(|user| user.recv().len() == 1));
    }
}

#[test]
fn instant_nodes_and_presence_work_on_every_node() {
    let cluster = Cluster::new(3);
    let hamlet = cluster.connect(0, "hamlet");
    for _ in 0..6 {
        let answer = cluster.set(&hamlet, "<create/>");
        let node = attribute(answer.split("<create").nth(1).unwrap(), "node");
        let items = cluster.get(&hamlet, &format!("<items node='{node}'/>"));
        assert!(items.contains("type='result'"), "{items}");
    }
    let francisco = cluster.connect(2, "francisco");
    for number in 0..NODES {
        cluster.create(&hamlet, number);
        cluster.publish(&hamlet, number, "last");
        cluster.subscribe(&francisco, number);
    }
    francisco.recv();
    francisco.send(&format!("<presence to='{SERVICE}'/>"));
    cluster.nodes.settle();
    let last = francisco.recv().iter().filter(|one| one.contains("<item id='last'>")).count();
    assert_eq!(last, NODES, "the last item of each node, wherever it is owned");
}

#[test]
fn after_the_loss_of_a_node_another_one_has_its_nodes() {
    let mut cluster = Cluster::new(2);
    let hamlet = cluster.connect(0, "hamlet");
    for number in 0..NODES {
        cluster.create(&hamlet, number);
        cluster.subscribe(&hamlet, number);
        cluster.publish(&hamlet, number, "before");
    }
    cluster.nodes.crash(1);
    cluster.nodes.settle();
    cluster.nodes.advance(8);
    cluster.nodes.settle();
    hamlet.recv();
    for number in 0..NODES {
        let received = cluster.publish(&hamlet, number, "after");
        assert!(received.contains("type='result'"), "{received}");
        let kept = cluster.get(&hamlet, &format!("<items node='{}'/>", name(number)));
        assert!(kept.contains("<item id='before'>") && kept.contains("<item id='after'>"), "{kept}");
    }
    cluster.nodes.restart(1);
    cluster.nodes.settle();
    cluster.nodes.advance(8);
    cluster.nodes.settle();
    for number in 0..NODES {
        cluster.publish(&hamlet, number, "again");
        let kept = cluster.get(&hamlet, &format!("<items node='{}'/>", name(number)));
        assert_eq!(kept.matches("<item ").count(), 3, "{kept}");
    }
}

#[test]
fn anonymous_users_neither_create_nodes_nor_subscribe_wherever_the_owner_is() {
    for count in 1..=3 {
        let cluster = Cluster::new(count);
        let hamlet = cluster.connect(0, "hamlet");
        for number in 0..NODES {
            cluster.create(&hamlet, number);
        }
        for at in 0..count {
            let ghost = cluster.nodes.node(at).connect_anonymous("ghost", "battlements");
            cluster.nodes.settle();
            for number in 0..NODES {
                let content = format!("<subscribe node='{}' jid='{}'/>", name(number), ghost.bare());
                let refused = cluster.set(&ghost, &content);
                assert!(refused.contains("<forbidden "), "{count}, {at}: {refused}");
                let refused = cluster.set(&ghost, &format!("<create node='ghostly{number}'/>"));
                assert!(refused.contains("<forbidden "), "{count}, {at}: {refused}");
            }
            ghost.close();
            cluster.nodes.settle();
        }
    }
}

#[test]
fn collections_of_all_nodes_receive_what_their_children_publish() {
    for count in [1, 2, 3] {
        let cluster = Cluster::new(count);
        let hamlet = cluster.connect(0, "hamlet");
        let francisco = cluster.connect(1 % count, "francisco");
        let collection = form("node_config", &[("pubsub#node_type", "collection")]);
        let options = form(
            "subscribe_options",
            &[("pubsub#subscription_type", "items"), ("pubsub#subscription_depth", "all")],
        );
        for number in 0..NODES {
            let node = format!("c{number}");
            cluster.set(&hamlet, &format!("<create node='{node}'/><configure>{collection}</configure>"));
            let subscribe =
                format!("<subscribe node='{node}' jid='{}'/><options>{options}</options>", francisco.bare());
            assert!(cluster.set(&francisco, &subscribe).contains("type='result'"));
        }
        for number in 0..NODES {
            // The collection of one node has the next leaf, which another member may own.
            let parent = format!("c{}", (number + 1) % NODES);
            let leaf = form("node_config", &[("pubsub#collection", &parent)]);
            let answer = cluster
                .set(&hamlet, &format!("<create node='{}'/><configure>{leaf}</configure>", name(number)));
            assert!(answer.contains("type='result'"), "{answer}");
            cluster.nodes.settle();
            francisco.recv();
            cluster.publish(&hamlet, number, "1");
            let received = francisco.recv().concat();
            assert!(
                received.contains(&format!("<header name='Collection'>{parent}</header>")),
                "{count} nodes, {number}: {received}"
            );
            cluster.request(&hamlet, "set", "#owner", &format!("<delete node='{}'/>", name(number)));
            let list = format!(
                "<iq type='get' to='{SERVICE}' id='r1'><query xmlns='http://jabber.org/protocol/disco#items' \
                 node='{parent}'/></iq>"
            );
            hamlet.send(&list);
            cluster.nodes.settle();
            let listed = hamlet.recv().concat();
            assert!(!listed.contains("<item "), "{listed}");
        }
        // The root node, wherever it is.
        let subscribe = format!("<subscribe jid='{}'/>", francisco.bare());
        assert!(cluster.set(&francisco, &subscribe).contains("subscription='subscribed'"));
        cluster.nodes.advance(61);
        cluster.nodes.settle();
        francisco.recv();
        for number in 0..NODES {
            cluster.create(&hamlet, number);
            let received = francisco.recv().concat();
            assert!(received.contains(&format!("<create node='{}'/>", name(number))), "{count}: {received}");
        }
    }
}
