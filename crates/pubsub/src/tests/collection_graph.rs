//! The graph of collections under load and in wrong hands: changes that wait for each other, cycles, half edges, and what one user
//! costs others.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use base::BoxFuture;
use base::lock::LeafMutex;
use base::spawn::Spawner;
use queues::answer_channel::{AnswerReceiver, answer_channel};
use throng_core::iq::IqAnswer;

use super::abuse::waiting;
use super::collections::{
    ALL_ITEMS, COLLECTION, associate, blogs, configure_node, created, disco, subscribe_with, values,
};
use super::*;
use crate::node::ROOT_NODE;
use crate::pubsub_shared::{NodeInput, NodeMessage, NodeTasks};
use crate::request::{GivenItem, NodeRequest};

/// As much as the mailbox of a node takes.
const FULL: usize = 4 << 20;

fn key(node: &str) -> jid::Jid {
    jid::Jid::parse(&format!("{SERVICE}/{node}")).unwrap()
}

fn tasks(denmark: &Denmark) -> std::sync::Arc<NodeTasks> {
    let host = denmark.engine.node.host("example.com").unwrap();
    let crate::ServiceOfHost(service) = host.extensions.get().unwrap();
    service.shared.tasks().unwrap()
}

/// Everything is read from the store again.
fn forget(denmark: &Denmark) {
    denmark.engine.advance(400);
    denmark.engine.run_tasks();
    assert!(tasks(denmark).is_empty());
}

/// Keeps tasks that have not begun.
#[derive(Default)]
struct HeldTasks(LeafMutex<Vec<BoxFuture<'static, ()>>>);

impl Spawner for HeldTasks {
    fn spawn(&self, _: &'static str, task: BoxFuture<'static, ()>) {
        self.0.lock().push(task);
    }

    fn spawn_blocking(&self, _: &'static str, job: Box<dyn FnOnce() + Send>) {
        job();
    }
}

impl HeldTasks {
    /// Sends a request that fills the mailbox of a node without a task.
    fn fill(
        &self,
        denmark: &Denmark,
        node: &str,
        (from, request): (&NodeClient, NodeRequest),
    ) -> AnswerReceiver<IqAnswer> {
        let (reply, answer) = answer_channel();
        let from = jid::Jid::parse(from.full()).unwrap();
        let input = NodeInput::Request { request, from, reply, bytes: 64, guard: None };
        let message = NodeMessage { node: denmark.engine.node.clone(), input };
        assert!(tasks(denmark).try_send(self, &key(node), message, FULL).is_ok());
        answer
    }

    /// Lets the tasks run.
    fn release(&self, denmark: &Denmark) {
        let tasks = std::mem::take(&mut *self.0.lock());
        for task in tasks {
            denmark.engine.node.spawner.spawn("held", task);
        }
        denmark.engine.run_tasks();
    }
}

fn is_done(answer: AnswerReceiver<IqAnswer>) -> bool {
    let poll = pin!(answer.receive()).poll(&mut Context::from_waker(Waker::noop()));
    matches!(poll, Poll::Ready(Some(Ok(_))))
}

fn item(id: &str) -> NodeRequest {
    let payload = b"<a xmlns='u:a'/>".to_vec();
    let item = GivenItem { id: Some(id.to_owned()), payload, payload_ns: "u:a".to_owned(), payload_count: 1 };
    NodeRequest::Publish { items: vec![item], options: None }
}

#[test]
fn a_collection_and_its_child_with_full_mailboxes_do_not_wait_for_each_other() {
    let denmark = waiting(&[]);
    let hamlet = blogs(&denmark);
    forget(&denmark);
    let held = HeldTasks::default();
    let down = held.fill(&denmark, "blogs", (&hamlet, NodeRequest::Dissociate(NODE.to_owned())));
    let up = held.fill(&denmark, NODE, (&hamlet, item("1")));
    held.release(&denmark);
    assert!(is_done(down) && is_done(up));
    assert_eq!(values(&hamlet, NODE, "pubsub#collection"), [""]);
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), Vec::<String>::new());
}

