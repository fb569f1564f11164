//! Conformance tests of [`crate::SubscriptionSets`].

use std::collections::{BTreeMap, BTreeSet};

use super::{Fixture, join_all};
use crate::number_chunk::{NumberChunk, intersect};
use crate::subscription_bulk::{BulkSubscriptions, add_bulk};
use crate::subscription_sets::{MAX_PAIRS, SidedSet};
use crate::{AddressId, NodeNumber, StoreErrorKind, Stores, SubscriptionSetChange, SubscriptionSide};

cases! {
    subscription_sets:
    a_subscription_is_added_and_removed_once,
    a_removed_subscriber_and_a_removed_node_leave_nothing,
    pages_are_in_ascending_order_and_complete,
    the_largest_numbers_are_kept,
    many_are_added_together,
    changes_are_made_in_their_order,
    chunks_have_all_subscribers_of_a_node,
    a_node_of_many_subscribers_is_divided_and_removed,
    random_changes_are_those_of_a_model,
    changes_at_the_same_time_are_all_kept,
    one_subscription_is_changed_by_one_of_many_callers,
    sets_of_one_side_are_added,
    sets_that_do_not_ascend_are_refused,
    bulk_adds_both_sides,
}

fn id(number: u32) -> AddressId {
    AddressId::new(number).unwrap()
}

fn numbers(nodes: Vec<NodeNumber>) -> Vec<u32> {
    nodes.into_iter().map(|node| node.0).collect()
}

fn ids(subscribers: Vec<AddressId>) -> Vec<u32> {
    subscribers.into_iter().map(AddressId::get).collect()
}

/// All subscribers of a node, in pages.
async fn subscribers(stores: &Stores, node: u32, limit: u32) -> Vec<u32> {
    let mut all = Vec::new();
    loop {
        let after = all.last().copied().map(id);
        let page = ids(stores.subscription_sets.subscribers(NodeNumber(node), after, limit).await.unwrap());
        if page.is_empty() {
            return all;
        }
        assert!(page.len() <= limit as usize);
        all.extend(page);
    }
}

/// All nodes of a subscriber, in pages.
async fn nodes(stores: &Stores, subscriber: u32, limit: u32) -> Vec<u32> {
    let mut all = Vec::new();
    loop {
        let after = all.last().copied().map(NodeNumber);
        let page = numbers(stores.subscription_sets.nodes(id(subscriber), after, limit).await.unwrap());
        if page.is_empty() {
            return all;
        }
        assert!(page.len() <= limit as usize);
        all.extend(page);
    }
}

/// All chunks of a node.
async fn chunks(stores: &Stores, node: u32, limit: u32) -> Vec<NumberChunk> {
    let mut all: Vec<NumberChunk> = Vec::new();
    loop {
        let after = all.last().and_then(|chunk| AddressId::new(chunk.last()));
        let some = stores.subscription_sets.chunks(NodeNumber(node), after, limit).await.unwrap();
        if some.is_empty() {
            return all;
        }
        assert!(some.len() <= limit as usize);
        all.extend(some);
    }
}

async fn a_subscription_is_added_and_removed_once(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    let (node, ann) = (NodeNumber(7), id(3));
    assert!(!sets.contains(node, ann).await.unwrap());
    assert!(!sets.unsubscribe(node, ann).await.unwrap());
    assert!(sets.subscribe(node, ann).await.unwrap());
    assert!(!sets.subscribe(node, ann).await.unwrap());
    assert!(sets.contains(node, ann).await.unwrap());
    assert!(!sets.contains(NodeNumber(3), id(7)).await.unwrap(), "nodes and subscribers are not mixed up");
    assert!(!sets.contains(NodeNumber(8), ann).await.unwrap());
    assert_eq!(sets.count_subscribers(node).await.unwrap(), 1);
    assert_eq!(sets.count_nodes(ann).await.unwrap(), 1);
    assert_eq!(subscribers(&f.stores, 7, 10).await, [3]);
    assert_eq!(nodes(&f.stores, 3, 10).await, [7]);
    assert!(sets.unsubscribe(node, ann).await.unwrap());
    assert!(!sets.unsubscribe(node, ann).await.unwrap());
    assert!(!sets.contains(node, ann).await.unwrap());
    assert_eq!(sets.count_subscribers(node).await.unwrap(), 0);
    assert_eq!(sets.count_nodes(ann).await.unwrap(), 0);
    assert!(subscribers(&f.stores, 7, 10).await.is_empty() && nodes(&f.stores, 3, 10).await.is_empty());
}

