//! Cases in which it matters what is in transit between nodes, or which an administrator starts.
//!
//! Each runs on one node, where it must pass, on two and on three. A node's number wraps around.

use std::task::{Context, Waker};

use jid::Jid;
use store::Subscription;
use testkit::{NodeClient, TestNodes};
use throng_commands::account_admin;
use throng_core::session::{QueuedBatch, WrittenMessages};
use throng_e2e::chain_observer::{SLOW, observed_features, take_runs};
use throng_e2e::several_nodes::{assert_entries_name_tests, assert_outcome};

/// Makes the tests of each case.
macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        const CASES: &[&str] = &[$(stringify!($name)),*];
        $(mod $name {
            #[test]
            fn on_one_node() {
                super::run_case(stringify!($name), 1, super::$name);
            }

            #[test]
            fn on_two_nodes() {
                super::run_case(stringify!($name), 2, super::$name);
            }

            #[test]
            fn on_three_nodes() {
                super::run_case(stringify!($name), 3, super::$name);
            }
        })*
    };
}

cases! {
    two_stale_hints_store_a_message_once,
    a_stale_hint_beside_a_right_one_delivers_a_message_once,
    a_message_that_comes_back_from_a_lost_node_runs_the_chain_once,
    a_message_whose_receipt_is_lost_with_the_network_is_not_delivered_again,
    a_subscription_that_comes_back_from_a_lost_node_changes_both_rosters,
    a_roster_written_during_a_login_elsewhere_is_seen_by_the_session,
    a_subscription_request_that_is_stored_before_the_claim_arrives_is_shown_once,
    a_disabled_account_keeps_no_session_elsewhere,
    a_removed_account_keeps_no_session_elsewhere,
    two_messages_of_a_pair_stay_in_order_if_the_first_waits,
    a_message_to_a_user_elsewhere_arrives,
    what_was_stored_on_one_node_is_delivered_on_another,
    what_a_session_leaves_unread_is_not_delivered_again_to_one_that_has_read_it,
    what_two_sessions_leave_unread_is_stored_once,
    what_the_second_session_leaves_unread_is_delivered_by_the_first_only,
    what_one_session_leaves_in_the_store_stays_there_until_another_one_has_it,
    what_is_in_the_output_of_one_session_stays_in_the_store_until_the_kernel_has_taken_it,
}

type CaseFn = fn(&TestNodes) -> Result<(), String>;

fn run_case(name: &str, count: usize, case: CaseFn) {
    let nodes = TestNodes::new(count, &observed_features());
    nodes.node(0).create_user("romeo");
    nodes.node(0).create_user("juliet");
    assert_outcome(&format!("cases/{name}"), count, case(&nodes));
}

#[test]
fn each_known_failure_names_a_case() {
    let names: Vec<String> = CASES.iter().map(|name| format!("cases/{name}")).collect();
    assert_entries_name_tests("cases/", &names);
}

fn ensure(so: bool, otherwise: &str) -> Result<(), String> {
    if so { Ok(()) } else { Err(otherwise.to_owned()) }
}

/// An available session of a user on a node.
fn online(nodes: &TestNodes, node: usize, user: &str, resource: &str) -> NodeClient {
    let client = nodes.node(node).connect(user, resource);
    client.send("<presence/>");
    nodes.settle();
    client
}

fn chat(id: &str) -> String {
    format!("<message to='juliet@example.com' type='chat' id='{id}'><body>Hello</body></message>")
}

/// Ids of the messages that a client received since the last call.
fn message_ids(client: &NodeClient) -> Vec<String> {
    let id = |text: &String| {
        let document = roxmltree::Document::parse(text).expect("XML");
        let root = document.root_element();
        let id = root.attribute("id").unwrap_or_default().to_owned();
        (root.tag_name().name() == "message").then_some(id)
    };
    client.recv().iter().filter_map(id).collect()
}

fn juliet() -> Jid {
    Jid::parse("juliet@example.com").expect("an address")
}

/// Her sessions on two nodes have just ended, and the sender's node does not know it yet.
fn two_stale_hints_store_a_message_once(nodes: &TestNodes) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    let sessions = [online(nodes, 1, "juliet", "balcony"), online(nodes, 2, "juliet", "phone")];
    sessions.iter().for_each(NodeClient::close);
    romeo.send(&chat("1"));
    nodes.settle();
    let late = online(nodes, 0, "juliet", "late");
    let received = message_ids(&late);
    ensure(received == ["1"], &format!("the store had {received:?}"))
}

