//! Conformance tests of [`crate::PubSub`].

use super::{Fixture, UNUSUAL, jid, join_all};
use crate::pubsub::{
    EntitySubscription, PubSubChange, PubSubItem, PubSubItemHead, PubSubNodeRecord, SpecialSubscription,
};
use crate::{AddressId, NodeNumber, Stores, SubscriptionSetChange};

cases! {
    pubsub:
    a_node_is_put_replaced_and_removed,
    changes_of_a_missing_node_have_no_effect,
    items_are_kept_in_the_order_of_publication,
    items_are_read_up_to_a_number_of_bytes,
    the_newest_items_and_one_affiliation_are_read,
    records_of_a_service_are_listed_in_pages,
    affiliations_are_read_by_node_and_by_entity,
    plain_subscriptions_are_read_by_node_in_pages,
    subscriptions_of_an_entity_are_read_over_all_nodes,
    everything_that_an_entity_has_is_read_over_all_services,
    subscriptions_of_a_node_are_those_of_its_number,
    a_node_of_many_subscribers_is_removed,
    listed_nodes_of_a_service_are_listed_in_pages,
    nodes_of_several_services_are_read_at_once,
    nodes_of_a_creator_are_counted,
    nodes_have_numbers_that_are_never_given_twice,
    unusual_names_and_large_payloads_are_kept,
    many_writers_change_one_node,
}

const MUSINGS: &str = "pubsub.example.org/princely musings";

fn record(title: &str, is_listed: bool) -> PubSubNodeRecord {
    PubSubNodeRecord {
        creator: jid("hamlet@example.org"),
        created: 1_059_519_370_000,
        title: title.to_owned(),
        is_listed,
        config: title.as_bytes().to_vec(),
    }
}

fn item(seq: u64, id: &str, payload: &[u8]) -> PubSubItem {
    let head = PubSubItemHead {
        seq,
        first_seq: seq.min(2),
        id: id.into(),
        publisher: jid("hamlet@example.org/elsinore"),
        published: seq + 1_000,
    };
    PubSubItem { head, payload: payload.to_vec() }
}

fn special(user: &str, subid: &str) -> SpecialSubscription {
    SpecialSubscription { jid: jid(user), subid: subid.into(), state: subid.as_bytes().to_vec() }
}

async fn apply(stores: &Stores, node: &str, changes: Vec<PubSubChange>) {
    stores.pubsub.apply(jid(node).as_ref(), changes).await.unwrap();
}

/// Creates nodes with these names.
async fn create(stores: &Stores, names: &[&str]) {
    for name in names {
        let node = format!("pubsub.example.org/{name}");
        apply(stores, &node, vec![PubSubChange::Put(record(name, true))]).await;
    }
}

async fn ids(stores: &Stores, node: &str) -> String {
    let stored = stores.pubsub.load(jid(node).as_ref()).await.unwrap();
    stored.map(|node| node.items.iter().map(|head| &*head.id).collect()).unwrap_or_default()
}

async fn the_newest_items_and_one_affiliation_are_read(f: Fixture) {
    let (node, hamlet) = (jid(MUSINGS), jid("hamlet@example.org/elsinore"));
    let pubsub = &f.stores.pubsub;
    assert_eq!(pubsub.record(node.as_ref(), hamlet.as_ref()).await.unwrap(), None);
    assert!(pubsub.newest_items(node.as_ref(), 2).await.unwrap().is_empty());
    let items = [(3, "a"), (5, "b"), (9, "c")].map(|(seq, id)| PubSubChange::PutItem(item(seq, id, b"<x/>")));
    let mut changes = vec![
        PubSubChange::Put(record("Musings", true)),
        PubSubChange::Affiliate(hamlet.clone(), Some(3)),
        PubSubChange::Affiliate(jid("bernardo@example.org"), Some(1)),
    ];
    changes.extend(items);
    apply(&f.stores, MUSINGS, changes).await;
    for (user, affiliation) in [(&hamlet, Some(3)), (&jid("nobody@example.org"), None)] {
        let found = pubsub.record(node.as_ref(), user.as_ref()).await.unwrap();
        assert_eq!(found, Some((record("Musings", true), affiliation)), "{user}");
    }
    let newest = pubsub.newest_items(node.as_ref(), 2).await.unwrap();
    assert_eq!(newest, [item(5, "b", b"").head, item(9, "c", b"").head]);
    assert_eq!(pubsub.newest_items(node.as_ref(), 9).await.unwrap().len(), 3);
}

