//! Rooms in a cluster: occupants on all nodes, and owners that change.

use cluster::memory::NetworkFaults;
use jid::Jid;
use peers::slices::SliceAccess;
use testkit::TestNodes;

use super::*;

pub(super) const ROOMS: usize = 16;

pub(super) fn room(number: usize) -> String {
    format!("room{number}@conference.example.com")
}

pub(super) struct Cluster {
    pub(super) nodes: TestNodes,
}

impl Cluster {
    pub(super) fn new(count: usize) -> Cluster {
        Cluster::with_faults(count, 0, NetworkFaults::default())
    }

    fn with_faults(count: usize, seed: u64, faults: NetworkFaults) -> Cluster {
        let nodes = TestNodes::with_faults(count, &[&FEATURE], seed, faults);
        for user in ["crone1", "wiccarocks", "hag66"] {
            nodes.node(0).create_user(user);
        }
        Cluster { nodes }
    }

    pub(super) fn connect(&self, node: usize, user: &str) -> NodeClient {
        let client = self.nodes.node(node).connect(user, "desktop");
        self.nodes.settle();
        client
    }

    /// Sends a stanza; what its sender receives.
    pub(super) fn send(&self, client: &NodeClient, stanza: &str) -> Vec<String> {
        client.send(stanza);
        self.nodes.settle();
        masked(client.recv())
    }

    pub(super) fn enter(&self, client: &NodeClient, number: usize, nick: &str) -> String {
        self.send(client, &format!("<presence to='{}/{nick}'>{MUC}</presence>", room(number))).concat()
    }

    fn make_persistent(&self, client: &NodeClient, number: usize) -> String {
        self.configure(client, number, true)
    }

    pub(super) fn configure(&self, client: &NodeClient, number: usize, persistent: bool) -> String {
        let form = format!(
            "<x xmlns='jabber:x:data' type='submit'>{}</x>",
            field("muc#roomconfig_persistentroom", if persistent { "1" } else { "0" })
        );
        let query = format!("<query xmlns='http://jabber.org/protocol/muc#owner'>{form}</query>");
        self.send(client, &format!("<iq type='set' to='{}' id='c1'>{query}</iq>", room(number))).concat()
    }

    fn say(&self, client: &NodeClient, number: usize, body: &str) -> Vec<String> {
        let to = room(number);
        self.send(client, &format!("<message to='{to}' type='groupchat'><body>{body}</body></message>"))
    }

    /// Number of rooms that belong to each node that is alive.
    fn rooms_by_node(&self) -> Vec<usize> {
        let count = |index: &usize| (0..ROOMS).filter(|number| self.owner(*number) == Some(*index)).count();
        self.nodes.alive().iter().map(count).collect()
    }

    /// Number of the node that must own a room, as the first node that is alive sees it.
    fn owner(&self, number: usize) -> Option<usize> {
        let alive = self.nodes.alive();
        let node = &self.nodes.node(alive[0]).node;
        let slice = peers::slices::slice_of_item(node, Jid::parse(&room(number)).unwrap().as_ref());
        let owner = node.cluster.slice_nodes(slice).owner;
        alive.into_iter().find(|index| self.nodes.id(*index) == owner)
    }

    /// Numbers of the nodes that act as the owner of a room.
    fn acting_owners(&self, number: usize) -> Vec<usize> {
        let acts = |index: &usize| {
            let node = &self.nodes.node(*index).node;
            let slice = peers::slices::slice_of_item(node, Jid::parse(&room(number)).unwrap().as_ref());
            matches!(peers::slices::slice_access(node, slice), SliceAccess::Own(_) | SliceAccess::Moving(..))
        };
        self.nodes.alive().into_iter().filter(acts).collect()
    }

    /// Lets time pass; each second everything that can happen does.
    pub(super) fn pass(&self, seconds: u32) {
        for _ in 0..seconds {
            self.nodes.advance(1);
            self.nodes.settle();
        }
    }

    fn say_unread(&self, client: &NodeClient, number: usize, body: &str) {
        let to = room(number);
        client
            .send(&format!("<message to='{to}' type='groupchat' id='{body}'><body>{body}</body></message>"));
    }
}

/// Bodies of messages of a room, in the order in which they arrived.
fn bodies(received: &[String], number: usize) -> Vec<String> {
    let from = format!("from='{}/", room(number));
    let body = |stanza: &String| {
        let (_, rest) = stanza.split_once("<body>")?;
        Some(rest.split_once("</body>")?.0.to_owned())
    };
    let of_room = |stanza: &&String| stanza.contains(&from) && !stanza.contains("type='error'");
    received.iter().filter(of_room).filter_map(body).collect()
}

