//! Plain subscriptions of PubSub nodes in a database: several nodes of a cluster that change the same sets, damaged chunks, and a
//! restart.

#![allow(clippy::unwrap_used, reason = "clippy sees helpers outside of #[test] as ordinary code")]
mod support;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base::ManualClock;
use sqlx::ConnectOptions as _;
use store::conformance::join_all;
use store::subscription_sets::SidedSet;
use store::{AddressId, NodeNumber, StoreErrorKind, Stores, SubscriptionSide};
use support::servers::{new_database, on_each_server, open_url, patient};
use support::{TempDir, runtime};
use throng_store_sql::{DatabaseOptions, SqlStores};

fn id(number: u32) -> AddressId {
    AddressId::new(number).unwrap()
}

async fn subscribers(stores: &Stores, node: u32) -> Vec<u32> {
    let all = stores.subscription_sets.subscribers(NodeNumber(node), None, u32::MAX).await.unwrap();
    all.into_iter().map(AddressId::get).collect()
}

async fn nodes(stores: &Stores, subscriber: u32) -> Vec<u32> {
    let all = stores.subscription_sets.nodes(id(subscriber), None, u32::MAX).await.unwrap();
    all.into_iter().map(|node| node.0).collect()
}

/// Scattered, so that chunks are divided while the other nodes change them, and above the numbers of the sets of the tests.
fn member(number: u32) -> u32 {
    100 + number.wrapping_mul(2_654_435_761) % 3_000_000
}

#[test]
fn nodes_of_a_cluster_that_change_the_same_sets_lose_nothing() {
    on_each_server(async |server| {
        let url = server.url(&new_database(server).await);
        let mut databases = Vec::new();
        for _ in 0..3 {
            databases.push(open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap());
        }
        let stores: Vec<Stores> = databases.iter().map(SqlStores::stores).collect();
        let mut changes = Vec::new();
        for number in 0..3000 {
            // All nodes of the cluster change the sets of the same nodes and the same subscribers.
            let sets = &stores[number as usize % 3].subscription_sets;
            changes.push(sets.subscribe(NodeNumber(number % 2), id(member(number))));
            changes.push(sets.subscribe(NodeNumber(member(number)), id(1 + number % 2)));
        }
        let changed = join_all(changes).await.into_iter().map(Result::unwrap).filter(|changed| *changed);
        let all: BTreeSet<(u32, u32)> = (0..3000)
            .flat_map(|number| [(number % 2, member(number)), (member(number), 1 + number % 2)])
            .collect();
        assert_eq!(changed.count(), all.len());
        let removals = (0..3000).step_by(2).map(|number| {
            let sets = &stores[number as usize / 2 % 3].subscription_sets;
            sets.unsubscribe(NodeNumber(member(number)), id(1 + number % 2))
        });
        assert!(join_all(removals.collect()).await.into_iter().all(Result::unwrap));
        for set in 0..2 {
            let expected: Vec<u32> = all.iter().filter(|pair| pair.0 == set).map(|pair| pair.1).collect();
            assert!(subscribers(&stores[0], set).await == expected, "of {set}");
        }
        let of_second: Vec<u32> =
            all.iter().filter(|pair| pair.1 == 2 && pair.0 > 1).map(|pair| pair.0).collect();
        assert!(nodes(&stores[1], 2).await == of_second);
        assert!(nodes(&stores[2], 1).await.is_empty());
        join_all(databases.iter().map(|database| database.close()).collect()).await;
    });
}

#[test]
fn a_node_is_removed_by_several_callers_at_once() {
    on_each_server(async |server| {
        let url = server.url(&new_database(server).await);
        let one = open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap();
        let other = open_url(&url, &patient(), Arc::new(ManualClock::new())).await.unwrap();
        let stores = [one.stores(), other.stores()];
        let members: BTreeSet<u32> = (0..5000).map(member).collect();
        let pairs = members.iter().map(|number| (NodeNumber(7), id(*number))).collect();
        stores[0].subscription_sets.add_many(pairs).await.unwrap();
        let removals = stores.each_ref().map(|stores| stores.subscription_sets.remove_node(NodeNumber(7)));
        let removed: u64 = join_all(removals.into()).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(removed, members.len() as u64, "each subscription is removed by one of them");
        assert!(subscribers(&stores[0], 7).await.is_empty());
        assert!(nodes(&stores[1], member(4)).await.is_empty());
        one.close().await;
        other.close().await;
    });
}

