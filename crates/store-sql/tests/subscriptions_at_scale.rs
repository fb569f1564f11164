//! Subscriptions in large numbers: octets on the disk, pages of one node and of one subscriber, changes a second.
//!
//! `cargo xtask bench subscriptions` runs this test with the profile `dist`, sizes in environment variables, and reads the lines
//! `figure NAME VALUE UNIT`. The pages are measured three times: with the database in the memory of the system, on SQLite also
//! without, and while subscriptions change.
//!
//! Not measured: the wire, and addresses, which have their own table.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "clippy sees helpers outside of #[test] as ordinary code; the figures are the output"
)]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base::ManualClock;
use store::conformance::join_all;
use store::number_chunk::{Growth, NumberChunk, divide, intersect};
use store::subscription_bulk::{BulkSubscriptions, add_bulk};
use store::{AddressId, NodeNumber, Stores};
use support::servers::{new_database, open_url, query_texts};
use support::{TempDir, runtime};
use test_databases::{Server, ServerKind, ServerSetup};
use throng_store_sql::{DatabaseOptions, SqlStores};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// Memory of the bulk besides what is being written.
const BULK_MEMORY: usize = 128 << 20;

/// Pages of each measurement.
const PAGES: u32 = 2000;

/// Subscriptions that are changed at the same time.
const CALLERS: u32 = 1024;

/// Time of the changes.
const SECONDS: u64 = 15;

/// Subscribers of a large node who are online.
const ONLINE: u32 = 15_000;

fn variable<T: std::str::FromStr>(name: &str, default: T) -> T {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// A number that looks random.
fn random(number: u64, end: u32) -> u32 {
    let mixed = (number ^ number >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x81da_def4_bc2d_d44d);
    u32::try_from((mixed ^ mixed >> 33) % u64::from(end)).unwrap()
}

fn memory_mb(line: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = status.lines().find(|one| one.starts_with(line));
    found.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).map_or(0.0, |kb: f64| kb / 1024.0)
}

/// Lets the highest use of memory begin again.
fn reset_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Removes a file from the memory of the system.
fn drop_from_memory(file: &Path) {
    let dropped = std::process::Command::new("dd")
        .args([&format!("if={}", file.display()), "iflag=nocache", "count=0", "status=none"])
        .status();
    assert!(dropped.unwrap().success());
}

fn print_times(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    for percent in [50, 99] {
        let ms = times[times.len() * percent / 100].as_secs_f64() * 1e3;
        println!("figure {name}.p{percent} {ms:.3} ms");
    }
}

/// Reads pages of both kinds, one after the other.
async fn pages(stores: &Stores, bulk: &BulkSubscriptions, name: &str) {
    let (mut of_nodes, mut of_subscribers) = (Vec::new(), Vec::new());
    for number in 0..u64::from(PAGES) {
        let node = NodeNumber(bulk.first_node + random(number, bulk.nodes));
        let begun = Instant::now();
        let page = stores.subscription_sets.subscribers(node, None, 1000).await.unwrap();
        of_nodes.push(begun.elapsed());
        assert!(page.len() >= 1000.min(bulk.each as usize));
        let subscriber = bulk.first_subscriber + random(!number, bulk.subscribers);
        let begun = Instant::now();
        stores.subscription_sets.nodes(AddressId::new(subscriber).unwrap(), None, 1000).await.unwrap();
        of_subscribers.push(begun.elapsed());
    }
    print_times(&format!("page.subscribers.{name}"), of_nodes);
    print_times(&format!("page.nodes.{name}"), of_subscribers);
}

/// Subscriptions by many callers, each of which waits for its last one, and their removal; returns the counts a second.
async fn changes(stores: &Stores, bulk: &BulkSubscriptions) -> (f64, f64) {
    let mut rates = Vec::new();
    let mut counts = vec![u64::MAX; CALLERS as usize];
    for is_added in [true, false] {
        let (ended, total) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let begun = Instant::now();
        let callers = counts.iter().enumerate().map(|(caller, count)| {
            let (stores, bulk, count) = (stores.clone(), *bulk, *count);
            let (ended, total) = (ended.clone(), total.clone());
            Handle::current().spawn(async move {
                let mut done = 0;
                while done < count && !ended.load(Ordering::Relaxed) {
                    let number = (caller as u64) << 32 | done;
                    let node = NodeNumber(bulk.first_node + random(number, bulk.nodes));
                    let subscriber = bulk.first_subscriber + random(!number, bulk.subscribers);
                    let subscriber = AddressId::new(subscriber).unwrap();
                    match is_added {
                        true => stores.subscription_sets.subscribe(node, subscriber).await.unwrap(),
                        false => stores.subscription_sets.unsubscribe(node, subscriber).await.unwrap(),
                    };
                    done += 1;
                    total.fetch_add(1, Ordering::Relaxed);
                }
                done
            })
        });
        let callers: Vec<_> = callers.collect();
        let watch = {
            let ended = ended.clone();
            Handle::current().spawn(async move {
                tokio::time::sleep(Duration::from_secs(SECONDS)).await;
                ended.store(true, Ordering::Relaxed);
            })
        };
        if is_added {
            pages(stores, bulk, "while_changing").await;
        }
        counts = join_all(callers).await.into_iter().map(|done| done.unwrap()).collect();
        rates.push(total.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64());
        watch.abort();
    }
    (rates[0], rates[1])
}