async fn a_removed_subscriber_and_a_removed_node_leave_nothing(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    for node in 1..4 {
        for subscriber in 1..6 {
            sets.subscribe(NodeNumber(node), id(subscriber)).await.unwrap();
        }
    }
    assert_eq!(sets.remove_subscriber(id(2)).await.unwrap(), 3);
    assert_eq!(sets.remove_subscriber(id(2)).await.unwrap(), 0);
    assert_eq!(subscribers(&f.stores, 1, 10).await, [1, 3, 4, 5]);
    assert_eq!(sets.remove_node(NodeNumber(2)).await.unwrap(), 4);
    assert_eq!(sets.remove_node(NodeNumber(2)).await.unwrap(), 0);
    assert_eq!(nodes(&f.stores, 1, 10).await, [1, 3]);
    assert!(nodes(&f.stores, 2, 10).await.is_empty());
    assert!(subscribers(&f.stores, 2, 10).await.is_empty());
    assert_eq!(sets.count_subscribers(NodeNumber(3)).await.unwrap(), 4);
}

async fn pages_are_in_ascending_order_and_complete(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    for number in [9, 1, 70_000, 5, 256, 255, 3_000_000] {
        sets.subscribe(NodeNumber(4), id(number)).await.unwrap();
        sets.subscribe(NodeNumber(number), id(4)).await.unwrap();
    }
    // Neighbours, whose sets must not be read.
    for other in [3, 5] {
        sets.subscribe(NodeNumber(other), id(2)).await.unwrap();
        sets.subscribe(NodeNumber(2), id(other)).await.unwrap();
    }
    let sorted = [1, 5, 9, 255, 256, 70_000, 3_000_000];
    for limit in [1, 2, 7, 100] {
        assert_eq!(subscribers(&f.stores, 4, limit).await, sorted);
        assert_eq!(nodes(&f.stores, 4, limit).await, sorted);
    }
    assert_eq!(
        ids(sets.subscribers(NodeNumber(4), Some(id(100)), 2).await.unwrap()),
        [255, 256],
        "above a number that is not there"
    );
    assert!(sets.subscribers(NodeNumber(4), Some(id(3_000_000)), 9).await.unwrap().is_empty());
    assert!(sets.subscribers(NodeNumber(4), None, 0).await.unwrap().is_empty());
}

async fn the_largest_numbers_are_kept(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    let (last, before) = (u32::MAX - 1, u32::MAX - 2);
    for (node, subscriber) in [(u32::MAX, last), (u32::MAX, 1), (0, last), (0, before), (u32::MAX, before)] {
        assert!(sets.subscribe(NodeNumber(node), id(subscriber)).await.unwrap());
        assert!(sets.contains(NodeNumber(node), id(subscriber)).await.unwrap());
    }
    assert_eq!(subscribers(&f.stores, u32::MAX, 2).await, [1, before, last]);
    assert_eq!(nodes(&f.stores, last, 1).await, [0, u32::MAX]);
    let after = Some(NodeNumber(u32::MAX));
    assert!(sets.nodes(id(last), after, 5).await.unwrap().is_empty());
    let after = Some(id(u32::MAX));
    assert!(sets.subscribers(NodeNumber(0), after, 5).await.unwrap().is_empty());
    assert!(sets.chunks(NodeNumber(0), after, 5).await.unwrap().is_empty());
    assert_eq!(sets.remove_node(NodeNumber(u32::MAX)).await.unwrap(), 3);
    assert_eq!(nodes(&f.stores, last, 1).await, [0]);
}