/// Stanzas with a status, such as 333.
fn with_status(received: &[String], code: u16) -> Vec<&String> {
    let status = format!("<status code='{code}'/>");
    received.iter().filter(|one| one.contains(&status)).collect()
}

/// The session of another node is gone, but its account has another one there: the node answers with `service-unavailable`.
#[test]
fn section_18_1_2_a_session_that_is_gone_on_another_node_is_removed_by_the_next_message() {
    let cluster = Cluster::new(2);
    let crone = cluster.connect(0, "crone1");
    let (hag, phone) = (cluster.connect(1, "hag66"), cluster.nodes.node(1).connect("hag66", "phone"));
    cluster.nodes.settle();
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        cluster.make_persistent(&crone, number);
        cluster.enter(&hag, number, "thirdwitch");
    }
    crone.recv();
    // Without the presence feature, nothing tells the rooms.
    hag.close();
    cluster.nodes.settle();
    for number in 0..ROOMS {
        let received = cluster.say(&crone, number, "Thrice");
        assert_eq!(with_status(&received, 333).len(), 1, "room {number}: {received:?}");
    }
    drop(phone);
}

#[test]
fn slow_mode_goes_on_when_a_room_moves() {
    let mut cluster = Cluster::new(2);
    cluster.nodes.crash(1);
    cluster.pass(15);
    let (crone, hag) = (cluster.connect(0, "crone1"), cluster.connect(0, "hag66"));
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        let slow = field("muc#roomconfig_slow_mode_duration", "3600");
        let form = format!("<x xmlns='jabber:x:data' type='submit'>{slow}</x>");
        let query = format!("<query xmlns='http://jabber.org/protocol/muc#owner'>{form}</query>");
        cluster.send(&crone, &format!("<iq type='set' to='{}' id='c1'>{query}</iq>", room(number)));
        cluster.enter(&hag, number, "thirdwitch");
        assert_eq!(bodies(&cluster.say(&hag, number, "one"), number), ["one"]);
    }
    cluster.nodes.restart(1);
    cluster.pass(15);
    assert!(cluster.rooms_by_node()[1] > 0, "{:?}", cluster.rooms_by_node());
    crone.recv();
    hag.recv();
    for number in 0..ROOMS {
        let received = cluster.say(&hag, number, "two").concat();
        assert!(received.contains("<policy-violation "), "room {number}: {received}");
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
fn after_the_loss_of_the_owner_occupants_of_living_nodes_are_still_in_the_room() {
    for count in [2, 3] {
        let mut cluster = Cluster::new(count);
        let (crone, hag) = (cluster.connect(0, "crone1"), cluster.connect(1, "hag66"));
        let wicca = cluster.connect(2, "wiccarocks");
        for number in 0..ROOMS {
            cluster.enter(&crone, number, "firstwitch");
            // Odd rooms are temporary, and are in no store.
            let persistent = number % 2 == 0;
            let configured = cluster.configure(&crone, number, persistent);
            assert!(configured.contains("type='result'"), "{configured}");
            cluster.enter(&hag, number, "thirdwitch");
            cluster.enter(&wicca, number, "secondwitch");
            cluster.say(&crone, number, "before");
        }
        cluster.pass(2);
        forget(&[&crone, &hag, &wicca]);
        let lost: Vec<usize> = (0..ROOMS).filter(|number| cluster.owner(*number) == Some(1)).collect();
        assert!(!lost.is_empty() && lost.len() < ROOMS, "{lost:?}");
        cluster.nodes.crash(1);
        cluster.pass(15);
        let received = crone.recv();
        assert_eq!(with_status(&received, 110), Vec::<&String>::new(), "{count} nodes: nobody here leaves");
        for number in 0..ROOMS {
            let gone = format!("from='{}/thirdwitch' type='unavailable'", room(number));
            let gone = with_status(&received, 333).iter().filter(|one| one.contains(&gone)).count();
            assert_eq!(gone, 1, "{count} nodes, room {number}: {received:?}");
        }
        forget(&[&wicca]);
        for number in 0..ROOMS {
            let own = bodies(&cluster.say(&crone, number, "after"), number);
            let others = bodies(&wicca.recv(), number);
            assert_eq!(
                (own, others),
                (vec!["after".to_owned()], vec!["after".to_owned()]),
                "{count} nodes, room {number}"
            );
            assert_eq!(cluster.acting_owners(number).len(), 1);
        }
        // Everything is in the history of persistent rooms, and roles are as before.
        let again = cluster.nodes.node(0).connect("hag66", "again");
        cluster.nodes.settle();
        for number in 0..ROOMS {
            let entered = cluster.enter(&again, number, "thirdwitch");
            assert!(
                entered.contains("/firstwitch") && !entered.contains("<status code='201'/>"),
                "{entered}"
            );
            assert!(entered.contains("affiliation='owner'"), "{entered}");
            assert_eq!(
                entered.contains("<body>before</body>"),
                number % 2 == 0 || !lost.contains(&number),
                "{entered}"
            );
        }
    }
}

#[test]
fn a_node_that_joins_gets_rooms_without_a_notice_to_their_occupants() {
    for count in [2, 3] {
        let mut cluster = Cluster::new(count);
        cluster.nodes.crash(1);
        cluster.pass(15);
        let (crone, wicca) = (cluster.connect(0, "crone1"), cluster.connect(2, "wiccarocks"));
        for number in 0..ROOMS {
            cluster.enter(&crone, number, "firstwitch");
            cluster.configure(&crone, number, number % 2 == 0);
            cluster.enter(&wicca, number, "secondwitch");
            cluster.say(&crone, number, "before");
        }
        forget(&[&crone, &wicca]);
        cluster.nodes.restart(1);
        // Messages of all phases of the move.
        let mut sent = Vec::new();
        for second in 0..9 {
            for number in 0..ROOMS {
                for (client, name) in [(&crone, "a"), (&wicca, "b")] {
                    cluster.say_unread(client, number, &format!("{name}{second}"));
                }
            }
            sent.push(second);
            for _ in 0..3 {
                cluster.nodes.step();
            }
            cluster.nodes.advance(1);
        }
        cluster.pass(5);
        assert!(cluster.rooms_by_node()[1] > 0, "{:?}", cluster.rooms_by_node());
        let (first, second) = (crone.recv(), wicca.recv());
        for number in 0..ROOMS {
            let (one, other) = (bodies(&first, number), bodies(&second, number));
            assert_eq!(one, other, "{count} nodes, room {number}: one order");
            for name in ["a", "b"] {
                let of_one: Vec<&String> = one.iter().filter(|body| body.starts_with(name)).collect();
                let all: Vec<String> = sent.iter().map(|second| format!("{name}{second}")).collect();
                assert_eq!(of_one, all.iter().collect::<Vec<_>>(), "{count} nodes, room {number}");
            }
            let owner = cluster.owner(number).unwrap();
            assert_eq!(cluster.acting_owners(number), [owner], "room {number}");
        }
        for received in [&first, &second] {
            assert!(
                !received
                    .iter()
                    .any(|one| one.contains("type='unavailable'") || one.contains("type='error'"))
            );
        }
        // The history has moved, too.
        let hag = cluster.connect(1, "hag66");
        for number in 0..ROOMS {
            let entered = cluster.enter(&hag, number, "thirdwitch");
            assert!(
                entered.contains("<body>before</body>") && entered.contains("<body>b8</body>"),
                "{entered}"
            );
        }
    }
}

#[test]
fn while_nodes_are_cut_off_one_side_has_the_rooms() {
    let cluster = Cluster::new(2);
    let (crone, hag) = (cluster.connect(0, "crone1"), cluster.connect(1, "hag66"));
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        cluster.configure(&crone, number, true);
        cluster.enter(&hag, number, "thirdwitch");
    }
    cluster.pass(2);
    forget(&[&crone, &hag]);
    cluster.nodes.cut(0, 1);
    for _ in 0..25 {
        cluster.pass(1);
        for number in 0..ROOMS {
            assert!(cluster.acting_owners(number).len() <= 1, "room {number}");
        }
    }
    let of_hag = hag.recv();
    for number in 0..ROOMS {
        assert_eq!(cluster.acting_owners(number), [0], "room {number}: the side with the first name");
    }
    assert!(!with_status(&of_hag, 333).is_empty(), "{of_hag:?}");
    let of_crone = crone.recv();
    assert!(with_status(&of_crone, 110).is_empty(), "{of_crone:?}");
    for number in 0..ROOMS {
        assert_eq!(bodies(&cluster.say(&crone, number, "meanwhile"), number), ["meanwhile"]);
        let refused = cluster.say(&hag, number, "lost").concat();
        assert!(refused.contains("type='wait'><remote-server-timeout "), "{refused}");
    }
    cluster.nodes.heal(0, 1);
    cluster.pass(15);
    forget(&[&crone, &hag]);
    for number in 0..ROOMS {
        let entered = cluster.enter(&hag, number, "thirdwitch");
        assert!(entered.contains("/firstwitch") && entered.contains("<body>meanwhile</body>"), "{entered}");
        assert!(!entered.contains("<body>lost</body>"), "{entered}");
        forget(&[&crone]);
        let own = bodies(&cluster.say(&hag, number, "again"), number);
        assert_eq!(
            (own, bodies(&crone.recv(), number)),
            (vec!["again".to_owned()], vec!["again".to_owned()])
        );
        assert_eq!(cluster.acting_owners(number), [cluster.owner(number).unwrap()], "room {number}");
    }
}