fn a_stale_hint_beside_a_right_one_delivers_a_message_once(nodes: &TestNodes) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    let (ended, phone) = (online(nodes, 1, "juliet", "balcony"), online(nodes, 2, "juliet", "phone"));
    ended.close();
    romeo.send(&chat("1"));
    nodes.settle();
    let received = message_ids(&phone);
    ensure(received == ["1"], &format!("received {received:?}"))
}

/// The sender's node is cut off from that of the recipient until it considers it dead.
fn a_message_that_comes_back_from_a_lost_node_runs_the_chain_once(nodes: &TestNodes) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    let _juliet = online(nodes, 1, "juliet", "balcony");
    nodes.cut(0, 1);
    take_runs();
    romeo.send(&chat("1"));
    nodes.settle();
    let runs = take_runs().get("1").map_or(0, Vec::len);
    ensure(runs == 1, &format!("it ran {runs} times"))
}

/// Her client has taken the message when the nodes are cut off from each other, and its receipt is on the way: the sender's node stores
/// the message.
fn a_message_whose_receipt_is_lost_with_the_network_is_not_delivered_again(
    nodes: &TestNodes,
) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    romeo.enable_stream_management();
    let juliet = nodes.node(1).connect("juliet", "balcony");
    juliet.enable_resumption();
    juliet.send("<presence/>");
    nodes.settle();
    juliet.recv();
    nodes.settle();
    romeo.send(&chat("1"));
    let arrives = (0..100).any(|_| {
        nodes.step();
        juliet.session.outbox.queued_bytes() > 0
    });
    ensure(arrives, "the message does not arrive")?;
    nodes.cut(0, 1);
    let received = message_ids(&juliet);
    ensure(received == ["1"], &format!("received {received:?}"))?;
    nodes.settle();
    nodes.heal(0, 1);
    nodes.settle();
    let again = message_ids(&juliet);
    ensure(again.is_empty(), &format!("received again {again:?}"))?;
    nodes.settle();
    juliet.close();
    let late = online(nodes, 0, "juliet", "late");
    let stored = message_ids(&late);
    ensure(stored.is_empty(), &format!("the store still has {stored:?}"))
}

fn a_subscription_that_comes_back_from_a_lost_node_changes_both_rosters(
    nodes: &TestNodes,
) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    let _juliet = online(nodes, 1, "juliet", "balcony");
    nodes.cut(0, 1);
    romeo.send("<presence type='subscribe' to='juliet@example.com'/>");
    nodes.settle();
    let state =
        |owner, contact| nodes.node(0).stored_roster_item(owner, contact).map(|item| item.subscription);
    let (his, hers) = (state("romeo", "juliet"), state("juliet", "romeo"));
    let right = his == Some(Subscription::PENDING_OUT | Subscription::IN_ROSTER)
        && hers == Some(Subscription::PENDING_IN);
    ensure(right, &format!("his state is {his:?}, hers {hers:?}"))
}

fn a_roster_written_during_a_login_elsewhere_is_seen_by_the_session(nodes: &TestNodes) -> Result<(), String> {
    let read_before = nodes.node(1).principal("juliet");
    let both = Subscription::BOTH | Subscription::IN_ROSTER;
    nodes.node(0).add_contact("juliet", "romeo", both);
    nodes.node(0).add_contact("romeo", "juliet", both);
    nodes.settle();
    let romeo = online(nodes, 1, "romeo", "orchard");
    romeo.recv();
    let juliet = nodes.node(1).bind(read_before, "balcony").map_err(|condition| format!("{condition:?}"))?;
    nodes.settle();
    juliet.send("<presence/>");
    nodes.settle();
    let received = romeo.recv();
    let seen = received.iter().any(|stanza| stanza.contains("juliet@example.com/balcony"));
    ensure(seen, "he does not receive her presence")
}