async fn a_node_is_put_replaced_and_removed(f: Fixture) {
    let node = jid(MUSINGS);
    assert_eq!(f.stores.pubsub.load(node.as_ref()).await.unwrap(), None);
    let first = vec![
        PubSubChange::Put(record("Musings", true)),
        PubSubChange::PutItem(item(1, "a", b"<a/>")),
        PubSubChange::Affiliate(jid("hamlet@example.org/elsinore"), Some(1)),
        PubSubChange::PutSpecial(special("francisco@example.org/barracks", "1")),
        PubSubChange::Subscribe(jid("bernardo@example.org")),
    ];
    apply(&f.stores, MUSINGS, first).await;
    apply(&f.stores, MUSINGS, vec![PubSubChange::Put(record("", false))]).await;
    let stored = f.stores.pubsub.load(node.as_ref()).await.unwrap().unwrap();
    assert_eq!(stored.record, record("", false));
    assert_eq!(stored.affiliations, [(jid("hamlet@example.org"), 1)], "by bare address; everything stays");
    assert_eq!(stored.special, [special("francisco@example.org/barracks", "1")]);
    assert_eq!(stored.items, [item(1, "a", b"").head]);
    assert_eq!(f.stores.pubsub.count_subscribers(node.as_ref()).await.unwrap(), 1);
    apply(&f.stores, MUSINGS, vec![PubSubChange::Remove]).await;
    assert_eq!(f.stores.pubsub.load(node.as_ref()).await.unwrap(), None);
    let again = vec![PubSubChange::Remove, PubSubChange::Put(record("again", true))];
    apply(&f.stores, MUSINGS, again).await;
    let stored = f.stores.pubsub.load(node.as_ref()).await.unwrap().unwrap();
    assert!(stored.affiliations.is_empty() && stored.special.is_empty() && stored.items.is_empty());
    assert_eq!(f.stores.pubsub.count_subscribers(node.as_ref()).await.unwrap(), 0);
}

async fn changes_of_a_missing_node_have_no_effect(f: Fixture) {
    let node = jid(MUSINGS);
    let changes = vec![
        PubSubChange::PutItem(item(1, "a", b"<a/>")),
        PubSubChange::Affiliate(jid("hamlet@example.org"), Some(1)),
        PubSubChange::Affiliate(jid("hamlet@example.org"), None),
        PubSubChange::Subscribe(jid("bernardo@example.org")),
        PubSubChange::Unsubscribe(jid("bernardo@example.org")),
        PubSubChange::PutSpecial(special("francisco@example.org", "1")),
        PubSubChange::RemoveSpecial(jid("francisco@example.org"), "1".into()),
        PubSubChange::RemoveItem("a".into()),
        PubSubChange::RemoveItems,
        PubSubChange::Remove,
    ];
    apply(&f.stores, MUSINGS, changes).await;
    assert_eq!(f.stores.pubsub.load(node.as_ref()).await.unwrap(), None);
    assert!(f.stores.pubsub.items(node.as_ref(), vec![1]).await.unwrap().is_empty());
    assert!(f.stores.pubsub.subscribers(node.as_ref(), None, 9).await.unwrap().is_empty());
    let subscribed = f.stores.pubsub.is_subscribed(node.as_ref(), jid("bernardo@example.org").as_ref()).await;
    assert!(!subscribed.unwrap());
}