async fn many_are_added_together(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    sets.subscribe(NodeNumber(1), id(1)).await.unwrap();
    let pairs: Vec<_> = (0..3000).map(|n| (NodeNumber(n % 30), id(n / 30 + 1))).collect();
    let twice = [pairs.clone(), pairs[..9].to_vec()].concat();
    assert_eq!(sets.add_many(twice).await.unwrap(), 2999, "one was there, and each counts once");
    assert_eq!(sets.add_many(pairs).await.unwrap(), 0);
    assert_eq!(subscribers(&f.stores, 29, 1000).await, (1..=100).collect::<Vec<u32>>());
    assert_eq!(nodes(&f.stores, 100, 1000).await, (0..30).collect::<Vec<u32>>());
    assert_eq!(sets.add_many(Vec::new()).await.unwrap(), 0);
    let too_many = vec![(NodeNumber(1), id(1)); MAX_PAIRS + 1];
    assert_eq!(sets.add_many(too_many).await.unwrap_err().kind, StoreErrorKind::TooLarge);
}

/// Numbers that look random, ascending.
fn scattered(count: u32, spread: u32) -> Vec<u32> {
    (0..count).map(|n| 1 + n * spread + n.wrapping_mul(2_654_435_761) % spread).collect()
}

async fn changes_are_made_in_their_order(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    let one = |node, subscriber, is_added| SubscriptionSetChange {
        node: NodeNumber(node),
        subscriber: id(subscriber),
        is_added,
    };
    let changes = vec![
        one(1, 5, false),
        one(1, 5, true),
        one(2, 5, true),
        one(1, 6, true),
        one(1, 6, false),
        one(1, 5, true),
    ];
    assert_eq!(sets.change_many(changes).await.unwrap(), 4, "with an effect");
    assert_eq!((subscribers(&f.stores, 1, 9).await, nodes(&f.stores, 5, 9).await), (vec![5], vec![1, 2]));
    let at_once =
        join_all((1..200).map(|n| sets.change_many(vec![one(1, n, true), one(1, n, false)])).collect());
    assert!(at_once.await.into_iter().all(|changed| changed.unwrap() >= 1));
    assert!(subscribers(&f.stores, 1, 9).await.is_empty());
    let too_many = vec![one(1, 1, true); MAX_PAIRS + 1];
    assert_eq!(sets.change_many(too_many).await.unwrap_err().kind, StoreErrorKind::TooLarge);
}

async fn chunks_have_all_subscribers_of_a_node(f: Fixture) {
    let members = scattered(5000, 97);
    let pairs = members.iter().map(|number| (NodeNumber(5), id(*number)));
    f.stores.subscription_sets.add_many(pairs.collect()).await.unwrap();
    for limit in [1, 3, 100] {
        let found = chunks(&f.stores, 5, limit).await;
        assert!(found.len() > 3);
        assert_eq!(found.iter().flat_map(NumberChunk::to_vec).collect::<Vec<u32>>(), members);
    }
    let online: Vec<u32> = members.iter().step_by(50).flat_map(|number| [*number, number + 200]).collect();
    let mut found = Vec::new();
    intersect(&chunks(&f.stores, 5, 9).await, &online, &mut found);
    let model: BTreeSet<u32> = members.iter().copied().collect();
    assert_eq!(found, online.iter().copied().filter(|number| model.contains(number)).collect::<Vec<_>>());
    let after = members[2500];
    let rest = f.stores.subscription_sets.chunks(NodeNumber(5), Some(id(after)), 1).await.unwrap();
    assert_eq!(rest[0].first(), members[2501], "those up to the number are left out");
    assert!(chunks(&f.stores, 6, 1).await.is_empty());
}

async fn a_node_of_many_subscribers_is_divided_and_removed(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    let mut model = BTreeSet::new();
    // In several orders: ascending, descending, and between.
    for part in [scattered(2000, 50), scattered(2000, 31).into_iter().rev().collect(), scattered(1500, 77)] {
        for some in part.chunks(500) {
            sets.add_many(some.iter().map(|number| (NodeNumber(1), id(*number))).collect()).await.unwrap();
        }
        model.extend(part);
    }
    let expected: Vec<u32> = model.iter().copied().collect();
    assert_eq!(subscribers(&f.stores, 1, 1000).await, expected);
    assert_eq!(sets.count_subscribers(NodeNumber(1)).await.unwrap(), expected.len() as u64);
    sets.subscribe(NodeNumber(2), id(expected[77])).await.unwrap();
    for number in expected.iter().step_by(2).take(200) {
        assert!(sets.unsubscribe(NodeNumber(1), id(*number)).await.unwrap());
        model.remove(number);
    }
    assert_eq!(subscribers(&f.stores, 1, 333).await, model.iter().copied().collect::<Vec<u32>>());
    assert_eq!(sets.remove_node(NodeNumber(1)).await.unwrap(), model.len() as u64);
    assert!(subscribers(&f.stores, 1, 10).await.is_empty());
    assert_eq!(nodes(&f.stores, expected[77], 10).await, [2]);
    assert!(nodes(&f.stores, expected[78], 10).await.is_empty());
}