/// She has just logged in, and the node of the sender does not know it yet.
fn a_subscription_request_that_is_stored_before_the_claim_arrives_is_shown_once(
    nodes: &TestNodes,
) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    let juliet = nodes.node(1).connect("juliet", "balcony");
    juliet.send("<iq type='get' id='r'><query xmlns='jabber:iq:roster'/></iq>");
    juliet.send("<presence/>");
    romeo.send("<presence type='subscribe' to='juliet@example.com'/>");
    nodes.settle();
    let received = juliet.recv();
    let requests = |received: &[String]| received.iter().filter(|text| text.contains("'subscribe'")).count();
    ensure(requests(&received) == 1, &format!("at once: {received:?}"))?;
    juliet.send("<presence><show>away</show></presence>");
    nodes.settle();
    let received = juliet.recv();
    ensure(requests(&received) == 0, &format!("later: {received:?}"))?;
    let phone = online(nodes, 2, "juliet", "phone");
    ensure(requests(&phone.recv()) == 1, "a further session received it not once")?;
    romeo.send("<presence type='unsubscribe' to='juliet@example.com'/>");
    romeo.send("<presence type='subscribe' to='juliet@example.com'/>");
    nodes.settle();
    let received = [juliet.recv(), phone.recv()];
    ensure(received.iter().all(|received| requests(received) == 1), &format!("again: {received:?}"))
}

fn a_disabled_account_keeps_no_session_elsewhere(nodes: &TestNodes) -> Result<(), String> {
    let session = online(nodes, 1, "juliet", "balcony");
    let node = nodes.node(0);
    node.block_on(account_admin::set_account_disabled(&node.node, &juliet(), true))
        .map_err(|error| format!("{error:?}"))?;
    nodes.settle();
    ensure(session.session.is_ended(), "the session goes on")
}

fn a_removed_account_keeps_no_session_elsewhere(nodes: &TestNodes) -> Result<(), String> {
    let session = online(nodes, 1, "juliet", "balcony");
    let node = nodes.node(0);
    node.block_on(account_admin::remove_account(&node.node, juliet().as_ref()))
        .map_err(|error| format!("{error:?}"))?;
    nodes.settle();
    ensure(session.session.is_ended(), "the session goes on")
}

/// A handler of the recipient's chain waits for the store.
fn two_messages_of_a_pair_stay_in_order_if_the_first_waits(nodes: &TestNodes) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    let juliet = online(nodes, 1, "juliet", "balcony");
    let slow = format!("1{SLOW}");
    romeo.send(&chat(&slow));
    romeo.send(&chat("2"));
    nodes.settle();
    let received = message_ids(&juliet);
    ensure(received == [slow.as_str(), "2"], &format!("received {received:?}"))
}

fn a_message_to_a_user_elsewhere_arrives(nodes: &TestNodes) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    let juliet = online(nodes, 1, "juliet", "balcony");
    romeo.send(&chat("1"));
    nodes.settle();
    let received = message_ids(&juliet);
    ensure(received == ["1"], &format!("received {received:?}"))
}

fn what_was_stored_on_one_node_is_delivered_on_another(nodes: &TestNodes) -> Result<(), String> {
    let romeo = online(nodes, 0, "romeo", "orchard");
    romeo.send(&chat("1"));
    nodes.settle();
    let received = message_ids(&online(nodes, 1, "juliet", "balcony"));
    ensure(received == ["1"], &format!("received {received:?}"))
}

/// Both take the message; `romeo` learns when it is safe.
fn two_sessions(nodes: &TestNodes) -> [NodeClient; 3] {
    let (romeo, phone) = (online(nodes, 0, "romeo", "orchard"), online(nodes, 0, "juliet", "phone"));
    let laptop = online(nodes, 1, "juliet", "laptop");
    romeo.enable_stream_management();
    message_ids(&phone);
    romeo.send(&chat("1"));
    nodes.settle();
    [romeo, phone, laptop]
}

fn what_a_session_leaves_unread_is_not_delivered_again_to_one_that_has_read_it(
    nodes: &TestNodes,
) -> Result<(), String> {
    for is_stored in [false, true] {
        let [romeo, phone, laptop] = two_sessions(nodes);
        let first = message_ids(&laptop);
        if is_stored {
            nodes.advance(1);
            nodes.settle();
        }
        phone.close();
        nodes.settle();
        let again = message_ids(&laptop);
        ensure(first == ["1"] && again.is_empty(), &format!("received {first:?}, then {again:?}"))?;
        laptop.close();
        nodes.settle();
        let late = online(nodes, 0, "juliet", "late");
        let stored = message_ids(&late);
        late.close();
        ensure(stored.is_empty(), &format!("the store had {stored:?}, {is_stored}"))?;
        ensure(romeo.handled() == romeo.sent(), "the sender waits")?;
    }
    Ok(())
}