#[test]
fn nobody_waits_for_the_root() {
    let denmark = waiting(&[]);
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    subscribe_with(&francisco, "", &[]);
    forget(&denmark);
    let held = HeldTasks::default();
    let _answer = held.fill(&denmark, ROOT_NODE, (&hamlet, NodeRequest::OwnSubscriptions));
    let answer = publish(&hamlet, "1");
    assert!(answer.contains("type='result'"), "{answer}");
    held.release(&denmark);
}

#[test]
fn the_root_ends_with_its_last_subscription() {
    let denmark = Denmark::new();
    let hamlet = denmark.node(&[]);
    let francisco = denmark.connect("francisco");
    let exists = || {
        let number = denmark.engine.node.stores.pubsub.number(key(ROOT_NODE).as_ref());
        denmark.engine.block_on(number).unwrap().is_some()
    };
    for options in [&[][..], &[("pubsub#subscription_type", "all"), ("pubsub#subscription_depth", "1")]] {
        let answer = subscribe_with(&francisco, "", options);
        assert!(answer.contains("subscription='subscribed'") && exists(), "{answer}");
        let subid = if options.is_empty() { String::new() } else { attribute(&answer, "subid") };
        let gone = format!("<unsubscribe jid='{}' subid='{subid}'/>", francisco.bare());
        assert!(set(&francisco, &gone).contains("type='result'"));
        assert!(!exists());
    }
    created(&hamlet, "after", &[]);
    // One that was left is removed when it is used.
    subscribe_with(&francisco, "", &[]);
    forget(&denmark);
    assert!(exists());
    created(&hamlet, "seen", &[]);
    assert_eq!(francisco.recv().len(), 1);
    set(&francisco, &format!("<unsubscribe jid='{}'/>", francisco.bare()));
    assert!(!exists());
}

#[test]
fn section_6_1_3_the_root_tells_nobody_everything_by_a_number() {
    let denmark = Denmark::new();
    let francisco = denmark.connect("francisco");
    for depth in ["2", "15", "16", "4294967295"] {
        let options = [("pubsub#subscription_type", "items"), ("pubsub#subscription_depth", depth)];
        assert_error(&subscribe_with(&francisco, "", &options), "cancel", "not-allowed", "");
    }
    blogs(&denmark);
    let deep = [("pubsub#subscription_type", "items"), ("pubsub#subscription_depth", "16")];
    let answer = subscribe_with(&francisco, "blogs", &deep);
    assert!(answer.contains("<value>all</value>"), "the form says what it means: {answer}");
}

#[test]
fn section_7_2_3_5_a_cycle_through_both_fields_of_a_request_is_refused() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "x", &[COLLECTION]);
    created(&hamlet, "p", &[COLLECTION, ("pubsub#collection", "x")]);
    let both = [COLLECTION, ("pubsub#collection", "p"), ("pubsub#children", "x")];
    assert_error(&create(&hamlet, "n", &both), "cancel", "not-allowed", "invalid-options");
    created(&hamlet, "n", &[COLLECTION]);
    let answer = configure_node(&hamlet, "n", &both);
    assert_error(&answer, "cancel", "not-allowed", "invalid-options");
    assert_eq!(values(&hamlet, "n", "pubsub#collection"), [""]);
    assert_eq!(values(&hamlet, "x", "pubsub#collection"), [""]);
}

#[test]
fn what_a_request_removes_closes_no_cycle() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "a", &[COLLECTION]);
    created(&hamlet, "n", &[COLLECTION, ("pubsub#collection", "a")]);
    let turned = configure_node(&hamlet, "n", &[("pubsub#collection", ""), ("pubsub#children", "a")]);
    assert_result(&hamlet, &turned, "");
    assert_eq!(values(&hamlet, "a", "pubsub#collection"), ["n"]);
    let back = configure_node(&hamlet, "n", &[("pubsub#collection", "a"), ("pubsub#children", "")]);
    assert_result(&hamlet, &back, "");
    assert_eq!(values(&hamlet, "a", "pubsub#children"), ["n"]);
    assert_eq!(values(&hamlet, "a", "pubsub#collection"), [""]);
}

fn count_reads(denmark: &Denmark, act: impl FnOnce() -> String) -> (usize, String) {
    denmark.engine.store_calls();
    let answer = act();
    let calls = denmark.engine.store_calls();
    (calls.iter().filter(|call| matches!(**call, "pubsub.record" | "pubsub.load")).count(), answer)
}

