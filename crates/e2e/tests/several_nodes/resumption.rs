//! Resumption of a stream on another node than the session's: XEP-0198, section 5.
//!
//! Juliet has her session on node 0, with stream management. Romeo has one on node 0, and his phone on node 2.

use std::task::{Context, Waker};

use jid::Jid;
use store::Subscription;
use testkit::{NodeClient, PendingResumption, TestNodes};
use throng_core::SharedStanza;
use throng_core::limits::OutboxLimits;
use throng_core::session::{QueuedBatch, QueuedStanza, ToRewrite, Urgency, flags};
use throng_e2e::chain_observer::observed_features;

/// Seconds after which a node that does not answer counts as one without the session.
const TIMEOUT_SECONDS: u32 = 6;

fn cluster() -> TestNodes {
    let nodes = TestNodes::new(3, &observed_features());
    nodes.node(0).create_user("romeo");
    nodes.node(0).create_user("juliet");
    nodes.node(0).befriend("romeo", "juliet");
    nodes
}

/// An available session with stream management.
fn online(nodes: &TestNodes, node: usize, user: &str, resource: &str) -> NodeClient {
    let client = nodes.node(node).connect(user, resource);
    client.enable_resumption();
    client.send("<presence><priority>5</priority></presence>");
    nodes.settle();
    client.recv();
    nodes.settle();
    client
}

/// Romeo on nodes 0 and 2, and juliet on node 0.
fn three_clients(nodes: &TestNodes) -> [NodeClient; 3] {
    let romeo = online(nodes, 0, "romeo", "orchard");
    let phone = online(nodes, 2, "romeo", "phone");
    let juliet = online(nodes, 0, "juliet", "balcony");
    nodes.settle();
    [&romeo, &phone].iter().for_each(|client| drop(client.recv()));
    [romeo, phone, juliet]
}

fn chat(id: &str) -> String {
    format!("<message to='juliet@example.com' type='chat' id='{id}'><body>Hello</body></message>")
}

/// Ids of the messages among these stanzas.
fn ids(stanzas: &[String]) -> Vec<String> {
    let id = |text: &String| {
        let document = roxmltree::Document::parse(text).expect("XML");
        let root = document.root_element();
        let id = root.attribute("id").unwrap_or_default().to_owned();
        (root.tag_name().name() == "message").then_some(id)
    };
    stanzas.iter().filter_map(id).collect()
}

fn receive(client: &NodeClient) -> Vec<String> {
    ids(&client.recv())
}

/// Messages in the store for juliet.
fn stored(nodes: &TestNodes) -> u32 {
    let (node, juliet) =
        (nodes.node(nodes.alive()[0]), Jid::parse("juliet@example.com").expect("an address"));
    let stores = &nodes.stores;
    let owner = node.block_on(stores.addresses.find(&juliet)).expect("an answer").expect("an id");
    node.block_on(stores.offline.count(owner)).expect("an answer")
}

fn step(nodes: &TestNodes, count: usize) {
    for _ in 0..count {
        nodes.step();
    }
}

/// Reads until nothing arrives any more.
fn receive_all(nodes: &TestNodes, client: &NodeClient) -> Vec<String> {
    let mut all = Vec::new();
    for _ in 0..3 {
        all.extend(receive(client));
        nodes.settle();
    }
    all
}

#[track_caller]
fn finish(nodes: &TestNodes, node: usize, pending: &PendingResumption) -> Result<NodeClient, Option<u32>> {
    nodes.settle();
    nodes.node(node).resumed(pending).expect("an outcome")
}

#[track_caller]
fn resume(nodes: &TestNodes, node: usize, client: &NodeClient) -> NodeClient {
    let pending = nodes.node(node).resume(client);
    finish(nodes, node, &pending).unwrap_or_else(|handled| panic!("it is not resumed, {handled:?}"))
}

/// Time for backups.
fn wait(nodes: &TestNodes) {
    nodes.advance(1);
    nodes.settle();
}

fn has_session(nodes: &TestNodes, node: usize) -> bool {
    let juliet = Jid::parse("juliet@example.com").expect("an address");
    nodes.node(node).node.routing_table.find(juliet.as_ref()).is_some()
}