fn what_two_sessions_leave_unread_is_stored_once(nodes: &TestNodes) -> Result<(), String> {
    for (is_stored, first) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
        let [romeo, phone, laptop] = two_sessions(nodes);
        if is_stored {
            nodes.advance(1);
            nodes.settle();
        }
        for at in [first, 1 - first] {
            [&phone, &laptop][at].close();
            nodes.settle();
        }
        let late = online(nodes, 0, "juliet", "late");
        let stored = message_ids(&late);
        ensure(stored == ["1"], &format!("the store had {stored:?}, {is_stored}, {first} was first"))?;
        nodes.settle();
        late.close();
        ensure(romeo.handled() == romeo.sent(), "the sender waits")?;
        romeo.close();
        nodes.settle();
    }
    Ok(())
}

fn what_the_second_session_leaves_unread_is_delivered_by_the_first_only(
    nodes: &TestNodes,
) -> Result<(), String> {
    let [_romeo, phone, laptop] = two_sessions(nodes);
    laptop.close();
    nodes.settle();
    let received = message_ids(&phone);
    ensure(received == ["1"], &format!("received {received:?}"))?;
    phone.close();
    nodes.settle();
    let stored = message_ids(&online(nodes, 1, "juliet", "late"));
    ensure(stored.is_empty(), &format!("the store had {stored:?}"))
}

/// A lost node must not take the only copy with it.
fn what_one_session_leaves_in_the_store_stays_there_until_another_one_has_it(
    nodes: &TestNodes,
) -> Result<(), String> {
    let [romeo, phone, laptop] = two_sessions(nodes);
    nodes.advance(1);
    nodes.settle();
    ensure(romeo.handled() == romeo.sent(), "the message has no backup")?;
    let stores = &nodes.node(0).node.stores;
    let owner = nodes.node(0).block_on(stores.addresses.find(&juliet())).expect("an answer").expect("an id");
    let stored = || nodes.node(0).block_on(stores.offline.count(owner)).expect("an answer");
    phone.close();
    nodes.settle();
    ensure(stored() > 0, "the message is in the memory of one node only")?;
    // Its backup is due.
    nodes.advance(1);
    nodes.settle();
    ensure(stored() > 0, "the message is in the memory of one node only, later")?;
    let received = message_ids(&laptop);
    nodes.settle();
    ensure(received == ["1"] && stored() == 0, &format!("received {received:?}, {} are stored", stored()))
}

/// A connection that breaks takes what is in its output with it.
fn what_is_in_the_output_of_one_session_stays_in_the_store_until_the_kernel_has_taken_it(
    nodes: &TestNodes,
) -> Result<(), String> {
    for laptop_ends_first in [false, true] {
        let [romeo, phone, laptop] = two_sessions(nodes);
        let (mut batch, mut written) = (QueuedBatch::new(), WrittenMessages::default());
        let outbox = &laptop.session.outbox;
        outbox.dequeue(&mut Context::from_waker(Waker::noop()), &mut batch, u32::MAX, 0);
        batch.drain(..).for_each(|item| written.add(&item));
        outbox.retain_unflushed(&mut written);
        nodes.advance(1);
        nodes.settle();
        ensure(romeo.handled() == romeo.sent(), "the message has no backup")?;
        // Its node keeps a session of the account, and so what it knows of the message.
        let tablet = online(nodes, 1, "juliet", "tablet");
        let sessions = if laptop_ends_first { [&laptop, &phone] } else { [&phone, &laptop] };
        for session in sessions {
            session.close();
            nodes.settle();
            nodes.advance(1);
            nodes.settle();
        }
        let received = message_ids(&tablet);
        tablet.close();
        romeo.close();
        nodes.settle();
        ensure(received == ["1"], &format!("received {received:?}, {laptop_ends_first}"))?;
    }
    Ok(())
}