#[test]
fn a_change_reads_each_collection_above_once_and_those_that_are_not_permitted_read_none() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    denmark.engine.node.set_admins([jid::Jid::parse("hamlet@example.com").unwrap()]);
    let layer = |number: usize| (0..8).map(|at| format!("l{number}n{at}")).collect::<Vec<_>>();
    for number in 0..4 {
        let above = if number == 0 { String::new() } else { layer(number - 1).join("|") };
        for node in layer(number) {
            created(&hamlet, &node, &[COLLECTION, ("pubsub#collection", &above)]);
        }
    }
    created(&hamlet, NODE, &[]);
    created(&hamlet, "open", &[COLLECTION, ("pubsub#children_association_policy", "all")]);
    let lowest = layer(3).join("|");
    let francisco = denmark.connect("francisco");
    for (node, condition) in [(NODE, "forbidden"), ("nowhere", "item-not-found")] {
        let (reads, answer) =
            count_reads(&denmark, || configure_node(&francisco, node, &[("pubsub#collection", &lowest)]));
        assert_error(&answer, if condition == "forbidden" { "auth" } else { "cancel" }, condition, "");
        assert!(reads <= 1, "{node}: {reads}");
    }
    let guest = denmark.engine.connect_anonymous("guest", "web");
    let (reads, _) = count_reads(&denmark, || create(&guest, "new", &[("pubsub#collection", &lowest)]));
    assert!(reads <= 1, "{reads}");
    let (reads, answer) =
        count_reads(&denmark, || configure_node(&hamlet, NODE, &[("pubsub#collection", &lowest)]));
    assert_result(&hamlet, &answer, "");
    // Each of them, and the tasks of the collections that have the child.
    assert!(reads <= 4 * 8 + 8, "{reads}");
    let (reads, answer) =
        count_reads(&denmark, || configure_node(&hamlet, NODE, &[("pubsub#collection", &lowest)]));
    assert_result(&hamlet, &answer, "");
    assert_eq!(reads, 0, "the same form again");
}

#[test]
fn a_user_pays_for_the_collections_above() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "c0", &[COLLECTION]);
    for number in 1..15 {
        let parent = format!("c{}", number - 1);
        created(&hamlet, &format!("c{number}"), &[COLLECTION, ("pubsub#collection", &parent)]);
    }
    let francisco = denmark.connect("francisco");
    configure_node(&hamlet, "c14", &[("pubsub#children_association_policy", "all")]);
    created(&francisco, "leaf", &[]);
    let mut count = 0;
    while !configure_node(&francisco, "leaf", &[("pubsub#collection", "c14")]).contains("resource-constraint")
    {
        configure_node(&francisco, "leaf", &[("pubsub#collection", "")]);
        count += 1;
        assert!(count < 1_000 / 15, "not bounded");
    }
}

#[test]
fn changes_that_wait_for_the_graph_are_bounded() {
    let denmark = waiting(&[]);
    let hamlet = blogs(&denmark);
    let francisco = denmark.connect("francisco");
    created(&francisco, "watch", &[COLLECTION]);
    denmark.engine.hold_store_call(Some("pubsub.record"));
    let send = |client: &NodeClient, number: usize, collection: &str| {
        let form = form("node_config", &[("pubsub#collection", collection)]);
        client.send(&format!(
            "<iq type='set' to='{SERVICE}' id='c{number}'><pubsub xmlns='http://jabber.org/protocol/pubsub'>\
             <create node='{collection}{number}'/><configure>{form}</configure></pubsub></iq>"
        ));
    };
    (0..200).for_each(|number| send(&hamlet, number, "blogs"));
    send(&francisco, 0, "watch");
    denmark.engine.run_tasks();
    let refused = hamlet.recv().iter().filter(|one| one.contains("resource-constraint")).count();
    assert!(refused >= 100, "{refused} of 200");
    denmark.engine.hold_store_call(None);
    // Each of the changes takes some rounds.
    (0..100).for_each(|_| denmark.engine.run_tasks());
    let done = |client: &NodeClient| {
        client.recv().iter().filter(|one| one.starts_with("<iq ") && one.contains("type='result'")).count()
    };
    assert_eq!((done(&hamlet), done(&francisco)), (200 - refused, 1));
}