#[test]
fn messages_during_the_loss_of_the_owner_reach_everybody_once_or_their_sender_gets_an_error() {
    for seed in 0..24 {
        let faults = NetworkFaults { drop: 50, duplicate: 50, delay: 4 };
        let mut cluster = Cluster::with_faults(3, seed, faults);
        let (crone, wicca) = (cluster.connect(0, "crone1"), cluster.connect(2, "wiccarocks"));
        let rooms: Vec<usize> = (0..ROOMS).filter(|number| cluster.owner(*number) == Some(1)).collect();
        for number in &rooms {
            cluster.enter(&crone, *number, "firstwitch");
            cluster.configure(&crone, *number, true);
            cluster.enter(&wicca, *number, "secondwitch");
        }
        cluster.pass(2);
        forget(&[&crone, &wicca]);
        let mut sent = Vec::new();
        let (mut of_crone, mut of_wicca) = (Vec::new(), Vec::new());
        for round in 0..30 {
            if round == 10 {
                cluster.nodes.crash(1);
            }
            for number in &rooms {
                let body = format!("m{round}-{number}");
                cluster.say_unread(if round % 2 == 0 { &crone } else { &wicca }, *number, &body);
                sent.push((*number, body));
            }
            for _ in 0..12 {
                cluster.nodes.step();
            }
            if round >= 10 {
                cluster.nodes.advance(1);
            }
            of_crone.extend(crone.recv());
            of_wicca.extend(wicca.recv());
        }
        cluster.pass(5);
        of_crone.extend(crone.recv());
        of_wicca.extend(wicca.recv());
        let errors: Vec<&String> =
            of_crone.iter().chain(&of_wicca).filter(|one| one.contains("type='error'")).collect();
        let mut delivered = 0;
        for number in &rooms {
            let (one, other) = (bodies(&of_crone, *number), bodies(&of_wicca, *number));
            let common = |list: &[String], with: &[String]| -> Vec<String> {
                list.iter().filter(|body| with.contains(body)).cloned().collect()
            };
            assert_eq!(common(&one, &other), common(&other, &one), "seed {seed}, room {number}: one order");
            for (_, body) in sent.iter().filter(|(room, _)| room == number) {
                let count = |list: &[String]| list.iter().filter(|one| *one == body).count();
                assert!(count(&one) <= 1 && count(&other) <= 1, "seed {seed}: {body} is doubled");
                let refused = errors.iter().any(|error| error.contains(&format!("id='{body}'")));
                let counts = (count(&one), count(&other));
                assert!(refused || counts == (1, 1), "seed {seed}: {body} is lost: {counts:?}");
                delivered += count(&one);
            }
            assert_eq!(cluster.acting_owners(*number).len(), 1);
        }
        assert!(delivered > rooms.len(), "seed {seed}: {delivered} of {}", sent.len());
    }
}