async fn items_are_kept_in_the_order_of_publication(f: Fixture) {
    create(&f.stores, &["princely musings", "other"]).await;
    let put = |seq, id| PubSubChange::PutItem(item(seq, id, format!("<{id}/>").as_bytes()));
    apply(&f.stores, MUSINGS, vec![put(1, "a"), put(2, "b"), put(3, "c")]).await;
    assert_eq!(ids(&f.stores, MUSINGS).await, "abc");
    apply(&f.stores, MUSINGS, vec![put(4, "a"), put(5, "d"), put(6, "d")]).await;
    assert_eq!(ids(&f.stores, MUSINGS).await, "bcad", "an item with a known id moves to the end");
    let found = f.stores.pubsub.items(jid(MUSINGS).as_ref(), vec![4, 2, 1, 2]).await.unwrap();
    assert_eq!(found, [item(2, "b", b"<b/>"), item(4, "a", b"<a/>")]);
    let removed = vec![PubSubChange::RemoveItem("b".into()), PubSubChange::RemoveItem("x".into())];
    apply(&f.stores, MUSINGS, removed).await;
    assert_eq!(ids(&f.stores, MUSINGS).await, "cad");
    let many: Vec<PubSubChange> =
        (10..40).map(|seq| PubSubChange::PutItem(item(seq, &format!("i{seq}"), b""))).collect();
    apply(&f.stores, MUSINGS, many).await;
    let found = f.stores.pubsub.items(jid(MUSINGS).as_ref(), (0..40).collect()).await.unwrap();
    assert_eq!(found.len(), 33);
    apply(&f.stores, MUSINGS, vec![PubSubChange::RemoveItems, put(50, "z")]).await;
    assert_eq!(ids(&f.stores, MUSINGS).await, "z");
    assert_eq!(ids(&f.stores, "pubsub.example.org/other").await, "");
}

async fn items_are_read_up_to_a_number_of_bytes(f: Fixture) {
    create(&f.stores, &["princely musings"]).await;
    let sizes = [10_usize, 20, 30, 40];
    let put = sizes
        .iter()
        .zip(1..)
        .map(|(size, seq)| PubSubChange::PutItem(item(seq, &seq.to_string(), "x".repeat(*size).as_bytes())));
    apply(&f.stores, MUSINGS, put.collect()).await;
    for (bytes, from_end, want) in [
        (0, false, &[1][..]),
        (30, false, &[1, 2]),
        (59, false, &[1, 2]),
        (100, false, &[1, 2, 3, 4]),
        (0, true, &[4]),
        (69, true, &[4]),
        (70, true, &[3, 4]),
        (u64::MAX, true, &[1, 2, 3, 4]),
    ] {
        let node = jid(MUSINGS);
        let found = f.stores.pubsub.items_within(node.as_ref(), vec![4, 9, 2, 1, 3], bytes, from_end).await;
        let found: Vec<u64> = found.unwrap().iter().map(|item| item.head.seq).collect();
        assert_eq!(found, want, "{bytes}, {from_end}");
    }
    let nowhere = jid("pubsub.example.org/nowhere");
    assert!(f.stores.pubsub.items_within(nowhere.as_ref(), vec![1], 9, false).await.unwrap().is_empty());
    assert!(f.stores.pubsub.items_within(jid(MUSINGS).as_ref(), vec![], 9, true).await.unwrap().is_empty());
}

async fn records_of_a_service_are_listed_in_pages(f: Fixture) {
    create(&f.stores, &["a", "b", "c"]).await;
    apply(&f.stores, "pubsub.example.org/b", vec![PubSubChange::Put(record("hidden", false))]).await;
    let (service, after) = (jid("pubsub.example.org"), jid("pubsub.example.org/a"));
    let all = f.stores.pubsub.records(service.as_ref(), None, 9).await.unwrap();
    assert_eq!(
        all.iter().map(|one| one.jid.as_str()).collect::<Vec<_>>(),
        ["pubsub.example.org/a", "pubsub.example.org/b", "pubsub.example.org/c"]
    );
    let page = f.stores.pubsub.records(service.as_ref(), Some(after), 1).await.unwrap();
    assert_eq!((page.len(), &page[0].record), (1, &record("hidden", false)));
    let nowhere = jid("pubsub.example.org/nowhere");
    assert!(f.stores.pubsub.records(service.as_ref(), Some(nowhere), 9).await.unwrap().is_empty());
    assert!(f.stores.pubsub.records(jid("juliet@example.org").as_ref(), None, 9).await.unwrap().is_empty());
}