#[test]
fn half_an_edge_gives_no_right_to_read() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    created(&hamlet, "diary", &[("pubsub#collection", "blogs"), ("pubsub#access_model", "whitelist")]);
    created(&hamlet, "other", &[("pubsub#access_model", "whitelist")]);
    set(&hamlet, &format!("<publish node='diary'><item id='secret'>{ENTRY}</item></publish>"));
    let francisco = denmark.connect("francisco");
    assert!(get(&francisco, "<items node='blogs'/>").contains("secret"), "its owner has agreed");
    // The collection of another member of a cluster has not received that the child left.
    let store = &denmark.engine.node.stores.pubsub;
    let other = denmark.engine.block_on(store.load(key("other").as_ref())).unwrap().unwrap();
    let put = vec![store::PubSubChange::Put(other.record)];
    denmark.engine.block_on(store.apply(key("diary").as_ref(), put)).unwrap();
    assert!(disco(&francisco, "items", "blogs").contains("diary"));
    let shown = get(&francisco, "<items node='blogs'/>");
    assert!(shown.contains("type='result'") && !shown.contains("secret"), "{shown}");
}

#[test]
fn section_16_4_4_items_that_have_expired_are_not_retrieved_through_the_collection() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    configure(&hamlet, &[("pubsub#item_expire", "60")]);
    publish(&hamlet, "old");
    denmark.engine.advance(50);
    publish(&hamlet, "new");
    denmark.engine.advance(20);
    let shown = get(&hamlet, "<items node='blogs'/>");
    assert!(shown.contains("id='new'") && !shown.contains("id='old'"), "{shown}");
}

#[test]
fn section_6_2_some_of_the_items_or_an_order_cannot_be_retrieved_through_the_collection() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    created(&hamlet, "ravings", &[("pubsub#collection", "blogs")]);
    for (node, id) in [(NODE, "1"), (NODE, "2"), ("ravings", "3"), ("ravings", "4")] {
        set(&hamlet, &format!("<publish node='{node}'><item id='{id}'>{ENTRY}</item></publish>"));
    }
    for content in [
        "<items node='blogs'><item id='1'/></items>",
        "<items node='blogs'/><set xmlns='http://jabber.org/protocol/rsm'><max>1</max></set>",
        "<items node='blogs'/><order xmlns='urn:xmpp:order-by:1' by='creation'/>",
    ] {
        assert_error(&get(&hamlet, content), "cancel", "feature-not-implemented", "");
    }
    let newest = get(&hamlet, "<items node='blogs' max_items='1'/>");
    assert_eq!(newest.matches("<item ").count(), 2, "{newest}");
    assert!(newest.contains("id='2'") && newest.contains("id='4'"), "{newest}");
    let large = "x".repeat(50_000);
    for number in 0..5 {
        set(
            &hamlet,
            &format!(
                "<publish node='ravings'><item id='{number}'><a xmlns='u:a'>{large}</a></item></publish>"
            ),
        );
    }
    let cut = get(&hamlet, "<items node='blogs'/>");
    assert_error(&cut, "cancel", "feature-not-implemented", "");
    assert!(get(&hamlet, "<items node='blogs' max_items='1'/>").contains("type='result'"));
}

#[test]
fn the_task_of_a_collection_goes_on_while_items_are_retrieved() {
    let denmark = waiting(&[]);
    let hamlet = blogs(&denmark);
    publish(&hamlet, "1");
    let francisco = denmark.connect("francisco");
    denmark.engine.hold_store_call(Some("pubsub.newest_items"));
    denmark.engine.store_calls();
    let get = "<pubsub xmlns='http://jabber.org/protocol/pubsub'><items node='blogs'/></pubsub>";
    francisco.send(&format!("<iq type='get' to='{SERVICE}' id='r1'>{get}</iq>"));
    denmark.engine.run_tasks();
    assert!(francisco.recv().is_empty());
    assert_result(&hamlet, &configure_node(&hamlet, "blogs", &[("pubsub#title", "Blogs")]), "");
    denmark.engine.hold_store_call(None);
    denmark.engine.run_tasks();
    assert!(francisco.recv().concat().contains("<item id='1'>"));
    let calls = denmark.engine.store_calls();
    assert!(!calls.contains(&"pubsub.load"), "not everything that the leaf has: {calls:?}");
}