#[test]
fn a_message_is_stored_before_the_stream_of_its_sender_counts_it() {
    let cluster = Cluster::new(2);
    let crone = cluster.connect(0, "crone1");
    crone.enable_stream_management();
    let mut of_other_nodes = 0;
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        cluster.configure(&crone, number, true);
        let owner = cluster.owner(number).unwrap();
        of_other_nodes += owner;
        cluster.nodes.node(owner).hold_store_call(Some("rooms.append"));
        let own = bodies(&cluster.say(&crone, number, "counted"), number);
        cluster.pass(2);
        assert_eq!(own, ["counted"], "room {number}: occupants do not wait for the store");
        assert_eq!(crone.handled() + 1, crone.sent(), "room {number} of node {owner}");
        cluster.nodes.node(owner).hold_store_call(None);
        cluster.pass(1);
        assert!(crone.recv().is_empty());
        assert_eq!(crone.handled(), crone.sent(), "room {number} of node {owner}");
    }
    assert!(of_other_nodes > 0 && of_other_nodes < ROOMS);
}

#[test]
fn a_message_counts_when_all_nodes_with_occupants_have_it() {
    let cluster = Cluster::new(3);
    let (crone, wicca) = (cluster.connect(0, "crone1"), cluster.connect(2, "wiccarocks"));
    crone.enable_stream_management();
    let number = (0..ROOMS).find(|number| cluster.owner(*number) == Some(1)).unwrap();
    cluster.enter(&crone, number, "firstwitch");
    cluster.configure(&crone, number, false);
    cluster.enter(&wicca, number, "secondwitch");
    cluster.pass(2);
    forget(&[&crone, &wicca]);
    cluster.nodes.cut(1, 2);
    cluster.say_unread(&crone, number, "counted");
    // So few that the partition is not detected.
    for _ in 0..8 {
        cluster.nodes.step();
    }
    assert_eq!(bodies(&masked(crone.recv()), number), ["counted"]);
    assert_eq!(crone.handled() + 1, crone.sent(), "a node with an occupant does not have it");
    cluster.nodes.heal(1, 2);
    cluster.pass(2);
    assert_eq!(bodies(&masked(wicca.recv()), number), ["counted"]);
    forget(&[&crone]);
    assert_eq!(crone.handled(), crone.sent());
}