async fn affiliations_are_read_by_node_and_by_entity(f: Fixture) {
    create(&f.stores, &["a", "b", "c"]).await;
    let set = |user: &str, number| PubSubChange::Affiliate(jid(user), number);
    for name in ["a", "b", "c"] {
        let node = format!("pubsub.example.org/{name}");
        apply(&f.stores, &node, vec![set("ann@example.org/x", Some(1)), set("bob@example.org", Some(5))])
            .await;
    }
    apply(
        &f.stores,
        "pubsub.example.org/b",
        vec![set("ann@example.org", Some(2)), set("bob@example.org", None)],
    )
    .await;
    let service = jid("pubsub.example.org");
    let of = |user: &'static str, after: Option<&str>, limit| {
        let (stores, service, after) = (f.stores.clone(), service.clone(), after.map(jid));
        async move {
            let found =
                stores.pubsub.affiliations_of(jid(user).as_ref(), service.as_ref(), after, limit).await;
            found.unwrap()
        }
    };
    let all = of("ann@example.org/y", None, 9).await;
    assert_eq!(all.len(), 3);
    assert!(all.contains(&(jid("pubsub.example.org/b"), 2)));
    let page = of("ann@example.org", None, 2).await;
    assert_eq!(page, all[..2]);
    assert_eq!(of("ann@example.org", Some(page[1].0.as_str()), 2).await, all[2..]);
    assert_eq!(of("bob@example.org", None, 9).await.len(), 2);
    assert!(of("eve@example.org", None, 9).await.is_empty());
    assert!(of("ann@example.org", Some("pubsub.example.org/x"), 9).await.is_empty());
    let elsewhere = jid("pubsub.example.net");
    let none = f.stores.pubsub.affiliations_of(jid("ann@example.org").as_ref(), elsewhere.as_ref(), None, 9);
    assert!(none.await.unwrap().is_empty());
}

async fn plain_subscriptions_are_read_by_node_in_pages(f: Fixture) {
    create(&f.stores, &["princely musings", "other"]).await;
    let node = jid(MUSINGS);
    let user = |number: u32| jid(&format!("u{number}@example.org"));
    let subscribe = (0..25).map(|number| PubSubChange::Subscribe(user(number))).collect();
    apply(&f.stores, MUSINGS, subscribe).await;
    // Again, with a resource, and twice.
    let again = vec![
        PubSubChange::Subscribe(jid("u3@example.org/x")),
        PubSubChange::Subscribe(user(3)),
        PubSubChange::Unsubscribe(user(4)),
        PubSubChange::Unsubscribe(jid("nobody@example.org")),
    ];
    apply(&f.stores, MUSINGS, again).await;
    assert_eq!(f.stores.pubsub.count_subscribers(node.as_ref()).await.unwrap(), 24);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = f.stores.pubsub.subscribers(node.as_ref(), after.clone(), 10).await.unwrap();
        all.extend(page.iter().cloned());
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
    }
    all.sort_unstable();
    let mut want: Vec<_> = (0..25).filter(|number| *number != 4).map(user).collect();
    want.sort_unstable();
    assert_eq!(all, want, "each once");
    let has = |number| {
        let (stores, node) = (f.stores.clone(), node.clone());
        async move { stores.pubsub.is_subscribed(node.as_ref(), user(number).as_ref()).await.unwrap() }
    };
    assert!(has(3).await && !has(4).await && !has(99).await);
    let after_other = f.stores.pubsub.subscribers(node.as_ref(), Some(user(4)), 9).await.unwrap();
    assert!(after_other.is_empty());
    let other = jid("pubsub.example.org/other");
    assert!(f.stores.pubsub.subscribers(other.as_ref(), None, 9).await.unwrap().is_empty());
}