/// A small generator, so that failures repeat.
fn random(state: &mut u64, end: u32) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (u64::from(u32::MAX) & *state >> 32) as u32 % end
}

async fn random_changes_are_those_of_a_model(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    let mut model: BTreeMap<(u32, u32), ()> = BTreeMap::new();
    let mut state = 9;
    for round in 0..600 {
        let (node, subscriber) =
            (random(&mut state, 6), 1 + random(&mut state, 3) * 300 + random(&mut state, 4));
        match random(&mut state, 20) {
            0 => {
                let removed = sets.remove_node(NodeNumber(node)).await.unwrap();
                let before = model.len();
                model.retain(|(one, _), ()| *one != node);
                assert_eq!(removed as usize, before - model.len());
            }
            1 => {
                let removed = sets.remove_subscriber(id(subscriber)).await.unwrap();
                let before = model.len();
                model.retain(|(_, one), ()| *one != subscriber);
                assert_eq!(removed as usize, before - model.len());
            }
            2..8 => {
                let was_there = model.remove(&(node, subscriber)).is_some();
                assert_eq!(sets.unsubscribe(NodeNumber(node), id(subscriber)).await.unwrap(), was_there);
            }
            _ => {
                let is_new = model.insert((node, subscriber), ()).is_none();
                assert_eq!(sets.subscribe(NodeNumber(node), id(subscriber)).await.unwrap(), is_new);
            }
        }
        if round % 20 == 0 {
            let of_node: Vec<u32> = model.keys().filter(|(one, _)| *one == node).map(|pair| pair.1).collect();
            assert_eq!(subscribers(&f.stores, node, 3).await, of_node);
            let of_one = model.keys().filter(|(_, one)| *one == subscriber).map(|pair| pair.0);
            assert_eq!(nodes(&f.stores, subscriber, 4).await, of_one.collect::<Vec<u32>>());
        }
    }
}

async fn changes_at_the_same_time_are_all_kept(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    let pairs: Vec<(u32, u32)> = (0..400).map(|n| (n % 7, 1 + n / 7 * 5)).collect();
    let added = pairs.iter().map(|(node, one)| sets.subscribe(NodeNumber(*node), id(*one)));
    assert!(join_all(added.collect()).await.into_iter().all(Result::unwrap));
    let removed = pairs.iter().step_by(3).map(|(node, one)| sets.unsubscribe(NodeNumber(*node), id(*one)));
    assert!(join_all(removed.collect()).await.into_iter().all(Result::unwrap));
    let left: BTreeSet<(u32, u32)> =
        pairs.iter().enumerate().filter(|(number, _)| number % 3 != 0).map(|(_, pair)| *pair).collect();
    for node in 0..7 {
        let of_node: Vec<u32> = left.iter().filter(|pair| pair.0 == node).map(|pair| pair.1).collect();
        assert_eq!(subscribers(&f.stores, node, 1000).await, of_node);
        assert_eq!(sets.count_subscribers(NodeNumber(node)).await.unwrap(), of_node.len() as u64);
    }
    for subscriber in pairs.iter().map(|pair| pair.1).collect::<BTreeSet<u32>>() {
        let of_one: Vec<u32> = left.iter().filter(|pair| pair.1 == subscriber).map(|pair| pair.0).collect();
        assert_eq!(nodes(&f.stores, subscriber, 1000).await, of_one);
    }
}