#[test]
fn anonymous_users_of_other_nodes_do_not_create_rooms() {
    let cluster = Cluster::new(2);
    for node in 0..2 {
        let guest = cluster.nodes.node(node).connect_anonymous(&format!("guest{node}"), "web");
        let crone = cluster.connect(node, "crone1");
        cluster.nodes.settle();
        for number in 0..ROOMS {
            let refused = cluster.enter(&guest, number, "guest");
            assert!(refused.contains("type='cancel'><not-allowed "), "room {number}: {refused}");
            let created = cluster.enter(&crone, number, "firstwitch");
            assert!(created.contains("<status code='201'/>"), "room {number}: {created}");
            cluster.send(&crone, &format!("<presence to='{}' type='unavailable'/>", room(number)));
        }
        crone.close();
        cluster.pass(1);
    }
}

#[test]
fn a_message_of_a_former_owner_is_not_stored_and_its_sender_gets_an_error() {
    let cluster = Cluster::new(2);
    let crone = cluster.connect(0, "crone1");
    cluster.enter(&crone, 0, "firstwitch");
    cluster.configure(&crone, 0, true);
    cluster.say(&crone, 0, "before");
    let jid = Jid::parse(&room(0)).unwrap();
    let slice = peers::slices::slice_of_item(&cluster.nodes.node(0).node, jid.as_ref());
    let node = cluster.nodes.node(0);
    let settings = &cluster.nodes.stores.server_kv;
    node.block_on(settings.put(&format!("item-slice {slice:03}"), b"taken")).unwrap();
    let refused = cluster.say(&crone, 0, "late").concat();
    assert!(refused.contains("type='error'"), "{refused}");
    let stored = node.block_on(cluster.nodes.stores.rooms.load(jid.as_ref(), 9)).unwrap().unwrap();
    assert_eq!(stored.history.len(), 1);
}

#[test]
fn a_message_is_one_envelope_for_each_node_with_occupants_and_none_for_the_copy() {
    let cluster = Cluster::new(3);
    let clients =
        [("crone1", 0), ("hag66", 1), ("wiccarocks", 2)].map(|(user, node)| cluster.connect(node, user));
    for (client, nick) in clients.iter().zip(["firstwitch", "thirdwitch", "secondwitch"]) {
        cluster.enter(client, 0, nick);
        if nick == "firstwitch" {
            cluster.configure(client, 0, true);
        }
    }
    cluster.pass(3);
    let owner = cluster.owner(0).unwrap();
    cluster.nodes.take_envelopes();
    cluster.say(&clients[owner], 0, "from the owner's node");
    assert_eq!(cluster.nodes.take_envelopes(), 2);
    cluster.say(&clients[(owner + 1) % 3], 0, "from another node");
    assert_eq!(cluster.nodes.take_envelopes(), 3);
}