async fn subscriptions_of_an_entity_are_read_over_all_nodes(f: Fixture) {
    create(&f.stores, &["a", "b", "c", "d", "e"]).await;
    let node = |name: &str| format!("pubsub.example.org/{name}");
    for name in ["a", "b", "d"] {
        apply(&f.stores, &node(name), vec![PubSubChange::Subscribe(jid("ann@example.org"))]).await;
    }
    let of_b = special("ann@example.org/x", "1");
    let of_c = [special("ann@example.org", "2"), special("ann@example.org", "3")];
    apply(&f.stores, &node("b"), vec![PubSubChange::PutSpecial(of_b.clone())]).await;
    apply(&f.stores, &node("c"), of_c.iter().cloned().map(PubSubChange::PutSpecial).collect()).await;
    apply(&f.stores, &node("e"), vec![PubSubChange::PutSpecial(special("bob@example.org", "1"))]).await;
    let service = jid("pubsub.example.org");
    let of = |after: Option<String>, limit| {
        let (stores, service, after) = (f.stores.clone(), service.clone(), after.map(|node| jid(&node)));
        async move {
            let user = jid("ann@example.org/y");
            stores.pubsub.subscriptions_of(user.as_ref(), service.as_ref(), after, limit).await.unwrap()
        }
    };
    let one = |name: &str, special| EntitySubscription { node: jid(&node(name)), special };
    let all = of(None, 9).await;
    assert_eq!(all.len(), 6);
    for want in [
        one("a", None),
        one("b", None),
        one("b", Some(of_b)),
        one("c", Some(of_c[0].clone())),
        one("c", Some(of_c[1].clone())),
        one("d", None),
    ] {
        assert!(all.contains(&want), "{want:?}");
    }
    // Two nodes a page, each with all its subscriptions.
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = of(after.clone(), 2).await;
        let Some(last) = page.last() else { break };
        after = Some(last.node.to_string());
        paged.extend(page);
    }
    assert_eq!(paged, all);
    let user = jid("ann@example.org");
    assert_eq!(f.stores.pubsub.count_subscriptions(user.as_ref(), 9).await.unwrap(), 6);
    assert_eq!(f.stores.pubsub.count_subscriptions(user.as_ref(), 2).await.unwrap(), 4);
    let removed = vec![PubSubChange::RemoveSpecial(user.clone(), "2".into())];
    apply(&f.stores, &node("c"), removed).await;
    let replaced = SpecialSubscription { state: b"new".to_vec(), ..special("ann@example.org", "3") };
    apply(&f.stores, &node("c"), vec![PubSubChange::PutSpecial(replaced.clone())]).await;
    assert!(of(None, 9).await.contains(&one("c", Some(replaced))));
    for name in ["a", "b", "c", "d"] {
        apply(&f.stores, &node(name), vec![PubSubChange::Remove]).await;
    }
    assert!(of(None, 9).await.is_empty());
    assert_eq!(f.stores.pubsub.count_subscriptions(user.as_ref(), 9).await.unwrap(), 0);
}