async fn one_subscription_is_changed_by_one_of_many_callers(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    let changed = |results: Vec<Result<bool, crate::StoreError>>| {
        results.into_iter().map(Result::unwrap).filter(|changed| *changed).count()
    };
    let added = (0..20).map(|_| sets.subscribe(NodeNumber(1), id(1)));
    assert_eq!(changed(join_all(added.collect()).await), 1);
    let removed = (0..20).map(|_| sets.unsubscribe(NodeNumber(1), id(1)));
    assert_eq!(changed(join_all(removed.collect()).await), 1);
}

async fn sets_of_one_side_are_added(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    let set = |number, members: Vec<u32>| SidedSet { number, members };
    let many = scattered(3000, 40);
    let first = vec![set(3, vec![1, 4, 5]), set(4, Vec::new()), set(9, many.clone())];
    sets.add_sided(SubscriptionSide::Subscribers, first).await.unwrap();
    assert_eq!(subscribers(&f.stores, 3, 9).await, [1, 4, 5]);
    assert!(subscribers(&f.stores, 4, 9).await.is_empty());
    assert_eq!(subscribers(&f.stores, 9, 1000).await, many);
    assert!(nodes(&f.stores, 4, 9).await.is_empty(), "only one side");
    let second = vec![set(9, scattered(3000, 43)), set(3, vec![2, 4])];
    sets.add_sided(SubscriptionSide::Subscribers, second).await.unwrap();
    assert_eq!(subscribers(&f.stores, 3, 9).await, [1, 2, 4, 5]);
    let both: BTreeSet<u32> = many.into_iter().chain(scattered(3000, 43)).collect();
    assert_eq!(subscribers(&f.stores, 9, 1000).await, both.iter().copied().collect::<Vec<u32>>());
    assert_eq!(sets.count_subscribers(NodeNumber(9)).await.unwrap(), both.len() as u64);
    sets.add_sided(SubscriptionSide::Nodes, vec![set(4, vec![3])]).await.unwrap();
    assert_eq!(nodes(&f.stores, 4, 9).await, [3]);
}

async fn sets_that_do_not_ascend_are_refused(f: Fixture) {
    let sets = &f.stores.subscription_sets;
    for (side, number, members) in [
        (SubscriptionSide::Subscribers, 1, vec![5, 4]),
        (SubscriptionSide::Subscribers, 1, vec![5, 5]),
        (SubscriptionSide::Subscribers, 1, vec![0, 5]),
        (SubscriptionSide::Nodes, 0, vec![1]),
    ] {
        let set = SidedSet { number, members };
        assert_eq!(sets.add_sided(side, vec![set]).await.unwrap_err().kind, StoreErrorKind::Internal);
    }
    assert!(subscribers(&f.stores, 1, 9).await.is_empty());
}

async fn bulk_adds_both_sides(f: Fixture) {
    f.stores.subscription_sets.subscribe(NodeNumber(3), id(50)).await.unwrap();
    let bulk =
        BulkSubscriptions { first_node: 2, nodes: 40, first_subscriber: 11, subscribers: 500, each: 60 };
    let mut reports = 0;
    // So little memory that there are several passes.
    let total = add_bulk(&f.stores, &bulk, 4 * 700, &mut |_| reports += 1).await.unwrap();
    assert_eq!(total, 2400);
    assert!(reports > 2);
    let mut expected: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for node in 2..42 {
        let of_node = subscribers(&f.stores, node, 100).await;
        assert_eq!(of_node.len(), if node == 3 && !bulk.has(3, 50) { 61 } else { 60 });
        assert!(of_node.iter().all(|number| (11..511).contains(number)));
        of_node.iter().for_each(|number| expected.entry(*number).or_default().push(node));
    }
    for subscriber in 11..511 {
        let of_subscriber = expected.remove(&subscriber).unwrap_or_default();
        assert_eq!(nodes(&f.stores, subscriber, 100).await, of_subscriber, "{subscriber}");
    }
    assert!(expected.is_empty());
    let again = add_bulk(&f.stores, &bulk, 1 << 20, &mut |_| {}).await.unwrap();
    assert_eq!(again, 2400);
    assert!(subscribers(&f.stores, 5, 100).await.len() == 60, "an interrupted bulk may be run again");
}
