//! Rooms in a cluster: occupants on all nodes, and owners that change.

use testkit::TestNodes;

use super::*;

const ROOMS: usize = 8;

fn room(number: usize) -> String {
    format!("room{number}@conference.example.com")
}

struct Cluster {
    nodes: TestNodes,
}

impl Cluster {
    fn new(count: usize) -> Cluster {
        let nodes = TestNodes::new(count, &[&FEATURE]);
        for user in ["crone1", "wiccarocks", "hag66"] {
            nodes.node(0).create_user(user);
        }
        Cluster { nodes }
    }

    fn connect(&self, node: usize, user: &str) -> NodeClient {
        let client = self.nodes.node(node).connect(user, "desktop");
        self.nodes.settle();
        client
    }

    /// Sends a stanza; what its sender receives.
    fn send(&self, client: &NodeClient, stanza: &str) -> Vec<String> {
        client.send(stanza);
        self.nodes.settle();
        masked(client.recv())
    }

    fn enter(&self, client: &NodeClient, number: usize, nick: &str) -> String {
        self.send(client, &format!("<presence to='{}/{nick}'>{MUC}</presence>", room(number))).concat()
    }

    fn make_persistent(&self, client: &NodeClient, number: usize) -> String {
        let form = format!(
            "<x xmlns='jabber:x:data' type='submit'>{}</x>",
            field("muc#roomconfig_persistentroom", "1")
        );
        let query = format!("<query xmlns='http://jabber.org/protocol/muc#owner'>{form}</query>");
        self.send(client, &format!("<iq type='set' to='{}' id='c1'>{query}</iq>", room(number))).concat()
    }

    fn say(&self, client: &NodeClient, number: usize, body: &str) -> Vec<String> {
        let to = room(number);
        self.send(client, &format!("<message to='{to}' type='groupchat'><body>{body}</body></message>"))
    }

    /// Numbers of the rooms that each node has in memory.
    fn rooms_by_node(&self) -> Vec<usize> {
        let of_node = |index: &usize| {
            let node = &self.nodes.node(*index).node;
            let is_here = |number: &usize| {
                let jid = jid::Jid::parse(&room(*number)).unwrap();
                !crate::room_ownership::is_owned_elsewhere(node, jid.as_ref())
            };
            (0..ROOMS).filter(is_here).count()
        };
        self.nodes.alive().iter().map(of_node).collect()
    }
}

#[test]
fn occupants_on_all_nodes_receive_the_same_messages_in_the_same_order() {
    for count in [2, 3] {
        let cluster = Cluster::new(count);
        assert!(cluster.rooms_by_node().iter().all(|rooms| *rooms > 0), "{:?}", cluster.rooms_by_node());
        let (crone, hag) = (cluster.connect(0, "crone1"), cluster.connect(1, "hag66"));
        for number in 0..ROOMS {
            let created = cluster.enter(&crone, number, "firstwitch");
            assert!(created.contains("<status code='201'/>"), "{count} nodes, room {number}: {created}");
            let configured = cluster.make_persistent(&crone, number);
            assert!(configured.contains("type='result'"), "{count} nodes, room {number}: {configured}");
            let entered = cluster.enter(&hag, number, "thirdwitch");
            assert!(entered.contains("/firstwitch") && entered.contains("<status code='110'/>"), "{entered}");
            assert!(crone.recv().concat().contains("/thirdwitch"));
        }
        for number in 0..ROOMS {
            for client in [&crone, &hag] {
                for body in ["one", "two"] {
                    client.send(&format!(
                        "<message to='{}' type='groupchat'><body>{body}</body></message>",
                        room(number)
                    ));
                }
            }
            cluster.nodes.settle();
            let bodies = |client: &NodeClient| -> Vec<String> {
                let received = client.recv();
                received.iter().map(|one| mask(one).replace(client.full(), "")).collect()
            };
            let (first, second) = (bodies(&crone), bodies(&hag));
            assert_eq!((first.len(), &first), (4, &second), "{count} nodes, room {number}");
        }
        let mine = cluster.send(&hag, &format!("<presence to='{}/thirdwitch' type='unavailable'/>", room(0)));
        assert_eq!(mine.len(), 1);
        assert!(crone.recv().concat().contains("type='unavailable'"));
    }
}

#[test]
fn after_the_loss_of_a_node_its_rooms_are_read_from_the_store_and_its_occupants_are_removed() {
    let mut cluster = Cluster::new(2);
    let (crone, hag) = (cluster.connect(0, "crone1"), cluster.connect(1, "hag66"));
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        cluster.make_persistent(&crone, number);
        cluster.enter(&hag, number, "thirdwitch");
        cluster.say(&crone, number, "before");
    }
    forget(&[&crone, &hag]);
    cluster.nodes.crash(1);
    cluster.nodes.settle();
    cluster.nodes.advance(8);
    cluster.nodes.settle();
    forget(&[&crone]);
    let mut lost = 0;
    for number in 0..ROOMS {
        let received = cluster.say(&crone, number, "after").concat();
        if received.contains("<not-acceptable ") {
            lost += 1;
            let entered = cluster.enter(&crone, number, "firstwitch");
            assert!(entered.contains("before") && !entered.contains("<status code='201'/>"), "{entered}");
            assert!(!entered.contains("/thirdwitch"), "nobody else is in the room: {entered}");
        } else {
            assert!(received.contains("<body>after</body>"), "{received}");
        }
    }
    assert!(lost > 0 && lost < ROOMS, "{lost}");
    // The node comes back, and owns a part of the rooms again.
    cluster.nodes.restart(1);
    cluster.nodes.settle();
    cluster.nodes.advance(8);
    cluster.nodes.settle();
    let given_up = crone.recv().iter().filter(|one| one.contains("<status code='333'/>")).count();
    assert!(given_up > 0 && given_up < ROOMS, "{given_up}");
    for number in 0..ROOMS {
        let received = cluster.say(&crone, number, "again").concat();
        if received.contains("<not-acceptable ") {
            let entered = cluster.enter(&crone, number, "firstwitch");
            assert!(entered.contains("before"), "{entered}");
        }
    }
}