async fn everything_that_an_entity_has_is_read_over_all_services(f: Fixture) {
    let put = || vec![PubSubChange::Put(record("", true))];
    let ann = || jid("ann@example.org");
    let nodes = [
        ("pubsub.example.org/affiliated", vec![PubSubChange::Affiliate(ann(), Some(2))]),
        ("bob@example.org/subscribed", vec![PubSubChange::Subscribe(ann())]),
        ("pubsub.example.net/special", vec![PubSubChange::PutSpecial(special("ann@example.org/x", "1"))]),
        ("pubsub.example.net/of another", vec![PubSubChange::Subscribe(jid("bob@example.org"))]),
        ("bob@example.org/removed", vec![PubSubChange::Subscribe(ann()), PubSubChange::Remove]),
        (
            "eve@example.org/all",
            vec![
                PubSubChange::Affiliate(ann(), Some(1)),
                PubSubChange::Subscribe(ann()),
                PubSubChange::PutSpecial(special("ann@example.org", "1")),
                PubSubChange::PutSpecial(special("ann@example.org", "2")),
            ],
        ),
    ];
    for (node, changes) in &nodes {
        apply(&f.stores, node, put()).await;
        apply(&f.stores, node, changes.clone()).await;
    }
    let of = |user: &str, after, limit| {
        let (stores, user) = (f.stores.clone(), jid(user));
        async move { stores.pubsub.nodes_of_entity(user.as_ref(), after, limit).await.unwrap() }
    };
    for limit in [1, 2, 3, 9] {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let page = of("ann@example.org/y", after, limit).await;
            assert!(page.len() <= limit as usize);
            let Some((last, _)) = page.last() else { break };
            after = *last;
            all.extend(page);
        }
        assert!(all.is_sorted_by_key(|(number, _)| *number), "{limit}: {all:?}");
        let all: Vec<_> = all.into_iter().map(|(_, node)| node).collect();
        let want = [0, 1, 2, 5].map(|number: usize| jid(nodes[number].0));
        assert_eq!(all, want, "{limit}");
    }
    assert!(of("carol@example.org", 0, 9).await.is_empty());
}

async fn subscriptions_of_a_node_are_those_of_its_number(f: Fixture) {
    create(&f.stores, &["a", "b"]).await;
    let (node, sets) = (jid("pubsub.example.org/a"), &f.stores.subscription_sets);
    let number = NodeNumber(f.stores.pubsub.number(node.as_ref()).await.unwrap().unwrap());
    let changes = vec![
        PubSubChange::Subscribe(jid("ann@example.org")),
        PubSubChange::Subscribe(jid("bob@example.org")),
        PubSubChange::Unsubscribe(jid("bob@example.org")),
        PubSubChange::PutItem(item(1, "a", b"")),
    ];
    apply(&f.stores, node.as_str(), changes).await;
    let ann = f.stores.addresses.find(&jid("ann@example.org")).await.unwrap().unwrap();
    assert_eq!(sets.subscribers(number, None, 9).await.unwrap(), [ann]);
    assert_eq!(sets.nodes(ann, None, 9).await.unwrap(), [number]);
    let eve = f.stores.addresses.intern(&jid("eve@example.org")).await.unwrap();
    let change = |subscriber, is_added| SubscriptionSetChange { node: number, subscriber, is_added };
    sets.change_many(vec![change(eve, true), change(ann, false)]).await.unwrap();
    assert_eq!(f.stores.pubsub.subscribers(node.as_ref(), None, 9).await.unwrap(), [jid("eve@example.org")]);
    assert!(f.stores.pubsub.is_subscribed(node.as_ref(), jid("eve@example.org").as_ref()).await.unwrap());
    assert_eq!(f.stores.pubsub.count_subscriptions(jid("ann@example.org").as_ref(), 9).await.unwrap(), 0);
    apply(&f.stores, node.as_str(), vec![PubSubChange::Remove]).await;
    assert!(sets.nodes(eve, None, 9).await.unwrap().is_empty());
    // Those of a number without a node are not shown.
    sets.subscribe(number, eve).await.unwrap();
    apply(&f.stores, "pubsub.example.org/b", vec![PubSubChange::Subscribe(jid("eve@example.org"))]).await;
    let (user, service) = (jid("eve@example.org"), jid("pubsub.example.org"));
    let of_eve = f.stores.pubsub.subscriptions_of(user.as_ref(), service.as_ref(), None, 1).await.unwrap();
    assert_eq!(of_eve, [EntitySubscription { node: jid("pubsub.example.org/b"), special: None }]);
}