#[test]
fn section_5_a_stream_goes_on_at_another_node_and_contacts_do_not_notice() {
    for loses_connection in [true, false] {
        let nodes = cluster();
        let [romeo, phone, juliet] = three_clients(&nodes);
        juliet.send("<message to='romeo@example.com/orchard' type='headline' id='0'/>");
        nodes.settle();
        juliet.leave(loses_connection);
        romeo.send(&chat("1"));
        phone.send(&chat("2"));
        nodes.settle();
        [&romeo, &phone].iter().for_each(|client| drop(client.recv()));
        let again = resume(&nodes, 1, &juliet);
        assert_eq!((again.full(), again.handled()), (juliet.full(), 2));
        assert_eq!(receive(&again), ["1", "2"], "{loses_connection}");
        romeo.send(&chat("3"));
        phone.send(&chat("4").replace("example.com'", "example.com/balcony'"));
        nodes.settle();
        assert_eq!(receive(&again), ["3", "4"]);
        again.send("<message to='romeo@example.com/phone' type='chat' id='5'><body>x</body></message>");
        nodes.settle();
        assert_eq!(receive(&phone), ["5"]);
        nodes.settle();
        assert_eq!(again.handled(), 3);
        for (client, name) in [(&romeo, "romeo"), (&phone, "phone")] {
            let seen = client.recv();
            let unavailable = seen.iter().any(|stanza| stanza.contains("type='unavailable'"));
            assert!(!unavailable, "{name}: {seen:?}");
            assert_eq!(client.handled(), client.sent(), "{name} waits");
        }
        wait(&nodes);
        assert_eq!(stored(&nodes), 0);
        assert_eq!([0, 1, 2].map(|node| has_session(&nodes, node)), [false, true, false]);
        assert!(juliet.session.is_ended());
        again.close();
        nodes.settle();
        assert!(romeo.recv().iter().any(|stanza| stanza.contains("type='unavailable'")), "as any session");
    }
}

#[test]
fn a_session_keeps_its_presence_and_interests() {
    let nodes = cluster();
    let [romeo, _phone, juliet] = three_clients(&nodes);
    juliet.send("<iq type='get' id='1'><query xmlns='jabber:iq:roster'/></iq>");
    juliet.send("<iq type='set' id='2'><enable xmlns='urn:xmpp:carbons:2'/></iq>");
    juliet.send("<presence to='mercutio@example.com/x'/>");
    nodes.settle();
    juliet.recv();
    // It may miss pushes that are on their way to the old node.
    let flags = juliet.session.flags.get() | flags::MAY_LACK_ROSTER_PUSH;
    let before = (flags, juliet.session.priority());
    juliet.leave(true);
    let again = resume(&nodes, 1, &juliet);
    assert_eq!((again.session.flags.get(), again.session.priority()), before);
    let directed = again.session.with(|state| state.directed_presence.clone());
    assert_eq!(directed.expect("an address")[0].as_str(), "mercutio@example.com/x");
    // A later session sees it, and a contact's presence arrives.
    romeo.send("<presence><show>away</show></presence>");
    nodes.settle();
    let seen = again.recv();
    assert!(seen.iter().any(|stanza| stanza.contains("<show>away</show>")), "{seen:?}");
    let other = online(&nodes, 2, "juliet", "garden");
    other.send("<presence><show>dnd</show></presence>");
    nodes.settle();
    assert!(again.recv().iter().any(|stanza| stanza.contains("<show>dnd</show>")));
}

#[test]
fn what_was_received_and_not_acknowledged_is_sent_again_and_nothing_else() {
    for is_stored in [false, true] {
        let nodes = cluster();
        let [romeo, phone, juliet] = three_clients(&nodes);
        romeo.send(&chat("1"));
        nodes.settle();
        assert_eq!(receive(&juliet), ["1"]);
        romeo.send(&chat("2"));
        nodes.settle();
        let mut batch = QueuedBatch::new();
        juliet.session.outbox.dequeue(&mut Context::from_waker(Waker::noop()), &mut batch, u32::MAX, 0);
        assert_eq!(batch.len(), 1);
        juliet.leave(true);
        phone.send(&chat("3"));
        nodes.settle();
        if is_stored {
            wait(&nodes);
            assert_eq!((romeo.handled() == romeo.sent(), stored(&nodes)), (true, 2));
        }
        let again = resume(&nodes, 1, &juliet);
        assert_eq!(stored(&nodes), if is_stored { 2 } else { 0 }, "the rows have moved");
        assert_eq!(receive(&again), ["2", "3"]);
        wait(&nodes);
        assert_eq!(stored(&nodes), 0, "removed by the node that has the session");
        assert!(romeo.handled() == romeo.sent() && phone.handled() == phone.sent());
        again.close();
        nodes.settle();
        assert!(receive(&online(&nodes, 0, "juliet", "late")).is_empty());
    }
}