#[test]
fn rooms_of_a_node_that_stops_move_before_it_is_gone() {
    let cluster = Cluster::new(3);
    let (crone, wicca) = (cluster.connect(0, "crone1"), cluster.connect(2, "wiccarocks"));
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        cluster.configure(&crone, number, number % 2 == 0);
        cluster.enter(&wicca, number, "secondwitch");
        cluster.say(&crone, number, "before");
    }
    cluster.pass(2);
    forget(&[&crone, &wicca]);
    let moved: Vec<usize> = (0..ROOMS).filter(|number| cluster.acting_owners(*number) == [1]).collect();
    assert!(!moved.is_empty());
    let stops = cluster.nodes.node(1).node.clone();
    let node = stops.clone();
    stops.spawner.spawn("stop", Box::pin(async move { peers::slices::shut_down(&node).await }));
    cluster.pass(2);
    for number in 0..ROOMS {
        let owners = cluster.acting_owners(number);
        assert!(owners.len() == 1 && owners != [1], "room {number}: {owners:?}");
        assert_eq!(bodies(&cluster.say(&crone, number, "after"), number), ["after"], "room {number}");
    }
    let received = wicca.recv();
    for number in 0..ROOMS {
        assert_eq!(bodies(&received, number), ["after"]);
    }
    assert!(!received.iter().any(|one| one.contains("type='unavailable'")), "{received:?}");
}

/// XEP-0433, section 6: what is not available is omitted.
#[test]
fn a_search_omits_the_number_of_occupants_of_rooms_of_other_nodes() {
    let cluster = Cluster::new(2);
    let crone = cluster.connect(0, "crone1");
    for number in 0..ROOMS {
        cluster.enter(&crone, number, "firstwitch");
        cluster.make_persistent(&crone, number);
    }
    crone.recv();
    let form = field("FORM_TYPE", "urn:xmpp:channel-search:0:search-params") + &field("all", "1");
    let search = format!(
        "<iq type='get' to='conference.example.com' id='s1'><search xmlns='urn:xmpp:channel-search:0:search'>\
         <x xmlns='jabber:x:data' type='submit'>{form}</x></search></iq>"
    );
    let received = cluster.send(&crone, &search).concat();
    assert_eq!(received.matches("<item ").count(), ROOMS, "{received}");
    let here = cluster.rooms_by_node()[0];
    assert!(here > 0 && here < ROOMS);
    assert_eq!(received.matches("<nusers>1</nusers>").count(), here, "{received}");
    assert_eq!(received.matches("<nusers>").count(), here, "{received}");
}

#[test]
fn a_room_whose_first_write_was_not_committed_is_taken_over_with_everything() {
    let mut cluster = Cluster::new(3);
    let (crone, wicca) = (cluster.connect(0, "crone1"), cluster.connect(2, "wiccarocks"));
    let number = (0..ROOMS).find(|number| cluster.owner(*number) == Some(1)).unwrap();
    cluster.enter(&crone, number, "firstwitch");
    cluster.configure(&crone, number, false);
    cluster.enter(&wicca, number, "secondwitch");
    let ban = "<item affiliation='outcast' jid='hag66@example.com'/>";
    let query = format!("<query xmlns='http://jabber.org/protocol/muc#admin'>{ban}</query>");
    cluster.send(&crone, &format!("<iq type='set' to='{}' id='a1'>{query}</iq>", room(number)));
    cluster.pass(2);
    cluster.nodes.node(1).set_store_failing(true);
    let refused = cluster.configure(&crone, number, true);
    assert!(refused.contains("type='error'"), "{refused}");
    forget(&[&crone, &wicca]);
    cluster.nodes.crash(1);
    cluster.pass(15);
    let received = crone.recv();
    assert!(with_status(&received, 110).is_empty(), "nobody leaves: {received:?}");
    assert_eq!(bodies(&cluster.say(&crone, number, "after"), number), ["after"]);
    assert_eq!(bodies(&wicca.recv(), number), ["after"]);
    let jid = Jid::parse(&room(number)).unwrap();
    let stored = cluster.nodes.node(0).block_on(cluster.nodes.stores.rooms.load(jid.as_ref(), 9));
    let stored = stored.unwrap().expect("it is stored by its next home node");
    assert_eq!((stored.affiliations.len(), stored.history.len()), (2, 1));
}