async fn a_node_of_many_subscribers_is_removed(f: Fixture) {
    create(&f.stores, &["a", "b"]).await;
    let node = jid("pubsub.example.org/a");
    let number = NodeNumber(f.stores.pubsub.number(node.as_ref()).await.unwrap().unwrap());
    apply(&f.stores, "pubsub.example.org/b", vec![PubSubChange::Subscribe(jid("ann@example.org"))]).await;
    let ann = f.stores.addresses.find(&jid("ann@example.org")).await.unwrap().unwrap();
    // More than one transaction removes.
    let all = (0..9_000).filter_map(|at| AddressId::new(ann.get() + at * 301));
    let all: Vec<(NodeNumber, AddressId)> = all.map(|id| (number, id)).collect();
    f.stores.subscription_sets.add_many(all).await.unwrap();
    apply(&f.stores, node.as_str(), vec![PubSubChange::Remove]).await;
    assert_eq!(f.stores.pubsub.load(node.as_ref()).await.unwrap(), None);
    let (user, service) = (jid("ann@example.org"), jid("pubsub.example.org"));
    let of_ann = f.stores.pubsub.subscriptions_of(user.as_ref(), service.as_ref(), None, 9).await.unwrap();
    assert_eq!(of_ann.len(), 1);
    for _ in 0..200_000 {
        if f.stores.subscription_sets.count_subscribers(number).await.unwrap() == 0 {
            return;
        }
    }
    panic!("subscriptions of a removed node are left");
}