/// Her tablet on node 2 does not read, and ends. Her session has taken the message on node 0, and has moved to node 1.
#[test]
fn what_a_session_has_taken_before_it_moved_is_not_delivered_to_it_again() {
    for is_stored in [false, true] {
        let nodes = cluster();
        let [romeo, _phone, juliet] = three_clients(&nodes);
        let tablet = online(&nodes, 2, "juliet", "tablet");
        romeo.send(&chat("1"));
        nodes.settle();
        assert_eq!(receive(&juliet), ["1"]);
        nodes.settle();
        if is_stored {
            wait(&nodes);
        }
        juliet.leave(true);
        let again = resume(&nodes, 1, &juliet);
        tablet.close();
        nodes.settle();
        assert_eq!(receive_all(&nodes, &again), [""; 0], "{is_stored}");
        assert_eq!(stored(&nodes), 0, "{is_stored}");
    }
}

#[test]
fn messages_that_arrive_meanwhile_follow_in_order() {
    for steps in 0..12 {
        let nodes = cluster();
        let [romeo, phone, juliet] = three_clients(&nodes);
        juliet.leave(true);
        let pending = nodes.node(1).resume(&juliet);
        let (mut of_romeo, mut of_phone) = (Vec::new(), Vec::new());
        for at in 0..steps + 4 {
            for (client, sent, name) in [(&romeo, &mut of_romeo, "r"), (&phone, &mut of_phone, "p")] {
                let id = format!("{name}{at}");
                client.send(&chat(&id));
                sent.push(id);
            }
            if at >= steps {
                romeo.recv();
            }
            nodes.step();
        }
        let again = finish(&nodes, 1, &pending).unwrap_or_else(|_| panic!("it is not resumed, {steps}"));
        let received = receive_all(&nodes, &again);
        let of = |name| received.iter().filter(|id| id.starts_with(name)).cloned().collect::<Vec<_>>();
        assert_eq!((of("r"), of("p")), (of_romeo, of_phone), "{steps}");
        wait(&nodes);
        assert!(romeo.handled() == romeo.sent() && phone.handled() == phone.sent());
        assert_eq!((stored(&nodes), receive(&again).len()), (0, 0));
    }
}

/// The presence of a contact changes while the session moves.
#[test]
fn the_last_presence_of_a_contact_is_known_afterwards() {
    for steps in 0..12 {
        for leaves in [false, true] {
            let nodes = cluster();
            let [_romeo, phone, juliet] = three_clients(&nodes);
            juliet.leave(true);
            let pending = nodes.node(1).resume(&juliet);
            step(&nodes, steps);
            phone.send("<presence><show>away</show></presence>");
            if leaves {
                phone.send("<presence type='unavailable'/>");
            }
            let again = finish(&nodes, 1, &pending).unwrap_or_else(|_| panic!("it is not resumed, {steps}"));
            let seen = again.recv();
            let last = seen.iter().rfind(|stanza| stanza.contains("from='romeo@example.com/phone'"));
            let expected = if leaves { "type='unavailable'" } else { "<show>away</show>" };
            assert!(last.is_some_and(|last| last.contains(expected)), "{steps}, {leaves}: {seen:?}");
        }
    }
}