async fn open(file: &Path) -> Arc<SqlStores> {
    support::open(file, &DatabaseOptions::default()).await.unwrap()
}

async fn run_sql(file: &Path, sql: &str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(file);
    let mut conn = options.connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
}

#[test]
fn subscriptions_are_there_after_a_restart() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file()).await;
        for number in 0..50 {
            database.stores().subscription_sets.subscribe(NodeNumber(1), id(member(number))).await.unwrap();
        }
        database.close().await;
        let database = open(&directory.file()).await;
        let expected: BTreeSet<u32> = (0..50).map(member).collect();
        assert_eq!(subscribers(&database.stores(), 1).await, Vec::from_iter(expected));
        database.close().await;
    });
}

#[test]
fn a_damaged_chunk_is_an_error_of_its_set_alone() {
    let directory = TempDir::new();
    runtime().block_on(async {
        for damage in
            ["X''", "X'00'", "randomblob(40)", "zeroblob(200)", "substr(numbers, 1, length(numbers) - 1)"]
        {
            let database = open(&directory.file()).await;
            let stores = database.stores();
            let sets = &stores.subscription_sets;
            for (node, subscriber) in [(1, 5), (1, 6), (2, 5), (3, 9)] {
                sets.subscribe(NodeNumber(node), id(subscriber)).await.unwrap();
            }
            run_sql(
                &directory.file(),
                &format!("UPDATE subscriber_chunk SET numbers = {damage} WHERE id >> 24 = 1"),
            )
            .await;
            let corrupt = |error: store::StoreError| error.kind == StoreErrorKind::Corrupt;
            assert!(sets.subscribers(NodeNumber(1), None, 9).await.is_err_and(corrupt), "{damage}");
            assert!(sets.chunks(NodeNumber(1), None, 9).await.is_err_and(corrupt));
            assert!(sets.contains(NodeNumber(1), id(5)).await.is_err_and(corrupt));
            assert!(sets.remove_node(NodeNumber(1)).await.is_err_and(corrupt));
            // In one transaction with others, which are stored.
            let changes = (0..9).map(|number| sets.subscribe(NodeNumber(number), id(40)));
            for (number, changed) in join_all(changes.collect()).await.into_iter().enumerate() {
                match number {
                    1 => assert!(changed.is_err_and(corrupt)),
                    _ => assert!(changed.unwrap(), "{number}"),
                }
            }
            assert_eq!(subscribers(&stores, 2).await, [5, 40]);
            assert_eq!(nodes(&stores, 40).await, [0, 2, 3, 4, 5, 6, 7, 8]);
            database.close().await;
            run_sql(&directory.file(), "DELETE FROM subscriber_chunk; DELETE FROM node_chunk").await;
        }
    });
}

/// Two chunks of a block would hide numbers of each other.
#[test]
fn chunks_of_a_set_do_not_overlap() {
    let directory = TempDir::new();
    runtime().block_on(async {
        let database = open(&directory.file()).await;
        let stores = database.stores();
        let sets = &stores.subscription_sets;
        let mut model = BTreeSet::new();
        for round in 0..40 {
            let some = (0..250).map(|number| member(round * 250 + number));
            model.extend(some.clone());
            sets.add_many(some.map(|number| (NodeNumber(4), id(number))).collect()).await.unwrap();
            // The chunk with the smallest ones is emptied now and then.
            if round % 10 == 9 {
                for number in model.iter().copied().take(300).collect::<Vec<u32>>() {
                    assert!(sets.unsubscribe(NodeNumber(4), id(number)).await.unwrap());
                    model.remove(&number);
                }
            }
        }
        let more: Vec<u32> =
            (0..4000).map(|number| 2 + number * 700).filter(|number| !model.contains(number)).collect();
        model.extend(&more);
        let set = SidedSet { number: 4, members: more };
        sets.add_sided(SubscriptionSide::Subscribers, vec![set]).await.unwrap();
        assert!(subscribers(&stores, 4).await == Vec::from_iter(model));
        let mut last = None;
        let mut chunks = 0;
        loop {
            let some = sets.chunks(NodeNumber(4), last.and_then(AddressId::new), 7).await.unwrap();
            if some.is_empty() {
                break;
            }
            for chunk in some {
                assert!(last.is_none_or(|last| last < chunk.first()));
                last = Some(chunk.last());
                chunks += 1;
            }
        }
        assert!(chunks > 15, "{chunks}");
        database.close().await;
    });
}