#[test]
fn section_16_4_4_a_node_that_delivers_no_notifications_announces_nothing() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "blogs", &[COLLECTION]);
    let francisco = denmark.connect("francisco");
    subscribe_with(&francisco, "blogs", &[]);
    let silent = ("pubsub#deliver_notifications", "0");
    created(&hamlet, "quiet", &[("pubsub#collection", "blogs"), silent]);
    assert!(francisco.recv().is_empty());
    configure_node(&hamlet, "blogs", &[silent]);
    created(&hamlet, NODE, &[]);
    associate(&hamlet, "associate", "blogs", NODE);
    associate(&hamlet, "dissociate", "blogs", NODE);
    assert!(francisco.recv().is_empty());
    assert_eq!(values(&hamlet, "blogs", "pubsub#children"), ["quiet"]);
}

#[test]
fn an_association_reaches_every_kind_of_subscriber_of_a_large_change() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    created(&hamlet, "blogs", &[COLLECTION]);
    let names: Vec<String> = (0..20).map(|number| format!("n{number}")).collect();
    names.iter().for_each(|name| created(&hamlet, name, &[]));
    let [plain, deep, both] = ["francisco", "bernardo", "horatio"].map(|user| denmark.connect(user));
    subscribe_with(&plain, "blogs", &[]);
    subscribe_with(
        &deep,
        "blogs",
        &[("pubsub#subscription_type", "all"), ("pubsub#subscription_depth", "all")],
    );
    subscribe_with(&both, "blogs", ALL_ITEMS);
    subscribe_with(&both, "blogs", &[("pubsub#subscription_type", "nodes")]);
    assert_result(&hamlet, &configure_node(&hamlet, "blogs", &[("pubsub#children", &names.join("|"))]), "");
    assert_eq!([&plain, &deep, &both].map(|client| client.recv().len()), [20, 20, 20]);
}

#[test]
fn the_lists_of_a_configuration_are_bounded_in_bytes() {
    let denmark = Denmark::new();
    let hamlet = blogs(&denmark);
    let long = |number: usize| format!("u{number}@{}.example", "a".repeat(60));
    let list = |count| (0..count).map(long).collect::<Vec<_>>().join("|");
    let policy =
        |list: &str| configure_node(&hamlet, "blogs", &[("pubsub#children_association_whitelist", list)]);
    assert_result(&hamlet, &policy(&list(100)), "");
    let resources = (0..20).map(|number| format!("{}/{}", long(number), "r".repeat(1_000)));
    let refused = policy(&resources.collect::<Vec<_>>().join("|"));
    assert_error(&refused, "modify", "not-acceptable", "");
}

#[test]
fn a_large_configuration_counts_among_the_nodes_in_memory() {
    let denmark = Denmark::with(&[("cached_nodes", OptionValue::Int(10))]);
    let hamlet = denmark.node(&[]);
    assert_eq!(tasks(&denmark).len(), 1, "it stays in memory");
    let contacts: Vec<String> =
        (0..60).map(|number| format!("u{number}@example.com/{}", "r".repeat(900))).collect();
    assert_result(&hamlet, &configure(&hamlet, &[("pubsub#contact", &contacts.join("|"))]), "");
    assert_eq!(tasks(&denmark).len(), 0, "54 KB count as 13 nodes");
    assert_result(&hamlet, &configure(&hamlet, &[("pubsub#contact", "u1@example.com")]), "");
    assert_eq!(tasks(&denmark).len(), 1);
}

#[test]
fn another_domain_has_a_part_of_the_subscriptions_to_the_root() {
    let denmark = Denmark::new();
    let hamlet = denmark.connect("hamlet");
    denmark.engine.node.set_admins([jid::Jid::parse("hamlet@example.com").unwrap()]);
    let subscribe = |user: &str| set(&hamlet, &format!("<subscribe jid='{user}'/>"));
    for number in 0..100 {
        let answer = subscribe(&format!("u{number}@far.lit"));
        assert!(answer.contains("subscription='subscribed'"), "{number}: {answer}");
    }
    assert_error(&subscribe("more@far.lit"), "wait", "resource-constraint", "");
    assert!(subscribe("one@other.lit").contains("subscription='subscribed'"));
    assert!(subscribe("francisco@example.com").contains("subscription='subscribed'"));
}