/// The node of juliet's session does not know of romeo's: what it sends to all nodes is late, and arrives when the session has left it.
#[test]
fn presence_that_arrives_from_a_node_that_its_session_has_left_is_not_shown() {
    let away = "<presence><show>away</show></presence>";
    let unavailable = "<presence type='unavailable'/>";
    for change in [None, Some(away), Some(unavailable)] {
        let nodes = cluster();
        nodes.cut(0, 2);
        let connect = |node, user, resource| {
            let client = nodes.node(node).connect(user, resource);
            client.enable_resumption();
            client.send("<presence/>");
            client
        };
        let (phone, juliet) = (connect(2, "romeo", "phone"), connect(0, "juliet", "balcony"));
        // Before the nodes notice that they are cut off.
        step(&nodes, 4);
        juliet.leave(true);
        let pending = nodes.node(1).resume(&juliet);
        step(&nodes, 8);
        let moved = nodes.node(1).resumed(&pending).expect("an outcome");
        let again = moved.unwrap_or_else(|handled| panic!("it is not resumed, {handled:?}"));
        change.iter().for_each(|presence| again.send(presence));
        step(&nodes, 4);
        nodes.heal(0, 2);
        nodes.settle();
        let seen = phone.recv();
        let last = seen.iter().rfind(|stanza| stanza.contains("from='juliet@example.com/balcony'"));
        let has = |text: &str| last.is_some_and(|stanza| stanza.contains(text));
        assert_eq!((last.is_some(), has("away")), (true, change == Some(away)), "{change:?}: {seen:?}");
        assert_eq!(has("type='unavailable'"), change == Some(unavailable), "{seen:?}");
    }
}

#[test]
fn a_client_binds_anew_if_the_node_of_its_session_is_cut_off() {
    for waits in [false, true] {
        let nodes = cluster();
        let [romeo, _phone, juliet] = three_clients(&nodes);
        juliet.leave(true);
        romeo.send(&chat("1"));
        nodes.settle();
        nodes.cut(0, 1);
        let pending = nodes.node(1).resume(&juliet);
        if waits {
            step(&nodes, 3);
            nodes.advance(TIMEOUT_SECONDS);
            step(&nodes, 3);
        } else {
            nodes.settle();
        }
        assert_eq!(nodes.node(1).resumed(&pending).expect("an outcome").err(), Some(None), "{waits}");
        let again = nodes.node(1).connect("juliet", "balcony");
        again.enable_resumption();
        again.send("<presence/>");
        nodes.settle();
        nodes.heal(0, 1);
        nodes.settle();
        wait(&nodes);
        assert!(juliet.session.is_ended() && !again.session.is_ended());
        assert_eq!(receive_all(&nodes, &again), ["1"], "{waits}");
        wait(&nodes);
        assert!(romeo.handled() == romeo.sent() && stored(&nodes) == 0);
    }
}

/// Node 1 gives up while the state of the session is on its way, and she binds her address anew. Its report reaches node 0 before the
/// state returns. One sender has no stream management: nobody would learn that his message is lost.
#[test]
fn what_a_session_held_is_delivered_to_the_one_that_was_bound_anew_while_its_state_was_on_the_way() {
    let mut bound_anew = 0;
    for steps in 0..6 {
        let nodes = cluster();
        let [romeo, _phone, juliet] = three_clients(&nodes);
        let untracked = nodes.node(0).connect("romeo", "untracked");
        juliet.leave(true);
        romeo.send(&chat("1"));
        untracked.send(&chat("2"));
        nodes.settle();
        let pending = nodes.node(1).resume(&juliet);
        step(&nodes, steps);
        nodes.advance(TIMEOUT_SECONDS);
        nodes.node(1).run_tasks();
        let Some(outcome) = nodes.node(1).resumed(&pending) else { continue };
        let again = outcome.unwrap_or_else(|_| {
            bound_anew += 1;
            let again = nodes.node(1).connect("juliet", "balcony");
            again.enable_resumption();
            again.send("<presence/>");
            again
        });
        nodes.settle();
        wait(&nodes);
        let mut received = receive_all(&nodes, &again);
        received.sort();
        received.dedup();
        assert_eq!(received, ["1", "2"], "{steps}");
        wait(&nodes);
        assert_eq!((romeo.handled(), stored(&nodes)), (romeo.sent(), 0), "{steps}");
    }
    assert!(bound_anew > 0);
}

#[test]
fn of_two_parallel_resumptions_one_succeeds() {
    for steps in 0..8 {
        let nodes = cluster();
        let [romeo, _phone, juliet] = three_clients(&nodes);
        romeo.send(&chat("1"));
        juliet.leave(true);
        let first = nodes.node(1).resume(&juliet);
        step(&nodes, steps);
        let second = nodes.node(2).resume(&juliet);
        nodes.settle();
        nodes.advance(TIMEOUT_SECONDS);
        nodes.settle();
        let outcomes = [(1, &first), (2, &second)].map(|(node, pending)| nodes.node(node).resumed(pending));
        let resumed: Vec<NodeClient> = outcomes.into_iter().flatten().filter_map(Result::ok).collect();
        let live: Vec<&NodeClient> = resumed.iter().filter(|client| !client.session.is_ended()).collect();
        assert_eq!(live.len(), 1, "{steps}, {} resumed", resumed.len());
        assert_eq!(receive(live[0]), ["1"], "{steps}");
    }
}