/// Time to find those who are online in the chunks of a node of a million.
fn intersection() {
    let numbers: Vec<u32> = (0..1_000_000).map(|n| n * 3 + random(u64::from(n), 3)).collect();
    let chunks = divide(&numbers, Growth::Anywhere);
    let mut online: Vec<u32> =
        (0..ONLINE).map(|n| numbers[random(u64::from(n), 1_000_000) as usize]).collect();
    online.extend((0..ONLINE).map(|n| random(!u64::from(n), 3_000_000)));
    online.sort_unstable();
    online.dedup();
    let mut times = Vec::new();
    for _ in 0..200 {
        let (begun, mut found) = (Instant::now(), Vec::new());
        intersect(&chunks, &online, &mut found);
        times.push(begun.elapsed());
        assert!(found.len() > ONLINE as usize);
    }
    print_times("intersection", times);
}

/// Time to read the chunks of a node and to find those who are online.
async fn read_online(stores: &Stores, bulk: &BulkSubscriptions) {
    let mut online: Vec<u32> =
        (0..ONLINE).map(|n| bulk.first_subscriber + random(u64::from(n), bulk.subscribers)).collect();
    online.sort_unstable();
    let (mut times, mut firsts) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let node = NodeNumber(bulk.first_node + random(number, bulk.nodes));
        let (begun, mut found, mut after) = (Instant::now(), Vec::new(), None);
        let mut first = None;
        loop {
            let chunks = stores.subscription_sets.chunks(node, after, 128).await.unwrap();
            let Some(last) = chunks.last().map(NumberChunk::last) else { break };
            intersect(&chunks, &online, &mut found);
            first.get_or_insert_with(|| begun.elapsed());
            after = AddressId::new(last);
        }
        times.push(begun.elapsed());
        firsts.extend(first);
    }
    print_times("read_online.all", times);
    print_times("read_online.first", firsts);
}

struct Target {
    url: String,
    file: Option<std::path::PathBuf>,
}

impl Target {
    async fn open(&self) -> Arc<SqlStores> {
        let options =
            DatabaseOptions { write_deadline: Duration::from_secs(300), ..DatabaseOptions::default() };
        open_url(&self.url, &options, Arc::new(ManualClock::new())).await.unwrap()
    }

    async fn octets(&self) -> f64 {
        match &self.file {
            Some(file) => std::fs::metadata(file).unwrap().len() as f64,
            None => {
                let tables = query_texts(
                    &self.url,
                    "SELECT (pg_total_relation_size('subscriber_chunk') + pg_total_relation_size('node_chunk'))::text",
                );
                tables.await[0].parse().unwrap()
            }
        }
    }
}

async fn measure(target: Target) {
    let subscribers = variable("SUBSCRIPTION_SUBSCRIBERS", 100_000);
    let bulk = BulkSubscriptions {
        first_node: 1,
        nodes: variable("SUBSCRIPTION_NODES", 10_000),
        first_subscriber: 1,
        subscribers,
        each: variable("SUBSCRIPTION_EACH", 1000),
    };
    let database = target.open().await;
    let begun = Instant::now();
    let mut reported = begun;
    let mut report = |progress| {
        if reported.elapsed() > Duration::from_secs(10) {
            reported = Instant::now();
            eprintln!("{progress:?} after {:.0} s", begun.elapsed().as_secs_f64());
        }
    };
    let total = add_bulk(&database.stores(), &bulk, BULK_MEMORY, &mut report).await.unwrap();
    println!("figure bulk.total {total} subscriptions");
    println!("figure bulk.time {:.1} s", begun.elapsed().as_secs_f64());
    println!("figure bulk.rate {:.0} subscriptions/s", total as f64 / begun.elapsed().as_secs_f64());
    println!("figure bulk.memory {:.0} MB", memory_mb("VmHWM"));
    database.close().await;
    drop(database);
    let octets = target.octets().await;
    println!("figure disk.total {:.3} GB", octets / 1e9);
    println!("figure disk.subscription {:.3} B", octets / total as f64);

    reset_peak();
    if let Some(file) = &target.file {
        drop_from_memory(file);
    }
    let begun = Instant::now();
    let database = target.open().await;
    println!("figure start.time {:.3} s", begun.elapsed().as_secs_f64());
    let stores = database.stores();
    pages(&stores, &bulk, "cold").await;
    pages(&stores, &bulk, "warm").await;
    read_online(&stores, &bulk).await;
    println!("figure start.memory {:.0} MB", memory_mb("VmHWM"));
    let before = database.commits();
    let (added, removed) = changes(&stores, &bulk).await;
    println!("figure subscribe.rate {added:.0} change/s");
    println!("figure unsubscribe.rate {removed:.0} change/s");
    println!("figure change.commits {} commits", database.commits() - before);
    println!("figure traffic.memory {:.0} MB", memory_mb("VmHWM"));
    database.close().await;
    println!("figure disk.after {:.3} GB", target.octets().await / 1e9);
    intersection();
}

#[test]
#[ignore = "a measurement"]
fn measure_subscriptions_on_sqlite() {
    let directory = TempDir::new();
    let file = directory.file();
    let url = format!("sqlite:{}", file.display());
    runtime().block_on(measure(Target { url, file: Some(file) }));
}

#[test]
#[ignore = "a measurement"]
fn measure_subscriptions_on_postgres() {
    let server = Server::start_with(ServerKind::Postgres, &ServerSetup::measured(ServerKind::Postgres));
    runtime().block_on(async {
        let name = new_database(&server).await;
        measure(Target { url: server.url(&name), file: None }).await;
    });
}