async fn listed_nodes_of_a_service_are_listed_in_pages(f: Fixture) {
    create(&f.stores, &["a", "c", "d"]).await;
    apply(&f.stores, "pubsub.example.org/b", vec![PubSubChange::Put(record("b", false))]).await;
    apply(&f.stores, "pubsub.example.net/e", vec![PubSubChange::Put(record("e", true))]).await;
    apply(&f.stores, "ann@example.org/urn:x", vec![PubSubChange::Put(record("x", true))]).await;
    let service = jid("pubsub.example.org");
    let (mut titles, mut after) = (String::new(), None);
    loop {
        let page = f.stores.pubsub.list(service.as_ref(), after.clone(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        assert!(page.len() <= 2);
        after = Some(last.jid.clone());
        titles.extend(page.iter().map(|node| node.title.as_str()));
    }
    let mut sorted: Vec<char> = titles.chars().collect();
    sorted.sort_unstable();
    assert_eq!(sorted, ['a', 'c', 'd'], "each once");
    assert_eq!(f.stores.pubsub.count(service.as_ref()).await.unwrap(), 3);
    let all = f.stores.pubsub.list_all(service.as_ref(), None, 9).await.unwrap();
    assert_eq!(all.len(), 4, "others included");
    let rest = f.stores.pubsub.list_all(service.as_ref(), Some(all[1].jid.clone()), 9).await.unwrap();
    assert_eq!(rest, all[2..]);
    let unknown = Some(jid("pubsub.example.org/x"));
    assert!(f.stores.pubsub.list(service.as_ref(), unknown, 9).await.unwrap().is_empty());
    let account = f.stores.pubsub.list(jid("ann@example.org").as_ref(), None, 9).await.unwrap();
    assert_eq!(account[0].jid, jid("ann@example.org/urn:x"));
}

async fn nodes_of_several_services_are_read_at_once(f: Fixture) {
    create(&f.stores, &["a"]).await;
    for node in ["ann@example.org/urn:x", "ann@example.org/urn:y", "bob@example.org/urn:x"] {
        apply(&f.stores, node, vec![PubSubChange::Put(record(node, false))]).await;
    }
    let services = [jid("ann@example.org"), jid("bob@example.org"), jid("cleo@example.org")];
    let ids = f.stores.addresses.intern_many(&services).await.unwrap();
    let mut found = f.stores.pubsub.of_services(ids.clone()).await.unwrap();
    found.sort_unstable();
    let mut want = vec![
        (ids[0], jid("ann@example.org/urn:x")),
        (ids[0], jid("ann@example.org/urn:y")),
        (ids[1], jid("bob@example.org/urn:x")),
    ];
    want.sort_unstable();
    assert_eq!(found, want);
    assert!(f.stores.pubsub.of_services(ids[2..].to_vec()).await.unwrap().is_empty());
    assert!(f.stores.pubsub.of_services(Vec::new()).await.unwrap().is_empty());
}

async fn nodes_of_a_creator_are_counted(f: Fixture) {
    create(&f.stores, &["a", "b", "c"]).await;
    let of_bob = PubSubNodeRecord { creator: jid("bob@example.org"), ..record("", true) };
    apply(&f.stores, "pubsub.example.org/d", vec![PubSubChange::Put(of_bob)]).await;
    let user = jid("hamlet@example.org/elsinore");
    assert_eq!(f.stores.pubsub.count_created(user.as_ref(), 9).await.unwrap(), 3);
    assert_eq!(f.stores.pubsub.count_created(user.as_ref(), 2).await.unwrap(), 2);
}

async fn nodes_have_numbers_that_are_never_given_twice(f: Fixture) {
    create(&f.stores, &["a", "b"]).await;
    let number = |name: &str| {
        let (stores, node) = (f.stores.clone(), jid(&format!("pubsub.example.org/{name}")));
        async move { stores.pubsub.number(node.as_ref()).await.unwrap() }
    };
    let (a, b) = (number("a").await.unwrap(), number("b").await.unwrap());
    assert_ne!(a, b);
    assert_eq!(number("c").await, None);
    let stored = f.stores.pubsub.load(jid("pubsub.example.org/a").as_ref()).await.unwrap().unwrap();
    assert_eq!(stored.number, a);
    let mut found = f.stores.pubsub.resolve(vec![b, a, 4_000_000_000]).await.unwrap();
    found.sort_unstable();
    let mut want = [(a, jid("pubsub.example.org/a")), (b, jid("pubsub.example.org/b"))];
    want.sort_unstable();
    assert_eq!(found, want);
    apply(&f.stores, "pubsub.example.org/b", vec![PubSubChange::Remove]).await;
    create(&f.stores, &["b", "c"]).await;
    let again = [number("b").await.unwrap(), number("c").await.unwrap()];
    assert!(!again.contains(&a) && !again.contains(&b) && again[0] != again[1]);
}

async fn unusual_names_and_large_payloads_are_kept(f: Fixture) {
    for (number, title) in UNUSUAL.iter().enumerate() {
        let node = format!("pubsub.example.org/n{number}");
        let put = PubSubChange::PutItem(item(1, &format!("x{title}"), b"\x00\xff"));
        apply(&f.stores, &node, vec![PubSubChange::Put(record(title, true)), put]).await;
        let stored = f.stores.pubsub.load(jid(&node).as_ref()).await.unwrap().unwrap();
        assert_eq!(stored.record, record(title, true));
        assert_eq!(*stored.items[0].id, format!("x{title}"));
    }
    // Names that a database could take for one.
    create(&f.stores, &["Node", "node", "node.", "http://jabber.org/protocol/tune", "é"]).await;
    for name in ["Node", "node", "node.", "http://jabber.org/protocol/tune", "é"] {
        let node = jid(&format!("pubsub.example.org/{name}"));
        assert_eq!(f.stores.pubsub.load(node.as_ref()).await.unwrap().unwrap().record.title, name);
    }
    let payload = vec![b'x'; 300_000];
    apply(&f.stores, "pubsub.example.org/node", vec![PubSubChange::PutItem(item(9, "large", &payload))])
        .await;
    let found = f.stores.pubsub.items(jid("pubsub.example.org/node").as_ref(), vec![9]).await.unwrap();
    assert_eq!(found[0].payload, payload);
}

async fn many_writers_change_one_node(f: Fixture) {
    create(&f.stores, &["princely musings"]).await;
    let node = jid(MUSINGS);
    let writes = (0..20).map(|number| {
        let changes = vec![
            PubSubChange::PutItem(item(number, &format!("{number:02}"), b"x")),
            PubSubChange::Subscribe(jid(&format!("u{}@example.org", number % 7))),
        ];
        f.stores.pubsub.apply(node.as_ref(), changes)
    });
    for written in join_all(writes.collect()).await {
        written.unwrap();
    }
    assert_eq!(f.stores.pubsub.load(node.as_ref()).await.unwrap().unwrap().items.len(), 20);
    assert_eq!(f.stores.pubsub.count_subscribers(node.as_ref()).await.unwrap(), 7);
}