#[test]
fn a_large_queue_moves_in_parts_and_one_that_is_too_large_stays() {
    for (count, moves) in [(9, true), (12, false)] {
        let nodes = cluster();
        let [_romeo, _phone, juliet] = three_clients(&nodes);
        juliet.send("<message to='romeo@example.com' type='headline'/>");
        juliet.leave(true);
        let limits = OutboxLimits { queue_message_bytes: 8 << 20, ..OutboxLimits::default() };
        let body = "x".repeat(200_000);
        let expected: Vec<String> = (0..count).map(|id| id.to_string()).collect();
        for id in &expected {
            let text = format!(
                "<message from='romeo@example.com/orchard' to='juliet@example.com/balcony' id='{id}'>\
                 <body>{body}</body></message>"
            );
            let stanza = SharedStanza::parse(text.as_bytes()).expect("a message");
            let item = QueuedStanza::new(stanza, ToRewrite::None);
            juliet.session.outbox.push(item, Urgency::Now, &limits);
        }
        let pending = nodes.node(1).resume(&juliet);
        match finish(&nodes, 1, &pending) {
            Ok(again) => assert_eq!((receive(&again), moves), (expected, true)),
            Err(handled) => {
                assert_eq!((handled, moves), (None, false));
                assert!(!juliet.session.is_ended(), "it can be resumed where it is");
            }
        }
    }
}

#[test]
fn another_user_learns_nothing_of_a_session() {
    let nodes = cluster();
    let [_romeo, _phone, juliet] = three_clients(&nodes);
    juliet.leave(true);
    let pending = nodes.node(1).resume_as("romeo", "balcony", &juliet);
    assert_eq!(finish(&nodes, 1, &pending).err(), Some(None));
    let pending = nodes.node(1).resume_as("juliet", "garden", &juliet);
    assert_eq!(finish(&nodes, 1, &pending).err(), Some(None));
    assert!(!juliet.session.is_ended() && juliet.session.outbox.is_detached());
    resume(&nodes, 1, &juliet);
}

#[test]
fn the_count_of_a_stream_that_has_ended_elsewhere_is_known_while_its_node_has_sessions_of_the_account() {
    let nodes = cluster();
    let [_romeo, _phone, juliet] = three_clients(&nodes);
    let _other = online(&nodes, 0, "juliet", "garden");
    juliet.close();
    nodes.settle();
    let pending = nodes.node(1).resume(&juliet);
    assert_eq!(finish(&nodes, 1, &pending).err(), Some(Some(1)));
}

#[test]
fn a_stream_moves_back_and_forth() {
    let nodes = cluster();
    let [romeo, phone, mut juliet] = three_clients(&nodes);
    for (number, node) in (1..).zip([1, 0, 2, 1, 0]) {
        juliet.leave(number % 2 == 0);
        romeo.send(&chat(&format!("r{number}")));
        phone.send(&chat(&format!("p{number}")));
        juliet = resume(&nodes, node, &juliet);
        nodes.settle();
        let mut received = receive(&juliet);
        received.sort();
        assert_eq!(received, [format!("p{number}"), format!("r{number}")]);
        wait(&nodes);
    }
    assert!(romeo.handled() == romeo.sent() && phone.handled() == phone.sent() && stored(&nodes) == 0);
}

/// Envelopes of a login that requests presence of contacts whose sessions have moved a moment ago.
fn envelopes_of_login(moved: usize) -> u64 {
    let nodes = TestNodes::new(3, &observed_features());
    let contacts: Vec<String> = (0..moved).map(|number| format!("contact{number}")).collect();
    nodes.node(0).create_user("paris");
    for contact in &contacts {
        nodes.node(0).create_user(contact);
        nodes.node(0).add_contact("paris", contact, Subscription::TO | Subscription::IN_ROSTER);
        nodes.node(0).add_contact(contact, "paris", Subscription::FROM | Subscription::IN_ROSTER);
    }
    let sessions: Vec<NodeClient> = contacts.iter().map(|name| online(&nodes, 0, name, "r")).collect();
    for session in sessions {
        session.leave(true);
        drop(resume(&nodes, 1, &session));
    }
    let paris = nodes.node(2).connect("paris", "p");
    nodes.settle();
    nodes.take_envelopes();
    paris.send("<presence/>");
    nodes.settle();
    let seen = paris.recv().concat();
    assert!(contacts.iter().all(|name| seen.contains(&format!("from='{name}@"))), "{seen}");
    nodes.take_envelopes()
}

/// Many sessions move when a node is drained.
#[test]
fn a_probe_is_forwarded_in_one_envelope_for_all_sessions_that_have_moved_to_a_node() {
    assert_eq!(envelopes_of_login(5), envelopes_of_login(1));
}

#[test]
fn what_a_session_holds_survives_the_node_that_has_taken_it() {
    let mut nodes = cluster();
    let [romeo, _phone, juliet] = three_clients(&nodes);
    juliet.leave(true);
    romeo.send(&chat("1"));
    nodes.settle();
    let again = resume(&nodes, 1, &juliet);
    romeo.send(&chat("2"));
    nodes.settle();
    wait(&nodes);
    assert_eq!((romeo.handled() == romeo.sent(), stored(&nodes)), (true, 2));
    nodes.crash(1);
    drop(again);
    nodes.settle();
    let seen = romeo.recv();
    assert!(seen.iter().any(|stanza| stanza.contains("type='unavailable'")), "{seen:?}");
    assert_eq!(receive(&online(&nodes, 2, "juliet", "late")), Vec::<String>::new());
}

#[test]
fn the_node_that_takes_a_session_may_be_lost_at_any_time() {
    for steps in 0..10 {
        let mut nodes = cluster();
        let [romeo, phone, juliet] = three_clients(&nodes);
        juliet.leave(true);
        romeo.send(&chat("1"));
        phone.send(&chat("2"));
        nodes.settle();
        let pending = nodes.node(1).resume(&juliet);
        step(&nodes, steps);
        romeo.send(&chat("3"));
        nodes.crash(1);
        drop(pending);
        nodes.settle();
        wait(&nodes);
        // The session, if it is still there, ends when the client does not come back.
        juliet.close();
        wait(&nodes);
        let late = online_without_reading(&nodes, 2);
        let mut received = receive_all(&nodes, &late);
        received.sort();
        received.dedup();
        wait(&nodes);
        assert_eq!(received, ["1", "2", "3"], "{steps}");
        assert!(romeo.handled() == romeo.sent() && phone.handled() == phone.sent(), "{steps}");
    }
}

fn online_without_reading(nodes: &TestNodes, node: usize) -> NodeClient {
    let client = nodes.node(node).connect("juliet", "late");
    client.enable_resumption();
    client.send("<presence/>");
    nodes.settle();
    client
}

/// A probe that had waited for room goes to the node where the contact was; that has moved to the node of the probing session meanwhile.
#[test]
fn a_probe_that_comes_back_to_its_own_node_shows_the_contact_that_has_moved_there() {
    use cluster::{AddressReference, Cluster, Envelope, EnvelopeClass, EnvelopeKind, Recipient};
    let test = crate::handovers::Peer::new();
    test.nodes.node(0).befriend("romeo", "juliet");
    let _romeo = test.online(0, "romeo", "orchard");
    let juliet = test.online(0, "juliet", "balcony");
    let [prober, contact] = ["juliet", "romeo"].map(|user| test.nodes.node(0).principal(user));
    let (node, full) = (test.nodes.id(0), juliet.full().to_owned());
    let mut octets = Vec::new();
    peers::notices::write_text(&mut octets, node.as_str());
    peers::notices::write_text(&mut octets, &full);
    octets.extend(prober.id.get().to_be_bytes());
    let hash = test.nodes.node(0).node.routing_table.hash(contact.jid.as_ref());
    let recipients = vec![Recipient::Account(AddressReference { hash, number: contact.id.0 })];
    let (kind, class) = (EnvelopeKind::Engine(30), EnvelopeClass::Control);
    let probe = Envelope::new(kind, class, crate::handovers::Peer::id(), recipients, octets);
    test.peer.deliver(node, probe).expect("accepted");
    test.nodes.settle();
    let seen = crate::presence::presence(&juliet);
    assert_eq!(seen, [("romeo@example.com/orchard".to_owned(), true)]);
}
